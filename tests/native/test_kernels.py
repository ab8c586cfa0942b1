"""The native core's crops, resizes, flips and tables: the values that their definition gives, on every path."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from resampled import Case, noise, odd_cases, planar_cases, recolored_cases, weights

from rawpack.native import state
from rawpack.native.calls import IMAGE, Resampling, resample, resample_one

pytestmark = pytest.mark.skipif(state().startswith("off"), reason=f"native core {state()}")

HASHES: dict[Callable[[int], Iterator[Case]], dict[int, str]] = {
    odd_cases: {750: "5e7c6f386bfdbb81157968e6f99a7c1b", 3000: "884a2c8b21bbdbd55af7dc5905a181da"},
    planar_cases: {750: "11bece7798e1e5cdab8090686728e710", 3000: "d65ee3075f99dd5ca2e371f00bdf3c06"},
    recolored_cases: {750: "dcafd9c9f5b058c15c3d66e895e4d678", 3000: "565d518de87015f5ec1946fc95a73109"},
}
"""By how many cases."""
BLOCK = noise(300_000)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any image of up to 60 pixels a side, in any layout, and anything that is made of it."""
    channels = draw(st.sampled_from([1, 3]))
    sides = draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
    size = [draw(st.integers(1, side)) for side in sides]
    corner = [draw(st.integers(0, side - part)) for side, part in zip(sides, size, strict=True)]
    scaled = [draw(st.one_of(st.just(part), st.integers(1, 70))) for part in size]
    at, out = [0, 0], scaled
    if draw(st.booleans()):
        at = [draw(st.integers(-70, 80)) for _ in scaled]
        out = [draw(st.integers(1, 50)) for _ in scaled]
    planes = channels == 3 and draw(st.booleans())
    stride = sides[1] if planes else sides[1] * channels + draw(st.sampled_from([0, 1, 50]))
    dtype = draw(st.sampled_from([None, np.uint8, np.float16, np.float32]))
    tables = None if dtype is None else BLOCK[: 256 * channels].reshape(channels, 256).astype(dtype)
    return Case(
        BLOCK[draw(st.integers(0, 5000)) :], stride, (*sides, channels), (*corner, *size), tuple(scaled), tuple(at),
        draw(st.integers(0, 3)), tuple(out), draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 255)),
        tables, planes=planes,
    )  # fmt: skip


@settings(max_examples=tries(240), deadline=None)
@given(cases())
def test_every_path_gives_the_values_of_the_definition(case: Case) -> None:
    """Vectors, plain C and a naive sum over the taps: the same bits, whatever shape, box, window, flip and layout."""
    expected = case.expected()
    for lanes in (True, False):
        made = case.made(lanes)
        assert made.dtype == expected.dtype
        assert np.array_equal(made, expected), f"lanes={lanes}"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("size", "scaled"), [(1500, 7), (1500, 50), (900, 3), (1, 300), (2, 1), (301, 300), (40, 20)])
def test_long_axes_of_many_bits(size: int, scaled: int, channels: int) -> None:
    """Weights have up to 22 bits: far shrunk axes too have the values of the definition, along either axis.

    Pixels are 127 and 128 in turn, so that the last bits of the weights decide.
    """
    for shape, to in (((size, 40), (scaled, 40)), ((40, size), (40, scaled))):
        pixels = (127 + np.add(*np.indices(shape)) % 2).astype(np.uint8).repeat(channels)
        for antialias in (True, False):
            case = Case(
                pixels, shape[1] * channels, (*shape, channels), (0, 0, *shape), to, (0, 0), 0, to, False, antialias, 0,
                None,
            )  # fmt: skip
            assert np.array_equal(case.made(True), case.expected())
            assert np.array_equal(case.made(False), case.expected())


def test_a_window_of_an_axis_enlarged_to_20000() -> None:
    """A far weight that is rounded up to all of its 2^14."""
    for shape, to, at, out in (((3, 1), (20000, 1), (16660, 0), (12, 1)), ((1, 3), (1, 20000), (0, 16660), (1, 12))):
        case = Case(noise(9), shape[1] * 3, (*shape, 3), (0, 0, *shape), to, at, 0, out, False, True, 0, None)
        taps = weights(3, 20000, True)[1][16666]
        assert taps == {1: 0, 2: 2**14}
        assert (case.made(True) == noise(9)[6:]).all(axis=-1).any()
        assert np.array_equal(case.made(True), case.made(False))


@pytest.mark.parametrize("cases", HASHES)
def test_the_bits_of_many_odd_cases(cases: Callable[[int], Iterator[Case]]) -> None:
    """The same on every machine, with every compiler, by vectors and by plain C, now and in later versions."""
    count, digests = tries(3000), {lanes: hashlib.sha256() for lanes in (True, False)}
    for case in cases(count):
        for lanes, digest in digests.items():
            digest.update(case.made(lanes).tobytes())
    assert {digest.hexdigest()[:32] for digest in digests.values()} == {HASHES[cases][count]}


def test_a_batch_is_its_images_one_by_one() -> None:
    """Tables of axes that are kept from image to image do not change what is made of the next, nor do threads."""
    pixels = noise(8 * 90 * 80 * 3)
    images = np.zeros(96, IMAGE)
    for i, image in enumerate(images):
        image["pixels"] = pixels.ctypes.data + i % 8 * 90 * 80 * 3
        image["end"], image["stride"] = pixels.ctypes.data + pixels.nbytes, 80 * 3
        image["height"], image["width"] = 90, 80
        image["box"] = [(0, 0, 64, 48), (5, 9, 64, 70), (0, 0, 48, 48), (1, 1, 20, 30), (9, 0, 48, 64)][i // 4 % 5]
        image["scaled"] = [(48, 48), (48, 48), (48, 60)][i // 8 % 3]
        image["at"], image["flips"] = [(0, 0), (3, -7)][i % 2], i // 2 % 4
    alone = np.empty((96, 48, 48, 3), np.uint8)
    for i in range(96):
        resample(images[i : i + 1], alone[i : i + 1])
    results = [np.zeros_like(alone) for _ in range(4)]
    threads = [threading.Thread(target=resample, args=(images, out)) for out in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(out, alone) for out in results)
    resample(images[:0], alone[:0])  # an empty batch


@pytest.mark.parametrize("channels", [1, 3])
def test_images_made_one_by_one_are_those_made_at_once(channels: int) -> None:
    """Of views and of arrays with any strides of axes of one value; what has gaps within a row is refused."""
    whole = noise(90 * 80 * channels).reshape(90, 80, channels)
    parts = [whole, whole[5:40, 7:50], whole[3:4], whole[3:4, 9:10], np.ascontiguousarray(whole[:, 4:5])]
    if channels == 1:
        parts.append(np.ascontiguousarray(whole[..., 0])[..., None])
    images, out = np.zeros(len(parts), IMAGE), np.zeros((len(parts), 31, 23, channels), np.uint8)
    images["scaled"], images["flips"] = (31, 23), 3
    resampling = Resampling(images, out)
    for i, part in enumerate(parts):
        resampling.make_of(i, part)
        made = np.zeros((31, 23, channels), np.uint8)
        assert resample_one(np.ascontiguousarray(part.copy()), (31, 23), (0, 0, 31, 23), made)
        np.testing.assert_array_equal(out[i], made[::-1, ::-1])
    for number, part in ((len(parts), whole), (-1, whole), (0, whole[:, ::2]), (0, whole[..., :1][..., [0, 0]])):
        with pytest.raises(ValueError, match=r"There is no image|one after another|pixels must be bytes"):
            resampling.make_of(number, part)
