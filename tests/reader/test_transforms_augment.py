"""RandAugment and RandomErasing: draws against torchvision's definitions, pixels against Pillow and numpy."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import cv2
import numpy as np
import pytest
from draws import draws, tries
from image_corpus import Pixels, scene
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from reading import epoch_of
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import ColorJitter, Lambda, RandAugment, Random, RandomErasing, Spec, ToCHW

DRAWS = tries(8_000)
SIGNED = [
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------- RandAugment: draws


def table(magnitude: int, bins: int, height: int, width: int) -> dict[str, float]:
    """What torchvision's table says of each operation's magnitude, without its sign."""
    shear, color = np.linspace(0, 0.3, bins)[magnitude], np.linspace(0, 0.9, bins)[magnitude]
    return {
        "Identity": 0, "AutoContrast": 0, "Equalize": 0,
        "ShearX": shear, "ShearY": shear,
        "TranslateX": int(np.linspace(0, 150 / 331 * width, bins)[magnitude]),
        "TranslateY": int(np.linspace(0, 150 / 331 * height, bins)[magnitude]),
        "Rotate": np.linspace(0, 30, bins)[magnitude],
        "Brightness": color, "Color": color, "Contrast": color, "Sharpness": color,
        "Posterize": int((8 - np.arange(bins) / ((bins - 1) / 4)).round()[magnitude]),
        "Solarize": 255 * np.linspace(1, 0, bins)[magnitude],
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [(), (1, 0), (3, 30), (2, 5, 10)], ids=str)
def test_operations_and_magnitudes_are_torchvisions(arguments: tuple[int, ...]) -> None:
    """Each is as likely as the others, with the magnitude of torchvision's table and either sign."""
    step, height, width = RandAugment(*arguments), 200, 300
    expected = table(step.magnitude, step.num_magnitude_bins, height, width)
    drawn = [one for of_image in draws(step, height, width, DRAWS) for one in of_image]
    assert len(drawn) == DRAWS * step.num_ops
    counted = Counter(name for name, _ in drawn)
    assert set(counted) == set(expected)
    each = len(drawn) / 14
    assert sum((n - each) ** 2 / each for n in counted.values()) < 14 + 7 * math.sqrt(28)
    for name, magnitude in expected.items():
        values = np.array([magnitude for one, magnitude in drawn if one == name])
        np.testing.assert_allclose(np.abs(values), magnitude, rtol=1e-9)
        if name in SIGNED and magnitude:
            assert abs((values < 0).mean() - 0.5) < 5 * math.sqrt(0.25 / len(values))
        else:
            assert (values >= 0).all()


# ---------------------------------------------------------------------------------------------- RandAugment: pixels

IMAGES: dict[str, Pixels] = {
    "scene": scene(60, 80),
    "dark": (scene(60, 80) // 4 + 20).astype(np.uint8),
    "flat": np.full((9, 11, 3), 77, np.uint8),
    "few levels": np.random.default_rng(0).choice(np.array([3, 90, 91, 200], np.uint8), (20, 30, 3)),
    "tiny": np.random.default_rng(1).integers(0, 256, (3, 3, 3)).astype(np.uint8),
}


def made(name: str, magnitude: float, image: Pixels, **arguments: Any) -> NDArray[Any]:
    image = image.copy()
    image.flags.writeable = False
    result = RandAugment(**arguments).apply(image, [(name, magnitude)])
    assert result.dtype == np.uint8
    assert result.shape == image.shape
    return result


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    ("name", "pillow", "magnitudes", "slack"),
    [
        ("Identity", lambda one, m: one, (0,), 0),
        ("AutoContrast", lambda one, m: ImageOps.autocontrast(one), (0,), 0),
        ("Equalize", lambda one, m: ImageOps.equalize(one), (0,), 0),
        ("Posterize", ImageOps.posterize, (1, 4, 8), 0),
        ("Solarize", ImageOps.solarize, (0.0, 60.5, 255.0), 0),
        ("Brightness", lambda one, m: ImageEnhance.Brightness(one).enhance(1 + m), (-0.9, 0.27), 1),
        ("Contrast", lambda one, m: ImageEnhance.Contrast(one).enhance(1 + m), (-0.27, 0.9), 1),
        ("Color", lambda one, m: ImageEnhance.Color(one).enhance(1 + m), (-0.9, 0.9), 1),
        ("Sharpness", lambda one, m: ImageEnhance.Sharpness(one).enhance(1 + m), (-0.9, 0.9), 2),
    ],
)
def test_values_are_pillows(name: str, pillow: Any, magnitudes: tuple[float, ...], slack: int, image: str) -> None:
    """As torchvision does with Pillow's images: to the bit where nothing is blended, else within its rounding. What
    ColorJitter does too is the same there."""
    jitter = {"Brightness": 0, "Contrast": 1, "Color": 2}
    for magnitude in magnitudes:
        for pixels in (IMAGES[image], IMAGES[image][..., :1]):
            expected = np.asarray(pillow(Image.fromarray(pixels.squeeze()), magnitude)).reshape(pixels.shape)
            result = made(name, magnitude, pixels)
            assert np.abs(result.astype(int) - expected).max() <= slack
            np.testing.assert_array_equal(made(name, magnitude, np.repeat(pixels, 2, axis=1)[:, ::2]), result)
            if name in jitter:
                jittered = ColorJitter(0.9).apply(pixels, ((jitter[name], 1 + magnitude),))
                assert np.abs(jittered.astype(int) - expected).max() <= slack


