"""An LMDB database of another tool as a source; and what its values hold, by the first of them: an image file, a
pickle, or Caffe's `Datum`, the protocol buffer in its databases, with an image as planes or as a file, and a label."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Item, Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.fields import SHARE_SLACK, FieldKind, Fields, check_names, clipped_line
from rawpack_packer.sources.files import bad_name, check_unchanged, opened, text_of
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.lmdb.look import BadLmdbError, LmdbEntry, entries
from rawpack_packer.sources.named_arrays import Arrays, named_arrays
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.choose import IMAGE, LABEL, LABEL_KIND, NO_COUNTS, Labels, number_labels
from rawpack_packer.sources.table.columns import (
    Fault,
    RaggedColumn,
    Spans,
    Texts,
    ends_of,
    read_range,
    spans_of,
    texts_of,
)
from rawpack_packer.sources.table.named_files import NamedFiles, named_files
from rawpack_packer.sources.table.objects import MOST_CLASSES, all_faulty
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, plain

_DATA = "data.mdb"
_COUNT, _IMAGE_OF, _LABEL = b"num-samples", b"image-", b"label-"
_IMAGE, _TEXT = re.compile(rb"image-(\d+)"), "text"
_SIDES = {b"cls": LABEL, b"txt": _TEXT, b"json": "json"}
"""Ends of keys whose values describe the image of the same name -> what they become."""
_BOX_ROWS = re.compile(r"(\w+)[=:]([^:=]+):yolo")
_PIXELS = re.compile(r"(?:([^:=]+):)?([1-9]\d{0,4})x([1-9]\d{0,4})(:bgr)?")
_ROW_WORDS = "class, then x and y of the center, width and height as shares of the image"
_ROW = ("class", "x", "y", "width", "height")
_NUMBER_TEXT = re.compile(rb"\s*[+-]?\d{1,18}\s*")
_OF_ALL = re.compile(rb"__.+__")
"""Keys that say something of all samples."""
Sample = tuple[bytes | NDArray[np.uint8], dict[str, int]]
"""The image and the fields of one."""
_BOXES = FieldKind("float32", (None, len(_ROW)), boxes="yolo")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PAGE = "docs/how-to/what-is-not-read.md#lmdb"


@dataclass(frozen=True, eq=False, kw_only=True)
class LmdbImages(Spans):
    """The values of a database, each an image, perhaps with its label: `Spans` in its file."""

    read: Callable[[bytes], Sample] | None
    """See `ValueLayout`."""

    def value(self, i: int, /) -> Item:  # type: ignore[override]  # the label is in the same bytes
        value = super().value(i)
        image, fields = (value, {}) if self.read is None else self.read(value)
        return Item("", image, fields, file_bytes=len(value))


@dataclass(frozen=True)
class Pixels:
    """Values that are the pixels of images of one size, as the user says."""

    end: bytes
    """What follows the last dot of their keys; empty for all keys."""
    height: int
    width: int
    bgr: bool

    def image(self, value: bytes) -> Sample:
        """The image is (H, W, 3) in RGB, or (H, W)."""
        size = self.height * self.width
        if len(value) not in (size, 3 * size):
            what = f"{len(value):,} bytes are not {self.height} x {self.width} pixels of 1 or 3 bytes"
            raise DecodeError("truncated" if len(value) < size else "unsupported", what)
        pixels = np.frombuffer(value, np.uint8).reshape(self.height, self.width, -1)
        if pixels.shape[2] == 1:
            return pixels[..., 0], {}
        return np.ascontiguousarray(pixels[..., ::-1] if self.bgr else pixels), {}


def _image_of_pixels(value: bytes, pixels: Pixels) -> Sample:
    return pixels.image(value)


def _declared_boxes(fields: Fields) -> dict[bytes, str]:
    """End of keys -> the field of boxes that their values become, as the user says. Raises UsageError."""
    boxes = dict[bytes, str]()
    for word in words_of(fields):
        if not (match := _BOX_ROWS.fullmatch(word)):
            what = "for LMDB, write boxes=txt:yolo for keys that end in .txt, with rows of five float64: "
            raise UsageError(f"{opt.fields(word)}: {what}{_ROW_WORDS}")
        boxes[match[2].encode()] = match[1]
    check_names(boxes.values())
    return boxes


def _declared_pixels(named: Mapping[str, str]) -> Pixels | None:
    """named: see `named_arrays`. Raises UsageError."""
    pixels = None
    for name, value in named.items():
        if name != IMAGE or not (match := _PIXELS.fullmatch(value)):
            what = "for LMDB, write image=jpg:HEIGHTxWIDTH for keys that end in .jpg, whose values are pixels of this "
            what += "size; :bgr after it is for OpenCV's order of colors"
            raise UsageError(f"{opt.array(plain(f'{name}={value}'))}: {what}")
        pixels = Pixels((match[1] or "").encode(), int(match[2]), int(match[3]), bool(match[4]))
    return pixels


def open_lmdb(
    path: str | os.PathLike[str], /, *, array: Arrays = (), fields: Fields = (), progress: Scanning = unseen
) -> Table:
    """The samples of an LMDB database in the order of its keys.

    Databases of text recognition have a field `text`; pickles and Caffe's Datum have `label`, -1 where it is missing.
    `a.txt` is the text of the file `a.jpg`, or its label if all are whole numbers; `a.cls` is its label, `a.json` text.
    Rows of numbers become boxes, and values pixels, where the user says so.

    `info.counts`: other_keys (those that are part of no sample); where keys are labels, unlabelled and empty_classes.

    path: the folder of a `data.mdb`, or the file. array: `image=jpg:HEIGHTxWIDTH`, keys whose values are pixels.
    fields: `boxes=txt:yolo`, keys whose values are rows of float64. progress: called with the number of keys so far.

    Raises UsageError where it is not an LMDB file, is damaged, or is of an unknown scheme.
    """
    where = Path(path).absolute()
    root, boxes = plain(os.fsencode(where)), _declared_boxes(fields)
    named = named_arrays(array) if array else {}
    pixels = _declared_pixels(named)
    try:
        with reading(root):
            file = where / _DATA if where.is_dir() else where
            database = _Database(named_files(file), root, boxes, pixels)
            name, state = database.files.paths[0], database.files.state(0)
            with opened(name) as fd:
                for entry in entries(name, database.at_once):
                    database.add(entry, progress)
                database.find_samples(fd)
                check_unchanged(fd, state, root)
    except BadLmdbError as error:
        raise UsageError(f"{root} cannot be read as LMDB: {error}") from error
    progress(len(database))
    sizes, offsets = (np.array(values)[database.rows] for values in (database.sizes, database.offsets))
    archive, read = np.zeros(len(sizes), np.int32), database.layout.read
    images = spans_of(LmdbImages, database.files, archive, offsets, sizes, faults=database.faults, read=read)
    kinds = {name: _BOXES if name in boxes.values() else FieldKind("str") for name in database.columns}
    info = SourceInfo(
        kind="lmdb",
        root=root,
        paths=tuple(dict.fromkeys([str(where), database.files.paths[0]])),
        fields={**kinds, LABEL: LABEL_KIND} if database.layout in (_PICKLES, _DATUMS) else kinds,
        options=given_options(array=f"{IMAGE}={named[IMAGE]}" if named else None, field=words_of(fields)),
        counts={"other_keys": len(database) - database.used, **({} if database.labels is None else NO_COUNTS)},
        problems=tuple(database.problems),
    )
    details = {"scheme": database.layout.words}
    return table_of(info, database.keys, images, database.columns, labels=database.labels, details=details)


class _Database:
    """The entries of a database, as few objects as possible, since there may be many millions; and its samples."""

    def __init__(self, files: NamedFiles, root: str, boxes: Mapping[bytes, str], pixels: Pixels | None) -> None:
        self.files, self.root, self._boxes, self._pixels = files, root, boxes, pixels
        self._fields = {**_SIDES, **boxes}
        """See `_SIDES`."""
        ends = b"|".join(map(re.escape, self._fields))
        self.at_once = re.compile(rb"^label-|^num-samples$|\.(" + ends + rb")$")
        """Keys whose values are read at once."""
        self.offsets, self.sizes = array("q"), array("q")
        self._keys, self._ends = bytearray(), array("q", [0])
        self._values, self._value_ends = bytearray(), array("q", [0])
        """Those that are read at once: those of other keys, and of long ones, are empty."""
        self._count: bytes | None = None
        """What a database of text recognition, whose samples have numbers from 1, says that their number is."""
        self._sides = dict[bytes, dict[bytes, int]]()
        """End of keys, one of `_SIDES` -> key without it -> the number of the entry."""
        self.used = 0
        """Keys that are part of samples, or say something of all."""
        self.rows: Rows = np.empty(0, np.int64)
        """The number of the entry of each sample."""
        self.keys = texts_of([])
        self.columns = dict[str, Texts | RaggedColumn]()
        """By the name of the field: texts, or boxes."""
        self.faults = dict[int, Fault]()
        """Why some of the samples cannot be read."""
        self.labels: Labels | None = None
        self.problems = list[str]()
        self.layout = _FILES

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, entry: LmdbEntry, progress: Scanning) -> None:
        key, offset, size, value = entry
        stem, _, end = key.rpartition(b".")
        if key == _COUNT:
            self._count = value
        elif end in self._fields and not key.startswith(_LABEL):
            self._sides.setdefault(end, {})[stem] = len(self)
        self._keys += key
        self._ends.append(len(self._keys))
        self._values += value or b""
        self._value_ends.append(len(self._values))
        self.offsets.append(offset)
        self.sizes.append(size)
        if len(self) % PROGRESS_EVERY == 0:
            progress(len(self))

    def key(self, i: int) -> bytes:
        return bytes(self._keys[self._ends[i] : self._ends[i + 1]])

    def _value(self, i: int | None) -> bytes | None:
        """The value of a key that is read at once; None for a long one, empty where there is no key."""
        if i is None:
            return b""
        value = bytes(self._values[self._value_ends[i] : self._value_ends[i + 1]])
        return value if len(value) == self.sizes[i] else None

    def _end(self, i: int) -> bytes:
        return self.key(i).rpartition(b".")[2]

    def _read(self, fd: int, i: int) -> bytes:
        return read_range(fd, self.offsets[i], self.sizes[i])

    def find_samples(self, fd: int) -> None:
        """Find the samples and their layout. fd: the file. Raises UsageError where there are none, DecodeError,
        OSError."""
        for end in self._boxes.keys() - self._sides.keys():
            raise UsageError(f"{self.root} has no keys that end in .{plain(end)}")
        if self._count is not None:
            self._find_numbered(self._count)
            self.layout = _TEXTS
        else:
            self._find_named(fd)
        if self._pixels:
            self.layout = ValueLayout("pixels of images of one size", partial(_image_of_pixels, pixels=self._pixels))
        elif self._count is None:
            first = next((i for i in self.rows.tolist() if self.sizes[i]), None)
            if first is None:
                raise UsageError(f"{self.root} has no images: all of its values are empty")
            stem, dot, end = self.key(first).rpartition(b".")
            numbered = any(_OF_ALL.fullmatch(self.key(i)) for i in range(len(self)))
            value, array_name = self._read(fd, first), f"{plain(end)}:" if stem and dot else ""
            self.layout = layout_of(value, self.root, numbered=numbered, end=array_name)

    def _find_named(self, fd: int) -> None:
        """The samples of any other database. Raises as `find_samples`."""
        keys = [i for i in range(len(self)) if not _OF_ALL.fullmatch(self.key(i))]
        if not keys:
            raise UsageError(f"{self.root} has no samples")
        self.used = len(self)
        others = [i for i in keys if self._end(i) not in self._fields]
        # Some are named as another key: then they describe images.
        sides = {end: sides for end, sides in self._sides.items() if any(_stem(self.key(i)) in sides for i in others)}
        keys = [i for i in keys if self._end(i) not in sides]
        if self._pixels and (end := self._pixels.end):
            of_pixels = [i for i in keys if self._end(i) == end]
            self.used -= len(keys) - len(of_pixels)
            keys = of_pixels
            if not keys:
                raise UsageError(f"{self.root} has no keys that end in .{plain(end)}")
        self.rows = np.array(keys)
        for row, i in enumerate(keys):
            if (error := bad_name(self.key(i))) is not None:
                self.faults[row] = error.reason, error.detail.replace("path", "key").replace("file", "key")
        if not self.faults:
            self.keys = Texts(bytes(self._keys), np.array(self._ends)).pick(self.rows)
        else:
            every = [text_of(self.key(i)) for i in keys]
            if len(set(every)) < len(every):
                raise UsageError(
                    f"{self.root} has keys that are not UTF-8 and look the same: write it again with other keys"
                )
            self.keys = texts_of(every)
        stems = [_stem(self.key(i)) for i in keys] if sides else []
        for end, entry_of in sides.items():
            self._describe(end, entry_of, stems, fd, texts=b"cls" in sides)

    def _describe(self, end: bytes, entry_of: Mapping[bytes, int], stems: list[bytes], fd: int, *, texts: bool) -> None:
        """Join what keys with an end say of the samples. entry_of: key without the end -> number of the entry. stems:
        the keys of the samples, so. texts: whether whole numbers stay texts. Raises UsageError where values are
        neither boxes nor text."""
        name, at = self._fields[end], [entry_of.get(stem) for stem in stems]
        values = [self._value(i) for i in at]
        lacking = at.count(None)
        self.used -= len(entry_of.keys() - {*stems})
        if lacking:
            what = count(lacking, "image has", "images have")
            self.problems.append(f"{what} no key of the same name with .{end.decode()}")
        if end in self._boxes:
            rows = [self._read(fd, i or 0) if value is None else value for i, value in zip(at, values, strict=True)]
            self.columns[name], clipped = _boxes(rows, stems, end, self.root)
            self.problems += clipped
            return
        try:
            words = ["" if value is None else value.decode() for value in values]
        except UnicodeDecodeError:
            sizes, cure = [self.sizes[i] for i in entry_of.values()], ""
            if all(value is None or len(value) % (8 * len(_ROW)) == 0 for value in values):
                cure = f"if these are rows of five float64, {_ROW_WORDS}, "
                cure += f"add {opt.fields(f'boxes={plain(end)}:yolo')}; "
            raise UsageError(
                f"{self.root} has keys that end in .{plain(end)} beside those of images, with values that are not "
                f"text, of {min(sizes):,} to {max(sizes):,} bytes: {cure}see {_PAGE}"
            ) from None
        whole = any(values) and all(value == b"" or (value and _NUMBER_TEXT.fullmatch(value)) for value in values)
        if name == LABEL or (name == _TEXT and whole and not texts):
            numbers = [int(word) if whole and word else word.strip() or None for word in words]
            self.labels = number_labels(numbers, where=self.root, row_name=lambda i: plain(stems[i]))
            return
        self.columns[name] = texts_of(words)
        for row in [row for row, value in enumerate(values) if value is None]:
            self.faults.setdefault(row, ("bad_field", f"its {name} has more than 4,096 bytes"))

    def _find_numbered(self, number_of: bytes) -> None:
        """The samples of a database of text recognition. number_of: what it says that their number is."""
        count = int(number_of) if number_of.isdigit() and len(number_of) < 20 else 0
        if not 0 < count <= len(self):
            raise UsageError(
                f"{self.root}: its key num-samples says {plain(number_of[:20])}, and it has {len(self):,} keys"
            )
        digits = next((len(m[1]) for i in range(len(self)) if (m := _IMAGE.fullmatch(self.key(i)))), 0)
        if not digits:
            kinds = {text_of(self.key(i).rpartition(b"-")[0]) for i in range(min(len(self), 10_000))}
            shown = plain(", ".join(sorted(kinds - {""})[:10]))
            raise UsageError(f"{self.root} has num-samples and no key image-000000001; it has {shown}")
        # What is not there has no text, as the entry after the last.
        images, labels, labelled = np.full(count, -1), np.full(count, len(self)), False
        for i in range(len(self)):
            key = self.key(i)
            for prefix, rows in ((_IMAGE_OF, images), (_LABEL, labels)):
                number = key[len(prefix) :] if key.startswith(prefix) else b""
                if len(number) == digits and number.isdigit() and 0 < int(number) <= count:
                    rows[int(number) - 1] = i
            labelled |= key.startswith(_LABEL)
        self.rows = np.maximum(images, 0)
        self.used = 1 + int((images >= 0).sum() + (labels < len(self)).sum())
        if labelled:
            ends = np.append(np.array(self._value_ends), len(self._values))
            self.columns[_TEXT] = Texts(bytes(self._values), ends).pick(labels)
            for row, i in enumerate(labels.tolist()):
                if i == len(self):
                    self.faults[row] = "bad_field", "there is no label of that number"
                elif (value := self._value(i)) is None:
                    self.faults[row] = "bad_field", "the label has more than 4,096 bytes"
                elif bad_name(value) is not None:
                    self.faults[row] = "bad_field", "the label is not UTF-8"
        self.faults |= dict.fromkeys(np.flatnonzero(images < 0).tolist(), ("empty", "there is no such key"))
        names = b"".join(b"image-%0*d" % (digits, number) for number in range(1, count + 1))
        self.keys = Texts(names, np.arange(count + 1) * (len(_IMAGE_OF) + digits))


def _stem(key: bytes) -> bytes:
    """A key without what follows its last dot."""
    return key.rpartition(b".")[0] or key


def _boxes(values: Sequence[bytes], stems: Sequence[bytes], end: bytes, root: str) -> tuple[RaggedColumn, list[str]]:
    """The boxes of images, and a line for those that were clipped. Raises UsageError where none can be read."""
    rows, faults, clipped = list[NDArray[np.float64]](), dict[int, str](), 0
    for i, value in enumerate(values):
        row, what = np.empty((0, len(_ROW))), ""
        if len(value) % (8 * len(_ROW)):
            what = f"{len(value)} bytes are not rows of five float64"
        else:
            row = np.frombuffer(value, "<f8").reshape(-1, len(_ROW)).copy()
            number, shares = row[:, 0], row[:, 1:]
            sound = (number >= 0) & (number <= MOST_CLASSES) & (number % 1 == 0)
            sound &= ((shares >= -SHARE_SLACK) & (shares <= 1 + SHARE_SLACK)).all(axis=1)
            if not sound.all():
                wrong = int(sound.argmin())
                shown = ", ".join(f"{number:g}" for number in row[wrong])
                what = f"row {wrong} is {shown}, and not a class number, x, y, width and height as shares of the image"
                row = row[:0]
            else:
                clipped += int(((shares < 0) | (shares > 1)).any(axis=1).sum())
                shares.clip(0, 1, out=shares)
        if what:
            faults[i] = f"key {plain(stems[i])}.{plain(end)}: {what}"
        rows.append(row)
    lengths = np.array([len(row) for row in rows])
    if wrong_all := all_faulty(lengths, faults):
        raise UsageError(f"{root}: {wrong_all}")
    column = RaggedColumn(np.concatenate(rows), ends_of(lengths), "yolo", faults=faults)
    return column, clipped_line(clipped)


def _datum(value: bytes) -> Sample:
    try:
        datum = read_datum(value)
        if not datum.is_complete:
            raise ValueError("it does not have all bytes of its image")
        image = datum.data if datum.encoded else datum.pixels()
    except ValueError as error:
        raise DecodeError("corrupt", f"the value is no Datum: {error}") from error
    return image, {LABEL: datum.label}


def _pickle(value: bytes) -> Sample:
    try:
        content = read_pickle(value)
    except BadPickleError as error:
        raise DecodeError("unsupported", f"the value is not read as a pickle: {error}") from error
    image, label = content if isinstance(content, tuple | list) and len(content) == 2 else (None, None)
    if isinstance(image, list) and len(image) == 1:
        (image,) = image
    if isinstance(label, np.ndarray | list) and np.size(label) == 1:
        label = np.asarray(label).reshape(()).item()
    if not isinstance(image, bytes) or type(label) is not int or not -(1 << 63) <= label < 1 << 63:
        types = ", ".join(type(value).__name__ for value in content[:5]) if isinstance(content, tuple | list) else ""
        what = f"a {type(content).__name__}{' of ' + plain(types) if isinstance(content, tuple | list) else ''}"
        raise DecodeError("unsupported", f"the pickle contains {what}, not the bytes of an image and its label")
    return image, {LABEL: label}


class ValueLayout(NamedTuple):
    """What values hold."""

    words: str
    """Who writes such databases."""
    read: Callable[[bytes], Sample] | None = None
    """Makes the image and the label of a value, raises DecodeError; None where a value is an image file."""


_TEXTS = ValueLayout("text recognition (num-samples, image-000000001, label-000000001)")
_FILES = ValueLayout("image files by their keys")
_PICKLES = ValueLayout("pickles of image and label (folder2lmdb)", _pickle)
_DATUMS = ValueLayout("Caffe's Datum", _datum)


def layout_of(value: bytes, where: str, *, numbered: bool, end: str) -> ValueLayout:
    """The layout of values such as this one, the first of a database. Raises UsageError.

    numbered: whether the database has a key `__len__` or `__keys__`. end: of its key, as `--array` has it.
    """
    from rawpack_packer.images import sniff

    if sniff(value) is not None:
        return _FILES
    if value[:1] == b"\x80" and value[1:2] in b"\2\3\4\5" and value.endswith(b"."):
        try:
            _pickle(value)
        except DecodeError as error:
            raise UsageError(f"{where}: {error.detail}; see {_PAGE}") from error
        return _PICKLES
    try:
        datum = read_datum(value)
    except ValueError:
        datum = None
    if datum is not None and datum.floats is not None and not datum.encoded:
        raise UsageError(f"{where} contains Caffe's Datum with floats (float_data), and only bytes are read")
    if datum is not None and datum.is_complete:
        return _DATUMS
    if numbered:
        raise UsageError(
            f"{where} was written with pyarrow.serialize or msgpack, by its keys __len__ and __keys__; pyarrow can no "
            "longer read that either: make it again with image files as values, or pack the images that it was made of"
        )
    raise UsageError(
        f"{where} is of no known scheme: its first value has {len(value):,} bytes that begin with "
        f"{value[:8].hex(' ') or 'nothing'}. Known are image files (LSUN, BasicSR), image-000000001 and num-samples "
        f"(text recognition), pickles of image and label (folder2lmdb), and Caffe's Datum. Pixels of one size: "
        f"{opt.array(f'image={end}HEIGHTxWIDTH')}; see {_PAGE}"
    )


@dataclass
class Datum:
    """One message. Fields are in the order of their numbers, which begin at 1; those that it lacks are 0 or empty."""

    channels: int = 0
    height: int = 0
    width: int = 0
    data: bytes = b""
    label: int = -1
    floats: object = None
    """Anything where it has values as floats."""
    encoded: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether it has all bytes of its image."""
        size = self.channels * self.height * self.width
        return bool(self.data) if self.encoded else 0 < size == len(self.data)

    def pixels(self) -> NDArray[np.uint8]:
        """(H, W) if there is one plane, else (H, W, 3) in RGB: Caffe's planes are blue, green, red. Raises ValueError
        where there are other planes."""
        if self.channels not in (1, 3):
            raise ValueError(f"it has {self.channels} planes, and an image has 1 or 3")
        planes = np.frombuffer(self.data, np.uint8).reshape(self.channels, self.height, self.width)
        return np.ascontiguousarray(planes[::-1].transpose(1, 2, 0)) if self.channels == 3 else planes[0].copy()


_DATUM_FIELDS = ("", *(field.name for field in fields_of(Datum)))


def read_datum(message: bytes) -> Datum:
    """The fields of a message. Raises ValueError where it is not a `Datum`."""
    datum, at = Datum(), 0
    while at < len(message):
        value: Any = 0
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = varint(message, at)
            if number == 5:  # a label may be negative
                value -= (value >> 63) << 64
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            raise ValueError("not a message")
        if at > len(message) or not 0 < number < len(_DATUM_FIELDS):
            raise ValueError("not a Datum")
        name = _DATUM_FIELDS[number]
        if name != "floats" and (kind == _BYTES) != (name == "data"):
            raise ValueError("not a Datum")
        setattr(datum, name, value)
    return datum


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number of a protocol buffer that begins at a byte, and where it ends. Raises ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("not a message")
