"""What keeps the memory of packing small, made to matter at sizes that a test can wait for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import settled
from pictures import linked
from running import FORMATS, pack

SMALL = ("--size", "32", "--shard-size", "1", "--max-rejects", "10")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 files of six images: 144 are those of another one, one is none."""
    return linked(tmp_path_factory.mktemp("large") / "source", 150, (40, 50), bad=(0,))


def test_limits_of_memory_change_no_byte(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns one at a time, checksums by way of the disk, provenance in blocks: the store is the same."""
    usual = pack(source, tmp_path / "usual", *SMALL, *FORMATS["lmdb"])
    monkeypatch.setattr("rawpack_packer.job.commit._OPEN_FILES", 1)
    monkeypatch.setattr("rawpack_packer.job.commit._BLOCK_ROWS", 7)
    monkeypatch.setattr("rawpack_packer.job.commit._IN_MEMORY", 20)
    monkeypatch.setattr("rawpack_packer.destination.journal._BLOCK", 5)
    little = pack(source, tmp_path / "little", *SMALL, *FORMATS["lmdb"])
    assert settled(little) == settled(usual)
    assert json.loads((little / "store.json").read_text())["counts"]["identical_files"] == 144
    assert (little / "provenance.npy").read_bytes() == (usual / "provenance.npy").read_bytes()
    digests = [json.loads((store / "provenance.json").read_text())["source"]["digest"] for store in (little, usual)]
    assert digests[0] == digests[1]
