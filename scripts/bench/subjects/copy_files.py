"""The bare limit of passing files through: processes that copy each file's bytes into one file, and sync it."""

from __future__ import annotations

import multiprocessing
import os
import time

from contract import Epoch, Settings
from data import image_files
from subjects.cold import drop


class CopyFiles:
    """Each process does every n-th file; their start and the sync are part of the time."""

    needs: tuple[str, ...] = ()

    def __init__(self, *, cold: bool = False) -> None:
        """cold: from the disk."""
        self._cold = cold

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        settings, of = self._settings, self._settings.workers or 1
        if self._cold:
            drop(image_files(settings.images))
        began = time.perf_counter()
        files = [str(path) for path in image_files(settings.images)]
        outputs = [settings.folder / f"copied-{number}" for number in range(of)]
        context = multiprocessing.get_context("spawn")
        team = [context.Process(target=copy, args=(files[k::of], str(outputs[k]))) for k in range(of)]
        for process in team:
            process.start()
        for process in team:
            process.join()
        took = time.perf_counter() - began
        if any(process.exitcode for process in team):
            raise RuntimeError("a copying process failed")
        for output in outputs:
            output.unlink()
        return Epoch(len(files), took)


def copy(files: list[str], output: str) -> None:
    """Append the bytes of each file to the output, and sync it."""
    with open(output, "wb", buffering=1 << 20) as out:
        for file in files:
            with open(file, "rb", buffering=0) as source:
                out.write(source.read())
        out.flush()
        os.fsync(out.fileno())
