"""Stores behind URLs: read as local ones, fetched once into a bounded cache, from servers that fail, stall and lie."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pickle
import random
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import files_of
from pictures import Pixels
from reading import WAYS, descriptors, nothing_left, rows_of, run_script, running, said, script, wait_until
from running import run_here

import rawpack_packer
from rawpack import (
    Blocks,
    Cache,
    DamagedStoreError,
    Reader,
    StoreError,
    UsageError,
    WorkerError,
    Workers,
    warm,
)
from rawpack.remote import attempts, download, reach
from rawpack.remote import url as urls
from rawpack.remote.cache import CacheFolder
from rawpack.system.user import byte_count

pytest.importorskip("aiohttp", reason="rawpack[remote] is not installed: no aiohttp")
pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from store_server import (
    Fault,
    Request,
    Server,
    flips,
    on,
    refusing,
    serving,
    shortens,
    slow,
    stalls,
    status,
    truncates,
    untrusted,
)

Opened = Callable[..., Reader]
SHARDS, ROWS, SIDE = 10, 64, 24
SAMPLES = SHARDS * ROWS
SHARD_BYTES = 4096 + ROWS * SIDE * SIDE * 3
BATCH = 32


@pytest.fixture(scope="module")
def truth() -> Pixels:
    """The images, each unlike all others."""
    return np.random.default_rng(0).integers(0, 256, (SAMPLES, SIDE, SIDE, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(truth: Pixels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ten shards; never change it."""
    path = tmp_path_factory.mktemp("remote") / "store"
    samples = [{"image": image, "label": i % 3} for i, image in enumerate(truth)]
    rawpack_packer.pack(samples, path, shard_size=1, workers=0)
    assert len(list(path.glob("shard-*"))) == SHARDS
    return path


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving() as server:
        server.put_folder("bucket/store", files_of(folder))
        yield server


@pytest.fixture
def opened(server: Server, tmp_path: Path) -> Opened:
    """`opened(shards=3)`: a reader of the store behind HTTP, whose cache holds so many shards and the columns."""

    def open_it(shards: float = 100, **options: Any) -> Reader:
        small = sum(len(data) for name, data in server.files.items() if "/shard-" not in name)
        limit = small + int(shards * SHARD_BYTES)
        kept = {"limit": limit, "timeout": 20} | {
            name: options.pop(name) for name in {"limit", "timeout"} & options.keys()
        }
        folder = options.pop("cache", tmp_path / "cache")
        return Reader(f"{server.url}/bucket/store", cache=Cache(folder, **kept), **options)

    return open_it


def right(batches: Any, truth: Pixels) -> list[int]:
    """The rows of an epoch, whose images are held against the truth."""
    rows = []
    for batch in batches:
        assert np.array_equal(batch["image"], truth[batch["index"]])
        rows += batch["index"].tolist()
    return rows


def cached(tmp_path: Path) -> int:
    """Bytes of all files of stores in the cache."""
    total = 0
    for folder, _, names in os.walk(tmp_path / "cache"):
        for name in names if Path(folder).name != "cache" else ():
            with contextlib.suppress(FileNotFoundError):
                total += (Path(folder) / name).stat().st_size
    return total


# ---------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(("way", "shuffle"), [("here", Blocks(8, 4)), ("threads", True), ("processes", False)])
def test_the_same_batches_as_a_local_store(opened: Opened, folder: Path, truth: Pixels, way: str, shuffle: Any) -> None:
    """A store behind a URL gives the batches of the same folder, by workers of every kind, in the same order."""
    batches = opened().batches(BATCH, shuffle=shuffle, seed=4, **WAYS[way])
    local = Reader(folder).batches(BATCH, shuffle=shuffle, seed=4, workers=0)
    assert right(batches, truth) == rows_of(local)


