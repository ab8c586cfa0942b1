"""A folder of image files whose first-level subfolders are the classes, unless they are splits, such as `train/` and
`val/`."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.errors import reason_of
from rawpack_packer.options import opt
from rawpack_packer.sources.base import BaseSource, Scanning, unseen
from rawpack_packer.sources.beside.annotated import refuse_annotations
from rawpack_packer.sources.fields import Fields
from rawpack_packer.sources.files import NOT_SCANNED, FolderPart, missing
from rawpack_packer.sources.folder_scan import ARCHIVES, FolderScan, Wanted
from rawpack_packer.sources.pairs import Folders, with_partners
from rawpack_packer.sources.table.columns import Files
from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import plain

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".tga"}
    | {".avif", ".heic", ".heif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"}
)
"""Files with these are samples without being opened. Those that are not images are rejected when they are packed."""
_INSTEAD: dict[str, Collection[str]] = {
    "archives of this kind are not read: unpack it first, then give its folder; tar and zip are":
        (".7z", ".rar", ".cab", ".iso", ".cpio", ".lz", ".lzma"),
    "a pickle can run code when it is read, so rawpack does not read it: load it in Python if you trust it, and pass "
    "the samples to rawpack_packer.pack":
        (".pkl", ".pickle", ".pt", ".pth", ".joblib"),
    "files of this kind are not read: read it in Python, and pass the samples to rawpack_packer.pack":
        (".beton", ".mds", ".mat"),
    "an .idx lists what another file holds: give the .rec or .tar next to it":
        (".idx",),
}  # fmt: skip
"""What to do with files that are not read -> their suffixes."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_LOOKED_AT = 100
"""Files of a folder without images that show what is in it."""
_NAMES = (
    ("train", "training", "trn", "trainval"),
    ("val", "valid", "validation", "dev", "devel", "development", "eval", "evaluation", "minival"),
    ("test", "testing", "tst", "testdev", "test-dev", "holdout", "hold-out", "hold_out"),
)
"""Names of splits, in the order in which a command lists them."""
_RANKS = {name: rank for rank, names in enumerate(_NAMES) for name in names}
_END = re.compile(r"[ _-]?(set|split|data|images|imgs|\d{4})$")
"""What may follow a name: `train2017`, `test_images`."""
_AS_CLASSES = {"archive", "folder", "video"}
"""Kinds of sources that take folders as classes; others take all of them as one set."""


class NoImageError(UsageError):
    """A folder holds no image. It may hold `videos`."""

    def __init__(self, root: str, what: str, videos: int, archives: str, suffixes: Iterable[str] = ()) -> None:
        """archives: the extension of archives that it holds, "" without any. suffixes: those of its other files."""
        instead = next((words for words, ends in _INSTEAD.items() if {*ends} & {*suffixes}), "")
        cure = instead or "give the folder that holds the images"
        if archives:
            cure = f"`rawpack pack {shlex.quote(root + '/*' + archives)} store/` packs archives as they are"
        super().__init__(f"no image in {root}: {what}; {cure}")
        self.videos = videos


