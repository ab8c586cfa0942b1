"""A reader as a list of samples: one by one, several together, and whole columns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError, WorkerError

COUNT = 12
SIDES = [5, 9, 7]


def sample(number: int, side: int) -> dict[str, Any]:
    return {
        "image": np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8),
        "mask": np.random.default_rng(number).integers(0, 3, (side, side, 1), np.uint8),
        "label": number % 4,
        "vector": np.full(3, number, np.float32),
        "text": f"sample {number}",
        "boxes": np.full((number % 3, 5), number, np.float32),
    }


@pytest.fixture(scope="module", params=["one size", "several sizes"])
def rich(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, list[Any]]:
    """A reader of fields of every kind, and the samples as they were given."""
    sides = SIDES if request.param == "several sizes" else [6]
    given = [sample(number, sides[number % len(sides)]) for number in range(COUNT)]
    store = tmp_path_factory.mktemp("rich") / "store"
    image = ("uint8", (None, None, 3)) if len(sides) > 1 else None
    fields = {"mask": "mask", "boxes": "float32[?,5]"}
    rawpack_packer.pack(given, store, fields=fields, image=image, workers=0)
    return Reader(store), given


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, in type, shape and dtype too."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)


# ---------------------------------------------------------------------------------------------- several together


def test_several_samples(rich: tuple[Reader, list[Any]]) -> None:
    """reader[[...]] has the samples that a list would give, as one array for each field, or a list; __getitems__, as a
    DataLoader asks, gives what indexing one by one gives."""
    reader, given = rich
    uniform = all(len(one["image"]) == 6 for one in given)
    for asked in ([3, 1, 4, 1], [-1, 0], [7], range(2, 5), np.array([5, -2]), np.array([5, 6], np.uint8)):
        batch = reader[asked]
        chosen = [given[i] for i in asked]
        assert batch["index"].tolist() == [i % COUNT for i in asked]
        assert batch["text"] == [one["text"] for one in chosen]
        assert same(batch["boxes"], [one["boxes"] for one in chosen])
        assert same(batch["label"], np.array([one["label"] for one in chosen]))
        assert same(batch["vector"], np.stack([one["vector"] for one in chosen]))
        for name in ("image", "mask"):
            values = [one[name] for one in chosen]
            assert same(batch[name], np.stack(values) if uniform else values)
        for found, i in zip(reader.__getitems__([*asked]), asked, strict=True):
            one = reader[i]
            assert list(found) == list(one)
            assert all(same(found[name], one[name]) for name in one)
    assert [reader[i]["text"] for i in (np.int8(2), np.int64(-1), np.array(3))] == ["sample 2", "sample 11", "sample 3"]
    assert reader[np.arange(COUNT) % 5 == 0]["index"].tolist() == [0, 5, 10]
    empty = reader[[]]
    assert (empty["label"].shape, empty["text"], empty["index"].dtype) == ((0,), [], np.int64)


def test_what_is_no_index(reader: Reader) -> None:
    """As with lists, an index outside is an IndexError; what is no index says so."""
    assert (reader[-75]["index"], reader[74]["index"]) == (0, 74)
    for outside in (75, -76, 10**12, [0, 75], [-76], np.array([99])):
        with pytest.raises(IndexError, match=r"(a reader with 75 samples|the reader has 75)"):
            reader[outside]  # type: ignore[index]
    for wrong in ([0.5], [[1]], [[1], [2, 3]], ["a"], np.zeros((1, 1), int), [True]):
        with pytest.raises(UsageError):
            reader[wrong]  # type: ignore[index]
    for odd in ("a", None, 1.5):
        with pytest.raises(TypeError):
            reader[odd]  # type: ignore[index]


# ---------------------------------------------------------------------------------------------- of several stores

STORES = ("appended", "compressed", "single")
"""Of two shards in one folder of columns and one in another; of two shards; of one, larger than what is checked of it
when it is opened."""
MANY = 350


def numbered(number: int) -> dict[str, Any]:
    """A sample, other for each number: its image, boxes (none of every third), text and numbers."""
    random = np.random.default_rng(number)
    return {
        "image": random.integers(0, 256, (10, 12, 3), np.uint8),
        "boxes": np.tile(np.array([1, 2, 5, 6, number], np.float32), (number % 3, 1)),
        "caption": f"no. {number}" * (number % 4),
        "number": number,
        "place": np.array([number, -number], np.float64),
    }


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("many")
    samples = [numbered(number) for number in range(MANY)]
    common: dict[str, Any] = {"fields": {"boxes": "xyxy"}, "workers": 0}
    options: dict[str, Any] = {"size": "keep", **common}
    rawpack_packer.pack(samples[:70], folder / "appended", format="memmap", shard_size=1, **options)
    rawpack_packer.append(samples[70:80], folder / "appended", **common)
    gzip: dict[str, Any] = {"format": "hdf5", "compression": "gzip"}
    rawpack_packer.pack(samples[80:150], folder / "compressed", shard_size=1, **gzip, **options)
    rawpack_packer.pack(samples[150:], folder / "single", format="memmap", **options)
    return [folder / name for name in STORES]


@pytest.fixture(scope="module")
def several(paths: list[Path]) -> Reader:
    return Reader(paths)


def is_of(name: str, found: Any, number: int) -> bool:
    return bool(np.array_equal(found, numbered(number)[name]))


@settings(max_examples=tries(120), deadline=None)
@given(rows=st.lists(st.integers(0, MANY - 1), max_size=40))
def test_any_rows_of_several_stores(several: Reader, rows: list[int]) -> None:
    """Any samples, in any order and repeated, come as they were packed, each field in the order that was asked for."""
    assert [len(store.manifest.shards) for store in several._library.stores] == [3, 2, 1]
    found = several[rows]
    assert found["index"].tolist() == rows
    for name in numbered(0):
        assert all(is_of(name, one, number) for one, number in zip(found[name], rows, strict=True)), name
    for row in rows[:3]:
        assert all(is_of(name, several[row][name], row) for name in numbered(0))


def test_damage_is_told_of_the_store_that_has_it(paths: list[Path], tmp_path: Path) -> None:
    """A sample whose bytes changed is refused with the path of its store, among several, by itself and with others; a
    batch names its row."""
    copies = [Path(shutil.copytree(path, tmp_path / path.name)) for path in paths]
    (shard,) = copies[2].glob("shard-*")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    reader = Reader(copies, verify=True)
    assert is_of("image", reader[MANY - 2]["image"], MANY - 2)
    for asked in (MANY - 1, [0, MANY - 1]):
        with pytest.raises(DamagedStoreError, match="single: image was changed after packing"):
            reader[asked]
    with pytest.raises(WorkerError, match=rf"sample {MANY - 1} .*single: image was changed after packing"):
        list(reader.batches(16, workers=0))


# ---------------------------------------------------------------------------------------------- columns


def test_columns(rich: tuple[Reader, list[Any]]) -> None:
    """A column has one value for each sample, in the reader's order."""
    whole, given = rich
    for reader, rows in ((whole, range(COUNT)), (whole.select([7, 2, 2, -1]), [7, 2, 2, 11])):
        assert reader.column("text") == [f"sample {i}" for i in rows]
        assert same(reader.column("label"), np.array([i % 4 for i in rows]))
        assert same(reader.column("vector"), np.stack([given[i]["vector"] for i in rows]))
        assert same(reader.column("boxes"), [given[i]["boxes"] for i in rows])
        for name in ("image", "mask"):
            with pytest.raises(UsageError, match=rf"'{name}' is in shards.*fields=\['{name}'\]"):
                reader.column(name)
    for wrong in ("nothing", 5, ["label"]):
        with pytest.raises(UsageError, match="there is no field"):
            whole.column(wrong)  # type: ignore[arg-type]
    whole.column("boxes")[1][:] = 0
    assert (whole.column("boxes")[1] == 1).all(), "the values are copies"


