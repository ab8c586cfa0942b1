"""A folder of image files whose first-level subfolders are the classes, unless they are splits, such as `train/` and
`val/`."""

from __future__ import annotations

import math
import os
import re
import shlex
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.errors import reason_of
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, Column, Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.beside import is_of_camera
from rawpack_packer.sources.beside.annotated import refuse_annotations
from rawpack_packer.sources.fields import Fields
from rawpack_packer.sources.files import NOT_SCANNED, UnreadableError, missing
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.folder_scan import ARCHIVES, OF_MACOS, ClassFolders, FolderScan, Wanted
from rawpack_packer.sources.labels_file import read_labels
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.pairs import Folders, with_partners
from rawpack_packer.sources.table.assemble import with_labels
from rawpack_packer.sources.table.choose import LABEL, Classes, Labels, classes_from_0, empty_classes, named_file
from rawpack_packer.sources.table.columns import Numbers
from rawpack_packer.sources.table.table import NO_STATES, Table, TablePart
from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import count, plain

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".tga"}
    | {".avif", ".heic", ".heif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"}
)
"""Files with these are samples without being opened. Those that are not images are rejected when they are packed."""
_NAMES = (
    ("train", "training", "trn", "trainval"),
    ("val", "valid", "validation", "dev", "devel", "development", "eval", "evaluation", "minival"),
    ("test", "testing", "tst", "testdev", "test-dev", "holdout", "hold-out", "hold_out", "t10k"),
)
"""Names of splits, in the order in which a command lists them."""
_RANKS = {name: rank for rank, names in enumerate(_NAMES) for name in names}
SPLITS = frozenset(_RANKS)
"""Names of splits, in lower case."""
_END = re.compile(r"[ _-]?(set|split|data|images|imgs|\d{4})$")
"""What may follow a name: `train2017`, `test_images`."""
_FIRST_FOLDERS = 20
"""Folders in a folder that are looked into for a file that shows enough."""
_AS_CLASSES = {"archive", "folder", "video"}
"""Kinds of sources that take folders as classes; others take all of them as one set."""
_ONE_BY_ONE = {"arrays", "hdf5"}
"""Kinds that take one split at a time."""


class NoImageError(UsageError):
    """A folder holds no image. It may hold `videos`."""

    def __init__(self, root: str, scan: FolderScan) -> None:
        self.what, self.videos = scan.instead(), scan.counts["videos"]
        self.suffixes = scan.beside.suffixes
        """Of its other files, suffix -> how many."""
        cure = "give the folder that contains the images"
        self.archives = next((suffix for suffix in self.suffixes if suffix in ARCHIVES), "")
        if ".json" in self.suffixes:
            from rawpack_packer.sources.beside.annotated import command_of_coco

            cure = command_of_coco(root) or cure
        if self.archives:
            cure = f"`rawpack pack {shlex.quote(root + '/*' + self.archives)} store/` packs archives as they are"
        super().__init__(f"no image in {root}: {self.what}; {cure}")


