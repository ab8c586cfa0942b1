"""Listing a folder of very many files: by this project, and by `os.walk` with nothing else."""

from __future__ import annotations

# ruff: noqa: PTH116, PTH118 - a Path for each file would slow the limit
import os
import time
from typing import Any

from contract import Epoch, Settings


class ScanFolder:
    """The source that is packed: names in order, sizes, times, labels. It is kept, so that its memory is measured."""

    needs: tuple[str, ...] = ()

    def __init__(self) -> None:
        import rawpack_packer.images
        from rawpack_packer.sources.folder import FolderSource

        self._images, self._source = rawpack_packer.images, FolderSource
        self._kept: Any = None

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self._path = settings.images

    def epoch(self, n: int) -> Epoch:
        self._kept = None
        began = time.perf_counter()
        self._kept = self._source(self._path)
        return Epoch(len(self._kept), time.perf_counter() - began)


class Walk:
    """`os.walk`, and the paths sorted; with `stat`, size and time of each, without which no change is noticed."""

    needs: tuple[str, ...] = ()

    def __init__(self, *, stat: bool = False) -> None:
        self._stat = stat
        self._kept = list[Any]()

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self._path = settings.images

    def epoch(self, n: int) -> Epoch:
        self._kept = []
        began = time.perf_counter()
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self._path) for name in names]
        found.sort()
        self._kept = [(path, *self._state(path)) for path in found] if self._stat else found
        return Epoch(len(found), time.perf_counter() - began)

    def _state(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
