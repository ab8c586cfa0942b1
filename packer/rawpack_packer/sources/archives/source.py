"""Archives of folders as a source: tar, compressed or not, and zip."""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.remote.url import is_url
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.archives.index import EXTENSIONS, ZIP_MARKS, Index
from rawpack_packer.sources.archives.labels import read_labels
from rawpack_packer.sources.archives.tar import BLOCK, is_tar
from rawpack_packer.sources.archives.tree import Tree, TreeScan
from rawpack_packer.sources.archives.zip import ENCRYPTED, OTHER_METHOD
from rawpack_packer.sources.base import Scanning, given_options, unseen
from rawpack_packer.sources.beside.annotated import refuse_annotations
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import UnreadableError, opened
from rawpack_packer.sources.folder import FolderSource, wanted_images
from rawpack_packer.sources.folder_scan import MAX_PROBLEMS
from rawpack_packer.sources.optional import Images
from rawpack_packer.sources.splits_on_disk import split_names
from rawpack_packer.sources.table.labels import empty_classes
from rawpack_packer.sources.table.named_files import is_pattern, named_files
from rawpack_packer.sources.table.spans import Spans
from rawpack_packer.text import count, listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.spool import Spool

_OF_OTHERS = (".npz", ".npy")
"""Extensions of zip archives that are another kind of source."""
_SHOWN = 20


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name or its first bytes."""
    if path.name.lower().endswith(EXTENSIONS):
        return True
    if path.suffix.lower() in _OF_OTHERS:
        return False
    try:
        with opened(os.fspath(path)) as fd:
            first = os.read(fd, BLOCK)
    except (OSError, ValueError):
        return False
    return first.startswith(ZIP_MARKS) or is_tar(first)


def names_archives(path: Path) -> bool:
    """Whether a path that is no file names several archives, or a folder in one or several."""
    archives, inside = split_path(os.fspath(path))
    if is_pattern(archives):
        return all(one.lower().endswith(EXTENSIONS) for one in archives.split("::"))
    return inside != "" and is_archive(Path(archives))


class ArchiveSource(FolderSource):
    """The images of a folder in one archive or several, by the rules of `FolderSource`, as if it were unpacked.

    The folder is the one that was archived: the root, or the only folder at the top if nothing is next to it. A path
    such as `photos.tar/train` names another one. Of several members with one path the last one counts. Links lead to
    members only. If there is no image but there are tar archives, each is a folder with its own name: so is ImageNet.
    Other archives in it are an error.

    `info.problems` also names the paths that came more than once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        labels_file: str | os.PathLike[str] | None = None,
        skip_unreadable: bool = False,
        spool: Spool | None = None,
        progress: Scanning = unseen,
        detected: bool = False,
    ) -> None:
        """Read the directory of each archive.

        labels_file: see `labels.py`; of archives without classes. skip_unreadable: pack what is intact of an archive
        that is truncated or damaged, and what is neither encrypted nor compressed in a way that is not read. spool: for
        archives behind URLs. progress: called with the number of members so far, every 1,000 and at the end. detected:
        whether the path shows that it is an archive of a folder, and nobody says so: then it may hold no annotations,
        unless there are labels.
        Raises UsageError where the archives cannot be read or have no image, UnreadableError where one is not intact,
        MissingExtraError where one is compressed and nothing installed can read it.
        """
        outer, inside = split_path(os.fspath(path))
        archives = named_files(outer, spool)
        index = Index(archives, os.fsencode(inside), progress)
        tree, spans = index.tree, index.spans()
        shown = archives.name(0)
        if len(archives) > 1:
            shown += f" and {len(archives) - 1:,} more"
        folder = _folder(tree, os.fsencode(inside), shown)
        root = f"{shown}/{plain(folder)}" if folder else shown
        scan = TreeScan(tree, folder, wanted_images(), spans.head)
        scan.run()
        scan.add_outside()
        for name, problem in index.problems.items():
            scan.add_problem(name, problem)
        scan.check(root, skip_unreadable=skip_unreadable)
        if not scan.samples:
            raise UsageError(f"no image in {root}: {scan.instead()}")
        info = scan.info("archive", root)
        doubled = [f"{plain(name)} is there more than once: the last one counts" for name in tree.doubled]
        problems = (*info.problems, *doubled[:MAX_PROBLEMS])
        self.info = replace(info, paths=archives.on_disk, problems=problems)
        self._all = scan.files(spans)
        if not skip_unreadable:
            _check_zipped(self._all.members, root)
        if detected and labels_file is None:
            packed = os.path.join(outer, os.fsdecode(folder).rstrip("/"))  # noqa: PTH118 - as the user wrote it
            refuse_annotations(path, scan.beside, self._all, info, scan.head, packed)
        self._states = np.concatenate([self._all.states, archives.states])
        if labels_file is not None:
            self._set_labels(labels_file)

    def _set_labels(self, file: str | os.PathLike[str]) -> None:
        info, part = self.info, self._all
        if info.classes is not None:
            raise UsageError(
                f"{info.root} has {count(len(info.classes), 'class folder')}: {opt.labels_file} applies to archives "
                "without them"
            )
        classes, found = read_labels(file, [self.key(i) for i in range(len(self))])
        numbers = np.arange(len(classes), dtype=np.int32)
        self._all = replace(part, folders=part.folders[:1] * len(classes), labels=numbers, folder_of=found)
        self._states = np.concatenate([self._states, [[len(found), zlib.crc32(found.tobytes())]]])
        empty = empty_classes(classes, np.delete(found, self.unread()).astype(np.int64))
        self.info = replace(
            info,
            fields={"label": FieldKind("int64")},
            classes=classes,
            empty_classes=empty,
            flat=False,
            options=given_options(labels_file=os.fspath(file)),
            counts={**info.counts, "empty_classes": len(empty)},
        )

    def splits(self) -> list[str]:
        """See `divided.split_names`."""
        filled = [name for name in self.info.classes or () if name not in self.info.empty_classes]
        return split_names(filled) if self.info.counts["unlabelled"] == 0 else []

    def states(self) -> NDArray[np.int64]:
        """(n + k, 2): of each sample, its size and its time or checksum in the archive; then size and mtime of each
        archive; then, where labels were given, their number and their checksum."""
        view = self._states.view()
        view.flags.writeable = False
        return view


