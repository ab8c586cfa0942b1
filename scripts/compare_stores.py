#!/usr/bin/env python3
"""Print two tables: a folder of images read as it is, and stores of the same images; then both augmented.

Bytes on disk, images per second, seconds to the first batch.

    python compare_stores.py [--torch SITE_PACKAGES] SOURCE STORE...

The folder is read in two ways, each with as many worker processes as this process may use CPUs: by a plain
multiprocessing pool that decodes and resizes with OpenCV, and, where torch is installed, by torch's DataLoader around
the same function. --torch names the folder that torch is in, if another Python has it. Augmented images are what
training usually gets: a random part, resized, flipped, normalized to float32, channels first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from measuring.counters import total_bytes
from numpy.typing import NDArray
from systems.images import fit

from rawpack import Reader
from rawpack.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW
from rawpack.transforms.randomness import Random

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64
_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
_HEAD = ("", "bytes on disk", "images/s", "first batch", "speed")

Images = NDArray[Any]
Open = Callable[[argparse.Namespace], Iterable[Images]]
"""Opens what is measured. An iteration of the result is an epoch of batches: uint8 (n, height, width, 3), or augmented
float32 (n, 3, height, width)."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a folder of images with stores of the same images.")
    parser.add_argument("source", type=Path)
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument(
        "--torch", metavar="SITE_PACKAGES", help="the folder that torch is in, if another Python has it"
    )
    parser.add_argument("--measure", choices=_WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--augment", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each way to read (default: %(default)s)")
    asked = parser.parse_args()
    if asked.torch:
        sys.path.append(asked.torch)
    if asked.measure:
        print(json.dumps(measure(_WAYS[asked.measure], asked)))
    else:
        compare(asked)


def compare(asked: argparse.Namespace) -> None:
    """Measure everything, one after another, and print each row as soon as it is known."""
    ways = [("files, plain workers", "pool", asked.source)]
    if importlib.util.find_spec("torch"):
        ways.append(("files, torch DataLoader", "torch", asked.source))
    ways += [(store.name, "store", store) for store in asked.stores]
    widths = [max(len(name) for name, _, _ in ways)] + [len(title) for title in _HEAD[1:]]
    show(_HEAD, widths)
    for augment in (False, True):
        if augment:
            print("\n  augmented: a random part, resized, flipped, normalized, channels first")
        base = 0.0
        for name, way, folder in ways:
            first_s, rate = in_a_process_of_its_own(way, folder, asked, augment=augment)
            base = base or rate
            speed = "1 time" if rate == base else f"{rate / base:.{0 if rate > 9.5 * base else 1}f} times"
            row = (name, f"{total_bytes(folder) / 1e6:,.1f} MB", f"{rate:,.0f}", f"{first_s:.2f} s", speed)
            show(row, widths, colored=augment and folder == asked.stores[0])
    print(
        f"\n  Read by {workers()} workers in shuffled batches of {BATCH}, all files in memory. The first\n"
        "  rows decode and resize the image files with OpenCV in plain worker processes;\n"
        "  speed is in multiples of that."
    )


def show(row: tuple[str, ...], widths: list[int], *, colored: bool = False) -> None:
    """Print a row; at a terminal, with its last cell in green if `colored`."""
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    if colored and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        cells[-1] = cells[-1].replace(row[-1], f"\033[1;32m{row[-1]}\033[0m")
    print("  " + "   ".join(cells).rstrip(), flush=True)


def in_a_process_of_its_own(
    way: str, folder: Path, asked: argparse.Namespace, *, augment: bool = False
) -> tuple[float, float]:
    """What `measure` returns: what one way has loaded would make the next look quick to start."""
    options = [*(["--torch", asked.torch] if asked.torch else []), *(["--augment"] if augment else [])]
    options += ["--seconds", str(asked.seconds)]
    command = [sys.executable, __file__, *options, "--measure", way, str(folder), str(asked.stores[0])]
    first_s, rate = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return first_s, rate


