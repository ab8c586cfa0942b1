"""What packing does where some of a source cannot be looked into, and where its folders are splits and not classes."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import rejects_of
from pictures import picture, save
from running import Ran, run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.errors import PackError
from rawpack_packer.sources import SourceChangedError, open_source
from rawpack_packer.sources.folder import is_split
from rawpack_packer.sources.table.named_files import named_files

SMALL = ("--size", "16", "--workers", 0)


def folder(root: Path, **classes: int) -> Path:
    """So many different PNG files in each class."""
    for k, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            save(root / name / f"{i}.png", picture(16, 16, 100 * k + i))
    return root


PETS = {"cat": 4, "dog": 3, "eel": 2}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three classes, of which `cat` comes first."""
    return folder(tmp_path / "pets", **PETS)


def divided(root: Path, *names: str) -> Path:
    """A folder with folders of two classes in each of these."""
    for name in names:
        folder(root / name, cat=2, dog=2)
    return root


_CAPABILITIES = struct.pack("Ii", 0x20080522, 0)
"""The header of capget and capset: their version 3, and this thread."""
_OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


def bound(*args: object) -> Ran:
    """Run the command in a thread that permissions bind, also where these tests are root's."""
    if sys.platform != "linux":
        pytest.skip("takes Linux's capabilities away")
    libc, held = ctypes.CDLL(None), ctypes.create_string_buffer(24)
    assert libc.capget(_CAPABILITIES, held) == 0
    effective, *others = struct.unpack("6I", held.raw)
    assert libc.capset(_CAPABILITIES, struct.pack("6I", effective & ~_OVERRIDES, *others)) == 0
    try:
        return run_here(*args)
    finally:
        assert libc.capset(_CAPABILITIES, held) == 0


@pytest.fixture
def locked(pets: Path) -> Iterator[Path]:
    """The pets, of which nobody may look at `cat`."""
    (pets / "cat").chmod(0)
    yield pets
    (pets / "cat").chmod(0o755)


# ---------------------------------------------------------------------------------------------- refused


def test_a_locked_class_ends_packing_before_anything_is_written(locked: Path, tmp_path: Path) -> None:
    """A folder whose permissions forbid it, or which may be listed and not entered, ends the command with exit code 1
    and its name, whatever rejects are allowed, and no destination is made; as a split, it is not said to be missing."""
    options = ("-q", "--max-rejects", "100%")
    for mode in (0, 0o444):
        (locked / "cat").chmod(mode)
        ran = bound("pack", *SMALL, *options, locked, tmp_path / "store")
        assert (ran.code, ran.out) == (1, ""), ran
        assert "cat/0.png cannot be read" in ran.err or "cat/ cannot be read: [Errno 13] Permission denied" in ran.err
        assert "--skip-unreadable" in ran.err
    (locked / "cat").chmod(0)
    ran = bound("pack", *SMALL, "--splits", "dog,cat", locked, tmp_path / "store")
    assert (ran.code, ran.out) == (2, ""), ran
    assert f"{locked}/cat cannot be read: [Errno 13] Permission denied" in ran.err
    assert not (tmp_path / "store").exists()


def test_a_link_that_may_be_a_class_and_leads_nowhere(pets: Path, tmp_path: Path) -> None:
    """A link to a folder on a disk that is not there is named; it is not left out in silence."""
    (pets / "fox").symlink_to(tmp_path / "not mounted")
    ran = run_here("pack", *SMALL, pets, tmp_path / "store")
    assert (ran.code, ran.out) == (1, "")
    assert "fox cannot be read: [Errno 2]" in ran.err
    assert not (tmp_path / "store").exists()


