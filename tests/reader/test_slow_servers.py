"""Servers without an end: those that send a byte now and then, more than they were asked for, or one address after
another; and those that ask to come back later. Each ends in an error that says so, or is waited for as it asks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="rawpack[remote] is not installed: no aiohttp")
pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from running import run_here
from store_server import Fault, Request, Server, on, serving

from rawpack import StoreError
from rawpack.disk.manifest import FileRecord
from rawpack.remote import attempts, reach, wire
from rawpack.remote.attempts import Attempts
from rawpack.remote.download import Transfer
from rawpack.remote.transfer import Remote

DATA = random.Random(0).randbytes(40_000)
NAME = "store/file.npy"
MOST = 100_000
"""Bytes of what is read in tests; see `Remote.read`."""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        started.files[NAME] = DATA
        yield started


def read(server: Server, timeout: float = 5.0) -> bytes:
    """A file that is read at once, as a manifest is."""
    return Remote(f"{server.url}/store", {}, timeout).read("file.npy", lambda data: None, MOST)


def download_from(server: Server, folder: Path, timeout: float = 5.0) -> bytes:
    """A file of known size, as a shard is."""
    record = FileRecord(name="file.npy", bytes=len(DATA), xxh3="")
    with (folder / "part").open("w+b", buffering=0) as file:
        Transfer(Remote(f"{server.url}/store", {}, timeout), "file.npy", record, file.fileno()).run()
    return (folder / "part").read_bytes()


# ---------------------------------------------------------------------------------------------- too slow


def drips(headers: bool = False) -> Fault:
    """The right answer, or the header before it, a byte each 10 ms."""

    def fault(request: Request) -> bool:
        if headers:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-One: ")
            data = b"a" * 60_000
        else:
            request.partly(b"", len(data := request.wanted()))
        for byte in data:
            if request.server_state.ended.wait(0.01):
                break
            request.wfile.write(bytes([byte]))
        return True

    return fault


@pytest.mark.parametrize(("how", "headers"), [("read", True), ("read", False), ("download", False)])
def test_a_byte_now_and_then_is_an_error(
    server: Server, tmp_path: Path, how: str, headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout without any byte never comes; the error has the URL, how much came, and what must come. A small file
    that comes in time is none."""
    server.faults.append(drips(headers))
    if not headers:
        server.files[NAME] = DATA[:10]
        assert read(server) == DATA[:10]
        server.files[NAME] = DATA
        server.log.clear()
    # However fast this machine is, each look at the clock is a second after the last one.
    clock = SimpleNamespace(monotonic=partial(next, count(0.0)))
    for module in (attempts, wire):
        monkeypatch.setattr(module, "time", clock)
    with pytest.raises(StoreError, match=r"/store/file\.npy comes too slowly: .* sent \d+ bytes in 30 s, .* 4,096 a"):
        read(server, 30.0) if how == "read" else download_from(server, tmp_path, 30.0)
    assert len(server.log) == 1


