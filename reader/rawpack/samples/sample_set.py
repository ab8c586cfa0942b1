"""The samples of a reader: rows of its stores, or clips of these, all or some; read here and now."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import StoreError, UsageError
from rawpack.samples.field_rows import OWN_ROWS, ClipRows, FieldRows
from rawpack.store.opening import Opening
from rawpack.store.stores import Stores
from rawpack.system.user import did_you_mean
from rawpack.words import CLIP, INDEX, STORE_ROW

if TYPE_CHECKING:
    from rawpack.samples.offsets import Offsets
    from rawpack.samples.table import ClipTable


class Closing(Protocol):
    def close(self) -> None: ...


class Scope:
    """What is closed together, as far as somebody holds it: the batches of a reader, and of those that were made of it;
    or the iterators of batches."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent, self._closed = parent, False
        self._open: weakref.WeakValueDictionary[int, Closing] = weakref.WeakValueDictionary()

    def add(self, one: Closing) -> None:
        self._open[id(one)] = one
        if self.parent is not None:
            self.parent.add(one)

    def close(self) -> None:
        self._closed = True
        for reference in self._open.valuerefs():  # at once, as another thread may be adding one
            if (one := reference()) is not None:
                one.close()

    @property
    def closed(self) -> bool:
        """Whether this reader, or one that it was made of, was closed."""
        return self._closed or (self.parent is not None and self.parent.closed)


