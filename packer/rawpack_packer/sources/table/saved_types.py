"""What saved tables may hold: classes and functions of closed lists, the types of their members, and bounds of the
numbers in them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME
from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Column
from rawpack_packer.sources.table.columns import Texts
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool
from rawpack_packer.sources.table.table import ImageColumn, KeyColumn

_SOURCES = "rawpack_packer.sources"
_MODULES: Mapping[str, Sequence[str]] = {
    "archives.members": ("MemberValues",),
    "archives.recordio": ("RecordImages",),
    "base": ("Containers", "SourceInfo"),
    "chunks.index": ("ShardFile",),
    "chunks.shards": ("ShardSpans",),
    "chunks.source": ("Values",),
    "detection": ("FractionsColumn",),
    "detection.coco": ("PaintedColumn",),
    "fields": ("FieldKind", "ImageKind"),
    "files": ("ScannedFile",),
    "folder_files": ("FolderFiles",),
    "hdf5.file": ("DataSet",),
    "hdf5.source": ("Hdf5Column", "KeptOpen"),
    "lerobot.source": ("WithBytes",),
    "lmdb.source": ("LmdbImages", "Pixels"),
    "parquet.source": ("ArrowColumn", "ArrowRows"),
    "table.columns": (
        "Files", "ImageArrays", "Mapped", "Numbers", "RaggedColumn", "Repeated", "RowNumbers", "Spans", "TextLists",
        "Texts",
    ),
    "table.named_files": ("NamedFiles",),
    "table.table": ("Table", "TablePart"),
    "tfrecord.columns": ("ExampleImages",),
    "video": ("Videos",),
    "video.container": ("VideoFile",),
    "video.index": ("Packets", "VideoIndex"),
    "video.source": ("Frames", "TakenFrames"),
}  # fmt: skip
CLASSES = {name: module for module, names in _MODULES.items() for name in names}
"""The classes of objects that saved tables hold, each with its module."""
FUNCTIONS = {
    "builtins": ("bytes", "float", "int"),
    f"{_SOURCES}.chunks.index": (
        "_array", "_image", "_number", "compact_json", "head_of_words", "known_head", "picture", "text",
    ),
    f"{_SOURCES}.chunks.mds": ("_head",),
    f"{_SOURCES}.lmdb.source": ("_datum", "_image_of_pixels", "_pickle"),
    "json": ("loads",),
}  # fmt: skip
"""Functions that they may name, which make values of bytes, by their modules."""
NUMBERS = "biufcSU"
"""Kinds of dtypes that their arrays have."""
_MOST_ROWS = 1 << 40
_LEFT_OUT = ("find_videos", "find_column", "apart", "beside", "details", "exported")
"""Members of a table that are asked for only before a job begins."""


class CheckedPath(str):
    """A path that `Places` allow."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- types


def class_of(name: str) -> Any:
    return getattr(import_module(f"{_SOURCES}.{CLASSES[name]}"), name)


def members_of(kind: type[Any]) -> dict[str, Any]:
    """The members by which an object of a class is made, and their types."""
    if kind in _members:
        return _members[kind]
    names = {"RemoteArchive": RemoteArchive, "Spool": Spool, "Videos": Any}
    if not is_dataclass(kind):
        hints = get_type_hints(kind.__init__, localns=names, include_extras=True)
        return _members.setdefault(kind, {name: hint for name, hint in hints.items() if name != "return"})
    hints = get_type_hints(kind, localns=names, include_extras=True)
    found = {name: hints[name] for name in kind.__dataclass_fields__ if name not in _LEFT_OUT}
    return _members.setdefault(kind, found)


