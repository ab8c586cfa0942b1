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
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.images.npy import header_of, is_npy
from rawpack_packer.options import opt
from rawpack_packer.sources.archives.zip import directory, disagreement
from rawpack_packer.sources.array_files import ARRAYS, ArraysAt, file_at, labels_beside, split_of
from rawpack_packer.sources.axes import turned
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.inferred import inferred_kind
from rawpack_packer.sources.inflation import most_of
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.named_arrays import SaidOfArrays
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import LABEL, NO_COUNTS, ChosenColumns, ColumnChoice, ColumnInfo, Habits
from rawpack_packer.sources.table.columns import Column, ImageArrays, Mapped, Numbers, RowNumbers, texts_of
from rawpack_packer.text import plain

IMAGE_NAMES = ("image", "images", "x", "X", "data", "arr_0")
"""Names of the arrays of an `.npz` that hold these; the first that occurs."""
_MAX_INFLATION = 1032
"""Bytes that one byte of gzip can hold at most."""
_IDX = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
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
    return _is_idx(head[:4])


class ArraySource(TableSource):
    """A file of arrays as a `Source`. Images are stored as they are, whatever their dtype and shape, but for channels
    that come first.

    In an `.npz`, one array holds the images, and every other one is a field; or those that `array` names. The labels of
    an IDX or `.npy` file of images are in the file next to it that is named accordingly. Labels that are texts are the
    names of classes. `.npz` and gzipped files are read into memory.
    """

    def __init__(self, path: str | os.PathLike[str], /, *, progress: Scanning = unseen, **options: Any) -> None:
        """path: a file; a folder of one, as of torchvision's MNIST; either may end in a split, `mnist.npz/train`.
        options: of `SaidOfArrays`, which name arrays of an `.npz`.

        Raises UsageError if `path` is not such a file, if its arrays differ in length, or if the axes have to be said;
        DividedError if it has several splits.
        """
        at = file_at(path, ARRAYS, "arrays")
        file, root = at.file.path.absolute(), plain(os.fsencode(Path(path).absolute()))
        said = SaidOfArrays(**options)
        with parsing(root, str(file), "arrays"):
            arrays, image, states, problems = _read(at, said, root)
        chosen, image = _choice_and_images(arrays, image, said, root)
        shape, dtype = image.values.shape, np.dtype(image.values.dtype)
        alone = not chosen.fields and chosen.label is None
        chw = said.chw(shape, chosen.image, said.axes(arrays), root, alone=alone)
        held = {name: arrays[of_file] for name, of_file in chosen.fields.items()}
        values = None if chosen.label is None else arrays[chosen.label].reshape(-1)
        # The names of classes where the folder of IDX files says which they are, if the labels number them.
        folder = file.parent.parent if file.parent.name == "raw" else file.parent
        known = None if file.suffix in (".npy", ".npz") else _CLASSES.get(re.sub("[^a-z]", "", folder.name.lower()))
        if known and (values is None or not len(values) or not 0 <= values.min() <= values.max() < len(known)):
            known = None
        labels = said.labels(values.tolist() if values is not None and _is_text(values) else values, root, known)
        keys = said.keys(None if chosen.key is None else arrays[chosen.key].tolist(), root, problems)
        counts = NO_COUNTS if labels is not None and labels.names is not None else {}
        if chosen.left_out:
            counts = {**counts, "columns_left_out": len(chosen.left_out)}
        kinds = {name: FieldKind("str") if _is_text(one) else inferred_kind(name, one[0]) for name, one in held.items()}
        first = {name: said.further_chw(name, kind.shape, arrays, f"{root}: {name}") for name, kind in kinds.items()}
        fields = {name: replace(kind, shape=turned(kind.shape, first[name])) for name, kind in kinds.items()}
        image_kind, left_out = (
            ImageKind(dtype.name, turned(shape[1:], chw)),
            (*chosen.left_out, *chosen.notes, *problems),
        )
        has = {"labelled": labels is not None, "numbered": keys is None}
        info = said.info("arrays", str(file), fields, image_kind, counts, left_out, root=root, **has)
        columns: dict[str, Column] = {
            name: texts_of(one.tolist(), f"{root}: {plain(name)}")
            if _is_text(one)
            else Numbers(one.astype(one.dtype.newbyteorder("="), copy=False))
            for name, one in held.items()
        }
        columns |= {name: ImageArrays(Numbers(held[name]), chw) for name, chw in first.items() if chw}
        images, all_states = ImageArrays(image, chw), np.array(states, np.int64)
        groups = Numbers(held["video"]) if "video" in held else None
        named = keys or RowNumbers(range(shape[0]))
        super().__init__(info, named, images, columns, all_states, labels=labels, groups=groups)


