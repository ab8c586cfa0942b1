"""Shards that change while they are read: an error that names the file where they were written to in place, and no end
of the process; nothing where they were replaced or removed."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import Forks
from pictures import picture, save
from reading import WAYS
from running import pack, run_here

from rawpack import DamagedStoreError, Reader, StoreError, WorkerError, Workers, look
from rawpack.disk import mapped
from rawpack.disk.manifest import FileRecord
from rawpack.disk.mapped import MappedFiles
from rawpack_packer.view.looked_at import LookedAt

COUNT, SIDE = 80, 96
"""Images of more than 16 KiB are read ahead: the steps of an epoch are computed long before."""
CHILD = """
import os, sys
from pathlib import Path
import rawpack, rawpack.choose.layout, rawpack.disk.mapped
from rawpack import DamagedStoreError, Reader, Workers

store, change, when, options = Path(sys.argv[1]), sys.argv[2], sys.argv[3], eval(sys.argv[4])
rawpack.disk.mapped._LOOK_EVERY_S = rawpack.disk.mapped._LOOK_SHARE = 0
rawpack.choose.layout.TOGETHER_HERE_BYTES = 1  # batch by batch
shard = sorted(store.glob("shard-*"))[0]

def damage():
    if change == "truncate":
        os.truncate(shard, 100)
    elif change == "overwrite":
        size = shard.stat().st_size
        shard.write_bytes(bytes(size))
        os.utime(shard, ns=(1, 1))
    elif change == "column":
        os.truncate(store / "columns-1" / "label.npy", 200)

reader = Reader(store)
for _ in reader.batches(8, workers=0):
    pass
try:
    if when == "epoch":
        damage()
        for _ in reader.batches(8, **options):
            pass
    elif when == "batch":
        for number, batch in enumerate(reader.batches(8, **options)):
            if number == 2:
                damage()
    else:
        damage()
        [reader[i] for i in range(len(reader))]
except DamagedStoreError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("changed")
    for i in range(COUNT):
        save(root / "source" / str(i % 2) / f"{i:02d}.jpg", picture(SIDE, SIDE, i))
    return pack(root / "source", root / "store", "--size", str(SIDE), "--shard-size", "1")


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.skipif(os.name != "posix", reason="where a mapped file cannot be written over, nobody does")
@pytest.mark.parametrize(
    ("change", "when", "options"),
    [
        ("column", "epoch", {"workers": 0}),
        ("overwrite", "batch", {"workers": 0}),
        ("truncate", "sample", {}),
    ],
)
def test_a_file_written_over_in_place_is_an_error_and_not_the_end_of_the_process(
    forks: Forks, store: Path, change: str, when: str, options: dict[str, object]
) -> None:
    """Truncated, or filled with other bytes: a DamagedStoreError that names the file and the cure, where this process
    copies, at the next epoch and, as soon as it is looked at again, within one."""
    ran = forks.run(CHILD, store, change, when, repr(options))
    assert ran.code == 0, ran
    name = "label.npy" if change == "column" else "shard-00000.npy"
    assert str(store) in ran.out
    assert name in ran.out
    assert "never overwrite a file of a store" in ran.out


