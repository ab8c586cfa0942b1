"""What others put into a folder that rawpack writes into: no link is followed, no file of theirs or ours is changed."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import files_of
from pictures import picture, save
from running import FORMATS, pack, run_here

import rawpack
from rawpack import Reader
from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import FileRecord
from rawpack.errors import PackError, StoreError, UsageError
from rawpack.remote.cache import CacheFolder
from rawpack.system import writing
from rawpack.system.writing import WORK
from rawpack_packer.destination.lock import Lock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs links")
NAMES = [f"{folder}/{i}.png" for folder in ("cat", "dog") for i in range(5)]
_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs other users")
Plant = Callable[[Path, Path], object]
LINKS: dict[str, Plant] = {
    "a link": lambda path, mine: path.symlink_to(mine),
    "a link to nowhere": lambda path, mine: path.symlink_to(mine.parent / "nowhere"),
    "a pipe": lambda path, mine: os.mkfifo(path),
    "a folder": lambda path, mine: path.mkdir(),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the user, which nothing may change."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("# mine\n")
    return tmp_path / "home"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i, name in enumerate(NAMES):
        save(root / name, picture(12, 12, i))
    (root / "cat" / "bad.png").write_text("no image")
    return root


@pytest.fixture(scope="module")
def sound(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(photos, tmp_path_factory.mktemp("sound") / "store", "--size", 8, "--max-rejects", 1)


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("key", "score"), *((name, i + 0.5) for i, name in enumerate(NAMES))])
    return tmp_path / "scores.csv"


# ---------------------------------------------------------------------------------------------- the module


@pytest.mark.parametrize("kind", LINKS)
def test_a_new_file_takes_no_place_but_that_of_a_file(home: Path, tmp_path: Path, kind: str) -> None:
    """Anything else of its name is refused with the path, and stays; a pipe does not block."""
    path = tmp_path / WORK / "rejects.jsonl.tmp"
    path.parent.mkdir()
    LINKS[kind](path, home / ".bashrc")
    before, mode = files_of(home), path.lstat().st_mode
    for make in (writing.create, writing.remove, writing.read, writing.touch, lambda path: writing.reopen(path, "ab")):
        with pytest.raises(PackError, match=r"rejects\.jsonl\.tmp is a .*remove it"):
            make(path)
    assert (files_of(home), path.lstat().st_mode) == (before, mode)
    if kind != "a folder":
        for make in (writing.make_folder, writing.make_empty_folder, writing.remove_folder):
            with pytest.raises(PackError, match=r"rejects\.jsonl\.tmp is a .*remove it"):
                make(path)
    assert (files_of(home), path.lstat().st_mode) == (before, mode)


def test_a_new_file_is_no_second_name_of_another(home: Path, tmp_path: Path) -> None:
    """A file of its name is removed, and not overwritten: under a second name it is as it was. One that is opened again
    may have no second name."""
    path = tmp_path / "file"
    os.link(home / ".bashrc", path)
    for open_again in (writing.read, writing.touch, lambda path: writing.reopen(path, "r+b")):
        with pytest.raises(PackError, match=f"{path} has a second name"):
            open_again(path)
    with writing.create(path) as file:
        file.write(b"theirs")
    assert (path.read_bytes(), (home / ".bashrc").read_text()) == (b"theirs", "# mine\n")
    assert writing.read(path) == b"theirs"


def test_no_folder_on_the_way_is_a_link(home: Path, tmp_path: Path) -> None:
    """From the folder that the user named on; that itself may be reached through links."""
    (tmp_path / "real" / WORK / "spool").mkdir(parents=True)
    (tmp_path / "store").symlink_to("real")
    folder, new, before = tmp_path / "store" / WORK / "spool" / "a", tmp_path / "new", files_of(home)
    folder.symlink_to(home)
    new.write_bytes(b"")
    for change in (
        lambda: writing.create(folder / "x"),
        lambda: writing.touch(folder / ".bashrc"),
        lambda: writing.replace(new, folder / ".bashrc"),
        lambda: writing.make_folder(folder / "deep" / "er"),
        lambda: writing.remove_folder(folder / "b"),
    ):
        with pytest.raises(PackError, match=f"{WORK}/spool/a is a symbolic link"):
            change()
    assert files_of(home) == before
    folder.unlink()
    writing.make_folder(folder)
    writing.create(folder / "x").close()
    assert (tmp_path / "real" / WORK / "spool" / "a" / "x").is_file()


@_root
def test_a_file_that_is_opened_again_is_of_this_user_or_of_the_owner(tmp_path: Path) -> None:
    """Whoever else may write into the folder could have made it."""
    folder = tmp_path / "store" / WORK
    folder.mkdir(parents=True)
    lock = folder / "lock"
    writing.touch(lock)
    os.chown(lock, 4321, -1)
    for open_again in (writing.read, writing.touch):
        with pytest.raises(PackError, match=r"lock belongs to another user \(4321\)"):
            open_again(lock)
    with pytest.raises(PackError, match="lock belongs to another user"), Lock(tmp_path / "store"):
        pass
    assert [path.name for path in folder.iterdir()] == ["lock"]
    os.chown(tmp_path / "store", 4321, -1)
    writing.touch(lock)
    with Lock(tmp_path / "store"):
        pass


@_root
def test_where_a_disk_has_other_users_what_this_user_makes_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS has for root: what this user has made is not taken for a stranger's, and nothing is left."""
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    writing.touch(path)
    os.chown(path.parent, 9999, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    writing.touch(path)
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_library_has_the_file_that_was_made_for_it(home: Path, tmp_path: Path) -> None:
    """Where somebody puts another file in its place meanwhile, that is an error."""
    path = tmp_path / "shard.tmp"

    def make() -> None:
        with writing.created_for(path):
            path.unlink()
            path.symlink_to(home / ".bashrc")

    with pytest.raises(PackError, match=r"shard\.tmp was replaced"):
        make()
    assert (home / ".bashrc").read_text() == "# mine\n"


# ---------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("name", ["rejects.jsonl.tmp", "columns-2.tmp", "lock"])
def test_relabel_follows_no_link_in_a_store(store: Path, home: Path, scores: Path, name: str) -> None:
    """The path is named, the user's files are as they were, and the store is the old one."""
    (store / WORK).mkdir()
    (store / WORK / name).symlink_to(home if name.startswith("columns") else home / ".bashrc")
    old, before = manifests.load(store)[1], files_of(home)
    ran = run_here("relabel", "--from", scores, store)
    assert ran.code == 1
    assert f"{WORK}/{name} is a symbolic link" in ran.err
    assert (files_of(home), manifests.load(store)[1]) == (before, old)
    assert [*rawpack.verify(store)] == [] or (store / WORK / name).is_symlink()


@pytest.mark.parametrize("kind", ["a pipe", "a device without an end"])
@pytest.mark.parametrize("name", ["rejects.jsonl", "columns-2", "columns-1/key.npy", "store.json"])
def test_nothing_waits_for_a_file_that_is_none(store: Path, scores: Path, kind: str, name: str) -> None:
    """Neither for a pipe without a writer nor for the end of a device, which both have the size of an empty file: the
    path is named."""
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name) if kind == "a pipe" else (store / name).symlink_to("/dev/zero")
    ran = run_here("relabel", "--from", scores, store)
    assert (name in ran.err) if ran.code else name == "columns-2", ran


