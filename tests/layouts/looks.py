"""How often folders are listed, files opened and URLs requested while a path is opened, by Python's audit hook.

What libraries written in C open by themselves is not seen, such as the files of liblmdb and of HDF5.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cases import Answer, Case, in_this_process, inside, prepare
from cases_archives import shards
from cases_arrays import mnist
from cases_detection import coco_folder, voc, yolo
from cases_folders import CLASSES
from cases_listings import PHOTOS, csv
from cases_splits import TWO
from cases_tables import tables
from layout import copied
from store_server import Server

from rawpack.errors import RawpackError

_URL = ("fsspec", "aiohttp")
CASES = (
    Case("class folders", "photos", CLASSES),
    Case("folders of splits", "photos", TWO),
    Case("a CSV", "list.csv", csv("path,label", "{},cat", "{},dog", "{},cat")),
    Case(
        "a folder with a metadata.csv", "photos", {**PHOTOS, "photos/metadata.csv": "file_name,n\n0.jpg,1\n1.jpg,2\n"}
    ),
    Case("what img2dataset writes as files", "laion", copied("img2dataset/files", "laion"), needs=("pyarrow",)),
    Case("tar shards by a pattern", "shards/*.tar", shards()),
    Case("COCO's JSON", "coco/annotations/instances_val2017.json", coco_folder()),
    Case("YOLO", "pets", yolo("pets")),
    Case("Pascal VOC", "VOC2012", voc("VOC2012")),
    Case("a checkout of the Hub", "hub", tables("hub/data/train-00000-of-00001.parquet"), needs=("pyarrow",)),
    Case("one split of MNIST", "MNIST/train", mnist("MNIST/raw")),
    Case("WebDataset behind a URL", "shards/{000..001}.tar", shards(), needs=_URL, served=True),
)


@dataclass
class Looks:
    """What was looked at below a folder: path -> how often."""

    root: str
    listings: Counter[str] = field(default_factory=Counter)
    openings: Counter[str] = field(default_factory=Counter)

    def add(self, counter: Counter[str], path: Any) -> None:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink() if sys.platform == "linux" else f"{self.root}/{path}"
        path = os.path.abspath(os.fsdecode("." if path is None else path))  # noqa: PTH100 - links stay
        if path == self.root or path.startswith(self.root + os.sep):
            counter[os.path.relpath(path, self.root)] += 1


_counting = list[Looks]()


@cache
def _add_hook() -> None:
    """Hooks cannot be taken away: this one does nothing while nobody counts."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not _counting or event not in ("os.scandir", "os.listdir", "open"):
            return
        looks = _counting[-1]
        if event != "open":
            looks.add(looks.listings, args[0])
        elif not isinstance(args[0], int) and not args[2] & getattr(os, "O_DIRECTORY", 0):
            looks.add(looks.openings, args[0])

    sys.addaudithook(hook)


@contextmanager
def counted(root: Path) -> Iterator[Looks]:
    """Counts what this process lists and opens below a folder, in all of its threads."""
    _add_hook()
    _counting.append(Looks(str(root)))
    try:
        yield _counting[-1]
    finally:
        _counting.pop()


def looked(case: Case, folder: Path, server: Server) -> Answer:
    """What opening the path of a layout takes, which is made in an empty folder, whether it opens or is refused."""
    with inside(folder), in_this_process():
        opener, before = prepare(case, folder, server), len(server.log)
        with counted(folder) as looks, suppress(RawpackError):
            opener()
        requests = Counter(method for method, _ in server.log[before:])
    record: Answer = {"opens": case.path or ""}
    if case.served:  # nothing of it lies on this disk
        return record | {"requests": requests.total()}
    for name, distinct, counter in (("listings", "folders", looks.listings), ("openings", "files", looks.openings)):
        record |= {name: counter.total(), distinct: len(counter)}
    return record
