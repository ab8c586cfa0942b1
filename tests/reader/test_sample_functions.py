"""A function of a whole sample: what it gets and may return, what it draws, and how it stands among other steps.

Objects are rectangles of one color each on a black image, so that pixels say where boxes, points and outlines must be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rawpack_packer
from rawpack import Buckets, Reader, UsageError, WorkerError, Workers
from rawpack.transforms import (
    CenterCrop,
    Lambda,
    MixUp,
    Normalize,
    OneHot,
    OneText,
    RandomHorizontalFlip,
    SampleLambda,
    ToCHW,
    Views,
)
from rawpack_packer.sources.fields import FieldKind

COUNT = 11
KINDS: dict[str, Any] = {
    "boxes": "xyxy",
    "number": FieldKind("int64", (None,), follows="rows"),
    "polygons": FieldKind("float32", (None, 4), follows="polygons"),
    "keypoints": FieldKind("float32", (None, 2, 3), follows="keypoints", mirror=(1, 0)),
    "mask": "mask",
    "caption": "text",
}
FIELDS = ["image", "label", *KINDS]
WAYS = [0, 2, Workers(2, backend="thread")]
SIZES = ((40, 48), (32, 64), (56, 30))


def rectangles(i: int) -> list[tuple[int, int, int, int]]:
    """Left, top, right and bottom of the objects of a sample: none in every fourth."""
    return [(2 + k, 3 + 9 * k, 12 + i + k, 9 + 9 * k) for k in range(i % 4)]


class Objects:
    """Samples with everything that moves: in one size, or in three."""

    def __init__(self, sizes: int = 1) -> None:
        self.sizes = SIZES[:sizes]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> dict[str, Any]:
        image = np.zeros((*self.sizes[i % len(self.sizes)], 3), np.uint8)
        for k, (left, top, right, bottom) in enumerate(rectangles(i)):
            image[top:bottom, left:right] = 80 + 60 * k
        outlines = [
            [(x, y, k, 0) for x, y in ((le, t), (r, t), (r, b), (le, b))]
            for k, (le, t, r, b) in enumerate(rectangles(i))
        ]
        ends = [((left, top, 2), (right, bottom, 1)) for left, top, right, bottom in rectangles(i)]
        return {
            "image": image,
            "mask": image[..., :1].copy(),
            "label": i % 3,
            "caption": f"sample {i}",
            "boxes": np.array([[*box, k] for k, box in enumerate(rectangles(i))], np.float32).reshape(-1, 5),
            "number": np.arange(i % 4) + 10 * i,
            "polygons": np.array(outlines, np.float32).reshape(-1, 4),
            "keypoints": np.array(ends, np.float32).reshape(-1, 2, 3),
        }  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    path = tmp_path_factory.mktemp("objects") / "s"
    rawpack_packer.pack(Objects(), path, fields=KINDS, format="memmap", workers=0)
    return Reader(path)


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Images in three sizes, as they are."""
    path = tmp_path_factory.mktemp("sizes") / "s"
    rawpack_packer.pack(Objects(3), path, fields=KINDS, format="memmap", size="keep", workers=0)
    return Reader(path)


