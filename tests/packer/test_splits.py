"""`rawpack pack --splits`, `--holdout` and `--split-by`: which samples come into which store, and how a set is read.

`--limit`: some samples of a source.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import shutil
import signal
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from folders import files_of, flip, settled, states_of
from forked import Forks
from killed_child import killing
from pictures import picture, save
from running import pack, run_here, stop_of

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UnfinishedStoreError, UsageError
from rawpack.disk.manifest import seal
from rawpack_packer.job.holdout import draw
from rawpack_packer.sources import open_dataset, open_source
from rawpack_packer.sources.table.columns import texts_of

SMALL = ("--size", "8", "--shard-size", "1", "--workers", 0)


def folder(root: Path, classes: Mapping[str, int], first: int = 0) -> Path:
    """So many different PNG files in each class, numbered from `first` on."""
    for k, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + count):
            save(root / name / f"{i:03d}.png", picture(8, 8, 1000 * k + i))
    return root


def many(root: Path, classes: Mapping[str, int]) -> Path:
    """So many names of one image in each class."""
    image = save(root.with_suffix(".png"), picture(8, 8, 0))
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


def refused(source: Path, sets: Path, *options: object) -> str:
    return stop_of("pack", "--quiet", *SMALL, *options, source, sets)


def about(sets: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((sets / "splits.json").read_bytes())
    return said


def held(sets: Path, split: str) -> dict[str, str]:
    """Key -> name of the class, of all samples of a split."""
    reader = Reader(sets, split=split)
    return {
        key: (reader.classes or ())[label]
        for batch in reader.batches(64, fields=["key", "label"], workers=0)
        for key, label in zip(batch["key"], batch["label"], strict=True)
    }


def counts(sets: Path) -> dict[str, int]:
    return {name: len(Reader(sets, split=name)) for name in about(sets)["splits"]}


def seal_splits(sets: Path, *names: str) -> None:
    (sets / "splits.json").write_bytes(seal(json.dumps({"splits": names}, indent=1).encode()))


# ---------------------------------------------------------------------------------------------- divided


def test_each_split_is_a_store_of_its_folder_and_classes_have_one_number(tmp_path: Path) -> None:
    """Every split holds its folder's files, under classes that are the union of all; one that lacks some is told."""
    root, sets = tmp_path / "root", tmp_path / "sets"
    folder(root / "train", {"cat": 4, "eel": 3})
    folder(root / "odd name", {"bird": 2, "eel": 2}, first=50)
    ran = run_here("pack", *SMALL, "--splits", "train,odd name", root, sets)
    assert (ran.code, "classes without an image: 1 (bird); each keeps its label" in ran.out) == (0, True), ran
    for name in ("train", "odd name"):
        reader = Reader(sets / name)  # a whole store, with the images that `pack` gives
        assert reader.classes == ("bird", "cat", "eel")
        files = [path.relative_to(root / name).as_posix() for path in sorted((root / name).glob("*/*.png"))]
        assert held(sets, name) == {key: key.partition("/")[0] for key in files}
        alone = Reader(pack(root / name, tmp_path / f"alone {name}", *SMALL[:4]))
        for mine, its in zip(reader, alone, strict=True):
            assert np.array_equal(mine["image"], its["image"])
    told = json.loads(run_here("pack", *SMALL, "--json", "--splits", "train,odd name", root, sets).out)
    assert {name: one["samples"] for name, one in told["splits"].items()} == {"train": 7, "odd name": 4}
    assert all(one["already_complete"] for one in told["splits"].values())


