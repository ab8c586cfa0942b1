"""RandAugment and RandomErasing: draws against torchvision's definitions, pixels against Pillow and numpy."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from draws import same_distribution, tries
from image_corpus import Pixels, scene
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import Lambda, RandAugment, Random, RandomErasing, Spec, Step, ToCHW
from rawpack.transforms.randomness import randoms_of

DRAWS = tries(8_000)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMES = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
"""The operations of torchvision.transforms.v2.RandAugment."""


def draws(step: Step, height: int, width: int, count: int = DRAWS) -> list[Any]:
    return [step.draw(random, height, width) for random in randoms_of((1, 2, -1), np.arange(count))]


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
    """Each of the fourteen is as likely as the others, with the magnitude of torchvision's table, and signs are
    positive half of the time, where there are any."""
    step, height, width = RandAugment(*arguments), 200, 300
    expected = table(step.magnitude, step.num_magnitude_bins, height, width)
    drawn = [one for of_image in draws(step, height, width) for one in of_image]
    assert len(drawn) == DRAWS * step.num_ops
    counted = Counter(name for name, _ in drawn)
    assert set(counted) == set(NAMES)
    each = len(drawn) / 14
    assert sum((n - each) ** 2 / each for n in counted.values()) < 14 + 7 * math.sqrt(28)
    for name in NAMES:
        values = np.array([magnitude for one, magnitude in drawn if one == name])
        np.testing.assert_allclose(np.abs(values), expected[name], rtol=1e-9)
        if name in NAMES[1:10] and expected[name]:
            assert abs((values < 0).mean() - 0.5) < 5 * math.sqrt(0.25 / len(values))
        else:
            assert (values >= 0).all()


def test_the_defaults_are_torchvisions() -> None:
    """As documented there."""
    step = RandAugment()
    assert (step.num_ops, step.magnitude, step.num_magnitude_bins, step.interpolation) == (2, 9, 31, "nearest")
    erasing = RandomErasing()
    assert (erasing.p, erasing.scale, erasing.ratio, erasing.value) == (0.5, (0.02, 0.33), (0.3, 3.3), 0)


# ---------------------------------------------------------------------------------------------- RandAugment: pixels

FLAT = np.full((9, 11, 3), 77, np.uint8)
FEW = np.random.default_rng(0).choice(np.array([3, 90, 91, 200], np.uint8), (20, 30, 3))
TINY = np.random.default_rng(1).integers(0, 256, (3, 3, 3)).astype(np.uint8)
DARK = (scene(60, 80) // 4 + 20).astype(np.uint8)
IMAGES: dict[str, Pixels] = {"scene": scene(60, 80), "dark": DARK, "flat": FLAT, "few levels": FEW, "tiny": TINY}


def made(name: str, magnitude: float, image: Pixels, **arguments: Any) -> NDArray[Any]:
    image = image.copy()
    image.flags.writeable = False
    result = RandAugment(**arguments).apply(image, [(name, magnitude)])
    assert result.dtype == np.uint8
    assert result.shape == image.shape
    return result


@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    ("name", "magnitude", "pillow", "slack"),
    [
        ("Identity", 0, lambda one: one, 0),
        ("AutoContrast", 0, ImageOps.autocontrast, 0),
        ("Equalize", 0, ImageOps.equalize, 0),
        *[("Posterize", bits, lambda one, bits=bits: ImageOps.posterize(one, bits), 0) for bits in (1, 4, 7, 8)],
        *[("Solarize", t, lambda one, t=t: ImageOps.solarize(one, t), 0) for t in (0.0, 60.5, 178.5, 200.0, 255.0)],
        *[("Brightness", m, lambda one, m=m: ImageEnhance.Brightness(one).enhance(1 + m), 1) for m in (-0.9, 0.27)],
        *[("Contrast", m, lambda one, m=m: ImageEnhance.Contrast(one).enhance(1 + m), 1) for m in (-0.27, 0.9)],
        *[("Color", m, lambda one, m=m: ImageEnhance.Color(one).enhance(1 + m), 1) for m in (-0.9, 0.9)],
        *[("Sharpness", m, lambda one, m=m: ImageEnhance.Sharpness(one).enhance(1 + m), 2) for m in (-0.9, 0.9)],
    ],
)
def test_values_are_pillows(name: str, magnitude: float, pillow: Any, slack: int, image: str, gray: bool) -> None:
    """Which is what torchvision does with Pillow's images: to the bit where nothing is blended, within the rounding of
    Pillow's blending else."""
    pixels = IMAGES[image][..., :1] if gray else IMAGES[image]
    expected = np.asarray(pillow(Image.fromarray(pixels[..., 0] if gray else pixels))).reshape(pixels.shape)
    result = made(name, magnitude, pixels)
    assert np.abs(result.astype(int) - expected).max() <= slack
    np.testing.assert_array_equal(made(name, magnitude, np.repeat(pixels, 2, axis=1)[:, ::2]), result)


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
    image = scene(60, 80)
    color = (fill,) * 3 if isinstance(fill, int) else fill or (0, 0, 0)
    for magnitude in magnitudes:
        expected = np.asarray(pillow(Image.fromarray(image), magnitude, color, Image.Resampling.NEAREST))
        result = made(name, magnitude, image, fill=fill)
        assert (result != expected).any(axis=2).mean() < 0.002
        gray = made(name, magnitude, image[..., :1], fill=7)
        wanted = np.asarray(pillow(Image.fromarray(image[..., 0]), magnitude, 7, Image.Resampling.NEAREST))
        assert (gray[..., 0] != wanted).mean() < 0.002


