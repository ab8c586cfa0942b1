"""Listings as other tools write them: a column of paths under any name, and plain lists of paths and labels.

The oracle is what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save
from running import pack, stop_of

import rawpack_packer
from rawpack import Reader
from rawpack_packer.sources import open_source

NAMES = ("0.jpg", "1.jpg", "2.jpg", "a photo.jpg", "sub/3.jpg")


@pytest.fixture
def listed(tmp_path: Path) -> Callable[..., Path]:
    """`listed(text)`: a listing with that text, next to images."""
    folder = tmp_path / "in"
    for i, name in enumerate(NAMES):
        save(folder / name, picture(8, 8, i))

    def write(text: str, name: str = "list.txt") -> Path:
        (folder / name).write_bytes(text.encode())
        return folder / name

    return write


def samples(store: Path) -> list[dict[str, Any]]:
    return [*Reader(store)]


# ---------------------------------------------------------------------------------------------- the column of paths


def test_the_column_of_paths_has_any_name(listed: Callable[..., Path], tmp_path: Path) -> None:
    """--path names it, even `image`, and a column `path` next to it is a field like any other."""
    listing = listed("image,label,path\n0.jpg,x,somewhere\nsub/3.jpg,y,else\n", "list.csv")
    found = samples(pack(listing, tmp_path / "s", "--size", 8, "--path", "image"))
    assert [one["key"] for one in found] == ["0.jpg", "sub/3.jpg"]
    assert [one["path"] for one in found] == ["somewhere", "else"]
    rawpack_packer.pack(listing, tmp_path / "p", size=8, path_column="image", workers=0)
    assert samples(tmp_path / "p")[1]["label"] == 1
    said = stop_of("pack", "--path", "nothing", listing, tmp_path / "t")
    assert "--path nothing: " in said
    assert "image, label, path" in said


# ---------------------------------------------------------------------------------------------- plain lists


@pytest.mark.parametrize(("first", "mark"), [(0, b""), (1, b"\xef\xbb\xbf")])
def test_class_files_may_have_the_numbers(first: int, mark: bytes, listed: Callable[..., Path], tmp_path: Path) -> None:
    """UCF101's classInd.txt: "1 ApplyEyeMakeup". Labels count from its first number, and are stored from 0; a number
    that none of its lines has is an error."""
    listing = listed("".join(f"{name} {i + first}\n" for i, name in zip((2, 0, 1), NAMES, strict=False)))
    (tmp_path / "classes").write_bytes(mark + "".join(f"{i + first} a {i}\r\n" for i in range(3)).encode())
    reader = Reader(pack(listing, tmp_path / "s", "--size", 8, "--classes", tmp_path / "classes"))
    assert reader.classes == ("a 0", "a 1", "a 2")
    assert [int(reader[i]["label"]) for i in range(3)] == [2, 0, 1]
    for strange in (first - 1 if first else 9, first + 3):
        listing = listed(f"0.jpg {first}\n1.jpg {strange}\n")
        assert f"line 2 is {strange}; there are 3 classes, counted from {first}" in stop_of(
            "pack", "--classes", tmp_path / "classes", listing, tmp_path / "t"
        )


def test_other_numbers_in_class_files_are_names(listed: Callable[..., Path], tmp_path: Path) -> None:
    """Numbers that do not count from 0 or 1 line by line, and those that labels have too, are part of the names."""
    listing = listed("0.jpg 1\n1.jpg 0\n")
    for text in ("2 cats\n1 dog\n", "1 cat\ndog\n", "101\n102\n"):
        (tmp_path / "classes").write_text(text)
        source = open_source(listing, classes=tmp_path / "classes")
        assert source.info.classes == tuple(text.splitlines())
        assert source.part(0, 1)[0].fields["label"] == 1
    (tmp_path / "classes").write_text("1 cat\n2 dog\n")
    source = open_source(listed("0.jpg\t2 dog\n1.jpg\t1 cat\n"), classes=tmp_path / "classes")
    assert (source.info.classes, source.part(0, 1)[0].fields["label"]) == (("1 cat", "2 dog"), 1)


def test_a_list_may_be_called_csv(listed: Callable[..., Path], tmp_path: Path) -> None:
    """SlowFast's train.csv has no commas and no line of names."""
    found = samples(pack(listed("a photo.jpg 4\n1.jpg 5\n", "train.csv"), tmp_path / "s", "--size", 8))
    assert [(one["key"], one["label"]) for one in found] == [("a photo.jpg", 4), ("1.jpg", 5)]


def test_the_rest_of_a_line_is_a_text(listed: Callable[..., Path], tmp_path: Path) -> None:
    """Ground truth of text recognition: with a tab even a missing blank-free name is no riddle; texts are classes, or
    stay texts, digits and all, where the field is declared."""
    listing = listed("a photo.jpg\tSt. Mary\n1.jpg\t2007\nsub/3.jpg\t12 34\n")
    reader = Reader(pack(listing, tmp_path / "s", "--size", 8))
    assert reader.classes == ("12 34", "2007", "St. Mary")
    assert [int(reader[i]["label"]) for i in range(3)] == [2, 1, 0]
    listing = listed("1.jpg 12 34\n0.jpg word\n")
    kept = samples(pack(listing, tmp_path / "t", "--size", 8, "--field", "label:str"))
    assert [one["label"] for one in kept] == ["12 34", "word"]


def test_several_numbers_are_a_vector(listed: Callable[..., Path], tmp_path: Path) -> None:
    """A captcha's four labels, or attributes, are one array; where lines differ in length, it is ragged; if the first
    line has one number only, the field is declared."""
    found = samples(pack(listed("0.jpg 3 1 4 1\n1.jpg 5 9 2 6\n"), tmp_path / "s", "--size", 8))
    np.testing.assert_array_equal([one["labels"] for one in found], [[3, 1, 4, 1], [5, 9, 2, 6]])
    found = samples(pack(listed("0.jpg 0.5 1\n1.jpg\n2.jpg 7\n"), tmp_path / "t", "--size", 8))
    assert [one["labels"].tolist() for one in found] == [[0.5, 1.0], [], [7.0]]
    found = samples(pack(listed("0.jpg 1\n1.jpg 2 3\n"), tmp_path / "u", "--size", 8, "--field", "labels:int64[?]"))
    assert [one["labels"].tolist() for one in found] == [[1], [2, 3]]


def test_paths_start_from_images(listed: Callable[..., Path], tmp_path: Path) -> None:
    """--images names the folder; a path with a blank is looked for there."""
    folder = listed("").parent
    (tmp_path / "list.txt").write_text(f"a photo.jpg 1\n{folder / '0.jpg'} 2\n")
    source = open_source(tmp_path / "list.txt", images=folder)
    assert [source.key(i) for i in range(2)] == ["a photo.jpg", str(folder / "0.jpg")]
    assert [int(source.part(i, i + 1)[0].fields["label"]) for i in range(2)] == [1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.jpg 1\n9.jpg 2\n", ["line 2, column 1 (path): there is no file 9.jpg"]),
        ("0.jpg\n1.jpg 1\n", ["line 2, column 1 (path): there is no file 1.jpg 1"]),
        ("0.jpg 1\n\n0.jpg 2\n", ["line 3, column 1 (path): '0.jpg' is on line 1 already"]),
        ("\n \n", ["is empty: a listing has a path in each line"]),
    ],
)
def test_bad_lines_are_named(text: str, words: list[str], listed: Callable[..., Path], tmp_path: Path) -> None:
    said = stop_of("pack", listed(text), tmp_path / "store")
    for word in words:
        assert word in said
    assert not (tmp_path / "store").exists()
