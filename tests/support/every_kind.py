"""A small source of each kind, of the same images and labels, as the tools write it that such sources come from."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from archived import zipped
from numpy.typing import NDArray
from pictures import encoded
from PIL import Image
from tfrecords import rows, tfrecord
from videos import encode

import rawpack_packer

Columns = Mapping[str, Sequence[Any]]
Files = Sequence[tuple[str, bytes]]
"""The name and the bytes of each image."""
HEIGHT, WIDTH = 12, 16
"""Of images of which VOC's boxes are right."""


def png(number: int) -> bytes:
    """Another image for each number, which no swap of axes or channels leaves as it is."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return encoded(np.stack([np.full_like(x, 25 * number), 12 * y, 60 + 12 * x], 2).astype(np.uint8))


def pictures(*names: str) -> Files:
    return [(name, png(i)) for i, name in enumerate(names)]


def pixels_of(files: Files) -> NDArray[np.uint8]:
    return np.array([np.asarray(Image.open(io.BytesIO(data))) for _, data in files], np.uint8)


def written(folder: Path, files: Files) -> None:
    """Images as files: a name may be one that is not UTF-8."""
    for name, data in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


# ---------------------------------------------------------------------------------------------- tables
def rows_of_csv(folder: Path, columns: Columns, files: Files) -> Path:
    written(folder, files)
    with (folder / "list.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["path", *columns])
        out.writerows([name, *(values[i] for values in columns.values())] for i, (name, _) in enumerate(files))
    return folder / "list.csv"


def rows_of_jsonl(folder: Path, columns: Columns, files: Files) -> Path:
    written(folder, files)
    rows = [{"path": name} | {key: column[i] for key, column in columns.items()} for i, (name, _) in enumerate(files)]
    (folder / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "list.jsonl"


def rows_of_parquet(folder: Path, columns: Columns, files: Files) -> Path:
    images = pa.array([data for _, data in files], pa.binary())
    pq.write_table(pa.table({"image": images, **{name: list(column) for name, column in columns.items()}}),
                   folder / "table.parquet")  # fmt: skip
    return folder / "table.parquet"


def rows_of_tfrecord(folder: Path, columns: Columns, files: Files) -> Path:
    (folder / "set.tfrecord").write_bytes(tfrecord(rows(columns, [data for _, data in files])))
    return folder / "set.tfrecord"


def rows_of_hdf5(folder: Path, columns: Columns, files: Files) -> Path:
    with h5py.File(folder / "set.h5", "w") as file:
        kept = file.create_dataset("image", len(files), h5py.vlen_dtype(np.uint8))
        for i, (_, data) in enumerate(files):
            kept[i] = np.frombuffer(data, np.uint8)
        for name, values in columns.items():
            file[name] = list(values)
    return folder / "set.h5"


def rows_of_npz(folder: Path, columns: Columns, files: Files) -> Path:
    pixels = pixels_of(files) if files else np.zeros((0, 4, 4, 3), np.uint8)
    np.savez(folder / "set.npz", image=pixels, **{name: np.array(values) for name, values in columns.items()})
    return folder / "set.npz"


def rows_of_columns(folder: Path, columns: Columns, files: Files) -> dict[str, Any]:
    return {"image": list(pixels_of(files)), **{name: list(values) for name, values in columns.items()}}


def rows_of_mds(folder: Path, columns: Columns, files: Files) -> Path:
    """Numbers of 8 bytes, texts, and files as bytes."""
    kinds = {bytes: "bytes", str: "str", int: "int", float: "float64", np.int64: "int64"}
    values = {"image": [data for _, data in files], **columns}
    encodings = [kinds[type(next(iter(column), ""))] for column in values.values()]
    rows = []
    for i in range(len(files)):
        row = [column[i] for column in values.values()]
        parts = [
            one if isinstance(one, bytes) else one.encode() if isinstance(one, str) else np.array(one).tobytes()
            for one in row
        ]
        rows.append(struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts))
    starts = np.cumsum([4 + 4 * (len(rows) + 1), *map(len, rows)]).astype("<u4")
    data = struct.pack("<I", len(rows)) + starts.tobytes() + b"".join(rows)
    (folder / "mds").mkdir(exist_ok=True)
    (folder / "mds" / "a.mds").write_bytes(data)
    shard = {
        "format": "mds", "version": 2, "samples": len(rows), "column_names": [*values], "column_encodings": encodings,
        "column_sizes": [None] * len(values), "raw_data": {"basename": "a.mds", "bytes": len(data)},
    }  # fmt: skip
    (folder / "mds" / "index.json").write_text(json.dumps({"shards": [shard]}))
    return folder / "mds"


TABLES: dict[str, Callable[[Path, Columns, Files], Any]] = {
    "mds": rows_of_mds,
    "csv": rows_of_csv,
    "jsonl": rows_of_jsonl,
    "parquet": rows_of_parquet,
    "tfrecord": rows_of_tfrecord,
    "hdf5": rows_of_hdf5,
    "npz": rows_of_npz,
    "columns": rows_of_columns,
}
"""Those whose labels, keys and fields are columns."""


# ---------------------------------------------------------------------------------------------- others
def _class_folders(labels: Sequence[Any], files: Files) -> list[tuple[str, bytes]]:
    return [(f"{label}/{name}", data) for label, (name, data) in zip(labels, files, strict=True)]


def folder(path: Path, labels: Sequence[Any], files: Files) -> Path:
    (path / "set").mkdir()
    written(path / "set", _class_folders(labels, files))
    return path / "set"


def tarred(path: Path, labels: Sequence[Any], files: Files) -> Path:
    (path / "set.tar").write_bytes(_tar_of(_class_folders(labels, files)))
    return path / "set.tar"


def zip_of(path: Path, labels: Sequence[Any], files: Files) -> Path:
    (path / "set.zip").write_bytes(zipped(dict(_class_folders(labels, files))))
    return path / "set.zip"


def shards(path: Path, labels: Sequence[Any], files: Files) -> Path:
    members = list[tuple[str, bytes]]()
    for label, (name, data) in zip(labels, files, strict=True):
        members += [(name, data), (f"{name.partition('.')[0]}.cls", str(label).encode())]
    (path / "set.tar").write_bytes(_tar_of(members))
    return path / "set.tar"


def _tar_of(members: Files) -> bytes:
    """With names that come twice, and with those that are not UTF-8."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def lmdb_of(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """As text recognition has it, or image files by their names where there are no labels."""
    with lmdb.open(str(path / "set.lmdb"), map_size=1 << 20) as made, made.begin(write=True) as values:
        for i, (name, data) in enumerate(files, 1):
            values.put(f"image-{i:09d}".encode() if labels else os.fsencode(name), data)
            if labels:
                values.put(f"label-{i:09d}".encode(), str(labels[i - 1]).encode())
        if labels:
            values.put(b"num-samples", str(len(files)).encode())
    return path / "set.lmdb"


def recordio(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """With the numbers that MXNet's im2rec writes."""
    made = b""
    for i, (label, (_, data)) in enumerate(zip(labels, files, strict=True)):
        record = struct.pack("<IfQQ", 0, float(label), i, 0) + data
        made += struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4)
    (path / "set.rec").write_bytes(made)
    return path / "set.rec"


