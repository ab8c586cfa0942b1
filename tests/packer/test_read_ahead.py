"""Packing asks the disk for the files that it reads soon: which, when, and what comes of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pictures import picture, save
from running import command, environment

from rawpack_packer.part import PartTask
from rawpack_packer.part.pieces import _FORGETFUL, ReadAhead, _file_system, make_piece, starts
from rawpack_packer.recipe import make_recipe
from rawpack_packer.recipe.fields import store_fields
from rawpack_packer.sources import Item, Samples, open_source

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice on files")
AHEAD = 32
"""Files."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Name and bytes of each file that the disk is asked for."""
    calls: list[tuple[str, int]] = []

    def advise(descriptor: int, offset: int, size: int, advice: int) -> None:
        assert (offset, advice) == (0, os.POSIX_FADV_WILLNEED)
        calls.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, size))

    monkeypatch.setattr("os.posix_fadvise", advise)
    # Wherever the tests run.
    monkeypatch.setattr("rawpack_packer.part.pieces._file_system", lambda device: "ext4")
    return calls


def skip_where_nothing_is_asked(path: Path) -> None:
    if _file_system(path.stat().st_dev).startswith(_FORGETFUL):
        pytest.skip("files of this file system are not asked for")


def folder(root: Path, count: int) -> list[str]:
    """JPEG files in two classes; their names in the order of the source."""
    first = save(root / "a" / "000.jpg", picture(16, 16, 0))
    for i in range(1, count):
        path = root / "ab"[2 * i // count] / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(first.read_bytes() + bytes(i))
    return [f"{i:03d}.jpg" for i in range(count)]


def whole(path: Path) -> Samples:
    """All samples of a source, as a worker gets them."""
    source = open_source(path)
    return source.part(0, len(source))


@pytest.mark.parametrize("kind", ["folder", "listing", "part"])
def test_each_file_is_asked_for_once_and_early(tmp_path: Path, asked: list[tuple[str, int]], kind: str) -> None:
    """Every file but the first, whole, in order, before its turn and no more than so many before it."""
    source, names, rows = tmp_path / "source", folder(tmp_path / "source", 100), (0, 100)
    sizes = {path.name: path.stat().st_size for path in source.rglob("*.jpg")}
    if kind == "listing":
        lines = [f"{'ab'[2 * i // 100]}/{name},1" for i, name in enumerate(names)]
        (source / "list.csv").write_text("\n".join(["path,label", *lines]))
        source /= "list.csv"
    elif kind == "part":
        rows = (20, 80)
        names = names[20:80]
    disk = ReadAhead(open_source(source).part(*rows), range(len(names)))
    for i in range(len(names)):
        disk.at(i)
        assert len(asked) == min(i + AHEAD, len(names) - 1)
    assert asked == [(name, sizes[name]) for name in names[1:]]


def test_large_files_are_asked_for_a_few_at_a_time(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    """Up to 8 MiB, and of a file that is larger no more than that."""
    for i, size in enumerate([1, 3, 3, 3, 3, 300, 3, 3]):
        with (tmp_path / f"{i}.jpg").open("wb") as file:
            file.truncate(size << 20)
    disk = ReadAhead(whole(tmp_path), range(8))
    seen = []
    for i in range(8):
        disk.at(i)
        seen.append([int(name[0]) for name, _ in asked])
        asked[:] = [(name, size) for name, size in asked if size <= 8 << 20]
    assert seen == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7],
                    [1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]]  # fmt: skip
    assert dict(asked)["5.jpg"] == 8 << 20


def test_packing_asks(tmp_path: Path) -> None:
    """A run asks for all files but the first of each part, by its own calls of the system."""
    names = folder(tmp_path / "source", 100)
    trace = tmp_path / "trace"
    skip_where_nothing_is_asked(tmp_path)
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    # Where it can, it stops the process at these calls alone.
    fast = ["--seccomp-bpf"] * ("--seccomp-bpf" in subprocess.check_output(["strace", "--help"], encoding="utf-8"))
    ran = subprocess.run(
        ["strace", "-f", *fast, "-y", "-e", "trace=fadvise64", "-o", trace, *command(), "pack", "--quiet",
         "--size", "64", "--shard-size", "1", "--workers", "1", tmp_path / "source", tmp_path / "store"],
        env=environment(), capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if "PTRACE" in ran.stderr:
        pytest.skip("processes cannot be traced here")
    assert ran.returncode == 0, ran.stderr
    found = re.findall(r"fadvise64\(\d+<[^>]*/(\d+\.jpg)>, 0, \d+, POSIX_FADV_WILLNEED\) += 0", trace.read_text())
    assert sorted(found) == sorted(set(names) - {"000.jpg", "064.jpg"})


def test_a_helper_asks(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    """What is prepared for another worker is asked for too, and no more than that."""
    names = folder(tmp_path / "source", 100)
    source, recipe = open_source(tmp_path / "source"), make_recipe(format="lmdb", size="64")
    (tmp_path / "store" / ".rawpack").mkdir(parents=True)
    task = PartTask(0, 0, source.part(0, 100), recipe, store_fields(recipe, source), str(tmp_path / "store"), token="t")
    assert make_piece(task, starts(task)[3])
    first = starts(task)[3]
    assert [name for name, _ in asked] == names[first + 1 : first + starts(task).step]


def test_files_that_would_be_read_twice_are_not_asked_for(
    tmp_path: Path, asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems in user space may drop a file's pages when it is opened again; which one it is, the system tells."""
    folder(tmp_path, 10)
    if Path("/proc/self/mountinfo").exists():
        assert _file_system(Path("/proc").stat().st_dev) == "proc"
    assert _file_system(0) == ""
    monkeypatch.setattr("rawpack_packer.part.pieces._file_system", lambda device: "fuse.sshfs")
    ReadAhead(whole(tmp_path), range(10)).at(0)
    assert not asked


class Odd:
    """Samples whose files cannot be opened, or have no size."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int, /) -> Item:
        raise AssertionError("nobody reads")

    def key(self, i: int, /) -> str:
        raise AssertionError("nobody reads")

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return (self._paths[i], 0, (-1, 0, 1000)[i % 3]) if self._paths[i] else None


def test_what_cannot_be_asked_for_is_left_alone(tmp_path: Path) -> None:
    """Files that are gone, locked, pipes or folders, names that are none: that is told when they are read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").write_bytes(b"?")
    (tmp_path / "locked").chmod(0)
    paths = [str(tmp_path / name) for name in ("gone", "pipe", "locked", ".", "zero\0byte", "x" * 5000)] + [""]
    samples = Odd([path for path in paths for _ in range(3)])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    disk = ReadAhead(samples, range(len(samples)))
    for i in range(len(samples)):
        disk.at(i)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
