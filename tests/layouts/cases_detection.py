"""Boxes and outlines: COCO, Pascal VOC, YOLO, labelme, CVAT."""

from __future__ import annotations

from typing import Any

from cases import Case, Files, files, images, lone, photos, texts
from cases_beside import BOX, LABELME, VOC, coco

_TWO = ("0.jpg", "1.jpg")


def voc(folder: str, lists: tuple[str, ...] = ()) -> Files:
    listed = {f"ImageSets/Main/{name}.txt": f"{n % 2}\n" for n, name in enumerate(lists)}
    return files("JPEGImages/{0,1}.jpg", texts(VOC, "Annotations/{0,1}.xml"), listed, below=f"{folder}/")


def yolo(folder: str, text: str = BOX) -> Files:
    return files("images/{0,1}.jpg", {"labels/0.txt": text}, below=f"{folder}/")


def coco_folder(**box: Any) -> Files:
    return files("coco/val2017/{0,1}.jpg", {"coco/annotations/instances_val2017.json": coco(*_TWO, **box)})


_WITH_TEXTS = coco(*_TWO).replace('"id": 0', '"id": "0"').replace('"image_id": 0', '"image_id": "0"')
_CVAT = (
    '<?xml version="1.0"?><annotations><meta/><image id="0" name="0.jpg" width="8" height="8">'
    '<box label="cat" xtl="1" ytl="2" xbr="5" ybr="6"/></image></annotations>'
)
_DATA_YAML = files(
    "images/{train,val}/{0,1}.jpg",
    texts(BOX, "labels/{train,val}/0.txt"),
    {"data.yaml": "train: images/train\nval: images/val\nnames: [cat, dog]\n"},
)
_INSTANCES = "coco/annotations/instances_val2017.json"


def _coco(name: str, text: str) -> Case:
    return Case(name, "boxes.json", files("{0,1}.jpg", {"boxes.json": text}))


DETECTION = (
    Case("COCO's folder", "coco", coco_folder()),
    lone("COCO's JSON whose images are not here", "boxes.json", coco(*_TWO)),
    _coco("COCO's ids as texts", _WITH_TEXTS),
    _coco("COCO's outline without a box", coco(*_TWO, bbox=[], segmentation=[[1, 1, 6, 1, 6, 6]])),
    _coco(
        "COCO with a category that is not listed",
        coco(*_TWO, more=[{"id": 7, "image_id": 1, "category_id": 77, "bbox": [1, 2, 3, 4]}]),
    ),
    photos(
        "Roboflow's COCO in splits",
        "{train,valid}/{0,1}.jpg",
        texts(coco(*_TWO), "{train,valid}/_annotations.coco.json"),
    ),
    Case("Pascal VOC of two years", "VOCdevkit", {**voc("VOCdevkit/VOC2007"), **voc("VOCdevkit/VOC2012")}),
    Case("Pascal VOC with lists", "VOC2012", voc("VOC2012", ("train", "val"))),
    Case("one list of Pascal VOC", "VOC2012/val", voc("VOC2012", ("train", "val"))),
    photos(
        "Pascal VOC in other folders",
        "images/{0,1}.jpg",
        texts(VOC, "annotations/{0,1}.xml"),
    ),
    photos("labelme in two splits", "{train,val}/0.jpg", texts(LABELME, "{train,val}/0.json")),
    Case("CVAT's file", "my.xml", files("0.jpg", {"my.xml": _CVAT})),
    Case("YOLO's images/ and labels/", "pets", yolo("pets")),
    photos("a folder with YOLO's data.yaml", _DATA_YAML, needs=("yaml",)),
    photos("one split of YOLO's data.yaml", _DATA_YAML, of="photos/data.yaml/train", needs=("yaml",)),
    photos("a split that data.yaml lacks", _DATA_YAML, of="photos/data.yaml/test", needs=("yaml",)),
    photos("YOLO's texts beside images, as the refusal says", "{0,1}.jpg", texts(BOX, "{0,1}.txt"), kind="yolo"),
    Case("two images with one text of YOLO's", "pets", {**yolo("pets"), **images("pets/images/0.png")}),
    Case("YOLO's names instead of numbers", "pets", yolo("pets", "cat 0.5 0.5 0.2 0.4\n")),
    photos("labels/ without images/", "{0,1}.jpg", {"labels/0.txt": BOX}),
)

CASES = {"detection": DETECTION}
