"""Transforms in the workers: the same results however they are made, crops that decode less, errors that name."""

from __future__ import annotations

import re
import threading
import traceback
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, epoch_of, nothing_left
from running import FORMATS, Packed

import rawpack_packer
from rawpack import Reader, UsageError, WorkerError, Workers, look
from rawpack import transforms as t
from rawpack.system.times import Times
from rawpack.transforms.plan import cut_tails, plan_pipeline
from rawpack.transforms.randomness import randoms_of
from rawpack.transforms.values import Tail

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LABELED = t.Lambda(lambda label: np.maximum(label, 0), field="label")
"""Images outside the folders of classes have the label -1."""
FULL: list[Any] = [
    t.RandomResizedCrop(33),
    t.RandomHorizontalFlip(),
    t.RandomVerticalFlip(0.3),
    t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    t.RandAugment(),
    t.Normalize(MEAN, STD),
    t.ToCHW(),
    t.RandomErasing(0.7, value="random"),
    LABELED,
    t.OneHot(6),
]


class Unlike(t.Step):
    """A step as a user writes it: an image becomes its mean and a random number."""

    def makes(self, spec: t.Spec) -> t.Spec:
        return t.Spec((2,), "float64")

    def draw(self, random: t.Random, height: int, width: int) -> float:
        return random.uniform(5, 6)

    def apply(self, image: NDArray[Any], drawn: float, out: Any = None) -> NDArray[Any]:
        return np.array([image.mean(), drawn])


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


# ---------------------------------------------------------------------------------------------- the same however made


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_results_depend_on_sample_epoch_and_seed_alone(packed: Packed, layout: str) -> None:
    """Every backend, any size of batch, shuffled or not, among few samples: a sample comes out the same."""
    store = packed(layout, "--size", 48)
    expected = epoch_of(store, FULL)
    assert expected["image"].shape[1:] == (3, 33, 33)
    assert expected["image"].dtype == np.float32
    assert expected["label"].shape[1:] == (6,)
    for way in ("threads", "processes"):
        assert same(epoch_of(store, FULL, **WAYS[way]), expected)
    assert same(epoch_of(store, FULL, batch_size=7, shuffle=False), expected)
    few = epoch_of(Reader(store).select([40, 3, 17]), FULL)
    np.testing.assert_array_equal(few["image"], expected["image"][[40, 3, 17]])
    assert not np.array_equal(expected["image"], epoch_of(store, FULL, epochs=2)["image"])
    assert not np.array_equal(expected["image"], epoch_of(store, FULL, seed=4)["image"])


def test_a_resume_augments_as_the_run_would_have(packed: Packed) -> None:
    """The rest of an epoch after a resume is, pixel for pixel, what was to come; with other workers too."""
    store = packed("lmdb", "--size", 48)

    def batches(**way: Any) -> Any:
        return Reader(store).batches(10, shuffle=True, seed=1, transform=[*FULL, t.MixUp()], **way)

    run = batches(workers=0)
    iterator = iter(run)
    for _ in range(3):
        next(iterator)
    state, rest = run.state_dict(), [{name: np.array(array) for name, array in one.items()} for one in iterator]
    resumed = batches(**WAYS["processes"])
    resumed.load_state_dict(state)
    assert all(same(*pair) for pair in zip(rest, resumed, strict=True))


def test_image_size_is_such_a_list(packed: Packed) -> None:
    """image_size=40 and [Resize(40), CenterCrop(40)] are the same, of any size; before a transform it comes first."""
    store = packed("memmap", "--size", "keep")
    by_name = epoch_of(store, [], image_size=40)
    assert same(by_name, epoch_of(store, iter([t.Resize(40), t.CenterCrop(40)])))
    both = epoch_of(store, [t.CenterCrop(20)], image_size=40)["image"]
    np.testing.assert_array_equal(both, by_name["image"][:, 10:30, 10:30])


# ---------------------------------------------------------------------------------------------- straight to the slot


@pytest.mark.parametrize("layout", ["memmap", "lmdb", "hdf5-gzip"])
@pytest.mark.parametrize("size", ["48", "keep"])
def test_a_crop_read_alone_is_the_crop_of_the_whole(packed: Packed, layout: str, size: str) -> None:
    """What is decoded of the box alone equals cropping the whole image, bit for bit; in every format, of any size.

    A step before the crop that does nothing keeps it from being read alone.
    """
    reader = Reader(packed(layout, "--size", size)).select(range(0, 75, 4))
    padded = {"padding": 20, "pad_if_needed": True}
    crops = [t.RandomCrop(24, **padded), t.RandomCrop(40, **padded), t.CenterCrop(44), t.CenterCrop(160)]
    for step in (t.RandomResizedCrop(33), *crops):
        alone = epoch_of(reader, [step, t.RandomHorizontalFlip()])
        whole = epoch_of(reader, [t.Lambda(lambda image: image), step, t.RandomHorizontalFlip()])
        assert same(alone, whole)


