"""Pieces of remote files: in order, within limits, the urgent file's first, whatever fails on the way."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from rawpack.remote import pieces
from rawpack.remote.pieces import Pieces, Requests


@dataclass
class Served:
    """A file of random bytes. Its requests stay open until `answer` is called, or are answered by `reply`."""

    data: bytes
    reply: Callable[[int, int], bytes] | None = None
    seconds: float = 5.0
    has_ranges: bool = True
    open: list[tuple[int, int, Future[bytes]]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.data)

    def ask(self, start: int, stop: int, seconds: float) -> Future[bytes]:
        future: Future[bytes] = Future()
        self.asked.append((start, stop))
        if self.reply is None:
            self.open.append((start, stop, future))
        else:
            future.set_running_or_notify_cancel()
            threading.Thread(target=self._reply, args=(start, stop, future)).start()
        return future

    def _reply(self, start: int, stop: int, future: Future[bytes]) -> None:
        assert self.reply is not None
        try:
            future.set_result(self.reply(start, stop))
        except Exception as error:
            future.set_exception(error)

    def check(self, data: bytes, start: int, stop: int) -> bytes:
        return data

    def answer(self) -> None:
        """The oldest open request gets its bytes."""
        start, stop, future = self.open.pop(0)
        future.set_result(self.data[start:stop])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 100 bytes, of which a file may have 8 at once and all files 10."""
    monkeypatch.setattr(pieces, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(pieces, "_LEAST_BYTES", 80)
    monkeypatch.setattr(pieces, "_MOST_BYTES", 1000)
    monkeypatch.setattr(pieces, "_PIECES", 10)
    monkeypatch.setattr(pieces, "_FIRST_SIZES", 1)
    monkeypatch.setattr(pieces, "_QUICK_S", 0.0)


def bytes_of(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def read(file: Pieces, total: int) -> bytes:
    """All bytes, as a download takes them: what fails is asked again."""
    data = b""
    file.start(0)
    while len(data) < total:
        try:
            data += file.next() or b""
        except OSError as error:
            with file.failed(isinstance(error, TimeoutError)):
                pass
    return data


def test_many_files_at_once() -> None:
    """Every file arrives intact, though answers come in any order and some fail, and no limit is exceeded."""
    lock, under_way, most = threading.Lock(), [0, 0], [0, 0]
    chance = random.Random(5)

    def reply(data: bytes, start: int, stop: int) -> bytes:
        with lock:
            under_way[0] += 1
            under_way[1] += stop - start
            most[:] = map(max, most, under_way)
        time.sleep(chance.random() * 0.005)
        with lock:
            under_way[0] -= 1
            under_way[1] -= stop - start
        if chance.random() < 0.2:
            raise ConnectionError
        return data[start:stop]

    requests = Requests()

    def fetch(seed: int) -> bool:
        data = bytes_of(seed * 397, seed)
        source = Served(data, lambda start, stop: reply(data, start, stop))
        with requests.pieces(source, lambda: seed % 3 == 0) as file:
            return read(file, len(data)) == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fetch, range(1, 30)))
    # What failed is requested again at once: one piece for each file.
    assert most[0] <= 10 + 8
    assert most[1] <= 1000 + 8 * 100
    assert most[0] >= 8


def test_the_urgent_file_first() -> None:
    """All room goes to the file that is needed now, as soon as there is any; and to the oldest of the others."""
    requests, urgent = Requests(), [False]
    first, second, third = (Served(bytes_of(5000, seed)) for seed in range(3))
    with (
        requests.pieces(first, lambda: False) as one,
        requests.pieces(second, lambda: False) as two,
        requests.pieces(third, lambda: urgent[0]) as three,
    ):
        for file in (one, two, three):
            file.start(0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.next)
            while not first.open:
                time.sleep(0.001)
            assert [len(served.asked) for served in (first, second, third)] == [8, 2, 0]
            urgent[0] = True
            first.answer()
            assert waiting.result() == first.data[:100]
            assert [len(served.asked) for served in (first, second, third)] == [8, 2, 1]
            first.answer()
            assert one.next() == first.data[100:200]
            assert [len(served.asked) for served in (first, second, third)] == [8, 2, 2]


def test_what_failed_does_not_wait_for_what_comes_after_it() -> None:
    """A file whose answers after the first keep all room still gets the first."""
    data, failures = bytes_of(2000, 1), [5]

    def reply(start: int, stop: int) -> bytes:
        if start == 0 and failures[0]:
            failures[0] -= 1
            raise ConnectionError
        return data[start:stop]

    requests = Requests()
    others = [Served(bytes_of(1000, seed)) for seed in (2, 3)]
    source = Served(data, reply)
    with requests.pieces(source, lambda: False) as file:
        file.start(0)
        with requests.pieces(others[0], lambda: True) as other:
            other.start(0)
            assert read(file, len(data)) == data
    assert failures == [0]


def test_smaller_pieces_after_a_timeout() -> None:
    """A request that timed out is repeated in pieces that a slow link can deliver in time."""
    data = bytes_of(1000, 1)

    def reply(start: int, stop: int) -> bytes:
        if stop - start > 30:
            raise TimeoutError
        return data[start:stop]

    source = Served(data, reply)
    with Requests().pieces(source, lambda: False) as file:
        assert read(file, len(data)) == data
    assert source.asked[0] == (0, 100)
    assert all(stop - start <= 100 for start, stop in source.asked)


def test_the_first_pieces_end_at_different_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pieces of several files, which begin together, have different sizes; later ones have full size."""
    monkeypatch.setattr(pieces, "_FIRST_SIZES", 4)
    requests, source, other = Requests(), Served(bytes_of(1000, 1)), Served(b"")
    with (
        requests.pieces(other, lambda: False),
        requests.pieces(source, lambda: False) as file,
        ThreadPoolExecutor(1) as pool,
    ):
        file.start(0)
        waiting = pool.submit(file.next)
        while len(source.asked) < 8:
            time.sleep(0.001)
        assert [stop - start for start, stop in source.asked] == [25, 50, 75, 100] * 2
        source.answer()
        assert waiting.result() == source.data[:25]
        assert source.asked[8:] == [(500, 600)]
        source.reply = lambda start, stop: source.data[start:stop]
        while source.open:
            source.answer()
        data = source.data[:25]
        while len(data) < 1000:
            data += file.next() or b""
        assert data == source.data


def test_one_request_until_ranges_are_known() -> None:
    """A server that answers whole files is not asked for several at once."""
    source = Served(bytes_of(1000, 1), has_ranges=False)
    with Requests().pieces(source, lambda: False) as file, ThreadPoolExecutor(1) as pool:
        file.start(0)
        waiting = pool.submit(file.next)
        while not source.open:
            time.sleep(0.001)
        assert source.asked == [(0, 100)]
        source.has_ranges = True
        source.answer()
        assert waiting.result() == source.data[:100]
        assert len(source.asked) == 9


def test_room_comes_back() -> None:
    """A file that is given up in the middle leaves its room to others, and its requests are canceled."""
    requests, left, kept = Requests(), Served(bytes_of(1000, 1)), Served(bytes_of(300, 2))
    with requests.pieces(left, lambda: False) as file:
        file.start(0)
        assert requests.first(file) is not None
    assert all(future.cancelled() for _, _, future in left.open)
    kept.reply = lambda start, stop: kept.data[start:stop]
    with requests.pieces(kept, lambda: False) as file:
        assert read(file, 300) == kept.data
