"""torch's DataLoader: `Batches` as its iterable dataset, and which of its workers this is. torch is never imported."""

from __future__ import annotations

import mmap
import sys
from typing import Any

_ENTRY = 8
_ENTRIES = 512


class SharedCounts:
    """A count from 0 to 255 for each digest, which this process shares with all that are forked from it: a DataLoader
    starts new workers for each epoch. An entry may be lost to another digest, and is then 0. There is no lock."""

    def __init__(self) -> None:
        # Its one page of memory is taken when something is written.
        self._table = mmap.mmap(-1, _ENTRY * _ENTRIES)

    def __getitem__(self, digest: str) -> int:
        at, check = self._entry(digest)
        return self._table[at] if self._table[at + 1 : at + _ENTRY] == check else 0

    def __setitem__(self, digest: str, count: int) -> None:
        at, check = self._entry(digest)
        self._table[at : at + _ENTRY] = bytes([min(count, 255)]) + check

    @staticmethod
    def _entry(digest: str) -> tuple[int, bytes]:
        """Where its entry is, and what tells it from others."""
        value = bytes.fromhex(digest)
        return int.from_bytes(value[:4]) % _ENTRIES * _ENTRY, value[-(_ENTRY - 1) :]


def register(kind: type) -> None:
    """Have a DataLoader take objects of this class for iterable datasets, if torch is imported."""
    dataset: Any = getattr(_module(), "IterableDataset", None)
    if hasattr(dataset, "register"):
        dataset.register(kind)


def worker_here() -> tuple[int, int] | None:
    """Which of how many workers of a DataLoader this process is; None where it is none."""
    asked = getattr(_module(), "get_worker_info", None)
    info = None if asked is None else asked()
    return None if info is None else (int(info.id), int(info.num_workers))


def _module() -> Any:
    return sys.modules.get("torch.utils.data")
