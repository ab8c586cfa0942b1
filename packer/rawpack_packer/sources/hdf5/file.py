"""An HDF5 file and its data sets, and nothing outside the file; looked at in a child process, since a hostile file can
crash or hang the HDF5 library.

Links to other files, virtual data sets and external storage are never followed: a file from someone else could read
any file of this machine through them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import is_of_system
from rawpack_packer.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.inflation import MAX_INFLATION, most_of
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import h5py

T = TypeVar("T")
_TIMEOUT_S = 300.0
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_OBJECTS = 100_000
_MOST_HOPS = 16
"""Soft links one after another."""
_MOST_CHUNK = 1 << 30
_MOST_ROW = (1 << 31) - 1
_SMALL_CACHE = 1 << 20
VLEN, OPAQUE, TEXT, NUMBERS = "vlen", "opaque", "text", "numbers"


class RefusedError(ValueError):
    """A data set that is not read. The message says why, in the third person, without its name."""


@dataclass(frozen=True)
class DataSet:
    """What a data set holds."""

    name: str
    """Its path in the file, without the first slash."""
    shape: tuple[int, ...]
    dtype: str
    """For a person, such as "uint8" or "float32, variable length"."""
    holds: str
    """VLEN: arrays of one axis that differ in length; OPAQUE: bytes; TEXT; NUMBERS; "" for what is not read."""
    of: str = ""
    """numpy's name of the numbers' type; of texts of one length, of which image files may be made, "S"."""
    why: str = ""
    """Why it is not read."""
    is_file: bool = False
    """Whether its first row, or all of it, is bytes that may be an image file."""

    @property
    def are_files(self) -> bool:
        """Whether its rows are bytes, of which image files may be made."""
        return len(self.shape) == 1 and (self.holds == OPAQUE or (self.holds == VLEN and self.of in ("uint8", "int8")))

    @property
    def is_one_image(self) -> bool:
        """Whether all of it may be one image: a file, or pixels."""
        if not self.shape or len(self.shape) == 1:
            return self.is_file and (not self.shape or self.holds == NUMBERS)
        return self.of in ("uint8", "uint16") and (len(self.shape) == 2 or self.shape[2:] in ((1,), (3,), (4,)))

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers of at most 64 bits with a sign."""
        return self.holds == NUMBERS and self.of[:3] in ("int", "uin") and self.of != "uint64"

    @property
    def is_label(self) -> bool:
        """Whether it has a whole number or a text for each sample."""
        return math.prod(self.shape[1:]) == 1 and (self.is_whole or self.holds == TEXT) and len(self.shape) > 0

    @property
    def is_image(self) -> bool:
        """Whether its rows may be images, by their shape and type."""
        if self.holds != NUMBERS:
            return self.is_file
        return len(self.shape) in (3, 4) and min(self.shape[:3]) > 0 and math.prod(self.shape[1:]) > 1

    def __str__(self) -> str:
        return f"{plain(self.name)} {self.dtype} {self.shape}"


class LookAt(IsolatedCalls):
    """An HDF5 file that is looked at in a child process. Raises UsageError."""

    def __init__(self, path: Path) -> None:
        super().__init__(_TIMEOUT_S, plain(str(path)))
        self._path = path

    def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function below returns in the child process."""
        try:
            return self.call(function, self._path, *arguments)
        except ChildDiedError as died:
            raise UsageError(
                f"{self._what} crashes or hangs the HDF5 library ({died}): it is damaged; copy it again"
            ) from died


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """A file that is open. Raises UsageError where it cannot be read."""
    with parsing(plain(str(path)), str(path), "HDF5"), open_file(str(path)) as file:
        yield file


def data_sets(path: Path, names: Sequence[str] = ()) -> list[DataSet]:
    """All data sets, each under its first name, and under such of these names as there are. Raises UsageError."""
    where = plain(str(path))
    with _opened(path) as file:
        if ends_early(str(path), file.userblock_size):
            raise UsageError(f"{where}: another HDF5 file follows its end, as if they were joined by cat: split them")
        sets = {data_set.name: data_set for data_set in _sets_in(file)}
        for name in names:
            if "\0" in name:  # where HDF5 takes the name to end
                continue
            try:
                sets[name] = described(file, name, open_data_set(file, name).id)
            except RefusedError as error:
                raise UsageError(f"{where}: {plain(name)}: {error}") from error
            except (KeyError, UnicodeEncodeError) as error:
                if is_of_system(error):
                    raise
        return [_sniffed(file, data_set) for data_set in sets.values()]


def all_values(path: Path, data_set: DataSet) -> NDArray[Any] | list[str]:
    """All values of a data set of whole numbers, int64, or texts. Raises UsageError."""
    with _opened(path) as file:
        opened = open_data_set(file, data_set.name)
        size, stored = math.prod(opened.shape) * opened.dtype.itemsize, opened.id.get_storage_size()
        if size > most_of(stored, sys.maxsize):  # rows that were never written take no bytes
            raise UsageError(f"{plain(str(path))}: {data_set} has {size:,} bytes, of which {stored:,} are in the file")
        values = opened[()].reshape(-1)
        if data_set.holds != TEXT:
            return np.asarray(values, np.int64)
        texts = list(texts_in(values))
        if None in texts:
            raise UsageError(f"{plain(str(path))}: {data_set}: text {texts.index(None)} is not UTF-8")
        return [str(text) for text in texts]


def row_of(path: Path, data_set: DataSet, i: int) -> bytes:
    """Row i of a data set of image files. Raises UsageError."""
    with _opened(path) as file:
        return bytes(np.asarray(open_data_set(file, data_set.name)[i]).tobytes())


def open_file(path: str) -> h5py.File:
    """Raises what h5py raises, mostly OSError."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_sieve_buf_size(0)  # after a read that failed, HDF5 would return what that buffer happens to hold
    return h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access))


