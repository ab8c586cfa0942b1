"""Bits that flip on a disk: `inspect --verify` finds every one, and `Reader(verify=True)` those in what it reads."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import lmdb
import msgspec
import numpy as np
import pytest
import xxhash
from folders import flip
from hostile.copies import Copy
from pictures import picture, save
from reading import rows_of
from running import FORMATS, Ran, pack, run_here

from rawpack import DamagedStoreError, RawpackError, Reader
from rawpack.disk import manifest
from rawpack_packer import recipe as recipes

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


def place_of(store: Path, layout: str, row: int) -> tuple[str, int, int]:
    """(shard, offset, bytes) of what a sample of one size is made of, by the formats' own libraries."""
    shards = json.loads((store / "store.json").read_text())["shards"]
    shard = shards[row >= shards[0]["rows"]]
    name, row = shard["files"][0]["name"], row - (row >= shards[0]["rows"]) * shards[0]["rows"]
    size = SIDE * SIDE * 3
    if layout == "lmdb":
        with lmdb.open(str(store / name), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
            value = bytes(transaction.get(b"%012d" % row) or b"")
        return name, (store / name).read_bytes().index(value), len(value)
    if layout == "memmap":
        return name, 4096 + row * size, size
    with h5py.File(store / name) as file:
        many = file["image"].chunks[0]
        chunk = file["image"].id.get_chunk_info(row // many)
    return name, chunk.byte_offset + row % many * size, chunk.size if many == 1 else size


def verified(store: Path) -> tuple[Ran, list[dict[str, Any]]]:
    ran = run_here("inspect", "--json", "--verify", store)
    assert "Traceback" not in ran.err
    return ran, json.loads(ran.out)["problems"] if ran.out else []


@over_stores
def test_a_flipped_bit_anywhere_is_found(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str, size: str
) -> None:
    """In every file of the store, provenance too: its first, middle and last byte and random ones; without --soak, the
    last one or a random one, but for the first shard. Exit code 1, and the file is named. `Reader(verify=True)` opens
    no store with a changed column."""
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
                if name.startswith("columns-1"):
                    with pytest.raises(DamagedStoreError, match=re.escape(name)):
                        Reader(store, verify=True)
            assert ran.code == 1, (name, at, bit)
            assert name in ran.err or any(name in one["where"] or name in one["what"] for one in problems), (name, at)
    assert verified(store)[1] == []


@pytest.mark.parametrize("layout", ["memmap", "hdf5-chunk4", "hdf5-gzip", "lmdb"])
def test_the_sample_that_a_bit_belongs_to_is_named(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str
) -> None:
    """The first sample of a shard, one in the middle and the last: number and key, and no sample beside them.
    `Reader(verify=True)` raises for it by number, in batches of this process and of workers; the others still read."""
    store = shutil.copytree(sound(layout, "24"), tmp_path / "store")
    keys = [*Reader(store).column("key")]
    for number in (0, 30, 65):
        name, offset, length = place_of(store, layout, number)
        # Of a JPEG, inside its entropy-coded data. A process for HDF5 and LMDB themselves, once.
        probe = nullcontext() if number == 30 else mock.patch(PROBE, return_value=None)
        with flipped(store / name, offset + length * 3 // 4, 2), probe:
            ran, problems = verified(store)
            assert ran.code == 1
            assert {one["where"] for one in problems if one["where"].startswith("sample")} == {
                f"sample {number} ({keys[number]})"
            }
            if number != 30:
                continue
            reader = Reader(store, verify=True)
            with pytest.raises(DamagedStoreError):
                reader[number]
            for workers in (0, 1):
                with pytest.raises(RawpackError, match=r"checksum|damaged"):
                    list(reader.batches(8, workers=workers))
            whole = reader.select([i for i in range(COUNT) if i != number])
            assert len(rows_of(whole.batches(8, workers=1))) == COUNT - 1


@pytest.mark.parametrize("layout", ["memmap", "hdf5", "hdf5-gzip"])
def test_a_verifying_reader_raises_for_images_of_any_size(
    sound: Callable[[str, str], Path], tmp_path: Path, layout: str
) -> None:
    """One by one and in batches; others still read."""
    store, at, bad = shutil.copytree(sound(layout, "keep"), tmp_path / "store"), 9000, list[int]()
    path = min(store.glob("shard-*"))
    if layout != "memmap":
        with h5py.File(path) as file:
            info = file["image"].id.get_chunk_info(0)
        at = info.byte_offset + info.size // 2
    flip(path, at)
    reader = Reader(store, verify=True)
    for row in range(COUNT):
        try:
            reader[row]
        except DamagedStoreError:
            bad.append(row)
    assert 0 < len(bad) < COUNT
    with pytest.raises(RawpackError, match=r"checksum|damaged|DamagedStoreError"):
        list(reader.batches(8, workers=0, image_size=16))
    whole = reader.select([row for row in range(COUNT) if row not in bad])
    assert len(rows_of(whole.batches(8, workers=0, image_size=16))) == COUNT - len(bad)


def test_a_column_that_does_not_read_is_found_though_its_checksums_fit(
    sound: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """A key that is no text."""
    copy, name = Copy(Path(shutil.copytree(sound("memmap", "24"), tmp_path / "store"))), "columns-1/key.npy"
    data = copy.read(name)
    data[-1] = 0xFF
    for record in copy.records(name):
        record["xxh3"] = xxhash.xxh3_64_hexdigest(bytes(data))
    copy.forge(name, bytes(data))
    with pytest.raises(DamagedStoreError):
        Reader(copy.path)[COUNT - 1]
    assert verified(copy.path)[0].code == 1


@pytest.mark.parametrize("name", ["shard-00000.npy", "columns-1/label.npy"])
def test_a_sparse_terabyte_is_refused_before_all_of_it_is_read(
    sound: Callable[[str, str], Path], tmp_path: Path, name: str
) -> None:
    """A file with a sound beginning, named with that size in a manifest that fits."""
    copy, size = Copy(Path(shutil.copytree(sound("memmap", "24"), tmp_path / "store"))), 1 << 40
    for record in copy.records(name):
        record["bytes"] = size
    copy.seal()
    os.truncate(copy.path / name, size)
    with mock.patch("rawpack.disk.mapped.xxhash.xxh3_64_hexdigest", wraps=lambda data: "0" * 16) as hashed:
        ran, problems = verified(copy.path)
    assert (ran.code, name in [one["where"] for one in problems]) == (1, True)
    assert all(len(call.args[0]) < size for call in hashed.call_args_list)


# ---------------------------------------------------------------------------------------------- manifests


def test_labels_beyond_the_classes_are_no_sound_store(sound: Callable[[str, str], Path], tmp_path: Path) -> None:
    """A manifest with fewer classes than the labels need, sealed or not: a loss with that many outputs would fail. The
    first such sample is named, with the number of the others. Without labels, they are those of the boxes."""
    save(tmp_path / "0.png", picture(16, 16, 0))
    (tmp_path / "list.jsonl").write_text('{"path": "0.png", "boxes": [[1, 1, 9, 9, 0], [2, 2, 8, 8, 1]]}\n')
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    options = ("--size", 16, "--field", "boxes:xyxy", "--classes", tmp_path / "names.txt")
    boxes = pack(tmp_path / "list.jsonl", tmp_path / "boxes", *options)
    labels = shutil.copytree(sound("memmap", "24"), tmp_path / "labels")
    for store, field, others in ((labels, "label", ", and 32 others like it"), (boxes, "boxes", "")):
        made, _ = manifest.load(store)
        made = msgspec.structs.replace(made, classes=made.classes[:1])
        (store / manifest.NAME).write_bytes(manifest.dump(made))
        what = f"is not a class{others}: the manifest lists 1 class, counted from 0"
        (problem,) = verified(store)[1]
        assert (problem["where"], problem["what"].endswith(what)) == (f"field {field}", True)


def test_a_manifest_of_very_many_shards_and_classes_opens(sound: Callable[[str, str], Path]) -> None:
    """20,000 shards, and 100,000 classes with names of two letters: none of the limits is theirs."""
    found, _ = manifest.load(sound("memmap", "24"))
    shard, count = found.shards[0], 20_000

    def named(i: int) -> manifest.Shard:
        (record,) = shard.files
        return msgspec.structs.replace(shard, files=(msgspec.structs.replace(record, name=f"s{i}"),))

    many = msgspec.structs.replace(
        found,
        samples=shard.rows * count,
        shards=tuple(map(named, range(count))),
        columns=(msgspec.structs.replace(found.columns[0], rows=shard.rows * count),),
        classes=tuple("%02x" % (i % 256) for i in range(100_000)),
    )
    assert manifest.parse(manifest.dump(many), "it")[0] == many
    # As others may write it: without any space.
    tight = msgspec.json.encode(many)[:-1] + b"\n}"
    assert manifest.parse(manifest.seal(tight), "it")[0] == many
