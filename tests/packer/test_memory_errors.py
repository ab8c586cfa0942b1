"""What is said where memory is short, and where none would ever suffice: only the first is tried again, and neither is
taken for the other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from videos import av, encode, looked_through_here  # noqa: F401

import rawpack_packer
from rawpack import PackError
from rawpack.system import machine
from rawpack_packer import errors
from rawpack_packer.destination.files import refused
from rawpack_packer.sources.video import scan
from rawpack_packer.sources.video.container import VideoFile

MEMORY = 4 << 30


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has 4 GiB, whatever it really has."""
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: MEMORY)


def test_only_where_memory_helps_is_the_run_repeated() -> None:
    """An error that says that more is wanted than this machine has is the file's fault: no other try is offered."""
    for ask in (lambda: np.empty((1 << 50,), np.uint8), lambda: pa.allocate_buffer(1 << 50)):
        with pytest.raises(MemoryError) as absurd:
            ask()
        assert not errors.is_no_fault_of_data(absurd.value)
        words = str(refused(absurd.value, "store"))
        assert "1.13 PB of memory were requested at once, and this machine has 4.29 GB" in words
        assert "again" not in words
        assert "resumes" not in words
    assert errors.is_no_fault_of_data(MemoryError())
    assert "the same command resumes" in str(refused(MemoryError(), "store"))


class Short:
    """A dataset at one of whose samples memory is short."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> Any:
        if i == 77:  # none of those that the job itself reads
            raise MemoryError
        return np.zeros((4, 4, 3), np.uint8)


def test_short_memory_rejects_no_sample(tmp_path: Path) -> None:
    """The run stops: it is not a property of the sample."""
    with pytest.raises(PackError, match="out of memory while packing"):
        rawpack_packer.pack(Short(), tmp_path / "store", workers=0, max_rejects=3)


@pytest.mark.usefixtures("looked_through_here")
@pytest.mark.skipif(sys.platform != "linux", reason="needs mmap to fail")
def test_ffmpeg_without_memory_is_no_damage(tmp_path: Path) -> None:
    """FFmpeg says the same of a machine that is out of memory and of damaged files that ask for too much: the first
    stops, the second is a reject."""
    path = encode(tmp_path / "source" / "x.mp4", "libx264", 3)
    file = VideoFile(str(path), "x.mp4", (path.stat().st_size, path.stat().st_mtime_ns), b"x.mp4")
    wanted = av.error.MemoryError(12, "Cannot allocate memory")
    with mock.patch.object(av, "open", side_effect=wanted):
        found = scan._index(file, lambda: None)
        assert getattr(found, "reason", "") == "corrupt"
        with mock.patch.object(errors.mmap, "mmap", side_effect=OSError(12, "no memory")), pytest.raises(MemoryError):
            scan._index(file, lambda: None)
