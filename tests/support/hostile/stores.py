"""Sound stores: small ones of every variant that packing makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from rawpack_packer import recipe as recipes
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import Table, open_dataset, open_source

IMAGES = 66
"""Two more than the smallest shard holds."""
HEIGHT, WIDTH = 20, 24
VARIANTS: dict[str, dict[str, Any]] = {
    "memmap": {"format": "memmap"},
    "memmap-keep": {"format": "memmap", "size": "keep"},
    "hdf5": {"format": "hdf5"},
    "hdf5-keep": {"format": "hdf5", "size": "keep"},
    "hdf5-chunks": {"format": "hdf5", "chunk": 4},
    "hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "hdf5-gzip-chunks": {"format": "hdf5", "compression": "gzip", "chunk": 4},
    "hdf5-gzip-keep": {"format": "hdf5", "compression": "gzip", "size": "keep"},
    "memmap-yuv420": {"format": "memmap", "color": "ycgco420"},
    "hdf5-gzip-keep-yuv420": {"format": "hdf5", "compression": "gzip", "size": "keep", "color": "ycgco420"},
    "lmdb": {"format": "lmdb"},
    "lmdb-keep": {"format": "lmdb", "size": "keep"},
    "fields-memmap-keep": {"format": "memmap", "size": "keep"},
    "fields-hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "fields-lmdb": {"format": "lmdb"},
}


def make_images(folder: Path) -> None:
    """A source of two classes, smooth images with some noise, each of its own size where sizes are kept."""
    random = np.random.default_rng(7)
    for number in range(IMAGES):
        height, width = HEIGHT + number % 5, WIDTH + number % 7
        y, x = np.mgrid[:height, :width]
        plane = 128 + 60 * np.sin(x / (3 + number % 4)) + 50 * np.cos(y / 5)
        image = plane[..., None] + random.normal(0, 6, (height, width, 3)) + [number, 0, -number]
        path = folder / ("cat", "dog")[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(path)


def samples_with_fields(source: Path) -> Table:
    """The images with a mask, boxes of different number, a vector and a text each."""
    random, samples = np.random.default_rng(9), []
    for number, path in enumerate(sorted(source.rglob("*.png"))):
        image = np.asarray(Image.open(path))
        samples.append(
            {
                "image": image,
                "label": number % 2,
                "vector": random.integers(0, 99, 3).astype(np.int32),
                "boxes": random.integers(0, 99, (number % 4, 5)).astype(np.int16),
                "words": f"文 {number}" * (number % 3),
                "mask": random.integers(0, 1 << 16, image.shape[:2]).astype(np.uint16),
            }
        )
    return open_dataset(
        samples,
        fields={"boxes": "int16[?,5]", "mask": "mask"},
        image=("uint8", (None, None, 3)),
        classes=["cat", "dog"],
    )


def make_store(source: Path, store: Path, variant: str) -> None:
    """A sound store of two shards."""
    options = {"size": f"{HEIGHT}x{WIDTH}", "shard_size": "1"} | VARIANTS[variant]
    # Where sizes are kept, a shard has 1,024 images: too many to read once for each case.
    with mock.patch.object(recipes, "_KEEP_PART", 64):
        opened = samples_with_fields(source) if variant.startswith("fields") else open_source(str(source))
        Job(opened, recipes.make_recipe(**options), store, RunOptions(workers=0)).run()
