"""The kinds of sources by name, and how a path is opened as one of them.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and returns a
source or any map-style dataset. If it has an attribute `accepts`, a function of the path, `--source` may be left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, refuse_url
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.added import with_path_fields
from rawpack_packer.sources.annotated import refuse_above, refuse_tables
from rawpack_packer.sources.archives.files import first_fetched, is_pattern, source_name
from rawpack_packer.sources.archives.recordio import RecordIOSource, is_recordio
from rawpack_packer.sources.archives.source import ArchiveSource, is_archive, names_archives, split_path
from rawpack_packer.sources.archives.webdataset import WebDatasetSource, is_webdataset, names_webdataset
from rawpack_packer.sources.arrays import ArraySource, is_arrays
from rawpack_packer.sources.base import Source
from rawpack_packer.sources.cifar import CifarSource, is_cifar
from rawpack_packer.sources.cifar import splits_of as splits_of_cifar
from rawpack_packer.sources.dataset import DatasetSource
from rawpack_packer.sources.divided import DividedError, splits_in
from rawpack_packer.sources.files import missing
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import FolderSource, NoImageError, holds_image
from rawpack_packer.sources.hdf5.source import Hdf5Source, is_hdf5
from rawpack_packer.sources.listing import (
    SUFFIXES,
    CocoSource,
    VocSource,
    YoloSource,
    has_metadata,
    is_data_yaml,
    is_voc,
    is_yolo,
    voc_splits,
    yolo_splits,
)
from rawpack_packer.sources.lmdb.source import LmdbSource, is_lmdb
from rawpack_packer.sources.parquet.columns import holds_images
from rawpack_packer.sources.parquet.layout import has_tables, is_table, splits_of
from rawpack_packer.sources.parquet.source import ParquetSource
from rawpack_packer.sources.path_pattern import path_pattern
from rawpack_packer.sources.stores.source import StoreSource, is_store
from rawpack_packer.sources.unknown import refuse_arrays, unknown
from rawpack_packer.sources.video.filetype import is_video
from rawpack_packer.sources.video.listed import open_listing
from rawpack_packer.sources.video.source import OPTIONS as VIDEO_OPTIONS
from rawpack_packer.sources.video.source import VideoSource
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.archives.spool import Spool

Progress = Callable[[int], None]
_FETCHED = re.compile(r"\.(tar|zip|tgz|tbz2?|tar\.gz|tar\.bz2|rec|parquet|arrow)([?#].*)?$", re.IGNORECASE | re.DOTALL)
"""Ends of URLs that may be fetched to see what they are."""
GROUP = "rawpack.sources"


def _never(path: Path) -> bool:
    return False


def _none(path: Path) -> list[str]:
    return []


@dataclass(frozen=True)
class SourceKind:
    """One kind of source."""

    reads: str
    """What it reads, in a few words."""
    open: Callable[..., Source]
    """Opens a path: `open(path, progress=..., **options)`."""
    options: tuple[str, ...] = ()
    """What it takes besides the path, by keyword; None is as if left out. The command writes `max_frames` as
    `--max-frames`."""
    accepts_file: Callable[[Path], bool] = _never
    """Whether a file is of this kind."""
    accepts_folder: Callable[[Path], bool] = _never
    """Whether a folder is of this kind."""
    with_subfolders: bool = False
    """Whether it takes a folder with all that is below it, which may be splits."""
    stops_at_annotations: bool = False
    """Whether it loses what describes the images beside them, and so stops there unless it was asked for: then it is
    opened with `detected=`."""
    remote: bool = False
    """Whether it takes URLs too: then it is opened with `spool=`."""
    splits: Callable[[Path], list[str]] = _none
    """The names of the splits at a path, if they are not known by their folders; empty where it is not divided."""
    extra: str = ""
    """The extra that it needs."""
    extra_for: str = ""
    """What needs the extra, in a few words; empty if everything does."""


@runtime_checkable
class RecognizesPaths(Protocol):
    """An entry point that says itself which paths are of its kind."""

    def accepts(self, path: str | os.PathLike[str], /) -> bool: ...


KINDS: dict[str, SourceKind] = {
    "arrays": SourceKind("arrays: .npy, .npz, IDX (MNIST)", ArraySource, ("array", "fields"), accepts_file=is_arrays),
    "cifar": SourceKind(
        "CIFAR-10 and CIFAR-100, their Python or binary version",
        CifarSource,
        accepts_file=is_cifar,
        accepts_folder=is_cifar,
        splits=splits_of_cifar,
    ),
    "coco": SourceKind(
        "COCO's JSON of images, boxes, polygons, keypoints and masks",
        CocoSource,
        ("images", "fields"),
        accepts_file=lambda file: file.suffix.lower() == ".json",
    ),
    "folder": SourceKind(
        "a folder of images, with a subfolder for each class",
        FolderSource,
        ("skip_unreadable", "key_pattern"),
        with_subfolders=True,
        stops_at_annotations=True,
    ),
    "hdf5": SourceKind(
        "data sets of an HDF5 file: .h5, .hdf5", Hdf5Source, ("array", "fields", "classes"), accepts_file=is_hdf5
    ),
    "webdataset": SourceKind(
        "WebDataset shards: .tar, .tar.gz",
        WebDatasetSource,
        ("fields", "classes", "prefix", "key_pattern"),
        accepts_file=is_webdataset,
        accepts_folder=lambda path: names_webdataset(path) and not holds_images(path),
        remote=True,
        extra="archives",
        extra_for="compressed shards",
    ),
    "parquet": SourceKind(
        "Parquet files with images, as on the Hugging Face Hub; folders of save_to_disk",
        ParquetSource,
        ("fields", "key", "classes", "image_column", "label_column", "columns"),
        accepts_file=is_table,
        accepts_folder=has_tables,
        splits=splits_of,
        remote=True,
        extra="parquet",
    ),
    "recordio": SourceKind(
        "RecordIO files of MXNet and InsightFace: .rec",
        RecordIOSource,
        ("classes",),
        accepts_file=is_recordio,
        accepts_folder=is_recordio,
        remote=True,
    ),
    "store": SourceKind("a rawpack store", StoreSource, accepts_folder=is_store),
    "lmdb": SourceKind(
        "LMDBs of image files: as of STR, LSUN, BasicSR, folder2lmdb and Caffe",
        LmdbSource,
        accepts_file=is_lmdb,
        accepts_folder=is_lmdb,
    ),
    "video": SourceKind(
        "a video, or a folder of videos with a subfolder for each class",
        VideoSource,
        (*VIDEO_OPTIONS, "skip_unreadable", "key_pattern"),
        accepts_file=is_video,
        with_subfolders=True,
        extra="video",
    ),
    "voc": SourceKind(
        "Pascal VOC's folders: VOC2012",
        VocSource,
        ("fields", "classes", "skip_unreadable"),
        accepts_folder=is_voc,
        splits=voc_splits,
    ),
    "yolo": SourceKind(
        "images with YOLO's text files, in Ultralytics' layout, by its data.yaml, or in two folders",
        YoloSource,
        ("classes", "images", "labels", "skip_unreadable"),
        accepts_file=is_data_yaml,
        accepts_folder=is_yolo,
        with_subfolders=True,
        splits=yolo_splits,
        extra="yolo",
        extra_for="names of classes in data.yaml",
    ),
    "listing": SourceKind(
        "a table of paths and fields: .csv, .tsv, .jsonl; a plain .txt list; a folder with a metadata.csv",
        open_listing,
        ("fields", "path_column", "key", "images", "classes", "key_pattern", *VIDEO_OPTIONS),
        accepts_file=lambda file: file.suffix.lower() in SUFFIXES,
        accepts_folder=has_metadata,
        splits=lambda path: splits_in(path) if has_metadata(path) else [],
    ),
    "archive": SourceKind(
        "an archive of a folder of images: .tar, .zip, .tar.gz, .tar.bz2; ImageNet's own",
        ArchiveSource,
        ("labels", "skip_unreadable", "key_pattern"),
        accepts_file=is_archive,
        accepts_folder=names_archives,
        stops_at_annotations=True,
        remote=True,
        extra="archives",
        extra_for="compressed tar",
    ),
}
"""Name of a kind -> its row. A path that no other kind accepts is a folder of images, or of videos."""

OPTIONS: tuple[str, ...] = tuple(dict.fromkeys(option for kind in KINDS.values() for option in kind.options))
"""Every option that some kind of source takes."""


def open_source(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    spool: Spool | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Source:
    """The samples at `path`. kind: one of `KINDS` or of the plugins; None finds it from what `path` is.

    spool: what fetches files behind URLs, and where an earlier run kept what it found in archives; without one, URLs
        are refused. progress: called now and then with
        the number of entries of the source that were looked at.
    options: of that kind; None, False and () are as if left out.
    Raises UsageError, one line that names the path and the cure, for what is no source, and for another kind's options;
    DividedError, a UsageError, where `kind` is None and the folder is divided into splits; AnnotatedError where it is
    None and the folder holds annotations that would be lost.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False and value != ()}
    source = _found(path, kind, given, spool, progress)
    return with_path_fields(source, given["key_pattern"]) if "key_pattern" in given else source