def test_second_names_of_a_users_files_are_not_written_to(
    store: Path, home: Path, scores: Path, photos: Path, tmp_path: Path
) -> None:
    """A store of which each file has a second name elsewhere, as of a copy by hard links: the copy stays as it is,
    whatever is done to the store; and what a store's work folder has under names of ours is not written to."""
    shutil.copytree(store, tmp_path / "copy", copy_function=os.link)
    (store / WORK).mkdir()
    for name in ("rejects.jsonl.tmp", "provenance.npy.tmp", "provenance.json.tmp", "store.json.tmp"):
        os.link(home / ".bashrc", store / WORK / name)
    copy = files_of(tmp_path / "copy")
    assert run_here("append", "--skip-existing", "--max-rejects", 1, photos, store).code == 0
    assert run_here("relabel", "--from", scores, store).code == 0
    assert run_here("pack", "--restart", "--size", 9, "--max-rejects", 1, photos, store).code == 0
    assert (files_of(tmp_path / "copy"), (home / ".bashrc").read_text()) == (copy, "# mine\n")
    assert [*rawpack.verify(store)] == []


@pytest.mark.parametrize(
    ("layout", "name", "hard"),
    [
        ("memmap", "shard-00000.npy.tmp", False),
        ("hdf5", "shard-00000.h5.image.spool", False),
        ("hdf5", "shard-00000.h5.tmp", True),
        ("lmdb", "shard-00000.lmdb.tmp", True),
    ],
)
def test_a_shard_is_not_written_through_a_link(
    photos: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, name: str, hard: bool
) -> None:
    """Under the temporary names of each format, of which libraries open some: a link is refused, a second name left."""
    store, make = tmp_path / "store", writing.create
    place = store / WORK / name

    def planted(path: Path, *args: Any, **how: Any) -> Any:
        """Planted once the run has cleared the work folder."""
        if path.name.startswith("shard-") and not os.path.lexists(place):
            os.link(home / ".bashrc", place) if hard else place.symlink_to(home / ".bashrc")
        return make(path, *args, **how)

    monkeypatch.setattr(writing, "create", planted)
    ran = run_here("pack", *FORMATS[layout], "--size", 8, "--workers", 0, "--max-rejects", 1, photos, store)
    assert (ran.code, f"{name} is a symbolic link" in ran.err) == ((0, False) if hard else (1, True)), ran
    assert (home / ".bashrc").read_text() == "# mine\n"
    assert not hard or [*rawpack.verify(store)] == []


