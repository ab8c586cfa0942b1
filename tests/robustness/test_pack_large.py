"""What keeps the memory of packing small, made to matter at sizes that a test can wait for."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from folders import files_of
from pictures import picture, save
from running import FORMATS, pack

from rawpack_packer.job.commit import Duplicates

SMALL = ("--size", "32", "--shard-size", "1", "--max-rejects", "10")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 files of six images: 144 are those of another one, one is none."""
    root = tmp_path_factory.mktemp("large") / "source"
    firsts = [save(root / f"class {k % 2}" / f"{k:03d}.jpg", picture(40, 50, k)) for k in range(6)]
    for i in range(6, 150):
        os.link(firsts[i % 6], root / f"class {i % 2}" / f"{i:03d}.jpg")
    (root / "class 0" / "bad.jpg").write_text("no image")
    return root


def settled(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(store).items() if not name.startswith("provenance.")}


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_limits_of_memory_change_no_byte(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Columns one at a time, checksums by way of the disk, provenance in blocks: the store is the same."""
    usual = pack(source, tmp_path / "usual", *SMALL, *FORMATS[layout])
    monkeypatch.setattr("rawpack_packer.job.commit._OPEN_FILES", 1)
    monkeypatch.setattr("rawpack_packer.job.commit._BLOCK_ROWS", 7)
    monkeypatch.setattr("rawpack_packer.job.commit._IN_MEMORY", 20)
    monkeypatch.setattr("rawpack_packer.destination.journal._BLOCK", 5)
    little = pack(source, tmp_path / "little", *SMALL, *FORMATS[layout])
    assert settled(little) == settled(usual)
    assert json.loads((little / "store.json").read_text())["counts"]["identical_files"] == 144
    assert (little / "provenance.npy").read_bytes() == (usual / "provenance.npy").read_bytes()
    digests = [json.loads((store / "provenance.json").read_text())["source"]["digest"] for store in (little, usual)]
    assert digests[0] == digests[1]


def test_repeated_checksums_are_counted_by_way_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a counter of all of them says, whatever was left by a run that was killed."""
    monkeypatch.setattr("rawpack_packer.job.commit._IN_MEMORY", 100)
    random = np.random.default_rng(0)
    values = random.integers(0, 2**64, 400, np.uint64)[random.integers(0, 400, 1000)]
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "007").write_bytes(b"left over")
    sums = Duplicates(tmp_path / "sums")
    for first in range(0, 1000, 30):
        sums.add(values[first : first + 30])
    assert sums.count() == sum(count - 1 for count in Counter(values.tolist()).values())
    assert not (tmp_path / "sums").exists()
