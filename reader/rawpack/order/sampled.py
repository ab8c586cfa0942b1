"""An order from the user's own sampler: weighted, balanced, bucketed, or any other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, SupportsIndex, cast

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples

Indices = ArrayLike | Iterable[SupportsIndex]
PIECE = 1 << 16


class Sampled(Order):
    """The samples of a user's sampler, in its order. It may repeat samples, and leave some out.

    source: an array of indices (the same in every epoch), an iterable that yields an epoch's indices each time it is
        iterated (a torch Sampler), or a function that returns either for an epoch.
    n: number of samples; each index must be in 0..n-1.

    An epoch is drawn completely when it is first needed, 8 bytes per index, and the last two are kept. An iterable that
    draws at random yields another order each time. It must be used in one process and by one thread. Only an array, or
    a function of nothing but the epoch, resumes exactly.

    Raises UsageError, here or when an epoch is drawn, for anything but one-dimensional indices, for an index out of
    range, and for an empty epoch.
    """

    def __init__(self, source: Indices | Callable[[int], Indices], n: int) -> None:
        self.n = n
        self._source = source
        self._fixed: Samples | None = None
        if isinstance(source, Iterator):
            raise UsageError(
                f"sampler={source!r} can be iterated only once, so a second epoch would be empty: pass a list,"
                " an iterable that can be iterated again, or a function of the epoch that returns one"
            )
        if _is_array(source):
            self._fixed = self._indices(_from_array(source), "sampler")
        elif not callable(source) and not isinstance(source, Iterable):
            raise UsageError(f"sampler must be indices, an iterable of them or a function of the epoch, not {source!r}")
        self.foreseeable = self.same_each_epoch = self._fixed is not None

    @property
    def name(self) -> str:
        """With a checksum of an array of indices; without one for samplers that draw each epoch."""
        if self._fixed is None:
            return super().name
        return f"{super().name} {xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self._fixed).data)}"

    @property
    def follows_epoch(self) -> bool:
        """Only where a function is asked for an epoch: an iterable does not get its number."""
        return callable(self._source) and not isinstance(self._source, Iterable)

    def length(self, epoch: int) -> int:
        """The number of indices of `epoch`, which is drawn unless it is one of the last two."""
        return self._keep(epoch, 0)[1].size

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        if self._fixed is not None:
            return 0, self._fixed
        what = f"the sampler's epoch {epoch}"
        try:
            return 0, self._drawn(epoch, what)
        except StopIteration as error:  # which would end a loop over batches, as if the epoch were over
            raise UsageError(f"{what} raised StopIteration: a sampler must give indices in each epoch") from error

    def _drawn(self, epoch: int, what: str) -> Samples:
        # An iterable that is also callable is iterated.
        iterable = isinstance(self._source, Iterable)
        source = self._source if iterable else cast(Callable[[int], Indices], self._source)(epoch)
        if _is_array(source):
            return self._indices(_from_array(source), what)
        if not isinstance(source, Iterable):
            raise UsageError(f"{what} must be indices, or an iterable of them, not {source!r}")
        indices = cast(Iterator[SupportsIndex], iter(source))
        pieces = [np.empty(0, np.int64)]
        # Checked piece by piece: an endless one fails at its first index out of range.
        while (piece := _from_iterator(indices, what)).size:
            pieces.append(self._indices(piece, what))
        return self._indices(np.concatenate(pieces), what)

    def _indices(self, indices: NDArray[Any], what: str) -> Samples:
        """A copy of `indices` as int64. Raises UsageError for anything but one-dimensional indices of samples."""
        if indices.ndim != 1:
            raise UsageError(f"{what} must be one-dimensional, not of shape {indices.shape}")
        if indices.dtype == np.bool_:
            raise UsageError(f"{what} is a mask, not indices: pass np.flatnonzero(mask)")
        if not indices.size:
            raise UsageError(f"{what} is empty: a sampler must give at least one index in each epoch")
        if indices.dtype.kind not in "iu":
            raise UsageError(f"{what} must be whole numbers, not {indices.dtype}")
        wrong = np.flatnonzero((indices < 0) | (indices >= self.n))
        if wrong.size:
            raise UsageError(
                f"{what} names the sample {indices[wrong[0]]}; the samples are 0 to {self.n - 1}"
                f" ({wrong.size} of its indices are outside)"
            )
        return indices.astype(np.int64)


def _is_array(source: object) -> bool:
    return isinstance(source, list | tuple | range) or hasattr(source, "__array__")


def _from_array(source: object) -> NDArray[Any]:
    try:
        return np.asarray(source)
    except (TypeError, ValueError) as error:
        raise UsageError(f"sampler cannot be read as an array of indices: {error}") from error


def _from_iterator(indices: Iterator[SupportsIndex], what: str) -> Samples:
    try:
        return np.fromiter(map(operator.index, islice(indices, PIECE)), np.int64)
    except (TypeError, OverflowError) as error:
        raise UsageError(f"{what} must give one whole number after another: {error}") from error
