"""An LMDB database of another tool as a source; and what its values hold, by the first of them: an image file, a
pickle, or Caffe's `Datum`, the protocol buffer in its databases, with an image as planes or as a file, and a label."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from rawpack_packer.sources.lmdb.look import BadLmdbError, LmdbEntry, entries, version
from rawpack_packer.sources.named_arrays import Arrays, named_arrays
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.sources.table.assemble import TableSource
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
_CHANNELS, _HEIGHT, _WIDTH, _PLANES, _NUMBER, _FLOATS, _ENCODED = range(1, 8)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PAGE = "docs/how-to/what-is-not-read.md#lmdb"
_MAKE_AGAIN = "make it again with image files as values, or pack the images that it was made of"


@dataclass(frozen=True, eq=False, kw_only=True)
class LmdbImages(Spans):
    """The values of a database, each an image, perhaps with its label: `Spans` in its file."""

    layout: str
    """A name in `LAYOUTS`."""
    pixels: _Pixels | None
    """What values are, if they are no files."""

    def value(self, i: int, /) -> Item:  # type: ignore[override]  # the label is in the same bytes
        value, read = super().value(i), LAYOUTS[self.layout].read
        if self.pixels is not None:
            return Item("", self.pixels.image(value), {}, file_bytes=len(value))
        image, fields = (value, {}) if read is None else read(value)
        return Item("", image, fields, file_bytes=len(value))


@dataclass(frozen=True)
class _Pixels:
    """Values that are the pixels of images of one size, as the user says."""

    end: bytes
    """What follows the last dot of their keys; empty for all keys."""
    height: int
    width: int
    bgr: bool

    def image(self, value: bytes) -> NDArray[np.uint8]:
        """(H, W, 3) in RGB, or (H, W). Raises DecodeError."""
        size = self.height * self.width
        if len(value) not in (size, 3 * size):
            what = f"{len(value):,} bytes are not {self.height} x {self.width} pixels of 1 or 3 bytes"
            raise DecodeError("truncated" if len(value) < size else "unsupported", what)
        pixels = np.frombuffer(value, np.uint8).reshape(self.height, self.width, -1)
        return (
            np.ascontiguousarray(pixels[..., ::-1] if self.bgr else pixels) if pixels.shape[2] == 3 else pixels[..., 0]
        )


@dataclass(frozen=True)
class _LmdbOptions:
    """What the user says of keys and values."""

    boxes: Mapping[bytes, str]
    """End of keys -> the field of boxes that their values become."""
    pixels: _Pixels | None
    array: str | None = None
    """How `--array` has the pixels."""

    @classmethod
    def of(cls, array: Arrays, fields: Fields) -> _LmdbOptions:
        """Raises UsageError."""
        boxes, pixels, said = dict[bytes, str](), None, None
        for word in words_of(fields):
            if not (match := _BOX_ROWS.fullmatch(word)):
                what = (
                    f"for LMDB, write boxes=txt:yolo for keys that end in .txt, with rows of five float64: {_ROW_WORDS}"
                )
                raise UsageError(f"{opt.fields(word)}: {what}")
            boxes[match[2].encode()] = match[1]
        check_names(boxes.values())
        for name, value in named_arrays(array).items() if array else ():
            if name != IMAGE or not (match := _PIXELS.fullmatch(value)):
                what = "for LMDB, write image=jpg:HEIGHTxWIDTH for keys that end in .jpg, whose values are pixels of "
                what += "this size; :bgr after it is for OpenCV's order of colors"
                raise UsageError(f"{opt.array(plain(f'{name}={value}'))}: {what}")
            said = f"{name}={value}"
            pixels = _Pixels((match[1] or "").encode(), int(match[2]), int(match[3]), bool(match[4]))
        return cls(boxes, pixels, said)

    @property
    def at_once(self) -> re.Pattern[bytes]:
        """Keys whose values are read at once."""
        ends = b"|".join(map(re.escape, self.sides))
        return re.compile(rb"^label-|^num-samples$|\.(" + ends + rb")$")

    @property
    def sides(self) -> dict[bytes, str]:
        """See `_SIDES`."""
        return {**_SIDES, **self.boxes}


@dataclass(frozen=True, eq=False)
class _LmdbSamples:
    """The entries of a database that are samples."""

    chosen: Rows
    """The number of the entry of each sample."""
    keys: Texts
    texts: Mapping[str, Texts | RaggedColumn]
    """By the name of the field: texts, or boxes."""
    faults: dict[int, Fault]
    """Why some of them cannot be read."""
    labels: Labels | None = None
    problems: list[str] = field(default_factory=list)


class LmdbSource(TableSource):
    """The samples of an LMDB database in the order of its keys, as a `Source`.

    Databases of text recognition have a field `text`; pickles and Caffe's Datum have `label`, -1 where it is missing.
    `a.txt` is the text of the file `a.jpg`, or its label if all are whole numbers; `a.cls` is its label, `a.json` text.
    Rows of numbers become boxes, and values pixels, where the user says so.

    `info.counts`: other_keys (those that are part of no sample); where keys are labels, unlabelled and empty_classes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        array: Arrays = (),
        fields: Fields = (),
        progress: Scanning = unseen,
    ) -> None:
        """path: the folder of a `data.mdb`, or the file. array: `image=jpg:HEIGHTxWIDTH`, keys whose values are pixels.
        fields: `boxes=txt:yolo`, keys whose values are rows of float64. progress: called with the number of keys so
        far.

        Raises UsageError where it is no LMDB file, is damaged, or is of no known scheme.
        """
        where = Path(path).absolute()
        root, wanted = plain(os.fsencode(where)), _LmdbOptions.of(array, fields)
        try:
            with reading(root):
                files, found, samples, layout = _look_through(where, root, wanted, progress)
        except BadLmdbError as error:
            raise UsageError(f"{root} cannot be read as LMDB: {error}") from error
        progress(len(found))
        """Who writes such databases, in words."""
        sizes, offsets = (np.array(values)[samples.chosen] for values in (found.sizes, found.offsets))
        files_of, more = np.zeros(len(sizes), np.int32), {"layout": layout, "pixels": wanted.pixels}
        images = spans_of(LmdbImages, files, files_of, offsets, sizes, faults=samples.faults, **more)
        kinds = {name: _BOXES if name in wanted.boxes.values() else FieldKind("str") for name in samples.texts}
        counts = {"other_keys": len(found) - found.used, **({} if samples.labels is None else NO_COUNTS)}
        info = SourceInfo(
            kind="lmdb",
            root=root,
            paths=tuple(dict.fromkeys([str(where), files.paths[0]])),
            fields={**kinds, LABEL: LABEL_KIND} if LAYOUTS[layout].read else kinds,
            options=given_options(array=wanted.array, field=words_of(fields)),
            counts=counts,
            problems=tuple(samples.problems),
        )
        details = {"scheme": LAYOUTS[layout].words}
        super().__init__(info, samples.keys, images, samples.texts, labels=samples.labels, details=details)


