"""What targets that write shards share: where shards begin, and how they are written and resumed.

A shard gets its name only when all of its bytes are on the disk. Which samples are in it depends only on the store and
the options, so a run that resumes writes the same bytes.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError
from rawpack.store.store import Store
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.journal import Reject, rejected
from rawpack_packer.exporting.target import ExportOptions, Target, Written, in_order
from rawpack_packer.job.options import RunOptions
from rawpack_packer.provenance import REJECTS
from rawpack_packer.sources import Item
from rawpack_packer.sources.store import store_rows
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import again

Prepared = TypeVar("Prepared")
_BLOCK_BYTES, _BLOCK = 4 << 20, 64
"""The most bytes and samples that a thread prepares at a time. A single sample may be larger."""


class ShardTarget(Target, Generic[Prepared]):
    """See `Target`. Prepared: a sample as a thread makes it, ready to be written."""

    takes = frozenset({"shard_size", "split"})
    to: ClassVar[str]
    _FILE: ClassVar[str]
    """The file name of a shard, with {split}, {number} and {count}."""
    _SHARD_BYTES: ClassVar[int]
    _IMAGE_BYTES: ClassVar[int]
    """About what an image or mask takes in a shard in addition to its bytes."""
    _FIELD_BYTES: ClassVar[int]
    """About what another field takes; of several, about two are as large."""
    _OWN_BYTES: ClassVar[int]
    """About what a shard takes that has no sample."""
    _OWN_FIELD_BYTES: ClassVar[int] = 0
    """About what it takes for each field."""

    def __init__(self, source: Table, folder: Path, options: ExportOptions) -> None:
        super().__init__(source, folder, options)
        store = store_rows(source).stores[0]
        limit, split = options.shard_bytes or self._SHARD_BYTES, options.split_of(store.path)
        self.identity = {
            "store": store.digest, "to": self.to, "numbered": options.numbered, "split": split, "shard_bytes": limit,
        }  # fmt: skip
        self.split = split
        self._ends = np.cumsum(_stored_bytes(store) + self.need_bytes([]))
        self._shards = list(divided(range(len(source)), self._ends, limit))
        self._paths = [
            folder / self._FILE.format(split=split, number=number, count=len(self._shards))
            for number in range(len(self._shards))
        ]

    @abstractmethod
    def _prepare(self, row: int, item: Item) -> Prepared:
        """Any thread may call it."""

    @abstractmethod
    def _open(self, path: Path) -> AbstractContextManager[Callable[[Prepared], object]]:
        """A new shard: the function that adds a sample to it."""

    def need_bytes(self, sizes: Sequence[int]) -> int:
        others = len(self._source.info.fields) - len(self.suffixes) + 1
        return sum(sizes) + self._IMAGE_BYTES * len(self.suffixes) + self._FIELD_BYTES * min(others, 2)

    def own_bytes(self) -> int:
        return len(self._shards) * (self._OWN_BYTES + self._OWN_FIELD_BYTES * len(self._source.info.fields))

    def files(self, samples: int) -> int:
        return len(self._shards)

    def note(self, rejects: Sequence[Reject]) -> dict[str, Any]:
        rejected = np.array([reject.sample for reject in rejects], np.int64)
        shards = [
            {
                "file": path.name,
                "samples": len(rows) - int(np.count_nonzero((rejected >= rows.start) & (rejected < rows.stop))),
            }
            for path, rows in zip(self._paths, self._shards, strict=True)
        ]
        return super().note(rejects) | {"shards": shards}

    def write(self, run: RunOptions) -> Written:
        missing = [(path, rows) for path, rows in zip(self._paths, self._shards, strict=True) if not _is_there(path)]
        count, done = len(self._source), Written(rejects=self._known_rejects([rows for _, rows in missing]))
        allowed, seen = run.allowed(count), count - sum(len(rows) for _, rows in missing)
        blocks = (block for _, rows in missing for block in divided(rows, self._ends, _BLOCK_BYTES, _BLOCK))
        with closing(in_order(self._prepare_some, blocks, run)) as results:
            for path, rows in missing:
                temporary, left, known = self._folder / WORK / f"{path.name}.tmp", len(rows), len(done.rejects)
                with self._open(temporary) as add:
                    while left:
                        samples = next(results)
                        for sample in samples:
                            if isinstance(sample, Reject):
                                done.rejects.append(sample)
                            else:
                                add(sample)
                        left, seen = left - len(samples), seen + len(samples)
                        run.progress.advance(seen, done.bytes + _size(temporary), len(done.rejects))
                        if len(done.rejects) > allowed:
                            return done
                if len(done.rejects) > known:
                    self._keep_rejects(done.rejects)
                files.commit(temporary, path)
                done.files += 1
                done.bytes += _size(path)
        done.rejects.sort(key=lambda reject: reject.sample)
        return done

    def _prepare_some(self, rows: range) -> list[Prepared | Reject]:
        made: list[Prepared | Reject] = []
        for row in rows:
            try:
                made.append(self._prepare(row, self._source[row]))
            except DecodeError as error:
                made.append(rejected(row, self._source.key(row), error))
        return made

    def _known_rejects(self, missing: Sequence[range]) -> list[Reject]:
        """The rejects of the shards that earlier runs wrote."""
        work = self._folder / WORK / REJECTS
        path = work if work.exists() else self._folder / REJECTS
        try:
            lines = (writing.read(path) if path == work else path.read_bytes()).splitlines()
            found = [msgspec.json.decode(line, type=Reject) for line in lines]
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise PackError(f"{path} was changed ({error}); remove the folder and export again") from None
        kept = [reject for reject in found if not any(reject.sample in rows for rows in missing)]
        self._keep_rejects(kept)
        return kept

    def _keep_rejects(self, rejects: Sequence[Reject]) -> None:
        """Note the rejects of all shards that are complete, for a run that resumes."""
        path = self._folder / WORK / REJECTS
        lines = b"".join(msgspec.json.encode(reject) + b"\n" for reject in rejects)
        files.write_whole(path, lines, path.with_name(f"{REJECTS}.tmp"))


def divided(rows: range, ends: NDArray[np.int64], limit: int, most: int | None = None) -> Iterator[range]:
    """Ranges of `rows`, one after another, of at most `limit` bytes and `most` samples each, or of one sample.

    ends: (n,), bytes of all samples up to and including each.
    """
    start = rows.start
    while start < rows.stop:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        stop = min(stop, rows.stop, start + (most or len(rows)))
        yield range(start, stop)
        start = stop


def _stored_bytes(store: Store) -> NDArray[np.int64]:
    """(n,): bytes of each sample's image and masks: of their files, or of pixels before any compression."""
    total = np.zeros(len(store), np.int64)
    for name, field in store.fields.items():
        if not field.in_shards:
            continue
        if "bytes" in field.index:
            total += np.concatenate([folder.arrays[f"{name}.bytes"] for folder in store.columns.folders])
        else:
            total += int(np.prod(field.stored_shape)) * np.dtype(field.dtype).itemsize
    return total


def _is_there(path: Path) -> bool:
    """Whether an earlier run wrote the shard. Raises PackError for anything else of that name."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise PackError(f"{path} is not a file; remove it and run {again()} again")
    return path.exists()


def _size(path: Path) -> int:
    return os.stat(path).st_size  # noqa: PTH116 - called for each block
