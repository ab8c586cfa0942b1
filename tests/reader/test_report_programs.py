"""Programs of the shape that people wrote, measured and reported before rawpack: a loader by MXNet's protocol over a
folder of train and val, and clips that several producers put into a queue, which several threads take from.

What was read is known from the pixels: each photograph has a color of its own, and each frame of video shows a number.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import save
from reading import wait_until
from real_data import real

import rawpack_packer
from rawpack import Reader, Workers
from rawpack.transforms import BatchLambda, RandomHorizontalFlip, RandomResizedCrop

# ---------------------------------------------------------------------------------------------- DataIter, train and val

TRAIN, VAL = range(42), range(42, 55)
"""The numbers of the photographs."""


def color_of(number: int) -> tuple[int, ...]:
    return tuple(32 + 64 * (number >> bits & 3) for bits in (0, 2, 4))


def photo_of(planes: NDArray[Any]) -> int:
    """The number of the photograph that an image (3, H, W) is a part of."""
    levels = np.rint((planes.mean((1, 2)) - 32) / 64).astype(int).tolist()
    return sum(level << bits for level, bits in zip(levels, (0, 2, 4), strict=True))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train/` and `val/`, packed. Photographs of odd numbers are tulips."""
    root = tmp_path_factory.mktemp("flowers")
    for split, numbers in (("train", TRAIN), ("val", VAL)):
        for number in numbers:
            name = f"{split}/{('rose', 'tulip')[number % 2]}/{number:02}.jpg"
            save(root / "photos" / name, np.full((50 + number, 90 - number, 3), color_of(number), np.uint8))
    rawpack_packer.pack_splits(root / "photos", root / "store", splits=["train", "val"], size=48, workers=0)
    return root / "store"


class Context:
    """A device with memory of its own, as `mx.gpu(0)` is one: what is put there are float32 copies."""

    def __init__(self) -> None:
        self.copied = 0

    def put(self, array: NDArray[Any]) -> NDArray[np.float32]:
        self.copied += array.nbytes
        return np.array(array, np.float32)


def image_iters(store: Path, batch_size: int, ctx: Context, **workers: Any) -> tuple[Any, Any]:
    """The loaders of train and val, as the report's own class made them of a root, a batch size, a device and a number
    of processes."""
    augment = [RandomResizedCrop(32, scale=(0.3, 1)), RandomHorizontalFlip()]
    train = Reader(store, split="train").batches(batch_size, shuffle=True, seed=7, transform=augment, **workers)
    val = Reader(store, split="val").batches(batch_size, image_size=32, **workers)
    return train.data_iter(place=ctx.put), val.data_iter(place=ctx.put)


def numbers_in(batch: Any, keep: list[Any] | None = None) -> list[int]:
    """The photographs of a batch without those that fill it up; their labels are checked."""
    images, labels = batch.data[0], batch.label[0]
    assert (images.shape, images.dtype, labels.shape) == ((8, 3, 32, 32), np.float32, (8,))
    numbers = [photo_of(image) for image in images]
    assert [number % 2 for number in numbers] == labels.tolist()
    if keep is not None:
        keep.append((numbers, images))
    return numbers[: 8 - batch.pad]


@pytest.mark.parametrize(
    "workers", [{"workers": 0}, {"workers": Workers(2, backend="process")}], ids=["one", "several"]
)
def test_a_loader_of_train_and_val(photos: Path, workers: dict[str, Any]) -> None:
    """Over three epochs, with one process and with several: each photograph of train once an epoch, each in another
    order, then each of val; all of them with their labels. What the loop keeps does not change. No copy is larger than
    the bytes of the pixels."""
    ctx, kept, orders = Context(), list[Any](), list[list[int]]()
    train, val = image_iters(photos, 8, ctx, **workers)
    assert (train.provide_data[0].shape, len(train), len(val)) == ((8, 3, 32, 32), 6, 2)
    ctx.copied = 0
    for _ in range(3):
        orders.append([number for batch in train for number in numbers_in(batch, kept)])
        train.reset()
        assert sorted(number for batch in val for number in numbers_in(batch, kept)) == list(VAL)
        val.reset()
    assert [sorted(order) for order in orders] == [list(TRAIN)] * 3
    assert len(set(map(tuple, orders))) == 3
    assert ctx.copied == 3 * 8 * 8 * (3 * 32 * 32 + 8), "uint8 images and int64 labels"
    assert all([photo_of(image) for image in images] == numbers for numbers, images in kept)


