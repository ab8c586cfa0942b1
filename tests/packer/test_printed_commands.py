"""The commands that are printed where annotations are beside images: typed as they are, they pack labels and fields."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from archived import tar
from running import run_here, stop_of
from test_annotated import SMALL, Files, images, write

import rawpack
from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources import open_source

Rows = Mapping[str, tuple[Any, ...]]
BOTH = images("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg")


def refused(path: str) -> str:
    """What the command says that stops at a path, in the current folder."""
    said = stop_of("pack", *SMALL, path, "DST")
    assert not Path("DST").exists()
    return said


def packed_tar(members: Files) -> Path:
    """These files in an archive in the current folder."""
    path = Path("x.tar")
    path.write_bytes(tar(members))
    return path


def commands(message: str) -> list[list[str]]:
    return [shlex.split(one) for one in re.findall(r"`(rawpack pack [^`]+ DST)`", message)]


def held(store: Path, *fields: str) -> Rows:
    """Key -> the class by its name, where there are classes, and the values of fields."""
    reader = Reader(store)
    return {
        str(one["key"]).removeprefix("./"): (
            *([reader.classes[int(one["label"])]] if reader.classes else []),
            *(str(one[name]) for name in fields),
        )
        for one in (reader[i] for i in range(len(reader)))
    }


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], str]:
    """Writes a folder `my data` into an empty current folder."""
    monkeypatch.chdir(tmp_path)

    def make(files: Files) -> str:
        write(tmp_path / "my data", files)
        return "my data"

    return make


def test_a_row_without_its_image_is_counted(data: Callable[[Files], str]) -> None:
    """Where one of many images is gone, the command takes the classes of the others, and names the row."""
    rows = "".join(f"{i}.jpg,x\n" for i in range(12))
    message = refused(data(images(*(f"{i}.jpg" for i in range(11))) | {"list.csv": f"n,label\n{rows}"}))
    (command,) = commands(message)
    ran = run_here("pack", *SMALL[:4], *command[2:-1], "store")
    assert (ran.code, "of no image that is there, left out: 11.jpg" in ran.out) == (0, True), ran
    assert held(Path("store")) == {f"{i}.jpg": ("x",) for i in range(11)}


TINY = {"val_0.JPEG": "n01", "val_1.JPEG": "n02"}
OF_OTHERS: dict[str, Files] = {
    "names of classes": BOTH | {"classes.csv": "id,name\n0,cat\n1,dog\n"},
    "the log of a training run": BOTH | {"history.csv": "epoch,loss\n0,0.9\n1,0.8\n"},
    "ids of images in several folders": BOTH | {"x.csv": "id,text\ncat,a\n0,b\n"},
    "no line of names, so that the first image would be lost": (
        images("0.jpg", "1.jpg") | {"list.csv": "0.jpg,x\n1.jpg,y\n"}
    ),
    # Tiny ImageNet's list for validation, whose boxes would become texts.
    "more than a path and a label": images(*(f"images/{name}" for name in TINY))
    | {"val_annotations.txt": "".join(f"{name}\t{label}\t0\t32\t44\t62\n" for name, label in TINY.items())},
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_no_command_is_guessed_for_a_table_that_is_not_understood(name: str, data: Callable[[Files], str]) -> None:
    """It names no images, or would lose something; with --source folder, classes are those of the folders."""
    assert commands(refused(data(OF_OTHERS[name]))) == []
    ran = run_here("pack", *SMALL, "--source", "folder", "my data", "alone")
    assert ran.code == 0, ran.err
    if "cat/0.jpg" in OF_OTHERS[name]:
        assert held(Path("alone")) == {name: (name[:3],) for name in BOTH}


def test_a_label_of_a_plain_list_contains_no_tab(data: Callable[[Files], str]) -> None:
    """The rest of the line is not one label: the line, the value and the cure are named, unless the label is declared
    to be all of it; numbers are an array."""
    path = data(images("0.jpg", "1.jpg") | {"l.txt": "0.jpg\tn01\n1.jpg\tn02\t7\n"})
    with pytest.raises(UsageError, match=r"line 2: the label 'n02\\t7' contains a tab: .*save the list as \.tsv"):
        open_source(f"{path}/l.txt")
    assert open_source(f"{path}/l.txt", fields=["label:str"])[1].fields["label"] == "n02\t7"
    write(Path(path), {"n.txt": "0.jpg\t1\t2\n"})
    assert open_source(f"{path}/n.txt")[0].fields["labels"].tolist() == [1, 2]


def test_captions_in_class_folders_keep_their_classes(data: Callable[[Files], str]) -> None:
    """Files next to images of classes are a line, and become a field beside the label by what the page says that it
    names, in a folder and in an archive."""
    members = dict(sorted({**BOTH, **{name.replace("jpg", "txt"): f"of {name}" for name in BOTH}}.items()))
    for number, source in enumerate((data(members), packed_tar(members))):
        ran = run_here("pack", *SMALL[:4], source, f"classes {number}")
        assert (ran.code, "#one-file-for-each-image" in ran.out) == (0, True), ran
    options = ("--source", "webdataset", "--field", "txt:str", "--key-pattern", "{label}/{}")
    assert run_here("pack", *SMALL, *options, "x.tar", "store").code == 0
    assert held(Path("store"), "txt") == {name[:-4]: (name[:3], f"of {name}") for name in BOTH}


CUB = images("images/001.A/0.jpg", "images/002.B/1.jpg") | {
    "images.txt": "1 001.A/0.jpg\n2 002.B/1.jpg\n", "image_class_labels.txt": "1 1\n2 2\n", "classes.txt": "1 001.A\n",
    "parts/parts.txt": "1 beak\n", "attributes/certainties.txt": "1 sure\n",
}  # fmt: skip


@pytest.mark.parametrize("source", ["my data", "x.tar"])
def test_a_folder_that_holds_all_classes_is_no_class(source: str, data: Callable[[Files], str]) -> None:
    """CUB-200's images are in one folder with the classes below; a line names the option that takes that folder."""
    data(CUB)
    packed_tar(CUB)
    kind = "archive" if source.endswith(".tar") else "folder"  # which leaves out images.txt
    for depth, classes in ((1, {"images"}), (2, {"001.A", "002.B"})):
        assert f"--label-depth {depth}" in str(open_source(source).info)
        words = ("--strict", "--source", kind, "--label-depth", depth)
        assert run_here("pack", *SMALL, *words, source, f"deep{depth}").code == 0
        assert {label for (label,) in held(Path(f"deep{depth}")).values()} == classes
    assert "all images are in images/" in stop_of("pack", *SMALL, "--strict", "--source", kind, source, "no")
    assert run_here("pack", *SMALL, source, "all").code == 0
    assert held(Path("all")) == {"images/001.A/0.jpg": ("001.A",), "images/002.B/1.jpg": ("002.B",)}


