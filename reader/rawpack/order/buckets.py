"""Buckets: every sample belongs to one of a few buckets, and all samples of a batch to the same.

The samples of another order are dealt into the buckets as they come. What has been read of an epoch is therefore a
prefix of each bucket, and the rest depends only on the seed, the epoch, how far each bucket is, and the world size: a
resume needs one number for each bucket, and may have another world size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples
from rawpack.order.keys import derive_key
from rawpack.order.ranks import RankSplit, Span

CONSUMED = "consumed"
"""What a state has for each bucket: how many of its samples were read."""


class Deal(msgspec.Struct, frozen=True):
    members: tuple[NDArray[np.signedinteger], ...]
    places: tuple[Samples, ...]
    """For each batch of each bucket, a position of the whole order: batches come in the order of these."""


class Bucketed(Order):
    """The samples of another order, in batches of one bucket each.

    Within a bucket, samples stay in the order of `order`. Each batch comes where one of its samples would have come:
    a random one in a shuffled order, so that batches of all buckets are spread evenly over the epoch, and its first one
    in an order that is the same in every epoch.

    An epoch is dealt when it is first needed, 4 bytes for each sample (8 from 2**31 samples on), and the last two are
    kept; with 8 bytes more for each where stores are remote, whose prefetching asks for the order itself.
    """

    _deals: tuple[tuple[int, Deal], ...] = ()
    """Of the last two epochs, with their numbers."""

    def __init__(
        self, order: Order, bucket_of: NDArray[np.uint8], count: int, batch_size: int, seed: int, name: str = ""
    ) -> None:
        """bucket_of: the bucket of each sample. count: of buckets. seed: any integer. name: identifies the buckets, and
        which samples are in them."""
        self._order, self._bucket_of, self._count, self._batch_size = order, bucket_of, count, batch_size
        self._seed, self._name = seed, name
        self.repeats = order.repeats
        # Where samples repeat, epochs have different ones, and so differ in their number of batches.
        self.foreseeable = order.foreseeable and not order.repeats

    @property
    def name(self) -> str:
        return f"{self._order.name} in buckets"

    @property
    def identity(self) -> dict[str, Any]:
        return {**self._order.identity, "batch_size": self._batch_size, "buckets": self._name}

    @property
    def follows_epoch(self) -> bool:
        return not self._order.same_each_epoch

    def length(self, epoch: int) -> int:
        return self._order.length(epoch)

    def deal(self, epoch: int) -> Deal:
        for of, deal in self._deals:
            if of == epoch:
                return deal
        samples = self._order.samples(epoch, 0, self.length(epoch))
        dtype = np.int32 if len(self._bucket_of) <= np.iinfo(np.int32).max else np.int64
        bucket_of, members, places = self._bucket_of[samples], list[NDArray[np.signedinteger]](), list[Samples]()
        for bucket in range(self._count):
            at = np.flatnonzero(bucket_of == bucket)
            members.append(samples[at].astype(dtype))
            first = np.arange(0, len(at), self._batch_size)
            if not self._order.same_each_epoch:
                key = derive_key("bucket", self._seed, epoch, bucket)
                # All full batches come at the same one of their samples, so that those of a bucket keep their distance.
                first += key * self._batch_size >> 64
                if len(first) and (short := len(at) % self._batch_size):
                    first[-1] = len(at) - short + (key * short >> 64)
            places.append(at[first])
        deal = Deal(tuple(members), tuple(places))
        self._deals = ((epoch, deal), *self._deals[:1])
        return deal

    def split(self, ranks: RankSplit, epoch: int, consumed: Sequence[int] = ()) -> BucketSplit:
        shared = {**vars(ranks), "length": self.length(epoch)}
        return BucketSplit(**shared, order=self, epoch=epoch, consumed=tuple(consumed) or (0,) * self._count)

    def consumed_of(self, state: Mapping[str, Any], epoch: int, position: int) -> tuple[int, ...]:
        consumed = state.get(CONSUMED)
        counts = [len(members) for members in self.deal(epoch).members]
        if (
            not isinstance(consumed, list | tuple)
            or len(consumed) != len(counts)
            or not all(type(done) is int and 0 <= done <= count for done, count in zip(consumed, counts, strict=True))
            or any(done % self._batch_size for done, count in zip(consumed, counts, strict=True) if done < count)
            or sum(consumed) != position
        ):
            raise UsageError(f"this state is damaged: {CONSUMED} {consumed!r}, position {position}")
        return tuple(consumed)

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        # What one rank reads: all its batches.
        steps = self.split(RankSplit(self.length(epoch), self._batch_size), epoch).steps
        members = self.deal(epoch).members
        batches = zip(steps.bucket.tolist(), steps.start.tolist(), steps.stop.tolist(), strict=True)
        samples = [members[bucket][start:stop] for bucket, start, stop in batches]
        return 0, np.concatenate(samples, dtype=np.int64)


class BucketSpan(Span):
    """The positions start..stop-1 of a bucket, which wrap around at its end."""

    def samples(self, order: Order, epoch: int) -> Samples:
        assert isinstance(order, Bucketed)
        members = order.deal(epoch).members[self.bucket]
        return members.take(np.arange(self.start, self.stop), mode="wrap").astype(np.int64)


class _Steps(msgspec.Struct, frozen=True):
    """The steps of all ranks in the rest of an epoch, in their order."""

    bucket: NDArray[np.int64]
    start: NDArray[np.int64]
    """The first position in the bucket."""
    stop: NDArray[np.int64]
    after: NDArray[np.int64]
    """How many samples of all buckets have been read after it."""
    own: int
    """In how many of them, which come first, this rank has a batch."""


@dataclass(frozen=True)
class BucketSplit(RankSplit):
    """How one rank's batches are cut from an epoch of buckets: as `RankSplit` says, but in each bucket by itself.

    All ranks together read the next batch_size * world_size positions of one bucket, and fewer where it ends. With
    last="keep", steps that have no batch for some ranks come last, so that the nth batch of all ranks is always of
    one bucket.
    """

    order: Bucketed = field(kw_only=True, compare=False)
    epoch: int = field(kw_only=True)
    consumed: tuple[int, ...] = field(kw_only=True)
    """How many samples of each bucket were read before."""

    def count(self, position: int = 0) -> int:
        return self.steps.own - self._first(position)

    def steps_left(self, position: int = 0) -> int:
        return len(self.steps.after) - self._done(position)

    def batch(self, step: int, position: int = 0) -> BucketSpan:
        steps, at = self.steps, self._first(position) + step
        if step < 0 or at >= steps.own:
            raise IndexError(f"no step {step} from position {position}: rank {self.rank} has {self.count(position)}")
        bucket, start, stop = int(steps.bucket[at]), int(steps.start[at]), int(steps.stop[at])
        low, high = self._slice(stop - start)
        return BucketSpan(start + low, start + high, len(self.order.deal(self.epoch).members[bucket]), bucket)

    def spans(self, position: int) -> Iterator[tuple[Span, int]]:
        for step in range(self.count(position)):
            yield self.batch(step, position), self.reached(step + 1, position)

    def reached(self, steps: int, position: int = 0) -> int:
        after, done = self.steps.after, self._done(position) + steps
        return int(after[min(done, len(after)) - 1]) if steps and len(after) else position

    def state(self, position: int) -> dict[str, Any]:
        if position == sum(self.consumed):  # known without dealing the epoch
            return {CONSUMED: list(self.consumed)}
        consumed = np.array(self.consumed)
        done = slice(self._done(position))
        np.add.at(consumed, self.steps.bucket[done], (self.steps.stop - self.steps.start)[done])
        return {CONSUMED: consumed.tolist()}

    @property
    def next_epoch(self) -> BucketSplit:
        return replace(self, epoch=self.epoch + 1, consumed=(0,) * len(self.consumed))

    @property
    def _most_together(self) -> int:
        return max(len(members) for members in self.order.deal(self.epoch).members)

    def lengths(self, position: int = 0) -> list[int]:
        steps = self.steps
        found = set((steps.stop - steps.start)[: steps.own].tolist())
        return sorted({high - low for low, high in map(self._slice, found)})

    @cached_property
    def steps(self) -> _Steps:
        size, deal = self.batch_size * self.world_size, self.order.deal(self.epoch)
        columns: list[tuple[NDArray[np.int64], ...]] = []
        for bucket, (members, places, done) in enumerate(zip(deal.members, deal.places, self.consumed, strict=True)):
            start = np.arange(done, len(members) - (size - 1 if self.drop_last else 0), size)
            stop = np.minimum(start + size, len(members))
            columns.append((np.full(len(start), bucket), start, stop, places[start // self.batch_size]))
        bucket_of, start, stop, place = (np.concatenate(column) for column in zip(*columns, strict=True))
        # How many ranks have a batch: fewer than all only in the last step of a bucket.
        ranks = np.minimum(stop - start, self.world_size) if self.last == "keep" else np.full(len(start), size)
        order = np.lexsort((place, -ranks))
        after = sum(self.consumed) + np.cumsum((stop - start)[order])
        return _Steps(bucket_of[order], start[order], stop[order], after, int(np.count_nonzero(ranks > self.rank)))

    def _first(self, position: int) -> int:
        """How many of this rank's steps are done at a position."""
        return min(self._done(position), self.steps.own)

    def _done(self, position: int) -> int:
        return int(np.searchsorted(self.steps.after, position, side="right"))
