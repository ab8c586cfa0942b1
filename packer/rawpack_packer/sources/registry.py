"""The table of the kinds of sources, and what opens a path by it. The code of a kind is loaded when a path may be of
it, and when it is opened.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and returns a
source or any map-style dataset. If it has an attribute `accepts`, a function of the path, `--source` may be left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, refuse_url
from rawpack_packer.options import OPTIONS, opt
from rawpack_packer.sources.base import Scanning, Source, unseen
from rawpack_packer.sources.beside.annotated import OtherKindError, refuse_above, refuse_tables
from rawpack_packer.sources.files import missing
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import (
    DividedError,
    NoImageError,
    holds_image,
    splits_in,
)
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.look.signs import NO_SIGNS, Signs, Strength, loaded, surest
from rawpack_packer.sources.pairs import one_folder
from rawpack_packer.sources.parquet import lists_paths
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.archives.opened import Pass
    from rawpack_packer.sources.table.remote_files import Spool

_NAMED = re.compile(
    r"\.(tar|zip|tgz|tbz2?|tar\.gz|tar\.bz2|rec|parquet|arrow|tfrecords?|tfrec)(\.gz|-[\d{}.*]+-of-\d+)*([?#].*)?$",
    re.IGNORECASE | re.DOTALL,
)
"""Ends of URLs that say what they are."""
GROUP = "rawpack.sources"
_CONTENT = Strength.CONTENT
_TABLE = ("fields", "key_column", "classes", "image_column", "label_column", "columns")
_INDEXES = tuple(f"{split}index.json" for split in ("", "train/", "val/", "valid/", "validation/", "test/"))
_VIDEO = ("fps", "frame_step", "start", "end", "max_frames")


@dataclass(frozen=True)
class SourceKind:
    """One kind of source. What is loaded later is named by "module:name" below this package."""

    reads: str
    """What it reads, in a few words."""
    opener: str | Callable[..., Source]
    """Opens a path: `open(listing, progress=..., **options)`."""
    options: tuple[str, ...] = ()
    """What it takes besides the path, by keyword; None is as if left out. The command writes `max_frames` as
    `--max-frames`."""
    file: Signs = NO_SIGNS
    """What shows that a file is of this kind, mostly its name."""
    folder: Signs = NO_SIGNS
    """What shows that a folder is of this kind, or a path that names no file."""
    first_bytes: Signs = NO_SIGNS
    """What shows it of a file whose name does not."""
    with_subfolders: bool = False
    """Whether it takes a folder with all that is below it, which may be splits."""
    stops_at_annotations: bool = False
    """Whether it loses what describes the images beside them, and so stops there unless it was asked for: then it is
    opened with `detected=`."""
    remote: bool = False
    """Whether it takes URLs too: then it is opened with `spool=`."""
    divides: str = ""
    """A function of the `Listing` that returns the names of the splits at its path, if they are not known by their
    folders; empty where it is not divided."""
    extra: str = ""
    """The extra that it needs."""
    extra_for: str = ""
    """What needs the extra, in a few words; empty if everything does."""

    def open(self, listing: Listing, **options: Any) -> Source:
        opener = loaded(self.opener) if isinstance(self.opener, str) else self.opener
        source: Source = opener(listing, **options)
        return source

    def signs(self, listing: Listing) -> tuple[Signs, ...]:
        """What shows that a path is of this kind: one of these."""
        return (self.file, self.first_bytes) if listing.is_file else (self.folder,)

    def accepts(self, listing: Listing) -> bool:
        """Whether a path shows that it is of this kind."""
        return any(signs(listing) for signs in self.signs(listing))

    def splits(self, listing: Listing) -> list[str]:
        """The names of the splits at a path of this kind."""
        return list(loaded(self.divides)(listing)) if self.divides else []


KINDS: dict[str, SourceKind] = {
    "arrays": SourceKind(
        "arrays: .npy, .npz, IDX (MNIST); a folder of them, as torchvision's", "arrays:ArraySource",
        ("array", "fields", "classes", "image_column", "label_column", "key_column"),
        Signs(named=r"(?-i:\.np[yz])$"),
        Signs(contains=("raw",), holds=r"\.np[yz]$|idx\d-ubyte", absent=True, decides="array_files:holds_arrays"),
        first_bytes=Signs(Strength.BYTES, decides="arrays:is_idx"),
    ),
    "cifar": SourceKind(
        "CIFAR-10 and CIFAR-100, their Python or binary version", "cifar:CifarSource",
        file=Signs(_CONTENT, r"cifar-10|/(train|test)$", decides="cifar:is_cifar"),
        folder=Signs(
            _CONTENT, "/(train|test)$", ("batches.meta", "batches.meta.txt", "meta", "fine_label_names.txt"),
            decides="cifar:is_cifar",
        ),
        divides="cifar:splits_of",
    ),
    **{
        kind: SourceKind(
            reads, f"chunks:open_{kind}", _TABLE, Signs(_CONTENT, r"(^|/)index\.json$", decides=f"chunks:is_{kind}"),
            Signs(_CONTENT, contains=_INDEXES, decides=f"chunks:is_{kind}"), divides="chunks:splits_of", remote=True,
            extra="parquet", extra_for="compressed shards",
        )
        for kind, reads in (
            ("mds", "MDS of MosaicML Streaming: a folder of shards with an index.json"),
            ("litdata", "chunks of litdata: a folder with an index.json"),
        )
    },
    "lerobot": SourceKind(
        "LeRobot's datasets, v2 and v3: episodes with videos of cameras, states and actions", "lerobot:open_lerobot",
        ("image_column", "columns", "episodes"),
        Signs(_CONTENT, r"(^|/)meta/info\.json$", decides="lerobot:is_lerobot"),
        Signs(_CONTENT, contains=("meta/info.json",), absent=True, decides="lerobot:is_lerobot"),
        divides="lerobot:splits_of", remote=True, extra="lerobot",
    ),
    "coco": SourceKind(
        "COCO's JSON of images, boxes, polygons, keypoints and masks, or of captions", "detection.coco:CocoSource",
        ("images", "fields"), Signs(Strength.SOME, r"\.json$", decides="detection.coco:is_coco"),
    ),
    "cvat": SourceKind(
        "CVAT's annotations.xml of images: boxes, polygons, points, skeletons", "detection.cvat:CvatSource",
        ("images", "classes"), Signs(_CONTENT, r"\.xml$", decides="detection.cvat:is_cvat"),
        Signs(_CONTENT, contains=("annotations.xml",), decides="detection.cvat:is_cvat"),
    ),
    "folder": SourceKind(
        "a folder of images, with a subfolder for each class", "folder:FolderSource",
        ("images", "fields", "labels_file", "label_column", "skip_unreadable", "key_pattern"), with_subfolders=True,
        stops_at_annotations=True,
    ),
    "hdf5": SourceKind(
        "data sets of an HDF5 file: .h5, .hdf5; a folder of such files", "hdf5.source:Hdf5Source",
        ("array", "fields", "classes", "image_column", "label_column", "key_column"),
        Signs(named=r"\.(h5|hdf5|hdf|he5)$"),
        Signs(holds=r"\.(h5|hdf5|hdf|he5)$", absent=True, decides="array_files:holds_hdf5"),
    ),
    "webdataset": SourceKind(
        "WebDataset shards: .tar, .tar.gz", "archives.webdataset:WebDatasetSource",
        ("fields", "classes", "prefix", "skip_unreadable", "key_pattern"),
        folder=Signs(holds=r"\.(tar|tar\.gz|tgz)$", decides="archives.webdataset:holds_shards"),
        remote=True, extra="archives", extra_for="compressed shards",
    ),
    "parquet": SourceKind(
        "Parquet files with images, as on the Hugging Face Hub; folders of save_to_disk",
        "parquet:open_parquet", _TABLE,
        Signs(named=r"\.(parquet|arrow)$", decides="parquet:is_table"),
        Signs(Strength.SOME, decides="parquet:has_tables"),
        divides="parquet:splits_of", remote=True, extra="parquet",
    ),
    "recordio": SourceKind(
        "RecordIO files of MXNet and InsightFace: .rec", "archives.recordio:RecordIOSource", ("classes",),
        Signs(named=r"\.rec$"), Signs(named=r"\.rec$", holds=r"\.rec$", decides="archives.recordio:is_recordio"),
        remote=True,
    ),
    "tfrecord": SourceKind(
        "TFRecord files of tf.train.Example, also gzipped; folders of TensorFlow Datasets",
        "tfrecord:open_tfrecord", ("fields", "key_column", "classes", "image_column", "label_column", "columns"),
        Signs(decides="tfrecord:is_tfrecord"), Signs(decides="tfrecord:is_tfrecord"),
        divides="tfrecord:splits_of", remote=True, extra="tfrecord",
    ),
    "store": SourceKind("a rawpack store", "store:StoreSource", folder=Signs(_CONTENT, contains=("store.json",))),
    "labelme": SourceKind(
        "images with labelme's JSON files next to them", "detection.labelme:LabelmeSource",
        ("classes", "skip_unreadable"),
    ),
    "lmdb": SourceKind(
        "LMDBs of image files: as of STR, LSUN, BasicSR, folder2lmdb and Caffe", "lmdb.source:LmdbSource",
        file=Signs(named=r"\.(lmdb|mdb)$"), folder=Signs(_CONTENT, contains=("data.mdb",)),
    ),
    "video": SourceKind(
        "a video, or a folder of videos with a subfolder for each class", "video.source:VideoSource",
        (*_VIDEO, "skip_unreadable", "key_pattern"), Signs(decides="video:is_called_video"),
        first_bytes=Signs(Strength.BYTES, decides="video:is_video"), with_subfolders=True, extra="video",
    ),
    "voc": SourceKind(
        "Pascal VOC's folders: VOC2012", "detection.voc:VocSource", ("fields", "classes", "skip_unreadable"),
        folder=Signs(Strength.FOLDERS, contains=("JPEGImages",), absent=True, decides="detection.voc:is_voc"),
        divides="detection.voc:voc_splits",
    ),
    "yolo": SourceKind(
        "images with YOLO's text files, in Ultralytics' layout, by its data.yaml, or in two folders",
        "detection.yolo:YoloSource", ("classes", "images", "labels_dir", "skip_unreadable"),
        Signs(named=r"\.ya?ml$"),
        Signs(
            Strength.PLAIN_FOLDERS,
            contains=("labels", "train/labels", "val/labels", "valid/labels", "test/labels"), absent=True,
            decides="detection.yolo:is_yolo",
        ),
        with_subfolders=True, divides="detection.ultralytics:yolo_splits", extra="yolo",
        extra_for="names of classes in data.yaml",
    ),
    "listing": SourceKind(
        "a table of paths and fields: .csv, .tsv, .jsonl, .parquet, a list in .json; a plain .txt list; a folder with "
        "a metadata.csv; a folder of .parquet; img2dataset's folders of files",
        "video.source:open_listing",
        ("fields", "path_column", "label_column", "key_column", "images", "classes", "key_pattern", *_VIDEO),
        Signs(Strength.TABLE, r"\.(csv|tsv|jsonl|ndjson|json|txt|parquet)$"),
        Signs(
            Strength.TABLE,
            contains=tuple(f"{up}metadata.{end}" for up in ("", "../") for end in ("csv", "jsonl", "parquet")),
            holds=r"\.parquet$", absent=True, decides="listing.metadata:lists_images",
        ),
        divides="listing.metadata:splits_of",
    ),
    "archive": SourceKind(
        "an archive of a folder of images: .tar, .zip, .tar.gz, .tar.bz2; ImageNet's own",
        "archives.source:ArchiveSource", ("labels_file", "label_column", "skip_unreadable", "key_pattern"),
        Signs(Strength.ARCHIVE, decides="archives.source:is_archive"),
        Signs(Strength.ARCHIVE, absent=True, decides="archives.source:names_archives"),
        stops_at_annotations=True, remote=True, extra="archives", extra_for="compressed tar",
    ),
}  # fmt: skip
"""Name of a kind -> its row. A path that no other kind accepts is a folder of images, or of videos."""


def open_source(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    spool: Spool | None = None,
    progress: Scanning = unseen,
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
    given = {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and not (isinstance(value, tuple) and not value)
    }
    pattern = given.get("key_pattern")
    if pattern is not None:
        from rawpack_packer.sources.path_fields import join_path_fields, path_pattern

        path_pattern(pattern)  # a wrong one is refused before anything is read
    added, listing = plugins(), Listing(path)
    opened = partial(_open, listing, added=added, given=given, spool=spool, progress=progress)
    if kind is None:
        source = _found(listing, added, given, spool, opened)
    elif kind in KINDS and kind != "store" and not _is_there(listing, KINDS[kind]):
        raise missing(os.fspath(path))
    else:
        source = opened(kind)
    return source if pattern is None else join_path_fields(source, pattern)


def _found(
    listing: Listing,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    opened: Callable[..., Source],
) -> Source:
    """The source at a path of which nobody says what it is."""
    kind, where, begun = _kind_of(listing, added, given, spool), os.fspath(listing), None
    if kind in ("archive", "webdataset"):
        from rawpack_packer.sources.archives.webdataset import begin

        may_be = kind
        kind, begun = begin(listing, given.get("fields", ()), spool)
        kind = "archive" if "labels_file" in given else kind
        if kind != may_be == "webdataset":  # a folder of archives that are no shards
            kind, begun = _kind_of(listing, added, given, spool, but=may_be), None
    if given and kind == "folder" and not _is_there(listing, KINDS[kind]) and "\0" not in where:
        raise missing(where)  # rather than that a folder takes none of these options
    if kind in KINDS and KINDS[kind].with_subfolders and where and (names := splits_in(listing)):
        images = kind != "folder" or holds_image(listing)
        if kind == "folder" and images and "labels_file" not in given:
            refuse_above(listing, names)
        raise DividedError(where, names, kind if images else "video")
    tables = kind == "parquet"
    kind = "listing" if tables and lists_paths(listing) else kind
    if kind in KINDS and (names := KINDS[kind].splits(listing)):
        raise DividedError(where, names, kind)
    if tables and listing.is_dir:
        refuse_tables(listing)
    try:
        source = opened(kind, detected=True, begun=begun)
    except NoImageError as error:
        if error.videos:
            return opened("video")
        if not error.archives:
            from rawpack_packer.sources.advice import refuse_folder

            refuse_folder(listing, error)
        raise
    except OtherKindError as error:
        return opened(error.kind)
    if kind == "archive" and (names := source.splits()):  # type: ignore[attr-defined] # it is an ArchiveSource
        raise DividedError(where, names, kind)
    return source


def _is_there(listing: Listing, kind: SourceKind) -> bool:
    """Whether a path names something: what it is the path of, several files, or what is in a file or folder."""
    text = os.fspath(listing)
    # Whoever opens an empty path says so.
    if not text or os.path.lexists(text) or is_url(text):
        return True
    from rawpack_packer.sources.table.named_files import is_pattern

    return is_pattern(text) or kind.folder(listing)


def has_split(root: str, name: str) -> bool:
    """Whether `root/name` names a split: a folder, or what the archive, the tables or the data.yaml at `root` have by
    that name."""
    whole = Listing(root)
    inner = whole / name
    # What an archive or a data.yaml lacks is reported when it is opened.
    divided = KINDS["archive"].file(whole) or (whole.is_file and KINDS["yolo"].file(whole))
    kinds = ("parquet", "lerobot", "tfrecord", "cifar", "yolo", "voc", "arrays", "hdf5")
    return inner.exists or divided or any(KINDS[kind].folder(inner) for kind in kinds)


def stop_above_splits(root: str, names: Sequence[str]) -> None:
    """Raise AnnotatedError where splits are plain folders of images, and the folder that they are in holds what
    describes the images."""
    folders = [Listing(root) / name for name in names]
    if all(folder.is_dir for folder in folders) and not all(
        any(kind.folder(folder) for kind in KINDS.values()) for folder in folders
    ):
        refuse_above(root, names)


def _open(
    listing: Listing,
    kind: str,
    *,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    progress: Scanning,
    detected: bool = False,
    begun: Pass | None = None,
) -> Source:
    """detected: whether the kind was found, rather than named by the user. begun: what has found it in archives."""
    if kind not in KINDS and kind not in added:
        raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted({*KINDS, *added}))}")
    options = {name: value for name, value in given.items() if name != "key_pattern"}
    if kind == "video" and KINDS["listing"].file(listing) and listing.is_file:
        kind, options["videos"] = "listing", True
    row = KINDS.get(kind)
    spooled = row is not None and row.remote and spool is not None
    if row is not None and not spooled:
        refuse_url(listing)
    for name in given:
        if row is None or name not in row.options:
            homes = [home for home, known in KINDS.items() if name in known.options]
            belongs = f"it belongs to {', '.join(homes)} sources" if homes else "it applies to datasets in memory"
            raise UsageError(
                f"{plain(os.fspath(listing))}, opened as a source of kind {kind}, takes no option "
                f"{getattr(opt, name)}: {belongs}"
            )
    if "images" in options and kind != "folder":
        options["images"] = one_folder(options["images"])
    if row is not None:
        options |= {"spool": spool} if spooled else {}
        options |= {"detected": True} if detected and row.stops_at_annotations else {}
        options |= {"begun": begun} if begun is not None and kind in ("archive", "webdataset") else {}
        return row.open(listing, progress=progress, **options)
    opened = _loaded(added[kind])(os.fspath(listing))
    if isinstance(opened, Source):
        return opened
    from rawpack_packer.sources.dataset import DatasetSource

    return DatasetSource(opened)


def plugins() -> dict[str, EntryPoint]:
    """The kinds that other packages add; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _kind_of(
    listing: Listing,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    spool: Spool | None,
    but: str = "",
) -> str:
    """The kind of a path; of archives, whose members decide, see `begin`. but: a kind that it is not."""
    for name, entry in added.items():
        accepts = getattr(_loaded(entry), "accepts", None)
        if accepts is not None and accepts(os.fspath(listing)):
            return name
    if is_url(listing) and spool is not None:
        return _kind_of_url(os.fspath(listing), spool)
    refuse_url(listing)
    if "labels_dir" in given and listing.is_dir:
        return "yolo"
    kinds = surest({name: kind.signs(listing) for name, kind in KINDS.items() if name != but}, listing)
    if len(kinds) > 1:
        where, cure = plain(os.fspath(listing)), " or ".join(map(opt.kind, kinds))
        raise UsageError(f"{where} may be of kind {' or '.join(kinds)}: {cure} says which")
    if kinds:
        return kinds[0]
    if listing.is_file and listing.path.suffix.lower() not in IMAGE_EXTENSIONS:
        from rawpack_packer.sources.advice import refuse_file

        refuse_file(listing, sorted({*KINDS, *added}))
    # Without options, the scan for images shows whether there are any: see `open_source`.
    asked = any(OPTIONS[name].heading == "Video" for name in given)
    return "video" if asked and listing.is_dir and not holds_image(listing) else "folder"


def _kind_of_url(url: str, spool: Spool) -> str:
    """The kind of what is behind a URL, by its name, or by what an index says."""
    from rawpack_packer.sources.archives.source import split_path
    from rawpack_packer.sources.chunks import INDEX, kind_of_index, read_index
    from rawpack_packer.sources.table.named_files import source_name

    ends = _NAMED.search(split_path(url)[0])
    if url.partition("?")[0].endswith("/meta/info.json"):
        return "lerobot"
    if url.partition("?")[0].endswith(f"/{INDEX}") and (kind := kind_of_index(read_index(url, spool))):
        return kind
    if ends is None:
        remote = sorted(name for name, kind in KINDS.items() if kind.remote)
        raise UsageError(
            f"{source_name(url)} does not say what it is, as .tar or .parquet at its end would: add {opt.kind} "
            f"{'|'.join(remote)}. `rawpack warm` fetches a store; copy other files here first"
        )
    kinds = {"rec": "recordio", "parquet": "parquet", "arrow": "parquet"}
    return "tfrecord" if ends[1].lower().startswith("tf") else kinds.get(ends[1].lower(), "archive")


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