def test_folders_of_masks_after_their_images_are_no_classes(data: Callable[[Files], str]) -> None:
    """CamVid's trainannot next to train, and the like, become neither classes nor are they lost with splits."""
    names = [f"{split}{{}}/{split}{i}.png" for split in ("train", "val", "test") for i in range(3)]
    path = data(images(*(name.format(ending) for name in names for ending in ("", "annot"))))
    assert "testannot/test0.png for the image test/test0.png" in refused(path)
    said = stop_of("pack", *SMALL, "--splits", "train,val,test", path, "sets")
    assert "annot/train0.png for the image" in said
    assert not Path("sets").exists()
    assert len(open_source(path, "folder").info.classes or ()) == 6


SAID = ("--workers", 0, "--size", 8)


@pytest.mark.parametrize("name", ['it\'s "mine"', "my $HOME\\", "tab\tname"])
def test_what_a_summary_prints_finds_the_store(data: Callable[[Files], str], name: str) -> None:
    """The line of Python and the command to look at the store, also of its splits, as they are copied; what a terminal
    would obey is in the line of Python alone."""
    source = data(BOTH)
    said = run_here("pack", *SAID, source, name)
    assert said.code == 0, said.err
    (line,) = re.findall(r"batches = (rawpack.Reader\(.*\))\.batches", said.out)
    assert len(eval(line, {"rawpack": rawpack})) == len(BOTH)
    looks = re.findall(r"^  look +(.*)$", said.out + run_here("inspect", name).out, re.MULTILINE)
    assert len(looks) == 2
    if name.isprintable():
        assert [shlex.split(look) for look in looks] == [["rawpack", "view", name]] * 2
    drawn = run_here("pack", *SAID, "--holdout", "val=1", source, f"{name} drawn").out
    lines = re.findall(r"^  (rawpack.Reader\(.*\))$", drawn, re.MULTILINE)
    assert [len(eval(line, {"rawpack": rawpack})) for line in lines] == [len(BOTH) - 2, 2]
