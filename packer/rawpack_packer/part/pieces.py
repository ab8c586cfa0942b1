"""Pieces of a part that idle workers prepare ahead of the one that packs it, when no other part is left to be done.

A part is packed by one worker, in order. Others work towards it from the part's end, a piece at a time, and leave what
they made in files; where it comes to a piece that is there, it takes that over instead of preparing its samples. A
piece that is missing costs nothing but time: nobody waits for one, and none is needed.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack_packer.destination.layout import WORK
from rawpack_packer.part.readahead import ReadAhead
from rawpack_packer.recipe.fields import exact_bytes
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.samples.sample import PreparedSample, prepare_sample
from rawpack_packer.sources import Samples

if TYPE_CHECKING:
    from rawpack_packer.part.part import PartTask

PATTERN = "piece-*"
_PIECES, _LEAST_ROWS = 64, 8
"""Pieces of a part, where they are not smaller than so many samples."""
_SPARE_PARTS = 4
"""Space for so many parts must be free: pieces are to fill no disk that the shards would have fitted on."""
_SEAL_BYTES = 16


@dataclass(frozen=True)
class PreparedItem:
    """What came of one sample: what is stored of it, or why it is rejected.

    Not the picture as it was read, which may be large: a frame of a video is not compressed.
    """

    key: str
    sample: PreparedSample | DecodeError
    bytes_in: int
    """Of the image as it was read; 0 where it could not be."""
    source: int | None
    """xxh3_64 of these bytes; None where they are what is stored, or nothing is."""


def prepare_item(samples: Samples, i: int, recipe: Recipe, fields: Mapping[str, Field]) -> PreparedItem:
    """Read and prepare sample i. Raises PackError where the run cannot go on."""
    size = 0
    try:
        item = samples[i]
        if item.file_bytes is not None:
            size = item.file_bytes
        else:
            size = len(item.image) if isinstance(item.image, bytes) else item.image.nbytes
        sample = prepare_sample(item, recipe, fields)
    except DecodeError as error:
        return PreparedItem(samples.key(i), error, size, None)
    if "passed_through" in sample.notes:
        return PreparedItem(item.key, sample, size, None)
    source = item.image if isinstance(item.image, bytes) else np.ascontiguousarray(item.image).data
    return PreparedItem(item.key, sample, size, xxhash.xxh3_64_intdigest(source))


def starts(task: PartTask) -> range:
    """The first sample of each piece of a part."""
    count = len(task.samples)
    return range(0, count, max(_LEAST_ROWS, -(-count // _PIECES)))


def make_piece(task: PartTask, first: int) -> bool:
    """Prepare the piece that begins at sample `first` and leave it for `PiecesAhead`. False where the disk is too
    full."""
    recipe, path = task.recipe, _path(task, first)
    raw = exact_bytes(task.fields, encoded=True)
    raw *= recipe.rows_for(raw)
    if shutil.disk_usage(path.parent).free < _SPARE_PARTS * max(raw, recipe.shard_size):
        return False
    rows, made = range(first, min(first + starts(task).step, len(task.samples))), []
    disk = ReadAhead(task.samples, rows)
    for i in rows:
        disk.at(i)
        made.append(prepare_item(task.samples, i, recipe, task.fields))
    body = pickle.dumps(made, protocol=5)
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(body)
            file.write(xxhash.xxh3_128_digest(body))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


class PiecesAhead:
    """What others have prepared of a part, for the one that packs it."""

    def __init__(self, task: PartTask) -> None:
        self._task, self._made = task, dict[int, PreparedItem]()
        self._starts = starts(task) if task.token else range(0)

    def take(self, i: int) -> PreparedItem | None:
        """Sample i, if it is there; samples are asked for in order."""
        if i in self._starts:
            self._made = self._read(i)
        return self._made.pop(i, None)

    def close(self) -> None:
        """Remove what is left, also of pieces that came too late."""
        for first in self._starts:
            _path(self._task, first).unlink(missing_ok=True)

    def _read(self, first: int) -> dict[int, PreparedItem]:
        path = _path(self._task, first)
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError:
            return {}
        body = memoryview(data)[:-_SEAL_BYTES]
        # The token in its name says that this very run wrote it: unpickling it is as safe as a message from a worker.
        if xxhash.xxh3_128_digest(body) != data[-_SEAL_BYTES:]:
            return {}
        return dict(enumerate(pickle.loads(body), first))


def _path(task: PartTask, first: int) -> Path:
    return Path(task.destination) / WORK / f"piece-{task.token}-{task.number:05d}-{first:06d}"
