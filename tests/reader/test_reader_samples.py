"""A reader as a list of samples: one by one, several together, and whole columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from running import Packed

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError

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


def test_damage_is_found(packed: Packed, tmp_path: Path) -> None:
    """verify=True checks each image that is read by a list."""
    import shutil

    store = shutil.copytree(packed("memmap", "--size", 48), tmp_path / "store")
    shard = store / "shard-00000.npy"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    rows = len(np.load(io.BytesIO(bytes(data))))
    reader = Reader(store, verify=True)
    reader[list(range(rows - 1))]
    with pytest.raises(DamagedStoreError):
        reader[[0, rows - 1]]


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