_members: dict[type[Any], dict[str, Any]] = {}
"""What `members_of` has found."""


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type. A `LocalPath` is one only where `Places` made it."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint in (Column, ImageColumn, KeyColumn):
        return _is_column(value)
    if origin is Annotated:
        return isinstance(value, CheckedPath)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin in (np.ndarray, NDArray):  # NDArray is an alias by itself in later versions of NumPy
        of = args[0] if origin is NDArray else get_args(args[1])[0]
        return isinstance(value, np.ndarray) and (of is Any or value.dtype == np.dtype(of))
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[1:] == (...,):
            return all(fits(part, args[0]) for part in value)
        return len(value) == len(args) and all(map(fits, value, args))
    if origin in (list, Sequence):
        return isinstance(value, list | tuple) and all(fits(part, args[0]) for part in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            fits(key, args[0]) and fits(part, args[1]) for key, part in value.items()
        )
    if origin is Callable or hint is Callable:
        return callable(value)
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, bool, str):
        return type(value) is hint
    return isinstance(hint, type) and isinstance(value, hint)


def dtype_of(name: str) -> np.dtype[Any]:
    dtype = np.dtype(str(name))
    if dtype.kind not in NUMBERS or not dtype.itemsize or dtype.subdtype is not None:
        raise ValueError(f"dtype {name}")
    return dtype


