"""`rawpack pack --splits` and `--holdout`: which samples come into which store, and how a set of splits is read."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from folders import files_of, lmdb_values, settled, states_of
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


def seal_splits(sets: Path, *names: str) -> None:
    (sets / "splits.json").write_bytes(seal(json.dumps({"splits": names}, indent=1).encode()))


# ---------------------------------------------------------------------------------------------- divided


def test_each_split_is_a_store_of_its_folder_and_classes_have_one_number(tmp_path: Path) -> None:
    """Every split holds its folder's files, under classes that are the union of all; one that lacks some is told."""
    root, sets = tmp_path / "root", tmp_path / "sets"
    folder(root / "train", {"cat": 4, "eel": 3})
    folder(root / "val", {"bird": 2, "eel": 2}, first=50)
    folder(root / "odd name", {"cat": 1})
    ran = run_here("pack", *SMALL, "--splits", "train,val,odd name", root, sets)
    assert ran.code == 0, ran.err
    kept = "; each keeps its label, and later classes have the labels after it\n"
    assert f"classes without an image: 1 (bird){kept}" in ran.out
    assert "classes without an image: 2 (bird, eel)" in ran.out
    for name in ("train", "val", "odd name"):
        reader = Reader(sets / name)  # a whole store, with the images that `pack` gives
        assert reader.classes == ("bird", "cat", "eel")
        files = [path.relative_to(root / name).as_posix() for path in sorted((root / name).glob("*/*.png"))]
        assert held(sets, name) == {key: key.partition("/")[0] for key in files}
        alone = Reader(pack(root / name, tmp_path / f"alone {name}", *SMALL[:4]))
        for mine, its in zip(reader, alone, strict=True):
            assert np.array_equal(mine["image"], its["image"])
    told = json.loads(run_here("pack", *SMALL, "--json", "--splits", "train,val,odd name", root, sets).out)
    assert {name: one["samples"] for name, one in told["splits"].items()} == {"train": 7, "val": 4, "odd name": 1}
    assert all(one["already_complete"] for one in told["splits"].values())


@pytest.mark.parametrize(
    ("options", "source", "words"),
    [
        ("--splits train,test", "root", "there is no 'test' in"),
        ("--splits train,../val", "root", "cannot be the name of a split"),
        ("--splits train,Train", "root", "names that differ by more than case"),
        ("--splits train,flat", "root", "has no classes, and another split has"),
        ("--splits train --holdout val=0.1", "root", "give one of them"),
        ("--splits train,val", "missing", "there is no file or folder"),
        ("--splits train,val", "missing.tar", "there is no file or folder"),
        ("--seed 3", "few", "--seed applies to --holdout only"),
        (f"--holdout val=1 --seed {1 << 63}", "few", "must be a whole number between"),
        ("--holdout val=1 --tmp root", "few", "--tmp applies to a store at a URL"),
        ("--holdout val", "few", "NAME=SHARE or NAME=NUMBER"),
        ("--holdout val=1.5", "few", "a share below 1"),
        ("--holdout val=0.5,test=0.5", "few", "nothing remains"),
        ("--holdout val=0.1,val=0.2", "few", "twice"),
        ("--holdout train=0.1", "few", "is what remains"),
        ("--holdout val=0.1", "few", "takes nothing: the largest class"),
    ],
)
def test_what_cannot_be_split_is_refused(tmp_path: Path, options: str, source: str, words: str) -> None:
    """A folder that is missing, names and amounts that make no sense, splits that are not alike: one line, nothing
    written."""
    folder(tmp_path / "root/train", {"cat": 2})
    save(tmp_path / "root/flat/1.png", picture(16, 16, 1))
    folder(tmp_path / "few", {"a": 3, "b": 1})
    before = files_of(tmp_path)
    said = stop_of("pack", "--quiet", *SMALL, *options.split(), tmp_path / source, tmp_path / "sets")
    assert (words in said, len(said.splitlines())) == (True, 1), said
    assert files_of(tmp_path) == before


