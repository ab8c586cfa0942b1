"""Objects as tables and annotation tools have them: rows of boxes, lists of objects, labelme's and CVAT's files.

`tests/layouts/made_objects.py` has their usual forms; here are the others, and what is refused. The oracle is
arithmetic, done by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture, save
from running import pack, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source

HEIGHT, WIDTH = 40, 60


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three images."""
    for i in range(3):
        save(tmp_path / f"photos/{i}.png", picture(HEIGHT, WIDTH, i))
    return tmp_path / "photos"


def packed(source: Path, *options: object) -> Reader:
    return Reader(pack(source, source.parent / "store", "--size", "keep", *options))


def boxes_of(reader: Reader) -> list[list[list[float]]]:
    return [reader[i]["boxes"].tolist() for i in range(len(reader))]


# ---------------------------------------------------------------------------------------------- rows of boxes

WHEAT = (
    'image_id,width,height,bbox,source\n0,60,40,"[34.0, 22.0, 6.0, 5.5]",usask\n1,60,40,"[1, 2, 3, 4]",arvalis\n'
    '0,60,40,"[1, 2, 6, 5]",usask\n'
)


@pytest.mark.parametrize(
    ("names", "rows", "wanted"),
    [
        ("XMin,YMin,XMax,YMax", ["0.1,0.1,1.0000001,0.5", "0.2,0.1,0.4,0.5"], [[6, 4, 60, 20], [12, 4, 24, 20]]),
        ("x,y,w,h", ["0.1,0.1,0.5,0.5", "0.2,0.1,0.4,0.5"], [[6, 4, 36, 24], [12, 4, 36, 24]]),
        ("x1,y1,x2,y2", ["0.5,0.5,1.5,1.5", "0,0,1.25,1"], [[0.5, 0.5, 1.5, 1.5], [0, 0, 1.25, 1]]),
    ],
)
def test_fractions_of_the_image_and_pixels(photos: Path, names: str, rows: list[str], wanted: Any) -> None:
    """Fractions also where some end a hair outside of the image, and where width and height are given; pixels also
    where all boxes are within the first two."""
    lines = [f"image_id,{names},label", *(f"{n},{row},x" for n, row in enumerate(rows))]
    (photos / "boxes.csv").write_text("\n".join(lines) + "\n")
    found = boxes_of(packed(photos / "boxes.csv"))
    np.testing.assert_allclose([one[0][:4] for one in found], wanted, atol=0.01)


@pytest.mark.parametrize(("none", "options"), [("", ()), ("[]", ("--field", "bbox:xywh"))])
def test_a_row_without_a_list_is_an_image_without_boxes(photos: Path, none: str, options: tuple[str, ...]) -> None:
    rows = ['0,"[34.0, 22.0, 6.0, 5.5]",x', f"1,{none},x", '2,"[1, 2, 3, 4]",y', '0,"[1, 2, 6, 5]",x']
    (photos / "boxes.csv").write_text("\n".join(["image_id,bbox,label", *rows]) + "\n")
    found = boxes_of(packed(photos / "boxes.csv", *options))
    assert [[box[:4] for box in one] for one in found] == [[[34, 22, 40, 27.5], [1, 2, 7, 7]], [], [[1, 2, 4, 6]]]


def test_a_column_of_lists_with_a_row_for_each_box(photos: Path) -> None:
    """As in Kaggle's wheat: left, top, width and height, since some would end before they begin; what is the same in
    all rows of an image is the image's. If no box shows the form, the command stops, and says what may be typed."""
    (photos / "train.csv").write_text(WHEAT)
    reader = packed(photos / "train.csv")
    assert boxes_of(reader) == [[[34, 22, 40, 27.5], [1, 2, 7, 7]], [[1, 2, 4, 6]]]
    assert [(one["key"], one["source"], one["width"]) for one in reader] == [
        ("0.png", "usask", 60), ("1.png", "arvalis", 60),
    ]  # fmt: skip
    (photos / "train.csv").write_text(WHEAT.replace("34.0, 22.0", "4.0, 2.0").replace("[1, 2, 3, 4]", "[1, 2, 30, 40]"))
    assert "say which, --field bbox:xyxy or bbox:xywh" in stop_of("pack", photos / "train.csv", photos.parent / "no")