def _check_zipped(members: Images | None, root: str) -> None:
    """Raise UnreadableError where images are encrypted, or compressed in a way that is not read."""
    if not isinstance(members, Spans):
        return
    found = Counter(detail for _, detail in members.faults.values())
    known = {detail: n for detail, n in found.items() if detail == ENCRYPTED or detail.startswith(OTHER_METHOD)}
    if known:
        cures = ("unpack it with its password", "unpack it, or make it again with deflate")
        problems = [
            f"{count(n, 'image')} of {len(members):,} cannot be read: {detail}: {cures[detail != ENCRYPTED]}"
            for detail, n in known.items()
        ]
        raise UnreadableError(root, sum(known.values()), problems)


def split_path(path: str) -> tuple[str, str]:
    """A path or URL as that of an archive or several, and of the folder in them: "" where it goes into no file."""
    if is_url(path):
        return _split_url(path)
    above = path
    while above and not os.path.lexists(above) and os.path.dirname(above) != above:  # noqa: PTH120
        above = os.path.dirname(above)  # noqa: PTH120
    if above != path and above and os.path.isfile(above):  # noqa: PTH113
        return above, path[len(above) :].strip("/")
    for archives, inside in _splits_of(path):
        if is_pattern(archives):
            return archives, inside
    return path, ""


def _split_url(url: str) -> tuple[str, str]:
    http = url.lower().startswith(("http://", "https://"))
    address = re.split("[?#]", url, maxsplit=1)[0] if http else url
    for archives, inside in _splits_of(address):
        return archives + url[len(address) :], inside
    return url, ""


def _splits_of(path: str) -> Iterator[tuple[str, str]]:
    """The ways to divide a path after the extension of an archive."""
    for slash in re.finditer("/", path):
        archives, inside = path[: slash.start()], path[slash.end() :].strip("/")
        known = archives.lower().endswith(EXTENSIONS)
        if known and not is_pattern(inside) and not inside.lower().endswith(EXTENSIONS):
            yield archives, inside


def _folder(tree: Tree, inside: bytes, shown: str) -> bytes:
    """The folder that is packed. inside: as the user named it. Raises UsageError where there is none."""
    if (folder := tree.find(inside)) is not None:
        return folder
    there = [plain(name) for name, node in tree.root.items() if isinstance(node, dict)]
    raise UsageError(
        f"there is no folder {plain(inside)!r} in {shown}: it holds {listed(there, _SHOWN) or 'no folder'}"
    )
