"""What was scanned is saved for a run that resumes: it is used by the same command alone, and never if somebody else
wrote it. That each kind of source can be saved, the corpus of layouts shows."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import every_kind
import numpy as np
import pytest
from archived import tar, zipped
from folders import files_of
from forked import Forks
from killed_child import killing
from pictures import encoded, picture, save
from running import Ran, pack, run_here
from store_server import Server, limit_spools, serving

from rawpack import Reader
from rawpack_packer.destination import files
from rawpack_packer.job import opening, saved_tables
from rawpack_packer.testing.engines import check_files, settled_files

SMALL = ("--size", 32, "--shard-size", 1, "--max-rejects", 1)
COMMIT = "rawpack_packer.job.job.commit_store"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of classes, a listing of it, archives of it, arrays, and splits; some beside others of their kind."""
    root = tmp_path_factory.mktemp("sources")
    images = [encoded(picture(40, 60, k), "JPEG", quality=95) for k in range(8)]
    photos = {f"photos/{'ab'[i % 2]}/{i}.jpg": image for i, image in enumerate(images)}
    divided = {f"divided/{split}/a/0.jpg": images[0] for split in ("train", "val")}
    for name, image in (photos | divided).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(image)
    rows = [f"{name},{'ab'[i % 2]},{i // 6}" for i, name in enumerate(photos)]
    (root / "list.csv").write_text("\n".join(["path,label,fold", *rows]) + "\n")
    (root / "photos.zip").write_bytes(zipped(photos))
    for name in ("photos.tar", "other.tar"):
        (root / name).write_bytes(tar(photos | {"photos/a/bad.jpg": b"no image"}))
    for name in ("x.npy", "other.npy"):
        np.save(root / name, np.zeros((8, 4, 4, 3), np.uint8))
    for number in range(2):
        members = {f"{i}.jpg": images[i] for i in range(4 * number, 4 * number + 4)}
        (root / f"train-{number}.tar").write_bytes(tar(members))
    (root / "packed.tar.gz").write_bytes(gzip.compress((root / "photos.tar").read_bytes()))
    return root


def quiet(*command: object) -> Ran:
    return run_here(command[0], "--quiet", "--workers", 0, *command[1:])


def pack_again(*command: object) -> None:
    assert quiet(*command).code == 0