def clocked(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of attempts, which goes on only where somebody sleeps, or a test says so."""
    clock = SimpleNamespace(now=100.0, slept=[])

    def sleep(seconds: float) -> None:
        clock.now += seconds
        clock.slept.append(seconds)

    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    monkeypatch.setattr(reach, "time", SimpleNamespace(time=lambda: clock.now))
    return clock


@pytest.mark.parametrize(("rate", "ends", "others"), [(4000, True, 0), (4200, False, 31), (4000, True, 31)])
def test_the_lowest_rate_is_that_of_all_requests_together(
    rate: int, ends: bool, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow link, each of 32 requests gets a 32nd; and threads that wait for one file wait once."""
    clock = clocked(monkeypatch)
    remote = Remote("http://127.0.0.1:9/store", {}, 120.0)
    monkeypatch.setitem(reach._bytes, remote.host, 0)
    file, beside = Attempts(remote, "file.npy"), [Attempts(remote, f"{k}.npy") for k in range(others)]

    def for_ten_minutes() -> None:
        for _ in range(600):
            clock.now += 1
            for one in (file, *beside):
                one.arrived(rate // (1 + others), 1.0)
                one.arrived(0, 1.0)

    if ends:
        with pytest.raises(StoreError, match="too slowly"):
            for_ten_minutes()
        assert clock.now == 100 + 120
    else:
        for_ten_minutes()


# ---------------------------------------------------------------------------------------------- too long


def endless(request: Request) -> bool:
    """Bytes until nobody takes them, without a length."""
    request.send_response(200)
    request.send_header("Connection", "close")
    request.end_headers()
    request.close_connection = True
    sent = 0
    try:
        while not request.server_state.ended.is_set():
            request.wfile.write(bytes(1 << 14))
            sent += 1 << 14
    finally:
        SENT.append(sent)
    return True


def absurd(request: Request) -> bool:
    request.reply(200, b"", 1 << 45)
    request.close_connection = True
    return True


SENT = list[int]()
"""What an endless answer came to."""
LONG: dict[str, Fault] = {"endless": endless, "absurd": absurd}


@pytest.mark.parametrize("how", LONG)
def test_an_answer_longer_than_a_manifest_is_an_error_at_once(server: Server, how: str) -> None:
    """It is neither kept in memory nor asked for again, with a length or without one."""
    server.faults.append(LONG[how])
    SENT.clear()
    with pytest.raises(StoreError, match=r"file\.npy cannot be read: its server sends more than it can have.*bytes"):
        read(server)
    assert len(server.log) <= 2
    assert all(sent < 100 * MOST for sent in SENT)  # what sockets hold, besides


@pytest.mark.parametrize("how", LONG)
def test_an_answer_longer_than_the_file_is_retried(server: Server, tmp_path: Path, how: str) -> None:
    """It may be the page of a proxy. What comes of it is bounded by the size in the manifest."""
    server.faults.append(on("file", LONG[how], 2))
    SENT.clear()
    assert download_from(server, tmp_path) == DATA
    assert all(sent < 100 * len(DATA) for sent in SENT)


# ---------------------------------------------------------------------------------------------- elsewhere, or later


def test_redirects_in_a_circle_end_at_once(server: Server, tmp_path: Path) -> None:
    """With the reason, for files and for archives that are looked for."""

    def turns(request: Request) -> bool:
        request.reply(302, Location=f"{request.server_state.url}/store/{len(server.log) % 2}.zip")
        return True

    server.faults.append(turns)
    with pytest.raises(StoreError, match=r"cannot be read: its server redirects from one address to the next"):
        read(server)
    assert len(server.log) <= 12
    ran = run_here("pack", f"{server.url}/store/a.zip", tmp_path / "store")
    assert ran.code == 1
    assert "redirects from one address to the next without an end" in ran.err


def busy(code: int, after: Callable[[], str]) -> Fault:
    def fault(request: Request) -> bool:
        request.reply(code, Retry_After=after())
        return True

    return fault


@pytest.mark.parametrize(
    ("code", "form", "package"),
    [(429, lambda now: "7", False), (503, lambda now: formatdate(now + 7, usegmt=True), True)],
)
def test_a_server_that_asks_for_a_pause_gets_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, code: int, form: Callable[[float], str], package: bool
) -> None:
    """It is asked again after as many seconds as it says, or at the time that it says, and not once before."""
    clock = clocked(monkeypatch)
    server.faults.append(on("file", busy(code, lambda: form(clock.now)), 2))
    options = {"client_kwargs": {"headers": {"X-One": "1"}}} if package else {}
    assert Remote(f"{server.url}/store", options, 60.0).read("file.npy", lambda data: None, MOST) == DATA
    assert len(server.log) == 3
    assert sum(clock.slept) == 2 * 7


@pytest.mark.parametrize("after", ["99999999999999", "soon", "-5"])
def test_no_pause_is_longer_than_the_timeout(server: Server, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Whatever a server asks for; the error says that it is busy."""
    clock = clocked(monkeypatch)
    server.faults.append(busy(503, lambda: after))
    with pytest.raises(StoreError, match=r"cannot be read, tried for \d+ s: .*503"):
        read(server, 40.0)
    assert sum(clock.slept) == pytest.approx(40)
    assert max(clock.slept) <= 0.5  # so that it ends as soon as nobody wants the file
