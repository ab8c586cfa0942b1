"""The plain answer of a server, straight into the caller's memory: HTTP by the standard library, in the calling thread.

It takes half of the CPU time of fsspec's packages or less. Whatever is not plain (a redirect, any error, a server
without ranges) is an error here, and for those packages to deal with, so that results and errors are always theirs.
"""

from __future__ import annotations

import os
import ssl
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import quote, urlsplit

_READ = 256 << 10
_CONNECT_S = 10.0
_UNESCAPED = "/%:=&?~+!$,;'@()*[]"
"""Characters of a URL that stay as they are; with others, fsspec's packages ask for it in the same way."""

_Key = tuple[str, str]
"""Scheme, and host with port."""
PLAIN_ERRORS = (OSError, HTTPException, ValueError)
"""What the functions here raise."""


class Connections:
    """Connections, kept from one request to the next. Any number of threads may use one; a forked child has its own."""

    def __init__(self) -> None:
        self._idle: dict[_Key, list[HTTPConnection]] = {}
        """Changed by single operations on lists: a lock might be held by another thread when a process is forked."""
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle).atexit = False

    def take(self, key: _Key) -> HTTPConnection | None:
        """One that is kept for this server; None if there is none."""
        if os.getpid() != self._process:
            _close(self._idle)
            self._process = os.getpid()
        with suppress(KeyError, IndexError):
            return self._idle[key].pop()
        return None

    def keep(self, key: _Key, connection: HTTPConnection) -> None:
        """Keep one whose answer was read to its end."""
        if connection.sock is not None:
            self._idle.setdefault(key, []).append(connection)


class Wire:
    """Requests to one server, over connections that others may share."""

    def __init__(self, timeout: float, headers: Mapping[str, str], connections: Connections) -> None:
        """timeout: seconds without any byte after which a request fails. headers: of each request."""
        self._timeout, self._headers = timeout, {"User-Agent": "rawpack", **headers}
        self._connections = connections
        self.says_ranges = False
        """Whether the server has said that it knows ranges."""

    def read(self, url: str) -> bytes:
        """All bytes of a file."""
        key, connection, response = self._ask(url, {})
        try:
            if response.status != 200 or response.length is None:
                raise HTTPException(f"status {response.status}, length {response.length}")
            data = response.read()
        except BaseException:
            connection.close()
            raise
        self._connections.keep(key, connection)
        return data

    def read_range(self, url: str, start: int, into: memoryview, wanted: Callable[[], bool]) -> int:
        """Receive the bytes from `start` on. Returns how many came: all that `into` has room for, unless the connection
        broke, or `wanted`, which is called now and then, returned False. At least one."""
        size, done = len(into), 0
        key, connection, response = self._ask(url, {"Range": f"bytes={start}-{start + size - 1}"})
        try:
            there = response.getheader("Content-Range", "").startswith(f"bytes {start}-{start + size - 1}/")
            whole = response.status == 200 and not start
            if response.length != size or not (whole or (response.status == 206 and there)):
                raise HTTPException(f"status {response.status}, length {response.length}")
            while done < size and (not done or wanted()):
                count = response.readinto(into[done : done + _READ])
                if not count:
                    raise HTTPException(f"{done} of {size} bytes came")
                done += count
        except PLAIN_ERRORS:
            connection.close()
            if not done:
                raise
            return done
        if done == size:
            self._connections.keep(key, connection)
        else:
            connection.close()
        return done

    def _ask(self, url: str, headers: Mapping[str, str]) -> tuple[_Key, HTTPConnection, HTTPResponse]:
        split = urlsplit(url)
        key = split.scheme, split.netloc
        target = quote(split.path or "/", _UNESCAPED) + ("?" + quote(split.query, _UNESCAPED) if split.query else "")
        while True:
            kept = self._connections.take(key)
            connection = kept or self._connection(*key)
            try:
                connection.request("GET", target, headers={**self._headers, **headers})
                response = connection.getresponse()
            except BaseException as error:
                connection.close()
                # Servers close what was idle for long; that says nothing about the next connection.
                if kept and isinstance(error, ConnectionError):
                    continue
                raise
            if response.getheader("Content-Encoding", "identity") != "identity":
                connection.close()
                raise HTTPException("encoded")
            self.says_ranges |= response.getheader("Accept-Ranges") == "bytes" or response.status == 206
            return key, connection, response

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


def _close(idle: dict[_Key, list[HTTPConnection]]) -> None:
    for connections in list(idle.values()):
        while connections:
            connections.pop().close()
