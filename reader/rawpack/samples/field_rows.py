"""Which rows the fields of samples are read from: the sample's own, those of a clip's frames, or those at offsets."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class FieldRows:
    """Of samples that are rows: each field is read from the sample's own. Travels to the workers."""

    def framed(self, name: str) -> bool:
        """Whether a sample has several frames of a field, which are its first axis."""
        return False

    def alike(self, name: str) -> Hashable:
        """The same for fields that are read from the same rows."""
        return self.framed(name)

    def of(self, name: str, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of a field: (n,), or frame by frame (n * frames,). samples: as in `EpochStep.rows`."""
        return samples

    def of_any(self, names: Sequence[str], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all these fields, one after another; some may be there twice."""
        return samples.reshape(-1)

    def by_sample(self, name: str, values: Any, samples: NDArray[np.int64]) -> Any:
        """The values of a field in the rows that `of` names, sample by sample."""
        return values


OWN_ROWS = FieldRows()


@dataclass(frozen=True)
class ClipRows(FieldRows):
    """Of clips: samples are the rows of their frames, (n, frames)."""

    once: tuple[str, ...]
    """Fields that a clip has one value of, instead of one for each frame."""

    def framed(self, name: str) -> bool:
        return name not in self.once

    def of(self, name: str, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return samples.reshape(-1) if self.framed(name) else samples[:, 0]

    def by_sample(self, name: str, values: Any, samples: NDArray[np.int64]) -> Any:
        return framewise(values, *samples.shape) if self.framed(name) else values


def framewise(values: Any, samples: int, frames: int) -> Any:
    """The values of samples * frames rows, sample by sample."""
    if isinstance(values, list):
        return [values[start : start + frames] for start in range(0, samples * frames, frames)]
    return values.reshape(samples, frames, *values.shape[1:])
