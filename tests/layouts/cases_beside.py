"""Images and what describes them: files of the same names, tables, masks, partners."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, Files, image, images, texts
from pictures import encoded

TWO = images("photos/{0,1}.jpg")
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


def _zipped(text: str, method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(zipfile.ZipInfo("kinds.csv"), text, method)
    return file.getvalue()


def partners(*patterns: str) -> Files:
    return images(*(f"photos/{pattern}" for pattern in patterns))


CASES = (
    Case("a JSON for each image", "photos", beside('{"a": 1}', ".json")),
    Case("an XML of VOC's for each image", "photos", beside(VOC, ".xml")),
    Case("a text of YOLO's for each image", "photos", beside(BOX, ".txt")),
    Case("a caption for each image", "photos", beside("a cat", ".txt")),
    Case("a number for each image", "photos", beside("1", ".cls")),
    Case("an .npy for each image", "photos", beside(b"\x93NUMPY", ".npy")),
    Case("an .npz for each image", "photos", beside(npz(a=np.arange(3)), ".npz")),
    Case("a .pts of landmarks for each image", "photos", beside("version: 1\nn_points: 1\n{\n1 2\n}\n", ".pts")),
    Case("a pickle for each image", "photos", beside(b"x", ".pkl")),
    Case("a text in class folders", "photos", {**images("photos/{cat,dog}/0.jpg"), "photos/cat/0.txt": "a cat"}),
    Case(
        "texts in a folder of their own",
        "photos",
        {**images("photos/images/{0,1}.jpg"), **texts("a cat", "photos/captions/{0,1}.txt")},
    ),
    Case(
        "labelme's files in class folders", "photos", {**images("photos/{cat,dog}/0.jpg"), "photos/cat/0.json": LABELME}
    ),
    Case("labelme's files and captions", "photos", {**TWO, "photos/0.json": LABELME, "photos/1.txt": "a cat"}),
    Case("a table of paths", "photos", {**TWO, "photos/labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"}),
    Case("a table of names without suffixes", "photos", {**TWO, "photos/labels.csv": "id,breed\n0,cat\n1,dog\n"}),
    Case(
        "a table of names, named by an option",
        "photos",
        {**TWO, "labels.csv": "id,breed\n0,cat\n1,dog\n"},
        {"labels_file": "labels.csv"},
    ),
    Case("a table above the folder", "photos", {**TWO, "labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"}),
    Case(
        "a table in a folder beside",
        "data",
        {**images("data/images/0.jpg"), "data/meta/list.csv": "image,label\n0.jpg,cat\n"},
    ),
    Case("a table of something else", "photos", {**TWO, "photos/log.csv": "epoch,loss\n1,0.5\n"}),
    Case("JSON Lines", "photos", {**TWO, "photos/x.jsonl": '{"img": "0.jpg", "text": "a"}\n'}),
    Case(
        "a Parquet of texts",
        "photos",
        lambda root: {**TWO, "photos/x.parquet": parquet({"path": ["0.jpg"], "t": ["a"]})},
        needs=("pyarrow",),
    ),
    Case("a list with labels", "photos", {**TWO, "photos/list.txt": "0.jpg 3\n1.jpg 4\n"}),
    Case(
        "CelebA's list of attributes",
        "photos",
        {
            **images("photos/{000001,000002}.jpg"),
            "photos/list_attr_celeba.txt": "2\nBald Male\n000001.jpg -1  1\n000002.jpg  1 -1\n",
        },
    ),
    Case(
        "Tiny ImageNet's validation folder",
        "val",
        {**images("val/images/val_0.JPEG"), "val/val_annotations.txt": "val_0.JPEG\tn01\t0\t0\t1\t1\n"},
    ),
    Case("COCO's JSON beside", "photos", {**TWO, "photos/_annotations.coco.json": coco("0.jpg", "1.jpg")}),
    Case("a JSON of labels for all", "photos", {**TWO, "photos/labels.json": '{"0.jpg": 3, "1.jpg": 4}'}),
    Case("a MATLAB file of labels", "photos", {**TWO, "photos/labels.mat": b"MATLAB 5.0 MAT-file" + bytes(109)}),
    Case("masks/ beside images/", "photos", partners("images/{0,1}.jpg", "masks/{0,1}.png")),
    Case("masks in folders of any name", "photos", partners("pics/{0,1}.jpg", "pics_fg/{0,1}.png")),
    Case("each mask beside its image, of another suffix", "photos", partners("{0,1}.jpg", "{0,1}.png")),
    Case("each mask beside its image, of a longer name", "photos", partners("{0,1}.jpg", "{0,1}_mask.png")),
    Case("depth/ beside rgb/", "photos", partners("rgb/{0,1}.jpg", "depth/{0,1}.png")),
    Case("noisy/ and clean/", "photos", partners("noisy/{0,1}.png", "clean/{0,1}.png")),
    Case("left/ and right/", "photos", partners("left/{0,1}.png", "right/{0,1}.png")),
    Case("two classes of the same names", "photos", partners("mugs/{0,1}.png", "cups/{0,1}.png")),
    Case(
        "CamVid's folders", "photos", partners("train/{0,1}.png", "trainannot/{0,1}.png", "val/2.png", "valannot/2.png")
    ),
    Case("a pack of the images alone", "photos", beside("a cat", ".txt"), {"kind": "folder"}),
    Case(
        "metadata.csv, as Hugging Face's ImageFolder",
        "photos",
        {**TWO, "photos/metadata.csv": "file_name,text,label\n1.jpg,a dog,dog\n0.jpg,a cat,cat\n"},
    ),
    Case("metadata.jsonl", "photos", {**TWO, "photos/metadata.jsonl": '{"file_name": "0.jpg", "text": "a cat"}\n'}),
    Case(
        "metadata.parquet",
        "photos",
        lambda root: {**TWO, "photos/metadata.parquet": parquet({"file_name": ["0.jpg", "1.jpg"], "text": ["a", "b"]})},
        needs=("pyarrow",),
    ),
    Case(
        "metadata.csv in each split",
        "photos",
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
    Case("metadata.csv of other files", "photos", {**TWO, "photos/metadata.csv": "file_name,text\n7.jpg,a\n"}),
    *(
        Case(
            f"a {suffix} for each image, and for many others",
            "photos",
            {**images("photos/{0,1,2}.jpg"), **texts("7 8", f"photos/{{0,1,2,3,4,5,6,7,8}}{suffix}")},
        )
        for suffix in (".pose", ".emb", ".dat")
    ),
    Case(
        "a .pts for a few images",
        "photos",
        {**images("photos/{0,1,2,3,4,5,6,7}.jpg"), **texts("7", "photos/{0,1,a,b}.pts")},
    ),
    Case(
        "a .pts for each image of classes",
        "photos",
        {**images("photos/{cat,dog}/{0,1}.jpg"), **texts("7", "photos/{cat,dog}/{0,1}.pts")},
    ),
    Case(
        "a .pose for each image in a folder beside",
        "photos",
        {**images("photos/images/{0,1,2}.jpg"), **texts("7", "photos/poses/{0,1,2}.pose")},
    ),
    *(
        Case(
            f"what a camera writes beside its images: {suffix}",
            "photos",
            {**images("photos/{0,1,2}.jpg"), **texts(begin, f"photos/{{0,1,2}}.{suffix}")},
        )
        for suffix, begin in (
            ("xmp", '<?xpacket begin=""?><x:xmpmeta/>'),
            ("RAF", "FUJIFILMCCD-RAW 0201"),
            ("clip", "\0\0\0\x18ftypqt  \0\0"),
            ("AAE", '<?xml version="1.0"?>\n<!DOCTYPE plist>'),
        )
    ),
    *(
        Case(
            f"a number for each image, a line each: {name}",
            "photos",
            {**images("photos/{0,1,2}.jpg"), f"photos/{name}": "4\n0\n7\n"},
        )
        for name in ("truth.lst", "y", "targets.out")
    ),
    *(
        Case(
            f"arrays with a row for each image: {name}",
            "photos",
            {**images("photos/{0,1,2}.jpg"), f"photos/{name}": data},
        )
        for name, data in (
            ("y.npy", _npy(3)),
            ("all.npz", npz(y=np.arange(3))),
            ("set.pickle", b"\x80\4\x95abc"),
            ("x.v7", b"\x89HDF\r\n\x1a\n"),
        )
    ),
    Case("an array of other things", "photos", {**images("photos/{0,1,2}.jpg"), "photos/mean.npy": _npy(8)}),
    Case("a text of other things", "photos", {**images("photos/{0,1,2}.jpg"), "photos/notes.txt": "a\nb\n"}),
    Case("arrays beside classes", "photos", {**images("photos/{cat,dog}/{0,1}.jpg"), "photos/y.npy": _npy(4)}),
    Case(
        "lists of images beside classes",
        "photos",
        {
            **images("photos/{cat,dog}/{0,1}.jpg"),
            "photos/a.lst": "cat/0.jpg\ncat/1.jpg\n",
            "photos/b.lst": "dog/0.jpg\ndog/1.jpg\n",
        },
    ),
    *(
        Case(
            f"pairs of one name: {first} and {second}", "photos", partners(f"{{0,1,2}}.{first}", f"{{0,1,2}}.{second}")
        )
        for first, second in (("png", "tif"), ("jpeg", "webp"), ("bmp", "gif"))
    ),
    *(
        Case(
            f"pairs by an ending: {first or 'none'} and {second}",
            "photos",
            partners(f"{{1,2,10}}{first}.png", f"{{1,2,10}}{second}.png"),
        )
        for first, second in (
            ("", "_fg"),
            ("_left", "_right"),
            ("-in", "-out"),
            ("L", "R"),
            ("", " matte"),
            ("", "alpha"),
        )
    ),
    Case(
        "a gray image beside each of several colors",
        "photos",
        {**images("photos/{0,1}.jpg"), **{f"photos/{n}.png": encoded(np.full((8, 8), n, np.uint8)) for n in (0, 1)}},
    ),
    Case("pairs in class folders", "photos", partners("{cat,dog}/{0,1}.jpg", "{cat,dog}/{0,1}.png")),
    Case("a few pairs", "photos", partners("{0,1,2,3,4,5,6}.jpg", "0.png")),
    Case("a few pairs by an ending", "photos", partners("{0,1,2,3,4,5,6,7,8}.jpg", "{0,1}_edited.jpg")),
    Case("frames that are numbered after a letter", "photos", partners("{cup,mug}_f{1,2,3}.png")),
    Case("depths beside images", "photos", partners("{0,1,2}.jpg", "{0,1,2}_depth.png")),
    Case("views that are numbered", "photos", partners("{cup,mug}_{1,2}.png")),
    Case(
        "pairs that are packed by an option",
        "photos",
        partners("{0,1,2}.jpg", "{0,1}_mask.png"),
        {"images": ("mask=*_mask.png",), "fields": ("mask:mask",)},
    ),
    Case(
        "pairs of classes that are packed by an option",
        "photos",
        partners("{cat,dog}/{0,1}_l.png", "{cat,dog}/{0,1}_r.png"),
        {"images": ("r=*_r.png",)},
    ),
    Case("a pattern of pairs that are not there", "photos", partners("{0,1}.png"), {"images": ("r=*_r.png",)}),
    Case("partners in two folders, of two formats", "photos", partners("view/{0,1}.jpg", "view_alpha/{0,1}.png")),
    Case("two classes of two formats", "photos", partners("mugs/{0,1}.png", "cups/{0,1}.jpg")),
    *(
        Case(f"a list of the images that is {how}", "photos", {**images("photos/{0,1,2}.jpg"), f"photos/{name}": data})
        for how, name, data in (
            ("gzipped", "kinds.csv.gz", gzip.compress(_LIST.encode(), mtime=0)),
            ("packed by bzip2", "kinds.bz2", bz2.compress(_LIST.encode())),
            ("in UTF-16", "kinds.lst", _LIST.encode("utf-16")),
            ("in a ZIP file", "kinds.zip", _zipped(_LIST, zipfile.ZIP_STORED)),
            ("in a packed ZIP file", "kinds.xlsx", _zipped(_LIST, zipfile.ZIP_DEFLATED)),
        )
    ),
    *(
        Case(f"no list of labels: {name}", "photos", {**images("photos/{0,1,2}.jpg"), f"photos/{name}": text})
        for name, text in (
            ("SHA256SUMS", "".join(f"{n:064x}  {n}.jpg\n" for n in range(3))),
            ("md5.txt", "".join(f"MD5 ({n}.jpg) = {n:032x}\n" for n in range(3))),
            ("fetch.sh", "#!/bin/sh\ncd photos\nwget x\n"),
            ("load.py", "import os\nimport sys\nprint(1)\n"),
            ("Makefile", "a:\n\tb\nc:\n"),
            ("paper.bib", "@misc{x,\ntitle={y}\n}\n"),
            ("index.html", "".join(f'<img src="{n}.jpg">\n' for n in range(3))),
        )
    ),
    Case("pairs, and images without a partner", "photos", partners("{0,1,2,3,4,5}.jpg", "{0,1,2}.png")),
    Case("masks that are JPEG files", "photos", partners("{0,1,2}.jpg", "{0,1,2}_mask.jpg")),
    Case("an image that is beside nothing", "photos", {"photos/0.jpg": image(".jpg"), "photos/9.txt": "a note"}),
)
