"""Archives of folders, shards, and several of them by a pattern or a folder."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from typing import Any

import numpy as np
from archived import tar, zipped
from cases import Case, Files, image, images, lone, texts
from cases_beside import npz

CLASSES: dict[str, Any] = images("cat/{0,1}.jpg", "dog/0.jpg")
INSIDE = {f"photos/{name}": data for name, data in CLASSES.items()}


def shard(number: int, *members: tuple[str, bytes | str], count: int = 2) -> bytes:
    """A shard of WebDataset, whose samples have these members; the first one is an image unless members say so."""
    files: dict[str, bytes | str] = {}
    for n in range(number * count, (number + 1) * count):
        files |= {f"{n:04}.jpg": image(".jpg", n)} | {f"{n:04}.{suffix}": data for suffix, data in members}
    return tar(files)


def shards(*members: tuple[str, bytes | str], end: str = "tar", folder: str = "shards/") -> Files:
    made = {f"{folder}{n:03}.{end}": shard(n, *(members or (("cls", "1"),))) for n in range(2)}
    return {name: gzip.compress(data, mtime=0) if end.endswith("gz") else data for name, data in made.items()}


def _nested() -> Files:
    inner = {f"{name}.tar": tar({f"{name}_{n}.JPEG": image(".jpg", n) for n in range(2)}) for name in ("n01", "n02")}
    return {"ILSVRC2012_img_train.tar": tar(inner)}


def _encrypted() -> bytes:
    """The flag that its members are encrypted, in both headers."""
    data = bytearray(zipped(CLASSES))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.find(mark)
        while start >= 0:
            data[start + at] |= 1
            start = data.find(mark, start + 4)
    return bytes(data)


_NPZ = npz(a=np.arange(3))

CASES = (
    *(
        Case(
            f"numbered shards of which {which}",
            "shards",
            {f"shards/bee-{n:04}.tar": shard(n, ("jpg", image(".jpg")), ("cls", "1")) for n in numbers},
        )
        for which, numbers in (("the third is missing", (0, 1, 3)), ("years are the numbers", (2019, 2021, 2022)))
    ),
    lone("a zip", "photos.zip", zipped(CLASSES)),
    lone("the folder in a zip", "photos.zip", zipped(INSIDE), inside="photos"),
    lone("a folder that a zip lacks", "photos.zip", zipped(INSIDE), inside="pictures"),
    lone("a zip by LZMA", "photos.zip", zipped(CLASSES, zipfile.ZIP_LZMA)),
    lone("an encrypted zip", "photos.zip", _encrypted()),
    lone("a zip from a Mac", "photos.zip", zipped({**CLASSES, "__MACOSX/cat/._0.jpg": b"x", ".DS_Store": b"x"})),
    lone("a zip without images", "texts.zip", zipped({"a.txt": b"words"})),
    lone("a zip that is cut", "photos.zip", zipped(CLASSES)[:300]),
    lone("a zip of train/ with classes in it", "photos.zip", zipped({f"train/{k}": v for k, v in CLASSES.items()})),
    lone("a zip of a table and images", "photos.zip", zipped({**CLASSES, "labels.csv": b"id,breed\n0,pug\n"})),
    lone("a zip without its suffix", "photos", zipped(CLASSES)),
    lone("a tar", "photos.tar", tar(CLASSES)),
    lone("a tar.bz2", "photos.tar.bz2", bz2.compress(tar(CLASSES))),
    lone("a tar.xz", "photos.tar.xz", b"\xfd7zXZ\0" + bytes(64)),
    lone("a 7z", "photos.7z", b"7z\xbc\xaf\x27\x1c" + bytes(64)),
    lone("a tar that is cut", "photos.tar", tar(CLASSES)[:1800]),
    lone("a tar of a JSON for each image", "photos.tar", tar({"a/0.jpg": image(".jpg"), "a/0.json": '{"a": 1}'})),
    lone("a tar with a name twice", "photos.tar", tar({"cat/0.jpg": image(), "./cat/0.jpg": image(".png", 1)})),
    lone("a tar with a name that leads out", "photos.tar", tar({**CLASSES, "../out.jpg": image()})),
    Case("a folder called .tar", "photos.tar", {f"photos.tar/{name}": data for name, data in CLASSES.items()}),
    Case("ImageNet's tar of tars", "ILSVRC2012_img_train.tar", _nested()),
    Case("a folder of zips", "sets", {f"sets/{n}.zip": zipped(CLASSES) for n in range(2)}),
    Case("a folder of tars of folders", "sets", {f"sets/{n}.tar": tar({f"cat/{n}.jpg": image()}) for n in range(2)}),
    Case("one shard", "shards/000.tar", shards()),
    Case("a folder of shards", "shards", shards()),
    Case("shards by a pattern", "shards/*.tar", shards()),
    Case("shards by a range", "shards/{000..001}.tar", shards()),
    Case("a range of which a shard is missing", "shards/{000..002}.tar", shards()),
    Case("a pattern that fits nothing", "shards/*.tgz", shards()),
    Case("compressed shards", "shards", shards(end="tar.gz")),
    Case("shards with a JSON", "shards", shards(("json", '{"label": 1, "text": "a"}'))),
    Case("shards with a label in JSON", "shards", shards(("json", '{"label": 1}')), {"fields": ("label=json.label",)}),
    Case("shards with names of classes", "shards", shards(("cls", "cat"))),
    Case("shards with two images", "shards", shards(("seg.png", image()), ("cls", "1"))),
    Case("shards with an .npy", "shards", shards(("npy", b"\x93NUMPY"))),
    Case("a folder of shards with an .npz", "shards", shards(("npz", _NPZ))),
    Case(
        "shards with three suffixes of their own",
        "shards",
        shards(("pose", "1 2"), ("lidar", b"\xff"), ("emb", b"\xfe")),
    ),
    Case(
        "shards with texts for a few images",
        "shards",
        {**shards(("cls", "1")), "shards/002.tar": tar({"9.jpg": image(".jpg"), "9.txt": "a", "9.cls": "2"})},
    ),
    lone(
        "a zip of landmarks beside images",
        "a.zip",
        zipped({**images("a/{0,1,2}.jpg"), **{f"a/{n}.pts": b"1" for n in range(9)}}),
    ),
    lone("a zip of pairs", "a.zip", zipped(images("a/{0,1,2}.jpg", "a/{0,1,2}.png"))),
    lone(
        "shards of names with dots",
        "a.tar",
        tar({**images("IMG_2020.01.{01,02}.jpg"), **texts("1", "IMG_2020.01.{01,02}.cls")}),
    ),
    Case(
        "shards of images alone", "shards", {f"shards/{n}.tar": tar({f"{n}.jpg": image(".jpg", n)}) for n in range(2)}
    ),
    Case("shards of splits", "sets", {**shards(folder="sets/train-"), **shards(folder="sets/val-")}),
    Case("shards in folders of splits", "sets", {**shards(folder="sets/train/"), **shards(folder="sets/val/")}),
    Case("a gzipped image", "a.gz", {"a.gz": gzip.compress(image(), mtime=0)}),
)
