"""RecordIO files of images, as mxnet and InsightFace have them, as a source."""

from __future__ import annotations

import os
from array import array
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.archives.records import Record, RecordImages, records
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, numbered, unseen
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import reason_of, stop_if_of_any_file
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.listing.numbers import is_small
from rawpack_packer.sources.table.columns import Numbers, RaggedColumn, ends_of, texts_of
from rawpack_packer.sources.table.labels import (
    NO_COUNTS,
    Classes,
    named_file,
    number_labels,
)
from rawpack_packer.sources.table.named_files import NamedFiles, named_files, source_name
from rawpack_packer.sources.table.source import TableSource
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.spool import Spool

_NOT_RECORDS = {
    ".bin": "a .bin is a pickle, which could run code when it is read, so rawpack does not read it: unpack it with "
    "InsightFace's own tools if you trust it",
    ".idx": "an .idx lists records: give the .rec next to it",
    ".lst": "a .lst lists images for im2rec: give the .rec that was made of it",
}
_LINE = 1 << 12
"""Bytes that a line of an .idx may have."""
_BESIDE = frozenset({".idx", ".lst", ".bin", ".txt", ".md", ".json", ""})
"""Suffixes of other files in a folder of RecordIO files: indexes, lists, verification sets, `property`."""


class RecordIOSource(TableSource):
    """The image records of `.rec` files, as a `Source`: their image files, in the order of the files.

    The key of a sample is the id in its record; where two records have the same id, keys are the numbers of samples.
    Records with one label each have a field `label`: int64 if all labels are whole numbers, else float32. Records with
    several have a field `labels`, float32. Records with several labels and no image, as InsightFace's files have them,
    are left out; in these files, `label` is the first of `labels`.

    `info.counts`: header_records (those that were left out), unlabelled (label -1), empty_classes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        classes: Classes | None = None,
        spool: Spool | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """path: see `named_files`; or a folder with one file. classes: the names of labels. spool: for files behind
        URLs. progress: called with the number of records.

        Raises UsageError where a file is no RecordIO file, is damaged, holds no images, or has an .idx of other
        records.
        """
        where = source_name(path)
        if cure := _NOT_RECORDS.get(Path(path).suffix.lower()):
            raise UsageError(f"{where}: {cure}")
        files = named_files(_in_folder(path, where) if os.path.isdir(path) else path, spool)  # noqa: PTH112
        found = _FoundRecords()
        with files.looked_through():
            for number in range(len(files)):
                found.read(files, number, progress)
        progress(found.seen)
        found.check(where)
        columns = found.labels()
        fields = {
            name: FieldKind(column.values.dtype.name, (None,) if isinstance(column, RaggedColumn) else shape)
            for name, column in columns.items()
            for shape in [column.values.shape[1:]]
        }
        label = columns.get("label")
        labels = None
        if label is not None and label.values.dtype == np.int64:
            labels = number_labels(label.values, classes, where=where)
        elif classes is not None:
            raise UsageError(
                f"{opt.classes} names labels that are whole numbers, one for each image; {where} has others"
            )
        keys, by_number = found.keys()
        info = SourceInfo(
            kind="recordio",
            root=where,
            paths=files.on_disk,
            fields=fields,
            numbered=by_number,
            options=given_options(classes=named_file(classes)),
            counts={"header_records": found.headers, **NO_COUNTS},
        )
        super().__init__(info, texts_of(keys), found.images(files), columns, labels=labels)


def is_recordio(path: Path) -> bool:
    """Whether a path, which may be a range or a glob, names RecordIO files; or a folder of such files."""
    try:
        return bool(_records_in(path)) if path.is_dir() else path.suffix.lower() == ".rec"
    except OSError:
        return False


def _in_folder(folder: str | os.PathLike[str], where: str) -> str:
    """The one RecordIO file in a folder. Raises UsageError."""
    found = _records_in(Path(folder))
    if len(found) != 1:
        names = listed([plain(os.fsencode(Path(name).name)) for name in found], 5)
        raise UsageError(f"{where} holds {names or 'no .rec, or other data too'}: name the .rec to pack")
    return found[0]


def _records_in(folder: Path) -> list[str]:
    """The RecordIO files in a folder; none if it holds what InsightFace and MXNet do not put next to them."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            suffix = Path(entry.name).suffix.lower()
            if suffix == ".rec":
                found.append(entry.path)
            elif not entry.name.startswith(".") and (entry.is_dir() or suffix not in _BESIDE):
                return []
    return sorted(found)


