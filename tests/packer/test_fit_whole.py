"""`--fit whole`: the shorter side is scaled to the size, proportions are kept, and nothing is cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import picture, save
from reading import WAYS
from running import run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import RandomResizedCrop

SIZES = ((90, 120), (200, 70), (64, 64), (31, 500), (48, 49))
SIDE = 48


def scaled(height: int, width: int) -> tuple[int, int]:
    """The size by the rule of torchvision's `Resize(int)`."""
    if height <= width:
        return SIDE, int(SIDE * width / height)
    return int(SIDE * height / width), SIDE


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "photos"
    for i, (height, width) in enumerate(SIZES):
        save(folder / "a" / f"{i}.png", picture(height, width, i))
    return folder


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_the_shorter_side_is_the_size(photos: Path, tmp_path: Path, form: str) -> None:
    """Images have the sizes of torchvision's rule, in each format; and batches of them can be cropped at random."""
    ran = run_here("pack", "--format", form, "--size", str(SIDE), "--fit", "whole", photos, tmp_path / "s")
    assert ran.code == 0, ran.err
    reader = Reader(tmp_path / "s")
    assert [image.shape[:2] for image in (reader[i]["image"] for i in range(len(SIZES)))] == [scaled(*s) for s in SIZES]
    assert reader.fields["image"].shape == (None, None, 3)
    (batch,) = reader.batches(5, transform=[RandomResizedCrop(24)], **WAYS["here"])
    assert batch["image"].shape == (5, 24, 24, 3)


@pytest.mark.parametrize("interpolation", ["area", "linear"])
def test_its_center_is_what_cover_stores(photos: Path, tmp_path: Path, interpolation: str) -> None:
    """The center square of a whole image is, bit for bit, what is stored without the option."""
    for fit in ("whole", "cover"):
        rawpack_packer.pack(photos, tmp_path / fit, size=SIDE, fit=fit, interpolation=interpolation, workers=0)  # type: ignore[arg-type]
    whole, cover = Reader(tmp_path / "whole"), Reader(tmp_path / "cover")
    for i in range(len(SIZES)):
        image = whole[i]["image"]
        top, left = (round((n - SIDE) / 2) for n in image.shape[:2])
        np.testing.assert_array_equal(image[top : top + SIDE, left : left + SIDE], cover[i]["image"])


def test_masks_and_boxes_follow(tmp_path: Path) -> None:
    """Masks and boxes are scaled like their image, and none is cut."""

    def sample(height: int, width: int) -> dict[str, NDArray[np.generic]]:
        mask = np.zeros((height, width), np.uint8)
        mask[: height // 2] = 7
        box = [[0, height / 2, width, height, 3]]
        return {"image": picture(height, width, 1), "mask": mask, "boxes": np.array(box, np.float32)}

    samples = [sample(height, width) for height, width in SIZES]
    fields = {"mask": "mask", "boxes": "xyxy"}
    rawpack_packer.pack(samples, tmp_path / "s", size=SIDE, fit="whole", fields=fields, workers=0)
    reader = Reader(tmp_path / "s")
    for i, size in enumerate(SIZES):
        height, width = scaled(*size)
        found = reader[i]
        assert found["mask"].shape == (height, width, 1)
        assert found["mask"].sum() / 7 / width == pytest.approx(height / 2, abs=1)
        np.testing.assert_allclose(found["boxes"], [[0, height / 2, width, height, 3]], atol=1e-3)


def test_with_crop_and_fast(photos: Path, tmp_path: Path) -> None:
    """A crop comes first, and makes a store of one size; `--fast` has the sizes of the full decoding."""
    rawpack_packer.pack(photos, tmp_path / "c", size=10, fit="whole", crop=(0, 0, 40, 20), max_rejects=2, workers=0)
    assert {Reader(tmp_path / "c")[i]["image"].shape for i in range(3)} == {(10, 20, 3)}
    for i, (height, width) in enumerate(((700, 1000), (900, 601))):
        save(tmp_path / "large" / "a" / f"{i}.jpg", picture(height, width, i))
    for fast in (False, True):
        path = tmp_path / f"fast-{fast}"
        rawpack_packer.pack(tmp_path / "large", path, size=SIDE, fit="whole", fast=fast, workers=0)
        shapes = [Reader(path)[i]["image"].shape[:2] for i in range(2)]
        assert shapes == [scaled(700, 1000), scaled(900, 601)]


def test_what_it_does_not_go_with(photos: Path, tmp_path: Path) -> None:
    """Images as they are, sizes for several images, and chunks, which count images of one size."""
    for options, what in (
        ({"size": "keep"}, "leaves them as they are"),
        ({"size": {"image": 16, "target": 32}}, "samples of one image"),
        ({"format": "hdf5", "chunk": 4}, r"counts images of one size; with fit='whole'"),
    ):
        with pytest.raises(UsageError, match=what):
            rawpack_packer.pack(photos, tmp_path / "s", fit="whole", workers=0, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


def test_lines_of_pixels_are_rejected(tmp_path: Path) -> None:
    """An image of one line exhausts no memory when it is enlarged: those of more pixels than allowed are rejects."""
    samples = [{"image": picture(*shape, 1)} for shape in ((60, 80), (1, 5000), (5000, 1))]
    rawpack_packer.pack(samples, tmp_path / "s", size=SIDE, fit="whole", max_pixels=100_000, max_rejects=2, workers=0)
    rejects = Reader(tmp_path / "s").rejects
    assert [one["reason"] for one in rejects] == ["too_large"] * 2
