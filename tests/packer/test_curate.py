"""`--curate`: the measures against plain definitions of them, and what is found by them in sets with planted faults."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections import Counter
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import running
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import rawpack
from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.inspect.curation import NEAR, curation_of, near_pairs
from rawpack_packer.samples.curation import measures_of

_NAMES = ("phash", "sharpness", "brightness", "entropy", "one_color")


def photo_like(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    """Large shapes, as photographs have, and fine grain."""
    random = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for size, strength in ((4, 90), (9, 45), (24, 20), (80, 8)):
        noise = random.normal(size=(size, size, 3)).astype(np.float32) * strength
        image += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    image += random.normal(size=image.shape) * 6
    return np.clip(image + 120, 0, 255).astype(np.uint8)


def _by_definition(image: NDArray[np.uint8]) -> dict[str, int]:
    # The weights of BT.601, in 2 ** 15ths, as OpenCV documents and rounds them.
    weights = np.array([9798, 19235, 3735]) if image.shape[2] == 3 else np.array([1 << 15])
    gray = (image.astype(int) @ weights + (1 << 14)) >> 15
    flat = gray.ravel().tolist()
    entropy = -sum(count / len(flat) * math.log2(count / len(flat)) for count in Counter(flat).values())
    # OpenCV mirrors pixels at the border, without repeating the last one.
    around = np.pad(gray, 1, "reflect")
    edges = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:] - 4 * gray
    mean = Fraction(int(edges.sum()), len(flat))
    run = max(len(list(group)) for _, group in itertools.groupby(flat))
    return {
        "sharpness": math.floor(sum((edge - mean) ** 2 for edge in edges.ravel().tolist()) / len(flat)),
        "brightness": sum(flat) // len(flat),
        "entropy": round(entropy * 1000),
        "one_color": 0 if run * 100 < len(flat) and len(flat) >= 800 else run * 1000 // len(flat),
    }


_images = st.tuples(st.integers(2, 40), st.integers(2, 40), st.sampled_from([1, 3])).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape, elements=st.sampled_from([0, 1, 7, 128, 255]), fill=st.just(9))
)


@given(image=_images)
@example(image=np.array([[[0], [9]], [[9], [9]]], np.uint8))  # its squares add up to 1944, which is no square itself
@settings(max_examples=80, deadline=None)
def test_measures_are_what_they_are_called(image: NDArray[np.uint8]) -> None:
    found = {name: int(value) for name, value in measures_of(image).items()}
    expected = _by_definition(image)
    assert abs(found.pop("entropy") - expected.pop("entropy")) <= 2
    found.pop("phash")
    assert found == expected


def test_odd_images_have_measures() -> None:
    """Those of one color, however small or narrow."""
    for shape in ((1, 1, 3), (1, 500, 1), (33, 1, 3), (31, 31, 1), (3000, 5, 1)):
        for value in (0, 255):
            found = {name: int(one) for name, one in measures_of(np.full(shape, value, np.uint8)).items()}
            assert found == {"phash": 0, "sharpness": 0, "brightness": value, "entropy": 0, "one_color": 1000}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40, unique=True), st.data())
@settings(max_examples=60, deadline=None)
def test_near_pairs_are_all_of_them(hashes: list[int], data: st.DataObject) -> None:
    for _ in range(8):
        value = data.draw(st.sampled_from(hashes))
        for bit in data.draw(st.lists(st.integers(0, 63), max_size=6)):
            value ^= 1 << bit
        hashes = list(dict.fromkeys([*hashes, value]))
    expected = {
        (i, j) for i, j in itertools.combinations(range(len(hashes)), 2) if (hashes[i] ^ hashes[j]).bit_count() <= NEAR
    }
    assert set(near_pairs(np.array(hashes, np.uint64))) == expected


def _write(path: Path, image: NDArray[np.uint8], quality: int = 95) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, quality])


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and val/ with near duplicates, a leak, and a dark, a blurred and a blank image."""
    folder = tmp_path_factory.mktemp("planted")
    for i in range(14):
        image = photo_like(i, 300, 260)
        _write(folder / f"train/a/{i:02}.jpg", image)
        if i in (3, 5):
            _write(folder / f"train/b/copy-{i}.jpg", cv2.resize(image, (200, 230), interpolation=cv2.INTER_AREA), 75)
        if i == 7:
            _write(folder / "val/a/leak.jpg", image, 70)
    _write(folder / "val/b/other.jpg", photo_like(50, 300, 260))
    _write(folder / "train/b/dark.jpg", photo_like(60, 300, 260) // 12)
    _write(folder / "train/b/blurred.jpg", cv2.GaussianBlur(photo_like(61, 300, 260), (0, 0), 9))
    blank = np.full((300, 260, 3), 180, np.uint8)
    _write(folder / "train/b/blank.jpg", blank)
    return folder


@pytest.fixture(scope="module")
def stores(planted: Path) -> Path:
    return running.pack(planted, planted.parent / "planted-store", "--curate", "--size", 128, "--splits", "train,val")


def test_what_was_planted_is_found(stores: Path) -> None:
    reader = Reader(stores / "train")
    keys = reader.column("key")
    found = curation_of(reader)
    assert found is not None
    groups = [[keys[row] for row in group] for group in found.groups]
    assert groups == [["a/03.jpg", "b/copy-3.jpg"], ["a/05.jpg", "b/copy-5.jpg"]]
    assert [(keys[leak.row], leak.split) for leak in found.leaks] == [("a/07.jpg", "val")]
    assert Reader(stores / "val").column("key")[found.leaks[0].other] == "a/leak.jpg"
    first = {one.title: [keys[row] for row in one.rows[:3]] for one in found.extremes}
    assert first["Darkest"][0] == "b/dark.jpg"
    assert first["Least detail"][0] == first["Largest area of one color"][0] == "b/blank.jpg"
    assert "b/blurred.jpg" in first["Blurriest"]


def test_the_commands_leave_out_what_is_shown_and_no_more(
    stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are typed; where all images have the same value, none is shown."""
    monkeypatch.chdir(tmp_path)
    reader = Reader(stores / "train")
    found, keys = curation_of(reader), reader.column("key")
    assert found is not None
    for command, gone in (
        (found.without_duplicates, {"b/copy-3.jpg", "b/copy-5.jpg"}),
        (found.without_leaks, {"a/07.jpg"}),
        (found.extremes[0].command, {keys[row] for row in found.extremes[0].rows}),
    ):
        words = shlex.split(command)[1:]
        assert running.run_here(*words, "--quiet", "--workers", 0).code == 0
        assert set(keys) - set(Reader(words[2]).column("key")) == gone
    for one in found.extremes:
        assert len(reader.select(where=shlex.split(one.command)[-1])) == len(reader) - len(one.rows), one.title
    for i in range(20):
        _write(tmp_path / f"same/a/{i:02}.jpg", np.full((64, 64, 3), 90, np.uint8))
    none = curation_of(Reader(running.pack(tmp_path / "same", tmp_path / "store", "--curate", "--size", 64)))
    assert none is not None
    assert (none.extremes, [len(group) for group in none.groups]) == ([], [20])


@pytest.mark.parametrize(
    "options",
    [
        ["-f", "memmap", "--size", 96], ["-f", "hdf5", "--compression", "gzip", "--size", 96],
        ["-f", "lmdb", "--size", "keep", "--quality", "keep"],
    ],
)  # fmt: skip
def test_every_format_measures_what_it_stores(planted: Path, tmp_path: Path, options: list[object]) -> None:
    """In what is appended too."""
    store = running.pack(planted / "val", tmp_path / "store", "--curate", *options)
    assert running.run_here("append", "--workers", 0, planted / "train", store).code == 0
    reader = Reader(store, verify=True)
    assert [name for name in reader.fields if name in _NAMES] == list(_NAMES)
    assert json.loads((store / "store.json").read_text())["recipe"]["curate"] is True
    for sample in reader if "lmdb" not in options else ():
        measured = {name: int(value) for name, value in measures_of(sample["image"]).items()}
        assert {name: int(sample[name]) for name in _NAMES} == measured


def test_where_it_makes_no_sense(tmp_path: Path) -> None:
    np.save(tmp_path / "deep.npy", np.zeros((4, 8, 8, 3), np.float32))
    with pytest.raises(UsageError, match="curate=True measures pictures"):
        rawpack.pack(tmp_path / "deep.npy", tmp_path / "store", curate=True)
    images = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(UsageError, match="adds a field 'entropy'"):
        rawpack.pack({"image": images, "entropy": np.arange(4)}, tmp_path / "store", curate=True, workers=0)
    assert not (tmp_path / "store").exists()
