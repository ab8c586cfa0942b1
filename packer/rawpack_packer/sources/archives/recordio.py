"""RecordIO files of images, as mxnet and InsightFace have them, as a source.

A record is one or more parts: the magic number, a flag and the length of its data in one number, and the data, padded
to 4 bytes. Data with the magic number at a multiple of 4 is cut there, and the magic number left out. The data of an
image record is a header, labels if there are several, and an image file.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.images import sniff
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import EXACT, FieldKind
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.choose import LABEL, NO_COUNTS, Classes, named_file, number_labels
from rawpack_packer.sources.table.columns import (
    Numbers,
    RaggedColumn,
    RowNumbers,
    Spans,
    Texts,
    ends_of,
    read_range,
    spans_of,
    texts_of,
)
from rawpack_packer.sources.table.keys import numbered_since, repeated_key
from rawpack_packer.sources.table.named_files import NamedFiles, files_in, files_of, source_name
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_NOT_RECORDS = {
    ".bin": "a .bin is a pickle, which could run code when it is read, so rawpack does not read it: unpack it with "
    "InsightFace's own tools if you trust it",
    ".idx": "an .idx lists records: give the .rec next to it",
    ".lst": "a .lst lists images for im2rec: give the .rec that was made of it",
}
_LINE = 1 << 12
"""Bytes that a line of an .idx may have."""
_MAGIC = struct.pack("<I", 0xCED7230A)
_LENGTH = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_PART = struct.Struct("<4sI")
_HEADER = struct.Struct("<IfQQ")
"""Number of labels that follow, or 0; the label, if it is 0; both halves of the id, the lower one first."""
_LABEL = slice(4, 8)
"""The label in the header."""
_MOST_LABELS = 1 << 16
_AHEAD = 128
"""Bytes that are read of each record at once: the header, some labels, and the first bytes of the image."""
_SNIFFED = 32
_COPY = "copy the file again, or make it again"


def open_recordio(
    path: str | os.PathLike[str],
    /,
    *,
    classes: Classes | None = None,
    spool: Spool | None = None,
    progress: Scanning = unseen,
) -> Table:
    """The image records of `.rec` files, in the order of the files.

    The key of a sample is the id in its record; where two records have the same id, keys are the numbers of samples.
    Records with one label each have a field `label`: int64 if all labels are whole numbers, else float32. Records with
    several have a field `labels`, float32. Records with several labels and no image, as InsightFace's files have them,
    are left out; in these files, `label` is the first of `labels`.

    `info.counts`: header_records (those that were left out), unlabelled (label -1), empty_classes.

    path: see `named_files`; or a folder with one file. classes: the names of labels. spool: for files behind URLs.
    progress: called with the number of records.

    Raises UsageError where a file is not a RecordIO file, is damaged, holds no images, or has an .idx of other records.
    """
    where = source_name(path)
    if cure := _NOT_RECORDS.get(Path(path).suffix.lower()):
        raise UsageError(f"{where}: {cure}")
    files = files_of(path, (".rec",), spool)
    if len(files) > 1 and Listing.of(path).is_dir:
        names = listed([plain(os.fsencode(files.base(k))) for k in range(len(files))], 5)
        raise UsageError(f"{where} contains {names}: name the .rec to pack")
    scan = _RecordScan(files, progress)
    scan.check(where)
    columns, labels, keys = scan.labels(), None, scan.keys()
    label = columns.get(LABEL)
    if label is not None and label.values.dtype == np.int64:
        labels = number_labels(label.values, classes, where=where)
    elif classes is not None:
        raise UsageError(f"{opt.classes} names labels that are whole numbers, one for each image; {where} has others")
    info = SourceInfo(
        kind="recordio",
        root=where,
        paths=files.on_disk,
        fields={
            name: FieldKind(of.values.dtype.name, (None,) if isinstance(of, RaggedColumn) else of.values.shape[1:])
            for name, of in columns.items()
        },
        numbered=keys is None,
        options=given_options(classes=named_file(classes)),
        counts={"header_records": scan.headers, **NO_COUNTS},
        problems=(numbered_since("two records have one", "ids"),) if keys is None else (),
    )
    images = scan.images()
    return table_of(info, keys or RowNumbers(range(len(images))), images, columns, labels=labels)


def records_in(listing: Listing) -> list[str]:
    """The files of a folder that holds nothing else, but for what describes them. Raises OSError."""
    return files_in(listing, (".rec",))


class Record(NamedTuple):
    """One record of a file."""

    start: int
    """The position of its first byte."""
    offset: int
    """The position of the image; of a record in several parts, that of the record."""
    parts: tuple[int, int] | None
    """In several parts: bytes of the record, with padding, and bytes of its data before the image."""
    size: int
    """Bytes of the image."""
    first: bytes
    """The first bytes of the image."""
    several: bool
    """Whether labels follow the header, rather than being in it."""
    labels: bytes
    """float32, little-endian."""
    id: int
    high: int
    """The upper half of the id."""


@dataclass(frozen=True, eq=False)
class RecordImages(Spans):
    """The images of records: see `Spans`. The offset of one in several parts is that of its record."""

    split: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Number of an image -> see `Record.parts`."""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        if (parts := self.split.get(i)) is None:
            return super()._reader(i, most)
        return partial(_read_split, offset=int(self.offset[i]), size=parts[0], before=parts[1])

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        path = self.archives.paths[int(self.archive[i])]
        size, _ = self.split.get(i, (int(self.states[i, 0]), 0))
        return path, int(self.offset[i]), size

    def pick(self, rows: Rows, /) -> Self:
        split = {k: self.split[row] for k, row in enumerate(rows.tolist() if self.split else ()) if row in self.split}
        return replace(super().pick(rows), split=split)


