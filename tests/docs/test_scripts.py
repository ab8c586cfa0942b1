"""The scripts that README names do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import cv2
import numpy as np
from compare_stores import Files
from pictures import picture, save
from running import environment, run_here

ROOT = Path(__file__).resolve().parents[2]


def test_compare_stores(tmp_path: Path) -> None:
    """A row for the files and one for each store: bytes, speed, and speed in multiples of the first row."""
    photos, store = tmp_path / "photos", tmp_path / "store"
    for i in range(6):
        save(photos / f"{i % 2}" / f"{i}.jpg", picture(40 + i, 60, i))
    run_here("pack", "--size", "32", photos, store)
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "compare_stores.py", "--seconds", "0.1", photos, store],
        capture_output=True, encoding="utf-8", env=environment(), check=True,
    )  # fmt: skip
    rows = [re.split(r"\s{2,}", line.strip()) for line in ran.stdout.splitlines() if line.startswith("  ")]
    plain = [row for row in rows if row[0] in ("files, plain workers", "store")]
    assert [row[0] for row in plain] == ["files, plain workers", "store"] * 2
    for files, packed in (plain[:2], plain[2:]):
        for row, folder in ((files, photos), (packed, store)):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            assert row[1] == f"{size / 1e6:,.1f} MB"
        assert files[-1] == "1 time"
        times = float(packed[-1].removesuffix(" times").replace(",", ""))
        rates = [float(row[2].replace(",", "")) for row in (files, packed)]
        assert abs(times - rates[1] / rates[0]) <= 0.05 * times + 0.06


def test_the_files_are_read_as_the_store_has_them(tmp_path: Path) -> None:
    """What the plain loop makes of a file is what packing made of it, but for how a pixel is rounded."""
    for i, (height, width) in enumerate(((90, 120), (200, 70), (64, 64))):
        save(tmp_path / "photos" / f"{i}.png", picture(height, width, i))
    run_here("pack", "--size", "48", tmp_path / "photos", tmp_path / "store")
    files = Files(Namespace(source=tmp_path / "photos", stores=[tmp_path / "store"], augment=False))
    stored = np.load(tmp_path / "store" / "shard-00000.npy")
    assert stored.shape == (3, 48, 48, 3)
    cv2.setNumThreads(1)
    for image, mine in zip(stored, files.batch([0, 1, 2]), strict=True):
        assert np.abs(image.astype(int) - mine).mean() < 2
