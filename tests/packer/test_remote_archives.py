"""Archives and folders behind URLs: the store is that of the same files on the disk, each is fetched once."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from archived import tar
from folders import files_of
from pictures import encoded, picture
from reading import wait_until
from running import Ran, pack, run_here, started
from videos import looked_through_here  # noqa: F401

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer import progress
from rawpack_packer.testing.engines import check_files, settled_files
from rawpack_packer.text import size

pytest.importorskip("s3fs", reason="rawpack[remote] is not installed: no s3fs")

from store_server import Server, find_by_itself, limit_spools, on, serving, slow, status

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures"
TABLES = FIXTURES / "huggingface" / "checkout" / "data"
SETS = {
    "mds/packed/zstd": "s3", "mds/packed/gz": "http", "litdata/packed/batch": "http", "lerobot/v30/arms": "s3",
}  # fmt: skip
"""Folders whose index says what they are -> by which scheme they are packed."""
SHARDS, SAMPLES = 6, 30
"""Shards of a WebDataset, and the samples in each: of `SMALL`, a shard of the store has fewer than all."""
SMALL = ("--size", 48, "--shard-size", 1)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with WebDataset shards, and with a tar and a zip of a folder."""
    root = tmp_path_factory.mktemp("archives")
    images = [encoded(picture(50, 60, k), "JPEG", quality=95) for k in range(10)]
    for number in range(SHARDS):
        members: dict[str, bytes | str] = {}
        for i in range(number * SAMPLES, (number + 1) * SAMPLES):
            members |= {f"{i:06}.jpg": images[i % 10], f"{i:06}.cls": f"{i % 7}"}
        (root / f"train-{number:03}.tar").write_bytes(tar(members))
    photos = {f"photos/{'ab'[i % 2]}/{i}.jpg": image for i, image in enumerate(images)}
    (root / "photos.tar").write_bytes(tar(photos))
    for number in range(2):
        shutil.copy(TABLES / f"train-0000{number}-of-00002.parquet", root / f"rows-{number}.parquet")
        file = TABLES.parents[2] / "tfrecord" / "imagenet" / f"train-0000{number}-of-00002"
        shutil.copy(file, root / f"x.tfrecord-0000{number}-of-00002")
    (root / "x.tfrecord.gz").write_bytes(gzip.compress(file.read_bytes()))
    return root


@pytest.fixture
def server(archives: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """They behind HTTP, and behind S3 in a bucket."""
    with serving() as started:
        started.put_folder("bucket", files_of(archives))
        find_by_itself(started, monkeypatch)
        yield started


@pytest.fixture(params=["http", "s3"])
def root(server: Server, request: pytest.FixtureRequest) -> str:
    """The URL of the bucket."""
    return f"{server.url}/bucket" if request.param == "http" else "s3://bucket"


def check(far: Path, source: Path, *options: object) -> None:
    """The store is that of a source on the disk."""
    near = pack(source, far.with_name("near"), *SMALL, *options)
    check_files(settled_files(far), settled_files(near))


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("train-{000..005}.tar", SHARDS),
        ("train-*.tar", SHARDS),
        ("photos.tar", 1),
        ("rows-{0..1}.parquet", 2),
        ("x.tfrecord-{00000..00001}-of-00002", 2),
        ("x.tfrecord.gz", 1),
    ],
)
def test_the_store_is_that_of_the_same_archives_on_the_disk(
    server: Server, archives: Path, tmp_path: Path, name: str, files: int
) -> None:
    """Whatever kind of archive it is, detected by what it holds; each is fetched once, and no spool is left. `*` lists
    the bucket; workers share the spool."""
    listed = "*" in name
    far = f"s3://bucket/{name}" if listed else f"{server.url}/bucket/{name}"
    pack(far, tmp_path / "far", *SMALL, "--workers", 2 * listed)
    # A range is of archives; Parquet files on the disk are a folder.
    (tmp_path / "tables").mkdir()
    for table in archives.glob("*.parquet"):
        shutil.copy(table, tmp_path / "tables")
    near = archives / ("train-{000..005}.tar" if listed else name)
    check(tmp_path / "far", tmp_path / "tables" if "parquet" in name else near)
    assert not (tmp_path / "far" / ".rawpack").exists()
    fetched = [path for method, path in server.log if method == "GET" and "." in path]
    assert len(fetched) == len(set(fetched)) == files


