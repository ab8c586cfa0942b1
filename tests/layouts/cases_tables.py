"""Parquet, TFRecord, LMDB, RecordIO, LeRobot, and what other loaders write."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from cases import Case, Files, image, images, write
from cases_beside import parquet
from layout import FIXTURES, copied
from tfrecords import tfrecord, varint

import rawpack_packer

_LABEL = {"names": ["cat", "dog"], "_type": "ClassLabel"}


def table(rows: int = 2, start: int = 0, **more: Any) -> bytes:
    """A Parquet file as the Hub has them, with images and classes."""
    pictures = [{"bytes": image(".png", start + n), "path": f"{start + n}.png"} for n in range(rows)]
    columns = {"image": pictures, "label": [n % 2 for n in range(rows)], **more}
    return parquet(columns, {"image": {"_type": "Image"}, "label": _LABEL})


def tables(*names: str) -> Callable[[Path], Files]:
    return lambda root: {name: table(start=2 * n) for n, name in enumerate(names)}


def records(count: int = 2, start: int = 0, **more: Any) -> bytes:
    return tfrecord(
        [{"image/encoded": image(".png", start + n), "image/class/label": n % 2, **more} for n in range(count)]
    )


_ROWS = np.array([[1, 0.5, 0.5, 0.25, 0.5], [0, 0.25, 0.5, 0.5, 1.004]]).tobytes()


def _lmdb(values: Mapping[str, bytes], *, subdir: bool = True) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        with lmdb.open(str(root / "set.lmdb"), map_size=1 << 20, subdir=subdir) as made, made.begin(write=True) as put:
            for key, value in values.items():
                put.put(key.encode(), value)

    return make


def _newest_litdata() -> Files:
    """As litdata 0.2.76 writes samples of bytes and numbers: rows of Arrow after offsets that are all the same."""
    import pyarrow as pa

    file = io.BytesIO()
    rows = pa.table({"0": [image(".png", n) for n in range(2)], "1": [0, 1]})
    with pa.ipc.new_file(file, rows.schema) as out:
        out.write_table(rows)
    data = struct.pack("<4I", 2, 16, 16, 16) + file.getvalue()
    index = json.loads((FIXTURES / "litdata/dicts/index.json").read_text())
    index["chunks"] = [{"chunk_bytes": len(data), "chunk_size": 2, "dim": None, "filename": "chunk-0-0.bin"}]
    index["config"] |= {"data_format": ["bytes", "int"], "types": {"image": "bytes", "class": "int"}}
    return {"set/index.json": json.dumps(index), "set/chunk-0-0.bin": data}


def _store(root: Path) -> None:
    write(root, images("photos/{cat,dog}/0.png"))
    rawpack_packer.pack(root / "photos", root / "store", size=8, workers=0)


def _set_of_stores(root: Path) -> None:
    write(root, images("photos/{train,val}/{cat,dog}/0.png"))
    rawpack_packer.pack_splits(root / "photos", root / "store", splits=["train", "val"], size=8, workers=0)


_STR = {"image-000000001": image(".jpg"), "label-000000001": b"Words", "num-samples": b"1"}
_DATUM = b"\x22" + varint(len(image())) + image() + b"\x28\1\x38\1"
"""Of Caffe's: a file, its label, and that it is a file."""
_RAW = np.random.default_rng(0).integers(0, 256, (27, 48, 3)).astype(np.uint8).tobytes()
_TWO_IMAGES = records(**{"image/depth/encoded": image(".png", 7)})

hub_case = partial(Case, needs=("pyarrow",))
robot_case = partial(Case, needs=("av", "pyarrow"))
records_case = partial(Case, needs=("google_crc32c",))


def _parquet_file(name: str, data: Callable[[], bytes], **options: Any) -> Case:
    """One Parquet file. data: called only where pyarrow is installed."""
    return hub_case(name, "set.parquet", lambda root: {"set.parquet": data()}, options)


def _records_file(name: str, data: bytes, **options: Any) -> Case:
    return records_case(name, "set.tfrecord", {"set.tfrecord": data}, options)


def _record_files(names: str, *numbers: int, gzipped: bool = False) -> Files:
    """Files of TFRecord of these numbers, each with other images."""
    made = {names.format(n): records(start=2 * n) for n in numbers}
    return {name: gzip.compress(data, mtime=0) if gzipped else data for name, data in made.items()}


def _of_versions(root: Path) -> Files:
    files = [*(FIXTURES / "tfrecord/pets/1.0.0").iterdir()]
    return {f"pets/{version}/{file.name}": file.read_bytes() for version in ("1.0.0", "2.0.0") for file in files}


