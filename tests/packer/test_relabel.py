"""`rawpack relabel`: new small fields in a store whose images stay, in one step, whenever it is killed."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import running
from folders import files_of, flip, states_of
from pictures import save

import rawpack
from rawpack import Reader
from rawpack.errors import PackError, UsageError
from rawpack_packer.destination import files
from rawpack_packer.job import commit

_NAMES = [f"{folder}/{i}.png" for folder in ("cat", "dog") for i in range(5)]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is the same for all tests: the images, and a store of them."""
    root = tmp_path_factory.mktemp("once")
    for i, name in enumerate(_NAMES):
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.full((8, 8, 3), i, np.uint8))
    running.pack(root / "photos", root / "store", "--size", 8)
    return root


@pytest.fixture
def store(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once / "store", tmp_path / "store"))


def _table(path: Path, *rows: dict[str, Any]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _dogs(path: Path, *keys: str) -> Path:
    """A table that calls samples dogs."""
    return _table(path, *({"key": key, "label": "dog"} for key in keys))


def _sound(store: Path) -> bool:
    return running.run_here("inspect", "--verify", store).code == 0


def _relabel(store: Path, table: Path, *options: object) -> running.Ran:
    return running.run_here("relabel", "--from", table, *options, store)


@pytest.mark.parametrize("module", ["pandas", "polars", "pyarrow"])
def test_a_dataframe_is_written_back(module: str, store: Path) -> None:
    """Score, join by key, write back: values and dtypes are those of the frame; some labels may change."""
    library = pytest.importorskip(module)
    table = library.table if module == "pyarrow" else library.DataFrame
    scores = np.linspace(0, 1, 10, dtype=np.float32)
    columns = {"key": _NAMES[::-1], "score": scores, "fold": np.arange(10), "split": ["a", "b"] * 5}
    done = rawpack.relabel(store, table({**columns, "hot": [[1.5, 2.0]] * 10}))
    assert (done.named, done.added) == (10, ("score", "fold", "split", "hot"))
    reader = Reader(store, verify=True)
    assert reader.fields["score"].dtype == "float32"
    np.testing.assert_array_equal(reader.column("score"), scores[::-1])
    assert reader.column("fold").tolist() == [*range(9, -1, -1)]
    assert [*reader.column("split")] == ["b", "a"] * 5
    assert reader.column("hot").tolist() == [[1.5, 2.0]] * 10
    some = table({"id": ["cat/1.png", "dog/3.png", "dog/4.png"], "label": ["dog", "bird", None]})
    assert rawpack.relabel(store, some, key_column="id").new_classes == ("bird",)
    assert Reader(store).column("label").tolist() == [0, 1, 0, 0, 0, 1, 1, 1, 2, 1]
    with pytest.raises(UsageError, match="the table has no column 'key' with the keys of the samples, only id, label"):
        rawpack.relabel(store, some)
    with pytest.raises(UsageError, match=r"the table: row 1, column \(key\): 'a' is in row 0 already"):
        rawpack.relabel(store, table({"key": ["a", "a"], "label": ["dog", "cat"]}))


def test_some_labels_are_replaced_and_the_rest_stays(store: Path, tmp_path: Path) -> None:
    """Classes that are new come at the end; images, keys and a training's state stay; the store is sound."""
    before, state = files_of(store), Reader(store).batches(3, shuffle=True).state_dict()
    table = _table(tmp_path / "new.csv", {"key": "cat/1.png", "label": "dog"}, {"key": "dog/3.png", "label": "bird"})
    ran = _relabel(store, table)
    assert (ran.code, ran.err) == (0, "")
    assert "replaced label of 2 samples of 10" in ran.out
    assert re.search(r"new classes +bird", ran.out)
    reader = Reader(store, verify=True)
    assert reader.classes == ("cat", "dog", "bird")
    assert reader.column("label").tolist() == [0, 1, 0, 0, 0, 1, 1, 1, 2, 1]
    assert reader.column("key") == _NAMES
    assert [int(sample["image"][0, 0, 0]) for sample in reader] == list(range(10))
    after = files_of(store)
    assert {name for name in before if after[name] != before[name]} == {"store.json"}
    assert _sound(store)
    reader.batches(3, shuffle=True).load_state_dict(state)
    counts = json.loads((store / "store.json").read_text())["counts"]
    assert (counts["unlabelled"], counts["classes_of_one"], counts["empty_classes"]) == (0, 1, 0)
    assert "relabeled label" in running.run_here("inspect", store).out


@pytest.mark.parametrize(("suffix", "empty", "dog", "none"), [(".csv", "", "dog", "-1"), (".jsonl", None, 1, -1)])
def test_an_empty_label_stays_as_it_is(
    store: Path, tmp_path: Path, suffix: str, empty: Any, dog: Any, none: Any
) -> None:
    """As in the marks of `rawpack view`, of which some were filled in; -1 takes a label away."""
    labels = [dog, empty, none, *[empty] * 7]
    rows = [{"key": key, "label": label, "score": i} for i, (key, label) in enumerate(zip(_NAMES, labels, strict=True))]
    assert rawpack.relabel(store, _table(tmp_path / f"marks{suffix}", *rows)).new_classes == ()
    reader = Reader(store)
    assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog"), [1, 0, -1, 0, 0, 1, 1, 1, 1, 1])
    assert reader.column("score").tolist() == [*range(10)]


def test_fields_of_every_kind_are_added_and_given_twice_change_nothing(store: Path, tmp_path: Path) -> None:
    """Labels, numbers, NaN too, texts, lists, vectors and ragged arrays are added in the order of the store. The second
    time, no file changes, and the result says so; another value of one sample is a change."""
    rows: list[dict[str, Any]] = [
        {"path": name, "label": "new", "score": i / 8 or float("nan"), "words": "é " * i, "tags": ["a"] * i,
         "vector": [i, -i], "points": [[float(i), 1.0]] * (i % 3)}
        for i, name in enumerate(_NAMES)
    ]  # fmt: skip
    table = _table(tmp_path / "new.jsonl", *reversed(rows))
    kinds = {"points": "float32[?,2]", "score": "float16"}
    done = rawpack.relabel(store, table, fields=kinds)
    added = ("score", "words", "tags", "vector", "points")
    assert (done.added, done.replaced, done.new_classes, done.named) == (added, ("label",), ("new",), 10)
    assert list(Reader(store).fields) == ["image", "label", *added, "key"]
    assert Reader(store).fields["score"].dtype == "float16"
    before = states_of(store)
    assert "nothing to do: " in _relabel(store, table, *(f"--field={name}:{kind}" for name, kind in kinds.items())).out
    done = rawpack.relabel(store, table)
    assert (done.added, done.replaced, done.new_classes) == ((), (), ())
    assert states_of(store) == before
    other = {"label": "cat", "score": 7.0, "words": "new", "tags": ["b"], "vector": [7, 7], "points": [[5.0, 5.0]]}
    for number, (name, value) in enumerate(other.items(), start=3):
        rows[3] |= {name: value}
        assert "replaced" in _relabel(store, _table(tmp_path / "other.jsonl", rows[3])).out
        assert (store / f"columns-{number}").is_dir()
    reader = Reader(store, verify=True)
    assert [(reader.classes or ())[label] for label in reader.column("label")] == [row["label"] for row in rows]
    assert [reader.column(name) for name in ("words", "tags")] == [
        [row[name] for row in rows] for name in ("words", "tags")
    ]
    for name in ("score", "vector", "points"):
        for found, row in zip(reader.column(name), rows, strict=True):
            np.testing.assert_array_equal(np.asarray(found).tolist(), row[name])
    assert _sound(store)


def test_append_comes_before_and_after(store: Path, tmp_path: Path) -> None:
    """Samples that were appended get new labels, and later appends follow."""

    def append(i: int, *options: str) -> None:
        for folder in ("cat", "dog"):
            save(tmp_path / f"more-{i}" / folder / f"more-{i}.png", np.full((8, 8, 3), 100 + i, np.uint8))
        ran = running.run_here("append", "--workers", 0, *options, tmp_path / f"more-{i}", store)
        assert ran.code == 0, ran

    append(0)
    _relabel(store, _dogs(tmp_path / "new.csv", "cat/more-0.png"))
    _relabel(store, _dogs(tmp_path / "again.csv", "cat/0.png"))
    append(1)
    reader = Reader(store, verify=True)
    names = [*_NAMES, "cat/more-0.png", "dog/more-0.png", "cat/more-1.png", "dog/more-1.png"]
    assert reader.column("key") == names
    assert reader.column("label").tolist() == [1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1]
    assert [int(reader[i]["image"][0, 0, 0]) for i in range(10, 14)] == [100, 100, 101, 101]
    assert _sound(store)
    rawpack.relabel(store, _dogs(tmp_path / "third.csv", "cat/more-1.png"))
    assert Reader(store).column("label").tolist()[12] == 1
    append(1, "--skip-existing")  # what was appended is known by its files
    assert len(Reader(store)) == 14


def test_copies_in_hdf5_are_stale_only_where_that_is_allowed(once: Path, tmp_path: Path) -> None:
    """HDF5's shards have copies of columns, which keep their values."""
    store = running.pack(once / "photos", tmp_path / "store", "-f", "hdf5", "--compression", "gzip")
    table = _dogs(tmp_path / "new.csv", "cat/1.png")
    images = [sample["image"] for sample in Reader(store)]
    refused = _relabel(store, table)
    assert (refused.code, "copies of label" in refused.err, "--stale-copies" in refused.err) == (2, True, True)
    assert Reader(store).column("label").tolist() == [0] * 5 + [1] * 5
    assert "copies of label inside the HDF5 shards keep them" in _relabel(store, table, "--stale-copies").out
    with h5py.File(next(store.glob("*.h5"))) as shard:
        assert shard["label"][:].tolist() == [0] * 5 + [1] * 5
    reader = Reader(store, verify=True)
    assert reader.column("label").tolist() == [0, 1, 0, 0, 0, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal([sample["image"] for sample in reader], images)
    assert _sound(store)


_DOG = {"key": "cat/1.png", "label": 1}


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([{"key": "cat/1.png", "score": 1}], [], "score is new to"),
        ([_DOG | {"label": 2}], [], "is not a class of"),
        ([_DOG | {"key": "cat/9.png"}], [], "no sample of"),
        ([_DOG | {"key": "cat/9.png"}], ["--skip-unknown"], "has no key of"),
        ([_DOG, _DOG | {"label": 0}], [], "is on line 2 already"),
        ([{"key": "cat/1.png"}], [], "has keys, and no field"),
        ([_DOG], ["--field", "label:mask"], "pack again"),
        ([_DOG], ["--field", "score:float32"], "has no such column"),
        ([{"key": key, "label": ""} for key in _NAMES[:3]], [], "its column label is empty: fill it in"),
    ],
)
def test_it_refuses_and_changes_nothing(
    store: Path, tmp_path: Path, rows: list[dict[str, Any]], options: list[str], words: str
) -> None:
    """What does not fit is named in one line, and no byte of the store changes."""
    before = files_of(store)
    ran = _relabel(store, _table(tmp_path / "new.csv", *rows), *options)
    assert (ran.code, words in ran.err) == (2, True), ran
    assert files_of(store) == before