def open_folder(
    path: str | os.PathLike[str],
    /,
    *,
    images: Folders = (),
    fields: Fields = (),
    labels_file: str | os.PathLike[str] | None = None,
    label_column: str | None = None,
    label_depth: int | None = None,
    classes: Classes | None = None,
    skip_unreadable: bool = False,
    progress: Scanning = unseen,
    detected: bool = False,
) -> Table:
    """All image files below a folder. Only files without an image's extension are opened, for their first bytes.

    First-level subfolders are classes, numbered in order from 0, also those without images; deeper folders belong to
    them. Where a single one has all images, in two or more folders, these are the classes. Images outside them get
    label -1. Without subfolders there is no `label`. Symbolic links are followed, except into a folder that would then
    contain itself. Names that begin with a dot are left out, and `__MACOSX`.

    A file or folder that cannot be looked into ends the scan. With `skip_unreadable` it is a sample that is rejected:
    its key is the path, with "/" at the end for a folder. A first-level folder stays a class, so that labels do not
    shift.

    `info.counts`: hidden (files and folders), videos (`--source video` packs them), other_files (neither),
    special_files (pipes, sockets, devices: never opened), links (to files and folders), loops (links not followed),
    bad_names (not UTF-8), unlabelled (with label -1), empty_classes, problems. With `images` also unpaired (their files
    that belong to no image).

    images, fields: folders of further images, see `pairs`, and which of them hold masks. labels_file, label_column:
    labels in place of those of the folders, see `labels_file`, and which column of a table has them. label_depth,
    classes: see `class_folders`. progress: called with the number of entries looked at so far, every 1,000 and at the
    end. detected: whether the path shows that it is a folder of images, and nobody says so: then it may hold no
    annotations, unless there are labels.

    Raises UsageError where `path` is no folder or holds no image, AnnotatedError where it holds annotations,
    UnreadableError where some of it cannot be looked into, PackError where its disk fails or it changes during the
    scan.
    """
    if not os.fspath(path):
        raise UsageError("the source is an empty path: give a folder of images")
    where = str(Path(path).absolute())
    root = plain(os.fsencode(where))
    folders = class_folders(label_depth, classes, labels_file)
    scan = scan_folder(path, wanted_images(), progress, skip_unreadable=skip_unreadable, classes=folders)
    if not scan.samples:
        raise NoImageError(root, scan)
    table = folder_table(scan, scan.info("folder", root), scan.files())
    asks = detected and labels_file is None
    if asks and not images:
        table = refuse_annotations(path, scan, table)
    if images or fields:
        wanted = wanted_images(arrays=True)
        scanned = partial(scan_folder, wanted=wanted, progress=progress, skip_unreadable=skip_unreadable)
        table = with_partners(table, images, fields, scanned)
    if asks and images:  # its files are images of the samples now
        table = refuse_annotations(path, scan, table)
    if detected:
        refuse_splits(path, scan)
    inside = Path(where, labels_file or "")
    return labelled(table, labels_file, label_column, lambda _: inside.read_bytes() if inside.is_file() else None)


def folder_table(scan: FolderScan, info: SourceInfo, files: FolderFiles, states: Rows = NO_STATES) -> Table:
    """The table of a folder's files. states: of all other files, see `Source.states`."""
    labels = scan.labels()
    columns: dict[str, Column] = {} if labels is None else {LABEL: Numbers(labels)}
    unread = np.flatnonzero(files.states[:, 0] == NOT_SCANNED)
    return Table(info, TablePart(files, columns=columns), files.states, states, labels=labels, unread=unread)


def labelled(
    table: Table,
    file: str | os.PathLike[str] | None,
    column: str | None,
    inside: Callable[[str], bytes | None],
) -> Table:
    """The table with the labels of a file; None for its own. inside: what is in a file of the source; None where it has
    no such file."""
    if file is None:
        if column is not None:
            raise UsageError(f"{opt.label_column(plain(column))} names a column of {opt.labels_file}: give both")
        return table
    info, name = table.info, os.fspath(file)
    data = None if os.path.exists(name) else inside(name)  # noqa: PTH110 - it may be too long
    given = read_labels(file, [table.key(i) for i in range(len(table))], info.root.rpartition("/")[2], column, data)
    if given.in_order and (filled := len(info.classes or ()) - len(info.empty_classes)):
        raise UsageError(
            f"{info.root} has {count(filled, 'class folder')}: {opt.labels_file} applies to images without them, "
            "unless it names the images"
        )
    numbers, read = given.labels.numbers, np.delete(np.arange(len(table)), table.unread)
    info = with_labels(info, Labels(numbers[read], given.labels.names))
    none, shown, problems = read[numbers[read] < 0], plain(name), list[str]()
    if len(none):
        problems.append(f"{count(len(none), 'image')} without a label in {shown}: {plain(table.key(int(none[0])))}")
    if given.others:
        what = count(len(given.others), "label")
        problems.append(f"{what} in {shown} of no image that is there, left out: {plain(given.others[0])}")
    info = replace(
        info,
        flat=False,
        options={**info.options, **given_options(labels_file=name, label_column=column)},
        counts={**info.counts, NO_FILE: len(given.others)},
        problems=(*info.problems, *problems),
        doubts=(),
    )
    others = {name: values for name, values in table.rows.columns.items() if name != LABEL}
    return table.but(
        info=info,
        rows=replace(table.rows, columns={LABEL: Numbers(numbers, given.labels.faults), **others}),
        file_states=np.concatenate([table.file_states, [[len(table), zlib.crc32(numbers.tobytes())]]]),
        labels=numbers,
        apart=tuple(given.columns),
        find_column=given.column,
    )


