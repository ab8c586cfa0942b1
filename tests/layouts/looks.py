"""How often folders are listed, files opened and URLs requested while a path is opened, by Python's audit hook.

What libraries written in C open by themselves is not seen, such as the files of liblmdb and of HDF5.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import chdir, suppress
from functools import cache
from pathlib import Path
from typing import Any

from cases import Answer, Case, in_this_process, photos, prepare
from cases_archives import shards
from cases_arrays import mnist
from cases_detection import coco_folder, voc, yolo
from cases_folders import CLASSES, TWO
from cases_tables import csv, tables
from layout import copied
from store_server import Server

from rawpack.errors import RawpackError

CASES = (
    photos("class folders", *CLASSES),
    photos("folders of splits", TWO),
    csv("a CSV", "path,label", "{},cat", "{},dog", "{},cat"),
    photos("a folder with a metadata.csv", "{0,1,2}.jpg", {"metadata.csv": "file_name,n\n0.jpg,1\n1.jpg,2\n"}),
    Case("what img2dataset writes as files", "laion", copied("img2dataset/files", "laion"), needs=("pyarrow",)),
    Case("tar shards by a pattern", "shards/*.tar", shards()),
    Case("COCO's JSON", "coco/annotations/instances_val2017.json", coco_folder()),
    Case("YOLO", "pets", yolo("pets")),
    Case("Pascal VOC", "VOC2012", voc("VOC2012")),
    Case("a checkout of the Hub", "hub", tables("hub/data/train-00000-of-00001.parquet"), needs=("pyarrow",)),
    Case("one split of MNIST", "MNIST/train", mnist("MNIST/raw")),
    Case("WebDataset behind a URL", "shards/{000..001}.tar", shards(), needs=("fsspec", "aiohttp"), served=True),
)
_seen: list[tuple[str, Any]] | None = None
"""What was looked at since counting began: "listings" or "openings", and the path or descriptor."""


@cache
def _add_hook() -> None:
    """Hooks cannot be taken away: this one does nothing while nobody counts."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if _seen is None:
            return
        if event in ("os.scandir", "os.listdir"):
            _seen.append(("listings", _path_of("." if args[0] is None else args[0])))
        elif event == "open" and not isinstance(args[0], int) and not args[2] & getattr(os, "O_DIRECTORY", 0):
            _seen.append(("openings", _path_of(args[0])))

    sys.addaudithook(hook)


def _path_of(path: Any) -> str:
    """The absolute path; of a descriptor, on systems other than Linux, any one below the working folder."""
    if isinstance(path, int):
        path = Path(f"/proc/self/fd/{path}").readlink() if sys.platform == "linux" else str(path)
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay


def looked(case: Case, folder: Path, server: Server) -> Answer:
    """What opening the path of a layout takes, which is made in an empty folder, whether it opens or is refused."""
    global _seen
    _add_hook()
    with chdir(folder), in_this_process():
        opener, before = prepare(case, folder, server), len(server.log)
        _seen = []
        try:
            with suppress(RawpackError):
                opener()
        finally:
            seen, _seen = _seen, None
    record: Answer = {"opens": case.path or ""}
    if case.served:  # nothing of it lies on this disk
        return record | {"requests": len(server.log) - before}
    for name, distinct in (("listings", "folders"), ("openings", "files")):
        counter = Counter(path for kind, path in seen if kind == name and Path(path).is_relative_to(folder))
        record |= {name: counter.total(), distinct: len(counter)}
    return record
