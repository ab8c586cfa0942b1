"""The spool of archives behind URLs: each is fetched once, whatever happens, and room is made for the next."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from reading import wait_until
from store_server import Server, on, serving

from rawpack import PackError
from rawpack_packer.sources import SourceChangedError
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool

MANY = 1 << 40


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with three files of a million random bytes."""
    with serving() as started:
        for name in "abc":
            started.files[f"{name}.tar"] = np.random.default_rng(ord(name)).bytes(1_000_000)
        yield started


def found(server: Server, name: str) -> RemoteArchive:
    return Spool(Path(), 0).find(f"{server.url}/{name}")


def read(spool: Spool, file: RemoteArchive) -> bytes:
    with spool.opened(file) as descriptor:
        return os.pread(descriptor, file.bytes + 1, 0)


def fetched(folder: Path) -> set[str]:
    """The names that the files in a spool have at the server."""
    return {path.name for path in folder.rglob("*.tar*")}


def test_a_file_is_fetched_once_for_all_who_read_it(server: Server, tmp_path: Path) -> None:
    """Eight threads that need one file get its bytes, and each byte is requested once."""
    spool, file = Spool(tmp_path, MANY), found(server, "a.tar")
    before = server.asked("a.tar")
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda _: read(spool, file), range(8)))
    assert set(got) == {server.files["a.tar"]}
    once = server.asked("a.tar") - before
    assert read(Spool(tmp_path, MANY), file) == server.files["a.tar"]
    assert server.asked("a.tar") - before == once == 1


def test_room_is_made_by_what_was_not_needed_for_the_longest_time(server: Server, tmp_path: Path) -> None:
    """With room for two files, the third replaces the first, never one that is being read: the limit is exceeded
    rather than waited for."""
    spool = Spool(tmp_path, 2_500_000)
    a, b, c = (found(server, f"{name}.tar") for name in "abc")
    read(spool, a)
    os.utime(spool.path(a), (1, 1))
    read(spool, b)
    os.utime(spool.path(b), (2, 2))
    with spool.opened(a):
        os.utime(spool.path(a), (1, 1))
        assert read(spool, c) == server.files["c.tar"]
        assert fetched(tmp_path) == {"a.tar", "c.tar"}
    assert not spool.is_full()
    small = Spool(tmp_path / "small", 1)
    with small.opened(a), small.opened(b) as descriptor:
        assert os.pread(descriptor, b.bytes, 0) == server.files["b.tar"]
        assert small.is_full()
    read(small, c)
    assert fetched(tmp_path / "small") == {"c.tar"}


def test_a_process_that_keeps_the_lock(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it gives up in the end, and names the file; when it is free, packing continues."""
    monkeypatch.setattr("rawpack.remote.cache._LOCK_WAIT_S", 0.2)
    spool, a = Spool(tmp_path, MANY), found(server, "a.tar")
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PackError, match=f"another process has held {tmp_path / 'lock'}"):
            read(spool, a)
    assert read(spool, a) == server.files["a.tar"]


def test_what_is_fetched_in_advance_takes_nobodys_place(server: Server, tmp_path: Path) -> None:
    """Files are fetched before they are needed as long as they fit, and nothing is removed for them."""
    spool = Spool(tmp_path, 2_500_000)
    a, b, c = (found(server, f"{name}.tar") for name in "abc")
    read(spool, c)
    with spool.fetching([a, b]):
        wait_until(lambda: spool.path(a).exists(), "the first of them is there")
        wait_until(lambda: not any(t.name == "rawpack-fetch" for t in threading.enumerate()), "no thread fetches")
    assert fetched(tmp_path) == {"a.tar", "c.tar"}
    assert server.asked("b.tar") == 0


@pytest.mark.parametrize("versions", [True, False])
def test_a_part_is_continued_if_it_is_of_this_version(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: bool
) -> None:
    """What an earlier run has fetched is continued, unless the server tells no versions: then it may be of another."""
    if not versions:
        monkeypatch.setattr("rawpack.remote.transfer._VERSIONS", ())
    spool, file = Spool(tmp_path, MANY), found(server, "a.tar")
    part = spool.path(file).with_name(f"a.tar.{file.bytes}.part")
    part.parent.mkdir()
    part.write_bytes(server.files["a.tar"][:400_000] if versions else b"others" * 1000)
    seen: list[int] = []
    server.faults.append(on("a.tar", lambda request: bool(seen.append(request.range[0] if request.range else 0))))
    assert read(spool, file) == server.files["a.tar"]
    assert seen == [400_000 if versions else 0]


def test_a_change_is_seen_where_the_server_tells_only_the_time(tmp_path: Path) -> None:
    """Servers such as Python's own send no ETag, only Last-Modified; other bytes of the same size are another file."""
    file = tmp_path / "served" / "a.tar"
    file.parent.mkdir()
    file.write_bytes(b"x" * 1000)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(file.parent))) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        try:
            found = Spool(tmp_path, 0).find(f"http://127.0.0.1:{http.server_port}/a.tar")
            file.write_bytes(b"y" * 1000)
            with pytest.raises(SourceChangedError, match="it was written to"):
                read(Spool(tmp_path / "spool", MANY), found)
        finally:
            http.shutdown()


@pytest.mark.parametrize("how", ["longer", "other bytes", "gone"])
def test_a_file_that_changes_stops_packing(server: Server, tmp_path: Path, how: str) -> None:
    """What was found when packing began must be what is fetched."""
    file = found(server, "a.tar")
    if how == "gone":
        del server.files["a.tar"]
    else:
        server.files["a.tar"] = b"x" * (file.bytes + (how == "longer"))
    with pytest.raises(SourceChangedError, match=r"a\.tar changed since packing began"):
        read(Spool(tmp_path, MANY), file)
