"""Files of arrays as sources: `.npy` (memory-mapped), `.npz`, and IDX, the format of MNIST, gzipped or not."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES
from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.archives.zip import directory
from rawpack_packer.sources.axes import Axes, channels_first, channels_last, check_samples, turned
from rawpack_packer.sources.base import BaseSource, Item, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import changed
from rawpack_packer.sources.kinds import Fields, inferred_kind, with_roles, words_of
from rawpack_packer.sources.named_arrays import (
    IMAGE,
    Arrays,
    named_arrays,
    saying_axes,
    shown_arrays,
    split_axes,
)
from rawpack_packer.text import plain

IMAGE_NAMES = ("image", "images", "x", "X", "data", "arr_0")
LABEL_NAMES = ("label", "labels", "y", "Y")
"""Names of the arrays of an `.npz` that hold these; the first that occurs."""
_MAX_INFLATION = 1032
"""Bytes that one byte of gzip can hold at most."""
_NPY = b"\x93NUMPY"
_IDX = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def is_arrays(path: Path) -> bool:
    """Whether a file holds arrays, by its name or its first bytes."""
    if path.suffix in (".npy", ".npz"):
        return True
    try:
        with _opened_idx(path) as file:
            return _is_idx(file.read(4))
    except (OSError, EOFError, zlib.error):
        return False


@dataclass(frozen=True)
class Mapped:
    """An array in a file. Only its location travels to a worker, which maps it at the first read."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]
    state: tuple[int, int]
    """Size in bytes and mtime in ns of the file when the source was opened."""

    def open(self) -> NDArray[Any]:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)


