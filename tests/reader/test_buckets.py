"""Buckets: batches of one size each out of images of many sizes: which size an image gets, and which batch."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from reading import WAYS
from running import Packed

import rawpack_packer
from rawpack import Buckets, Reader, UsageError, Weighted, look, transforms
from rawpack.order.buckets import Bucketed
from rawpack.order.keys import derive_key
from rawpack.order.ranks import RankSplit
from rawpack.order.shuffled import BlockShuffled, Sequential, Shuffled
from rawpack.pixels.aspects import best_sizes, choose_sizes

BUCKETS = [(48, 48), (64, 40), (40, 64)]
SIDES = st.integers(1, 3000)
SIZE = st.tuples(SIDES, SIDES)
Size = tuple[int, int]


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    """75 images: of five sizes, with a few others."""
    return packed("memmap", "--size", "keep")


def sizes_of(reader: Reader) -> list[Size]:
    return [reader[i]["image"].shape[:2] for i in range(len(reader))]


# ---------------------------------------------------------------------------------------------- which size


def best_by_hand(image: Size, sizes: Sequence[Size]) -> tuple[int, Fraction]:
    """The bucket of an image, and the share of its pixels that it loses there, in exact numbers."""

    def told(number: int) -> tuple[Fraction, bool, Fraction, int]:
        size = sizes[number]
        scale = max(Fraction(size[0], image[0]), Fraction(size[1], image[1]))
        seen = (size[0] / scale) * (size[1] / scale)
        lost = 1 - seen / (image[0] * image[1])
        return lost, scale > 1, scale if scale > 1 else -scale, number

    lost, _, _, number = min(map(told, range(len(sizes))))
    return number, lost


@example([(200, 200), (64, 64), (63, 63), (40, 40), (10, 10)], [(32, 32), (64, 64), (48, 48)])
@given(st.lists(SIZE, min_size=1, max_size=20), st.lists(SIZE, min_size=1, max_size=6, unique=True))
def test_each_image_loses_least(images: list[Size], sizes: list[Size]) -> None:
    """The bucket is the one in which the image loses the smallest share of its pixels. Of equal ones it is the largest
    that does not enlarge the image, else the one that enlarges it least, else the first."""
    best, lost, enlarged = best_sizes(np.array(images, np.int32), sizes)
    for image, number, share, grown in zip(images, best.tolist(), lost.tolist(), enlarged.tolist(), strict=True):
        by_hand, exact = best_by_hand(image, sizes)
        assert math.isclose(share, exact, abs_tol=1e-12)
        assert number == by_hand
        assert grown == (max(sizes[number][0] / image[0], sizes[number][1] / image[1]) > 1)


def losses(images: list[Size], sizes: Sequence[Size]) -> float:
    """The share of all pixels that is lost."""
    pixels = sum(height * width for height, width in images)
    return float(sum(best_by_hand(one, sizes)[1] * one[0] * one[1] for one in images) / pixels)


def test_auto_has_rules_that_people_know() -> None:
    """Sides are multiples of 32, or of 16 or 8 for small images; areas are near the one asked for; photographs of the
    usual shapes lose little in few sizes."""
    shapes = [(3, 2), (2, 3), (4, 3), (3, 4), (1, 1), (16, 9), (9, 16)]
    images = np.array([(shape[0] * 300, shape[1] * 300) for shape in shapes for _ in range(10)], np.int32)
    for side, step in ((1024, 32), (512, 32), (400, 16), (256, 16), (224, 8), (64, 8)):
        chosen = choose_sizes(images, side * side)
        assert len(chosen) <= 8
        for height, width in chosen:
            assert height % step == width % step == 0
            assert abs(height * width / side**2 - 1) < 0.15
        assert chosen == sorted(chosen, key=lambda size: size[1] / size[0])
        assert losses([(h, w) for h, w in images.tolist()], chosen) < (0.03 if side > 64 else 0.05)
    assert choose_sizes(np.array([(500, 500)], np.int32), 512 * 512) == [(512, 512)]
    assert choose_sizes(np.array([(3, 3)], np.int32), 9) == [(8, 8)]
    assert choose_sizes(np.array([(5, 6000)], np.int32), 256 * 256) == [(128, 512)]


# ---------------------------------------------------------------------------------------------- which batch


@settings(deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**40),
    st.integers(1, 6), st.sampled_from(["pad", "keep", "drop"]),
)  # fmt: skip
def test_steps_of_ranks(n: int, count: int, batch_size: int, seed: int, world_size: int, how: str) -> None:
    """All ranks of a step are in one bucket, and only the last step of a bucket is short: filled up with as few of its
    samples as possible, so that all are of one length, or divided, or left out."""
    of = np.random.default_rng(seed).integers(0, count, n).astype(np.uint8)
    order = Bucketed(Shuffled(n, seed), of, count, batch_size, seed)
    steps: dict[int, list[list[int]]] = defaultdict(list)
    for rank in range(world_size):
        base = RankSplit(n, batch_size, rank, world_size, "keep" if how == "keep" else "pad", how == "drop")
        split = order.split(base, 0)
        for step in range(split.count(0)):
            steps[step].append(split.batch(step, 0).samples(order, 0).tolist())
    size, seen = batch_size * world_size, [row for ranks in steps.values() for rows in ranks for row in rows]
    assert all(len({int(of[row]) for rows in ranks for row in rows}) == 1 for ranks in steps.values())
    for bucket, members in enumerate(np.bincount(of, minlength=count).tolist()):
        its = [[len(rows) for rows in ranks] for ranks in steps.values() if of[ranks[0][0]] == bucket]
        whole, rest = divmod(members, size)
        assert its[:whole] == [[batch_size] * world_size] * whole
        short = {"pad": [math.ceil(rest / world_size)] * world_size, "keep": its[-1] if its else [], "drop": []}[how]
        assert its[whole:] == ([short] if rest and short else [])
        assert how != "keep" or max(short, default=0) - min(short, default=0) <= 1
    assert how == "drop" or set(seen) == set(range(n))
    assert how == "pad" or len(seen) == len(set(seen))


def dealt_by_hand(samples: list[int], of: NDArray[np.uint8], batch_size: int, seed: int, epoch: int) -> list[int]:
    """The whole order of one rank, dealt sample by sample."""
    batches = list[tuple[int, list[int]]]()
    for bucket in range(int(of.max()) + 1):
        its = [(place, sample) for place, sample in enumerate(samples) if of[sample] == bucket]
        key = derive_key("bucket", seed, epoch, bucket)
        for start in range(0, len(its), batch_size):
            batch = its[start : start + batch_size]
            batches.append((batch[key * len(batch) >> 64][0], [sample for _, sample in batch]))
    return [sample for _, batch in sorted(batches) for sample in batch]


def test_the_order_is_that_of_version_1() -> None:
    """What seed and epoch give is what dealing by hand gives, and never changes. Not shuffled, the batch with the first
    sample comes first."""
    of = np.random.default_rng(3).integers(0, 4, 300).astype(np.uint8)
    bases = Shuffled(300, 8), BlockShuffled(300, 8, 4, 2)
    for base, batch_size, epoch in itertools.product(bases, (1, 7, 64, 400), (0, 5)):
        order = Bucketed(base, of, 4, batch_size, 8)
        expected = dealt_by_hand(base.samples(epoch, 0, 300).tolist(), of, batch_size, 8, epoch)
        assert order.samples(epoch, 0, 300).tolist() == expected
        assert order.samples(epoch, 90, 200).tolist() == expected[90:200]
    few = Bucketed(Shuffled(12, 11), np.arange(12).astype(np.uint8) % 2, 2, 4, 11)
    assert few.samples(2, 0, 12).tolist() == [10, 4, 2, 0, 5, 1, 7, 11, 9, 3, 6, 8]
    plain = Bucketed(Sequential(10), np.array([1, 1, 0, 0, 0, 1, 1, 0, 0, 0], np.uint8), 2, 2, 5)
    assert plain.samples(3, 0, 10).tolist() == [0, 1, 2, 3, 4, 7, 5, 6, 8, 9]


# ---------------------------------------------------------------------------------------------- batches


def fitted(image: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """An image, resized to cover a size and cropped to its center, by Pillow."""
    scale = max(size[0] / image.shape[0], size[1] / image.shape[1])
    seen = size[0] / scale, size[1] / scale
    top, left = ((whole - part) / 2 for whole, part in zip(image.shape, seen, strict=False))
    box = left, top, left + seen[1], top + seen[0]
    resized = Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR, box=box)
    return np.asarray(resized)


@pytest.mark.parametrize(("layout", "way"), [("hdf5-gzip", "here"), ("memmap", "threads"), ("lmdb", "processes")])
def test_batches_have_one_size_each(packed: Packed, layout: str, way: str) -> None:
    """In every format and with all kinds of workers: each image is in a batch of the size in which it loses least,
    resized and cropped, and everything else of the sample is with it."""
    reader = Reader(packed(layout, "--size", "keep"))
    batches = reader.batches(
        7, shuffle=True, seed=2, fields=["image", "label", "key"], image_size=Buckets(BUCKETS), **WAYS[way]
    )
    assert batches.buckets is not None
    seen, sizes = list[int](), set[Size]()
    for batch in itertools.chain(batches, batches):
        size = batch["image"].shape[1:3]
        sizes.add(size)
        assert len(batch["image"]) <= 7
        for image, label, key, row in zip(*(batch[name] for name in ("image", "label", "key", "index")), strict=True):
            sample = reader[row]
            assert size == BUCKETS[best_by_hand(sample["image"].shape[:2], BUCKETS)[0]]
            assert (label, key) == (sample["label"], sample["key"])
            difference = np.abs(image.astype(float) - fitted(sample["image"], size))
            assert difference.mean() < 3
            seen.append(int(row))
    assert sizes == set(BUCKETS)
    assert sorted(seen) == sorted([*range(len(reader))] * 2)


def test_a_transform_comes_after(reader: Reader) -> None:
    """Steps on images and on whole batches work on each size; a crop may bring all sizes to one."""
    labelled = reader.select(mask=reader.column("label") >= 0)
    cases: list[tuple[list[Any], set[Any]]] = [
        ([transforms.ToCHW(), transforms.CutMix(num_classes=6)], {(3, *size) for size in BUCKETS}),
        ([transforms.RandomCrop(32)], {(32, 32, 3)}),
    ]
    for steps, sizes in cases:
        batches = labelled.batches(6, transform=steps, image_size=Buckets(BUCKETS), **WAYS["threads"])
        assert {batch["image"].shape[1:] for batch in batches} == sizes


# ---------------------------------------------------------------------------------------------- reported and refused


def test_the_share_of_pixels_lost(reader: Reader) -> None:
    """`buckets` has the figures of each size; the repr of the batches has the total."""
    some = reader.select(range(5, 60))
    batches, images = some.batches(7, workers=0, image_size=Buckets(BUCKETS)), sizes_of(some)
    assert batches.buckets is not None
    for number, bucket in enumerate(batches.buckets):
        its = [image for image in images if best_by_hand(image, BUCKETS)[0] == number]
        assert (bucket.size, bucket.samples) == (BUCKETS[number], len(its))
        assert math.isclose(bucket.lost, losses(its, BUCKETS))
        assert bucket.enlarged == sum(h < bucket.size[0] or w < bucket.size[1] for h, w in its)
    assert f"3 sizes, {losses(images, BUCKETS):.1%} of the pixels lost" in repr(batches)


def test_a_changed_state_is_refused(reader: Reader) -> None:
    """What it says was consumed of each bucket must be what a run can have consumed."""
    batches = reader.batches(4, shuffle=True, image_size=Buckets(BUCKETS), workers=0)
    next(iter(batches))
    state = batches.state_dict()
    for wrong in (None, [4, 0], [4, 0, 0, 0], [4.0, 0, 0], [-4, 8, 0], [3, 1, 0], [99, 0, 0], [8, 0, 0]):
        with pytest.raises(UsageError, match="this state is damaged: consumed"):
            batches.load_state_dict(state | {"consumed": wrong})


def test_auto_takes_the_sizes_from_the_index(reader: Reader) -> None:
    """ "auto" chooses sizes of about the median of the images, or as many pixels as `area` says."""
    pixels = np.median([height * width for height, width in sizes_of(reader)])
    for buckets, area in ((Buckets("auto"), pixels), (Buckets("auto", area=32), 32**2)):
        batches = reader.batches(4, workers=0, image_size=buckets)
        assert batches.buckets is not None
        assert all(abs(h * w / area - 1) < 0.3 for h, w in batches.buckets.sizes)
        assert {batch["image"].shape[1:3] for batch in batches} <= set(batches.buckets.sizes)


def test_what_makes_no_sense_is_refused(reader: Reader, packed: Packed) -> None:
    """With what is wrong, and what to pass instead."""
    one_size = Reader(packed("memmap", "--size", 48))
    wrong: list[tuple[Reader, Any, dict[str, Any], str]] = [
        (reader, "square", {}, "pass "),
        (reader, [(64, 64), (64, 0)], {}, r"Buckets has \(64, 0\), which is not a size"),
        (reader, [(64, 64), (64, 64)], {}, "Buckets has 64x64 twice"),
        (reader, [(1, n) for n in range(1, 258)], {}, "Buckets has 257 sizes: pass at most 256"),
        (reader, BUCKETS, {"area": 32}, r'area= is for Buckets\("auto"\): leave it out'),
        (one_size, "auto", {}, r"all images of the store are 48x48.*pass a size as image_size="),
        (reader, "auto", {"area": 20_000}, "400000000 pixels are too many for one image"),
        (reader.select([]), "auto", {}, "there are no samples"),
        (Reader.mix([(reader, 1), (reader, 2)]), BUCKETS, {}, "a mix decides what is in each batch"),
    ]
    for of, sizes, options, problem in wrong:
        with pytest.raises(UsageError, match=problem):
            of.batches(4, image_size=Buckets(sizes, **options))
    with pytest.raises(UsageError, match=r"data_iter\(\) .*leave out Buckets"):
        reader.batches(4, workers=0, image_size=Buckets(BUCKETS)).data_iter()


# ---------------------------------------------------------------------------------------------- what comes with images


def painted(number: int) -> dict[str, Any]:
    """A gray image of its own size with a bright rectangle, the same as a mask, and as a box with the number."""
    height, width = 40 + 7 * (number % 5), 90 - 9 * (number % 7)
    mask = np.zeros((height, width), np.uint8)
    mask[10 : height - 8, 15 : width - 20] = 255
    return {
        "image": Image.fromarray(np.repeat(mask[..., None], 3, axis=2)), "mask": mask, "number": number,
        "boxes": np.array([[15, 10, width - 20, height - 8, number]], np.float32), "caption": f"no. {number}",
    }  # fmt: skip


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    where = tmp_path_factory.mktemp("detection") / "store"
    fields = {"mask": "mask", "boxes": "xyxy"}
    rawpack_packer.pack([painted(n) for n in range(30)], where, fields=fields, size="keep", workers=0)
    return Reader(where)


@pytest.mark.parametrize(("way", "ragged"), [("here", "list"), ("processes", "pad")])
def test_masks_boxes_and_texts_stay_with_their_images(detection: Reader, way: str, ragged: Any) -> None:
    """Masks have the batch's size too, boxes move with their images, and texts are those of the same samples."""
    fields, sizes = ["image", "mask", "boxes", "caption", "number"], [(32, 64), (48, 48), (56, 40)]
    batches = detection.batches(4, shuffle=True, fields=fields, ragged=ragged, image_size=Buckets(sizes), **WAYS[way])
    seen = set()
    for batch in batches:
        size = batch["image"].shape[1:3]
        assert batch["mask"].shape[1:3] == size
        seen.add(size)
        for i, number in enumerate(batch["number"].tolist()):
            assert batch["caption"][i] == f"no. {number}"
            left, top, right, bottom, tag = batch["boxes"][i][0]
            assert tag == number
            assert ((batch["image"][i, ..., 0] > 127) == (batch["mask"][i, ..., 0] > 127)).mean() > 0.93
            rows, columns = np.nonzero(batch["mask"][i, ..., 0])
            edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert np.allclose((left, top, right, bottom), edges, atol=1.5)
    assert seen == set(sizes)


