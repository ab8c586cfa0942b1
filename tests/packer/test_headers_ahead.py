"""The headers of a tar archive are read in advance, by several threads, before they are read in order."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rawpack_packer.sources.archives import tar as headers
from rawpack_packer.sources.archives.tar import read_headers_ahead

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system does not say what is in memory")


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
