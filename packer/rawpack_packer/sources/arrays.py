"""Files of arrays as sources: `.npy` (memory-mapped), `.npz`, and IDX, the format of MNIST, gzipped or not."""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.images.npy import header_of, is_npy
from rawpack_packer.options import opt
from rawpack_packer.sources.archives.zip import directory, disagreement
from rawpack_packer.sources.array_files import ArraysAt, file_at, labels_beside, split_of
from rawpack_packer.sources.axes import turned
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import ScannedFile, parsing
from rawpack_packer.sources.inferred import inferred_kind
from rawpack_packer.sources.inflation import most_of
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.named_arrays import ArrayOptions
from rawpack_packer.sources.table.choose import (
    LABEL,
    NO_COUNTS,
    ChosenColumns,
    ColumnChoice,
    ColumnInfo,
    Habits,
    labels_of_column,
)
from rawpack_packer.sources.table.columns import Column, ImageArrays, Mapped, Numbers, texts_of
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import plain

IMAGE_NAMES = ("image", "images", "x", "X", "data", "arr_0")
"""Names of the arrays of an `.npz` that hold these; the first that occurs."""
_MAX_INFLATION = 1032
"""Bytes that one byte of gzip can hold at most."""
_IDX = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_IDX_HEAD = re.compile(rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x10]")
"""0, 0, dtype, number of axes."""
_CLASSES = {
    "fashionmnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    "kmnist": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
}
"""The letters of a folder's name, which says whose files of the same names it holds -> names of the classes."""


def is_idx(listing: Listing) -> bool:
    """Whether a file is IDX, gzipped or not, by its first bytes."""
    head = listing.head
    if listing.path.suffix == ".gz":
        with suppress(zlib.error):
            head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, 4)
    return _IDX_HEAD.match(head) is not None


def open_arrays(path: str | os.PathLike[str], /, *, progress: Scanning = unseen, **options: Any) -> Table:
    """The rows of a file of arrays. Images are stored as they are, whatever their dtype and shape, but for channels
    that come first.

    In an `.npz`, one array holds the images, and every other one is a field; or those that `array` names. The labels of
    an IDX or `.npy` file of images are in the file next to it that is named accordingly. Labels that are texts are the
    names of classes. `.npz` and gzipped files are read into memory.

    path: a file; a folder of one, as of torchvision's MNIST; either may end in a split, `mnist.npz/train`.
    options: of `ArrayOptions`, which name arrays of an `.npz`.

    Raises UsageError if `path` is not such a file, if its arrays differ in length, or if the axes have to be said;
    DividedError if it has several splits.
    """
    at, wanted = file_at(path, "arrays"), ArrayOptions(**options)
    file, notes = at.file.path.absolute(), list[str]()
    with parsing(at.root, str(file), "arrays"):
        files = [_scanned(file)]
        if file.suffix == ".npz":
            arrays = _read_npz(at, wanted, notes)
            chosen = _choose(arrays, wanted, at.root)
            image: Mapped | Numbers = Numbers(arrays[chosen.image])
        else:
            image, arrays = _read_one(at, wanted, files, notes)
            is_label = any(_info(name, array).is_label for name, array in arrays.items())
            label, others = (LABEL, {}) if is_label else (None, {name: name for name in arrays})
            chosen = ChosenColumns("", label, None, others, ())
    shape, dtype = image.values.shape, np.dtype(image.values.dtype)
    _check_images(shape, dtype, at.root)
    chw = wanted.chw(shape, chosen, arrays, at.root)
    fields, columns = dict[str, FieldKind](), dict[str, Column]()
    for name, in_file in chosen.fields.items():
        array, where = arrays[in_file], f"{at.root}: {plain(name)}"
        fields[name], moves = wanted.further(name, inferred_kind(name, array[0]), arrays, where)
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        column = texts_of(array.tolist(), where) if array.dtype.kind == "U" else Numbers(native)
        columns[name] = ImageArrays(column, chw=True) if moves else column
    values = None if chosen.label is None else arrays[chosen.label].reshape(-1)
    names = None if values is None or values.dtype.kind == "U" else _class_names(values, file)
    if values is not None and values.dtype.kind == "U":
        values = values.astype(object)  # whose texts are Python's
    labels = labels_of_column(values, wanted.classes, at.root, names)
    counts = NO_COUNTS if labels is not None and labels.names is not None else {}
    return wanted.table(
        at,
        files,
        chosen=chosen,
        images=ImageArrays(image, chw),
        image=ImageKind(dtype.name, turned(shape[1:], chw)),
        fields=fields,
        columns=columns,
        count=shape[0],
        labels=labels,
        key=None if chosen.key is None else arrays[chosen.key].tolist(),
        counts={**counts, "columns_left_out": len(chosen.left_out)} if chosen.left_out else counts,
        notes=notes,
        groups=columns.get("video"),
    )