# ---------------------------------------------------------------------------------------------- clips by length

VIDEOS = [range(50), range(9), range(20), range(70, 75), range(33), [*range(6), *range(20, 41)], range(16)]
"""The numbers of the frames of each video; the sixth has a gap."""
LENGTHS = [8, 16, 32]


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(pack_frames(Frames(VIDEOS), tmp_path_factory.mktemp("frames") / "store"))


def clips_by_hand(lengths: Sequence[int], stride: int = 1, step: int | None = None) -> list[list[int]]:
    """The rows of all clips: each video has those of the longest that it can fill."""
    clips, row = list[list[int]](), 0
    for video in VIDEOS:
        runs = [[row]]
        for before, frame in itertools.pairwise(video):
            row += 1
            runs.append([row]) if frame != before + 1 else runs[-1].append(row)
        row += 1
        fitting = [n for n in lengths if any(len(run) > (n - 1) * stride for run in runs)]
        for run in runs if fitting else ():
            span = (max(fitting) - 1) * stride + 1
            for start in range(0, len(run) - span + 1, step or max(fitting) * stride):
                clips.append(run[start : start + span : stride])
    return clips


@pytest.mark.filterwarnings("ignore:.*which are left out")
@pytest.mark.parametrize(("stride", "step"), [(1, None), (2, None), (1, 5)])
def test_a_video_has_the_longest_clips_that_it_fills(frames: Reader, stride: int, step: int | None) -> None:
    """Their numbers, rows and fields are right, by themselves and in batches, each of which has one length."""
    clips = frames.clips([32, 8, 16], stride=stride, step=step)
    expected = clips_by_hand(LENGTHS, stride, step)
    assert look(clips).left_out == len(VIDEOS) - len({frames[rows[0]]["video"] for rows in expected})
    assert clips[[0, len(clips) - 1]]["clip"].tolist() == [0, len(clips) - 1]
    assert clips.column("video").tolist() == [frames[rows[0]]["video"] for rows in expected]
    with pytest.raises(UsageError, match="'frame' of clips of several lengths"):
        clips.column("frame")
    options: dict[str, Any] = {"fields": ["image", "mask", "caption", "boxes", "store_row"], "ragged": "pad"}
    options |= {"shuffle": True, "transform": [transforms.RandomCrop(8)]}
    for reader in (clips, clips.select(range(1, len(clips), 2))):
        seen, captions = list[int](), {clip: clips[clip]["caption"] for clip in range(len(clips))}
        for batch in reader.batches(3, **options, **WAYS["threads"]):
            count = batch["store_row"].shape[1]
            assert batch["image"].shape[1:] == (count, 8, 8, 3)
            assert batch["mask"].shape[1:4] == (count, 8, 8)
            assert batch["boxes"].shape[:2] == batch["store_row"].shape
            numbers = batch["clip"].tolist()
            assert batch["store_row"].tolist() == [expected[number] for number in numbers]
            assert batch["caption"] == [captions[number] for number in numbers]
            seen += batch["index"].tolist()
        assert sorted(seen) == list(range(len(reader)))


