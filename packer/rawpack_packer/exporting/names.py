"""Turns keys into file names, and refuses unsafe keys before anything is written.

Keys are untrusted. A key is refused if it would be outside the folder, could not be a file on some system, or would be
the same file as another.
"""

from __future__ import annotations

import os
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from rawpack.disk.provenance import REJECTS
from rawpack.errors import UsageError
from rawpack_packer.destination.layout import WORK
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import numbered
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.stores.compatible import IMAGE
from rawpack_packer.text import count, listed, plain

LISTING, NOTE, CLASSES, MASKS = "listing.jsonl", "export.json", "classes.txt", "masks"
OURS = (LISTING, NOTE, CLASSES, REJECTS, WORK)
"""What an export writes in addition to images and masks."""
_SHOWN = 10
_MAX_PART_BYTES, _MAX_PATH_BYTES = 255, 4095
_SAME = {".jpg": {".jpg", ".jpeg", ".jpe", ".jfif"}, ".png": {".png"}, ".npy": {".npy"}}
"""Extensions that a file with such bytes may keep."""
_REPLACED = EXTENSIONS | {".npy"}
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?: *\..*)?", re.IGNORECASE
)
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*\x00-\x1f]')


def split_key(key: str) -> tuple[str, str]:
    """A key without the extension of an image, and this extension."""
    stem, end = os.path.splitext(key)  # noqa: PTH122 - a key is no path yet
    return (stem, end) if end.lower() in _REPLACED else (key, "")


def extension_for(end: str, suffix: str) -> str:
    """The extension of an image's file: `end`, that of its key, if such a file may keep it; else `suffix`."""
    return end if end.lower() in _SAME[suffix] else suffix


@dataclass(frozen=True)
class Names:
    """How the files of samples are named."""

    suffixes: Mapping[str, str]
    """Of the image and each mask."""
    by_number: bool
    """By row instead of by key."""

    def paths(self, row: int, key: str) -> dict[str, str]:
        """Image and masks of a sample -> path below the folder, parts joined by "/"."""
        stem, end = split_key(numbered(row) if self.by_number else key)
        return {
            name: stem + extension_for(end, suffix) if name == IMAGE else f"{MASKS}/{name}/{stem}{suffix}"
            for name, suffix in self.suffixes.items()
        }


def check_names(names: Names, keys: Callable[[], Iterable[str]], folder: Path) -> None:
    """Raise UsageError, naming the first ten keys, where keys cannot be names of files in `folder`.

    keys: returns the keys of all samples each time it is called.
    """
    where = len(os.fsencode(folder.resolve())) + 1
    found = _Found()
    for row, key in enumerate(keys()):
        reason = None if names.by_number else refused(key)
        for path in names.paths(row, key).values():
            reason = reason or refused(path, where) or found.add(path)
        if reason:
            found.problem(key, reason)
    doubles = found.doubles()
    first: dict[str, str] = {}
    for row, key in enumerate(keys()) if doubles else ():
        spelled = [folded(path) for path in names.paths(row, key).values()]
        for one in spelled:
            if _hash(one) in doubles and (one in found.folders or one in first):
                file = plain(names.paths(row, key)[IMAGE])
                same = f"and {plain(first.get(one, ''))!r} would be one file, {file!r}, on some disk"
                found.problem(key, "is a folder of other keys" if one in found.folders else same)
                break
        first |= dict.fromkeys((one for one in spelled if _hash(one) in doubles), key)
    if found.count:
        raise UsageError(
            f"{count(found.count, 'key')} cannot be {'the name of a file' if found.count == 1 else 'names of files'}: "
            f"{listed(found.shown, _SHOWN, total=found.count, separator='; ')}. {opt.numbered} names files by their "
            "row, and the listing has the keys"
        )


def refused(path: str, where: int = 0) -> str | None:
    """Why `path` cannot be a file in a folder on every system; None if it can. where: bytes of the folder's path."""
    if not path:
        return "is empty"
    if path.startswith("/"):
        return "is absolute"
    if "\\" in path:
        return "has a backslash, which separates folders on Windows"
    if re.match("[A-Za-z]:", path):
        return "begins with a drive letter"
    if "\0" in path:
        return "has a zero byte"
    try:
        if where + len(os.fsencode(path)) > _MAX_PATH_BYTES:
            return "is too long for a path"
    except UnicodeEncodeError:
        return "has characters that file names on this system cannot have"
    return next((reason for reason in map(_refused_part, path.split("/")) if reason is not None), None)


def _refused_part(part: str) -> str | None:
    """Why a part of a path cannot be the name of a file or folder."""
    if part in ("", "."):
        return "has an empty part"
    if part == "..":
        return "leaves the folder"
    if part[-1] in ". ":
        return "has a part that ends in a dot or space, which Windows drops"
    if _RESERVED.fullmatch(part):
        return "has a part that names a device on Windows"
    if len(part.encode("utf-8", "surrogatepass")) > _MAX_PART_BYTES:
        return f"has a part of more than {_MAX_PART_BYTES} bytes"
    if os.name == "nt" and _NOT_ON_WINDOWS.search(part):
        return "has characters that Windows does not allow"
    return None


def folded(path: str) -> str:
    """A path without differences of case and Unicode form, which some disks ignore."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


class _Found:
    """All paths so far, as 8 bytes per file, and their folders."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []
        self.folders: dict[str, str] = {}
        """Folded path -> path as it is spelled."""
        self._files = array("Q")

    def problem(self, key: str, reason: str) -> None:
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{plain(key)!r} {reason}")

    def add(self, path: str) -> str | None:
        """Note the path of a file. Returns what is wrong with its folders."""
        self._files.append(_hash(folded(path)))
        at = path.find("/")
        while at >= 0:
            folder = path[:at]
            spelled = self.folders.setdefault(folded(folder), folder)
            if spelled != folder:
                return f"is in the same folder as {plain(spelled)!r} where case or Unicode form do not count"
            if folder.lower() in OURS:
                return f"is in a folder {plain(folder)!r}, which is the name of a file next to it"
            at = path.find("/", at + 1)
        return None

    def doubles(self) -> set[int]:
        """Hashes of files that occur twice, or are folders too."""
        hashes = np.sort(np.frombuffer(self._files, np.uint64))
        folders = np.fromiter(map(_hash, self.folders), np.uint64, len(self.folders))
        return set(hashes[1:][hashes[1:] == hashes[:-1]].tolist()) | set(np.intersect1d(hashes, folders).tolist())


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
