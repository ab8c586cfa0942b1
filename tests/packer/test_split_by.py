"""`--split-by`: the values of a column, or of a field in the paths, divide a source into splits.

The oracle is which sample was written with which value.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from folders import files_of
from pictures import picture, save
from running import run_here, stop_of

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer.job.holdout import parse_split_by

SMALL = ("--quiet", "--workers", 0, "--size", 8)


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
    names = json.loads((sets / "splits.json").read_bytes())["splits"]
    readers = {name: Reader(sets, split=name) for name in names}
    return {
        name: sorted({int(str(reader[i]["key"]).rpartition("S")[2][:3]) for i in range(len(reader))})
        for name, reader in readers.items()
    }


def counts(sets: Path) -> dict[str, int]:
    names = json.loads((sets / "splits.json").read_bytes())["splits"]
    return {name: len(Reader(sets, split=name)) for name in names}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("set", {"train": [1, 2, 3, 4], "val": [5, 6]}),
        ("subject=train:1-4,val:5-6", {"train": [1, 2, 3, 4], "val": [5, 6]}),
        ("subject=test:1+3-4,train:2,train:5+6", {"test": [1, 3, 4], "train": [2, 5, 6]}),
        ("set=fit:train,check:val", {"fit": [1, 2, 3, 4], "check": [5, 6]}),
        ("subject", {str(k): [k] for k in range(1, 7)}),
        ("label", {"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}),
        ("good=train:true,val:false", {"train": [1, 2, 3, 4, 5, 6], "val": [1, 2, 4, 5]}),
    ],
)
def test_values_name_the_splits_or_are_listed(
    by: str, expected: Mapping[str, list[int]], place: Path, tmp_path: Path
) -> None:
    """A text, a whole number, a truth or a class divides; every sample is in one split, with all fields and the same
    classes."""
    sets = tmp_path / "sets"
    ran = run_here("pack", *SMALL, "--split-by", by, place / "list.csv", sets)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert subjects(sets) == expected
    assert sum(counts(sets).values()) == 12
    for name in expected:
        reader = Reader(sets, split=name)
        assert reader.classes == ("a", "b")
        assert "subject" in reader.fields
    about = json.loads((sets / "splits.json").read_bytes())
    assert (about["split_by"], about["holdout"], about["seed"], about["draw"]) == (by, None, None, None)


def test_a_field_of_the_paths_divides_a_folder(place: Path, tmp_path: Path) -> None:
    made = rawpack_packer.pack_splits(
        place / "img", tmp_path / "s", key_pattern="S{subject:03d}A{label:d}.jpg",
        split_by="subject=train:1-2+4,val:3+5-6", size=8, workers=0,
    )  # fmt: skip
    assert {name: one.manifest.samples for name, one in made.items()} == {"train": 6, "val": 6}
    assert subjects(tmp_path / "s") == {"train": [1, 2, 4], "val": [3, 5, 6]}


def test_the_same_command_resumes_and_another_is_refused(place: Path, tmp_path: Path) -> None:
    """A set that is complete or lost a split is completed to the same bytes; other splits need --restart."""
    sets, command = tmp_path / "sets", ("pack", *SMALL, "--split-by", "set", place / "list.csv", tmp_path / "sets")

    def made() -> dict[str, bytes]:
        assert run_here(*command).code == 0
        return {name: data for name, data in files_of(sets).items() if "provenance" not in name}

    before = made()
    shutil.rmtree(sets / "val")
    assert made() == before
    for other in (("--split-by", "subject=train:1-4,val:5-6"), ("--holdout", "val=0.2")):
        assert "--split-by set then" in stop_of("pack", *SMALL, *other, place / "list.csv", sets)
    ran = run_here("pack", *SMALL, "--restart", "--split-by", "subject=train:1-3,val:4-6", place / "list.csv", sets)
    assert ran.code == 0
    assert subjects(sets) == {"train": [1, 2, 3], "val": [4, 5, 6]}


FLOATS = 'path,x,v\nimg/S001A0.jpg,0.5,"[1,2]"\nimg/S001A1.jpg,1.5,"[3,4]"\n'
NAMED = "path,set\nimg/S001A0.jpg,train\nimg/S001A1.jpg,"


@pytest.mark.parametrize(
    ("listing", "by", "words"),
    [
        (None, "subject=train:1-4,val:5", ["line 12: subject is 6, which is in no split"]),
        (None, "subject=train:1-4,val:4-6", ["line 8: subject is 4, which is in train and in val"]),
        (None, "subject=train:1-6,val:7", ["val gets no sample", "subject has the values 1, 2, 3"]),
        (None, "nothing", ["--split-by 'nothing': ", "no such column", "it has label, subject, set, good"]),
        (None, "subject=train:4-1,val:5", ["4-1 is empty: write the lower number first"]),
        (None, "subject=../x:1-6", ["'../x' cannot be the name of a split"]),
        # No value leads out of the set's folder.
        (f"{NAMED}a/b\n", "set", ["line 3: set is 'a/b', which cannot be the name of a split"]),
        (f"{NAMED}..\n", "set", ["line 3: set is '..', which cannot be the name of a split"]),
        (FLOATS, "x", ["neither texts nor whole numbers"]),
        ("path,group\nimg/S001A0.jpg,g39\n", "group=train:g00+g01,val:g03-g39",
         ["ranges such as g03-g39 are of whole numbers only: name each text"]),
    ],
)  # fmt: skip
def test_what_cannot_be_divided_is_refused(
    listing: str | None, by: str, words: list[str], place: Path, tmp_path: Path
) -> None:
    """Every sample is in exactly one split, or its line is named; nothing is written."""
    (place / "odd.csv").write_text(listing or (place / "list.csv").read_text())
    said = stop_of("pack", *SMALL, "--split-by", by, place / "odd.csv", tmp_path / "sets")
    for word in words:
        assert word in said
    assert not (tmp_path / "sets").exists()


def test_a_source_without_columns_says_so(place: Path, tmp_path: Path) -> None:
    """A folder has none without a pattern."""
    with pytest.raises(UsageError, match="use a listing, or key_pattern="):
        rawpack_packer.pack_splits(place / "img", tmp_path / "s", split_by="subject", workers=0)
    with pytest.raises(UsageError, match="leave out splits=, holdout=, seed= and group_by="):
        rawpack_packer.pack_splits(place / "list.csv", tmp_path / "s", split_by="set", seed=1, workers=0)


def test_the_words_of_an_option() -> None:
    """A split may come more than once, and values may hold colons and blanks."""
    by = parse_split_by(" who = train : Ann Lee + x:y , val : -3--1 , train : z")
    assert (by.column, by.values) == ("who", {"train": ("Ann Lee", "x:y", "z"), "val": ("-3--1",)})


@pytest.mark.parametrize("form", ["listing", "pattern"])
def test_groups_by_a_column_stay_together(form: str, place: Path, tmp_path: Path) -> None:
    """Each subject is in one split; shares count subjects; a seed draws others; resuming needs the same groups."""
    source = place / ("list.csv" if form == "listing" else "img")
    options: dict[str, Any] = {"size": 8, "workers": 0, "holdout": {"val": 0.34}}
    if form == "pattern":
        options["key_pattern"] = "S{subject:03d}A{label:d}.jpg"
    drawn = set()
    for seed in range(4 if form == "listing" else 1):
        sets = tmp_path / str(seed)
        rawpack_packer.pack_splits(source, sets, group_by="subject", seed=seed, **options)
        found = subjects(sets)
        assert sorted(found["train"] + found["val"]) == [1, 2, 3, 4, 5, 6]
        assert (len(found["val"]), counts(sets)) == (2, {"train": 8, "val": 4})
        drawn.add(tuple(found["val"]))
    assert len(drawn) > 1 or form == "pattern"
    assert json.loads((sets / "splits.json").read_bytes())["group_by"] == "subject"
    with pytest.raises(UsageError, match=r"the splits differ: .*group_by='subject' then"):
        rawpack_packer.pack_splits(source, sets, seed=seed, **options)
    with pytest.raises(UsageError, match=r"group_by='nothing': .* has no such column that is known now.*subject"):
        rawpack_packer.pack_splits(source, tmp_path / "no", group_by="nothing", **options)


def test_a_sample_without_a_group_is_one(tmp_path: Path) -> None:
    """Those that have no value do not hang together; groups are drawn only for --holdout."""
    for i in range(8):
        save(tmp_path / f"{i}.jpg", picture(8, 8, i))
    groups, table = ["x", "x", "x", "x", "", "", "", ""], tmp_path / "l.csv"
    table.write_text("path,scene\n" + "".join(f"{i}.jpg,{one}\n" for i, one in enumerate(groups)))
    ran = run_here("pack", *SMALL, "--holdout", "val=2", "--group-by", "scene", table, tmp_path / "s")
    assert (ran.code, ran.err) == (0, "")
    held = [groups[int(str(sample["key"])[0])] for sample in Reader(tmp_path / "s", split="val")]
    assert held in (["x", "x", "x", "x", ""], ["", ""])
    for options, words in (
        ((), "--group-by applies to --holdout only"),
        (("--split-by", "scene"), "--split-by divides the source by itself"),
    ):
        assert words in stop_of("pack", *SMALL, *options, "--group-by", "scene", table, tmp_path / "no")


@pytest.mark.parametrize(
    ("by", "cure", "expected"),
    [
        ("set", "set=train:train,val:val,other:", {"train": 6, "val": 4, "other": 2}),
        ("set=a:train,b:val", "set=a:train,b:val,other:", {"a": 6, "b": 4, "other": 2}),
        ("label", "label=a:a,b:b,other:", {"a": 5, "b": 5, "other": 2}),
    ],
)
def test_samples_without_a_value_become_a_split_as_the_error_says(
    by: str, cure: str, expected: Mapping[str, int], place: Path, tmp_path: Path
) -> None:
    lines = (place / "list.csv").read_text().splitlines()
    lines[1:3] = [re.sub(r",[ab],(\d),train,", r",,\1,,", line) for line in lines[1:3]]
    (place / "some.csv").write_text("\n".join(lines))
    said = stop_of("pack", *SMALL, "--split-by", by, place / "some.csv", tmp_path / "sets")
    assert f"is empty: --split-by {cure} makes a split" in said
    ran = run_here("pack", *SMALL, "--split-by", cure, place / "some.csv", tmp_path / "sets")
    assert ran.code == 0, ran.err
    assert counts(tmp_path / "sets") == expected
