"""`rawpack.look(reader)`: what `rawpack view` shows of samples, for programs."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import CURATED
from rawpack.errors import UsageError
from rawpack.reader import Reader
from rawpack.samples.looking import Place, damaged_in, places_of, rows_with_key
from rawpack.samples.sample_set import SampleSet
from rawpack.samples.selection import positions_at, positions_of
from rawpack.samples.where import Where
from rawpack.store.stores import Stores
from rawpack.system.user import suggests


def look(reader: Reader) -> Inspection:
    """What there is to see of the samples of a reader, whose positions in it are their numbers.

        rawpack.look(reader).find("label == 'cat'", key="left")

    Raises UsageError for anything but a reader.
    """
    if not isinstance(reader, Reader):
        raise UsageError(f"look({reader!r}) takes a reader: rawpack.look(rawpack.Reader(path))")
    return Inspection(reader)


class Inspection:
    """Which samples meet a condition, where their bytes are, whether they are damaged, how large their images are."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"rawpack.look({self._reader!r})"

    @suggests()
    def find(self, where: str | None = None, *, key: str | None = None) -> NDArray[np.int64]:
        """The numbers in this reader, int64 (n,), ascending, of the samples that meet a condition and have a text in
        their key; no image is read.

        where: as of `Reader.select`. key: a part of the key, whatever the case of ASCII letters. Of clips, the fields
        of their first frame.
        """
        try:
            positions = np.arange(len(self._samples)) if where is None else self._positions_where(where)
        except UsageError as error:
            if not isinstance(where, str) or {*where} & {*"<=>!&|"}:
                raise
            raise UsageError(f"{error}; to find a text in keys: find(key={where!r})") from None
        if key is None:
            return positions
        samples = self._samples
        rows = positions if samples.rows is None else samples.rows[positions]
        return positions[np.isin(rows, rows_with_key(samples.library, key))]

    def shapes(self, name: str) -> NDArray[np.int32]:
        """The shape of image or mask `name` of each sample, int32 (n, 3): height, width, channels; of a mask (n, 2). No
        image is read. Of clips, that of their first frame. Raises UsageError for other fields."""
        samples = self._samples
        field = samples.library.fields.get(name)
        if field is None or not field.in_shards:
            raise UsageError(f"{name!r} is no image or mask of this store")
        shapes = samples.library.shapes(name)
        return shapes if samples.rows is None else shapes[samples.rows]

    @property
    def curation(self) -> dict[str, NDArray[Any]]:
        """What `rawpack pack --curate` measured of each sample, as columns: `phash`, `sharpness`, `brightness`,
        `entropy` and `one_color`. Empty where the store was packed without it. No image is read."""
        return {name: self._reader.column(name) for name in CURATED} if {*CURATED} <= {*self._reader.fields} else {}

    @property
    def left_out(self) -> int:
        """For a reader of clips: the videos without a clip, because too few of their frames follow one another."""
        clips = self._samples.clips
        return 0 if clips is None else clips.left_out

    def where_is(self, index: SupportsIndex) -> dict[str, Place]:
        """Where the bytes of one sample are: image or mask -> the file of the shard, the offset in it, and how many
        bytes; in a compressed HDF5 file, those of the chunk that holds the sample. Of a clip, its first frame."""
        return places_of(*self._located(index))

    def damaged(self, index: SupportsIndex) -> list[str]:
        """The images and masks of one sample whose stored bytes do not fit the checksums with which they were packed;
        of a clip, those of its first frame."""
        return damaged_in(*self._located(index))

    @property
    def _samples(self) -> SampleSet:
        self._reader._samples.check_open()
        return self._reader._samples

    def _located(self, index: SupportsIndex) -> tuple[Stores, int]:
        """The stores, and the row in them of a sample, or of a clip's first frame."""
        samples = self._samples
        (position,) = positions_at([operator.index(index)], len(samples), outside=IndexError)
        return samples.library, int(position if samples.rows is None else samples.rows[position])

    def _positions_where(self, where: str) -> NDArray[np.int64]:
        samples = self._samples
        condition = Where(where, samples.library.fields, samples.library.classes)
        if samples.clips is not None:
            samples.clips.check_known(None, condition, where)
        return positions_of(samples.library, samples.rows, None, None, None, condition)