def test_a_loader_that_was_killed(photos: Path) -> None:
    """From any batch on, a new loader gives what the old one would have given, with the same crops, the rows that fill
    up the last batch, and the next epoch."""

    def loader() -> Any:
        return image_iters(photos, 8, Context(), workers=0)[0]

    def run(train: Any, epochs: int) -> list[tuple[NDArray[Any], int, str]]:
        seen = []
        for _ in range(epochs):
            seen += [(batch.data[0], batch.pad, json.dumps(train.state_dict(after=batch))) for batch in train]
            train.reset()
        return seen

    whole = run(loader(), 2)
    for done in range(1, 7):
        resumed = loader()
        resumed.load_state_dict(json.loads(whole[done - 1][2]))
        given = run(resumed, 2 if done < 6 else 1)
        assert [pad for _, pad, _ in given] == [pad for _, pad, _ in whole[done:]]
        for (images, _, state), (expected, _, expected_state) in zip(given, whole[done:], strict=True):
            np.testing.assert_array_equal(images, expected)
            assert state == expected_state


def test_a_short_epoch_is_over_at_its_reset(photos: Path) -> None:
    """A loop that resets before the end, as one with a fixed number of steps: the state is the start of the next epoch,
    not where the loop left the last one."""
    train, _ = image_iters(photos, 8, Context(), workers=0)
    for _ in range(2):
        next(train)
        train.reset()
    state = train.state_dict()
    assert (state["epoch"], state["position"]) == (2, 0)
    again, _ = image_iters(photos, 8, Context(), workers=0)
    again.load_state_dict(state)
    np.testing.assert_array_equal(next(again).data[0], next(train).data[0])


# ---------------------------------------------------------------------------------------------- clips in a queue

FRAMES, STRIDE, STEP = 8, 2, 6
LENGTHS = {"train": (31, 44, 27, 38), "val": (22, 40), "test": (33,)}
"""Frames of the videos of each split. Those of video k show the numbers from 100 * k on."""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of AVI files, packed with its splits."""
    from videos import HEIGHT, WIDTH, encode, look_through_here

    root, k = tmp_path_factory.mktemp("clips"), 0
    for split, lengths in LENGTHS.items():
        for length in lengths:
            path = root / "videos" / split / ("walk", "run")[k % 2] / f"{k}.avi"
            encode(path, "mpeg4", length, numbers=range(100 * k, 100 * k + length))
            k += 1
    with pytest.MonkeyPatch.context() as monkeypatch:
        look_through_here(monkeypatch)
        rawpack_packer.pack_splits(
            root / "videos", root / "store", splits=list(LENGTHS), size=f"{HEIGHT}x{WIDTH}", workers=0
        )
    return root / "store"


def first_frames(split: str) -> list[int]:
    """The number that the first frame of each clip shows: of every clip of every video of a split."""
    before = [length for lengths in list(LENGTHS.values())[: list(LENGTHS).index(split)] for length in lengths]
    spans = [length - (FRAMES - 1) * STRIDE for length in LENGTHS[split]]
    return [100 * (len(before) + k) + start for k, span in enumerate(spans) for start in range(0, span, STEP)]


def clips_of(store: Path, split: str, **options: Any) -> Reader:
    options = options or {"step": STEP}
    return Reader(store, split=split).clips(FRAMES, stride=STRIDE, **options)


def shown(batch: dict[str, Any]) -> list[int]:
    """The number on the first frame of each clip, after a check of the other frames, and of the class."""
    from videos import number_of

    firsts = []
    for images, label in zip(batch["image"], batch["label"].tolist(), strict=True):
        numbers = [number_of(image) for image in images]
        assert numbers == list(range(numbers[0], numbers[0] + FRAMES * STRIDE, STRIDE))
        assert ("run", "walk")[label] == ("walk", "run")[numbers[0] // 100 % 2]
        firsts.append(numbers[0])
    return firsts


def making(producers: int, make: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Options with which each producer makes batches of its own, and calls `make` for each."""
    return {"workers": Workers(producers, backend="thread"), "transform": [BatchLambda(lambda batch: make())]}


def in_threads(count: int, work: Callable[[], Iterable[Any]]) -> list[Any]:
    """What `work` gives in several threads at once, all together."""
    results, failures = list[Any](), list[BaseException]()

    def run() -> None:
        try:
            results.extend(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads), "a consumer still waits"
    return results


