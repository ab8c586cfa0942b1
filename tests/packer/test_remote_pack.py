"""Packing to a URL: byte for byte the store of a folder, whatever the server does, and after kills."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from folders import files_of
from forked import COMMAND, Fork, Forks, forks
from pictures import picture, save
from reading import wait_until
from running import Ran, environment, pack, run_here, stop_of

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack_packer.sources import files

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from store_server import Request, Server, find_by_itself, on, serving, slow, status

URL = "s3://bucket/some/store"
SHARDS, ROWS, SIDE = 4, 64, 16
COUNT = (SHARDS - 1) * ROWS + 2


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """An S3-compatible server that s3fs finds by itself."""
    with serving() as server:
        find_by_itself(server, monkeypatch)
        monkeypatch.setenv("RAWPACK_CACHE", str(tmp_path / "cache"))
        yield server


@pytest.fixture(scope="module")
def forked() -> Iterator[Forks]:
    with forks(environment(), loads=["s3fs"]) as started:
        yield started


@contextmanager
def started(forked: Forks, *words: object) -> Iterator[Fork]:
    """`pack` as a process of its own that finds the server by its environment."""
    found = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "FSSPEC_", "RAWPACK_"))}
    before = "import fsspec.config\nfsspec.config.set_conf_env(fsspec.config.conf)"
    with forked.started(f"{before}\n{COMMAND}", "pack", *words, **found) as started:
        yield started


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of arrays that makes four shards, the last one of two images."""
    path = tmp_path_factory.mktemp("arrays") / "images.npy"
    images = np.random.default_rng(1).integers(0, 256, (COUNT, SIDE, SIDE, 3)).astype(np.uint8)
    np.save(path, images)
    return path


class Uploaded(NamedTuple):
    """How a store came to a server, and what that had then; `left`: in the cache here."""

    ran: Ran
    files: dict[str, bytes]
    log: list[tuple[str, str]]
    left: dict[str, bytes]


