"""Tables as one array of bytes and a description of plain values, from which another process makes the same tables.

What is loaded is foreign input: whoever may write into a destination can plant it. It names classes and functions of a
closed list, and nothing in it is run. A path is the number of a folder or file, among those that the command names,
and what follows below that folder; none is in the destination. A URL has no user, query or fragment, which the command
has. Types, bounds and lengths are checked before a table is used, by no more memory and time than its bytes account
for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import partial
from types import FunctionType
from typing import Any, get_args
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import SourceInfo
from rawpack_packer.sources.files import LocalPath
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.table.columns import Files
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.process_file import StoredBytes, stored
from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool
from rawpack_packer.sources.table.saved_types import (
    CLASSES,
    FUNCTIONS,
    NUMBERS,
    CheckedPath,
    class_of,
    dtype_of,
    fits,
    function_of,
    is_below,
    is_sound,
    members_of,
)
from rawpack_packer.sources.table.table import Table

_ALIGNED = 16
_LOOKS = 256
"""How often what a table consists of may be looked at on average: hundreds of columns may share the order of rows."""
_FRACTION = re.compile(r"-?[0-9]{1,20}(/[0-9]{1,20})?")


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
        if isinstance(value, bytes | np.ndarray) or is_dataclass(value) or type(value).__name__ in CLASSES:
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
            case FunctionType() | type() if value.__name__ in FUNCTIONS.get(value.__module__, ()):
                return {"function": [value.__module__, value.__name__]}
        raise NotSavedError(type(value).__name__)

    def _object(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return {"bytes": [self._block(memoryview(value)), len(value)]}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in NUMBERS:
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
        if kind.__name__ not in CLASSES or not is_sound(value):
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
        if not isinstance(table, Table) or type(videos).__name__ not in ("NoneType", "Videos"):
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
                return dtype_of(held)
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
                return function_of(*held)
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
        dtype, count = dtype_of(name), 1
        for length in shape:
            count *= _natural(length)
        if not count and shape[0]:
            raise ValueError("rows without a value")
        return self._bytes(at, count * dtype.itemsize).view(dtype).reshape(shape)

    def _path(self, number: int, below: str) -> CheckedPath:
        folders, files = self._places.folders, self._places.files
        named = (*folders, *files)[_natural(number)]
        if not is_below(below) or (below and number >= len(folders)):
            raise ValueError("a path that leads out of the source")
        path = os.path.join(named, below) if below else named  # noqa: PTH118 - as it was saved
        if self._is_apart(path):
            raise ValueError("a path in the destination")
        return CheckedPath(path)

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
        kind, hints = class_of(name), members_of(class_of(name))
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


def _without_mark(value: Any) -> Any:
    if isinstance(value, tuple) and any(isinstance(part, CheckedPath) for part in value):
        return tuple(map(str, value))
    return str(value) if isinstance(value, CheckedPath) else value


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
