"""Where the members of archives are, as columns, and how a worker reads one: at its offset, without the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.files import MAX_FILE_BYTES
from rawpack_packer.sources.table.named_files import NamedFiles

Rows = NDArray[np.int64]
Fault = tuple[str, str]
"""Why a member cannot be a sample: the reason and the detail of a DecodeError."""


@dataclass(frozen=True, eq=False)
class Spans:
    """Members of archives, one for each sample: a `Column` of bytes. Plain data; no file stays open."""

    archives: NamedFiles
    archive: NDArray[np.int32]
    """(n,): the number of each member's archive in `archives`."""
    offset: Rows
    """(n,): where its bytes begin in that archive."""
    states: Rows
    """(n, 2): its size in bytes, and its time in ns or its checksum as the archive has it; see `Source.states`."""
    faults: Mapping[int, Fault] = field(default_factory=dict)
    """Members that are rejected without being read: number -> why."""

    def __len__(self) -> int:
        return len(self.archive)

    def value(self, i: int, /) -> bytes:
        """All bytes of member i.

        The size and mtime of its archive are compared before and after reading. Raises as `Samples.__getitem__` does.
        """
        if (fault := self.faults.get(i)) is not None:
            raise DecodeError(*fault)
        size, k = int(self.states[i, 0]), int(self.archive[i])
        if size > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"the file has {size} bytes: no decoder takes 2 GiB or more")
        return self.archives.read(k, self._reader(i))

    def head(self, i: int, most: int) -> bytes:
        """The first bytes of member i, `most` or fewer; none of one that cannot be read. Raises OSError."""
        if i in self.faults:
            return b""
        with self.archives.opened(int(self.archive[i])) as fd, suppress(DecodeError):
            return self._reader(i, most)(fd)
        return b""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        """What reads member i, or its first bytes, from a descriptor of its archive."""
        size = int(self.states[i, 0])
        return partial(read_range, offset=int(self.offset[i]), size=size if most is None else min(size, most))

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        return self.archives.paths[int(self.archive[i])], int(self.offset[i]), int(self.states[i, 0])

    def pick(self, rows: Rows, /) -> Self:
        """The members at `rows`, and the archives that hold them."""
        used, archive = np.unique(self.archive[rows], return_inverse=True)
        faults = self.faults
        if faults:
            faults = {k: faults[row] for k, row in enumerate(rows.tolist()) if row in faults}
        return replace(
            self,
            archives=self.archives.pick(used.tolist()),
            archive=archive.astype(np.int32),
            offset=self.offset[rows],
            states=self.states[rows],
            faults=faults,
        )

    def all_states(self) -> Rows:
        """(n + k, 2): those of the members, then those of the archives."""
        return np.concatenate([self.states, self.archives.states])


def read_range(fd: int, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` on. Raises DecodeError where the file ends before that."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise DecodeError("truncated", f"the archive ends after {len(data)} of the {size} bytes")
        data += more
    return data