WAYS_IN: dict[str, Callable[[Reader], Any]] = {
    "a sample": lambda reader: reader[20],
    "a selection": lambda reader: reader.select([3, 4])[0],
    "the page": lambda reader: LookedAt.of(reader).sample(20),
    "a condition": lambda reader: reader.select(where="label == 1"),
    "a column": lambda reader: reader.column("label"),
    "a key": lambda reader: look(reader).find(key="0"),
    "a place": lambda reader: look(reader).where_is(20),
}
COLUMNS = {"a condition": "label", "a column": "label", "a key": "key", "a place": "image.xxh3"}
"""Those that read only columns -> a file of these."""


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_file_is_compared_before_it_is_read(store: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way in is taken, a file that was cut short since is an error that names it, at once: here by a byte, so
    that who touches it all the same does not die of it."""
    monkeypatch.setattr(mapped, "_LOOK_EVERY_S", 3600)
    reader, read = Reader(store), WAYS_IN[way]
    reader[:]
    read(reader)
    cut = store / "columns-1" / f"{COLUMNS[way]}.npy" if way in COLUMNS else store / "shard-00000.npy"
    os.truncate(cut, cut.stat().st_size - 1)
    with pytest.raises(DamagedStoreError, match=rf"{re.escape(str(cut))} has \d+ bytes now.*never overwrite"):
        read(reader)


@pytest.mark.parametrize("way", WAYS)
def test_files_are_compared_whenever_a_batch_is_handed_out(
    store: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within an epoch, not only where its steps are computed."""
    monkeypatch.setattr(mapped, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(mapped, "_LOOK_SHARE", 0)
    reader = Reader(store)
    reader[:]
    shard = store / "shard-00000.npy"
    batches = iter(reader.batches(4, shuffle=True, **WAYS[way]))
    for _ in range(3):
        next(batches)
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(DamagedStoreError, match=r"shard-00000\.npy has \d+ bytes now"):
        next(batches)


@pytest.mark.parametrize(
    ("change", "options"),
    [("rename", {"workers": 0}), ("remove", {"workers": Workers(2, backend="thread")}), ("touch", {"workers": 0})],
)
def test_a_file_replaced_removed_or_touched_goes_on_being_read(
    store: Path, change: str, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has opened a shard gives the samples of that shard, whatever else is put under its name, and does
    not mind a new time of the same file."""
    monkeypatch.setattr(mapped, "_LOOK_EVERY_S", 0)
    reader = Reader(store)
    before = np.concatenate([batch["image"] for batch in reader.batches(8, workers=0)])
    batches = reader.batches(8, **options)
    list(batches)
    for file in [*store.glob("shard-*"), *(store / "columns-1").glob("*")]:
        if change == "rename":
            file.with_name("other").write_bytes(bytes(100))
            file.with_name("other").replace(file)
        elif change == "remove":
            file.unlink()
        else:
            os.utime(file, ns=(1, 1))
    for _ in range(2):
        assert np.array_equal(np.concatenate([batch["image"].copy() for batch in batches]), before)
    assert np.array_equal(reader[3]["image"], before[3])


def test_a_store_packed_anew_is_not_mixed_with_the_one_that_was_opened(store: Path, tmp_path: Path) -> None:
    """Where other images of the same size are under the name of a shard that was looked at, but not read in batches, no
    batch has them with the labels of before: an error names the file."""
    reader = Reader(store)
    before = reader[0]["image"]
    for i in range(COUNT):
        save(tmp_path / "source" / str(i % 2) / f"{i:02d}.jpg", picture(SIDE, SIDE, COUNT + i))
    other = pack(tmp_path / "source", tmp_path / "other", "--size", str(SIDE), "--shard-size", "1")
    for file in other.glob("shard-*"):
        file.replace(store / file.name)
    with pytest.raises(WorkerError, match=r"DamagedStoreError: .*shard-00000\.npy is not the file that was packed"):
        list(reader.batches(8, workers=0))
    assert np.array_equal(reader[0]["image"], before)


def test_a_copy_of_a_selection_has_the_same_samples(store: Path, tmp_path: Path) -> None:
    """A pickled selection gives its own samples after an append, and an error where its rows are others by then: never
    those. A copy of a whole reader has what is there."""
    few, whole = Reader(store).select([1, COUNT - 1]), Reader(store)
    behind = pickle.dumps(Reader([store, store]).select([COUNT + 1]))
    expected, copies = few[1], (pickle.dumps(few), pickle.dumps(whole))
    for i in range(3):
        save(tmp_path / "source" / "0" / f"z{i}.jpg", picture(SIDE, SIDE, COUNT + i))
    ran = run_here("append", "--workers", 0, "--quiet", tmp_path / "source", store)
    assert ran.code == 0, ran
    found, all_of_it = (pickle.loads(copy) for copy in copies)
    assert (found[1]["key"], len(found), len(all_of_it)) == (expected["key"], 2, COUNT + 3)
    assert np.array_equal(found[1]["image"], expected["image"])
    with pytest.raises(StoreError, match=r"has other samples by now .*select again"):
        pickle.loads(behind)
    shutil.rmtree(store)
    pack(tmp_path / "source", store, "--size", str(SIDE))
    with pytest.raises(StoreError, match=r"has other samples by now .*select again"):
        pickle.loads(copies[0])
    assert len(pickle.loads(copies[1])) == 3


def test_very_many_files_are_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all files take too long to look at, each look goes on where the one before it ended: none is left out."""
    monkeypatch.setattr(mapped, "_LOOK_S", 0.0)
    monkeypatch.setattr(mapped, "_LOOK_FILES", 16)
    files = MappedFiles()
    for number in range(100):
        path = tmp_path / str(number)
        path.write_bytes(bytes(8))
        files.add(path, FileRecord(name=path.name, bytes=8, xxh3="0" * 16), path.stat())
    (tmp_path / "77").write_bytes(b"")
    said = []
    for _ in range(-(-100 // 16)):
        try:
            files.look(now=True)
        except DamagedStoreError as error:
            said.append(str(error))
    assert len(said) == 1
    assert f"{tmp_path / '77'} has 0 bytes now, but had 8 when it was opened" in said[0]
