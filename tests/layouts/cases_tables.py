"""Tables and lists of paths; Parquet, TFRecord, LMDB, RecordIO, LeRobot, and what other loaders write."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from cases import FIXTURES, Case, Files, copied, files, image, images, lone, write
from cases_beside import parquet
from tfrecords import tfrecord

import rawpack_packer

_LABEL = {"names": ["cat", "dog"], "_type": "ClassLabel"}


def table(rows: int = 2, start: int = 0, **more: Any) -> bytes:
    """A Parquet file as the Hub has them, with images and classes."""
    pictures = [{"bytes": image(".png", start + n), "path": f"{start + n}.png"} for n in range(rows)]
    columns = {"image": pictures, "label": [n % 2 for n in range(rows)], **more}
    return parquet(columns, {"image": {"_type": "Image"}, "label": _LABEL})


def tables(*names: str) -> Callable[[Path], Files]:
    return lambda root: {name: table(start=2 * n) for n, name in enumerate(names)}


def _records(start: int = 0, **more: Any) -> bytes:
    return tfrecord([{"image/encoded": image(".png", start + n), "image/class/label": n, **more} for n in range(2)])


def _lmdb(name: str, values: dict[str, bytes], *, path: str = "set.lmdb", **options: Any) -> Case:
    def make(root: Path) -> None:
        with lmdb.open(str(root / "set.lmdb"), map_size=1 << 20) as made, made.begin(write=True) as put:
            for key, value in values.items():
                put.put(key.encode(), value)

    return Case(name, path, make, options)


def _store(root: Path) -> None:
    write(root, images("photos/{train,val}/{cat,dog}/0.png"))
    rawpack_packer.pack_splits(root / "photos", root / "store", splits=["train", "val"], size=8, workers=0)


def _two_versions(root: Path) -> Files:
    files = [*(FIXTURES / "tfrecord/pets/1.0.0").iterdir()]
    return {f"pets/{version}/{file.name}": file.read_bytes() for version in ("1.0.0", "2.0.0") for file in files}


_STR = {"image-000000001": image(".jpg"), "label-000000001": b"Words", "num-samples": b"1"}
_RAW = np.random.default_rng(0).integers(0, 256, (27, 48, 3)).astype(np.uint8).tobytes()
_TWO_IMAGES = _records(**{"image/depth/encoded": image(".png", 7)})

_hub = partial(Case, needs=("pyarrow",))
_tfrecord = partial(Case, needs=("google_crc32c",))


def _parquet_file(name: str, data: Callable[[], bytes], **options: Any) -> Case:
    """One Parquet file. data: called only where pyarrow is installed."""
    return _hub(name, "set.parquet", lambda root: {"set.parquet": data()}, options)


def _records_file(name: str, data: bytes, **options: Any) -> Case:
    return _tfrecord(name, "set.tfrecord", {"set.tfrecord": data}, options)


def _shards(names: str, *numbers: int) -> Files:
    """Files of TFRecord of these numbers, each with other images."""
    return {names.format(n): _records(2 * n) for n in numbers}


def _written(name: str, fixture: str, to: str = "set", path: str = "") -> Case:
    """What another tool wrote."""
    return Case(name, path or to, copied(fixture, to))


TABLES = (
    _parquet_file("a Parquet of two images", lambda: table(right=[image(".png", 9)] * 2)),
    _parquet_file("a Parquet of lists of images", lambda: parquet({"images": [[image()], [image()]]})),
    _parquet_file(
        "a Parquet with labels that are missing", lambda: parquet({"image": [image()] * 2, "label": [1, None]})
    ),
    _hub("a checkout of the Hub", "checkout", copied("huggingface/checkout", "checkout")),
    _hub(
        "a checkout of several configurations",
        "hub",
        tables("hub/small/train-00000-of-00001.parquet", "hub/large/train-00000-of-00001.parquet"),
    ),
    _hub(
        "a checkout that lacks a shard",
        "hub",
        tables("hub/train-00000-of-00003.parquet", "hub/train-00002-of-00003.parquet"),
    ),
    _hub("a Parquet beside image files", "set", lambda root: files("set/{0,1}.jpg", {"set/x.parquet": table()})),
    _hub("save_to_disk of a DatasetDict", "divided", copied("huggingface/divided", "divided")),
    _hub("a Parquet whose footer lies", "set", copied("broken_footer.parquet", "set/a.parquet")),
    _tfrecord(
        "files of TFRecord of any name by a pattern, gzipped",
        "set/part*",
        {"set/part0.data.gz": gzip.compress(_records(), mtime=0)},
    ),
    _tfrecord("shards of TFRecord, one missing", "set", _shards("set/train-{:05}-of-00003", 0, 2)),
    _records_file("TFRecord with two images", _TWO_IMAGES),
    _tfrecord("TensorFlow Datasets' folder of several versions", "pets", _two_versions),
    _written("MDS of every encoding", "mds/every"),
    _written("litdata of every value", "litdata/every"),
    _written("the index of MDS", "mds/splits/train", path="set/index.json"),
    _written("MDS with pickles", "mds/pickled"),
    Case("MDS without its index", "set", {"set/shard.00000.mds": b"\1\0\0\0"}),
    _written("litdata with pickles", "litdata/pickled"),
    _written("a RecordIO file", "recordio/plain.rec", "plain.rec"),
    _written("RecordIO of boxes", "recordio/boxes.rec", "boxes.rec"),
    Case("LeRobot, v3", "robot", copied("lerobot/v30/h264", "robot"), needs=("av", "pyarrow")),
    _lmdb("an LMDB of text recognition", _STR),
    _lmdb("an LMDB of pixels", {"a": _RAW, "b": _RAW}),
    Case("a store", "store/train", _store),
    Case("a set of stores", "store", _store),
)

PHOTOS = images("photos/{0,1,2}.jpg")


def _listing(name: str, path: str, *lines: str, **options: Any) -> Case:
    """A table of the photos: `{}` in a line is the next path."""
    paths = iter(PHOTOS)
    text = "".join((line.format(next(paths)) if "{}" in line else line) + "\n" for line in lines)
    return Case(name, path, {**PHOTOS, path: text}, options)


def csv(name: str, *lines: str, **options: Any) -> Case:
    return _listing(name, "list.csv", *lines, **options)


def _listed(name: str, path: str, text: bytes | str, **options: Any) -> Case:
    return Case(name, path, {**PHOTOS, path: text}, options)


LISTINGS = (
    csv("a CSV with Windows' line ends", "path,label\r", "{},cat\r", "{},dog\r"),
    _listed(
        "semicolons and a byte order mark",
        "list.csv",
        '\ufeffpath;label;note\nphotos/0.jpg;cat;"a; b"\nphotos/1.jpg;dog;c\n',
    ),
    _listed("UTF-16", "list.csv", "path,label\nphotos/0.jpg,cat\n".encode("utf-16")),
    *(
        csv(f"labels counted from 1, with {what}", "path,label", "{},1", "{},2", "{},1", classes=names)
        for what, names in (
            ("names of classes", ("cat", "dog", "eel")),
            ("names that say 1", ("1 cat", "2 dog", "3 eel")),
            ("names that say 0", ("0 cat", "1 dog", "2 eel")),
        )
    ),
    csv("an empty cell among whole numbers", "path,n", "{},1", "{},", "{},3"),
    csv("NA among labels that are numbers", "path,label", "{},NA", "{},0", "{},1"),
    *(
        _listing(
            f"a line of JSON that {what}", "list.jsonl", '{{"path": "{}", "n": 1}}', line, '{{"path": "{}", "n": 3}}'
        )
        for what, line in (
            ("breaks off after its path", '{{"path": "{}", "n":'),
            ("lacks a value", '{{"path": "{}"}}'),
            ("is a list", '["{}", 2]'),
        )
    ),
    csv("columns called x and y", "path,x,y", "{},4,1", "{},5,2"),
    csv("columns called class and category", "path,category,class", "{},pet,cat", "{},pet,dog"),
    csv("targets that are files", "path,target", "{},photos/1.jpg", "{},photos/0.jpg"),
    csv("paths in a column called where", "id,where,label", "7,{},cat", "8,{},dog"),
    csv("paths in two columns", "a,b,label", "{},photos/1.jpg,cat", "{},photos/0.jpg,dog"),
    csv("without names of columns", "{},0", "{},1"),
    lone("an empty table", "list.csv", ""),
    csv("a row that is too long", "path,label", "{},cat", "{},dog,3"),
    csv("an image twice", "path,label", "photos/0.jpg,cat", "photos/0.jpg,dog"),
    csv("paths below --images", "path,label", "0.jpg,cat", images="photos"),
    csv("a row for each box", "image_id,x1,y1,x2,y2,class", "{},1,1,5,5,cat", "{},2,2,4,4,dog"),
    _listed("JSON that is a table of paths", "list.json", '{"photos/0.jpg": "cat"}'),
    _hub(
        "a folder of Parquet of paths",
        "tables",
        lambda root: files(
            "tables/photos/{0,1}.jpg",
            {f"tables/{n}.parquet": parquet({"path": [f"photos/{n}.jpg"]}) for n in range(2)},
        ),
    ),
    Case("a folder of tables alone", "tables", {"tables/list.csv": "path,label\n../photos/0.jpg,cat\n", **PHOTOS}),
)

CASES = {"listings": LISTINGS, "tables": TABLES}
