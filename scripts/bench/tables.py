"""The tables of the benchmark: what is measured, under which settings, and held against what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from contract import Settings


@dataclass(frozen=True)
class Entry:
    """A line of a table."""

    subject: str
    against: str | None = None
    """The label of the line that it is divided by, round by round."""
    bar: float | None = None
    """The least ratio that satisfies."""
    workers: int | Literal["as the table"] | None = "as the table"
    name: str | None = None

    @property
    def label(self) -> str:
        return self.name or self.subject

    def settings(self, table: Settings) -> Settings:
        return table if isinstance(self.workers, str) else replace(table, workers=self.workers)


@dataclass(frozen=True)
class Table:
    """Lines that are measured in turn, so that they share the machine's moods."""

    name: str
    images: Literal["photos", "small", "packing"]
    settings: Settings
    entries: tuple[Entry, ...]


READING = (
    Entry("copy limit"),
    Entry("memmap", "copy limit", 0.70),
    Entry("hdf5", "memmap", 0.95),
    Entry("torch DataLoader, memmap", "copy limit"),
    Entry("tensordict memmap", "copy limit"),
    Entry("FFCV raw", "copy limit"),
    Entry("order alone", "memmap", 50),
    Entry("decode limit"),
    Entry("lmdb", "decode limit", 0.85),
)
SMALL = (
    Entry("take loop"),
    Entry("memmap", "take loop", 0.8, 0, "memmap, workers=0"),
    Entry("torch DataLoader, memmap", "take loop", None, 0, "torch DataLoader, workers=0"),
    Entry("torch DataLoader, memmap", "take loop", None, 2, "torch DataLoader, workers=2"),
    Entry("tensordict memmap", "take loop"),
    Entry("memmap", "torch DataLoader, workers=0", 5, None, "memmap, workers=None"),
)
PACKING = (
    Entry("bare loop, raw"),
    Entry("pack memmap", "bare loop, raw", 1 / 1.15),
    Entry("pack hdf5", "bare loop, raw"),
    Entry("bare loop, jpeg"),
    Entry("pack lmdb", "bare loop, jpeg", 1 / 1.15),
    Entry("FFCV writer, raw", "pack memmap"),
    Entry("litdata optimize, raw", "pack memmap"),
    Entry("FFCV writer, jpeg", "pack lmdb"),
    Entry("litdata optimize, jpeg", "pack lmdb"),
    Entry("copy files"),
    Entry("pack as they are", "copy files"),
)


def tables(photos: Settings, small: Settings, packing: Settings) -> list[Table]:
    """All tables, over the photographs, the small images and the photographs to pack."""
    return [
        Table("reading", "photos", photos, READING),
        Table("small-64", "small", replace(small, batch=64), SMALL),
        Table("small-512", "small", replace(small, batch=512), SMALL),
        Table("packing-1", "packing", replace(packing, workers=1), PACKING),
        Table("packing-2", "packing", replace(packing, workers=2), PACKING),
    ]
