"""Downloading one file: in ranges by several threads, written in order, and checked."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import DamagedStoreError
from rawpack.remote.attempts import Attempts
from rawpack.remote.cache import Key
from rawpack.remote.transfer import WRONG, Remote
from rawpack.system.files import write_all

RANGE = 2 << 20
"""Bytes of a request. For larger buffers, the system provides new memory each time, which takes as long as receiving
them; 32 at once keep a link of 600 MB/s with a latency of 100 ms busy."""
_LEAST_RANGE = 128 << 10
"""After requests that timed out: a slow link must deliver all that were made at once in time."""
_MOST_OF_A_FILE = 8
"""Ranges of a file that are requested, or wait for those before them, at the same time."""
_NOTE_EVERY_S = 0.2
"""How often the time of a file shows other processes that bytes arrive: over a slow link, a range may take longer than
they would wait."""
_READ = 2 << 20


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
        return self.called or self.key[1]


class Transfer:
    """A file on its way into a descriptor. Any number of threads take ranges of it and fetch them; what arrives is
    written in its order, so that what a process leaves when it is killed is the beginning of the file."""

    def __init__(
        self, remote: Remote, name: str, record: FileRecord, file: int, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """file: a descriptor, which is empty or has the first bytes. record: without a checksum, any bytes are taken.
        wanted: called now and then; where it returns False, `file` keeps what it has."""
        self._remote, self._name, self._record, self.file, self._wanted = remote, name, record, file, wanted
        self.users = 1
        """Threads that are busy with it. For whoever starts them."""
        self.is_over = False
        """Whether it is complete, or has failed: no thread begins another range."""
        self._attempts, self._wrong, self._noted = Attempts(remote, name, wanted=wanted), 0, 0.0
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._written, self._seen = _read_through(self.file)
        if self._written > self._record.bytes:
            os.ftruncate(self.file, 0)
            self._written, self._seen = _read_through(self.file)
        self._resumed, self._next = self._written > 0, self._written
        self._parked: dict[int, memoryview] = {}
        """What has arrived before what is before it."""

    @property
    def is_whole(self) -> bool:
        """Whether all bytes were written: then `check` comes next."""
        return self._written == self._record.bytes

    def has_range(self) -> bool:
        """Whether there is a range to fetch that nobody has taken."""
        if self.is_over or self._next == self._record.bytes:
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
                if not data or self.is_over:
                    return False
                self._parked[start] = data
                while (ready := self._parked.pop(self._written, None)) is not None:
                    write_all(self.file, ready)
                    self._seen.update(ready)
                    self._written += len(ready)
                    if isinstance(ready.obj, bytearray) and len(ready.obj) == RANGE:
                        buffers.append(ready.obj)
                return self.is_whole
        except BaseException as error:
            self._fail(error)
            raise

    def run(self) -> None:
        """Fetch the whole file in this thread. Raises as `fetch` and `check`."""
        buffers: list[bytearray] = []
        while not (self.is_whole and self.check()):
            self.fetch(*self.take(), buffers)

    def check(self) -> bool:
        """Sync and check the whole file. Returns False where it must be fetched again. Raises DamagedStoreError where
        it has arrived with wrong bytes several times, OSError where other bytes are read back."""
        found = self._seen.hexdigest()
        if self._record.xxh3 in ("", found):
            os.fsync(self.file)
            # Mostly read from the page cache, at several gigabytes a second, which is fast compared to downloading.
            done, seen = _read_through(self.file)
            if (done, seen.hexdigest()) == (self._record.bytes, found):
                return True
            os.ftruncate(self.file, 0)
            raise OSError(
                errno.EIO,
                f"{self._record.bytes} bytes of {self._record.name} were written, but {done} different ones were read "
                "back",
            )
        # The bytes of an earlier run may have been wrong already: that is not the server's fault.
        self._wrong += not self._resumed
        if self._wrong == WRONG:
            error = DamagedStoreError(
                f"{self._remote.where(self._name)} was downloaded {self._wrong} times with a checksum other than the "
                f"manifest's: {found}, not {self._record.xxh3}; upload the file or the store again"
            )
            self._fail(error)
            raise error
        os.ftruncate(self.file, 0)
        self._begin()
        return False

    def _fail(self, error: BaseException) -> None:
        """Write nothing anymore, and keep nothing that may be of another file."""
        with self._lock:
            self.is_over = True
            if isinstance(error, FileNotFoundError | DamagedStoreError):
                os.ftruncate(self.file, 0)

    def _read(self, start: int, buffer: memoryview, stop: int) -> memoryview | None:
        """The bytes of a range, and perhaps all after them. None where the file is not wanted anymore."""
        size, done = stop - start, 0
        into = buffer[:size] if size <= len(buffer) else memoryview(bytearray(size))
        step = size
        while done < size:
            if self.is_over or not self._wanted():
                return None
            try:
                piece = into[done : done + step]
                got = self._remote.read_range(
                    self._name, start + done, piece, self._arriving, self._arrived, self._record.bytes
                )
            except Exception as error:
                if isinstance(error, TimeoutError):
                    step = max(_LEAST_RANGE, step // 4)
                self._attempts.failed(error)
                continue
            self._attempts.progressed()
            self._arriving()
            if not isinstance(got, int):
                self._next = self._record.bytes
                return memoryview(bytes(into[:done]) + got)
            done += got
        return into

    def _arrived(self, count: int, seconds: float) -> None:
        self._attempts.arrived(count, seconds)
        self._arriving()

    def _arriving(self) -> bool:
        """Called when bytes have arrived: notes that, now and then, and returns whether more are wanted."""
        if (now := time.monotonic()) - self._noted > _NOTE_EVERY_S:
            self._noted = now
            with suppress(OSError):
                os.utime(self.file)
        return self._wanted()


def _read_through(file: int) -> tuple[int, Any]:
    """The number of bytes in a file, and their checksum. Seeks to its end."""
    os.lseek(file, 0, os.SEEK_SET)
    done, seen = 0, xxhash.xxh3_64()
    while data := os.read(file, _READ):
        seen.update(data)
        done += len(data)
    return done, seen
