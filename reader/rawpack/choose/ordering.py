"""The order of `Reader.batches`: from `shuffle=` or `sampler=`, of a mix, and with each batch in one bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack.clips.sample_set import SampleSet
from rawpack.errors import UsageError
from rawpack.order import Blocks
from rawpack.order.base import Order
from rawpack.order.blocks import BlockShuffled
from rawpack.order.buckets import Bucketed
from rawpack.order.from_column import FromColumn
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import Sequential, Shuffled

if TYPE_CHECKING:
    from rawpack.choose.buckets import FoundBuckets
    from rawpack.choose.options import Options


def make_order(samples: SampleSet, options: Options, found: FoundBuckets | None) -> Order:
    """The order of the samples of a reader. found: the buckets that they are in, if any."""
    order, n_lengths = _order(samples, options), len(samples.lengths)
    if found is None and n_lengths < 2:
        return order
    if order.batch_size is not None:
        what = "Balanced" if samples.mix is None else "a mix"
        raise UsageError(
            f"{what} decides what is in each batch, so its batches cannot have sizes or lengths of their own: leave "
            "out Buckets, or call clips() with one number of frames"
        )
    if found is not None:
        return Bucketed(order, found.of, len(found), options.batch_size, options.seed, found.identity)
    assert samples.clips is not None
    name = f"{' '.join(map(str, samples.lengths))} frames"
    of = samples.clips.buckets(samples.selection)
    return Bucketed(order, of, n_lengths, options.batch_size, options.seed, name)


def _order(samples: SampleSet, options: Options) -> Order:
    """The same before samples of one bucket are put together."""
    sampler, shuffle, seed, batch_size = options.sampler, options.shuffle, options.seed, options.batch_size

    def order(n: int, seed: int) -> Order:
        if isinstance(shuffle, Blocks):
            return BlockShuffled(n, seed, shuffle.block, shuffle.window)
        return Shuffled(n, seed) if shuffle else Sequential(n)

    if samples.mix is not None:
        if sampler is not None:
            raise UsageError("a mix has its own order: leave out sampler=")
        return samples.mix.order(samples.mix.sizes(samples.library, samples.rows), order, seed, batch_size)
    if isinstance(sampler, FromColumn):
        return sampler.order(samples.column, len(samples), seed, batch_size)
    return order(len(samples), seed) if sampler is None else Sampled(sampler, len(samples))
