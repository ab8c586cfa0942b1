"""What a subject of the benchmark is, and the settings under which all subjects of a table are measured alike."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Settings:
    """The conditions of one table. Travels to the fresh processes as JSON."""

    work: str
    """Folder for all that is made: images, stores, what subjects pack for themselves."""
    images: str
    """Folder of image files, one folder a class, or of videos; empty where the samples are made otherwise."""
    shape: tuple[int, int, int]
    """Of one image: height, width, channels."""
    batch: int = 256
    workers: int | None = 2
    """Processes or threads that work; None where the subject chooses."""
    backend: Literal["process", "thread"] | None = None
    """Of rawpack's workers; None where it chooses."""
    seconds: float = 2.0
    """Whole epochs are measured until so many have passed."""
    epochs: int = 0
    """If not 0, exactly so many epochs are measured, and what memory grows by after the first tenth of them."""
    warm: bool = True
    """Whether epochs go before that are not measured."""
    consumer: Literal["grid", "sum", "none"] = "grid"
    """What is done with a batch: the sum of every 97th row and column, or of all pixels, or nothing."""
    step_s: float = 0.0
    """How long a training step takes: seconds of sleep after each batch, as while an accelerator computes."""
    samples: int = 0
    """Of a store that is made of zeros, at least."""
    frames: int = 16
    """Of a clip."""
    stride: int = 4
    """Stored frames from one frame of a clip to the next."""

    @property
    def folder(self) -> Path:
        return Path(self.work)

    @property
    def batch_bytes(self) -> int:
        """Of the images in a batch, and of its labels and indices."""
        return self.batch * (math.prod(self.shape) + 16)

    @property
    def size(self) -> str:
        """As `rawpack pack --size` wants it."""
        return f"{self.shape[0]}x{self.shape[1]}"


@dataclass(frozen=True)
class Epoch:
    """What one call of `epoch` came to."""

    images: int
    seconds: float
    first_s: float | None = None
    """Seconds to the first batch; None where there are no batches."""
    disk_bytes: int | None = None
    """Of the files that it reads; None where that is not asked."""
    fetched_bytes: int | None = None
    """That came from a server; None where there is none."""


class Subject(Protocol):
    """One thing that is measured. `open` and `epoch` are called in one fresh process, `prepare` in another before."""

    settings: Settings
    needs: tuple[str, ...] = ()
    """Modules that must be installed; where one is not, the subject is left out, and the report says so."""

    def prepare(self, settings: Settings) -> None:
        """Make what is read, unless it is there: never measured."""
        return

    def open(self, settings: Settings) -> None:
        """Import and open all that the first batch needs; its time counts to the first batch."""
        self.settings = settings

    def epoch(self, n: int) -> Epoch:
        """Go through epoch n once, and time it."""
        raise NotImplementedError


def consume(batches: Iterable[Any], consumer: str, step_s: float = 0.0) -> Epoch:
    """Go through batches of images (n, H, W, C), look at each as `consumer` says, sleep for `step_s`, and time it
    all."""
    began = time.perf_counter()
    images, total, first = 0, 0, None
    for batch in batches:
        if first is None:
            first = time.perf_counter() - began
        if consumer != "none":
            total += int((batch[:, ::97, ::97] if consumer == "grid" else batch).sum())
        images += len(batch)
        if step_s:
            time.sleep(step_s)
    if images and not total and consumer != "none":
        raise ValueError("all images were black: the subject did not read them")
    return Epoch(images, time.perf_counter() - began, first)
