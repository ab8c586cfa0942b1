"""`pack --limit`: some samples of a source, evenly spaced, to try something out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save
from running import run_here, stop_of
from videos import encode, looked_through_here  # noqa: F401

import rawpack_packer
from rawpack import Reader

SMALL = ("--workers", 0, "--size", 8, "--quiet")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("limit") / "photos"
    for i in range(10):
        save(root / "ab"[i // 5] / f"{i}.png", picture(9, 9, i))
    return root


@pytest.mark.parametrize("limit", [1, 3, 99])
def test_samples_are_evenly_spaced(photos: Path, tmp_path: Path, limit: int) -> None:
    """Sample k of N is at k/N of the source; a limit above the count takes all. Another limit is another store."""
    assert run_here("pack", *SMALL, "--limit", limit, photos, tmp_path / "store").code == 0
    every = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    taken = min(limit, len(every))
    reader = Reader(tmp_path / "store")
    assert reader.column("key") == [every[k * len(every) // taken] for k in range(taken)]
    assert reader.classes == ("a", "b")
    assert "the options of the source differ" in stop_of("pack", *SMALL, "--limit", 5, photos, tmp_path / "store")


def test_archives_and_datasets_take_it_too(photos: Path, tmp_path: Path) -> None:
    """The same samples of a tar as of its folder; of an array, rows."""
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        for path in sorted(photos.rglob("*.png")):
            archive.add(path, path.relative_to(photos))
    assert run_here("pack", *SMALL, "--limit", 4, tmp_path / "photos.tar", tmp_path / "store").code == 0
    assert Reader(tmp_path / "store").column("key") == ["a/0.png", "a/2.png", "b/5.png", "b/7.png"]
    images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1) * np.ones((1, 8, 8, 3), np.uint8)
    rawpack_packer.pack({"image": images}, tmp_path / "array", limit=3, workers=0)
    assert [int(sample["image"].max()) for sample in Reader(tmp_path / "array")] == [0, 2, 4]
