"""The table of the kinds of sources. The code of a kind is loaded when a path may be of it, and when it is opened.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and returns a
source or any map-style dataset. If it has an attribute `accepts`, a function of the path, `--source` may be left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawpack_packer.sources.base import Source

_LOOKED_AT = 10_000
"""Entries of a folder that are looked at: one whose first entries are others is not of a kind that has such files."""
_VIDEO = ("fps", "frame_step", "start", "end", "max_frames")


@dataclass(frozen=True)
class Look:
    """How a path shows that it is of a kind: by the first of these that fits, after which `decides` is asked.

    Without any of them, `decides` is always asked; without that, nothing is. What cannot be looked into shows nothing.
    """

    named: str = ""
    """A regular expression that the path must contain, in any case."""
    contains: tuple[str, ...] = ()
    """Files or folders in it, one of which must be there; "../" stands for the folder above."""
    holds: str = ""
    """A regular expression that the name of an entry must match, in any case."""
    absent: bool = False
    """Whether nothing must be there: a path may name several files, or what is in a file."""
    decides: str = ""
    """"module:function" below this package: takes the path, and returns whether it is of this kind."""

    def __call__(self, path: Path) -> bool:
        if (self.named or self.contains or self.holds or self.absent) and not self._fits(path):
            return False
        if not self.decides:
            return bool(self.named or self.contains or self.holds or self.absent)
        return bool(loaded(self.decides)(path))

    def _fits(self, path: Path) -> bool:
        if self.named and re.search(self.named, os.fspath(path), re.IGNORECASE):
            return True
        try:
            if self.absent and not os.path.lexists(path):
                return True
            above = path.absolute().parent
            if any((above / one[3:] if one.startswith("../") else path / one).exists() for one in self.contains):
                return True
            if self.holds and path.is_dir():
                with os.scandir(path) as entries:
                    names = (entry.name for entry in islice(entries, _LOOKED_AT))
                    return any(re.search(self.holds, name, re.IGNORECASE) for name in names)
        except (OSError, ValueError):
            pass  # whoever opens it says why
        return False


@dataclass(frozen=True)
class SourceKind:
    """One kind of source. What is loaded later is named by "module:name" below this package."""

    reads: str
    """What it reads, in a few words."""
    opener: str | Callable[..., Source]
    """Opens a path: `open(path, progress=..., **options)`."""
    options: tuple[str, ...] = ()
    """What it takes besides the path, by keyword; None is as if left out. The command writes `max_frames` as
    `--max-frames`."""
    accepts_file: Callable[[Path], bool] = lambda path: False
    """Whether a file is of this kind."""
    accepts_folder: Callable[[Path], bool] = lambda path: False
    """Whether a folder is of this kind, or a path that names no file."""
    with_subfolders: bool = False
    """Whether it takes a folder with all that is below it, which may be splits."""
    stops_at_annotations: bool = False
    """Whether it loses what describes the images beside them, and so stops there unless it was asked for: then it is
    opened with `detected=`."""
    remote: bool = False
    """Whether it takes URLs too: then it is opened with `spool=`."""
    divides: str = ""
    """A function that returns the names of the splits at a path, if they are not known by their folders; empty where it
    is not divided."""
    extra: str = ""
    """The extra that it needs."""
    extra_for: str = ""
    """What needs the extra, in a few words; empty if everything does."""

    def open(self, path: str | os.PathLike[str], **options: Any) -> Source:
        opener = loaded(self.opener) if isinstance(self.opener, str) else self.opener
        source: Source = opener(path, **options)
        return source

    def splits(self, path: Path) -> list[str]:
        """The names of the splits at a path of this kind."""
        return list(loaded(self.divides)(path)) if self.divides else []


def loaded(name: str) -> Any:
    """What "module:name" below this package stands for."""
    module, _, inside = name.partition(":")
    return getattr(import_module(f"rawpack_packer.sources.{module}"), inside)


KINDS: dict[str, SourceKind] = {
    "arrays": SourceKind(
        "arrays: .npy, .npz, IDX (MNIST)", "arrays:ArraySource",
        ("array", "fields", "classes", "image_column", "label_column", "key_column"),
        Look(decides="arrays:is_arrays"),
    ),
    "cifar": SourceKind(
        "CIFAR-10 and CIFAR-100, their Python or binary version", "cifar:CifarSource",
        accepts_file=Look(r"cifar-10|/(train|test)$", decides="cifar:is_cifar"),
        accepts_folder=Look(
            "/(train|test)$", ("batches.meta", "batches.meta.txt", "meta", "fine_label_names.txt"),
            decides="cifar:is_cifar",
        ),
        divides="cifar:splits_of",
    ),
    "coco": SourceKind(
        "COCO's JSON of images, boxes, polygons, keypoints and masks", "listing.coco:CocoSource", ("images", "fields"),
        Look(r"\.json$"),
    ),
    "folder": SourceKind(
        "a folder of images, with a subfolder for each class", "folder:FolderSource",
        ("skip_unreadable", "key_pattern"), with_subfolders=True, stops_at_annotations=True,
    ),
    "hdf5": SourceKind(
        "data sets of an HDF5 file: .h5, .hdf5", "hdf5.source:Hdf5Source",
        ("array", "fields", "classes", "image_column", "label_column", "key_column"),
        Look(r"\.(h5|hdf5|hdf|he5)$"),
    ),
    "webdataset": SourceKind(
        "WebDataset shards: .tar, .tar.gz", "archives.webdataset:WebDatasetSource",
        ("fields", "classes", "prefix", "key_pattern"),
        accepts_folder=Look(holds=r"\.(tar|tar\.gz|tgz)$", decides="archives.webdataset:holds_shards"),
        remote=True, extra="archives", extra_for="compressed shards",
    ),
    "parquet": SourceKind(
        "Parquet files with images, as on the Hugging Face Hub; folders of save_to_disk",
        "parquet:open_parquet", ("fields", "key_column", "classes", "image_column", "label_column", "columns"),
        Look(r"\.(parquet|arrow)$"), Look(decides="parquet:has_tables"),
        divides="parquet:splits_of", remote=True, extra="parquet",
    ),
    "recordio": SourceKind(
        "RecordIO files of MXNet and InsightFace: .rec", "archives.recordio:RecordIOSource", ("classes",),
        Look(r"\.rec$"), Look(r"\.rec$", holds=r"\.rec$", decides="archives.recordio:is_recordio"), remote=True,
    ),
    "store": SourceKind("a rawpack store", "store:StoreSource", accepts_folder=Look(contains=("store.json",))),
    "lmdb": SourceKind(
        "LMDBs of image files: as of STR, LSUN, BasicSR, folder2lmdb and Caffe", "lmdb.source:LmdbSource",
        accepts_file=Look(r"\.(lmdb|mdb)$"), accepts_folder=Look(contains=("data.mdb",)),
    ),
    "video": SourceKind(
        "a video, or a folder of videos with a subfolder for each class", "video.source:VideoSource",
        (*_VIDEO, "skip_unreadable", "key_pattern"), Look(decides="video:is_video"),
        with_subfolders=True, extra="video",
    ),
    "voc": SourceKind(
        "Pascal VOC's folders: VOC2012", "listing.voc:VocSource", ("fields", "classes", "skip_unreadable"),
        accepts_folder=Look(contains=("JPEGImages",), absent=True, decides="listing.voc:is_voc"),
        divides="listing.voc:voc_splits",
    ),
    "yolo": SourceKind(
        "images with YOLO's text files, in Ultralytics' layout, by its data.yaml, or in two folders",
        "listing.yolo:YoloSource", ("classes", "images", "labels_dir", "skip_unreadable"),
        Look(r"\.ya?ml$"),
        Look(
            contains=("labels", "train/labels", "val/labels", "valid/labels", "test/labels"), absent=True,
            decides="listing.yolo:is_yolo",
        ),
        with_subfolders=True, divides="listing.ultralytics:yolo_splits", extra="yolo",
        extra_for="names of classes in data.yaml",
    ),
    "listing": SourceKind(
        "a table of paths and fields: .csv, .tsv, .jsonl; a plain .txt list; a folder with a metadata.csv",
        "video.source:open_listing",
        ("fields", "path_column", "label_column", "key_column", "images", "classes", "key_pattern", *_VIDEO),
        Look(r"\.(csv|tsv|jsonl|ndjson|txt)$"),
        Look(
            contains=tuple(f"{up}metadata.{end}" for up in ("", "../") for end in ("csv", "jsonl", "parquet")),
            decides="listing.metadata:has_metadata",
        ),
        divides="listing.metadata:splits_of",
    ),
    "archive": SourceKind(
        "an archive of a folder of images: .tar, .zip, .tar.gz, .tar.bz2; ImageNet's own",
        "archives.source:ArchiveSource", ("labels_file", "skip_unreadable", "key_pattern"),
        Look(decides="archives.source:is_archive"), Look(absent=True, decides="archives.source:names_archives"),
        stops_at_annotations=True, remote=True, extra="archives", extra_for="compressed tar",
    ),
}  # fmt: skip
"""Name of a kind -> its row. A path that no other kind accepts is a folder of images, or of videos."""

OPTIONS: tuple[str, ...] = tuple(dict.fromkeys(option for kind in KINDS.values() for option in kind.options))
"""Every option that some kind of source takes."""