def coco(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A box of each image's class."""
    written(path, files)
    names = sorted(set(labels))
    (path / "set.json").write_text(json.dumps({
        "images": [{"id": i, "file_name": name} for i, (name, _) in enumerate(files)],
        "annotations": [
            {"id": i, "image_id": i, "category_id": names.index(label) + 1, "bbox": [0, 0, 4, 4]}
            for i, label in enumerate(labels)
        ],
        "categories": [{"id": i, "name": str(name)} for i, name in enumerate(names, 1)],
    }))  # fmt: skip
    return path / "set.json"


def voc(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A box of each image's class."""
    (path / "VOC2012" / "Annotations").mkdir(parents=True)
    (path / "VOC2012" / "JPEGImages").mkdir()
    written(path / "VOC2012" / "JPEGImages", files)
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
    for label, (name, _) in zip(labels, files, strict=True):
        (path / "VOC2012" / "Annotations" / f"{name.partition('.')[0]}.xml").write_text(
            f"<annotation><filename>{name}</filename><size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
            f"<object><name>{label}</name>{box}</object></annotation>"
        )
    return path / "VOC2012"


def yolo(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A box of each image's class, by its number."""
    (path / "set" / "labels").mkdir(parents=True)
    (path / "set" / "images").mkdir()
    written(path / "set" / "images", files)
    for label, (name, _) in zip(labels, files, strict=True):
        (path / "set" / "labels" / f"{name.partition('.')[0]}.txt").write_text(f"{label} 0.5 0.5 0.5 0.5\n")
    return path / "set"


def labelme(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A box of each image's class."""
    (path / "set").mkdir()
    written(path / "set", files)
    for label, (name, _) in zip(labels, files, strict=True):
        shape = {"label": str(label), "shape_type": "rectangle", "points": [[0, 0], [4, 4]], "group_id": None}
        about = {"imagePath": name, "imageHeight": HEIGHT, "imageWidth": WIDTH, "shapes": [shape]}
        (path / "set" / f"{name.partition('.')[0]}.json").write_text(json.dumps(about))
    return path / "set"


def cvat(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A box of each image's class; the labels of the task are sorted."""
    (path / "set" / "images").mkdir(parents=True)
    written(path / "set" / "images", files)
    task = "".join(f"<label><name>{label}</name></label>" for label in sorted({*map(str, labels)}))
    images = "".join(
        f'<image name="{name}" width="{WIDTH}" height="{HEIGHT}"><box label="{label}" xtl="0" ytl="0" xbr="4" ybr="4"/>'
        "</image>"
        for label, (name, _) in zip(labels, files, strict=True)
    )
    (path / "set" / "annotations.xml").write_text(
        f"<annotations><meta><task><labels>{task}</labels></task></meta>{images}</annotations>"
    )
    return path / "set"


def videos(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """A video in a folder of its class, of two frames, 2 n and 2 n + 1 of video n; what is no image is no video
    either."""
    for i, (label, (name, data)) in enumerate(zip(labels, files, strict=True)):
        made = path / "set" / str(label) / f"{name.partition('.')[0]}.mp4"
        encode(made, "mpeg4", 2, numbers=(2 * i, 2 * i + 1))
        if not data.startswith(b"\x89PNG"):
            made.write_bytes(data)
    (path / "set").mkdir(exist_ok=True)
    return path / "set"


def store(path: Path, labels: Sequence[Any], files: Files) -> Path:
    """Of images in class folders."""
    rawpack_packer.pack(folder(path, labels, files), path / "store", size="keep", format="lmdb", workers=0)
    return path / "store"


OTHERS: dict[str, Callable[[Path, Sequence[Any], Files], Path]] = {
    "folder": folder,
    "tar": tarred,
    "zip": zip_of,
    "webdataset": shards,
    "lmdb": lmdb_of,
    "recordio": recordio,
    "coco": coco,
    "voc": voc,
    "yolo": yolo,
    "labelme": labelme,
    "cvat": cvat,
    "video": videos,
    "store": store,
}
"""Those whose labels are elsewhere."""


def made(kind: str, path: Path, labels: Sequence[Any], files: Files) -> Any:
    """A source in the folder `path`, which may be missing: a path, or columns in memory."""
    path.mkdir(parents=True, exist_ok=True)
    return TABLES[kind](path, {"label": labels}, files) if kind in TABLES else OTHERS[kind](path, labels, files)