def stop(*command: object) -> None:
    """Run a command that packs until all parts are done, but nothing is committed."""
    with mock.patch(COMMIT, side_effect=KeyboardInterrupt):
        ran = quiet(*command)
    assert ran.code == 130, ran


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are opened as sources from now on."""
    opened, whole = list[str](), opening.open_source

    def counted(path: Any, **options: Any) -> Any:
        opened.append(os.fspath(path))
        return whole(path, **options)

    monkeypatch.setattr(opening, "open_source", counted)
    return opened


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, ()) for name in ("photos", "list.csv", "photos.zip", "train-{0..1}.tar", "packed.tar.gz")),
        ("photos", ("--splits", "a,b")),
        ("photos", ("--holdout", "val=2")),
        ("list.csv", ("--split-by", "fold=train:0,val:1")),
    ],
)
def test_a_run_that_resumes_opens_no_source(
    sources: Path, tmp_path: Path, opens: list[str], name: str, options: tuple[str, ...]
) -> None:
    """Its stores have the bytes of an undisturbed run, the summary says when the source was scanned, and nothing is
    left at the end."""
    command = ("pack", *SMALL, *options, sources / name)
    assert quiet(*command, tmp_path / "once").code == 0
    stop(*command, tmp_path / "again")
    opens.clear()
    ran = run_here(command[0], "--workers", 0, *command[1:], tmp_path / "again")
    assert (ran.code, opens) == (0, []), ran
    assert ("  scanned " in ran.out, "--restart packs what was added since" in ran.out) == (True, True)
    stores = [file.parent.relative_to(tmp_path / "once") for file in (tmp_path / "once").rglob("store.json")]
    assert len(stores) == (2 if options else 1)
    for store in stores:
        check_files(settled_files(tmp_path / "again" / store), settled_files(tmp_path / "once" / store))
    assert not [*(tmp_path / "again").rglob(".rawpack")]


def test_so_does_an_append(sources: Path, tmp_path: Path, opens: list[str]) -> None:
    for name in ("once", "store"):
        pack(sources / "photos" / "a", tmp_path / name, *SMALL)
    more = sources / "photos" / "b"
    assert quiet("append", more, tmp_path / "once").code == 0
    stop("append", more, tmp_path / "store")
    opens.clear()
    assert (quiet("append", more, tmp_path / "store").code, opens) == (0, [])
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))
    assert not (tmp_path / "store" / ".rawpack").exists()


def test_what_was_added_is_not_seen_and_what_changed_is_refused(sources: Path, tmp_path: Path) -> None:
    """--restart packs all."""
    folder = Path(shutil.copytree(sources / "photos", tmp_path / "photos"))
    stop("pack", *SMALL, folder, tmp_path / "store")
    save(folder / "a" / "new.png", picture(20, 20, 3))
    shutil.copytree(tmp_path / "store", tmp_path / "changed")
    pack(folder, tmp_path / "store", *SMALL)
    assert "a/new.png" not in list(Reader(tmp_path / "store").column("key"))
    for record in (tmp_path / "changed" / ".rawpack").glob("part-*"):
        record.unlink()
    (folder / "b" / "1.jpg").write_bytes(encoded(picture(9, 9, 9), "JPEG"))
    ran = quiet("pack", *SMALL, folder, tmp_path / "changed")
    assert (ran.code, "1.jpg" in ran.err, "changed" in ran.err) == (1, True, True), ran.err
    pack(folder, tmp_path / "changed", *SMALL, "--restart")
    assert "a/new.png" in list(Reader(tmp_path / "changed").column("key"))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("list.csv", lambda folder: (folder / "list.csv").write_text("path,label\nphotos/a/0.jpg,b\n"), ()),
        ("photos", lambda folder: None, ("--limit", 3)),
        ("photos.tar", lambda folder: os.utime(folder / "photos.tar", ns=(1, 1)), ()),
    ],
)
def test_another_command_or_file_scans_again(
    sources: Path, tmp_path: Path, opens: list[str], name: str, change: Callable[[Path], Any], words: tuple[Any, ...]
) -> None:
    """And says what differs, as where nothing is saved; --restart packs it."""
    folder = Path(shutil.copytree(sources, tmp_path / "all"))
    stop("pack", *SMALL, folder / name, tmp_path / "store")
    change(folder)
    opens.clear()
    ran = quiet("pack", *SMALL, *words, folder / name, tmp_path / "store")
    assert (ran.code, "differ" in ran.err, opens) == (2, True, [str(folder / name)]), ran.err
    pack(folder / name, tmp_path / "store", *SMALL, *words, "--restart")


def test_labels_in_other_files_are_compared(tmp_path: Path) -> None:
    """A box that was corrected before the run resumes is never lost: nothing is saved of what no worker reads."""
    source = every_kind.yolo(tmp_path, [0, 1, 0], every_kind.pictures("0.png", "1.png", "2.png"))
    command = ("pack", *SMALL, "--source", "yolo", source, tmp_path / "store")
    stop(*command)
    assert not (tmp_path / "store" / ".rawpack" / "table").exists()
    (source / "labels" / "2.txt").write_text("1 0.5 0.5 0.2 0.2\n0 0.1 0.1 0.1 0.1\n")
    assert (quiet(*command).code, quiet(*command, "--restart").code) == (2, 0)


@pytest.mark.parametrize("which", ["half the columns", "half the description", "of another version"])
def test_what_is_no_whole_table_of_this_version_is_none(
    sources: Path, tmp_path: Path, opens: list[str], monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The source is scanned again."""
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    if which == "of another version":
        monkeypatch.setattr(saved_tables, "__version__", "0.0.1")
    else:
        table = tmp_path / "store" / ".rawpack" / "table"
        file = table / ("columns.npy" if which == "half the columns" else "table.json")
        os.truncate(file, file.stat().st_size // 2)
    opens.clear()
    pack(sources / "photos", tmp_path / "store", *SMALL)
    assert opens == [str(sources / "photos")]


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
@pytest.mark.parametrize(
    ("event", "word", "name", "used"),
    [
        ("open", "table/columns.npy", "photos", False),
        ("fsync", "table/columns.npy", "list.csv", False),
        ("os.rename", "table/table.json.tmp", "photos.zip", False),
        ("os.rename", ".rawpack/job.tmp", "photos", False),
        ("os.rename", ".rawpack/shard-00000", "train-{0..1}.tar", True),
    ],
)
def test_killed_while_the_table_is_written(
    sources: Path, tmp_path: Path, opens: list[str], forks: Forks, event: str, word: str, name: str, used: bool
) -> None:
    """Where what had not been synced is torn: the next run scans again until the whole table is on the disk, and packs
    what an undisturbed run does."""
    store, command = tmp_path / "store", ("pack", *SMALL, sources / name)
    pack(sources / name, tmp_path / "once", *SMALL)
    killed = forks.command(*command, "--workers", 0, store, before=killing(event, word, store, torn=True))
    assert killed.code == -signal.SIGKILL, killed
    assert any((store / ".rawpack" / "table").iterdir()) == (event != "open")
    opens.clear()
    assert (quiet(*command, store).code, opens) == (0, [] if used else [str(sources / name)])
    check_files(settled_files(store), settled_files(tmp_path / "once"))


def test_a_disk_that_is_full_before_the_table_is_written(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the table is left, and the same command packs once there is room."""
    command, whole = ("pack", *SMALL, sources / "photos"), files.sync_file
    pack(sources / "photos", tmp_path / "once", *SMALL)

    def full(path: Path) -> None:
        if path.name == "columns.npy":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        whole(path)

    monkeypatch.setattr(files, "sync_file", full)
    ran = quiet(*command, tmp_path / "store")
    assert (ran.code, "No space left on device" in ran.err, len(ran.err.splitlines())) == (1, True, 1), ran
    assert not (tmp_path / "store" / ".rawpack" / "table").exists()
    monkeypatch.setattr(files, "sync_file", whole)
    assert quiet(*command, tmp_path / "store").code == 0
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))


def test_of_this_user_alone_and_only_while_packing(sources: Path, tmp_path: Path) -> None:
    pack(sources / "photos", tmp_path / "dry", *SMALL, "--dry-run")
    assert not (tmp_path / "dry").exists()
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    table = tmp_path / "store" / ".rawpack" / "table"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (table, *table.iterdir())}
    assert modes == {"table": 0o700, "columns.npy": 0o600, "table.json": 0o600}
    pack(sources / "photos", tmp_path / "store", *SMALL)
    again = run_here("pack", "--workers", 0, *SMALL, sources / "photos", tmp_path / "store")
    assert (again.code, "Nothing to do" in again.out, "scanned" in again.out) == (0, True, False)
    assert not (tmp_path / "store" / ".rawpack").exists()


@pytest.fixture
def server(sources: Path) -> Iterator[Server]:
    with serving() as started:
        started.put_folder("files", files_of(sources))
        yield started


@pytest.mark.parametrize("name", ["photos.zip", "train-{0..1}.tar"])
def test_a_run_that_resumes_fetches_only_what_it_packs(
    server: Server, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All parts are done, and the spool was too small for any archive: nothing is fetched again."""
    limit_spools(monkeypatch, 1)
    pack(sources / name, tmp_path / "once", *SMALL)
    stop("pack", *SMALL, f"{server.url}/files/{name}", tmp_path / "store")
    server.log.clear()
    pack(f"{server.url}/files/{name}", tmp_path / "store", *SMALL)
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))
    assert not [path for method, path in server.log if method == "GET"]