def test_scaled_decoding_is_near_and_only_where_asked_for(packed: Packed) -> None:
    """Of JPEGs only, also among other stores; where the reduced crop is still as large as its ratio says; close to what
    is decoded in full."""
    step = t.RandomResizedCrop(20, scaled_decode=1.0)
    assert [step.reduction((0, 0, h, w)) for h, w in ((39, 90), (40, 41), (80, 159), (160, 300))] == [1, 2, 4, 8]
    assert t.RandomResizedCrop(20).reduction((0, 0, 160, 160)) == 1
    assert t.RandomResizedCrop(20, scaled_decode=2.0).reduction((0, 0, 79, 79)) == 1
    store, raw = packed("lmdb", "--size", 160), packed("memmap", "--size", 160)
    # After another step, the whole image has been decoded.
    in_full = [t.Lambda(lambda image: image), step]
    scaled, full = epoch_of(store, [step])["image"], epoch_of(store, in_full)["image"]
    assert 0 < np.abs(full.astype(int) - scaled).mean() < 2
    assert same(epoch_of(raw, [step]), epoch_of(raw, in_full))
    np.testing.assert_array_equal(epoch_of([store, raw], [step])["image"][:75], scaled)
    np.testing.assert_array_equal(epoch_of([raw, store], [step])["image"][:75], epoch_of(raw, in_full)["image"])
    for random in randoms_of((0, 0, -1), np.arange(200)):
        box = step.draw(random, 160, 161)
        assert not any(n % step.reduction(box) for n in box)