CASES = (
    _parquet_file("a Parquet of bytes", lambda: parquet({"image": [image()] * 2, "label": ["cat", "dog"]})),
    _parquet_file("a Parquet of two images", lambda: table(right=[image(".png", 9)] * 2)),
    _parquet_file(
        "a Parquet of two images, one of which is named",
        lambda: parquet({"left": [image()] * 2, "right": [image(".png", 9)] * 2}),
        image_column="left",
        fields=("right:image",),
    ),
    _parquet_file("a Parquet of lists of images", lambda: parquet({"images": [[image()], [image()]]})),
    _parquet_file(
        "a Parquet with labels that are missing", lambda: parquet({"image": [image()] * 2, "label": [1, None]})
    ),
    _parquet_file("a Parquet that is cut", lambda: table()[:200]),
    hub_case("a folder of Parquet", "set", tables("set/0.parquet", "set/1.parquet")),
    hub_case("Parquet by a pattern", "set/*.parquet", tables("set/0.parquet", "set/1.parquet")),
    hub_case("a checkout of the Hub", "checkout", copied("huggingface/checkout", "checkout")),
    hub_case("a checkout of a split for each file", "hub", tables("hub/train.parquet", "hub/test.parquet")),
    hub_case(
        "a checkout of several configurations",
        "hub",
        tables("hub/small/train-00000-of-00001.parquet", "hub/large/train-00000-of-00001.parquet"),
    ),
    hub_case(
        "a checkout that lacks a shard",
        "hub",
        tables("hub/train-00000-of-00003.parquet", "hub/train-00002-of-00003.parquet"),
    ),
    hub_case(
        "a Parquet beside image files",
        "photos",
        lambda root: {**images("photos/{0,1}.jpg"), "photos/x.parquet": table()},
    ),
    hub_case("save_to_disk of a DatasetDict", "divided", copied("huggingface/divided", "divided")),
    hub_case("a Parquet whose footer lies", "set", copied("broken_footer.parquet", "set/a.parquet")),
    _records_file("a TFRecord file", records()),
    records_case("a gzipped TFRecord file", "set.tfrecord.gz", {"set.tfrecord.gz": gzip.compress(records(), mtime=0)}),
    _records_file("a TFRecord file by ZLIB", zlib.compress(records())),
    records_case(
        "shards of TFRecord by a pattern that ends in their number",
        "set/train-*-of-00002",
        _record_files("set/train-{:05}-of-00002", 0, 1),
    ),
    records_case(
        "files of TFRecord of any name by a pattern",
        "set/part*",
        _record_files("set/part{}.data.gz", 0, 1, gzipped=True),
    ),
    records_case(
        "shards of TFRecord by a pattern, one missing",
        "set/train-*",
        _record_files("set/train-{:05}-of-00004", 0, 1, 3),
    ),
    records_case("shards of TFRecord, one missing", "set", _record_files("set/train-{:05}-of-00003", 0, 2)),
    records_case("TFRecord with an index", "set", {"set/data.tfrecord": records(), "set/data.tfindex": "0 9\n"}),
    _records_file("TFRecord with two images", _TWO_IMAGES),
    *(
        _records_file(
            f"TFRecord with two images, declared {how}",
            _TWO_IMAGES,
            image_column="image/encoded",
            fields=(f"{name}:image",),
        )
        for how, name in (("as is said", "image_depth_encoded"), ("by another name", "depth=image/depth/encoded"))
    ),
    _records_file(
        "TFRecord of pixels and their sizes", tfrecord([{"image_raw": bytes(48), "height": 4, "width": 4, "depth": 3}])
    ),
    records_case(
        "TFRecord of a sequence", "sequence.tfrecord", copied("tfrecord/sequence.tfrecord", "sequence.tfrecord")
    ),
    records_case("TensorFlow Datasets' folder of a set", "pets", copied("tfrecord/pets", "pets")),
    records_case("TensorFlow Datasets' folder of several versions", "pets", _of_versions),
    Case("MDS of every encoding", "set", copied("mds/every", "set")),
    Case("litdata of every value", "set", copied("litdata/every", "set")),
    Case("the index of MDS", "set/index.json", copied("mds/splits/train", "set")),
    Case("MDS with pickles", "set", copied("mds/pickled", "set")),
    Case("MDS, compressed", "set", copied("mds/packed/gz", "set")),
    Case("MDS without its index", "set", {"set/shard.00000.mds": b"\1\0\0\0"}),
    Case("an index.json of something else", "set", {"set/index.json": "{}", "set/shard.00000.mds": b"x"}),
    Case("litdata's tensors", "set", copied("litdata/chw", "set")),
    Case("litdata with pickles", "set", copied("litdata/pickled", "set")),
    hub_case("litdata's newest layout", "set", lambda root: _newest_litdata(), wrong="rows of Arrow are called damage"),
    Case("a RecordIO file", "plain.rec", copied("recordio/plain.rec", "plain.rec")),
    Case("RecordIO of boxes", "boxes.rec", copied("recordio/boxes.rec", "boxes.rec")),
    Case("RecordIO of images in parts", "split.rec", copied("recordio/split.rec", "split.rec")),
    Case("RecordIO of raw pixels", "raw.rec", copied("recordio/raw.rec", "raw.rec")),
    robot_case("LeRobot, v3", "robot", copied("lerobot/v30/h264", "robot")),
    Case("an LMDB of text recognition", "set.lmdb", _lmdb(_STR)),
    Case("the data.mdb of an LMDB", "set.lmdb/data.mdb", _lmdb(_STR)),
    Case(
        "an LMDB of pickles",
        "set.lmdb",
        _lmdb({"0": pickle.dumps((image(), 1)), "__keys__": pickle.dumps([b"0"]), "__len__": pickle.dumps(1)}),
    ),
    Case("an LMDB of Caffe's", "set.lmdb", _lmdb({"0": _DATUM})),
    Case("an LMDB of pixels", "set.lmdb", _lmdb({"a": _RAW, "b": _RAW})),
    Case(
        "an LMDB of boxes and of other rows",
        "set.lmdb",
        _lmdb({**{f"{n}.png": image() for n in "ab"}, "a.box": _ROWS, "b.box": np.arange(10.0).tobytes()}),
        {"fields": ("boxes=box:yolo",)},
    ),
    Case(
        "an LMDB of pixels and boxes",
        "set.lmdb",
        _lmdb({"a.raw": bytes(8 * 6 * 3), "a.ann": _ROWS}),
        {"fields": ("boxes=ann:yolo",), "array": "image=raw:8x6"},
    ),
    Case("an LMDB of pixels of a size", "set.lmdb", _lmdb({"a": bytes(8 * 6), "b": b"1"}), {"array": "image=8x6"}),
    Case("an empty LMDB", "set.lmdb", _lmdb({})),
    Case("a store", "store", _store),
    Case("a set of stores", "store", _set_of_stores),
)