def _read(
    at: ArraysAt, said: SaidOfArrays, root: str
) -> tuple[dict[str, NDArray[Any]], Mapped | Numbers | None, list[tuple[int, int]], list[str]]:
    """The arrays of an `.npz`, or the labels beside a file of images; the images, if they are the file; the state of
    each file; a line for each array and file that is left out. Raises UsageError."""
    file = at.file.path.absolute()
    states = [_state(file)]
    if file.suffix == ".npz":
        arrays, left_out = _read_npz(at, said, root)
        return arrays, None, states + at.states, left_out + at.left_beside(None, ARRAYS)
    if at.split:
        raise UsageError(f"{root}: there are no splits in {plain(os.fsencode(file))}, which is one array")
    if said.names_image:
        raise UsageError(
            f"{opt.array} names the arrays of an .npz or HDF5 file, and {root} is neither: leave the name out; "
            f"{opt.array(':chw')} alone says that the channels of its images come first"
        )
    opener = _open_npy if file.suffix == ".npy" else _open_idx
    images, beside = opener(at.file, states[0]), labels_beside(at.file)
    left_out = at.left_beside(beside, ARRAYS)
    if beside is None:
        return {}, images, states, left_out
    states.append(_state(beside.path))
    labels = opener(beside, states[1]).values
    if labels.shape[:1] != images.values.shape[:1]:
        count = len(images.values) if images.values.ndim else 0
        raise UsageError(
            f"{root} has {count} images, and {plain(os.fsencode(beside.path.absolute()))} next to it has labels of "
            f"shape {labels.shape}: rename it if they do not belong together"
        )
    return {LABEL: np.asarray(labels)}, images, states, left_out


def _choice_and_images(
    arrays: Mapping[str, NDArray[Any]], image: Mapped | Numbers | None, said: SaidOfArrays, root: str
) -> tuple[ChosenColumns, Mapped | Numbers]:
    """Which arrays are labels, keys and fields; the images: `image`, or one of the arrays. Raises UsageError,
    also where they cannot be stored."""
    if image is None:
        no_image = f"; name it, and what else is packed: {opt.array('image=NAME,label=NAME')}"
        habits = Habits(IMAGE_NAMES, no_image=no_image)
        chosen = said.choose([_info(name, array) for name, array in arrays.items()], root, habits)
        image = Numbers(arrays[chosen.image])
        count = len(image.values) if image.values.ndim else 0
        for name, array in arrays.items():
            if not said.names_image and array.shape[:1] != (count,):
                raise UsageError(
                    f"{root}: {plain(name)} has shape {array.shape}, but there are {count} images: a field needs a row "
                    f"for each; {opt.array('image=NAME,label=NAME')} names all that is packed"
                )
    elif said.columns != ColumnChoice():
        raise UsageError(f"{root} has no columns with names: {opt.image_column} and the like are for .npz and HDF5")
    else:
        is_label = LABEL in arrays and _info(LABEL, arrays[LABEL]).is_label
        fields_of = {} if is_label else {name: name for name in arrays}
        chosen = ChosenColumns("", LABEL if is_label else None, None, fields_of, ())
    shape, dtype = image.values.shape, np.dtype(image.values.dtype)
    if len(shape) < 2 or not shape[0]:
        what = "the first axis must count samples, at least one, and the others must make an image"
        raise UsageError(f"{root} contains {dtype} {shape}: {what}")
    if dtype.name not in DTYPES:
        raise UsageError(
            f"{root} contains images of dtype {dtype.name}; they must be numbers of at most 64 bits, or complex "
            "numbers of at most 128"
        )
    return chosen, image