@pytest.fixture(scope="module")
def whole(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> Uploaded:
    """A store that was packed to the URL, once for all tests that begin with one."""
    cache = tmp_path_factory.mktemp("cache")
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        find_by_itself(server, patch)
        patch.setenv("RAWPACK_CACHE", str(cache))
        ran = run(arrays)
        return Uploaded(ran, dict(server.files), list(server.log), files_of(cache))


@pytest.fixture(scope="module")
def plain(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the store that a folder gets."""
    return stable(files_of(pack(arrays, tmp_path_factory.mktemp("plain") / "store", "--shard-size", 1)))


def stable(files: dict[str, bytes]) -> dict[str, bytes]:
    """All that does not differ between two runs."""
    return {name: data for name, data in files.items() if not name.startswith("provenance")}


def uploaded(server: Server) -> dict[str, bytes]:
    prefix = URL.removeprefix("s3://") + "/"
    return {name.removeprefix(prefix): data for name, data in server.files.items() if name.startswith(prefix)}


def run(arrays: Path, *options: object) -> Ran:
    return run_here("pack", "--workers", 0, "--shard-size", 1, *options, arrays, URL)


def test_a_stream(server: Server, arrays: Path, plain: dict[str, bytes], tmp_path: Path) -> None:
    """A generator is kept on this machine until the store is at the URL; one that stops goes on."""

    def images(stop: int) -> Iterator[Any]:
        for n, image in enumerate(np.load(arrays)):
            if n == stop:
                raise OSError("the line is dead")
            yield image

    options: dict[str, Any] = {"workers": 0, "shard_size": 1, "tmp": tmp_path / "tmp"}
    with pytest.raises(PackError, match="stopped at sample 100"):
        rawpack_packer.pack(images(100), URL, **options)
    rawpack_packer.pack(images(-1), URL, **options)
    assert stable(uploaded(server)) == plain
    assert not [path for path in (tmp_path / "tmp").rglob("*") if path.is_file() and path.name != "lock"]


def test_the_same_store(server: Server, plain: dict[str, bytes], whole: Uploaded) -> None:
    """A store that was packed to a URL is the one that a folder gets; nothing stays here but an empty folder, and the
    manifest was written last."""
    assert whole.ran.code == 0, whole.ran
    assert f"stored in   {URL}" in whole.ran.out
    server.files = dict(whole.files)
    assert stable(uploaded(server)) == plain
    assert whole.left == {}
    written = [path for method, path in whole.log if method == "PUT"]
    assert written[-1].endswith("/store.json")
    assert len(Reader(URL)) == COUNT


def test_again(server: Server, arrays: Path, whole: Uploaded) -> None:
    """The same command on a whole store does nothing; another recipe is refused; --restart packs anew."""
    server.files = dict(whole.files)
    ran = run(arrays, "--json")
    assert json.loads(ran.out)["already_complete"] is True
    assert not [path for method, path in server.log if method in ("PUT", "POST", "DELETE")]
    ran = run(arrays, "--format", "hdf5")
    assert ran.code == 2
    assert "the recipe differs: --format was memmap" in ran.err
    assert run(arrays, "--quiet", "--format", "hdf5", "--restart").code == 0
    assert {name.partition(".")[2] for name in uploaded(server) if name.startswith("shard-")} == {"h5"}


@pytest.mark.parametrize(("moment", "workers"), [("shard-00002", 1), ("store.json", 0)])
def test_killed(
    server: Server, arrays: Path, plain: dict[str, bytes], forked: Forks, tmp_path: Path, moment: str, workers: int
) -> None:
    """Killed at any moment, the same command goes on; what is there is no store until all of it is."""
    server.faults.append(on(moment, slow(30), 1, method="PUT"))
    with started(forked, "--workers", workers, "--shard-size", 1, arrays, URL) as first:
        wait_until(lambda: server.asked(moment, "PUT") == 1, f"{moment} is being uploaded")
        first.kill()
        assert first.wait().code == -signal.SIGKILL
    assert "store.json" not in uploaded(server)
    server.faults.clear()
    before = {name for name in uploaded(server) if name.startswith("shard-")}
    assert len(before) >= 2
    server.log.clear()
    assert run(arrays, "--quiet").code == 0
    assert stable(uploaded(server)) == plain
    again = {path.rpartition("/")[2] for method, path in server.log if method == "PUT"}
    assert not before - {max(before, default="")} & again
    assert files_of(tmp_path / "cache") == {}


def test_what_was_uploaded_went_away(server: Server, arrays: Path, plain: dict[str, bytes]) -> None:
    """A shard that an earlier run uploaded takes no space here; one that is gone is packed again, or, where all were
    packed and only columns are missing, refused until `--restart`."""
    for begun, code in (("shard-00002", 0), ("columns-1", 1)):
        server.faults.append(on(begun, status(403), method="PUT"))
        ran = run(arrays, "--restart")
        assert ran.code == 1
        assert "may not be written" in ran.err
        assert "sesame" not in ran.err
        (store,) = (Path(os.environ["RAWPACK_CACHE"]) / "packing").glob("*/store")
        assert not (store / "shard-00001.npy").exists()
        server.faults.clear()
        del server.files["bucket/some/store/shard-00001.npy"]
        ran = run(arrays, "--quiet")
        assert ran.code == code, ran
        assert code or stable(uploaded(server)) == plain
    assert "store.json" not in uploaded(server)
    assert f"{URL} was packed, but its shard-00001.npy is missing, or has another size, and --restart" in ran.err
    assert run(arrays, "--quiet", "--restart").code == 0
    assert stable(uploaded(server)) == plain


def test_a_file_that_changed_at_the_url(server: Server, arrays: Path, whole: Uploaded) -> None:
    """The same command on a finished store says which file is missing or has another size, without fetching any."""
    for name in (f"shard-0000{SHARDS - 1}.npy", "columns-1/key.npy"):
        path = f"bucket/some/store/{name}"
        for there in (whole.files | {path: b""}, {one: data for one, data in whole.files.items() if one != path}):
            server.files = there
            server.log.clear()
            ran = run(arrays)
            assert ran.code == 1
            assert f"{URL} was packed, but its {name} is missing, or has another size, and --restart packs" in ran.err
            assert not server.asked("shard-", "GET")


def test_what_was_uploaded_is_packed_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a job resumes and can read a file that it could not read before, the shard of that file is uploaded again:
    the URL never keeps the old one under a manifest that has the new one."""
    source = tmp_path / "photos"
    for i in range(2 * ROWS):
        save(source / "cat" / f"{i:03d}.png", picture(SIDE, SIDE, i))
    open_file, errors = files.opened, {"000.png": errno.EIO, f"{ROWS:03d}.png": errno.ESTALE}

    @contextmanager
    def failing(path: str) -> Iterator[int]:
        number = errors.get(Path(path).name, 0)
        if number == errno.ESTALE:  # which stops the job, once the first shard is there
            wait_until(lambda: "shard-00000.npy" in uploaded(server), "a shard is uploaded")
        if number:
            raise OSError(number, os.strerror(number))
        with open_file(path) as descriptor:
            yield descriptor

    monkeypatch.setattr(files, "opened", failing)
    options = ("--quiet", "--size", SIDE, "--max-rejects", 1)
    ran = run(source, *options)
    assert (ran.code, os.strerror(errno.ESTALE) in ran.err) == (1, True), ran
    before = uploaded(server)["shard-00000.npy"]
    errors.clear()
    assert run(source, *options).code == 0
    assert stable(uploaded(server)) == stable(files_of(pack(source, tmp_path / "store", "--shard-size", 1, *options)))
    assert uploaded(server)["shard-00000.npy"] != before


def test_trouble_that_passes(server: Server, arrays: Path, plain: dict[str, bytes]) -> None:
    """A server that fails now and then, or keeps less of a file than it was sent, costs time and nothing else."""
    cut = set[str]()

    def keeps_half(request: Request) -> bool:
        if request.command == "HEAD" and "shard-00001" in request.name and request.name in server.files.keys() - cut:
            cut.add(request.name)
            server.files[request.name] = server.files[request.name][:100]
        return False

    server.faults += [on("shard-00002", status(503), 1, method="PUT"), on("store.json", status(500), 1, method="PUT")]
    server.faults.append(keeps_half)
    assert run(arrays, "--quiet").code == 0
    assert cut
    assert stable(uploaded(server)) == plain


def test_one_run_at_a_time(
    server: Server, arrays: Path, plain: dict[str, bytes], forked: Forks, tmp_path: Path
) -> None:
    """A second run to the same URL is refused while the first is at work, and disturbs nothing."""
    refused = threading.Event()
    server.faults.append(on("shard-00002", lambda request: not refused.wait(120), 1, method="PUT"))
    with started(forked, "--workers", 0, "--shard-size", 1, arrays, URL) as first:
        wait_until(lambda: server.asked("shard-00002", "PUT") == 1, "a shard is being uploaded")
        ran = run(arrays, "--restart")
        assert ran.code == 2
        assert "another run on this machine is packing" in ran.err
        refused.set()
        assert first.wait().code == 0
    assert stable(uploaded(server)) == plain


def test_where_it_cannot_be_packed_to(server: Server, arrays: Path) -> None:
    """A place that holds other files, a URL that is only for reading, options that do not go together: refused at once,
    and nothing is written or removed there."""
    server.files["bucket/some/store/thesis.tex"] = b"years"
    before = dict(server.files)
    for restart in ((), ("--restart",)):
        ran = run(arrays, *restart)
        assert (ran.code, "contains other files (thesis.tex)" in ran.err) == (2, True), ran
    assert "cannot be" in stop_of("pack", arrays, f"{server.url}/store")
    options = {"key": "me", "secret": "sesame-open", "client_kwargs": {"aws_access_key_id": "you"}}
    with pytest.raises(UsageError, match=r"storage_options \(client_kwargs, key, secret\).*multiple values") as raised:
        rawpack_packer.pack(str(arrays), URL, workers=0, storage_options=options)
    assert "sesame" not in str(raised.value)
    assert server.files == before
