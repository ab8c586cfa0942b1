"""The options of readers and batches: what belongs together is one value, and nothing can be given and ignored."""

from __future__ import annotations

import gc
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Packed
from reading import WAYS, children, rows_of, wait_until

import rawpack
from rawpack import Batches, Blocks, Buckets, Cache, Ranks, Reader, UsageError, Workers

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"
KEYWORDS = [
    "shuffle", "sampler", "seed", "drop_last", "fields", "image_size", "transform", "decode", "workers", "ranks",
    "ragged",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 32)


def test_the_keywords_of_batches() -> None:
    """At most twelve besides the batch size, in the words of the page."""
    parameters = list(inspect.signature(Reader.batches).parameters)
    assert parameters == ["self", "batch_size", *KEYWORDS]
    assert list(inspect.signature(Reader).parameters) == [
        "path", "split", "preload", "verify", "cache", "storage_options",
    ]  # fmt: skip
    assert list(inspect.signature(Reader.mix).parameters) == ["stores", "length"]


def test_batches_show_what_is_for_users(store: Path) -> None:
    """The public names of batches are those that the page of the Python API has."""
    public = {name for name in dir(Reader(store).batches(4)) if not name.startswith("_")}
    text = PAGE.read_text()
    assert public == {name for name in dir(Batches) if not name.startswith("_")}
    assert public == set(re.findall(r"`batches\.(\w+)", text)) - {"items"}


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"rank": 2, "world_size": 4}, "rank=2, world_size=4 are now ranks=(2, 4)"),
        ({"rank": "auto"}, "rank='auto' is now ranks='auto'"),
        ({"world_size": 4}, "world_size=4 is now ranks=(rank, 4)"),
        ({"rank": "auto", "uneven": "keep"}, "are now ranks=Ranks('auto', last='keep')"),
        ({"rank": 1, "world_size": 3, "uneven": "keep"}, "are now ranks=Ranks(1, 3, last='keep')"),
        ({"shuffle": "block", "block": 8}, "block=8 is now shuffle=Blocks(block=8)"),
        ({"shuffle": "block", "block": 8, "window": 2}, "are now shuffle=Blocks(block=8, window=2)"),
        ({"workers": 3, "backend": "thread"}, "backend='thread' is now workers=Workers(3, backend='thread')"),
        ({"max_slots": 4, "timeout": 9}, "are now workers=Workers(timeout=9, max_held=4)"),
        ({"buckets": "auto", "image_size": 224}, "buckets='auto' is now image_size=Buckets('auto', area=224)"),
        ({"color": "yuv420"}, "color='yuv420' is now decode=\"planes\""),
        ({"encoded": True}, "encoded=True is now decode=False"),
        ({"encoded": ["image"]}, "encoded=['image'] is now decode=False, or by field: decode={'image': False}"),
        ({"progress": True}, "`for batch in tqdm(batches)`"),
        ({"shufle": True}, "unexpected keyword argument 'shufle'. Did you mean 'shuffle'?"),
    ],
)
def test_names_of_earlier_versions_say_the_new_line(store: Path, given: dict[str, Any], now: str) -> None:
    with pytest.raises(TypeError, match=re.escape(now)):
        Reader(store).batches(4, **given)


def test_names_of_earlier_readers_say_the_new_line(store: Path) -> None:
    with pytest.raises(TypeError, match=re.escape("cache_bytes='1GB' is now cache=Cache('c', limit='1GB')")):
        Reader("memory://bucket/store", cache="c", cache_bytes="1GB")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=re.escape("timeout=5 is now cache=Cache(timeout=5)")):
        Reader("memory://bucket/store", timeout=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="verify=True is now keywords of the readers"):
        Reader.mix({str(store): 1}, verify=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Workers(0, backend="thread"), "backend='thread' is for workers, and there are none"),
        (lambda: Workers(0, timeout=5), "timeout=5.0 is for workers"),
        (lambda: Workers(-1), "workers=-1 must be"),
        (lambda: Blocks(block=1 << 20, window=8), "at most 4194304 samples"),
        (lambda: Buckets([]), r"Buckets\(\[\]\): pass a list of sizes"),
        (lambda: Buckets([(8, 8), 8]), "has 8x8 twice"),
        (lambda: Buckets([(8, 8)], area=4), 'area= is for Buckets\\("auto"\\)'),
        (lambda: Buckets("all"), r"Buckets\('all'\): pass"),  # type: ignore[arg-type]
        (lambda: Ranks(4, 4), "rank=4 must be below world_size=4"),
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
        ({"image_size": {"mask": 8}}, "image_size= names 'mask'; the batch has the fields that it is for: image"),
        ({"image_size": {"image": "large"}}, "image_size='large' must be"),
        ({"decode": {"other": False}}, "decode= names 'other'"),
    ],
)
def test_what_does_not_go_together_is_refused(store: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Reader(store).batches(4, **given)


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
    assert len(reader._library._open) == 0


# ---------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("way", WAYS)
def test_a_state_by_a_batch_or_a_number(store: Path, way: str) -> None:
    """The same after a batch as after so many; what cannot be identified is an error, never the latest position."""
    batches = Reader(store).batches(4, shuffle=True, seed=2, **WAYS[way])
    kept = [batch for batch, _ in zip(batches, range(6), strict=False)]
    for number, batch in enumerate(kept[:5], 1):
        state = batches.state_dict(after=batch)
        assert state == batches.state_dict(number) == json.loads(json.dumps(state))
        assert state == batches.state_dict(after={"index": batch["index"]})
    with pytest.raises(UsageError, match="not copies or views of them"):
        batches.state_dict(after={name: value.copy() for name, value in kept[0].items()})
    for wrong in (99, -1, True, "a"):
        with pytest.raises(UsageError, match="after="):
            batches.state_dict(after=wrong)  # type: ignore[arg-type]


def test_states_of_torch_batches(store: Path) -> None:
    """By the batch that was trained on, in each form, or a number; and loaded again."""
    pytest.importorskip("torch", reason="torch is not installed")
    for options in ({}, {"as_tuple": ["image", "label"]}):
        plain = Reader(store).batches(4, shuffle=True, workers=0)
        whole = [batch["index"].tolist() for batch in plain]
        loader: Any = Reader(store).batches(4, shuffle=True, workers=0).torch(**options)
        kept = [batch for batch, _ in zip(loader, range(5), strict=False)]
        state = loader.state_dict(after=kept[2])
        assert state == loader.state_dict(3)
        again = Reader(store).batches(4, shuffle=True, workers=0)
        again.load_state_dict(state)
        assert [batch["index"].tolist() for batch in again] == whole[3:]
        first = kept[0]
        copied = tuple(one.clone() for one in first) if options else {name: one.clone() for name, one in first.items()}
        with pytest.raises(UsageError, match="not copies or views"):
            loader.state_dict(after=copied)


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


def test_values_are_imported_from_the_top() -> None:
    for name in ("Blocks", "Buckets", "Cache", "Ranks", "Workers"):
        assert name in rawpack.__all__
        assert getattr(rawpack, name).__doc__
    assert Cache("folder", "1GB", timeout=3) == Cache("folder", "1GB", timeout=3)
    assert rawpack.order.Blocks is Blocks