def _is_text(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "U"


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _head(file: Listing) -> bytes:
    """The first bytes of a file. Raises OSError."""
    if not file.head:  # also where they cannot be read
        with file.path.open("rb") as opened:
            opened.read(1)
    return file.head


def _open_npy(file: Listing, state: tuple[int, int]) -> Mapped:
    path, head = file.path.absolute(), _head(file)
    if head.startswith(b"PK"):
        raise UsageError(f"{path} is an .npz, by its first bytes: rename it to {path.stem}.npz")
    try:
        dtype, shape, order, offset = header_of(head)
    except DecodeError as error:
        raise UsageError(f"{plain(os.fsencode(path))} cannot be read as arrays: {error.detail}") from error
    cure = ": an .npy is one array, so write others to files of their own"
    return _mapped(path, state, dtype, shape, offset, order, cure)


def _read_npz(at: ArraysAt, said: SaidOfArrays, root: str) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The arrays of an `.npz`, or of a split of it, by their names; and a line for each that is part of no split.

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
        named = said.names_image or said.columns.image is not None
        wanted = at.arrays(members, images, "arrays", named=named)
        apart = [name for name in members if at.split and not split_of(name)[0] and name not in wanted.values()]
        with zipfile.ZipFile(opened) as file:
            arrays = {name: _read_member(file, members[of_file], path) for name, of_file in wanted.items()}
        return arrays, [f"array {plain(name)!r} is left out: it is part of no split" for name in apart]


def _info(name: str, array: NDArray[Any]) -> ColumnInfo:
    kind: FieldKind | str = FieldKind("str")
    single = array.ndim > 0 and array.size == len(array)
    if array.dtype.kind == "U" and array.ndim != 1:
        kind = "texts are one for each sample"
    elif array.dtype.kind not in "biufU" or (array.dtype.kind != "U" and array.dtype.name not in DTYPES):
        kind = f"it contains {array.dtype}; a field must be numbers or text"
    elif array.dtype.kind != "U" and array.ndim and len(array):
        try:
            kind = inferred_kind(name, array[0])
        except UsageError as error:
            kind = str(error)
    whole = single and array.dtype.kind in "iu" and array.dtype != np.uint64
    text = single and array.dtype.kind == "U"
    return ColumnInfo(
        name=name,
        type=f"{array.dtype} {array.shape}",
        field=kind,
        is_image=array.ndim in (3, 4) and array.dtype.kind in "biufc",
        is_label=whole or text,
        is_whole=whole,
        is_key=text and array.ndim == 1,
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


def _open_idx(file: Listing, state: tuple[int, int]) -> Mapped | Numbers:
    path = file.path.absolute()
    with gzip.open(path) if path.suffix == ".gz" else io.BytesIO(_head(file)) as opened:
        head = opened.read(4)
        if not _is_idx(head):
            raise UsageError(f"{path} is neither .npy, .npz nor IDX: its first bytes are {head!r}")
        dtype, shape = np.dtype(_IDX[head[2]]), tuple(np.frombuffer(opened.read(4 * head[3]), ">u4").tolist())
        size = math.prod(shape) * dtype.itemsize
        if size > state[0] * _MAX_INFLATION:
            raise UsageError(f"{path} promises {dtype.name} {shape}, which cannot fit in its {state[0]} bytes")
        if not isinstance(opened, gzip.GzipFile):
            return _mapped(path, state, dtype, shape, opened.tell())
        data = opened.read(size + 1)
    if len(data) != size:
        length = f"more than {size}" if len(data) > size else len(data)
        raise UsageError(f"{path} contains {length} bytes; {dtype.name} {shape} has {size}")
    return Numbers(np.frombuffer(data, dtype).reshape(shape))


def _mapped(
    path: Path,
    state: tuple[int, int],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    order: Literal["C", "F"] = "C",
    cure: str = "",
) -> Mapped:
    """All rows of an array that fills its file from `offset` on. Raises UsageError where it does not. cure: what to do
    where more follows."""
    has, size = state[0], offset + math.prod(shape) * dtype.itemsize
    if has != size:
        cut = "" if has > size else " cannot be read as arrays: it"
        raise UsageError(f"{path}{cut} has {has} bytes; {dtype.name} {shape} has {size}{cure if has > size else ''}")
    return Mapped(str(path), dtype.str, shape, offset, order, state, range(shape[0] if shape else 0))


def _is_idx(head: bytes) -> bool:
    """Whether a file that begins with these 4 bytes is IDX: 0, 0, dtype, number of axes."""
    return len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX and 0 < head[3] <= 16
