"""Pieces of a part that idle workers prepare for the worker that packs the part, once no other parts are left.

One worker packs the part in order. The others prepare pieces of it, starting at the end of the part, and write them to
files. When the packing worker reaches a piece whose file exists, it uses the file. Otherwise it prepares the samples
itself; it never waits for a piece.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import xxhash

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack.system import machine, writing
from rawpack_packer.destination.files import WORK
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.fields import IMAGE, exact_bytes
from rawpack_packer.samples.sample import PreparedSample, prepare_sample
from rawpack_packer.sources import Samples
from rawpack_packer.sources.base import image_file_of
from rawpack_packer.sources.files import OPEN_FLAGS

if TYPE_CHECKING:
    from rawpack_packer.part import PartTask

PATTERN = "piece-*"
_PIECES, _LEAST_ROWS = 64, 8
"""The number of pieces of a part, and the least samples in one."""
_SPARE_PARTS = 4
"""Free space must be enough for this many parts, so that pieces never fill a disk that the shards would fit on."""
_SEAL_BYTES = 16


class PreparedItem(msgspec.Struct, frozen=True):
    """What is stored of one sample, or why it is rejected."""

    key: str
    sample: PreparedSample | DecodeError
    bytes_in: int
    """Size of its images and masks as they were read; 0 if it could not be read."""
    source: int | None
    """xxh3_64 of the first image's bytes; None if they are stored unchanged, or the sample is rejected."""


def prepare_item(samples: Samples, i: int, recipe: Recipe, fields: Mapping[str, Field]) -> PreparedItem:
    """Read and prepare sample i. Raises PackError if the run cannot continue."""
    size = 0
    try:
        item = samples[i]
        if item.file_bytes is not None:
            size = item.file_bytes
        else:
            others = [item.fields.get(name) for name, field in fields.items() if field.in_shards and name != IMAGE]
            read = item.image, *others
            size = sum(len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0) for value in read)
        sample = prepare_sample(item, recipe, fields)
    except DecodeError as error:
        return PreparedItem(samples.key(i), error, size, None)
    if sample.unchanged:
        return PreparedItem(item.key, sample, size, None)
    source = item.image if isinstance(item.image, bytes) else np.ascontiguousarray(item.image).data
    return PreparedItem(item.key, sample, size, xxhash.xxh3_64_intdigest(source))


def starts(task: PartTask) -> range:
    """The first sample of each piece of a part."""
    count = len(task.samples)
    return range(0, count, max(_LEAST_ROWS, -(-count // _PIECES)))


def make_piece(task: PartTask, first: int) -> bool:
    """Prepare the piece that begins at sample `first` and write it for `PiecesAhead`.

    Returns False if the disk is too full.
    """
    recipe, path = task.recipe, _path(task, first)
    raw = exact_bytes(task.fields, encoded=True)
    raw *= recipe.rows_for(raw)
    if machine.free_bytes(path.parent) < _SPARE_PARTS * max(raw, recipe.shard_size):
        return False
    rows, made = range(first, min(first + starts(task).step, len(task.samples))), []
    disk = ReadAhead(task.samples, rows)
    for i in rows:
        disk.at(i)
        made.append(prepare_item(task.samples, i, recipe, task.fields))
    body = pickle.dumps(made, protocol=5)
    temporary = path.with_suffix(".tmp")
    try:
        with writing.create(temporary) as file:
            file.write(body)
            file.write(xxhash.xxh3_128_digest(body))
        writing.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


class PiecesAhead:
    """Pieces that other workers have prepared, for the worker that packs the part."""

    def __init__(self, task: PartTask) -> None:
        self._task, self._made = task, dict[int, PreparedItem]()
        self._starts = starts(task) if task.token else range(0)

    def take(self, i: int) -> PreparedItem | None:
        """Sample i if it has been prepared, else None. Call it for samples in order."""
        if i in self._starts:
            self._made = self._read(i)
        return self._made.pop(i, None)

    def close(self) -> None:
        """Remove all pieces that were not used."""
        for first in self._starts:
            _path(self._task, first).unlink(missing_ok=True)

    def _read(self, first: int) -> dict[int, PreparedItem]:
        path = _path(self._task, first)
        try:
            data = writing.read(path)
            path.unlink()
        except OSError:
            return {}
        body = memoryview(data)[:-_SEAL_BYTES]
        # Only this run knows the token in the name: unpickling is as safe as a message from a worker.
        if xxhash.xxh3_128_digest(body) != data[-_SEAL_BYTES:]:
            return {}
        return dict(enumerate(pickle.loads(body), first))


def _path(task: PartTask, first: int) -> Path:
    return Path(task.destination) / WORK / f"piece-{task.token}-{task.number:05d}-{first:06d}"


_FILES, _BYTES = 32, 8 << 20
"""How far ahead: at most this many files, and no further file once this many bytes have been asked for."""
_GAP = 4096
"""Bytes between two ranges of a file that are asked for together: in archives, a header comes between members."""
_FORGETFUL = ("fuse", "9p", "virtiofs")
"""Prefixes of file systems that may drop a file's pages when it is opened again: files would be read twice."""


class ReadAhead:
    """For samples that are read in order. Does nothing for samples without files, or without `posix_fadvise`."""

    def __init__(self, samples: Samples, rows: range) -> None:
        """rows: the numbers of the samples, in the order of reading."""
        self._samples, self._stop = samples, rows.stop if hasattr(os, "posix_fadvise") else rows.start
        self._asked: dict[int, int] = {}
        """Sample -> bytes that were asked for and have not been read yet."""
        self._bytes, self._next = 0, rows.start
        self._joined = False
        """Whether the last ranges were parts of one file: then one call asks for several."""

    def at(self, i: int) -> None:
        """Call before sample i is read."""
        self._bytes -= self._asked.pop(i, 0)
        self._next = max(self._next, i + 1)
        if self._joined and len(self._asked) > _FILES // 2:
            return
        ranges, count = list[tuple[str, int, int]](), 0
        while self._next < self._stop and len(self._asked) < _FILES and self._bytes < _BYTES:
            file = image_file_of(self._samples, self._next)
            self._asked[self._next] = size = 0 if file is None else min(file[2], _BYTES)
            self._bytes += size
            self._next += 1
            if file is None or size <= 0:
                continue
            (path, offset, _), count = file, count + 1
            if ranges and ranges[-1][0] == path and 0 <= offset - ranges[-1][2] <= _GAP:
                offset = ranges.pop()[1]
            ranges.append((path, offset, file[1] + size))
        self._joined = len(ranges) < count
        for path, start, end in ranges:
            _ask(path, start, end - start)


def _ask(path: str, offset: int, size: int) -> None:
    # ValueError: a zero byte in the path.
    with contextlib.suppress(OSError, ValueError):
        if _file_system(os.stat(path).st_dev).startswith(_FORGETFUL):  # noqa: PTH116 - as fast as can be
            return
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


@cache
def _file_system(device: int) -> str:
    """The name of the file system on a device, such as "ext4"; empty if unknown."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            # The file system is the field after a dash.
            fields = line.split()
            if len(fields) > 2 and fields[2] == number and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""
