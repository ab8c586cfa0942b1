"""What lies beside the images of a folder: what a scan notes of it, and how those who judge it name it in commands.

The scan notes what it lists anyway, one folder after another, and keeps only a few names of each: no second walk, and
memory that does not grow with the number of files.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.text import plain

Head = Callable[[bytes], bytes]
"""The first bytes of a file, by its path below the source; b"" where it cannot be read."""
ENDS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".bmp")
"""Extensions of images that are looked for on disk."""
_CONTAINERS = frozenset({"images", "image", "imgs", "img", "jpegimages", "data", "photos", "pictures", "files"})
_MOST_HITS = 1000
TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})
"""Suffixes of tables."""
PICKLES = frozenset({".pyd", ".pkl", ".pickle", ".pth", ".pt"})
NO_PICKLES = "rawpack does not read pickles, which can run code: see docs/how-to/what-is-not-read.md#pickles"
_OF_CAMERA = re.compile(
    rb"II\*\x00.{4}CR|IIRO|IIRS|IIU\x00|MMOR|FUJIFILMCCD-RAW|FOVb|\x00MRM|II.{4}HEAPCCDR|"
    rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI |\x00\x00\x01[\xb3\xba]|FLV\x01|"
    rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<\?xpacket|<x:xmpmeta|<!DOCTYPE plist|<plist)",
    re.DOTALL,
)
"""How camera raw, videos, and what editors write beside a photo begin."""
_MAKE, _OF_RAW = 271, {330, 50706}
"""Tags of a TIFF file: who made the camera; further images in it, and the version of DNG."""
NEVER = frozenset(
    {"readme", "license", "licence", "copying", "notice", "changelog", "citation", "classes", "labels", "requirements"}
)
"""Names without a suffix of files that describe no image, even if an image has the same name."""
_DST = re.compile(r"`rawpack pack ((?:[^`])*?) DST`")
_MOST_SUFFIXES = 64
_MOST_NAMES = 4096
"""Files of one folder, and of one suffix, that are compared with its images."""
_MOST_OF_FOLDER, _MOST = 8, 256
"""Names of one folder that are kept, and names in all."""
_MOST_APART = 16
"""Folders without an image whose files are compared with the images of others: each look goes through all names."""
_SAMPLED = 4
"""Files of one folder, and of one suffix, that are compared with the images of other folders."""


class AnnotatedError(UsageError):
    """What describes the images is next to them, and the kind of the source was not given."""

    def asked(self, destination: str, other: Sequence[str] = ()) -> AnnotatedError:
        """The same error, where more is known of what the user asked for: see `DividedError`."""
        verb, end = (other[1], list(other[3:])) if other else ("pack", [destination])
        tail = plain("".join(f" {shlex.quote(word)}" for word in end))
        return type(self)(_DST.sub(lambda match: f"`rawpack {verb} {match[1]}{tail}`", str(self)))


class Beside(msgspec.Struct):
    """What is beside the images of a folder, as far as the scan is."""

    suffixes: dict[str, int] = msgspec.field(default_factory=dict)
    """Suffix of files that are no images -> how many there are, in the order in which they came; "" for none."""
    tables: list[bytes] = msgspec.field(default_factory=list)
    """Paths of tables that are not empty, the first few."""
    pairs: dict[str, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)
    """Suffix of files that are named as an image in their folder -> the paths of the first one, and of its image."""
    named: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """The same suffix -> how many files are so named, and how many there are in folders that have images."""
    apart: dict[tuple[bytes, str], list[bytes]] = msgspec.field(default_factory=dict)
    """Folder without an image of its own, and suffix -> the names of two files or more."""
    singles: list[bytes] = msgspec.field(default_factory=list)
    """Paths of files that may describe all images, the first few."""
    above: list[bytes] = msgspec.field(default_factory=list)
    """Names of tables in folders that the folder is in, if it is one in an archive."""
    _noted: dict[str, list[bytes]] = msgspec.field(default_factory=dict)
    """Of the folder that is being listed: suffix -> names."""

    def add(self, name: bytes, suffix: str, size: int) -> None:
        """Take a file that is no image. suffix: in lower case, with its dot."""
        if suffix in self.suffixes or len(self.suffixes) < _MOST_SUFFIXES:
            self.suffixes[suffix] = self.suffixes.get(suffix, 0) + 1
        if size and suffix in self.suffixes:
            names = self._noted.setdefault(suffix, [])
            if len(names) < _MOST_NAMES:
                names.append(name)

    def end(self, folder: bytes, images: Iterable[bytes]) -> None:
        """Take the end of a folder's list. images: the names of what else is in it."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        for suffix in sorted(TABLES & noted.keys()):
            self.tables += [folder + name for name in sorted(noted.pop(suffix))[: max(0, _MOST - len(self.tables))]]
        stems, images = _by_stem(noted), [*images]
        files, hits = sum(map(len, noted.values())), dict[str, dict[bytes, bytes]]()
        for image in images:
            for suffix, name in stems.get(image) or stems.get(image.rpartition(b".")[0]) or ():
                files -= name not in hits.setdefault(suffix, {})
                hits[suffix].setdefault(name, image)
            if not files:
                break
        for suffix, names in noted.items():
            if images:
                named, every = self.named.get(suffix, (0, 0))
                self.named[suffix] = [named + len(hits.get(suffix, ())), every + len(names)]
            if suffix in hits:
                name, image = next(iter(hits[suffix].items()))
                self.pairs.setdefault(suffix, (folder + name, folder + image))
                continue
            some = sorted(names)[:_MOST_OF_FOLDER]
            if not images and len(some) > 1 and len(self.apart) < _MOST_APART:
                self.apart[folder, suffix] = some[:_SAMPLED]
            self.singles += [folder + name for name in some[: max(0, _MOST - len(self.singles))]]


