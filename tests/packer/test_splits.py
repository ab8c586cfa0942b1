"""`rawpack pack --splits` and `--holdout`: which samples come into which store, and how a set of splits is read."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from folders import files_of, settled, states_of
from forked import COMMAND, Forks
from pictures import picture, save
from running import pack, run_here, stop_of

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UnfinishedStoreError, UsageError
from rawpack.disk.manifest import seal
from rawpack.disk.splits import read_splits
from rawpack_packer.job.holdout import draw
from rawpack_packer.sources import open_dataset, open_source
from rawpack_packer.sources.table.columns import texts_of

SMALL = ("--size", "16", "--shard-size", "1", "--workers", 0)


def folder(root: Path, classes: Mapping[str, int], first: int = 0) -> Path:
    """So many different PNG files in each class, numbered from `first` on."""
    for k, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + count):
            save(root / name / f"{i:03d}.png", picture(16, 16, 1000 * k + i))
    return root


def many(root: Path, classes: Mapping[str, int]) -> Path:
    """So many names of one image in each class."""
    image = save(root.with_suffix(".png"), picture(16, 16, 0))
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            os.link(image, root / name / f"{i:05d}.png")
    return root


def packed(source: Path, sets: Path, *options: object) -> Path:
    """Pack in this process, and insist that it went well."""
    ran = run_here("pack", "--quiet", *SMALL, *options, source, sets)
    assert (ran.code, ran.out, ran.err) == (0, "", ""), ran
    return sets


def held(sets: Path, split: str) -> dict[str, str]:
    """Key -> name of the class, of all samples of a split."""
    reader = Reader(sets, split=split)
    return {
        key: (reader.classes or ())[label]
        for batch in reader.batches(64, fields=["key", "label"], workers=0)
        for key, label in zip(batch["key"], batch["label"], strict=True)
    }


# ---------------------------------------------------------------------------------------------- divided


def test_each_split_is_a_store_of_its_folder_and_classes_have_one_number(tmp_path: Path) -> None:
    """Every split holds its folder's files, under classes that are the union of all; one that lacks some is told."""
    root = tmp_path / "root"
    folder(root / "train", {"cat": 4, "eel": 3})
    folder(root / "val", {"bird": 2, "eel": 2}, first=50)
    folder(root / "odd name", {"cat": 1})
    ran = run_here("pack", *SMALL, "--splits", "train,val,odd name", root, tmp_path / "sets")
    assert ran.code == 0, ran.err
    kept = "; each keeps its label, and later classes have the labels after it\n"
    assert f"classes without an image: 1 (bird){kept}" in ran.out
    assert "classes without an image: 2 (bird, eel)" in ran.out
    for name in ("train", "val", "odd name"):
        reader = Reader(tmp_path / "sets", split=name)
        assert reader.classes == ("bird", "cat", "eel")
        files = [path.relative_to(root / name).as_posix() for path in sorted((root / name).glob("*/*.png"))]
        assert held(tmp_path / "sets", name) == {key: key.partition("/")[0] for key in files}
        # A whole store: it opens alone, and images are those of `pack`.
        alone = pack(root / name, tmp_path / f"alone {name}", *SMALL[:4])
        for mine, its in zip(Reader(tmp_path / "sets" / name), Reader(alone), strict=True):
            assert np.array_equal(mine["image"], its["image"])
    told = json.loads(run_here("pack", *SMALL, "--json", "--splits", "train,val,odd name", root, tmp_path / "sets").out)
    assert {name: one["samples"] for name, one in told["splits"].items()} == {"train": 7, "val": 4, "odd name": 1}
    assert all(one["already_complete"] for one in told["splits"].values())


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    """A folder that is missing, names and amounts that make no sense, splits that are not alike: one line, nothing
    written."""
    root = tmp_path / "root"
    folder(root / "train", {"cat": 2})
    folder(root / "val", {"cat": 2})
    save(root / "flat" / "1.png", picture(16, 16, 1))
    flat = folder(tmp_path / "few", {"a": 3, "b": 1})
    before = files_of(tmp_path)
    for options, source, words in (
        (["--splits", "train,test"], root, "there is no 'test' in"),
        (["--splits", "train,../val"], root, "cannot be the name of a split"),
        (["--splits", "train,Train"], root, "names that differ by more than case"),
        (["--splits", "train,flat"], root, "has no classes, and another split has"),
        (["--splits", "train", "--holdout", "val=0.1"], root, "give one of them"),
        (["--seed", "3"], flat, "--seed applies to --holdout only"),
        (["--holdout", "val=1", "--seed", 1 << 63], flat, "must be a whole number between"),
        (["--holdout", "val=1", "--tmp", root], flat, "--tmp applies to a store at a URL"),
        (["--holdout", "val"], flat, "NAME=SHARE or NAME=NUMBER"),
        (["--holdout", "val=1.5"], flat, "a share below 1"),
        (["--holdout", "val=0.5,test=0.5"], flat, "nothing remains"),
        (["--holdout", "val=0.1,val=0.2"], flat, "twice"),
        (["--holdout", "train=0.1"], flat, "is what remains"),
        (["--holdout", "val=0.1"], flat, "takes nothing: the largest class"),
    ):
        ran = run_here("pack", "--quiet", *SMALL, *options, source, tmp_path / "sets")
        assert (ran.code, ran.out) == (2, ""), ran
        assert words in ran.err, ran.err
        assert len(ran.err.strip().splitlines()) == 1
    assert files_of(tmp_path) == before


