"""A reader of clips: what `Reader.clips` gives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from rawpack.batching.fill import CLIP, INDEX
from rawpack.clips.runs import find_runs
from rawpack.clips.table import ClipShape, ClipTable
from rawpack.disk.manifest import IN_NO_SLOT, Field
from rawpack.errors import UsageError
from rawpack.reader import Reader
from rawpack.store.selection import positions_of

_CALLER = 3
"""Frames from where the warning is given up to the call of `Reader.clips`."""


class Clips(Reader):
    """A reader whose samples are clips: `frames` frames of one video each, in their order.

    All that a reader of frames does it does too: `len`, `[i]`, `select`, `batches`. Fields have the number of frames as
    their first axis, `index` as well: the rows of a clip's frames. `video`, and `label` where each video has one label,
    come once a clip. `clip` is the clip's number.
    """

    _clips: ClipTable

    def __init__(self, path: NoReturn) -> None:
        raise UsageError("clips are made by a reader: Reader(path).clips(frames=16)")

    def __len__(self) -> int:
        return len(self._clips) if self._selection is None else len(self._selection)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; {self._clips.identity.rpartition(' ')[0]})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (super().__reduce__(), self._clips, self._selection)

    @property
    def left_out(self) -> int:
        """Videos without a clip: they have too few frames that follow one another."""
        return self._clips.left_out

    @property
    def fields(self) -> Mapping[str, Field]:
        """Name -> kind, dtype and shape of one clip, None where frames differ."""
        frames, once = self._clips.shape.frames, self._clips.once
        return {
            name: field if name in once else replace(field, shape=(frames, *field.shape))
            for name, field in self._library.fields.items()
        }

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One clip: its fields as new arrays, texts and what differs in length or size as lists; `index` and `clip`.

        Of random clips, one as epoch 0 of seed 0 has it.
        """
        number = np.array([self._at(index)], np.int64)
        frames = [self._sample(row) for row in self._clips.rows(number, 0, 0)[0].tolist()]
        clip: dict[str, Any] = {CLIP: number[0]}
        for name in (*self._library.fields, INDEX):
            values = [frame[name] for frame in frames]
            kind = None if name == INDEX else self._library.fields[name].kind
            if name in self._clips.once:
                clip[name] = values[0]
            elif kind in IN_NO_SLOT or len({value.shape for value in values}) > 1:
                clip[name] = values
            else:
                clip[name] = np.stack(values)
        return clip

    def select(
        self,
        indices: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
        classes: Sequence[str] | None = None,
    ) -> Clips:
        """A reader of some of the clips, as `Reader.select`; `clip` stays the number among all of them.

        classes: by the label of a clip's first frame.
        """
        numbers: NDArray[np.int64] = np.arange(len(self._clips)) if self._selection is None else self._selection
        # Where a random clip begins is not known yet, and its class only if all of the video is of one.
        if classes is not None and self._clips.shape.per_video is not None and "label" not in self._clips.once:
            raise UsageError("random clips of videos with several labels have no class: select by indices or mask=")
        firsts = self._clips.first_rows(numbers)
        selected = self._copy()
        selected._selection = numbers[positions_of(self._library, firsts, indices, mask, classes)]
        return selected

    def clips(self, *args: Any, **options: Any) -> NoReturn:
        """Raises UsageError: clips have no clips."""
        raise UsageError("this is a reader of clips already: call clips() of the reader that it was made of")


def clips_of(reader: Reader, shape: ClipShape) -> Clips:
    """The clips of a reader of frames."""
    if CLIP in reader.fields:
        raise UsageError(
            f"the store has a field {CLIP!r}, which is what the number of a clip is called: pack it by another name"
        )
    runs = find_runs(reader._library, reader._selection)
    table = ClipTable(runs, shape)
    made = _made(reader, table)
    if table.left_out:
        longest = int(runs.length.max())
        said = (
            f"{table.left_out} of {int(runs.video[-1]) + 1} videos have no {shape.span} frames that follow one another "
            f"(frames={shape.frames}, stride={shape.stride})"
        )
        cure = "short='repeat_last' or 'wrap' fills them up"
        if not len(table):
            raise UsageError(f"{said}; the longest run has {longest}: take fewer, or a smaller stride; {cure}")
        warnings.warn(f"rawpack: {said} and are left out; {cure}", RuntimeWarning, stacklevel=_CALLER)
    return made


def _made(reader: Reader, table: ClipTable, selection: NDArray[np.int64] | None = None) -> Clips:
    made = object.__new__(Clips)
    made.__dict__.update(reader.__dict__)
    made._clips, made._selection = table, selection
    return made


def _restored(reduced: tuple[Any, ...], table: ClipTable, selection: NDArray[np.int64] | None) -> Clips:
    """Clips as they were pickled."""
    make, (paths, _, *options) = reduced
    return _made(make(paths, None, *options), table, selection)
