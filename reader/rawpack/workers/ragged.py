"""Fields that are not in slots because their samples differ in length: texts, boxes.

They are small and stored in columns. This process reads them when it hands over a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.clips.sample_set import by_clip
from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.randomness import Seeds

Ragged = Literal["list", "pad"] | int
"""How ragged fields come: see `Reader.batches`."""


class RaggedFields:
    """The texts and ragged fields of one `Batches`."""

    def __init__(
        self,
        library: Stores,
        names: Sequence[str],
        ragged: Ragged,
        movers: Sequence[BoxMover | None] = (None,),
    ) -> None:
        """movers: what moves boxes, and what follows them, with their images, where these are transformed: for each
        bucket."""
        self.names, self._library, self._ragged, self._movers = tuple(names), library, ragged, tuple(movers)

    def __call__(
        self, rows: NDArray[np.int64], seeds: Seeds, clips: NDArray[np.int64] | None = None, bucket: int = 0
    ) -> dict[str, Any]:
        """What a batch of these rows has besides its slot. The arrays belong to the caller.

        rows: int64 (n,), or for clips (n, frames): then each clip has a list of its frames, or an axis. seeds: see
        `Seeds`. clips: their numbers, (n,). bucket: of the batch.
        """
        made = self._of(rows.reshape(-1), seeds, clips, self._movers[bucket])
        return made if rows.ndim == 1 else {name: by_clip(values, *rows.shape) for name, values in made.items()}

    def _of(
        self, rows: NDArray[np.int64], seeds: Seeds, clips: NDArray[np.int64] | None, mover: BoxMover | None
    ) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        fields = self._library.fields
        moved = {name: self._library.columns.ragged(name, rows) for name in self.names if mover and fields[name].moves}
        if mover is not None:
            moved = mover(self._library, rows, moved, seeds, clips)
        for name in self.names:
            if self._library.fields[name].kind == "text":
                batch[name] = self._library.columns.text(name, rows)
                continue
            samples = moved[name] if name in moved else self._library.columns.ragged(name, rows)
            if self._ragged == "list":
                batch[name] = [np.array(sample) for sample in samples]
            else:
                lengths = np.array([len(sample) for sample in samples], np.int64)
                longest = int(lengths.max(initial=0)) if self._ragged == "pad" else int(self._ragged)
                batch[name] = self._padded(name, samples, longest)
                batch[f"{name}.length"] = lengths
        return batch

    def _padded(self, name: str, samples: Sequence[NDArray[Any]], length: int) -> NDArray[Any]:
        field = self._library.fields[name]
        padded = np.zeros((len(samples), length, *(n or 0 for n in field.shape[1:])), field.dtype)
        for target, sample in zip(padded, samples, strict=True):
            target[: len(sample)] = sample
        return padded
