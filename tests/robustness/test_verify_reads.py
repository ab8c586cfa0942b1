"""`inspect --verify` against stores whose checksums all fit and whose samples do not read: it says so, wherever the
reader raises, and at once where a file is far larger than what it holds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import hostile
import msgspec
import pytest
from folders import flip
from hostile.copies import Copy
from hostile.refitted import refitted
from pictures import picture, save
from running import pack, run_here

from rawpack import DamagedStoreError, Reader
from rawpack.disk import manifest
from rawpack_packer.inspect.verify import verify

TERABYTE = 1 << 40
SOAK = bool(os.environ.get("RAWPACK_SOAK"))


def problems(store: Path) -> list[str]:
    """What the full check finds; HDF5 and LMDB themselves are not asked, who would find some of it too."""
    with mock.patch("rawpack_packer.inspect.verify.ShardProbe.complaint", return_value=None):
        try:
            return [f"{problem.where}: {problem.what}" for problem in verify(store, quick=False, tick=lambda _: None)]
        except DamagedStoreError as error:  # of the manifest
            return [str(error)]


def readable(store: Path) -> bool:
    """Whether every sample reads, with all fields."""
    try:
        reader = Reader(store)
        for row in range(len(reader)):
            reader[row]
    except DamagedStoreError:
        return False
    return True


def reseal(store: Path, **changed: Any) -> None:
    """Change the manifest, and make its checksum fit."""
    made, _ = manifest.load(store)
    (store / manifest.NAME).write_bytes(manifest.dump(msgspec.structs.replace(made, **changed)))


def test_labels_beyond_the_classes_are_no_sound_store(tmp_path: Path) -> None:
    """A manifest with fewer classes than the labels need, sealed or not: a loss with that many outputs would fail. The
    first such sample is named, with the number of the others; -1 is not a class, and fine."""
    for i in range(6):
        save(tmp_path / "in" / "ab"[i % 2] / f"{i}.png", picture(16, 16, i))
    store = pack(tmp_path / "in", tmp_path / "store", "--size", 16)
    assert problems(store) == []
    reseal(store, classes=("a",))
    what = "1 of sample 3 (b/1.png) is not a class, and 2 others like it: the manifest lists 1 class, counted from 0"
    assert problems(store) == [f"field label: {what}"]
    ran = run_here("inspect", "--verify", store)
    assert (ran.code, what in ran.out) == (1, True), ran
    (tmp_path / "list.csv").write_text("path,label\nin/a/0.png,a\nin/b/1.png,\n")
    assert problems(pack(tmp_path / "list.csv", tmp_path / "some", "--size", 16)) == []


def test_boxes_beyond_the_classes_are_no_sound_store(tmp_path: Path) -> None:
    """In a store without labels, the classes are those of the boxes."""
    save(tmp_path / "0.png", picture(16, 16, 0))
    (tmp_path / "list.jsonl").write_text('{"path": "0.png", "boxes": [[1, 1, 9, 9, 0], [2, 2, 8, 8, 1]]}\n')
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    options = ("--size", 16, "--field", "boxes:xyxy", "--classes", tmp_path / "names.txt")
    store = pack(tmp_path / "list.jsonl", tmp_path / "store", *options)
    assert problems(store) == []
    reseal(store, classes=("cat",))
    what = "1 of sample 0 (0.png) is not a class: the manifest lists 1 class, counted from 0"
    assert problems(store) == [f"field boxes: {what}"]


@pytest.mark.parametrize("variant", hostile.VARIANTS)
def test_where_a_sample_does_not_read_the_full_check_says_so(
    variant: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Texts, keys, offsets, shapes and headers that were changed, all checksums made to fit: "sound" is said of no
    store of which a sample does not read, and of each that is as it was."""
    unread, cases = 0, list(refitted(Copy(sound(variant))))
    # Every day one case in 48, others in other variants, and the store as it was.
    daily = cases if SOAK else [cases[0], *cases[1 + 3 * list(hostile.VARIANTS).index(variant) :: 48]]
    for number, case in enumerate(daily):
        store = tmp_path / str(number)
        shutil.copytree(sound(variant), store, copy_function=os.link)
        case.apply(Copy(store))
        found, reads = problems(store), readable(store)
        assert reads or found, case.name
        assert case.name != "nothing: changed" or (reads and not found)
        unread += not reads
        shutil.rmtree(store)
    assert unread