def test_another_set_is_refused_and_restart_makes_it(tmp_path: Path) -> None:
    """Other splits, another seed, a store without splits, a set where a store is asked for: refused, all is left. A
    further split is added where the classes stay."""
    root = tmp_path / "root"
    for name, classes in (("train", {"cat": 2, "dog": 2}), ("val", {"cat": 1}), ("new", {"eel": 1})):
        folder(root / name, classes)
    sets = packed(root, tmp_path / "sets", "--splits", "train,val")
    before = states_of(sets)
    differ = f"the classes differ: eel: name another destination. --restart deletes all splits in {sets} (5 samples, "
    for options, source, words in (
        (["--splits", "train"], root, "finished set of splits (5 samples, "),
        (["--holdout", "val=0.5"], root / "train", "the splits differ: --splits train,val then"),
        (["--splits", "train,val,new"], root, differ),
        ([], root / "train", "is a set of splits"),
    ):
        assert words in stop_of("pack", "--quiet", *SMALL, *options, source, sets)
    assert states_of(sets) == before
    packed(root, sets, "--restart", "--splits", "train,val,new")
    assert Reader(sets, split="new").classes == ("cat", "dog", "eel")
    folder(root / "test", {"dog": 1})
    packed(root, sets, "--splits", "train,val,new,test")
    assert held(sets, "test") == {"dog/000.png": "dog"}
    store = pack(root / "train", tmp_path / "store", *SMALL[:4])
    assert "is a store without splits" in stop_of("pack", "--quiet", *SMALL, "--splits", "train", root, store)
    packed(root / "train", sets, "--restart", "--holdout", "val=1")
    assert sorted(path.name for path in sets.iterdir()) == ["splits.json", "train", "val"]


# ---------------------------------------------------------------------------------------------- drawn


@pytest.mark.parametrize(
    ("amounts", "takes"),
    [
        ("val=10%,test=0.25", {"val": lambda size: int(0.1 * size + 0.5), "test": lambda size: int(size / 4 + 0.5)}),
        ("val=3", {"val": lambda size: 3}),
        (f"val={1 / 3}", {"val": lambda size: int(size / 3 + 0.5)}),
    ],
)
def test_a_share_is_exact_in_every_class(tmp_path: Path, amounts: str, takes: dict[str, Callable[[int], int]]) -> None:
    """Of each class each split gets its share, rounded, or its number; every sample comes into one split; one of each
    class stays."""
    sizes = {"a": 1, "b": 2, "c": 4, "d": 10, "e": 100}
    source = many(tmp_path / "source", sizes)
    (source / "loose.png").write_bytes((tmp_path / "source.png").read_bytes())
    ran = run_here("pack", *SMALL, "--holdout", amounts, source, tmp_path / "sets")
    assert ran.code == 0, ran.err
    assert "1 class is too small and stays in train: a" in ran.err
    keys = {name: Reader(tmp_path / "sets", split=name).column("key") for name in ("train", *takes)}
    everything = [path.relative_to(source).as_posix() for path in source.rglob("*.png")]
    assert sorted(itertools.chain(*keys.values())) == sorted(everything)
    for name, take in takes.items():
        counts = Counter(key.partition("/")[0] for key in keys[name])
        assert counts == {cls: n for cls, size in sizes.items() if (n := min(take(size), size - 1))}
    assert {key.partition("/")[0] for key in keys["train"]} == {*sizes, "loose.png"}


def test_shares_and_seeds_are_numbers_in_python(tmp_path: Path) -> None:
    """Of any digits and of numpy; nothing is written for a share that takes nothing, or for a seed that is none."""
    images, sets = np.zeros((12, 8, 8, 3), np.uint8), tmp_path / "sets"
    seeds: list[Any] = [1.5, True, "1"]
    for seed in seeds:
        with pytest.raises(UsageError, match=r"seed=.* must be a whole number"):
            rawpack_packer.pack_splits(images, sets, holdout={"val": 3}, seed=seed, workers=0)
    with pytest.raises(UsageError, match=r"holdout=\{'val': '0.00005'\} takes nothing"):
        rawpack_packer.pack_splits(images, sets, holdout={"val": 5e-05}, workers=0)
    assert not sets.exists()
    number: Any = np.int64(3)
    rawpack_packer.pack_splits(images, sets, holdout={"val": 1 / 7}, seed=number, workers=0)
    assert len(Reader(sets, split="val")) == 2


