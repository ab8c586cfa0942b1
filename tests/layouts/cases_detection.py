"""Boxes and outlines: COCO, Pascal VOC, YOLO, labelme, CVAT."""

from __future__ import annotations

import json
from typing import Any

from cases import Case, Files, images, lone, texts
from cases_beside import BOX, LABELME, coco

TWO = ("0.jpg", "1.jpg")


def _object(name: str = "cat", box: tuple[int, ...] = (1, 1, 5, 5)) -> str:
    sides = "".join(f"<{side}>{at}</{side}>" for side, at in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name><difficult>0</difficult><bndbox>{sides}</bndbox></object>"


def voc(folder: str, box: tuple[int, ...] = (1, 1, 5, 5), lists: tuple[str, ...] = ()) -> Files:
    return {
        **images(f"{folder}/JPEGImages/{{0,1}}.jpg"),
        f"{folder}/Annotations/0.xml": f"<annotation>{_object(box=box)}</annotation>",
        f"{folder}/Annotations/1.xml": f"<annotation>{_object('dog')}</annotation>",
        **{f"{folder}/ImageSets/Main/{name}.txt": f"{n % 2}\n" for n, name in enumerate(lists)},
    }


def yolo(folder: str, text: str = BOX, *, split: str = "") -> Files:
    return {**images(f"{folder}/images/{split}{{0,1}}.jpg"), f"{folder}/labels/{split}0.txt": text}


def coco_folder(folder: str = "coco", **box: Any) -> Files:
    return {
        **images(f"{folder}/val2017/{{0,1}}.jpg"),
        f"{folder}/annotations/instances_val2017.json": coco(*TWO, **box),
    }


def _ids(kind: type[str] | type[float]) -> str:
    tree = json.loads(coco(*TWO))
    for picture in tree["images"]:
        picture["id"] = kind(picture["id"])
    for thing in tree["annotations"]:
        thing["image_id"] = kind(thing["image_id"])
    return json.dumps(tree)


def _unnamed() -> str:
    tree = json.loads(coco(*TWO))
    tree["annotations"].append(
        {**tree["annotations"][0], "id": 77, "image_id": tree["images"][1]["id"], "category_id": 77}
    )
    return json.dumps(tree)


_CAPTIONS = json.dumps({
    "images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"id": 1, "image_id": 1, "caption": "a cat"}],
})  # fmt: skip
_CVAT = (
    '<?xml version="1.0"?><annotations><meta/><image id="0" name="0.jpg" width="8" height="8">'
    '<box label="cat" xtl="1" ytl="1" xbr="5" ybr="5"/></image></annotations>'
)
DATA_YAML = {**yolo("pets", split="train/"), **yolo("pets", split="val/"),
         "pets/data.yaml": "train: images/train\nval: images/val\nnames: [cat, dog]\n"}  # fmt: skip
_ROBOFLOW = {
    **{f"pets/{split}/{name}": data for split in ("train", "valid") for name, data in
       {**images("images/{0,1}.jpg"), "labels/0.txt": BOX}.items()},
    "pets/data.yaml": "train: ../train/images\nval: ../valid/images\nnames: [cat]\n",
}  # fmt: skip
_INSTANCES = "coco/annotations/instances_val2017.json"

CASES = (
    Case("COCO's folder", "coco", coco_folder()),
    Case("COCO's folder of images", "coco/val2017", coco_folder()),
    Case(
        "COCO's captions",
        "coco/annotations/captions_val2017.json",
        {**images("coco/val2017/0.jpg"), "coco/annotations/captions_val2017.json": _CAPTIONS},
    ),
    lone("COCO's JSON whose images are not here", "boxes.json", coco(*TWO)),
    Case("COCO's ids as texts", "boxes.json", {**images("{0,1}.jpg"), "boxes.json": _ids(str)}),
    Case("COCO's ids as 1.0", "boxes.json", {**images("{0,1}.jpg"), "boxes.json": _ids(float)}),
    Case(
        "COCO's outline without a box",
        "boxes.json",
        {**images("{0,1}.jpg"), "boxes.json": coco(*TWO, bbox=[], segmentation=[[1, 1, 6, 1, 6, 6]])},
    ),
    Case("COCO with outlines", _INSTANCES, coco_folder(segmentation=[[1, 1, 4, 1, 4, 4]])),
    Case("Roboflow's COCO", "pets", {**images("pets/{0,1}.jpg"), "pets/_annotations.coco.json": coco(*TWO)}),
    Case(
        "Roboflow's COCO in splits",
        "pets",
        {**images("pets/{train,valid}/{0,1}.jpg"), **texts(coco(*TWO), "pets/{train,valid}/_annotations.coco.json")},
    ),
    Case("Pascal VOC of two years", "VOCdevkit", {**voc("VOCdevkit/VOC2007"), **voc("VOCdevkit/VOC2012")}),
    Case("Pascal VOC with lists", "VOC2012", voc("VOC2012", lists=("train", "val"))),
    Case("one list of Pascal VOC", "VOC2012/val", voc("VOC2012", lists=("train", "val"))),
    Case("Pascal VOC's folder of images", "VOC2012/JPEGImages", voc("VOC2012")),
    Case("Pascal VOC's corners turned", "VOC2012", voc("VOC2012", (5, 1, 1, 5))),
    Case(
        "Pascal VOC in other folders",
        "set",
        {
            **images("set/images/{0,1}.jpg"),
            **texts(f"<annotation>{_object()}</annotation>", "set/annotations/{0,1}.xml"),
        },
    ),
    Case("labelme", "photos", {**images("photos/{0,1}.jpg"), "photos/0.json": LABELME}),
    Case(
        "labelme in two splits",
        "photos",
        {**images("photos/{train,val}/0.jpg"), **texts(LABELME, "photos/{train,val}/0.json")},
    ),
    Case("CVAT's file", "my.xml", {**images("0.jpg"), "my.xml": _CVAT}),
    Case("YOLO's images/ and labels/", "pets", yolo("pets")),
    Case(
        "YOLO with a class without a name",
        "pets",
        {**yolo("pets"), "pets/labels/1.txt": "9 .5 .5 .5 .5\n", "pets/classes.txt": "cat\n"},
    ),
    Case("COCO with a category that is not listed", _INSTANCES, {**coco_folder(), _INSTANCES: _unnamed()}),
    Case("a folder with YOLO's data.yaml", "pets", DATA_YAML, needs=("yaml",)),
    Case("one split of YOLO's data.yaml", "pets/data.yaml/train", DATA_YAML, needs=("yaml",)),
    Case("a split that data.yaml lacks", "pets/data.yaml/test", DATA_YAML, needs=("yaml",)),
    Case("Roboflow's YOLO", "pets", _ROBOFLOW, needs=("yaml",)),
    Case("YOLO's texts beside images", "pets", {**images("pets/{0,1}.jpg"), **texts(BOX, "pets/{0,1}.txt")}),
    Case(
        "the same, as the refusal says",
        "pets",
        {**images("pets/{0,1}.jpg"), **texts(BOX, "pets/{0,1}.txt")},
        {"kind": "yolo"},
    ),
    Case(
        "a data.yaml of a folder that is missing",
        "pets/data.yaml",
        {**yolo("pets"), "pets/data.yaml": "train: nowhere\nnames: [x]\n"},
        needs=("yaml",),
    ),
    Case("two images with one text of YOLO's", "pets", {**yolo("pets"), **images("pets/images/0.png")}),
    Case("YOLO's box a hair outside", "pets", yolo("pets", "0 .5 .5 1.0000001 1\n")),
    Case("YOLO with a byte order mark", "pets", yolo("pets", "\ufeff" + BOX)),
    Case("YOLO's names instead of numbers", "pets", yolo("pets", "cat 0.5 0.5 0.2 0.4\n")),
    Case("YOLO with names of classes", "pets", {**yolo("pets"), "names.txt": "cat\ndog\n"}, {"classes": "names.txt"}),
    Case("labels/ without images/", "pets", {**images("pets/{0,1}.jpg"), "pets/labels/0.txt": BOX}),
)
