"""torch's DataLoader: `Batches` as its iterable dataset, and which of its workers this is. torch is never imported."""

from __future__ import annotations

import sys
from typing import Any


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
