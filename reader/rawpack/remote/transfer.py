"""Fetching one file of a store behind a URL: in pieces, each retried where that may help, and checked."""

from __future__ import annotations

import errno
import os
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import DamagedStoreError, RawpackError, StoreError, UsageError
from rawpack.remote.url import filesystem, join, scrubbed, shown
from rawpack.system.writing import write_all

T = TypeVar("T")
TIMEOUT_S = 120.0
"""Seconds after which a transfer that brings no byte fails, by default."""
_STALL_S = 30.0
"""The longest a request may take; less where the timeout is short."""
_PIECE, _LEAST_PIECE, _MOST_PIECE = 2 << 20, 64 << 10, 8 << 20
"""Bytes that one request asks for, at first and within bounds: so many that asking costs little beside them, so few
that a slow line brings them before the request is taken for dead."""
_QUICK_S = 0.5
_WRONG = 3
"""How often a file may come with a checksum that is not its own."""
_PAUSE_S, _MOST_PAUSE_S = 0.1, 10.0
_REFUSED = (400, 405, 501)
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_CAUSES = 8
_NO_CREDENTIALS = ("Credential", "ProfileNotFound", "TokenRetrieval", "SSOToken")


class Remote:
    """The folder of a store behind a URL. Any number of threads may use one; a forked child as well."""

    def __init__(self, url: str, options: Mapping[str, Any], timeout: float) -> None:
        """options: fsspec's, for the file system of this URL. Raises as `filesystem`."""
        self.url, self._options, self.timeout = url, dict(options), timeout
        self._ignores_ranges = False
        filesystem(url, self._options)

    def __str__(self) -> str:
        return shown(self.url)

    def where(self, name: str) -> str:
        """The URL of a file, for messages."""
        return shown(join(self.url, name))

    def read(self, name: str, check: Callable[[bytes], Any]) -> bytes:
        """All bytes of a small file.

        check: raises DamagedStoreError where they are not what they should be; then they are fetched again. Raises
        FileNotFoundError where there is no such file, StoreError where it cannot be had, and what `check` raised last.
        """
        attempts, wrong = _Attempts(self, name), 0
        while True:
            try:
                data = self._request(name, None, None, self.timeout)
            except Exception as error:
                attempts.failed(error)
                continue
            try:
                check(data)
                return data
            except DamagedStoreError:
                wrong += 1
                if wrong == _WRONG:
                    raise

    def download(self, name: str, record: FileRecord, file: int, wanted: Callable[[], bool] = lambda: True) -> bool:
        """Complete `file`, which holds nothing or the first bytes of file `name`; then the disk has what was packed.

        file: a descriptor to read and write by. wanted: asked between pieces; where it says no, False is returned, and
        what has come stays for another time. Raises StoreError where the file cannot be had, DamagedStoreError where it
        comes with wrong bytes, OSError where the disk does not take it, or gives back something else.
        """
        attempts, wrong, piece = _Attempts(self, name), 0, _PIECE
        while True:
            done, seen = _resume(file, record)
            resumed = done > 0
            while done < record.bytes:
                if not wanted():
                    return False
                began = time.monotonic()
                try:
                    data = self._piece(name, done, min(piece, record.bytes - done), record.bytes)
                except Exception as error:
                    if is_timeout(error):
                        piece = max(_LEAST_PIECE, piece // 4)
                    attempts.failed(error)
                    continue
                attempts.progressed()
                if time.monotonic() - began < _QUICK_S:
                    piece = min(_MOST_PIECE, piece * 2)
                write_all(file, data)
                seen.update(data)
                done += len(data)
            if seen.hexdigest() == record.xxh3:
                _check_disk(file, record)
                return True
            # What an earlier run left may be wrong of itself: that says nothing of what comes.
            wrong += not resumed
            if wrong == _WRONG:
                raise DamagedStoreError(
                    f"{self.where(name)} came {wrong} times with bytes that differ from what was packed: checksum "
                    f"{seen.hexdigest()}, {record.xxh3} in the manifest; upload the file or the store again"
                )
            os.ftruncate(file, 0)

    def error(self, name: str, error: BaseException, seconds: float = 0.0) -> RawpackError:
        """What to raise for a request that failed. seconds: how long it was tried."""
        what = scrubbed(f"{type(error).__name__}: {error}", self.url, self._options)
        where = self.where(name)
        if is_of_options(error):
            return UsageError(wrong_options(where, what, self._options))
        if is_forbidden(error):
            return StoreError(
                f"{where} may not be read ({what}): check that credentials are set, right and not expired. They come "
                "from the environment, or from storage_options="
            )
        if is_timeout(error):
            what = "the server does not answer"
        tried = f", tried for {seconds:.0f} s" if seconds else ""
        return StoreError(f"{where} cannot be read{tried}: {what}")

    def has_no_bucket(self) -> bool:
        """Whether the bucket of this URL does not exist, as far as its server says so."""
        if self.url.lower().startswith(("http://", "https://")):
            return False
        system, path = filesystem(self.url, self._options)
        return has_no_bucket(system, path, min(_STALL_S, self.timeout))

    def _piece(self, name: str, start: int, size: int, total: int) -> bytes:
        """`size` bytes from `start` on, or all to the end from a server that knows no ranges."""
        if self._ignores_ranges:
            data = self._request(name, None, None, self.timeout)
            if len(data) != total:
                raise _WrongLengthError(f"{len(data)} bytes came, but {total} were packed")
            return data[start:]
        data = self._request(name, start, start + size, min(_STALL_S, self.timeout / 3))
        if len(data) == total and total != size:
            self._ignores_ranges = True
            return data[start:]
        if len(data) != size:
            raise _WrongLengthError(f"{len(data)} bytes came, but {size} were requested, from byte {start} of {total}")
        return data

    def _request(self, name: str, start: int | None, stop: int | None, seconds: float) -> bytes:
        """Bytes start..stop-1 of a file, or all. Raises whatever the file system raises, and TimeoutError."""
        system, path = filesystem(join(self.url, name), self._options)
        data: bytes
        if system.async_impl:
            from fsspec.asyn import sync

            data = sync(system.loop, system._cat_file, path, start=start, end=stop, timeout=seconds)
        else:
            data = bounded(lambda: system.cat_file(path, start=start, end=stop), seconds)
        return data


def _resume(file: int, record: FileRecord) -> tuple[int, Any]:
    """Go to the end of what has come of a file: how many bytes, and their running checksum."""
    done, seen = _read_through(file)
    if done <= record.bytes:
        return done, seen
    os.ftruncate(file, 0)
    return _read_through(file)


def _check_disk(file: int, record: FileRecord) -> None:
    """Return when the disk holds the bytes that were packed; OSError where it does not."""
    os.fsync(file)
    # All that came was right, so what differs was lost on the way to the disk. Read again it is, from the page cache
    # mostly, at several gigabytes a second: little beside fetching it.
    done, seen = _read_through(file)
    if done != record.bytes or seen.hexdigest() != record.xxh3:
        os.ftruncate(file, 0)
        raise OSError(
            errno.EIO, f"{record.name} was written with {record.bytes} bytes, but {done} different ones were read back"
        )


def _read_through(file: int) -> tuple[int, Any]:
    """Read a file from its beginning to its end: how many bytes, and their checksum."""
    os.lseek(file, 0, os.SEEK_SET)
    done, seen = 0, xxhash.xxh3_64()
    while data := os.read(file, _PIECE):
        seen.update(data)
        done += len(data)
    return done, seen


class _WrongLengthError(OSError):
    """A server sent more or less than was requested."""


class _Attempts:
    """When to retry a file, and when to give up."""

    def __init__(self, remote: Remote, name: str) -> None:
        self._remote, self._name = remote, name
        self.progressed()

    def progressed(self) -> None:
        self._began, self._failed = time.monotonic(), 0

    def failed(self, error: Exception) -> None:
        """Return when it is time to retry. Raises StoreError, or FileNotFoundError, where that makes no sense."""
        if isinstance(error, RawpackError):
            raise error
        if isinstance(error, FileNotFoundError) or getattr(error, "status", None) in (404, 410):
            raise FileNotFoundError(self._remote.where(self._name)) from None
        past = time.monotonic() - self._began
        if is_hopeless(error) or is_forbidden(error) or past >= self._remote.timeout:
            raise self._remote.error(self._name, error, past) from None
        pause = min(_MOST_PAUSE_S, _PAUSE_S * 2**self._failed) * random.uniform(0.5, 1.5)
        self._failed += 1
        time.sleep(min(pause, max(0.0, self._remote.timeout - past)))


def is_forbidden(error: BaseException) -> bool:
    """Whether credentials are the problem, so that a retry is no use."""
    kind = type(error).__name__
    return (
        isinstance(error, PermissionError)
        or getattr(error, "status", None) in (401, 403, 407)
        or any(name in kind for name in _NO_CREDENTIALS)
    )


def is_hopeless(error: BaseException) -> bool:
    """Whether the request itself is wrong, so that a retry is no use."""
    wrong = is_of_options(error) or isinstance(error, NotImplementedError | ImportError)
    return wrong or is_bucketless(error) or getattr(error, "status", None) in _REFUSED


def is_of_options(error: BaseException) -> bool:
    """Whether a file system could not make sense of the options that it was opened with."""
    return isinstance(error, TypeError | ValueError)


def wrong_options(where: str, what: str, options: Mapping[str, Any]) -> str:
    """A message of options that a file system does not take, or not together; their values may be secret."""
    named = (
        f"storage_options ({', '.join(sorted(map(str, options)))})" if options else "the settings of its file system"
    )
    return (
        f"{where} cannot be opened with {named}: {what}; leave out what it does not know, and set each option once, "
        "here or in the environment (FSSPEC_...)"
    )


def is_bucketless(error: BaseException | None) -> bool:
    """Whether a request failed because its bucket does not exist."""
    seen = 0
    while error is not None and seen < _CAUSES:
        response = getattr(error, "response", None)
        about = response.get("Error") if isinstance(response, Mapping) else None
        code = about.get("Code") if isinstance(about, Mapping) else None
        if code == "NoSuchBucket" or _NO_BUCKET.search(str(error)):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def has_no_bucket(system: Any, path: str, seconds: float) -> bool:
    """Whether the bucket of `path` does not exist, as far as its server says so in time."""
    try:
        # A question for one file is answered alike where the file and where the bucket is missing.
        bounded(lambda: system.ls(path, detail=False, refresh=True), seconds)
    except Exception as error:
        return is_bucketless(error)
    return False


def is_timeout(error: BaseException) -> bool:
    """Whether a server has not answered in time."""
    return isinstance(error, TimeoutError)  # fsspec's and asyncio's are ones too


def bounded(call: Callable[[], T], seconds: float) -> T:
    """What `call` returns or raises; TimeoutError where it takes longer, and is left behind."""
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True, name="rawpack-request").start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    if error is not None:
        raise error
    return cast(T, answer)
