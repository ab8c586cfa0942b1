"""An LMDB database of another tool as a source."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.archives.files import archive_files
from rawpack_packer.sources.archives.spans import Fault, Spans, read_range
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo, check_part, check_sample
from rawpack_packer.sources.fields import FieldKind, Value
from rawpack_packer.sources.files import bad_name, check_unchanged, opened, reason_of, stop_if_of_any_file, text_of
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.listing.table import Texts, texts_of
from rawpack_packer.sources.lmdb.pages import BadLmdbError, LmdbEntry, entries
from rawpack_packer.sources.lmdb.values import LABEL, READERS, holds
from rawpack_packer.text import plain

_DATA = "data.mdb"
_COUNT = b"num-samples"
_IMAGE, _TEXT = re.compile(rb"image-(\d+)"), "text"
_OF_ALL = re.compile(rb"__.+__")
"""Keys that say something of all samples."""
_WORDS = {
    "str": "text recognition (num-samples, image-000000001, label-000000001)",
    "files": "image files by their keys",
    "pickle": "pickles of image and label (folder2lmdb)",
    "datum": "Caffe's Datum",
}
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LmdbPart:
    """Some samples of a database."""

    keys: Texts
    values: Spans
    reader: str
    """One of `READERS`."""
    texts: Texts | None
    """What is written in each image, where a database says it."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key, value = self.key(i), self.values.value(i)
        image, found = READERS[self.reader](value)
        fields: dict[str, Value] = {**found} if self.texts is None else {_TEXT: self.texts.value(i)}
        return Item(key, image, fields, file_bytes=len(value))

    def key(self, i: int, /) -> str:
        """The key in the database."""
        check_sample(self, i)
        return self.keys.value(i)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        return self.values.image_file(i)

    def part(self, start: int, stop: int, /) -> LmdbPart:
        """See `Source.part`."""
        check_part(self, start, stop)
        return self.pick(np.arange(start, stop))

    def pick(self, rows: Rows, /) -> LmdbPart:
        """See `CanPick`."""
        texts = None if self.texts is None else self.texts.pick(rows)
        return LmdbPart(self.keys.pick(rows), self.values.pick(rows), self.reader, texts)


class LmdbSource(BaseSource):
    """The samples of an LMDB database in the order of its keys, as a `Source`.

    Databases of text recognition have a field `text`; pickles and Caffe's Datum have `label`, -1 where it is missing.

    `info.counts`: other_keys (those that are part of no sample).
    """

    _all: LmdbPart

    def __init__(self, path: str | os.PathLike[str], /, *, progress: Callable[[int], None] | None = None) -> None:
        """path: the folder of a `data.mdb`, or the file. progress: called with the number of keys so far.

        Raises UsageError where it is no LMDB file, is damaged, or is of no known scheme.
        """
        where = Path(path).absolute()
        root, files = plain(os.fsencode(where)), archive_files(where / _DATA if where.is_dir() else where)
        state, found = files.state(0), _LmdbEntries()
        try:
            with opened(files.paths[0]) as fd:
                for entry in entries(fd, state[0]):
                    found.add(entry, progress)
                chosen, texts, faults = found.samples(root)
                reader = found.reader(fd, chosen, root)
                check_unchanged(fd, state, root)
        except (BadLmdbError, DecodeError) as error:
            detail = error.detail if isinstance(error, DecodeError) else error
            raise UsageError(f"{root} cannot be read as LMDB: {detail}") from None
        except OSError as error:
            stop_if_of_any_file(error, root)
            raise UsageError(f"{root} cannot be read: {reason_of(error)}") from None
        if progress is not None:
            progress(len(found.keys))
        sizes = np.array(found.sizes, np.int64)[chosen]
        self.scheme = _WORDS["str" if found.is_numbered else reader]
        """Who writes such databases, in words."""
        values = Spans(
            files,
            np.zeros(len(chosen), np.int32),
            np.array(found.offsets, np.int64)[chosen],
            np.stack([sizes, np.full_like(sizes, -1)], axis=1),
            faults,
        )
        keys = [found.name(row) for row in range(len(chosen))] if found.is_numbered else [
            text_of(found.keys[i]) for i in chosen.tolist()
        ]  # fmt: skip
        if faults and len(set(keys)) < len(keys):
            raise UsageError(f"{root} has keys that are not UTF-8 and look the same: write it again with other keys")
        self._all = LmdbPart(texts_of(keys), values, reader, texts)
        fields = {_TEXT: FieldKind("str")} if texts is not None else {}
        self.info = SourceInfo(
            kind="lmdb",
            root=root,
            paths=tuple(dict.fromkeys([str(where), files.paths[0]])),
            fields=fields if reader == "files" else {**fields, LABEL: FieldKind("int64")},
            counts={"other_keys": len(found.keys) - found.used},
        )

    def pick(self, rows: Rows, /) -> LmdbPart:
        """See `CanPick`."""
        return self._all.pick(rows)

    def states(self) -> Rows:
        """The size of each value, then size and mtime of the file."""
        return self._all.values.all_states()


