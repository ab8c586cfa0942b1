"""Other systems, by the adapters that `scripts/compare` uses: packing the same images, and reading what they packed."""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import data
from contract import Epoch, Pixels, Settings, Subject, consume
from measuring.counters import total_bytes
from subjects.stores import as_bytes, side_of
from systems.images import Source
from systems.job import Job

Kind = Literal["raw", "jpeg"]
_NEEDS = {
    "dataloader": ("torch",),
    "tensordict": ("torch", "tensordict"),
    "ffcv": ("torch", "ffcv", "cv2", "simplejpeg"),
    "litdata": ("torch", "litdata", "cv2", "simplejpeg"),
    "turboloader": ("turboloader", "cv2", "simplejpeg"),
}


class Peer(Subject):
    """A system's reader, over what it packed of the table's images."""

    def __init__(
        self, system: str, kind: Kind = "raw", *, stored: int | None = None, crop: str = "centre", variant: str = "",
        floats: bool = False,
    ) -> None:  # fmt: skip
        """stored: the side of the packed images, if it is another than that of the table. The rest: see `Job`."""
        self._system, self._kind, self._stored, self._crop, self._variant = system, kind, stored, crop, variant
        self._floats = floats
        self.needs: tuple[str, ...] = _NEEDS[system]

    def prepare(self, settings: Settings) -> None:
        job = self._job(settings, "pack")
        data.once(Path(job.folder), lambda folder: self._pack(replace(job, folder=str(folder))))

    def open(self, settings: Settings) -> None:
        self.settings, job = settings, self._job(settings, "read")
        self._batches = self._adapter().read(Path(job.folder), job)

    def epoch(self, n: int) -> Epoch:
        return consume(self._images(n), self.settings.consumer)

    def _images(self, n: int) -> Iterator[Pixels]:
        for images, _ in self._batches(n):
            yield as_bytes(images.numpy() if hasattr(images, "numpy") else images)

    def _pack(self, job: Job) -> int:
        """Into a new folder. Returns how many images."""
        shutil.rmtree(job.folder, ignore_errors=True)
        Path(job.folder).mkdir()
        source = Source(job)
        self._adapter().pack(source, Path(job.folder), job)
        return len(source)

    def _adapter(self) -> Any:
        return importlib.import_module(f"systems.{self._system}")

    def _job(self, settings: Settings, action: str) -> Job:
        shape = settings.shape if self._stored is None else (self._stored, self._stored, 3)
        name = f"{Path(settings.images).name}-{shape[0]}x{shape[1]}.{self._system}-{self._kind}"
        return Job(
            action, self._system, self._kind, str(settings.folder / name), settings.images, self._variant, shape,
            side_of(settings) if self._crop == "random" else settings.shape[0], self._crop, self._floats,
            settings.batch, settings.workers or 0,
        )  # fmt: skip


class PeerPack(Peer):
    """A system's writer: listing of the source and start of the workers included."""

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self.settings = settings
        self._adapter()

    def epoch(self, n: int) -> Epoch:
        job = replace(self._job(self.settings, "pack"), folder=str(self.settings.folder / f"packing.{self._system}"))
        began = time.perf_counter()
        images = self._pack(job)
        took = time.perf_counter() - began
        written = total_bytes(Path(job.folder))
        shutil.rmtree(job.folder)
        if written < images * 1000:
            raise RuntimeError(f"{self._system} wrote only {written} bytes")
        return Epoch(images, took)
