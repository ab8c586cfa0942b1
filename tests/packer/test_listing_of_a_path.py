"""A path is read once, and a scan lists no folder again that was looked into.

`tests/layouts/looks.py` counts what is read of each layout.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rawpack.errors import UsageError
from rawpack_packer.sources import open_source
from rawpack_packer.sources.folder import open_folder
from rawpack_packer.sources.look import listing as module
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.registry import KINDS


@pytest.fixture
def scanned() -> Iterator[list[str]]:
    """The folders that were listed."""
    folders, scandir = list[str](), os.scandir

    def counting(path: Any) -> Any:
        folders.append(Path(path).name)
        return scandir(path)

    with mock.patch.object(module.os, "scandir", counting):
        yield folders


def test_a_pattern_differs_from_a_path_in_a_folder_that_looks_like_one(tmp_path: Path) -> None:
    (tmp_path / "set[1]").mkdir()
    for name in ("b.tar", "a.tar"):
        (tmp_path / "set[1]" / name).touch()
    (tmp_path / "set1").mkdir()
    (tmp_path / "set1/x.tar").touch()
    patterns = ("set*/x.tar", "set[1]/[ab].tar", "set{1..2}/x.tar", "set1/x.tar::set1/y.tar")
    assert all(Listing(tmp_path / name).is_pattern for name in patterns)
    assert not any(Listing(tmp_path / name).is_pattern for name in ("set[1]", "set[1]/train", "set[1]/a.tar", "set1"))
    assert Listing("https://host/{000..001}.tar?token=*").is_pattern
    assert not Listing("https://host/0.tar?token=*").is_pattern
    assert Listing(tmp_path / "set*/x.tar").first.path == tmp_path / "set1/x.tar"
    nothing = Listing(tmp_path / "none*.tar")
    assert nothing.first is nothing


# ---------------------------------------------------------------------------------------------- the scan after it


def folders_of_images(root: Path) -> Path:
    for name in ("cat/0.jpg", "cat/1.jpg", "cat/.hidden", "cat/deep/2.jpg", "dog/3.jpg", ".hidden", "notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"words" if name.endswith(".txt") else b"\xff\xd8\xff")
    (root / "dog/link.jpg").symlink_to(root / "cat/0.jpg")
    (root / "dog/loop").symlink_to(root)
    (root / "eel").symlink_to(root / "dog")
    (root / "dog/broken.jpg").symlink_to(root / "nothing")
    return root


def looked_at(root: Path) -> Listing:
    """A folder, all of whose folders were looked into."""
    listing = Listing(root)
    folders = [listing]
    for folder in folders:
        folders += [folder / name for name, is_dir in folder.names.items() if is_dir and name not in ("loop", "eel")]
    return listing


def test_a_scan_after_a_look_is_the_same_and_lists_nothing_again(tmp_path: Path, scanned: list[str]) -> None:
    """Keys, states and counts: of links, loops, broken links and hidden files, too."""
    root = folders_of_images(tmp_path / "set")
    with mock.patch.object(Listing, "listed", return_value=None):
        plain = open_folder(root)
    listing = looked_at(root)
    scanned.clear()
    source = open_folder(listing)
    assert scanned == ["eel"]  # into which nobody had looked
    assert [source.key(i) for i in range(len(source))] == [plain.key(i) for i in range(len(plain))]
    assert source.info == plain.info
    assert (source.states() == plain.states()).all()
    assert (source.labels == plain.labels).all()


def test_a_folder_that_has_changed_since_the_look_is_seen_as_it_is(tmp_path: Path) -> None:
    """Files that were added, removed or replaced by folders, and folders that are gone."""
    root = folders_of_images(tmp_path / "set")
    listing = looked_at(root)
    (root / "cat/new.jpg").write_bytes(b"\xff\xd8\xff")
    (root / "cat/1.jpg").unlink()
    shutil.rmtree(root / "cat/deep")
    (root / "cat/deep").write_bytes(b"\xff\xd8\xff")
    shutil.rmtree(root / "dog")
    (root / "eel").unlink()
    for folder in (root, root / "cat"):
        os.utime(folder, ns=(1, 1))  # clocks of file systems are coarse
    source = open_folder(listing)
    assert [source.key(i) for i in range(len(source))] == ["cat/0.jpg", "cat/deep", "cat/new.jpg"]
    assert source.info.classes == ("cat",)


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs devices")
def test_a_pipe_or_device_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """/dev/null stands for all of them, as a test that reads it ends."""
    refused = "is not a file or folder: name one of these"
    for name in ("train.npy", "rows.parquet"):
        (tmp_path / name.partition(".")[0]).mkdir()
        (tmp_path / name.partition(".")[0] / name).symlink_to("/dev/null")
    for kind in KINDS:
        with pytest.raises(UsageError, match=refused):
            open_source(tmp_path / "train/train.npy", kind)
    with pytest.raises(UsageError, match=refused):
        open_source(tmp_path / "train")
    with pytest.raises(UsageError, match="not a file"):
        open_source(tmp_path / "rows")