def test_a_killed_run_fetches_nothing_again(server: Server, archives: Path, tmp_path: Path) -> None:
    """What the spool has is used by the run that resumes."""
    url = f"{server.url}/bucket/train-{{000..005}}.tar"
    server.faults.append(on("train-003", slow(1.0), 1))
    with started("pack", *SMALL, "--workers", 1, url, tmp_path / "far") as process:
        spool = tmp_path / "far" / ".rawpack" / "spool"
        wait_until(lambda: server.asked("train-005") > 0 and any(spool.rglob("*.tar")), "the last shard, after others")
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {path.name for path in spool.rglob("*.tar")}
    assert kept
    server.log.clear()
    pack(url, tmp_path / "far", *SMALL)
    check(tmp_path / "far", archives / "train-{000..005}.tar")
    assert all(not server.asked(name) for name in kept)


def test_a_spool_with_little_room(
    server: Server, archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives that do not fit together are fetched again when they are packed, and not for anything else; a line says
    so; the store is the same."""
    small = int(1.5 * len(server.files["bucket/train-000.tar"]))
    limit_spools(monkeypatch, small)
    far, lmdb = tmp_path / "far", ("--format", "lmdb")
    ran = run_here("pack", "--workers", 0, *SMALL, *lmdb, f"{server.url}/bucket/train-{{000..005}}.tar", far)
    total = sum(len(data) for name, data in server.files.items() if "train-" in name)
    assert f"rawpack: the source has {size(total)}, and {far}/.rawpack/spool may take {size(small)}: " in ran.err
    assert [server.asked(f"train-{k:03}.tar") for k in range(SHARDS)] == [1, *[2] * (SHARDS - 1)]
    check(far, archives / "train-{000..005}.tar", *lmdb)


@pytest.mark.usefixtures("trials_here")
def test_other_commands_take_urls(server: Server, archives: Path, tmp_path: Path) -> None:
    """Archives are packed to another URL, appended and planned with, and what was fetched is removed. Some of them are
    enough for a plan, whose command has the URL."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rawpack_packer.pack(
        "s3://bucket/photos.tar", "s3://bucket/store", tmp=scratch, size=32, workers=0,
        storage_options={"endpoint_url": server.url},
    )  # fmt: skip
    pack(archives / "photos.tar", tmp_path / "photos", "--size", 32)
    got = {name: data for name, data in server.files.items() if name.startswith("bucket/store/shard")}
    assert list(got.values()) == [(tmp_path / "photos" / "shard-00000.npy").read_bytes()]
    pack(archives / "train-{000..002}.tar", tmp_path / "store", *SMALL)
    rawpack_packer.append(f"{server.url}/bucket/train-{{003..005}}.tar", tmp_path / "store", workers=0)
    pack(archives / "train-{000..005}.tar", tmp_path / "near", *SMALL)
    assert (Reader(tmp_path / "store").column("label") == Reader(tmp_path / "near").column("label")).all()
    assert not (tmp_path / "store" / ".rawpack").exists()
    server.log.clear()
    url = f"{server.url}/bucket/train-{{000..005}}.tar"
    ran = run_here("plan", "--quiet", "--json", "--budget", "0.1s", "--workers", 1, "--batch", 4, "--size", 16,
                   "--format", "memmap", "--compression", "none", "--tmp", scratch, url)  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    told = json.loads(ran.out)
    assert (told["recommended"], shlex.split(told["command"])[-2]) == ("memmap 16", url)
    assert server.asked("train-002") == 0  # four of the six stand for all
    assert not [path for path in scratch.rglob("*") if path.suffix in (".tar", ".npy")]


# ---------------------------------------------------------------------------------------------- folders with an index


@pytest.fixture
def sets(server: Server, root: str) -> str:
    """The URL of the bucket, which has these folders too."""
    for name in (*SETS, "lerobot/v21/arms"):
        server.put_folder(f"bucket/{name}", files_of(FIXTURES / name))
    return root


@pytest.mark.usefixtures("looked_through_here")
@pytest.mark.parametrize(("root", "name"), [(scheme, name) for name, scheme in SETS.items()], indirect=["root"])
def test_the_store_is_that_of_the_folder(server: Server, sets: str, name: str, tmp_path: Path) -> None:
    """By the URL of the index, which says what it is, or by that of the folder and its kind."""
    kind = name.partition("/")[0]
    index, options = ("meta/info.json", ()) if kind == "lerobot" else ("index.json", ("--size", 16))
    pack(FIXTURES / name, tmp_path / "near", *options)
    pack(f"{sets}/{name}/{index}", tmp_path / "far", *options)
    check_files(settled_files(tmp_path / "far"), settled_files(tmp_path / "near"))
    files = [path for path in (FIXTURES / name).rglob("*.*") if path.name != index]
    if kind == "lerobot":  # videos of two cameras have the same names
        assert all(server.asked(path.name) for path in files if path.suffix == ".mp4")
        options = ("--episodes", "4")  # four frames of the 37
        pack(FIXTURES / name, tmp_path / "near", "--restart", *options)
    else:
        assert all(server.asked(path.name) == 1 for path in files)
    pack(f"{sets}/{name}/", tmp_path / "folder", "--source", kind, *options)
    check_files(settled_files(tmp_path / "folder"), settled_files(tmp_path / "near"))