def test_what_rows_have_besides(photos: Path) -> None:
    """Numbers follow their boxes; texts that differ within an image are left out, which the summary says; classes
    without a box are named, and stay classes."""
    (photos / "b.csv").write_text(
        "filename,class,score,note,xmin,ymin,xmax,ymax\n"
        "1.png,cat,0.5,x,1,2,30,20\n0.png,dog,1,y,3,4,5,6\n1.png,dog,2,z,0,0,60,40\n"
    )
    info = open_source(photos / "b.csv", classes=["yak", "dog", "cat", "owl"]).info
    assert info.empty_classes == ("yak", "owl")
    assert any("left out because they are not one number each: note" in one for one in info.problems)
    (photos / "names.txt").write_text("yak\ndog\ncat\nowl\n")
    reader = packed(photos / "b.csv", "--classes", photos / "names.txt")
    assert reader.classes == ("yak", "dog", "cat", "owl")
    assert [one["key"] for one in reader] == ["1.png", "0.png"]
    assert boxes_of(reader) == [[[1, 2, 30, 20, 2], [0, 0, 60, 40, 1]], [[3, 4, 5, 6, 1]]]
    assert [one["score"].tolist() for one in reader] == [[0.5, 2], [1]]


def test_names_of_open_images_with_a_line_of_names(photos: Path) -> None:
    """As of version 7, where the classes have the numbers that they had before."""
    (photos / "class-descriptions-boxable.csv").write_text("\ufeffLabelName,DisplayName\n/m/a,Ant\n/m/b,Bee\n")
    (photos / "boxes.csv").write_text("ImageID,LabelName,XMin,XMax,YMin,YMax\n0,/m/b,0.5,1,0.5,1\n1,/m/a,0,1,0,1\n")
    reader = packed(photos / "boxes.csv")
    assert (reader.classes, [one[0][4] for one in boxes_of(reader)]) == (("Ant", "Bee"), [1, 0])


# ---------------------------------------------------------------------------------------------- lists of objects


@pytest.mark.parametrize("empty", [[], {}, None, ""])
def test_objects_one_by_one(photos: Path, empty: object) -> None:
    """A list of objects is as good as lists of their numbers, also where the first image has none; names become sorted
    classes, and what is not one number each is left out and named."""
    rows: list[object] = [
        empty,
        [{"bbox": [30, 20, 6, 5], "category": "dog", "iscrowd": 0, "segmentation": [[1, 2, 3]]},
         {"bbox": [1, 2, 3, 4], "category": "cat", "iscrowd": 1, "segmentation": []}],
    ]  # fmt: skip
    lines = [json.dumps({"file_name": f"{i}.png", "objects": row}) for i, row in enumerate(rows)]
    (photos / "list.jsonl").write_text("\n".join(lines))
    source = open_source(photos / "list.jsonl")
    assert any(one.endswith("not one number each: segmentation") for one in source.info.problems)
    reader = packed(photos / "list.jsonl")
    assert reader.classes == ("cat", "dog")
    assert boxes_of(reader) == [[], [[30, 20, 36, 25, 1], [1, 2, 4, 6, 0]]]
    assert [one["iscrowd"].tolist() for one in reader] == [[], [0, 1]]


