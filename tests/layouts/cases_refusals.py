"""Paths that do not exist, that are nothing that is known, or that say something else than they should."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cases import Case, Files, images, texts

CLASSES = images("photos/{cat,dog}/{0,1}.jpg")


def _pipe(root: Path) -> Files | None:
    os.mkfifo(root / "pipe")
    return None


def file(name: str, data: bytes | str = "words", path: str = "", **options: Any) -> Case:
    return Case(f"a file {name}", path or name, {name: data}, options)


CASES = (
    Case("a path that does not exist", "phtos", CLASSES),
    Case("a path below a file", "photos/cat/0.jpg/x", CLASSES),
    Case("an empty path", "", CLASSES),
    Case("a path with a NUL", "photos\0", CLASSES),
    Case("a name that is too long", "p" * 300, CLASSES),
    Case("a pattern of images", "photos/*/*.jpg", CLASSES),
    Case("a URL of a web page", "https://example.com/photos", CLASSES),
    Case("a URL of a bucket", "s3://bucket/photos/", CLASSES),
    Case("a data set of the Hub", "hf://datasets/mnist", CLASSES),
    Case("a pipe", "pipe", _pipe),
    Case("a kind that does not exist", "photos", CLASSES, {"kind": "imagefolder"}),
    Case("another kind's option", "photos", CLASSES, {"fps": 2.0}),
    Case("a kind that the path is not", "photos", CLASSES, {"kind": "voc"}),
    file("photos.docx"),
    file("weights.safetensors", b"\x08\0\0\0\0\0\0\0{}      "),
    file("set.beton", b"\0" * 64),
    file("set.mat", b"MATLAB 5.0 MAT-file" + bytes(109)),
    file("set.pkl", b"\x80\x04]\x94."),
    file("set.pt", b"PK\x03\x04" + bytes(60)),
    file("config.yaml", "lr: 0.1\n"),
    file("without-a-suffix"),
    file("empty", b""),
    Case("a folder of pickles", "sets", texts("x", "sets/{a,b}.pkl")),
    Case("a folder of .pt", "sets", texts("x", "sets/{a,b}.pt")),
    Case("a folder of shards of FFCV", "sets", texts("x", "sets/{a,b}.beton")),
    Case("a folder of Lance", "set.lance", texts("x", "set.lance/data/0.lance", "set.lance/_versions/1.manifest")),
    Case("a folder of Zarr", "set.zarr", texts("{}", "set.zarr/{.zgroup,.zattrs}", "set.zarr/images/.zarray")),
)
