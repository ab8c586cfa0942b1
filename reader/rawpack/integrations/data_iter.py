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
from rawpack.errors import UsageError
from rawpack.integrations.adapter import Adapter, check_fields
from rawpack.order.steps import EpochStart
from rawpack.words import INDEX, VALID
from rawpack.workers.source import Batch

Names = str | Mapping[str, str] | None


class DataDesc(NamedTuple("DataDesc", [("name", str), ("shape", tuple[int, ...])])):
    """A pair of name and shape, with `dtype` and `layout`, where MXNet's own is not imported."""

    dtype: Any
    layout: str

    def __new__(cls, name: str, shape: tuple[int, ...], dtype: Any, layout: str) -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype, self.layout = dtype, layout
        return self


@dataclass(frozen=True)
class DataBatch:
    """A batch, with the attributes that MXNet's loops read."""

    data: list[Any]
    label: list[Any]
    pad: int
    """How many rows at the end repeat others, to be ignored in an evaluation."""
    index: NDArray[np.int64]
    """The positions of the samples in the reader, with those that are repeated."""


class DataIter(Adapter, Iterator[DataBatch]):
    """An iterator that is reset for each epoch.

    All batches have `batch_size` rows. A last one with fewer is filled up with the first rows of the epoch, as MXNet's
    iterators do by `last_batch_handle="pad"`. Used by one thread at a time.
    """

    def __init__(self, feed: Epochs, data: Names, label: Names, place: Callable[[NDArray[Any]], Any] | None) -> None:
        super().__init__(feed, f"{data}, {label}")
        if len(feed.settings.pipelines) > 1:
            raise UsageError(
                "data_iter() has batches of one shape, as MXNet needs it: leave out Buckets, or call clips() with one "
                "number of frames"
            )
        self._data, self._label = _named("data", data, "data"), _named("label", label, "softmax_label")
        self._fields, self._place = [*self._data.values(), *self._label.values()], place
        check_fields(feed, "data, label", self._fields)
        self._described = feed.making.described()
        for name in self._fields:
            if self._described[name].shape is None:
                raise UsageError(
                    f"{name!r} has no fixed shape, which MXNet needs: name other fields, or pass ragged=, a number"
                )
        self._first: Batch = {}
        """Copies of the first rows of this epoch, which fill up the last batch."""

    @cached_property
    def provide_data(self) -> list[Any]:
        """Name, shape, dtype and layout of each array in `data`."""
        return self._provided(self._data)

    @cached_property
    def provide_label(self) -> list[Any]:
        """The same for `label`."""
        return self._provided(self._label)

    def reset(self) -> None:
        """The next epoch comes, or stays where none of its batches were read."""
        if self._iterator is not None:
            self._end()
            self._feed.stay()

    def _epoch(self) -> Iterator[DataBatch]:
        self.reset()
        return self

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration at the end of the epoch, until `reset()`."""
        return self.__next__()

    def __next__(self) -> DataBatch:
        if self._iterator is None:
            self._begin(self._feed.next_start())
            self._iterator = iter(self._feed)
        batch = next(self._iterator)
        self._first = self._first or self._first_rows(batch)
        pad, rows = self.batch_size - len(batch[INDEX]), batch
        if pad:  # all of the first rows again and again, where they are fewer
            again = np.arange(pad) % len(self._first[INDEX])
            rows = {name: np.concatenate([batch[name], first[again]]) for name, first in self._first.items()}
        data, label = ([self._placed(rows[name], name) for name in each.values()] for each in (self._data, self._label))
        repeated = np.count_nonzero(~batch[VALID]) if VALID in batch else 0
        made = DataBatch(data, label, pad + int(repeated), rows[INDEX])
        self._handed.note([made], self._iterator._place)
        return made

    def _begin(self, start: EpochStart) -> None:
        """See how many rows of the epoch's first batch its last one needs, and read them if it is resumed further
        on."""
        self._first = {}
        self._most_pad = self.batch_size - len(start.span(len(start) - 1)) if len(start) else 0
        if self._most_pad and start.position:
            again = self._feed.with_settings(workers=0)
            again.set_epoch(start.epoch + 1)  # else the position that was loaded for this epoch stays
            again.set_epoch(start.epoch)
            self._first = self._first_rows(next(iter(again)))

    def _first_rows(self, batch: Batch) -> Batch:
        return {name: batch[name][: self._most_pad].copy() for name in (*self._fields, INDEX)}

    def _placed(self, array: NDArray[Any], name: str) -> Any:
        if self._described[name].channels_last:
            array = np.moveaxis(array, -1, -3)
        return array if self._place is None else self._place(array)

    def _provided(self, chosen: Mapping[str, str]) -> list[Any]:
        kind, provided = sys.modules["mxnet"].io.DataDesc if "mxnet" in sys.modules else DataDesc, []
        for shown, name in chosen.items():
            # What `place` makes of zeros is what it makes of a batch.
            field = self._described[name]
            placed = self._placed(np.zeros((self.batch_size, *(field.shape or ())), field.dtype), name)
            shape = tuple(int(n) for n in placed.shape)
            layout = {5: "NTCHW", 6: ""}.get(len(shape), "NCHW"[: len(shape)])
            provided.append(kind(shown, shape, np.dtype(placed.dtype).type, layout))
        return provided


def _named(parameter: str, given: Names, default: str) -> dict[str, str]:
    named = {} if given is None else {default: given} if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for pair in named.items() for name in pair):
        raise UsageError(f"{parameter}={given!r} must be the name of a field, or a dict: MXNet's name -> field")
    return dict(named)
