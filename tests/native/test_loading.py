"""The native core is loaded where it can be used, and refused with a reason where it cannot: nobody is left without
pixels, and no file ends the process."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from compiling import COMPILER, STUB, compiles
from running import run_here

import rawpack_packer
from rawpack import Reader, native
from rawpack.system.child import environment
from rawpack.transforms import CenterCrop


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As if this process had not looked for the library yet."""
    monkeypatch.setenv("RAWPACK_NATIVE", "1")
    caches = (native.library, native._opened)
    for cache in caches:
        cache.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


def another_version(folder: Path) -> None:
    source = folder / "old.c"
    source.write_text(STUB.replace("VERSION", str(native.VERSION + 1)))
    subprocess.run([*COMPILER, "-shared", "-fPIC", "-o", folder / "core", source], check=True)


def damaged(folder: Path) -> None:
    (folder / "core").write_bytes(b"\x7fELF damaged")


@pytest.mark.skipif(sys.platform != "linux" or not native.LIBRARY.exists(), reason="needs the library on Linux")
@pytest.mark.parametrize("part", [0.01, 0.5, 1])
def test_a_library_that_was_cut_short_is_not_loaded(fresh: pytest.MonkeyPatch, tmp_path: Path, part: float) -> None:
    """Loading it would end the process. By a byte, too."""
    data = native.LIBRARY.read_bytes()
    (tmp_path / "core").write_bytes(data[: int(part * len(data)) - 1])
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    assert native.state() == f"off: {tmp_path}/core is cut short"
    with pytest.warns(RuntimeWarning, match="core is cut short. NumPy makes the same pixels"):
        assert native.library() is None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: None, "does not exist$"),
        (damaged, "cannot be loaded"),
        pytest.param(
            another_version, f"has version {native.VERSION + 1}, and {native.VERSION} is needed$", marks=compiles
        ),
    ],
)
def test_a_library_that_cannot_be_used_is_warned_of_once(
    fresh: pytest.MonkeyPatch, tmp_path: Path, make: Any, why: str
) -> None:
    """With the reason, what it costs and the cure; children of this process do not load one either, nor warn."""
    make(tmp_path)
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    assert re.search(f"^off: {re.escape(str(tmp_path))}/core {why}", native.state())
    with pytest.warns(RuntimeWarning, match="core is off: .*the same pixels .*install a C compiler") as warned:
        assert [native.library() for _ in range(3)] == [None] * 3
    assert len(warned) == 1
    assert environment()["RAWPACK_NATIVE"] == "0"
    assert "off" in native.state()
    shown = run_here("doctor").out
    assert re.search(r"native core\n  not used  \S+/core .*; NumPy makes the same pixels", shown)


def test_who_asked_for_numpy_gets_no_warning(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("RAWPACK_NATIVE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None
    assert native.state() == "off: RAWPACK_NATIVE=0"


@pytest.mark.parametrize(
    ("options", "steps", "warns", "first"),
    [
        ({"compression": "zstd"}, None, True, 0),
        ({"color": "ycgco420"}, None, True, 1),
        ({"format": "lmdb"}, [CenterCrop(3)], True, 0),
        ({"format": "hdf5", "compression": "gzip"}, [CenterCrop(3)], False, 1),
    ],
    ids=str,
)
def test_a_reader_warns_before_it_starts_workers(
    fresh: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], steps: Any, warns: bool, first: int
) -> None:
    """Wherever the core would take part in what they do, which of several stores it may be: they do not warn."""
    images = [np.full((9, 7, 3), i, np.uint8) for i in range(8)]
    stores = [tmp_path / "beside", tmp_path / "store"]
    rawpack_packer.pack(images, stores[0], workers=0, format="hdf5", compression="gzip", size="keep")
    rawpack_packer.pack(images, stores[1], workers=0, size="keep", **options)
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    batches = Reader([stores[first], stores[1 - first]]).batches(4, transform=steps, workers=2)
    with (
        mock.patch("rawpack.workers.pool.WorkerPool", side_effect=InterruptedError),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        with pytest.raises(InterruptedError):
            next(iter(batches))
    assert ["the native core is off" in str(warning.message) for warning in caught] == [True] * warns


def test_workers_do_not_warn(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the process that started them has not looked for the core."""
    fresh.setattr(native, "LIBRARY", tmp_path / "core")
    fresh.setenv("RAWPACK_NATIVE", environment()["RAWPACK_NATIVE"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None


@pytest.mark.skipif(not native.LIBRARY.exists(), reason="there is no library")
def test_the_library_is_loaded_once_and_changes_nothing(fresh: pytest.MonkeyPatch) -> None:
    """Doctor and `stats()` name what it uses of the machine."""
    core = native.library()
    assert core is not None
    assert core is native.library()
    assert core.rawpack_version() == native.VERSION
    assert native.state() in ("portable C", "AVX2", "NEON")
    assert environment()["RAWPACK_NATIVE"] != "0"
    assert f"native core\n  used  {native.state()}\n" in run_here("doctor").out
