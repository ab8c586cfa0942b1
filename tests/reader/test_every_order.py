"""Whatever the samples and their order are: the same batches whoever makes them, and a run that stops anywhere goes on
with exactly what is left, by any number of ranks."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from reading import WAYS, placed, rows_of
from running import Packed

from rawpack import Balanced, Batches, Blocks, Buckets, Ranks, Reader, UsageError, Weighted
from rawpack.transforms import RandomCrop, RandomHorizontalFlip

pytestmark = pytest.mark.filterwarnings("ignore:.*consecutive frames:RuntimeWarning")
SAMPLES, BATCH, WORLD = 23, 3, 3
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 5}
SIZES = Buckets([(48, 48), (64, 40), (40, 64)])
OFFSETS: dict[str, list[float]] = {"image": [-0.04, 0.0], "motion": [0.0, 0.08, 0.2]}

Asked = tuple[Reader, dict[str, Any]]


class Readers(NamedTuple):
    """Of so few samples that each position of an epoch can be tried."""

    few: Reader
    sizes: Reader
    """Of images of several sizes."""
    frames: Reader
    """Of seven videos."""


def some_of(epoch: int) -> Any:
    """A sampler whose epochs have different lengths, with samples that repeat."""
    return np.random.default_rng(epoch).integers(0, SAMPLES, 14 + 3 * epoch)


KINDS: dict[str, Callable[[Readers], Asked]] = {
    "as stored": lambda of: (of.few, {}),
    "shuffled": lambda of: (of.few, SHUFFLED),
    "in blocks": lambda of: (of.few, {"shuffle": Blocks(block=4, window=2)}),
    "a list": lambda of: (of.few, {"sampler": [5, 3, 3, 22, 0, 7, 5, 11, 12, 1]}),
    "a function of the epoch": lambda of: (of.few, {"sampler": some_of}),
    "balanced": lambda of: (of.few, {"sampler": Balanced("label")}),
    "balanced anew": lambda of: (of.few, {"sampler": Balanced("label", replacement=True)}),
    "weighted": lambda of: (of.few, {"sampler": Weighted(np.arange(SAMPLES))}),
    "weighted in turn": lambda of: (of.few, {"sampler": Weighted("label", replacement=False)}),
    "a mix": lambda of: (Reader.mix([(of.few.select(range(9)), 1), (of.few, 2)]), SHUFFLED),
    "buckets": lambda of: (of.sizes, {"image_size": SIZES} | SHUFFLED),
    "weighted in buckets": lambda of: (of.sizes, {"image_size": SIZES, "sampler": Weighted("label")}),
    "clips": lambda of: (of.frames.clips(3, stride=2, step=3), SHUFFLED),
    "random clips": lambda of: (of.frames.clips(3, per_video=4), SHUFFLED),
    "clips of several lengths": lambda of: (of.frames.clips([2, 4, 8], step=1), SHUFFLED),
    "frames at offsets": lambda of: (of.frames.select(range(30)).clips(offsets=OFFSETS), SHUFFLED),
    "fewer samples than ranks": lambda of: (of.few.select(range(2)), {}),
}
"""Every kind of order, and of samples -> the reader and the options that make it."""

Made = Callable[..., Batches]


@pytest.fixture(scope="module")
def readers(packed: Packed, tmp_path_factory: pytest.TempPathFactory) -> Readers:
    few, sizes = (Reader(packed("memmap", "--size", size)).select(range(10, 10 + SAMPLES)) for size in (48, "keep"))
    videos = Frames([range(length) for length in (12, 2, 2, 3, 5, 7, 17)])
    return Readers(few, sizes, Reader(pack_frames(videos, tmp_path_factory.mktemp("frames") / "s")))


@pytest.fixture
def made(request: pytest.FixtureRequest, readers: Readers) -> Made:
    """`made(rank, world_size)`: batches of one kind."""
    reader, asked = KINDS[request.param](readers)

    def make(rank: int = 0, world_size: int = 1, copied: bool = False, **options: Any) -> Batches:
        of = pickle.loads(pickle.dumps(reader)) if copied else reader
        given: dict[str, Any] = {"workers": 0, "fields": ["label"]} | asked | options
        return of.batches(BATCH, ranks=Ranks(rank, world_size, last="keep"), **given)

    return make


def as_saved(state: dict[str, Any]) -> dict[str, Any]:
    """A state as a checkpoint file gives it back."""
    loaded: dict[str, Any] = json.loads(json.dumps(state))
    return loaded


def equal(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether batches are the same, to the bit."""
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    ("made", "way"),
    [(kind, ("threads", "processes")[number % 2]) for number, kind in enumerate(KINDS)],
    indirect=["made"],
)
def test_the_same_whoever_makes_them(made: Made, way: str) -> None:
    """Two epochs, bit by bit, with random crops and flips: here and by workers, and by a pickled copy. The state after
    any batch, which also goes by its number, resumes with the very next one."""
    options: dict[str, Any] = {"fields": ["image", "label"], "transform": [RandomCrop(10), RandomHorizontalFlip()]}
    alone = made(**options)
    epochs = [list(alone) for _ in range(3)]
    for how in (WAYS["here"], WAYS[way]):
        batches, again = made(**options, **how), made(copied=True, **options, **how)
        for number, whole in enumerate(epochs[:2]):
            found = list(batches)
            assert equal(found, whole)
            for step, batch in enumerate(found, 1):
                state = as_saved(batches.state_dict(after=batch))
                assert state == batches.state_dict(after=step)
                if step in (len(found) // 2 + number, len(found)):
                    again.load_state_dict(state)
                    assert equal(list(again), whole[step:] or epochs[number + 1])


def loop_over(batches: Any, how: str) -> tuple[Any, Iterator[dict[str, Any]]]:
    """What has the state, and what gives the batches."""
    if how == "queue":
        queue = batches.queue(epochs=1)
        return queue, queue
    owner = placed(batches, depth=2) if how == "placed" else batches
    return owner, iter(owner)


@pytest.mark.parametrize(
    ("made", "how"),
    [*((kind, "numpy") for kind in KINDS), *itertools.product(["shuffled", "a mix", "buckets"], ["placed", "queue"])],
    indirect=["made"],
)
def test_any_rank_resumes_any_ranks(made: Made, how: str) -> None:
    """Ranks that step together have the same state, also where some have no batch in the last step, or none at all. Any
    number of ranks reads exactly the rest from it, and then the next epoch; to save and to load again adds nothing."""
    alone = made()
    epochs = [sorted(rows_of(alone)) for _ in range(3)]
    resumed = [[made(rank, world) for rank in range(world)] for world in (1, 2, WORLD)]
    ranks = [made(rank, WORLD) for rank in range(WORLD)]
    steps, rows = max(map(len, ranks)), list[int]()
    owners, loops = zip(*(loop_over(batches, how) for batches in ranks), strict=True)
    for step in range(steps + 1):
        states = [as_saved(owner.state_dict()) for owner in owners]
        assert states == [owner.state_dict(after=step) for owner in owners] == states[:1] * WORLD
        epoch, left = states[0]["epoch"], [*rows]
        assert epoch == (step == steps)
        if epoch:
            assert states[0]["position"] == 0
            left = []
        others = resumed[step % len(resumed)]
        for batches in others:
            for _ in range(2):
                batches.load_state_dict(states[0])
                assert batches.state_dict() == states[0]
            left += rows_of(batches)
        assert sorted(left) == epochs[epoch]
        assert sorted(row for batches in others for row in rows_of(batches)) == epochs[epoch + 1]
        for loop in loops:
            batch = next(loop, None)
            rows += [] if batch is None else batch["index"].tolist()


@pytest.mark.parametrize("made", ["buckets"], indirect=True)
def test_ranks_that_end_one_after_another(made: Made) -> None:
    """Where several sizes end with fewer samples than ranks, the first rank still has a batch in each step: its state,
    and that of any rank by the number of steps, resumes with exactly the rest."""
    ranks, whole, rows = [made(rank, 10) for rank in range(10)], sorted(rows_of(made())), list[int]()
    loops = [iter(batches) for batches in ranks]
    assert [len(batches) for batches in ranks] == sorted((len(batches) for batches in ranks), reverse=True)
    assert len(ranks[0]) > len(ranks[-1]) + 1
    for step in range(1, len(ranks[0])):
        for batch in (next(loop, None) for loop in loops):
            rows += [] if batch is None else batch["index"].tolist()
        state = as_saved(ranks[0].state_dict())
        assert [batches.state_dict(after=step) for batches in ranks] == [state] * 10
        again = made()
        again.load_state_dict(state)
        assert sorted(rows + rows_of(again)) == whole


def clips_of(**changed: Any) -> Callable[[Readers], Asked]:
    return lambda of: (of.frames.clips(**{"frames": 3, "stride": 2, "step": 3} | changed), SHUFFLED)


def mix_of(*shares: float, **options: Any) -> Callable[[Readers], Asked]:
    return lambda of: (
        Reader.mix(list(zip((of.few.select(range(9)), of.few), shares, strict=True)), **options),
        SHUFFLED,
    )


def weighted(weights: Any, **options: Any) -> Callable[[Readers], Asked]:
    return lambda of: (of.few, {"sampler": Weighted(weights, **options)})


OTHERS: list[tuple[str, Callable[[Readers], Asked], str]] = [
    ("shuffled", lambda of: (of.few, SHUFFLED | {"seed": 6}), "its seed is 5, here it is 6"),
    ("shuffled", lambda of: (of.few, {"seed": 5}), "its order is 'shuffled', here it is 'sequential'"),
    ("shuffled", lambda of: (of.few, SHUFFLED | {"shuffle": "block"}), "here it is 'block 32 256'"),
    ("shuffled", lambda of: (of.few.select(range(20)), SHUFFLED), "it is of another selection of these"),
    ("shuffled", lambda of: (of.few.select(range(23)[::-1]), SHUFFLED), "another selection of these"),
    ("shuffled", lambda of: (of.frames, SHUFFLED), "another store or split: 75 samples, here 48"),
    ("a mix", lambda of: (mix_of(1, 2)(of)[0], SHUFFLED | {"batch_size": 4}),
     r"its batch_size is 3, here it is 4; resume with the same .*batch_size"),
    ("a mix", mix_of(1, 3), "its order is"),
    ("a mix", mix_of(2, 1), "its order is"),
    ("a mix", mix_of(1, 2, length=100), "its order is"),
    ("buckets", lambda of: (of.sizes, SHUFFLED | {"image_size": SIZES, "batch_size": 4}),
     r"its batch_size is 3, here it is 4; .* batch_size, buckets"),
    ("buckets", lambda of: (of.sizes, SHUFFLED | {"image_size": Buckets([(48, 48), (64, 40)])}),
     "its buckets is '48x48 64x40 40x64 .*, here it is '48x48 64x40 "),
    ("buckets", lambda of: (of.sizes, SHUFFLED | {"image_size": 32}),
     "its order is 'shuffled in buckets', here it is 'shuffled'"),
    ("balanced", lambda of: (of.few, {"sampler": Balanced("label"), "batch_size": 4}), "its batch_size is"),
    ("weighted", weighted(np.arange(SAMPLES)[::-1]), "its order is 'weighted"),
    ("weighted", weighted(np.arange(SAMPLES), replacement=False), "its order is 'weighted"),
    ("weighted", weighted(np.arange(SAMPLES), length=5), "its order is 'weighted"),
    ("clips", clips_of(frames=4), "its clips is"),
    ("clips", clips_of(stride=1), "its clips is"),
    ("clips", clips_of(step=4), "its clips is"),
    ("clips", clips_of(step=None, per_video=4), "its clips is"),
    ("clips", clips_of(short="wrap"), "its clips is"),
    ("clips", lambda of: (of.frames, SHUFFLED), "its clips is"),
    ("clips of several lengths", lambda of: (of.frames.clips([2, 4], step=1), SHUFFLED), "its clips is"),
    ("frames at offsets", lambda of: (
        of.frames.select(range(30)).clips(offsets=OFFSETS | {"motion": [0.0]}), SHUFFLED), "its clips is"),
]  # fmt: skip
"""What a state was saved of -> with what it does not fit, and what is said."""


@pytest.mark.parametrize(("made", "other", "words"), OTHERS, indirect=["made"])
def test_a_state_of_others_is_refused(made: Made, readers: Readers, other: Any, words: str) -> None:
    """Where other samples would follow than those that were left: the error says in what the two differ."""
    reader, asked = other(readers)
    batches = reader.batches(**{"batch_size": BATCH, "workers": 0} | asked)
    with pytest.raises(UsageError, match=words):
        batches.load_state_dict(as_saved(made().state_dict()))


@pytest.mark.parametrize(
    ("made", "other"),
    [
        ("weighted", weighted(2 * np.arange(SAMPLES))),
        ("shuffled", lambda of: (of.few, SHUFFLED | {"batch_size": 7})),
        ("clips", clips_of(frames=[3])),
    ],
    indirect=["made"],
)
def test_what_gives_the_same_samples_may_change(made: Made, readers: Readers, other: Any) -> None:
    """Weights of the same ratios, the number of samples in a batch, one length of clips in a list."""
    reader, asked = other(readers)
    again, batches = reader.batches(**{"batch_size": BATCH, "workers": 0} | asked), made()
    whole = rows_of(batches)
    again.load_state_dict(as_saved(batches.state_dict(after=2)))
    assert rows_of(again) == whole[2 * BATCH :]
