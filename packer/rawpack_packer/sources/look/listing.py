"""A path with its names and first bytes, each read from the disk once, when first asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rawpack.errors import UsageError
from rawpack.remote.url import is_url
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

T = TypeVar("T")

MOST_NAMES = 10_000
"""Names of a folder that are kept: one whose first names are others is not of a kind that has such files."""
HEAD = 1 << 18
"""First bytes of a file that are kept."""


@dataclass(slots=True)
class ListedEntry:
    """An entry of a folder that was listed before, as an `os.DirEntry` is one of a folder that is listed now."""

    name: str
    path: str
    _is_dir: bool
    _is_link: bool

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_dir and (follow_symlinks or not self._is_link)

    def is_symlink(self) -> bool:
        return self._is_link


class Listing:
    """A path, whether or not anything lies there: a file, a folder, several files by a pattern, a split in either, or a
    URL.

    What cannot be looked into has no names and no bytes: whoever opens it says why. Paths in it and the one above are
    listings too, so that all who ask about a folder share what was read. It may be used as the path itself.
    """

    def __init__(self, path: str | os.PathLike[str], spool: Spool | None = None) -> None:
        """spool: what fetches a file behind a URL."""
        self._text = os.fspath(path)
        self._spool = spool
        self.is_url = is_url(self._text)
        self.path = Path(_address(self._text) if self.is_url else path)
        """Where it lies. For a URL, the address of the file, without a query and without the folder in an archive."""
        if not self.is_url and self.path.name in ("", ".."):  # as of ".": the name of a folder may say what it is
            self.path = Path(os.path.abspath(self.path))  # noqa: PTH100 - a link keeps the folders that its path names
        self.error: OSError | ValueError | None = None
        """Why the names of a folder could not be read; set by `names`."""
        self.hidden = 0
        """Names that begin with a dot; set by `names`, which lacks them."""
        self._inner, self._links, self._modified = dict[str, Listing](), set[str](), -1

    @staticmethod
    def of(path: str | os.PathLike[str]) -> Listing:
        """The listing of a path, which may be one already."""
        return path if isinstance(path, Listing) else Listing(path)

    def __fspath__(self) -> str:
        """The path as the user wrote it, also a URL."""
        return self._text

    __str__ = __fspath__

    def __truediv__(self, name: str) -> Listing:
        """The path in this one, parts of `name` divided by "/"."""
        if name not in self._inner:
            self._inner[name] = inner = Listing(self.path / name)
            if "/" not in name and inner.path.parent == self.path:
                inner.above = self
        return self._inner[name]

    @cached_property
    def above(self) -> Listing:
        """The folder that the path is in, or would be in."""
        above = Listing(self.path.parent)
        if above.path != self.path:
            above._inner[self.path.name] = self
        return above

    # Not the methods of Path, which raise for a name that is too long and where nothing can be looked into.
    @cached_property
    def is_file(self) -> bool:
        """Whether it is a file, or a link to one."""
        return os.path.isfile(self.path)  # noqa: PTH113

    @cached_property
    def is_dir(self) -> bool:
        """Whether it is a folder, or a link to one."""
        return os.path.isdir(self.path)  # noqa: PTH112

    @cached_property
    def exists(self) -> bool:
        """Whether anything lies there, if only a broken link."""
        return os.path.lexists(self.path)

    @cached_property
    def is_pattern(self) -> bool:
        """Whether it names several files, by a range, a glob or `::`."""
        from rawpack_packer.sources.table.named_files import is_pattern

        if self.is_url:
            return is_pattern(str(self.path))
        # In a folder or file whose own name looks like a pattern, only a last part that does so too is one.
        return is_pattern(self._text) and (is_pattern(self.path.name) or not self.above.exists)

    @cached_property
    def first(self) -> Listing:
        """The first file of a pattern that is there; without one, the path itself, whose opener says so."""
        from rawpack_packer.sources.table.named_files import expanded

        with suppress(UsageError):
            return Listing(next(filter(os.path.lexists, expanded(self._text, whole=False)), self._text))
        return self

    def check_ends(self) -> None:
        """Raise UsageError for a pipe, socket or device, which may never end."""
        if os.path.exists(self.path) and not (self.is_file or self.is_dir):  # noqa: PTH110 - False for a broken link
            raise UsageError(f"{plain(os.fsencode(self.path.absolute()))} is not a file or folder: name one of these")

    def holds(self, name: str) -> bool:
        """Whether anything of this name is in a folder, parts divided by "/"; "../" stands for the folder above."""
        path = self.path.absolute().parent / name[3:] if name.startswith("../") else self.path / name
        return os.path.exists(path)  # noqa: PTH110 - False where nothing can be looked into

    @cached_property
    def names(self) -> Mapping[str, bool]:
        """Name in a folder -> whether it is a folder, for the first `MOST_NAMES` that do not begin with a dot, in no
        order."""
        names = dict[str, bool]()
        try:
            self._modified = os.stat(self.path).st_mtime_ns  # noqa: PTH116
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        self.hidden += 1
                        continue
                    names[entry.name] = _is_dir(entry)
                    if entry.is_symlink():
                        self._links.add(entry.name)
                    if len(names) > MOST_NAMES:
                        break
        except (OSError, ValueError) as error:
            self.error = error
            return {}
        return names

    def listed(self, folder: str = "") -> Listing | None:
        """The listing of a folder in this one, parts divided by "/", if it has all names there are now: it was read,
        whole, and the folder is as it was then."""
        inner: Listing | None = self
        for part in folder.split("/") if folder else ():
            inner = inner._inner.get(part) if inner is not None else None
        if inner is None or "names" not in vars(inner) or inner.error or len(inner.names) > MOST_NAMES:
            return None
        return inner if os.stat(inner.path).st_mtime_ns == inner._modified else None  # noqa: PTH116

    def entries(self) -> Iterator[ListedEntry]:
        """What has the `names`."""
        above = os.path.join(self.path, "")  # noqa: PTH118
        for name, is_dir in self.names.items():
            yield ListedEntry(name, above + name, is_dir, name in self._links)

    def all_names(self) -> Iterator[tuple[str, bool]]:
        """All `names`, for which a folder of more is listed again after the first. Raises `error`."""
        yield from self.names.items()
        if self.error is not None:
            raise self.error
        if len(self.names) > MOST_NAMES:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if entry.name not in self.names and not entry.name.startswith("."):
                        yield entry.name, _is_dir(entry)

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD` bytes of a file; none of anything else."""
        with suppress(OSError):
            if self.is_file:
                with self.path.open("rb") as file:
                    return file.read(HEAD)
        return b""

    @cached_property
    def results(self) -> dict[object, object]:
        """What functions that are `kept` returned of it."""
        return {}

    def contents(self) -> bytes:
        """All bytes of a file, also behind a URL, read again if these are more than its head; none of anything
        else."""
        if self.is_url:
            return self._fetched
        if len(self.head) < HEAD:
            return self.head
        with suppress(OSError):
            return self.path.read_bytes()
        return b""

    @cached_property
    def _fetched(self) -> bytes:
        from rawpack_packer.sources.table.named_files import contents, named_files

        return b"" if self._spool is None else contents(self._text, named_files(self._text, self._spool))


def _address(url: str) -> str:
    from rawpack_packer.sources.archives.source import split_path

    return re.split("[?#]", split_path(url)[0], maxsplit=1)[0]


def kept(read: Callable[[Listing], T]) -> Callable[[Listing], T]:
    """A function whose result stays in the listing: it reads what is there once, however many ask."""

    @wraps(read)
    def ask(listing: Listing) -> T:
        if read not in listing.results:
            listing.results[read] = read(listing)
        return listing.results[read]  # type: ignore[return-value] # as it was put there

    return ask


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # as of a link to itself
        return False
