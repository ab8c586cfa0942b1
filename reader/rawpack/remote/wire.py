"""The plain answer of a server, straight into the caller's memory: HTTP by the standard library, in the calling thread.

It takes a third of the CPU time of fsspec's package for S3, and three quarters of that for HTTP. Whatever is not plain
(a redirect, any error, a server without ranges) is an error here, and for those packages to deal with, so that results
and errors are always theirs.
"""

from __future__ import annotations

import io
import os
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

_READ = 256 << 10
_CONNECT_S = 10.0
_UNESCAPED = "/%:=&?~+!$,;'@()*[]"
"""Characters of a URL that stay as they are; with others, fsspec's packages ask for it in the same way."""
PLAIN_ERRORS = (OSError, HTTPException, ValueError)
"""What the functions here raise, besides the two below and what `Arrived` raises."""
Arrived = Callable[[int, float], object]
"""Called with the number of bytes whenever some have arrived, and how many seconds they were waited for."""


class BusyServerError(Exception):
    """A server wants to be asked again later: it has `Retry-After` in its `headers`."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"status {status}, {reason}")
        self.status, self.headers = status, headers


class TooLongError(Exception):
    """An answer that is longer than what was asked for can be."""


class Wire:
    """Requests to any servers, over connections that are kept from one to the next. Any number of threads may use one;
    a forked child has connections of its own."""

    def __init__(self, timeout: float) -> None:
        """timeout: seconds without any byte after which a request fails."""
        self._timeout, self._process = timeout, os.getpid()
        self._idle: dict[tuple[str, str], list[HTTPConnection]] = {}
        """By scheme and host. Changed by single operations on lists: a lock might be held by another thread when a
        process is forked."""
        weakref.finalize(self, _close, self._idle).atexit = False

    def read(self, url: str, headers: Mapping[str, str], most: int, arrived: Arrived) -> tuple[bytes, bool]:
        """All bytes of a file, and whether the server says that it knows ranges. Raises TooLongError where they are
        more than `most`."""
        with self._answer(url, headers, arrived) as response:
            if response.status != 200 or response.length is None:
                raise HTTPException(f"status {response.status}, length {response.length}")
            if response.length > most:
                raise TooLongError(f"{response.length:,} bytes")
            return response.read(), response.getheader("Accept-Ranges") == "bytes"

    def read_range(
        self,
        url: str,
        headers: Mapping[str, str],
        start: int,
        into: memoryview,
        wanted: Callable[[], bool],
        arrived: Arrived,
    ) -> int:
        """Receive the bytes from `start` on. Returns how many came: all that `into` has room for, unless the connection
        broke, or `wanted`, which is called now and then, returned False. At least one."""
        size, done, span = len(into), 0, f"{start}-{start + len(into) - 1}"
        try:
            with self._answer(url, {**headers, "Range": f"bytes={span}"}, arrived) as response:
                there = response.status == 206 and response.getheader("Content-Range", "").startswith(f"bytes {span}/")
                whole = response.status == 200 and not start
                if response.length != size or not (whole or there):
                    raise HTTPException(f"status {response.status}, length {response.length}")
                while done < size and (not done or wanted()):
                    count = response.readinto(into[done : done + _READ])
                    if not count:
                        raise HTTPException(f"{done} of {size} bytes came")
                    done += count
        except PLAIN_ERRORS:
            if not done:
                raise
        return done

    @contextmanager
    def _answer(self, url: str, headers: Mapping[str, str], arrived: Arrived) -> Iterator[HTTPResponse]:
        """The answer to a request. Its connection is kept if all of it was read. Raises BusyServerError."""
        split, response = urlsplit(url), None
        key = split.scheme, split.netloc
        target = quote(split.path or "/", _UNESCAPED) + ("?" + quote(split.query, _UNESCAPED) if split.query else "")
        while response is None:
            kept = self._take(key)
            connection = kept or self._connection(*key)
            connection.response_class = partial(_Response, arrived)  # type: ignore[assignment]
            try:
                connection.request("GET", target, headers={"User-Agent": "rawpack", **headers})
                response = connection.getresponse()
            except BaseException as error:
                connection.close()
                # Servers close what was idle for long; that says nothing about the next connection.
                if not (kept and isinstance(error, ConnectionError)):
                    raise
        try:
            if response.status in (429, 503) and response.getheader("Retry-After"):
                raise BusyServerError(response.status, response.reason, dict(response.getheaders()))
            if response.getheader("Content-Encoding", "identity") != "identity":
                raise HTTPException("encoded")
            yield response
        finally:
            if response.isclosed() and connection.sock is not None:
                connection.response_class = HTTPResponse  # it keeps nobody alive who was told of bytes
                self._idle.setdefault(key, []).append(connection)
            else:
                connection.close()

    def _take(self, key: tuple[str, str]) -> HTTPConnection | None:
        """A connection to a server that is kept; None if there is none."""
        if os.getpid() != self._process:
            _close(self._idle)
            self._process = os.getpid()
        with suppress(KeyError, IndexError):
            return self._idle[key].pop()
        return None

    def _connection(self, scheme: str, host: str) -> HTTPConnection:
        https = scheme.lower() == "https"
        made = HTTPSConnection(host, context=_context()) if https else HTTPConnection(host)
        made.timeout = min(_CONNECT_S, self._timeout)
        made.connect()
        made.sock.settimeout(self._timeout)
        return made


class _Response(HTTPResponse):
    """An answer whose bytes are noted as they arrive, those of its headers too: a timeout of a socket ends only what
    sends nothing at all."""

    def __init__(self, arrived: Arrived, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fp = io.BufferedReader(_Watched(self.fp.detach(), arrived))


class _Watched(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, arrived: Arrived) -> None:
        self._raw, self._arrived = raw, arrived

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        began = time.monotonic()
        count = self._raw.readinto(buffer)
        self._arrived(count or 0, time.monotonic() - began)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _close(idle: dict[tuple[str, str], list[HTTPConnection]]) -> None:
    for connections in list(idle.values()):
        while connections:
            connections.pop().close()
