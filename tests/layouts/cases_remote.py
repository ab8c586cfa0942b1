"""What is behind URLs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from archived import tar, zipped
from cases import Case, Files, images
from cases_archives import CLASSES, shards
from cases_tables import tables
from layout import FIXTURES

remote = partial(Case, needs=("fsspec", "aiohttp"), served=True)


def _fixture(name: str, to: str) -> Callable[[Path], Files]:
    def make(root: Path) -> Files:
        folder = FIXTURES / name
        return {f"{to}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return make


CASES = (
    remote("a shard", "shards/000.tar", shards()),
    remote("shards by a range", "shards/{000..001}.tar", shards()),
    remote("a range of which a shard is missing", "shards/{000..002}.tar", shards()),
    remote("a shard with a query", "shards/000.tar?token=1", shards()),
    remote("a shard that is not there", "shards/900.tar", shards()),
    remote("a zip", "photos.zip", {"photos.zip": zipped(CLASSES)}),
    remote("a Parquet", "hub/train-00000-of-00001.parquet", tables("hub/train-00000-of-00001.parquet")),
    remote("the index of MDS", "mds/index.json", _fixture("mds/splits/train", "mds")),
    remote("a folder of MDS", "mds/", _fixture("mds/splits/train", "mds")),
    remote("a folder of images", "photos/", images("photos/{0,1}.jpg")),
    remote("a table", "list.csv", {"list.csv": "path,label\n0.jpg,cat\n", **images("0.jpg")}),
    remote("an .npz", "set.npz", {"set.npz": b"PK"}),
    remote("a RecordIO file", "plain.rec", lambda root: {"plain.rec": (FIXTURES / "recordio/plain.rec").read_bytes()}),
    remote("another end with its kind named", "download?id=3", {"download?id=3": tar(CLASSES)}, {"kind": "archive"}),
)