def read(reader: Reader, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The samples of an epoch, one by one."""
    options = {"workers": 0, "fields": FIELDS, "batch_size": 4, **options}
    batches = list(reader.batches(transform=list(steps), **options))
    return [{name: batch[name][i] for name in batch} for batch in batches for i in range(len(batch["index"]))]


def check_alike(samples: list[dict[str, Any]], others: list[dict[str, Any]], names: list[str] = FIELDS) -> None:
    for sample, other in zip(samples, others, strict=True):
        for name in names:
            if isinstance(sample[name], str):
                assert sample[name] == other[name]
            else:
                np.testing.assert_allclose(sample[name], other[name], atol=1e-3, err_msg=name)


def flip(sample: dict[str, Any]) -> None:
    """Left and right of everything, by hand and in place."""
    width = sample["image"].shape[1]
    for name in ("image", "mask"):
        sample[name][:] = sample[name][:, ::-1].copy()
    sample["boxes"][:, [0, 2]] = width - sample["boxes"][:, [2, 0]]
    sample["polygons"][:, 0] = width - sample["polygons"][:, 0]
    sample["keypoints"] = sample["keypoints"][:, ::-1].copy()
    sample["keypoints"][..., 0] = width - sample["keypoints"][..., 0]


# ---------------------------------------------------------------------------------------------- what it gets


@pytest.mark.parametrize("workers", WAYS)
def test_it_gets_all_fields_and_changes_them_in_place(reader: Reader, workers: Any) -> None:
    """What it does by hand is what the step that flips does: to pixels, boxes and all that follows these."""
    check_alike(read(reader, SampleLambda(flip), workers=workers), read(reader, RandomHorizontalFlip(1.0)))


def test_what_it_gets_is_a_copy(reader: Reader) -> None:
    """The store, and other samples, stay as they are, whatever is written where."""

    def spoil(sample: dict[str, Any]) -> None:
        for value in sample.values():
            if isinstance(value, np.ndarray) and value.ndim:
                value[...] = 0

    before = [reader[i]["image"].copy() for i in range(COUNT)]
    assert not any(sample["image"].any() for sample in read(reader, SampleLambda(spoil)))
    for i in range(COUNT):
        assert_array_equal(reader[i]["image"], before[i])


def test_text_is_read_and_not_written(reader: Reader) -> None:
    """A function sees the text that `OneText` and the store give; a changed one is an error."""

    def noted(sample: dict[str, Any]) -> dict[str, Any]:
        return {"named": int(sample["caption"].split()[1])}

    assert [sample["named"] for sample in read(reader, SampleLambda(noted))] == list(range(COUNT))
    with pytest.raises(UsageError, match="changed 'caption': texts can be read"):
        read(reader, SampleLambda(lambda sample: {"caption": "other"}))


def test_one_of_several_texts(tmp_path: Path) -> None:
    """Where a step chooses one of the texts, that one is in the dict too."""
    captions = [["a", "bb", "ccc"], ["dddd"], ["eeeee", "ffffff"]]
    rows = [{"image": np.zeros((8, 8, 3), np.uint8), "captions": texts} for texts in captions]
    rawpack_packer.pack(rows, tmp_path / "s", fields={"captions": "str[?]"}, workers=0)
    longer = SampleLambda(lambda sample: {"length": len(sample["captions"])})
    options = {"fields": ["image", "captions"], "seed": 5}
    samples = read(Reader(tmp_path / "s"), OneText("captions"), longer, **options)
    assert [len(sample["captions"]) for sample in samples] == [sample["length"] for sample in samples]


# ---------------------------------------------------------------------------------------------- what it draws


def draw(sample: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    return {"drawn": generator.random(3)}


@pytest.mark.parametrize("workers", WAYS)
def test_what_it_draws_depends_on_seed_epoch_and_sample_alone(reader: Reader, workers: Any) -> None:
    """Not on workers, batches, order, or what else is done; and it differs from sample to sample and epoch to epoch."""

    def by_index(*steps: Any, **options: Any) -> dict[int, Any]:
        return {int(sample["index"]): sample["drawn"].tolist() for sample in read(reader, *steps, **options)}

    plain = by_index(SampleLambda(draw), seed=4)
    assert by_index(SampleLambda(draw), seed=4, workers=workers, batch_size=3, shuffle=True) == plain
    assert by_index(RandomHorizontalFlip(), SampleLambda(draw), Normalize(0.5, 0.5), seed=4, workers=workers) == plain
    assert by_index(SampleLambda(draw), seed=5) != plain
    assert len({tuple(drawn) for drawn in plain.values()}) == COUNT
    batches = reader.batches(COUNT, transform=[SampleLambda(draw)], workers=workers, seed=4)
    epochs = [next(iter(batches))["drawn"] for _ in range(2)]
    assert_array_equal(epochs[0], np.array(list(plain.values())))
    assert (epochs[0] != epochs[1]).all()


def takes_default(sample: dict[str, Any], other: int = 1) -> dict[str, Any]:
    return {"drawn": other}


def takes_keyword(sample: dict[str, Any], *, generator: Any) -> dict[str, Any]:
    return {"drawn": generator.random()}


def takes_named(sample: dict[str, Any], generator: Any = None) -> dict[str, Any]:
    return {"drawn": generator.random()}


class Callee:
    def __call__(self, sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        return {"drawn": rng.random()}


@pytest.mark.parametrize(
    ("function", "random"),
    [
        (takes_default, False),
        (takes_keyword, True),
        (takes_named, True),
        (Callee(), True),
        (functools.partial(lambda sample, rng, size: {"drawn": rng.random() * size}, size=2), True),
        (lambda sample: {"drawn": 1}, False),
    ],
)
def test_it_gets_a_generator_if_it_asks_for_one(reader: Reader, function: Any, random: bool) -> None:
    """By a second parameter that is required, or is called `generator`."""
    drawn = {float(sample["drawn"]) for sample in read(reader, SampleLambda(function))}
    assert len(drawn) == (COUNT if random else 1)


# ---------------------------------------------------------------------------------------------- shapes


def test_shapes_come_from_one_trial_or_from_makes(reader: Reader) -> None:
    """New fields, other shapes and dtypes; with `makes`, the function is not called before the first batch."""
    calls = list[int]()

    def shrink(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return {"image": sample["image"][::2, ::2] / np.float32(255), "mean": float(sample["image"].mean())}

    fields = ["image", "label"]
    tried = reader.batches(4, fields=fields, transform=[SampleLambda(shrink)], workers=0)
    assert len(calls) == 1
    makes: Any = {"image": ((20, 24, 3), "float32"), "mean": ((), float)}
    declared = reader.batches(4, fields=fields, transform=[SampleLambda(shrink, makes=makes)], workers=0)
    assert len(calls) == 1
    for first, other in zip(tried, declared, strict=True):
        assert first["image"].shape[1:] == (20, 24, 3)
        assert first["image"].dtype == np.float32
        assert first.keys() == other.keys()
        assert all(np.array_equal(first[name], other[name]) for name in first)
        assert first["mean"].dtype == np.float64


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (lambda s: {"image": s["image"][: 9 - s["label"]]}, "makes={'image': ((None, 48, 3), 'uint8')}"),
        (lambda s: {"image": s["image"] / (1 if s["label"] else np.float32(1))}, "'image': ((40, 48, 3), 'float64')}"),
        (lambda s: {"new": 1} if s["label"] else {}, "makes={'new': ((), 'int64')}"),
        (lambda s: {} if s["label"] else {"new": 1}, "made no 'new', which makes= or the first sample had"),
    ],
)  # fmt: skip
def test_a_shape_that_differs_later_names_the_sample_and_the_line(
    reader: Reader, function: Callable[..., Any], cure: str, workers: int
) -> None:
    """The sample's key, and what to write."""
    with pytest.raises(WorkerError) as raised:
        read(reader, SampleLambda(function), fields=["image", "label"], workers=workers)
    assert cure in str(raised.value)
    assert f"sample 1 ({reader[1]['key']!r})" in str(raised.value)


def test_samples_of_different_sizes(keep: Reader) -> None:
    """A function of a store as it is may leave sizes open, if a later step makes one; or make one size itself."""
    brighter = SampleLambda(lambda sample: {"image": sample["image"] + 1})
    assert {sample["image"].shape for sample in read(keep, brighter, CenterCrop(24), fields=["image"])} == {(24, 24, 3)}
    declared = SampleLambda(brighter.function, makes={"image": ((None, None, 3), "uint8")})
    tried, noted = (read(keep, step, CenterCrop(24), fields=["image"]) for step in (brighter, declared))
    check_alike(tried, noted, ["image"])
    corner = SampleLambda(lambda sample: {"image": sample["image"][:8, :9], "mask": sample["mask"][:8, :9]})
    assert {sample["mask"].shape for sample in read(keep, corner, fields=["image", "mask"])} == {(8, 9, 1)}
    with pytest.raises(UsageError, match="cannot form a batch: end with a size"):
        read(keep, brighter, fields=["image"])


@pytest.mark.parametrize("ragged", ["list", "pad", 20])
def test_what_differs_in_length_comes_in_the_form_that_was_asked_for(reader: Reader, ragged: Any) -> None:
    """As without a function: lists, or arrays with lengths."""
    batches = [
        reader.batches(4, fields=FIELDS, ragged=ragged, transform=steps, workers=0)
        for steps in ([], [SampleLambda(lambda s: None)])
    ]
    for batch, other in zip(*batches, strict=True):
        assert set(batch) == set(other)
        for name in batch:
            assert type(batch[name]) is type(other[name])
            for value, expected in zip(batch[name], other[name], strict=True):
                assert_array_equal(value, expected, strict=not isinstance(value, str))


def test_more_rows_than_there_is_room_for(reader: Reader) -> None:
    """There is room for the longest sample of the store; for more with `makes=`."""

    def double(sample: dict[str, Any]) -> dict[str, Any]:
        return {"boxes": np.concatenate([sample["boxes"]] * 2)}

    fields = ["image", "boxes"]
    with pytest.raises(
        WorkerError, match=r"made 4 rows of 'boxes', .* room for 3.*makes={'boxes': \(\(4, 5\), 'float32'"
    ):
        read(reader, SampleLambda(double), fields=fields)
    made = SampleLambda(double, makes={"boxes": ((6, 5), "float32")})
    assert [len(sample["boxes"]) for sample in read(reader, made, fields=fields)] == [i % 4 * 2 for i in range(COUNT)]


# ---------------------------------------------------------------------------------------------- what it returns


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s: s["image"], "returned ndarray: return a dict"),
        (lambda s: s.pop("label") and None, "took 'label' out"),
        (lambda s: {"name": "x"}, "made <U1 of 'name': a function can return numbers"),
        (lambda s: {"index": 1}, "'index', a name that batches use for something else"),
        (lambda s: {"boxes.length": 1}, "a name that batches use for something else"),
        (lambda s: {"image": s["image"][:8]}, "changed the size of 'image' and left 'mask' as it was"),
        (lambda s: {"image": s["image"][:30], "mask": s["mask"][:30]}, "changed the size of 'image' and left 'boxes'"),
        (lambda s: {"boxes": s["boxes"] + 40}, r"box 0 of 1 is \[42.0, 43.0, 53.0, 49.0\].*, not within it"),
        (
            lambda s: {"boxes": s["boxes"] + np.float32([0, 34, 0, 34, 0])},
            r"\[2.0, 37.0, 13.0, 43.0\].*, not within it",
        ),
        (lambda s: {"boxes": s["boxes"][:, [2, 1, 0, 3, 4]]}, "not within it: move boxes with their image"),
        (lambda s: {"boxes": s["boxes"][:0]}, "'number' and 'boxes' that do not fit: 1 value for 0 boxes"),
        (lambda s: 1 // 0, "failed for the first sample, on which it is tried: ZeroDivisionError"),
    ],
)
def test_what_no_batch_can_have_is_refused_at_once(reader: Reader, function: Any, message: str) -> None:
    """By the trial: before a worker starts. Sample 1 is the first with a box."""
    with pytest.raises(UsageError, match=message):
        read(reader.select([1, 2]), SampleLambda(function))


