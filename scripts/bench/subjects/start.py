"""What it takes rawpack to start: the first batch of an epoch, and a packing run that has hardly anything to pack."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import data
from contract import Epoch, Settings
from rawpack import Workers


class ReaderStart:
    """From `Reader(...)`, with rawpack imported, to the first batch."""

    needs: tuple[str, ...] = ()

    def __init__(self) -> None:
        import rawpack

        self._reader = rawpack.Reader

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "lmdb")

    def open(self, settings: Settings) -> None:
        began = time.perf_counter()
        batches = self._reader(data.store_path(settings, "lmdb")).batches(
            settings.batch, shuffle=True, workers=Workers(settings.workers, backend="process")
        )
        self._iterator = iter(batches)
        images = len(next(self._iterator)["index"])
        self._epoch = Epoch(images, time.perf_counter() - began, 0.0)

    def epoch(self, n: int) -> Epoch:
        """What `open` took. The workers are kept, so that their memory is measured."""
        return self._epoch


class PackingStart:
    """A whole run over a few files, with rawpack imported."""

    needs: tuple[str, ...] = ()

    def __init__(self) -> None:
        import rawpack_packer.api  # noqa: F401

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        import rawpack

        destination = Path(settings.work) / "packing.start"
        shutil.rmtree(destination, ignore_errors=True)
        began = time.perf_counter()
        rawpack.pack(settings.images, destination, format="lmdb", size=settings.shape[0], workers=settings.workers)
        self._epoch = Epoch(len(data.image_files(settings.images)), time.perf_counter() - began, 0.0)
        shutil.rmtree(destination)

    def epoch(self, n: int) -> Epoch:
        return self._epoch
