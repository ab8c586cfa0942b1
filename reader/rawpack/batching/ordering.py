"""The order of `Reader.batches`: from `shuffle=` or `sampler=`, of a mix, and with each batch in one bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.clips.reading import samples_in
from rawpack.errors import UsageError
from rawpack.order import BlockShuffled, Bucketed, FromColumn, Order, Sampled, Sequential, Shuffled
from rawpack.order.sampled import Indices
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.store.mix import Mix

if TYPE_CHECKING:
    from rawpack.batching.buckets import Buckets
    from rawpack.clips.table import ClipTable

Sampler = Indices | Callable[[int], Indices] | FromColumn


def make_order(
    library: ConcatenatedStore,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    column: Callable[[str], ArrayLike],
    shuffle: bool | str,
    block: int,
    window: int,
    sampler: Sampler | None,
    seed: int,
    batch_size: int,
) -> Order:
    """The order of the samples of a reader. column: gives a field of all of them."""
    if sampler is not None:
        if shuffle is not False:
            raise UsageError("sampler= is its own order: leave out shuffle=")
        if mix is not None:
            raise UsageError("a mix has its own order: leave out sampler=")
        n = samples_in(library, selection, clips)
        if isinstance(sampler, FromColumn):
            return sampler.order(column, n, seed, batch_size)
        return Sampled(sampler, n)

    def order(n: int, seed: int) -> Order:
        if isinstance(shuffle, str) and shuffle == "block":
            return BlockShuffled(n, seed, block, window)
        if not isinstance(shuffle, bool | np.bool_):
            raise UsageError(f"shuffle={shuffle!r} must be True, False or 'block'")
        return Shuffled(n, seed) if shuffle else Sequential(n)

    if mix is not None:
        rows = selection if clips is None else clips.first_rows()
        return mix.order(mix.sizes(library, rows), order, seed, batch_size)
    return order(samples_in(library, selection, clips), seed)


def in_buckets(
    order: Order,
    found: Buckets | None,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    batch_size: int,
    seed: int,
) -> Order:
    """The order with all samples of a batch in one bucket, where there are any."""
    lengths = () if clips is None else clips.shape.lengths
    if found is None and len(lengths) < 2:
        return order
    if order.batch_size is not None:
        what = "a mix" if mix is not None else "Balanced"
        raise UsageError(
            f"{what} decides what is in each batch, so its batches cannot have sizes or lengths of their own: leave "
            "out buckets=, or call clips() with one number of frames"
        )
    if found is not None:
        return Bucketed(order, found.of, len(found), batch_size, seed, found.identity)
    assert clips is not None
    return Bucketed(
        order, clips.buckets(selection), len(lengths), batch_size, seed, f"{' '.join(map(str, lengths))} frames"
    )
