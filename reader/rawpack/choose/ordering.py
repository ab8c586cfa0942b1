"""The order of `Reader.batches`: from `shuffle=` or `sampler=`, of a mix, and with each batch in one bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.clips.reading import samples_in
from rawpack.errors import UsageError
from rawpack.order import Blocks
from rawpack.order.base import Order
from rawpack.order.buckets import Bucketed
from rawpack.order.from_column import FromColumn
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import BlockShuffled, Sequential, Shuffled
from rawpack.store.opening import Mix
from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.choose.buckets import FoundBuckets
    from rawpack.choose.options import Options
    from rawpack.clips.table import ClipTable


def make_order(
    library: Stores,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    column: Callable[[str], ArrayLike],
    options: Options,
) -> Order:
    """The order of the samples of a reader. column: gives a field of all of them."""
    sampler, shuffle, seed, batch_size = options.sampler, options.shuffle, options.seed, options.batch_size
    if sampler is not None:
        if mix is not None:
            raise UsageError("a mix has its own order: leave out sampler=")
        n = samples_in(library, selection, clips)
        if isinstance(sampler, FromColumn):
            return sampler.order(column, n, seed, batch_size)
        return Sampled(sampler, n)

    def order(n: int, seed: int) -> Order:
        if isinstance(shuffle, Blocks):
            return BlockShuffled(n, seed, shuffle.block, shuffle.window)
        return Shuffled(n, seed) if shuffle else Sequential(n)

    if mix is not None:
        rows = selection if clips is None else clips.first_rows()
        return mix.order(mix.sizes(library, rows), order, seed, batch_size)
    return order(samples_in(library, selection, clips), seed)


def in_buckets(
    order: Order,
    found: FoundBuckets | None,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    options: Options,
    *,
    mixed: bool,
) -> Order:
    """The order with all samples of a batch in one bucket, where there are any."""
    lengths = () if clips is None else clips.shape.lengths
    if found is None and len(lengths) < 2:
        return order
    if order.batch_size is not None:
        what = "a mix" if mixed else "Balanced"
        raise UsageError(
            f"{what} decides what is in each batch, so its batches cannot have sizes or lengths of their own: leave "
            "out Buckets, or call clips() with one number of frames"
        )
    if found is not None:
        return Bucketed(order, found.of, len(found), options.batch_size, options.seed, found.identity)
    assert clips is not None
    name = f"{' '.join(map(str, lengths))} frames"
    return Bucketed(order, clips.buckets(selection), len(lengths), options.batch_size, options.seed, name)
