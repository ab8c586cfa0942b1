"""Images whose values do not fill their dtype: packing notes the range, and steps that scale ask what becomes 1."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

import rawpack
from rawpack import Reader
from rawpack.disk.manifest import seal, unseal
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.store.stores import Stores
from rawpack.transforms import ConvertImageDtype, Normalize, RandomHorizontalFlip, ToCHW, Views
from rawpack.transforms.step import Spec
from rawpack.transforms.values import ByTable

Images = NDArray[Any]
WIDE = ["int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
WAYS: list[dict[str, Any]] = [{}, {"compression": "zstd"}, {"format": "hdf5", "compression": "gzip"}]
STEPS: list[Callable[..., ConvertImageDtype | Normalize]] = [
    ConvertImageDtype,
    lambda **scale: Normalize((0.5,), (0.25,), **scale),
]


def images(dtype: str, greatest: float, least: float = 0) -> Images:
    """Images (6, 5, 4, 3) of one value each, from `least` to `greatest`, in no order."""
    middle = (least + greatest) // 2
    values = np.array([greatest, *[middle] * 4, least]).astype(dtype)
    return np.broadcast_to(values[:, None, None, None], (6, 5, 4, 3)).copy()


def tree(store: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((store / "store.json").read_text())
    return made


def change(store: Path, **changed: Any) -> None:
    """Change entries of a manifest; None removes one."""
    text, _ = unseal((store / "store.json").read_bytes(), "it")
    left = {name: value for name, value in (json.loads(text) | changed).items() if changed.get(name, ...) is not None}
    (store / "store.json").write_bytes(seal(json.dumps(left, indent=1).encode()))


def made(store: Path, *steps: Any) -> Images:
    """All images, as the steps make them."""
    reader = Reader(store)
    return next(iter(reader.batches(len(reader), workers=0, transform=steps)))["image"].copy()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("dtype", "options"), list(zip(WIDE, [*WAYS] * 3, strict=True)), ids=str)
def test_the_range_is_noted(dtype: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Exactly, of all finite values of all parts, however they are stored."""
    noise = np.random.default_rng(1)
    if dtype[0] == "f":
        data = noise.normal(size=(9, 5, 4, 3)).astype(dtype)
        data[0, 0, 0], data[1] = (np.nan, np.inf, -np.inf), np.nan
    else:
        data = noise.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (9, 5, 4, 3), dtype, endpoint=True)
    rawpack.pack(data, tmp_path / "s", workers=0, shard_size="4K", **options)
    finite = [value for value in data.reshape(-1).tolist() if math.isfinite(value)]
    about = tree(tmp_path / "s")
    assert (about["features"], about["ranges"]) == (["value-ranges"], {"image": [min(finite), max(finite)]})


def test_of_all_images_that_can_have_one_and_of_no_other_field(tmp_path: Path) -> None:
    """Also where they are stored as PNG. A store without such images names no feature and no range."""
    sample = {
        "image": np.zeros((4, 4, 3), np.uint8),
        "depth": np.full((4, 4, 1), 700, np.uint16),
        "mask": np.full((4, 4, 1), 9, np.uint16),
        "n": np.arange(3),
    }
    kinds = {"depth": "image", "mask": "mask"}
    rawpack.pack([sample], tmp_path / "s", format="lmdb", size="keep", fields=kinds, workers=0)
    assert tree(tmp_path / "s")["features"] == ["several-images", "value-ranges"]
    assert tree(tmp_path / "s")["ranges"] == {"depth": [700, 700]}
    rawpack.pack(np.full((2, 3, 3), np.nan), tmp_path / "empty", workers=0)
    assert not {"features", "ranges"} & set(tree(tmp_path / "empty"))


def test_stores_made_of_stores_have_the_range_of_their_samples(tmp_path: Path) -> None:
    """Append, merge and subset. What older samples have is not made up."""
    low, high = ({"image": images("uint16", *ends), "n": np.arange(6)} for ends in ((300, 200), (5000, 1000)))
    for name, data in (("low", low), ("high", high)):
        rawpack.pack(data, tmp_path / name, workers=0)
    rawpack.merge([tmp_path / "low", tmp_path / "high"], tmp_path / "both", prefix="names", workers=0)
    rawpack.subset(tmp_path / "both", tmp_path / "some", rows=range(6, 12), workers=0)
    rawpack.append(high, tmp_path / "low", workers=0)
    ranges = {name: tree(tmp_path / name)["ranges"]["image"] for name in ("low", "both", "some")}
    assert ranges == {"low": [200, 5000], "both": [200, 5000], "some": [1000, 5000]}
    change(tmp_path / "high", features=None, ranges=None)
    rawpack.append(high, tmp_path / "high", workers=0)
    assert not {"features", "ranges"} & set(tree(tmp_path / "high"))


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float16", "float64"])
def test_where_it_is_not_clear_what_becomes_1_it_is_asked(dtype: str, tmp_path: Path) -> None:
    """Whole numbers below half of the greatest of their dtype, and floats above 2. The error has the next 2^n - 1, and
    never the value that was seen. With it, or any other number, values are divided by that."""
    floats = dtype[0] == "f"
    half = 2 if floats else np.iinfo(dtype).max // 2
    cases = {256: 511, 4010: 4095, **({1000.5: 1023} if floats else {half: half, 1: 1})}
    for greatest, cure in cases.items():
        data, store = images(dtype, greatest), tmp_path / str(cure)
        rawpack.pack(data, store, workers=0)
        for step in STEPS:
            for steps in ([RandomHorizontalFlip(0), step()], [ToCHW(), step()], [Views(2, [step()])]):
                with pytest.raises(UsageError, match=rf"such as scale={cure}\b.*train and val") as refused:
                    made(store, *steps)
                assert greatest == cure or f"{greatest}" not in str(refused.value)
            for scale in (cure, 100.5):
                expected = data.astype(np.float64) / scale
                expected = expected if step is ConvertImageDtype else (expected - 0.5) / 0.25
                np.testing.assert_allclose(made(store, step(scale=scale)), expected, rtol=1e-6, atol=1e-6)
    made(store, lambda image: image, ConvertImageDtype())
    fills = images(dtype, half if floats else half + 1)
    rawpack.pack(fills, tmp_path / "fills", workers=0)
    assert all(len(made(tmp_path / "fills", step())) == len(fills) for step in STEPS)