def is_of_camera(head: bytes) -> bool:
    """Whether a file with the name of a photo is the same photo or a video of it, or says how it was developed, by its
    first bytes: it is no label."""
    if _OF_CAMERA.match(head):
        return True
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(head[:4])
    if order is None:
        return False
    with suppress(struct.error):
        (at,) = struct.unpack_from(f"{order}I", head, 4)
        (number,) = struct.unpack_from(f"{order}H", head, at)
        tags = {*(struct.unpack_from(f"{order}H", head, at + 2 + 12 * k)[0] for k in range(min(number, 64)))}
        return _MAKE in tags and bool(tags & _OF_RAW)
    return False


def _by_stem(noted: Mapping[str, Iterable[bytes]]) -> dict[bytes, list[tuple[str, bytes]]]:
    """Files, each with its suffix, by the names that their images may have: `a.jpg` and `a` for `a.jpg.json`."""
    found = dict[bytes, list[tuple[str, bytes]]]()
    for suffix, names in noted.items():
        for name in names:
            for stem in {name.rpartition(b".")[0], name.partition(b".")[0]}:
                if stem and stem.decode("utf-8", "replace").lower() not in NEVER:
                    found.setdefault(stem, []).append((suffix, name))
    return found


class Seen(msgspec.Struct, frozen=True):
    """What there is to judge, and how it is named."""

    path: str
    """As the user wrote it, and as commands name it."""
    beside: Beside
    kind: str
    images: ImageNames | ImagesOnDisk
    filled: Mapping[bytes, int] = msgspec.field(default_factory=dict)
    """Folders that hold images, each ending in "/" -> how many; empty where that is not known."""
    labeled: bool = False
    """Whether the folders give the images two classes or more."""
    depth: int = 1
    """Of the class folders."""
    lines: list[str] = msgspec.field(default_factory=list)
    """What may describe the images and stops nothing, for the summary."""

    def error(
        self,
        what: str,
        cure: str,
        lost: str = "packing the folder would ignore it",
        otherwise: str = "packs the images alone",
    ) -> AnnotatedError:
        """what: what there is, printable. cure: the command, or what to do. lost: what happens otherwise. otherwise:
        what the command does with the kind of the source."""
        what = f"{plain(self.path)} contains {what}, and {lost}"
        return AnnotatedError(f"{what}: {cure}; {opt.kind(self.kind)} {otherwise}")

    @property
    def in_archive(self) -> bool:
        return self.kind == "archive"

    def unpacked(self, cure: str) -> str:
        """What to do with the source, where `cure` is for a folder."""
        return "unpack it, and pack the folder" if self.in_archive else cure

    @property
    def classes_in_paths(self) -> str:
        """The pattern by which paths have the folders as classes; "" where none does: where there are no classes, or
        images at different depths."""
        below = {folder.count(b"/") - self.depth for folder in self.filled}
        return "{label}" + "/{}" * (1 + min(below)) if self.labeled and len(below) == 1 and min(below) >= 0 else ""

    def below(self, path: bytes | str) -> str:
        """A path below the source, as a command names it."""
        return os.path.join(self.path, os.fsdecode(path))  # noqa: PTH118 - as the user wrote it

    def folder(self, path: bytes | str) -> str:
        """The same of a folder, which may end in "/"."""
        return self.below(path).rstrip("/") or "."