@dataclass(frozen=True)
class SampleSet:
    """The samples of a reader. Any number of threads may use one. It can be pickled: the copy opens the stores
    again."""

    asked: Opening
    library: Stores
    selection: NDArray[np.int64] | None = None
    """The rows, or the numbers of clips; None for all."""
    clips: ClipTable | None = None
    """Where samples are clips: which rows each has."""
    offsets: Offsets | None = None
    """Where fields of a row have several frames: which ones."""
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        """Raises UsageError where a store of a mix has no samples."""
        if self.asked.mix is not None:
            self.asked.mix.sizes(self.library, self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        chosen = self.selection, self.clips, self.offsets
        contents = None if all(one is None for one in chosen) else self.library.contents()
        return _reopened, (self.asked, *chosen, contents)

    def __len__(self) -> int:
        if self.selection is not None:
            return len(self.selection)
        return len(self.library) if self.clips is None else len(self.clips)

    @property
    def rows(self) -> NDArray[np.int64] | None:
        """The row of each sample, (n,), of a clip that of its first frame; None for all rows."""
        return self.selection if self.clips is None else self.clips.first_rows(self.selection)

    @property
    def fields(self) -> Mapping[str, Field]:
        made = self.framing
        return self.library.fields if made is None else made.fields(self.library.fields)

    @property
    def framing(self) -> ClipTable | Offsets | None:
        """What gives samples several frames."""
        return self.offsets if self.clips is None else self.clips

    @property
    def field_rows(self) -> FieldRows:
        return (self.offsets or OWN_ROWS) if self.clips is None else ClipRows(self.clips.once)

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """The numbers of frames that clips have, least first; None where samples are no clips."""
        return (None,) if self.clips is None else self.clips.shape.lengths

    def frames(self, name: str, length: int = 0) -> int | None:
        """How many frames a sample has of a field; None where it has one value. length: which of `lengths`."""
        if self.offsets is not None:
            return self.offsets.frames(name)
        return self.lengths[length] if self.field_rows.framed(name) else None

    def pads(self, names: Sequence[str], rows: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Which frames of these fields are padding, for samples with these rows: see `Offsets.pads`."""
        return {} if self.offsets is None else self.offsets.pads(names, rows)

    def close(self) -> None:
        self.scope.close()
        if self.scope.parent is None:
            self.library.close()

    def check_open(self) -> None:
        if self.scope.closed:
            raise UsageError("this reader was closed: open another one")

    def look_at_files(self) -> None:
        """Raise UsageError where the reader was closed; DamagedStoreError where a mapped file was written to."""
        self.check_open()
        self.library.look_at_files(now=True)

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the samples at these positions, or the numbers of their clips."""
        return positions if self.selection is None else self.selection[positions]

    def one(self, position: int) -> dict[str, Any]:
        """A sample, as `Reader[position]` gives it."""
        self.check_open()
        self.library.look_at_files()
        number = position if self.selection is None else int(self.selection[position])
        return self._one(number) | {INDEX: np.int64(position)}

    def several(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Samples, as a batch has them; clips of several lengths as lists."""
        self.check_open()
        numbers, names, index = self.numbers(positions), self.library.fields, positions.copy()
        if len(self.lengths) > 1:
            found = [self._one(number) for number in numbers.tolist()]
            return {CLIP: numbers, **{name: [clip[name] for clip in found] for name in names}, INDEX: index}
        rows = numbers if self.clips is None else self.clips.rows(numbers, 0, 0)
        samples = {**{name: self._values(name, rows) for name in names}, INDEX: index, **self.pads([*names], rows)}
        return samples if self.clips is None else {CLIP: numbers, **samples}

    def column(self, name: str) -> Any:
        """As `Reader.column` gives it, with its errors."""
        fields, clips = self.library.fields, self.clips
        if not isinstance(name, str) or name not in (*fields, INDEX, STORE_ROW):
            hint = did_you_mean(str(name), fields)
            raise UsageError(f"there is no field {name!r}; the store has {', '.join(fields)}{hint}")
        if name in fields and fields[name].in_shards:
            raise UsageError(f"{name!r} is in shards, not in a column: read it with batches(fields=[{name!r}])")
        self.check_open()
        if name == INDEX:
            return np.arange(len(self))
        if clips is None or name in clips.once:
            rows = self.rows
            rows = np.arange(len(self)) if rows is None else rows
            return self._values(name, rows) if clips is None else self.library.values(name, rows)
        if clips.shape.per_video is not None:
            raise UsageError(f"the {name!r} of random clips differs from epoch to epoch: read it with batches()")
        if len(self.lengths) > 1:
            raise UsageError(f"the {name!r} of clips of several lengths is no array: read it with batches()")
        return self._values(name, clips.rows(self.numbers(np.arange(len(self))), 0, 0))

    def _one(self, number: int) -> dict[str, Any]:
        if self.offsets is not None:
            row = np.array([number])
            framed = {name: self._values(name, row)[0] for name in self.offsets.steps}
            pads = {name: flags[0] for name, flags in self.pads([*framed], row).items()}
            return self._sample(number, framed) | pads
        if self.clips is None:
            return self._sample(number)
        rows = self.clips.rows(np.array([number], np.int64), 0, 0)[0].tolist()
        return self.clips.joined(number, [self._sample(row) for row in rows], self.library.fields)

    def _sample(self, row: int, known: Mapping[str, Any] = {}) -> dict[str, Any]:
        library, verify = self.library, self.asked.verify
        return {name: known[name] if name in known else library.value(name, row, verify) for name in library.fields}

    def _values(self, name: str, rows: NDArray[np.int64]) -> Any:
        """Field `name` of samples with these rows, (n,), or for clips (n, frames); or the rows as a new array."""
        if name not in self.library.fields:
            return rows.copy()  # STORE_ROW
        field_rows = self.field_rows
        values = self.library.values(name, field_rows.of(name, rows), self.asked.verify)
        return field_rows.by_sample(name, values, rows)


def _reopened(
    asked: Opening,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    offsets: Offsets | None,
    contents: tuple[int, str] | None = None,
) -> SampleSet:
    """Samples as they were pickled. contents: of the stores then, where rows of them were chosen. Raises StoreError
    where these rows would be other samples now."""
    urls = [path for path in asked.paths if isinstance(path, str)]
    if urls:
        from rawpack.remote.reach import host_of, note_answer

        for url in urls:
            note_answer(host_of(url, asked.storage_options or {}))  # it did, in the process that opened it
    library = asked.open()
    if contents is not None and library.contents(contents[0]) != contents:
        where = ", ".join(store.where for store in library.stores)
        raise StoreError(
            f"{where} has other samples by now than when a reader of some of them was pickled: open it, select again"
        )
    return SampleSet(asked, library, selection, clips, offsets)
