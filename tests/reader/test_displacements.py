"""Flow and disparity: values that are distances in pixels follow a resize and a flip, while packing and while reading.

All vectors of the flow here point to one place. Whatever moves the pixels, they must still do so afterwards: then their
length and direction fit their new places. The pictures of the stereo pair are of one scene, so that a pixel of the one
is found in the other where the disparity says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rawpack
from rawpack import PackError, Reader, UsageError, WorkerError
from rawpack import transforms as t

COUNT, HEIGHT, WIDTH = 12, 48, 64
GOAL = np.array([37.25, 19.5])
"""x and y."""
random = np.random.default_rng(0)
PICTURES = random.integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), np.uint8)


def places(height: int, width: int) -> NDArray[Any]:
    """(height, width, 2): x and y of the center of each pixel."""
    return np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), axis=-1)


FLOW = np.broadcast_to(GOAL - places(HEIGHT, WIDTH), (COUNT, HEIGHT, WIDTH, 2)).astype(np.float32)


def check_goal(flow: NDArray[Any], tolerance: float = 1e-3) -> None:
    """All vectors of each flow (n, H, W, 2) point to one place, up to so many pixels."""
    goals = flow.astype(np.float64) + places(*flow.shape[1:3])
    assert np.ptp(goals, axis=(1, 2)).max() <= tolerance


def packed(root: Path, word: str = "flow", flow: NDArray[Any] = FLOW, **options: Any) -> Reader:
    """A store of pictures with a flow."""
    rawpack.pack({"image": PICTURES, "flow": flow}, root, fields={"flow": word}, workers=0, **options)
    return Reader(root)


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> list[Reader]:
    """Pictures with a flow, in either dtype."""
    folder = tmp_path_factory.mktemp("flows")
    return [packed(folder / dtype, flow=FLOW.astype(dtype)) for dtype in ("float32", "float64")]


class Mirror(t.Step):
    """A flip as users write it."""

    any_size = True

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        return image[:, ::-1].copy()

    apply_mask = apply

    def move(self, drawn: Any, height: int, width: int) -> t.Move:
        return t.Move(scale_x=-1.0, shift_x=float(width))


STEPS: list[tuple[Sequence[t.Step], float]] = [
    ([t.RandomHorizontalFlip()], 0),
    ([Mirror(), t.RandomHorizontalFlip(), t.RandomVerticalFlip(1.0)], 0),
    ([t.RandomCrop((20, 31)), t.RandomHorizontalFlip()], 0),
    ([t.Resize((24, 16))], 1),
    ([t.Resize(96)], 3),
    ([t.Fit((20, 44))], 1),
    ([t.RandomResizedCrop(24), t.RandomHorizontalFlip(), t.RandomVerticalFlip()], 9),
]
"""Steps, and how far a vector may miss: resized, it is that of the nearest pixel."""


@pytest.mark.parametrize(("steps", "miss"), STEPS, ids=lambda one: repr(one)[:40])
def test_a_flow_points_to_the_same_place_after_any_step(
    steps: Sequence[t.Step], miss: float, flows: list[Reader]
) -> None:
    """In either dtype, and in views."""
    for reader in flows:
        (batch,) = reader.batches(COUNT, transform=steps, workers=0, seed=5)
        assert batch["flow"].dtype == reader.fields["flow"].dtype
        check_goal(batch["flow"], miss + 1e-3)
    (viewed,) = reader.batches(COUNT, transform=[t.Views(2, steps)], workers=0)
    for view in range(2):
        check_goal(viewed["flow"][:, view], miss + 1e-3)


@pytest.mark.parametrize(
    "options",
    [{"size": (36, 100)}, {"size": 24, "fit": "whole"}, {"size": {"image": (24, 32), "flow": (12, 16)}},
     {"crop": (8, 4, 40, 20)}],
    ids=str,
)  # fmt: skip
def test_packing_scales_the_values_too(options: dict[str, Any], tmp_path: Path) -> None:
    """Also where channels come first, as torch has them."""
    reader = packed(tmp_path / "store", **options)
    assert reader.fields["flow"].shape != FLOW.shape[1:]
    check_goal(np.stack([one["flow"] for one in reader]), 3)
    first = {"image": np.moveaxis(PICTURES, -1, 1), "flow": np.moveaxis(FLOW, -1, 1)}
    rawpack.pack(first, tmp_path / "s", fields={"flow": "flow"}, image="chw", workers=0, **options)
    check_goal(np.stack([one["flow"] for one in Reader(tmp_path / "s")]), 3)


def test_missing_vectors_stay_missing(tmp_path: Path) -> None:
    flow = FLOW.copy()
    flow[:, 3, 5] = np.nan
    (batch,) = packed(tmp_path / "store", flow=flow).batches(COUNT, transform=[t.RandomHorizontalFlip(1.0)], workers=0)
    assert np.isnan(batch["flow"]).sum() == np.isnan(batch["flow"][:, 3, WIDTH - 6]).sum() == 2 * COUNT


def test_the_word_is_kept_in_stores_of_stores(tmp_path: Path) -> None:
    """With a feature, by which older readers refuse the store; stores without the word are no part of one."""
    packed(tmp_path / "store", format="hdf5")
    features = json.loads((tmp_path / "store" / "store.json").read_text())["features"]
    assert features == ["several-images", "value-ranges", "displacements"]
    rawpack.convert(tmp_path / "store", tmp_path / "small", size=(24, 32), workers=0)
    small = Reader(tmp_path / "small")
    assert small.fields["flow"].displacement == "flow"
    check_goal(np.stack([one["flow"] for one in small]), 2)
    packed(tmp_path / "plain", "image")
    assert "displacements" not in (tmp_path / "plain" / "store.json").read_text()
    with pytest.raises(UsageError, match="flow"):
        Reader([tmp_path / "store", tmp_path / "plain"])


def scene(root: Path, **fields: str) -> Reader:
    """A stereo pair: pixel x of the left picture is pixel x - disparity of the right one, row by row."""
    shifts = random.integers(1, 9, (COUNT, HEIGHT))
    wide = random.integers(0, 256, (COUNT, HEIGHT, WIDTH + 20, 3), np.uint8)
    right = np.stack([[row[shift : shift + WIDTH] for row, shift in zip(*one, strict=True)]
                      for one in zip(wide, shifts, strict=True)])  # fmt: skip
    distances = np.repeat(shifts[:, :, None], WIDTH, 2).astype(np.float32)
    # Those of the right picture are marked by a fraction.
    columns = {"image": wide[:, :, :WIDTH], "right": right, "near": distances, "of_right": distances + 0.25}
    words = {"right": "image", "near": "disparity", "of_right": "disparity"} | fields
    rawpack.pack({name: columns[name] for name in ("image", *words)}, root, fields=words, workers=0)
    return Reader(root)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return scene(tmp_path_factory.mktemp("pair") / "store")


def test_a_mirrored_pair_changes_places(pair: Reader) -> None:
    """Each pixel of the left picture is in the right one where its disparity says, flipped or not, once or twice."""
    flipped = 0
    steps = [t.RandomHorizontalFlip(), t.RandomCrop((32, 40)), t.RandomHorizontalFlip(0.2)]
    for batch in pair.batches(5, transform=steps, workers=0, shuffle=True):
        for left, right, near in zip(batch["image"], batch["right"], batch["near"][..., 0], strict=True):
            flipped += bool((near % 1).all())
            for row, other, distance in zip(left, right, near[:, 0].astype(int), strict=True):
                np.testing.assert_array_equal(row[distance:], other[: len(other) - distance])
    assert 0 < flipped < COUNT


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ([t.RandomHorizontalFlip()], {"fields": ["image", "near"]}),
        ([t.RandomHorizontalFlip()], {"fields": ["near"]}),
        ([t.Views(2, [t.RandomHorizontalFlip()])], {}),
        ([t.RandomHorizontalFlip(), t.RandomCrop(20, fields=["image"])], {}),
        ([t.RandomHorizontalFlip(fields=["image", "near"])], {}),
    ],
)
def test_without_the_pair_a_disparity_is_not_mirrored(
    steps: Sequence[t.Step], options: dict[str, Any], pair: Reader
) -> None:
    with pytest.raises(UsageError, match=r"mirrors 'near'.* the two pictures must change places"):
        pair.batches(4, transform=steps, workers=0, **options)
    assert len(pair.batches(4, transform=[t.RandomVerticalFlip(), t.RandomHorizontalFlip(0)], workers=0, **options))
    with pytest.raises((UsageError, WorkerError), match="must change places"):
        next(iter(pair.batches(4, transform=[Mirror()], workers=0, **options)))


def test_what_values_cannot_follow_is_refused(tmp_path: Path) -> None:
    """A third image, which would be of the other picture, beside a pair; a step that does not say where pixels go; and
    what is no displacement."""
    with pytest.raises(UsageError, match="no other images, masks or boxes"):
        scene(tmp_path / "pair", of_right="image").batches(4, transform=[t.RandomHorizontalFlip()], workers=0)
    silent = type("Silent", (Mirror,), {"move": t.Step.move})()
    with pytest.raises(UsageError, match=r"does not say where to, so the values of 'flow' cannot follow"):
        packed(tmp_path / "store").batches(4, transform=[silent], workers=0)
    with pytest.raises(UsageError, match=r"a flow is floats \(height, width, 2\)"):
        packed(tmp_path / "flat", "flow", FLOW[..., 0])
    with pytest.raises(UsageError, match=r"a disparity is numbers \(height, width\)"):
        packed(tmp_path / "two", "disparity", FLOW)


def test_a_disparity_of_whole_numbers_is_rounded_and_never_overflows(tmp_path: Path) -> None:
    """As 16-bit PNGs have it, in parts of a pixel."""
    values = np.broadcast_to(np.uint16([5, 60_000]).repeat(WIDTH // 2), (COUNT, HEIGHT, WIDTH)).copy()
    reader = packed(tmp_path / "store", "disparity", values)
    assert reader.fields["flow"].shape == (HEIGHT, WIDTH, 1)
    (batch,) = reader.batches(COUNT, transform=[t.Resize((HEIGHT, WIDTH // 2))], workers=0)
    assert sorted({*batch["flow"].flat}) == [2, 30_000]
    (tall,) = reader.batches(COUNT, transform=[t.Resize((2 * HEIGHT, WIDTH))], workers=0)
    assert sorted({*tall["flow"].flat}) == [5, 60_000]
    with pytest.raises(WorkerError, match="enlarged 2 times, a disparity does not fit uint16: pack floats"):
        next(iter(reader.batches(COUNT, transform=[t.Resize((HEIGHT, 2 * WIDTH))], workers=0)))
    with pytest.raises(PackError, match="enlarged 2 times, a disparity does not fit uint16"):
        packed(tmp_path / "wide", "disparity", values, size=(2 * HEIGHT, 2 * WIDTH))


def test_an_undeclared_flow_is_spoken_of(tmp_path: Path) -> None:
    """Under a flip or a resize, while packing and while reading; not under a crop, nor for one channel."""
    reader = packed(tmp_path / "store", "image")
    for step in (t.RandomHorizontalFlip(), t.Resize((20, 20)), t.RandomResizedCrop(20)):
        with pytest.warns(RuntimeWarning, match=r"fields=\{'flow': 'flow'\}"):
            reader.batches(4, transform=[step], workers=0)
    for word, spoken in (("image", True), ("flow", False)):
        columns = {"image": PICTURES, "flow": FLOW}
        report = rawpack.pack(columns, tmp_path / word, fields={"flow": word}, size=24, workers=0)
        assert ("'flow', float32 with two channels, looks like a flow" in str(report)) == spoken
    reader.batches(4, transform=[t.RandomCrop(20)], workers=0)
    reader.batches(4, transform=[t.Resize((20, 20), fields=["image"])], workers=0, fields=["image"])
    depth = packed(tmp_path / "depth", "image", FLOW[..., :1], size=24)
    depth.batches(4, transform=[t.RandomHorizontalFlip()], workers=0)
