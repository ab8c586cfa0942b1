"""Archives of folders as a source: tar, compressed or not, and zip."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.errors import reading
from rawpack_packer.sources.archives.opened import FoundMember, Pass, opened_archive
from rawpack_packer.sources.archives.tar import BLOCK, BadArchiveError, Member, is_tar
from rawpack_packer.sources.archives.tree import Tree, TreeScan
from rawpack_packer.sources.archives.zip import ENCRYPTED, MARKS, OTHER_METHOD
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.beside.annotated import refuse_annotations
from rawpack_packer.sources.files import MAX_PROBLEMS, UnreadableError
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import (
    DividedError,
    class_folders,
    folder_table,
    labelled,
    split_names,
    wanted_images,
)
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import Classes
from rawpack_packer.sources.table.columns import Spans
from rawpack_packer.sources.table.named_files import is_pattern, named_files
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

EXTENSIONS = (
    ".tar", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst",
)  # fmt: skip
_NESTED = tuple(extension.encode() for extension in (*EXTENSIONS, ".7z", ".rar"))
"""Endings of archives in archives."""
_OF_OTHERS = (".npz", ".npy")
"""Extensions of zip archives that are another kind of source."""
_SHOWN = 20


def is_archive(listing: Listing) -> bool:
    """Whether a path is that of an archive by its name or its first bytes; of several, or of a folder in such."""
    if not (listing.is_file or listing.is_url):
        archives, inside = split_path(os.fspath(listing.path))
        if inside or not listing.is_pattern:
            return inside != "" and is_archive(Listing(archives))
    if listing.path.name.lower().endswith(EXTENSIONS):
        return True
    if listing.path.suffix.lower() in _OF_OTHERS:
        return False
    if listing.is_pattern and not listing.is_url:
        return listing.first is not listing and is_archive(listing.first)
    return listing.head.startswith(MARKS) or is_tar(listing.head[:BLOCK])


def open_archive(
    path: str | os.PathLike[str],
    /,
    *,
    labels_file: str | os.PathLike[str] | None = None,
    label_column: str | None = None,
    label_depth: int | None = None,
    classes: Classes | None = None,
    skip_unreadable: bool = False,
    spool: Spool | None = None,
    progress: Scanning = unseen,
    detected: bool = False,
    begun: Pass | None = None,
) -> Table:
    """The images of a folder in one archive or several, by the rules of `open_folder`, as if it were unpacked.

    The folder is the one that was archived: the root, or the only folder at the top if nothing is next to it. A path
    such as `photos.tar/train` names another one. Of several members with one path the last one counts. Links lead to
    members only. If there is no image but there are tar archives, each is a folder with its own name: so is ImageNet.
    Other archives in it are an error. `info.problems` also names the paths that came more than once.

    labels_file, label_column, label_depth, classes: see `open_folder`; the file may be in the archive.
    skip_unreadable: pack what is intact of an archive that is truncated or damaged, and what is neither encrypted nor
    compressed in a way that is not read. spool: for archives behind URLs. progress: called with the number of members
    so far, every 1,000 and at the end. detected: whether the path shows that it is an archive of a folder, and nobody
    says so: then it may hold no annotations, unless there are labels. begun: the pass through the archives, if it has
    begun.

    Raises UsageError where the archives cannot be read or have no image, UnreadableError where one is not intact,
    MissingExtraError where one is compressed and nothing installed can read it.
    """
    outer, named = split_path(os.fspath(path))
    inside = os.fsencode(named)
    index = _Index(begun or Pass(named_files(outer, spool)), inside, progress)
    tree, spans, archives = index.tree, index.spans(), index.archives
    shown = archives.name(0)
    if len(archives) > 1:
        shown += f" and {len(archives) - 1:,} more"
    if (folder := tree.find(inside)) is None:
        if index.problems and not skip_unreadable:
            raise UnreadableError(shown, len(index.problems), index.problems.values())
        folders = [plain(name) for name, node in tree.root.items() if isinstance(node, dict)]
        holds = listed(folders, _SHOWN) or "no folder"
        raise UsageError(f"there is no folder {plain(inside)!r} in {shown}: it contains {holds}")
    root = f"{shown}/{plain(folder)}" if folder else shown
    scan = TreeScan(tree, folder, wanted_images(), spans.head, class_folders(label_depth, classes, labels_file))
    scan.run()
    scan.add_outside()
    for name, problem in index.problems.items():
        scan.add_problem(name, problem)
    files = scan.files_in(spans) if scan.samples else None
    unread = Counter[str]() if files is None or files.members is None else _zipped(files.members)
    lost = scan.counts["problems"] + unread.total()
    if lost and not skip_unreadable:
        lines = [
            f"{count(n, 'image')} of {scan.samples:,} cannot be read: {detail}: "
            + ("unpack it with its password" if detail == ENCRYPTED else "unpack it, or make it again with deflate")
            for detail, n in unread.items()
        ]
        raise UnreadableError(root, lost, (*scan.shown_problems(), *lines))
    if files is None:
        from rawpack_packer.sources.advice import cifar_error

        raise cifar_error(Path(outer)) or UsageError(f"no image in {root}: {scan.instead()}")
    info = scan.info("archive", root)
    doubled = [f"{plain(name)} is there more than once: the last one counts" for name in tree.doubled]
    info = replace(info, paths=archives.on_disk, problems=(*info.problems, *doubled[:MAX_PROBLEMS]))
    table = folder_table(scan, info, files, archives.states).but(beside=tree.beside(folder))
    if detected and labels_file is None:
        table = refuse_annotations(path, scan, table)
    table = labelled(table, labels_file, label_column, partial(_inside, tree, folder, spans))
    filled = [name for name in info.classes or () if name not in info.empty_classes]
    if detected and info.counts["unlabelled"] == 0 and (splits := split_names(filled)):
        below = f"{os.fsdecode(folder)}/{os.fsdecode(scan.inside)}" if scan.inside else ""
        raise DividedError(os.path.join(outer, below.strip("/")) if below else os.fspath(path), splits, "archive")  # noqa: PTH118
    return table


class _Index:
    """All members of archives, unpacked into one tree.

    If there is no image but there are tar archives in them, these are unpacked too, each into a folder with its name
    without the extension: ImageNet is a tar of tars. What is left of archives in archives cannot be read.
    """

    def __init__(self, look: Pass, inside: bytes, progress: Scanning) -> None:
        """inside: the folder that is packed, as the user named it, or b"".

        Raises MissingExtraError for a compressed one that nothing can read; UsageError for what is not an archive, or
        of another kind than the first.
        """
        self.tree = Tree()
        self.problems: dict[bytes, str] = {}
        """Archives that cannot be read to their end: a name for each -> why, for a person."""
        self.archives, self._progress, self._seen = look.files, progress, 0
        self._nested = False
        """Whether any member is an archive by its name."""
        self._first: tuple[int, bool] | None = None
        """The first archive with members, and whether it is a zip archive: then all are."""
        for k, found in look:
            shown = self.archives.name(k)
            with reading(shown):
                self._add(found, k, f"{k}/{shown.rpartition('/')[2]}".encode(), shown)
        self.archives = look.files
        if self._nested:
            self._add_nested(inside)
        progress(self._seen)

    def spans(self) -> Spans:
        """Where everything is that has a number in the tree."""
        tree = self.tree
        return Spans(
            self.archives,
            np.array(tree.archive, np.int32),
            np.array(tree.offset, np.int64),
            np.array([tree.size, tree.time], np.int64).T,
            tree.faults,
            packed=np.array(tree.packed, np.int64).reshape(-1, 2) if tree.packed else None,
        )

    def _add(self, found: Iterable[FoundMember], k: int, name: bytes, shown: str, folder: bytes = b"") -> None:
        """Add members of archive k, below `folder`. name, shown: of what is read, if it cannot be read to its end."""
        before = self._seen
        try:
            for member, _ in found:
                self._seen += 1
                if self._seen % PROGRESS_EVERY == 0:
                    self._progress(self._seen)
                self._check_kind(k, member.packed is not None)
                self.tree.add(member._replace(name=folder + member.name) if folder else member, k)
                if member.kind == "file":
                    self._nested = self._nested or member.name[-8:].lower().endswith(_NESTED)
                    if not member.name.strip(b"./"):
                        self.problems[name + b"/%d" % member.offset] = (
                            f"{shown}: the member at byte {member.offset} has no name"
                        )
        except (BadArchiveError, DecodeError) as error:
            detail = error.detail if isinstance(error, DecodeError) else error
            intact = count(self._seen - before, "member")
            self.problems[name + b"/"] = f"{shown} cannot be read to its end: {detail}; {intact} before that"

    def _check_kind(self, k: int, is_zip: bool) -> None:
        first, was_zip = self._first = self._first or (k, is_zip)
        if was_zip != is_zip:
            names = f"{self.archives.name(first)} and {self.archives.name(k)}"
            raise UsageError(f"{names} are of different kinds: pack zip and tar archives separately")

    def _add_nested(self, inside: bytes) -> None:
        """Unpack the tar archives in archives, unless there are images: then all of them are problems, as others are.

        That is decided by what is in the folder that is packed. Where it is only in such an archive, all are unpacked.
        """
        tree, folder = self.tree, self.tree.find(inside)
        images, nested = self._below(folder or b"")
        if images and folder is not None:
            for path, number in nested.items():
                self._problem(path, number, beside=images)
            return
        for k, paths in itertools.groupby(nested, key=lambda path: tree.archive[nested[path]]):
            with opened_archive(self.archives, k) as archive:
                for path in paths:
                    number = nested[path]
                    if self._is_inner(path) and number not in tree.faults:
                        tree.remove(path)
                        start = tree.offset[number]
                        found = archive.members("", start, start + tree.size[number])
                        shown = f"{self.archives.name(k)}/{plain(path)}"
                        self._add(found, k, b"%d/%s" % (k, path), shown, self._add_folder(path))
                    else:
                        self._problem(path, number)
                        self._add_folder(path)
        # These are in an archive in an archive.
        for path, number in self._below(tree.find(inside) or b"")[1].items():
            self._problem(path, number)

    def _is_inner(self, path: bytes) -> bool:
        """Whether an archive in an archive is one that can be unpacked."""
        return path.lower().endswith(b".tar") and not self.tree.packed

    def _below(self, folder: bytes) -> tuple[int, dict[bytes, int]]:
        """The images below a folder, by their names, and the archives, in the order in which they are stored."""
        images, nested = 0, dict[bytes, int]()
        for path, number in self.tree.files(folder):
            name = path.lower()
            if name.endswith(_NESTED):
                nested[path] = number
            images += os.fsdecode(os.path.splitext(name)[1]) in IMAGE_EXTENSIONS  # noqa: PTH122
        tree = self.tree
        return images, dict(sorted(nested.items(), key=lambda found: (tree.archive[found[1]], tree.offset[found[1]])))

    def _add_folder(self, path: bytes) -> bytes:
        """Have a folder in place of an archive, with its name, even if nothing of it can be read: it may be a class,
        and without it the numbers of others would change."""
        folder = next(path[: -len(ending)] for ending in _NESTED if path.lower().endswith(ending)) + b"/"
        self.tree.add(Member(folder, "folder", 0, 0, 0, b""), 0)
        return folder

    def _problem(self, path: bytes, number: int, beside: int = 0) -> None:
        """Record an archive in an archive that is not read. beside: the number of images next to it."""
        k = self.tree.archive[number]
        outer = self.archives.name(k)
        self.tree.remove(path)
        if beside and self._is_inner(path):
            why = (
                f"is an archive next to {count(beside, 'image')}: take out the one or the other, or name the folder to "
                f"pack, such as {outer}/{plain(path[: -len('.tar')])}"
            )
        else:
            why = (
                "is an archive in an archive, of which only a .tar in a tar archive is read: unpack both, this one "
                "into a folder with its name, and pack the folder; or take it out"
            )
            why += f", or name the folder to pack: {outer}/FOLDER" if beside else ""
        self.problems[b"%d/%s" % (k, path)] = f"{outer}/{plain(path)} {why}"


def _zipped(members: Spans) -> Counter[str]:
    """Why images are not read that are encrypted, or compressed in a way that is not read -> how many."""
    details = (detail for _, detail in members.faults.values())
    return Counter(detail for detail in details if detail == ENCRYPTED or detail.startswith(OTHER_METHOD))


def _inside(tree: Tree, folder: bytes, spans: Spans, file: str) -> bytes | None:
    """What is in a member by its path, from the root or from the folder that is packed; None where there is none."""
    name = os.fsencode(split_path(file)[1] or file)
    for path in (name, folder + b"/" + name):
        with suppress(OSError):
            if isinstance(number := tree.resolve(tree.root, path), int):
                try:
                    return spans.value(number)
                except DecodeError as error:
                    raise UsageError(f"{plain(file)}, in the archive, cannot be read: {error.detail}") from error
    return None


def split_path(path: str) -> tuple[str, str]:
    """A path or URL as that of an archive or several, and of the folder in them: "" where it goes into no file."""
    if is_url(path):
        http = path.lower().startswith(("http://", "https://"))
        address = re.split("[?#]", path, maxsplit=1)[0] if http else path
        splits = ((archives + path[len(address) :], inside) for archives, inside in _splits_of(address))
        return next(splits, (path, ""))
    above = path
    while above and not os.path.lexists(above) and os.path.dirname(above) != above:  # noqa: PTH120
        above = os.path.dirname(above)  # noqa: PTH120
    if above != path and above and os.path.isfile(above):  # noqa: PTH113
        return above, path[len(above) :].strip("/")
    return next((split for split in _splits_of(path) if is_pattern(split[0])), (path, ""))


def _splits_of(path: str) -> Iterator[tuple[str, str]]:
    """The ways to divide a path after the extension of an archive."""
    for slash in re.finditer("/", path):
        archives, inside = path[: slash.start()], path[slash.end() :].strip("/")
        is_end = archives.lower().endswith(EXTENSIONS)
        if is_end and not is_pattern(inside) and not inside.lower().endswith(EXTENSIONS):
            yield archives, inside
