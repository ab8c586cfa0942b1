"""Tables as one array of bytes and a description of plain values, from which another process makes the same tables.

What is loaded is foreign input: whoever may write into a destination can plant it. It names classes and functions of a
closed list, and nothing in it is run. A path is the number of a folder or file, among those that the command names,
and what follows below that folder; none is in the destination. A URL has no user, query or fragment, which the command
has. Types, bounds and lengths are checked before a table is used, by no more memory and time than its bytes account
for.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME
from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Column, SourceInfo
from rawpack_packer.sources.files import LocalPath
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.table.columns import Files, Texts
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.process_file import StoredBytes, stored
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool
from rawpack_packer.sources.table.table import ImageColumn, KeyColumn, Table
from rawpack_packer.sources.video import Videos

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
_LOOKS = 256
"""How often what a table consists of may be looked at on average: hundreds of columns may share the order of rows."""
_MOST_ROWS = 1 << 40
_FRACTION = re.compile(r"-?[0-9]{1,20}(/[0-9]{1,20})?")
_LEFT_OUT = ("find_videos", "find_column", "apart", "beside", "details")
"""Members of a table that are asked for only before a job begins."""


class NotSavedError(Exception):
    """A table holds what only this process has, or a path outside of what the command names."""


@dataclass(frozen=True)
class Places:
    """What the command that saves or loads tables names."""

    folders: Sequence[str] = ()
    """Absolute."""
    files: Sequence[str] = ()
    """The same, of files that are read alone, whatever else is in their folders."""
    apart: str = ""
    """The destination, absolute: where others may put links, and no source is; "" for none."""
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
                try:
                    return {"map": [[_key(self._plain(key)), self._plain(part)] for key, part in value.items()]}
                except ValueError as error:
                    raise NotSavedError(str(error)) from error
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
            if kind is SourceInfo and name == "paths":  # no file is read by them
                held = tuple(part for path in held for part in self._files_in(path) or (path,))
            members[name] = self._path(held) if LocalPath in (hint, *get_args(hint)) else self._plain(held)
        return {"is": kind.__name__, "of": members}

    def _block(self, data: memoryview) -> int:
        at, padding = self.size, -len(data) % _ALIGNED
        self.blocks += [data, memoryview(bytes(padding))]
        self.size += len(data) + padding
        return at

    def _files_in(self, folder: str) -> list[str]:
        """The files that the command names in a folder that it does not name."""
        files = [path for path in self._places.files if os.path.dirname(path) == folder]  # noqa: PTH120
        return [] if folder in self._places.folders else files

    def _path(self, path: Any) -> Any:
        if path is None:
            return None
        if isinstance(path, tuple):
            return {"tuple": [self._path(one) for one in path]}
        folders, files = self._places.folders, self._places.files
        for number, named in enumerate((*folders, *files)):
            if path == named:
                return {"path": [number, ""]}
            root = named.rstrip(os.sep) + os.sep
            if number < len(folders) and path.startswith(root) and is_below(path[len(root) :]):
                return {"path": [number, path[len(root) :]]}
        raise NotSavedError("a path outside of the source")


# ---------------------------------------------------------------------------------------------- load


class Loading:
    """Makes tables of what `Saving` collected. Raises ValueError, KeyError, TypeError, IndexError and the like for what
    that never wrote."""

    def __init__(self, nodes: Sequence[Any], data: NDArray[np.uint8], places: Places) -> None:
        """data: the bytes of all arrays."""
        self._data, self._places, self._made = data, places, list[Any]()
        self._costs, self._written, self._spent, self._copied = list[int](), 0, 0, 0
        for node in nodes:
            before = self._spent
            self._made.append(self._value(node))
            # Others see only the class of an object, and all of what is plain.
            self._costs.append(1 if isinstance(node, dict) and "is" in node else self._spent - before)

    def table(self, number: int) -> Table:
        """The table of a node."""
        table, videos = self._made[number]
        if not isinstance(table, Table) or not fits(videos, Videos | None):
            raise ValueError("no table")
        return table if videos is None else table.but(find_videos=lambda: videos)

    def _spend(self, size: int) -> None:
        """Raise ValueError where values of this size in bytes, about, have been looked at too often."""
        self._spent += size
        if self._spent > _LOOKS * (len(self._data) + self._written):
            raise ValueError("values that are repeated without an end")

    def _value(self, plain: Any) -> Any:
        self._written += 1
        self._spend(1)
        if not isinstance(plain, dict):
            if isinstance(plain, list):
                raise ValueError("a list without a name")
            return plain
        if "is" in plain:
            return self._instance(str(plain["is"]), plain["of"])
        ((name, held),) = plain.items()
        match name:
            case "node":
                self._spend(self._costs[_natural(held)])
                return self._made[held]
            case "tuple":
                return tuple(map(self._value, held))
            case "list":
                return [*map(self._value, held)]
            case "map":
                return {_key(key): self._value(part) for key, part in held}
            case "range":
                return range(*held)
            case "fraction":
                if not _FRACTION.fullmatch(held):
                    raise ValueError("no fraction")
                return Fraction(held)
            case "error":
                return DecodeError(*map(str, held))
            case "dtype":
                return _dtype(held)
            case "path":
                return self._path(*held)
            case "bytes":
                data = self._bytes(*held)
                self._copy(len(data))
                return data.tobytes()
            case "array":
                return self._array(*held)
            case "stored":
                data = self._value(held)
                self._copy(len(data))
                return stored([data])
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
        self._spend(size)
        return self._data[at : at + size]

    def _copy(self, size: int) -> None:
        """Raise ValueError where more bytes are copied than are saved: once into memory, or from there into a file."""
        self._copied += size
        if self._copied > 2 * len(self._data):
            raise ValueError("bytes that are copied without an end")

    def _array(self, name: str, shape: Sequence[int], at: int) -> NDArray[Any]:
        dtype, count = _dtype(name), 1
        for length in shape:
            count *= _natural(length)
        if not count and shape[0]:
            raise ValueError("rows without a value")
        return self._bytes(at, count * dtype.itemsize).view(dtype).reshape(shape)

    def _path(self, number: int, below: str) -> _Path:
        folders, files = self._places.folders, self._places.files
        named = (*folders, *files)[_natural(number)]
        if not is_below(below) or (below and number >= len(folders)):
            raise ValueError("a path that leads out of the source")
        path = os.path.join(named, below) if below else named  # noqa: PTH118 - as it was saved
        if self._is_apart(path):
            raise ValueError("a path in the destination")
        return _Path(path)

    def _is_apart(self, path: str) -> bool:
        """Whether a path is in the destination."""
        folder = os.path.normpath(self._places.apart).lower()
        return bool(self._places.apart) and f"{os.path.normpath(path).lower()}{os.sep}".startswith(folder + os.sep)

    def _check_apart(self, files: Files | FolderFiles) -> None:
        """Raise ValueError where a path below the root of files is in the destination: with few looks."""
        apart = os.path.normpath(self._places.apart)
        above = "" if files.root is None else os.path.normpath(files.root).lower().rstrip(os.sep) + os.sep
        if not (self._places.apart and above and apart.lower().startswith(above)):
            return
        if isinstance(files, FolderFiles):
            below: Iterable[bytes] = files.folders
        else:
            texts, name = files.paths, re.escape(os.fsencode(os.path.basename(apart)))  # noqa: PTH119
            starts = np.array([match.start() for match in re.finditer(name, texts.data, re.IGNORECASE)], np.int64)
            rows = np.unique(np.searchsorted(texts.ends, starts, "right") - 1)
            below = map(texts.raw, rows.tolist())
        if any(self._is_apart(os.path.join(str(files.root), os.fsdecode(path))) for path in below):  # noqa: PTH118
            raise ValueError("a path in the destination")

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
        if isinstance(made, Files | FolderFiles):
            self._check_apart(made)
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


def _key(value: Any) -> str | int:
    """What objects by name or number are saved by. Raises ValueError."""
    if type(value) not in (str, int):
        raise ValueError("neither a name nor a number")
    key: str | int = value
    return key


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
    names = {one.__name__: one for one in (RemoteArchive, Spool, Videos)}
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


def _is_column(value: Any) -> bool:
    return type(value).__name__ in _CLASSES and hasattr(value, "pick") and hasattr(value, "value")


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
    held = _dtype(mapped.dtype)
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
