"""Folders of images, with and without class folders, and what stands in them besides."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import numpy as np
from archived import zipped
from cases import CLOSED, Case, Files, image, images, photos, texts, write
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


def _folders(*names: str) -> Files | None:
    for name in names:
        Path(name).mkdir(parents=True, exist_ok=True)
    return None


def _with_empty_class(root: Path) -> Files:
    _folders("photos/eel")
    return CLASSES


CASES = (
    Case("a roundabout path", "photos/../photos/./cat/..", CLASSES, is_saved=False),
    Case("the folder where one is", ".", images("cat/{0,1}.jpg", "dog/0.jpg")),
    Case("one of the class folders", "photos/cat", CLASSES),
    photos("images without classes", PHOTOS),
    photos("images beside class folders", {**CLASSES, **images("photos/{x,y}.jpg")}),
    photos("a single class folder", images("photos/cat/{0,1}.jpg")),
    photos("the class folders in images/", images("photos/images/{cat,dog}/{0,1}.jpg")),
    photos("the class folders in train/, as Kaggle unpacks them", images("photos/train/{cat,dog}/{0,1}.jpg")),
    photos("class folders two deep", TWO_DEEP),
    photos("the class folders in two folders", images("photos/flowers/jpg/{cat,dog}/{0,1}.jpg")),
    photos("one class, in folders of its own", images("photos/cat/{a,b}/0.jpg")),
    photos("masks in the only folder", images("photos/set/{images,masks}/{0,1}.png")),
    photos("class folders in train/, as of depth 1", images("photos/train/{cat,dog}/0.jpg"), label_depth=1),
    photos("class folders in train/, as of depth 3", images("photos/train/{cat,dog}/0.jpg"), label_depth=3),
    photos("class folders two deep, as of depth 2", TWO_DEEP, label_depth=2),
    *(
        photos(f"class folders two deep: {two}", images(f"photos/{two}/{{c,d}}/0.jpg", "photos/z/{e,f}/0.jpg"))
        for two in ("1990s", "person-1")
    ),
    *(
        photos(f"class folders that are numbers: {names}", images(f"photos/{{{names}}}/a.jpg"))
        for names in ("1,2,3,100", "8,80,9")
    ),
    photos("class folders that are numbers, named", images("photos/{0,2,10}/a.jpg"), classes=NUMBERS),
    *(
        photos(f"class folders that differ in case: {names}", images(f"photos/{{{names},x}}/a.jpg"))
        for names in ("Cat,cat", "É,é")
    ),
    photos("a class folder that the names lack", CLASSES, classes=("cat", "eel")),
    photos("numbers with zeros in front", images("photos/{00,01,02,10}/a.jpg")),
    photos("an empty class folder", _with_empty_class),
    photos("an empty folder", lambda root: _folders("photos")),
    photos("a folder of texts", texts("words", "photos/{a,b}.txt", "photos/README.md")),
    photos("empty files", {**PHOTOS, "photos/3.jpg": b""}),
    photos(
        "hidden files and folders",
        {
            **CLASSES,
            **images("photos/.ipynb_checkpoints/0.jpg", "photos/cat/{._0.jpg,.hidden.jpg}"),
            **texts("x", "photos/{.DS_Store,Thumbs.db}", "photos/cat/.DS_Store"),
        },
    ),
    photos("suffixes in capitals", images("photos/{0.JPG,1.Jpeg,2.PNG,3.TIF}")),
    photos("files without a suffix", images("photos/{0,1,2}")),
    photos("images of other formats than their suffix", {f"photos/{n}.jpg": image(".png", n) for n in (0, 1)}),
    photos("texts with the suffix of images", {**PHOTOS, "photos/3.jpg": "not found", "photos/4.jpg": "<html>"}),
    photos("links", _links),
    Case("a folder that cannot be listed", CLOSED, images(f"{CLOSED}/{{0,1}}.jpg")),
    photos("a class folder that cannot be listed", {**CLASSES, **images(f"photos/{CLOSED}/{{0,1}}.jpg")}),
    photos(
        "usual neighbors",
        {
            **CLASSES,
            **texts("words of all kinds", "photos/{README,README.md,LICENSE.txt,requirements.txt,synset_words.txt}"),
            **texts("cat\ndog\n", "photos/{classes,labels}.txt"),
            **texts("{}", "photos/{config,args}.json"),
            "photos/train.py": "print()",
            "photos/empty.csv": "",
        },
    ),
    photos(
        "names in two spellings of Unicode",
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
    photos("raw files of a camera", {**PHOTOS, **texts("II*\0\x10\0\0\0CR\2", "photos/{0,1,2}.CR2")}),
    photos("gray images of 16 bits", {"photos/0.png": encoded(np.arange(64, dtype=np.uint16).reshape(8, 8) * 64)}),
    Case(
        "frames whose numbers have no zeros in front",
        "clips",
        images("clips/v0/frame_{0,1,2,10,11}.png"),
        {"key_pattern": "v{video:d}/frame_{frame:d}.png"},
    ),
    Case("a single image file", "photos/0.jpg", PHOTOS),
    photos("images and an archive of more", {**PHOTOS, "photos/more.zip": zipped({"a.jpg": image(".jpg")})}),
    Case("images in another folder for each", "low", images("{low,high}/{0,1,2}.png"), {"images": ("target=high",)}),
    Case(
        "arrays in another folder for each",
        "low",
        {**images("low/{0,1}.png"), **{f"flow/{n}.npy": npy(np.zeros((8, 8, 2), np.float32)) for n in range(2)}},
        {"images": ("flow=flow",)},
    ),
)