class FolderSource(BaseSource):
    """All image files below a folder, as a `Source`.

    First-level subfolders are classes, numbered in order from 0, also those without images; deeper folders belong to
    them. Images outside them get label -1. Without subfolders there is no `label`. Symbolic links are followed, except
    into a folder that would then contain itself. Names that begin with a dot are left out.

    A file or folder that cannot be looked into ends the scan. With `skip_unreadable` it is a sample that is rejected:
    its key is the path, with "/" at the end for a folder. A first-level folder stays a class, so that labels do not
    shift.

    `info.counts`: hidden (files and folders), videos (`--source video` packs them), other_files (neither),
    special_files (pipes, sockets, devices: never opened), links (to files and folders), loops (links not followed),
    bad_names (not UTF-8), unlabelled (with label -1), empty_classes, problems. With
    `images` also unpaired (their files that belong to no image).
    """

    _all: FolderPart

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        images: Folders = (),
        fields: Fields = (),
        skip_unreadable: bool = False,
        progress: Scanning = unseen,
        detected: bool = False,
    ) -> None:
        """Scan `path`. Only files without an image's extension are opened, for their first bytes.

        images, fields: folders of further images, see `pairs`, and which of them hold masks.
        skip_unreadable: leave out folders and files that cannot be looked into. progress: called with the number of
        entries looked at so far, every 1,000 and at the end. detected: whether the path shows that it is a folder of
        images, and nobody says so: then it may hold no annotations.
        Raises UsageError where `path` is no folder or holds no image, AnnotatedError where it holds annotations,
        UnreadableError where some of it cannot be looked into, PackError where its disk fails or it changes during the
        scan.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a folder of images")
        where = str(Path(path).absolute())
        root = plain(os.fsencode(where))
        scan = scan_folder(where, wanted_images(), progress, skip_unreadable=skip_unreadable)
        self.info = scan.info("folder", root)
        self._all = scan.files()
        if not scan.samples:
            raise NoImageError(root, scan.instead(), scan.counts["videos"], scan.archives(), scan.beside.suffixes)
        if detected:
            refuse_annotations(path, scan.beside, self._all, self.info, scan.head)
        if images or fields:
            scanned = partial(scan_folder, wanted=wanted_images(), progress=progress, skip_unreadable=skip_unreadable)
            self._all, self.info = with_partners(self._all, self.info, images, fields, scanned)

    def labels(self) -> NDArray[np.int64] | None:
        """See `HasLabels`."""
        return self._all.file_labels()

    def pick(self, rows: NDArray[np.int64], /) -> FolderPart:
        """See `CanPick`."""
        return self._all.pick(rows)

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        return np.flatnonzero(self._all.states[:, 0] == NOT_SCANNED)

    def states(self) -> NDArray[np.int64]:
        """(n, 2): size in bytes and mtime in ns of each sample's file when it was scanned; then those of further
        images."""
        further = [one.states for one in self._all.further.values() if isinstance(one, Files)]
        view = np.concatenate([self._all.states, *further])
        view.flags.writeable = False
        return view


def check_folder(path: str, shown: str) -> None:
    """Raise UsageError where `path` is not a folder that can be read. shown: as messages name it."""
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise missing(path) from None
    except NotADirectoryError:
        if path.lower().endswith(ARCHIVES):
            raise UsageError(
                f"{shown} is an archive: leave out {opt.kind('folder')}, and it is packed as it is"
            ) from None
        is_image = Path(path).suffix.lower() in EXTENSIONS
        cure = "give the folder that holds it" if is_image else f"without {opt.kind}, its kind is detected"
        raise UsageError(f"{shown} is a file, not a folder: {cure}") from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{shown} cannot be read: {reason}; check path and permissions") from None


def scan_folder(
    where: str, wanted: Wanted, progress: Scanning = unseen, *, skip_unreadable: bool, most: float = math.inf
) -> FolderScan:
    """A scan of a folder, until `most` files are found. Raises UsageError where it is no folder that can be read,
    UnreadableError where some of it cannot be looked into."""
    root = plain(os.fsencode(where))
    check_folder(where, root)
    scan = FolderScan(where, wanted, progress)
    scan.run(most)
    scan.check(root, skip_unreadable=skip_unreadable)
    return scan


def holds_image(path: Path) -> bool:
    """Whether there is any image below a folder, as far as it can be looked into."""
    return bool(_first_image(path).samples)


def _first_image(path: Path) -> FolderScan:
    return scan_folder(str(path.absolute()), wanted_images(), skip_unreadable=True, most=1)


def wanted_images() -> Wanted:
    """Which files of a folder are images."""
    from rawpack_packer.images import sniff

    return Wanted(EXTENSIONS, sniff, 32, VIDEO_EXTENSIONS, "videos")


def refuse_unknown(file: Path, kinds: Collection[str]) -> None:
    """Raise UsageError for a file of no known kind. kinds: those that can be named."""
    from rawpack_packer.sources.listing.lines import SUFFIXES

    where, suffix = plain(os.fspath(file)), file.suffix.lower()
    if suffix in _COMPRESSED:
        raise UsageError(
            f"{where}: if it is a compressed tar archive, add {opt.kind('archive')}; decompress it otherwise"
        )
    for instead, suffixes in _INSTEAD.items():
        if suffix in suffixes:
            raise UsageError(f"{where}: {instead}")
    raise UsageError(
        f"{where} is no source by its name or its contents. A source is a folder of images or videos; a video; a "
        f"listing ({', '.join(sorted(SUFFIXES))}); COCO's .json; Ultralytics' .yaml; arrays (.npy, .npz, IDX, .h5); an "
        "LMDB; an archive (.tar, .zip, .tar.gz, .tar.bz2); Parquet; a .rec; TFRecord; or a store. If it is one, name "
        f"its kind: {opt.kind('|'.join(kinds))}"
    )


def refuse_arrays(folder: Path) -> None:
    """Raise UsageError where a folder without images holds arrays, which are packed by naming a file."""
    from rawpack_packer.sources.arrays import is_arrays

    try:
        files = [file for file in sorted(folder.iterdir())[:_LOOKED_AT] if file.is_file() and is_arrays(file)]
    except OSError:
        return
    # Of images rather than of labels, by their names.
    first = next((file for file in files if "image" in file.name or "idx3" in file.name), next(iter(files), None))
    if first is not None:
        where = plain(os.fspath(folder))
        raise UsageError(
            f"no image in {where}: it holds arrays; give one of its files, such as {plain(os.fspath(first))}"
        )


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
        one = [os.path.join(source, names[0]) if word == "SRC" else word for word in other]  # noqa: PTH118 - as written
        what = f"the folders in {plain(source)} are splits by their names, not classes"
        folders = not is_url(source) and all((Path(source) / name).exists() for name in names)
        if kind in ("parquet", "cifar", "voc") or not folders:
            what = f"{plain(source)} is divided into the splits {', '.join(map(plain, names))}"
        super().__init__(
            f"{what}: `{plain(pack)}` packs each into a store of its own; "
            + (f"`{plain(shlex.join(one))}` takes one of them; " if one else "")
            + f"{opt.kind(kind)} {'takes them as classes' if kind in _AS_CLASSES else 'packs them as one set'} (in "
            f"Python: pack_splits(..., splits={list(names)}) or kind={kind!r})"
        )

    def asked(self, destination: str, other: Sequence[str] = ()) -> DividedError:
        """The same error, where more is known of what the user asked for."""
        return DividedError(*self._told, destination, other)


def is_split(name: str) -> bool:
    """Whether a folder of this name is a split and hardly ever a class."""
    return _rank(name) is not None


def split_order(name: str) -> tuple[int, str]:
    """Sorts names of splits as a command lists them: train first, names that are no split's last."""
    rank = _rank(name)
    return len(_NAMES) if rank is None else rank, name


