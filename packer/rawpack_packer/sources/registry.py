"""The table of the kinds of sources, and what opens a path by it. The code of a kind is loaded when a path may be of
it, and when it is opened.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and returns a
source or any map-style dataset. If it has an attribute `accepts`, a function of the path, `--source` may be left out.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack.remote.url import filesystem, refuse_url
from rawpack_packer.errors import need, stand_in
from rawpack_packer.options import OPTIONS, opt
from rawpack_packer.sources.base import Scanning, Source, unseen
from rawpack_packer.sources.beside.annotated import OtherKindError, refuse_above, refuse_tables
from rawpack_packer.sources.doubts import add_doubts, doubts_beside, refuse_split_column
from rawpack_packer.sources.files import missing
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import DividedError, NoImageError, holds_image
from rawpack_packer.sources.look.kind import Signs, SourceKind, Strength, loaded, surest
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.pairs import one_folder
from rawpack_packer.sources.parquet import lists_paths
from rawpack_packer.sources.table.foreign import as_table
from rawpack_packer.sources.table.named_files import expanded, source_name
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.archives.opened import Pass
    from rawpack_packer.sources.table.remote_files import Spool

GROUP = "rawpack.sources"
_TABLE = ("fields", "key_column", "classes", "image_column", "label_column", "columns")
_ARRAYS = ("array", "fields", "classes", "image_column", "label_column", "key_column")
_INDEXES = tuple(f"{split}index.json" for split in ("", "train/", "val/", "valid/", "validation/", "test/"))
_VIDEO = ("fps", "frame_step", "start", "end", "max_frames")
_ANY = "."
_SEVERAL = frozenset({"archive", "listing", "parquet", "recordio", "tfrecord", "video", "webdataset"})
"""Kinds that take several files by a pattern."""

_ROWS = (
    SourceKind(
        name="archive", open="archives.source:open_archive",
        reads="an archive of a folder of images: .tar, .zip, .tar.gz, .tar.bz2; ImageNet's own",
        options=("labels_file", "label_column", "label_depth", "classes", "skip_unreadable", "key_pattern"),
        signs=[Signs(
            strength=Strength.ARCHIVE, file=_ANY, several=_ANY, inside=True, decides="archives.source:is_archive",
        )],
        stops_at_annotations=True, remote=True, extra="archives", extra_for="compressed tar",
    ),
    SourceKind(
        name="arrays", open="arrays:open_arrays",
        reads="arrays: .npy, .npz, IDX (MNIST); a folder of them, as torchvision's",
        options=_ARRAYS,
        signs=[
            Signs(file=r"(?-i:\.np[yz])$"),
            Signs(contains=("raw",), holds=r"\.np[yz]$|idx\d-ubyte", inside=True, decides="array_files:holds_arrays"),
            Signs(strength=Strength.BYTES, file=_ANY, decides="arrays:is_idx"),
        ],
    ),
    SourceKind(
        name="coco", open="detection.coco:open_coco",
        reads="COCO's JSON of images, boxes, polygons, keypoints and masks, or of captions",
        options=("images", "fields"),
        names_others=True, labels_unread="folders",
        signs=[Signs(strength=Strength.SOME, file=r"\.json$", decides="detection.coco:is_coco")],
    ),
    SourceKind(
        name="cvat", open="detection.cvat:open_cvat",
        reads="CVAT's annotations.xml of images: boxes, polygons, points, skeletons",
        options=("images", "classes"),
        names_others=True, labels_unread="folders",
        signs=[Signs(
            strength=Strength.CONTENT, file=r"\.xml$", contains=("annotations.xml",),
            decides="detection.cvat:is_cvat",
        )],
    ),
    SourceKind(
        name="folder", open="folder:open_folder",
        reads="a folder of images, with a subfolder for each class",
        options=(
            "images", "fields", "labels_file", "label_column", "label_depth", "classes", "skip_unreadable",
            "key_pattern",
        ),
        splits="folder:splits_in",
        stops_at_annotations=True,
    ),
    SourceKind(
        name="hdf5", open="hdf5.source:open_hdf5",
        reads="data sets of an HDF5 file: .h5, .hdf5; a folder of such files",
        options=_ARRAYS,
        signs=[
            Signs(file=r"\.(h5|hdf5|hdf|he5)$"),
            Signs(holds=r"\.(h5|hdf5|hdf|he5)$", inside=True, decides="array_files:holds_hdf5"),
        ],
    ),
    SourceKind(
        name="labelme", open="detection.labelme:open_labelme",
        reads="images with labelme's JSON files next to them",
        options=("classes", "skip_unreadable"), labels_unread="always",
    ),
    SourceKind(
        name="lerobot", open="lerobot.source:open_lerobot",
        reads="LeRobot's datasets, v2 and v3: episodes with videos of cameras, states and actions",
        options=("image_column", "columns", "episodes"),
        names_others=True,
        signs=[Signs(
            strength=Strength.CONTENT, file=r"(^|/)meta/info\.json$", contains=("meta/info.json",), inside=True,
            decides="lerobot:is_lerobot",
        )],
        splits="lerobot:splits_of", remote=True, extra="lerobot", module="pyarrow",
    ),
    SourceKind(
        name="listing", open="video.source:open_listing",
        reads="a table of paths and fields: .csv, .tsv, .jsonl, .parquet, a list in .json; a plain .txt list; a folder "
        "with a metadata.csv; a folder of .parquet; img2dataset's folders of files",
        options=("fields", "path_column", "label_column", "key_column", "images", "classes", "key_pattern", *_VIDEO),
        signs=[
            Signs(strength=Strength.CONTENT, contains=("export.json",), decides="listing.metadata:is_export"),
            Signs(strength=Strength.TABLE, file=r"\.(csv|tsv|jsonl|ndjson|json|txt|parquet)$"),
            Signs(
                strength=Strength.TABLE, holds=r"\.parquet$", inside=True, decides="listing.metadata:lists_images",
                contains=tuple(f"{up}metadata.{end}" for up in ("", "../") for end in ("csv", "jsonl", "parquet")),
            ),
        ],
        splits="listing.metadata:splits_of",
        names_others=True, labels_unread="folders",
    ),
    *(
        SourceKind(
            name=name, open=f"chunks.source:open_{name}", reads=reads, options=_TABLE,
            signs=[Signs(
                strength=Strength.CONTENT, file=r"(^|/)index\.json$", contains=_INDEXES, decides=f"chunks:is_{name}",
            )],
            splits="chunks:splits_of", names_others=True, remote=True, extra="parquet", extra_for="compressed shards",
        )
        for name, reads in (
            ("litdata", "chunks of litdata: a folder with an index.json"),
            ("mds", "MDS of MosaicML Streaming: a folder of shards with an index.json"),
        )
    ),
    SourceKind(
        name="lmdb", open="lmdb.source:open_lmdb",
        reads="LMDBs of image files: as of STR, LSUN, BasicSR, folder2lmdb and Caffe; of pixels of one size",
        options=("array", "fields"),
        signs=[Signs(file=r"\.(lmdb|mdb)$"), Signs(strength=Strength.CONTENT, contains=("data.mdb",))],
    ),
    SourceKind(
        name="parquet", open="parquet.source:open_parquet",
        reads="Parquet files with images, as on the Hugging Face Hub; folders of save_to_disk",
        options=_TABLE,
        signs=[
            Signs(file=r"\.(parquet|arrow)$", decides="parquet:is_table"),
            Signs(strength=Strength.SOME, holds=_ANY, inside=True, decides="parquet:has_tables"),
        ],
        splits="parquet:splits_of", remote=True, extra="parquet", module="pyarrow",
    ),
    SourceKind(
        name="recordio", open="archives.recordio:open_recordio",
        reads="RecordIO files of MXNet and InsightFace: .rec",
        options=("classes",),
        signs=[
            Signs(file=r"\.rec$", several=r"\.rec$"), Signs(holds=r"\.rec$", decides="archives.recordio:records_in"),
        ],
        remote=True,
    ),
    SourceKind(
        name="store", reads="a rawpack store", open="store:open_stores",
        signs=[Signs(strength=Strength.CONTENT, contains=("store.json",))],
    ),
    SourceKind(
        name="tfrecord", open="tfrecord.source:open_tfrecord",
        reads="TFRecord files of tf.train.Example, also by GZIP or ZLIB; folders of TensorFlow Datasets",
        options=_TABLE,
        signs=[
            Signs(several=r"\.(tfrecords?|tfrec)\b[^/]*$|-of-[\d*?]+$"),
            Signs(file=r"rec|-of-\d|\.gz$", holds=_ANY, inside=True, decides="tfrecord:is_tfrecord"),
        ],
        splits="tfrecord:splits_of", remote=True, extra="tfrecord", module="google_crc32c",
    ),
    SourceKind(
        name="video", open="video.source:open_videos",
        reads="a video, or a folder of videos with a subfolder for each class",
        options=(*_VIDEO, "label_depth", "classes", "skip_unreadable", "key_pattern"),
        signs=[
            Signs(file=_ANY, decides="video:is_called_video"),
            Signs(strength=Strength.BYTES, file=_ANY, decides="video:is_video"),
        ],
        splits="folder:splits_in", stops_at_annotations=True, extra="video",
    ),
    SourceKind(
        name="voc", open="detection.voc:open_voc",
        reads="Pascal VOC's folders: VOC2012",
        options=("fields", "classes", "skip_unreadable"), labels_unread="always",
        signs=[Signs(
            strength=Strength.FOLDERS, contains=("JPEGImages",), inside=True, decides="detection.voc:is_voc",
        )],
        splits="detection.voc:voc_splits",
    ),
    SourceKind(
        name="webdataset", open="archives.webdataset:open_webdataset",
        reads="WebDataset shards: .tar, .tar.gz",
        options=("fields", "classes", "prefix", "skip_unreadable", "key_pattern"),
        signs=[Signs(holds=r"\.(tar|tar\.gz|tgz)$", decides="archives.webdataset:holds_shards")],
        stops_at_annotations=True, remote=True, extra="archives", extra_for="compressed shards",
    ),
    SourceKind(
        name="yolo", open="detection.yolo:open_yolo",
        reads="images with YOLO's text files, in Ultralytics' layout, by its data.yaml, or in two folders",
        options=("classes", "images", "labels_dir", "skip_unreadable"),
        names_others=True, labels_unread="always",
        signs=[
            Signs(file=r"\.ya?ml$"),
            Signs(
                strength=Strength.PLAIN_FOLDERS, inside=True, decides="detection.yolo:is_yolo",
                contains=("labels", "train/labels", "val/labels", "valid/labels", "test/labels"),
            ),
        ],
        splits="detection.ultralytics:yolo_splits", extra="yolo", extra_for="names of classes in data.yaml",
    ),
)  # fmt: skip
KINDS: dict[str, SourceKind] = {kind.name: kind for kind in _ROWS}
"""Name of a kind -> its row. A path that no kind claims is a folder of images, or of videos."""


def open_source(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    spool: Spool | None = None,
    progress: Scanning = unseen,
    divided: bool = False,
    **options: Any,
) -> Table:
    """The samples at `path`. kind: one of `KINDS` or of the plugins; None finds it from what `path` is.

    spool: what fetches files behind URLs; without one, URLs are refused.
    progress: called now and then with the number of entries of the source that were looked at.
    divided: whether the user says what the splits are, so that nobody asks.
    options: of that kind; None, False and () are as if left out.
    Raises UsageError, one line that names the path and the cure, for what is not a source, and for another kind's
    options; DividedError, a UsageError, where `kind` is None and the folder is divided into splits; AnnotatedError
    where it is None and the folder holds annotations that would be lost.
    """
    options = {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and not (isinstance(value, tuple) and not value)
    }
    pattern, classes = options.get("key_pattern"), None
    asked = dict(options)
    if pattern is not None:
        from rawpack_packer.sources.path_fields import join_path_fields, path_pattern

        if "label" in path_pattern(pattern).dtypes:  # a wrong one is refused before anything is read
            classes = options.pop("classes", None)
    opening = _SourceOpening(Listing(path, spool), options, spool, progress)
    if kind in KINDS and kind != "store" and not opening.is_there(kind):
        raise missing(os.fspath(path))
    if instead := stand_in(opening.listing.head):
        raise UsageError(f"{plain(os.fspath(path))} is {instead}")
    source = opening.detect() if kind is None else opening.open(kind)
    if not divided:
        refuse_split_column(source, os.fspath(path), asked)
    if pattern is not None:
        source = join_path_fields(source, pattern, classes)
    takes = KINDS[source.info.kind].options if source.info.kind in KINDS else ()
    if "labels_file" not in options and "classes" in takes:

        def classes_at(sibling: os.PathLike[str]) -> tuple[Sequence[str], bool]:
            if source.info.kind == "parquet":
                from rawpack_packer.sources.parquet.source import first_classes

                return first_classes(sibling, **asked)
            return open_source(sibling, source.info.kind, divided=True, **asked).info.classes or (), True

        add_doubts(source, asked, beside=() if divided else doubts_beside(source, os.fspath(path), classes_at))
    return source


def kinds_at(listing: Listing) -> list[str]:
    """The kinds of which a local path shows the strongest signs; several if these are of one strength."""
    return next(surest(KINDS.values(), listing), [])


def names_others(path: str, kind: str | None) -> bool:
    """Whether a file at a path, by its name alone, may name others in its folder, which are read with it. kind: that of
    the source, if the user says so."""
    rows = [row for row in KINDS.values() if row.names_others and kind in (None, row.name)]
    signs = [sign.file for row in rows for sign in row.signs if sign.file]
    return bool(rows) and (kind is not None or any(re.search(sign, path, re.IGNORECASE) for sign in signs))


def is_there(listing: Listing) -> bool:
    """Whether a path is that of something, or of a split or a folder in something."""
    return listing.exists or bool(kinds_at(listing))


def stop_above_splits(root: str, names: Sequence[str]) -> None:
    """Raise AnnotatedError where splits are plain folders of images, and the folder that they are in holds what
    describes the images."""
    folders = [Listing(root) / name for name in names]
    if all(folder.is_dir for folder in folders) and not all(map(kinds_at, folders)):
        refuse_above(root, names)


@dataclass(frozen=True)
class _SourceOpening:
    """A path that is opened with the options that the user gave."""

    listing: Listing
    options: dict[str, Any]
    spool: Spool | None
    progress: Scanning

    @cached_property
    def kinds(self) -> dict[str, SourceKind]:
        """All kinds, also those that other packages add, none of which takes the place of one of these."""
        return {entry.name: _row_of(entry) for entry in entry_points(group=GROUP)} | KINDS

    def is_there(self, kind: str) -> bool:
        """Whether the path names something, as far as this kind may know. Whoever opens an empty one says so."""
        listing, empty = self.listing, not os.fspath(self.listing)
        return empty or listing.exists or listing.is_url or listing.is_pattern or KINDS[kind].claims(listing)

    def detect(self) -> Table:
        """The source at a path of which nobody says what it is."""
        kind, begun = self.kind()
        listing = self.listing
        if self.options and kind == "folder" and not self.is_there(kind) and "\0" not in os.fspath(listing):
            raise missing(os.fspath(listing))  # rather than that a folder takes none of these options
        tables = kind == "parquet"
        kind = "listing" if tables and lists_paths(listing) else kind
        if names := self.kinds[kind].splits_of(listing):
            if kind == "folder" and not holds_image(listing):
                kind = "video"
            elif kind == "folder" and "labels_file" not in self.options:
                refuse_above(listing, names)
            raise DividedError(os.fspath(listing), names, kind)
        if tables and listing.is_dir:
            refuse_tables(listing)
        try:
            return self.open(kind, detected=True, begun=begun)
        except NoImageError as error:
            if error.videos:
                return self.open("video", detected=True)
            if not error.archives:
                from rawpack_packer.sources.advice import refuse_folder

                refuse_folder(listing, error)
            raise
        except OtherKindError as error:
            return self.open(error.kind)

    def kind(self) -> tuple[str, Pass | None]:
        """The kind of a path that shows the strongest signs; and, of archives, the pass through their first members
        that has shown it."""
        listing, asked = self.listing, self.kinds
        if listing.is_url:
            local = self.spool is None
            asked = {name: row for name, row in asked.items() if name not in KINDS or (row.remote and not local)}
        elif "labels_dir" in self.options and listing.is_dir:
            return "yolo", None
        shows = listing.first if listing.is_pattern and not listing.is_url else listing
        for names in surest(asked.values(), shows):
            if len(names) > 1:
                where, cure = plain(os.fspath(listing)), " or ".join(map(opt.kind, names))
                raise UsageError(f"{where} may be of kind {' or '.join(names)}: {cure} says which")
            kind = names[0]
            if kind not in ("archive", "webdataset"):
                return kind, None
            from rawpack_packer.sources.archives.webdataset import begin

            by_members, begun = begin(listing, self.options.get("fields", ()), self.spool)
            by_members = "archive" if "labels_file" in self.options else by_members
            if kind == "archive" or by_members == kind:
                return by_members, begun
        return self._kind_without_signs(), None

    def _kind_without_signs(self) -> str:
        listing = self.listing
        if listing.is_url:
            if self.spool is None:
                refuse_url(listing)
            else:
                filesystem(os.fspath(listing), self.spool.options)  # a missing package is named before the kind
            remote = sorted(name for name, kind in KINDS.items() if kind.remote)
            raise UsageError(
                f"{source_name(listing)} does not say what it is, as .tar or .parquet at its end would: add {opt.kind} "
                f"{'|'.join(remote)}. `rawpack warm` fetches a store; copy other files here first"
            )
        if listing.is_file and listing.path.suffix.lower() not in IMAGE_EXTENSIONS:
            from rawpack_packer.sources.advice import refuse_file

            refuse_file(listing, sorted(self.kinds))
        # Without options, the scan for images shows whether there are any: see `detect`.
        asked = any(OPTIONS[name].heading == "Video" for name in self.options)
        return "video" if asked and listing.is_dir and not holds_image(listing) else "folder"

    def open(self, kind: str, *, detected: bool = False, begun: Pass | None = None) -> Table:
        """detected: whether the kind was detected, rather than named by the user. begun: what has shown it in
        archives."""
        if kind not in self.kinds:
            raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted(self.kinds))}")
        listing, options = self.listing, {n: value for n, value in self.options.items() if n != "key_pattern"}
        if kind == "video" and listing.is_file and KINDS["listing"].claims(listing):
            kind, options["videos"] = "listing", True
        if kind in KINDS:
            listing.check_ends()
        row = self.kinds[kind]
        if kind in KINDS and kind not in _SEVERAL and listing.is_pattern and not listing.is_url:
            listing = _only_match(listing, kind)
        spooled = row.remote and self.spool is not None
        if not spooled and kind in KINDS:
            refuse_url(listing)
        for name in self.options:
            if name not in row.options:
                homes = sorted(home.name for home in KINDS.values() if name in home.options)
                belongs = f"it belongs to {', '.join(homes)} sources" if homes else "it applies to datasets in memory"
                if name == "labels_file" and kind == "video":
                    words = ["rawpack", "pack", "--images", os.fspath(listing), os.fspath(self.options[name]), "DST"]
                    belongs = f"a table of videos and labels is packed itself, `{plain(shlex.join(words))}`"
                raise UsageError(
                    f"{plain(os.fspath(listing))}, opened as a source of kind {kind}, takes no option "
                    f"{getattr(opt, name)}: {belongs}"
                )
        if "images" in options and kind != "folder":
            options["images"] = one_folder(options["images"])
        options |= {"spool": self.spool} if spooled else {}
        labels = kind == "webdataset" and "{label" in self.options.get("key_pattern", "")
        options |= {"detected": True} if detected and row.stops_at_annotations and not labels else {}
        options |= {"begun": begun} if begun is not None else {}
        if row.module:
            need(row.module, row.extra, source_name(listing))
        return as_table(loaded(row.open)(listing, progress=self.progress, **options))


def _only_match(pattern: Listing, kind: str) -> Listing:
    """The path that a pattern stands for. Raises UsageError where these are several."""
    names = [] if pattern.first is pattern else expanded(os.fspath(pattern))
    if not names or (kind == "folder" and not pattern.first.is_dir):
        raise missing(os.fspath(pattern))
    if len(names) > 1:
        cure = "name one, or the folder that they are in"
        if pattern.first.is_file:
            from rawpack_packer.sources.advice import one_by_one

            names = [name for name in names if os.path.lexists(name)]
            cure = one_by_one(names) if len(names) > 1 else f"name {plain(names[0])}"
        raise UsageError(
            f"{source_name(pattern)} names {listed(names, 3)}, and a source of kind {kind} is one path: {cure}"
        )
    return Listing(names[0])


def _row_of(entry: EntryPoint) -> SourceKind:
    """The row of a kind that another package adds."""

    def load() -> Any:
        try:
            return entry.load()
        except Exception as error:
            raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error

    def accepts(listing: Listing) -> bool:
        function = getattr(load(), "accepts", None)
        return function is not None and function(os.fspath(listing))

    def open_plugin(listing: Listing, *, progress: Scanning) -> Table:
        opened = load()(os.fspath(listing))
        if isinstance(opened, Source):
            return as_table(opened)
        from rawpack_packer.sources.dataset import open_dataset

        return open_dataset(opened)

    signs = Signs(strength=Strength.PLUGIN, decides=accepts)
    return SourceKind(name=entry.name, reads=f"what {entry.value} reads", open=open_plugin, signs=(signs,))