@pytest.mark.parametrize("way", WAYS)
def test_functions_and_classes_of_ones_own(packed: Packed, way: str) -> None:
    """Lambdas with what they close over, functions of another shape or byte order, classes of a script."""
    store, add = packed("memmap", "--size", 48), 7
    whole = epoch_of(store, [])["image"]

    def made(*steps: Any, field: str = "image") -> Any:
        return epoch_of(store, list(steps), **WAYS[way])[field]

    np.testing.assert_array_equal(
        made(t.CenterCrop(10), lambda image: image // 2 + add), whole[:, 19:29, 19:29] // 2 + 7
    )
    means = t.Lambda(lambda image: image.mean((0, 1)), shape=(3,), dtype="float64")
    np.testing.assert_array_equal(made(means), whole.mean((1, 2)))
    swapped = t.Lambda(lambda image: image.astype(">f4"), dtype="float32")
    np.testing.assert_array_equal(made(swapped, t.RandomHorizontalFlip(1), t.CenterCrop(48)), whole[:, :, ::-1])
    labels = made(t.Lambda(lambda label: label * 2, field="label"), field="label")
    np.testing.assert_array_equal(labels, epoch_of(store, [])["label"] * 2)
    own = made(Unlike())
    np.testing.assert_array_equal(own[:, 0], whole.mean((1, 2, 3)))
    assert ((own[:, 1] >= 5) & (own[:, 1] < 6)).all()
    assert len(set(own[:, 1].tolist())) == 75


def test_a_batch_function_may_change_a_batch_in_place(packed: Packed) -> None:
    """What it returns replaces; what it changes stays changed; None is nothing to replace."""
    store = packed("memmap", "--size", 48)

    def darken(batch: dict[str, NDArray[Any]]) -> None:
        batch["image"][...] = batch["index"][:, None, None, None] % 251

    def count(batch: dict[str, NDArray[Any]], random: t.Random) -> dict[str, NDArray[Any]]:
        return {"label": np.full(len(batch["index"]), len(batch["index"]))}

    made = epoch_of(store, [t.BatchLambda(darken), t.BatchLambda(count, random=True)], **WAYS["processes"])
    assert (made["image"] == (made["index"] % 251)[:, None, None, None]).all()
    assert sorted(made["label"].tolist()) == [15] * 15 + [20] * 60
    total = t.BatchLambda(lambda b: {**b, "image": b["image"].sum((1, 2, 3))}, makes={"image": ((), "uint64")})
    summed = epoch_of(store, [total])["image"]
    np.testing.assert_array_equal(summed, epoch_of(store, [])["image"].sum((1, 2, 3)))


# ---------------------------------------------------------------------------------------------- errors


def trip(image: NDArray[Any]) -> NDArray[Any]:
    raise KeyError("tripped over it")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (trip, r"reading sample {row} \({key}\) .*KeyError: 'tripped over it'"),
        (t.BatchLambda(trip), r"the batch of \d+ that begins with sample \d+ .*'tripped"),
    ],
)
def test_an_error_names_the_sample_and_shows_where(packed: Packed, way: str, step: Any, words: str) -> None:
    """Sample or batch, exception, and the traceback of the user's own function; nothing is left behind."""
    store = packed("memmap", "--size", 48)
    with nothing_left():
        try:
            epoch_of(store, [step], shuffle=False, **WAYS[way])
        except WorkerError as error:
            text, chain = str(error), "".join(traceback.format_exception(error))
    row = int(text.split("sample ")[1].split()[0])
    key = re.escape(repr(Reader(store)[row]["key"]))
    assert re.search(words.replace("{row}", str(row)).replace("{key}", key), text)
    assert "in trip" in chain


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        ([lambda image: image[:5]], r"made uint8 \(5, 48, 3\) of 'image', where uint8 \(48, 48, 3\) was expected"),
        ([lambda image: image / 2], "made float64"),
        ([t.OneHot(2)], "is not one of 2 classes"),
        ([t.BatchLambda(lambda b: {"images": b["image"]})], "returned 'images': a step cannot add fields to the batch"),
        ([t.BatchLambda(lambda b: {"image": b["image"][:3]})], "was expected"),
    ],
)
def test_a_step_that_breaks_its_word_is_reported(packed: Packed, transform: list[Any], words: str) -> None:
    """What comes out is not what was declared: the error says both, and the cure."""
    with pytest.raises(WorkerError, match=words):
        epoch_of(packed("memmap", "--size", 48), transform)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"transform": t.CenterCrop(3)}, r"a list of steps, such as \[CenterCrop"),
        ({"transform": [3]}, "3 in transform= is not a step"),
        ({"transform": [t.OneHot(3)], "fields": ["image"]}, "no field 'label'"),
        ({"transform": [t.OneHot(3, field="key")], "fields": ["key"]}, "workers do not transform"),
        ({"transform": [t.BatchLambda(print), t.CenterCrop(3)]}, "put it after"),
        ({"transform": [t.BatchLambda(print, makes={"new": ((), "int64")})]}, "makes 'new': a step cannot add fields"),
        ({"transform": []}, "different sizes"),
        ({"transform": [t.RandomHorizontalFlip()]}, "different sizes"),
        ({"transform": [t.Resize(40)]}, "different sizes"),
    ],
)
def test_transforms_that_do_not_fit_are_refused_at_once(packed: Packed, options: Any, words: str) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match=words):
        Reader(packed("lmdb", "--size", "keep")).batches(4, **options)


def test_what_cannot_travel_is_refused_with_the_cure(packed: Packed) -> None:
    """A function that holds a lock: an error before workers start; threads take it."""
    store, lock = packed("memmap", "--size", 48), threading.Lock()

    def holds(image: NDArray[Any]) -> NDArray[Any]:
        with lock:
            return image

    with pytest.raises(UsageError, match=r"cannot be sent to worker processes.*backend=\"thread\""):
        Reader(store).batches(4, transform=[holds], workers=Workers(1, backend="process"))
    assert same(epoch_of(store, [holds], workers=Workers(1, backend="thread")), epoch_of(store, []))


# ---------------------------------------------------------------------------------------------- moving together


def stored(folder: Path, arrays: dict[str, Any], **kinds: str) -> Reader:
    """A store of 12 samples in memory."""
    folder /= str(len(list(folder.iterdir())))
    rawpack_packer.pack(arrays, folder, size="keep", fields=kinds, workers=0)  # type: ignore[arg-type]
    return Reader(folder)


