"""Folders of images, with and without class folders, and what stands in them besides."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import numpy as np
from archived import zipped
from cases import CLOSED, Case, Files, image, images, texts, write
from cases_arrays import npy
from pictures import encoded

TWO_DEEP = images("photos/animals/{cat,dog}/{0,1}.jpg", "photos/vehicles/{car,bus}/{0,1}.jpg")
NUMBERS = ("0", "2", "10")
CLASSES = images("photos/cat/{0,1}.jpg", "photos/dog/0.jpg")
PHOTOS = images("photos/{0,1,2}.jpg")


def _links(root: Path) -> None:
    """To a folder and a file elsewhere, to a folder above, and to nothing."""
    write(root, images("else/dog/{0,1}.jpg", "else/a.jpg", "photos/cat/0.jpg"))
    (root / "photos/dog").symlink_to(root / "else/dog")
    (root / "photos/cat/a.jpg").symlink_to(root / "else/a.jpg")
    (root / "photos/cat/up").symlink_to(root / "photos")
    (root / "photos/cat/gone.jpg").symlink_to(root / "nothing.jpg")


def _link_to_folder(root: Path) -> None:
    write(root, CLASSES)
    (root / "link").symlink_to(root / "photos")


def _folders(*names: str) -> Files | None:
    for name in names:
        Path(name).mkdir(parents=True, exist_ok=True)
    return None


def _with_empty_class(root: Path) -> Files:
    _folders("photos/eel")
    return CLASSES


CASES = (
    Case("class folders", "photos", CLASSES),
    Case("with a slash at the end", "photos/", CLASSES),
    Case("a roundabout path", "photos/../photos/./cat/..", CLASSES, is_saved=False),
    Case("the folder where one is", ".", images("cat/{0,1}.jpg", "dog/0.jpg")),
    Case("one of the class folders", "photos/cat", CLASSES),
    Case("images without classes", "photos", PHOTOS),
    Case("images beside class folders", "photos", {**CLASSES, **images("photos/{x,y}.jpg")}),
    Case("a single class folder", "photos", images("photos/cat/{0,1}.jpg")),
    Case("the class folders in images/", "photos", images("photos/images/{cat,dog}/{0,1}.jpg")),
    Case("the class folders in data/images/", "photos", images("photos/data/images/{cat,dog}/{0,1}.jpg")),
    Case("the class folders in train/, as Kaggle unpacks them", "photos", images("photos/train/{cat,dog}/{0,1}.jpg")),
    Case("the class folders in a folder of any name", "photos", images("photos/animals-10/{cat,dog}/{0,1}.jpg")),
    Case("class folders two deep", "photos", TWO_DEEP),
    Case("class folders that are numbers", "photos", images("photos/{0,1,2,10}/a.jpg")),
    *(
        Case(f"the class folders in {name}/", "photos", images(f"photos/{name}/{{cat,dog}}/{{0,1}}.jpg"))
        for name in ("Kaggle v2", "x", "flowers/jpg")
    ),
    Case("one class, in folders of its own", "photos", images("photos/cat/{a,b}/0.jpg")),
    Case("one class, in a folder of its own", "photos", images("photos/cat/a/{0,1}.jpg")),
    Case("images beside the only folder", "photos", images("photos/x.jpg", "photos/set/{cat,dog}/0.jpg")),
    Case("masks in the only folder", "photos", images("photos/set/{images,masks}/{0,1}.png")),
    Case(
        "class folders in train/, as of depth 1", "photos", images("photos/train/{cat,dog}/0.jpg"), {"label_depth": 1}
    ),
    Case(
        "class folders in train/, as of depth 2", "photos", images("photos/train/{cat,dog}/0.jpg"), {"label_depth": 2}
    ),
    Case(
        "class folders in train/, as of depth 3", "photos", images("photos/train/{cat,dog}/0.jpg"), {"label_depth": 3}
    ),
    Case("class folders two deep, as of depth 1", "photos", TWO_DEEP, {"label_depth": 1}),
    Case("class folders two deep, as of depth 2", "photos", TWO_DEEP, {"label_depth": 2}),
    *(
        Case(f"class folders two deep: {two}", "photos", images(f"photos/{two}/{{c,d}}/0.jpg", "photos/z/{e,f}/0.jpg"))
        for two in ("A", "1990s", "person-1")
    ),
    *(
        Case(f"class folders that are numbers: {names}", "photos", images(f"photos/{{{names}}}/a.jpg"))
        for names in ("9,10", "1,2,3,100", "8,80,9")
    ),
    Case("class folders that are numbers, named", "photos", images("photos/{0,2,10}/a.jpg"), {"classes": NUMBERS}),
    Case(
        "class folders that are numbers, by a pattern",
        "photos",
        images("photos/{0,2,10}/a.jpg"),
        {"key_pattern": "{label:d}/{}"},
    ),
    *(
        Case(f"class folders that differ in case: {names}", "photos", images(f"photos/{{{names},x}}/a.jpg"))
        for names in ("Cat,cat", "BMW,bmw", "É,é")
    ),
    Case(
        "class folders that differ in case, named",
        "photos",
        images("photos/{Cat,cat}/a.jpg"),
        {"classes": ("Cat", "cat")},
    ),
    Case("a class folder that the names lack", "photos", CLASSES, {"classes": ("cat", "eel")}),
    Case("numbers with zeros in front", "photos", images("photos/{00,01,02,10}/a.jpg")),
    Case("an empty class folder", "photos", _with_empty_class),
    Case("an empty folder", "photos", lambda root: _folders("photos")),
    Case("empty folders in a folder", "photos", lambda root: _folders("photos/cat", "photos/dog")),
    Case("a folder of texts", "photos", texts("words", "photos/{a,b}.txt", "photos/README.md")),
    Case("a folder of documents", "photos", texts("words", "photos/{a,b}.pdf", "photos/c.docx")),
    Case("empty files", "photos", {**PHOTOS, "photos/3.jpg": b""}),
    Case(
        "hidden files and folders",
        "photos",
        {
            **CLASSES,
            **images("photos/.ipynb_checkpoints/0.jpg", "photos/cat/{._0.jpg,.hidden.jpg}"),
            **texts("x", "photos/{.DS_Store,Thumbs.db}", "photos/cat/.DS_Store"),
        },
    ),
    Case("__MACOSX beside the classes", "photos", {**CLASSES, **texts("x", "photos/__MACOSX/cat/._0.jpg")}),
    Case("suffixes in capitals", "photos", images("photos/{0.JPG,1.Jpeg,2.PNG,3.TIF}")),
    Case("files without a suffix", "photos", images("photos/{0,1,2}")),
    Case("images of other formats than their suffix", "photos", {f"photos/{n}.jpg": image(".png", n) for n in (0, 1)}),
    Case(
        "texts with the suffix of images", "photos", {**PHOTOS, "photos/3.jpg": "not found", "photos/4.jpg": "<html>"}
    ),
    Case("links", "photos", _links),
    Case("a link to the folder", "link", _link_to_folder),
    Case("a folder that cannot be listed", CLOSED, images(f"{CLOSED}/{{0,1}}.jpg")),
    Case("a class folder that cannot be listed", "photos", {**CLASSES, **images(f"photos/{CLOSED}/{{0,1}}.jpg")}),
    Case(
        "usual neighbors",
        "photos",
        {
            **CLASSES,
            **texts("words of all kinds", "photos/{README,README.md,LICENSE.txt,requirements.txt,synset_words.txt}"),
            **texts("cat\ndog\n", "photos/{classes,labels}.txt"),
            **texts("{}", "photos/{config,args}.json"),
            "photos/train.py": "print()",
            "photos/empty.csv": "",
        },
    ),
    Case(
        "names in two spellings of Unicode",
        "photos",
        {f"photos/{normalize(form, 'zoë')}/{n}.jpg": image(".jpg", n) for n, form in enumerate(("NFC", "NFD"))},
    ),
    Case(
        "names with blanks and line breaks", "my photos", images("my photos/two words/a b.jpg", "my photos/x\ny/c.jpg")
    ),
    Case(
        "ImageNet's training folder",
        "train",
        {
            **images("train/n01440764/n01440764_10026.JPEG", "train/n01443537/n01443537_2.JPEG"),
            "train/LOC_synset_mapping.txt": "n01440764 tench, Tinca tinca\n",
        },
    ),
    Case(
        "Tiny ImageNet's training folder",
        "train",
        {
            **images("train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG"),
            "train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t10\t63\t58\n",
            "train/n02/n02_boxes.txt": "n02_0.JPEG\t6\t5\t3\t8\n",
        },
    ),
    Case("raw files of a camera", "photos", {**PHOTOS, **texts("II*\0\x10\0\0\0CR\2", "photos/{0,1,2}.CR2")}),
    Case(
        "gray images of 16 bits", "photos", {"photos/0.png": encoded(np.arange(64, dtype=np.uint16).reshape(8, 8) * 64)}
    ),
    Case(
        "frames whose numbers have no zeros in front",
        "clips",
        images("clips/v0/frame_{0,1,2,10,11}.png"),
        {"key_pattern": "v{video:d}/frame_{frame:d}.png"},
    ),
    Case("a key pattern that no path has", "photos", CLASSES, {"key_pattern": "{video:d}.jpg"}),
    Case("a single image file", "photos/0.jpg", PHOTOS),
    Case("an archive in the folder", "photos", {"photos/a.zip": zipped({"a.jpg": image(".jpg")})}),
    Case("images and an archive of more", "photos", {**PHOTOS, "photos/more.zip": zipped({"a.jpg": image(".jpg")})}),
    Case("images in another folder for each", "low", images("{low,high}/{0,1,2}.png"), {"images": ("target=high",)}),
    Case(
        "arrays in another folder for each",
        "low",
        {**images("low/{0,1}.png"), **{f"flow/{n}.npy": npy(np.zeros((8, 8, 2), np.float32)) for n in range(2)}},
        {"images": ("flow=flow",)},
    ),
    Case("the kind is named", "photos", CLASSES, {"kind": "folder"}),
)