def test_structs_in_lists_of_parquet(tmp_path: Path) -> None:
    """As newer versions of `datasets` write objects; a row without any has none. What is not one number each, such as
    outlines, is left out and named."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    first, last = (
        {"bbox": box, "label": k, "outline": [box]} for box, k in (([1.0, 2, 30, 20], 1), ([0.0, 0, 6, 4], 0))
    )
    images, file = [encoded(picture(HEIGHT, WIDTH, i)) for i in range(3)], tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"image": images, "faces": [[first], None, [last]]}), file)
    with pytest.raises(UsageError, match=r"--field faces:xyxy or faces:xywh"):
        open_source(file)
    source = open_source(file, fields=["faces:xyxy"])
    assert "of the boxes, left out because they are not one number each: outline" in source.info.problems
    assert boxes_of(packed(file, "--field", "faces:xyxy")) == [[[1, 2, 30, 20, 1]], [], [[0, 0, 6, 4, 0]]]
    assert json.loads(str(open_source(file, fields=["faces:str"])[2].fields["faces"])) == [last]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("boxes.csv", "path,x1,y1,x2,y2,label,label\n0.png,1,1,5,5,cat,dog\n", "has two columns 'label': rename one"),
        # Boxes are float32, in which 2**24 + 1 would be 2**24.
        (
            "list.jsonl",
            '{"file_name": "0.png", "objects": {"bbox": [[9, 9, 1, 1]], "category": [16777217]}}',
            "the class of a box is 16777217.*number the classes from 0",
        ),
    ],
)
def test_classes_that_would_be_others_are_refused(name: str, text: str, words: str, photos: Path) -> None:
    (photos / name).write_text(text)
    with pytest.raises(UsageError, match=words):
        open_source(photos / name, "listing")


@pytest.mark.parametrize(
    ("ids", "lost"), [([1 << 60, 0.5], None), ([(1 << 60) + 1, 0.5], 0), ([-1, (1 << 63) + 1], 1), ([1 << 64, 1], 0)]
)
def test_numbers_of_objects_are_never_rounded(photos: Path, ids: list[float], lost: int | None) -> None:
    """Whole numbers next to floats, or next to larger ones, stay what they are, or the command says which cannot."""
    file, objects = photos / "list.jsonl", {"bbox": [[30, 20, 6, 5], [1, 2, 3, 4]], "id": ids}
    file.write_text(json.dumps({"file_name": "0.png", "objects": objects}))
    if lost is None:
        assert packed(file)[0]["id"].tolist() == ids
        return
    error = f"objects of line 1: id is {ids[lost]}, which no dtype that fits the others can represent"
    error += ".*: --field objects:str keeps all as text"
    with pytest.raises(UsageError, match=error):
        open_source(file)


@pytest.mark.parametrize("value", ["1.5", "true"])
def test_a_class_that_is_none_is_a_fault_of_its_line(photos: Path, value: str) -> None:
    """It is not left out as if boxes had no class; declared, it is a number of each box."""
    rows = "".join(f"{i}.png,{value},3,4,5,6\n" for i in (1, 2))
    (photos / "b.csv").write_text(f"filename,class_id,xmin,ymin,xmax,ymax\n0.png,1,1,2,5,6\n{rows}")
    with pytest.raises(UsageError, match=r"line 3, column 2 \(class_id\): .* is (no class of a box|not a number)"):
        open_source(photos / "b.csv")
    if value == "1.5":
        reader = packed(photos / "b.csv", "--field", "class_id:float64")
        assert [one["class_id"].tolist() for one in reader] == [[1], [1.5], [1.5]]
        assert boxes_of(reader) == [[[1, 2, 5, 6]], [[3, 4, 5, 6]], [[3, 4, 5, 6]]]


@pytest.mark.parametrize(("column", "typed"), [("objects", ()), ("bbox", ("--field", "bbox:xywh"))])
def test_an_append_follows_the_boxes_of_the_store(photos: Path, column: str, typed: tuple[str, ...]) -> None:
    """If the boxes that are appended do not show whether they end with right and bottom or width and height, they are
    as those that the store was packed from, whether these showed it or the user said it."""
    for name, image, box in (("a", "0.png", [9, 9, 4, 5]), ("b", "1.png", [1, 2, 3, 4])):
        (photos / f"{name}.jsonl").write_text(json.dumps({"path": image, "objects": [{"bbox": box}]}))
        (photos / f"{name}.csv").write_text(f'image_id,bbox,label\n{image},"{box}",x\n')
    end = "jsonl" if column == "objects" else "csv"
    store = pack(photos / f"a.{end}", photos.parent / "store", "--size", "keep", *typed)
    ran = run_here("append", "--quiet", "--workers", 0, photos / f"b.{end}", store)
    assert ran.code == 0, ran.err
    assert [rows[0][:4] for rows in boxes_of(Reader(store))] == [[9, 9, 13, 14], [1, 2, 4, 6]]


# ---------------------------------------------------------------------------------------------- labelme


def shape(kind: str, *points: list[float], **more: object) -> dict[str, object]:
    return {"label": "cat", "shape_type": kind, "points": list(points), "flags": {}} | more


def label(photos: Path, *shapes: object) -> None:
    about = {"version": "5.5.0", "flags": {}, "imagePath": "0.png", "imageData": None}
    sizes = {"imageHeight": HEIGHT, "imageWidth": WIDTH}
    (photos / "0.json").write_text(json.dumps(about | sizes | {"shapes": shapes}))


def test_shapes_of_labelme_that_have_no_box_are_counted(photos: Path) -> None:
    """Masks give the box that holds all of their pixels; lines and flags are left out, which the summary says."""
    label(
        photos, shape("mask", [3, 4], [9, 12], mask="iVBORw0KGgo="), shape("linestrip", [1, 1], [2, 2], [3, 1]),
        shape("rectangle", [1, 1], [2, 2], flags={"blurry": True, "night": False}),
    )  # fmt: skip
    source = open_source(photos)
    assert (source.info.kind, source.info.counts["no_annotation"], source.info.counts["no_boxes"]) == ("labelme", 2, 2)
    assert source.info.problems == ("left out of the annotations: pixels of masks 1, linestrip 1, flag blurry 1",)
    assert source.info.skipped == {}
    assert boxes_of(packed(photos))[0] == [[3, 4, 10, 13, 0], [1, 1, 2, 2, 0]]


def test_a_file_of_labelme_is_that_of_the_image_that_it_names(photos: Path) -> None:
    """Of 0.jpg and 0.png, both of which 0.json may belong to; where it names neither, nobody can say."""
    save(photos / "0.jpg", picture(HEIGHT, WIDTH, 9))
    label(photos, shape("rectangle", [1, 1], [20, 20]))
    source = open_source(photos, "labelme")
    reader = packed(photos, "--source", "labelme")
    assert {one["key"]: one["boxes"].tolist() for one in reader} == {
        "0.jpg": [], "0.png": [[1, 1, 20, 20, 0]], "1.png": [], "2.png": [],
    }  # fmt: skip
    assert (source.info.counts["no_annotation"], source.info.skipped) == (3, {})
    text = (photos / "0.json").read_text()
    (photos / "0.json").write_text(text.replace("0.png", "a\\\\b\\\\0.jpg"))
    assert [len(one["boxes"]) for one in packed(photos, "--source", "labelme", "--restart")] == [1, 0, 0, 0]
    (photos / "0.json").write_text(text.replace("0.png", "7.png"))
    with pytest.raises(UsageError, match=r"0\.json: it may be that of 0\.jpg, 0\.png, and names the image '7\.png'"):
        open_source(photos, "labelme")


def test_splits_of_labelme_have_the_same_classes(photos: Path) -> None:
    """Each split is packed with its files, and the class of a box has the same number in all of them."""
    for split, name in (("train", "dog"), ("val", "cat")):
        label(photos, shape("rectangle", [1, 1], [20, 20], label=name))
        shutil.copytree(photos, photos.parent / "sets" / split)
    pack(photos.parent / "sets", photos.parent / "packed", "--size", "keep", "--splits", "train,val")
    train, val = (Reader(photos.parent / "packed" / split) for split in ("train", "val"))
    assert train.classes == val.classes == ("cat", "dog")
    assert (train[0]["boxes"][0, 4], val[0]["boxes"][0, 4]) == (1, 0)


@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        (shape("polygon", [1, 1], [2, 2]), "0.json: shape 1: 4 coordinates"),
        (shape("rectangle", [1, 1], [2, 2]), "a shape of 0.png is 'cat'; it is none of the 1 classes"),
    ],
)
def test_faults_in_files_of_labelme(shapes: object, error: str, photos: Path) -> None:
    label(photos, shapes)
    with pytest.raises(UsageError, match=re.escape(error)):
        open_source(photos, "labelme", classes=["dog"])


# ---------------------------------------------------------------------------------------------- CVAT

LABELS = (
    "<meta><project><labels><label><name>person</name><type>skeleton</type></label>"
    "<label><name>left_eye</name><type>points</type><parent>person</parent></label>"
    "<label><name>right_eye</name><type>points</type><parent>person</parent></label>"
    "<label><name>nose</name><type>points</type><parent>person</parent></label>"
    "<label><name>cup</name><type>ellipse</type></label></labels></project></meta>"
)
"""After CVAT's documentation."""