def test_boxes_stay_with_their_images(once: Path, tmp_path: Path) -> None:
    """Boxes, which move with their images, are not replaced; other fields beside them are."""
    rows = [
        {"path": str(once / "photos" / name), "boxes": [[0, 0, 4, 4, 1]], "score": i} for i, name in enumerate(_NAMES)
    ]
    listing = _table(tmp_path / "list.jsonl", *rows)
    store = running.pack(listing, tmp_path / "store", "--size", 8, "--field", "boxes:xyxy")
    ran = _relabel(store, _table(tmp_path / "new.jsonl", *({"key": one["path"], "boxes": []} for one in rows)))
    assert (ran.code, "boxes cannot be replaced" in ran.err) == (2, True), ran
    rawpack.relabel(store, _table(tmp_path / "score.jsonl", {"key": rows[4]["path"], "score": 77}))
    reader = Reader(store, verify=True)
    assert reader.column("score").tolist() == [0, 1, 2, 3, 77, 5, 6, 7, 8, 9]
    assert [one.tolist() for one in reader.column("boxes")] == [[[0, 0, 4, 4, 1]]] * 10


def test_a_damaged_column_is_not_copied(store: Path, tmp_path: Path) -> None:
    """A column whose checksum does not fit is named, and nothing is made of it."""
    flip(store / "columns-1/key.npy", -1)
    ran = _relabel(store, _dogs(tmp_path / "new.csv", "cat/1.png"))
    assert (ran.code, "key.npy" in ran.err) == (1, True)


