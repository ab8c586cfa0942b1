"""Every image of a sample through what reads stores: URLs, several stores, clips, adapters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import files_of
from reading import WAYS
from several import (
    COUNT,
    EXACT,
    FIELDS,
    LAYOUTS,
    NAMES,
    NEAR,
    PICTURES,
    Stored,
    check,
    first_of,
    others_of,
    sample_of,
    stores_in,
)
from store_server import serving

import rawpack_packer
from rawpack import Cache, Reader, UsageError


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return stores_in(tmp_path_factory.mktemp)


# ---------------------------------------------------------------------------------------------- remote stores


def test_a_store_behind_a_url(stored: Stored, tmp_path: Path) -> None:
    """Every image of a store behind HTTP, by workers too; only the files of the fields that are asked for are fetched,
    each once."""
    pytest.importorskip("aiohttp", reason="rawpack[remote] is not installed")
    store = stored("memmap")
    with serving() as server:
        server.put_folder("bucket/store", files_of(store))
        reader = Reader(f"{server.url}/bucket/store", cache=Cache(tmp_path / "cache", timeout=20))
        batches = reader.batches(16, fields=["target", "number"], workers=0)
        assert sum(len(batch["number"]) for batch in batches) == COUNT
        fetched = {Path(path).name for _, path in server.log if "shard-" in path}
        assert fetched == {f"shard-0000{k}.target.npy" for k in range(2)}
        seen = []
        for batch in reader.batches(16, shuffle=True, seed=2, workers=2):
            seen += [
                check({name: one[k] for name, one in batch.items()}, "memmap") for k in range(len(batch["number"]))
            ]
        assert sorted(seen) == list(range(COUNT))
        shards = [Path(path).name for _, path in server.log if "shard-" in path]
        assert sorted(shards) == sorted(path.name for path in store.glob("shard-*"))


# ---------------------------------------------------------------------------------------------- several stores, clips


def test_stores_of_different_sizes(stored: Stored, tmp_path: Path) -> None:
    """Read as one where all images are alike; mixed where some differ in size; refused by the name of the image that
    differs."""
    one, keep, other = stored("memmap"), stored("memmap", False), stored("hdf5")
    both = Reader([one, other])
    assert [check(both[i], "memmap") for i in (0, 5, COUNT, 2 * COUNT - 1)] == [0, 5, 0, COUNT - 1]
    small = tmp_path / "small"
    sizes: Any = {name: 4 if name == "target" else "keep" for name in NAMES if name != "seg"}
    rawpack_packer.convert(one, small, size=sizes, workers=0)
    with pytest.raises(UsageError, match=r"'target' is image uint8 \(48, 64, 3\) in the first and .*\(4, 4, 3\)"):
        Reader([one, small])
    mixed = Reader.mix([(one, 1), (small, 1)])
    assert (mixed.fields["target"].shape, mixed.fields["depth"].shape) == ((None, None, 3), (12, 16, 1))
    assert mixed[COUNT + 3]["target"].shape == (4, 4, 3)
    fields = [name for name in mixed.fields if name not in ("target", "boxes", "key")]
    for batch in mixed.batches(8, fields=fields, workers=0):
        assert np.bincount(batch["store"]).tolist() == [4, 4]
        for k in range(8):
            check({name: values[k] for name, values in batch.items()}, "memmap", without="target")
    pairs = Reader.mix([(keep, 1), (one, 1)])
    assert check(pairs[4], "memmap", one_size=False) == check(pairs[COUNT + 4], "memmap") == 4
    with pytest.raises(UsageError, match=r"sizes of images or masks differ .*target: 48x64.*, 4x4"):
        rawpack_packer.merge([one, small], tmp_path / "merged", prefix="names", workers=0)


class Frames:
    """Frames of three videos, each with an image of another size and a depth besides the first."""

    def __init__(self) -> None:
        self.numbers = [(video, frame) for video in range(3) for frame in range(12 + video)]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, Any]:
        video, frame = self.numbers[i]
        sample = sample_of(13 * video + frame, (12, 16), floats=False)
        return {name: sample[name] for name in ("image", "target", "depth", "seg", "number")} | {
            "video": video, "frame": frame,
        }  # fmt: skip


@pytest.mark.parametrize("layout", ["hdf5-gzip", "memmap-planes"])
def test_clips_of_every_image(tmp_path: Path, layout: str) -> None:
    """A clip has all images of its frames, by `reader[i]` and in batches of all workers."""
    fields = {name: FIELDS[name] for name in ("target", "depth", "seg")}
    rawpack_packer.pack(Frames(), tmp_path / "s", fields=fields, workers=0, shard_size="1", **LAYOUTS[layout])
    clips = Reader(tmp_path / "s").clips(frames=4, stride=2)
    for i in range(len(clips)):
        assert check_clip(clips[i], layout)
    for way in WAYS.values():
        batches = clips.batches(3, shuffle=True, seed=1, **way)
        seen = [
            check_clip({name: values[k] for name, values in batch.items()}, layout)
            for batch in batches for k in range(len(batch["number"]))
        ]  # fmt: skip
        assert len({*seen}) == len(clips)


def check_clip(clip: Mapping[str, Any], layout: str) -> int:
    """The number of its first frame + 1; fails unless each frame is whole."""
    assert (clip["target"].shape, clip["depth"].shape) == ((4, 48, 64, 3), (4, 12, 16, 1))
    for k in range(4):
        frame = {name: clip[name][k] for name in ("image", "target", "depth", "seg", "number")}
        number, image = int(frame["number"]), first_of(int(frame["number"]), (12, 16))
        for name, values in {"image": image, **others_of(image)}.items():
            if name in frame:
                near = 0 if layout in EXACT or name not in PICTURES else NEAR[layout]
                assert np.abs(frame[name].astype(int) - values).mean() <= near, name
        assert number == int(clip["number"][0]) + 2 * k
    return int(clip["number"][0]) + 1