def annotate(photos: Path, shapes: str, name: str = "0.png", more: str = "", labels: str = LABELS) -> Path:
    image = f'<image id="0" name="{name}" width="{WIDTH}" height="{HEIGHT}"{more}>{shapes}</image>'
    file = photos / "annotations.xml"
    file.write_text(f'<?xml version="1.0" encoding="utf-8"?><annotations>{labels}{image}</annotations>')
    return file


def test_skeletons_and_ellipses_of_cvat(photos: Path) -> None:
    """Keypoints have the order of their label, and are hidden or not labeled as the file says; eyes change places in a
    mirrored image; an ellipse has the box around it."""
    annotate(
        photos,
        '<skeleton label="person" z_order="0"><points label="nose" outside="0" occluded="1" points="8.5,25"/>'
        '<points label="left_eye" outside="0" occluded="0" points="4,5"/>'
        '<points label="right_eye" outside="1" occluded="0" points="50,30"/></skeleton>'
        '<ellipse label="cup" occluded="0" cx="30" cy="20" rx="10" ry="5" rotation="90" z_order="0"/>',
    )
    reader = packed(photos)
    assert reader.classes == ("person", "cup")
    np.testing.assert_allclose(reader[0]["boxes"], [[4, 5, 8.5, 25, 0], [25, 10, 35, 30, 1]], rtol=1e-6)
    assert reader[0]["keypoints"].tolist() == [[[4, 5, 2], [0, 0, 0], [8.5, 25, 1]], np.zeros((3, 3)).tolist()]
    assert open_source(photos).info.fields["keypoints"].mirror == (1, 0, 2)


