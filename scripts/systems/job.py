"""What an adapter is told: what to store, and how to read it. Imports nothing heavy, because commands import it too."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SIDE, JPEG_SIDE = 224, 256
"""Pixels per side of the raw images, and of the JPEG files, that `scripts/compare` stores; it reads 224 of both."""


@dataclass(frozen=True)
class Job:
    """What a fresh process does with one system. Passed to it as JSON."""

    action: str
    """A function of `compare/harness.py`; `read` and `pack` are the benchmark's, too."""
    system: str
    """A module of `systems`."""
    kind: str
    """raw: pixels; jpeg: JPEG files."""
    folder: str
    """Where the system's store is, or will be."""
    images: str
    """The folder with the images."""
    variant: str = ""
    """Which variant, if the module has several."""
    shape: tuple[int, int, int] = (SIDE, SIDE, 3)
    """Of a stored image: height, width, channels."""
    side: int = SIDE
    """Pixels per side of an image that is delivered."""
    crop: str = "centre"
    """`centre`, or `random` for random-resized-crop and flip."""
    floats: bool = False
    """Whether random crops are delivered normalized, as float32 (n, 3, side, side)."""
    batch: int = 256
    workers: int = 2
    seconds: float = 2.0
    """Whole epochs are measured until this much time has passed."""
    rates: tuple[float, ...] = ()
    """Images/s that the paced consumer asks for."""
    keep: int = 16
    """How many batches are kept."""
    shard_bytes: int = 1 << 26
    """Of a shard, at most, where the system has such a limit."""
    url: str = ""
    """Where the store is served; "" if it is read from its folder."""
    cache: str = ""
    """The folder for what is fetched, for systems that keep it."""
    take: int = 0
    """How many batches are read before the state is saved."""
    state: str = ""
    """The file for the state."""

    @property
    def endless(self) -> bool:
        """Whether epochs may follow each other without a boundary."""
        return self.action in ("read", "pace")

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        found = json.loads(text)
        return Job(**(found | {"shape": tuple(found["shape"])}))
