"""Packing by rawpack, from an untouched destination to a whole store."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from contract import Epoch, Settings
from data import make_packed, packed_files, packed_path
from subjects.cold import drop


class RawpackPack:
    """The call behind `rawpack pack`, listing of the source, start of the workers and commit included."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str, *, as_they_are: bool = False, cold: str = "", kind: str | None = None) -> None:
        """as_they_are: with `--size keep --quality keep`, whatever the shape in the settings. cold: from the disk, this
        kind of `packed_path`. kind: of the source."""
        self._form, self._as_they_are, self._cold, self._kind = form, as_they_are, cold, kind

    def prepare(self, settings: Settings) -> None:
        if self._cold:
            make_packed(settings, self._cold)

    def open(self, settings: Settings) -> None:
        import rawpack_packer.api  # noqa: F401

        self._settings, self._source = settings, packed_path(settings, self._cold or "folder")
        self._destination = Path(settings.work) / f"packing.{self._form}"
        stored: dict[str, Any] = {"size": "keep", "quality": "keep"} if self._as_they_are else {"size": settings.size}
        self._options = {"format": self._form, "workers": settings.workers, "kind": self._kind, **stored}

    def epoch(self, n: int) -> Epoch:
        import rawpack

        shutil.rmtree(self._destination, ignore_errors=True)
        if self._cold:
            drop(packed_files(self._settings, self._cold))
            os.sync()
        began = time.perf_counter()
        summary = rawpack.pack(self._source, self._destination, **self._options)
        took = time.perf_counter() - began
        shutil.rmtree(self._destination)
        return Epoch(summary.packed_now, took)