# ---------------------------------------------------------------------------------------------- clips


def test_clips(tmp_path: Path) -> None:
    """Clips together are those one by one, with the frames as second axis; columns have a value for each clip or
    frame, unless clips are drawn anew each epoch."""
    reader = Reader(pack_frames(Frames([range(9), range(13)]), tmp_path / "videos", "memmap"))
    for clips in (reader.clips(3, stride=2), reader.clips(4, per_video=3), reader.clips(2).select([4, 0, 0])):
        asked = [0, -1, 1]
        batch, ones = clips[asked], [clips[i] for i in asked]
        assert list(batch) == list(ones[0])
        for name, value in ones[0].items():
            together = [batch[name][k] for k in range(3)]
            assert type(value) is type(together[0])
            assert all(same(together[k], one[name]) for k, one in enumerate(ones))
        for found, one in zip(clips.__getitems__(asked), ones, strict=True):
            assert all(same(found[name], one[name]) for name in one)
        assert same(clips.column("video"), np.array([clips[i]["video"] for i in range(len(clips))]))
    fixed = reader.clips(3, stride=2)
    assert same(fixed.column("frame"), np.stack([fixed[i]["frame"] for i in range(len(fixed))]))
    assert fixed.column("key") == [fixed[i]["key"] for i in range(len(fixed))]
    with pytest.raises(UsageError, match="'frame' of random clips differs from epoch to epoch"):
        reader.clips(4, per_video=3).column("frame")
