"""The bare limits of passing files through: `cp` of what is packed, and processes that copy file by file."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import time

from contract import Epoch, Settings
from data import image_files, make_packed, packed_files, packed_path
from subjects.cold import drop


class Copy:
    """One `cp` of the folder or archive; with `sync -f`, if all is to be on the disk when it ends, as a store is."""

    needs: tuple[str, ...] = ()

    def __init__(self, kind: str, *, sync: bool = False) -> None:
        """kind: see `packed_path`."""
        self._kind, self._sync = kind, sync

    def prepare(self, settings: Settings) -> None:
        make_packed(settings, self._kind)

    def open(self, settings: Settings) -> None:
        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        settings = self._settings
        drop(packed_files(settings, self._kind))
        output = settings.folder / "copied"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        os.sync()
        began = time.perf_counter()
        subprocess.run(["cp", "-r", packed_path(settings, self._kind), output], check=True)
        if self._sync:
            subprocess.run(["sync", "-f", output], check=True)
        took = time.perf_counter() - began
        shutil.rmtree(output)
        return Epoch(len(image_files(settings.images)), took)


class CopyFiles:
    """Each process appends every n-th file to a file of its own; their start and the sync are part of the time."""

    needs: tuple[str, ...] = ()

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        settings, of = self._settings, self._settings.workers or 1
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
