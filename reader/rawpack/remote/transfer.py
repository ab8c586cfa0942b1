"""Reading files behind a URL: which transport, with retries, and checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from rawpack.disk.manifest import MAX_MANIFEST_BYTES
from rawpack.errors import DamagedStoreError, RawpackError, StoreError, UsageError
from rawpack.remote.attempts import Attempts, is_bucketless, meaning
from rawpack.remote.reach import host_of, is_lost, note_bytes, why_lost
from rawpack.remote.url import filesystem, http_options, join, scrubbed, shown

if TYPE_CHECKING:
    from rawpack.remote.wire import Arrived, Wire

T = TypeVar("T")
U = TypeVar("U")
TIMEOUT_S = 120.0
"""Seconds without any byte after which a transfer fails, by default."""
_STALL_S = 30.0
"""The longest that a request may take; less with a short timeout."""
_SIGNED_S, _SIGN_EVERY_S, _MOST_SIGNED = 3600, 600, 256
"""How long a signed URL is valid, how long it is used, and how many are kept."""
_MOST_FAILURES = 3
"""Requests in a row that the plain transport fails, and fsspec's package does not: then only that is used."""
WRONG = 3
"""Downloads with wrong bytes after which a file is damaged."""
_LATE_S = 1.0
"""How long to wait for a request that should have timed out by itself."""
_VERSIONS = (
    "ETag", "etag", "md5", "Content-MD5", "Digest", "mtime", "LastModified", "last_modified", "Last-Modified",
    "updated", "created",
)  # fmt: skip
"""What file systems call that which changes with the contents of a file, the surest first."""
_WORDS = {
    "BusyServerError": "the server is busy ({})",
    "MemoryError": "there is not enough memory for it",
    "LongAnswerError": "its server sends more than it can have: {}; check the URL",
    "TooManyRedirects": "its server redirects from one address to the next without an end; check the URL",
}
"""What errors of these names come to for a user."""