@pytest.mark.parametrize(
    ("options", "source", "words"),
    [
        ("--splits train,test", "root", "there is no 'test' in"),
        ("--splits train,../val", "root", "cannot be the name of a split"),
        ("--splits train,Train", "root", "names that differ by more than case"),
        ("--splits train,flat", "root", "has no classes, and another split has"),
        ("--splits train --holdout val=0.1", "root", "give one of them"),
        ("--group-by x", "few", "--group-by applies to --holdout only"),
        (f"--holdout val=1 --seed {1 << 63}", "few", "must be a whole number between"),
        ("--holdout val=1.5", "few", "a share below 1"),
        ("--holdout val=0.5,test=0.5", "few", "nothing remains"),
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
    said = refused(tmp_path / source, tmp_path / "sets", *options.split())
    assert (words in said, len(said.splitlines())) == (True, 1), said
    assert files_of(tmp_path) == before


def test_another_set_is_refused_and_restart_makes_it(tmp_path: Path) -> None:
    """Other splits, another seed, a store without splits, a set where a store is asked for: refused, all is left. A
    further split is added where the classes stay."""
    root = tmp_path / "root"
    for name, classes in (("train", {"cat": 2, "dog": 2}), ("val", {"cat": 1}), ("new", {"eel": 1})):
        folder(root / name, classes)
    sets, store = packed(root, tmp_path / "sets", "--splits", "train,val"), packed(root / "train", tmp_path / "store")
    before = states_of(tmp_path)
    differ = f"the classes differ: eel: name another destination. --restart deletes all splits in {sets} (5 samples, "
    for options, source, destination, words in (
        (["--splits", "train"], root, sets, "finished set of splits (5 samples, "),
        (["--holdout", "val=0.5"], root / "train", sets, "the splits differ: --splits train,val then"),
        (["--splits", "train,val,new"], root, sets, differ),
        ([], root / "train", sets, "is a set of splits"),
        (["--splits", "train"], root, store, "is a store without splits"),
    ):
        assert words in refused(source, destination, *options)
    assert states_of(tmp_path) == before
    packed(root, sets, "--restart", "--splits", "train,val,new")
    assert Reader(sets, split="new").classes == ("cat", "dog", "eel")
    folder(root / "test", {"dog": 1})
    packed(root, sets, "--splits", "train,val,new,test")
    assert held(sets, "test") == {"dog/000.png": "dog"}
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
    source, sets = many(tmp_path / "source", sizes), tmp_path / "sets"
    (source / "loose.png").write_bytes((tmp_path / "source.png").read_bytes())
    ran = run_here("pack", *SMALL, "--holdout", amounts, source, sets)
    assert (ran.code, "1 class is too small and stays in train: a" in ran.err) == (0, True), ran
    keys = {name: Reader(sets, split=name).column("key") for name in ("train", *takes)}
    everything = [path.relative_to(source).as_posix() for path in source.rglob("*.png")]
    assert sorted(itertools.chain(*keys.values())) == sorted(everything)
    for name, take in takes.items():
        number = Counter(key.partition("/")[0] for key in keys[name])
        assert number == {cls: n for cls, size in sizes.items() if (n := min(take(size), size - 1))}
    assert {key.partition("/")[0] for key in keys["train"]} == {*sizes, "loose.png"}
    assert (about(sets)["seed"], about(sets)["draw"], [*about(sets)["holdout"]]) == (0, 1, [*takes])


def test_shares_and_seeds_are_numbers_in_python(tmp_path: Path) -> None:
    """Of any digits and of numpy; nothing is written for a share that takes nothing, or for a seed that is none."""
    images, sets, seed = np.zeros((12, 8, 8, 3), np.uint8), tmp_path / "sets", 1.5
    with pytest.raises(UsageError, match=r"seed=.* must be a whole number"):
        rawpack_packer.pack_splits(images, sets, holdout={"val": 3}, seed=seed)  # type: ignore[arg-type]
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


def test_groups_are_never_divided(tmp_path: Path) -> None:
    """Frames of one video come into one split, together, and the share is of videos: of a source that knows its groups,
    a dataset that tells them, and an array `video` beside the images."""
    videos = [f"v{v}" for v in range(40) for i in range(3 + v % 5)]
    images = np.zeros((len(videos), 2, 2, 3), np.uint8)
    np.savez(tmp_path / "set.npz", image=images, video=np.array(videos))

    class Clips(list[Any]):
        groups = videos

    for source in (
        open_dataset(list(images)).but(groups=texts_of(videos)),
        open_dataset(Clips(images)),
        open_source(tmp_path / "set.npz"),
    ):
        for seed in range(7):
            rows = draw(source, {"val": "0.1"}, seed).rows
            groups = {name: {videos[i] for i in found} for name, found in rows.items()}
            assert not groups["train"] & groups["val"]
            assert (len(groups["train"]), len(groups["val"])) == (36, 4)
            assert sum(map(len, rows.values())) == len(videos)


def test_datasets_are_split_too(tmp_path: Path) -> None:
    """A dict of datasets, each with its own classes; a dataset that tells its `targets`, drawn by class."""
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), np.uint8)

    class Set(list[Any]):
        def __init__(self, classes: list[str], rows: range) -> None:
            super().__init__((images[i], i % len(classes)) for i in rows)
            self.classes, self.targets = classes, [i % len(classes) for i in rows]

    given = {"train": Set(["dog", "cat"], range(20)), "val": Set(["eel", "cat"], range(20, 30))}
    rawpack_packer.pack_splits(given, tmp_path / "dict", workers=0)
    assert counts(tmp_path / "dict") == {"train": 20, "val": 10}
    for name, first in (("train", 0), ("val", 20)):
        reader = Reader(tmp_path / "dict", split=name)
        assert reader.classes == ("cat", "dog", "eel")
        for i, sample in enumerate(reader):
            assert reader.classes[sample["label"]] == given[name].classes[i % 2]
            assert np.array_equal(sample["image"], images[first + i])
    rawpack_packer.pack_splits(Set(["a", "b", "c"], range(30)), tmp_path / "drawn", holdout={"val": 0.2}, workers=0)
    assert Counter(held(tmp_path / "drawn", "val").values()) == {"a": 2, "b": 2, "c": 2}


