"""What one process is to do: as light as the command that starts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """What a process of its own is to do with one system. Travels as JSON."""

    action: str
    """A function of `harness.py`."""
    system: str
    """A module of `systems`."""
    kind: str
    """raw: pixels of 224 x 224; jpeg: JPEG files of 256 x 256."""
    folder: str
    """Where the system's store is, or is to be."""
    images: str
    """The folder with the numbered photographs."""
    variant: str = ""
    """Which of its ways, where a module has several."""
    crop: str = "centre"
    """Of JPEG files: centre, or random for random-resized-crop and flip."""
    batch: int = 256
    workers: int = 2
    seconds: float = 2.0
    """Whole epochs are measured until this much time has passed."""
    rates: tuple[float, ...] = ()
    """Images/s that the paced consumer asks for."""
    keep: int = 16
    """Batches that are kept."""
    take: int = 0
    """Batches before the state is saved."""
    state: str = ""
    """The file for the state."""

    @property
    def endless(self) -> bool:
        """Whether epochs may follow each other without a border."""
        return self.action in ("read", "pace")