def test_another_set_is_refused_and_restart_makes_it(tmp_path: Path) -> None:
    """Other splits, another seed, a store without splits, a set where a store is asked for: refused, all is left. A
    further split is added where the classes stay."""
    root = tmp_path / "root"
    for name, classes in (("train", {"cat": 2, "dog": 2}), ("val", {"cat": 1}), ("new", {"eel": 1})):
        folder(root / name, classes)
    sets = packed(root, tmp_path / "sets", "--splits", "train,val")
    before = states_of(sets)
    for options, source, words in (
        (["--splits", "train"], root, "finished set of splits (5 samples, "),
        (["--holdout", "val=0.5"], root / "train", "the splits differ: --splits train,val then"),
        (
            ["--splits", "train,val,new"],
            root,
            f"the classes differ: eel: name another destination. --restart deletes all splits in {sets} (5 samples, ",
        ),
        ([], root / "train", "is a set of splits"),
    ):
        ran = run_here("pack", "--quiet", *SMALL, *options, source, sets)
        assert (ran.code, words in ran.err) == (2, True), ran
    assert states_of(sets) == before
    packed(root, sets, "--restart", "--splits", "train,val,new")
    assert Reader(sets, split="new").classes == ("cat", "dog", "eel")
    folder(root / "test", {"dog": 1})
    packed(root, sets, "--splits", "train,val,new,test")
    assert held(sets, "test") == {"dog/000.png": "dog"}
    store = pack(root / "train", tmp_path / "store", *SMALL[:4])
    ran = run_here("pack", "--quiet", *SMALL, "--splits", "train", root, store)
    assert (ran.code, "is a store without splits" in ran.err) == (2, True), ran
    packed(root / "train", sets, "--restart", "--holdout", "val=1")
    assert sorted(path.name for path in sets.iterdir()) == ["splits.json", "train", "val"]


# ---------------------------------------------------------------------------------------------- drawn


@pytest.mark.parametrize(
    ("amounts", "shares"), [("val=0.1", {"val": 0.1}), ("val=10%,test=0.25", {"val": 0.1, "test": 0.25})]
)
def test_a_share_is_exact_in_every_class(tmp_path: Path, amounts: str, shares: dict[str, float]) -> None:
    """Of each class each split gets its share, rounded; every sample comes into one split; one of each class stays."""
    sizes = {"a": 1, "b": 2, "c": 9, "d": 10, "e": 100, "f": 333}
    source = many(tmp_path / "source", sizes)
    (source / "loose.png").write_bytes((tmp_path / "source.png").read_bytes())
    ran = run_here("pack", *SMALL, "--holdout", amounts, source, tmp_path / "sets")
    assert ran.code == 0, ran.err
    assert "1 class is too small and stays in train: a" in ran.err
    found = {name: [] for name in ("train", *shares)}  # type: dict[str, list[str]]
    for name in found:
        reader = Reader(tmp_path / "sets", split=name)
        assert reader.classes == tuple(sizes)
        found[name] = [key for batch in reader.batches(64, fields=["key"]) for key in batch["key"]]
    everything = [path.relative_to(source).as_posix() for path in source.rglob("*.png")]
    assert sorted(key for keys in found.values() for key in keys) == sorted(everything)
    for name, share in shares.items():
        counts = Counter(key.partition("/")[0] for key in found[name])
        assert counts == {cls: n for cls, size in sizes.items() if (n := min(int(share * size + 0.5), size - 1))}
    assert {cls for key in found["train"] if (cls := key.partition("/")[0]) in sizes} == set(sizes)


