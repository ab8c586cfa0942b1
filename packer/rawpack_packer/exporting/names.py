"""Turns keys into names of files, by one rule for all targets, and refuses keys before anything is written.

Keys are untrusted: what would lead out of the folder, or could not be in a name on some system, is escaped as in URLs.
A key is refused if its file would be that of another key too, or its name is too long.
"""

from __future__ import annotations

import os
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from rawpack.disk.provenance import REJECTS
from rawpack.errors import UsageError
from rawpack_packer.destination.layout import WORK
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import numbered
from rawpack_packer.sources.compatible_stores import IMAGE
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.text import count, listed, plain

LISTING, NOTE, CLASSES, MASKS = "listing.jsonl", "export.json", "classes.txt", "masks"
OURS = (LISTING, NOTE, CLASSES, REJECTS, WORK)
"""What an export writes in addition to images and masks."""
_SHOWN = 10
_MAX_PART_BYTES, _MAX_PATH_BYTES = 255, 4095
_SAME = {".jpg": {".jpg", ".jpeg", ".jpe", ".jfif"}, ".png": {".png"}, ".npy": {".npy"}}
"""Extensions that a file with such bytes may keep."""
_REPLACED = EXTENSIONS | {".npy"}
_ESCAPED = re.compile(
    r'[\x00-\x1f\x7f\\<>:"|?*]'  # end a name, separate folders, or are not allowed on Windows
    r"|\A/|(?<=/)/|/\Z"  # an absolute path, and empty parts
    r"|(?<![^/])\.{1,2}(?=/)|[. ](?=/)"  # the folders "." and "..", and ends that Windows drops
    r"|(?<![^/])(?=(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:[./]|\Z)).",  # devices
    re.IGNORECASE,
)


def file_name(key: str) -> str:
    """A key without its extension as a path below a folder, on any system: what cannot be in one is written as in
    URLs."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), key)


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
        stem = file_name(stem)
        return {
            name: stem + extension_for(end, suffix) if name == IMAGE else f"{MASKS}/{name}/{stem}{suffix}"
            for name, suffix in self.suffixes.items()
        }


def check_names(names: Names, keys: Callable[[], Iterable[str]], folder: Path) -> None:
    """Raise UsageError, naming the first ten keys, where keys cannot be names of files in `folder`.

    keys: returns the keys of all samples each time it is called.
    """
    most = _MAX_PATH_BYTES - len(os.fsencode(folder.resolve())) - 1
    files, folders = array("Q", map(hash_of, OURS)), set[int]()
    for row, key in enumerate(keys()):
        for path in map(folded, names.paths(row, key).values()):
            files.append(hash_of(path))
            folders.update(hash_of(inner) for inner in _folders(path))
    taken = repeated(files) | folders.intersection(files)
    found, shown = 0, list[str]()
    for row, key in enumerate(keys()):
        paths = names.paths(row, key)
        reason = next(filter(None, (_refused(path, most) for path in paths.values())), "")
        if not key and not names.by_number:
            reason = "is empty"
        elif not reason and taken:
            whole = map(folded, paths.values())
            if any(hash_of(one) in taken for path in whole for one in (path, *_folders(path))):
                reason = f"is, as {plain(paths[IMAGE])!r}, the same as another file or folder on some disk"
        if reason:
            found += 1
            shown += [f"{plain(key)!r} {reason}"][: _SHOWN - len(shown)]
    if found:
        raise UsageError(
            f"{count(found, 'key')} cannot name files: {listed(shown, _SHOWN, total=found, separator='; ')}. "
            f"{opt.numbered} names files by their row, and the listing has the keys"
        )


def _refused(path: str, most: int) -> str:
    """Why a path cannot be a file; "" if it can. most: bytes that it may have."""
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        return "has characters that file names on this system cannot have"
    return "is too long" if size > most or max(map(len, path.encode().split(b"/"))) > _MAX_PART_BYTES else ""


def _folders(path: str) -> Iterator[str]:
    """The folders that a path is in."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def folded(path: str) -> str:
    """A path without differences of case and Unicode form, which some disks ignore."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def repeated(hashes: array[int]) -> set[int]:
    """The numbers that occur twice."""
    found = np.sort(np.frombuffer(hashes, np.uint64))
    return set(found[1:][found[1:] == found[:-1]].tolist())


def hash_of(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"))