class Remote:
    """The folder of a store behind a URL. Any number of threads may use one, and forked children too.

    A request is answered by the plain transport (`Wire`) if it can be, at a URL that fsspec's package signs, otherwise
    by that package.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any], timeout: float = TIMEOUT_S, wire: Wire | None = None
    ) -> None:
        """options: fsspec's `storage_options` for this URL. wire: shared with others. Raises as `filesystem`."""
        # Every run of the packer imports this module, and few use these.
        from urllib.request import getproxies

        from rawpack.remote.wire import Wire

        self.url, self._options, self.timeout = url, dict(options), timeout
        self.host = host_of(url, self._options)
        self.trouble = ""
        """The last error of what is being retried now, printable; empty while nothing is."""
        self.has_ranges: bool | None = None
        """Whether the server answers with the requested bytes and not with the whole file; None before it is known."""
        self._failures, self._failed_at = 0, 0.0
        self._signed: dict[str, tuple[str, float]] = {}
        self._is_http = url.lower().startswith(("http://", "https://"))
        used = http_options(url, self._options) if self._is_http else {}
        self._headers = used.pop("headers", {})
        # A user in the URL, and any option but headers, are for the package, which knows what they mean.
        plain = self._is_http and not used and isinstance(self._headers, Mapping) and "@" not in urlsplit(url).netloc
        if not plain:
            system = filesystem(url, self._options)[0]
            # Proxies too: packages for HTTP ignore the environment, all others do not.
            plain = not self._is_http and hasattr(system, "sign") and not getproxies()
        self._wire = (wire or Wire(stall_s(timeout))) if plain else None

    def __str__(self) -> str:
        return shown(self.url)

    def where(self, name: str) -> str:
        return shown(join(self.url, name))

    def read(self, name: str, check: Callable[[bytes], Any], most: int = MAX_MANIFEST_BYTES) -> bytes:
        """All bytes of a small file, of `most` at most.

        check: raises DamagedStoreError for wrong bytes, which are then downloaded again. Raises FileNotFoundError where
        there is no such file, StoreError where it cannot be downloaded, and the last error of `check`.
        """
        attempts, wrong = Attempts(self, name), 0
        package = partial(self._by_package, name, None, None, self.timeout, most)
        while True:
            try:
                data = self._first(lambda wire: self._plain(wire, name, most, attempts.arrived), package)
            except Exception as error:
                attempts.failed(error)
                continue
            attempts.progressed()
            try:
                check(data)
                return data
            except DamagedStoreError:
                wrong += 1
                if wrong == WRONG:
                    raise

    def _plain(self, wire: Wire, name: str, most: int, arrived: Arrived) -> bytes:
        data, says_ranges = wire.read(self.address(name), self._headers, most, arrived)
        if says_ranges and self.has_ranges is None:
            self.has_ranges = True
        return data

    def address(self, name: str) -> str:
        """The URL of a file for the plain transport. Raises OSError where fsspec's package cannot sign one."""
        url = join(self.url, name)
        if self._is_http:
            return url
        signed, at = self._signed.get(name, ("", 0.0))
        if signed and time.monotonic() < at + _SIGN_EVERY_S:
            return signed
        system, path = filesystem(url, self._options)
        try:
            signed = str(bounded(partial(system.sign, path, expiration=_SIGNED_S), self.timeout))
        except Exception as error:  # each package has its own
            raise OSError(f"{type(error).__name__} while signing") from error
        if len(self._signed) >= _MOST_SIGNED:
            self._signed.clear()
        self._signed[name] = signed, time.monotonic()
        return signed

    def read_range(
        self, name: str, start: int, into: memoryview, wanted: Callable[[], bool], arrived: Arrived, total: int
    ) -> int | bytes:
        """Bytes of a file of `total` bytes from `start` on: how many were put at the beginning of `into`; or these,
        with all after them where the server has sent the whole file. wanted: called now and then; where it returns
        False, fewer bytes may come. arrived: see `Wire`. Raises whatever the package does."""
        whole = self.has_ranges is False
        if whole:
            data = self._within(name, None, None, self.timeout, total)
        else:
            package = partial(self._within, name, start, start + len(into), stall_s(self.timeout), total)
            got = self._first(
                lambda wire: wire.read_range(self.address(name), self._headers, start, into, wanted, arrived), package
            )
            if isinstance(got, int):
                self.has_ranges = len(into) < total or self.has_ranges
                return got
            data = got
        if len(data) == total and (whole or len(into) < total):
            self.has_ranges = False
            return data[start:]
        if len(data) != len(into):
            # A server sent more or less than was requested.
            raise OSError(f"received {len(data)} bytes, but requested {len(into)} from byte {start} of {total}")
        self.has_ranges = len(into) < total or self.has_ranges
        into[:] = data
        return len(data)

    def _first(self, plain: Callable[[Wire], T], package: Callable[[], U]) -> T | U:
        """What the plain transport answers or, where it cannot, fsspec's package."""
        from rawpack.remote.wire import PLAIN_ERRORS

        if self._wire is None or self._failures >= _MOST_FAILURES:
            return package()
        began = time.monotonic()
        try:
            answer = plain(self._wire)
        except PLAIN_ERRORS:
            pass
        else:
            self._failures = 0
            return answer
        other = package()
        if began >= self._failed_at:  # requests that fail together count once
            self._failures, self._failed_at = self._failures + 1, time.monotonic()
        return other

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
            if found.get("type") == "directory":  # of 0 bytes: in S3, what others have before a slash in their names
                raise FileNotFoundError(self.where(name))
            if not isinstance(found.get("size"), int):
                raise StoreError(
                    f"{self.where(name)}: the server does not say how large the file is; download it first"
                )
            version = next((found[key] for key in _VERSIONS if found.get(key)), "")
            return found["size"], str(version)

    def error(self, name: str, error: BaseException, seconds: float = 0.0, done: str = "read") -> RawpackError:
        """The error to raise for a request that kept failing. done: what was tried with the file."""
        what, where, kind = self.reason(error), self.where(name), meaning(error)
        if is_bucketless(error):
            return no_bucket(self.url)
        if is_lost(self.host, error, seconds):
            return StoreError(f"{where} cannot be reached: {what}")
        if kind == "options":
            # No values: they may be secret.
            names = ", ".join(sorted(map(str, self._options)))
            named = f"storage_options ({names})" if names else "the settings of its file system"
            return UsageError(
                f"{where} cannot be opened with {named}: {what}; remove unknown options, and set each option only "
                "once, here or in the environment (FSSPEC_...)"
            )
        if kind == "forbidden":
            return StoreError(
                f"{where} may not be {done} ({what}): check that credentials are set, correct and not expired, and "
                "that their policy permits it. They come from the environment, or from storage_options=. Check the URL "
                "too: where listing is not allowed, S3 says the same of a file that does not exist"
            )
        tried = f", tried for {seconds:.0f} s" if seconds >= 1 or kind == "trouble" else ""
        return StoreError(f"{where} cannot be {done}{tried}: {what}")

    def reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):  # so are fsspec's and asyncio's
            return "the server does not answer"
        if (words := _WORDS.get(type(error).__name__)) is not None:
            return words.format(error)
        return why_lost(error) or scrubbed(f"{type(error).__name__}: {error}", self.url, self._options)

    def has_no_bucket(self) -> bool:
        """Whether the server says in time that the bucket of this URL does not exist."""
        if self._is_http:
            return False
        system, path = filesystem(self.url, self._options)
        try:
            # Servers give the same answer for a missing file and a missing bucket, but not for a listing.
            bounded(partial(system.ls, path, detail=False, refresh=True), min(_STALL_S, self.timeout))
        except Exception as error:
            return is_bucketless(error)
        return False

    def _by_package(self, name: str, start: int | None, stop: int | None, seconds: float, most: int) -> bytes:
        """Bytes start..stop-1 of a file, or all of them, by fsspec's package. Raises what that raises, TimeoutError
        after `seconds`, and over HTTP LongAnswerError for an answer of more than `most` bytes."""
        system, path = filesystem(join(self.url, name), self._options)
        with self._at_most(most):
            if system.async_impl:
                import asyncio  # takes 20 ms, and the packer loads this module for paths as well

                request = asyncio.wait_for(system._cat_file(path, start=start, end=stop), seconds)
                data: bytes = asyncio.run_coroutine_threadsafe(request, system.loop).result(seconds + _LATE_S)
            else:
                data = bounded(partial(system.cat_file, path, start=start, end=stop), seconds + _LATE_S)
        note_bytes(self.host, len(data))
        return data

    def _within(self, name: str, start: int | None, stop: int | None, seconds: float, total: int) -> bytes:
        """As `_by_package`; more bytes than the file has are trouble, such as the page of a proxy, which may pass."""
        from rawpack.remote.wire import LongAnswerError

        try:
            return self._by_package(name, start, stop, seconds, total)
        except LongAnswerError as error:
            raise OSError(f"received another file: {error}") from None

    def _at_most(self, size: int) -> AbstractContextManager[None]:
        if not self._is_http:
            return nullcontext()
        from rawpack.remote.answers import at_most

        return at_most(size)


def no_bucket(url: str) -> UsageError:
    return UsageError(f"{shown(url)}: there is no such bucket; check its name and the endpoint")


def stall_s(timeout: float) -> float:
    """Seconds without any byte after which a request is made again."""
    return min(_STALL_S, timeout / 3)


def bounded(call: Callable[[], T], seconds: float) -> T:
    """The result of `call`. Raises TimeoutError where it takes longer; the call is then left to itself."""
    return in_thread(call).result(timeout=seconds)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """The result of `call` in a thread that no exit of the process waits for."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="rawpack-request").start()
    return answer
