"""What all targets share: their contract, how their files are named, and how the images of a sample become files.

Keys are untrusted: what would lead out of the folder, or could not be in a name on some system, is escaped as in URLs.
A key is refused, before anything is written, if its file would be that of another key too, or its name is too long.
"""

from __future__ import annotations

import io
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.splits import is_split_name, read_splits
from rawpack.errors import DamagedStoreError, PackError, UsageError
from rawpack.pixels import png
from rawpack.system import machine
from rawpack_packer.destination import files
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.journal import Reject
from rawpack_packer.exporting.card import Card
from rawpack_packer.job.options import RunOptions
from rawpack_packer.options import opt
from rawpack_packer.options.option import parse_bytes
from rawpack_packer.provenance import REJECTS
from rawpack_packer.sources import Item
from rawpack_packer.sources.base import numbered
from rawpack_packer.sources.compatible_stores import IMAGE, KEY
from rawpack_packer.sources.exported import CLASSES, NOTE, said_of
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.store import store_rows
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, listed, plain

LISTING = "metadata.jsonl"
_SPLIT = "train"
_AHEAD = 4
"""Blocks per worker that are submitted at a time."""
Block = TypeVar("Block")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExportOptions:
    """See `api.export`. The defaults apply to every target."""

    numbered: bool = False
    shard_size: int | str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.split is not None and not is_split_name(self.split):
            raise UsageError(f"{opt.split(repr(self.split))}: must be a name such as train or val")
        _ = self.shard_bytes

    @property
    def shard_bytes(self) -> int | None:
        return None if self.shard_size is None else parse_bytes(opt.shard_size, str(self.shard_size))

    def split_of(self, store: Path) -> str:
        """The name of the split that a store is: as given, else that of its set, else train."""
        if self.split is not None:
            return self.split
        try:
            found = read_splits(store.parent)
        except DamagedStoreError:
            return _SPLIT
        return store.name if found is not None and store.name in found.splits else _SPLIT


@dataclass
class Written:
    """What a run wrote, and the samples that are damaged."""

    files: int = 0
    bytes: int = 0
    rejects: list[Reject] = field(default_factory=list)
    unnamed: list[tuple[Path, Path]] = field(default_factory=list)
    """The temporary and the final name of each file that does not have its name yet."""


class Target(ABC):
    """How the samples of a store are written into a folder. One is made for each store and folder."""

    takes: ClassVar[frozenset[str]]
    """The options that it takes."""

    def __init__(self, source: Table, folder: Path, options: ExportOptions) -> None:
        store = store_rows(source).stores[0]
        self._source, self._folder, self._options = source, folder, options
        self.suffixes = {name: suffix_of(field) for name, field in store.fields.items() if field.in_shards}
        """Each image and mask -> extension of its files."""
        self.identity: dict[str, Any] = {"store": store.digest, "numbered": options.numbered}
        """What must be the same for a run to resume another; a part of `note`."""

    @abstractmethod
    def check(self) -> None:
        """Raise UsageError where the store cannot be exported in this way."""

    @abstractmethod
    def need_bytes(self, sizes: Sequence[int]) -> int:
        """About how many bytes a sample takes on the disk. sizes: of its files."""

    def own_bytes(self) -> int:
        """About how many bytes files take besides their samples."""
        return 0

    @abstractmethod
    def write(self, run: RunOptions) -> Written:
        """Write all missing files; end early if more samples are damaged than `run` allows. The folder and its WORK
        exist, and WORK has no file named *.tmp."""

    @abstractmethod
    def files(self, samples: int) -> int:
        """The number of files of this many samples."""

    def finish(self, rejects: Sequence[Reject]) -> None:
        """Write what describes all files, which are on the disk: `classes.txt` where there are classes, and their names
        can be lines."""
        names = self._source.info.classes or ()
        if names and all(name and name == name.strip() and len(name.splitlines()) == 1 for name in names):
            lines = "".join(f"{name}\n" for name in names).encode()
            files.write_whole(self._folder / CLASSES, lines, self._folder / WORK / f"{CLASSES}.tmp")

    def note(self, rejects: Sequence[Reject]) -> dict[str, Any]:
        """The contents of `export.json`."""
        counts = {"samples": len(self._source) - len(rejects), "rejected": len(rejects)}
        return {**self.said(), **self.identity, **counts}

    def card(self, folder: str = "") -> Card | None:
        """What a data card says of the files, which are on the disk; None where they need no card. folder: where they
        are, below that of the card."""
        return None

    def said(self) -> dict[str, Any]:
        """What files alone do not tell, see `sources.exported`."""
        fields = store_rows(self._source).stores[0].fields
        return said_of({name: fields[name] for name in fields if name not in (IMAGE, KEY)}, self._source.info.classes)