# ---------------------------------------------------------------------------------------------- by a column


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of subjects 1 to 6, named after them, in a folder, with a listing."""
    root = tmp_path_factory.mktemp("split")
    lines = ["path,label,subject,set,good\n"]
    for i in range(12):
        subject = i // 2 + 1
        name = f"S{subject:03d}A{i % 2}.jpg"
        save(root / "img" / name, picture(8, 8, i))
        kind = "val" if subject > 4 else "train"
        lines.append(f"img/{name},{'ab'[i % 2]},{subject},{kind},{'true' if i % 3 else 'false'}\n")
    (root / "list.csv").write_text("".join(lines))
    return root


def subjects(sets: Path) -> dict[str, list[int]]:
    """Split -> the subjects of its samples, by their keys."""
    return {
        name: sorted({int(key.rpartition("S")[2][:3]) for key in Reader(sets, split=name).column("key")})
        for name in about(sets)["splits"]
    }


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("set", {"train": [1, 2, 3, 4], "val": [5, 6]}),
        (" subject = test : 1+3-4 , train : 2,train:5+6", {"test": [1, 3, 4], "train": [2, 5, 6]}),
        ("set=fit:train,check:val", {"fit": [1, 2, 3, 4], "check": [5, 6]}),
        ("subject", {str(k): [k] for k in range(1, 7)}),
        ("label", {"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}),
    ],
)
def test_values_name_the_splits_or_are_listed(
    by: str, expected: Mapping[str, list[int]], place: Path, tmp_path: Path
) -> None:
    """A text, a whole number or a class divides; every sample is in one split, with all fields and the same
    classes."""
    sets = packed(place / "list.csv", tmp_path / "sets", "--split-by", by)
    assert subjects(sets) == expected
    assert sum(counts(sets).values()) == 12
    for name in expected:
        reader = Reader(sets, split=name)
        assert (reader.classes, "subject" in reader.fields) == (("a", "b"), True)
    said = about(sets)
    assert (said["split_by"], said["holdout"], said["seed"], said["draw"]) == (by, None, None, None)


def test_a_field_of_the_paths_divides_a_folder(place: Path, tmp_path: Path) -> None:
    """As values of splits, and as groups that stay together."""
    options: dict[str, Any] = {"key_pattern": "S{subject:03d}A{label:d}.jpg", "size": 8, "workers": 0}
    by = "subject=train:1-2+4,val:3+5-6"
    rawpack_packer.pack_splits(place / "img", tmp_path / "by", split_by=by, **options)
    assert subjects(tmp_path / "by") == {"train": [1, 2, 4], "val": [3, 5, 6]}
    rawpack_packer.pack_splits(place / "img", tmp_path / "drawn", group_by="subject", holdout={"val": 0.34}, **options)
    assert counts(tmp_path / "drawn") == {"train": 8, "val": 4}
    assert {len(some) for some in subjects(tmp_path / "drawn").values()} == {2, 4}


def test_the_same_command_resumes_and_another_is_refused(place: Path, tmp_path: Path) -> None:
    """A set that is complete or lost a split is completed to the same bytes; other splits need --restart."""
    source, sets, by = place / "list.csv", tmp_path / "sets", ("--split-by", "set")
    before = settled(packed(source, sets, *by))
    assert settled(packed(source, sets, *by)) == before
    shutil.rmtree(sets / "val")
    assert settled(packed(source, sets, *by)) == before
    for other in (("--split-by", "subject=train:1-4,val:5-6"), ("--holdout", "val=0.2")):
        assert "--split-by set then" in refused(source, sets, *other)
    packed(source, sets, "--restart", "--split-by", "subject=train:1-3,val:4-6")
    assert subjects(sets) == {"train": [1, 2, 3], "val": [4, 5, 6]}


NAMED = "path,set\nimg/S001A0.jpg,train\nimg/S001A1.jpg,"


@pytest.mark.parametrize(
    ("listing", "by", "words"),
    [
        (None, "subject=train:1-4,val:5", ["line 12: subject is 6, which is in no split"]),
        (None, "subject=train:1-4,val:4-6", ["line 8: subject is 4, which is in train and in val"]),
        (None, "subject=train:1-6,val:7", ["val gets no sample", "subject has the values 1, 2, 3"]),
        (None, "nothing", ["--split-by 'nothing': ", "no such column", "it has label, subject, set, good"]),
        (None, "subject=train:4-1,val:5", ["4-1 is empty: write the lower number first"]),
        # No value leads out of the set's folder.
        (None, "subject=../x:1-6", ["'../x' cannot be the name of a split"]),
        (f"{NAMED}..\n", "set", ["line 3: set is '..', which cannot be the name of a split"]),
        ("path,x\nimg/S001A0.jpg,0.5\nimg/S001A1.jpg,1.5\n", "x", ["neither texts nor whole numbers"]),
        ("path,group\nimg/S001A0.jpg,g39\n", "group=train:g00+g01,val:g03-g39",
         ["ranges such as g03-g39 are of whole numbers only: name each text"]),
    ],
)  # fmt: skip
def test_what_cannot_be_divided_is_refused(
    listing: str | None, by: str, words: list[str], place: Path, tmp_path: Path
) -> None:
    """Every sample is in exactly one split, or its line is named; nothing is written."""
    (place / "odd.csv").write_text(listing or (place / "list.csv").read_text())
    said = refused(place / "odd.csv", tmp_path / "sets", "--split-by", by)
    assert all(word in said for word in words), said
    assert not (tmp_path / "sets").exists()


def test_groups_by_a_column_stay_together(place: Path, tmp_path: Path) -> None:
    """Each subject is in one split; shares count subjects; a seed draws others; resuming needs the same groups."""
    source, options, drawn = place / "list.csv", {"size": 8, "workers": 0, "holdout": {"val": 0.34}}, set()
    for seed in range(4):
        sets = tmp_path / str(seed)
        rawpack_packer.pack_splits(source, sets, group_by="subject", seed=seed, **options)  # type: ignore[arg-type]
        found = subjects(sets)
        assert sorted(found["train"] + found["val"]) == [1, 2, 3, 4, 5, 6]
        assert (len(found["val"]), counts(sets)) == (2, {"train": 8, "val": 4})
        drawn.add(tuple(found["val"]))
    assert len(drawn) > 1
    assert about(sets)["group_by"] == "subject"
    with pytest.raises(UsageError, match=r"the splits differ: .*group_by='subject' then"):
        rawpack_packer.pack_splits(source, sets, seed=seed, **options)  # type: ignore[arg-type]
    words = "group-by 'nothing': .* has no such column that is known now.*subject"
    assert re.search(words, refused(source, tmp_path / "no", "--holdout", "val=0.34", "--group-by", "nothing"))


def test_a_sample_without_a_group_is_one(tmp_path: Path) -> None:
    """Those that have no value do not hang together."""
    groups, table = ["x", "x", "x", "x", "", "", "", ""], tmp_path / "l.csv"
    for i in range(8):
        save(tmp_path / f"{i}.jpg", picture(8, 8, i))
    table.write_text("path,scene\n" + "".join(f"{i}.jpg,{one}\n" for i, one in enumerate(groups)))
    sets = packed(table, tmp_path / "s", "--holdout", "val=2", "--group-by", "scene")
    held = [groups[int(str(key)[0])] for key in Reader(sets, split="val").column("key")]
    assert held in (["x", "x", "x", "x", ""], ["", ""])


def test_samples_without_a_value_become_a_split_as_the_error_says(place: Path, tmp_path: Path) -> None:
    """Typed as it is printed."""
    lines = (place / "list.csv").read_text().splitlines()
    lines[1:3] = [line.replace(",train,", ",,") for line in lines[1:3]]
    (place / "some.csv").write_text("\n".join(lines))
    cure = "set=train:train,val:val,other:"
    said = refused(place / "some.csv", tmp_path / "sets", "--split-by", "set")
    assert f"is empty: --split-by {cure} makes a split" in said
    sets = packed(place / "some.csv", tmp_path / "sets", "--split-by", cure)
    assert counts(sets) == {"train": 6, "val": 4, "other": 2}


# ---------------------------------------------------------------------------------------------- read, looked at


def test_a_reader_wants_to_know_which(tmp_path: Path) -> None:
    """Without a split, and with one that is not there, the error lists them; so for folders that hold stores without a
    `splits.json`. Several sets are read as one; a copy through pickle reads the same split."""
    sets = packed(folder(tmp_path / "source", {"a": 5, "b": 5}), tmp_path / "sets", "--holdout", "val=2,test=1")
    for store, split, words in (
        (sets, None, "contains the splits train, val, test: name one, such as split='train'"),
        (sets, "dev", "has no split 'dev': it has train, val, test"),
        (sets, "../sets/train", "has no split"),
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
    """A `splits.json` that names what is no folder beside it is refused, whatever lies there; packing and --restart
    touch nothing that a link in the set leads to."""
    source, outside = folder(tmp_path / "source", {"a": 3}), tmp_path / "outside"
    sets = packed(source, tmp_path / "sets", "--holdout", "val=1")
    (sets / "val").rename(outside)
    (sets / "val").symlink_to(outside)
    before = states_of(outside)
    for options in ([], ["--restart"]):
        assert "is a symbolic link" in refused(source, sets, *options, "--holdout", "val=1")
    assert states_of(outside) == before
    for name in ("../outside", "/tmp", "", ".hidden", "a/b", "store.json", "x" * 300):
        seal_splits(sets, "train", name)
        for split in (None, "train", name):
            with pytest.raises(DamagedStoreError, match="names a split that cannot be a folder"):
                Reader(sets, split=split)
        assert run_here("inspect", sets).code == 1


def test_a_file_of_that_name_by_another_program_is_none_of_a_set(tmp_path: Path) -> None:
    """Next to a store, it keeps nobody from packing, reading and appending; in a destination, it is a file like any
    other."""
    data, source = tmp_path / "data", folder(tmp_path / "source", {"a": 3})
    data.mkdir()
    (data / "splits.json").write_text(json.dumps({"train": ["x" * 2_000_000], "val": []}, indent=1))
    packed(source, data / "train")
    assert run_here("append", *SMALL[-2:], folder(tmp_path / "more", {"a": 2}, first=50), data / "train").code == 0
    assert len(Reader(data, split="train")) == 5
    assert "contains other files (splits.json" in refused(source, data, "--splits", "a")


def test_inspect_warm_and_bench_take_all_splits(tmp_path: Path) -> None:
    """`inspect` shows and checks every split, finds damage in one, and says where classes are not numbered alike;
    `warm` and `bench` take all; what is about one store says so."""
    sets = packed(folder(tmp_path / "source", {"a": 5, "b": 5}), tmp_path / "sets", "--holdout", "val=2")
    told = json.loads(run_here("inspect", "--verify", "--json", sets).out)
    assert ({name: one["samples"] for name, one in told["splits"].items()}, told["problems"]) == (counts(sets), [])
    assert run_here("warm", sets).code == 0
    quick = ("--no-cold", "--rounds", 1, "--seconds", 0.01, "--workers", 0)
    told = json.loads(run_here("bench", "--json", *quick, sets).out)
    assert [one["path"] for one in told["stores"]] == [str(sets / "train"), str(sets / "val")]
    assert f"name {sets / 'train'} or {sets / 'val'}" in stop_of("inspect", "--grid", tmp_path / "grid.png", sets)
    packed(folder(tmp_path / "other", {"ant": 2, "b": 2}), sets / "other")
    seal_splits(sets, "train", "val", "other")
    ran = run_here("inspect", "--verify-quick", "--json", sets)
    problem = {"where": "other", "what": "its classes are not numbered as those of train"}
    assert (ran.code, json.loads(ran.out)["problems"]) == (1, [problem])
    flip(sets / "val" / "shard-00000.npy", -1)
    told = json.loads(run_here("inspect", "--verify", "--json", sets).out)
    assert [name for name, one in told["splits"].items() if one["problems"]] == ["val"]
    flip(sets / "splits.json", 20)
    with pytest.raises(DamagedStoreError):
        Reader(sets, split="train")


# ---------------------------------------------------------------------------------------------- stopped in the middle


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_a_set_that_is_killed_goes_on_where_it_was(tmp_path: Path, forks: Forks) -> None:
    """SIGKILL before the set has its file, in the first split, between them, in the second: finished splits stay as
    they are, and the set is that of an undisturbed run."""
    source, sets, options = many(tmp_path / "source", {"a": 100, "b": 100}), tmp_path / "sets", ("--holdout", "val=0.4")
    undisturbed = settled(packed(source, tmp_path / "undisturbed", *options))
    finished = dict[str, Any]()
    for event, word in (
        ("os.rename", "splits.json"), ("os.rename", "train/.rawpack/shard-00001"), ("os.mkdir", "sets/val"),
        ("os.rename", "val/.rawpack/shard-00001"),
    ):  # fmt: skip
        ran = forks.command("pack", *SMALL, *options, source, sets, before=killing(event, word, sets))
        assert ran.code == -signal.SIGKILL, (ran, word)
        assert states_of(sets).items() >= finished.items()
        if event == "os.mkdir":
            finished = {name: state for name, state in states_of(sets).items() if name.startswith("train/")}
            with pytest.raises(UnfinishedStoreError):
                Reader(sets, split="val")
    assert settled(packed(source, sets, *options)) == undisturbed


def test_all_splits_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space for either split, and not for both: seen before anything is written. A dry run says what each takes."""
    for name in ("train", "val"):
        many(tmp_path / "root" / name, {"a": 100})
    args = ("pack", *SMALL, "--splits", "train,val", tmp_path / "root", tmp_path / "sets")
    told = json.loads(run_here(*args, "--dry-run", "--json").out)
    assert {name: one["samples"] for name, one in told.items()} == {"train": 100, "val": 100}
    monkeypatch.setattr("rawpack_packer.destination.folder.free_bytes", lambda _: 50_000)
    for name in ("train", "val"):
        packed(tmp_path / "root" / name, tmp_path / name)
    assert "has 50 kB free" in stop_of(*args)
    assert not (tmp_path / "sets").exists()


