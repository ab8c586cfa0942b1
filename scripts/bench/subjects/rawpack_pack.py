"""Packing by rawpack, from an untouched destination to a whole store."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

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
        from rawpack_packer.job.options import RunOptions
        from rawpack_packer.recipe.recipe import make_recipe

        self._settings, self._source = settings, packed_path(settings, self._cold or "folder")
        self._destination = Path(settings.work) / f"packing.{self._form}"
        if self._as_they_are:
            self._recipe = make_recipe(format=self._form, size="keep", quality="keep")
        else:
            self._recipe = make_recipe(format=self._form, size=settings.size)
        self._how = RunOptions(workers=settings.workers)

    def epoch(self, n: int) -> Epoch:
        from rawpack_packer.job.pack import pack
        from rawpack_packer.sources import open_source

        shutil.rmtree(self._destination, ignore_errors=True)
        if self._cold:
            drop(packed_files(self._settings, self._cold))
            os.sync()
        began = time.perf_counter()
        summary = pack(open_source(self._source, self._kind), self._destination, self._recipe, self._how)
        took = time.perf_counter() - began
        shutil.rmtree(self._destination)
        return Epoch(summary.packed_now, took)