def test_a_number_is_of_each_class(tmp_path: Path) -> None:
    """`val=3` takes three of each class, and fewer only where one must stay."""
    source = many(tmp_path / "source", {"a": 2, "b": 3, "c": 4, "d": 50})
    sets = packed(source, tmp_path / "sets", "--holdout", "val=3")
    assert Counter(held(sets, "val").values()) == {"a": 1, "b": 2, "c": 3, "d": 3}


@pytest.mark.parametrize(("amount", "drawn"), [(1 / 3, 4), (1 / 7, 2), (0.5, 6), (5e-05, 0)])
def test_any_share_is_one_in_python(tmp_path: Path, amount: float, drawn: int) -> None:
    """Whatever digits a float has, of twelve samples."""
    images = np.zeros((12, 8, 8, 3), np.uint8)
    if not drawn:
        with pytest.raises(UsageError, match=r"holdout=\{'val': '0.00005'\} takes nothing"):
            rawpack_packer.pack_splits(images, tmp_path / "sets", holdout={"val": amount}, workers=0)
        return
    rawpack_packer.pack_splits(images, tmp_path / "sets", holdout={"val": amount}, workers=0)
    assert len(Reader(tmp_path / "sets", split="val")) == drawn


def test_a_seed_is_a_whole_number(tmp_path: Path) -> None:
    """Nothing is written for any other; a number of numpy is one, and the set opens."""
    images, sets = np.zeros((12, 8, 8, 3), np.uint8), tmp_path / "sets"
    seeds: list[Any] = [1.5, True, "1", 1 << 63]
    for seed in seeds:
        with pytest.raises(UsageError, match=r"seed=.* must be a whole number"):
            rawpack_packer.pack_splits(images, sets, holdout={"val": 3}, seed=seed, workers=0)
    assert not sets.exists()
    number: Any = np.int64(3)
    rawpack_packer.pack_splits(images, sets, holdout={"val": 3}, seed=number, workers=0)
    assert len(Reader(sets, split="val")) == 3


def test_a_class_that_is_too_small_is_told(tmp_path: Path) -> None:
    """Each split that gets less of a class than was asked for names the class; one that gets all says nothing."""
    source = many(tmp_path / "photos", {"big": 30, "few": 6, "single": 1})
    ran = run_here("pack", "--workers", 0, "--size", "8", "--holdout", "val=3,test=5", source, tmp_path / "sets")
    assert ran.code == 0, ran
    assert "1 class is too small and stays in train: single" in ran.err
    assert "test gets fewer than requested, since one of each class stays in train: of 1 class, few" in ran.err
    assert "val gets less" not in ran.err
    assert len(held(tmp_path / "sets", "test")) == 5 + 2


def test_the_draw_is_by_chance_and_by_nothing_else(tmp_path: Path) -> None:
    """The same seed draws the same; over 400 seeds each of 40 samples is held out about as often as the others."""
    source = open_source(many(tmp_path / "source", {"a": 40}))
    times, draws = np.zeros(40), []
    for seed in range(400):
        rows = draw(source, {"val": "0.25"}, seed).rows["val"]
        assert len(rows) == 10
        times[rows] += 1
        draws.append(tuple(rows.tolist()))
    assert tuple(draw(source, {"val": "0.25"}, 7).rows["val"].tolist()) == draws[7]
    assert len(set(draws)) == 400
    # Binomial, 400 times 0.25: 100, and a deviation of 8.7; chi-squared of 39 degrees of freedom ends below 80.
    assert ((times - 100) ** 2 / 75).sum() < 80