def test_queues_of_train_val_and_test(videos: Path) -> None:
    """All three at once, train without end and each with threads of its own: over all threads, every clip comes once an
    epoch. The queue of train ends when it is closed."""
    train = clips_of(videos, "train").batches(3, shuffle=True, workers=Workers(2, backend="process"))
    val, test = (clips_of(videos, split).batches(3, workers=Workers(2, backend="thread")) for split in ("val", "test"))
    steps, expected = len(train), first_frames("train")
    assert (len(expected), steps) == (15, 5)

    def evaluated(batches: Any) -> Counter[int]:
        queue = batches.queue(depth=2, epochs=1)
        return Counter(in_threads(2, lambda: [number for batch in queue for number in shown(batch)]))

    with train.queue(depth=4) as queue:
        for _ in range(3):  # epochs, by three consumers
            left = iter(range(steps))

            def consume(left: Any = left) -> Iterable[int]:
                for _ in left:
                    batch = queue.dequeue()
                    assert batch is not None
                    yield from shown(batch)

            assert Counter(in_threads(3, consume)) == Counter(expected)
            assert evaluated(val) == Counter(first_frames("val"))
        assert evaluated(test) == Counter(first_frames("test"))
        assert queue.stats()["taken"] == 3 * steps
    assert queue.dequeue() is None


def test_random_clips_in_a_queue(videos: Path) -> None:
    """As many of each video as asked for, in each epoch, and not the same ones."""
    train = clips_of(videos, "train", per_video=5).batches(4, shuffle=True, workers=Workers(2, backend="thread"))
    queues = (train.queue(epochs=1) for _ in range(3))
    epochs = [in_threads(3, lambda queue=queue: [n for batch in queue for n in shown(batch)]) for queue in queues]
    for numbers in epochs:
        assert Counter(number // 100 for number in numbers) == dict.fromkeys(range(4), 5)
        assert all(number % 100 <= LENGTHS["train"][number // 100] - (FRAMES - 1) * STRIDE - 1 for number in numbers)
    assert len({tuple(sorted(numbers)) for numbers in epochs}) == 3


@pytest.mark.parametrize("consumers", [1, 3])
def test_a_queue_that_was_killed(videos: Path, consumers: int) -> None:
    """Stopped whenever no thread is at work, with batches that wait in the queue, and resumed with another number of
    producers: all the runs together take what one run alone takes."""

    def batches(producers: int) -> Any:
        return clips_of(videos, "train").batches(2, shuffle=True, seed=5, **making(producers))

    whole = [shown(batch) for batch in batches(1).queue(epochs=3)]
    taken, state = list[list[int]](), None
    for producers in (1, 10, 30, 10, 1):
        loader = batches(producers)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        with loader.queue(depth=6) as queue:
            if state is not None:
                assert queue.state_dict() == json.loads(state)
            rows = in_threads(consumers, lambda queue=queue: [shown(queue.dequeue()) for _ in range(3 // consumers)])
            taken += sorted(rows, key=whole[len(taken) :].index)
            state = json.dumps(queue.state_dict())
    assert taken == whole[: len(taken)]
    assert len(taken) == 15


DEPTH = 8


@pytest.mark.parametrize("real_files", [False, True], ids=["made", "real"])
def test_more_producers(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_files: bool) -> None:
    """All producers make batches at the same time: by the time that each has made one, the queue has one batch from one
    producer, and is full with ten, and with thirty. Each clip is that of the store."""
    from videos import look_through_here

    images = list[Any]()
    if real_files:
        look_through_here(monkeypatch)
        rawpack_packer.pack(real("videos"), tmp_path / "real", size=32, fps=10, max_frames=16, workers=0)
        images = [sample["image"] for sample in Reader(tmp_path / "real")]
        clips = Reader(tmp_path / "real").clips(4, per_video=8, short="repeat_last")
        assert len(clips) == 8 * len(list(real("videos").iterdir()))
    else:
        clips = clips_of(videos, "train", per_video=10)

    def ready(producers: int) -> int:
        """How many batches are in the queue when every producer has made one."""
        lock, at_work, goes_on = threading.Lock(), list[int](), [threading.Event(), threading.Event()]

        def make() -> None:
            with lock:
                at_work.append(threading.get_ident())
                later = len(at_work) > producers
            assert goes_on[later].wait(120)

        with clips.batches(1, shuffle=True, **making(producers, make)).queue(depth=DEPTH) as queue:
            wait_until(lambda: len(set(at_work)) == producers, f"{producers} producers are at work")
            goes_on[False].set()
            made = min(DEPTH, producers)
            wait_until(lambda: queue.stats()["ready"] >= made, "what each has made is in the queue")
            found = queue.stats()["ready"]
            goes_on[True].set()
            taken = [queue.dequeue() for _ in range(24)]
        for batch in taken:
            if images:
                expected = [images[row] for row in batch["index"][0].tolist()]
                np.testing.assert_array_equal(batch["image"][0], expected)
            else:
                shown(batch)
        return int(found)

    assert [ready(producers) for producers in (1, 10, 30)] == [1, DEPTH, DEPTH]
