"""Downloading one file of a store behind a URL: in pieces, with retries, and checked."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import DamagedStoreError, RawpackError, StoreError, UsageError
from rawpack.remote.pieces import Requests
from rawpack.remote.reach import host_of, is_lost, is_of_connection, note_answer, why_lost
from rawpack.remote.url import filesystem, join, scrubbed, shown
from rawpack.system.files import write_all

T = TypeVar("T")
TIMEOUT_S = 120.0
"""Seconds without any byte after which a transfer fails, by default."""
_STALL_S = 30.0
"""The longest that a request may take; less with a short timeout."""
_READ = 2 << 20
"""Bytes per read of a file that is verified."""
_WRONG = 3
"""Downloads with a wrong checksum after which a file is damaged."""
_PAUSE_S, _MOST_PAUSE_S = 0.1, 10.0
_chance = random.Random()
"""Not the module's own numbers, which are the user's: a seed must give the same ones whatever the network does."""
_REFUSED = (400, 405, 501)
_VERSIONS = (
    "ETag", "etag", "md5", "Content-MD5", "Digest", "mtime", "LastModified", "last_modified", "Last-Modified",
    "updated", "created",
)  # fmt: skip
"""What file systems call that which changes with the contents of a file, the surest first."""
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_CAUSES = 8
_NO_CREDENTIALS = ("Credential", "ProfileNotFound", "TokenRetrieval", "SSOToken")


class Remote:
    """The folder of a store behind a URL. Any number of threads may use one, and forked children too."""

    def __init__(self, url: str, options: Mapping[str, Any], timeout: float) -> None:
        """options: fsspec's `storage_options` for this URL. Raises as `filesystem`."""
        self.url, self._options, self.timeout = url, dict(options), timeout
        self.host = host_of(url, self._options)
        self.trouble = ""
        """The last error of what is being retried now, printable; empty while nothing is."""
        self._has_ranges: bool | None = None
        """Whether the server answers with the requested bytes and not with the whole file, once that is known."""
        filesystem(url, self._options)

    def __str__(self) -> str:
        return shown(self.url)

    def where(self, name: str) -> str:
        """The URL of a file, for messages."""
        return shown(join(self.url, name))

    def ask(self, name: str) -> Future[bytes]:
        """Begin to read a small file: see `read`. Raises nothing."""
        return self._ask(name, None, None, self.timeout)

    def read(self, name: str, check: Callable[[bytes], Any], asked: Future[bytes] | None = None) -> bytes:
        """All bytes of a small file.

        check: raises DamagedStoreError for wrong bytes, which are then downloaded again. asked: what `ask` returned for
        this file, if it was asked for together with others. Raises FileNotFoundError where there is no such file,
        StoreError where it cannot be downloaded, and the last error of `check`.
        """
        attempts, wrong = Attempts(self, name), 0
        while True:
            together, asked = asked, None
            answer = together or self.ask(name)
            try:
                data = answer.result(self.timeout)
            except Exception as error:
                if together and isinstance(error, TimeoutError):
                    answer.cancel()
                    attempts.shared()  # the link, with many: alone, it has all the time
                else:
                    attempts.failed(error)
                continue
            attempts.progressed()
            try:
                check(data)
                return data
            except DamagedStoreError:
                wrong += 1
                if wrong == _WRONG:
                    raise

    def about(self, name: str) -> tuple[int, str]:
        """The size of a file in bytes, and a text that changes with its contents: an ETag or a time, empty where the
        server has neither. Raises as `read`, and StoreError where the server does not say the size."""
        attempts = Attempts(self, name)
        while True:
            try:
                system, path = filesystem(join(self.url, name), self._options)
                system.invalidate_cache()
                found = bounded(partial(system.info, path), min(_STALL_S, self.timeout))
            except Exception as error:
                # fsspec takes every failure over HTTP for a missing file; the cause is what the server said.
                cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
                attempts.failed(cause if isinstance(cause, Exception) else error)
                continue
            attempts.progressed()
            if not isinstance(found.get("size"), int):
                raise StoreError(
                    f"{self.where(name)}: the server does not say how large the file is; download it first"
                )
            version = next((found[key] for key in _VERSIONS if found.get(key)), "")
            return found["size"], str(version)

    def download(
        self,
        name: str,
        record: FileRecord,
        file: int,
        wanted: Callable[[], bool] = lambda: True,
        requests: Requests | None = None,
        urgent: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Complete the descriptor `file`, which is empty or has the first bytes of file `name`, and sync it.

        record: without a checksum, any bytes are taken. wanted: called between pieces. Where it returns False, so does
        this, and `file` keeps what it has. requests: shared with other downloads. urgent: whether this one goes first;
        takes no lock. Raises StoreError where the file cannot be downloaded, DamagedStoreError where it arrives with
        wrong bytes, OSError where it cannot be written, or other bytes are read back.
        """
        attempts, wrong = Attempts(self, name), 0
        with (requests or Requests()).pieces(_FileSource(self, name, record.bytes), urgent) as pieces:
            while True:
                done, seen = _resume(file, record)
                resumed = done > 0
                pieces.start(done)
                while done < record.bytes:
                    if not wanted():
                        return False
                    try:
                        data = pieces.next()
                    except Exception as error:
                        with pieces.failed(is_timeout(error)):
                            attempts.failed(error)
                        continue
                    attempts.progressed()
                    if data is None:
                        continue
                    write_all(file, data)
                    seen.update(data)
                    done += len(data)
                if record.xxh3 in ("", seen.hexdigest()):
                    break
                # The bytes of an earlier run may have been wrong already: that is not the server's fault.
                wrong += not resumed
                if wrong == _WRONG:
                    raise DamagedStoreError(
                        f"{self.where(name)} was downloaded {wrong} times with a checksum other than the manifest's: "
                        f"{seen.hexdigest()}, not {record.xxh3}; upload the file or the store again"
                    )
                os.ftruncate(file, 0)
        _check_disk(file, record, seen.hexdigest())
        return True

    def error(self, name: str, error: BaseException, seconds: float = 0.0, done: str = "read") -> RawpackError:
        """The error to raise for a request that kept failing. done: what was tried with the file."""
        what = self.reason(error)
        where = self.where(name)
        if is_lost(self.host, error, seconds):
            return StoreError(f"{where} cannot be reached: {what}")
        if is_of_options(error):
            return UsageError(wrong_options(where, what, self._options))
        if is_forbidden(error):
            return StoreError(
                f"{where} may not be {done} ({what}): check that credentials are set, correct and not expired. They "
                "come from the environment, or from storage_options="
            )
        tried = f", tried for {seconds:.0f} s" if seconds else ""
        return StoreError(f"{where} cannot be {done}{tried}: {what}")

    def reason(self, error: BaseException) -> str:
        """What an error says, without secrets."""
        if is_timeout(error):
            return "the server does not answer"
        return why_lost(error) or scrubbed(f"{type(error).__name__}: {error}", self.url, self._options)

    def has_no_bucket(self) -> bool:
        """Whether the server says that the bucket of this URL does not exist."""
        if self.url.lower().startswith(("http://", "https://")):
            return False
        system, path = filesystem(self.url, self._options)
        return has_no_bucket(system, path, min(_STALL_S, self.timeout))

    def _ask(self, name: str, start: int | None, stop: int | None, seconds: float) -> Future[bytes]:
        """Begin a request for bytes start..stop-1 of a file, or all of them. It fails with what the file system raises;
        with TimeoutError after `seconds`, if the file system is asynchronous."""
        try:
            system, path = filesystem(join(self.url, name), self._options)
            if not system.async_impl:
                return _begun(partial(system.cat_file, path, start=start, end=stop))
            request = asyncio.wait_for(system._cat_file(path, start=start, end=stop), seconds)
            return asyncio.run_coroutine_threadsafe(request, system.loop)
        except Exception as error:
            answer: Future[bytes] = Future()
            answer.set_exception(error)
            return answer


@dataclass
class _FileSource:
    """See `PieceSource`."""

    remote: Remote
    name: str
    total: int

    @property
    def seconds(self) -> float:
        whole = self.remote._has_ranges is False
        return self.remote.timeout if whole else min(_STALL_S, self.remote.timeout / 3)

    @property
    def has_ranges(self) -> bool:
        return bool(self.remote._has_ranges)

    def ask(self, start: int, stop: int, seconds: float) -> Future[bytes]:
        if self.remote._has_ranges is False:
            return self.remote._ask(self.name, None, None, seconds)
        return self.remote._ask(self.name, start, stop, seconds)

    def check(self, data: bytes, start: int, stop: int) -> bytes:
        if len(data) == self.total and (self.remote._has_ranges is False or stop - start < self.total):
            self.remote._has_ranges = False
            return data[start:]
        if len(data) != stop - start:
            raise _WrongLengthError(
                f"received {len(data)} bytes, but requested {stop - start} from byte {start} of {self.total}"
            )
        if stop - start < self.total:
            self.remote._has_ranges = True
        return data


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


class _WrongLengthError(OSError):
    """A server sent more or less than was requested."""


class Attempts:
    """Decides whether to retry a file, and when."""

    def __init__(self, remote: Remote, name: str, done: str = "read") -> None:
        """done: what is tried with the file, for messages."""
        self._remote, self._name, self._done = remote, name, done
        self._began, self._failed = time.monotonic(), 0

    def progressed(self) -> None:
        """Something arrived: the timeout begins again."""
        self._began, self._failed = time.monotonic(), 0
        self._remote.trouble = ""
        note_answer(self._remote.host)

    def shared(self) -> None:
        """The request shared its time with others: the timeout begins again."""
        self._began, self._failed = time.monotonic(), 0

    def failed(self, error: Exception) -> None:
        """Wait until it is time to retry. Raises StoreError or FileNotFoundError where a retry is useless."""
        if isinstance(error, RawpackError):
            raise error
        if not is_of_connection(error) and not is_timeout(error):
            note_answer(self._remote.host)  # with an error, but it is there
        self._remote.trouble = self._remote.reason(error)
        if isinstance(error, FileNotFoundError) or getattr(error, "status", None) in (404, 410):
            raise FileNotFoundError(self._remote.where(self._name)) from None
        past = time.monotonic() - self._began
        lost = is_lost(self._remote.host, error, past)
        if lost or is_hopeless(error) or is_forbidden(error) or past >= self._remote.timeout:
            raise self._remote.error(self._name, error, past, self._done) from None
        pause = min(_MOST_PAUSE_S, _PAUSE_S * 2**self._failed) * _chance.uniform(0.5, 1.5)
        self._failed += 1
        time.sleep(min(pause, max(0.0, self._remote.timeout - past)))


def is_forbidden(error: BaseException) -> bool:
    """Whether credentials are the problem, so that a retry is useless."""
    kind = type(error).__name__
    return (
        isinstance(error, PermissionError)
        or getattr(error, "status", None) in (401, 403, 407)
        or any(name in kind for name in _NO_CREDENTIALS)
    )


def is_hopeless(error: BaseException) -> bool:
    """Whether the request itself is wrong, so that a retry is useless."""
    wrong = is_of_options(error) or isinstance(error, NotImplementedError | ImportError)
    return wrong or is_bucketless(error) or getattr(error, "status", None) in _REFUSED


def is_of_options(error: BaseException) -> bool:
    """Whether a file system did not accept its options."""
    return isinstance(error, TypeError | ValueError) and not is_of_connection(error)


def wrong_options(where: str, what: str, options: Mapping[str, Any]) -> str:
    """The message for options that a file system does not accept. It names no values: they may be secret."""
    names = ", ".join(sorted(map(str, options)))
    named = f"storage_options ({names})" if options else "the settings of its file system"
    return (
        f"{where} cannot be opened with {named}: {what}; remove unknown options, and set each option only once, "
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
    """Whether the server says in time that the bucket of `path` does not exist."""
    try:
        # Servers give the same answer for a missing file and a missing bucket, but not for a listing.
        bounded(lambda: system.ls(path, detail=False, refresh=True), seconds)
    except Exception as error:
        return is_bucketless(error)
    return False


def is_timeout(error: BaseException) -> bool:
    """Whether a server has not answered in time."""
    return isinstance(error, TimeoutError)  # so are fsspec's and asyncio's


def bounded(call: Callable[[], T], seconds: float) -> T:
    """The result of `call`. Raises TimeoutError where it takes longer; the call is then left to itself."""
    return _begun(call).result(timeout=seconds)


def _begun(call: Callable[[], T]) -> Future[T]:
    """The future result of `call`, which runs in a thread of its own."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="rawpack-request").start()
    return answer
