"""What is said before a run: how many samples, how much space, how long; and nothing is written."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from folders import files_of
from pictures import picture, save
from running import FORMATS, pack, run_here, stop_of
from troubled import die, opening

from rawpack import Reader
from rawpack.system.machine import cpus

COUNT = 100


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 names of 20 images, two of which are none."""
    root = tmp_path_factory.mktemp("dry") / "source"
    firsts = [save(root / f"{k:03d}.jpg", picture(140 + k, 170, k)) for k in range(20)]
    for i in range(20, COUNT - 2):
        os.link(firsts[i % 20], root / f"{i:03d}.jpg")
    for i in (0, COUNT // 2):
        (root / f"{i:03d} bad.jpg").write_text("no image")
    return root


def planned(*args: object) -> dict[str, Any]:
    # However busy the machine is, as many samples are tried as on an idle one.
    with mock.patch("rawpack_packer.job.estimate._PATIENCE_S", 120.0):
        ran = run_here("pack", "--dry-run", "--json", *args)
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.mark.parametrize(
    ("layout", "size"),
    [("memmap", "keep"), ("hdf5", "128"), ("hdf5-gzip", "keep"), ("lmdb", "128"), ("lmdb", "keep")],
)
def test_a_dry_run_knows_what_the_run_will_take(source: Path, tmp_path: Path, layout: str, size: str) -> None:
    """Samples, rejects among those tried, and bytes within a tenth of what the store then has; nothing is written."""
    options = ["--workers", 0, "--size", size, *FORMATS[layout], source, tmp_path / "store"]
    plan = planned(*options)
    assert list(tmp_path.iterdir()) == []
    assert plan["samples"] == COUNT
    assert plan["tried"] >= 24
    assert 1 <= plan["rejected"] <= 2
    assert plan["free_bytes"] > 1_000_000
    store = pack(source, tmp_path / "store", "--max-rejects", 2, *options[2:-2])
    took = sum(len(data) for name, data in files_of(store).items() if not name.startswith("provenance."))
    assert 0.9 < plan["store_bytes"] / took < 1.1
    assert (plan["spare_bytes"] > 0) == layout.startswith("hdf5")


def test_the_time_is_that_of_the_samples_tried(source: Path, tmp_path: Path) -> None:
    """Samples that take a hundredth of a second each: 100 take one second in one worker, half of it in two on two
    cores, and the start of workers comes on top."""
    with opening(lambda _: time.sleep(0.01)):
        for workers in (0, 2):
            plan = planned("--workers", workers, "--size", 16, source, tmp_path / "store")
            cores = max(1, min(workers, cpus()))
            assert plan["seconds"] - plan["start_s"] >= COUNT * 0.01 / cores
            assert (plan["cores"], plan["start_s"] > 0) == (cores, workers > 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs worker processes")
def test_samples_that_kill_the_decoder_do_not_kill_the_estimate(source: Path, tmp_path: Path) -> None:
    """Neither a dry run nor the look at the free space before a run: they are rejects, and the run goes on."""
    killers = {8, COUNT - 1}

    def trouble(number: int) -> None:
        if number in killers:
            die()

    args = ["--workers", 1, "--size", "keep", "--max-rejects", 5, *FORMATS["lmdb"], source, tmp_path / "store"]
    with opening(trouble):
        assert planned(*args)["rejected"] == len(killers) + 2  # and the two files that are no images
        ran = run_here("pack", "--quiet", *args)
    assert (ran.code, ran.err) == (0, "")
    assert len(Reader(tmp_path / "store")) == COUNT - 2 - len(killers)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_disk_that_is_too_small_is_said_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    """Also where only the images tell how much they will take, and where nothing can be written at all."""
    for layout, size in (("memmap", "64"), ("lmdb", "64"), ("hdf5", "keep")):
        with mock.patch("rawpack_packer.destination.folder.free_bytes", return_value=50_000):
            said = stop_of("pack", "--workers", 0, *FORMATS[layout], "--size", size, source, tmp_path / "store")
        assert "free some space" in said
        assert list(tmp_path.iterdir()) == []
    said = stop_of("pack", "--workers", 0, "--size", 16, source, "/proc/store")
    assert "nothing can be written to /proc/store: it is on no disk; name another folder" in said


@pytest.mark.skipif(sys.platform != "linux" or not os.path.ismount("/dev/shm"), reason="needs /dev/shm")
def test_a_file_system_in_memory_has_no_more_than_the_memory(source: Path) -> None:
    """However large it says it is: packing stops with what memory is left, and nothing is written."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        mock.patch("rawpack.system.machine.available_memory_bytes", return_value=50_000),
    ):
        said = stop_of("pack", "--workers", 0, "--size", 64, "--max-rejects", 2, source, Path(folder, "store"))
        assert list(Path(folder).iterdir()) == []
    assert f"{folder}/store has 50 kB free of memory, where its files are kept: free some space" in said