def test_the_draw_of_version_1_never_changes() -> None:
    """What seed 0 holds out of a hundred named samples: what the page says, and what it was when it was first made."""
    source = open_dataset([np.zeros((2, 2), np.uint8)] * 100, keys=[f"k{i}" for i in range(100)])
    drawn = {name: rows.tolist() for name, rows in draw(source, {"val": "5", "test": "0.03"}, 0).rows.items()}
    key = xxhash.xxh3_64_intdigest(b"rawpack holdout 1 0")
    ranked = sorted(range(100), key=lambda i: xxhash.xxh3_64_intdigest(f"k{i}".encode(), seed=key))
    assert drawn == {"train": sorted(ranked[8:]), "val": sorted(ranked[:5]), "test": sorted(ranked[5:8])}
    assert (drawn["val"], drawn["test"]) == ([32, 45, 51, 55, 95], [10, 78, 91])


def test_files_that_come_later_move_few_others(tmp_path: Path) -> None:
    """One more file in a class moves at most one other across the end of each split; another class is left alone."""
    root = many(tmp_path / "source", {"a": 100, "b": 100})
    amounts = {"val": "0.1", "test": "0.2"}

    def splits() -> dict[str, str]:
        source = open_source(root)
        return {source.key(i): name for name, rows in draw(source, amounts, 3).rows.items() for i in rows.tolist()}

    before = splits()
    for i in range(30):
        os.link(tmp_path / "source.png", root / "a" / f"new {i}.png")
        after = splits()
        moved = [key for key in before if before[key] != after[key]]
        assert len(moved) <= 2
        assert all(key.startswith("a/") for key in moved)
        before = after


def test_groups_are_never_divided() -> None:
    """Frames of one video come into one split, together, and the share is of videos."""
    keys = [f"video {v}#{i}" for v in range(40) for i in range(3 + v % 5)]
    groups = texts_of([key.partition("#")[0] for key in keys])
    source = open_dataset([np.zeros((2, 2), np.uint8)] * len(keys), keys=keys).but(groups=groups)
    for seed in range(20):
        rows = draw(source, {"val": "0.1"}, seed).rows
        videos = {name: {keys[i].partition("#")[0] for i in found} for name, found in rows.items()}
        assert not videos["train"] & videos["val"]
        assert (len(videos["train"]), len(videos["val"])) == (36, 4)
        assert sum(map(len, rows.values())) == len(keys)


def test_arrays_and_datasets_name_their_groups(tmp_path: Path) -> None:
    """An array `video` beside the images, and a dataset's `groups`, are what is not divided."""
    videos = np.array([f"v{i // 4}" for i in range(40)])
    np.savez(tmp_path / "set.npz", image=np.zeros((40, 8, 8, 3), np.uint8), video=videos)

    class Clips(list[Any]):
        groups = videos.tolist()

    for source in (open_source(tmp_path / "set.npz"), open_dataset(Clips([np.zeros((8, 8, 3), np.uint8)] * 40))):
        rows = draw(source, {"val": "0.2"}, 1).rows["val"]
        assert Counter(Counter(videos[rows].tolist()).values()) == {4: 2}


