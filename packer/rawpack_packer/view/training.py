"""Batch k of an epoch, as a training loop gets it: order and random numbers depend on seed, epoch and sample alone, so
no batch before it is read."""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.transforms import Normalize
from rawpack_packer.inspect.contact_sheet import channels_last
from rawpack_packer.text import count
from rawpack_packer.tune.candidates import parse_steps
from rawpack_packer.view.looked_at import LookedAt

_KEPT = 4
"""Batches in memory: the ones looked at last."""
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class TrainingLoop:
    """What a training loop reads, and where in it one is."""

    steps: str = ""
    """As in Python: "RandomResizedCrop(224), RandomHorizontalFlip()"."""
    size: tuple[int, int] | None = None
    """Of images: height, width."""
    batch: int = 32
    shuffle: bool = True
    seed: int = 0
    epoch: int = 0
    number: int = 0
    """Of the batch, in its epoch and rank."""
    rank: int = 0
    world: int = 1

    def check(self) -> None:
        """Raise UsageError for a rank that there is not."""
        if self.rank >= self.world:
            raise UsageError(f"rank must be less than the number of ranks, {self.world:,}, not {self.rank:,}")

    def lines(self, reader: str, fields: list[str] | None, state: dict[str, Any]) -> str:
        """What gives the same arrays in Python."""
        words = [str(self.batch)] + ["shuffle=True"] * self.shuffle + [f"seed={self.seed}"] * bool(self.seed)
        if self.size:
            words.append(f"image_size={self.size}")
        if self.steps.strip():
            steps = self.steps.strip()
            words.append(f"transform={steps if steps.startswith('[') else f'[{steps}]'}")
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


class NoSuchBatchError(UsageError):
    """The epoch has fewer batches."""

    def __init__(self, batches: int) -> None:
        super().__init__(f"the epoch has {count(batches, 'batch', 'batches')}: the last one is number {batches - 1:,}")
        self.batches = batches


Read = tuple[dict[str, Any], dict[str, Any]]
"""A batch, and what is said of it."""


