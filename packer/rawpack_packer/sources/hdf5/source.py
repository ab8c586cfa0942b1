"""The rows of the data sets of an HDF5 file as a source."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import is_no_fault_of_data, is_of_system, stop_if_of_any_file
from rawpack_packer.options import opt
from rawpack_packer.sources.array_files import HDF5, ArraysAt, file_at, labels_beside
from rawpack_packer.sources.axes import Axes, channels_last, turned
from rawpack_packer.sources.base import Column, Rows, Scanning, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind, Value
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNREADABLE, changed, check_path, fault_of
from rawpack_packer.sources.hdf5.file import (
    NUMBERS,
    OPAQUE,
    TEXT,
    VLEN,
    DataSet,
    LookAt,
    open_data_set,
    open_file,
    texts_in,
)
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.named_arrays import SaidOfArrays
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import LABEL, NO_COUNTS, ChosenColumns, ColumnInfo, Habits
from rawpack_packer.sources.table.columns import RowNumbers, Texts, rows_at, texts_of
from rawpack_packer.sources.table.named_files import named_files
from rawpack_packer.text import plain

T = TypeVar("T")
_GROUPS = "see docs/how-to/what-is-not-read.md#hdf5 for a group of each sample"
_BLOCK_BYTES = 8 << 20
_BLOCK_ROWS = 4096
_VLEN_ROWS = 32
"""Rows of a block where the size of a row is not known."""


class Hdf5Source(TableSource):
    """The rows of the data sets of an HDF5 file as a `Source`.

    Images are arrays, stored as they are, or image files as uint8 of variable length or opaque bytes. The only data set
    that can be images is them; `label` is the one of that name, or the only one of whole numbers; the others of as many
    rows are fields. Labels that are texts are the names of classes. Texts in a data set `key` are keys; without one,
    samples are numbered. Labels may be in a file of their own, whose name says so: `train_y.h5` beside `train_x.h5`.
    In groups of data sets that are an image each, first-level groups are the classes, and paths are the keys.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    def __init__(self, path: str | os.PathLike[str], /, *, progress: Scanning = unseen, **options: Any) -> None:
        """path: a file; a folder of one; either may end in a split. progress: called with the number of samples.
        options: of `SaidOfArrays`, whose arrays are data sets.

        Raises UsageError where the file is damaged or hostile, or where something has to be named; DividedError where
        there are several splits.
        """
        at = file_at(path, HDF5, "hdf5")
        files = named_files(at.file.path.absolute())
        said, file = SaidOfArrays(**options), files.paths[0]
        of, root = Hdf5File(file, files.state(0)), plain(os.fsencode(Path(path).absolute()))
        with LookAt(Path(file)) as look:
            found = _found(look, at, said)
            groups = [name.rpartition("/")[0] for name in found]
            several = all(groups) and len({*groups}) < len(groups)  # in groups of which one holds several
            if not said.names() and several and all(one.is_one_image for one in found.values()):
                self._of_single_images(found, of, said, root, at)
            else:
                self._of_rows(look, found, of, said, root, at)
        of.check()
        progress(len(self))

    def _of_rows(
        self, look: LookAt, found: Mapping[str, DataSet], of: Hdf5File, said: SaidOfArrays, root: str, at: ArraysAt
    ) -> None:
        """A row of data sets is a sample."""
        chosen = _choose(look, found, said, root)
        image, alone = found[chosen.image], not chosen.fields and chosen.label is None
        chw = _check_images(image, said, said.axes(found), root, alone=alone)
        kinds, turned_too = dict[str, FieldKind](), dict[str, bool]()
        for name, of_file in chosen.fields.items():
            one, word = found[of_file], said.words.get(name)
            if word is not None and one.are_files:
                kinds[name] = first_pixels(word, name, partial(look.row, one), range(one.shape[0]))
                turned_too[name] = False
            elif isinstance(kind := _kind(one), FieldKind):
                first = said.further_chw(name, kind.shape, found, f"{root}: {one}")
                kinds[name] = replace(kind, shape=turned(kind.shape, first))
                turned_too |= {name: first} if word is not None else {}
        label, key = (None if name is None else look.values(found[name]) for name in (chosen.label, chosen.key))
        states, problems = [of.state], list[str]()
        if isinstance(label, np.ndarray):
            label = label.reshape(-1)
        listing, count = labels_beside(at.file), image.shape[0]
        if listing is not None and label is None and LABEL not in kinds and not said.names_image:
            place = listing.path.absolute()
            beside = Hdf5File(str(place), named_files(place).state(0))
            with LookAt(place) as look_beside:
                sets = look_beside.data_sets()
                fitting = [one for one in sets if one.is_label and one.shape[:1] == (count,)]
                if len(fitting) == 1:
                    label = look_beside.values(fitting[0])
                    states.append(beside.state)
                else:
                    what = f"has no label for each of the {count:,} images: it contains"
                    problems.append(f"{beside.name}, next to it, {what} {', '.join(map(str, sets)) or 'nothing'}")
        labels, keys = said.labels(label, root), said.keys(None if key is None else [*map(str, key)], root, problems)
        left_out = (*chosen.left_out, *chosen.notes, *problems, *at.left_beside(listing, HDF5))
        info = said.info(
            "hdf5",
            of.path,
            kinds,
            ImageKind(image.of, turned(image.shape[1:], chw)) if image.holds == NUMBERS else None,
            {**NO_COUNTS, "columns_left_out": len(chosen.left_out)},
            left_out,
            labelled=labels is not None,
            numbered=keys is None,
            root=root,
        )
        rows, kept = range(image.shape[0]), KeptOpen()
        images = Hdf5Images(Hdf5Column(of, image, rows, kept), chw)
        plain_columns = {name: Hdf5Column(of, found[of_file], rows, kept) for name, of_file in chosen.fields.items()}
        pixels = {name: Hdf5Images(plain_columns[name], first) for name, first in turned_too.items()}
        columns: dict[str, Column] = {**plain_columns, **pixels}
        every_state = np.array([*states, *at.states], np.int64)
        super().__init__(info, keys or RowNumbers(rows), images, columns, every_state, labels=labels)

    def _of_single_images(
        self, found: Mapping[str, DataSet], of: Hdf5File, said: SaidOfArrays, root: str, at: ArraysAt
    ) -> None:
        """A data set is an image, and the first-level groups are the classes."""
        sets = [one for _, one in sorted(found.items())]
        shapes, image = {one.shape for one in sets}, None
        if all(one.holds == NUMBERS and not one.is_file for one in sets):
            (dtype, *others), channels = sorted({one.of for one in sets}), {(*one.shape, 1)[2] for one in sets}
            kept = shapes.pop() if len(shapes) == 1 else (None, None, max(channels))
            alike = not others and (len(channels) == 1 or channels == {1, 3})
            image = ImageKind(dtype, kept, resized=None in kept) if alike else None
        labels = said.labels([name.partition("/")[0] for name in sorted(found)], root)
        counts, left_out = {**NO_COUNTS, "columns_left_out": 0}, tuple(at.left_beside(None, HDF5))
        info = said.info("hdf5", of.path, {}, image, counts, left_out, labelled=True, numbered=False, root=root)
        images = Hdf5Singles(of, texts_of([one.name for one in sets]), KeptOpen())
        states = np.array([of.state, *at.states], np.int64)
        super().__init__(info, texts_of(sorted(found)), images, {}, states, labels=labels)


