"""Image files of more than 8 bits: what is lost of their values is counted, and `--depth 16` keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from running import run_here

import rawpack
from rawpack.errors import PackError, UsageError

Values = NDArray[np.uint16]


def values(top: int, channels: int = 1, size: tuple[int, int] = (20, 30)) -> Values:
    """Random values up to `top`, which is among them."""
    made = np.random.default_rng(top).integers(0, top, (*size, channels), endpoint=True).astype(np.uint16)
    made[0, 0] = top
    return made


def write(folder: Path, image: NDArray[Any], suffix: str = ".png") -> Path:
    folder.mkdir(exist_ok=True)
    assert cv2.imwrite(str(folder / f"{len(list(folder.iterdir()))}{suffix}"), image[..., ::-1])
    return folder


def run(*args: object, command: str = "pack") -> tuple[int, str]:
    """Exit code, and all that is printed, on one line each."""
    done = run_here(command, "-j", "0", *map(str, args))
    return done.code, done.out + done.err


def kept(source: object, to: Path, **options: object) -> NDArray[Any]:
    """The first image as it is read from a store of 16 bits."""
    rawpack.pack(source, to, depth=16, size="keep", workers=0, **options)  # type: ignore[arg-type]
    return np.asarray(rawpack.Reader(to)[0]["image"])


@pytest.mark.parametrize(
    ("suffix", "top", "words"),
    [
        (".png", 65535, "16-bit values in 16 bits: 256 of 65,536 levels are left"),
        (".tif", 4000, "12-bit values in 16 bits: 16 of 4,096 levels are left"),
        (".png", 0, "1-bit values in 16 bits: 1 of 2 levels are left"),
    ],
)
def test_what_is_lost_is_said(tmp_path: Path, suffix: str, top: int, words: str) -> None:
    """Packing as 8 bits has a line with the range that was seen, packed, tried and appended; --strict is an error."""
    folder = write(tmp_path / "in", values(top), suffix)
    write(folder, values(0), suffix)
    line = f"images of more than 8 bits, stored as 8: 2 ({words}; --depth 16 keeps them)"
    store = tmp_path / "store"
    assert f"of 2 samples tried, {line}" in run(folder, store, "--dry-run")[1]
    assert line in run(folder, store)[1]
    for place in (store, tmp_path / "strict"):
        code, output = run(folder, place, "--strict")
        assert (code, "--depth 16 keeps them" in output) == (1, True)
    later = write(tmp_path / "later", values(top), suffix)
    (later / f"0{suffix}").rename(later / f"new{suffix}")
    assert "images of more than 8 bits, stored as 8: 3" in run(later, store, command="append")[1]


def test_which_images_are_counted(tmp_path: Path) -> None:
    """A color TIFF, of which Pillow makes bytes before anything looks at the values, and images of Pillow, which are
    kept as files are; not files of 8 bits."""
    source = write(tmp_path / "in", values(4095, 3), ".tif")
    assert rawpack.pack(source, tmp_path / "store", workers=0).manifest.counts["bits_12_of_16"] == 1
    image = values(4095)
    images = [Image.fromarray(image[..., 0])] * 2
    assert rawpack.pack(images, tmp_path / "a", workers=0).manifest.counts["bits_12_of_16"] == 2
    np.testing.assert_array_equal(kept(images, tmp_path / "b"), image)
    folder = write(tmp_path / "bytes", np.zeros((8, 8, 3), np.uint8), ".jpg")
    code, output = run(folder, tmp_path / "of bytes", "--strict")
    assert (code, "8 bits" in output) == (0, False)


@pytest.mark.parametrize(
    ("format", "suffix", "channels"),
    [("memmap", ".png", 3), ("memmap", ".tif", 1), ("hdf5", ".tif", 3), ("hdf5", ".png", 1)],
)
def test_depth_16_keeps_every_value(tmp_path: Path, format: str, suffix: str, channels: int) -> None:
    image, color = values(65535, channels), "gray" if channels == 1 else "rgb"
    read = kept(write(tmp_path / "in", image, suffix), tmp_path / "store", format=format, color=color)
    assert read.dtype == np.uint16
    np.testing.assert_array_equal(read, image)


def test_depth_16_does_what_8_bits_get(tmp_path: Path) -> None:
    """Gray becomes RGB by default, transparency white, sizes are fitted; stores of a store keep it."""
    gray, color, alpha = values(4095), values(65535, 3), values(65535)
    np.testing.assert_array_equal(kept(write(tmp_path / "gray", gray), tmp_path / "a"), gray.repeat(3, 2))
    (tmp_path / "clear").mkdir()
    assert cv2.imwrite(str(tmp_path / "clear/a.png"), np.concatenate([color[..., ::-1], alpha], axis=2))
    weight = alpha / 65535
    blended = np.rint(color * weight + 65535 * (1 - weight))
    np.testing.assert_array_equal(kept(tmp_path / "clear", tmp_path / "b"), blended)
    rawpack.pack(tmp_path / "gray", tmp_path / "c", depth=16, size=8, workers=0)
    assert rawpack.Reader(tmp_path / "c").fields["image"].shape == (8, 8, 3)
    rawpack.subset(tmp_path / "a", tmp_path / "d", rows=[0], workers=0)
    assert rawpack.Reader(tmp_path / "d").fields["image"].dtype == "uint16"


@pytest.mark.parametrize("options", [["--format", "lmdb"], ["--compression", "zstd"], ["--color", "ycgco420"]])
def test_what_stores_8_bits_only_is_refused(tmp_path: Path, options: list[object]) -> None:
    code, output = run(write(tmp_path / "in", values(9)), tmp_path / "store", "--depth", 16, *options)
    assert (code, "8 bits, and --depth 16 keeps 16" in output) == (2, True)
    assert not (tmp_path / "store").exists()


def test_arrays_and_other_depths_are_refused(tmp_path: Path) -> None:
    """Arrays keep their dtype anyway; a file of 8 bits is never stretched to 16."""
    with pytest.raises(UsageError, match="applies to image files"):
        rawpack.pack(np.zeros((4, 8, 8, 1), np.uint16), tmp_path / "a", depth=16, workers=0)
    rawpack.pack(write(tmp_path / "in", np.zeros((8, 8, 3), np.uint8)), tmp_path / "b", size="keep", workers=0)
    with pytest.raises(UsageError, match="applies to image files"):
        rawpack.pack(tmp_path / "b", tmp_path / "c", depth=16, workers=0)
    with pytest.raises(PackError, match="png of 8 bits"):
        rawpack.pack(tmp_path / "in", tmp_path / "d", depth=16, workers=0)
