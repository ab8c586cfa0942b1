"""Attempts at a file behind a URL: what an error means, whether and when another request is made, and when a server is
too slow."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from rawpack.errors import RawpackError, StoreError
from rawpack.remote.reach import (
    asked_to_wait,
    bytes_from,
    causes,
    is_lost,
    is_of_connection,
    note_answer,
    note_bytes,
)

if TYPE_CHECKING:
    from rawpack.remote.transfer import Remote

SLOWEST = 4096
"""Bytes a second that a server must send, all requests together, while a file is waited for as long as the timeout.
Not those of one request: on a slow link, dozens share it."""
_PAUSE_S, _MOST_PAUSE_S = 0.1, 10.0
_LOOK_EVERY_S = 0.5
"""How often a pause checks whether the file is still wanted."""
_chance = random.Random()
"""Not the module's own numbers, which are the user's: a seed must give the same ones whatever the network does."""
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_FINAL = {"TooManyRedirects", "LongAnswerError", "MemoryError"}
"""Errors that the same request would meet again."""
_NO_CREDENTIALS = re.compile("Credential|ProfileNotFound|TokenRetrieval|SSOToken")


class Attempts:
    def __init__(
        self, remote: Remote, name: str, done: str = "read", wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """done: what is tried with the file, for messages. wanted: whether it still is, asked during pauses."""
        self._remote, self._name, self._done, self._wanted = remote, name, done, wanted
        self._began, self._failed = time.monotonic(), 0
        self._waited, self._arrived_at, self._before = 0.0, self._began, bytes_from(remote.host)

    def arrived(self, count: int, seconds: float) -> None:
        """Called with bytes that have arrived, and the seconds that they were waited for. Raises StoreError where all
        that the server sent within the timeout is too little."""
        note_bytes(self._remote.host, count)
        now = time.monotonic()
        # Threads that wait for parts of one file wait at the same time.
        self._waited += min(seconds, now - self._arrived_at)
        self._arrived_at = now
        if self._waited < self._remote.timeout:
            return
        sent, waited = bytes_from(self._remote.host) - self._before, self._waited
        if sent < SLOWEST * waited:
            raise StoreError(
                f"{self._remote.where(self._name)} comes too slowly: its server sent {sent:,} bytes in {waited:.0f} s, "
                f"and must send {SLOWEST:,} a second; check the network and the server"
            )
        self._waited, self._before = 0.0, bytes_from(self._remote.host)

    def progressed(self) -> None:
        """Something arrived: the timeout begins again."""
        self._began, self._failed = time.monotonic(), 0
        self._remote.trouble = ""
        note_answer(self._remote.host)

    def failed(self, error: Exception) -> None:
        """Wait until it is time to retry. Raises StoreError or FileNotFoundError where a retry is useless."""
        if isinstance(error, RawpackError):
            raise error
        if not is_of_connection(error) and not isinstance(error, TimeoutError):
            note_answer(self._remote.host)  # with an error, but it is there
        self._remote.trouble = self._remote.reason(error)
        past, kind = time.monotonic() - self._began, meaning(error)
        if kind == "missing":
            raise FileNotFoundError(self._remote.where(self._name)) from None
        if kind != "trouble" or is_lost(self._remote.host, error, past) or past >= self._remote.timeout:
            raise self._remote.error(self._name, error, past, self._done) from None
        pause = min(_MOST_PAUSE_S, _PAUSE_S * 2**self._failed) * _chance.uniform(0.5, 1.5)
        self._failed += 1
        self._pause(min(max(pause, asked_to_wait(error) or 0.0), max(0.0, self._remote.timeout - past)))

    def _pause(self, seconds: float) -> None:
        while seconds > 0 and self._wanted():
            time.sleep(min(seconds, _LOOK_EVERY_S))
            seconds -= _LOOK_EVERY_S


def meaning(error: BaseException) -> Literal["missing", "forbidden", "options", "refused", "trouble"]:
    """What an error says: there is no such file; credentials are the problem; a file system did not accept its options;
    the request itself is wrong; or else trouble, for which alone a retry may help."""
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return "missing"
    if isinstance(error, TypeError | ValueError) and not is_of_connection(error):
        return "options"
    credentials = isinstance(error, PermissionError) or _NO_CREDENTIALS.search(type(error).__name__)
    if credentials or status in (401, 403, 407):
        return "forbidden"
    if isinstance(error, NotImplementedError | ImportError) or is_bucketless(error) or status in (400, 405, 501):
        return "refused"
    if type(error).__name__ in _FINAL:
        return "refused"
    return "trouble"


def is_bucketless(error: BaseException) -> bool:
    """Whether a request failed because its bucket does not exist."""
    for one in causes(error):
        response = getattr(one, "response", None)
        about = response.get("Error") if isinstance(response, Mapping) else None
        if _NO_BUCKET.search(f"{one} {about.get('Code') if isinstance(about, Mapping) else ''}"):
            return True
    return False
