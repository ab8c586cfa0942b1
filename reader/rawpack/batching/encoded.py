"""Images and masks as the files that the store holds, for decoders on a GPU.

Files are not in slots because they differ in length. The process that hands a batch over copies them, which takes 2 %
of the time that decoding them would take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.fill import Seeds
from rawpack.batching.ragged import RaggedFields
from rawpack.errors import UsageError, WorkerError
from rawpack.store.stores import Stores
from rawpack.system.times import Times

if TYPE_CHECKING:
    from rawpack.transforms.plan import Transform
    from rawpack.transforms.step import CropStep

ALIGNMENT = 64
"""Each file begins at an address that this divides."""
BOXES = "boxes"
"""The name of the crops of a batch; also that of the boxes of objects, which such a batch cannot have."""
Files = list[NDArray[np.uint8]]


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
        return f"{type(self).__name__}({len(self)} files of {int(self.sizes.sum())} bytes)"


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


def first_crop(
    transform: Transform | None, library: Stores, chosen: Sequence[str], encoded: Sequence[str]
) -> tuple[CropStep | None, tuple[str, ...]]:
    """The crop that a transform begins with, and the fields that it is applied to.

    Raises UsageError for steps that need the pixels of files.
    """
    from rawpack.transforms.crops import RandomCrop
    from rawpack.transforms.plan import as_steps, concerns
    from rawpack.transforms.step import BatchStep, CropStep

    found: tuple[CropStep | None, tuple[str, ...]] = None, ()
    begun = False
    """Whether a step was applied to images or masks."""
    for step in as_steps(transform or []):
        fields = library.fields
        changed = (
            () if isinstance(step, BatchStep) else tuple(name for name in chosen if concerns(step, name, fields[name]))
        )
        files = [name for name in changed if name in encoded]
        if files or isinstance(step, BatchStep):
            if not isinstance(step, CropStep) or begun:
                raise UsageError(
                    f"{step!r} needs pixels, and decode= gives {' and '.join(files or encoded)} as files: transform= "
                    "may begin with a crop, whose box comes with the batch; do everything else after decoding"
                )
            if isinstance(step, RandomCrop) and (any(step.padding) or step.pad_if_needed):
                raise UsageError(f"{step!r} pads, and decode= gives files: pad and crop after decoding")
            if BOXES in chosen:
                raise UsageError(
                    f"the boxes of {step!r} would have the name of the field {BOXES!r}: leave that out with fields=, "
                    "or crop after decoding"
                )
            found = step, changed
        begun = begun or any(fields[name].in_shards for name in changed)
    return found