def _found(look: LookAt, at: ArraysAt, said: SaidOfArrays) -> dict[str, DataSet]:
    """The data sets of a file, or of a split of it, by their names. Raises DividedError where there are several splits,
    and nobody says which data sets are packed."""
    every = {one.name: one for one in look.data_sets(said.names("/"))}
    rows = [name for name, one in every.items() if one.is_image and not said.are_pixels(name)]
    images = rows or [name for name, one in every.items() if one.is_one_image]
    arrays = at.arrays(every, images, "hdf5", named=said.names_image or said.columns.image is not None)
    return {name: every[of_file] for name, of_file in arrays.items()}


def _choose(look: LookAt, found: Mapping[str, DataSet], said: SaidOfArrays, where: str) -> ChosenColumns:
    """Which data set is what. Raises UsageError where the user has to name something."""
    if said.columns.image is None and any(name.startswith("data/demo_") for name in found):
        raise UsageError(f"{where} is a file of robomimic, by its data/demo_0: rawpack does not read these yet")
    no_image = (
        " that can be told by their shape, (N, H, W, C) or (N, H, W). Name them, "
        f"{opt.array('image=NAME,label=NAME')}, or {_GROUPS}"
    )
    habits = Habits(
        lone_label=True,
        name_image=lambda image: f"{opt.array(f'image={image},label=NAME')}, or {_GROUPS}",
        no_image=no_image,
    )
    columns = [
        ColumnInfo(
            name=name,
            type=f"{one.dtype} {one.shape}",
            field=None if one.are_files and said.are_pixels(one.name) else _kind(one),
            is_image=one.is_image,
            is_label=one.is_label,
            is_whole=one.is_label and one.is_whole,
            is_key=one.holds == TEXT and len(one.shape) == 1,
            first=partial(look.values, one),
            rows=one.shape[0] if one.shape else None,
        )
        for name, one in found.items()
    ]
    return said.choose(columns, where, habits, root="/")


