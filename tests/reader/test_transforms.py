"""Steps of a transform: random numbers against torchvision's definitions, pixels against Pillow and numpy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from draws import draws, same_distribution, tries
from hypothesis import given
from hypothesis import strategies as st
from image_corpus import Pixels, scene
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from reading import epoch_of
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack import transforms as t
from rawpack.transforms.randomness import batch_random, randoms_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DRAWS = tries(8_000)


def done(step: t.Step, image: NDArray[Any], seed: int = 0) -> tuple[NDArray[Any], Any]:
    """A step applied to an image, and what it drew."""
    drawn = step.draw(t.Random(seed), *image.shape[:2])
    return step.apply(image, drawn), drawn


# ---------------------------------------------------------------------------------------------- random numbers


def splitmix(state: int) -> int:
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def test_a_samples_numbers_are_splitmix64() -> None:
    """Also beyond those that are drawn ahead: number n is the upper 53 bits of splitmix64's output n from the key."""
    for random in randoms_of((3, 4, -1), np.array([0, 5, 10**12])):
        key = random._key
        expected = [(splitmix((key + (n + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53 for n in range(40)]
        assert [random.random() for _ in range(40)] == expected


def test_a_samples_numbers_depend_on_nothing_else() -> None:
    """The same alone and among others, also of numpy's generator; others for another seed, epoch or sample."""
    together = [random.random() for random in randoms_of((3, 4, -1), np.array([7, 8, 9]))]
    alone = [next(iter(randoms_of((3, 4, -1), np.array([row])))).random() for row in (7, 8, 9)]
    assert together == alone
    others = [next(iter(randoms_of((*of, -1), np.array([7])))).random() for of in ((3, 5), (4, 4))]
    assert len({*together, *others}) == 5
    assert batch_random(0, 0, np.array([1, 2])).random() != batch_random(0, 0, np.array([2, 1])).random()
    one, other = (next(iter(randoms_of((0, 0, -1), np.array([3])))) for _ in range(2))
    assert one.generator().random() == other.generator().random() != one.generator().random()


# ---------------------------------------------------------------------------------------------- crops


def reference_boxes(step: Any, height: int, width: int) -> list[tuple[int, int, int, int] | None]:
    """What torchvision's RandomResizedCrop.get_params, or its RandomErasing, is defined to draw, with numpy's random
    numbers. None: nothing is erased."""
    random, found = np.random.default_rng(9), list[Any]()
    crops = isinstance(step, t.RandomResizedCrop)
    for _ in range(DRAWS):
        for _ in range(10):
            area = height * width * random.uniform(*step.scale)
            aspect = np.exp(random.uniform(*np.log(step.ratio)))
            long, short = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            h, w = (short, long) if crops else (long, short)
            if 0 < h < height + crops and 0 < w < width + crops:
                found.append((int(random.integers(height - h + 1)), int(random.integers(width - w + 1)), h, w))
                break
        else:
            w = min(width, round(height * max(step.ratio)))
            h = min(height, round(width / min(step.ratio)))
            found.append(((height - h) // 2, (width - w) // 2, h, w) if crops else None)
    return found


@pytest.mark.parametrize(
    ("step", "height", "width"),
    [
        (t.RandomResizedCrop(224), 256, 256),
        (t.RandomResizedCrop(224), 40, 400),
        (t.RandomErasing(1), 100, 300),
        (t.RandomErasing(1, (0.3, 0.9)), 40, 400),
    ],
    ids=str,
)
def test_random_boxes_are_torchvisions(step: t.Step, height: int, width: int) -> None:
    """Area, shape and place have the distributions of torchvision's definition, also where ten attempts fail."""
    ours = draws(step, height, width, DRAWS)
    if isinstance(step, t.RandomErasing):
        ours = [None if one is None else one[0] for one in ours]
    theirs = reference_boxes(step, height, width)
    shares = [sum(one is None for one in boxes) / DRAWS for boxes in (ours, theirs)]
    assert abs(shares[0] - shares[1]) <= 5 * math.sqrt(2 * max(shares) / DRAWS)
    first, second = (np.array([one for one in boxes if one is not None], float) for boxes in (ours, theirs))
    for boxes in (first, second):
        assert (boxes[:, 0] + boxes[:, 2] <= height).all()
        assert (boxes[:, 1] + boxes[:, 3] <= width).all()
    for of in (
        lambda b: b[:, 2] * b[:, 3],
        lambda b: b[:, 2] / b[:, 3],
        lambda b: b[:, 0] / (height - b[:, 2] + 1),
        lambda b: b[:, 1] / (width - b[:, 3] + 1),
    ):
        assert same_distribution(of(first), of(second))


def test_a_random_resized_crop_is_the_crop_resized() -> None:
    """As Pillow's bilinear, or OpenCV's INTER_AREA, within one level; to the bit where "area" does not shrink."""
    image, size = scene(300, 400), (224, 224)
    for box in ((3, 5, 280, 290), (3, 5, 224, 224), (1, 2, 100, 90), (9, 0, 30, 300)):
        y, x, h, w = box
        part = image[y : y + h, x : x + w]
        bilinear = np.asarray(Image.fromarray(part).resize(size, Image.Resampling.BILINEAR))
        assert np.abs(t.RandomResizedCrop(size).apply(image, box).astype(int) - bilinear).max() <= 1
        area = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
        made = t.RandomResizedCrop(size, interpolation="area").apply(image, box)
        assert np.abs(made.astype(int) - area).max() <= (1 if min(h, w) > 224 else 0)


def test_random_crops_are_uniform() -> None:
    """Each place is as likely as the other, with and without padding: a chi-square test at one in 10**6."""
    for step, places in ((t.RandomCrop(28), 5 * 5), (t.RandomCrop(32, padding=4), 9 * 9)):
        counted = Counter((place.box, place.at) for place in draws(step, 32, 32, DRAWS))
        assert len(counted) == places
        expected = DRAWS / places
        chi = sum((count - expected) ** 2 / expected for count in counted.values())
        assert chi < places + 7 * math.sqrt(2 * places)


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12),
    st.tuples(*[st.integers(0, 6)] * 4), st.integers(0, 2**63),
)  # fmt: skip
def test_a_random_crop_is_a_window_of_the_padded_image(
    height: int, width: int, high: int, wide: int, padding: tuple[int, int, int, int], key: int
) -> None:
    """Any size and padding: what comes out is somewhere in numpy's padded image, or the error names the cure."""
    image = np.arange(1, height * width + 1, dtype=np.uint8).reshape(height, width, 1)
    left, top, right, bottom = padding
    padded = np.pad(image, ((top, bottom), (left, right), (0, 0)), constant_values=255)
    step = t.RandomCrop((high, wide), padding=padding, fill=255)
    if padded.shape[0] < high or padded.shape[1] < wide:
        with pytest.raises(UsageError, match="pad_if_needed"):
            step.draw(t.Random(key), height, width)
        step = t.RandomCrop((high, wide), padding=padding, fill=255, pad_if_needed=True)
        more_y, more_x = max(high - padded.shape[0], 0), max(wide - padded.shape[1], 0)
        padded = np.pad(padded, ((more_y, more_y), (more_x, more_x), (0, 0)), constant_values=255)
    result = step.apply(image, step.draw(t.Random(key), height, width))
    windows = np.lib.stride_tricks.sliding_window_view(padded[..., 0], (high, wide))
    assert (windows == result[..., 0]).all(axis=(2, 3)).any()


@given(st.integers(1, 900), st.integers(1, 900), st.integers(1, 300))
def test_one_side_is_torchvisions_resize(height: int, width: int, side: int) -> None:
    """The shorter side becomes `side`, the longer int(side * long / short); max_size bounds the longer one."""
    step = t.Resize(side, max_size=2 * side)
    short, long = side, int(side * max(height, width) / min(height, width))
    if long > 2 * side:
        short, long = int(2 * side * side / long), 2 * side
    expected = (short, long) if height <= width else (long, short)
    assert step.draw(t.Random(0), height, width) == (max(expected[0], 1), max(expected[1], 1))


@pytest.mark.parametrize("step", [t.RandomHorizontalFlip, t.RandomVerticalFlip, t.RandomErasing])
def test_steps_come_as_often_as_they_are_asked_for(step: Any) -> None:
    """Within five deviations; p=0 and p=1 never and always."""
    for p in (0.0, 0.3, 1.0):
        count = sum(drawn not in (None, False) for drawn in draws(step(p), 64, 64, DRAWS))
        assert abs(count - p * DRAWS) <= 5 * math.sqrt(DRAWS * p * (1 - p))


HIGH, WIDE = 6, 8
DTYPES = ["bool", "int8", "int64", "uint8", "uint16", "float16", "float32"]
CHANNELS = (1, 2, 3, 5, 129, 513)


def wild(dtype: str, channels: int) -> NDArray[Any]:
    """An image (HIGH, WIDE, channels) over the whole range of a dtype: 64-bit numbers that neither 32 bits nor a
    float64 can hold."""
    random, shape = np.random.default_rng(channels), (HIGH, WIDE, channels)
    if np.dtype(dtype).kind in "iu":
        return np.frombuffer(random.bytes(np.dtype(dtype).itemsize * math.prod(shape)), dtype).reshape(shape)
    return (random.normal(size=shape) * 1000).astype(dtype) if dtype != "bool" else random.random(shape) < 0.5


MOVES: list[tuple[t.Step, Any]] = [
    (t.RandomHorizontalFlip(1), lambda image: image[:, ::-1]),
    (t.RandomVerticalFlip(1), lambda image: image[::-1]),
    (t.CenterCrop((4, 2)), lambda image: image[1:5, 3:5]),
    (t.CenterCrop((3, 11)), lambda image: np.pad(image[2:5], ((0, 0), (1, 2), (0, 0)))),
    (t.CenterCrop((9, 3)), lambda image: np.pad(image[:, 2:5], ((1, 2), (0, 0), (0, 0)))),
    (t.RandomCrop((HIGH + 7, WIDE + 4), padding=(1, 2, 3, 5)), lambda image: np.pad(image, ((2, 5), (1, 3), (0, 0)))),
    (t.ToCHW(), lambda image: np.stack([image[..., c] for c in range(image.shape[2])])),
    (t.Resize(2 * HIGH, "nearest"), lambda image: image.repeat(2, axis=0).repeat(2, axis=1)),
]
"""Steps that move the values of any dtype, and what numpy makes of it, with torchvision's roundings."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("step", "expected"), MOVES, ids=lambda one: repr(one) if isinstance(one, t.Step) else "numpy")
def test_pixels_are_moved_bit_for_bit(step: t.Step, expected: Any, dtype: str) -> None:
    """Of images and masks, in any dtype, with any number of channels, wherever the result is wanted; images of a dtype
    that OpenCV does not resize are refused."""
    for channels in CHANNELS:
        image = wild(dtype, channels)
        image.flags.writeable = False
        wanted, drawn, spec = expected(image), step.draw(t.Random(0), HIGH, WIDE), t.Spec(image.shape, dtype, "HWC")
        both = [(step.makes, step.apply), (step.makes_mask, step.apply_mask)]
        if isinstance(step, t.Resize) and dtype not in ("uint8", "uint16", "float32"):
            with pytest.raises(UsageError, match=f"not {dtype}"):
                step.makes(spec)
            del both[0]
        for makes, apply in both:
            made = makes(spec)
            assert (made.shape, made.dtype) == (wanted.shape, dtype)
            for out in (None, np.empty(wanted.shape, dtype)):
                result = apply(image, drawn, out)
                assert result.dtype == dtype
                np.testing.assert_array_equal(result, wanted)


# ---------------------------------------------------------------------------------------------- color


def test_jitter_draws_as_torchvision() -> None:
    """Factors are uniform from max(0, 1 - x) to 1 + x, the hue's shift from -x to x, and all 24 orders alike."""
    drawn = draws(t.ColorJitter(0.4, 2.0, (0.5, 0.9), 0.1), 4, 4, DRAWS)
    for k, (low, high) in enumerate(((0.6, 1.4), (0.0, 3.0), (0.5, 0.9), (-0.1, 0.1))):
        assert same_distribution([dict(one)[k] for one in drawn], np.linspace(low, high, DRAWS, endpoint=False))
    orders = Counter(tuple(k for k, _ in one) for one in drawn)
    assert len(orders) == 24
    assert sum((n - DRAWS / 24) ** 2 / (DRAWS / 24) for n in orders.values()) < 24 + 7 * math.sqrt(48)


def test_hue_turns_the_circle() -> None:
    """A third of the circle makes green of red; nothing gray changes."""
    red = np.zeros((4, 4, 3), np.uint8) + np.uint8([200, 0, 0])
    assert np.abs(done(t.ColorJitter(hue=(1 / 3, 1 / 3)), red)[0].astype(int) - (0, 200, 0)).max() <= 4
    gray = np.full((4, 4, 3), 77, np.uint8)
    assert (done(t.ColorJitter(hue=0.5), gray)[0] == 77).all()


def test_normalize_after_tochw_takes_the_first_axis() -> None:
    """The channels are where they are, also of an image that is as high and wide as it has channels."""
    image = np.random.default_rng(1).random((3, 3, 3)).astype(np.float32)
    spec = t.ToCHW().makes(t.Spec((3, 3, 3), "float32", "HWC"))
    result = t.Normalize(MEAN, STD).fitted(spec).apply(image, None)
    expected = (image - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_one_hot() -> None:
    """Of one label for each sample, or several."""
    for labels, classes, dtype in ((np.array([2, 0, 1]), 3, "float32"), (np.array([[0, 3], [1, 1]]), 4, "int64")):
        made = t.OneHot(classes, dtype=dtype).apply(labels, None)
        assert made.dtype == dtype
        np.testing.assert_array_equal(made, np.eye(classes)[labels])


RGB, PLANES = t.Spec((9, 9, 3), "uint8", "HWC"), t.Spec((3, 9, 9), "uint8", "CHW")
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: t.RandomResizedCrop(0), "size=0"),
    (lambda: t.Resize((3, 4), max_size=9), "max_size=9"),
    (lambda: t.RandomResizedCrop(9, scale=0.5), "scale=0.5"),  # type: ignore[arg-type]
    (lambda: t.RandomResizedCrop(9, ratio=(0, 1)), "ratio="),
    (lambda: t.RandomResizedCrop(9, interpolation="linear"), "interpolation='linear'"),
    (lambda: t.RandomCrop(9, padding=(1, 2, 3)), "padding="),
    (lambda: t.RandomHorizontalFlip(1.5), "p=1.5"),
    (lambda: t.ColorJitter(hue=0.7), "hue=0.7"),
    (lambda: t.Normalize((0,), (0,)), "std="),
    (lambda: t.RandAugment(2, 31), "magnitude=31 must be a whole number between 0 and 30"),
    (lambda: t.MixUp(alpha=0), "alpha=0 must be a number above 0"),
    (lambda: t.Normalize((1, 2), (1, 2)).makes(RGB), "2 values of mean"),
    (lambda: t.OneHot(3).makes(t.Spec((), "float32", "")), "whole numbers"),
    (lambda: t.CenterCrop(3).makes(PLANES), "before ToCHW"),
    (lambda: t.RandomCrop(3, fill=0.5).makes(RGB), "fill=0.5 is not a value of uint8"),
    (lambda: t.ColorJitter(1).makes(t.Spec((9, 9, 3), "float32", "HWC")), "uint8"),
    (lambda: t.RandAugment().makes(t.Spec((9, 9, 4), "uint8", "HWC")), "needs uint8 images of 1 or 3 channels"),
    (lambda: t.RandomErasing(value="random").makes(RGB), "after Normalize"),
    (lambda: t.RandomErasing(value=(1, 2)).makes(PLANES), "2 values for images of 3"),
]
"""Arguments that are refused as soon as a step is made, or when it is to be used for such images or numbers."""


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_nonsense_is_refused_with_its_value(make: Any, words: str) -> None:
    """An error before anything is read, that names the argument, or says what the step needs."""
    with pytest.raises(UsageError, match=re.escape(words)):
        make()


@pytest.mark.parametrize(
    "step",
    [
        t.RandomCrop(24, padding=9),
        t.CenterCrop(24),
        t.RandomResizedCrop(24),
        *(t.Resize((24, 24), name) for name in ("bilinear", "lanczos", "nearest", "area")),
        t.RandomHorizontalFlip(1),
        t.RandomVerticalFlip(1),
        t.RandomErasing(1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_memory_of_the_result_may_hold_the_image(step: t.Step, dtype: str) -> None:
    """As where the step before has the same result, and a crop between them is a view of it."""
    for part in (np.s_[:], np.s_[:15, :17], np.s_[3:20, 4:20], np.s_[::-1, ::-1]):
        memory = scene(24, 24).astype(dtype)
        image = memory[part]
        drawn = step.draw(t.Random(5), *image.shape[:2])
        expected = step.apply(image.copy(), drawn)
        out = memory if expected.shape == memory.shape else None
        np.testing.assert_array_equal(step.apply(image, drawn, out), expected)


SIGNED = [
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------- RandAugment


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
    step, height, width = t.RandAugment(*arguments), 200, 300
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
    result = t.RandAugment(**arguments).apply(image, [(name, magnitude)])
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
                jittered = t.ColorJitter(0.9).apply(pixels, ((jitter[name], 1 + magnitude),))
                assert np.abs(jittered.astype(int) - expected).max() <= slack


def rotated(image: Image.Image, degrees: float, fill: Any) -> Image.Image:
    return image.rotate(degrees, fillcolor=fill)


def moved(matrix: Any) -> Any:
    def transform(image: Image.Image, magnitude: float, fill: Any) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix(magnitude), fillcolor=fill)

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
            wanted = pillow(Image.fromarray(image.squeeze()), magnitude, full)
            result = made(name, magnitude, image, fill=fill if image.shape[2] == 3 else full)
            assert (result != np.asarray(wanted).reshape(image.shape)).any(axis=2).mean() < 0.002


@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_masks_go_along(name: str, pillow: Any, magnitudes: tuple[float, ...]) -> None:
    """The same pixels as of the image, whatever the dtype, and 0 where nothing was; other operations leave them."""
    numbers = np.arange(1, 60 * 80 + 1).reshape(60, 80, 1)
    image = np.concatenate([numbers % 256, numbers // 256, numbers * 0 + 1], axis=2).astype(np.uint8)
    for magnitude in (*magnitudes, magnitudes[0] / 3, magnitudes[1] / 7):
        moved_image = made(name, magnitude, image, fill=0).astype(int)
        number = moved_image[..., :1] + 256 * moved_image[..., 1:2]
        for dtype, most in (("uint8", 256), ("bool", 2), ("int64", 1 << 62)):
            result = t.RandAugment().apply_mask((numbers % most).astype(dtype), [("Equalize", 0), (name, magnitude)])
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, (number % most).astype(dtype))
    assert t.RandAugment().apply_mask(numbers, [("Solarize", 9.0), ("Identity", 0)]) is numbers


# ---------------------------------------------------------------------------------------------- RandomErasing


@pytest.mark.parametrize("value", [7, (1, 2, 3)], ids=str)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_box_is_erased_and_nothing_else(value: Any, layout: Any, dtype: str) -> None:
    """In both orders of axes; the source is never written to, and `out` may be the image itself."""
    image = np.random.default_rng(0).integers(50, 200, (40, 60, 3)).astype(dtype)
    step = t.RandomErasing(1, value=value)
    drawn: Any = step.draw(t.Random(3), 40, 60)
    y, x, h, w = drawn[0]
    expected = image.copy()
    expected[y : y + h, x : x + w] = value
    if layout == "CHW":
        image, expected = (np.ascontiguousarray(one.transpose(2, 0, 1)) for one in (image, expected))
    fitted, own = step.fitted(t.Spec(image.shape, dtype, layout)), image.copy()
    image.flags.writeable = False
    for source, out in ((image, None), (image, np.empty_like(image)), (own, own)):
        np.testing.assert_array_equal(fitted.apply(source, drawn, out), expected)
    assert fitted.apply(image, None) is image


@pytest.mark.parametrize(("layout", "shape"), [("HWC", (200, 300, 3)), ("CHW", (3, 200, 300))])
def test_noise_is_normal(layout: Any, shape: tuple[int, ...]) -> None:
    """Mean 0, deviation 1, different from image to image, the same for all frames of a clip."""
    step = t.RandomErasing(1, scale=(0.3, 0.33), ratio=(1, 1), value="random").fitted(t.Spec(shape, "float32", layout))
    drawn, other = (step.draw(t.Random(key), 200, 300) for key in (1, 2))
    image = np.full(shape, 99, np.float32)
    result = step.apply(image, drawn)
    noise = result[result != 99]
    assert noise.size > 3 * 0.29 * 200 * 300
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 5 / math.sqrt(noise.size)
    np.testing.assert_array_equal(step.apply(image, drawn), result)
    assert np.isin(noise, step.apply(image, other)).mean() < 0.1


def test_erasing_after_tochw_covers_the_whole_image(packed: Packed) -> None:
    """The same boxes before ToCHW and after it: also there, the draw knows height and width."""
    store = packed("memmap", "--size", "40x72")
    before = epoch_of(store, [t.RandomErasing(1), t.ToCHW()])["image"]
    after = epoch_of(store, [t.ToCHW(), t.RandomErasing(1)])["image"]
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
    only_moved = [t.RandAugment(3, 20), t.Lambda(lambda image: image, field="image")]
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
    (erased,) = Reader(scenes).batches(12, fields=["image", "mask", "boxes"], transform=[t.RandomErasing(1)], workers=0)
    assert (erased["image"] == 0).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(erased["mask"], plain["mask"])
    np.testing.assert_array_equal(np.concatenate(erased["boxes"]), [[3, 4, 20, 30, 1]] * 12)
    with pytest.raises(UsageError, match=r"RandAugment\(.*boxes.*'boxes'.*fields="):
        Reader(scenes).batches(4, fields=["image", "boxes"], transform=[t.RandAugment()])