class ArrayPart:
    """Some rows of arrays that have the same length."""

    def __init__(
        self,
        image: NDArray[Any] | Mapped,
        fields: Mapping[str, NDArray[Any]],
        start: int,
        stop: int,
        *,
        chw: bool = False,
    ) -> None:
        """image: if mapped, of the whole source. start, stop: the samples of the source that this part has. chw:
        whether the channels of images come first in `image`; in samples they come last."""
        self._image, self._fields, self._start, self._stop, self._chw = image, fields, start, stop, chw
        self._opened: NDArray[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        if isinstance(self._image, Mapped):
            if _state(Path(self._image.path)) != self._image.state:
                raise changed(self._image.path, "it was written to")
            if self._opened is None:
                self._opened = self._image.open()
            image = self._opened[self._start + i]
        else:
            image = self._image[i]
        values = {name: values[i] for name, values in self._fields.items()}
        fields = {name: str(value) if isinstance(value, np.str_) else value for name, value in values.items()}
        pixels = np.array(image, image.dtype.newbyteorder("="))
        return Item(key, channels_last(pixels) if self._chw else pixels, fields)

    def key(self, i: int, /) -> str:
        """The number of the row."""
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        return f"{self._start + i:08d}"

    def part(self, start: int, stop: int, /) -> ArrayPart:
        """See `Source.part`."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        image = self._image if isinstance(self._image, Mapped) else self._image[start:stop]
        fields = {name: values[start:stop] for name, values in self._fields.items()}
        return ArrayPart(image, fields, self._start + start, self._start + stop, chw=self._chw)


class ArraySource(BaseSource):
    """A file of arrays as a `Source`. Images are stored as they are, whatever their dtype and shape, but for channels
    that come first.

    In an `.npz`, one array holds the images, and every other one is a field; or those that `array` names. The labels of
    an IDX file of images are in the file next to it that is named accordingly. `.npz` and gzipped files are read into
    memory.
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
        """array: which arrays of an `.npz` are packed, and as what: image=source,label=target. `:chw` after the name of
        images, or alone, moves their channels to the end; `:hwc` keeps the axes as they are.
        fields: which fields are masks, and which are no images: {"seg": "mask", "depth": "array"}.

        Raises UsageError if `path` is not such a file, if its arrays differ in length, or if the axes have to be said.
        """
        file, named = Path(path).absolute(), named_arrays(array)
        name, axes = split_axes(named.get(IMAGE, ""))
        root = plain(os.fsencode(file))
        image: NDArray[Any] | Mapped
        held: dict[str, NDArray[Any]] = {}
        try:
            self._states = [_state(file)]
            if file.suffix != ".npz" and named and split_axes(named[IMAGE])[0]:
                raise UsageError(
                    f"{opt.array} names the arrays of an .npz or HDF5 file, and {root} is neither: leave the name out; "
                    f"{opt.array(':chw')} alone says that the channels of its images come first"
                )
            if file.suffix == ".npz":
                name, axes, image, held = _read_npz(file, named)
            elif file.suffix == ".npy":
                image = _open_npy(file, self._states[0])
            else:
                image = _open_idx(file, self._states[0])
                if (labels := _labels_beside(file)) is not None:
                    self._states.append(_state(labels))
                    beside = _open_idx(labels, self._states[1])
                    held["label"] = beside.open() if isinstance(beside, Mapped) else beside
        except UsageError:
            raise
        except OSError as error:
            raise UsageError(f"{root} cannot be read: {error.strerror or error}") from None
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
            raise UsageError(f"{root} is not an intact file of arrays: {error}") from None
        shape = image.shape
        if len(shape) < 2 or not shape[0]:
            what = "the first axis must count samples, at least one, and the others must make an image"
            raise UsageError(f"{root} holds {image.dtype} {shape}: {what}")
        dtype = np.dtype(image.dtype).name
        if dtype not in DTYPES:
            raise UsageError(
                f"{root} holds images of dtype {dtype}; they must be numbers of at most 64 bits, or complex numbers of "
                "at most 128"
            )
        said_by = saying_axes(named, name)
        if not held:
            check_samples(shape, axes, root, said_by)
        chw = channels_first(shape[1:], axes, root, said_by)
        kind = ImageKind(dtype, turned(shape[1:], chw))
        values = {name: _column(name, each, shape[0], root) for name, each in held.items()}
        kinds = {
            name: FieldKind("str") if each.dtype.kind == "U" else inferred_kind(name, each[0])
            for name, each in values.items()
        }
        self.info = SourceInfo(
            kind="arrays",
            root=root,
            paths=(str(file),),
            fields=with_roles(kinds, fields, kind, root),
            image=kind,
            numbered=True,
            options=given_options(array=shown_arrays(named), field=words_of(fields)),
        )
        self._all = ArrayPart(image, values, 0, shape[0], chw=chw)
        self._videos, label = values.get("video"), values.get("label")
        self._labels = label if label is not None and label.dtype == np.int64 and label.ndim == 1 else None

    def labels(self) -> NDArray[np.int64] | None:
        """See `HasLabels`."""
        return self._labels

    def group(self, i: int, /) -> str:
        """The value of field `video`, if there is one; else the key."""
        return self.key(i) if self._videos is None else str(self._videos[i])

    def states(self) -> NDArray[np.int64]:
        """Of the file, and of the one with the labels."""
        return np.array(self._states, np.int64)


def _column(name: str, values: NDArray[Any], count: int, where: str) -> NDArray[Any]:
    if len(values.shape) == 0 or values.shape[0] != count:
        raise UsageError(
            f"{where}: {name} has shape {values.shape}, but there are {count} images: a field needs a row for each"
        )
    if values.dtype.kind not in "biufU":
        raise UsageError(f"{where}: {name} holds {values.dtype}; a field must be numbers or text")
    if name == "label" and values.dtype.kind in "iu" and values.ndim == 1 and values.dtype != np.uint64:
        return values.astype(np.int64)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _open_npy(path: Path, state: tuple[int, int]) -> Mapped:
    with _parsing(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.memmap):
        array.close()
        raise UsageError(f"{path} is an .npz, by its first bytes: rename it to {path.stem}.npz")
    if state[0] != array.offset + array.nbytes:
        has = f"{path} has {state[0]} bytes; {array.dtype} {array.shape} has {array.offset + array.nbytes}"
        raise UsageError(f"{has}: an .npy is one array, so write others to files of their own")
    return Mapped(
        str(path), array.dtype.str, array.shape, array.offset, "C" if array.flags.c_contiguous else "F", state
    )


@contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """While in this block, numpy and zipfile read a file that others wrote: whatever they raise means that it is
    damaged. Python's own parser is one of them."""
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:
        raise UsageError(f"{plain(os.fsencode(path))} is not an intact file of arrays: {error}") from None


def _read_npz(path: Path, named: Mapping[str, str]) -> tuple[str, Axes | None, NDArray[Any], dict[str, NDArray[Any]]]:
    """The name of the images' array, its axes as they were said, the array itself, and the others by field."""
    with path.open("rb") as opened, _parsing(path):
        if opened.read(len(_NPY)) == _NPY:
            raise UsageError(f"{path} is an .npy, by its first bytes: rename it to {path.stem}.npy")
        infos, problem = directory(opened)
        if problem is not None:
            raise problem
        with zipfile.ZipFile(opened) as file:
            arrays = {info.filename.removesuffix(".npy"): _read_member(file, info, path) for info in infos}
    of_image, axes = split_axes(named.get(IMAGE, ""), arrays)
    if of_image:
        named = {**named, IMAGE: of_image}
        for name in named.values():
            if name not in arrays:
                raise UsageError(f"{path} has arrays named {', '.join(arrays)}, and none named {name}")
        fields = {name: arrays[of_file] for name, of_file in named.items() if name != IMAGE}
        return of_image, axes, arrays[of_image], fields
    image = next((name for name in IMAGE_NAMES if name in arrays), None)
    if image is None:
        raise UsageError(
            f"{path} has arrays named {', '.join(arrays)}; name the one that holds the images, and "
            f"others to be packed: {opt.array('image=NAME,label=NAME')}. Without it, images are the array named "
            f"{', '.join(IMAGE_NAMES[:-1])} or {IMAGE_NAMES[-1]}"
        )
    label = next((name for name in LABEL_NAMES if name in arrays), None)
    others = {"label" if name == label else name: values for name, values in arrays.items() if name != image}
    return image, axes, arrays[image], others


def _read_member(file: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> NDArray[Any]:
    with file.open(info) as member:
        assert isinstance(member, zipfile.ZipExtFile)
        if member.peek(len(_NPY))[: len(_NPY)] != _NPY:
            raise UsageError(f"{path}: {info.filename!r} in it is not an array: take it out")
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # which also checks the checksum
            raise ValueError(f"more follows the array {info.filename}")
    return array


def _open_idx(path: Path, state: tuple[int, int]) -> Mapped | NDArray[Any]:
    with _opened_idx(path) as file:
        head = file.read(4)
        if not _is_idx(head):
            raise UsageError(f"{path} is neither .npy, .npz nor IDX: its first bytes are {head!r}")
        dtype, shape = np.dtype(_IDX[head[2]]), tuple(np.frombuffer(file.read(4 * head[3]), ">u4").tolist())
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > state[0] * _MAX_INFLATION:
            raise UsageError(f"{path} promises {dtype.name} {shape}, which cannot fit in its {state[0]} bytes")
        if isinstance(file, gzip.GzipFile):
            data = file.read(size + 1)
            if len(data) != size:
                found = f"more than {size}" if len(data) > size else len(data)
                raise UsageError(f"{path} holds {found} bytes; {dtype.name} {shape} has {size}")
            return np.frombuffer(data, dtype).reshape(shape)
    offset = 4 + 4 * head[3]
    if state[0] != offset + size:
        raise UsageError(f"{path} has {state[0]} bytes; {dtype.name} {shape} has {offset + size}")
    return Mapped(str(path), dtype.str, shape, offset, "C", state)


def _opened_idx(path: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _is_idx(head: bytes) -> bool:
    """Whether a file that begins with these 4 bytes is IDX: 0, 0, dtype, number of axes."""
    return len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX and 0 < head[3] <= 16


def _labels_beside(path: Path) -> Path | None:
    """The IDX file of labels that belongs to an IDX file of images, by its name."""
    if "images" not in path.name:
        return None
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    stem = name.removesuffix(".gz")
    return next((path.with_name(each) for each in (name, stem, stem + ".gz") if path.with_name(each).is_file()), None)
