"""Archives of folders, shards, and several of them by a pattern or a folder."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np
from archived import tar, zipped
from cases import Case, Files, files, image, images, lone, texts
from cases_beside import npz

_CLASSES: Any = images("cat/{0,1}.jpg", "dog/0.jpg")


def _shard(number: int, members: Mapping[str, bytes | str]) -> bytes:
    """A shard of WebDataset of two images, each with members of these suffixes."""
    files: dict[str, bytes | str] = {}
    for n in (2 * number, 2 * number + 1):
        files |= {f"{n:04}.jpg": image(".jpg", n)} | {f"{n:04}.{suffix}": data for suffix, data in members.items()}
    return tar(files)


def shards(folder: str = "shards/", **members: bytes | str) -> Files:
    """Two shards. members: by their suffixes."""
    return {f"{folder}{n:03}.tar": _shard(n, members or {"cls": "1"}) for n in range(2)}


def _encrypted() -> bytes:
    """The flag that its members are encrypted, in both headers."""
    data = bytearray(zipped(_CLASSES))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.find(mark)
        while start >= 0:
            data[start + at] |= 1
            start = data.find(mark, start + 4)
    return bytes(data)


_INSIDE = zipped(files(_CLASSES, below="photos/"))
ARCHIVES = (
    *(
        Case(
            f"numbered shards of which {which}",
            "shards",
            {f"shards/bee-{n:04}.tar": _shard(n, {"cls": "1"}) for n in numbers},
        )
        for which, numbers in (("the third is missing", (0, 1, 3)), ("years are the numbers", (2019, 2021, 2022)))
    ),
    lone("a zip", "photos.zip", zipped(_CLASSES)),
    lone("a folder that a zip lacks", "photos.zip", _INSIDE, inside="pictures"),
    lone("an encrypted zip", "photos.zip", _encrypted()),
    lone("a zip from a Mac", "photos.zip", zipped({**_CLASSES, "__MACOSX/cat/._0.jpg": b"x", ".DS_Store": b"x"})),
    lone("a zip that is cut", "photos.zip", zipped(_CLASSES)[:300]),
    lone("a zip of a table and images", "photos.zip", zipped({**_CLASSES, "labels.csv": b"id,breed\n0,pug\n"})),
    lone(
        "a zip of landmarks beside images", "a.zip", zipped(files("{0,1,2}.jpg", texts("1", "{0,1,2,3,4,5,6,7}.pts")))
    ),
    lone("a tar that is cut", "photos.tar", tar(_CLASSES)[:1800]),
    lone("a tar with a name twice", "photos.tar", tar({"cat/0.jpg": image(), "./cat/0.jpg": image(".png", 1)})),
    lone("a tar with a name that leads out", "photos.tar", tar({**_CLASSES, "../out.jpg": image()})),
    lone("ImageNet's tar of tars", "train.tar", tar({f"{name}.tar": tar(images("0.jpg")) for name in ("n01", "n02")})),
    Case("a folder of zips", "sets", {f"sets/{n}.zip": zipped(_CLASSES) for n in range(2)}),
    Case("shards by a pattern", "shards/*.tar", shards()),
    Case("shards by a range", "shards/{000..001}.tar", shards()),
    lone("a compressed shard", "shard.tar.gz", gzip.compress(_shard(0, {"cls": "1"}), mtime=0)),
    Case("shards with a JSON", "shards", shards(json='{"label": 1, "text": "a"}')),
    Case("shards with two images", "shards", shards(**{"seg.png": image(), "cls": "1"})),
    Case("a folder of shards with an .npz", "shards", shards(npz=npz(a=np.arange(3)))),
    Case("shards with three suffixes of their own", "shards", shards(pose="1 2", lidar=b"\xff", emb=b"\xfe")),
    lone("shards of names with dots", "a.tar", tar(files("I.01.{01,02}.jpg", texts("1", "I.01.{01,02}.cls")))),
    Case("shards of splits", "sets", {**shards("sets/train-"), **shards("sets/val-")}),
    Case("shards in folders of splits", "sets", {**shards("sets/train/"), **shards("sets/val/")}),
    lone("a gzipped image", "a.gz", gzip.compress(image(), mtime=0)),
)

CASES = {"archives": ARCHIVES}