def test_an_export_follows_no_link(store: Path, home: Path, tmp_path: Path) -> None:
    """Neither under a temporary name nor as a folder of its tree."""
    before = files_of(home)
    out = tmp_path / "out"
    assert run_here("export", "--quiet", store, out).code == 0
    shutil.rmtree(out / "cat")
    (out / "cat").symlink_to(home)
    ran = run_here("export", store, out)
    assert (ran.code, "cat is a symbolic link" in ran.err, files_of(home)) == (1, True, before), ran


# ---------------------------------------------------------------------------------------------- links that are right


def test_a_destination_may_be_a_link(photos: Path, scores: Path, tmp_path: Path) -> None:
    """The folder that the user names is theirs: it may be a link to another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    link = pack(photos, tmp_path / "link", "--size", 8, "--max-rejects", 1)
    assert run_here("relabel", "--from", scores, link).code == 0
    assert run_here("pack", "--restart", "--size", 9, "--max-rejects", 1, photos, link).code == 0
    assert link.is_symlink()
    assert [*rawpack.verify(tmp_path / "disk")] == []
    (tmp_path / "files").mkdir()
    (tmp_path / "out").symlink_to("files")
    assert run_here("export", "--quiet", link, tmp_path / "out").code == 0
    assert (tmp_path / "files" / "cat" / "0.png").is_file()


def test_files_of_a_store_that_is_read_may_be_links(store: Path, scores: Path, tmp_path: Path) -> None:
    """As the cache of the Hub has them, to other disks: it reads, and is sound; what a relabel writes are its own new
    files, never what the links lead to."""
    expected = [sample["image"] for sample in Reader(store)]
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "main"
    blobs.mkdir(parents=True)
    snapshot.parent.mkdir()
    for k, path in enumerate([path for path in store.rglob("*") if path.is_file()]):
        shutil.move(path, blobs / f"{k:040x}")
        path.symlink_to(os.path.relpath(blobs / f"{k:040x}", snapshot / path.relative_to(store).parent))
    shutil.move(store, snapshot)
    store.symlink_to(snapshot)
    linked = files_of(blobs)
    checked = rawpack.verify(store)
    assert ([*checked], checked.unlisted) == ([], [])
    for batch in Reader(store, verify=True).batches(4, workers=0):
        np.testing.assert_array_equal(batch["image"], [expected[i] for i in batch["index"]])
    assert run_here("relabel", "--from", scores, store).code == 0
    assert not (store / "store.json").is_symlink()
    assert Reader(store, verify=True).column("score").tolist() == [i + 0.5 for i in range(10)]
    assert files_of(blobs) == linked


@pytest.mark.parametrize("name", ["lock", f"{'0' * 32}", f"{'0' * 32}/a.tar.5.part"])
def test_a_spool_follows_no_link(home: Path, tmp_path: Path, name: str) -> None:
    """The folder that files behind URLs are fetched into is in the destination: see `rawpack.remote.cache`."""
    place, before = tmp_path / "store" / WORK / "spool" / name, files_of(home)
    place.parent.mkdir(parents=True)
    place.symlink_to(home if name == "0" * 32 else home / ".bashrc")

    def fetch() -> None:
        cache = CacheFolder(place.parents[name.count("/")], 1 << 20)
        with cache.locked():
            descriptor = cache.begin(("0" * 32, "a.tar"), FileRecord(name="a.tar", bytes=5, xxh3=""), None)
        assert isinstance(descriptor, int)
        os.close(descriptor)

    with pytest.raises((UsageError, StoreError), match=f"{name} is a symbolic link"):
        fetch()
    assert files_of(home) == before


def test_a_stream_is_not_taken_through_a_link(home: Path, tmp_path: Path) -> None:
    """What is kept of it before it is packed is in the destination too."""
    folder = tmp_path / "store" / WORK / "spool" / "stream"
    folder.mkdir(parents=True)
    (folder / "samples").symlink_to(home / ".bashrc")
    samples = ({"image": np.full((8, 8, 3), i, np.uint8), "label": i} for i in range(5))
    with pytest.raises(PackError, match="samples is a symbolic link"):
        rawpack.pack(samples, tmp_path / "store", workers=0)
    assert (home / ".bashrc").read_text() == "# mine\n"