def _read_one(
    at: ArraysAt, wanted: ArrayOptions, files: list[ScannedFile], notes: list[str]
) -> tuple[Mapped | Numbers, dict[str, NDArray[Any]]]:
    """The images of an `.npy` or IDX file, and the labels in the file next to it, which `files` gets. `notes` gets what
    is left out. Raises UsageError."""
    file = at.file.path.absolute()
    if at.split:
        raise UsageError(f"{at.root}: there are no splits in {plain(os.fsencode(file))}, which is one array")
    if wanted.names_image:
        raise UsageError(
            f"{opt.array} names the arrays of an .npz or HDF5 file, and {at.root} is neither: leave the name out; "
            f"{opt.array(':chw')} alone says that the channels of its images come first"
        )
    if wanted.columns != ColumnChoice():
        raise UsageError(f"{at.root} has no columns with names: {opt.image_column} and the like are for .npz and HDF5")
    images, beside = _array_in(at.file, files[0]), labels_beside(at.file)
    notes += at.left_beside(beside)
    if beside is None:
        return images, {}
    files.append(_scanned(beside.path.absolute()))
    labels = np.asarray(_array_in(beside, files[1]).values)
    if labels.shape[:1] != images.values.shape[:1]:
        count = len(images.values) if images.values.ndim else 0
        raise UsageError(
            f"{at.root} has {count} images, and {plain(os.fsencode(files[1].path))} next to it has labels of "
            f"shape {labels.shape}: rename it if they do not belong together"
        )
    return images, {LABEL: labels}


def _choose(arrays: Mapping[str, NDArray[Any]], wanted: ArrayOptions, root: str) -> ChosenColumns:
    """Which arrays of an `.npz` are packed, and as what. Raises UsageError."""
    no_image = f"; name it, and what else is packed: {opt.array('image=NAME,label=NAME')}"
    infos = [_info(name, array) for name, array in arrays.items()]
    chosen = wanted.choose(infos, root, Habits(IMAGE_NAMES, no_image=no_image))
    count = infos[[*arrays].index(chosen.image)].rows or 0
    for name, array in arrays.items():
        if not wanted.names_image and array.shape[:1] != (count,):
            raise UsageError(
                f"{root}: {plain(name)} has shape {array.shape}, but there are {count} images: a field needs a row "
                f"for each; {opt.array('image=NAME,label=NAME')} names all that is packed"
            )
    return chosen


def _check_images(shape: tuple[int, ...], dtype: np.dtype[Any], root: str) -> None:
    """Raise UsageError where an array cannot be images."""
    if len(shape) < 2 or not shape[0]:
        what = "the first axis must count samples, at least one, and the others must make an image"
        raise UsageError(f"{root} contains {dtype} {shape}: {what}")
    if dtype.name not in DTYPES:
        raise UsageError(
            f"{root} contains images of dtype {dtype.name}; they must be numbers of at most 64 bits, or complex "
            "numbers of at most 128"
        )


def _class_names(labels: NDArray[Any], file: Path) -> tuple[str, ...] | None:
    """The names of classes where the folder of IDX files says whose they are, if labels number them."""
    folder = file.parent.parent if file.parent.name == "raw" else file.parent
    names = _CLASSES.get(re.sub("[^a-z]", "", folder.name.lower()), ())
    fits = file.suffix not in (".npy", ".npz") and len(labels) and 0 <= labels.min() <= labels.max() < len(names)
    return names if fits else None


def _scanned(path: Path) -> ScannedFile:
    state = path.stat()
    return ScannedFile(str(path), (state.st_size, state.st_mtime_ns))