class _Killed(BaseException):
    """Nothing in the product waits for this."""


def _count(monkeypatch: pytest.MonkeyPatch, left: int, end: BaseException) -> None:
    """Raise `end` before the disk is touched for the time after `left`."""
    steps = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **given: Any) -> Any:
            if next(steps) == left:
                raise end
            return function(*args, **given)

        return called

    for name in ("commit", "sync_file", "sync_folder", "write_whole", "record"):
        monkeypatch.setattr(files, name, counted(getattr(files, name)))
    monkeypatch.setattr(commit, "tidy", counted(commit.tidy))


@pytest.mark.parametrize("end", [_Killed(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["killed", "full"])
def test_ended_anywhere_it_is_the_old_or_the_new(store: Path, tmp_path: Path, end: BaseException) -> None:
    """Whatever step was the last, a reader finds all old values or all new ones, and the same call ends it. Once it
    finds the new ones, the call changes nothing, and removes what was left. A full disk leaves nothing of the new."""
    table = _table(tmp_path / "new.csv", *({"key": name, "label": "dog", "score": 1.5} for name in _NAMES))
    old, new, seen, whole = [0] * 5 + [1] * 5, [1] * 10, list[bool](), files_of(store)
    for left in itertools.count():
        copy = shutil.copytree(store, tmp_path / f"copy-{left}")
        with pytest.MonkeyPatch.context() as patched:
            _count(patched, left, end)
            try:
                rawpack.relabel(copy, table)
                done = True
            except (_Killed, PackError):
                done = False
        reader = Reader(copy)
        seen.append("score" in reader.fields)
        # What a kill leaves is no part of the store, which is sound, and `inspect` says what it is.
        assert rawpack.verify(copy) == []
        assert ("left over" in running.run_here("inspect", copy).out) == (copy / ".rawpack").exists()
        assert reader.column("label").tolist() == (new if seen[-1] else old)
        if done:
            break
        assert seen[-1] or isinstance(end, _Killed) or files_of(copy) == whole
        # It can be given again.
        before = {name: data for name, data in files_of(copy).items() if not name.startswith(".rawpack")}
        assert ("nothing to do" in _relabel(copy, table).out) == seen[-1]
        assert not seen[-1] or files_of(copy) == before
        assert Reader(copy).column("score").tolist() == [1.5] * 10
        assert not (copy / ".rawpack").exists()
    assert seen == sorted(seen)
    assert set(seen[:-1]) == {False, True}
    assert len(seen) > 10


def test_a_class_that_comes_to_two_splits_has_a_number_of_its_own_in_each(once: Path, tmp_path: Path) -> None:
    """As in an append: no number ever means two classes in one set of splits, which itself cannot be relabeled."""
    sets = running.pack(once / "photos", tmp_path / "sets", "--size", 8, "--holdout", "val=2")
    for split, name in (("train", "ant"), ("val", "bee"), ("train", "bee")):
        key = Reader(sets, split=split).column("key")[0]
        ran = _relabel(sets / split, _table(tmp_path / "new.csv", {"key": key, "label": name}))
        assert (ran.code, "new classes" in ran.out, name in ran.out) == (0, True, True), ran
        reader = Reader(sets, split=split)
        assert (reader.classes or ())[int(reader[0]["label"])] == name
    assert Reader(sets, split="train").classes == Reader(sets, split="val").classes == ("cat", "dog", "ant", "bee")
    assert _sound(sets)
    assert "is a set of splits: relabel one of them" in _relabel(sets, tmp_path / "new.csv").err