def rotated(image: Image.Image, degrees: float, fill: Any, resample: Image.Resampling) -> Image.Image:
    return image.rotate(degrees, resample, fillcolor=fill)


def moved(matrix: Any) -> Any:
    def transform(image: Image.Image, magnitude: float, fill: Any, resample: Image.Resampling) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix(magnitude), resample, fillcolor=fill)

    return transform


GEOMETRY = [
    ("ShearX", moved(lambda m: (1, m, 0, 0, 1, 0)), (0.09, -0.3)),
    ("ShearY", moved(lambda m: (1, 0, 0, m, 1, 0)), (0.09, -0.3)),
    ("TranslateX", moved(lambda m: (1, 0, -m, 0, 1, 0)), (10, -25)),
    ("TranslateY", moved(lambda m: (1, 0, 0, 0, 1, -m)), (10, -25)),
    ("Rotate", rotated, (9, -30)),
]
"""Each as torchvision defines it: sheared about the corner, rotated about the center, moved by whole pixels."""


@pytest.mark.parametrize("fill", [None, 7, (1, 2, 255)])
@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_geometry_is_pillows(name: str, pillow: Any, magnitudes: tuple[float, ...], fill: Any) -> None:
    """The nearest pixel: equal to Pillow's but for a few at the border between two; what is left empty is filled."""
    color = (fill,) * 3 if isinstance(fill, int) else fill or (0, 0, 0)
    for magnitude in magnitudes:
        for image, full in ((scene(60, 80), color), (scene(60, 80)[..., :1], color[0])):
            wanted = pillow(Image.fromarray(image.squeeze()), magnitude, full, Image.Resampling.NEAREST)
            result = made(name, magnitude, image, fill=fill if image.shape[2] == 3 else full)
            assert (result != np.asarray(wanted).reshape(image.shape)).any(axis=2).mean() < 0.002


