"""Batch k of an epoch, as a training loop gets it: order and random numbers depend on seed, epoch and sample alone, so
no batch before it is read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.tune.candidates import parse_side, parse_steps
from rawpack_packer.view.looked_at import LookedAt

_KEPT = 4
"""Batches in memory: the ones looked at last."""
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class TrainingLoop:
    """What a training loop reads, and where in it one is."""

    steps: str = ""
    """As in Python: "RandomResizedCrop(224), RandomHorizontalFlip()"."""
    size: str = ""
    batch: int = 32
    shuffle: bool = True
    seed: int = 0
    epoch: int = 0
    number: int = 0
    """Of the batch, in its epoch and rank."""
    rank: int = 0
    world: int = 1

    def check(self) -> None:
        """Raise UsageError for numbers that no loop has."""
        if not 1 <= self.batch <= 4096 or not 0 <= self.rank < self.world <= 65536:
            raise UsageError("a batch has 1 to 4,096 samples, and a rank is less than the number of ranks")
        if self.epoch < 0 or self.number < 0 or abs(self.seed) >= 1 << 63:
            raise UsageError("seed, epoch and batch are whole numbers, the last two not negative")

    def lines(self, reader: str, fields: list[str] | None, state: dict[str, Any]) -> str:
        """What gives the same arrays in Python."""
        words = [str(self.batch)] + ["shuffle=True"] * self.shuffle + [f"seed={self.seed}"] * bool(self.seed)
        if self.size:
            words.append(f"image_size={parse_side(self.size)}")
        if self.steps.strip():
            words.append(f"transform=[{self.steps.strip()}]")
        if self.world > 1:
            words.append(f"ranks=({self.rank}, {self.world})")
        if fields is not None:
            words.append(f"fields={fields}")
        imported = ["from rawpack.transforms import *"] if self.steps.strip() else []
        return "\n".join(
            [
                "import rawpack",
                *imported,
                "",
                f"batches = {reader}.batches({', '.join(words)})",
                f"batches.load_state_dict({state!r})",
                "batch = next(iter(batches))",
            ]
        )


class Training:
    """Batches of stores, the last few of which are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, TrainingLoop], tuple[dict[str, Any], dict[str, Any]]] = OrderedDict()
        self._lock = Lock()

    def batch(self, store: LookedAt, loop: TrainingLoop) -> tuple[dict[str, Any], dict[str, Any]]:
        """The batch, and what is said of it. Raises UsageError where the epoch has no such batch."""
        with self._lock:  # one at a time: each may need much memory
            name = (store.version, loop)
            if name not in self._kept:
                self._kept[name] = _read(store, loop)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(name)
            return self._kept[name]

    def image(self, store: LookedAt, loop: TrainingLoop, field: str, k: int) -> NDArray[Any]:
        """Sample k of the batch. Raises UsageError where there is none, or no such field."""
        batch, _ = self.batch(store, loop)
        images = batch.get(field)
        if images is None or field not in store.images or not 0 <= k < len(images):
            raise UsageError(f"the batch has no image {k} of {field!r}")
        return np.asarray(images[k])


def _read(store: LookedAt, loop: TrainingLoop) -> tuple[dict[str, Any], dict[str, Any]]:
    loop.check()
    reader = store.reader
    names = [name for name, one in reader.fields.items() if one.kind != "text"]
    ragged = any(one.kind == "ragged" for one in reader.fields.values())
    options: dict[str, Any] = {
        "shuffle": loop.shuffle, "seed": loop.seed, "workers": 0, "fields": names,
        "transform": list(parse_steps([loop.steps])) if loop.steps.strip() else None,
        "image_size": parse_side(loop.size) if loop.size else None,
        "ranks": (loop.rank, loop.world),
    }  # fmt: skip
    height, width = options["image_size"] or (0, 0)
    if loop.batch * height * width * 3 * len(store.images) > _MOST_BYTES:
        raise UsageError("the batch would have more than 1 GiB of images: choose a smaller batch or size")
    batches = reader.batches(loop.batch, **options)
    if loop.number >= len(batches):
        raise UsageError(f"the epoch has {len(batches):,} batches: the last one is number {len(batches) - 1:,}")
    state = batches.state_dict() | {"epoch": loop.epoch, "position": loop.number * loop.batch * loop.world}
    batches.load_state_dict(state)
    batch = next(iter(batches))
    if (
        sum(np.asarray(batch[name]).nbytes for name in store.images if isinstance(batch[name], np.ndarray))
        > _MOST_BYTES
    ):
        raise UsageError("the batch has more than 1 GiB of images: choose a smaller batch or size")
    rows = store.numbers_of(np.asarray(batch["index"]))
    tiles = store.tiles(rows)
    for k, tile in enumerate(tiles):
        tile["layers"] = list(store.layers({name: batch[name][k] for name in names}))
        tile["shape"] = list(np.shape(batch[store.images[0]][k])) if store.images else []
    said = {
        "batches": len(batches),
        "samples": tiles,
        "fields": {
            name: f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else f"{len(values)} arrays"
            for name, values in batch.items()
        },
        "lines": loop.lines(store.said, names if ragged else None, state),
    }
    return batch, said