@pytest.mark.parametrize("variant", ["memmap", "hdf5-gzip", "lmdb", "fields-memmap-keep"])
def test_a_sparse_terabyte_is_refused_before_anything_of_it_is_read(
    variant: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A file of a terabyte with a sound beginning, named with that size in a manifest that fits: the check says what is
    wrong with it and does not read it."""
    names = [path.relative_to(sound(variant)).as_posix() for path in sorted(sound(variant).rglob("*.*"))]
    for name in [name for name in names if name.startswith(("shard", "columns", "rejects"))]:
        store = tmp_path / "store"
        shutil.copytree(sound(variant), store)
        copy = Copy(store)
        for record in copy.records(name):
            record["bytes"] = TERABYTE
        copy.seal()
        os.truncate(store / name, TERABYTE)
        hashed: list[int] = []

        def hash_of(data: Any, hashed: list[int] = hashed) -> str:
            hashed.append(len(data))
            return "0" * 16 if len(data) == TERABYTE else xxh3(data)

        from xxhash import xxh3_64_hexdigest as xxh3

        with mock.patch("rawpack.disk.mapped.xxhash.xxh3_64_hexdigest", hash_of):
            found = problems(store)
        assert any(name.split("/")[-1].split(".")[0] in one for one in found), (name, found)
        assert max(hashed) < TERABYTE, name
        shutil.rmtree(store)


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    for i in range(24):
        save(tmp_path / "source" / f"class {i % 2}" / f"{i}.jpg", picture(8, 8, i))
    return pack(tmp_path / "source", tmp_path / "store", "--size", "8")


@pytest.mark.parametrize("name", ["label", "key.offset", "image.xxh3"])
def test_a_verifying_reader_refuses_columns_that_were_changed(labeled: Path, name: str) -> None:
    """`Reader(verify=True)` checks labels and all other columns once, when it opens, and names the file and the cure;
    so does a copy of it by pickle."""
    path = labeled / "columns-1" / f"{name}.npy"
    Reader(labeled, verify=True)
    flip(path, -16)
    with pytest.raises(DamagedStoreError, match=rf"{name}.npy was changed after packing.*copy the store again"):
        Reader(labeled, verify=True)
    assert run_here("inspect", "--verify", labeled).code == 1


@pytest.mark.parametrize("classes", [None, 100_000])
def test_a_manifest_of_very_many_shards_or_classes_opens(labeled: Path, classes: int | None) -> None:
    """20,000 shards of two files, or 100,000 classes with names of two letters: none of the limits is theirs."""
    found, _ = manifest.load(labeled)
    (shard,) = found.shards
    if classes is not None:
        many = msgspec.structs.replace(found, classes=tuple("%02x" % (i % 256) for i in range(classes)))
    else:
        fields = found.fields | {"mask": msgspec.structs.replace(found.fields["image"], kind="mask")}
        (record,), placement = shard.files, shard.fields["image"]

        def shard_of(i: int) -> manifest.Shard:
            files = tuple(msgspec.structs.replace(record, name=f"s{i}.{k}") for k in range(2))
            placed = {"image": placement, "mask": msgspec.structs.replace(placement, file=1)}
            return manifest.Shard(rows=24, files=files, fields=placed)

        shards, samples = tuple(map(shard_of, range(20_000))), 24 * 20_000
        columns = (msgspec.structs.replace(found.columns[0], rows=samples),)
        many = msgspec.structs.replace(found, samples=samples, fields=fields, shards=shards, columns=columns)
    data = manifest.dump(many)
    assert manifest.parse(data, "it")[0] == many
    # As others may write it: without any space.
    tight = msgspec.json.encode(many)[:-1] + b"\n}"
    assert manifest.parse(manifest.seal(tight), "it")[0] == many