def is_lmdb(path: Path) -> bool:
    """Whether a path is an LMDB database, by its name or that of the file in it."""
    if os.path.isdir(path):  # noqa: PTH112 - False where nothing can be looked into
        return os.path.isfile(path / _DATA)  # noqa: PTH113
    return path.suffix.lower() in (".lmdb", ".mdb")


class _LmdbEntries:
    """The entries of a database."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.offsets, self.sizes = array("q"), array("q")
        self.is_numbered = False
        """Whether it is a database of text recognition: its samples have numbers, from 1."""
        self.used = 0
        """Keys that are part of samples, or say something of all."""
        self._small: dict[bytes, bytes] = {}
        """Values that are needed before the samples are read."""
        self._digits = 9

    def add(self, entry: LmdbEntry, progress: Callable[[int], None] | None) -> None:
        if entry.value is not None and (entry.key == _COUNT or entry.key.startswith(b"label-")):
            self._small[entry.key] = entry.value
        self.keys.append(entry.key)
        self.offsets.append(entry.offset)
        self.sizes.append(entry.size)
        if progress is not None and len(self.keys) % PROGRESS_EVERY == 0:
            progress(len(self.keys))

    def name(self, row: int) -> str:
        """The key of sample `row` of a database of text recognition."""
        return f"image-{row + 1:0{self._digits}d}"

    def samples(self, root: str) -> tuple[Rows, Texts | None, dict[int, Fault]]:
        """The numbers of the entries that are samples, their texts, and why some cannot be read. Raises UsageError."""
        if _COUNT in self._small:
            self.is_numbered = True
            return self._numbered(root)
        chosen = [i for i, key in enumerate(self.keys) if not _OF_ALL.fullmatch(key)]
        if not chosen:
            raise UsageError(f"{root} has no samples")
        self.used = len(self.keys)
        faults = dict[int, Fault]()
        for row, i in enumerate(chosen):
            if (error := bad_name(self.keys[i])) is not None:
                faults[row] = error.reason, error.detail.replace("path", "key").replace("file", "key")
        return np.array(chosen), None, faults

    def reader(self, fd: int, chosen: Rows, root: str) -> str:
        """What reads the values, by the first that is not empty. Raises UsageError, DecodeError, OSError."""
        if self.is_numbered:
            return "files"
        first = next((i for i in chosen.tolist() if self.sizes[i]), None)
        if first is None:
            raise UsageError(f"{root} has no images: all of its values are empty")
        value = read_range(fd, self.offsets[first], self.sizes[first])
        return holds(value, root, numbered=any(_OF_ALL.fullmatch(key) for key in self.keys))

    def _numbered(self, root: str) -> tuple[Rows, Texts | None, dict[int, Fault]]:
        """The same of a database of text recognition."""
        rows = {key: i for i, key in enumerate(self.keys)}
        named = next((match for key in self.keys if (match := _IMAGE.fullmatch(key))), None)
        if named is None:
            kinds = sorted({text_of(key.rpartition(b"-")[0]) for key in self.keys[:10_000] if b"-" in key})
            raise UsageError(
                f"{root} has num-samples and no key image-000000001; it has {plain(', '.join(kinds[:10]))}"
            )
        try:
            count = int(self._small[_COUNT])
        except ValueError:
            count = -1
        if not 0 < count <= len(self.keys):
            said = plain(self._small[_COUNT][:20])
            raise UsageError(f"{root}: its key num-samples says {said}, and it has {len(self.keys):,} keys")
        self._digits = len(named[1])
        texts, faults, chosen = list[str](), dict[int, Fault](), np.zeros(count, np.int64)
        some = any(key.startswith(b"label-") for key in self.keys)
        self.used = 1
        for row in range(count):
            name = self.name(row)
            self.used += (name.encode() in rows) + (name.replace("image", "label").encode() in rows)
            chosen[row] = rows.get(name.encode(), 0)
            if name.encode() not in rows:
                faults[row] = "empty", "there is no such key"
            text = self._small.get(name.replace("image", "label").encode())
            texts.append("" if text is None else text.decode("utf-8", "replace"))
            if some and text is None:
                faults.setdefault(row, ("bad_field", "there is no label of that number, or a very long one"))
            elif text is not None and texts[-1].encode() != text:
                faults.setdefault(row, ("bad_field", "the label is not UTF-8"))
        return chosen, texts_of(texts) if some else None, faults
