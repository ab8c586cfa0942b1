"""Labels of images from a file of their own, for folders and archives. The oracle is what was written."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pictures import encoded, picture
from running import pack, run_here

import rawpack_packer
from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources import Source, open_source

SMALL = ("--size", 8)
NAMES = ("0.png", "1.png", "2.png", "sub/3.png")
LABELS = {"0.png": "pug", "1.png": "cat", "2.png": "pug", "sub/3.png": "ant"}


def folder(root: Path, names: Sequence[str] = NAMES) -> Path:
    for n, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(picture(10, 10, n), "PNG"))
    return root


def table(names: Sequence[str], rows: Sequence[Sequence[Any]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def labels_of(source: Source) -> dict[str, Any]:
    """Key -> the name of its class, or its number where classes have none; None without one."""
    numbers = {source.key(i): int(source[i].fields["label"]) for i in range(len(source))}  # type: ignore[call-overload]
    classes = source.info.classes
    return {key: None if n < 0 else n if classes is None else classes[n] for key, n in numbers.items()}


def labels_by(root: Path, text: str, name: str = "labels.csv", **options: Any) -> dict[str, Any]:
    """The labels of the images of a folder, by a file with this text."""
    (root.parent / name).write_text(text)
    return labels_of(open_source(root, labels_file=root.parent / name, **options))


PACKED: Mapping[str, Callable[[Path], Path]] = {
    "folder": lambda root: root,
    "tar": lambda root: Path(shutil.make_archive(str(root), "tar", root)),
    "zip": lambda root: Path(shutil.make_archive(str(root), "zip", root)),
}
FILES: Mapping[str, str] = {
    "by path.csv": table(("id", "breed"), list(LABELS.items())),
    "without extension.csv": table(("id", "breed"), [(key[:-4], label) for key, label in LABELS.items()]),
    "by stem.csv": table(("id", "breed"), [(key[:-4].rpartition("/")[2], label) for key, label in LABELS.items()]),
    "from above.csv": table(("id", "breed"), [(f"data/{key}", label) for key, label in LABELS.items()]),
    "a column label.csv": table(("n", "image", "label", "age"), [(1, key, label, 3) for key, label in LABELS.items()]),
    "no line of names.csv": "".join(f"{key},{label}\n" for key, label in LABELS.items()),
    "semicolons.csv": "\ufeff" + table(("id", "breed"), list(LABELS.items()), ";").replace("\n", "\r\n"),
    "lines.jsonl": "".join(json.dumps({"id": key, "breed": label}) + "\n" for key, label in LABELS.items()),
    "names.txt": "".join(f"{key} {label}\n" for key, label in reversed(LABELS.items())),
    "tabs.txt": "".join(f"{key}\t{label}\t0\t0\t9\t9\n" for key, label in LABELS.items()),
}


@pytest.mark.parametrize("name", FILES)
def test_images_are_named_in_many_ways(name: str, tmp_path: Path) -> None:
    """By their paths, names or stems, in columns of any name and order, with any of the usual delimiters; and the
    folders are no classes then."""
    assert labels_by(folder(tmp_path / "data"), FILES[name], name) == LABELS


@pytest.mark.parametrize("kind", PACKED)
def test_folders_and_archives_take_the_same_labels(kind: str, tmp_path: Path) -> None:
    """A folder, a tar and a zip of it get the same labels, also in parts and stores; a change of labels is seen."""
    packed = PACKED[kind](folder(tmp_path / "data"))
    (tmp_path / "labels.csv").write_text(FILES["by stem.csv"])
    reader = Reader(pack(packed, tmp_path / "store", *SMALL, "--labels-file", tmp_path / "labels.csv"))
    assert reader.classes == ("ant", "cat", "pug")
    assert {one["key"]: reader.classes[one["label"]] for one in reader} == LABELS
    source = open_source(packed, labels_file=tmp_path / "labels.csv")
    assert source.part(3, 4)[0].fields["label"] == 0
    (tmp_path / "labels.csv").write_text(FILES["by stem.csv"].replace("ant", "pug"))
    other = open_source(packed, labels_file=tmp_path / "labels.csv")
    assert source.states().tolist() != other.states().tolist()


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_the_file_may_be_in_the_source(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--labels-file labels.csv` finds it in the folder or archive that is packed, or above the folder in an archive;
    one on disk comes first."""
    monkeypatch.chdir(tmp_path)
    root = folder(tmp_path / "data", [f"train/{name}" for name in NAMES])
    (root / "labels.csv").write_text(FILES["by stem.csv"])
    packed = PACKED[kind](root)
    wanted = {f"train/{key}": label for key, label in LABELS.items()}
    assert labels_of(open_source(packed, labels_file="labels.csv")) == wanted
    if kind != "folder":
        assert labels_of(open_source(f"{packed}/train", labels_file="labels.csv")) == LABELS
        assert labels_of(open_source(f"{packed}/train", labels_file=f"{packed}/labels.csv")) == LABELS
    Path("labels.csv").write_text(FILES["by stem.csv"].replace("ant", "bee"))
    assert labels_of(open_source(packed, labels_file="labels.csv"))["train/sub/3.png"] == "bee"
    with pytest.raises(UsageError, match=r"the labels file lables\.csv does not exist; did you mean labels\.csv\?"):
        open_source(packed, labels_file="lables.csv")


