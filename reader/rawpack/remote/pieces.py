"""The requests for pieces of files: enough of them at once for the link to be busy, those of the most urgent file
first."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

MOST_REQUESTS, _MOST_OF_A_FILE = 32, 8
"""Requests that wait for their answers at the same time: for all files together, and for one."""
_FIRST_BYTES, _LEAST_BYTES, _MOST_BYTES = 16 << 20, 512 << 10, 64 << 20
"""Bytes that are requested at the same time: at first, and the limits. 100 MB/s with a latency of 100 ms need 10 MB, or
the link is idle; but a slow link must deliver all of them before the requests time out."""
_PIECES, _MOST_PIECE = 8, 2 << 20
"""A piece has this fraction of that limit, and at most this size: for larger ones, the system provides new memory each
time, which takes as long as receiving them."""
_FIRST_SIZES = 8
"""Sizes of the first pieces of several files. Answers of one size that share a link end at the same time, and the link
is idle until the next ones come."""
_QUICK_S = 0.25
_LATE_S = 1.0
"""How long to wait for a request that should have timed out by itself."""


class PieceSource(Protocol):
    """A file that can be requested in pieces."""

    total: int
    """Its bytes."""

    def ask(self, start: int, stop: int, seconds: float) -> Future[bytes]:
        """Begin a request for bytes start..stop-1 that fails with TimeoutError after `seconds`. Raises nothing."""

    def check(self, data: bytes, start: int, stop: int) -> bytes:
        """The bytes from `start` in the answer to such a request. Raises OSError for an answer of a wrong length."""

    @property
    def seconds(self) -> float:
        """How long a request may take."""

    @property
    def has_ranges(self) -> bool:
        """Whether the server is known to answer with the requested bytes and not with the whole file."""


@dataclass(eq=False)
class _Piece:
    start: int
    stop: int
    answer: Future[bytes] | None = None
    """None before it is requested."""
    asked: float = 0.0
    answered: float = 0.0

    @property
    def size(self) -> int:
        return self.stop - self.start

    def note_time(self, _: object) -> None:
        self.answered = time.monotonic()


@dataclass(eq=False)
class Pieces:
    """The pieces of one file, in its order. Used by one thread."""

    _requests: Requests
    source: PieceSource
    urgent: Callable[[], bool]
    """Whether the file is needed now. Takes no lock."""
    asked: threading.Condition
    """Notified when a piece is requested. Its lock is that of `Requests`."""
    queue: deque[_Piece] = field(default_factory=deque)
    """Those that are requested or will be next."""
    end: int = 0
    """Where the last of them ends."""
    paused: bool = True
    """Whether nothing is requested now."""

    def start(self, start: int) -> None:
        """Begin at this byte, or begin again."""
        self._requests.start(self, start)

    def next(self) -> bytes | None:
        """The next bytes; None if there was no room for a request within a second. After an error, call `failed`."""
        piece = self._requests.first(self)
        if piece is None:
            return None
        assert piece.answer is not None
        data = piece.answer.result(max(0.0, piece.asked + self.source.seconds + _LATE_S - time.monotonic()))
        data = self.source.check(data, piece.start, piece.stop)
        if len(data) > piece.size:
            self.end = self.source.total  # the server has sent the whole file
        self._requests.received(self)
        return data

    @contextmanager
    def failed(self, timed_out: bool) -> Iterator[None]:
        """`next` failed: request that piece again after the block, in smaller pieces if it timed out. Nothing else of
        the file is requested before."""
        self._requests.failed(self, timed_out)
        yield
        self.paused = False


class Requests:
    """The requests for all files that are downloaded together. Any number of threads may use one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: list[Pieces] = []
        """In the order in which they were begun."""
        self._count = self._bytes = 0
        """Of the requests whose answers were not taken yet."""
        self._limit = _FIRST_BYTES
        self._limit_since = 0.0
        self._answered = False

    @contextmanager
    def pieces(self, source: PieceSource, urgent: Callable[[], bool]) -> Iterator[Pieces]:
        """The pieces of one more file, as long as the block runs."""
        file = Pieces(self, source, urgent, threading.Condition(self._lock))
        with self._lock:
            self._files.append(file)
        try:
            yield file
        finally:
            with self._lock:
                self._files.remove(file)
                self._forget(file)
                self._fill()

    def first(self, file: Pieces) -> _Piece | None:
        """The first piece of a file once it is requested; None if that takes longer than a second."""
        with self._lock:
            self._fill()
            file.asked.wait_for(lambda: file.queue and file.queue[0].answer is not None, 1.0)
            return file.queue[0] if file.queue and file.queue[0].answer is not None else None

    def received(self, file: Pieces) -> None:
        """The first piece of a file was taken."""
        with self._lock:
            piece = file.queue.popleft()
            self._release(piece)
            self._answered = True
            # `note_time` may not have run yet. A much smaller piece says nothing about the link.
            quick = (piece.answered or time.monotonic()) - piece.asked < _QUICK_S
            if quick and piece.size >= self._piece // 4:
                self._resize(piece, 2)
            self._fill()

    def failed(self, file: Pieces, timed_out: bool) -> None:
        """The first piece of a file failed."""
        with self._lock:
            file.paused = True
            piece = file.queue.popleft()
            self._release(piece)
            if timed_out:
                self._resize(piece, 0.25)
            starts = range(piece.start, piece.stop, self._piece)
            smaller = [_Piece(start, min(start + starts.step, piece.stop)) for start in starts]
            file.queue.extendleft(reversed(smaller))

    def start(self, file: Pieces, start: int) -> None:
        """See `Pieces.start`."""
        with self._lock:
            self._forget(file)
            file.end, file.paused = start, False

    def _forget(self, file: Pieces) -> None:
        while file.queue:
            self._release(file.queue.pop())

    def _fill(self) -> None:
        """Begin the requests for which there is room. Within the lock."""
        while (found := self._best()) is not None:
            file, piece = found
            if piece.start >= file.end:
                file.queue.append(piece)
                file.end = piece.stop
            self._count += 1
            self._bytes += piece.size
            piece.asked = time.monotonic()
            piece.answer = file.source.ask(piece.start, piece.stop, file.source.seconds)
            piece.answer.add_done_callback(piece.note_time)
            file.asked.notify()

    def _best(self) -> tuple[Pieces, _Piece] | None:
        """What to request next."""
        room = self._count < MOST_REQUESTS
        for file in sorted(self._files, key=lambda file: not file.urgent()):
            piece = self._next(file)
            if piece is None:
                continue
            if file.queue and piece is file.queue[0]:
                # It failed before. Those after it keep their room until it comes, so it must not wait for any.
                return file, piece
            room = room and (not self._count or self._bytes + piece.size <= self._limit)
            if room:
                return file, piece
        return None

    def _next(self, file: Pieces) -> _Piece | None:
        """The piece of a file to request next."""
        asked = sum(piece.answer is not None for piece in file.queue)
        if file.paused or (asked and not file.source.has_ranges):
            return None
        if asked < len(file.queue):
            return next(piece for piece in file.queue if piece.answer is None)
        if asked == _MOST_OF_A_FILE or file.end >= file.source.total:
            return None
        sizes = 1 if self._answered or len(self._files) == 1 else _FIRST_SIZES
        size = self._piece * (1 + self._count % sizes) // sizes
        return _Piece(file.end, min(file.end + size, file.source.total))

    @property
    def _piece(self) -> int:
        return min(_MOST_PIECE, self._limit // _PIECES)

    def _release(self, piece: _Piece) -> None:
        if piece.answer is not None:
            piece.answer.cancel()
            self._count -= 1
            self._bytes -= piece.size

    def _resize(self, piece: _Piece, times: float) -> None:
        """Change the limit, once for all requests that were begun before."""
        if piece.asked > self._limit_since:
            self._limit = min(_MOST_BYTES, max(_LEAST_BYTES, int(self._limit * times)))
            self._limit_since = time.monotonic()
