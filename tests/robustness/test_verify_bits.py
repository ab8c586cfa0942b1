"""Bits that flip on a disk: `inspect --verify` finds every one, and `Reader(verify=True)` those in what it reads."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import lmdb
import numpy as np
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from folders import flip
from pictures import picture, save
from reading import rows_of
from running import FORMATS, Ran, pack, run_here

from rawpack import DamagedStoreError, RawpackError, Reader
from rawpack.store.store import Store
from rawpack_packer import recipe as recipes
from rawpack_packer.inspect.verify import ShardProbe

SOAK = bool(os.environ.get("RAWPACK_SOAK"))
PROBE = "rawpack_packer.inspect.verify.ShardProbe.complaint"
COUNT, SIDE = 66, 24
"""Two more than the smallest shard holds."""
STORES = [
    ("memmap", "24"), ("memmap", "keep"), ("hdf5-chunk4", "24"), ("hdf5", "keep"), ("hdf5-gzip", "24"),
    ("hdf5-gzip", "keep"), ("lmdb", "24"),
]  # fmt: skip
over_stores = pytest.mark.parametrize(("layout", "size"), STORES, ids=["-".join(one) for one in STORES])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """66 images of slightly different sizes, one file that is none."""
    root = tmp_path_factory.mktemp("bits") / "source"
    for i in range(COUNT):
        save(root / f"class {i % 2}" / f"{i:02d}.jpg", picture(SIDE + i % 5, SIDE + i % 7, i))
    (root / "class 1" / "bad.jpg").write_text("no image")
    return root


@pytest.fixture(scope="module")
def sound(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """`sound("lmdb", "keep")`: a store of two shards, packed once."""
    stores: dict[tuple[str, str], Path] = {}

    def get(layout: str, size: str) -> Path:
        if (layout, size) not in stores:
            where = tmp_path_factory.mktemp("sound") / "store"
            with mock.patch.object(recipes, "_KEEP_PART", 64):
                options = ("--size", size, "--shard-size", "1", "--max-rejects", "1")
                stores[layout, size] = pack(source, where, *FORMATS[layout], *options)
        return stores[layout, size]

    return get


@contextmanager
def flipped(path: Path, at: int, bit: int) -> Iterator[None]:
    """The file with one bit turned over."""
    flip(path, at, 1 << bit)
    try:
        yield
    finally:
        flip(path, at, 1 << bit)


def keys_of(store: Path) -> list[str]:
    """The keys of all samples, by numpy alone."""
    text = np.load(store / "columns-1" / "key.npy").tobytes()
    ends = np.load(store / "columns-1" / "key.offset.npy")
    return [text[ends[i] : ends[i + 1]].decode() for i in range(len(ends) - 1)]


def places(store: Path, layout: str, size: str) -> list[tuple[str, int, int]]:
    """(shard, offset, bytes) of what each sample is made of in its file, by the formats' own libraries."""
    manifest = json.loads((store / "store.json").read_text())
    found = []
    row = 0
    for shard in manifest["shards"]:
        name, rows = shard["files"][0]["name"], range(row, row + shard["rows"])
        row += shard["rows"]
        if layout == "lmdb":
            data = (store / name).read_bytes()
            with lmdb.open(str(store / name), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
                for key, value in txn.cursor():
                    assert data.count(value) == 1, key
                    found.append((name, data.index(value), len(value)))
            continue
        if size == "keep":
            shapes = np.load(store / "columns-1" / "image.shape.npy")
            sizes = [int(np.prod(shapes[k])) for k in rows]
        else:
            sizes = [SIDE * SIDE * 3 for _ in rows]
        starts = np.cumsum([0, *sizes])
        if layout == "memmap":
            found += [(name, 4096 + int(starts[k]), sizes[k]) for k in range(len(sizes))]
            continue
        with h5py.File(store / name) as file:
            image = file["image"]
            chunk = image.chunks[0] if size == "keep" else image.chunks[0] * SIDE * SIDE * 3
            for k in range(len(sizes)):
                info = image.id.get_chunk_info(int(starts[k]) // chunk)
                if layout == "hdf5-gzip":
                    found.append((name, info.byte_offset, info.size))
                else:
                    found.append((name, info.byte_offset + int(starts[k]) % chunk, sizes[k]))
    return found


def verified(store: Path) -> tuple[Ran, list[dict[str, Any]]]:
    ran = run_here("inspect", "--json", "--verify", store)
    assert "Traceback" not in ran.err
    return ran, json.loads(ran.out)["problems"] if ran.out else []


@over_stores
def test_a_flipped_bit_anywhere_is_found(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str, size: str
) -> None:
    """In every file of the store, provenance too: its first, middle and last byte and random ones; without --soak, the
    last one or a random one, but for the first shard. Exit code 1, and the file is named."""
    store = tmp_path / "store"
    shutil.copytree(sound(layout, size), store)
    dice = np.random.default_rng(len(layout) + len(size))
    names = sorted(path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())
    assert {"store.json", "rejects.jsonl", "provenance.json", "provenance.npy", "columns-1/key.npy"} < set(names)
    for number, name in enumerate(names, STORES.index((layout, size))):
        length, all_kinds = (store / name).stat().st_size, SOAK or name.startswith("shard-00000")
        spots = {0, length // 2, length - 1} if all_kinds else {length - 1} if number % 2 else set()
        spots |= set(dice.integers(length, size=40 if SOAK else 1).tolist()) if all_kinds or not spots else set()
        for at in sorted(spots):
            # What HDF5 and LMDB themselves say of a shard costs a process, and is not needed to find a bit.
            probe = nullcontext() if SOAK else mock.patch(PROBE, return_value=None)
            with flipped(store / name, at, bit := int(dice.integers(8))), probe:
                ran, problems = verified(store)
            assert ran.code == 1, (name, at, bit)
            assert name in ran.err or any(name in one["where"] or name in one["what"] for one in problems), (name, at)
    assert verified(store)[1] == []


@over_stores
def test_the_sample_that_a_bit_belongs_to_is_named(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str, size: str
) -> None:
    """The first sample of a shard, one in the middle and the last: number and key, and of no sample beside them (where
    images share a compressed chunk, of all in it)."""
    store = tmp_path / "store"
    shutil.copytree(sound(layout, size), store)
    keys, where = keys_of(store), places(store, layout, size)
    assert len(keys) == len(where) == COUNT
    dice = np.random.default_rng(3)
    for number in (0, 30, 65):
        name, offset, length = where[number]
        at = offset + int(dice.integers(length // 4, length))
        # A process for HDF5 and LMDB themselves, once.
        probe = nullcontext() if number == 30 else mock.patch(PROBE, return_value=None)
        with flipped(store / name, at, int(dice.integers(8))), probe:
            ran, problems = verified(store)
            if not number:
                assert f"sample {number} ({keys[number]})" in run_here("inspect", "--verify", store).out
        assert ran.code == 1
        named = {one["where"] for one in problems if one["where"].startswith("sample")}
        assert f"sample {number} ({keys[number]})" in named, (number, problems)
        together = {f"sample {k} ({keys[k]})" for k in range(COUNT) if where[k][:2] == where[number][:2]}
        assert named <= (together if layout == "hdf5-gzip" else {f"sample {number} ({keys[number]})"})


@over_stores
def test_a_verifying_reader_raises_for_a_flipped_bit(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str, size: str
) -> None:
    """`Reader(verify=True)`: by number, in batches of this process and of workers; the other samples still read."""
    store = tmp_path / "store"
    shutil.copytree(sound(layout, size), store)
    number = 40
    name, offset, length = places(store, layout, size)[number]
    chunk_mates = {40} if layout != "hdf5-gzip" or size == "24" else set(range(64))
    # Behind the head of the file, which is looked at when it is opened; of a JPEG, inside its entropy-coded data.
    at = max(offset + length * 3 // 4, 8192)
    options: dict[str, Any] = {} if size == "24" else {"image_size": 16}
    with flipped(store / name, at, 2):
        reader = Reader(store, verify=True)
        with pytest.raises(DamagedStoreError):
            reader[number]
        for workers in (0, 1):
            with pytest.raises(RawpackError, match=r"checksum|damaged"):
                list(reader.batches(8, workers=workers, **options))
        whole = reader.select([i for i in range(COUNT) if i not in chunk_mates and i != number])
        assert len(rows_of(whole.batches(8, workers=1, **options))) == len(whole)
    assert len(rows_of(reader.batches(8, workers=1, **options))) == COUNT


def test_what_was_inflated_to_be_checked_is_not_inflated_again(sound: Callable[[str, str], Path]) -> None:
    """A verifying reader of compressed images inflates as often as one that does not verify, in scattered order."""

    def inflations(*, verify: bool) -> int:
        with mock.patch("rawpack.formats.codecs.deflate.zlib.decompressobj", wraps=zlib.decompressobj) as inflate:
            reader = Reader(sound("hdf5-gzip", "keep"), verify=verify)
            list(reader.batches(16, shuffle=True, workers=0, image_size=16))
            reader[40]
        return inflate.call_count

    assert 0 < inflations(verify=True) <= inflations(verify=False)


@pytest.mark.own_processes
def test_a_process_that_dies_is_blamed_on_no_other_shard(sound: Callable[[str, str], Path]) -> None:
    """LMDB is asked about one shard after another in one process; where that is dead, a new one is asked."""
    others = psutil.Process().children()
    with closing(ShardProbe(Store(sound("lmdb", "24")))) as probe:
        assert probe.complaint(0, "image") is None
        (child,) = set(psutil.Process().children()) - set(others)
        assert probe.complaint(1, "image") is None
        assert set(psutil.Process().children()) - set(others) == {child}
        child.kill()
        assert probe.complaint(0, "image") is None
    assert set(psutil.Process().children()) <= set(others)
