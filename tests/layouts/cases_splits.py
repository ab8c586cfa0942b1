"""Folders, archives and tables that are divided into splits, one of the splits, and what only looks like splits."""

from __future__ import annotations

from pathlib import Path

from archived import tar, zipped
from cases import Case, Files, images, lone, photos
from cases_arrays import PIXELS, hdf5

TWO = images("photos/{train,val}/{cat,dog}/{0,1}.jpg")


def _with_empty_test(root: Path) -> Files:
    (root / "photos/test").mkdir(parents=True)
    return TWO


def _archive(name: str, prefix: str = "") -> Files:
    members = {f"{prefix}{key.removeprefix('photos/')}": data for key, data in TWO.items()}
    return {name: zipped(members) if name.endswith(".zip") else tar(members)}


SPLIT_COLUMN = "path,label,split\n" + "".join(
    f"photos/{n}.jpg,{'cat' if n % 2 else 'dog'},{('train', 'val', 'test')[n % 3]}\n" for n in range(4)
)

CASES = (
    photos("train and val", TWO),
    Case("one of them", "photos/train", TWO),
    Case("one that is missing", "photos/test", TWO),
    photos("train2017 and val2017", images("photos/{train2017,val2017}/{0,1}.jpg")),
    photos("a split that is empty", _with_empty_test),
    photos("a folder of images that is no split", {**TWO, **images("photos/extra/0.jpg")}),
    Case("splits below a folder of any name", "data", images("data/pets/{train,val}/{cat,dog}/0.jpg")),
    photos("splits in images/", images("photos/images/{train,val}/{cat,dog}/0.jpg")),
    photos("folds", images("photos/{fold1,fold2}/{cat,dog}/0.jpg")),
    Case(
        "val without a class that train has",
        "photos/val",
        images("photos/train/{cat,dog}/0.jpg", "photos/val/dog/0.jpg"),
    ),
    photos("the splits as one set", TWO, kind="folder"),
    photos(
        "a table above the splits",
        {**images("photos/{train,test}/{0,1}.jpg"), "photos/labels.csv": "id,label\n0,cat\n1,dog\n"},
    ),
    Case("a column of splits in a table", "list.csv", {**images("photos/{0,1,2,3}.jpg"), "list.csv": SPLIT_COLUMN}),
    *(
        Case(f"a column of splits: {name}", f"list.{end}", {**images("photos/{0,1,2}.jpg"), f"list.{end}": text})
        for name, end, text in (
            ("usage", "csv", "path,usage\nphotos/0.jpg,Training\nphotos/1.jpg,PublicTest\nphotos/2.jpg,Training\n"),
            ("subset", "tsv", "path\tsubset\nphotos/0.jpg\tdev\nphotos/1.jpg\ttest\nphotos/2.jpg\ttrain\n"),
            (
                "x",
                "jsonl",
                "".join(f'{{"path": "photos/{n}.jpg", "x": "{x}"}}\n' for n, x in enumerate(("trn", "val", "trn"))),
            ),
            ("texts", "csv", "path,text\nphotos/0.jpg,train\nphotos/1.jpg,test\nphotos/2.jpg,bus\n"),
            ("one value", "csv", "path,part\nphotos/0.jpg,train\nphotos/1.jpg,train\n"),
        )
    ),
    Case("a column of splits in HDF5", "set.h5", hdf5("set.h5", images=PIXELS, part=["train", "val", "train"])),
    Case(
        "a column of splits, kept",
        "list.csv",
        {**images("photos/{0,1,2,3}.jpg"), "list.csv": SPLIT_COLUMN},
        {"fields": ("split:str",)},
    ),
    lone(
        "splits below a folder in a zip",
        "photos.zip",
        zipped({"README": b"x", **{f"set/{split}/cat/0.jpg": b"x" for split in ("train", "val")}}),
    ),
    Case(
        "test with other classes than training",
        "photos/test",
        images("photos/test/b/0.jpg", "photos/training/{a,b}/0.jpg"),
    ),
    Case(
        "a list of val with other classes than that of train",
        "val.csv",
        {
            **images("photos/{0,1}.jpg"),
            "train.csv": "path,label\nphotos/0.jpg,cat\n",
            "val.csv": "path,label\nphotos/1.jpg,dog\n",
        },
    ),
    Case("splits in a zip", "photos.zip", _archive("photos.zip")),
    Case("one split of a zip", "photos.zip/train", _archive("photos.zip")),
    Case("a split that a zip lacks", "photos.zip/test", _archive("photos.zip")),
    Case("one split of a tar", "photos.tar/val", _archive("photos.tar")),
)