def _look_through(
    where: Path, root: str, wanted: _LmdbOptions, progress: Scanning, *, again: bool = True
) -> tuple[NamedFiles, _LmdbEntries, _LmdbSamples, str]:
    """The file, all of its entries, those that are samples, and their layout. again: read it once more where it was
    written to while it was read. Raises as `entries` and `_LmdbEntries` do."""
    files, found = named_files(where / _DATA if where.is_dir() else where), _LmdbEntries(wanted)
    state = files.state(0)
    with opened(files.paths[0]) as fd:
        before = version(fd)
        try:
            for entry in entries(files.paths[0], wanted.at_once):
                found.add(entry, progress)
            samples = found.samples(fd, root)
            layout = found.layout(fd, samples.chosen, root)
        except BadLmdbError:
            if again and (version(fd) != before or before[:2] != state):
                return _look_through(where, root, wanted, progress, again=False)
            raise
        check_unchanged(fd, state, root)
    return files, found, samples, layout


class _LmdbEntries:
    """The entries of a database, as few objects as possible: there may be many millions."""

    def __init__(self, wanted: _LmdbOptions) -> None:
        self._wanted, self._end_of = wanted, wanted.sides
        self.offsets, self.sizes = array("q"), array("q")
        self.used = 0
        """Keys that are part of samples, or say something of all."""
        self._keys, self._ends = bytearray(), array("q", [0])
        self._labels, self._label_ends = bytearray(), array("q", [0])
        """The values of the keys that begin with `label-`, in their order."""
        self._long = set[int]()
        """Those among them that are too long, and were not read."""
        self._count: bytes | None = None
        """Of a database of text recognition, whose samples have numbers from 1: what it says that their number is."""
        self._sides: dict[bytes, dict[bytes, bytes | None]] = {}
        """End of keys, one of `_SIDES` -> key without it -> value; None for one that is too long."""
        self._long_sides = dict[tuple[bytes, bytes], int]()
        """End and key without it -> the number of the entry, where its value is too long."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, entry: LmdbEntry, progress: Scanning) -> None:
        if entry.key.startswith(_LABEL):
            if entry.value is None:
                self._long.add(len(self._label_ends) - 1)
            self._labels += entry.value or b""
            self._label_ends.append(len(self._labels))
        elif entry.key == _COUNT:
            self._count = entry.value
        elif (side := entry.key.rpartition(b"."))[2] in self._end_of:
            self._sides.setdefault(side[2], {})[side[0]] = entry.value if entry.size else b""
            if entry.size and entry.value is None:
                self._long_sides[side[2], side[0]] = len(self)
        self._keys += entry.key
        self._ends.append(len(self._keys))
        self.offsets.append(entry.offset)
        self.sizes.append(entry.size)
        if len(self) % PROGRESS_EVERY == 0:
            progress(len(self))

    def key(self, i: int) -> bytes:
        return bytes(self._keys[self._ends[i] : self._ends[i + 1]])

    def samples(self, fd: int, root: str) -> _LmdbSamples:
        """The samples. fd: the file. Raises UsageError where there are none."""
        for end in self._wanted.boxes.keys() - self._sides.keys():
            raise UsageError(f"{root} has no keys that end in .{plain(end)}")
        if self._count is not None:
            return self._numbered(root, self._count)
        keys = [i for i in range(len(self)) if not _OF_ALL.fullmatch(self.key(i))]
        if not keys:
            raise UsageError(f"{root} has no samples")
        self.used = len(self)
        others = [i for i in keys if self.key(i).rpartition(b".")[2] not in self._end_of]
        # Some are named as another key: then they describe images.
        ends = {end: sides for end, sides in self._sides.items() if any(_stem(self.key(i)) in sides for i in others)}
        keys = [i for i in keys if self.key(i).rpartition(b".")[2] not in ends]
        if self._wanted.pixels and (end := self._wanted.pixels.end):
            of_pixels = [i for i in keys if self.key(i).rpartition(b".")[2] == end]
            self.used -= len(keys) - len(of_pixels)
            keys = of_pixels
            if not keys:
                raise UsageError(f"{root} has no keys that end in .{plain(end)}")
        chosen, faults = np.array(keys), dict[int, Fault]()
        for row, i in enumerate(keys):
            if (error := bad_name(self.key(i))) is not None:
                faults[row] = error.reason, error.detail.replace("path", "key").replace("file", "key")
        if not faults:
            names = Texts(bytes(self._keys), np.array(self._ends)).pick(chosen)
        else:
            every = [text_of(self.key(i)) for i in keys]
            if len(set(every)) < len(every):
                raise UsageError(
                    f"{root} has keys that are not UTF-8 and look the same: write it again with other keys"
                )
            names = texts_of(every)
        found = _LmdbSamples(chosen, names, {}, faults)
        return self._described(found, ends, [_stem(self.key(i)) for i in keys], fd, root) if ends else found

    def _described(
        self,
        samples: _LmdbSamples,
        ends: Mapping[bytes, Mapping[bytes, bytes | None]],
        stems: list[bytes],
        fd: int,
        root: str,
    ) -> _LmdbSamples:
        """The samples with what other keys say of them. Raises UsageError where that is no text."""
        texts, labels, problems = dict[str, Texts | RaggedColumn](), None, list[str]()
        for end, sides in ends.items():
            name, values = self._end_of[end], [sides.get(stem, b"") for stem in stems]
            lacking = [stem for stem in stems if stem not in sides]
            self.used -= len(sides) - len({*stems} - {*lacking})
            if lacking:
                what = count(len(lacking), "image has", "images have")
                problems.append(f"{what} no key of the same name with .{end.decode()}")
            if end in self._wanted.boxes:
                long = {stem: i for (of, stem), i in self._long_sides.items() if of == end}
                for row, stem in enumerate(stems):
                    if stem in long:
                        values[row] = read_range(fd, self.offsets[long[stem]], self.sizes[long[stem]])
                texts[name], clipped = _boxes([value or b"" for value in values], stems, end, root)
                problems += clipped
                continue
            whole = any(values) and all(
                value is not None and _NUMBER_TEXT.fullmatch(value) for value in values if value != b""
            )
            try:
                words = ["" if value is None else value.decode() for value in values]
            except UnicodeDecodeError:
                sizes, cure = [len(value or b"") for value in sides.values()], ""
                if all(value is None or len(value) % (8 * len(_ROW)) == 0 for value in values):
                    cure = f"if these are rows of five float64, {_ROW_WORDS}, "
                    cure += f"add {opt.fields(f'boxes={plain(end)}:yolo')}; "
                raise UsageError(
                    f"{root} has keys that end in .{plain(end)} beside those of images, with values that are not "
                    f"text, of {min(sizes):,} to {max(sizes):,} bytes: {cure}see {_PAGE}"
                ) from None
            if name == LABEL or (name == _TEXT and whole and b"cls" not in ends):
                numbers = [int(word) if whole and word else word.strip() or None for word in words]
                labels = number_labels(numbers, where=root, row_name=lambda i: plain(stems[i]))
                continue
            texts[name] = texts_of(words)
            for row in [row for row, value in enumerate(values) if value is None]:
                samples.faults.setdefault(row, ("bad_field", f"its {name} has more than 4,096 bytes"))
        return replace(samples, texts=texts, labels=labels, problems=problems)

    def layout(self, fd: int, chosen: Rows, root: str) -> str:
        """The layout of the values, by the first that is not empty. Raises UsageError, DecodeError, OSError."""
        if self._wanted.pixels:
            return "pixels"
        if self._count is not None:
            return "text"
        first = next((i for i in chosen.tolist() if self.sizes[i]), None)
        if first is None:
            raise UsageError(f"{root} has no images: all of its values are empty")
        value = read_range(fd, self.offsets[first], self.sizes[first])
        stem, dot, end = self.key(first).rpartition(b".")
        return holds(
            value,
            root,
            numbered=any(_OF_ALL.fullmatch(self.key(i)) for i in range(len(self))),
            end=f"{plain(end)}:" if stem and dot else "",
        )

    def _numbered(self, root: str, said: bytes) -> _LmdbSamples:
        """The samples of a database of text recognition."""
        count = int(said) if said.isdigit() and len(said) < 20 else 0
        if not 0 < count <= len(self):
            raise UsageError(f"{root}: its key num-samples says {plain(said[:20])}, and it has {len(self):,} keys")
        digits = next((len(m[1]) for i in range(len(self)) if (m := _IMAGE.fullmatch(self.key(i)))), 0)
        if not digits:
            kinds = {text_of(self.key(i).rpartition(b"-")[0]) for i in range(min(len(self), 10_000))}
            shown = plain(", ".join(sorted(kinds - {""})[:10]))
            raise UsageError(f"{root} has num-samples and no key image-000000001; it has {shown}")
        images, labels, label = np.full(count, -1), np.full(count, -1), 0
        for i in range(len(self)):
            key = self.key(i)
            for prefix, rows, at in ((_IMAGE_OF, images, i), (_LABEL, labels, label)):
                if key.startswith(prefix):
                    number = key[len(prefix) :]
                    if len(number) == digits and number.isdigit() and 0 < int(number) <= count:
                        rows[int(number) - 1] = at
                    label += prefix == _LABEL
        self.used = 1 + int((images >= 0).sum() + (labels >= 0).sum())
        faults = dict.fromkeys(np.flatnonzero(images < 0).tolist(), ("empty", "there is no such key"))
        texts = dict[str, Texts]()
        if label:
            texts[_TEXT], wrong = self._texts(labels)
            faults = wrong | faults
        names = b"".join(b"image-%0*d" % (digits, number) for number in range(1, count + 1))
        keys = Texts(names, np.arange(count + 1) * (len(_IMAGE_OF) + digits))
        return _LmdbSamples(np.maximum(images, 0), keys, texts, faults)

    def _texts(self, labels: Rows) -> tuple[Texts, dict[int, Fault]]:
        """What is written in each image, and the samples for which nothing is said, or no text."""
        # The last one, after all others, is empty: for samples without a label.
        last = len(self._label_ends) - 1
        ends = np.append(np.array(self._label_ends), len(self._labels))
        found = Texts(bytes(self._labels), ends).pick(np.where(labels < 0, last, labels))
        faults = dict[int, Fault]()
        for row, label in enumerate(labels.tolist()):
            if label < 0:
                faults[row] = "bad_field", "there is no label of that number"
            elif label in self._long:
                faults[row] = "bad_field", "the label has more than 4,096 bytes"
            try:
                found.value(row)
            except UnicodeDecodeError:
                faults[row] = "bad_field", "the label is not UTF-8"
        return found, faults


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
            row = np.frombuffer(value, "<f8").reshape(-1, len(_ROW))
            shares, number = row[:, 1:], row[:, 0]
            sound = (number >= 0) & (number <= MOST_CLASSES) & (number % 1 == 0)
            sound &= ((shares >= -SHARE_SLACK) & (shares <= 1 + SHARE_SLACK)).all(axis=1)
            for wrong in np.flatnonzero(~sound)[:1].tolist():
                shown = ", ".join(f"{one:g}" for one in row[wrong])
                what = f"row {wrong} is {shown}, and not a class number, x, y, width and height as shares of the image"
            outside = ((shares < 0) | (shares > 1)).any(axis=1)
            clipped += 0 if what else int(outside.sum())
            row = np.column_stack([number, shares.clip(0, 1)])
        if what:
            faults[i], row = f"key {plain(stems[i])}.{plain(end)}: {what}", row[:0]
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
    return image, {LABEL: -1 if datum.label is None else datum.label}


def _pickle(value: bytes) -> Sample:
    try:
        found = read_pickle(value)
    except BadPickleError as error:
        raise DecodeError("unsupported", f"the value is not read as a pickle: {error}") from error
    image, label = found if isinstance(found, tuple | list) and len(found) == 2 else (None, None)
    if isinstance(image, list) and len(image) == 1:
        (image,) = image
    if isinstance(label, np.ndarray | list) and np.size(label) == 1:
        label = np.asarray(label).reshape(()).item()
    if not isinstance(image, bytes) or type(label) is not int or not -(1 << 63) <= label < 1 << 63:
        raise DecodeError(
            "unsupported", f"the pickle contains {_shown(found)}, not the bytes of an image and its label"
        )
    return image, {LABEL: label}


class ValueLayout(NamedTuple):
    """What values hold."""

    words: str
    """Who writes such databases."""
    read: Callable[[bytes], Sample] | None = None
    """Makes the image and the label of a value, raises DecodeError; None where a value is an image file."""


LAYOUTS = {
    "text": ValueLayout("text recognition (num-samples, image-000000001, label-000000001)"),
    "pixels": ValueLayout("pixels of images of one size"),
    "files": ValueLayout("image files by their keys"),
    "pickle": ValueLayout("pickles of image and label (folder2lmdb)", _pickle),
    "datum": ValueLayout("Caffe's Datum", _datum),
}


def holds(value: bytes, where: str, *, numbered: bool, end: str = "") -> str:
    """The layout of values such as this one, the first of a database: a name in `LAYOUTS`. Raises UsageError.

    numbered: whether the database has a key `__len__` or `__keys__`. end: of its key, as `--array` has it.
    """
    from rawpack_packer.images import sniff

    if sniff(value) is not None:
        return "files"
    if value[:1] == b"\x80" and value[1:2] in b"\2\3\4\5" and value.endswith(b"."):
        try:
            _pickle(value)
        except DecodeError as error:
            raise UsageError(f"{where}: {error.detail}; see {_PAGE}") from error
        return "pickle"
    try:
        datum = read_datum(value)
    except ValueError:
        datum = None
    if datum is not None and datum.floats and not datum.encoded:
        raise UsageError(f"{where} contains Caffe's Datum with floats (float_data), and only bytes are read")
    if datum is not None and datum.is_complete:
        return "datum"
    if numbered:
        raise UsageError(
            f"{where} was written with pyarrow.serialize or msgpack, by its keys __len__ and __keys__; pyarrow can no "
            f"longer read that either: {_MAKE_AGAIN}"
        )
    raise UsageError(
        f"{where} is of no known scheme: its first value has {len(value):,} bytes that begin with "
        f"{value[:8].hex(' ') or 'nothing'}. Known are image files (LSUN, BasicSR), image-000000001 and num-samples "
        f"(text recognition), pickles of image and label (folder2lmdb), and Caffe's Datum. Pixels of one size: "
        f"{opt.array(f'image={end}HEIGHTxWIDTH')}; see {_PAGE}"
    )


def _shown(found: Any) -> str:
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {plain(', '.join(type(one).__name__ for one in found[:5]))}"
    return f"a {type(found).__name__}"


@dataclass(frozen=True)
class Datum:
    """One message. The numbers are 0 where it does not say them."""

    channels: int
    height: int
    width: int
    data: bytes
    label: int | None
    encoded: bool
    floats: bool
    """Whether it has values as floats."""

    @property
    def is_complete(self) -> bool:
        """Whether it has all bytes of its image."""
        if self.encoded:
            return bool(self.data)
        return 0 < self.channels * self.height * self.width == len(self.data)

    def pixels(self) -> NDArray[np.uint8]:
        """(H, W) if there is one plane, else (H, W, 3) in RGB: Caffe's planes are blue, green, red.

        Raises ValueError where there are other planes.
        """
        if self.channels not in (1, 3):
            raise ValueError(f"it has {self.channels} planes, and an image has 1 or 3")
        planes = np.frombuffer(self.data, np.uint8).reshape(self.channels, self.height, self.width)
        return np.ascontiguousarray(planes[::-1].transpose(1, 2, 0)) if self.channels == 3 else planes[0].copy()


def read_datum(message: bytes) -> Datum:
    """The fields of a message. Raises ValueError where it is no `Datum`."""
    found, at = dict[int, Any](), 0
    while at < len(message):
        value: Any = 0
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            raise ValueError("not a message")
        if at > len(message) or not _CHANNELS <= number <= _ENCODED:
            raise ValueError("not a Datum")
        if number != _FLOATS and (kind == _BYTES) != (number == _PLANES):
            raise ValueError("not a Datum")
        found[number] = value
    label = found.get(_NUMBER)
    return Datum(
        found.get(_CHANNELS, 0),
        found.get(_HEIGHT, 0),
        found.get(_WIDTH, 0),
        found.get(_PLANES, b""),
        # Negative numbers of int32 are written with 64 bits.
        None if label is None else label - (1 << 64) if label >> 63 else label,
        bool(found.get(_ENCODED)),
        _FLOATS in found,
    )


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