def _array_in(file: Listing, scanned: ScannedFile) -> Mapped | Numbers:
    """All rows of an array that fills its file, `.npy` or IDX. Raises UsageError where it does not."""
    path, head, cure = file.path.absolute(), file.head, ""
    order: Literal["C", "F"] = "C"
    if not head:  # also where it cannot be read
        with path.open("rb") as opened:
            opened.read(1)
    if path.suffix == ".npy":
        if head.startswith(b"PK"):
            raise UsageError(f"{path} is an .npz, by its first bytes: rename it to {path.stem}.npz")
        try:
            dtype, shape, order, offset = header_of(head)
        except DecodeError as error:
            raise UsageError(f"{plain(os.fsencode(path))} cannot be read as arrays: {error.detail}") from error
        cure = ": an .npy is one array, so write others to files of their own"
    else:
        with gzip.open(path) if path.suffix == ".gz" else io.BytesIO(head) as opened:
            head = opened.read(4)
            if not _IDX_HEAD.match(head):
                raise UsageError(f"{path} is neither .npy, .npz nor IDX: its first bytes are {head!r}")
            dtype, shape = np.dtype(_IDX[head[2]]), tuple(np.frombuffer(opened.read(4 * head[3]), ">u4").tolist())
            offset, size = opened.tell(), math.prod(shape) * dtype.itemsize
            if size > scanned.state[0] * _MAX_INFLATION:
                has = scanned.state[0]
                raise UsageError(f"{path} promises {dtype.name} {shape}, which cannot fit in its {has} bytes")
            data = opened.read(size + 1) if path.suffix == ".gz" else b""
        if path.suffix == ".gz":
            if len(data) != size:
                length = f"more than {size}" if len(data) > size else len(data)
                raise UsageError(f"{path} contains {length} bytes; {dtype.name} {shape} has {size}")
            return Numbers(np.frombuffer(data, dtype).reshape(shape))
    has, size = scanned.state[0], offset + math.prod(shape) * dtype.itemsize
    if has != size:
        cut = "" if has > size else " cannot be read as arrays: it"
        raise UsageError(f"{path}{cut} has {has} bytes; {dtype.name} {shape} has {size}{cure if has > size else ''}")
    return Mapped(scanned, dtype.str, shape, offset, order, range(shape[0] if shape else 0))


def _read_npz(at: ArraysAt, wanted: ArrayOptions, notes: list[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz`, or of a split of it, by their names; `notes` gets a line for each that is in no split.

    Raises DividedError where there are several splits, and nobody says which arrays are packed."""
    path = at.file.path.absolute()
    with path.open("rb") as opened:
        if is_npy(opened.read(8)):
            raise UsageError(f"{path} is an .npy, by its first bytes: rename it to {path.stem}.npy")
        infos, problem = directory(opened)
        if problem is not None:
            raise problem
        for info in infos:
            if (differs := disagreement(opened.fileno(), info)) is not None:
                raise ValueError(differs)
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        images = [name for name in members if split_of(name)[1].rpartition("/")[2] in IMAGE_NAMES]
        names = at.arrays(members, images, named=wanted.names_image or wanted.columns.image is not None)
        apart = [name for name in members if at.split and not split_of(name)[0] and name not in names.values()]
        notes += [f"array {plain(name)!r} is left out: it is part of no split" for name in apart] + at.left_beside()
        with zipfile.ZipFile(opened) as file:
            return {name: _read_member(file, members[in_file], path) for name, in_file in names.items()}


def _info(name: str, array: NDArray[Any]) -> ColumnInfo:
    kind: FieldKind | str = FieldKind("str")
    is_text, single = array.dtype.kind == "U", array.ndim > 0 and array.size == len(array)
    if is_text and array.ndim != 1:
        kind = "texts are one for each sample"
    elif not is_text and (array.dtype.kind not in "biuf" or array.dtype.name not in DTYPES):
        kind = f"it contains {array.dtype}; a field must be numbers or text"
    elif array.ndim and len(array):
        try:
            kind = inferred_kind(name, array[0])
        except UsageError as error:
            kind = str(error)
    whole = single and array.dtype.kind in "iu" and array.dtype != np.uint64
    return ColumnInfo(
        name=name,
        type=f"{array.dtype} {array.shape}",
        field=kind,
        is_image=array.ndim in (3, 4) and array.dtype.kind in "biufc",
        is_label=whole or (is_text and single),
        is_whole=whole,
        is_key=is_text and array.ndim == 1,
        first=array.reshape(-1).tolist,
        rows=len(array) if array.ndim else None,
    )


def _read_member(file: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> NDArray[Any]:
    if info.file_size > most_of(info.compress_size, sys.maxsize):
        raise UsageError(
            f"{path}: {info.filename!r} in it says that it has {info.file_size:,} bytes, which cannot be in "
            f"{info.compress_size:,}: write it again"
        )
    with file.open(info) as member:
        assert isinstance(member, zipfile.ZipExtFile)
        if not is_npy(member.peek(8)):
            raise UsageError(f"{path}: {info.filename!r} in it is not an array: take it out")
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if array.dtype.kind == "S":
            with suppress(UnicodeDecodeError):
                array = np.char.decode(array, "utf-8")
        if member.read(1):  # which also checks the checksum
            raise ValueError(f"more follows the array {info.filename}")
    return array
