#!/usr/bin/env python3
"""Make docs/reference/sources.md from the table of sources.

    python scripts/make_source_docs.py [--check]

With --check nothing is written; the exit code is 1 where the page is not what the table says.
"""

from __future__ import annotations

from typing import NamedTuple

from made import ROOT, write

from rawpack_packer.sources import KINDS
from rawpack_packer.sources.look.kind import SourceKind

PAGE = ROOT / "docs" / "reference" / "sources.md"


class Facts(NamedTuple):
    """What the tests show of a kind of source: `tests/packer/test_sources_page.py` checks the first two."""

    keeps: str
    """Whether samples are image files, which `--quality keep` stores byte for byte."""
    access: str
    """How a sample is found."""
    oracle: str
    """What the tests compare its samples with."""
    page: str
    """The page of `docs/how-to/` that shows it, or its part."""


FACTS = {
    "archive": Facts(
        "yes", "at its offset; in a compressed tar, by an index that is made once",
        "the folder that `tar` unpacks, packed by the `folder` source: the stores are the same", "pack-archives.md",
    ),
    "arrays": Facts("no", "at its offset; `.npz` is loaded", "numpy", "pack-fields-and-arrays.md"),
    "coco": Facts("yes", "by its file", "the JSON itself; masks: pycocotools", "pack-detection-datasets.md"),
    "cvat": Facts("yes", "by its file", "datumaro", "pack-detection-datasets.md"),
    "folder": Facts(
        "yes", "by its file", "the files; labels as torchvision's ImageFolder", "choose-a-format-and-size.md",
    ),
    "hdf5": Facts("if data sets contain image files", "by its row", "h5py", "pack-hdf5-lmdb-cifar.md#hdf5"),
    "labelme": Facts("yes", "by its file", "labelme", "pack-detection-datasets.md"),
    "lerobot": Facts(
        "if cameras are images in Parquet files", "from the key frame before it; by its row group",
        "lerobot 0.3.3 and 0.4.4", "pack-lerobot.md",
    ),
    "listing": Facts("yes", "by its file", "the `csv` and `json` modules", "pack-a-listing.md"),
    "litdata": Facts(
        "yes", "at its offset; a compressed chunk is decompressed whole", "litdata", "pack-mds-and-litdata.md"
    ),
    "lmdb": Facts("yes", "at its offset", "lmdb", "pack-hdf5-lmdb-cifar.md#lmdb"),
    "mds": Facts(
        "yes", "at its offset; a compressed shard is decompressed whole", "mosaicml-streaming",
        "pack-mds-and-litdata.md",
    ),
    "parquet": Facts("yes", "by its row group", "Hugging Face datasets", "pack-hugging-face.md"),
    "recordio": Facts("yes", "at its offset", "mxnet 1.9.1", "pack-hdf5-lmdb-cifar.md#recordio"),
    "store": Facts("if the store has JPEG files", "at its offset", "numpy, h5py and lmdb", "work-with-stores.md"),
    "tfrecord": Facts(
        "yes", "at its offset; in compressed files, by an index that is made once", "TensorFlow", "pack-tfrecord.md"
    ),
    "video": Facts("no", "from the key frame before it", "PyAV and ffmpeg", "pack-video.md"),
    "voc": Facts("yes", "by its file", "the XML itself", "pack-detection-datasets.md"),
    "webdataset": Facts(
        "yes", "at its offset; in compressed shards, by an index that is made once", "webdataset", "pack-webdataset.md"
    ),
    "yolo": Facts("yes", "by its file", "the text files themselves", "pack-detection-datasets.md"),
}  # fmt: skip
FURTHER = {
    "arrays": "`--field target:image`, an array of an `.npz`",
    "folder": "`--images target=clean/`, files of the same names in another folder",
    "hdf5": "`--field target:image`, a data set of arrays or image files",
    "lerobot": "all cameras but the first; `--columns` chooses them",
    "listing": "`--field target:image`, a column of paths",
    "litdata": "`--field right:image`, a column of image files, PIL images or arrays",
    "mds": "`--field right:image`, a column of image files, PIL images or arrays",
    "parquet": "`--field right:image`, a column of images",
    "store": "those that it has",
    "tfrecord": "`--field depth:image`, a feature of image files",
    "webdataset": "`--field right.jpg:image`, a member",
}
"""What gives samples further images; other kinds have none."""
_INTRODUCTION = """\
# Sources

<!-- Made from the table of sources by scripts/make_source_docs.py. Change the table, not this page. -->

What `rawpack pack SRC DST` can pack. It detects the kind of `SRC`; `--source KIND` names it. Where `SRC` may equally be
of two kinds, as a folder with an `.npy` and an `.h5`, the command stops and names both. In Python, a source may also be
any [dataset or dict of columns](../how-to/pack-fields-and-arrays.md), and other packages can [add
kinds](../../CONTRIBUTING.md#where-things-are). `rawpack doctor` lists the kinds and the extras that they need here.

| kind | what it reads | options | extra |
|---|---|---|---|
"""
_FURTHER = """
What gives samples [several images](../how-to/pack-fields-and-arrays.md#several-images-in-a-sample). All other kinds
refuse the words.

| kind | further images |
|---|---|
"""
_PROOF = """
How samples are read. *Kept*: whether `--quality keep` can store the image files byte for byte. *URL*: whether `SRC` may
be one: each file is then [fetched into the work folder](../how-to/pack-archives.md#from-a-bucket-or-a-server).

| kind | kept | URL | how a sample is found | the tests compare it with |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page. Raises SystemExit for a kind without facts."""
    if missing := sorted(KINDS.keys() - FACTS.keys()):
        raise SystemExit(f"FACTS of scripts/make_source_docs.py lacks {', '.join(missing)}: add what the tests show")
    rows = [_row(name, kind) for name, kind in sorted(KINDS.items())]
    proof = [
        f"| `{name}` | {FACTS[name].keeps} | {'yes' if kind.remote else 'no'} | {FACTS[name].access} "
        f"| {FACTS[name].oracle} |\n"
        for name, kind in sorted(KINDS.items())
    ]
    further = [f"| `{name}` | {words} |\n" for name, words in sorted(FURTHER.items())]
    return "".join([_INTRODUCTION, *rows, _FURTHER, *further, _PROOF, *proof])


def _row(name: str, kind: SourceKind) -> str:
    options = ", ".join(f"`--{_OPTIONS.get(option, option).replace('_', '-')}`" for option in kind.options)
    extra = f"`rawpack[{kind.extra}]`" if kind.extra else ""
    extra += f" for {kind.extra_for}" if kind.extra_for else ""
    link = f"[`{name}`](../how-to/{FACTS[name].page})"
    return f"| {link} | {kind.reads} | {options} | {extra} |\n"


_OPTIONS = {"fields": "field", "path_column": "path"}
"""Options whose name in the command is not that in Python."""


if __name__ == "__main__":
    write(PAGE, page, __doc__)