# ---------------------------------------------------------------------------------------------- the files of a sample


def suffix_of(field: Field) -> str:
    """The extension of an image or mask field's files: ".jpg", ".png", or ".npy" for what PNG cannot hold."""
    return field.codec.suffix or (".png" if png.holds(field.shape, field.dtype) else ".npy")


def contents(item: Item, suffixes: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Images and masks of a sample, by name, each as the bytes of a file with its suffix: JPEG files as they are
    stored, pixels as PNG, other arrays as .npy."""
    for name, suffix in suffixes.items():
        value = item.image if name == IMAGE else item.fields[name]
        yield name, value if isinstance(value, bytes) else _file(np.asarray(value), suffix)


def _file(image: NDArray[np.generic], suffix: str) -> bytes:
    if suffix == ".png":  # (H, W, 1 or 3), uint8 or uint16
        bgr = image[..., ::-1] if image.shape[2] == 3 else image
        done, encoded = cv2.imencode(".png", np.ascontiguousarray(bgr))  # type: ignore[arg-type, unused-ignore]
        if not done:
            raise PackError(f"OpenCV could not write a PNG of {image.shape[1]}x{image.shape[0]} pixels")
        return encoded.tobytes()
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(image), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def plain_value(value: Any) -> Any:
    """A field of a sample as JSON has it."""
    if isinstance(value, str | list):
        return value
    return np.asarray(value.rows if isinstance(value, Boxes) else value).tolist()


def in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], run: RunOptions
) -> Generator[Result, None, None]:
    """The result of each block, in their order; threads work ahead. No further block begins once it is closed."""
    workers = max(1, machine.cpus() if run.workers is None else run.workers)
    waiting, left = deque[Future[Result]](), iter(blocks)
    pool = ThreadPoolExecutor(workers, "export")
    try:
        while True:
            while len(waiting) < workers * _AHEAD and (block := next(left, None)) is not None:
                waiting.append(pool.submit(work, block))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# ---------------------------------------------------------------------------------------------- their names

_OURS = (LISTING, NOTE, CLASSES, REJECTS, WORK)
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
    """Of the image, each further image and each mask."""
    by_number: bool
    """By row instead of by key."""
    masks: Container[str] = ()
    """Which of them are masks."""

    def paths(self, row: int, key: str) -> dict[str, str]:
        """Images and masks of a sample -> path below the folder, parts joined by "/"."""
        stem, end = split_key(numbered(row) if self.by_number else key)
        stem = file_name(stem)
        return {
            name: stem + extension_for(end, suffix)
            if name == IMAGE
            else f"{'masks' if name in self.masks else 'images'}/{name}/{stem}{suffix}"
            for name, suffix in self.suffixes.items()
        }


def check_names(names: Names, keys: Callable[[], Iterable[str]], folder: Path) -> None:
    """Raise UsageError, naming the first ten keys, where keys cannot be names of files in `folder`.

    keys: returns the keys of all samples each time it is called.
    """
    most = _MAX_PATH_BYTES - len(os.fsencode(folder.resolve())) - 1
    taken, folders = array("Q", map(hash_of, _OURS)), set[int]()
    for row, key in enumerate(keys()):
        for path in map(folded, names.paths(row, key).values()):
            taken.append(hash_of(path))
            folders.update(map(hash_of, _folders(path)))
    double = repeated(taken) | folders.intersection(taken)

    def refused(row: int, key: str) -> str:
        paths = names.paths(row, key)
        if not key and not names.by_number:
            return "is empty"
        if reason := next(filter(None, (_refused(path, most) for path in paths.values())), ""):
            return reason
        whole = map(folded, paths.values()) if double else ()
        if any(hash_of(one) in double for path in whole for one in (path, *_folders(path))):
            return f"is, as {plain(paths[IMAGE])!r}, the same as another file or folder on some disk"
        return ""

    refuse_keys(((key, refused(row, key)) for row, key in enumerate(keys())), "files", "the listing has the keys")


def refuse_keys(found: Iterable[tuple[str, str]], what: str, instead: str) -> None:
    """Raise UsageError where keys are refused. found: each key, and why it is refused; "" where it is not. what: they
    cannot name; instead: where keys are if rows name that."""
    total, shown = 0, list[str]()
    for key, reason in found:
        if reason:
            total += 1
            shown += [f"{plain(key)!r} {reason}"][: _SHOWN - len(shown)]
    if total:
        raise UsageError(
            f"{count(total, 'key')} cannot name {what}: {listed(shown, _SHOWN, total=total, separator='; ')}. "
            f"{opt.numbered} names {what} by their row, and {instead}"
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