@pytest.mark.parametrize("root", ["s3"], indirect=True)
def test_each_video_is_fetched_once(server: Server, sets: str, tmp_path: Path) -> None:
    """And those of a camera that nobody wants are not."""
    url = f"{sets}/lerobot/v21/arms/meta/info.json"
    pack(url, tmp_path / "far", "--columns", "observation.images.top,action")
    assert [server.asked(f"top/episode_{k:06d}.mp4") for k in range(5)] == [1] * 5
    assert server.asked("observation.images.wrist") == 0


# ---------------------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize("name", ["gone.tar", "rows-2.parquet", "folder.tar", "folder.tfrecord"])
def test_a_missing_object_is_said_to_be_missing(server: Server, root: str, tmp_path: Path, name: str) -> None:
    """Not to be damaged or empty, also where other objects have its name as the beginning of theirs: of such, S3's
    clients say that they have 0 bytes. Where S3 answers 403, as to those who may not list, both reasons are named."""
    server.put_folder("bucket", {"folder.tar/a.jpg": b"a", "folder.tfrecord/a": b"a"})
    ran = run_here("pack", f"{root}/{name}", tmp_path / "store")
    said = f"rawpack: there is no file {root}/{name}: check the URL of the source"
    assert (ran.code, ran.err.startswith(said), (tmp_path / "store").exists()) == (2, True, False), ran.err
    server.faults += [on(name, status(403), method=method) for method in ("GET", "HEAD")]
    ran = run_here("pack", f"{root}/{name}", tmp_path / "store")
    assert ran.code != 0
    for words in (f"{root}/{name} may not be read", "credentials", "same of a file that does not exist"):
        assert words in ran.err


def test_a_url_that_says_nothing_of_an_archive(server: Server, tmp_path: Path) -> None:
    """It is not fetched to see what it is; a kind that is named is opened. An index of nothing says nothing. On a
    machine without what fetches files, that is named first."""
    server.files["bucket/get"], url = server.files["bucket/photos.tar"], f"{server.url}/bucket/get"
    with pytest.raises(UsageError, match=r"does not say what it is.*: add kind= archive\|.*parquet\|recordio"):
        rawpack_packer.pack(url, tmp_path / "store", workers=0)
    with mock.patch.dict(sys.modules, {"fsspec": None}):
        ran = run_here("pack", url, tmp_path / "store")
    assert (ran.code, ran.err) == (1, f"rawpack: {url}: URLs need fsspec: pip install 'rawpack[remote]'\n")
    assert not server.log
    rawpack_packer.pack(url, tmp_path / "store", kind="archive", workers=0)
    assert len(Reader(tmp_path / "store")) == 10
    server.put_folder("bucket/other", {"index.json": b"{}"})
    ran = run_here("pack", f"{server.url}/bucket/other/index.json", tmp_path / "none")
    assert (ran.code, "does not say what it is" in ran.err) == (2, True), ran


# ---------------------------------------------------------------------------------------------- before it is fetched

TRAIN = "s3://bucket/train-{000..005}.tar"


def packed_here(source: str, destination: object, *options: object) -> Ran:
    return run_here("pack", "--workers", 0, *SMALL, *options, source, destination)