def test_datasets_and_arrays_are_split_too(tmp_path: Path) -> None:
    """A dict of datasets, each with its own classes; a dataset that tells its `targets`, drawn by class; an array."""
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), np.uint8)

    class Set:
        def __init__(self, classes: list[str], rows: range) -> None:
            self.classes, self._rows = classes, rows
            self.targets = [i % len(classes) for i in rows]

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, i: int) -> Any:
            return images[self._rows[i]], self.targets[i]

    done = rawpack_packer.pack_splits(
        {"train": Set(["dog", "cat"], range(20)), "val": Set(["eel", "cat"], range(20, 30))}, tmp_path / "dict"
    )
    assert {name: summary.manifest.samples for name, summary in done.items()} == {"train": 20, "val": 10}
    for name, classes, first in (("train", ["dog", "cat"], 0), ("val", ["eel", "cat"], 20)):
        reader = Reader(tmp_path / "dict", split=name)
        assert reader.classes == ("cat", "dog", "eel")
        for i, sample in enumerate(reader):
            assert reader.classes[sample["label"]] == classes[i % 2]
            assert np.array_equal(sample["image"], images[first + i])
    rawpack_packer.pack_splits(Set(["a", "b", "c"], range(30)), tmp_path / "drawn", holdout={"val": 0.2}, workers=0)
    assert Counter(held(tmp_path / "drawn", "val").values()) == {"a": 2, "b": 2, "c": 2}
    np.savez(tmp_path / "set.npz", image=images, label=np.arange(30) % 3)
    sets = tmp_path / "arrays"
    ran = run_here("pack", "--quiet", "--holdout", "val=2", "--workers", 2, tmp_path / "set.npz", sets)
    assert ran.code == 0, ran.err
    reader = Reader(sets, split="val")
    assert Counter(int(sample["label"]) for sample in reader) == {0: 2, 1: 2, 2: 2}
    for sample in reader:
        assert np.array_equal(sample["image"], images[int(sample["key"])])


# ---------------------------------------------------------------------------------------------- read, looked at


def test_a_reader_wants_to_know_which(tmp_path: Path) -> None:
    """Without a split, and with one that is not there, the error lists them; so for folders that hold stores without a
    `splits.json`. Several sets are read as one; a copy through pickle reads the same split."""
    import pickle

    source = folder(tmp_path / "source", {"a": 5, "b": 5})
    sets = packed(source, tmp_path / "sets", "--holdout", "val=2,test=1")
    with pytest.raises(UsageError, match="contains the splits train, val, test: name one, such as split='train'"):
        Reader(sets)
    with pytest.raises(UsageError, match="has no split 'dev': it has train, val, test"):
        Reader(sets, split="dev")
    for name in ("..", "../sets/train", "", "splits.json"):
        with pytest.raises(UsageError, match="has no split"):
            Reader(sets, split=name)
    with pytest.raises(UsageError, match="is a store without splits"):
        Reader(sets / "val", split="val")
    reader = pickle.loads(pickle.dumps(Reader(sets, split="val")))
    assert [sample["key"] for sample in reader] == list(held(sets, "val"))
    assert len(Reader([sets, sets], split="test")) == 4
    (sets / "splits.json").unlink()
    with pytest.raises(UsageError, match="contains the splits test, train, val"):
        Reader(sets)
    assert len(Reader(sets, split="test")) == 2


