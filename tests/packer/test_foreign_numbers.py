"""Numbers and columns that others wrote are refused by what their type allows, with their file and place; ids are
compared as they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import every_kind
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_kind import pictures
from running import reason_of
from tfrecords import tfrecord

from rawpack import UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import open_source

FIXTURES = Path(__file__).resolve().parents[1] / "support" / "fixtures"
FILES = pictures("0.png", "1.png", "2.png")
HUGE = [10**20, 10**30, -(10**20)]
"""Beyond 64 bits."""


def replaced(make: Callable[[Path], Path], file: str = "") -> Callable[..., Path]:
    """Makes a source, and replaces a value in a file of JSON in it."""

    def changed(folder: Path, number: object, *place: str | int) -> Path:
        path = make(folder)
        tree = inner = json.loads((path / file).read_text())
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = number
        (path / file).write_text(json.dumps(tree))
        return path

    return changed


DOGS = ["dog", "cat", "dog"]
of_labelme = replaced(lambda folder: every_kind.labelme(folder, DOGS, FILES), "1.json")
of_mds = replaced(lambda folder: every_kind.rows_of_mds(folder, {"a": [b"\0", b"\1", b"\2"]}, FILES), "index.json")


of_coco = replaced(lambda folder: every_kind.coco(folder, DOGS, FILES))


def of_arrays(folder: Path, number: object, *_: str | int) -> Path:
    """With a column of arrays whose shape the index says."""
    return of_mds(folder, f"ndarray:uint8:{number}", "shards", 0, "column_encodings", 1)


def of_tfds(folder: Path, number: object, *_: str | int) -> Path:
    (folder / "set-train.tfrecord-00000-of-00001").write_bytes(tfrecord([{"image": FILES[0][1], "n": [1, 2]}]))
    tensor = {"tensor": {"dtype": "int64", "shape": {"dimensions": [str(number)]}}}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": {"n": tensor}}}))
    return folder


def of_cvat(folder: Path, number: object, *_: str | int) -> Path:
    root = every_kind.cvat(folder, DOGS, FILES)
    path = root / "annotations.xml"
    path.write_text(path.read_text().replace('ybr="4"', f'ybr="{number}"', 1))
    return root


NUMBERS: dict[str, tuple[Callable[..., Path], tuple[str | int, ...], str]] = {
    "COCO, width": (of_coco, ("images", 1, "width"), r"set.json .*\$.images\[1\].width"),
    "COCO, box": (of_coco, ("annotations", 2, "bbox", 0), r"boxes: \$.annotations\[2\].bbox\[0\]"),
    "labelme, point": (of_labelme, ("shapes", 0, "points", 1, 0), r"1.json: .*\$.shapes\[0\].points\[1\]\[0\]"),
    "MDS, samples": (of_mds, ("shards", 0, "samples"), r"index.json .*\$.shards\[0\].samples"),
    "MDS, shape": (of_arrays, (), r"column 'a' is 'ndarray:uint8:-?10+'.* does not say what its shape is"),
    "TFDS, shape": (of_tfds, (), r"features.json .*dimensions\[0\]"),
    "CVAT, box": (of_cvat, (), r"shape 1 \(box\): ybr .* not a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_its_range_is_refused(name: str, tmp_path: Path) -> None:
    """In one line with the file and the place of the number; the cause is that of the library or check that saw it. In
    one annotation of several, it is a reject."""
    make, place, words = NUMBERS[name]
    path = make(tmp_path, HUGE[[*NUMBERS].index(name) % 3], *place)
    if name in ("COCO, box", "labelme, point", "CVAT, box"):
        source = open_source(path)
        (rejected,) = (i for i in range(len(source)) if reason_of(source, i))
        with pytest.raises(DecodeError, match=words) as error:
            source[rejected]
        assert error.value.reason == "bad_field"
        assert str(tmp_path) not in error.value.detail
        return
    with pytest.raises(UsageError, match=words) as raised:
        open_source(path)
    assert "\n" not in str(raised.value)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([1, 10**30, -5], "str"), ([1, "1", 2], "str"), ([7, 2**63 - 1, -(2**63)], "int64"), ([2**63, 0, 1], "str"),
    ],
)  # fmt: skip
def test_ids_are_compared_as_they_are(ids: list[Any], kind: str, tmp_path: Path) -> None:
    """Ids of any width, and texts: 1 and "1" are two. The field of ids is text where some are no int64."""
    file = every_kind.coco(tmp_path, DOGS, FILES)
    tree = json.loads(file.read_text())
    for one in tree["images"]:
        one["id"] = ids[one["id"]]
    for one in tree["annotations"]:
        one["image_id"], one["category_id"] = ids[one["image_id"]], ids[one["category_id"]]
    for one in tree["categories"]:
        one["id"] = ids[one["id"]]
    file.write_text(json.dumps(tree))
    source = open_source(file)
    assert source.info.fields["image_id"].dtype == kind
    classes = {ids[2]: "dog", ids[1]: "cat"}
    for i, label in enumerate(["dog", "cat", "dog"]):
        fields = source[i].fields
        assert (fields["image_id"] if kind == "int64" else ids[i]) == ids[i]
        assert str(fields["image_id"]) == str(ids[i])
        assert source.info.classes is not None
        assert source.info.classes[int(fields["boxes"].rows[0, 4])] == label  # type: ignore[union-attr]
    assert {*classes.values()} == {*(source.info.classes or ())}


def test_an_id_that_is_not_there(tmp_path: Path) -> None:
    """The text "1" is not the number 1: an annotation of an image that is not listed is left out and counted; where all
    are such, the ids are those of something else."""
    source = open_source(of_coco(tmp_path, "1", "annotations", 1, "image_id"))
    what = "1 annotation of an image that is not listed, left out: $.annotations[1] of image '1'"
    assert source.info.problems == (what,)
    assert [len(source[i].fields["boxes"].rows) for i in range(3)] == [1, 0, 1]  # type: ignore[union-attr]
    file = of_coco(tmp_path, [{"image_id": "x", "category_id": 1, "bbox": [0, 0, 4, 4]}], "annotations")
    with pytest.raises(UsageError, match=r"annotations\[0\] of image 'x': there is no such image"):
        open_source(file)


def test_numbers_of_coco_may_be_floats_and_booleans(tmp_path: Path) -> None:
    """1.0 is 1, and true is 1; a crowd's box is none of a thing."""
    file = every_kind.coco(tmp_path, DOGS, FILES)
    before = open_source(file)
    tree = json.loads(file.read_text())
    for entry in (*tree["images"], *tree["categories"]):
        entry["id"] = float(entry["id"])
    for number, annotation in enumerate(tree["annotations"]):
        annotation["iscrowd"] = number == 0
        annotation["image_id"], annotation["category_id"] = (float(annotation[k]) for k in ("image_id", "category_id"))
    file.write_text("\ufeff" + json.dumps(tree), encoding="utf-8")
    after = open_source(file)
    assert (after.info.fields, after.info.classes) == (before.info.fields, before.info.classes)
    for i in range(3):
        assert after[i].fields["image_id"] == before[i].fields["image_id"]
        rows = [after[i].fields[name].rows.tolist() for name in ("boxes", "crowds")]  # type: ignore[union-attr]
        boxes = before[i].fields["boxes"].rows.tolist()  # type: ignore[union-attr]
        assert rows == ([[], boxes] if i == 0 else [boxes, []])