def test_stores_without_ranges_are_asked_by_64_samples(tmp_path: Path) -> None:
    """Spread over the whole store. Where the range is noted, no sample is read."""
    store = tmp_path / "s"
    rawpack.pack(
        np.arange(500).astype(np.uint16)[:, None, None, None] + np.zeros((5, 4, 3), np.uint16), store, workers=0
    )
    with mock.patch.object(Stores, "value", autospec=True, side_effect=Stores.value) as read:
        for rows in (set[int](), {0, 499}):
            with pytest.raises(UsageError, match="scale=511"):
                made(store, ConvertImageDtype())
            asked = {call.args[2] for call in read.call_args_list}
            assert (len(asked), {*sorted(asked)[:1], *sorted(asked)[-1:]}) == (64 if rows else 0, rows)
            change(store, features=None, ranges=None)


def test_a_range_that_is_none_is_damage(tmp_path: Path) -> None:
    """It is of an image that can have one, finite, from least to greatest, and comes with its feature."""
    store = tmp_path / "s"
    rawpack.pack(images("float32", 1), store, workers=0)
    sound = (store / "store.json").read_bytes()
    pairs: list[Any] = [[1, 0], [0], [0, "1"], [0, 10**400], [float("nan"), 1]]
    ranges: list[Any] = [{"key": [0, 1]}, {"other": [0, 1]}, {}, None, *({"image": pair} for pair in pairs)]
    for changed in ({"features": None}, *({"ranges": one} for one in ranges)):
        (store / "store.json").write_bytes(sound)
        change(store, **changed)
        with pytest.raises(DamagedStoreError):
            Reader(store)


@pytest.mark.parametrize(("dtype", "scale"), [("float16", 255), ("float32", 100), ("float32", 1), ("float64", 510.0)])
def test_bytes_are_divided_by_it_too(dtype: str, scale: float, tmp_path: Path) -> None:
    """As a table, and as the arithmetic of a device."""
    data = np.arange(240, dtype=np.uint8).reshape(4, 5, 4, 3)
    rawpack.pack(data, tmp_path / "s", size="keep", workers=0)
    steps = [ConvertImageDtype(dtype, scale=scale), Normalize((0.5,), (0.25,), dtype)]
    loose = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(made(tmp_path / "s", *steps), (data / scale - 0.5) / 0.25, rtol=loose, atol=loose)
    shown = made(tmp_path / "s", Normalize((0.5,), (0.25,), dtype, scale=scale), ToCHW())
    np.testing.assert_allclose(shown.transpose(0, 2, 3, 1), (data / scale - 0.5) / 0.25, rtol=loose, atol=loose)
    before = Spec((5, 4, 3), "uint8", "HWC")
    tail = ByTable(steps, before, steps[1].makes(steps[0].makes(before))).tail()
    assert tail is not None
    assert tail.scale == pytest.approx([4 / scale] * 3)
    assert tail.shift == pytest.approx([-2] * 3)


def test_a_scale_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """No number above 0; one that no value of the dtype comes near; and a mean of values that were not divided."""
    with pytest.raises(UsageError, match=r"scale=0 must be a number above 0"):
        ConvertImageDtype(scale=0)
    for dtype in ("uint8", "int32"):
        rawpack.pack(images(dtype, 255), tmp_path / dtype, workers=0)
    for dtype, step, words in (
        ("uint8", ConvertImageDtype(scale=4095), r"uint8 has no such values: .*fields="),
        ("int32", Normalize((123.675,), (58.395,), scale=255), r"divided by 255 first.*divide by 255, mean="),
        ("int32", Normalize((2000,), (0.2,), scale=4095), r"divide by 4095, mean=\(0.4884,\)"),
    ):
        with pytest.raises(UsageError, match=words):
            made(tmp_path / dtype, step)
    assert made(tmp_path / "int32", Normalize((123.675,), (58.395,), scale=1)).std() > 1