def test_s3(server: Server, truth: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3-compatible server is read through s3fs, with its endpoint and credentials from storage_options, also where
    it fails, breaks off and lies for a while."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    server.faults += [on("shard-00001", status(500), 1), on("shard-00002", truncates, 1), on("shard-00003", flips, 1)]
    endpoint = {"key": "me", "secret": "sesame-open", "client_kwargs": {"endpoint_url": server.url}}
    reader = Reader("s3://bucket/store", cache=tmp_path / "cache", storage_options=endpoint)
    assert right(reader.batches(BATCH, **WAYS["processes"]), truth) == list(range(SAMPLES))


def test_any_other_file_system(folder: Path, truth: Pixels, tmp_path: Path) -> None:
    """What fsspec knows can be read, also file systems that are not asynchronous."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({f"/far/store/{name}": data for name, data in files_of(folder).items()})
    assert right(Reader("memory://far/store", cache=tmp_path / "cache").batches(BATCH), truth) == list(range(SAMPLES))
    assert len(Reader(folder.as_uri())) == SAMPLES


def test_one_sample(opened: Opened, server: Server, truth: Pixels) -> None:
    """`reader[i]` fetches the shard that it needs, and no other; a selection and a pickled copy do the same. A notebook
    shows thumbnails of what is in the cache, and fetches nothing."""
    reader = opened()
    assert "<img" not in reader._repr_html_() + reader.batches(BATCH)._repr_html_()
    assert np.array_equal(reader[0]["image"], truth[0])
    assert np.array_equal(reader.select([60, 300])[0]["image"], truth[60])
    assert np.array_equal(pickle.loads(pickle.dumps(reader))[9]["image"], truth[9])
    assert reader._repr_html_().count("<img") == 1
    assert server.asked("shard-00000") == server.asked("shard-") == 1


# ---------------------------------------------------------------------------------------------- the cache


def test_manifests_are_asked_for_at_once(folder: Path, tmp_path: Path) -> None:
    """After the first one, which is asked for alone. Those that time out because they were asked for together are asked
    for again, one at a time."""
    seen, together = set[str](), threading.Barrier(2, timeout=60)

    def takes_too_long_together(request: Request) -> bool:
        if "store-0" not in request.name and request.name not in seen:
            seen.add(request.name)
            together.wait()
            request.server_state.ended.wait(3)
        return False

    with serving() as server:
        for k in range(3):
            server.put_folder(f"bucket/store-{k}", files_of(folder))
        server.faults.append(on("store.json", takes_too_long_together))
        urls = [f"{server.url}/bucket/store-{k}" for k in range(3)]
        assert len(Reader(urls, cache=Cache(tmp_path / "cache", timeout=2))) == 3 * SAMPLES
    assert len(seen) == 2


@pytest.mark.parametrize("way", ["here", "processes"])
def test_a_cache_smaller_than_the_store(
    opened: Opened, server: Server, truth: Pixels, tmp_path: Path, way: str
) -> None:
    """The bound holds at every moment, also of what is on its way, and each shard comes once in the stored order."""
    reader, most, rows = opened(3.5), 0, list[int]()
    limit = reader._library.fetcher.cache.limit  # type: ignore[union-attr]
    for batch in reader.batches(BATCH, **WAYS[way]):
        rows += right([batch], truth)
        most = max(most, cached(tmp_path))
    assert rows == list(range(SAMPLES))
    assert most <= limit
    assert all(server.asked(name) == 1 for name in server.files if "/shard-" in name)


def test_space_is_given_back(opened: Opened, truth: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was pushed out of the cache is no longer mapped, so that the disk has its space again."""
    monkeypatch.setattr("rawpack.store.shard_files._LOOK_EVERY_S", 0)
    monkeypatch.setattr("rawpack.store.shard_files._LOOK_SHARE", 0)
    batches = opened(4.5).batches(32, shuffle=Blocks(block=64, window=2), workers=Workers(2, backend="thread"))
    for _ in range(2):
        assert sorted(right(batches, truth)) == list(range(SAMPLES))
    maps = Path("/proc/self/maps").read_text().splitlines()
    names = {line.split(maxsplit=5)[5] for line in maps if f"{tmp_path}/cache" in line and "/shard-" in line}
    assert 0 < len(names) <= 6
    assert sum("(deleted)" in name for name in names) <= 2


def test_a_file_that_is_kept_takes_no_descriptor(tmp_path: Path) -> None:
    """Hundreds of shards are kept from eviction, and may go afterwards, where a process may open few files."""
    cache = CacheFolder(tmp_path / "cache")
    path = cache.path(("0" * 32, "shard.npy"))
    path.parent.mkdir()
    path.write_bytes(bytes(1000))
    before = descriptors()
    with cache.locked(), path.open("r+b") as file:
        kept = [cache.hold(("0" * 32, "shard.npy"), 1000) for _ in range(150)]
        assert all(kept)
        assert descriptors() <= before + 2
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept.clear()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OSError, match="another program has locked it"):  # and is not waited for
            cache.hold(("0" * 32, "shard.npy"), 1000)