def check_folder(path: str | os.PathLike[str], shown: str) -> None:
    """Raise UsageError where `path` is not a folder that can be read. shown: as messages name it."""
    listing = Listing.of(path)
    if listing.names or listing.error is None:
        return
    where = listing.path.absolute()
    try:
        os.scandir(where).close()  # the scan reports a folder that opens, and cannot be read to its end
    except FileNotFoundError:
        raise missing(str(where)) from None
    except NotADirectoryError:
        if where.name.lower().endswith(ARCHIVES):
            raise UsageError(
                f"{shown} is an archive: leave out {opt.kind('folder')}, and it is packed as it is"
            ) from None
        is_image = where.suffix.lower() in EXTENSIONS
        cure = "give the folder that contains it" if is_image else f"without {opt.kind}, its kind is detected"
        raise UsageError(f"{shown} is a file, not a folder: {cure}") from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{shown} cannot be read: {reason}; check path and permissions") from error


def scan_folder(
    path: str | os.PathLike[str],
    wanted: Wanted,
    progress: Scanning = unseen,
    *,
    skip_unreadable: bool,
    most: float = math.inf,
    classes: ClassFolders | None = None,
) -> FolderScan:
    """A scan of a folder, until `most` files are found. Raises UsageError where it is not a folder that can be read,
    UnreadableError where some of it cannot be looked into."""
    listing = Listing.of(path)
    where = str(listing.path.absolute())
    root = plain(os.fsencode(where))
    check_folder(listing, root)
    scan = FolderScan(where, wanted, progress, listing, classes)
    scan.run(most)
    if scan.counts["problems"] and not skip_unreadable:
        raise UnreadableError(root, scan.counts["problems"], scan.shown_problems())
    return scan


def class_folders(depth: int | None, classes: Classes | None, labels_file: object = None) -> ClassFolders:
    """What the user says of the class folders. depth: how deep below the source they are. classes: their names in the
    order of their numbers. Raises UsageError."""
    if labels_file is not None and (depth is not None or classes is not None):
        raise UsageError(f"{opt.labels_file} has the labels: leave out {opt.label_depth} and {opt.classes}")
    depth = None if depth is None else whole_number("label_depth", depth, 1)
    names = None if classes is None else classes_from_0(classes)
    return ClassFolders(depth, names, given_options(label_depth=depth, classes=named_file(classes)))


def refuse_splits(path: str | os.PathLike[str], scan: FolderScan) -> None:
    """Raise DividedError where the folder that holds all classes is divided into splits."""
    labels = scan.labels()
    empty = () if labels is None else empty_classes(scan.classes, labels)
    if scan.inside and (splits := split_names([name for name in scan.classes if name not in empty])):
        where = os.path.join(os.fspath(path), os.fsdecode(scan.inside[:-1]))  # noqa: PTH118 - as the user wrote it
        raise DividedError(where, splits, scan.wanted.noun.replace("image", "folder"))


def holds_image(listing: Listing) -> bool:
    """Whether there is any image below a folder, as far as it can be looked into."""
    return _names_file(listing, EXTENSIONS) or bool(
        scan_folder(listing, wanted_images(), skip_unreadable=True, most=1).samples
    )


def _names_file(listing: Listing, extensions: Collection[str], depth: int = 2) -> bool:
    """Whether a file with one of these extensions is in a folder or among the first folders in it, so that no scan has
    to find it. depth: of folders that are looked into."""
    for name, is_dir in listing.names.items():
        if not is_dir and os.path.splitext(name)[1].lower() in extensions and (listing / name).is_file:  # noqa: PTH122
            return True
    folders = [name for name, is_dir in listing.names.items() if is_dir and name != OF_MACOS] if depth else []
    return any(_names_file(listing / name, extensions, depth - 1) for name in folders[:_FIRST_FOLDERS])


