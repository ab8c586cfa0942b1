"""What a batch has besides its slot, because samples differ in length: texts, boxes, and images as files.

The process that hands a batch over reads these. Texts and boxes are small, and in columns. Files of images and masks,
as the store holds them, are for decoders on a GPU; to copy them takes 2% of the time that decoding would take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import WorkerError
from rawpack.samples.field_rows import OWN_ROWS, FieldRows
from rawpack.store.stores import Stores
from rawpack.system.times import Times
from rawpack.system.user import count
from rawpack.words import BOXES

if TYPE_CHECKING:
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.randomness import Seeds
    from rawpack.transforms.step import CropStep
    from rawpack.transforms.texts import OneText

ALIGNMENT = 64
"""Each file begins at an address that this divides."""
Files = list[NDArray[np.uint8]]
Ragged = Literal["list", "pad"] | int


class RaggedFields:
    def __init__(
        self,
        library: Stores,
        names: Sequence[str],
        ragged: Ragged,
        movers: Sequence[BoxMover | None] = (None,),
        texts: Mapping[str, OneText] = {},
        field_rows: FieldRows = OWN_ROWS,
    ) -> None:
        """movers: what moves boxes, and what follows them, with their images, where these are transformed: for each
        bucket. texts: what chooses one of the texts of each sample, by field. field_rows: which rows each is read
        from."""
        self.names, self._library, self._ragged, self._movers = tuple(names), library, ragged, tuple(movers)
        self._texts, self._field_rows = texts, field_rows
        groups = dict[Hashable, list[str]]()
        for name in names:
            groups.setdefault(field_rows.alike(name), []).append(name)
        self._groups = list(groups.values())
        """The fields that are read from the same rows."""

    def __call__(
        self, rows: NDArray[np.int64], seeds: Seeds, clips: NDArray[np.int64] | None = None, bucket: int = 0
    ) -> dict[str, Any]:
        """What a batch of these rows has besides its slot. The arrays belong to the caller.

        rows: int64 (n,), or for clips (n, frames): then each clip has a list of its frames, or an axis. seeds: see
        `Seeds`. clips: their numbers, (n,). bucket: of the batch.
        """
        batch, field_rows, samples = dict[str, Any](), self._field_rows, rows if clips is None else clips
        for names in self._groups:
            made = self._of(names, rows, seeds, samples, self._movers[bucket])
            batch |= {name: field_rows.by_sample(names[0], values, rows) for name, values in made.items()}
        return batch

    def _of(
        self,
        names: Sequence[str],
        given: NDArray[np.int64],
        seeds: Seeds,
        numbers: NDArray[np.int64],
        mover: BoxMover | None,
    ) -> dict[str, Any]:
        """Fields that are read from the same rows, of the samples with these numbers, whose frames are `given`."""
        batch, rows = dict[str, Any](), self._field_rows.of(names[0], given)
        fields = self._library.fields
        moved = {name: self._library.columns.ragged(name, rows) for name in names if mover and fields[name].moves}
        if mover is not None and moved:
            moved = mover(self._library, rows, moved, seeds, numbers, partial(self._first_rows, given))
        for name in names:
            if self._library.fields[name].kind == "text":
                batch[name] = self._library.columns.text(name, rows)
                if name in self._texts:
                    batch[name] = self._texts[name].chosen(batch[name], seeds, numbers)
                continue
            samples = moved[name] if name in moved else self._library.columns.ragged(name, rows)
            if self._ragged == "list":
                batch[name] = [np.array(sample) for sample in samples]
            else:
                lengths = np.array([len(sample) for sample in samples], np.int64)
                longest = int(lengths.max(initial=0)) if self._ragged == "pad" else int(self._ragged)
                batch[name] = self._padded(name, samples, longest)
                batch[f"{name}.length"] = lengths
        return batch

    def _first_rows(self, samples: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        return self._field_rows.of(name, samples).reshape(len(samples), -1)[:, 0]

    def _padded(self, name: str, samples: Sequence[NDArray[Any]], length: int) -> NDArray[Any]:
        field = self._library.fields[name]
        padded = np.zeros((len(samples), length, *(n or 0 for n in field.shape[1:])), field.dtype)
        for target, sample in zip(padded, samples, strict=True):
            target[: len(sample)] = sample
        return padded


class EncodedFiles:
    """The files of one field of a batch, one for each sample, in one piece of memory that is yours.

    `files[i]` is file i: uint8 (bytes,), writable, and a view of `data`, beginning at an address that 64 divides.
    `files[2:5]` are some of them, over the same memory. This is no `Sequence` of `collections.abc`, because trainers
    take those apart.
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.data = data
        """uint8 (total,): all files, with zeros between them."""
        self.offsets = offsets
        """int64 (n,): where each file begins in `data`."""
        self.sizes = sizes
        """int64 (n,): the bytes of each file."""

    @classmethod
    def copied(cls, files: Files) -> EncodedFiles:
        """Copies of these files, each uint8 (bytes,)."""
        sizes = np.array([len(file) for file in files], np.int64)
        spans = -(-sizes // ALIGNMENT) * ALIGNMENT
        ends, total = np.cumsum(spans), int(spans.sum())
        offsets = ends - spans
        room = np.empty(total + ALIGNMENT, np.uint8)
        skipped = -room.ctypes.data % ALIGNMENT
        data = room[skipped : skipped + total]
        for file, start, stop in zip(files, offsets.tolist(), ends.tolist(), strict=True):
            data[start : start + len(file)] = file
            data[start + len(file) : stop] = 0
        return cls(data, offsets, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice, /) -> EncodedFiles: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> NDArray[np.uint8] | EncodedFiles:
        if isinstance(index, slice):
            return EncodedFiles(self.data, self.offsets[index], self.sizes[index])
        start = self.offsets[index]
        return self.data[start : start + self.sizes[index]]

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled array is not aligned when it is loaded.
        return EncodedFiles.copied, (list(self),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({count(len(self), 'file')} of {count(int(self.sizes.sum()), 'byte')})"


class EncodedFields:
    """What a batch has besides its slot where fields come as files."""

    def __init__(
        self,
        library: Stores,
        encoded: Sequence[str],
        crop: CropStep | None,
        cropped: Sequence[str],
        others: RaggedFields,
        name: Callable[[int], str],
        times: Times,
        *,
        verify: bool,
    ) -> None:
        """encoded: the fields. crop: what the transform begins with. cropped: the fields of the batch that it is
        applied to. others: texts and ragged fields. name: of a row, for errors. times: what reading took is added.
        verify: check files against their checksums."""
        self._library, self._encoded, self._crop, self._cropped = library, encoded, crop, cropped
        self._others, self._name, self._times, self._verify = others, name, times, verify

    def __call__(
        self, rows: NDArray[np.int64], seeds: Seeds, clips: NDArray[np.int64] | None = None, bucket: int = 0
    ) -> dict[str, Any]:
        """As `RaggedFields`. Raises WorkerError, with the name of the sample that cannot be read."""
        began = time.perf_counter()
        try:
            stored, boxes = self._stored(rows, seeds)
            batch: dict[str, Any] = {name: EncodedFiles.copied(files) for name, files in stored.items()}
        except Exception as error:
            raise self._blame(rows, seeds, error) from error
        if boxes is not None:
            batch[BOXES] = boxes
        self._times.reading += time.perf_counter() - began
        return batch | self._others(rows, seeds, clips)

    def _stored(self, rows: NDArray[np.int64], seeds: Seeds) -> tuple[dict[str, Files], NDArray[np.int64] | None]:
        """The files of these samples, read-only views of the mapped shards; and the boxes of their crops."""
        stored = dict[str, Files]()
        for name in self._encoded:
            if self._verify:
                for row in rows.tolist():
                    self._library.check(name, row)
            stored[name] = [reader.stored(at) for reader, at in self._library.located(name, rows)]
        return stored, None if self._crop is None else self._boxes(self._crop, rows, seeds)

    def _boxes(self, crop: CropStep, rows: NDArray[np.int64], seeds: Seeds) -> NDArray[np.int64]:
        from rawpack.transforms.images import same_size, shapes_of
        from rawpack.transforms.randomness import randoms_of

        sizes: list[tuple[int, ...]] = []
        for name in self._cropped:
            for i, shape in enumerate(shapes_of(self._library, name, rows)):
                same_size(sizes, i, shape, name)
        drawn = (crop.draw(random, *size) for random, size in zip(randoms_of(seeds, rows), sizes, strict=True))
        return np.array([crop.box(place) for place in drawn], np.int64).reshape(len(rows), 4)

    def _blame(self, rows: NDArray[np.int64], seeds: Seeds, error: Exception) -> WorkerError:
        """The error to raise for one that came up in a batch: it names the sample."""
        for i, row in enumerate(rows.tolist()):
            try:
                self._stored(rows[i : i + 1], seeds)
            except Exception as again:
                return WorkerError(f"reading {self._name(row)} failed: {type(again).__name__}: {again}")
        return WorkerError(f"reading a batch failed, but not when repeated: {type(error).__name__}: {error}")
