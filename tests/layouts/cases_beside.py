"""Images and what describes them: files of the same names, tables, masks, partners."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import photos, texts

_TWO, _THREE = "{0,1}.jpg", "{0,1,2}.jpg"
LABELME = json.dumps({
    "version": "5.0", "imagePath": "0.jpg", "imageHeight": 8, "imageWidth": 8,
    "shapes": [{"label": "cat", "points": [[1, 1], [5, 5]], "group_id": None, "shape_type": "rectangle", "flags": {}}],
})  # fmt: skip
VOC = (
    "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax></bndbox>"
    "</object></annotation>"
)
BOX = "0 0.5 0.4 0.2 0.4\n"


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def coco(*names: str, more: Any = (), **box: Any) -> str:
    """COCO's JSON of these images, with a box in the first, and more annotations."""
    pictures = [{"id": i, "file_name": name, "width": 8, "height": 8} for i, name in enumerate(names)]
    thing = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 9, "iscrowd": 0} | box
    return json.dumps(
        {"info": {}, "images": pictures, "annotations": [thing, *more], "categories": [{"id": 1, "name": "cat"}]}
    )


def parquet(columns: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> bytes:
    """A Parquet file. about: what the Hub's files say of their columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, table = io.BytesIO(), pa.table(dict(columns))
    if about is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": about}})})
    pq.write_table(table, file)
    return file.getvalue()


CASES = {
    "beside": (
        photos("an XML of VOC's for each image", _TWO, texts(VOC, "{0,1}.xml")),
        photos("a text of YOLO's for each image", _TWO, texts(BOX, "{0,1}.txt")),
        photos("a caption for each image", _TWO, texts("a cat", "{0,1}.txt")),
        photos("a pack of the images alone", _TWO, texts("a cat", "{0,1}.txt"), kind="folder"),
        photos("labelme's files and captions", _TWO, {"0.json": LABELME, "1.txt": "a cat"}),
        photos("a table of paths", _TWO, {"labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"}),
        photos("a table of names without suffixes", _TWO, {"labels.csv": "id,breed\n0,cat\n1,dog\n"}),
        *(
            photos(f"{what}, named by an option", _TWO, {"../labels.csv": rows}, labels_file="labels.csv")
            for what, rows in (
                ("a table of names", "id,breed\n0,cat\n1,dog\n"),
                ("a table without rows", "id,breed\n"),
            )
        ),
        photos("a list with labels", _TWO, {"list.txt": "0.jpg 3\n1.jpg 4\n"}),
        photos(
            "Tiny ImageNet's validation folder",
            "images/val_0.JPEG",
            {"val_annotations.txt": "val_0.JPEG\tn01\t0\t0\t1\t1\n"},
        ),
        *(
            photos(
                f"only {of}, with YOLO's labels around",
                "images/train/{0,1}.jpg",
                texts(BOX, "labels/train/{0,1}.txt"),
                of=f"photos/{of}",
            )
            for of in ("images", "images/train")
        ),
        photos(
            "only JPEGImages, with VOC's boxes around",
            "JPEGImages/{0,1}.jpg",
            texts(VOC, "Annotations/{0,1}.xml"),
            of="photos/JPEGImages",
        ),
        photos(
            "only val2017, with COCO's JSON around",
            "val2017/{0,1}.jpg",
            {"annotations/instances_val2017.json": coco("0.jpg", "1.jpg")},
            of="photos/val2017",
        ),
        photos(
            "only images/train, with YOLO's labels of most around",
            "images/train/{0,1,2}.jpg",
            texts(BOX, "labels/train/{1,2}.txt"),
            of="photos/images/train",
        ),
        photos(
            "only images/val2017, with COCO's JSON around",
            "images/val2017/{0,1}.jpg",
            {"annotations/instances_val2017.json": coco("0.jpg", "1.jpg")},
            of="photos/images/val2017",
        ),
        photos(
            "only img, with Supervisely's JSON around",
            "img/{0,1}.jpg",
            texts("{}", "ann/{0,1}.jpg.json"),
            of="photos/img",
        ),
        photos(
            "only image_2, with KITTI's labels around",
            "image_2/{0,1}.jpg",
            texts("Car 0 0 1", "label_2/{0,1}.txt"),
            of="photos/image_2",
        ),
        photos(
            "only train, with Kaggle's table around",
            "train/{0,1,2,3}.jpg",
            {"train.csv": "id,breed\n0,pug\n1,cat\n2,cat\n3,pug\n"},
            of="photos/train",
        ),
        photos(
            "only test, with a table of one class around",
            "test/{0,1,2,3}.jpg",
            {"sample.csv": "id,breed\n0,cat\n1,cat\n2,cat\n3,cat\n"},
            of="photos/test",
        ),
        photos(
            "classes, and YOLO's boxes in folders of another name",
            "photos/{a,b}/{0,1}.jpg",
            texts(BOX, "runs/{a,b}/{0,1}.txt"),
        ),
        photos(
            "only classes, with captions around",
            "images/{cat,dog}/0.jpg",
            texts("a pet", "captions/{cat,dog}/0.txt"),
            of="photos/images",
        ),
        photos("COCO's JSON beside", _TWO, {"_annotations.coco.json": coco("0.jpg", "1.jpg")}),
        photos("masks/ beside images/", "images/{0,1}.jpg", "masks/{0,1}.png"),
        photos("each mask beside its image, of another suffix", "{0,1}.jpg", "{0,1}.png"),
        photos("each mask beside its image, of a longer name", "{0,1}.jpg", "{0,1}_mask.png"),
        photos("two classes of the same names", "mugs/{0,1}.png", "cups/{0,1}.png"),
        photos(
            "metadata.csv in each split",
            "{train,val}/{0,1}.jpg",
            texts("file_name,text\n0.jpg,a\n1.jpg,b\n", "{train,val}/metadata.csv"),
        ),
        photos("a .pose for each image, and for many others", _THREE, texts("7", "{0,1,2,3,4,5,6,7,8}.pose")),
        photos("a .pose for each image in a folder beside", "images/{0,1,2}.jpg", texts("7", "poses/{0,1,2}.pose")),
        photos("what a camera writes beside its images: xmp", _THREE, texts("<x:xmpmeta/>", "{0,1,2}.xmp")),
        photos("a number for each image, a line each: truth.lst", _THREE, {"truth.lst": "4\n0\n7\n"}),
        photos("arrays with a row for each image: y.npy", _THREE, {"y.npy": npy(np.arange(3))}),
        *(
            photos(
                f"pairs by an ending: {first or 'none'} and {second}",
                f"{{1,2,10}}{first}.png",
                f"{{1,2,10}}{second}.png",
            )
            for first, second in (("", "_fg"), ("L", "R"), ("", " matte"))
        ),
        photos("pairs in class folders", "{cat,dog}/{0,1}.jpg", "{cat,dog}/{0,1}.png"),
        photos("pairs, and images without a partner", "{0,1,2,3,4,5}.jpg", "{0,1,2}.png"),
        photos("masks that are JPEG files", "{0,1,2}.jpg", "{0,1,2}_mask.jpg"),
        photos("frames that are numbered after a letter", "{cup,mug}_f{1,2,3}.png"),
    )
}
