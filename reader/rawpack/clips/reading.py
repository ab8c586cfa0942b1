"""Reads clips here and now, for `Reader[...]` and `Reader.column`, and puts the values of frames together by clip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.store.samples import sample_at, values_of
from rawpack.store.stores import CLIP, INDEX, Stores

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable


def samples_in(library: Stores, selection: NDArray[np.int64] | None, clips: ClipTable | None) -> int:
    """How many samples, or clips, a reader has."""
    if selection is not None:
        return len(selection)
    return len(library) if clips is None else len(clips)


def clip_at(library: Stores, clips: ClipTable, number: int, verify: bool) -> dict[str, Any]:
    """One clip, as `Reader[number]` gives it."""
    rows = clips.rows(np.array([number], np.int64), 0, 0)[0].tolist()
    return clips.joined(number, [sample_at(library, row, verify) for row in rows], library.fields)


def clips_at(library: Stores, clips: ClipTable, numbers: NDArray[np.int64], verify: bool) -> dict[str, Any]:
    """Several clips, as a batch has them; of several lengths, as lists."""
    library.look_at_files()
    if len(clips.shape.lengths) > 1:
        found = [clip_at(library, clips, number, verify) for number in numbers.tolist()]
        return {CLIP: numbers, **{name: [clip[name] for clip in found] for name in (*library.fields, INDEX)}}
    rows = clips.rows(numbers, 0, 0)
    return {
        CLIP: numbers,
        **{name: _values(library, clips, name, rows, verify) for name in library.fields},
        INDEX: rows,
    }


def column_of(library: Stores, clips: ClipTable, name: str, numbers: NDArray[np.int64]) -> Any:
    """Field `name` of clips, as `Reader.column` gives it. UsageError for what depends on the frames of random clips."""
    if name in clips.once:
        return values_of(library, name, clips.first_rows(numbers))
    if clips.shape.per_video is not None:
        raise UsageError(f"the {name!r} of random clips differs from epoch to epoch: read it with batches()")
    if len(clips.shape.lengths) > 1:
        raise UsageError(f"the {name!r} of clips of several lengths is no array: read it with batches()")
    return _values(library, clips, name, clips.rows(numbers, 0, 0), verify=False)


def _values(library: Stores, clips: ClipTable, name: str, rows: NDArray[np.int64], verify: bool) -> Any:
    """Field `name` of clips with these rows, (n, frames)."""
    once = name in clips.once
    values = values_of(library, name, rows_of(rows, once), verify)
    return values if once else by_clip(values, *rows.shape)


def rows_of(samples: NDArray[np.int64], once: bool) -> NDArray[np.int64]:
    """The rows to read. samples: rows (n,), or those of clips (n, frames); once: whether a clip has one value."""
    return samples if samples.ndim == 1 else samples[:, 0] if once else samples.reshape(-1)


def by_clip(values: Any, clips: int, frames: int) -> Any:
    """The values of clips * frames samples, clip by clip."""
    if isinstance(values, list):
        return [values[start : start + frames] for start in range(0, clips * frames, frames)]
    return values.reshape(clips, frames, *values.shape[1:])
