"""Images and what describes them: files of the same names, tables, masks, partners."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from archived import zipped
from cases import Case, Files, images, photos, texts
from pictures import encoded

TWO, THREE = images("photos/{0,1}.jpg"), images("photos/{0,1,2}.jpg")
LABELME = json.dumps({
    "version": "5.0", "imagePath": "0.jpg", "imageHeight": 8, "imageWidth": 8,
    "shapes": [{"label": "cat", "points": [[1, 1], [5, 5]], "group_id": None, "shape_type": "rectangle", "flags": {}}],
})  # fmt: skip
VOC = (
    "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    "</object></annotation>"
)
BOX = "0 0.5 0.5 0.2 0.4\n"


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _npy(rows: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(rows))
    return file.getvalue()


def coco(*names: str, **box: Any) -> str:
    """COCO's JSON of these images, with a box in the first."""
    pictures = [{"id": i, "file_name": name, "width": 8, "height": 8} for i, name in enumerate(names)]
    thing = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 1, 3, 3], "area": 9, "iscrowd": 0} | box
    return json.dumps(
        {"info": {}, "images": pictures, "annotations": [thing], "categories": [{"id": 1, "name": "cat"}]}
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


def beside(data: bytes | str, suffix: str) -> Files:
    return {**TWO, **{f"photos/{n}{suffix}": data for n in (0, 1)}}


_LIST = "path,kind\n0.jpg,a\n1.jpg,b\n2.jpg,a\n"


def partners(*patterns: str) -> Files:
    return images(*(f"photos/{pattern}" for pattern in patterns))


CASES = (
    photos("a JSON for each image", beside('{"a": 1}', ".json")),
    photos("an XML of VOC's for each image", beside(VOC, ".xml")),
    photos("a text of YOLO's for each image", beside(BOX, ".txt")),
    photos("a caption for each image", beside("a cat", ".txt")),
    photos("a number for each image", beside("1", ".cls")),
    photos("an .npy for each image", beside(b"\x93NUMPY", ".npy")),
    photos("a .pts of landmarks for each image", beside("version: 1\nn_points: 1\n{\n1 2\n}\n", ".pts")),
    photos(
        "texts in a folder of their own",
        {**images("photos/images/{0,1}.jpg"), **texts("a cat", "photos/captions/{0,1}.txt")},
    ),
    photos("labelme's files and captions", {**TWO, "photos/0.json": LABELME, "photos/1.txt": "a cat"}),
    photos("a table of paths", {**TWO, "photos/labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"}),
    photos("a table of names without suffixes", {**TWO, "photos/labels.csv": "id,breed\n0,cat\n1,dog\n"}),
    photos(
        "a table of names, named by an option",
        {**TWO, "labels.csv": "id,breed\n0,cat\n1,dog\n"},
        labels_file="labels.csv",
    ),
    Case(
        "a table in a folder beside",
        "data",
        {**images("data/images/0.jpg"), "data/meta/list.csv": "image,label\n0.jpg,cat\n"},
    ),
    Case(
        "a Parquet of texts",
        "photos",
        lambda root: {**TWO, "photos/x.parquet": parquet({"path": ["0.jpg"], "t": ["a"]})},
        needs=("pyarrow",),
    ),
    photos("a list with labels", {**TWO, "photos/list.txt": "0.jpg 3\n1.jpg 4\n"}),
    Case(
        "Tiny ImageNet's validation folder",
        "val",
        {**images("val/images/val_0.JPEG"), "val/val_annotations.txt": "val_0.JPEG\tn01\t0\t0\t1\t1\n"},
    ),
    photos("COCO's JSON beside", {**TWO, "photos/_annotations.coco.json": coco("0.jpg", "1.jpg")}),
    photos("a JSON of labels for all", {**TWO, "photos/labels.json": '{"0.jpg": 3, "1.jpg": 4}'}),
    photos("masks/ beside images/", partners("images/{0,1}.jpg", "masks/{0,1}.png")),
    photos("masks in folders of any name", partners("pics/{0,1}.jpg", "pics_fg/{0,1}.png")),
    photos("each mask beside its image, of another suffix", partners("{0,1}.jpg", "{0,1}.png")),
    photos("each mask beside its image, of a longer name", partners("{0,1}.jpg", "{0,1}_mask.png")),
    photos("two classes of the same names", partners("mugs/{0,1}.png", "cups/{0,1}.png")),
    photos("a pack of the images alone", beside("a cat", ".txt"), kind="folder"),
    photos("metadata.jsonl", {**TWO, "photos/metadata.jsonl": '{"file_name": "0.jpg", "text": "a cat"}\n'}),
    photos(
        "metadata.csv in each split",
        {
            **images("photos/{train,val}/{0,1}.jpg"),
            **texts("file_name,text\n0.jpg,a\n1.jpg,b\n", "photos/{train,val}/metadata.csv"),
        },
    ),
    Case(
        "metadata.csv above the splits",
        "photos/train",
        {**images("photos/{train,val}/0.jpg"), "photos/metadata.csv": "file_name,text\ntrain/0.jpg,a\nval/0.jpg,b\n"},
        is_saved=False,
    ),
    photos("metadata.csv of other files", {**TWO, "photos/metadata.csv": "file_name,text\n7.jpg,a\n"}),
    photos("a .pose for each image, and for many others", {**THREE, **texts("7 8", "photos/{0,1,2,3,4,5,6,7,8}.pose")}),
    photos("a .pts for a few images", {**images("photos/{0,1,2,3,4,5,6,7}.jpg"), **texts("7", "photos/{0,1,a,b}.pts")}),
    photos(
        "a .pose for each image in a folder beside",
        {**images("photos/images/{0,1,2}.jpg"), **texts("7", "photos/poses/{0,1,2}.pose")},
    ),
    *(
        photos(
            f"what a camera writes beside its images: {suffix}", {**THREE, **texts(begin, f"photos/{{0,1,2}}.{suffix}")}
        )
        for suffix, begin in (
            ("xmp", '<?xpacket begin=""?><x:xmpmeta/>'),
            ("clip", "\0\0\0\x18ftypqt  \0\0"),
            ("AAE", '<?xml version="1.0"?>\n<!DOCTYPE plist>'),
        )
    ),
    *(
        photos(f"a number for each image, a line each: {name}", {**THREE, f"photos/{name}": "4\n0\n7\n"})
        for name in ("truth.lst", "y")
    ),
    *(
        photos(f"arrays with a row for each image: {name}", {**THREE, f"photos/{name}": data})
        for name, data in (("y.npy", _npy(3)), ("set.pickle", b"\x80\4\x95abc"), ("x.v7", b"\x89HDF\r\n\x1a\n"))
    ),
    photos("an array of other things", {**THREE, "photos/mean.npy": _npy(8)}),
    photos("a text of other things", {**THREE, "photos/notes.txt": "a\nb\n"}),
    *(
        photos(f"pairs of one name: {first} and {second}", partners(f"{{0,1,2}}.{first}", f"{{0,1,2}}.{second}"))
        for first, second in (("png", "tif"), ("jpeg", "webp"))
    ),
    *(
        photos(
            f"pairs by an ending: {first or 'none'} and {second}",
            partners(f"{{1,2,10}}{first}.png", f"{{1,2,10}}{second}.png"),
        )
        for first, second in (("", "_fg"), ("-in", "-out"), ("L", "R"), ("", " matte"))
    ),
    photos(
        "a gray image beside each of several colors",
        {**images("photos/{0,1}.jpg"), **{f"photos/{n}.png": encoded(np.full((8, 8), n, np.uint8)) for n in (0, 1)}},
    ),
    photos("pairs in class folders", partners("{cat,dog}/{0,1}.jpg", "{cat,dog}/{0,1}.png")),
    photos("a few pairs", partners("{0,1,2,3,4,5,6}.jpg", "0.png")),
    photos("frames that are numbered after a letter", partners("{cup,mug}_f{1,2,3}.png")),
    photos("views that are numbered", partners("{cup,mug}_{1,2}.png")),
    photos(
        "pairs that are packed by an option",
        partners("{0,1,2}.jpg", "{0,1}_mask.png"),
        images=("mask=*_mask.png",),
        fields=("mask:mask",),
    ),
    photos(
        "pairs of classes that are packed by an option",
        partners("{cat,dog}/{0,1}_l.png", "{cat,dog}/{0,1}_r.png"),
        images=("r=*_r.png",),
    ),
    photos("a pattern of pairs that are not there", partners("{0,1}.png"), images=("r=*_r.png",)),
    *(
        photos(f"a list of the images that is {how}", {**THREE, f"photos/{name}": data})
        for how, name, data in (
            ("gzipped", "kinds.csv.gz", gzip.compress(_LIST.encode(), mtime=0)),
            ("in UTF-16", "kinds.lst", _LIST.encode("utf-16")),
            ("in a ZIP file", "kinds.xlsx", zipped({"kinds.csv": _LIST.encode()}, zipfile.ZIP_DEFLATED)),
        )
    ),
    *(
        photos(f"no list of labels: {name}", {**THREE, f"photos/{name}": text})
        for name, text in (
            ("SHA256SUMS", "".join(f"{n:064x}  {n}.jpg\n" for n in range(3))),
            ("load.py", "import os\nimport sys\nprint(1)\n"),
            ("index.html", "".join(f'<img src="{n}.jpg">\n' for n in range(3))),
        )
    ),
    photos("pairs, and images without a partner", partners("{0,1,2,3,4,5}.jpg", "{0,1,2}.png")),
    photos("masks that are JPEG files", partners("{0,1,2}.jpg", "{0,1,2}_mask.jpg")),
)