# ---------------------------------------------------------------------------------------------- some of a source


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images in two classes."""
    return folder(tmp_path_factory.mktemp("limit") / "photos", {"a": 5, "b": 5})


@pytest.mark.parametrize("limit", [1, 3, 99])
def test_samples_are_evenly_spaced(photos: Path, tmp_path: Path, limit: int) -> None:
    """Sample k of N is at k/N of the source; a limit above the count takes all. Another limit is another store."""
    store = packed(photos, tmp_path / "store", "--limit", limit)
    every = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    taken = min(limit, len(every))
    reader = Reader(store)
    assert reader.column("key") == [every[k * len(every) // taken] for k in range(taken)]
    assert reader.classes == ("a", "b")
    assert "the options of the source differ" in refused(photos, store, "--limit", 5)


def test_archives_and_datasets_take_it_too(photos: Path, tmp_path: Path) -> None:
    """The same samples of a tar as of its folder; of an array, rows."""
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        for path in sorted(photos.rglob("*.png")):
            archive.add(path, path.relative_to(photos))
    store = packed(tmp_path / "photos.tar", tmp_path / "store", "--limit", 4)
    assert Reader(store).column("key") == ["a/000.png", "a/002.png", "b/000.png", "b/002.png"]
    images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1) * np.ones((1, 8, 8, 3), np.uint8)
    rawpack_packer.pack({"image": images}, tmp_path / "array", limit=3, workers=0)
    assert [int(sample["image"].max()) for sample in Reader(tmp_path / "array")] == [0, 2, 4]