def test_the_draw_of_version_1_never_changes() -> None:
    """What seed 0 holds out of a hundred named samples: what the page says, and what it was when it was first made."""
    source = open_dataset([np.zeros((2, 2), np.uint8)] * 100, keys=[f"k{i}" for i in range(100)])
    drawn = {name: rows.tolist() for name, rows in draw(source, {"val": "5", "test": "0.03"}, 0).rows.items()}
    key = xxhash.xxh3_64_intdigest(b"rawpack holdout 1 0")
    ranked = sorted(range(100), key=lambda i: xxhash.xxh3_64_intdigest(f"k{i}".encode(), seed=key))
    assert drawn == {"train": sorted(ranked[8:]), "val": sorted(ranked[:5]), "test": sorted(ranked[5:8])}
    assert (drawn["val"], drawn["test"]) == ([32, 45, 51, 55, 95], [10, 78, 91])


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


def test_datasets_are_split_too(tmp_path: Path) -> None:
    """A dict of datasets, each with its own classes; a dataset that tells its `targets`, drawn by class."""
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), np.uint8)

    class Set:
        def __init__(self, classes: list[str], rows: range) -> None:
            self.classes, self._rows = classes, rows
            self.targets = [i % len(classes) for i in rows]

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, i: int) -> Any:
            return images[self._rows[i]], self.targets[i]

    given = {"train": Set(["dog", "cat"], range(20)), "val": Set(["eel", "cat"], range(20, 30))}
    done = rawpack_packer.pack_splits(given, tmp_path / "dict", workers=0)
    assert {name: summary.manifest.samples for name, summary in done.items()} == {"train": 20, "val": 10}
    for name, first in (("train", 0), ("val", 20)):
        reader = Reader(tmp_path / "dict", split=name)
        assert reader.classes == ("cat", "dog", "eel")
        for i, sample in enumerate(reader):
            assert reader.classes[sample["label"]] == given[name].classes[i % 2]
            assert np.array_equal(sample["image"], images[first + i])
    rawpack_packer.pack_splits(Set(["a", "b", "c"], range(30)), tmp_path / "drawn", holdout={"val": 0.2}, workers=0)
    assert Counter(held(tmp_path / "drawn", "val").values()) == {"a": 2, "b": 2, "c": 2}


# ---------------------------------------------------------------------------------------------- read, looked at


def test_a_reader_wants_to_know_which(tmp_path: Path) -> None:
    """Without a split, and with one that is not there, the error lists them; so for folders that hold stores without a
    `splits.json`. Several sets are read as one; a copy through pickle reads the same split."""
    source = folder(tmp_path / "source", {"a": 5, "b": 5})
    sets = packed(source, tmp_path / "sets", "--holdout", "val=2,test=1")
    for store, split, words in (
        (sets, None, "contains the splits train, val, test: name one, such as split='train'"),
        (sets, "dev", "has no split 'dev': it has train, val, test"),
        (sets, "../sets/train", "has no split"),
        (sets, "", "has no split"),
        (sets / "val", "val", "is a store without splits"),
    ):
        with pytest.raises(UsageError, match=words):
            Reader(store, split=split)
    reader = pickle.loads(pickle.dumps(Reader(sets, split="val")))
    assert [sample["key"] for sample in reader] == list(held(sets, "val"))
    assert len(Reader([sets, sets], split="test")) == 4
    (sets / "splits.json").unlink()
    with pytest.raises(UsageError, match="contains the splits test, train, val"):
        Reader(sets)
    assert len(Reader(sets, split="test")) == 2


