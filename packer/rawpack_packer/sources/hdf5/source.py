"""The rows of the data sets of an HDF5 file as a source."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import is_no_fault_of_data, is_of_system, stop_if_of_any_file
from rawpack_packer.options import opt
from rawpack_packer.sources.array_files import ArraysAt, file_at, labels_beside
from rawpack_packer.sources.axes import Axes, channels_last, turned
from rawpack_packer.sources.base import Column, Rows, Scanning, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNREADABLE, ScannedFile, changed, fault_of
from rawpack_packer.sources.hdf5.file import (
    NUMBERS,
    OPAQUE,
    TEXT,
    VLEN,
    DataSet,
    LookAt,
    all_values,
    data_sets,
    open_data_set,
    open_file,
    row_of,
    texts_in,
)
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.named_arrays import ArrayOptions
from rawpack_packer.sources.table.choose import LABEL, ChosenColumns, ColumnInfo, Habits, labels_of_column
from rawpack_packer.sources.table.columns import Texts, rows_at, texts_of
from rawpack_packer.sources.table.named_files import named_files
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import h5py

T = TypeVar("T")
_BY_CLASS = "docs/how-to/what-is-not-read.md#hdf5"
_GROUPS = f"see {_BY_CLASS} for a group of each sample"
_BLOCK_BYTES = 8 << 20
_BLOCK_ROWS = 4096
_VLEN_ROWS = 32
"""Rows of a block where the size of a row is not known."""


def open_hdf5(path: str | os.PathLike[str], /, *, progress: Scanning = unseen, **options: Any) -> Table:
    """The rows of the data sets of an HDF5 file.

    Images are arrays, stored as they are, or image files as uint8 of variable length or opaque bytes. The only data set
    that can be images is them; `label` is the one of that name, or the only one of whole numbers; the others of as many
    rows are fields. Labels that are texts are the names of classes. Texts in a data set `key` are keys; without one,
    samples are numbered. Labels may be in a file of their own, whose name says so: `train_y.h5` beside `train_x.h5`.
    In groups of data sets that are an image each, first-level groups are the classes, and paths are the keys.

    `SourceInfo.counts`: unlabelled, empty_classes, columns_left_out.

    path: a file; a folder of one; either may end in a split. progress: called with the number of samples.
    options: of `ArrayOptions`, whose arrays are data sets.

    Raises UsageError where the file is damaged or hostile, or where something has to be named; DividedError where
    there are several splits.
    """
    at, wanted = file_at(path, "hdf5"), ArrayOptions(**options)
    file = _scanned(at.file)
    with LookAt(Path(file.path)) as look:
        sets = _data_sets(look, at, wanted)
        groups = [name.rpartition("/")[0] for name in sets]
        several = all(groups) and len({*groups}) < len(groups)  # in groups of which one holds several
        if not wanted.names() and several and all(data_set.is_one_image for data_set in sets.values()):
            table = _table_of_single_images(sets, file, wanted, at)
        else:
            table = _table_of_rows(look, sets, file, wanted, at)
    file.check()
    progress(len(table))
    return table


def _table_of_rows(
    look: LookAt, sets: Mapping[str, DataSet], file: ScannedFile, wanted: ArrayOptions, at: ArraysAt
) -> Table:
    """A row of data sets is a sample."""
    chosen, kept, files, notes = _choose(look, sets, wanted, at.root), KeptOpen(), [file], list[str]()
    image = sets[chosen.image]
    _check_images(image, wanted.axes(sets), at.root)
    rows = range(image.shape[0])
    chw = image.holds == NUMBERS and wanted.chw(image.shape, chosen, sets, f"{at.root}: {image}")
    kinds, columns = dict[str, FieldKind](), dict[str, Column]()
    for name, in_file in chosen.fields.items():
        data_set, kind, moves = sets[in_file], _kind(sets[in_file]), False
        if name in wanted.words and data_set.are_files:
            kinds[name] = first_pixels(wanted.words[name], name, partial(look.ask, row_of, data_set), rows)
        elif isinstance(kind, FieldKind):
            kinds[name], moves = wanted.further(name, kind, sets, f"{at.root}: {data_set}")
        columns[name] = Hdf5Column(file, kept, data_set, rows, are_images=name in wanted.words, chw=moves)
    label, key = (None if name is None else look.ask(all_values, sets[name]) for name in (chosen.label, chosen.key))
    if (listing := labels_beside(at.file)) and label is None and LABEL not in kinds and not wanted.names_image:
        label = _labels_in(listing, files, len(rows), notes)
    notes += at.left_beside(listing)
    return wanted.table(
        at,
        files,
        chosen=chosen,
        images=Hdf5Column(file, kept, image, rows, are_images=True, chw=chw),
        image=ImageKind(image.of, turned(image.shape[1:], chw)) if image.holds == NUMBERS else None,
        fields=kinds,
        columns=columns,
        count=len(rows),
        labels=labels_of_column(label, wanted.classes, at.root),
        key=None if key is None else [*map(str, key)],
        notes=notes,
    )


def _labels_in(
    listing: Listing, files: list[ScannedFile], count: int, notes: list[str]
) -> NDArray[Any] | list[str] | None:
    """The labels in a file that is named as theirs, which `files` gets; `notes` gets why there are none."""
    file = _scanned(listing)
    with LookAt(Path(file.path)) as look:
        sets = look.ask(data_sets)
        fitting = [data_set for data_set in sets if data_set.is_label and data_set.shape[:1] == (count,)]
        if len(fitting) == 1:
            files.append(file)
            return look.ask(all_values, fitting[0])
    what = f"has no label for each of the {count:,} images: it contains"
    notes.append(f"{file.name}, next to it, {what} {', '.join(map(str, sets)) or 'nothing'}")
    return None


def _table_of_single_images(
    sets: Mapping[str, DataSet], file: ScannedFile, wanted: ArrayOptions, at: ArraysAt
) -> Table:
    """A data set is an image, and the first-level groups are the classes."""
    names, image = sorted(sets), None
    singles = [sets[name] for name in names]
    shapes = {data_set.shape for data_set in singles}
    if all(data_set.holds == NUMBERS and not data_set.is_file for data_set in singles):
        dtypes, channels = {data_set.of for data_set in singles}, {(*shape, 1)[2] for shape in shapes}
        shape = shapes.pop() if len(shapes) == 1 else (None, None, max(channels))
        if len(dtypes) == 1 and (len(channels) == 1 or channels == {1, 3}):
            image = ImageKind(dtypes.pop(), shape, resized=None in shape)
    in_file = texts_of([data_set.name for data_set in singles])
    return wanted.table(
        at,
        [file],
        chosen=ChosenColumns("", None, None, {}, ()),
        images=Hdf5Column(file, KeptOpen(), in_file, range(len(names)), are_images=True),
        image=image,
        fields={},
        columns={},
        count=len(names),
        labels=labels_of_column([name.partition("/")[0] for name in names], wanted.classes, at.root),
        key=names,
        notes=at.left_beside(),
    )


def _scanned(listing: Listing) -> ScannedFile:
    files = named_files(listing.path.absolute())
    return ScannedFile(files.paths[0], files.state(0))


def _data_sets(look: LookAt, at: ArraysAt, wanted: ArrayOptions) -> dict[str, DataSet]:
    """The data sets of a file, or of a split of it, by their names. Raises DividedError where there are several splits,
    and nobody says which data sets are packed."""
    every = {data_set.name: data_set for data_set in look.ask(data_sets, wanted.names())}
    rows = [name for name, data_set in every.items() if data_set.is_image and not wanted.are_pixels(name)]
    images = rows or [name for name, data_set in every.items() if data_set.is_one_image]
    arrays = at.arrays(every, images, named=wanted.names_image or wanted.columns.image is not None)
    return {name: every[in_file] for name, in_file in arrays.items()}


def _choose(look: LookAt, sets: Mapping[str, DataSet], wanted: ArrayOptions, where: str) -> ChosenColumns:
    """Which data set is what. Raises UsageError where the user has to name something."""
    demos = [name for name in sets if name.startswith("data/demo_")]
    if demos and not wanted.names_image and wanted.columns.image is None:
        name = next((name for name in demos if sets[name].is_image), f"{demos[0].rpartition('/')[0]}/NAME")
        raise UsageError(
            f"{where} is a file of robomimic, by its {'/'.join(demos[0].split('/')[:2])}: rawpack does not read these "
            f"yet. {opt.array(f'image={plain(name)}')} packs one demonstration; for all, see {_BY_CLASS} for a class"
        )
    no_image = " that can be told by their shape, (N, H, W, C) or (N, H, W). Name them, "
    habits = Habits(
        lone_label=True,
        name_image=lambda image: f"{opt.array(f'image={image},label=NAME')}, or {_GROUPS}",
        no_image=f"{no_image}{opt.array('image=NAME,label=NAME')}, or {_GROUPS}",
    )
    columns = [
        ColumnInfo(
            name=name,
            type=f"{data_set.dtype} {data_set.shape}",
            field=None if data_set.are_files and wanted.are_pixels(data_set.name) else _kind(data_set),
            is_image=data_set.is_image,
            is_label=data_set.is_label,
            is_whole=data_set.is_label and data_set.is_whole,
            is_key=data_set.holds == TEXT and len(data_set.shape) == 1,
            first=partial(look.ask, all_values, data_set),
            rows=data_set.shape[0] if data_set.shape else None,
        )
        for name, data_set in sets.items()
    ]
    return wanted.choose(columns, where, habits)


def _check_images(image: DataSet, axes: Axes | None, where: str) -> None:
    """Raise UsageError where a data set cannot be images."""
    is_file = image.holds in (VLEN, OPAQUE)
    if not is_file and image.holds != NUMBERS:
        raise UsageError(f"{where}: {image} cannot be images: they are numbers, or image files as bytes")
    if not image.shape or not image.shape[0] or (len(image.shape) < 2) != is_file:
        raise UsageError(
            f"{where}: {image} cannot be images: the first axis counts samples, at least one, and the others make an "
            "image; image files are uint8 of variable length, on one axis"
        )
    if is_file and axes == "chw":
        raise UsageError(f"{where}: {image} contains image files, which have no channels to move: leave out :{axes}")


def _kind(data_set: DataSet) -> FieldKind | str:
    """What a field holds; or why none can hold it."""
    holds, shape = data_set.holds, data_set.shape
    if not holds or holds == OPAQUE or (holds in (TEXT, VLEN) and len(shape) != 1):
        return data_set.why or f"no field can store {data_set.dtype} with {len(shape)} axes"
    try:
        return FieldKind("str") if holds == TEXT else FieldKind(data_set.of, (None,) if holds == VLEN else shape[1:])
    except UsageError as error:
        return str(error)


@dataclass(frozen=True, eq=False)
class Hdf5Column:
    """Rows of a data set, read in blocks when they are asked for; or data sets of which each is an image."""

    file: ScannedFile
    kept: KeptOpen
    data: DataSet | Texts
    """The data set; or the names of those that are an image each."""
    rows: range | Rows
    are_images: bool = False
    """Whether the values are images or masks: arrays, or image files."""
    chw: bool = False
    """Whether the channels of arrays come first in the file."""

    def value(self, i: int, /) -> Any:
        row = int(self.rows[i])
        if self.are_images:
            self.file.check()
        if isinstance(self.data, Texts):
            return self.kept.whole(self.file, self.data.value(row))
        value = self.kept.row(self.file, self.data, row)
        if not self.are_images or self.data.holds == NUMBERS:
            return channels_last(value) if self.chw else value
        data = value if isinstance(value, bytes) else value.tobytes()
        if not data:
            raise DecodeError("empty", f"{self.file.name}, row {row}: there is no image")
        if len(data) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{self.file.name}, row {row}: the image has {len(data):,} bytes")
        return data

    def pick(self, rows: Rows, /) -> Hdf5Column:
        if isinstance(self.data, Texts):
            return replace(self, data=self.data.pick(rows), rows=range(len(rows)))
        return replace(self, rows=rows_at(self.rows, rows))


def _bytes_or_array(value: Any, size: int) -> bytes | NDArray[Any]:
    """A value as bytes, or as an array in this machine's byte order. size: of a text's place in the file, which is
    filled with zeros: h5py drops them, and files other than JPEG and PNG may end in some of their own."""
    if isinstance(value, bytes):
        return bytes(value) if value.startswith((b"\xff\xd8", b"\x89PNG")) else value.ljust(size, b"\0")
    if isinstance(value, np.void):
        return value.tobytes()
    array = np.array(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class KeptOpen:
    """Reads rows of a file that stays open from one part to the next: a large chunk is inflated once, not for each
    part. Of each data set, the last block is kept, so that rows in order are read once.

    The parts of one source share it in the process of the source, and the file is closed with the last of them: HDF5
    opens no file for writing that the same process has open. In a worker, all parts of a thread share one.
    """

    def __init__(self) -> None:
        self._file: ScannedFile | None = None
        self._open: h5py.File | None = None
        self._data_sets = dict[str, tuple[Any, int]]()
        """Name -> the data set, and the rows of a block."""
        self._blocks = dict[str, tuple[int, Any]]()
        """Name -> the first row of the last block, and its values."""

    def __reduce__(self) -> tuple[Callable[[], KeptOpen], tuple[()]]:
        return _of_this_thread, ()

    def row(self, file: ScannedFile, data_set: DataSet, row: int) -> Any:
        """The value of a row, which the caller may keep. Raises DecodeError where it cannot be read."""

        def read(again: bool) -> Any:
            if data_set.name not in self._data_sets:
                self._data_sets[data_set.name] = self._opened(file, data_set)
            opened, count = self._data_sets[data_set.name]
            start, values = self._blocks.get(data_set.name, (0, ()))
            if not start <= row < start + len(values):
                if again:
                    return opened[row]  # others of its block may be damaged
                start = row // count * count
                values = opened[start : start + count]
                self._blocks[data_set.name] = start, values
            return values[row - start]

        where = f"{file.name}, {plain(data_set.name)}, row {row}"
        value = self._attempted(file, read, where)
        if data_set.holds == TEXT:
            (text,) = texts_in([value])
            if text is None:
                raise DecodeError("bad_field", f"{where} is not UTF-8")
            return text
        return _bytes_or_array(value, self._data_sets[data_set.name][0].dtype.itemsize)

    def whole(self, file: ScannedFile, name: str) -> bytes | NDArray[Any]:
        """All of a data set that is one image. Raises DecodeError where it cannot be read."""

        def read(_: bool) -> bytes | NDArray[Any]:
            opened = open_data_set(self._opened_file(file), name)
            return _bytes_or_array(opened[()], opened.dtype.itemsize)

        value = self._attempted(file, read, f"{file.name}, {plain(name)}")
        return value.tobytes() if isinstance(value, np.ndarray) and value.ndim < 2 else value

    def _attempted(self, file: ScannedFile, read: Callable[[bool], T], what: str) -> T:
        """What `read` returns, which is called again, with True, where it fails. Raises DecodeError, which names what
        is read.

        The file is opened anew each time: HDF5 takes what a failed read left in its buffers for the file's bytes, and
        returns zeros, or nothing, without an error.
        """
        if file != self._file:
            self._close()
            self._blocks.clear()
            self._file = file
        try:
            return read(False)
        except Exception:
            self._close()
        try:
            return read(True)
        except Exception as error:  # h5py raises many types for broken files
            self._close()
            if isinstance(error, DecodeError) or is_no_fault_of_data(error):
                raise
            if isinstance(error, OSError):
                stop_if_of_any_file(error, file.name)
            reason = UNREADABLE if is_of_system(error) else "corrupt"
            raise DecodeError(reason, f"{what} cannot be read: {fault_of(error, file.path)}") from error

    def _opened_file(self, file: ScannedFile) -> h5py.File:
        self._open = self._open or open_file(file.path)
        return self._open

    def _close(self) -> None:
        opened, self._open = self._open, None
        self._data_sets.clear()
        if opened is not None:
            opened.close()

    def _opened(self, file: ScannedFile, data_set: DataSet) -> tuple[h5py.Dataset, int]:
        opened = open_data_set(self._opened_file(file), data_set.name)
        if opened.shape != data_set.shape:
            raise changed(file.name, f"{plain(data_set.name)} has another shape")
        if data_set.holds not in (NUMBERS, TEXT):
            return opened, _VLEN_ROWS
        # Without what values of variable length point at.
        row_bytes = math.prod(opened.shape[1:]) * opened.dtype.itemsize
        count = min(max(_BLOCK_BYTES // max(row_bytes, 1), 1), _BLOCK_ROWS)
        chunk = opened.chunks[0] if opened.chunks else 1  # rows that are compressed together
        return opened, count // chunk * chunk or count


_OPEN = threading.local()


def _of_this_thread() -> KeptOpen:
    return _OPEN.__dict__.setdefault("kept", KeptOpen())  # type: ignore[no-any-return]
