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
from rawpack import Balanced, Batches, Blocks, Buckets, Cache, Ranks, Reader, UsageError, Weighted, Workers
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


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_attributes_of_a_dataloader(store: Path, way: str, drop_last: bool) -> None:
    """What scripts read of a loader is what `batches()` was asked for, and the reader."""
    reader = Reader(store)
    batches = reader.batches(16, drop_last=drop_last, **WAYS[way])
    for loader in (batches, batches.data_iter()):
        assert loader.dataset is reader
        assert (loader.batch_size, loader.drop_last, loader.sampler) == (16, drop_last, None)
        assert loader.num_workers == workers_in(way)
    few = reader.select(range(3))
    assert (few.batches(16, workers=0).dataset, few.batches(16, workers=0).batch_size) == (few, 16)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"rank": 2, "world_size": 4}, "rank=2, world_size=4 are ranks=(2, 4) here"),
        ({"rank": "auto"}, "rank='auto' is ranks=\"auto\" here"),
        ({"rank": 1}, "rank=1 is ranks=(1, world_size) here"),
        ({"timeout": 9}, "DataLoader's timeout=9 is workers=Workers(timeout=9) here"),
        ({"rank": None, "world_size": None, "timeout": 0}, "leave out timeout=0; leave out rank=None, world_size=None"),
        (
            {"num_workers": 2, "prefetch_factor": 4},
            "DataLoader's num_workers=2 is workers=2 here; leave out prefetch_factor=4",
        ),
        ({"size": 8}, "size=8 is image_size=8 here"),
        ({"resize": (8, 9)}, "resize=(8, 9) is image_size=(8, 9) here"),
        ({"columns": ["image"]}, "columns=['image'] is fields=['image'] here"),
        ({"distributed": True}, 'FFCV\'s distributed=True is ranks="auto" here'),
        (
            {"distributed": False, "os_cache": True},
            "leave out distributed=False; leave out os_cache=True: batches are made in advance",
        ),
        ({"device": "cuda"}, "device='cuda' is batches(...).torch('cuda') here"),
        ({"encoded": False}, "unexpected keyword argument 'encoded'"),
        ({"shufle": True}, "unexpected keyword argument 'shufle'. Did you mean 'shuffle'?"),
    ],
)
def test_names_of_other_loaders_say_the_line_to_write(store: Path, given: dict[str, Any], now: str) -> None:
    with pytest.raises(TypeError, match=re.escape(now)):
        Reader(store).batches(4, **given)


def test_names_of_other_datasets_say_the_line_to_write(store: Path) -> None:
    """Keywords of our own that are misplaced are unknown as any."""
    with pytest.raises(TypeError, match=re.escape("cache_limit='1GB' is cache=Cache('c', limit='1GB') here")):
        Reader("memory://bucket/store", cache="c", cache_limit="1GB")  # type: ignore[call-arg]
    for call in (lambda: Reader(store, timeout=5), lambda: Reader.mix({str(store): 1}, verify=True)):  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()


@pytest.mark.parametrize(
    ("kind", "given", "known"),
    [
        (Workers, "back_end", "backend"),
        (Blocks, "blocks", "block"),
        (Buckets, "size", "sizes"),
        (Ranks, "worldsize", "world_size"),
        (Cache, "limits", "limit"),
        (partial(Balanced, "label"), "replace", "replacement"),
        (partial(Weighted, "label"), "lenght", "length"),
        (partial(RandomCrop, 4), "pading", "padding"),
    ],
)
def test_values_made_with_a_wrong_keyword_name_the_right_one(
    kind: Callable[..., object], given: str, known: str
) -> None:
    name = getattr(kind, "func", kind).__name__  # type: ignore[attr-defined]
    said = f"{name}() got an unexpected keyword argument {given!r}. Did you mean {known!r}?"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        kind(**{given: 1})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Workers(0, backend="thread"), "backend='thread' has no effect with 0 workers"),
        (lambda: Workers(0, timeout=5), "timeout=5.0 has no effect with 0 workers"),
        (lambda: Workers(-1), "workers=-1 must be"),
        (lambda: Workers("auto"), "workers='auto' must be a number, None"),  # type: ignore[arg-type]
        (lambda: Cache(3), r"Cache\(3\): the cache is a folder"),  # type: ignore[arg-type]
        (lambda: Cache(limit="1 TBB"), "limit='1 TBB' must be a number of bytes"),
        (lambda: Cache(limit=0), "limit=0 must be a number of bytes"),
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
        ({"shuffle": True, "sampler": [1]}, "sampler= is its own order"),
        ({"shuffle": Blocks(), "sampler": [1]}, "sampler= is its own order"),
        (
            {"sampler": Divided(True)},
            r'Divided\(...\) divides .* leave it out, and pass shuffle=True, ranks="auto"',
        ),
        ({"sampler": Divided(False), "ranks": (0, 2)}, 'leave it out, and pass shuffle=False, ranks="auto"'),
        ({"sampler": Divided(None), "ranks": "auto"}, 'leave it out, and pass shuffle=False, ranks="auto"'),
        ({"image_size": {"mask": 8}}, "image_size= names 'mask'; the batch has the fields that it is for: image"),
        ({"image_size": {"image": "large"}}, "image_size='large' must be"),
        ({"decode": {"other": False}}, "decode= names 'other'"),
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
    """One script fits all stores and machines: padding without ragged fields, a seed without anything random, the last
    step of one rank, drop_last where the length divides."""
    reader = Reader(store).select(range(8))
    batches = reader.batches(4, seed=3, drop_last=True, ragged="pad", workers=0)
    assert rows_of(batches) == rows_of(reader.batches(4, ranks=Ranks(0, 1, last="keep"), workers=0)) == list(range(8))