@pytest.mark.parametrize("name", ["../outside", "/tmp", "", ".hidden", "a/b", "store.json", "new\nline", "x" * 300])
def test_a_strangers_set_leads_nowhere(tmp_path: Path, name: str) -> None:
    """A `splits.json` that names what is no folder beside it is refused, whatever lies there."""
    sets = packed(folder(tmp_path / "source", {"a": 3}), tmp_path / "sets", "--holdout", "val=1")
    shutil.copytree(sets / "val", tmp_path / "outside")
    (sets / "splits.json").write_bytes(seal(json.dumps({"splits": ["train", name]}, indent=1).encode()))
    for split in (None, "train", name):
        with pytest.raises(DamagedStoreError, match="names a split that cannot be a folder"):
            Reader(sets, split=split)
    assert run_here("inspect", sets).code == 1


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_file_of_that_name_by_another_program_is_none_of_a_set(tmp_path: Path, size: int) -> None:
    """Next to a store, it keeps nobody from packing, reading, appending and exporting; in a destination, it is a file
    like any other."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "splits.json").write_text(json.dumps({"train": ["x" * size], "val": []}, indent=1))
    source, store = folder(tmp_path / "source", {"a": 3}), data / "train"
    pack(source, store, *SMALL)
    assert "the recipe differs" in stop_of("pack", "--workers", 0, "--size", 8, source, store)
    ran = run_here("append", "--workers", 0, "--quiet", folder(tmp_path / "more", {"a": 2}, first=50), store)
    assert (ran.code, ran.err) == (0, ""), ran
    assert len(Reader(data, split="train")) == 5
    assert run_here("export", "--quiet", "--to", "webdataset", store, tmp_path / "out").code == 0
    for options in ([], ["--splits", "a"]):
        assert "contains other files (splits.json" in stop_of("pack", "--workers", 0, *options, source, data)


def test_a_link_is_no_split_to_be_packed(tmp_path: Path) -> None:
    """Packing and --restart touch nothing that a link in the set leads to."""
    source, outside = folder(tmp_path / "source", {"a": 3}), tmp_path / "outside"
    sets = packed(source, tmp_path / "sets", "--holdout", "val=1")
    (sets / "val").rename(outside)
    (sets / "val").symlink_to(outside)
    before = states_of(outside)
    for options in ([], ["--restart"]):
        ran = run_here("pack", "--quiet", *SMALL, *options, "--holdout", "val=1", source, sets)
        assert (ran.code, "is a symbolic link" in ran.err) == (2, True), ran
    assert states_of(outside) == before


def test_inspect_warm_and_bench_take_all_splits(tmp_path: Path) -> None:
    """`inspect` shows and checks every split, and finds damage in one; `warm` and `bench` take all; what is about one
    store says so."""
    source = folder(tmp_path / "source", {"a": 5, "b": 5})
    sets = packed(source, tmp_path / "sets", "--holdout", "val=2")
    told = json.loads(run_here("inspect", "--verify", "--json", sets).out)
    assert {name: one["samples"] for name, one in told["splits"].items()} == {"train": 6, "val": 4}
    assert told["problems"] == []
    ran = run_here("inspect", "--verify", sets)
    assert (ran.code, ran.out.count("the store is sound")) == (0, 2)
    assert run_here("warm", sets).code == 0
    told = json.loads(
        run_here("bench", "--json", "--no-cold", "--rounds", 1, "--seconds", 0.01, "--workers", 0, sets).out
    )
    assert [one["path"] for one in told["stores"]] == [str(sets / "train"), str(sets / "val")]
    assert f"name {sets / 'train'} or {sets / 'val'}" in stop_of("inspect", "--grid", tmp_path / "grid.png", sets)
    shard = sets / "val" / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert run_here("inspect", "--verify", sets).code == 1
    text = (sets / "splits.json").read_text()
    (sets / "splits.json").write_text(text.replace("val", "va1"))
    with pytest.raises(DamagedStoreError):
        Reader(sets, split="train")


def test_classes_that_are_numbered_differently_are_told(tmp_path: Path) -> None:
    """Without a check, too, as text and as JSON; a check ends with exit code 1."""
    sets = tmp_path / "sets"
    for name, classes in (("train", {"cat": 2, "dog": 2}), ("val", {"ant": 1, "dog": 1})):
        pack(folder(tmp_path / name, classes), sets / name, *SMALL)
    (sets / "splits.json").write_bytes(seal(json.dumps({"splits": ["train", "val"]}, indent=1).encode()))
    for options, code in (([], 0), (["--verify-quick"], 1)):
        ran = run_here("inspect", *options, sets)
        assert (ran.code, "val: its classes are not numbered as those of train" in ran.out) == (code, True), ran
        ran = run_here("inspect", "--json", *options, sets)
        assert (ran.code, json.loads(ran.out)["problems"]) == (
            code, [{"where": "val", "what": "its classes are not numbered as those of train"}]
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- stopped in the middle


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_a_set_that_is_killed_goes_on_where_it_was(tmp_path: Path, forks: Forks) -> None:
    """SIGKILL at random moments, in the first split, between them, in the second: finished splits stay as they are, and
    the set is that of an undisturbed run."""
    source = tmp_path / "source"
    for k in range(6):
        save(source / f"{k % 2}" / f"{k:04d}.jpg", picture(72, 80, k))
    for k in range(6, 700):
        os.link(source / f"{k % 2}" / f"{k % 6:04d}.jpg", source / f"{k % 2}" / f"{k:04d}.jpg")
    options = ("--size", "64", "--shard-size", "1", "--holdout", "val=0.4")
    undisturbed = settled(packed(source, tmp_path / "undisturbed", *options))
    dice, sets, kills, finished = random.Random(5), tmp_path / "sets", 0, dict[str, Any]()
    for after in (0, 3, 7, 8, None):
        with forks.started(COMMAND, "pack", "--workers", int(after in (3, 8)), *options, source, sets) as run:
            while after is not None and not run.ends_within(0):
                done = len(list(sets.glob("*/shard-*")))
                if done >= after and (after or (sets / "splits.json").exists()):
                    time.sleep(dice.random() * 0.03)
                    run.kill()
                    break
                time.sleep(0.002)
            ran = run.wait()
        assert ran.code in (0, -signal.SIGKILL), ran.err
        kills += ran.code != 0
        for name, state in finished.items():
            assert states_of(sets)[name] == state
        if (sets / "train" / "store.json").exists():
            finished = {
                name: state for name, state in states_of(sets).items() if name.startswith("train/") and "/." not in name
            }
            if ran.code and not (sets / "val" / "store.json").exists():
                with pytest.raises(UnfinishedStoreError):
                    Reader(sets, split="val")
    assert kills >= 2
    assert ran.out.count("is complete already") >= 1
    assert settled(sets) == undisturbed


def test_a_run_that_was_killed_before_the_first_split_goes_on(tmp_path: Path) -> None:
    """Nothing there yet but a `splits.json` that was not given its name."""
    source = folder(tmp_path / "source", {"a": 3})
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "splits.json.tmp").write_text("half")
    packed(source, tmp_path / "sets", "--holdout", "val=1")
    assert sorted(path.name for path in (tmp_path / "sets").iterdir()) == ["splits.json", "train", "val"]
    found = read_splits(tmp_path / "sets")
    assert found is not None
    assert (found.splits, found.holdout, found.seed, found.draw) == (("train", "val"), {"val": "1"}, 0, 1)


def test_all_splits_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space for either split, and not for both: seen before anything is written."""
    for name in ("train", "val"):
        many(tmp_path / "root" / name, {"a": 50})
    monkeypatch.setattr("rawpack_packer.destination.folder.free_bytes", lambda _: 60_000)
    for name in ("train", "val"):
        packed(tmp_path / "root" / name, tmp_path / name)
    ran = run_here("pack", "--quiet", *SMALL, "--splits", "train,val", tmp_path / "root", tmp_path / "sets")
    assert (ran.code, "has 60 kB free" in ran.err) == (2, True), ran
    assert not (tmp_path / "sets").exists()


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    """What each split would take is told; no folder is made."""
    source = folder(tmp_path / "source", {"a": 5})
    ran = run_here("pack", "--dry-run", "--json", *SMALL, "--holdout", "val=2", source, tmp_path / "sets")
    assert ran.code == 0, ran.err
    assert {name: one["samples"] for name, one in json.loads(ran.out).items()} == {"train": 3, "val": 2}
    assert not (tmp_path / "sets").exists()