def ends_early(path: str, begin: int) -> bool:
    """Whether another HDF5 file follows the one whose user block has `begin` bytes, as `cat` joins them: h5py reads the
    first one. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(begin)
        head = file.read(64)
        # Where the superblock says where the file ends, for addresses of 8 bytes.
        at = {0: 40, 1: 44, 2: 28, 3: 28}.get(head[8] if len(head) == 64 else -1)
        if at is None or head[13 if head[8] < 2 else 9] != 8:
            return False
        file.seek(int.from_bytes(head[at : at + 8], "little"))
        return file.read(len(_SIGNATURE)) == _SIGNATURE


def _sets_in(file: h5py.File) -> list[DataSet]:
    """All data sets of a file, each under its first name, and the links that are not followed."""
    import h5py

    sets, seen = list[DataSet](), set[Any]()
    waiting: list[tuple[str, Any]] = [("", h5py.h5g.open(file.id, b"/"))]
    while waiting:
        prefix, group = waiting.pop()
        for raw in sorted(group):
            name = prefix + raw.decode("utf-8", "backslashreplace")
            kind = group.links.get_info(raw).type
            if kind == h5py.h5l.TYPE_SOFT:
                continue  # what it leads to has a name of its own
            if kind != h5py.h5l.TYPE_HARD:
                sets.append(DataSet(name, (), "link", "", why="it is a link to another file"))
                continue
            about = h5py.h5o.get_info(group, raw)
            if about.addr in seen:
                continue
            seen.add(about.addr)
            if len(seen) > _MOST_OBJECTS:
                raise RefusedError(f"it has more than {_MOST_OBJECTS:,} groups and data sets")
            if about.type == h5py.h5o.TYPE_GROUP:
                waiting.append((f"{name}/", h5py.h5o.open(group, raw)))
            elif about.type == h5py.h5o.TYPE_DATASET:
                sets.append(described(file, name, h5py.h5o.open(group, raw)))
    return sorted(sets, key=lambda data_set: data_set.name)


def described(file: h5py.File, name: str, opened: Any) -> DataSet:
    """What an open data set holds."""
    import h5py

    shape = tuple(opened.shape or ())
    try:
        _check(file, opened)
        dtype = opened.dtype
    except (RefusedError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, RefusedError) else "its type is unknown to h5py"
        return DataSet(name, shape, "not read", "", why=why)
    if (text := h5py.check_string_dtype(dtype)) is not None:
        return DataSet(name, shape, "text", TEXT, "" if text.length is None else "S")
    inner = h5py.check_vlen_dtype(dtype)
    if inner is not None and inner.kind in "biuf":
        return DataSet(name, shape, f"{inner.name}, variable length", VLEN, np.dtype(inner).name)
    if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        return DataSet(name, shape, f"opaque, {dtype.itemsize} bytes", OPAQUE)
    if dtype.kind in "biufc":
        return DataSet(name, shape, dtype.name, NUMBERS, dtype.name)
    return DataSet(name, shape, plain(str(dtype))[:60], "", why="no field can store values of this type")


def open_data_set(file: h5py.File, name: str) -> h5py.Dataset:
    """A data set by its path, through soft links within the file. Raises KeyError where there is none of that name,
    RefusedError where it is not read."""
    import h5py

    opened = _object(file, name, 0)
    if not isinstance(opened, h5py.h5d.DatasetID):
        raise KeyError(name)
    _check(file, opened)
    chunk = opened.get_create_plist()
    if chunk.get_layout() == h5py.h5d.CHUNKED:
        # All chunks of one band of rows, so that reading rows in order inflates each chunk once.
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        access.set_chunk_cache(12421, max(_band(opened), _SMALL_CACHE), 1.0)
        opened = h5py.h5d.open(file.id, h5py.h5i.get_name(opened), access)
    return h5py.Dataset(opened)


def _object(file: h5py.File, path: str, hops: int) -> Any:
    """The object of a path."""
    import h5py

    if hops > _MOST_HOPS:
        raise RefusedError("it is a link that leads to links without an end")
    at = h5py.h5g.open(file.id, b"/")
    parts = [part for part in path.split("/") if part and part != "."]
    for i, part in enumerate(parts):
        name = part.encode("utf-8", "surrogateescape")
        if not isinstance(at, h5py.h5g.GroupID) or name not in at:
            raise KeyError(path)
        kind = at.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT:
            target = at.links.get_val(name).decode("utf-8", "surrogateescape")
            above = [] if target.startswith("/") else parts[:i]
            return _object(file, "/".join([*above, target, *parts[i + 1 :]]), hops + 1)
        if kind != h5py.h5l.TYPE_HARD:
            raise RefusedError("it is a link to another file: copy what it leads to into this file")
        at = h5py.h5o.open(at, name)
    return at


def _check(file: h5py.File, opened: Any) -> None:
    """Raise RefusedError for a data set that is stored elsewhere, or declares more than its file can hold."""
    import h5py

    settings = opened.get_create_plist()
    if settings.get_layout() == h5py.h5d.VIRTUAL:
        raise RefusedError("it is a virtual data set, whose values are in other files: copy them into one (h5repack)")
    if settings.get_external_count():
        raise RefusedError("its values are in an external file: copy them into this one (h5repack)")
    for i in range(settings.get_nfilters()):
        code, _, _, name = settings.get_filter(i)
        if not h5py.h5z.filter_avail(code):
            what = plain(name.decode("utf-8", "replace"))[:40] or f"number {code}"
            raise RefusedError(
                f"it is compressed by a filter that is not installed here, {what}: use h5repack -f GZIP=4"
            )
    size = math.prod(opened.shape or ()) * opened.get_type().get_size()
    if size > file.id.get_filesize() * MAX_INFLATION:
        raise RefusedError(f"it declares {size:,} bytes, which cannot be in a file of {file.id.get_filesize():,}")
    rows = (opened.shape or (1,))[0]
    if size // max(rows, 1) > _MOST_ROW:
        raise RefusedError("it has rows of 2 GiB or more")
    if settings.get_layout() == h5py.h5d.CHUNKED and _band(opened) > _MOST_CHUNK:
        raise RefusedError("it is compressed in chunks of more than 1 GiB: use smaller ones (h5repack -l CHUNK=...)")


def _band(opened: Any) -> int:
    """Bytes of the chunks that have the same rows."""
    chunk = opened.get_create_plist().get_chunk()
    lengths = [-(-length // part) * part for length, part in zip(opened.shape[1:], chunk[1:], strict=True)]
    return int(math.prod([chunk[0], *lengths])) * int(opened.get_type().get_size())


def texts_in(values: Any) -> Iterator[str | None]:
    """Texts of a data set as they are read; None for one that is not UTF-8."""
    for value in values:
        try:
            yield value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            yield None


def _sniffed(file: h5py.File, data_set: DataSet) -> DataSet:
    """A data set, with what its first bytes show: see `DataSet.is_file`. Texts that are image files are bytes."""
    from rawpack_packer.images import sniff

    may_be = data_set.are_files or data_set.of == "S" or (data_set.holds == OPAQUE and not data_set.shape)
    whole = data_set.holds == NUMBERS and data_set.of == "uint8"
    if not (may_be or whole) or len(data_set.shape) > 1 or 0 in data_set.shape:
        return data_set
    try:
        opened = open_data_set(file, data_set.name)
        head = np.asarray(opened[:32] if whole else opened[0 if data_set.shape else ()])
    except (OSError, RuntimeError) as error:
        if is_of_system(error):
            raise
        return data_set  # who reads the row says so
    if sniff(head.tobytes()[:32]) is None:
        return data_set
    if data_set.of == "S":
        data_set = replace(data_set, holds=OPAQUE, dtype="bytes")
    return replace(data_set, is_file=True)