def test_what_has_no_counterpart_is_counted_and_said(tmp_path: Path) -> None:
    """Images without a label get -1, labels of files that are not there are left out; the summary says how many of
    either and names the first, and --strict packs nothing."""
    root = folder(tmp_path / "data")
    (tmp_path / "labels.csv").write_text("id,breed\n0,pug\n1,cat\n7,cat\n8,owl\n2,\n")
    command = ["pack", "--workers", 0, *SMALL, "--labels-file", tmp_path / "labels.csv", root]
    ran = run_here(*command, tmp_path / "store")
    assert ran.code == 0, ran.err
    assert re.search(r"2 images without a label in \S*labels.csv: 2.png", ran.out)
    assert re.search(r"2 labels in \S*labels.csv of no image that is there, left out: 7", ran.out)
    counts = json.loads((tmp_path / "store/store.json").read_bytes())["counts"]
    assert (counts["unlabelled"], counts["no_file"], counts["empty_classes"]) == (2, 2, 1)
    reader = Reader(tmp_path / "store")
    assert {one["key"]: int(one["label"]) for one in reader} == {"0.png": 2, "1.png": 0, "2.png": -1, "sub/3.png": -1}
    ran = run_here(*command, tmp_path / "strict", "--strict")
    assert (ran.code, (tmp_path / "strict").exists()) == (2, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,breed\n9,pug\n", r"has a label for none of the images, such as 0\.png: it names them as 9"),
        ("id,a,b\n0,x,y\n", "has the columns a, b besides id, which names images: .* --label-column a"),
        ("id,breed\n0,pug\n0,cat\n", "has two labels for 0: give each image one"),
        ("id,score\n0,0.5\n1,0.7\n", "column score contains no classes"),
        ("id,breed\n0,pug\n1\n", r"labels.csv: line 3, column 2: 1 values"),
        ("id,breed\n3,pug\n", "names both other/3.png and sub/3.png: write their paths"),
        ("a\nb\n", "has 2 labels for 5 images"),
        ("0.png 1\n\n1.png 18446744073709551616\n", "the label of line 3 is 18446744073709551616"),
        ("1\n\n18446744073709551616\n3\n4\n5\n", "the label of line 3 is 18446744073709551616"),
    ],
)
def test_files_that_do_not_fit_are_refused(text: str, message: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "data", [*NAMES, "other/3.png"])
    with pytest.raises(UsageError, match=message):
        labels_by(root, text, "labels.csv" if "," in text or "b" in text else "labels.txt")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["1.png", "2.png", "10.png"], r"whether 10\.png is before 2\.png"),
        (["1.png", "10b.png", "1c.png"], r"whether 10b\.png is before 1c\.png"),
        (["01.png", "02.png", "10.png"], None),
    ],
)
def test_lines_in_the_order_of_images_need_names_of_one_order(
    names: list[str], said: str | None, tmp_path: Path
) -> None:
    """Whoever wrote a class for each of 1.png, 2.png and 10.png may have meant the order of their numbers."""
    root = folder(tmp_path / "data", names)
    if said is None:
        assert labels_by(root, "pug\ncat\nant\n", "labels.txt") == dict(zip(names, ["pug", "cat", "ant"], strict=True))
        return
    with pytest.raises(UsageError, match=f"{said}.*: write NAME CLASS in each line"):
        labels_by(root, "pug\ncat\nant\n", "labels.txt")


def test_classes_of_a_text_file_may_have_blanks(tmp_path: Path) -> None:
    """Of `0.png golden retriever`, the image is what is there; nor does a class for each image come of it."""
    root = folder(tmp_path / "data", ["0.png", "2.png", "a b.png"])
    text = "0.png golden retriever\na.png welsh corgi\n2.png basset hound\n"
    assert labels_by(root, text, "a.txt") == {"0.png": "golden retriever", "2.png": "basset hound", "a b.png": None}
    text = "a b.png pug\n0.png cat\n2.png pug\n"
    assert labels_by(root, text, "b.txt") == {"0.png": "cat", "2.png": "pug", "a b.png": "pug"}