def _found(
    path: str | os.PathLike[str],
    kind: str | None,
    given: dict[str, Any],
    spool: Spool | None,
    progress: Progress | None,
) -> Source:
    added = plugins()
    if "key_pattern" in given:
        path_pattern(given["key_pattern"])
    if kind is not None:
        if kind in KINDS and kind != "store" and not _is_there(path, KINDS[kind]):
            raise missing(os.fspath(path))
        return _open(path, kind, added, given, spool, progress)
    found = _kind_of(path, added, given, spool)
    if given and found == "folder" and not _is_there(path, KINDS[found]) and "\0" not in os.fspath(path):
        raise missing(os.fspath(path))  # rather than that a folder takes none of these options
    if found in KINDS and KINDS[found].with_subfolders and os.fspath(path) and (names := splits_in(Path(path))):
        images = found != "folder" or holds_image(Path(path))
        if found == "folder" and images:
            refuse_above(path, names)
        raise DividedError(os.fspath(path), names, found if images else "video")
    if found in KINDS and (names := KINDS[found].splits(Path(path))):
        raise DividedError(os.fspath(path), names, found)
    if found == "parquet" and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        refuse_tables(path)
    try:
        source = _open(path, found, added, given, spool, progress, detected=True)
    except NoImageError as error:
        if not error.videos:
            refuse_arrays(Path(path))
            raise
        return _open(path, "video", added, given, spool, progress)
    if isinstance(source, ArchiveSource) and (names := source.splits()):
        raise DividedError(os.fspath(path), names, found)
    return source