def _check_images(image: DataSet, said: SaidOfArrays, axes: Axes | None, where: str, *, alone: bool) -> bool:
    """Whether the channels of images come first. Raises UsageError where a data set cannot be images."""
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
    return not is_file and said.chw(image.shape, image.name, axes, f"{where}: {image}", alone=alone)


def _kind(one: DataSet) -> FieldKind | str:
    """What a field holds; or why none can hold it."""
    if not one.holds or one.holds == OPAQUE or (one.holds in (TEXT, VLEN) and len(one.shape) != 1):
        return one.why or f"no field can store {one.dtype} with {len(one.shape)} axes"
    if one.holds == TEXT:
        return FieldKind("str")
    try:
        return FieldKind(one.of, (None,) if one.holds == VLEN else one.shape[1:])
    except UsageError as error:
        return str(error)


@dataclass(frozen=True)
class Hdf5File:
    """A file as it was when the source was opened."""

    path: str
    state: tuple[int, int]
    """Size in bytes and mtime in ns."""

    @property
    def name(self) -> str:
        """For messages, which name no absolute path."""
        return plain(Path(self.path).name)

    def check(self) -> None:
        """Raise SourceChangedError where the file is no longer the one that was opened."""
        check_path(self.path, self.state, self.name)


@dataclass(frozen=True, eq=False)
class Hdf5Column:
    """The rows of a data set, read in blocks when they are asked for."""

    file: Hdf5File
    data_set: DataSet
    rows: range | Rows
    kept: KeptOpen

    def value(self, i: int, /) -> Value:
        return self.kept.rows(self.file).value(self.data_set, int(self.rows[i]))

    def pick(self, rows: Rows, /) -> Hdf5Column:
        return replace(self, rows=rows_at(self.rows, rows))


@dataclass(frozen=True, eq=False)
class Hdf5Images:
    """A column of images or masks: arrays, or image files."""

    column: Hdf5Column
    chw: bool
    """Whether the channels of arrays come first in the file."""

    def value(self, i: int, /) -> bytes | NDArray[Any]:
        file, row = self.column.file, int(self.column.rows[i])
        file.check()
        value = self.column.value(i)
        assert isinstance(value, np.ndarray | bytes)
        if self.column.data_set.holds == NUMBERS:
            assert isinstance(value, np.ndarray)
            return channels_last(value) if self.chw else value
        data = value if isinstance(value, bytes) else value.tobytes()
        if not data:
            raise DecodeError("empty", f"{file.name}, row {row}: there is no image")
        if len(data) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{file.name}, row {row}: the image has {len(data):,} bytes")
        return data

    def pick(self, rows: Rows, /) -> Hdf5Images:
        return replace(self, column=self.column.pick(rows))


@dataclass(frozen=True, eq=False)
class Hdf5Singles:
    """Images of which each is a data set of its own: pixels, or a file."""

    file: Hdf5File
    names: Texts
    kept: KeptOpen

    def value(self, i: int, /) -> bytes | NDArray[Any]:
        self.file.check()
        return self.kept.rows(self.file).whole(self.names.value(i))

    def pick(self, rows: Rows, /) -> Hdf5Singles:
        return replace(self, names=self.names.pick(rows))