def wanted_images(*, arrays: bool = False) -> Wanted:
    """Which files of a folder are images. arrays: also those of numpy's own, `.npy`."""
    from rawpack_packer.images import npy, sniff

    def is_image(first: bytes) -> bool:
        kind = sniff(first)
        return (bool(kind) and not (kind == "tiff" and is_of_camera(first))) or (arrays and npy.is_npy(first))

    return Wanted(EXTENSIONS, is_image, 4096, VIDEO_EXTENSIONS, "videos")


class DividedError(UsageError):
    """A folder, or an archive of one, is divided into splits, and its kind was not given."""

    def __init__(
        self, source: str, names: Sequence[str], kind: str, destination: str = "DST", other: Sequence[str] = ()
    ) -> None:
        """source: as the user wrote it. names: of the splits. kind: the source that takes the folder as one.
        destination: of the command that packs the splits. other: another command that helps, in which "SRC" stands for
        one split."""
        self._told = source, tuple(names), kind
        source = shown(source)
        pack = shlex.join(["rawpack", "pack", "--splits", ",".join(names), source, destination])
        alone = kind in _ONE_BY_ONE
        other = other or (["rawpack", "pack", "SRC", destination] if alone else [])
        one = [os.path.join(source, names[0]) if word == "SRC" else word for word in other]  # noqa: PTH118 - as written
        what = f"the folders in {plain(source)} are splits by their names, not classes"
        folders = not is_url(source) and all((Path(source) / name).exists() for name in names)
        if kind in ("parquet", "voc") or not folders:
            what = f"{plain(source)} is divided into the splits {', '.join(map(plain, names))}"
        cures = [f"`{plain(pack)}` packs each into a store of its own"]
        cures += [f"`{plain(shlex.join(one))}` takes one of them"] if one else []
        whole = "takes them as classes" if kind in _AS_CLASSES else "packs them as one set"
        cures += [] if alone else [f"{opt.kind(kind)} {whole}"]
        in_python = f"pack_splits(..., splits={list(names)})" + ("" if alone else f" or kind={kind!r}")
        super().__init__(f"{what}: {'; '.join(cures)} (in Python: {in_python})")

    def asked(self, destination: str, other: Sequence[str] = ()) -> DividedError:
        """The same error, where more is known of what the user asked for."""
        return DividedError(*self._told, destination, other)


def is_split(name: str) -> bool:
    """Whether a folder of this name is a split and hardly ever a class."""
    return _rank(name) is not None


def same_split(one: str, other: str) -> bool:
    """Whether two names are those of the same split, such as `val` and `valid`."""
    return one.lower() == other.lower() or (_rank(one) is not None and _rank(one) == _rank(other))


def split_order(name: str) -> tuple[int, str]:
    """Sorts names of splits as a command lists them: train first, names that are no split's last."""
    rank = _rank(name)
    return len(_NAMES) if rank is None else rank, name


def split_names(folders: Sequence[str]) -> list[str]:
    """The names of splits, train first, if all of several folders, each with samples, are splits; otherwise empty."""
    return sorted(folders, key=split_order) if len(folders) > 1 and all(map(is_split, folders)) else []


def splits_in(listing: Listing) -> list[str]:
    """The names of the splits that a folder is divided into, train first; empty where it is not divided.

    It is divided if two or more of its folders have names of splits, and the others have no image or video. Empty
    splits are left out; hidden folders do not count.
    """
    try:
        folders = [name for name, is_dir in listing.all_names() if is_dir]
    except (OSError, ValueError):
        return []  # the scan of the folder reports why
    splits = sorted(filter(is_split, folders), key=split_order)
    if len(splits) < 2 or any(_has_samples(listing / name) for name in folders if not is_split(name)):
        return []
    return [name for name in splits if _has_samples(listing / name, unknown=True)]


def _rank(name: str) -> int | None:
    plain = name.lower()
    return _RANKS.get(plain, _RANKS.get(_END.sub("", plain)))


def _has_samples(listing: Listing, *, unknown: bool = False) -> bool:
    """Whether there is any image or video below a folder. unknown: the answer where it cannot be read."""
    if _names_file(listing, EXTENSIONS | VIDEO_EXTENSIONS):
        return True
    try:
        scan = scan_folder(listing, wanted_images(), skip_unreadable=True, most=1)
    except UsageError:
        return unknown
    return bool(scan.samples or scan.counts["videos"] or (unknown and scan.counts["problems"]))
