"""`--fast`: large JPEGs decoded at a reduced scale give nearly the pixels of the exact way, in the same place."""

from __future__ import annotations

import io
import math
import statistics
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from pictures import Pixels
from PIL import Image

from rawpack import jpeg
from rawpack_packer.recipe import make_recipe
from rawpack_packer.samples.sample import prepare


def psnr(one: Pixels, other: Pixels) -> float:
    """In dB of full scale."""
    error = float(np.square(one.astype(np.float64) - other).mean())
    return 10 * math.log10(255**2 / error) if error else math.inf


def waves(height: int, width: int, orientation: int = 1) -> bytes:
    """A JPEG of fine waves, of which a shift by half a target pixel shows at once."""
    y, x = np.mgrid[:height, :width]
    wave = 127 + 100 * np.sin(2 * np.pi * x / 24) * np.sin(2 * np.pi * y / 24)
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.stack([wave.astype(np.uint8)] * 3, -1)).save(file, "JPEG", quality=95, exif=exif)
    return file.getvalue()


def exact_and_fast(data: bytes, size: str) -> tuple[Pixels, Pixels]:
    exact, fast = (prepare(data, make_recipe(size=size, fast=fast)).image for fast in (False, True))
    return exact, fast


@pytest.mark.parametrize("size", ["64", "96x80"])
@pytest.mark.parametrize("shape", [(375, 500), (501, 377), (1203, 811)])
def test_nothing_is_shifted(shape: tuple[int, int], size: str) -> None:
    """Sides that no scale divides: the centre that is cut out is the same part of the picture. Where half of the image
    would be smaller than the size, the pixels are those of the exact way."""
    with mock.patch("rawpack.jpeg.decode", wraps=jpeg.decode) as decode:
        exact, fast = exact_and_fast(waves(*shape), size)
    assert decode.call_args.kwargs["scale"] > 1
    assert psnr(exact, fast) > 22
    assert np.array_equal(*exact_and_fast(waves(100, 120), size))


def test_turned_photographs_are_turned() -> None:
    """Orientation and reduced scale together."""
    for orientation in range(1, 9):
        assert psnr(*exact_and_fast(waves(512, 768, orientation), "48x64")) > 22, orientation


def test_real_photographs_come_out_alike(photos: Path) -> None:
    """Half of them within 33 dB of the exact way, none below 20."""
    found = sorted(path for path in photos.rglob("*") if path.is_file())[::16]
    ratios = [psnr(*exact_and_fast(path.read_bytes(), "96")) for path in found]
    assert statistics.median(ratios) > 33
    assert min(ratios) > 20
