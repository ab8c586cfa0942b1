"""The session of fsspec's package for HTTP: of what a server sends, it reads no more than what was asked for can have,
and what was given for one host goes to no other. Loaded where that package is needed, with its client, aiohttp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp

from rawpack.remote.wire import LongAnswerError

MOST_LISTED = 64 << 20
"""Bytes of the page that lists a folder."""
_MOST_OF_ERRORS = 1 << 20
_PLAIN_HEADERS = {"accept", "accept-encoding", "range", "user-agent"}
"""Headers that another host gets, too."""
_most: ContextVar[int] = ContextVar("most", default=MOST_LISTED)
"""The limit for requests of this thread: fsspec makes them in another thread, by a copy of this one's context."""


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Within this block, answers of more than `size` bytes raise LongAnswerError."""
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


def client_for(options: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that makes the session: `get_client` of fsspec's package for HTTP. options: all its other ones."""
    session = options.get("client_kwargs") or {}
    # aiohttp sends cookies and the session's own login wherever it is redirected to.
    stays = not {"cookies", "cookie_jar"}.isdisjoint({*options, *session}) or "auth" in session
    return _client_of_one_host if stays else _client


async def _client(**options: Any) -> aiohttp.ClientSession:
    """A session that sends no other host what was given for the first one."""
    return _redirected_by(_redirected, options)


async def _client_of_one_host(**options: Any) -> aiohttp.ClientSession:
    """A session that is redirected to no other host."""
    return _redirected_by(_not_redirected, options)


def _redirected_by(redirected: Any, options: dict[str, Any]) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(redirected)
    traces = [*(options.get("trace_configs") or ()), trace]
    return aiohttp.ClientSession(**{"response_class": _BoundedAnswer} | options | {"trace_configs": traces})


async def _redirected(session: Any, context: Any, about: Any) -> None:
    """Take all but plain headers off a request that goes to another host; aiohttp takes `Authorization` alone."""
    if _leads_elsewhere(about):
        for name in {*map(str, about.headers)}:
            if name.lower() not in _PLAIN_HEADERS:
                about.headers.popall(name, None)


async def _not_redirected(session: Any, context: Any, about: Any) -> None:
    if _leads_elsewhere(about):
        raise PermissionError(
            "it is redirected to another host, where the cookies or the login of storage_options= must not go"
        )


def _leads_elsewhere(about: Any) -> bool:
    """Whether a redirect leads to another host, port or scheme, other than from HTTP to HTTPS."""
    here, headers = about.url, about.response.headers
    # As aiohttp reads it, which follows `URI` too.
    target = here.join(type(here)(headers.get("Location") or headers.get("URI") or ""))
    secured = here.scheme == "http" and target.scheme == "https"
    secured = secured and here.is_default_port() and target.is_default_port()
    return bool(here.host != target.host or (here.origin() != target.origin() and not secured))


class _BoundedAnswer(aiohttp.ClientResponse):
    async def start(self, *args: Any, **options: Any) -> aiohttp.ClientResponse:
        await super().start(*args, **options)
        most = _most.get() if self.status < 400 else None
        self.content = _BoundedBody(self.content, most, self.content_length)  # type: ignore[assignment]
        return self


class _BoundedBody:
    """The body of an answer: aiohttp's, of which `read` is bounded."""

    def __init__(self, body: aiohttp.StreamReader, most: int | None, length: int | None) -> None:
        """most: None for what an error says, of which the beginning is enough. length: what the server says."""
        self._body, self._most, self._length = body, most, length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def read(self, count: int = -1) -> bytes:
        if count >= 0:
            return await self._body.read(count)
        if self._most is not None and self._length is not None and self._length > self._most:
            raise LongAnswerError(f"{self._length:,} bytes")
        parts, left = list[bytes](), _MOST_OF_ERRORS if self._most is None else self._most
        while part := await self._body.readany():
            parts.append(part)
            left -= len(part)
            if left < 0 and self._most is not None:
                raise LongAnswerError(f"more than {self._most:,} bytes")
            if left < 0:
                break
        return b"".join(parts)