def made_of(reader: Reader, transform: list[Any], *fields: str) -> dict[str, Any]:
    """All samples, as a transform makes them."""
    (batch,) = reader.batches(12, fields=fields or ["image", "mask"], transform=transform, workers=0)
    return batch


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_masks_go_with_what_only_images_are_fit_for(tmp_path: Path, dtype: str, channels: int) -> None:
    """A mask of any dtype goes with its image by the nearest pixel, and keeps its values, whatever the steps; a
    function for its field may change its shape and dtype."""
    end, wide = 2 if dtype == "bool" else 256, channels * np.dtype(dtype).itemsize
    mask = np.random.default_rng(5).integers(0, end, (12, 20, 30, wide)).astype(np.uint8).view(dtype)
    image = np.random.default_rng(6).integers(0, 256, (12, 20, 30, 3)).astype(np.uint8)
    reader = stored(tmp_path, {"image": image, "mask": mask}, mask="mask")
    wanted = mask.repeat(2, axis=1).repeat(2, axis=2)[:, :, ::-1].transpose(0, 3, 1, 2)
    after = [t.RandomHorizontalFlip(1), t.ColorJitter(0.4), t.Normalize(MEAN, STD), t.RandomCrop((40, 60)), t.ToCHW()]
    for resized in (t.Resize((40, 60)), t.Fit((40, 60)), t.RandomResizedCrop((40, 60), scale=(1, 1), ratio=(1.5, 1.5))):
        outs = made_of(reader, [resized, *after])
        assert outs["image"].shape == (12, 3, 40, 60)
        assert outs["mask"].dtype == dtype
        np.testing.assert_array_equal(outs["mask"], wanted)
    layers = t.Lambda(lambda one: one[..., :1] == one.max(), field="mask", shape=(20, 30, 1), dtype="bool")
    own = made_of(reader, [t.RandomHorizontalFlip(1), layers])["mask"]
    np.testing.assert_array_equal(own, (mask == mask.max((1, 2, 3), keepdims=True))[:, :, ::-1, :1])


class Halved(t.Step):
    """A step as a user writes it: every other pixel."""

    def makes(self, spec: t.Spec) -> t.Spec:
        return spec.sized(10, 15)

    def apply(self, image: NDArray[Any], drawn: Any, out: Any = None) -> NDArray[Any]:
        return image[::2, ::2]


class HalvedWithMasks(Halved):
    apply_mask = Halved.apply


def test_what_resizes_images_alone_is_refused_beside_masks(tmp_path: Path) -> None:
    """A step or function of one's own that resizes must say what becomes of masks, or name its field."""
    mask = np.random.default_rng(5).integers(0, 5, (12, 20, 30, 1)).astype(np.uint8)
    reader = stored(tmp_path, {"image": mask.repeat(3, axis=3), "mask": mask}, mask="mask")
    for step in (Halved(), t.Lambda(lambda one: one[:10], shape=(10, 30, 3))):
        with pytest.raises(UsageError, match=r"changes the size of images, \(20, 30, 3\) to \(10, .*apply_mask"):
            made_of(reader, [step])
    np.testing.assert_array_equal(made_of(reader, [HalvedWithMasks()])["mask"], mask[:, ::2, ::2])
    alone = made_of(reader, [t.Lambda(lambda one: one[:10], field="image", shape=(10, 30, 3))])
    np.testing.assert_array_equal(alone["image"], mask.repeat(3, axis=3)[:, :10])
    np.testing.assert_array_equal(alone["mask"], mask)


@pytest.mark.parametrize("heights", [[20] * 12, [20, 21, 22] * 4], ids=["one size", "many sizes"])
def test_boxes_come_along_where_a_mask_comes_first(tmp_path: Path, heights: list[int]) -> None:
    """Also with steps that are not fit for the mask; of one size, or of many."""
    masks = [np.zeros((height, 30, 1), np.int64) for height in heights]
    arrays = {
        "image": [mask.astype(np.uint8).repeat(3, 2) for mask in masks],
        "mask": masks,
        "boxes": [np.array([[6, 7, 16, 9]], np.float32)] * 12,
    }
    reader = stored(tmp_path, arrays, mask="mask", boxes="xyxy[4]")
    steps = [t.Normalize(MEAN, STD), t.RandomHorizontalFlip(1), t.CenterCrop((10, 20))]
    for height, boxes in zip(heights, made_of(reader, steps, "mask", "image", "boxes")["boxes"], strict=True):
        top = round((height - 10) / 2)
        np.testing.assert_array_equal(boxes, [[30 - 16 - 5, 7 - top, 30 - 6 - 5, 9 - top]])