def test_a_bucket_to_pack_to_that_is_not_there(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the source is asked for, and none is made by the way."""
    monkeypatch.setenv("RAWPACK_CACHE", str(tmp_path / "cache"))
    server.buckets = {"bucket"}
    ran = packed_here(TRAIN, "s3://bukket/store")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "s3://bukket/store: there is no such bucket; create it first" in ran.err
    assert server.buckets == {"bucket"}
    assert not server.asked("train")


def test_a_store_is_compared_before_its_source_is_fetched(server: Server, tmp_path: Path) -> None:
    """The same command resumes a run that was stopped, and has nothing to do where the store is whole; other options
    are refused, and a file that has changed since."""
    store = tmp_path / "store"
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=OSError(28, "No space left on device")):
        assert packed_here(TRAIN, store).code == 1
    server.log.clear()
    ran = packed_here(TRAIN, store, "--color", "gray")
    assert ran.code == 2
    assert "was begun, and the recipe differs: --color was rgb: give the same options to resume" in ran.err
    assert packed_here(TRAIN, store).code == 0
    assert not server.asked("train-")
    assert json.loads(packed_here(TRAIN, store, "--json").out)["already_complete"] is True
    ran = packed_here(TRAIN, store, "--size", 16)
    assert ran.code == 2
    assert "and the recipe differs: --size was 48: name another destination. --restart deletes this store" in ran.err
    server.files["bucket/train-003.tar"] = server.files["bucket/train-003.tar"].replace(b"JFIF", b"JFIg")
    ran = packed_here(TRAIN, store)
    assert ran.code == 2
    assert "and the source differs: its files, their times or their order" in ran.err


# ---------------------------------------------------------------------------------------------- what a person sees


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Progress is shown within a tenth of a second; what comes is set once a line has said what is waited for."""
    monkeypatch.setattr("rawpack_packer.sources.table.remote_files._SHOW_EVERY_S", 0.02)
    monkeypatch.setattr(progress, "_SHOW_EVERY_S", 0.02)
    for name, seconds in (("_LINE_EVERY_S", 0.1), ("_WAITING_S", 0.2), ("_STILL_WAITING_S", 0.2)):
        monkeypatch.setattr(progress, name, seconds)
    waits, told = progress.Lines.waits, threading.Event()

    def tells(lines: progress.Lines, why: str) -> None:
        waits(lines, why)
        if "still waiting" in why:
            told.set()

    monkeypatch.setattr(progress.Lines, "waits", tells)
    return told


def test_lines_while_archives_are_fetched(server: Server, tmp_path: Path, told: threading.Event) -> None:
    """Elsewhere than in a terminal, lines say how much has arrived, of how much, and how fast; and what is waited for.
    The standard output is that of any run, and --quiet has none of it."""
    total = sum(len(data) for name, data in server.files.items() if "train-" in name)
    url = f"{server.url}/bucket/train-{{000..005}}.tar"
    server.faults.append(on("train-003", lambda request: not told.wait(60), 1))
    ran = packed_here(url, tmp_path / "one", "--json")
    assert (ran.code, json.loads(ran.out)["samples"]) == (0, SHARDS * SAMPLES)
    # On a busy machine, the first line may come before the sizes of all files are known.
    line = rf"^rawpack: fetched \S+ [kM]B of {size(total)}, [\d.]+ MB/s(, .* left)?$"
    assert re.search(line, ran.err, re.M), ran.err
    assert re.search(rf"^rawpack: still waiting for {server.url}/bucket/train-00\d\.tar after \d+ s; ", ran.err, re.M)
    server.faults.append(on("train-003", slow(1.0), 1))
    assert packed_here(url, tmp_path / "two", "--quiet").err == ""


@pytest.mark.usefixtures("told")
def test_a_server_that_does_not_answer(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before it is given up, a line says what is waited for, without secrets, and until when."""
    monkeypatch.setattr("rawpack_packer.sources.table.remote_files.TIMEOUT_S", 1.5)
    server.faults += [on("photos.tar", slow(2.0), 9, method) for method in ("HEAD", "GET")]
    url = f"{server.url}/bucket/photos.tar"
    ran = run_here("pack", "--workers", 0, f"{url}?key=secret", tmp_path / "store")
    assert ran.code == 1
    assert re.search(rf"rawpack: still waiting for {re.escape(url)}\?\.\.\. after \d+ s; gives up after 2 s", ran.err)
    assert "photos.tar?... cannot be read" in ran.err
    assert "secret" not in ran.err


def test_at_a_terminal_bytes_have_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first byte, too; it is gone at the end, and lines stay that say what is waited for, and why."""
    for name in ("_WAITING_S", "_STILL_WAITING_S", "_BAR_AFTER_S"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress, "bar", partial(progress.bar, delay=0, mininterval=0))
    shown = progress.Fetching(progress.Bar())
    for done in (0, 3_000_000, 3_000_000):
        shown.show(done, 4_000_000, "http://x/a.tar", 120, "503: busy")
    shown.end()
    err = capsys.readouterr().err
    assert re.search(r"fetching:   0%\|.*\| 0\.00/4\.00M ", err), err
    assert re.search(r"fetching:  75%\|.*\| 3\.00M/4\.00M \[.*B/s\]", err), err
    assert "rawpack: still waiting for http://x/a.tar after 0 s (503: busy); gives up after 120 s\n" in err
    assert err.endswith("\r")