def test_a_listing_that_breaks_off(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder of the source can be opened and not be read to its end, no option packs what was seen; of a
    class, it is what could not be looked into, beside the files that were seen."""
    scandir = os.scandir

    class Broken:
        def __init__(self, path: Any) -> None:
            self._found = scandir(path)
            self.close = self._found.close

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            yield next(self._found)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def __exit__(self, *_: object) -> None:
            self.close()

    def break_off(at: Path) -> None:
        monkeypatch.setattr(os, "scandir", lambda path=".": (Broken if Path(path) == at else scandir)(path))

    break_off(pets)
    with pytest.raises(PackError, match=r"pets cannot be read: \[Errno 5\]"):
        open_source(pets, "folder", skip_unreadable=True)
    break_off(pets / "cat")
    source = open_source(pets, "folder", skip_unreadable=True)
    assert source.key(0) == "cat/"
    assert source.key(1).startswith("cat/")
    assert len(source) == 1 + 1 + 3 + 2


@pytest.mark.parametrize("name", ["dog", "dog/1.png"])
def test_what_vanishes_during_the_scan(pets: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A folder or file that is removed between two looks means that the source changes: no option skips that."""
    real = os.stat

    def stat(path: Any, *more: Any, **options: Any) -> Any:
        if not isinstance(path, int) and os.fsdecode(path).rstrip("/") == str(pets / name):
            (shutil.rmtree if name == "dog" else os.unlink)(pets / name)
            monkeypatch.setattr(os, "stat", real)
        return real(path, *more, **options)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(SourceChangedError, match=f"{name}/? was removed while the source was scanned"):
        open_source(pets, "folder", skip_unreadable=True)


def _grown(path: Path, meanwhile: bool) -> None:
    assert meanwhile, "it was opened"
    path.write_bytes(b"another")


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_file_that_changes_before_it_is_looked_through_or_meanwhile(tmp_path: Path, meanwhile: bool) -> None:
    """What was found in an archive, a table or an index is not used with the bytes of another one."""
    path = tmp_path / "a.tar"
    path.write_bytes(b"one")
    files = named_files(path)
    if not meanwhile:
        path.write_bytes(b"another")
    with pytest.raises(SourceChangedError, match="it had 3 bytes and has 7"), files.opened(0):
        _grown(path, meanwhile)


# ---------------------------------------------------------------------------------------------- skipped


def test_the_rest_is_packed_when_asked_for(locked: Path, tmp_path: Path) -> None:
    """`--skip-unreadable` packs what there is under unshifted labels, lists the folder, counts it, and ends in 1, also
    under `--strict` and `--max-rejects 0`, and when the same command finds the store complete."""
    store = tmp_path / "store"
    options = ("--skip-unreadable", "--strict", "--max-rejects", 0)
    ran = bound("pack", *SMALL, *options, locked, store)
    assert ran.code == 1, ran
    assert "1 folder or file of the source could not be read" in ran.err
    assert "5 images in 3 classes" in ran.err
    assert rejects_of(store) == [
        {"sample": 0, "key": "cat/", "reason": "not_scanned", "detail": "[Errno 13] Permission denied"}
    ]
    manifest = json.loads((store / "store.json").read_text("utf-8"))
    assert (manifest["counts"]["problems"], manifest["counts"]["empty_classes"]) == (1, 1)
    assert manifest["rejects"]["reasons"] == {"not_scanned": 1}
    reader = Reader(store)
    assert reader.classes == ("cat", "dog", "eel")
    assert reader.column("key") == ["dog/0.png", "dog/1.png", "dog/2.png", "eel/0.png", "eel/1.png"]
    assert reader.column("label").tolist() == [1, 1, 1, 2, 2]
    assert run_here("inspect", "--verify", store).code == 0
    again = bound("pack", "--json", *SMALL, *options, locked, store)
    assert again.code == 1
    assert (json.loads(again.out)["already_complete"], json.loads(again.out)["unread"]) == (True, 1)


def test_what_was_locked_and_is_not_any_more(locked: Path, tmp_path: Path) -> None:
    """A store that was packed without a locked folder is not taken for one with it: the same command says what became
    readable, and an append brings it in under its own label."""
    store = tmp_path / "store"
    assert bound("pack", "-q", *SMALL, "--skip-unreadable", locked, store).code == 1
    (locked / "cat").chmod(0o755)
    ran = bound("pack", *SMALL, "--skip-unreadable", locked, store)
    assert ran.code == 2
    assert "and the source differs" in ran.err, ran
    assert "rawpack append --skip-existing" in ran.err
    assert bound("append", "-q", "--workers", 0, "--skip-existing", locked, store).code == 0
    reader = Reader(store)
    found = dict(zip(reader.column("key"), reader.column("label").tolist(), strict=True))
    assert found == {f"{name}/{i}.png": k for k, (name, count) in enumerate(PETS.items()) for i in range(count)}


def test_yolo_and_its_labels(tmp_path: Path) -> None:
    """A YOLO folder whose boxes cannot be read ends likewise: without them, images would have none."""
    root = tmp_path / "set"
    save(root / "images/a/0.png", picture(16, 16, 0))
    (root / "labels/a").mkdir(parents=True)
    (root / "labels/a/0.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (root / "labels/a").chmod(0)
    ran = bound("pack", *SMALL, root, tmp_path / "other")
    (root / "labels/a").chmod(0o755)
    assert (ran.code, "labels/a/ cannot be read" in ran.err) == (1, True)


# ---------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("dev", "train", "holdout"), "train,dev,holdout"),
        (("train_images", "test images"), "'train_images,test images'"),
    ],
)
def test_splits_are_not_packed_as_classes(tmp_path: Path, names: tuple[str, ...], order: str) -> None:
    """A folder of splits is refused with exit code 2, nothing is written, and the command that is named packs it."""
    root, store = divided(tmp_path / "my set", *names), tmp_path / "store"
    ran = run_here("pack", *SMALL, root, store)
    assert (ran.code, ran.out, store.exists()) == (2, "", False), ran
    command = ran.err.split("`")[1]
    assert command == f"rawpack pack --splits {order} {shlex.quote(str(root))} {store}"
    assert "--source folder takes them as classes" in ran.err
    assert run_here(*shlex.split(command)[1:], *SMALL).code == 0
    for name in names:
        assert Reader(store, split=name).classes == ("cat", "dog")


def test_folders_beside_splits(tmp_path: Path) -> None:
    """Hidden folders, and folders without images, make no set of splits one of classes; empty splits are left out of
    the command; another folder of images makes it one of classes, as --source folder does."""
    root = divided(tmp_path / "root", "train", "val")
    for name in (".cache", "annotations", "test"):
        (root / name).mkdir()
    (root / "annotations" / "train.json").write_text("{}")
    save(root / ".cache" / "a.png", picture(16, 16, 1))
    with pytest.raises(UsageError, match="--splits train,val "):
        open_source(root)
    drawn = rawpack_packer.pack_splits(root, tmp_path / "sets", kind="folder", holdout={"val": 0.5}, size=16, workers=0)
    assert drawn["val"].manifest.classes == ("annotations", "test", "train", "val")
    save(root / "annotations" / "a.png", picture(16, 16, 1))
    assert open_source(root).info.classes == ("annotations", "test", "train", "val")
    assert open_source(divided(tmp_path / "one", "train")).info.classes == ("cat", "dog")
    assert open_source(divided(tmp_path / "two", "cat", "test")).info.classes == ("cat", "test")


def test_names_of_splits() -> None:
    """Words that begin like the name of a split, and plain numbers after one, are classes."""
    taken = "train TRAIN training trainset val valid Validation dev test testing eval evaluation holdout test2019"
    assert [name for name in taken.split() if not is_split(name)] == []
    other = "trains tram valley testament developer cat train1 test12 2017 set images data trainer"
    assert [name for name in other.split() if is_split(name)] == []