def function_of(module: str, name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS[module]:
        raise ValueError(f"function {name}")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


# ---------------------------------------------------------------------------------------------- bounds


def _is_column(value: Any) -> bool:
    return type(value).__name__ in CLASSES and hasattr(value, "pick") and hasattr(value, "value")


def is_below(path: str) -> bool:
    """Whether a relative path stays below the folder that it starts from."""
    parts = path.replace("\\", "/").split("/") if os.name == "nt" else path.split("/")
    return not path.startswith("/") and ".." not in parts and "\0" not in path and not os.path.splitdrive(path)[0]


def is_sound(value: Any) -> bool:
    """Whether the numbers in an object are within what they count."""
    check = _CHECKS.get(type(value).__name__)
    try:
        return check is None or bool(check(value))
    except (AttributeError, IndexError, TypeError, ValueError):
        return False


def _are_ends(ends: NDArray[Any], size: int) -> bool:
    return bool(ends.ndim == 1 and len(ends) and ends[0] == 0 and ends[-1] == size and (np.diff(ends) >= 0).all())


def _are_within(numbers: NDArray[Any] | range, size: int) -> bool:
    if isinstance(numbers, range):
        return not numbers or 0 <= min(numbers[0], numbers[-1]) <= max(numbers[0], numbers[-1]) < size
    return bool(numbers.ndim == 1 and (not numbers.size or (numbers.min() >= 0 and numbers.max() < size)))


def _are_states(states: NDArray[Any] | None, count: int) -> bool:
    return states is not None and states.shape == (count, 2)


def _stay_below(paths: Texts) -> bool:
    """Whether all paths stay below their folder, with few looks: nearly none of many has such bytes."""
    data = np.frombuffer(paths.data, np.uint8)
    firsts = paths.ends[:-1][np.diff(paths.ends) > 0]
    if (data[firsts] == ord("/")).any() or b"\0" in paths.data:
        return False
    return (os.name != "nt" and b".." not in paths.data) or all(
        is_below(os.fsdecode(paths.raw(i))) for i in range(len(paths))
    )


def _has_rows(column: Any, count: int) -> bool:
    """Whether a column has values for this many rows."""
    if hasattr(column, "__len__"):
        return len(column) == count
    if count:
        column.pick(np.array([count - 1]))  # raises IndexError
    return True


def _folder_files(files: Any) -> bool:
    count, names, folders = len(files.folder_of), Texts(files.names, files.ends), files.folders
    if not (_are_ends(files.ends, len(files.names)) and len(names) == count and _are_states(files.states, count)):
        return False
    if files.members is not None:
        inside = len(files.members) == count and files.root is None
    else:
        below = b"/" not in files.names and all(
            is_below(os.fsdecode(folder)) and folder[-1:] in (b"", b"/") for folder in folders
        )
        inside = below and _stay_below(names) and files.root is not None
    return inside and _are_within(files.folder_of, len(folders))


def _spans(spans: Any) -> bool:
    count = len(spans.archive)
    lengths = all(held is None or _are_states(held, count) for held in (spans.packed, getattr(spans, "inside", None)))
    shards = getattr(spans, "shards", spans.archives.paths)
    return (
        _are_within(spans.archive, len(spans.archives)) and spans.offset.shape == (count,) and lengths
        and _are_states(spans.states, count) and bool((spans.offset >= 0).all()) and len(shards) == len(spans.archives)
    )  # fmt: skip


def _table(table: Any) -> bool:
    count, rows = len(table), table.rows
    each = [held for held in (table.labels, table.lines) if held is not None]
    columns = [
        rows.images,
        *rows.columns.values(),
        *(column for column in (table.groups, rows.keys) if column is not None),
    ]
    return (
        count <= _MOST_ROWS and all(held.shape == (count,) for held in each) and _are_within(table.unread, count)
        and (table.row_states is None or _are_states(table.row_states, count)) and table.file_states.shape[1:] == (2,)
        and all(_has_rows(column, count) for column in columns) and rows.columns.keys() <= {*table.info.fields}
    )  # fmt: skip


def _index(index: Any) -> bool:
    packets, frames = index.packets, index.packet[index.packet >= 0]
    return len(index.times) == len(index.packet) and (
        packets is None or _are_within(frames - packets.first, len(packets.pts)) or not len(frames)
    )


def _mapped(mapped: Any) -> bool:
    held = dtype_of(mapped.dtype)
    within = len(mapped.shape) > 0 and min(mapped.shape) >= 0 and _are_within(mapped.rows, mapped.shape[0])
    size = held.itemsize * math.prod(mapped.shape)
    return within and mapped.offset >= 0 and mapped.offset + size <= mapped.file.state[0]


def _repeated(column: Any) -> bool:
    if not (_is_column(column.column) and _are_within(column.at, 1 << 62)):
        return False
    if len(column.at):
        column.column.pick(np.array([column.at.max()]))  # raises IndexError
    return True


def _are_utf8(texts: Texts) -> bool:
    if texts.data.isascii():
        return True
    texts.data.decode()
    data, starts = np.frombuffer(texts.data, np.uint8), texts.ends[:-1]
    return bool((data[starts[starts < len(data)]] & 0xC0 != 0x80).all())


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "ArrowRows": lambda rows: len(rows.starts) == len(rows.files) and _are_within(rows.rows, 1 << 62),
    "ExampleImages": _spans,
    "Files": lambda files: _are_states(files.states, len(files.paths)) and _stay_below(files.paths),
    "FieldKind": lambda kind: kind.dtype == "str" or kind.dtype in DTYPES,
    "FolderFiles": _folder_files,
    "LmdbImages": _spans,
    "Frames": lambda frames: len(frames.videos) + 1 == len(frames.ends),
    "Mapped": _mapped,
    "NamedFiles": lambda files: _are_states(files.states, len(files.paths)),
    "PaintedColumn": lambda column: len(column.paints.values) == len(column.segmentations),
    "Packets": lambda packets: len(packets.pts) == len(packets.size) == len(packets.flags),
    "RaggedColumn": lambda column: (
        _are_ends(column.ends, len(column.values))
        and (column.sizes is None or _are_states(column.sizes, len(column.ends) - 1))
    ),
    "RecordImages": _spans,
    "Repeated": _repeated,
    "ShardSpans": _spans,
    "SourceInfo": lambda info: all(map(FIELD_NAME.fullmatch, info.fields)),
    "Spans": _spans,
    "Table": _table,
    "TablePart": lambda part: _is_column(part.images),
    "TakenFrames": lambda taken: isinstance(taken.found, DecodeError) or len(taken.found) == len(taken.numbers),
    "Texts": lambda texts: _are_ends(texts.ends, len(texts.data)) and _are_utf8(texts),
    "VideoIndex": _index,
}  # fmt: skip
