"""What is wrong with one annotation rejects its image, and no other; and what is not the file that was meant is named.

The oracle is what was written here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import Source, open_source

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
HTML = b"\n<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>"


def photos(folder: Path, count: int = 4) -> None:
    for i in range(count):
        save(folder / f"{i}.jpg", picture(40, 60, i))


def only_the_last_is_bad(source: Source, words: str) -> None:
    last = len(source) - 1
    for i in range(last):
        assert len(source[i].fields["boxes"].rows) == 1  # type: ignore[union-attr]
    with pytest.raises(DecodeError, match=f"bad_field: boxes: .*{words}"):
        source[last]
    with pytest.raises(DecodeError, match=words):
        source.part(last, last + 1)[0]


@pytest.mark.parametrize(
    ("bad", "words", "share"), [("x", "'x' is not a number", True), ("", "is empty, and the other sides", False)]
)
def test_a_row_of_a_listing(bad: str, words: str, share: bool, tmp_path: Path) -> None:
    """The line and the column are named; all other boxes are as they would be without it."""
    photos(tmp_path)
    sides = ".1,.1,.5,.5" if share else "6,4,30,20"
    rows = [f"{i}.jpg,{sides},cat" for i in range(3)] + [f"3.jpg,1,{bad},30,20,cat"]
    (tmp_path / "set.csv").write_text("\n".join(["image,xmin,ymin,xmax,ymax,label", *rows]))
    source = open_source(tmp_path / "set.csv")
    only_the_last_is_bad(source, f"line 5, column 3 .ymin.: .*{words}")
    (tmp_path / "bad.csv").write_text("\n".join(["image,xmin,ymin,xmax,ymax,label", rows[3]]))
    with pytest.raises(UsageError, match=words):
        open_source(tmp_path / "bad.csv")


def test_one_box_in_pixels_among_shares(tmp_path: Path) -> None:
    """It does not turn the shares of all others into pixels."""
    photos(tmp_path)
    rows = [f"{i}.jpg,.1,.1,{1.004 if i else 0.5},.5" for i in range(3)] + ["3.jpg,6,4,30,20"]
    (tmp_path / "set.csv").write_text("\n".join(["image,xmin,ymin,xmax,ymax", *rows]))
    only_the_last_is_bad(open_source(tmp_path / "set.csv"), "is not of shares of the image")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"bbox": [[9, 9, 1, 1]], "category": []}, "its lists differ in length: bbox 1, category 0"),
        ({"bbox": [[9, 9, 1]], "category": [0]}, "bbox is not four numbers for each object"),
        ({"bbox": [[9, 9, 1, 1]], "category": [["a"]]}, "category is not one name or whole number for each"),
        ([{"bbox": [1, 2, 3, 4], "category": [1]}], "category is not one name"),
        (7, "it is no object of lists"),
    ],
)
def test_objects_of_a_row(bad: Any, words: str, tmp_path: Path) -> None:
    """Where no row is better, the error says what keeps such a column as text."""
    photos(tmp_path)
    good = {"bbox": [[1, 2, 3, 4]], "category": ["cat"]}
    rows = [json.dumps({"file_name": f"{i}.jpg", "objects": good if i < 3 else bad}) for i in range(4)]
    (tmp_path / "metadata.jsonl").write_text("\n".join(rows))
    source = open_source(tmp_path / "metadata.jsonl", fields=["objects:xywh"])
    only_the_last_is_bad(source, f"objects of line 4: {words}")
    (tmp_path / "bad.jsonl").write_text(rows[3])
    if bad != 7:
        with pytest.raises(UsageError, match=f"objects of line 1: {words}.*: --field objects:str keeps all as text"):
            open_source(tmp_path / "bad.jsonl")


def test_two_texts_of_an_image_that_differ_are_not_chosen_from(tmp_path: Path) -> None:
    """One beside the image, and one in labels; of two that are the same, one is read."""
    root = tmp_path / "set"
    images, labels = root / "images", root / "labels"
    photos(images, 2)
    for place in (images, labels):
        place.mkdir(parents=True, exist_ok=True)
        (place / "0.txt").write_text("0 .5 .5 .5 .5\n")
        (place / "1.txt").write_text(f"{int(place == labels)} .5 .5 .5 .5\n")
    source = open_source(root, kind="yolo")
    with pytest.raises(DecodeError, match=r"labels.*1.txt and .*1.txt differ.*--labels-dir"):
        source[1]
    assert source[0].fields["boxes"].rows[0][0] == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("bad", "captions"), [({"image_id": None}, True), ({"image_id": [1]}, False)])
def test_an_annotation_that_does_not_say_of_which_image_it_is(
    bad: dict[str, Any], captions: bool, tmp_path: Path
) -> None:
    """It is left out and counted; all others are as they would be without it."""
    photos(tmp_path)
    tree: dict[str, Any] = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "height": 40, "width": 60} for i in range(4)],
        "annotations": [{"image_id": i, "category_id": 7, "bbox": [1, 2, 30, 20]} for i in range(4)],
        "categories": [{"id": 7, "name": "cat"}],
    }
    if captions:
        del tree["categories"]
        tree["annotations"] = [{"image_id": i, "caption": "a cat"} for i in range(4)]
    tree["annotations"][2] |= bad
    (tmp_path / "set.json").write_text(json.dumps(tree))
    source = open_source(tmp_path / "set.json")
    line = "1 annotation of an image that is not listed, left out: $.annotations[2] without an image_id"
    assert source.info.problems[:1] == (line,)
    fields = [source[i].fields for i in range(4)]
    counts = [len(one["captions"] if captions else one["boxes"].rows) for one in fields]  # type: ignore[arg-type, union-attr]
    assert counts == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("bad", "words", "at"),
    [
        ([{"bbox": None, "category": 0}], "bbox is not four numbers", 0),
        ([{"bbox": [1, 1, 2, 2], "category": 0.5}], "category is not one name or whole number", 3),
        ("words", "it is no object of lists", 0),
    ],
)
def test_objects_of_a_dataset_in_memory(bad: Any, words: str, at: int, tmp_path: Path) -> None:
    """One reject, wherever it is; all others are as they would be without it."""
    objects: list[Any] = [[{"bbox": [1, 1, 3, 3], "category": i % 2, "score": i}] for i in range(4)]
    objects[at] = bad
    images = [np.full((8, 8, 3), i, np.uint8) for i in range(4)]
    summary = rawpack_packer.pack(
        {"image": images, "objects": objects}, tmp_path / "store", size="keep", workers=0, max_rejects=1,
        fields={"objects": "xywh"},
    )  # fmt: skip
    assert summary.manifest.rejects.reasons == {"bad_field": 1}
    assert f"row {at}: {words}" in (tmp_path / "store/rejects.jsonl").read_text()
    with Reader(tmp_path / "store") as reader:
        kept = [i for i in range(4) if i != at]
        assert [int(reader[k]["image"][0, 0, 0]) for k in range(3)] == kept
        assert [reader[k]["boxes"].tolist() for k in range(3)] == [[[1, 1, 4, 4, i % 2]] for i in kept]


ENDS = "tar zip parquet tfrecord mp4 json csv jsonl npz npy h5 rec mdb yaml tar.gz of-00002"


@pytest.mark.parametrize(("end", "pointer"), [(end, bool(n % 2)) for n, end in enumerate(ENDS.split())])
def test_what_stands_for_a_file_is_named(end: str, pointer: bool, tmp_path: Path) -> None:
    (tmp_path / f"x.{end}").write_bytes(LFS if pointer else HTML)
    with pytest.raises(UsageError, match="a pointer of Git LFS" if pointer else "a page of HTML"):
        open_source(tmp_path / f"x.{end}")


BAD_CELLS = [("1", "n/a"), ("1", "NA"), ("1", ""), ("0.5", "?"), ("[1, 2]", "[3]"), ("true", "7")]


@pytest.mark.parametrize(("at", "good", "bad"), [(3 * (n % 2), *cells) for n, cells in enumerate(BAD_CELLS)])
def test_a_cell_in_a_column_of_numbers(at: int, good: str, bad: str, tmp_path: Path) -> None:
    """Wherever it is, also where it is the first; the column is what most of its cells are."""
    photos(tmp_path)
    cells = [bad if i == at else good for i in range(4)]
    (tmp_path / "set.csv").write_text("path,n\n" + "".join(f'{i}.jpg,"{cell}"\n' for i, cell in enumerate(cells)))
    source = open_source(tmp_path / "set.csv", fields=["n:int64[2]"] if bad == "[3]" else [])
    for i in range(4):
        if i == at:
            with pytest.raises(DecodeError, match=rf"bad_field: n: line {at + 2}, column 2 \(n\): "):
                source[i]
        else:
            assert np.asarray(source[i].fields["n"]).tolist() == json.loads(good)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_broken_object_of_a_list(indent: int | None, tmp_path: Path) -> None:
    """It is one reject, also where all objects are on one line."""
    photos(tmp_path)
    rows = [{"path": f"{i}.jpg", "n": i} if i != 2 else {"path": "2.jpg"} for i in range(4)]
    (tmp_path / "set.json").write_text(json.dumps(rows, indent=indent))
    source = open_source(tmp_path / "set.json")
    assert [int(np.asarray(source[i].fields["n"])) for i in (0, 1, 3)] == [0, 1, 3]
    with pytest.raises(DecodeError, match="object 3, column" if indent is None else "line 10, column"):
        source[2]


def test_a_broken_line_of_csv_and_of_captions(tmp_path: Path) -> None:
    """A row of too many cells; and a line that breaks off, of an image that has other lines."""
    photos(tmp_path)
    (tmp_path / "set.csv").write_text("path,text\n0.jpg,a\n1.jpg,b, c\n2.jpg,d\n")
    source = open_source(tmp_path / "set.csv")
    with pytest.raises(DecodeError, match="line 3, column 3: 3 values, but the first line names 2"):
        source[1]
    assert [(source.key(i), source[i].fields["text"]) for i in (0, 2)] == [("0.jpg", "a"), ("2.jpg", "d")]
    lines = [json.dumps({"path": f"{i // 2}.jpg", "text": f"t{i}"}) for i in range(8)]
    lines[3] = lines[3][:-1]
    (tmp_path / "set.jsonl").write_text("\n".join(lines))
    source = open_source(tmp_path / "set.jsonl")
    assert [source.key(i) for i in range(len(source))] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    with pytest.raises(DecodeError, match="line 4, column"):
        source[1]
    assert source[2].fields["text"] == ["t4", "t5"]


def test_a_table_of_new_fields_is_read_whole(tmp_path: Path) -> None:
    """Of a store that is packed nothing is rejected: what is wrong with a cell stops."""
    from rawpack_packer.sources.listing.reading import read_keyed

    (tmp_path / "new.csv").write_text("key,n\na,1\nb,2\nc,x\n")
    with pytest.raises(UsageError, match=r"line 4, column 2 \(n\): 'x' is not a number"):
        read_keyed(tmp_path / "new.csv", None, {}, {})
    (tmp_path / "new.jsonl").write_text('{"key": "a", "n": 1}\n{"key": "b", "n": 1}\n{"key": \n')
    with pytest.raises(UsageError, match="line 3, column"):
        read_keyed(tmp_path / "new.jsonl", None, {}, {})