def test_a_crop_beside_the_image_has_none_of_its_boxes(tmp_path: Path) -> None:
    """With more padding than the crop is large, some crops are padding only: there, no box is left."""
    boxes = [np.array([[0, 0, 30, 20]], np.float32)] * 12
    reader = stored(tmp_path, {"image": np.ones((12, 20, 30, 3), np.uint8), "boxes": boxes}, boxes="xyxy[4]")
    outs = made_of(reader, [t.RandomCrop(8, padding=12)], "image", "boxes")
    seen = [bool(image.any()) for image in outs["image"]]
    assert [len(one) > 0 for one in outs["boxes"]] == seen
    assert len(set(seen)) == 2


def test_what_another_device_can_do_is_cut_off_field_by_field(tmp_path: Path) -> None:
    """The scaling of bytes at the end is cut off, and equals arithmetic; what is left draws the same numbers."""
    names, rng = ["image", "depth", "mask"], np.random.default_rng(0)
    arrays = {name: rng.integers(0, 256, (12, 9, 11, 3)).astype(np.uint8) for name in names}
    arrays["depth"] = arrays["depth"].astype(np.uint16) * 256
    reader = stored(tmp_path, arrays, depth="image", mask="mask")
    last = [t.Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3), fields=["image", "depth"]), t.ToCHW()]
    transform: list[Any] = [t.RandomCrop(7), t.RandomHorizontalFlip(), *last]
    cut, tails = cut_tails(plan_pipeline(transform, reader.fields, names))
    assert cut is not None
    assert list(tails) == ["image", "depth"]
    assert tails["depth"] == Tail(None, (), "float32", planes=True)  # ToCHW alone: Normalize is no table of uint16
    left = {name: np.empty((12, *(n or 0 for n in one.shape)), one.dtype) for name, one in cut.results.items()}
    assert [left[name].dtype for name in names] == ["uint8", "float32", "uint8"]
    cut.fill(reader._library, np.arange(12), left, (0, 0, -1), Times(), None)
    expected = made_of(reader, transform, *names)
    image = left["image"] * np.array(tails["image"].scale) + tails["image"].shift
    np.testing.assert_allclose(image.transpose(0, 3, 1, 2), expected["image"], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(left["depth"].transpose(0, 3, 1, 2), expected["depth"])
    np.testing.assert_array_equal(left["mask"], expected["mask"])
    one = {"image": reader.fields["image"]}
    alone, _ = cut_tails(plan_pipeline([t.Normalize(0.5, 0.5), t.ToCHW()], one, ["image"]))
    assert alone is None


class Given(t.Step):
    """A step as another package has it, which notes whether it could write to what it gets."""

    writable: ClassVar[set[bool]] = set()

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        self.writable.add(image.flags.writeable)
        return image

    apply_mask = apply


class GivenMany(Given):
    vectorized = True
    apply_many = Given.apply


@pytest.mark.parametrize(
    ("layout", "size"), [*((layout, 32) for layout in FORMATS), ("memmap", "keep"), ("lmdb", "keep")]
)
def test_functions_may_write_and_steps_may_not(packed: Packed, layout: str, size: object) -> None:
    """A function that changes its array in place is right, also where views of an image share it, and the store stays
    as it is; steps of others get arrays that they cannot write to."""
    reader = Reader(packed(layout, "--size", size))
    some = reader.select(range(12))

    def brighter(image: Any) -> Any:
        image += 1
        return image

    def pure(image: Any) -> Any:
        return brighter(image.copy())

    def made(*steps: Any) -> Any:
        return next(iter(some.batches(12, transform=steps, workers=0)))["image"]

    last = t.Fit((24, 24))
    first = [last] if size == "keep" else []
    for before in ([], [t.RandomCrop(24)], [t.RandomHorizontalFlip()], [t.ConvertImageDtype("float32")]):
        np.testing.assert_array_equal(made(*first, *before, brighter), made(*first, *before, pure))
        views, expected = (t.Views(3, [function, t.RandomHorizontalFlip()]) for function in (brighter, pure))
        np.testing.assert_array_equal(made(*first, *before, views), made(*first, *before, expected))
    assert not any(look(reader).damaged(row) for row in range(12))
    Given.writable.clear()
    labels = [type("Labels", (kind,), {"field": "label"})() for kind in (Given, GivenMany)]
    for steps in (
        [last, Given()], [t.CenterCrop(24), t.RandomHorizontalFlip(), Given()], [Given(), last],
        [last, GivenMany()], [last, t.Views(2, [Given()])], [last, lambda image: image, Given()], [last, *labels],
    ):  # fmt: skip
        made(*steps)
    assert Given.writable == {False}