class _Rows:
    """Reads rows of one file, and keeps the last block of each data set, so that rows in order are read once."""

    def __init__(self, file: Hdf5File) -> None:
        self.of = file
        self._open: Any = None
        self._data_sets: dict[str, tuple[Any, int]] = {}
        """Name -> the data set, and the rows of a block."""
        self._blocks: dict[str, tuple[int, Any]] = {}
        """Name -> the first row of the last block, and its values."""

    def value(self, data_set: DataSet, row: int) -> Value:
        """The value of a row, which the caller may keep. Raises DecodeError where it cannot be read."""

        def read(again: bool) -> Any:
            if data_set.name not in self._data_sets:
                self._data_sets[data_set.name] = self._opened(data_set)
            opened, count = self._data_sets[data_set.name]
            start, values = self._blocks.get(data_set.name, (0, ()))
            if not start <= row < start + len(values):
                if again:
                    return opened[row]  # others of its block may be damaged
                start = row // count * count
                values = opened[start : start + count]
                self._blocks[data_set.name] = start, values
            return values[row - start]

        where = f"{self.of.name}, {plain(data_set.name)}, row {row}"
        value = self._attempted(read, where)
        if data_set.holds == TEXT:
            (text,) = texts_in([value])
            if text is None:
                raise DecodeError("bad_field", f"{where} is not UTF-8")
            return text
        return _bytes_or_array(value, self._data_sets[data_set.name][0].dtype.itemsize)

    def whole(self, name: str) -> bytes | NDArray[Any]:
        """All of a data set that is one image. Raises DecodeError where it cannot be read."""

        def read(_: bool) -> bytes | NDArray[Any]:
            opened = open_data_set(self._file(), name)
            return _bytes_or_array(opened[()], opened.dtype.itemsize)

        value = self._attempted(read, f"{self.of.name}, {plain(name)}")
        return value.tobytes() if isinstance(value, np.ndarray) and value.ndim < 2 else value

    def _attempted(self, read: Callable[[bool], T], what: str) -> T:
        """What `read` returns, which is called again, with True, where it fails. Raises DecodeError, which names what
        is read.

        The file is opened anew each time: HDF5 takes what a failed read left in its buffers for the file's bytes, and
        returns zeros, or nothing, without an error.
        """
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
                stop_if_of_any_file(error, self.of.name)
            reason = UNREADABLE if is_of_system(error) else "corrupt"
            raise DecodeError(reason, f"{what} cannot be read: {fault_of(error, self.of.path)}") from error

    def _file(self) -> Any:
        if self._open is None:
            self._open = open_file(self.of.path)
        return self._open

    def _close(self) -> None:
        opened, self._open = self._open, None
        self._data_sets.clear()
        if opened is not None:
            opened.close()

    def _opened(self, data_set: DataSet) -> tuple[Any, int]:
        opened = open_data_set(self._file(), data_set.name)
        if opened.shape != data_set.shape:
            raise changed(self.of.name, f"{plain(data_set.name)} has another shape")
        if data_set.holds not in (NUMBERS, TEXT):
            return opened, _VLEN_ROWS
        # Without what values of variable length point at.
        row_bytes = math.prod(opened.shape[1:]) * opened.dtype.itemsize
        count = min(max(_BLOCK_BYTES // max(row_bytes, 1), 1), _BLOCK_ROWS)
        chunk = opened.chunks[0] if opened.chunks else 1  # rows that are compressed together
        return opened, count // chunk * chunk or count


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
    """Keeps a file open from one part to the next: a large chunk is inflated once, not for each part.

    The parts of one source share it in the process of the source, and the file is closed with the last of them: HDF5
    opens no file for writing that the same process has open. In a worker, all parts of a thread share one.
    """

    def __init__(self) -> None:
        self._rows: _Rows | None = None

    def __reduce__(self) -> tuple[Callable[[], KeptOpen], tuple[()]]:
        return _of_this_thread, ()

    def rows(self, file: Hdf5File) -> _Rows:
        """The rows of a file."""
        if self._rows is None or self._rows.of != file:
            self._rows = _Rows(file)
        return self._rows


_OPEN = threading.local()


def _of_this_thread() -> KeptOpen:
    kept: KeptOpen = _OPEN.__dict__.setdefault("kept", KeptOpen())
    return kept