class _FoundRecords:
    """The image records of all files, as arrays."""

    def __init__(self) -> None:
        self.seen = self.headers = 0
        """Records, and those without an image."""
        self._some_image = False
        """Whether any record holds what begins like an image."""
        self._first: tuple[int, bytes] | None = None
        """Size and first bytes of what the first record holds."""
        self._file, self._offset, self._size = array("i"), array("q"), array("q")
        self._split: dict[int, tuple[int, int]] = {}
        self._labels, self._counts = bytearray(), array("i")
        self._ids, self._high = array("Q"), array("Q")

    def read(self, files: NamedFiles, number: int, progress: Scanning) -> None:
        """Find the records of one file."""
        from rawpack_packer.images import sniff

        where, size, starts = files.name(number), files.state(number)[0], array("q")
        if not size:
            raise UsageError(f"{where} is empty: copy it again")
        kept = files.kept(number, "records", Record)
        try:
            with nullcontext(-1) if kept is not None else files.opened(number, keep=False) as fd:
                found = files.keeping(number, "records", records(fd, size, where)) if kept is None else kept
                for one in found:
                    self.seen += 1
                    if self.seen % PROGRESS_EVERY == 0:
                        progress(self.seen)
                    starts.append(one.start)
                    if one.several and not one.size:
                        self.headers += 1
                        continue
                    if one.split:
                        self._split[len(self._file)] = one.end - one.start, one.before
                    self._file.append(number)
                    self._offset.append(one.offset)
                    self._size.append(one.size)
                    self._labels += one.labels
                    self._counts.append(len(one.labels) // 4)
                    self._ids.append(one.id)
                    self._high.append(one.high)
                    self._some_image = self._some_image or sniff(one.first) is not None
                    self._first = self._first or (one.size, one.first)
        except DecodeError as error:
            raise UsageError(f"{where}: {error.detail}") from None
        except OSError as error:
            stop_if_of_any_file(error, where)
            raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
        if not files.remotes:
            _check_index(files.paths[number], np.array(starts, np.int64))

    def check(self, where: str) -> None:
        """Raise UsageError where there is no image."""
        if self._first is None:
            raise UsageError(f"{where} has no image: all of its {self.headers:,} records have labels alone")
        if not self._some_image:
            size, first = self._first
            raise UsageError(
                f"{where} holds no image files: the first record has {size:,} bytes that begin with "
                f"{first[:8].hex(' ')}. Raw pixels are not read, since nothing says their shape: make the .rec again "
                "with JPEG or PNG images, or pack an .npy"
            )

    def keys(self) -> tuple[list[str], bool]:
        """The keys of all samples, and whether they are numbers because ids are not unique."""
        ids = list(zip(self._high, self._ids, strict=True)) if any(self._high) else self._ids
        if len(set(ids)) < len(ids):
            return [numbered(i) for i in range(len(ids))], True
        return [str(high << 64 | low) for high, low in zip(self._high, self._ids, strict=True)], False

    def labels(self) -> dict[str, Numbers | RaggedColumn]:
        """The fields."""
        values = np.frombuffer(bytes(self._labels), "<f4").astype(np.float32)
        counts, ends = np.array(self._counts), ends_of(self._counts)
        if (counts == 1).all():
            return {"label": Numbers(_whole(values))}
        columns = dict[str, Numbers | RaggedColumn]()
        if self.headers:
            columns["label"] = Numbers(_whole(values[ends[:-1]]))
        if (counts == counts[0]).all():
            return columns | {"labels": Numbers(values.reshape(-1, counts[0]))}
        return columns | {"labels": RaggedColumn(values, ends)}

    def images(self, files: NamedFiles) -> RecordImages:
        """The column of images."""
        sizes = np.array(self._size, np.int64)
        return RecordImages(
            files,
            np.array(self._file, np.int32),
            np.array(self._offset, np.int64),
            np.stack([sizes, np.full_like(sizes, -1)], axis=1),
            split=self._split,
        )


def _whole(labels: NDArray[np.float32]) -> NDArray[np.int64] | NDArray[np.float32]:
    """Labels as int64 if all of them are whole numbers."""
    with np.errstate(invalid="ignore"):
        whole = is_small(labels) & (labels == np.rint(labels))
    return labels.astype(np.int64) if whole.all() else labels


def _check_index(path: str, starts: NDArray[np.int64]) -> None:
    """Raise UsageError where there is an `.idx` next to a file that does not list its records. It is not needed: all
    that it says is in the records too."""
    index = Path(path).with_suffix(".idx")
    where, listed = plain(os.fsencode(index)), array("q")
    try:
        with index.open("rb") as lines:
            while line := lines.readline(_LINE):
                listed.append(int(line.split(b"\t")[1]))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
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