@pytest.mark.parametrize(
    ("files", "column"),
    [
        ("meta/episodes/*/*.parquet", "length"),
        ("meta/episodes/*/*.parquet", "videos/observation.images.top/from_timestamp"),
        ("data/*/*.parquet", "episode_index"),
        ("data/*/*.parquet", "timestamp"),
    ],
)
def test_columns_have_the_types_that_lerobot_writes(files: str, column: str, tmp_path: Path) -> None:
    """Others are refused with the file, the column, its type, and what belongs there."""
    root = Path(shutil.copytree(FIXTURES / "lerobot/v30/h264", tmp_path / "set"))
    (file,) = root.glob(files)
    table = pq.read_table(file)
    texts = pa.array(["3"] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index(column), column, texts), file)
    with pytest.raises(UsageError, match=rf"file-000.parquet: column '{column}' has [\w<>: ]+, where .*numbers belong"):
        open_source(root)


@pytest.mark.parametrize("path", [{"a": 1}, None])
@pytest.mark.parametrize("more", [{}, {"text": "a"}, {"x1": 1, "y1": 1, "x2": 2, "y2": 2, "label": "cat"}])
def test_a_path_that_is_no_text(path: object, more: dict[str, object], tmp_path: Path) -> None:
    """Whatever JSON has in its place, it is refused with its line, whether rows have boxes, captions or neither."""
    every_kind.written(tmp_path, FILES)
    (tmp_path / "list.jsonl").write_text("".join(json.dumps({"path": one} | more) + "\n" for one in ("0.png", path)))
    with pytest.raises(UsageError, match=r"list.jsonl: line 2, column \(path\): .*(is not a path|is empty)"):
        open_source(tmp_path / "list.jsonl")


def test_shapes_have_an_end(tmp_path: Path) -> None:
    """A sample of more values than any memory has is no field: the summary says so."""
    info = open_source(of_arrays(tmp_path, "2147483647,2147483647,2147483647")).info
    assert [*info.fields] == []
    assert any("'a'" in line and "at most 1,099,511,627,776 values" in line for line in info.problems), info.problems