class Training:
    """Batches of stores, the last few of which are kept. Several threads may ask."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, TrainingLoop], Read] = OrderedDict()
        self._reading = Lock()

    def batch(self, store: LookedAt, loop: TrainingLoop) -> Read:
        """The batch, and what is said of it. Raises UsageError where the epoch has no such batch."""
        name = (store.version, loop)
        if (known := self._kept.get(name)) is not None:
            return known
        with self._reading:  # one at a time: each may need much memory
            if (known := self._kept.get(name)) is not None:
                return known
            found = self._kept[name] = _read(store, loop)
            while len(self._kept) > 1 and (len(self._kept) > _KEPT or self._bytes() > _MOST_BYTES):
                self._kept.popitem(last=False)
            return found

    def _bytes(self) -> int:
        """Of the fields of the kept batches whose samples are alike, such as images."""
        arrays = (values for batch, _ in self._kept.values() for values in batch.values())
        return sum(values.nbytes for values in arrays if isinstance(values, np.ndarray))

    def close(self, seconds: float) -> None:
        """Wait for a batch that is being made."""
        if self._reading.acquire(timeout=seconds):
            self._reading.release()

    def image(self, store: LookedAt, loop: TrainingLoop, field: str, k: int) -> NDArray[Any]:
        """Sample k of the batch, without Normalize, see `_undone`. Raises UsageError where there is none, or no such
        field."""
        batch, _ = self.batch(store, loop)
        images = batch.get(field)
        if images is None or field not in store.images or not 0 <= k < len(images):
            raise UsageError(f"the batch has no image {k} of {field!r}")
        image, step = np.asarray(images[k]), _normalizing(store, loop, field)
        return image if step is None else _undone(image, step, store.reader.fields[field].dtype)


def _read(store: LookedAt, loop: TrainingLoop) -> tuple[dict[str, Any], dict[str, Any]]:
    loop.check()
    reader = store.reader
    names = [name for name, one in reader.fields.items() if one.kind != "text"]
    ragged = any(one.kind == "ragged" for one in reader.fields.values())
    options: dict[str, Any] = {
        "shuffle": loop.shuffle, "seed": loop.seed, "workers": 0, "fields": names,
        "transform": list(parse_steps([loop.steps])) if loop.steps.strip() else None,
        "image_size": loop.size, "ranks": (loop.rank, loop.world),
    }  # fmt: skip
    batches = reader.batches(loop.batch, **options)
    if loop.number >= len(batches):
        raise NoSuchBatchError(len(batches))
    state = batches.state_dict() | {"epoch": loop.epoch, "position": loop.number * loop.batch * loop.world}
    _check_size(batches, min(loop.batch, len(reader)))
    steps = options["transform"] or []
    for k in range(1, len(steps)):
        between = None
        with suppress(UsageError):  # the steps before one may leave what no batch can have
            between = reader.batches(1, **options | {"transform": steps[:k]})
        if between is not None:
            _check_size(between, 1)
    unread = reader.batches(loop.batch, **options | {"fields": [], "transform": None, "image_size": None})
    unread.load_state_dict(state)
    for row in next(iter(unread))["index"].tolist():
        store.check_size(row)
    batches.load_state_dict(state)
    batch = next(iter(batches))
    tiles = store.tiles(batch["index"])
    for k, tile in enumerate(tiles):
        tile["layers"] = list(store.layers({name: batch[name][k] for name in names}))
        tile["shape"] = list(np.shape(batch[store.images[0]][k])) if store.images else []
    normalized = [name for name in store.images if _normalizing(store, loop, name)]
    said = {
        "shown": f"{', '.join(normalized)} shown without Normalize" if normalized else "",
        "batches": len(batches),
        "samples": tiles,
        "fields": {
            name: (f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else count(len(values), "array"))
            + (f", {_mean_and_std(values)}" if name in store.images else "")
            for name, values in batch.items()
        },
        "lines": loop.lines(store.said, names if ragged else None, state),
    }
    return batch, said


def _normalizing(store: LookedAt, loop: TrainingLoop, field: str) -> Normalize | None:
    """The step that normalized an image, where that can be undone: the only one of its kind."""
    steps = [one for one in parse_steps([loop.steps]) if isinstance(one, Normalize)] if loop.steps.strip() else []
    images = {name: store.reader.fields[name] for name in store.images}
    colors = [name for name, one in images.items() if one.dtype == "uint8" and one.shape[-1] == 3]
    applied = [one for one in steps if field in (one.fields or colors or images)]
    return applied[0] if len(applied) == 1 else None


def _undone(image: NDArray[Any], step: Normalize, stored: str) -> NDArray[Any]:
    """An image before `step`, (height, width, channels); of stored whole numbers as uint8, in their whole range.

    Each channel has its own mean and deviation, so without this, one range for all of them would show false colors.
    """
    found = channels_last(image).astype(np.float64) * step.std + step.mean
    return (found * 255).round().clip(0, 255).astype(np.uint8) if np.dtype(stored).kind in "bui" else found


def _mean_and_std(images: Any) -> str:
    """Of all pixels of a batch, a number for each channel: "mean 0.012, 0.034, ...; std ..."."""
    sums = squares = 0.0
    pixels = 0
    for image in images:  # one at a time: float64 takes eight times the memory of bytes
        values = channels_last(np.asarray(image)).astype(np.float64)
        sums, squares = sums + values.sum((0, 1)), squares + (values**2).sum((0, 1))
        pixels += values.shape[0] * values.shape[1]
    mean = np.atleast_1d(sums) / max(1, pixels)
    deviation = np.sqrt(np.maximum(np.atleast_1d(squares) / max(1, pixels) - mean**2, 0))
    words = (", ".join(f"{value:.3g}" for value in values) for values in (mean, deviation))
    return "mean {}; std {}".format(*words)


def _check_size(batches: Any, samples: int) -> None:
    """Raise UsageError where a batch of this size is too large, before anything is read."""
    fields = batches._feed.making.described().values()
    size = samples * sum(math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in fields if one.shape is not None)
    if size > _MOST_BYTES:
        raise UsageError(
            f"{count(samples, 'sample')} would be {size / 2**30:.1f} GiB, and the page shows batches of at most "
            f"{_MOST_BYTES >> 30} GiB: choose a smaller batch or image size"
        )