def test_a_strangers_set_leads_nowhere(tmp_path: Path) -> None:
    """A `splits.json` that names what is no folder beside it is refused, whatever lies there."""
    sets = packed(folder(tmp_path / "source", {"a": 3}), tmp_path / "sets", "--holdout", "val=1")
    shutil.copytree(sets / "val", tmp_path / "outside")
    for name in ("../outside", "/tmp", "", ".hidden", "a/b", "store.json", "new\nline", "x" * 300):
        seal_splits(sets, "train", name)
        for split in (None, "train", name):
            with pytest.raises(DamagedStoreError, match="names a split that cannot be a folder"):
                Reader(sets, split=split)
        assert run_here("inspect", sets).code == 1


def test_a_file_of_that_name_by_another_program_is_none_of_a_set(tmp_path: Path) -> None:
    """Next to a store, it keeps nobody from packing, reading, appending and exporting; in a destination, it is a file
    like any other."""
    data = tmp_path / "data"
    data.mkdir()
    source, store = folder(tmp_path / "source", {"a": 3}), data / "train"
    for size in (10, 2_000_000):
        (data / "splits.json").write_text(json.dumps({"train": ["x" * size], "val": []}, indent=1))
        pack(source, store, *SMALL, "--restart")
        assert "the recipe differs" in stop_of("pack", "--workers", 0, "--size", 8, source, store)
        ran = run_here("append", "--workers", 0, "--quiet", folder(tmp_path / "more", {"a": 2}, first=50), store)
        assert (ran.code, ran.err) == (0, ""), ran
        assert len(Reader(data, split="train")) == 5
        assert run_here("export", "--quiet", "--to", "webdataset", store, tmp_path / f"out {size}").code == 0
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
        said = stop_of("pack", "--quiet", *SMALL, *options, "--holdout", "val=1", source, sets)
        assert "is a symbolic link" in said
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
    quick = ("--no-cold", "--rounds", 1, "--seconds", 0.01, "--workers", 0)
    told = json.loads(run_here("bench", "--json", *quick, sets).out)
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
    seal_splits(sets, "train", "val")
    what = "its classes are not numbered as those of train"
    for options, code in (([], 0), (["--verify-quick"], 1)):
        ran = run_here("inspect", *options, sets)
        assert (ran.code, f"val: {what}" in ran.out) == (code, True), ran
        ran = run_here("inspect", "--json", *options, sets)
        assert (ran.code, json.loads(ran.out)["problems"]) == (code, [{"where": "val", "what": what}])


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
    """Space for either split, and not for both: seen before anything is written. A dry run says what each takes."""
    for name in ("train", "val"):
        many(tmp_path / "root" / name, {"a": 50})
    args = ("pack", *SMALL, "--splits", "train,val", tmp_path / "root", tmp_path / "sets")
    told = json.loads(run_here(*args, "--dry-run", "--json").out)
    assert {name: one["samples"] for name, one in told.items()} == {"train": 50, "val": 50}
    monkeypatch.setattr("rawpack_packer.destination.folder.free_bytes", lambda _: 60_000)
    for name in ("train", "val"):
        packed(tmp_path / "root" / name, tmp_path / name)
    assert "has 60 kB free" in stop_of(*args)
    assert not (tmp_path / "sets").exists()


def test_splits_of_a_store_keep_its_files(tmp_path: Path) -> None:
    """JPEG files of a store go into its splits as they are, and the splits say which store they are made of."""
    for i in range(6):
        save(tmp_path / f"photos/{'ab'[i % 2]}/{i}.png", picture(40, 30, i))
    rawpack_packer.pack(tmp_path / "photos", tmp_path / "store", format="lmdb", quality=60, size=16, workers=0)
    rawpack_packer.pack_splits(tmp_path / "store", tmp_path / "set", holdout="val=1", seed=0, format="lmdb", workers=0)
    files, splits = lmdb_values(tmp_path / "store"), [tmp_path / "set/train", tmp_path / "set/val"]
    assert sorted(file for split in splits for file in lmdb_values(split)) == sorted(files)
    for split in splits:
        recipe = json.loads((split / "store.json").read_text())["recipe"]
        assert [store["digest"] for store in recipe["origin"]] == [Reader(tmp_path / "store").stores[0].digest]
