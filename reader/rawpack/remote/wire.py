"""The plain answer of a server, straight into the caller's memory: HTTP by the standard library, in the calling thread.

It takes a third of the CPU time of fsspec's package for S3, and three quarters of that for HTTP. Whatever is not plain
(a redirect, any error, a server without ranges) is an error here, and for those packages to deal with, so that results
and errors are always theirs.
"""

from __future__ import annotations

import os
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import quote, urlsplit

_READ = 256 << 10
_CONNECT_S = 10.0
_UNESCAPED = "/%:=&?~+!$,;'@()*[]"
"""Characters of a URL that stay as they are; with others, fsspec's packages ask for it in the same way."""
PLAIN_ERRORS = (OSError, HTTPException, ValueError)
"""What the functions here raise."""


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

    def read(self, url: str, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        """All bytes of a file, and whether the server says that it knows ranges."""
        with self._answer(url, headers) as response:
            if response.status != 200 or response.length is None:
                raise HTTPException(f"status {response.status}, length {response.length}")
            return response.read(), response.getheader("Accept-Ranges") == "bytes"

    def read_range(
        self, url: str, headers: Mapping[str, str], start: int, into: memoryview, wanted: Callable[[], bool]
    ) -> int:
        """Receive the bytes from `start` on. Returns how many came: all that `into` has room for, unless the connection
        broke, or `wanted`, which is called now and then, returned False. At least one."""
        size, done, span = len(into), 0, f"{start}-{start + len(into) - 1}"
        try:
            with self._answer(url, {**headers, "Range": f"bytes={span}"}) as response:
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
    def _answer(self, url: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """The answer to a request. Its connection is kept if all of it was read."""
        split, response = urlsplit(url), None
        key = split.scheme, split.netloc
        target = quote(split.path or "/", _UNESCAPED) + ("?" + quote(split.query, _UNESCAPED) if split.query else "")
        while response is None:
            kept = self._take(key)
            connection = kept or self._connection(*key)
            try:
                connection.request("GET", target, headers={"User-Agent": "rawpack", **headers})
                response = connection.getresponse()
            except BaseException as error:
                connection.close()
                # Servers close what was idle for long; that says nothing about the next connection.
                if not (kept and isinstance(error, ConnectionError)):
                    raise
        try:
            if response.getheader("Content-Encoding", "identity") != "identity":
                raise HTTPException("encoded")
            yield response
        finally:
            if response.isclosed() and connection.sock is not None:
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


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _close(idle: dict[tuple[str, str], list[HTTPConnection]]) -> None:
    for connections in list(idle.values()):
        while connections:
            connections.pop().close()
