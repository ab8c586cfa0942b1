"""Read rawpack stores: open one, iterate batches.

from rawpack import Reader

for batch in Reader("dst/").batches(512, shuffle=True):
    batch["image"], batch["label"], batch["index"]
"""

from __future__ import annotations

from rawpack.batching.batches import Batches
from rawpack.errors import (
    DamagedStoreError,
    DecodeError,
    MissingExtraError,
    PackError,
    RawpackError,
    StoreError,
    UnfinishedStoreError,
    UsageError,
    WorkerError,
)
from rawpack.reader import Reader

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "DamagedStoreError",
    "DecodeError",
    "MissingExtraError",
    "PackError",
    "RawpackError",
    "Reader",
    "StoreError",
    "UnfinishedStoreError",
    "UsageError",
    "WorkerError",
]