def splits_in(path: Path) -> list[str]:
    """The names of the splits that a folder is divided into, train first; empty where it is not divided.

    It is divided if two or more of its folders have names of splits, and the others have no image or video. Empty
    splits are left out; hidden folders do not count.
    """
    try:
        with os.scandir(path) as entries:
            folders = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except (OSError, ValueError):
        return []  # the scan of the folder reports why
    splits = sorted(filter(is_split, folders), key=split_order)
    if len(splits) < 2 or any(_has_samples(path / name) for name in folders if not is_split(name)):
        return []
    return [name for name in splits if _has_samples(path / name, unknown=True)]


def split_names(folders: Sequence[str]) -> list[str]:
    """The names of splits, train first, if all of several folders, each with samples, are splits; otherwise empty."""
    return sorted(folders, key=split_order) if len(folders) > 1 and all(map(is_split, folders)) else []


def _rank(name: str) -> int | None:
    plain = name.lower()
    return _RANKS.get(plain, _RANKS.get(_END.sub("", plain)))


def _has_samples(folder: Path, *, unknown: bool = False) -> bool:
    """Whether there is any image or video below a folder. unknown: the answer where it cannot be read."""
    try:
        scan = _first_image(folder)
    except UsageError:
        return unknown
    return bool(scan.samples or scan.counts["videos"] or (unknown and scan.counts["problems"]))
