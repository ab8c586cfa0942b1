"""The parameters of one measurement. Imports nothing heavy, because the command imports it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """What a fresh process does with one system. Passed to it as JSON."""

    action: str
    """A function of `harness.py`."""
    system: str
    """A module of `systems`."""
    kind: str
    """raw: pixels of 224 x 224; jpeg: JPEG files of 256 x 256."""
    folder: str
    """Where the system's store is, or will be."""
    images: str
    """The folder with the numbered photographs."""
    variant: str = ""
    """Which variant, if the module has several."""
    crop: str = "centre"
    """For JPEG files: `centre`, or `random` for random-resized-crop and flip."""
    batch: int = 256
    workers: int = 2
    seconds: float = 2.0
    """Whole epochs are measured until this much time has passed."""
    rates: tuple[float, ...] = ()
    """Images/s that the paced consumer asks for."""
    keep: int = 16
    """How many batches are kept."""
    take: int = 0
    """How many batches are read before the state is saved."""
    state: str = ""
    """The file for the state."""

    @property
    def endless(self) -> bool:
        """Whether epochs may follow each other without a boundary."""
        return self.action in ("read", "pace")
