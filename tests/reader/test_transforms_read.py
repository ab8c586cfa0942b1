"""Transforms in the workers: the same results however they are made, crops that decode less, errors that name."""

from __future__ import annotations

import os
import threading
import traceback
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, nothing_left
from running import FORMATS, Packed

from rawpack import Reader, UsageError, WorkerError, Workers, jpeg, look
from rawpack.disk.manifest import Field
from rawpack.store.stores import InMapping
from rawpack.system.times import Times
from rawpack.transforms import (
    BatchLambda,
    BatchStep,
    CenterCrop,
    ColorJitter,
    ConvertImageDtype,
    Fit,
    Lambda,
    MixUp,
    Normalize,
    OneHot,
    RandAugment,
    Random,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    Spec,
    Step,
    ToCHW,
    Views,
)
from rawpack.transforms.boxes import mover_for
from rawpack.transforms.pipeline import Pipeline
from rawpack.transforms.plan import cut_tails, plan_pipeline
from rawpack.transforms.randomness import randoms_of
from rawpack.transforms.values import Tail

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LABELED = Lambda(lambda label: np.maximum(label, 0), field="label")
"""Images outside the folders of classes have the label -1."""
FULL: list[Any] = [
    RandomResizedCrop(33),
    RandomHorizontalFlip(),
    RandomVerticalFlip(0.3),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandAugment(),
    Normalize(MEAN, STD),
    ToCHW(),
    RandomErasing(0.7, value="random"),
    LABELED,
    OneHot(6),
]


class Unlike(Step):
    """A step as a user writes it: an image becomes its mean and a random number."""

    def makes(self, spec: Spec) -> Spec:
        return Spec((2,), "float64")

    def draw(self, random: Random, height: int, width: int) -> float:
        return random.uniform(5, 6)

    def apply(self, image: NDArray[Any], drawn: float, out: NDArray[Any] | None = None) -> NDArray[Any]:
        return np.array([image.mean(), drawn])


class Mixup(BatchStep):
    """A batch step as a user writes it."""

    def makes(self, specs: Any) -> dict[str, Spec]:
        return {"image": Spec(specs["image"].shape, "float32")}

    def apply(self, batch: dict[str, NDArray[Any]], random: Random) -> dict[str, NDArray[Any]]:
        share, other = random.uniform(0, 1), random.generator().permutation(len(batch["index"]))
        image, label = batch["image"].astype(np.float32), batch["label"].astype(np.float32)
        batch["label"][...] = share * label + (1 - share) * label[other]
        return {"image": share * image + (1 - share) * image[other]}


def read(
    store: Path | list[Path], transform: Any, epochs: int = 1, skip: int = 0, **options: Any
) -> dict[str, NDArray[Any]]:
    """All batches of the last epoch, sorted by sample, after the first `skip`."""
    options = {"batch_size": 20, "shuffle": True, "seed": 3, "workers": 0} | options
    batches = Reader(store).batches(transform=transform, **options)
    batches.set_epoch(0)
    for _ in range(epochs - 1):
        for _ in batches:
            pass
    found = [{name: np.array(array) for name, array in batch.items()} for batch in batches][skip:]
    whole = {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}
    order = np.argsort(whole["index"])
    return {name: array[order] for name, array in whole.items()}


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


# ---------------------------------------------------------------------------------------------- the same however made


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_results_do_not_depend_on_who_makes_them(packed: Packed, layout: str) -> None:
    """Every backend, any number of workers, any size of batch, shuffled or not: a sample comes out the same."""
    store = packed(layout, "--size", 48)
    expected = read(store, FULL)
    assert expected["image"].shape[1:] == (3, 33, 33)
    assert expected["image"].dtype == np.float32
    assert expected["label"].shape[1:] == (6,)
    for way in WAYS.values():
        assert same(read(store, FULL, **way), expected)
    assert same(read(store, FULL, workers=Workers(3, backend="process")), expected)
    assert same(read(store, FULL, batch_size=7, shuffle=False, workers=2), expected)


def test_augmentation_changes_with_epoch_and_seed_alone(packed: Packed) -> None:
    """Another epoch, another seed: other crops. The same again: the same."""
    store = packed("memmap", "--size", 48)
    first, second = read(store, FULL), read(store, FULL, epochs=2)
    assert not np.array_equal(first["image"], second["image"])
    assert not np.array_equal(first["image"], read(store, FULL, seed=4)["image"])
    assert same(read(store, FULL, epochs=2, workers=2), second)