@pytest.mark.filterwarnings("ignore:.*which are left out")
def test_random_and_padded_clips_of_several_lengths(frames: Reader) -> None:
    """Random clips have the longest length that their video fills; a video that is too short for all has padded ones of
    the shortest."""
    found, clips = dict[int, int](), frames.clips(LENGTHS, per_video=3)
    for batch in clips.batches(2, shuffle=True, workers=0, fields=["frame", "video"]):
        for number, its, video in zip(batch["clip"].tolist(), batch["frame"], batch["video"].tolist(), strict=True):
            assert (np.diff(its) == 1).all()
            assert set(its.tolist()) <= set(VIDEOS[video])
            found[number] = len(its)
    assert [found[number] for number in range(0, 18, 3)] == [32, 8, 16, 32, 16, 16]
    assert sorted(found) == list(range(18))
    padded = frames.clips(LENGTHS, short="repeat_last")
    assert look(padded).left_out == 0
    assert padded[3]["frame"].tolist() == [70, 71, 72, 73, 74, 74, 74, 74]
    for wrong in ([], [8, 8], [0, 8], list(range(1, 300))):
        with pytest.raises(UsageError, match="frames="):
            frames.clips(wrong)
    with pytest.raises(UsageError, match="Buckets are for clips of one length"):
        padded.batches(2, image_size=Buckets([(8, 8)]))
    with pytest.raises(UsageError, match="a mix decides what is in each batch"):
        Reader.mix([(frames, 1), (frames, 2)]).clips([2, 4]).batches(4)


# ---------------------------------------------------------------------------------------------- with other orders


def test_samples_that_repeat_are_dealt_too(reader: Reader) -> None:
    """Each position comes once, in batches of one bucket, and random numbers differ from position to position, also
    between buckets."""
    options: dict[str, Any] = {"sampler": Weighted(np.repeat([1.0, 20.0], 15), length=90), "seed": 3, "workers": 0}
    some = reader.select(range(30))
    rows = sorted(row for batch in some.batches(5, fields=["label"], **options) for row in batch["index"].tolist())
    crop = [transforms.RandomCrop(24)]
    seen = [
        (row, image.tobytes())
        for batch in some.batches(5, transform=crop, image_size=Buckets(BUCKETS), **options)
        for row, image in zip(batch["index"].tolist(), batch["image"], strict=True)
    ]
    assert sorted(row for row, _ in seen) == rows
    assert len({*rows}) < 30 < 85 < len({*seen})
