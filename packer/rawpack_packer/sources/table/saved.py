"""Tables as one array of bytes and a description of plain values, from which another process makes the same tables.

What is loaded is foreign input: whoever may write into a destination can plant it. It names classes and functions of a
closed list, and nothing in it is run. A path is the number of a folder, among those that the command names, and what
follows below that folder; a URL has no user, query or fragment, which the command has. Types, bounds and lengths are
checked before a table is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Column
from rawpack_packer.sources.files import LocalPath
from rawpack_packer.sources.table.columns import Texts
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.process_file import StoredBytes, stored
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool
from rawpack_packer.sources.table.table import ImageColumn, KeyColumn, Table

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
_CLASSES = {name: module for module, names in _MODULES.items() for name in names}
"""The classes of objects that saved tables hold, each with its module."""
_FUNCTIONS = {
    "builtins": ("bytes", "float", "int"),
    f"{_SOURCES}.chunks.index": (
        "_array", "_image", "_number", "compact_json", "head_of_words", "known_head", "picture", "text",
    ),
    f"{_SOURCES}.chunks.mds": ("_head",),
    f"{_SOURCES}.lmdb.source": ("_datum", "_image_of_pixels", "_pickle"),
    "json": ("loads",),
}  # fmt: skip
"""Functions that they may name, which make values of bytes, by their modules."""
_NUMBERS = "biufcSU"
"""Kinds of dtypes that their arrays have."""
_ALIGNED = 16
_LEFT_OUT = ("find_videos", "find_column", "apart", "beside", "details")
"""Members of a table that are asked for only before a job begins."""


class NotSavedError(Exception):
    """A table holds what only this process has, or a path outside of what the command names."""


@dataclass(frozen=True)
class Places:
    """What the command that saves or loads tables names."""

    folders: Sequence[str] = ()
    """Absolute."""
    spool: Spool | None = None
    """What fetches files behind URLs."""
    whole_url: Callable[[str], str] = str
    """Gives the URL of which `bare` made this one. Raises KeyError where the command names none."""


def bare(url: str) -> str:
    """A URL without user, query and fragment."""
    split = urlsplit(url)
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


# ---------------------------------------------------------------------------------------------- save


class Saving:
    """Collects tables: `nodes`, plain values of which each may refer to earlier ones, and `blocks`, the bytes of
    arrays."""

    def __init__(self, places: Places) -> None:
        self.nodes, self.blocks, self.size = list[Any](), list[memoryview](), 0
        self._places, self._known = places, dict[int, tuple[int, Any]]()
        """Identity of an object -> its node, and the object, which must live on."""

    def add(self, table: Table) -> int:
        """Add a table. Returns the number of its node. Raises NotSavedError."""
        self.nodes.append(self._plain((table, table.videos())))
        return len(self.nodes) - 1

    def _plain(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, bytes | np.ndarray) or is_dataclass(value) or type(value).__name__ in _CLASSES:
            if id(value) not in self._known:  # what several columns share is saved once
                self.nodes.append(self._object(value))
                self._known[id(value)] = len(self.nodes) - 1, value
            return {"node": self._known[id(value)][0]}
        match value:
            case tuple() | list():
                return {type(value).__name__: [self._plain(part) for part in value]}
            case Mapping():
                return {"map": [[self._plain(key), self._plain(part)] for key, part in value.items()]}
            case range():
                return {"range": [value.start, value.stop, value.step]}
            case Fraction():
                return {"fraction": str(value)}
            case DecodeError():
                return {"error": [value.reason, value.detail]}
            case np.dtype():
                return {"dtype": value.str}
            case np.integer() | np.floating() | np.bool_():
                return value.item()
            case partial():
                return {"partial": [self._plain(value.func), self._plain(value.args), self._plain(value.keywords)]}
            case FunctionType() | type() if value.__name__ in _FUNCTIONS.get(value.__module__, ()):
                return {"function": [value.__module__, value.__name__]}
        raise NotSavedError(type(value).__name__)

    def _object(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return {"bytes": [self._block(memoryview(value)), len(value)]}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in _NUMBERS:
                raise NotSavedError(str(value.dtype))
            data = np.ascontiguousarray(value).reshape(-1)
            return {"array": [value.dtype.str, list(value.shape), self._block(data.view(np.uint8).data)]}
        if isinstance(value, StoredBytes):
            return {"stored": self._plain(value.read())}
        if isinstance(value, NamedFiles) and value.spool is not None:
            if not all(file.version for file in value.remotes):
                raise NotSavedError("files without a version")
            files = [[bare(file.url), file.bytes, file.version] for file in value.remotes]
            return {"remote": [files, self._plain(value.states), self._plain(value.indexes)]}
        kind = type(value)
        if kind.__name__ not in _CLASSES or not is_sound(value):
            raise NotSavedError(kind.__name__)
        members = {}
        for name, hint in members_of(kind).items():
            held = getattr(value, name)
            members[name] = self._path(held) if LocalPath in (hint, *get_args(hint)) else self._plain(held)
        return {"is": kind.__name__, "of": members}

    def _block(self, data: memoryview) -> int:
        at, padding = self.size, -len(data) % _ALIGNED
        self.blocks += [data, memoryview(bytes(padding))]
        self.size += len(data) + padding
        return at

    def _path(self, path: Any) -> Any:
        if path is None:
            return None
        if isinstance(path, tuple):
            return {"tuple": [self._path(one) for one in path]}
        for number, folder in enumerate(self._places.folders):
            if path == folder:
                return {"path": [number, ""]}
            root = folder.rstrip(os.sep) + os.sep
            if path.startswith(root) and is_below(path[len(root) :]):
                return {"path": [number, path[len(root) :]]}
        raise NotSavedError("a path outside of the source")


# ---------------------------------------------------------------------------------------------- load


class Loading:
    """Makes tables of what `Saving` collected. Raises ValueError, KeyError, TypeError, IndexError and the like for what
    that never wrote."""

    def __init__(self, nodes: Sequence[Any], data: NDArray[np.uint8], places: Places) -> None:
        """data: the bytes of all arrays."""
        self._data, self._places, self._made = data, places, list[Any]()
        for node in nodes:
            self._made.append(self._value(node))

    def table(self, number: int) -> Table:
        """The table of a node."""
        table, videos = self._made[number]
        if not isinstance(table, Table) or type(videos).__name__ not in ("NoneType", "Videos"):
            raise ValueError("no table")
        return table if videos is None else table.but(find_videos=lambda: videos)

    def _value(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            if isinstance(plain, list):
                raise ValueError("a list without a name")
            return plain
        if "is" in plain:
            return self._instance(str(plain["is"]), plain["of"])
        ((name, held),) = plain.items()
        match name:
            case "node":
                return self._made[_natural(held)]
            case "tuple":
                return tuple(map(self._value, held))
            case "list":
                return [*map(self._value, held)]
            case "map":
                return {self._value(key): self._value(part) for key, part in held}
            case "range":
                return range(*held)
            case "fraction":
                return Fraction(held)
            case "error":
                return DecodeError(*map(str, held))
            case "dtype":
                return _dtype(held)
            case "path":
                return self._path(*held)
            case "bytes":
                return self._bytes(*held).tobytes()
            case "array":
                return self._array(*held)
            case "stored":
                return stored([self._value(held)])
            case "remote":
                return self._remote(*held)
            case "function":
                return _function(*held)
            case "partial":
                function, args, keywords = map(self._value, held)
                if not callable(function):
                    raise ValueError("no function")
                return partial(function, *args, **keywords)
        raise ValueError(f"what is {name}?")

    def _bytes(self, at: int, size: int) -> NDArray[np.uint8]:
        if not 0 <= _natural(at) <= _natural(at) + _natural(size) <= len(self._data):
            raise ValueError("bytes outside of the file")
        return self._data[at : at + size]

    def _array(self, name: str, shape: Sequence[int], at: int) -> NDArray[Any]:
        dtype, count = _dtype(name), 1
        for length in shape:
            count *= _natural(length)
        return self._bytes(at, count * dtype.itemsize).view(dtype).reshape(shape)

    def _path(self, number: int, below: str) -> _Path:
        folder = self._places.folders[_natural(number)]
        if not is_below(below):
            raise ValueError("a path that leads out of the source")
        return _Path(os.path.join(folder, below) if below else folder)  # noqa: PTH118 - as it was saved

    def _remote(self, files: Sequence[tuple[str, int, str]], states: Any, indexes: Any) -> NamedFiles:
        spool = self._places.spool
        if spool is None:
            raise ValueError("URLs without a spool")
        remotes = tuple(
            RemoteArchive(self._places.whole_url(url), _natural(size), str(version), dict(spool.options))
            for url, size, version in files
        )
        paths = tuple(str(spool.path(remote)) for remote in remotes)
        made = NamedFiles(paths, self._value(states), self._value(indexes), remotes, spool)
        _check(made, {**members_of(NamedFiles), "paths": tuple[str, ...]})
        return made

    def _instance(self, name: str, members: Mapping[str, Any]) -> Any:
        kind, hints = _class(name), members_of(_class(name))
        if members.keys() != hints.keys():
            raise ValueError(f"other members than those of {name}")
        values = {member: self._value(held) for member, held in members.items()}
        for member, hint in hints.items():
            if not fits(values[member], hint):
                raise ValueError(f"{name}.{member} is not {hint}")
        made = kind(**{member: _without_mark(value) for member, value in values.items()})
        _check(made, {})
        return made


class _Path(str):
    """A path that `Places` allow."""

    __slots__ = ()


def _without_mark(value: Any) -> Any:
    if isinstance(value, tuple) and any(isinstance(part, _Path) for part in value):
        return tuple(map(str, value))
    return str(value) if isinstance(value, _Path) else value


def _check(value: Any, hints: Mapping[str, Any]) -> None:
    for member, hint in hints.items():
        if not fits(getattr(value, member), hint):
            raise ValueError(f"{type(value).__name__}.{member} is not {hint}")
    if not is_sound(value):
        raise ValueError(f"{type(value).__name__} is not sound")


def _natural(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("no natural number")
    return number


def _dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(str(name))
    if dtype.kind not in _NUMBERS or not dtype.itemsize or dtype.subdtype is not None:
        raise ValueError(f"dtype {name}")
    return dtype


def _function(module: str, name: str) -> Callable[..., Any]:
    if name not in _FUNCTIONS[module]:
        raise ValueError(f"function {name}")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


# ---------------------------------------------------------------------------------------------- types


def _class(name: str) -> Any:
    return getattr(import_module(f"{_SOURCES}.{_CLASSES[name]}"), name)


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
        return type(value).__name__ in _CLASSES and hasattr(value, "pick")
    if origin is Annotated:
        return isinstance(value, _Path)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin is np.ndarray:
        (of,) = get_args(args[1])
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


# ---------------------------------------------------------------------------------------------- bounds


def is_below(path: str) -> bool:
    """Whether a relative path stays below the folder that it starts from."""
    parts = path.replace("\\", "/").split("/") if os.name == "nt" else path.split("/")
    return not path.startswith("/") and ".." not in parts and "\0" not in path and not os.path.splitdrive(path)[0]


def is_sound(value: Any) -> bool:
    """Whether the numbers in an object are within what they count."""
    check = _CHECKS.get(type(value).__name__)
    return check is None or bool(check(value))


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
        below = all(is_below(os.fsdecode(folder)) for folder in folders) and b"/" not in files.names
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
        all(held.shape == (count,) for held in each) and _are_within(table.unread, count)
        and (table.row_states is None or _are_states(table.row_states, count)) and table.file_states.shape[1:] == (2,)
        and all(_has_rows(column, count) for column in columns) and rows.columns.keys() <= {*table.info.fields}
    )  # fmt: skip


def _index(index: Any) -> bool:
    packets, frames = index.packets, index.packet[index.packet >= 0]
    return len(index.times) == len(index.packet) and (
        packets is None or _are_within(frames - packets.first, len(packets.pts)) or not len(frames)
    )


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "ArrowRows": lambda rows: len(rows.starts) == len(rows.files) and _are_within(rows.rows, 1 << 62),
    "ExampleImages": _spans,
    "Files": lambda files: _are_states(files.states, len(files.paths)) and _stay_below(files.paths),
    "FolderFiles": _folder_files,
    "LmdbImages": _spans,
    "Frames": lambda frames: len(frames.videos) + 1 == len(frames.ends),
    "Mapped": lambda mapped: len(mapped.shape) > 0 and _are_within(mapped.rows, mapped.shape[0]) and mapped.offset >= 0,
    "NamedFiles": lambda files: _are_states(files.states, len(files.paths)),
    "PaintedColumn": lambda column: len(column.paints.values) == len(column.segmentations),
    "Packets": lambda packets: len(packets.pts) == len(packets.size) == len(packets.flags),
    "RaggedColumn": lambda column: (
        _are_ends(column.ends, len(column.values))
        and (column.sizes is None or _are_states(column.sizes, len(column.ends) - 1))
    ),
    "RecordImages": _spans,
    "Repeated": lambda column: _are_within(column.at, 1 << 62) and _has_rows_at(column),
    "ShardSpans": _spans,
    "Spans": _spans,
    "Table": _table,
    "TakenFrames": lambda taken: isinstance(taken.found, DecodeError) or len(taken.found) == len(taken.numbers),
    "Texts": lambda texts: _are_ends(texts.ends, len(texts.data)),
    "VideoIndex": _index,
}  # fmt: skip


def _has_rows_at(column: Any) -> bool:
    if len(column.at):
        column.column.pick(np.array([column.at.max()]))  # raises IndexError
    return True