def test_a_resume_augments_as_the_run_would_have(packed: Packed) -> None:
    """The rest of an epoch after a resume is, pixel for pixel, what was to come; with other workers too."""
    store = packed("lmdb", "--size", 48)

    def batches(**way: Any) -> Any:
        return Reader(store).batches(10, shuffle=True, seed=1, transform=[*FULL, MixUp()], **way)

    run = batches(workers=0)
    iterator = iter(run)
    for _ in range(3):
        next(iterator)
    state, rest = run.state_dict(), [{name: np.array(array) for name, array in one.items()} for one in iterator]
    resumed = batches(**WAYS["processes"])
    resumed.load_state_dict(state)
    assert all(same(*pair) for pair in zip(rest, resumed, strict=True))


def test_a_selection_augments_its_samples_alike(packed: Packed) -> None:
    """A sample's random numbers depend on its row in the store, whatever else is read."""
    reader = Reader(packed("memmap", "--size", 48))
    whole = read(packed("memmap", "--size", 48), FULL)
    few = next(iter(reader.select([40, 3, 17]).batches(3, seed=3, transform=FULL, workers=0)))
    assert few["index"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(few["image"], whole["image"][[40, 3, 17]])


def test_image_size_is_such_a_list(packed: Packed) -> None:
    """image_size=40 and [Resize(40), CenterCrop(40)] are the same, of any size; before a transform it comes first."""
    store = packed("memmap", "--size", "keep")
    by_name = read(store, [], image_size=40)
    assert same(by_name, read(store, [Fit(40)]))
    assert same(by_name, read(store, [Resize(40), CenterCrop(40)]))
    both = read(store, [CenterCrop(20)], image_size=40)["image"]
    np.testing.assert_array_equal(both, by_name["image"][:, 10:30, 10:30])


def test_steps_of_an_iterator_are_as_those_of_a_list(packed: Packed) -> None:
    """A generator, or what `filter` gives, loses nothing, with and without image_size=, in views too."""
    store, steps = packed("memmap", "--size", 48), [RandomCrop(24), np.negative]
    for options in ({}, {"image_size": 40}):
        assert same(read(store, iter(steps), **options), read(store, steps, **options))
    assert same(read(store, [Views(2, filter(None, steps))]), read(store, [Views(2, steps)]))
    with pytest.raises(UsageError, match="needs a list of steps"):
        Views(2, 5)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- straight to the slot


@pytest.mark.parametrize("layout", ["memmap", "lmdb", "hdf5-gzip"])
@pytest.mark.parametrize("size", ["48", "keep"])
@pytest.mark.parametrize(
    "step", [RandomResizedCrop(33), RandomCrop(24), RandomCrop(40, padding=30), CenterCrop(44), CenterCrop(160)]
)
def test_a_crop_read_alone_is_the_crop_of_the_whole(packed: Packed, layout: str, size: str, step: Any) -> None:
    """What is decoded of the box alone equals cropping the whole image, bit for bit; in every format, of any size.

    A step before the crop that does nothing keeps it from being read alone.
    """
    store = packed(layout, "--size", size)
    if isinstance(step, RandomCrop) and size == "keep":
        step = RandomCrop(step.size, padding=20, pad_if_needed=True)
    tail = [RandomHorizontalFlip()]
    alone = read(store, [step, *tail])
    whole = read(store, [Lambda(lambda image: image), step, *tail])
    assert same(alone, whole)


def test_a_crop_of_lmdb_decodes_only_its_rows(packed: Packed) -> None:
    """Between them, the crops hand over a fraction of the rows of blocks to the JPEG library."""
    store = packed("lmdb", "--size", 160)
    heights: list[int] = []
    decoder = jpeg.decoder()
    whole = type(decoder)._decode

    def spied(self: Any, view: Any, shape: tuple[int, int, int], *rest: Any) -> Any:
        heights.append(shape[0])
        return whole(self, view, shape, *rest)

    with mock.patch.object(type(decoder), "_decode", spied):
        read(store, [RandomCrop(32)])
        assert len(heights) == 75 + 1 - 1
        assert max(heights) <= 32 + 2 * 16 + 32
        assert min(heights) < 100


def test_a_crop_of_raw_pixels_reads_only_its_rows(packed: Packed) -> None:
    """The memory that is handed to the crop is a view of the mapped file: the box, and nothing else."""
    store = packed("memmap", "--size", 48)
    seen: list[tuple[tuple[int, ...], bool]] = []

    class Spied(RandomCrop):
        def finish(self, part: Any, drawn: Any, out: Any = None) -> Any:
            seen.append((part.shape, part.flags.owndata))
            return super().finish(part, drawn, out)

    read(store, [Spied((10, 20))])
    assert seen == [((10, 20, 3), False)] * len(seen)
    assert len(seen) == 75


def test_scaled_decoding_is_near_and_only_where_asked_for(packed: Packed) -> None:
    """Of JPEGs only; where the reduced crop is still as large as its ratio says; close to what is decoded in full."""
    step = RandomResizedCrop(20, scaled_decode=1.0)
    assert [step.reduction((0, 0, h, w)) for h, w in ((39, 90), (40, 41), (80, 159), (160, 300))] == [1, 2, 4, 8]
    assert RandomResizedCrop(20).reduction((0, 0, 160, 160)) == 1
    assert RandomResizedCrop(20, scaled_decode=2.0).reduction((0, 0, 79, 79)) == 1
    store, raw = packed("lmdb", "--size", 160), packed("memmap", "--size", 160)
    # After another step, the whole image has been decoded.
    in_full = [Lambda(lambda image: image), step]
    difference = np.abs(read(store, in_full)["image"].astype(int) - read(store, [step])["image"])
    assert difference.max() > 0
    assert difference.mean() < 2
    assert same(read(raw, [step]), read(raw, in_full))
    for random in randoms_of((0, 0, -1), np.arange(200)):
        box = step.draw(random, 160, 161)
        assert not any(n % step.reduction(box) for n in box)


class OwnCrop(RandomResizedCrop):
    """Made step by step, not as a whole by the native core."""


@pytest.mark.parametrize("crop", [RandomResizedCrop, OwnCrop])
def test_scaled_decoding_does_not_depend_on_the_other_stores(packed: Packed, crop: type[RandomResizedCrop]) -> None:
    """In a list of stores, JPEGs are decoded at a reduced scale and raw pixels are not, whichever comes first."""
    stores = packed("lmdb", "--size", 160), packed("memmap", "--size", 160)
    steps = [crop(20, scaled_decode=1.0)]
    alone = [read([store, store], steps)["image"] for store in stores]
    rows = len(alone[0]) // 2
    for first, second in ((0, 1), (1, 0)):
        made = read([stores[first], stores[second]], steps)["image"]
        np.testing.assert_array_equal(made[:rows], alone[first][:rows])
        np.testing.assert_array_equal(made[rows:], alone[second][rows:])


# ---------------------------------------------------------------------------------------------- one's own


@pytest.mark.parametrize("way", WAYS)
def test_functions_and_classes_of_ones_own(packed: Packed, way: str) -> None:
    """Lambdas with what they close over, plain functions, functions of another shape, classes of a script."""
    store, add = packed("memmap", "--size", 48), 7
    whole = read(store, [])["image"]
    plain = read(store, [CenterCrop(10), lambda image: image // 2 + add], **WAYS[way])["image"]
    np.testing.assert_array_equal(plain, whole[:, 19:29, 19:29] // 2 + 7)
    means = read(store, [Lambda(lambda image: image.mean((0, 1)), shape=(3,), dtype="float64")], **WAYS[way])["image"]
    np.testing.assert_array_equal(means, whole.mean((1, 2)))
    labels = read(store, [Lambda(lambda label: label * 2, field="label")], **WAYS[way])["label"]
    np.testing.assert_array_equal(labels, read(store, [])["label"] * 2)
    own = read(store, [Unlike()], **WAYS[way])["image"]
    np.testing.assert_array_equal(own[:, 0], whole.mean((1, 2, 3)))
    assert ((own[:, 1] >= 5) & (own[:, 1] < 6)).all()
    assert len(set(own[:, 1].tolist())) == 75


def test_batch_functions_are_the_same_however_made(packed: Packed) -> None:
    """Whole batches in one worker each: mixing samples gives the same for every backend and number of workers."""
    store = packed("memmap", "--size", 48)
    steps = [RandomResizedCrop(16), LABELED, OneHot(6), Mixup()]
    expected = read(store, steps)
    assert expected["image"].dtype == np.float32
    assert ((expected["label"] > 0).sum(axis=1) == 2).any()
    np.testing.assert_allclose(expected["label"].sum(axis=1), 1, rtol=1e-5)
    for way in WAYS.values():
        assert same(read(store, steps, **way), expected)
    assert same(read(store, steps, workers=Workers(3, backend="process")), expected)


def test_all_workers_make_batches_at_once(packed: Packed) -> None:
    """Where each batch is made by one worker, there is one in the making for each: five meet in five batches."""
    store = packed("memmap", "--size", 48)
    meeting = threading.Barrier(5, timeout=60)
    batches = Reader(store).batches(
        15, transform=[BatchLambda(lambda batch: meeting.wait() and None)], workers=Workers(5, backend="thread")
    )
    assert batches._feed.settings.workers == 5
    assert len([*batches]) == 5


def test_a_batch_function_may_change_a_batch_in_place(packed: Packed) -> None:
    """What it returns replaces; what it changes stays changed; None is nothing to replace."""
    store = packed("memmap", "--size", 48)

    def darken(batch: dict[str, NDArray[Any]]) -> None:
        batch["image"][...] = batch["index"][:, None, None, None] % 251

    def count(batch: dict[str, NDArray[Any]], random: Random) -> dict[str, NDArray[Any]]:
        return {"label": np.full(len(batch["index"]), len(batch["index"]))}

    made = read(store, [BatchLambda(darken), BatchLambda(count, random=True)], **WAYS["processes"])
    assert (made["image"] == (made["index"] % 251)[:, None, None, None]).all()
    assert sorted(made["label"].tolist()) == [15] * 15 + [20] * 60
    summed = read(store, [BatchLambda(lambda b: {"image": b["image"].sum((1, 2, 3))}, makes={"image": ((), "uint64")})])
    np.testing.assert_array_equal(summed["image"], read(store, [])["image"].sum((1, 2, 3)))


# ---------------------------------------------------------------------------------------------- errors


def trip(image: NDArray[Any]) -> NDArray[Any]:
    raise KeyError("tripped over it")


@pytest.mark.parametrize("way", WAYS)
def test_an_error_names_the_sample_and_shows_where(packed: Packed, way: str) -> None:
    """Key, exception, and the traceback of the user's own function; nothing is left behind."""
    store = packed("memmap", "--size", 48)
    with nothing_left():
        try:
            read(store, [trip], shuffle=False, **WAYS[way])
        except WorkerError as error:
            text, chain = str(error), "".join(traceback.format_exception(error))
    row = int(text.split("sample ")[1].split()[0])
    assert repr(Reader(store)[row]["key"]) in text
    assert "KeyError: 'tripped over it'" in text
    assert "in trip" in chain


def unnamed(image: NDArray[Any]) -> NDArray[Any]:
    raise ValueError(f"no partner in {os.fsdecode(b'gr' + bytes([0xFC]) + b'n.csv')}")


@pytest.mark.parametrize("way", WAYS)
def test_an_error_with_a_name_that_is_not_utf8_is_shown(packed: Packed, way: str) -> None:
    """As any other error, with the sample and its own words."""
    with pytest.raises(WorkerError, match=r"reading sample \d+ .*ValueError: no partner in gr.*n\.csv"):
        read(packed("memmap", "--size", 48), [unnamed], shuffle=False, **WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_an_error_in_a_batch_function_names_the_batch(packed: Packed, way: str) -> None:
    """How many samples, and which is the first."""
    store = packed("memmap", "--size", 48)
    with pytest.raises(WorkerError, match=r"the batch of \d+ that begins with sample \d+ .*'tripped"):
        read(store, [BatchLambda(trip)], shuffle=False, **WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_an_error_comes_when_its_batch_would(packed: Packed, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far ahead workers are when a sample fails, the batches before it are handed over first. A loop that is
    left before has no error, and neither has the next epoch, as far as that goes well."""
    reader = Reader(packed("memmap", "--size", 48))
    fails = reader[9]["image"]

    def trip_late(image: NDArray[Any]) -> NDArray[Any]:
        if np.array_equal(image, fails):
            raise KeyError("the tenth")
        return image

    # On a busy machine, a batch before the one that fails may take longer than an error usually waits for it.
    monkeypatch.setattr("rawpack.workers.pool._ERROR_WAIT_S", 60)
    batches = reader.batches(3, transform=[trip_late], **WAYS[way])
    for _ in range(2):
        assert [row for batch in islice(batches, 3) for row in batch["index"].tolist()] == list(range(9))
    iterator = iter(batches)
    assert [row for _ in range(3) for row in next(iterator)["index"].tolist()] == list(range(9))
    with pytest.raises(WorkerError, match="the tenth"):
        next(iterator)


def bad(batch: dict[str, Any]) -> dict[str, Any]:
    return {"images": batch["image"]}


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        ([lambda image: image[:5]], r"made uint8 \(5, 48, 3\) of 'image', where uint8 \(48, 48, 3\) was expected"),
        ([lambda image: image / 2], "made float64"),
        ([OneHot(2)], "is not one of 2 classes"),
        ([BatchLambda(bad)], "returned 'images': a step cannot add fields to the batch; it can replace image"),
        ([BatchLambda(lambda b: {"image": b["image"][:3]})], "was expected"),
    ],
)
def test_a_step_that_breaks_its_word_is_reported(packed: Packed, transform: list[Any], words: str) -> None:
    """What comes out is not what was declared: the error says both, and the cure."""
    with pytest.raises(WorkerError, match=words):
        read(packed("memmap", "--size", 48), transform)


class Open:
    """What no pickle can hold."""

    files: ClassVar[list[Any]] = []

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.files.append(self.file)

    def __call__(self, image: Any) -> Any:
        return image


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"transform": CenterCrop(3)}, r"a list of steps, such as \[CenterCrop"),
        ({"transform": [CenterCrop]}, r"CenterCrop in transform= is a class, not a step: write CenterCrop\(...\)"),
        ({"transform": [3]}, "3 in transform= is not a step"),
        ({"transform": [OneHot(3)], "fields": ["image"]}, "no field 'label'"),
        ({"transform": [OneHot(3, field="key")], "fields": ["key"]}, "workers do not transform"),
        ({"transform": [BatchLambda(print), CenterCrop(3)]}, "put it after"),
        ({"transform": [BatchLambda(print, makes={"new": ((), "int64")})]}, "makes 'new': a step cannot add fields"),
        ({"transform": [ToCHW(), CenterCrop(3)]}, "before ToCHW"),
    ],
)
def test_transforms_that_do_not_fit_are_refused_at_once(packed: Packed, options: Any, words: str) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match=words):
        Reader(packed("memmap", "--size", 48)).batches(4, **options)


def test_one_size_must_come_out(packed: Packed) -> None:
    """Of images of different sizes: the error names the cure; the first step that fixes the size is enough."""
    store = packed("lmdb", "--size", "keep")
    reader = Reader(store)
    for steps in ([], [RandomHorizontalFlip()], [Resize(40)]):
        with pytest.raises(UsageError, match="different sizes"):
            reader.batches(4, transform=steps)
    assert read(store, [Resize(40), RandomCrop(38)])["image"].shape == (75, 38, 38, 3)


def test_what_cannot_travel_is_refused_with_the_cure(packed: Packed) -> None:
    """A function that holds an open file: an error before workers start; threads take it."""
    store = packed("memmap", "--size", 48)
    reader = Reader(store)
    holds = Open(store / "store.json")
    try:
        with pytest.raises(UsageError, match=r"cannot be sent to worker processes.*backend=\"thread\""):
            reader.batches(4, transform=[holds], workers=Workers(1, backend="process"))
        assert same(read(store, [holds], workers=Workers(1, backend="thread")), read(store, []))
    finally:
        for file in Open.files:
            file.close()


# ---------------------------------------------------------------------------------------------- moving together


class Samples:
    """What a pipeline asks of a library, over arrays in memory: field -> (n, H, W, C)."""

    def __init__(self, kinds: dict[str, str], arrays: dict[str, NDArray[Any]]) -> None:
        self.fields = {
            name: Field(kind=kinds[name], dtype=array.dtype.name, shape=array.shape[1:])  # type: ignore[arg-type]
            for name, array in arrays.items()
        }
        self._arrays = arrays

    def located(self, name: str, rows: NDArray[np.int64]) -> Any:
        for row in rows.tolist():
            yield Stored(self._arrays[name]), row

    def read_into(self, name: str, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        out[...] = self._arrays[name][rows]

    def in_place(self, name: str) -> bool:
        return True

    def in_mapping(self, name: str, rows: NDArray[np.int64]) -> InMapping:
        images = np.ascontiguousarray(self._arrays[name][rows])
        begins = images.ctypes.data + np.arange(len(rows), dtype=np.uint64) * np.uint64(images[0].nbytes)
        return InMapping(
            begins, begins + np.uint64(images[0].nbytes), np.full((len(rows), 2), images.shape[1:3], np.int32), images
        )


class Stored:
    """A field of a shard, in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def shape(self, row: int) -> tuple[int, ...]:
        return self._array.shape[1:]

    def read(self, row: int, box: Any = None, scale: int = 1) -> NDArray[Any]:
        image: NDArray[Any] = self._array[row]
        return image if box is None else image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]


def made_of(samples: Samples, transform: list[Any]) -> dict[str, NDArray[Any]]:
    """All samples through a pipeline."""
    return filled(samples, plan_pipeline(transform, samples.fields, list(samples.fields)))


def filled(samples: Samples, pipeline: Pipeline) -> dict[str, NDArray[Any]]:
    """All samples through a planned pipeline."""
    rows = np.arange(12)
    outs = {
        name: np.empty((len(rows), *(n or 0 for n in plan.result.shape)), plan.result.dtype)
        for name, plan in pipeline.plans.items()
    }
    pipeline.fill(samples, rows, outs, (1, 2, -1), Times(), None)  # type: ignore[arg-type]
    return outs


@pytest.mark.parametrize("order", [("image", "depth", "mask"), ("mask", "image", "depth")])
def test_what_belongs_together_moves_together(order: tuple[str, ...]) -> None:
    """Two images and a mask of one scene get the same crop and flip, whichever comes first; colors spare the mask."""
    y, x = np.mgrid[:60, :80]
    label = (x // 8 + 10 * (y // 10)).astype(np.uint8)[None, ..., None].repeat(12, 0)
    image = np.repeat(label, 3, axis=3)
    kinds = {"image": "image", "depth": "image", "mask": "mask"}
    arrays = {"image": image, "depth": label.astype(np.uint16), "mask": label}
    samples = Samples({name: kinds[name] for name in order}, {name: arrays[name] for name in order})
    crop = RandomResizedCrop(64, interpolation="nearest")
    outs = made_of(samples, [crop, RandomHorizontalFlip(), RandomVerticalFlip(), RandomCrop(50)])
    assert {name: out.dtype.name for name, out in outs.items()} == {
        "image": "uint8",
        "depth": "uint16",
        "mask": "uint8",
    }
    np.testing.assert_array_equal(outs["image"][..., :1], outs["mask"])
    np.testing.assert_array_equal(outs["depth"], outs["mask"])
    assert len({out.tobytes() for out in outs["mask"]}) == 12
    colors = Samples({"image": "image", "mask": "mask"}, {"image": image, "mask": label})
    changed = made_of(colors, [CenterCrop(40), ColorJitter((1.5, 1.5)), Normalize((0.5,), (0.5,)), ToCHW()])
    np.testing.assert_array_equal(changed["mask"], label[:, 10:50, 20:60].transpose(0, 3, 1, 2))
    assert changed["image"].dtype == np.float32


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_masks_go_with_what_only_images_are_fit_for(dtype: str, channels: int) -> None:
    """Three means, jittered colors and resizing are for images: a mask of any dtype and number of channels goes with
    its image, by the nearest pixel, and keeps its values."""
    end, wide = 2 if dtype == "bool" else 256, channels * np.dtype(dtype).itemsize
    mask = np.random.default_rng(5).integers(0, end, (12, 20, 30, wide)).astype(np.uint8).view(dtype)
    image = np.random.default_rng(6).integers(0, 256, (12, 20, 30, 3)).astype(np.uint8)
    samples = Samples({"image": "image", "mask": "mask"}, {"image": image, "mask": mask})
    doubled = mask.repeat(2, axis=1).repeat(2, axis=2)
    for resized in (Resize((40, 60)), Fit((40, 60)), RandomResizedCrop((40, 60), scale=(1, 1), ratio=(1.5, 1.5))):
        steps = [
            resized,
            RandomHorizontalFlip(1),
            ColorJitter(0.4),
            Normalize(MEAN, STD),
            RandomCrop((40, 60)),
            ToCHW(),
        ]
        outs = made_of(samples, steps)
        assert outs["image"].shape == (12, 3, 40, 60)
        assert outs["mask"].dtype == dtype
        np.testing.assert_array_equal(outs["mask"], doubled[:, :, ::-1].transpose(0, 3, 1, 2))


def test_a_mask_of_ones_own_is_changed() -> None:
    """A function for the field of a mask gets the mask, and may change its shape and dtype."""
    mask = np.random.default_rng(5).integers(0, 5, (12, 8, 9, 1)).astype(np.uint8)
    image = np.zeros((12, 8, 9, 3), np.uint8)
    samples = Samples({"image": "image", "mask": "mask"}, {"image": image, "mask": mask})
    layers = Lambda(lambda one: one == np.arange(5), field="mask", shape=(8, 9, 5), dtype="bool")
    outs = made_of(samples, [RandomHorizontalFlip(1), Normalize(MEAN, STD), RandomVerticalFlip(1), layers])
    wanted = np.stack([mask[:, ::-1, ::-1, 0] == value for value in range(5)], axis=3)
    assert outs["mask"].dtype == bool
    np.testing.assert_array_equal(outs["mask"], wanted)


@pytest.mark.parametrize("later", [RandomHorizontalFlip(1), Resize((8, 18)), CenterCrop(5)], ids=repr)
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_function_may_give_any_byte_order(dtype: str, later: Step) -> None:
    """What a function has from elsewhere, with the bytes of its numbers the other way round, keeps its values."""
    image = np.random.default_rng(5).integers(0, 256, (12, 1, 1, 3)).astype(np.uint8).repeat(8, 1).repeat(9, 2)
    swapped = np.dtype(dtype).newbyteorder("S")
    steps = [Lambda(lambda one: one.astype(swapped), dtype=dtype), later]
    made = made_of(Samples({"image": "image"}, {"image": image}), steps)["image"]
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, np.broadcast_to(image[:, :1, :1], made.shape))


class Halved(Step):
    """A step as a user writes it: every other pixel."""

    def makes(self, spec: Spec) -> Spec:
        return spec.sized(10, 15)

    def apply(self, image: NDArray[Any], drawn: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        return image[::2, ::2]


class HalvedWithMasks(Halved):
    def apply_mask(self, mask: NDArray[Any], drawn: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        return mask[::2, ::2]


def test_what_resizes_images_alone_is_refused_beside_masks() -> None:
    """A step of one's own that makes another size and says nothing of masks, or such a function: an error at once. One
    that says it, one for a field, and one that makes no image, are right."""
    mask = np.random.default_rng(5).integers(0, 5, (12, 20, 30, 1)).astype(np.uint8)
    image = mask.repeat(3, axis=3)
    samples = Samples({"image": "image", "mask": "mask"}, {"image": image, "mask": mask})
    for step in (Halved(), Lambda(lambda one: one[:10], shape=(10, 30, 3))):
        with pytest.raises(UsageError, match=r"changes the size of images, \(20, 30, 3\) to \(10, .*apply_mask"):
            made_of(samples, [step])
    np.testing.assert_array_equal(made_of(samples, [HalvedWithMasks()])["mask"], mask[:, ::2, ::2])
    alone = made_of(samples, [Lambda(lambda one: one[:10], field="image", shape=(10, 30, 3))])
    np.testing.assert_array_equal(alone["image"], image[:, :10])
    means = made_of(samples, [Lambda(lambda one: one.mean((0, 1)), shape=(3,), dtype="float64")])
    np.testing.assert_array_equal(means["image"], image.mean((1, 2)))
    assert "mask" not in means  # it is copied, as it is stored


@pytest.mark.parametrize("sizes", [(20, 30), (None, None)], ids=str)
def test_boxes_come_along_where_a_mask_comes_first(sizes: tuple[int | None, int | None]) -> None:
    """Also with steps that are not fit for the mask; of one size, or of many."""
    fields = {
        "image": Field(kind="image", dtype="uint8", shape=(*sizes, 3)),
        "mask": Field(kind="mask", dtype="int64", shape=(*sizes, 1)),
        "boxes": Field(kind="ragged", dtype="float32", shape=(None, 4), boxes="xyxy"),
    }
    steps = [Normalize(MEAN, STD), RandomHorizontalFlip(1), CenterCrop((10, 20))]
    mover = mover_for(steps, fields, ["mask", "image", "boxes"])
    assert mover is not None
    arrays = {"image": np.zeros((2, 20, 30, 3), np.uint8), "mask": np.zeros((2, 20, 30, 1), np.int64)}
    library = Samples({"image": "image", "mask": "mask"}, arrays)
    library.fields = fields
    given = {"boxes": [np.array([[6, 7, 16, 9]], np.float32)] * 2}
    found = mover(library, np.arange(2), given, (0, 0, -1))["boxes"]  # type: ignore[arg-type]
    for boxes in found:
        np.testing.assert_array_equal(boxes, [[30 - 16 - 5, 7 - 5, 30 - 6 - 5, 9 - 5]])


def test_a_crop_beside_the_image_has_none_of_its_boxes() -> None:
    """With more padding than the crop is large, some crops are padding only: there, no box is left."""
    library = Samples({"image": "image"}, {"image": np.ones((12, 20, 30, 3), np.uint8)})
    library.fields["boxes"] = Field(kind="ragged", dtype="float32", shape=(None, 4), boxes="xyxy")
    steps = [RandomCrop(8, padding=12)]
    mover = mover_for(steps, library.fields, ["image", "boxes"])
    assert mover is not None
    images = filled(library, plan_pipeline(steps, library.fields, ["image"]))["image"]
    given = {"boxes": [np.array([[0, 0, 30, 20]], np.float32)] * 12}
    boxes = mover(library, np.arange(12), given, (1, 2, -1))["boxes"]  # type: ignore[arg-type]
    seen = [bool(image.any()) for image in images]
    assert [len(one) > 0 for one in boxes] == seen
    assert len(set(seen)) == 2


def test_bytes_of_many_channels_become_floats() -> None:
    """More than OpenCV looks up in a table: the same shares."""
    image = np.random.default_rng(3).integers(0, 256, (12, 4, 5, 600)).astype(np.uint8)
    outs = made_of(Samples({"image": "image"}, {"image": image}), [ConvertImageDtype(), ToCHW()])
    np.testing.assert_array_equal(outs["image"], (image / 255).astype(np.float32).transpose(0, 3, 1, 2))


def test_images_of_one_sample_must_have_one_size() -> None:
    """Else they cannot move together: the error says both sizes, and the cure."""
    arrays = {"image": np.zeros((12, 30, 40, 3), np.uint8), "mask": np.zeros((12, 30, 41, 1), np.uint8)}
    with pytest.raises(UsageError, match=r"'mask' is 30x41 .* 30x40 .*fields="):
        made_of(Samples({"image": "image", "mask": "mask"}, arrays), [RandomCrop(8)])


# ---------------------------------------------------------------------------------------------- cut off


def test_what_another_device_can_do_is_cut_off_field_by_field() -> None:
    """The scaling of bytes at the end is cut off, and is the same as arithmetic; that of other dtypes is not. What is
    left draws the same random numbers."""
    rng = np.random.default_rng(0)
    kinds = {"image": "image", "depth": "image", "mask": "mask"}
    arrays = {name: rng.integers(0, 256, (12, 9, 11, 3)).astype(np.uint8) for name in kinds}
    arrays["depth"] = arrays["depth"].astype(np.uint16)
    samples = Samples(kinds, arrays)
    before: list[Any] = [RandomCrop(7), RandomHorizontalFlip()]
    both = ["image", "depth"]
    transform = [*before, Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3), fields=both), ToCHW()]
    whole = plan_pipeline(transform, samples.fields, list(kinds))
    cut, tails = cut_tails(whole)
    assert cut is not None
    assert list(tails) == ["image", "depth"]
    assert tails["depth"] == Tail(None, (), "float32", planes=True)  # ToCHW alone: Normalize is no table of uint16
    assert {name: (spec.dtype, spec.layout) for name, spec in cut.results.items()} == {
        "image": ("uint8", "HWC"),
        "depth": ("float32", "HWC"),
        "mask": ("uint8", "CHW"),
    }
    expected, left = made_of(samples, transform), filled(samples, cut)
    image = left["image"] * np.array(tails["image"].scale) + tails["image"].shift
    np.testing.assert_allclose(image.transpose(0, 3, 1, 2), expected["image"], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(left["depth"].transpose(0, 3, 1, 2), expected["depth"])
    np.testing.assert_array_equal(left["mask"], expected["mask"])
    normalized = Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    alone, _ = cut_tails(plan_pipeline([normalized, ToCHW()], {"image": samples.fields["image"]}, ["image"]))
    assert alone is None


# ---------------------------------------------------------------------------------------------- whose array it is

BEFORE: dict[str, list[Any]] = {
    "nothing": [],
    "a crop": [RandomCrop(24)],
    "a flip": [RandomHorizontalFlip()],
    "values": [ConvertImageDtype("float32")],
}
"""What steps before have made of the array that the next one gets."""


class Given(Step):
    """A step as another package has it, which notes whether it could write to what it gets."""

    writable: ClassVar[set[bool]] = set()

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        self.writable.add(image.flags.writeable)
        return image

    def apply_mask(self, mask: Any, drawn: Any, out: Any = None) -> Any:
        return self.apply(mask, drawn, out)


class GivenMany(Given):
    vectorized = True

    def apply_many(self, images: Any, drawn: Any, out: Any = None) -> Any:
        return self.apply(images, None, out)


class GivenCrop(CenterCrop):
    """The same for a crop, which comes first."""

    def finish(self, part: Any, drawn: Any, out: Any = None) -> Any:
        Given.writable.add(part.flags.writeable)
        return super().finish(part, drawn, out)


@pytest.mark.parametrize(
    ("layout", "size"), [*((layout, 32) for layout in FORMATS), ("memmap", "keep"), ("lmdb", "keep")]
)
def test_functions_may_write_and_steps_may_not(packed: Packed, layout: str, size: object) -> None:
    """A function that changes its array in place is right in every format, after any step, also where views of an image
    share it, and the store stays as it is; steps of others get arrays that they cannot write to, in every format."""
    reader = Reader(packed(layout, "--size", size))
    some = reader.select(range(12))

    def brighter(image: Any) -> Any:
        image += 1
        return image

    def pure(image: Any) -> Any:
        return brighter(image.copy())

    last = [Fit((24, 24))]
    for before in BEFORE.values():
        for follow in (lambda f: [f], lambda f: [Views(3, [f, RandomHorizontalFlip()])]):
            sized = [*last, *before] if size == "keep" else before
            written, fresh = (
                next(iter(some.batches(12, transform=[*sized, *follow(function)], workers=0)))["image"]
                for function in (brighter, pure)
            )
            assert np.array_equal(written, fresh)
    assert not any(look(reader).damaged(row) for row in range(12))
    Given.writable.clear()
    for steps in (
        [*last, Given()], [GivenCrop(24)], [GivenCrop(24), RandomHorizontalFlip(), Given()], [Given(), *last],
        [*last, GivenMany()], [*last, Views(2, [Given()])], [*last, lambda image: image, Given()],
    ):  # fmt: skip
        next(iter(some.batches(12, transform=steps, workers=0)))
    numbers = [type("Labels", (Given,), {"field": "label"})(), type("ManyLabels", (GivenMany,), {"field": "label"})()]
    for step in numbers:
        next(iter(some.batches(12, transform=[*last, step], workers=0)))
    assert Given.writable == {False}


def test_a_step_that_writes_is_told_what_to_do(packed: Packed) -> None:
    """The error says so, in every format."""

    class Writes(Step):
        def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
            image[:] = 0
            return image

    for layout in ("lmdb", "memmap"):
        with pytest.raises(WorkerError, match=r"read-only; a step must not write .* return a new one"):
            next(iter(Reader(packed(layout, "--size", 32)).batches(4, transform=[Writes()], workers=0)))
