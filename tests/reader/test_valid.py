"""The field `valid`: in an evaluation by several ranks each sample counts once, though all have equal batches."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS
from running import Packed

import rawpack_packer
from rawpack import Buckets, Ranks, Reader

WORLDS = (1, 2, 3, 5)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 13 videos, of 3 frames each."""
    where, rows = tmp_path_factory.mktemp("frames") / "store", np.arange(39)
    columns = {"image": np.zeros((39, 8, 8, 3), np.uint8), "video": rows // 3, "frame": rows % 3}
    rawpack_packer.pack(columns, where, workers=0)
    return where


def ranks_of(reader: Reader, size: int, world: int, **options: Any) -> list[list[dict[str, Any]]]:
    """The batches of an epoch, of each rank."""
    options = {"workers": 0, "fields": ["label"]} | options
    return [list(reader.batches(size, ranks=(rank, world), **options)) for rank in range(world)]


def counted(ranks: list[list[dict[str, Any]]], name: str = "index") -> list[int]:
    """What counts, of all ranks."""
    return sorted(int(one) for batches in ranks for batch in batches for one in batch[name][batch["valid"]])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_each_sample_counts_once(reader: Reader, world: int, shuffle: Any) -> None:
    """Of all ranks together, valid samples are each sample once; the nth batches have the same size."""
    for size, samples in product((1, 4, 50), (1, 3, 23, 24)):
        ranks = ranks_of(reader.select(range(samples)), size, world, shuffle=shuffle)
        assert counted(ranks) == list(range(samples))
        shapes = [[len(batch["index"]) for batch in batches] for batches in ranks]
        assert shapes == [shapes[0]] * world
        for batch in (batch for batches in ranks for batch in batches):
            assert (batch["valid"].dtype, batch["valid"].shape) == (np.bool_, batch["index"].shape)


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_with_workers(reader: Reader, way: str) -> None:
    """The same with any workers; a batch of a resumed epoch says what it said before."""
    options: dict[str, Any] = {"shuffle": True, "ranks": (2, 3), "fields": ["image"], **WAYS[way]}
    batches, resumed = (reader.select(range(23)).batches(4, **options) for _ in range(2))
    whole = [(batch["index"].tolist(), batch["valid"].tolist()) for batch in batches]
    assert not all(whole[-1][1])
    next(iter(batches))
    resumed.load_state_dict(batches.state_dict() | {"epoch": 0})
    assert [(batch["index"].tolist(), batch["valid"].tolist()) for batch in resumed] == whole[1:]


@pytest.mark.parametrize("world", WORLDS)
def test_buckets_clips_and_mixes(packed: Packed, reader: Reader, frames: Path, world: int) -> None:
    """With batches of several sizes, where each size is filled up by itself, each sample counts once too; so do clips,
    and samples that a mix draws."""
    several = Reader(packed("memmap", "--size", "keep"))
    ranks = ranks_of(several, 3, world, fields=["image"], image_size=Buckets("auto"), shuffle=True)
    assert counted(ranks) == list(range(len(several)))
    assert len({len(batches) for batches in ranks}) == 1
    clips = Reader(frames).clips(3)
    assert counted(ranks_of(clips, 4, world, fields=["video"]), "clip") == list(range(len(clips)))
    mix = Reader.mix([(reader.select(range(12)), 0.5), (reader.select(range(12, 23)), 0.5)])
    (alone,) = ranks_of(mix, 4, 1)
    assert counted(ranks_of(mix, 4, world)) == sorted(row for batch in alone for row in batch["index"].tolist())


@pytest.mark.parametrize("fields", [None, ["valid", "label"]])
def test_it_comes_where_ranks_pad(reader: Reader, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of an epoch that ranks fill up has it, unnamed, all True where nothing was added: with one rank too,
    so that a loop for several runs alone. Where ranks leave samples out, or divide them, or are none, it must be
    named."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    options: dict[str, Any] = {"fields": fields, "workers": 0}
    for ranks in ("auto", (0, 1), (1, 2), Ranks(3, 4), Ranks("auto", last="pad")):
        *full, last = list(reader.batches(10, ranks=ranks, **options))
        assert full
        assert all(batch["valid"].all() for batch in full)
        assert last["valid"].all() == (ranks not in ((1, 2), Ranks(3, 4)))
    for given in ({}, {"ranks": Ranks(1, 2, last="keep")}, {"ranks": (1, 2), "drop_last": True}):
        for batch in reader.batches(10, **options, **given):
            assert ("valid" in batch) == (fields is not None)
            assert batch.get("valid", np.array(True)).all()
