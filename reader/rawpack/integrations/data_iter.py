"""Batches by the protocol of MXNet's `DataIter`, for `Module.fit` and loops like it. MXNet itself is not imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import BatchIterator
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Adapter, check_fields
from rawpack.words import INDEX
from rawpack.workers.source import Batch

Names = str | Mapping[str, str] | None


class DataDesc(NamedTuple("DataDesc", [("name", str), ("shape", tuple[int, ...])])):
    """What an iterator provides: a pair of name and shape, with `dtype` and `layout`, as MXNet has it."""

    dtype: Any
    layout: str

    def __new__(cls, name: str, shape: tuple[int, ...], dtype: Any, layout: str) -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype, self.layout = dtype, layout
        return self


@dataclass(frozen=True)
class DataBatch:
    """A batch, with MXNet's attributes."""

    data: list[Any]
    label: list[Any]
    pad: int
    """How many rows at the end repeat others, to be ignored in an evaluation."""
    index: NDArray[np.int64]
    """The rows of the samples in the reader, with those that are repeated."""
    bucket_key: Any = None
    provide_data: list[DataDesc] | None = None
    provide_label: list[DataDesc] | None = None


class DataIter(Adapter, Iterator[DataBatch]):
    """An iterator that is reset for each epoch: until then, it has ended when the epoch has.

    All batches have `batch_size` rows. A last one with fewer is filled up with the first rows of the epoch, as MXNet's
    iterators do by `last_batch_handle="pad"`. Used by one thread at a time.
    """

    def __init__(self, feed: Epochs, data: Names, label: Names, place: Callable[[NDArray[Any]], Any] | None) -> None:
        """Made by `Batches.data_iter`, with its arguments."""
        super().__init__(feed, f"{data}, {label}")
        self._place = place
        if len(feed.settings.pipelines) > 1:
            raise UsageError(
                "data_iter() has batches of one shape, as MXNet needs it: leave out Buckets, or call clips() with one "
                "number of frames"
            )
        self._data, self._label = _named("data", data, "data"), _named("label", label, "softmax_label")
        self._fields = [*self._data.values(), *self._label.values()]
        check_fields(feed, "data, label", self._fields)
        self._described = feed.making.described()
        for name in self._fields:
            if self._described[name].shape is None:
                raise UsageError(
                    f"{name!r} has no fixed shape, which MXNet needs: name other fields, or pass ragged=, a number"
                )
        self._iterator: BatchIterator | None = None
        self._first: Batch = {}
        """Copies of the first rows of this epoch, which fill up the last batch."""
        self._pad = self._repeats = self._left = 0
        """How many rows the last batch needs; how many of its own repeat the start of the epoch, to give ranks equal
        batches; how many batches are left."""

    @cached_property
    def provide_data(self) -> list[Any]:
        """Name, shape, dtype and layout of each array in `data`: MXNet's own `DataDesc` where MXNet is imported."""
        return self._provided(self._data)

    @cached_property
    def provide_label(self) -> list[Any]:
        """As `provide_data`, of `label`."""
        return self._provided(self._label)

    def reset(self) -> None:
        """The next epoch comes, or stays where none of its batches were read."""
        iterator, self._iterator = self._iterator, None
        self._first = {}
        if iterator is not None:
            iterator.close()
            # The position that it has reached does not count: the next epoch does.
            self._feed.stay()

    def _epoch(self) -> Iterator[DataBatch]:
        self.reset()
        return self

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration at the end of the epoch, until `reset()`."""
        return self.__next__()

    def __next__(self) -> DataBatch:
        if self._iterator is None:
            start = self._feed.next_start()
            self._left = len(start)
            if self._left:
                last = start.span(self._left - 1)
                self._pad, self._repeats = self.batch_size - len(last), min(max(0, last.stop - last.length), len(last))
            if self._pad and start.position:
                self._first = self._first_rows(self._begun_at_zero(start.epoch))
            self._iterator = iter(self._feed)
        batch = next(self._iterator)
        if self._pad and not self._first:
            self._first = self._first_rows(batch)
        self._left -= 1
        pad = self.batch_size - len(batch[INDEX])
        filled = {name: self._filled(name, batch[name], pad) for name in (*self._fields, INDEX)}
        data, label = ([self._placed(filled, name) for name in chosen.values()] for chosen in (self._data, self._label))
        made = DataBatch(data, label, pad if self._left else pad + self._repeats, filled[INDEX])
        self._handed.note([made], self._iterator._place)
        return made

    def set_epoch(self, epoch: int) -> None:
        self.reset()
        super().set_epoch(epoch)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.reset()

    def _first_rows(self, batch: Batch) -> Batch:
        return {name: batch[name][: self._pad].copy() for name in (*self._fields, INDEX)}

    def _begun_at_zero(self, epoch: int) -> Batch:
        """The first batch of an epoch that is resumed further on."""
        again = self._feed.with_settings(workers=0)
        again.set_epoch(epoch + 1)  # else the position that was loaded for this epoch stays
        again.set_epoch(epoch)
        return next(iter(again))

    def _filled(self, name: str, array: NDArray[Any], pad: int) -> NDArray[Any]:
        """With `pad` rows of the epoch's first: all of them again and again where it has fewer."""
        if not pad:
            return array
        first = self._first[name]
        return np.concatenate([array, first[np.arange(pad) % len(first)]])

    def _placed(self, arrays: Batch, name: str) -> Any:
        array = arrays[name]
        if self._described[name].channels_last:
            array = np.moveaxis(array, -1, -3)
        return array if self._place is None else self._place(array)

    def _provided(self, chosen: Mapping[str, str]) -> list[Any]:
        """What `place` makes of zeros is what it makes of a batch."""
        kind = sys.modules["mxnet"].io.DataDesc if "mxnet" in sys.modules else DataDesc
        provided = []
        for shown, name in chosen.items():
            field = self._described[name]
            assert field.shape is not None
            placed = self._placed({name: np.zeros((self.batch_size, *field.shape), field.dtype)}, name)
            shape = tuple(int(n) for n in placed.shape)
            layout = {5: "NTCHW", 6: ""}.get(len(shape), "NCHW"[: len(shape)])
            provided.append(kind(shown, shape, np.dtype(placed.dtype).type, layout))
        return provided


def _named(parameter: str, given: Names, default: str) -> dict[str, str]:
    """MXNet's name -> the field."""
    if given is None:
        return {}
    named = {default: given} if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for pair in named.items() for name in pair):
        raise UsageError(f"{parameter}={given!r} must be the name of a field, or a dict: MXNet's name -> field")
    return dict(named)