def test_one_value_for_each_way_to_say_it(store: Path) -> None:
    """Short and long forms are the same."""
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
    assert next(iter(reader.batches(4, workers=0, image_size={})))["image"].shape == (4, 32, 32, 3)


def test_a_slice_is_a_batch(store: Path) -> None:
    """As a list of the same rows, also from the end and with steps."""
    reader = Reader(store)
    for part in (slice(2, 5), slice(-3, None), slice(None, 9, 4), slice(5, 5)):
        rows = list(range(len(reader)))[part]
        got, expected = reader[part], reader[rows]
        assert got["index"].tolist() == rows
        np.testing.assert_array_equal(got["image"], expected["image"])
        assert got["key"] == expected["key"]


# ---------------------------------------------------------------------------------------------- the end of a reader


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
    some = reader.select(range(10))
    with some as part:
        inner, of_part = part.select(range(5)), part.batches(2)
        next(iter(of_part))
    for read in (lambda: some[0], lambda: inner[0], lambda: next(iter(of_part)), lambda: some.batches(2)):
        with pytest.raises(UsageError, match="closed"):
            read()
    next(iterator)
    assert len(reader.select(range(3))[0:3]["index"]) == 3
    last = reader.select(range(10)).select(range(4)).batches(2)
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        next(iter(last))
    for ask in (lambda: reader.batches(2), lambda: reader.select([0]), reader.__enter__):
        with pytest.raises(UsageError, match="closed"):
            ask()


def test_batches_with_other_settings_are_closed_together(store: Path) -> None:
    """What a framework reads, such as the same batches without the steps that a GPU does, ends with the batches."""
    batches = Reader(store).batches(4, workers=0)
    before = iter(batches._feed.with_settings(together=True, pipelines=(None,)))
    assert len(next(before)["index"]) == 4
    batches.close()
    for iterator in (before, iter(batches._feed.with_settings(workers=0))):
        with pytest.raises(UsageError, match="these batches were closed"):
            next(iterator)


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


# ---------------------------------------------------------------------------------------------- states


def test_a_queue_loads_a_state(store: Path) -> None:
    """It is emptied, and filled from there."""
    whole = [batch["index"].tolist() for batch in Reader(store).batches(4, shuffle=True, workers=0)]
    batches = Reader(store).batches(4, shuffle=True, workers=0)
    batches.set_epoch(0)  # on purpose
    with batches.queue(3, epochs=1) as queue:
        kept = [next(queue) for _ in range(4)]
        state = queue.state_dict(after=kept[1])
        assert state == queue.state_dict(2) != queue.state_dict()
        queue.load_state_dict(state)
        assert [batch["index"].tolist() for batch in queue] == whole[2:]


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
    assert name == "Normalize" or not hasattr(rawpack, name)
    with pytest.raises((UsageError, ImportError), match=name):
        exec(f"from rawpack import {name}")


def test_look_takes_a_reader(store: Path) -> None:
    """A path says what to write."""
    with pytest.raises(UsageError, match=re.escape("rawpack.look(rawpack.Reader(path))")):
        rawpack.look(store)  # type: ignore[arg-type]
    assert repr(rawpack.look(Reader(store))).startswith("rawpack.look(Reader(")


def test_a_closed_reader_shows_nothing(store: Path) -> None:
    """As it reads nothing."""
    reader = Reader(store)
    look = rawpack.look(reader)
    reader.close()
    shown: list[Callable[[], object]] = [look.find, partial(look.shapes, "image"), partial(look.where_is, 0)]
    for ask in [*shown, partial(look.damaged, 0), lambda: look.left_out, partial(look.find, key="0")]:
        with pytest.raises(UsageError, match="closed"):
            ask()