def test_images_of_cvat_may_be_in_folders_of_subsets(photos: Path) -> None:
    """An export of a project has images/train/0.png for the image 0.png of subset train; `--images` names others."""
    file = annotate(photos, '<box label="cup" xtl="1" ytl="2" xbr="3" ybr="4"/>', more=' subset="train"')
    (photos / "images/train").mkdir(parents=True)
    (photos / "0.png").rename(photos / "images/train/0.png")
    source = open_source(photos)
    assert (len(source), source.key(0)) == (1, "train/0.png")
    save(photos.parent / "other/0.png", picture(HEIGHT, WIDTH, 0))
    assert open_source(file, images=photos.parent / "other").key(0) == "0.png"


def test_the_box_around_a_mask_of_cvat(photos: Path) -> None:
    """Run lengths go through the pixels of the mask row by row; the box is that of the pixels that are set."""
    rle = "10, 5, 11, 5, 9"  # two rows of five pixels, the first and the third below an empty one
    annotate(photos, f'<mask label="cup" rle="{rle}" left="10" top="20" width="8" height="5"/>')
    assert boxes_of(packed(photos)) == [[[12, 21, 17, 24, 1]]]


@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        ('<box label="cup" xtl="1" ytl="b" xbr="3" ybr="4"/>', "image '0.png', shape 1 (box): ytl 'b' is not a number"),
        ('<polygon label="cup" points="1,2;3"/>', "shape 1 (polygon): 3 coordinates, not x, y of each point"),
        ('<mask label="cup" rle="3, 4" left="0" top="0" width="2" height="2"/>', "are not those of 2x2 pixels"),
    ],
)
def test_faults_in_the_file_of_cvat(shapes: str, error: str, photos: Path) -> None:
    annotate(photos, shapes)
    with pytest.raises(UsageError, match=re.escape(error)):
        open_source(photos)


def test_files_of_cvat_that_are_refused(photos: Path) -> None:
    """Tracks of a video are to be exported again; nothing is expanded, and no name leads out of the folder."""
    file = annotate(photos, "")
    text = file.read_text()
    file.write_text(re.sub("<image.*</image>", '<track id="0" label="cup"/>', text))
    with pytest.raises(UsageError, match=r"export them again, as 'CVAT for images 1\.1'"):
        open_source(photos)
    file.write_text(text.replace("<annotations>", "<!DOCTYPE a><annotations>"))
    with pytest.raises(UsageError, match="has a DOCTYPE"):
        open_source(photos)
    save(photos.parent / "secret.png", picture(HEIGHT, WIDTH, 0))
    annotate(photos, "", name="../secret.png")
    with pytest.raises(UsageError, match=r"image 0: ../secret.png leads out of"):
        open_source(photos)
