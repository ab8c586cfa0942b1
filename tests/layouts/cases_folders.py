"""Folders of images, with and without classes and splits, and paths that are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from archived import zipped
from cases import CLOSED, Case, Files, files, image, images, lone, photos, texts, write
from cases_arrays import PIXELS, hdf5
from pictures import encoded

CLASSES = ("cat/{0,1}.jpg", "dog/0.jpg")
TWO = "{train,val}/{cat,dog}/{0,1}.jpg"
_TWO_DEEP = ("animals/{cat,dog}/{0,1}.jpg", "vehicles/{car,bus}/{0,1}.jpg")
_THREE = "{0,1,2}.jpg"


def _links(root: Path) -> None:
    """To a folder and a file elsewhere, to a folder above, and to nothing."""
    write(root, images("else/dog/{0,1}.jpg", "else/a.jpg", "photos/cat/0.jpg"))
    (root / "photos/dog").symlink_to(root / "else/dog")
    (root / "photos/cat/a.jpg").symlink_to(root / "else/a.jpg")
    (root / "photos/cat/up").symlink_to(root / "photos")
    (root / "photos/cat/gone.jpg").symlink_to(root / "nothing.jpg")


def _with_empty(folder: str, *patterns: str) -> Any:
    def make(root: Path) -> Files:
        (root / "photos" / folder).mkdir(parents=True)
        return files(*patterns, below="photos/")

    return make


FOLDERS = (
    photos("one of the class folders", *CLASSES, of="photos/cat"),
    photos("images without classes", _THREE),
    photos("images beside class folders", *CLASSES, "{x,y}.jpg"),
    photos("the class folders in images/", "images/{cat,dog}/{0,1}.jpg"),
    photos("the class folders in train/, as Kaggle unpacks them", "train/{cat,dog}/{0,1}.jpg"),
    photos("class folders two deep", *_TWO_DEEP),
    photos("masks in the only folder", "set/{images,masks}/{0,1}.png"),
    photos("class folders in train/, as of depth 1", "train/{cat,dog}/0.jpg", label_depth=1),
    photos("class folders two deep: person-1", "person-1/{c,d}/0.jpg", "z/{e,f}/0.jpg"),
    photos("class folders that are numbers: 1,2,3,100", "{1,2,3,100}/a.jpg"),
    photos("class folders that differ in case: Cat,cat", "{Cat,cat,x}/a.jpg"),
    photos("a class folder that the names lack", *CLASSES, classes=("cat", "eel")),
    Case("an empty class folder", "photos", _with_empty("eel", *CLASSES)),
    Case("an empty folder", "photos", _with_empty("")),
    photos("a folder of texts", texts("words", "{a,b}.txt", "README.md")),
    photos("images of other formats than their suffix", {f"{n}.jpg": image(".png", n) for n in (0, 1)}),
    photos("texts with the suffix of images", _THREE, {"3.jpg": "not found", "4.jpg": "<html>"}),
    Case("links", "photos", _links),
    photos("a class folder that cannot be listed", *CLASSES, f"{CLOSED}/{{0,1}}.jpg"),
    photos(
        "usual neighbors",
        *CLASSES,
        texts("words of all kinds", "{README,README.md,LICENSE.txt,requirements.txt,synset_words.txt}"),
        texts("cat\ndog\n", "{classes,labels}.txt"),
        {"config.json": "{}", "train.py": "print()", "empty.csv": ""},
    ),
    photos(
        "names in two spellings of Unicode",
        {f"{normalize(form, 'zoë')}/{n}.jpg": image(".jpg", n) for n, form in enumerate(("NFC", "NFD"))},
    ),
    photos("gray images of 16 bits", {"0.png": encoded(np.arange(64, dtype=np.uint16).reshape(8, 8) * 64)}),
    photos("a single image file", _THREE, of="photos/0.jpg"),
    Case("images in another folder for each", "low", images("{low,high}/{0,1,2}.png"), {"images": ("target=high",)}),
)

_ZIPPED = {"photos.zip": zipped(files(TWO))}
_COLUMN = "path,label,split\n" + "".join(
    f"photos/{n}.jpg,{'cat' if n % 2 else 'dog'},{('train', 'val', 'test')[n % 3]}\n" for n in range(4)
)
_TABLE = files("photos/{0,1,2,3}.jpg", {"list.csv": _COLUMN})


def _column(name: str, path: str, text: str) -> Case:
    return Case(f"a column of splits: {name}", path, files("photos/{0,1,2}.jpg", {path: text}))


SPLITS = (
    photos("train and val", TWO),
    photos("one of them", TWO, of="photos/train"),
    photos("one that is missing", TWO, of="photos/test"),
    photos("a folder of images that is no split", TWO, "extra/0.jpg"),
    photos("splits below a folder of any name", "pets/{train,val}/{cat,dog}/0.jpg"),
    photos("val without a class that train has", "train/{cat,dog}/0.jpg", "val/dog/0.jpg", of="photos/val"),
    photos("test with other classes than training", "test/b/0.jpg", "training/{a,b}/0.jpg", of="photos/test"),
    photos("a table above the splits", "{train,test}/{0,1}.jpg", {"labels.csv": "id,label\n0,cat\n1,dog\n"}),
    Case("a column of splits in a table", "list.csv", _TABLE),
    _column("usage", "list.csv", "path,usage\nphotos/0.jpg,Training\nphotos/1.jpg,PublicTest\nphotos/2.jpg,Training\n"),
    _column(
        "x", "list.jsonl", "".join(f'{{"path": "photos/{n}.jpg", "x": "{"trn" if n else "val"}"}}\n' for n in (0, 1))
    ),
    _column("texts", "list.csv", "path,text\nphotos/0.jpg,train\nphotos/1.jpg,test\nphotos/2.jpg,bus\n"),
    _column(
        "captions",
        "list.csv",
        "path,text\nphotos/0.jpg,of train/0.png\nphotos/1.jpg,a red train\nphotos/2.jpg,the eye test\n",
    ),
    _column("one value", "list.csv", "path,part\nphotos/0.jpg,train\nphotos/1.jpg,train\n"),
    Case("a column of splits in HDF5", "set.h5", hdf5("set.h5", images=PIXELS, part=["train", "val", "train"])),
    Case("splits in a zip", "photos.zip", _ZIPPED),
    Case("one split of a zip", "photos.zip/train", _ZIPPED),
)


def _pipe(root: Path) -> None:
    os.mkfifo(root / "pipe")


REFUSALS = (
    photos("a path that does not exist", *CLASSES, of="phtos"),
    photos("a pattern of images", *CLASSES, of="photos/*/*.jpg"),
    photos("a URL of a web page", of="https://example.com/photos"),
    photos("a data set of the Hub", of="hf://datasets/mnist"),
    Case("a pipe", "pipe", _pipe),
    photos("a kind that the path is not", *CLASSES, kind="voc"),
    *(
        lone(f"a file {name}", name, data)
        for name, data in {
            "weights.safetensors": b"\x08\0\0\0\0\0\0\0{}      ",
            "set.beton": b"\0" * 64,
            "set.mat": b"MATLAB 5.0 MAT-file" + bytes(109),
            "set.pkl": b"\x80\x04]\x94.",
            "set.pt": b"PK\x03\x04" + bytes(60),
            "without-a-suffix": "words",
            "empty": b"",
        }.items()
    ),
    Case("a folder of Lance", "set.lance", texts("x", "set.lance/data/0.lance", "set.lance/_versions/1.manifest")),
    Case("a folder of Zarr", "set.zarr", texts("{}", "set.zarr/{.zgroup,.zattrs}", "set.zarr/images/.zarray")),
)

CASES = {"folders": FOLDERS, "splits": SPLITS, "refusals": REFUSALS}