def _is_there(path: str | os.PathLike[str], kind: SourceKind) -> bool:
    """Whether a path names something: what it is the path of, several files, or what is in a file or folder."""
    text = os.fspath(path)
    # Whoever opens an empty path says so.
    return not text or os.path.lexists(text) or is_url(text) or is_pattern(text) or kind.accepts_folder(Path(text))


def has_split(root: str, name: str) -> bool:
    """Whether `root/name` names a split: a folder, or what the archive, the tables or the data.yaml at `root` have by
    that name."""
    inner = Path(root) / name
    known = is_archive(Path(root)) or is_data_yaml(Path(root))  # what they lack is reported when they are opened
    return os.path.lexists(inner) or known or any(one(inner) for one in (has_tables, is_cifar, is_yolo, is_voc))


def stop_above_splits(root: str, names: Sequence[str]) -> None:
    """Raise AnnotatedError where splits are plain folders of images, and the folder that they are in holds what
    describes the images."""
    folders = [Path(root) / name for name in names]
    if all(map(os.path.isdir, folders)) and not all(
        any(kind.accepts_folder(folder) for kind in KINDS.values()) for folder in folders
    ):
        refuse_above(root, names)


def _open(
    path: str | os.PathLike[str],
    kind: str,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    progress: Progress | None,
    *,
    detected: bool = False,
) -> Source:
    """detected: whether the kind was found, rather than named by the user."""
    if kind not in KINDS and kind not in added:
        raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted({*KINDS, *added}))}")
    options = {name: value for name, value in given.items() if name != "key_pattern"}
    if kind == "video" and Path(path).suffix.lower() in SUFFIXES and Path(path).is_file():
        kind, options["videos"] = "listing", True
    row = KINDS.get(kind)
    spooled = row is not None and row.remote and spool is not None
    if row is not None and not spooled:
        refuse_url(path)
    for name in given:
        if row is None or name not in row.options:
            homes = [home for home, known in KINDS.items() if name in known.options]
            belongs = f"it belongs to {' and '.join(homes)} sources" if homes else "it applies to datasets in memory"
            raise UsageError(
                f"{plain(os.fspath(path))}, opened as a source of kind {kind}, takes no option "
                f"{name.replace('_', '-')}: {belongs}"
            )
    if row is not None:
        more: dict[str, Any] = {"spool": spool} if spooled else {}
        more |= {"detected": True} if detected and row.stops_at_annotations else {}
        return row.open(path, progress=progress, **options, **more)
    opened = _loaded(added[kind])(path)
    return opened if isinstance(opened, Source) else DatasetSource(opened)


