"""Room on the disk for an HDF5 file in the making, asked for before HDF5 writes.

HDF5 that is refused a write can close neither its file nor what it has open in it: it complains of each on stderr, and
may take the process with it (seen with HDF5 2.0). So the disk is asked first, where refusing does no harm.
"""

from __future__ import annotations

from pathlib import Path

import h5py

from rawpack_packer.destination import files

_OVERHEAD = 256 << 10
"""Bytes: more than HDF5 adds to the values of one dataset, its attributes among them, but for `PER_CHUNK`."""
PER_CHUNK = 40
"""Bytes: more than HDF5's index of chunks has for each."""
_END_OF_FILE = slice(28, 36)
"""Where the superblock says how long the file is: version 2 and 3, "End of File Address" in HDF5's format
specification."""


class Room:
    """Of one file, which HDF5 has just made and not written to yet.

    Where the disk or the system cannot promise room (NFS, macOS, Windows), nothing is promised.
    """

    def __init__(self, file: h5py.File) -> None:
        self._file, self._promised = file, 0
        self.need(0)

    def need(self, count: int) -> None:
        """Return when the next dataset of `count` bytes, or so many bytes of its chunks, have their place on the disk.

        Raises OSError where there is none.
        """
        end = int(self._file.id.get_filesize()) + count + _OVERHEAD
        if end > self._promised:
            files.reserve(self._file.id.get_vfd_handle(), self._promised, end - self._promised)
            self._promised = end


def give_back(path: Path) -> None:
    """Cut a closed file to the length that HDF5 gave it."""
    with path.open("r+b") as file:
        file.truncate(int.from_bytes(file.read(64)[_END_OF_FILE], "little"))
