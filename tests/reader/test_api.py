"""The options of readers and batches: what belongs together is one value, and nothing can be given and ignored."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Packed
from reading import WAYS, children, rows_of, wait_until, workers_in

import rawpack
from rawpack import Batches, Blocks, Cache, Ranks, Reader, UsageError, Weighted, Workers
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


@pytest.mark.parametrize("way", WAYS)
def test_attributes_of_a_dataloader(store: Path, way: str) -> None:
    """What scripts read of a loader is what `batches()` was asked for, and the reader."""
    reader = Reader(store)
    batches = reader.batches(16, drop_last=True, **WAYS[way])
    for loader in (batches, batches.data_iter()):
        assert (loader.dataset, loader.batch_size, loader.drop_last, loader.sampler) == (reader, 16, True, None)
        assert loader.num_workers == workers_in(way)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"rank": 2, "world_size": 4}, "rank=2, world_size=4 are ranks=(2, 4) here"),
        ({"rank": "auto"}, "rank='auto' is ranks=\"auto\" here"),
        ({"rank": None, "world_size": None, "timeout": 0}, "leave out timeout=0; leave out rank=None, world_size=None"),
        ({"num_workers": 2, "prefetch_factor": 4}, "num_workers=2 is workers=2 here; leave out prefetch_factor=4"),
        ({"num_replicas": 2, "rank": 1}, "ranks=(1, 2)"),
        ({"resize": (8, 9)}, "resize=(8, 9) is image_size=(8, 9) here"),
        ({"distributed": True}, 'FFCV\'s distributed=True is ranks="auto" here'),
        ({"device": "cuda"}, "device='cuda' is batches(...).torch('cuda') here"),
        ({"augment": [1]}, "augment=[1] is transform=[...] here"),
        ({"shufle": True}, "unexpected keyword argument 'shufle'. Did you mean 'shuffle'?"),
    ],
)
def test_names_of_other_loaders_say_the_line_to_write(store: Path, given: dict[str, Any], now: str) -> None:
    with pytest.raises(TypeError, match=re.escape(now)):
        Reader(store).batches(4, **given)


@pytest.mark.parametrize(
    ("make", "now"),
    [
        (lambda: Reader("memory://b/s", cache="c", cache_limit="1GB"),  # type: ignore[call-arg]
         "cache_limit='1GB' is cache=Cache('c', limit='1GB') here"),
        (lambda: Reader("store", transform=[]),  # type: ignore[call-arg]
         "transform=[] is reader.batches(..., transform=[...]) here"),
        (lambda: Workers(back_end=1),  # type: ignore[call-arg]
         "Workers() got an unexpected keyword argument 'back_end'. Did you mean 'backend'?"),
        (lambda: Ranks(worldsize=1),  # type: ignore[call-arg]
         "Ranks() got an unexpected keyword argument 'worldsize'. Did you mean 'world_size'?"),
        (lambda: Weighted("label", lenght=1),  # type: ignore[call-arg]
         "Weighted() got an unexpected keyword argument 'lenght'. Did you mean 'length'?"),
    ],
)  # fmt: skip
def test_wrong_keywords_of_readers_and_values_name_the_right_one(make: Callable[[], object], now: str) -> None:
    with pytest.raises(TypeError, match=re.escape(now)):
        make()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Workers(0, backend="thread"), "backend='thread' has no effect with 0 workers"),
        (lambda: Workers(-1), "workers=-1 must be"),
        (lambda: Workers("auto"), "workers='auto' must be a number, None"),  # type: ignore[arg-type]
        (lambda: Cache(3), r"Cache\(3\): the cache is a folder"),  # type: ignore[arg-type]
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
        ({"image_size": {"image": "large"}}, "image_size='large' must be"),
        ({"seed": 1 << 63}, "seed=9223372036854775808 must be a whole number between"),
        ({"image_size": [(8, 8), (4, 8)]}, r"or \(height, width\), .*Buckets\(...\) for several sizes"),
        ({"fields": ["label"], "image_size": 8}, "image_size= has nothing to work on: the batch has no images"),
        ({"fields": ["label"], "transform": [abs]}, "transform= has nothing to work on"),
        ({"transform": [RandomCrop(33)]}, "the image is only 32x32"),
    ],
)
def test_what_does_not_go_together_is_refused(store: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Reader(store).batches(4, **given)


def test_what_a_reader_does_not_take(store: Path) -> None:
    """Wrong values of its options are refused whether or not they would be used."""
    for given, words in (({"cache": 3}, "is a folder"), ({"preload": "yes"}, "preload='yes' must be True or False")):
        with pytest.raises(UsageError, match=words):
            Reader(store, **given)
    with pytest.raises(TypeError, match=r"reader.column\(name\)"):
        Reader(store)["image"]  # type: ignore[index]


def test_what_has_no_effect_here_is_allowed(store: Path) -> None:
    """One script fits all stores and machines: padding of nothing, a seed for nothing random, one rank."""
    reader = Reader(store).select(range(8))
    batches = reader.batches(4, seed=3, drop_last=True, ragged="pad", workers=0)
    assert rows_of(batches) == rows_of(reader.batches(4, ranks=Ranks(0, 1, last="keep"), workers=0)) == list(range(8))


def test_one_value_for_each_way_to_say_it(store: Path) -> None:
    """Short and long forms are the same; a slice is a list of its rows."""
    reader = Reader(store)

    def rows(**options: Any) -> list[int]:
        batches = reader.batches(4, workers=0, **options)
        batches.set_epoch(0)  # on purpose
        return rows_of(batches)

    assert rows(shuffle="block") == rows(shuffle=Blocks()) != rows(shuffle=Blocks(block=2, window=2))
    assert rows(ranks=(1, 3)) == rows(ranks=Ranks(1, 3)) == rows(ranks=[1, 3])
    images = [
        next(iter(reader.batches(4, workers=0, image_size=size)))["image"] for size in (16, (16, 16), {"image": 16})
    ]
    for image in images:
        np.testing.assert_array_equal(image, images[0])
    for part in (slice(-3, None), slice(None, 9, 4), slice(5, 5)):
        rows_of_part = list(range(len(reader)))[part]
        assert reader[part]["index"].tolist() == rows_of_part
        np.testing.assert_array_equal(reader[part]["image"], reader[rows_of_part]["image"])


@pytest.mark.own_processes
@pytest.mark.parametrize("way", WAYS)
def test_a_closed_reader_has_no_workers_and_reads_nothing(store: Path, way: str) -> None:
    """What was handed out stays valid; every way to read on is refused, also by what was made of the reader."""
    before = set(children())  # such as Python's own tracker of resources
    with Reader(store) as reader:
        some, batches = reader.select(range(10)), reader.batches(4, shuffle=True, **WAYS[way])
        iterator = iter(batches)
        held = [next(iterator) for _ in range(3)]
        copies = [batch["image"].copy() for batch in held]
        started = set(children()) - before
    assert bool(started) == (way == "processes")
    wait_until(lambda: not set(children()) & started, "the workers have ended")
    for batch, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(batch["image"], copy)
    for read in (
        lambda: next(iterator), lambda: next(iter(batches)), lambda: reader[0], lambda: reader[0:2],
        lambda: reader.column("label"), lambda: some[0], lambda: next(iter(some.batches(2))),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="closed"):
            read()
    reader.close()
    assert len(Reader(store)[0:3]["index"]) == 3


def test_what_was_made_of_a_reader_is_closed_alone(store: Path) -> None:
    """A selection that is closed leaves the reader that it was made of, and other selections, as they are."""
    reader = Reader(store)
    iterator = iter(reader.batches(4, shuffle=True))
    next(iterator)
    with reader.select(range(10)) as some:
        inner, of_part = some.select(range(5)), some.batches(2)
        next(iter(of_part))
    for read in (lambda: some[0], lambda: inner[0], lambda: next(iter(of_part)), lambda: some.batches(2)):
        with pytest.raises(UsageError, match="closed"):
            read()
    next(iterator)
    assert len(reader.select(range(3))[0:3]["index"]) == 3
    last, shown = reader.select(range(10)).select(range(4)).batches(2), rawpack.look(reader)
    reader.close()
    for ask in (
        lambda: next(iter(last)), lambda: reader.batches(2), lambda: reader.select([0]), reader.__enter__,
        shown.find, partial(shown.shapes, "image"), partial(shown.where_is, 0), partial(shown.damaged, 0),
        lambda: shown.left_out, partial(shown.find, key="0"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="closed"):
            ask()


def test_closed_batches_leave_their_reader_open(store: Path) -> None:
    reader = Reader(store)
    batches, others = reader.batches(4, **WAYS["processes"]), reader.batches(4, workers=0)
    next(iter(batches))
    batches.close()
    with pytest.raises(UsageError, match="these batches were closed"):
        next(iter(batches))
    assert len(rows_of(others)) == len(reader)
    gc.collect()
    batches.close()


def test_a_reader_that_nobody_closes_ends_with_its_last_use(store: Path) -> None:
    """Nothing that is registered to be closed keeps batches alive."""
    reader = Reader(store)
    for _ in range(3):
        next(iter(reader.batches(4, workers=0)))
    gc.collect()
    assert len(reader._samples.scope._open) == 0


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Normalize", "write rawpack.transforms.Normalize"),
        ("Balance", "no attribute 'Balance'. Did you mean 'Balanced'?"),
        ("no_such_thing", "module 'rawpack' has no attribute 'no_such_thing'"),
    ],
)
def test_a_name_that_rawpack_does_not_have(name: str, line: str) -> None:
    """A step says where it is, in an import too; a misspelled name which one is near."""
    with pytest.raises((UsageError, AttributeError), match=re.escape(line)):
        getattr(rawpack, name)
    with pytest.raises((UsageError, ImportError), match=name):
        exec(f"from rawpack import {name}")