def plugins() -> dict[str, EntryPoint]:
    """The kinds that other packages add; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _kind_of(
    path: str | os.PathLike[str], added: dict[str, EntryPoint], given: dict[str, Any], spool: Spool | None
) -> str:
    for name, entry in added.items():
        opener = _loaded(entry)
        if isinstance(opener, RecognizesPaths) and opener.accepts(path):
            return name
    archives, inside = split_path(os.fspath(path)) if is_url(path) else ("", "")
    if spool is not None and _FETCHED.search(archives):
        first = first_fetched(archives, spool)
        for name, kind in KINDS.items():
            if kind.remote and kind.accepts_file(first) and (name == "archive" or not inside):
                return name
        kinds = listed([name for name, kind in KINDS.items() if kind.remote], 9)
        raise UsageError(f"{source_name(path)} is none of what is read from URLs: {kinds}; {opt.kind} says which it is")
    if spool is not None and is_url(path):
        kinds = "|".join(sorted(name for name, kind in KINDS.items() if kind.remote))
        raise UsageError(
            f"{source_name(path)} does not say what it is, as .tar or .parquet at its end would: add "
            f"{opt.kind} {kinds}. `rawpack warm` fetches a store; copy other files here first"
        )
    refuse_url(path)
    where = Path(path)
    if "labels" in given and os.path.isdir(given["labels"]) and os.path.isdir(where):  # noqa: PTH112
        return "yolo"
    # Not Path.is_file, which raises where nothing can be looked into: whoever scans the folder says so.
    is_file = os.path.isfile(where)  # noqa: PTH113
    for name, kind in KINDS.items():
        if (kind.accepts_file if is_file else kind.accepts_folder)(where):
            return name
    if is_file and where.suffix.lower() not in IMAGE_EXTENSIONS:
        raise UsageError(unknown(plain(os.fspath(path)), where.suffix.lower(), sorted({*KINDS, *added})))
    # Without options, the scan for images shows whether there are any: see `open_source`.
    asked = any(name in VIDEO_OPTIONS for name in given)
    return "video" if asked and where.is_dir() and not holds_image(where) else "folder"


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