def test_a_field_that_the_store_has_is_named(reader: Reader) -> None:
    """A new field cannot have the name of one that was left out."""
    with pytest.raises(UsageError, match="adds 'label', which the store has: name it in fields="):
        read(reader, SampleLambda(lambda sample: {"label": 1}), fields=["image"])


def test_boxes_that_stay_where_they_are(reader: Reader) -> None:
    """An image that grows at its end moves nothing: a function that says so, by returning them, is believed."""

    def grow(sample: dict[str, Any]) -> dict[str, Any]:
        larger = {name: np.pad(sample[name], ((0, 8), (0, 0), (0, 0))) for name in ("image", "mask")}
        return {**larger, "boxes": sample["boxes"]}

    for i, sample in enumerate(read(reader, SampleLambda(grow))):
        assert sample["image"].shape == (48, 48, 3)
        assert_array_equal(sample["boxes"], reader[i]["boxes"])


# ---------------------------------------------------------------------------------------------- among other steps


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_before_between_and_after(reader: Reader, workers: int) -> None:
    """A crop before it moves boxes too; what comes after works on what it made; two functions follow each other."""
    double = SampleLambda(lambda sample: {"image": sample["image"] // 2, "new": np.float32(1)})
    steps = [CenterCrop(30), double, Lambda(lambda new: new + 1, field="new"), double, Normalize(0.5, 0.5), ToCHW()]
    samples = read(reader, *steps, workers=workers)
    cropped = read(
        reader, CenterCrop(30), Lambda(lambda image: image // 4, field="image"), Normalize(0.5, 0.5), ToCHW()
    )
    check_alike(samples, cropped)
    check_alike(read(reader, SampleLambda(lambda s: None), image_size=(20, 30)), read(reader, image_size=(20, 30)))
    assert {float(sample["new"]) for sample in samples} == {1.0}


def test_steps_of_batches_and_views(reader: Reader) -> None:
    """They come after it: views of what it made, labels of a batch."""
    steps = [SampleLambda(draw), Views(2, [CenterCrop(16), RandomHorizontalFlip(0.5)]), OneHot(3)]
    samples = read(reader, *steps, fields=["image", "mask", "label"], workers=2)
    for sample in samples:
        assert sample["image"].shape == (2, 16, 16, 3)
        assert_array_equal(sample["image"][..., :1], sample["mask"])
        assert sample["label"].sum() == 1
        assert sample["drawn"].shape == (3,)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Views(2, [CenterCrop(16)]), SampleLambda(draw)], "comes after Views.*put it before"),
        ([MixUp(), SampleLambda(draw)], "comes after MixUp.*put it before|works on whole batches"),
        ([SampleLambda(draw), RandomHorizontalFlip()], "moves the pixels of 'image' after .*'boxes' cannot follow"),
        ([SampleLambda(draw), CenterCrop(8)], "put it before the function, or do it in the function"),
        ([SampleLambda(draw), MixUp()], "cannot change"),
    ],
)
def test_where_it_cannot_stand(reader: Reader, steps: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(reader, *steps)


def test_boxes_need_their_image(reader: Reader) -> None:
    with pytest.raises(UsageError, match="needs the image of 'boxes': name 'image' in fields= too"):
        read(reader, SampleLambda(draw), fields=["boxes"])


def test_it_is_no_step_of_views_and_needs_a_function() -> None:
    with pytest.raises(UsageError, match="works on whole samples: put it before Views"):
        Views(2, [SampleLambda(draw)])
    with pytest.raises(UsageError, match="needs a function of a dict"):
        SampleLambda(3)  # type: ignore[arg-type]


def test_batches_of_several_sizes(keep: Reader) -> None:
    """In buckets, it is tried once for each size, and gets images of the bucket's."""

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        return {"height": sample["image"].shape[0]}

    options: dict[str, Any] = {"fields": ["image"], "image_size": Buckets([(40, 48), (32, 64)]), "workers": 2}
    batches = list(keep.batches(2, transform=[SampleLambda(note)], **options))
    assert {batch["image"].shape[1:3] for batch in batches} == {(40, 48), (32, 64)}
    assert all((batch["height"] == batch["image"].shape[1]).all() for batch in batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_clip_is_one_sample(tmp_path: Path, workers: int) -> None:
    """It gets all frames as one array, and steps after it work on each; boxes of clips are refused."""
    frames = [{**Objects()[i], "video": i // 6, "frame": i % 6, "pts_seconds": i / 25} for i in range(11)]
    rawpack_packer.pack(frames, tmp_path / "s", fields=KINDS, workers=0)
    clips = Reader(tmp_path / "s").clips(4)

    def reverse(sample: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
        assert sample["image"].shape == (4, 40, 48, 3)
        return {"image": sample["image"][::-1], "drawn": generator.random()}

    fields = ["image", "mask", "frame"]
    samples = read(clips, SampleLambda(reverse), RandomHorizontalFlip(1.0), fields=fields, workers=workers)
    plain = read(clips, fields=fields)
    for sample, other in zip(samples, plain, strict=True):
        assert_array_equal(sample["image"], other["image"][::-1, :, ::-1])
        assert_array_equal(sample["mask"], other["mask"][:, :, ::-1])
    assert len({float(sample["drawn"]) for sample in samples}) == len(samples)
    offsets = Reader(tmp_path / "s").clips(offsets={"image": [-0.04, 0.0]})
    add = SampleLambda(lambda sample: {"frames": len(sample["image"]), "named": int(sample["caption"].split()[1])})
    for i, sample in enumerate(read(offsets, add, fields=["image", "mask", "caption"], workers=workers)):
        assert (sample["frames"], sample["named"], sample["mask"].shape) == (2, i, (40, 48, 1))
    with pytest.raises(UsageError, match="gets no ragged fields of clips: leave 'boxes' out"):
        read(clips, SampleLambda(draw), fields=["image", "boxes"])


def test_files_are_not_pixels(tmp_path: Path) -> None:
    rawpack_packer.pack(Objects(), tmp_path / "s", fields=KINDS, format="lmdb", workers=0)
    with pytest.raises(UsageError, match="needs pixels, and decode= gives"):
        Reader(tmp_path / "s").batches(4, fields=["image"], decode=False, transform=[SampleLambda(draw)])


def test_an_epoch_resumes_in_its_middle(reader: Reader) -> None:
    """With the numbers that it would have drawn, and boxes in place."""
    options: dict[str, Any] = {
        "fields": FIELDS,
        "transform": [SampleLambda(draw), Normalize(0.5, 0.5)],
        "shuffle": True,
    }
    batches = reader.batches(3, workers=0, **options)
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    rest = [batch["drawn"] for batch in iterator]
    resumed = reader.batches(3, workers=2, **options)
    resumed.load_state_dict(state)
    for drawn, batch in zip(rest, resumed, strict=True):
        assert_array_equal(drawn, batch["drawn"])


def test_a_length_of_clips_that_there_is_not(tmp_path: Path) -> None:
    """Clips of 8 frames that 4 frames were asked for too: there is no clip to try the function with."""
    frames = [{"image": np.full((8, 8, 3), i, np.uint8), "video": i // 8, "frame": i % 8} for i in range(16)]
    rawpack_packer.pack(frames, tmp_path / "s", workers=0)
    clips = Reader(tmp_path / "s").clips([4, 8])
    batches = [batch["image"] for batch in clips.batches(2, workers=0, transform=[SampleLambda(lambda sample: None)])]
    np.testing.assert_array_equal(batches, [batch["image"] for batch in clips.batches(2, workers=0)])
