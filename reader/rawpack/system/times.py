"""The seconds that workers spend on each kind of work."""

from __future__ import annotations

import msgspec


class Times(msgspec.Struct, array_like=True):
    reading: float = 0.0
    """Copying rows from mapped files, and waiting for the disk meanwhile."""
    decoding: float = 0.0
    """The same for compressed samples, decompression included."""
    transforming: float = 0.0

    def add(self, other: Times) -> None:
        self.reading += other.reading
        self.decoding += other.decoding
        self.transforming += other.transforming

    @property
    def total(self) -> float:
        return self.reading + self.decoding + self.transforming