@pytest.mark.parametrize(("interpolation", "slack"), [("bilinear", 3), ("bicubic", 12)])
@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_interpolated_geometry_is_near_pillows(
    name: str, pillow: Any, magnitudes: tuple[float, ...], interpolation: str, slack: int
) -> None:
    """Away from what is filled, where the two differ in how they blend; bicubic kernels differ."""
    resample = Image.Resampling[interpolation.upper()]
    for magnitude in magnitudes:
        expected, white = (
            np.asarray(pillow(Image.fromarray(image), magnitude, (0, 0, 0), resample))
            for image in (scene(60, 80), np.full((60, 80, 3), 255, np.uint8))
        )
        inside = cv2.erode((white == 255).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
        result = made(name, magnitude, scene(60, 80), interpolation=interpolation)
        assert inside.mean() > 0.3
        assert np.percentile(np.abs(result.astype(int) - expected)[inside], 99) <= slack


@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_masks_go_along(name: str, pillow: Any, magnitudes: tuple[float, ...]) -> None:
    """The same pixels as of the image, whatever the dtype, and 0 where nothing was; other operations leave them."""
    numbers = np.arange(1, 60 * 80 + 1).reshape(60, 80, 1)
    image = np.concatenate([numbers % 256, numbers // 256, numbers * 0 + 1], axis=2).astype(np.uint8)
    for magnitude in (*magnitudes, magnitudes[0] / 3, magnitudes[1] / 7):
        moved_image = made(name, magnitude, image, fill=0).astype(int)
        number = moved_image[..., :1] + 256 * moved_image[..., 1:2]
        for dtype, most in (("uint8", 256), ("bool", 2), ("int64", 1 << 62)):
            result = RandAugment().apply_mask((numbers % most).astype(dtype), [("Equalize", 0), (name, magnitude)])
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, (number % most).astype(dtype))
    assert RandAugment().apply_mask(numbers, [("Solarize", 9.0), ("Identity", 0)]) is numbers


# ---------------------------------------------------------------------------------------------- RandomErasing


@pytest.mark.parametrize("value", [7, (1, 2, 3)], ids=str)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_box_is_erased_and_nothing_else(value: Any, layout: Any, dtype: str) -> None:
    """In both orders of axes; the source is never written to, and `out` may be the image itself."""
    image = np.random.default_rng(0).integers(50, 200, (40, 60, 3)).astype(dtype)
    step = RandomErasing(1, value=value)
    drawn: Any = step.draw(Random(3), 40, 60)
    y, x, h, w = drawn[0]
    expected = image.copy()
    expected[y : y + h, x : x + w] = value
    if layout == "CHW":
        image, expected = (np.ascontiguousarray(one.transpose(2, 0, 1)) for one in (image, expected))
    fitted, own = step.fitted(Spec(image.shape, dtype, layout)), image.copy()
    image.flags.writeable = False
    for given, out in ((image, None), (image, np.empty_like(image)), (own, own)):
        np.testing.assert_array_equal(fitted.apply(given, drawn, out), expected)
    assert fitted.apply(image, None) is image


@pytest.mark.parametrize(("layout", "shape"), [("HWC", (200, 300, 3)), ("CHW", (3, 200, 300))])
def test_noise_is_normal(layout: Any, shape: tuple[int, ...]) -> None:
    """Mean 0, deviation 1, different from image to image, the same for all frames of a clip."""
    step = RandomErasing(1, scale=(0.3, 0.33), ratio=(1, 1), value="random").fitted(Spec(shape, "float32", layout))
    drawn, other = (step.draw(Random(key), 200, 300) for key in (1, 2))
    image = np.full(shape, 99, np.float32)
    result = step.apply(image, drawn)
    noise = result[result != 99]
    assert noise.size > 3 * 0.29 * 200 * 300
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 5 / math.sqrt(noise.size)
    np.testing.assert_array_equal(step.apply(image, drawn), result)
    assert np.isin(noise, step.apply(image, other)).mean() < 0.1


# ---------------------------------------------------------------------------------------------- in the workers


def test_erasing_after_tochw_covers_the_whole_image(packed: Packed) -> None:
    """The same boxes before ToCHW and after it: also there, the draw knows height and width."""
    store = packed("memmap", "--size", "40x72")
    before = epoch_of(store, [RandomErasing(1), ToCHW()])["image"]
    after = epoch_of(store, [ToCHW(), RandomErasing(1)])["image"]
    np.testing.assert_array_equal(before, after)
    erased = (after == 0).all(axis=1)
    assert erased[:, :, 40:].any()
    assert erased.mean() > 0.05


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store of images with a mask of another image's numbers, and a box."""
    mask = (np.arange(40 * 50).reshape(40, 50) % 251 + 1).astype(np.uint8)
    sample = {"image": np.repeat(mask[..., None], 3, axis=2), "mask": mask, "boxes": np.array([[3, 4, 20, 30, 1.0]])}
    path = tmp_path_factory.mktemp("scenes") / "store"
    rawpack_packer.pack([sample] * 12, path, workers=0, fields={"boxes": "xyxy", "mask": "mask"})
    return path


def test_masks_are_moved_with_their_images_in_batches(scenes: Any) -> None:
    """Geometric operations move both alike; erasing leaves masks and boxes alone; beside boxes it is refused."""
    only_moved = [RandAugment(3, 20), Lambda(lambda image: image, field="image")]
    plain = epoch_of(scenes, [], fields=["image", "mask"])
    batch = epoch_of(scenes, only_moved, fields=["image", "mask"])
    changed = 0
    for image, mask, original in zip(batch["image"], batch["mask"], plain["mask"], strict=True):
        assert set(np.unique(mask)) <= {0, *np.unique(original)}
        empty = mask[..., 0] == 0
        changed += bool(empty.any())
        if (image[~empty] == mask[~empty]).all():
            assert (image[empty] == 0).all()
    assert changed > 4
    (erased,) = Reader(scenes).batches(12, fields=["image", "mask", "boxes"], transform=[RandomErasing(1)], workers=0)
    assert (erased["image"] == 0).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(erased["mask"], plain["mask"])
    np.testing.assert_array_equal(np.concatenate(erased["boxes"]), [[3, 4, 20, 30, 1]] * 12)
    with pytest.raises(UsageError, match=r"RandAugment\(.*boxes.*'boxes'.*fields="):
        Reader(scenes).batches(4, fields=["image", "boxes"], transform=[RandAugment()])
