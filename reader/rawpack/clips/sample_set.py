"""The samples of a reader: rows of its stores, or clips of these, all or some; read here and now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.opening import Opening
from rawpack.store.stores import CLIP, INDEX, Stores

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable


@dataclass(frozen=True)
class SampleSet:
    """The samples of a reader. Any number of threads may use one. It can be pickled: the copy opens the stores
    again."""

    asked: Opening
    """How the stores were opened."""
    library: Stores
    selection: NDArray[np.int64] | None = None
    """The rows, or the numbers of clips; None for all."""
    clips: ClipTable | None = None
    """Where samples are clips: which rows each has."""

    def __post_init__(self) -> None:
        """Raises UsageError where a store of a mix has no samples."""
        if self.asked.mix is not None:
            self.asked.mix.sizes(self.library, self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.asked, self.selection, self.clips)

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
        """As of `Reader`."""
        return self.library.fields if self.clips is None else self.clips.fields(self.library.fields)

    @property
    def once(self) -> tuple[str, ...]:
        """Fields that have one value for a clip, instead of one for each frame."""
        return () if self.clips is None else self.clips.once

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """The numbers of frames that clips have, least first; None where samples are no clips."""
        return (None,) if self.clips is None else self.clips.shape.lengths

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the samples at these positions, or the numbers of their clips."""
        return positions if self.selection is None else self.selection[positions]

    def one(self, position: int) -> dict[str, Any]:
        """A sample, as `Reader[position]` gives it."""
        self.library.look_at_files()
        return self._one(position if self.selection is None else int(self.selection[position]))

    def several(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Samples, as a batch has them; clips of several lengths as lists."""
        self.library.look_at_files()
        numbers, names = self.numbers(positions), self.library.fields
        if len(self.lengths) > 1:
            found = [self._one(number) for number in numbers.tolist()]
            return {CLIP: numbers, **{name: [clip[name] for clip in found] for name in (*names, INDEX)}}
        rows = numbers if self.clips is None else self.clips.rows(numbers, 0, 0)
        samples = {**{name: self._values(name, rows) for name in names}, INDEX: rows}
        return samples if self.clips is None else {CLIP: numbers, **samples}

    def column(self, name: str) -> Any:
        """As `Reader.column` gives it, with its errors."""
        fields, clips = self.library.fields, self.clips
        if not isinstance(name, str) or name not in fields:
            raise UsageError(f"there is no field {name!r}; the store has {', '.join(fields)}")
        if fields[name].in_shards:
            raise UsageError(f"{name!r} is in shards, not in a column: read it with batches(fields=[{name!r}])")
        self.library.look_at_files()
        if clips is None or name in clips.once:
            rows = self.rows
            return self.library.values(name, np.arange(len(self)) if rows is None else rows)
        if clips.shape.per_video is not None:
            raise UsageError(f"the {name!r} of random clips differs from epoch to epoch: read it with batches()")
        if len(self.lengths) > 1:
            raise UsageError(f"the {name!r} of clips of several lengths is no array: read it with batches()")
        return self._values(name, clips.rows(self.numbers(np.arange(len(self))), 0, 0))

    def _one(self, number: int) -> dict[str, Any]:
        """The sample in a row, or a clip by its number."""
        if self.clips is None:
            return self._sample(number)
        rows = self.clips.rows(np.array([number], np.int64), 0, 0)[0].tolist()
        return self.clips.joined(number, [self._sample(row) for row in rows], self.library.fields)

    def _sample(self, row: int) -> dict[str, Any]:
        library = self.library
        return {**{name: library.value(name, row, self.asked.verify) for name in library.fields}, INDEX: np.int64(row)}

    def _values(self, name: str, rows: NDArray[np.int64]) -> Any:
        """Field `name` of samples with these rows, (n,), or for clips (n, frames)."""
        once = name in self.once
        values = self.library.values(name, rows_of(rows, once), self.asked.verify)
        return values if once or rows.ndim == 1 else by_clip(values, *rows.shape)


def _reopened(asked: Opening, selection: NDArray[np.int64] | None, clips: ClipTable | None) -> SampleSet:
    """Samples as they were pickled."""
    urls = [path for path in asked.paths if isinstance(path, str)]
    if urls:
        from rawpack.remote.reach import host_of, note_answer

        for url in urls:
            note_answer(host_of(url, asked.storage_options or {}))  # it did, in the process that opened it
    return SampleSet(asked, asked.open(), selection, clips)


def rows_of(samples: NDArray[np.int64], once: bool) -> NDArray[np.int64]:
    """The rows to read. samples: rows (n,), or those of clips (n, frames); once: whether a clip has one value."""
    return samples if samples.ndim == 1 else samples[:, 0] if once else samples.reshape(-1)


def by_clip(values: Any, clips: int, frames: int) -> Any:
    """The values of clips * frames samples, clip by clip."""
    if isinstance(values, list):
        return [values[start : start + frames] for start in range(0, clips * frames, frames)]
    return values.reshape(clips, frames, *values.shape[1:])