def test_the_numbers_of_rows_are_not_taken_for_names(tmp_path: Path) -> None:
    """A table that pandas wrote with its index has two columns that fit images called 0.png, 1.png, ...: that of the
    names is known by its own, or has to be left alone."""
    root = folder(tmp_path / "data", [f"{n}.png" for n in range(4)])
    rows = [(0, 3, "pug"), (1, 2, "cat"), (2, 1, "ant"), (3, 0, "owl"), (4, 9, "pug")]
    wanted = {"3.png": "pug", "2.png": "cat", "1.png": "ant", "0.png": "owl"}
    for first, second in (("", "id"), ("Unnamed: 0", "image_id"), ("row", "filename")):
        assert labels_by(root, table((first, second, "breed"), rows), label_column="breed") == wanted
    with pytest.raises(UsageError, match="row and number both look like names of images, and disagree: take out"):
        labels_by(root, table(("row", "number", "breed"), rows), label_column="breed")
    other = labels_by(root, table(("label", "id"), [(n, 3 - n) for n in range(4)]))
    assert other == {f"{n}.png": str(3 - n) for n in range(4)}


def test_numbers_that_do_not_begin_at_0_and_null(tmp_path: Path) -> None:
    """The first stay as they are; a class that is null is none, also among numbers and names."""
    root = folder(tmp_path / "data")
    stems = [key[:-4] for key in NAMES]
    numbers = table(("id", "n"), [(key, n) for n, key in enumerate(stems, 1)])
    assert [*labels_by(root, numbers).values()] == [1, 2, 3, 4]
    rows = [{"id": key, "breed": breed} for key, breed in zip(stems, (7, "cat", None, 7), strict=True)]
    found = labels_by(root, "".join(json.dumps(row) + "\n" for row in rows), "labels.jsonl")
    assert [*found.values()] == ["7", "cat", None, "7"]


def test_spellings_of_labels_and_names_match(tmp_path: Path) -> None:
    """A table in one spelling of Unicode names images and classes in the other, as of a Mac."""
    composed, decomposed = (unicodedata.normalize(form, "\u00e9") for form in ("NFC", "NFD"))
    root = folder(tmp_path / "data", [f"{decomposed}.png", "1.png"])
    found = labels_by(root, f"id,breed\n{composed},{composed}\n1,{decomposed}\n")
    assert found == {f"{decomposed}.png": decomposed, "1.png": decomposed}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_two_spellings_of_a_class_are_one_and_said(kind: str, tmp_path: Path) -> None:
    """NFC and NFD, which print the same, are one class; the summary says so, and the keys stay as they were."""
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    names = [f"{decomposed}/0.png", f"{decomposed}/deep/1.png", f"{composed}/2.png", "zoo/3.png", "4.png"]
    root = folder(tmp_path / "data", names)
    if len([*root.iterdir()]) < 4:
        pytest.skip("this file system has one spelling")
    source = open_source(PACKED[kind](root))
    assert any("is there in two spellings of Unicode: both are one class" in one for one in source.info.problems)
    assert labels_of(source) == dict(zip(names, [decomposed] * 3 + ["zoo", None], strict=True))


@pytest.mark.parametrize(("kind", "named"), [("tar", NAMES[1:]), ("zip", NAMES)])
def test_a_column_of_splits_is_asked_about_and_divides(
    kind: str, named: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that is printed packs each split, and samples that the file does not name apart; without the column,
    all are one store."""
    monkeypatch.chdir(tmp_path)
    source, file = PACKED[kind](folder(tmp_path / "set")), tmp_path / "a.csv"
    of = {name: ("train", "my val")[n % 2] for n, name in enumerate(NAMES)}
    file.write_text(
        table(("image", "kind", "who", "usage"), [(name, LABELS[name], n, of[name]) for n, name in enumerate(named)])
    )
    ran = run_here("pack", *SMALL, "--labels-file", file, "--label-column", "kind", source, tmp_path / "store")
    assert (ran.code, ran.out) == (2, "")
    assert f"column usage of {file} has the splits train, my val" in ran.err
    (command,) = re.findall("`rawpack (.*?)`", ran.err)
    ran = run_here(*shlex.split(command), *SMALL)
    assert ran.code == 0, ran.err
    wanted = {split: {name for name in named if of[name] == split} for split in ("train", "my val")}
    wanted |= {"other": {NAMES[0]}} if named is not NAMES else {}
    for split, names in wanted.items():
        assert {str(one["key"]) for one in Reader(tmp_path / "store", split=split)} == names
    rawpack_packer.pack_splits(
        source, tmp_path / "by_who", split_by="who=a:0-1,b:2+3" if named is NAMES else "usage=x:train+my val,y:",
        labels_file=file, label_column="kind", size=8, workers=0,
    )  # fmt: skip
    file.write_text(table(("image", "kind", "who"), [(name, LABELS[name], 0) for name in named]))
    rawpack_packer.pack(source, tmp_path / "one", labels_file=file, label_column="kind", size=8, workers=0)
