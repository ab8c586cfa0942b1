"""The options of readers and batches: what belongs together is one value, and nothing can be given and ignored."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Packed
from reading import WAYS, children, rows_of, wait_until

import rawpack
from rawpack import Batches, Blocks, Cache, Ranks, Reader, UsageError, Workers, checks
from rawpack.transforms import RandomCrop

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 32)


class Divided(list[int]):
    """Looks like a sampler of torch that has the samples of one rank."""

    num_replicas = 2

    def __init__(self, shuffle: bool | None) -> None:
        super().__init__(range(0, 8, 2))
        if shuffle is not None:
            self.shuffle = shuffle


def test_batches_show_what_is_for_users(store: Path) -> None:
    """The public names of batches are those that the page of the Python API has."""
    public = {name for name in dir(Reader(store).batches(4)) if not name.startswith("_")}
    text = PAGE.read_text()
    assert public == {name for name in dir(Batches) if not name.startswith("_")}
    assert public == set(re.findall(r"`batches\.(\w+)", text)) - {"items"}
    assert {name for name in dir(iter(Reader(store).batches(4))) if not name.startswith("_")} == {"close"}
    data = Reader(store).batches(4, workers=0).data_iter()
    next(data)
    assert {name for name in dir(data) if not name.startswith("_")} <= set(re.findall(r"`\w+\.(\w+)", text))


def test_attributes_of_a_dataloader(store: Path) -> None:
    """What scripts read of a loader is what `batches()` was asked for, and the reader."""
    reader = Reader(store)
    for workers in (0, Workers(2, backend="thread")):
        batches = reader.batches(16, drop_last=True, workers=workers)
        for loader in (batches, batches.data_iter()):
            assert (loader.dataset, loader.batch_size, loader.drop_last, loader.sampler) == (reader, 16, True, None)
            assert loader.num_workers == (2 if workers else 0)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"rank": 2, "world_size": 4}, "rank=2, world_size=4 are ranks=(2, 4) here"),
        ({"rank": None, "world_size": None, "timeout": 0}, "leave out timeout=0; leave out rank=None, world_size=None"),
        ({"num_workers": 2, "prefetch_factor": 4}, "num_workers=2 is workers=2 here; leave out prefetch_factor=4"),
        ({"resize": (8, 9)}, "resize=(8, 9) is image_size=(8, 9) here"),
        ({"distributed": True}, 'FFCV\'s distributed=True is ranks="auto" here'),
        ({"shufle": True}, "unexpected keyword argument 'shufle'. Did you mean 'shuffle'?"),
    ],
)
def test_names_of_other_loaders_say_the_line_to_write(store: Path, given: dict[str, Any], now: str) -> None:
    with pytest.raises(TypeError, match=re.escape(now)):
        Reader(store).batches(4, **given)
    with pytest.raises(TypeError, match=re.escape("cache_limit='1GB' is cache=Cache('c', limit='1GB') here")):
        Reader("memory://b/s", cache="c", cache_limit="1GB")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Workers(0, backend="thread"), "backend='thread' has no effect with 0 workers"),
        (lambda: Workers(-1), "workers=-1 must be"),
        (lambda: Cache(limit="1 TBB"), "limit='1 TBB' must be a number of bytes"),
        (lambda: Cache(timeout=0), "timeout=0 must be more than 0 seconds"),
    ],
)
def test_values_that_make_no_sense_are_refused_where_they_are_made(made: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"drop_last": True, "ranks": Ranks(0, 2, last="keep")}, r"drop_last=True leaves out what Ranks\(0, 2, last="),
        ({"shuffle": Blocks(), "sampler": [1]}, "sampler= is its own order"),
        ({"sampler": Divided(True)}, r'Divided\(...\) divides .* leave it out, and pass shuffle=True, ranks="auto"'),
        ({"sampler": Divided(None), "ranks": "auto"}, 'leave it out, and pass shuffle=False, ranks="auto"'),
        ({"image_size": {"mask": 8}}, "image_size= names 'mask'; the batch has the fields that it is for: image"),
        ({"image_size": [(8, 8), (4, 8)]}, r"or \(height, width\), .*Buckets\(...\) for several sizes"),
        ({"seed": 1 << 63}, "seed=9223372036854775808 must be a whole number between"),
        ({"fields": ["label"], "image_size": 8}, "image_size= has nothing to work on: the batch has no images"),
        ({"transform": [RandomCrop(33)]}, "the image is only 32x32"),
    ],
)
def test_what_does_not_go_together_is_refused(store: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Reader(store).batches(4, **given)


def test_one_value_for_each_way_to_say_it(store: Path) -> None:
    """Short and long forms are the same; a slice is a list of its rows; one script fits all stores and machines."""
    reader = Reader(store)

    def rows(**options: Any) -> list[int]:
        batches = reader.batches(4, workers=0, **options)
        batches.set_epoch(0)  # on purpose
        return rows_of(batches)

    assert rows(shuffle="block") == rows(shuffle=Blocks()) != rows(shuffle=Blocks(block=2, window=2))
    assert rows(ranks=(1, 3)) == rows(ranks=Ranks(1, 3)) == rows(ranks=[1, 3])
    assert rows(seed=3, ragged="pad") == rows(ranks=Ranks(0, 1, last="keep")) == list(range(len(reader)))
    sizes: list[Any] = [16, (16, 16), {"image": 16}]
    images = [next(iter(reader.batches(4, workers=0, image_size=size)))["image"] for size in sizes]
    for image in images:
        np.testing.assert_array_equal(image, images[0])
    for part in (slice(-3, None), slice(None, 9, 4), slice(5, 5)):
        rows_of_part = list(range(len(reader)))[part]
        assert reader[part]["index"].tolist() == rows_of_part
        np.testing.assert_array_equal(reader[part]["image"], reader[rows_of_part]["image"])
    with pytest.raises(TypeError, match=r"reader.column\(name\)"):
        reader["image"]  # type: ignore[index]


@pytest.mark.own_processes
@pytest.mark.parametrize("way", WAYS)
def test_a_closed_reader_has_no_workers_and_reads_nothing(store: Path, way: str) -> None:
    """What was handed out stays valid; every way to read on is refused, also by what was made of the reader."""
    before = set(children())  # such as Python's own tracker of resources
    with Reader(store) as reader:
        some, batches = reader.select(range(10)), reader.batches(4, shuffle=True, **WAYS[way])
        iterator, shown = iter(batches), rawpack.look(reader)
        held = [next(iterator) for _ in range(3)]
        copies = [batch["image"].copy() for batch in held]
        started = set(children()) - before
    assert bool(started) == (way == "processes")
    wait_until(lambda: not set(children()) & started, "the workers have ended")
    for batch, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(batch["image"], copy)
    for read in (
        lambda: next(iterator), lambda: next(iter(batches)), lambda: reader[0], lambda: reader[0:2],
        lambda: reader.column("label"), lambda: some[0], lambda: some.batches(2), lambda: reader.select([0]),
        reader.__enter__, shown.find, partial(shown.where_is, 0), partial(shown.damaged, 0),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="closed"):
            read()
    reader.close()
    assert len(Reader(store)[0:3]["index"]) == 3


def test_what_was_made_of_a_reader_is_closed_alone(store: Path) -> None:
    """A selection, or batches, that are closed leave the reader that they were made of, and others, as they are."""
    reader = Reader(store)
    iterator, closed = iter(reader.batches(4, shuffle=True)), reader.batches(4, workers=0)
    next(iterator)
    closed.close()
    with reader.select(range(10)) as some:
        inner, of_part = some.select(range(5)), some.batches(2)
        next(iter(of_part))
    for read in (
        lambda: some[0], lambda: inner[0], lambda: next(iter(of_part)), lambda: some.batches(2),
        lambda: next(iter(closed)),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="closed"):
            read()
    next(iterator)
    assert len(reader.select(range(3))[0:3]["index"]) == 3


def test_a_reader_that_nobody_closes_ends_with_its_last_use(store: Path) -> None:
    """Nothing that is registered to be closed keeps batches alive."""
    reader = Reader(store)
    for _ in range(3):
        next(iter(reader.batches(4, workers=0)))
    gc.collect()
    assert len(reader._samples.scope._open) == 0


TAKEN: list[tuple[Callable[..., Any], Any, Any]] = [
    (checks.whole_number, np.int32(3), 3),
    (checks.seconds, 2, 2.0),
    (checks.seconds, math.inf, 1 << 20),
    (checks.flag, np.bool_(True), True),
    (checks.names, ("a", "b"), ["a", "b"]),
    (checks.size_of, 224, (224, 224)),
    (checks.size_of, [np.int64(1), 65535], (1, 65535)),
]
REFUSED: list[tuple[Callable[..., Any], list[Any]]] = [
    (checks.whole_number, [True, 1.0, "1", None]),
    (checks.seconds, [0, -1, math.nan, True, "1"]),
    (checks.flag, [1, "True", None]),
    (checks.names, ["a", [1], 5, None]),
    (checks.size_of, [0, 65536, True, (1, True), (1, 2, 3), (1,), 2.0, "224", None]),
]


def test_values_come_in_one_form_and_others_name_their_argument() -> None:
    """Plain Python, whichever of several ways a user has written it in; else a usage error with the name."""

    def checked(check: Callable[..., Any], value: Any) -> Any:
        return check(value, "asked") if check is checks.size_of else check("asked", value)

    for check, value, expected in TAKEN:
        assert checked(check, value) == expected
        assert type(checked(check, value)) is type(expected) or isinstance(checked(check, value), float)
    for check, values in REFUSED:
        for value in values:
            with pytest.raises(UsageError, match=r"^asked="):
                checked(check, value)