@pytest.mark.parametrize("name", ["set", "set.tar"])
def test_a_source_that_does_not_exist(tmp_path: Path, name: str) -> None:
    """`--splits` of a missing folder or archive names it, and not one of its splits."""
    assert f"there is no file or folder {tmp_path / name}: check" in stop_of(
        "pack", "--splits", "train,val", tmp_path / name, tmp_path / "out"
    )


def _files(store: Path) -> dict[str, bytes]:
    batches = Reader(store).batches(1, fields=["image", "key"], decode=False, workers=0)
    return {batch["key"][0]: bytes(batch["image"][0]) for batch in batches}


def test_splits_of_a_store_keep_its_files(tmp_path: Path) -> None:
    """JPEG files of a store go into its splits as they are, and the splits say which store they are made of."""
    for i in range(6):
        save(tmp_path / f"photos/{'ab'[i % 2]}/{i}.png", picture(40, 30, i))
    rawpack_packer.pack(tmp_path / "photos", tmp_path / "store", format="lmdb", quality=60, size=16, workers=0)
    rawpack_packer.pack_splits(tmp_path / "store", tmp_path / "set", holdout="val=1", seed=0, format="lmdb", workers=0)
    assert {**_files(tmp_path / "set/train"), **_files(tmp_path / "set/val")} == _files(tmp_path / "store")
    for split in ("train", "val"):
        recipe = json.loads((tmp_path / "set" / split / "store.json").read_text())["recipe"]
        assert [store["digest"] for store in recipe["origin"]] == [Reader(tmp_path / "store").stores[0].digest]
