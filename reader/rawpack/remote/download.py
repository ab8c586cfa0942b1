"""Downloading one file: in ranges by several threads, written in order, and checked."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import DamagedStoreError
from rawpack.remote.cache import Key
from rawpack.remote.transfer import WRONG, Attempts, Remote, is_timeout
from rawpack.system.files import write_all

RANGE = 2 << 20
"""Bytes of a request. For larger buffers, the system provides new memory each time, which takes as long as receiving
them; 32 at once keep a link of 600 MB/s with a latency of 100 ms busy."""
_LEAST_RANGE = 128 << 10
"""After requests that timed out: a slow link must deliver all that were made at once in time."""
_MOST_OF_A_FILE = 8
"""Ranges of a file that are requested, or wait for those before them, at the same time."""
_SIGN_EVERY_S = 600
"""How long a signed URL is used."""
_READ = 2 << 20
"""Bytes per read of a file that is verified."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store behind a URL, or an archive."""

    remote: Remote
    key: Key
    record: FileRecord
    confirm: Callable[[], None] = lambda: None
    """Called before and after it is fetched. Raises RawpackError where the server has another version by now."""
    resumes: bool = True
    """Whether what an earlier process has fetched is of the same version."""
    evicts: bool = True
    """Whether others may be removed for it."""
    called: str = ""
    """Its name below the URL, if that is not the one in the cache."""

    @property
    def name(self) -> str:
        """Its name below the URL."""
        return self.called or self.key[1]


class Transfer:
    """A file on its way into a descriptor. Any number of threads take ranges of it and fetch them; what arrives is
    written in its order, so that what a process leaves when it is killed is the beginning of the file."""

    def __init__(
        self, remote: Remote, name: str, record: FileRecord, file: int, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """file: a descriptor, which is empty or has the first bytes. record: without a checksum, any bytes are taken.
        wanted: called now and then; where it returns False, `file` keeps what it has."""
        self._remote, self._name, self._record, self._file, self._wanted = remote, name, record, file, wanted
        self.has_failed = False
        """Whether no thread begins another range."""
        self._attempts, self._wrong = Attempts(remote, name), 0
        self._address, self._signed = "", 0.0
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._written, self._seen = _resume(self._file, self._record)
        self._resumed = self._written > 0
        self._parked: dict[int, memoryview] = {}
        """What has arrived before what is before it."""
        self._next = self._written

    @property
    def is_whole(self) -> bool:
        """Whether all bytes were written: then `check` comes next."""
        return self._written == self._record.bytes

    def has_range(self) -> bool:
        """Whether there is a range to fetch that nobody has taken."""
        if self.has_failed or self._next == self._record.bytes:
            return False
        most = _MOST_OF_A_FILE * RANGE if self._remote.has_ranges else 1
        return self._next - self._written < most

    def take(self) -> tuple[int, int]:
        """The next range: its first byte, and the one after its last. Called under a lock of the caller's."""
        start, whole = self._next, self._remote.has_ranges is False
        self._next = self._record.bytes if whole else min(start + RANGE, self._record.bytes)
        return start, self._next

    def fetch(self, start: int, stop: int, buffers: list[bytearray]) -> bool:
        """Fetch a range that was taken. Returns whether all bytes are written now, which one thread learns. buffers:
        those that nobody uses. Raises StoreError and FileNotFoundError where the range cannot be fetched, OSError
        where the file cannot be written."""
        try:
            data = self._read(start, memoryview(buffers.pop() if buffers else bytearray(RANGE)), stop)
            with self._lock:
                if not data:
                    return False
                self._parked[start] = data
                while (ready := self._parked.pop(self._written, None)) is not None:
                    write_all(self._file, ready)
                    self._seen.update(ready)
                    self._written += len(ready)
                    if isinstance(ready.obj, bytearray) and len(ready.obj) == RANGE:
                        buffers.append(ready.obj)
                return self.is_whole
        except BaseException:
            self.has_failed = True
            raise

    def run(self, note: Callable[[], None] = lambda: None) -> None:
        """Fetch the whole file in this thread. note: called after each range. Raises as `fetch` and `check`."""
        buffers: list[bytearray] = []
        while not (self.is_whole and self.check()):
            self.fetch(*self.take(), buffers)
            note()

    def check(self) -> bool:
        """Sync and check the whole file. Returns False where it must be fetched again. Raises DamagedStoreError where
        it has arrived with wrong bytes several times, OSError where other bytes are read back."""
        found = self._seen.hexdigest()
        if self._record.xxh3 in ("", found):
            _check_disk(self._file, self._record, found)
            return True
        # The bytes of an earlier run may have been wrong already: that is not the server's fault.
        self._wrong += not self._resumed
        if self._wrong == WRONG:
            raise DamagedStoreError(
                f"{self._remote.where(self._name)} was downloaded {self._wrong} times with a checksum other than the "
                f"manifest's: {found}, not {self._record.xxh3}; upload the file or the store again"
            )
        os.ftruncate(self._file, 0)
        self._begin()
        return False

    def _read(self, start: int, buffer: memoryview, stop: int) -> memoryview | None:
        """The bytes of a range, and perhaps all after them. None where the file is not wanted anymore."""
        size, done = stop - start, 0
        into = buffer[:size] if size <= len(buffer) else memoryview(bytearray(size))
        step = size
        while done < size:
            if self.has_failed or not self._wanted():
                return None
            try:
                got = self._remote.read_range(
                    self._name, self._url, start + done, into[done : done + step], self._wanted, self._record.bytes
                )
            except Exception as error:
                if is_timeout(error):
                    step = max(_LEAST_RANGE, step // 4)
                self._attempts.failed(error)
                continue
            self._attempts.progressed()
            if not isinstance(got, int):
                self._next = self._record.bytes
                return memoryview(bytes(into[:done]) + got)
            done += got
        return into

    def _url(self) -> str:
        if not self._address or time.monotonic() > self._signed + _SIGN_EVERY_S:
            self._address, self._signed = self._remote.address(self._name), time.monotonic()
        return self._address


def _resume(file: int, record: FileRecord) -> tuple[int, Any]:
    """The bytes that a partly downloaded file has, and their running checksum. Seeks to its end."""
    done, seen = _read_through(file)
    if done <= record.bytes:
        return done, seen
    os.ftruncate(file, 0)
    return _read_through(file)


def _check_disk(file: int, record: FileRecord, written: str) -> None:
    """Sync a complete file and read it back. written: its checksum. Raises OSError where the disk has other bytes."""
    os.fsync(file)
    # Mostly read from the page cache, at several gigabytes a second, which is fast compared to downloading.
    done, seen = _read_through(file)
    if done != record.bytes or seen.hexdigest() != written:
        os.ftruncate(file, 0)
        raise OSError(
            errno.EIO, f"{record.bytes} bytes of {record.name} were written, but {done} different ones were read back"
        )


def _read_through(file: int) -> tuple[int, Any]:
    """The number of bytes in a file, and their checksum. Seeks to its end."""
    os.lseek(file, 0, os.SEEK_SET)
    done, seen = 0, xxhash.xxh3_64()
    while data := os.read(file, _READ):
        seen.update(data)
        done += len(data)
    return done, seen