@pytest.mark.parametrize(("interpolation", "slack"), [("bilinear", 3), ("bicubic", 12)])
@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_interpolated_geometry_is_near_pillows(
    name: str, pillow: Any, magnitudes: tuple[float, ...], interpolation: str, slack: int
) -> None:
    """Away from what is filled, where the two differ in how they blend; bicubic kernels differ."""
    image = scene(60, 80)
    resample = Image.Resampling[interpolation.upper()]
    for magnitude in magnitudes:
        expected = np.asarray(pillow(Image.fromarray(image), magnitude, (0, 0, 0), resample))
        inside = np.asarray(pillow(Image.fromarray(np.full_like(image, 255)), magnitude, (0, 0, 0), resample)) == 255
        inside[1:-1, 1:-1] &= inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        inside[[0, 1, -2, -1]] = inside[:, [0, 1, -2, -1]] = False
        result = made(name, magnitude, image, interpolation=interpolation)
        assert inside.mean() > 0.3
        assert np.percentile(np.abs(result.astype(int) - expected)[inside], 99) <= slack


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64"])
@pytest.mark.parametrize(("name", "pillow", "magnitudes"), GEOMETRY)
def test_masks_go_along(name: str, pillow: Any, magnitudes: tuple[float, ...], dtype: str) -> None:
    """The same pixels as of the image, whatever the dtype, and 0 where nothing was; other operations leave them."""
    numbers = np.arange(1, 60 * 80 + 1).reshape(60, 80, 1)
    image = np.concatenate([numbers % 256, numbers // 256, numbers * 0 + 1], axis=2).astype(np.uint8)
    mask = numbers % 2 if dtype == "bool" else numbers
    for magnitude in (*magnitudes, magnitudes[0] / 3, magnitudes[1] / 7):
        moved_image = made(name, magnitude, image, fill=0).astype(int)
        number = moved_image[..., :1] + 256 * moved_image[..., 1:2]
        result = RandAugment().apply_mask(mask.astype(dtype), [("Equalize", 0), (name, magnitude)])
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, (number % 2 if dtype == "bool" else number).astype(dtype))
    assert RandAugment().makes_mask(Spec((60, 80, 1), dtype, "HWC")) == Spec((60, 80, 1), dtype, "HWC")
    assert RandAugment().apply_mask(mask, [("Solarize", 9.0), ("Identity", 0)]) is mask


def test_operations_come_one_after_the_other() -> None:
    """In the order in which they were drawn, as often as they were drawn."""
    image = scene(40, 50)
    drawn = [("TranslateX", 7.0), ("Solarize", 100.0), ("TranslateX", 7.0)]
    result = RandAugment(3, fill=9).apply(image, drawn)
    by_hand = image
    for one in drawn:
        by_hand = RandAugment(fill=9).apply(by_hand, [one])
    np.testing.assert_array_equal(result, by_hand)
    assert (result[:, :7] == 9).all()
    assert (result[:, 7:14] == 255 - 9).sum() == 0
    assert RandAugment(0).draw(Random(0), 4, 4) == []


# ---------------------------------------------------------------------------------------------- RandomErasing


def reference_erasing(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> list[tuple[int, int, int, int] | None]:
    """The definition of torchvision.transforms.RandomErasing, with numpy's random numbers."""
    random, found = np.random.default_rng(9), list[Any]()
    for _ in range(DRAWS):
        for _ in range(10):
            area = height * width * random.uniform(*scale)
            aspect = np.exp(random.uniform(*np.log(ratio)))
            h, w = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if h < height and w < width:
                found.append((int(random.integers(height - h + 1)), int(random.integers(width - w + 1)), h, w))
                break
        else:
            found.append(None)
    return found


@pytest.mark.parametrize(
    ("height", "width", "scale"), [(224, 224, (0.02, 0.33)), (100, 300, (0.02, 0.33)), (40, 400, (0.3, 0.9))]
)
def test_erased_boxes_are_torchvisions(height: int, width: int, scale: tuple[float, float]) -> None:
    """Area, shape and place have the distributions of torchvision's definition, also where ten attempts fail: then
    nothing is erased."""
    ours = [None if one is None else one[0] for one in draws(RandomErasing(1, scale), height, width)]
    theirs = reference_erasing(height, width, scale, (0.3, 3.3))
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


def test_erasing_comes_as_often_as_it_is_asked_for() -> None:
    """Within five deviations; p=0 and p=1 never and always."""
    for p in (0.0, 0.25, 0.5, 1.0):
        count = sum(one is not None for one in draws(RandomErasing(p), 64, 64))
        assert abs(count - p * DRAWS) <= 5 * math.sqrt(DRAWS * p * (1 - p))


@pytest.mark.parametrize("value", [0, 7, (1, 2, 3), np.array([1, 2, 3])], ids=str)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_box_is_erased_and_nothing_else(value: Any, layout: str, dtype: str) -> None:
    """With one value or one for each channel, in both orders of axes; the source is never written to, and `out` may be
    the image itself."""
    image = np.random.default_rng(0).integers(50, 200, (40, 60, 3)).astype(dtype)
    step = RandomErasing(1, value=value)
    drawn = step.draw(Random(3), 40, 60)
    assert drawn is not None
    y, x, h, w = drawn[0]
    expected = image.copy()
    expected[y : y + h, x : x + w] = value
    if layout == "CHW":
        image, expected = (np.ascontiguousarray(one.transpose(2, 0, 1)) for one in (image, expected))
    spec = Spec(image.shape, dtype, layout)  # type: ignore[arg-type]
    assert step.makes(spec) is spec
    fitted = step.fitted(spec)
    image.flags.writeable = False
    for out in (None, np.empty_like(image), image.copy()):
        given = out if out is not None and out.flags.writeable and np.array_equal(out, image) else image
        result = fitted.apply(given, drawn, out)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)
    assert fitted.apply(image, None) is image


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_noise_is_normal(layout: str) -> None:
    """Mean 0, deviation 1, different from channel to channel and image to image, the same for all frames of a clip."""
    shape = (200, 300, 3) if layout == "HWC" else (3, 200, 300)
    step = RandomErasing(1, scale=(0.3, 0.33), ratio=(1, 1), value="random").fitted(
        Spec(shape, "float32", layout)  # type: ignore[arg-type]
    )
    drawn = step.draw(Random(1), 200, 300)
    assert drawn is not None
    image = np.full(shape, 99, np.float32)
    result = step.apply(image, drawn)
    noise = result[result != 99]
    assert noise.size == 3 * drawn[0][2] * drawn[0][3]
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 5 / math.sqrt(noise.size)
    np.testing.assert_array_equal(step.apply(image, drawn), result)
    other = step.draw(Random(2), 200, 300)
    assert other is not None
    assert other[1] != drawn[1]


# ---------------------------------------------------------------------------------------------- in the workers


def read(store: Any, transform: list[Any], **options: Any) -> dict[str, NDArray[Any]]:
    """All samples of an epoch, sorted."""
    options = {"batch_size": 20, "shuffle": True, "seed": 3, "workers": 0} | options
    batches = Reader(store).batches(transform=transform, **options)
    batches.set_epoch(0)
    found = [{name: np.array(value) for name, value in batch.items()} for batch in batches]
    order = np.argsort(np.concatenate([batch["index"] for batch in found]))
    return {name: np.concatenate([batch[name] for batch in found])[order] for name in found[0]}


def test_erasing_after_tochw_covers_the_whole_image(packed: Packed) -> None:
    """The same boxes before ToCHW and after it: also there, the draw knows height and width."""
    store = packed("memmap", "--size", "40x72")
    before = read(store, [RandomErasing(1), ToCHW()])["image"]
    after = read(store, [ToCHW(), RandomErasing(1)])["image"]
    np.testing.assert_array_equal(before, after)
    erased = (after == 0).all(axis=1)
    assert erased[:, :, 40:].any()
    assert erased.mean() > 0.05


class Scenes:
    """Images with a mask of another image's numbers, and a box."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> dict[str, Any]:
        mask = (np.arange(40 * 50).reshape(40, 50) % 251 + 1).astype(np.uint8)
        return {"image": np.repeat(mask[..., None], 3, axis=2), "mask": mask, "boxes": np.array([[3, 4, 20, 30, 1.0]])}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("scenes") / "store"
    rawpack_packer.pack(Scenes(), path, workers=0, fields={"boxes": "xyxy", "mask": "mask"})
    return path


def test_masks_are_moved_with_their_images_in_batches(scenes: Any) -> None:
    """Geometric operations move both, with the same random numbers; erasing leaves masks and boxes alone."""
    only_moved = [RandAugment(3, 20), Lambda(lambda image: image, field="image")]
    plain = read(scenes, [], fields=["image", "mask"])
    batch = read(scenes, only_moved, fields=["image", "mask"])
    changed = 0
    for image, mask, original in zip(batch["image"], batch["mask"], plain["mask"], strict=True):
        assert set(np.unique(mask)) <= {0, *np.unique(original)}
        empty = mask[..., 0] == 0
        changed += bool(empty.any())
        if (image[~empty] == mask[~empty]).all():
            assert (image[empty] == 0).all()
    assert changed > 4
    for one in Reader(scenes).batches(4, fields=["image", "mask", "boxes"], transform=[RandomErasing(1)], workers=0):
        assert (one["image"] == 0).any()
        np.testing.assert_array_equal(one["mask"], plain["mask"][one["index"]])
        np.testing.assert_array_equal(np.concatenate(one["boxes"]), [[3, 4, 20, 30, 1]] * 4)


def test_boxes_beside_randaugment_are_refused(scenes: Any) -> None:
    """At once, naming the step and the field."""
    with pytest.raises(UsageError, match=r"RandAugment\(.*boxes.*'boxes'.*fields="):
        Reader(scenes).batches(4, fields=["image", "boxes"], transform=[RandAugment()])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandAugment(-1), "num_ops"),
        (lambda: RandAugment(2, 31), "magnitude=31 must be a whole number between 0 and 30"),
        (lambda: RandAugment(2, 9.5), "magnitude=9.5 must be"),  # type: ignore[arg-type]
        (lambda: RandAugment(num_magnitude_bins=1), "num_magnitude_bins"),
        (lambda: RandAugment(interpolation="area"), "interpolation='area' must be one of 'nearest', 'bilinear', "),
        (lambda: RandAugment().makes(Spec((9, 9, 3), "float32", "HWC")), "needs uint8 images of 1 or 3 channels"),
        (lambda: RandAugment().makes(Spec((9, 9, 4), "uint8", "HWC")), "1 or 3 channels"),
        (lambda: RandAugment().makes(Spec((3, 9, 9), "uint8", "CHW")), "before ToCHW"),
        (lambda: RandAugment(fill=256).makes(Spec((9, 9, 3), "uint8", "HWC")), "fill=256 is not a value of uint8"),
        (lambda: RandAugment(fill=(1, 2)).makes(Spec((9, 9, 3), "uint8", "HWC")), "fill= has 2 values"),
        (lambda: RandomErasing(1.5), "p=1.5"),
        (lambda: RandomErasing(scale=(0.3, 0.02)), "scale="),
        (lambda: RandomErasing(scale=(0.3, 1.2)), "scale=(0.3, 1.2)"),
        (lambda: RandomErasing(ratio=(0, 1)), "ratio="),
        (lambda: RandomErasing(value="noise"), "value='noise'"),  # type: ignore[arg-type]
        (lambda: RandomErasing(value=0.5).makes(Spec((9, 9, 3), "uint8", "HWC")), "value=0.5 is not a value of uint8"),
        (lambda: RandomErasing(value="random").makes(Spec((9, 9, 3), "uint8", "HWC")), "after Normalize"),
        (lambda: RandomErasing(value=(1, 2)).makes(Spec((3, 9, 9), "uint8", "CHW")), "2 values for images of 3"),
        (lambda: RandomErasing().makes(Spec((9,), "uint8")), "needs images"),
    ],
)
def test_nonsense_is_refused_with_its_value(make: Any, words: str) -> None:
    """As soon as the step is made or fitted."""
    with pytest.raises(UsageError) as raised:
        make()
    assert words in str(raised.value)
