"""Answers to fsspec's package for HTTP, whose client reads all that a server sends: here, no more than what was asked
for can have. Loaded where that package is needed, with its client, aiohttp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp

from rawpack.remote.wire import TooLongError

MOST_LISTED = 64 << 20
"""Bytes of the page that lists a folder."""
_MOST_OF_ERRORS = 1 << 20
_most: ContextVar[int] = ContextVar("most", default=MOST_LISTED)
"""Of the requests of this thread: fsspec carries them out in another one, by a copy of this thread's context."""


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Within this block, answers of more than `size` bytes raise TooLongError."""
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`client_kwargs` of fsspec's package for HTTP, with answers that are bounded."""
    return {"response_class": _BoundedAnswer, **options}


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
            raise TooLongError(f"{self._length:,} bytes")
        parts, left = list[bytes](), _MOST_OF_ERRORS if self._most is None else self._most
        while part := await self._body.readany():
            parts.append(part)
            left -= len(part)
            if left < 0 and self._most is not None:
                raise TooLongError(f"more than {self._most:,} bytes")
            if left < 0:
                break
        return b"".join(parts)