def measure(opened: Open, asked: argparse.Namespace) -> tuple[float, float]:
    """Seconds from opening to the first batch, and images per second of whole epochs after the first."""
    began = time.perf_counter()
    epochs = opened(asked)
    first_s = 0.0
    for images in epochs:
        first_s = first_s or time.perf_counter() - began
        look(images)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < asked.seconds:
        for images in epochs:
            count += len(images)
            look(images)
    return first_s, count / (time.perf_counter() - began)


def look(images: Images) -> None:
    """Read some of the pixels, as whoever takes the batch would."""
    images[:, ::97, ::97].sum()


class Store:
    """A store, read by rawpack."""

    def __init__(self, asked: argparse.Namespace) -> None:
        reader = Reader(asked.source)
        crop = RandomResizedCrop(side_of(asked))
        steps = [crop, RandomHorizontalFlip(), Normalize(MEAN, STD), ToCHW()] if asked.augment else None
        self._batches = reader.batches(BATCH, shuffle=True, transform=steps)

    def __iter__(self) -> Iterator[Images]:
        for batch in self._batches:
            yield batch["image"]


class Pool:
    """A folder of images, read by a plain pool of processes, a batch a task."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._files = Files(asked)
        self._random = np.random.default_rng(0)
        self._pool = multiprocessing.Pool(workers())

    def __iter__(self) -> Iterator[Images]:
        order = self._random.permutation(len(self._files)).tolist()
        return self._pool.imap(self._files.batch, [order[i : i + BATCH] for i in range(0, len(order), BATCH)])


class Torch:
    """A folder of images, read by torch's DataLoader as most people set it up."""

    def __init__(self, asked: argparse.Namespace) -> None:
        from torch.utils.data import DataLoader

        files: Any = Files(asked)
        self._loader = DataLoader(files, BATCH, shuffle=True, num_workers=workers(), persistent_workers=True)

    def __iter__(self) -> Iterator[Images]:
        for batch in self._loader:
            yield batch.numpy()


class Files:
    """The image files in a folder, each as pixels of the size that the first store has."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._paths = sorted(str(path) for path in asked.source.rglob("*") if path.suffix.lower() in _SUFFIXES)
        if not self._paths:
            sys.exit(f"{asked.source} has no {', '.join(sorted(_SUFFIXES))} files to compare the stores with")
        self._size = Reader(asked.stores[0])[0]["image"].shape[:2]
        self._crop = RandomResizedCrop(side_of(asked)) if asked.augment else None
        self._random = np.random.default_rng(os.getpid())

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> Images:
        image = cv2.imread(self._paths[i])
        if image is None:
            # Packing has rejected it; here it counts as a black image.
            image = np.zeros((*self._size, 3), np.uint8)
        if self._crop is not None:
            return self._augmented(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), self._crop)
        return np.asarray(cv2.cvtColor(fit(image, *self._size), cv2.COLOR_BGR2RGB), np.uint8)

    def _augmented(self, image: Images, crop: RandomResizedCrop) -> Images:
        """What the store's transform makes of it, by OpenCV and NumPy."""
        y, x, height, width = crop.draw(Random(int(self._random.integers(1 << 62))), *image.shape[:2])
        resized = cv2.resize(image[y : y + height, x : x + width], crop.size[::-1])
        if self._random.random() < 0.5:
            resized = cv2.flip(resized, 1)
        scale = np.float32(1 / (255 * np.array(STD)))
        return np.ascontiguousarray((resized * scale - np.float32(np.array(MEAN) / STD)).transpose(2, 0, 1))

    def batch(self, numbers: list[int]) -> Images:
        """Several of them: (n, height, width, 3)."""
        cv2.setNumThreads(0)
        return np.stack([self[i] for i in numbers])


def side_of(asked: argparse.Namespace) -> int:
    """The side of augmented images: 224 pixels of 256."""
    height, width = Reader(asked.stores[0])[0]["image"].shape[:2]
    return int(min(height, width)) * 7 // 8


_WAYS: dict[str, Open] = {"pool": Pool, "torch": Torch, "store": Store}


def workers() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
