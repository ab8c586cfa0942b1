"""How random an order is, in numbers that matter for training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawpack.order.base import Order

BATCHES = 1000


@dataclass(frozen=True)
class Mixing:
    """Averages over up to 1,000 batches, evenly spaced over an epoch."""

    displacement: float
    """Distance between a sample's position and its row, as a share of all samples: 1/3 with a full shuffle."""

    near: float
    """Share of neighbors in a batch whose rows are at most 1 % of all samples apart: 0.02 with a full shuffle."""

    classes: float
    """Different classes in a batch, for classes of equal size that are stored one after another."""


def mixing(order: Order, batch_size: int, classes: int, epoch: int = 0) -> Mixing:
    """Measure an order that has each sample once, with n >= batch_size >= 2."""
    n = len(order)
    batches = min(n // batch_size, BATCHES)
    starts = np.arange(batches) * (n - batch_size) // max(1, batches - 1)
    rows = np.stack([order.samples(epoch, start, start + batch_size) for start in starts.tolist()])
    positions = np.add.outer(starts, np.arange(batch_size))
    of_class = np.sort(rows * classes // n, axis=1)
    return Mixing(
        displacement=float(np.abs(rows - positions).mean() / n),
        near=float((np.abs(np.diff(rows, axis=1)) <= n / 100).mean()),
        classes=float(1 + np.count_nonzero(np.diff(of_class, axis=1)) / batches),
    )