def test_no_secret_of_a_url_is_in_a_file(
    server: Server, tmp_path: Path, opens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a signature nor a password, of a job that was stopped or is finished; a new signature resumes it, and
    another query scans again."""
    limit_spools(monkeypatch, 1)
    store, url = tmp_path / "store", f"{server.url.replace('://', '://me:pa55word@')}/files/photos.tar"
    for secret, run in (("hush-hush", stop), ("0therSignature", pack_again)):
        opens.clear()
        run("pack", *SMALL, f"{url}?X-Amz-Signature={secret}", store)
        written = b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
        for one in (b"hush-hush", b"0therSignature", b"pa55word"):
            assert written
            assert one not in written
    assert opens == []
    stop("pack", *SMALL, f"{server.url}/files/photos.tar?version=1", tmp_path / "other")
    opens.clear()
    quiet("pack", *SMALL, f"{server.url}/files/photos.tar?version=2", tmp_path / "other")
    assert opens == [f"{server.url}/files/photos.tar?version=2"]


def test_nothing_is_saved_of_files_without_a_version(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that tells neither an ETag nor a time may have other bytes at the next look."""
    monkeypatch.setattr("rawpack.remote.transfer._VERSIONS", ())
    stop("pack", *SMALL, f"{server.url}/files/photos.tar", tmp_path / "store")
    assert not (tmp_path / "store" / ".rawpack" / "table").exists()
