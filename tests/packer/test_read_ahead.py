"""Packing asks the disk for the files that it reads soon: which, when, and what comes of it. The headers of a tar
archive are read in advance, by several threads, before they are read in order."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pictures import picture, save
from reading import descriptors

from rawpack_packer.part.pieces import ReadAhead
from rawpack_packer.sources import Samples, open_source
from rawpack_packer.sources.archives import tar as headers
from rawpack_packer.sources.archives.tar import read_headers_ahead

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


@pytest.mark.parametrize("rows", [(0, 100), (20, 80)])
def test_each_file_is_asked_for_once_and_early(tmp_path: Path, asked: list[tuple[str, int]], rows: Any) -> None:
    """Every file of a part but the first, whole, in order, before its turn and no more than so many before it."""
    names = folder(tmp_path, 100)[slice(*rows)]
    sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("*.jpg")}
    disk = ReadAhead(open_source(tmp_path).part(*rows), range(len(names)))
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
        seen.append(max(int(name[0]) for name, _ in asked))
        asked[:] = [(name, size) for name, size in asked if size <= 8 << 20]
    assert seen == [3, 4, 5, 5, 5, 7, 7, 7]
    assert dict(asked)["5.jpg"] == 8 << 20


def test_what_cannot_be_asked_for_is_left_alone(tmp_path: Path) -> None:
    """Files that are gone, locked, pipes or folders, names that are none: that is told when they are read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").write_bytes(b"?")
    (tmp_path / "locked").chmod(0)
    names = ("gone", "pipe", "locked", ".", "zero\0byte", "x" * 5000)
    found = [(str(tmp_path / name), 0, size) for name in names for size in (-1, 0, 1000)]
    samples = mock.MagicMock(image_file=lambda i: [*found, None][i])
    before = descriptors()
    disk = ReadAhead(samples, range(len(found) + 1))
    for i in range(len(found) + 1):
        disk.at(i)
    assert descriptors() == before


# ---------------------------------------------------------------------------------------------- headers of archives

needs_residency = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system does not say what is in memory")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int, int], list[tuple[int, int]]]:
    """`read(path, start, stop)`: offset and size of all that is read of an archive that is not in memory."""
    calls, pread = list[tuple[int, int]](), os.pread

    def noted(fd: int, size: int, offset: int) -> bytes:
        calls.append((offset, size))
        return pread(fd, size, offset)

    def run(path: Path, start: int, stop: int) -> list[tuple[int, int]]:
        calls.clear()
        with path.open("rb") as file:
            read_headers_ahead(file.fileno(), start, stop)
        return calls

    monkeypatch.setattr(headers, "_LEAST_BYTES", 0)
    monkeypatch.setattr(headers, "_PIECE", 8192)
    monkeypatch.setattr(headers, "_SEARCHED", 1 << 20)
    monkeypatch.setattr(headers, "_in_memory", lambda fd, offsets: False)
    monkeypatch.setattr(os, "pread", noted)
    return run


def archive(path: Path, count: int, format: int = tarfile.GNU_FORMAT) -> Path:
    """Files of up to 20 kB, some of whose names are so long that they have a header of their own."""
    random, long = np.random.default_rng(count), "long" * (20 if format == tarfile.USTAR_FORMAT else 50)
    with tarfile.open(path, "w", format=format) as tar:
        for k in range(count):
            info = tarfile.TarInfo(f"{k}/{long if k % 7 == 0 else 'short'}.jpg")
            info.size = int(random.integers(0, 20_000))
            tar.addfile(info, io.BytesIO(random.bytes(info.size)))
    return path


@needs_residency
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_header_is_read_and_little_else(
    tmp_path: Path, read: Callable[[Path, int, int], list[tuple[int, int]]], format: int
) -> None:
    """Those that `tarfile` finds, also of an archive that is in another file, and only pieces of the files' bytes."""
    path = archive(tmp_path / "a.tar", 300, format)
    with tarfile.open(path) as tar:
        headers = [member.offset_data - 512 for member in tar]
    within = tmp_path / "b"
    within.write_bytes(b"ustar" * 300 + path.read_bytes() + bytes(1000))
    for file, start in ((path, 0), (within, 1500)):
        ranges = read(file, start, start + path.stat().st_size)
        covered = np.zeros(within.stat().st_size, bool)
        for offset, size in ranges:
            covered[offset : offset + size] = True
        assert all(covered[start + at : start + at + 512].all() for at in headers)
        assert covered.sum() < path.stat().st_size / 3


@needs_residency
def test_what_is_no_archive_is_searched_for_a_while(
    tmp_path: Path, read: Callable[[Path, int, int], list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros, noise, marks without a header, and an archive cut anywhere: it ends, and reads no more than it may."""
    monkeypatch.setattr(headers, "_SEARCHED", 16_384)
    whole, random = archive(tmp_path / "a.tar", 40).read_bytes(), np.random.default_rng(0)
    for data in (bytes(1 << 20), random.bytes(1 << 20), b"ustar" * 200_000, b"", whole[:100_001]):
        (tmp_path / "other").write_bytes(data)
        calls = read(tmp_path / "other", 0, len(data))
        assert sum(size for _, size in calls if size == 8192) <= 16 * (16_384 + 8192)
    damaged = bytearray(whole)
    for at in random.integers(0, len(damaged), 3000).tolist():
        damaged[at] = int(random.integers(256))
    (tmp_path / "other").write_bytes(damaged)
    read(tmp_path / "other", 0, len(damaged))