def test_an_order_that_needs_more_than_the_cache(opened: Opened, server: Server) -> None:
    """A batch whose shards do not fit is refused with the numbers and the cure; of an epoch that would fetch the store
    many times, one rank warns for all. The cache that is advised suffices."""
    refused = r"needs \d+ files .* cache=Cache\(limit=\d+\) or more, which holds all of it; or shuffle=Blocks"
    columns = [name for name in server.files if "/shard-" not in name and "provenance" not in name]
    whole = sum(len(server.files[name]) for name in columns) + SHARDS * SHARD_BYTES
    warned = rf"fetches the remote store about \d+ times.*limit={whole}\)"
    with pytest.warns(RuntimeWarning, match=warned) as told, pytest.raises(UsageError, match=refused):
        next(iter(opened(8.5).batches(200, shuffle=True)))
    assert told[0].filename == __file__
    with pytest.warns(RuntimeWarning, match=warned):
        next(iter(opened(8.1).batches(2, shuffle=True, workers=0, ranks=(0, 2))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(opened(8.1).batches(2, shuffle=True, workers=0, ranks=(1, 2))))
        rows_of(opened(limit=whole).batches(50, shuffle=True))


def test_a_bound_without_sense(opened: Opened) -> None:
    """A cache that cannot hold the columns and one shard is refused with what it takes; nonsense is named."""
    with pytest.raises(UsageError, match=r"needs a cache of at least \d+ bytes"):
        opened(0.5)
    with pytest.raises(UsageError, match="limit='much'"):
        opened(limit="much")
    assert (byte_count("1.5 GiB"), byte_count("200GB")) == (3 << 29, 200 * 10**9)


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache lies where RAWPACK_CACHE says, else with the user's caches; half of the free space is its bound."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RAWPACK_CACHE", raising=False)
    cache, free = CacheFolder(), os.statvfs(tmp_path)
    assert cache.folder == tmp_path / "xdg" / "rawpack"
    assert cache.limit == pytest.approx(free.f_bavail * free.f_frsize / 2, rel=0.05)
    monkeypatch.setenv("RAWPACK_CACHE", str(tmp_path / "named"))
    assert CacheFolder().folder == tmp_path / "named"


READ = """
import sys
from rawpack import Cache, Reader
reader = Reader(sys.argv[1], cache=Cache(sys.argv[2], 10**9, timeout=60))
print("open", flush=True)
print("sum", sum(int(batch["image"].sum()) for batch in reader.batches(16, workers=0)), flush=True)
"""


def test_processes_share(opened: Opened, server: Server, truth: Pixels, tmp_path: Path) -> None:
    """Three processes that read at once, of which this is one, fetch each shard once between them."""
    together = threading.Event()
    server.faults += [on("shard-", lambda request: not together.wait(60)), on("shard-", slow(0.05))]
    path, reader = script(tmp_path / "user", READ), opened()
    with contextlib.ExitStack() as stack:
        arguments = path, f"{server.url}/bucket/store", tmp_path / "cache"
        others = [stack.enter_context(running(*arguments)) for _ in range(2)]
        for process in others:
            said(process, "open")
        together.set()
        assert right(reader.batches(BATCH, workers=0), truth) == list(range(SAMPLES))
        assert [int(said(process, "sum")) for process in others] == [int(truth.sum(dtype=np.int64))] * 2
    assert all(server.asked(name) == 1 for name in server.files if "/shard-" in name)


def test_a_process_that_died_while_fetching(opened: Opened, server: Server, truth: Pixels, tmp_path: Path) -> None:
    """What a killed process was fetching is taken over at once, from where it was; what it held may go."""
    server.faults.append(on("shard-00000", stalls, 1))
    with running(script(tmp_path / "user", READ), f"{server.url}/bucket/store", tmp_path / "cache") as process:
        wait_until(lambda: server.asked("shard-00000") == 1, "it asks for the first shard")
        process.kill()
        process.wait()
    assert len(right(opened().batches(BATCH), truth)) == SAMPLES
    rows_of(opened(3.5).batches(BATCH))


def test_a_process_that_is_stopped_while_fetching(opened: Opened, truth: Pixels, tmp_path: Path) -> None:
    """Nobody waits for ever for a process that holds a file on its way and makes no progress."""
    reader = opened()
    reader._library.fetcher.timeout = 0.5  # type: ignore[union-attr]
    folder = reader._library.stores[0].path
    with (folder / f"shard-00000.npy.{SHARD_BYTES}.part").open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        assert len(right(reader.batches(BATCH), truth)) == SAMPLES


def test_what_another_reader_needs_stays(opened: Opened, tmp_path: Path) -> None:
    """A reader never pushes out what another one needs right now: it waits, and says why it cannot go on."""
    first = iter(opened(3).batches(ROWS, workers=Workers(2, backend="thread")))
    next(first)
    before = {path.name for path in (tmp_path / "cache").rglob("shard-*.npy")}
    reader = opened(3)
    reader._library.fetcher.timeout = 0.5  # type: ignore[union-attr]
    greedy = reader.batches(2 * ROWS, sampler=np.arange(5 * ROWS, 7 * ROWS))
    with pytest.raises(StoreError, match="are needed right now by readers on this machine"):
        next(iter(greedy))
    assert {f"shard-0000{k}.npy" for k in range(2)} & before <= {
        p.name for p in (tmp_path / "cache").rglob("shard-*.npy")
    }
    assert len(rows_of(first)) == SAMPLES - ROWS


# ---------------------------------------------------------------------------------------------- disks


def fill_up(patch: pytest.MonkeyPatch, part: str, room: int) -> None:
    """A disk on which files whose path has `part` in it find so much room: it takes what fits, and then nothing."""
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        nonlocal room
        if part not in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            return real(descriptor, data)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(descriptor, memoryview(data).cast("B")[:room])
        room -= taken
        return taken

    patch.setattr("os.write", write)


def named_shards(tmp_path: Path) -> dict[str, bytes]:
    """What lies in the cache under the name of a shard."""
    return {path.name: path.read_bytes() for path in (tmp_path / "cache").rglob("shard-*") if path.suffix != ".part"}


def test_a_disk_that_fills_up(
    opened: Opened, truth: Pixels, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is an error that names it, of a manifest and of shards. No shard has its name before it is whole, and
    once there is space the same reader goes on."""
    full = pytest.raises(StoreError, match=rf"the disk of the cache {tmp_path}/cache is full .* limit")
    with monkeypatch.context() as patch, full:
        fill_up(patch, "store.json", 10)
        opened()
    reader = opened()
    with monkeypatch.context() as patch:
        fill_up(patch, ".part", int(2.5 * SHARD_BYTES))
        with full as raised:
            rows_of(reader.batches(BATCH, workers=0))
        assert not isinstance(raised.value, DamagedStoreError)
        packed = {path.name: path.read_bytes() for path in folder.glob("shard-*")}
        assert named_shards(tmp_path).items() <= packed.items()
        tickets = reader._library.fetcher._tickets  # type: ignore[union-attr]
        assert not any(ticket.now or ticket.prefetch for ticket in tickets), "who got the error waits for nothing"
    assert right(reader.batches(BATCH, workers=0), truth) == list(range(SAMPLES))


def test_a_disk_that_does_not_give_back_what_it_took(
    opened: Opened, truth: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that came right and that the disk gives back as others get no name: the error speaks of the cache."""
    reader = opened()
    with monkeypatch.context() as patch:
        patch.setattr(download, "write_all", lambda file, data: os.write(file, bytes([*data[:-1], data[-1] ^ 1])))
        match = rf"the cache {tmp_path}/cache cannot be written: .*were read back"
        with pytest.raises(StoreError, match=match) as raised:
            rows_of(reader.batches(BATCH, workers=0))
        assert not isinstance(raised.value, DamagedStoreError)
        assert named_shards(tmp_path) == {}
        wait_until(lambda: not reader._library.fetcher._executor.busy, "nothing is being fetched")  # type: ignore[union-attr]
    assert right(reader.batches(BATCH, workers=0), truth) == list(range(SAMPLES))


# ---------------------------------------------------------------------------------------------- a cache that goes away


def restored(tmp_path: Path, folder: Path) -> bool:
    """Whether all files of the store lie in the cache, as they were packed."""
    (store,) = (path for path in (tmp_path / "cache").iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    expected = {name: data for name, data in files_of(folder).items() if not name.startswith("provenance")}
    return files_of(store) == expected


@pytest.mark.parametrize("way", ["here", "processes"])
def test_a_cache_that_is_removed(opened: Opened, truth: Pixels, tmp_path: Path, folder: Path, way: str) -> None:
    """A cache that somebody removes under an open reader is made anew, byte for byte: before its first epoch, and
    between two."""
    reader, cache = opened(), tmp_path / "cache"
    batches = reader.batches(BATCH, **WAYS[way])
    for _ in range(2):
        while cache.exists():
            shutil.rmtree(cache, ignore_errors=True)  # where columns are still coming
        assert right(batches, truth) == list(range(SAMPLES))
        assert restored(tmp_path, folder)
    shutil.rmtree(cache)
    assert np.array_equal(reader[130]["image"], truth[130])


@pytest.mark.parametrize("shards", [3.5, 100])
def test_a_cache_that_is_removed_within_an_epoch(opened: Opened, truth: Pixels, tmp_path: Path, shards: float) -> None:
    """The epoch goes on with the right samples, whether the cache held the whole store or a part of it."""
    rows = []
    for number, batch in enumerate(opened(shards).batches(BATCH, workers=0)):
        rows += right([batch], truth)
        if number % 7 == 3:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # files may come meanwhile
    assert rows == list(range(SAMPLES))


def test_a_cache_whose_parent_goes(opened: Opened, truth: Pixels, tmp_path: Path) -> None:
    """Where the folder above goes, both are made anew; where that cannot be, the error names the cache."""
    reader = opened(cache=tmp_path / "disk" / "cache")
    (tmp_path / "disk").rename(tmp_path / "gone")
    assert np.array_equal(reader[5]["image"], truth[5])
    (tmp_path / "disk").rename(tmp_path / "gone too")
    (tmp_path / "disk").write_text("")
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"the cache {tmp_path}/disk/cache cannot be written"):
            reader[200]
    (tmp_path / "disk").unlink()
    assert np.array_equal(reader[200]["image"], truth[200])


def spoil(cache: Path) -> None:
    """Cut one shard of a cache short, remove another, and change the first bytes of a third."""
    (store,) = (path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    os.truncate(store / "shard-00002.npy", 5000)
    (store / "shard-00004.npy").unlink()
    with (store / "shard-00006.npy").open("r+b") as file:
        file.write(b"other")


def test_shards_in_the_cache_that_somebody_spoils(
    opened: Opened, server: Server, truth: Pixels, tmp_path: Path
) -> None:
    """A shard that was cut short, removed or replaced in the cache before it was opened is fetched again. Of one that
    was replaced, worker processes tell where it is and the cure, which helps."""
    rows_of(opened().batches(BATCH, workers=0))
    first, second = opened(), opened().batches(BATCH, **WAYS["processes"])
    spoil(tmp_path / "cache")
    assert right(first.batches(BATCH, **WAYS["threads"]), truth) == list(range(SAMPLES))
    spoil(tmp_path / "cache")
    with pytest.raises(WorkerError, match=r"shard-00006.npy is not the file that was packed.*`rawpack warm`"):
        rows_of(second)
    assert run_here("warm", "--cache", tmp_path / "cache", f"{server.url}/bucket/store").code == 0
    assert sorted(right(second, truth)) == list(range(SAMPLES))


# ---------------------------------------------------------------------------------------------- trouble


def knows_no_ranges(request: Request) -> bool:
    request.server_state.ranges = False
    return False


FAULTS: dict[str, Fault] = {
    "503": on("", status(503), 3),
    "stalls": on("shard-00001", stalls, 1),
    "flips": on("shard-00001", flips, 2),
    "flips a column": on("label.npy", flips, 2),
    "flips the manifest": on("store.json", flips, 2),
    "shortens the manifest": on("store.json", shortens, 2),
    "no ranges": knows_no_ranges,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_trouble_that_passes(opened: Opened, server: Server, truth: Pixels, fault: str) -> None:
    """A server that fails, stalls, breaks off or lies for a while costs time and nothing else, also none of the random
    numbers of the program."""
    server.faults.append(FAULTS[fault])
    before = random.getstate()
    assert right(opened().batches(BATCH, workers=2), truth) == list(range(SAMPLES))
    assert random.getstate() == before


WRONG_SUM = r"was downloaded 3 times with a checksum other than the manifest's: [0-9a-f]{16}"
LASTING: dict[str, tuple[Fault, type[Exception], str]] = {
    "500": (on("shard-00001", status(500)), StoreError, r"shard-00001.npy cannot be read, tried for \d+ s: .*500"),
    "stalls": (on("shard-00001", stalls), StoreError, r"shard-\d+.npy cannot be read.*the server does not answer"),
    "shortens": (on("shard-00001", shortens), StoreError, r"received \d+ bytes, but requested"),
    "flips": (on("shard-00001", flips), DamagedStoreError, WRONG_SUM),
    "flips a column": (on("label.npy", flips), DamagedStoreError, f"columns-1/label.npy {WRONG_SUM}"),
    "403": (on("shard-00001", status(403)), StoreError, "may not be read.*credentials"),
    "404": (on("shard-00001", status(404)), DamagedStoreError, "shard-00001.npy is missing; the manifest names it"),
    "manifest 404": (on("store.json", status(404)), StoreError, "is not a rawpack store: it has no store.json"),
    "manifest": (on("store.json", flips), DamagedStoreError, "store.json was changed"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_trouble_that_stays(opened: Opened, server: Server, fault: str) -> None:
    """What does not pass ends the epoch with one error that names the file, what came, and the cure."""
    broken, kind, message = LASTING[fault]
    server.faults.append(broken)
    with pytest.raises(kind, match=message) as raised:
        rows_of(opened(timeout=3).batches(BATCH, workers=2))
    assert server.url in str(raised.value)


def test_a_server_that_restarts(opened: Opened, server: Server, truth: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has answered, and refuses connections, is waited for, up to the timeout that was asked for."""
    reader, port, failed, refused = opened(), server.http.server_port, attempts.Attempts.failed, list[str]()
    hurried, once = opened(timeout=0.3), threading.Lock()
    server.stop()
    with pytest.raises(StoreError, match=r"cannot be read, tried for \d+ s: 127.0.0.1:\d+ refuses the connection"):
        hurried[0]

    def restarts(attempts: Any, error: Exception) -> None:
        refused.append(str(error))
        if len(refused) >= 3 and once.acquire(blocking=False):
            server.faults.clear()
            server.http = server.at(port)
            threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True).start()
        failed(attempts, error)

    monkeypatch.setattr(attempts.Attempts, "failed", restarts)
    assert np.array_equal(reader[0]["image"], truth[0])
    assert len(refused) >= 3


UNREACHABLE = {
    "refused": r"cannot be reached: 127.0.0.1:\d+ refuses the connection; check that the server is running",
    "unknown": r"cannot be reached: there is no host nosuch.invalid; check its name",
    "untrusted": r"cannot be reached: the certificate of 127.0.0.1 is not accepted \(self.signed certificate\)",
}


@pytest.mark.parametrize("how", UNREACHABLE)
def test_a_host_that_was_never_there(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection, an unknown host and a certificate that nobody trusts are errors at once, with the reason,
    and not after the timeout: of a store to be read, and of archives to be packed."""

    def unknown(*args: Any, **options: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(reach, "_answered", set())
    with contextlib.ExitStack() as stack:
        url = "http://nosuch.invalid"
        if how == "refused":
            url = stack.enter_context(refusing())
        elif how == "untrusted":
            if shutil.which("openssl") is None:
                pytest.skip("no openssl to make a certificate with")
            url = stack.enter_context(untrusted(tmp_path))
        else:
            monkeypatch.setattr("socket.getaddrinfo", unknown)
        with pytest.raises(StoreError, match=UNREACHABLE[how]):
            Reader(f"{url}/store", cache=Cache(tmp_path / "cache", timeout=1000))
        ran = run_here("pack", "--workers", 0, f"{url}/photos.tar", tmp_path / "store")
        assert (ran.code, bool(re.search(UNREACHABLE[how], ran.err))) == (1, True), ran.err
        assert "waiting" not in ran.err


def test_an_endpoint_of_s3_that_was_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same through s3fs, whose URLs do not name the host."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    monkeypatch.setattr(reach, "_answered", set())
    with refusing() as url:
        options = {"key": "me", "secret": "sesame-open", "endpoint_url": url}
        with pytest.raises(StoreError, match=UNREACHABLE["refused"]):
            Reader("s3://bucket/store", cache=Cache(tmp_path / "cache", timeout=1000), storage_options=options)


def test_goes_on_where_a_connection_broke(
    opened: Opened, server: Server, truth: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a break, only what is missing is asked for."""
    monkeypatch.setattr("rawpack.remote.download.RANGE", 1 << 15)
    met, broken = list[tuple[int, int]](), on("shard-00000", truncates, 1)

    def breaks_off(request: Request) -> bool:
        if "shard-00000" not in request.name or request.range is None:
            return False
        met.append(request.range)
        return request.range[0] > 0 and broken(request)

    server.faults.append(breaks_off)
    assert np.array_equal(opened()[5]["image"], truth[5])
    ranges = [(start, min(start + (1 << 15), SHARD_BYTES)) for start in range(0, SHARD_BYTES, 1 << 15)]
    ((start, stop),) = set(met) - set(ranges)
    assert (2 * start - stop, stop) in ranges, "the second half of one range came in a request of its own"
    assert len(met) == len(ranges) + 1


def test_a_store_that_was_packed_anew(opened: Opened, server: Server, tmp_path: Path) -> None:
    """A store that another one has replaced is noticed, whether a shard changed or went."""
    reader = opened()
    other = tmp_path / "other"
    changed = np.zeros((SAMPLES, SIDE, SIDE, 3), np.uint8)
    rawpack_packer.pack([{"image": image, "label": 0} for image in changed], other, shard_size=1, workers=0)
    server.put_folder("bucket/store", files_of(other))
    with pytest.raises(StoreError, match="was packed again after it was opened here"):
        rows_of(reader.batches(BATCH))
    assert not opened()[0]["image"].any()


def test_secrets_stay_secret(server: Server, tmp_path: Path) -> None:
    """Users, passwords and signatures of a URL, and secrets among the options, are in no message and no repr."""
    server.faults.append(on("shard-", status(403)))
    url = f"{server.url}/bucket/store?X-Signature=abcdef123456&token=opensesame"
    reader = Reader(url, cache=tmp_path / "cache", storage_options={"headers": {"Authorization": "Bearer moonshine"}})
    texts = [repr(reader)]
    with pytest.raises(StoreError) as raised:
        reader[0]
    texts.append(str(raised.value))
    with pytest.raises(StoreError) as raised:
        Reader("http://me:letmein99@127.0.0.1:9/s?sig=abcdef123456", cache=Cache(tmp_path / "cache", timeout=0.1))
    texts.append(str(raised.value))
    for text in texts:
        assert not any(word in text for word in ("abcdef123456", "opensesame", "moonshine", "letmein99")), text
    assert urls.scrubbed("no letmein99 here", "ftp://me:letmein99@host/x", {}) == "no ... here"


# ---------------------------------------------------------------------------------------------- processes, time


def test_nothing_is_left(opened: Opened) -> None:
    """Loops that are left early, and readers that are let go, leave no process, descriptor, thread or lock behind."""
    rows_of(opened().batches(BATCH))  # fsspec's own thread and connections stay
    with nothing_left():
        reader = opened(3.5)
        for _, _ in zip(reader.batches(BATCH, workers=2), range(3), strict=False):
            pass
        folder = reader._library.fetcher.cache.folder  # type: ignore[union-attr]
        del reader
        wait_until(lambda: "rawpack-fetch" not in {thread.name for thread in threading.enumerate()}, "threads ended")
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


FORKS = """
import os, sys
from rawpack import Cache, Reader
reader = Reader(sys.argv[1], cache=Cache(sys.argv[2], timeout=20))
reader[0]
pid = os.fork()
if not pid:
    os._exit(0 if reader[600]["image"].sum() == int(sys.argv[3]) else 3)
print(os.waitpid(pid, 0)[1])
"""


def test_a_forked_child_reads(server: Server, truth: Pixels, tmp_path: Path) -> None:
    """A child forked from a process that has fetched can fetch by itself."""
    arguments = f"{server.url}/bucket/store", tmp_path / "cache", truth[600].sum()
    ran = run_script(script(tmp_path / "user", FORKS), *arguments, options=())
    assert (ran.code, ran.out) == (0, "0\n"), ran.err


# ---------------------------------------------------------------------------------------------- the command


def test_inspect(server: Server, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rawpack inspect URL` says what `rawpack inspect` of the folder says, but for where it was packed from, and
    fetches no shard; what would read all of them names `rawpack warm`."""
    monkeypatch.setenv("RAWPACK_CACHE", str(tmp_path / "cache"))
    url = f"{server.url}/bucket/store"
    (first, *far), (_, *here) = (
        [line for line in run_here("inspect", place).out.splitlines() if not re.match("  (source|packed|look) ", line)]
        for place in (url, folder)
    )
    assert (first, far, server.asked("shard-")) == (url, here, 0)
    for words in (("inspect", "--verify"), ("bench",)):
        ran = run_here(*words, url)
        assert (ran.code, "rawpack warm" in ran.err) == (2, True)


def test_warm(server: Server, folder: Path, tmp_path: Path) -> None:
    """`rawpack warm URL` fetches a whole store, checked; training then asks for the manifest alone. A shard or a column
    in the cache whose bytes are others, of the same size, is fetched anew; no other file is."""
    url, cache = f"{server.url}/bucket/store", tmp_path / "cache"
    ran = run_here("warm", "--cache", cache, url)
    assert (ran.code, ran.err) == (0, ""), ran
    not_fetched = ("provenance", "store.json")
    total = sum(len(data) for name, data in server.files.items() if not any(part in name for part in not_fetched))
    assert f"{total / 1e6:.3g} MB fetched, so that all" in ran.out
    server.log.clear()
    ran = run_here("warm", "--cache", cache, url)
    assert (ran.code, "fetched" in ran.out, "already, checked" in ran.out) == (0, False, True)
    rows_of(Reader(url, cache=cache).batches(BATCH, workers=2))
    assert {path for _, path in server.log} == {"bucket/store/store.json"}
    for path in (next(cache.rglob(name)) for name in ("shard-00003.npy", "label.npy")):
        data = path.read_bytes()
        path.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    server.log.clear()
    ran = run_here("warm", "--cache", cache, url)
    assert (ran.code, "in place of what was damaged" in ran.out) == (0, True)
    assert {path.rpartition("/")[2] for _, path in server.log} == {"store.json", "shard-00003.npy", "label.npy"}
    assert restored(tmp_path, folder)


def test_warm_from_python(server: Server, tmp_path: Path) -> None:
    """`rawpack.warm` takes `cache=` as `Reader` does, and says what to write where the store does not fit, and where
    there is no URL."""
    url, cache = f"{server.url}/bucket/store", tmp_path / "cache"
    done = warm(url, cache=Cache(cache, "1GB", timeout=60))
    assert done.fetched >= done.bytes > BATCH
    assert warm(url, cache=cache).fetched == 0
    small = tmp_path / "small", 4 * SHARD_BYTES
    with pytest.raises(UsageError, match=r"pass cache=Cache\(folder, limit\), a larger limit or another folder"):
        warm(url, cache=Cache(*small))
    ran = run_here("warm", "--cache", small[0], "--cache-bytes", small[1], url)
    assert (ran.code, "pass a larger --cache-bytes, or another --cache" in ran.err) == (2, True)
    with pytest.raises(UsageError, match=r"^cache= applies to URLs"):
        warm(tmp_path, cache=cache)


def test_verify_in_the_cache(server: Server, tmp_path: Path) -> None:
    """`inspect --verify` calls a store in the cache sound that has all its shards, without provenance; one of which
    shards are missing it does not."""
    url, cache = f"{server.url}/bucket/store", tmp_path / "cache"
    assert run_here("warm", "--quiet", "--cache", cache, url).code == 0
    store = next(cache.rglob("store.json")).parent
    (store / f"shard-00001.npy.{SHARD_BYTES}.part").write_bytes(b"on its way")
    ran = run_here("inspect", "--verify", store)
    assert (ran.code, "sound" in ran.out, "provenance" in ran.out) == (0, True, False), ran
    (store / "shard-00001.npy").unlink()
    ran = run_here("inspect", "--verify", "--json", store)
    (problem,) = json.loads(ran.out)["problems"]
    assert (ran.code, problem["where"], "`rawpack warm`" in problem["what"]) == (1, "shard-00001.npy", True)


# ---------------------------------------------------------------------------------------------- asked wrongly


SIGNED = {"key": "me", "secret": "sesame-open"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("nonsense://bucket/store", SIGNED, "nonsense"),
    ("s3://bucket/store", SIGNED | {"nonsense": 3}, "nonsense"),
    ("s3://bucket/store", SIGNED | {"client_kwargs": {"aws_access_key_id": "you"}}, "multiple values"),
]


@pytest.mark.parametrize(("url", "options", "words"), WRONG)
def test_what_no_file_system_knows(tmp_path: Path, url: str, options: dict[str, Any], words: str) -> None:
    """A protocol that nobody knows, and options that its file system does not know, or not together, are a usage error
    at once that names them and tells no secret."""
    with pytest.raises(UsageError, match=words) as raised:
        Reader(url, cache=tmp_path / "cache", storage_options=options)
    assert "sesame" not in str(raised.value)