def _read_split(fd: int, offset: int, size: int, before: int) -> bytes:
    return _joined(read_range(fd, offset, size))[before:]


class _RecordScan:
    """The image records of all files, as arrays."""

    def __init__(self, files: NamedFiles, progress: Scanning) -> None:
        """Raises UsageError."""
        self._files, self.headers, self._some_image = files, 0, False
        """headers: how many records have no image. some_image: whether any holds what begins like one."""
        self._first: tuple[int, bytes] | None = None
        """Size and first bytes of what the first record holds."""
        self._file, self._offset, self._size = array("i"), array("q"), array("q")
        self._split: dict[int, tuple[int, int]] = {}
        self._labels, self._counts = bytearray(), array("i")
        self._ids, self._high = array("Q"), array("Q")
        with files.looked_through():
            for k in range(len(files)):
                starts = array("q")
                with reading(files.name(k)):
                    for record in records(files, k):
                        starts.append(record.start)
                        self._add(k, record)
                        if (len(self._file) + self.headers) % PROGRESS_EVERY == 0:
                            progress(len(self._file) + self.headers)
                if not files.remotes:
                    _check_index(files.paths[k], np.array(starts, np.int64))
        progress(len(self._file) + self.headers)

    def _add(self, k: int, record: Record) -> None:
        """Add a record of file k."""
        if record.several and not record.size:
            self.headers += 1
            return
        if record.parts is not None:
            self._split[len(self._file)] = record.parts
        self._file.append(k)
        self._offset.append(record.offset)
        self._size.append(record.size)
        self._labels += record.labels
        self._counts.append(len(record.labels) // 4)
        self._ids.append(record.id)
        self._high.append(record.high)
        self._some_image = self._some_image or sniff(record.first) is not None
        self._first = self._first or (record.size, record.first)

    def check(self, where: str) -> None:
        """Raise UsageError where there is no image."""
        if self._first is None:
            raise UsageError(f"{where} has no image: all of its {self.headers:,} records have labels alone")
        if not self._some_image:
            size, first = self._first
            raise UsageError(
                f"{where} contains no image files: the first record has {size:,} bytes that begin with "
                f"{first[:8].hex(' ')}. Raw pixels are not read, since nothing says their shape: make the .rec again "
                "with JPEG or PNG images, or pack an .npy"
            )

    def keys(self) -> Texts | None:
        """The ids; None where two records have one."""
        keys = texts_of([str(high << 64 | low) for high, low in zip(self._high, self._ids, strict=True)])
        return keys if repeated_key(keys) is None else None

    def labels(self) -> dict[str, Numbers | RaggedColumn]:
        values, ends = np.frombuffer(bytes(self._labels), "<f4").astype(np.float32), ends_of(self._counts)
        counts, columns = np.diff(ends), dict[str, Numbers | RaggedColumn]()
        if self.headers or (counts == 1).all():
            columns[LABEL] = Numbers(_whole(values[ends[:-1]]))
        if not (counts == 1).all():
            alike = (counts == counts[0]).all()
            columns["labels"] = Numbers(values.reshape(-1, counts[0])) if alike else RaggedColumn(values, ends)
        return columns

    def images(self) -> RecordImages:
        return spans_of(RecordImages, self._files, self._file, self._offset, self._size, split=self._split)


def records(files: NamedFiles, number: int) -> Iterator[Record]:
    """The records of a file, in order. Raises UsageError where it is not a RecordIO file, is damaged or truncated, or a
    record is not an image record."""
    where, size, at = files.name(number), files.state(number)[0], 0
    if not size:
        raise UsageError(f"{where} is empty: copy it again")
    with files.opened(number, keep=False) as fd:
        while at < size:
            head = os.pread(fd, _AHEAD, at)
            flag, length = _part(head, at, size, where)
            if flag == _WHOLE:
                end, data = at + _PART.size + _padded(length), head[_PART.size : _PART.size + length]
            elif flag == _FIRST:
                end, length = _end(fd, at, size, where)
                # As rare as the magic number in an image: the whole record may be read.
                data = _joined(read_range(fd, at, end - at))
            else:
                raise UsageError(f"{where} is damaged at byte {at:,}: a record begins in its middle; {_COPY}")
            if length < _HEADER.size:
                raise UsageError(
                    f"{where}: the record at byte {at:,} has {length} bytes, too few for an image with a label"
                )
            several, _, low, high = _HEADER.unpack_from(data)
            before = _HEADER.size + 4 * several
            if several > _MOST_LABELS or before > length:
                raise UsageError(f"{where}: the record at byte {at:,} declares {several:,} labels; {_COPY}")
            if len(data) < min(before + _SNIFFED, length):
                data = read_range(fd, at + _PART.size, min(before + _SNIFFED, length))
            labels = data[_HEADER.size : before] if several else data[_LABEL]
            first = data[before : before + _SNIFFED]
            offset, parts = (at, (end - at, before)) if flag == _FIRST else (at + _PART.size + before, None)
            yield Record(at, offset, parts, length - before, first, several > 0, labels, low, high)
            at = end


def _joined(record: bytes) -> bytes:
    """The data of all parts of a record, with the magic number between them again."""
    parts, at = [], 0
    while at < len(record):
        length = _PART.unpack_from(record, at)[1] & _LENGTH
        at += _PART.size
        parts.append(record[at : at + length])
        at += _padded(length)
    return _MAGIC.join(parts)


def _end(fd: int, at: int, size: int, where: str) -> tuple[int, int]:
    """Where the record in several parts at byte `at` ends, and how many bytes of data it has."""
    here, total, flag = at, -len(_MAGIC), _FIRST
    while flag != _LAST:
        flag, length = _part(os.pread(fd, _PART.size, here), here, size, where)
        if flag not in ((_FIRST,) if here == at else (_MIDDLE, _LAST)):
            raise UsageError(f"{where} is damaged at byte {here:,}: the record at byte {at:,} does not end; {_COPY}")
        here += _PART.size + _padded(length)
        total += len(_MAGIC) + length
        if total > _LENGTH:
            raise UsageError(f"{where} is damaged at byte {at:,}: no record has more than {_LENGTH:,} bytes; {_COPY}")
    return here, total


def _part(head: bytes, at: int, size: int, where: str) -> tuple[int, int]:
    """The flag of the part that begins with `head` at byte `at`, and the length of its data."""
    if not head.startswith(_MAGIC[: len(head)]) or (at == 0 and len(head) < len(_MAGIC)):
        if at == 0:
            begins = head[: len(_MAGIC)].hex(" ")
            raise UsageError(f"{where} is no RecordIO file: it begins with {begins}, not with {_MAGIC.hex(' ')}")
        raise UsageError(f"{where} is damaged at byte {at:,}: no record begins there; {_COPY}")
    word = _PART.unpack_from(head)[1] if len(head) >= _PART.size else 0
    if at + _PART.size + _padded(word & _LENGTH) > size:
        raise UsageError(f"{where} is truncated: it ends inside the record at byte {at:,}; {_COPY}")
    return word >> 29, word & _LENGTH


def _padded(length: int) -> int:
    return (length + 3) & ~3


def _whole(labels: NDArray[np.float32]) -> NDArray[np.int64] | NDArray[np.float32]:
    """Labels as int64 if all of them are whole numbers."""
    with np.errstate(invalid="ignore"):
        whole = (np.abs(labels) < EXACT) & (labels == np.rint(labels))
    return labels.astype(np.int64) if whole.all() else labels


def _check_index(path: str, starts: NDArray[np.int64]) -> None:
    """Raise UsageError where there is an `.idx` next to a file that does not list its records. It is not needed: all
    that it says is in the records too."""
    index = Path(path).with_suffix(".idx")
    where, listed = plain(os.fsencode(index)), array("q")
    if not os.path.lexists(index):
        return
    try:
        with reading(where), index.open("rb") as lines:
            while line := lines.readline(_LINE):
                listed.append(int(line.split(b"\t")[1]))
    except (ValueError, IndexError, OverflowError):
        wrong = f"its line {len(listed) + 1} is not a key, a tab and a position"
    else:
        if np.array_equal(np.sort(np.array(listed, np.int64)), starts):
            return
        wrong = f"it lists {len(listed):,} records, and not those that the file has, which are {len(starts):,}"
    raise UsageError(
        f"{where} does not belong to {plain(os.fsencode(Path(path).name))}: {wrong}. rawpack does not need it: move it "
        "away, or make it again with mxnet's rec2idx.py"
    )
