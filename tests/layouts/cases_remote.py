"""What is behind URLs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archived import tar, zipped
from cases import Case as AnyCase
from cases import Files, images
from cases_archives import CLASSES, shards
from cases_tables import _FIXTURES, records, tables


def Case(name: str, path: str, make: Files | Callable[[Path], Any], options: Any = None, wrong: str = "") -> AnyCase:  # noqa: N802
    return AnyCase(name, path, make, options or {}, wrong, ("fsspec", "aiohttp"), served=True)


def _fixture(name: str, to: str) -> Callable[[Path], Files]:
    def make(root: Path) -> Files:
        folder = _FIXTURES / name
        return {f"{to}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return make


CASES = (
    Case("a shard", "shards/000.tar", shards()),
    Case("shards by a range", "shards/{000..001}.tar", shards()),
    Case("a range of which a shard is missing", "shards/{000..002}.tar", shards()),
    Case("shards by a pattern", "shards/*.tar", shards()),
    Case("a shard with a query", "shards/000.tar?token=1", shards()),
    Case("a shard that is not there", "shards/900.tar", shards()),
    Case("compressed shards", "shards/{000..001}.tar.gz", shards(end="tar.gz")),
    Case("a tar of class folders", "photos.tar", {"photos.tar": tar(CLASSES)}),
    Case("a zip", "photos.zip", {"photos.zip": zipped(CLASSES)}),
    Case(
        "a zip of splits",
        "sets.zip",
        {"sets.zip": zipped({f"{s}/{k}": v for s in ("train", "val") for k, v in CLASSES.items()})},
    ),
    Case(
        "one split of a zip",
        "sets.zip/train",
        {"sets.zip": zipped({f"{s}/{k}": v for s in ("train", "val") for k, v in CLASSES.items()})},
    ),
    Case("a Parquet", "hub/train-00000-of-00001.parquet", tables("hub/train-00000-of-00001.parquet")),
    Case("a TFRecord file", "set.tfrecord", {"set.tfrecord": records()}),
    Case("a gzipped TFRecord file", "set.tfrecord.gz", {"set.tfrecord.gz": gzip.compress(records(), mtime=0)}),
    Case("the index of MDS", "mds/index.json", _fixture("mds/splits/train", "mds")),
    Case("the index of litdata", "lit/index.json", _fixture("litdata/dicts", "lit")),
    Case("a folder of MDS", "mds/", _fixture("mds/splits/train", "mds")),
    Case("a folder of MDS with its kind named", "mds/", _fixture("mds/splits/train", "mds"), {"kind": "mds"}),
    Case("a folder of images", "photos/", images("photos/{0,1}.jpg")),
    Case("an image", "photos/0.jpg", images("photos/{0,1}.jpg")),
    Case("a table", "list.csv", {"list.csv": "path,label\n0.jpg,cat\n", **images("0.jpg")}),
    Case("an .npz", "set.npz", {"set.npz": b"PK"}),
    Case("a RecordIO file", "plain.rec", lambda root: {"plain.rec": (_FIXTURES / "recordio/plain.rec").read_bytes()}),
    Case("another end with its kind named", "download?id=3", {"download?id=3": tar(CLASSES)}, {"kind": "archive"}),
)
