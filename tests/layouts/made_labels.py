"""Layouts whose labels stand in tables and lists beside the images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from layout import Layout, Samples
from pictures import picture
from PIL import Image


def _named_folders(root: Path) -> None:
    for n in range(8):
        path = root / "photos" / ("cat", "dog")[n % 2] / f"{n:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(24, 32, n)).save(path)


def _of_folders(root: Path) -> Samples:
    paths = sorted((root / "photos").rglob("*.png"))
    return {
        path.relative_to(root / "photos").as_posix(): {
            "image": np.asarray(Image.open(path)),
            "label": path.parent.name,
        }
        for path in paths
    }


LAYOUTS = (Layout("a folder for each class", _named_folders, _of_folders),)