class ImageNames(msgspec.Struct, frozen=True):
    """Finds images by their names, or with `stem` by their names without the extension, in the memory that a scan has
    anyway."""

    part: FolderFiles
    head: Head

    def paths(self, name: str, stem: bool) -> Iterator[str]:
        """The paths of images by the last part of a name: the first thousand or so."""
        part, at, last = self.part, -1, b""
        with suppress(UnicodeEncodeError):  # half of a surrogate pair, from a table
            last = os.fsencode(name.rpartition("/")[2])
        wanted = last + b"." if stem else last
        for _ in range(_MOST_HITS if last else 0):
            at = part.names.find(wanted, at + 1)
            if at < 0:
                return
            i = int(np.searchsorted(part.ends, at))
            found = part.names[at : int(part.ends[i + 1])] if int(part.ends[i]) == at else b""
            if found and (found.rpartition(b".")[0] if stem else found) == last:
                yield text_of(part.path(i))

    def keys(self) -> list[str]:
        """The paths of all images, in order."""
        return [self.part.key(i) for i in range(len(self.part))]


class ImagesOnDisk(msgspec.Struct, frozen=True):
    """Finds images in a few folders on disk, as `ImageNames` does in a scan, by a whole name in each."""

    root: Listing
    places: Sequence[str]
    """The folders, below the root; "" for itself."""

    def head(self, path: bytes) -> bytes:
        return (self.root / os.fsdecode(path)).head

    def paths(self, name: str, stem: bool) -> Iterator[str]:
        if not name or "\0" in name or (stem and name.lower().endswith(ENDS)):
            return
        for folder in self.places:
            for end in (*ENDS, ".JPEG", ".JPG", ".PNG") if stem else ("",):
                relative = os.path.join(folder, name + end)  # noqa: PTH118
                if os.path.isfile(self.root.path / relative):  # noqa: PTH113
                    yield relative

    def keys(self) -> list[str]:
        """None: that would take a scan."""
        return []


def command(*words: str) -> str:
    """A command that packs a path, as messages have it."""
    return f"`{plain(shlex.join(['rawpack', 'pack', *words]))} DST`"


def folder_of(path: bytes) -> bytes:
    """The folder of a path below the source, with "/" at its end; b"" for the source itself."""
    return path[: path.rfind(b"/") + 1]


def is_container(name: str) -> bool:
    """Whether a folder of this name may hold all images."""
    return name.lower() in _CONTAINERS


def only_container(filled: Iterable[str]) -> str:
    """The folder that holds all images, by its name; "" where there are several, or the only one may be a class.

    filled: the first-level folders that hold images.
    """
    names = [*filled]
    return names[0] if len(names) == 1 and is_container(names[0]) else ""
