"""What a run scanned, kept in its destination until the store is finished: a run that resumes reads that, and nothing
of the source before its first part.

    .rawpack/table/         of this user alone
      columns.npy           the arrays of all columns, one after another
      table.json            `TablesNote`, written last
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack import __version__
from rawpack.disk.splits import is_split_name
from rawpack.errors import RawpackError
from rawpack.remote.url import is_url, join
from rawpack.system import writing
from rawpack.system.machine import memory_limit_bytes
from rawpack_packer.destination import files, journal
from rawpack_packer.destination.files import TABLE, WORK
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import KINDS, Table, names_others
from rawpack_packer.sources.table.named_files import expanded, is_pattern
from rawpack_packer.sources.table.remote_files import Spool, folder_of
from rawpack_packer.sources.table.saved import Loading, NotSavedError, Places, Saving, bare
from rawpack_packer.sources.table.saved_types import is_below

_COLUMNS, _NOTE = "columns.npy", "table.json"
_MOST_NOTE = 1 << 30
"""Bytes."""
_SIGNATURES = ("x-amz-", "x-goog-", "x-oss-", "x-cos-", "q-")
_SIGNATURE = {
    "awsaccesskeyid", "expires", "googleaccessid", "key-pair-id", "policy", "se", "ses", "sig", "signature", "ske",
    "skoid", "sks", "skt", "sktid", "skv", "sp", "spr", "sr", "st", "sv", "token",
}  # fmt: skip
"""Parameters of URLs, in lower case, that say who may read a file, and change from day to day: those of S3, CloudFront,
Google Cloud Storage, Azure and others."""

_FOLDERS = ("fields", "images", "labels_dir")
"""Options of sources that may name folders of their files."""
_PART_OF_A_SET = ("annotations", "meta")
"""Folders of sets, as COCO and LeRobot name them, that have one that describes all: files next to them belong to it."""


class TablesNote(msgspec.Struct, frozen=True, kw_only=True):
    """What `table.json` holds."""

    version: str
    salt: str
    asked: str
    """Keyed digest of what the command asked for, by `salt`."""
    when: str
    columns: str
    """xxh3_128 of the arrays."""
    tables: dict[str, int]
    """Name of a split, "" where there is one store -> its node."""
    digests: dict[str, str]
    """The same -> the digest of the table: see `journal.source_digest`."""
    nodes: list[Any]
    """See `saved.Saving`."""


class SavedTables:
    """The tables of a job whose source is a path or URL."""

    def __init__(
        self, place: Path, source: str | os.PathLike[str], options: Mapping[str, Any], spool: Spool, *more: object
    ) -> None:
        """place: the destination. options: of the source. more: else that the tables follow from."""
        self.place, self._folder = place, place / WORK / TABLE
        self._source, self._options = os.fspath(source), dict(options)
        self._spool, self._more = spool, more
        self.tables: Mapping[str, Table] = {}
        """By the name of their split, "" where there is one store."""
        self.when: datetime | None = None
        """When the tables were saved; None until an earlier run's are loaded."""
        self.digest = ""
        """That of `table.json`, which the note of the job has too."""

    def load(self, noted: Collection[str], names: Collection[str] | None = ("",)) -> bool:
        """Load the tables of an earlier run of this command. Returns whether it left some that can be used, made by
        this version. noted: the digests that notes of its jobs have. names: those of the tables; None for any that
        splits may have. Raises PackError where links or the like are in their place."""
        most = (memory_limit_bytes() or sys.maxsize) // 2  # the scan took more
        try:
            text = writing.read(self._folder / _NOTE, min(_MOST_NOTE, most))
            with writing.reopen(self._folder / _COLUMNS) as file:
                columns = _read_columns(file, most)
        except (OSError, ValueError, EOFError, MemoryError):
            return False
        self.digest = xxhash.xxh3_128_hexdigest(text)
        try:
            note = msgspec.json.decode(text, type=TablesNote)
            fitting = all(map(is_split_name, note.tables)) if names is None else note.tables.keys() == {*names}
            if (
                self.digest in noted and fitting
                and note.version == __version__ and note.asked == self._asked(note.salt)
            ):  # fmt: skip
                if xxhash.xxh3_128_hexdigest(columns.data) != note.columns:
                    raise ValueError("other columns")
                loading, when = Loading(note.nodes, columns, self._places), datetime.fromisoformat(note.when)
                when.astimezone(UTC).replace(tzinfo=None)  # raises OverflowError
                tables = {name: loading.table(number) for name, number in note.tables.items()}
                for name, table in tables.items():
                    journal.note_digest(table, note.digests[name])
                self.tables, self.when = tables, when
                return True
        except Exception:  # whatever is written there: the source is scanned again
            pass
        self.digest = ""
        return False

    def save(self) -> None:
        """Write the tables, or nothing where one cannot be written: then a run that resumes scans the source again."""
        saving, salt = Saving(self._places), os.urandom(16).hex()
        writing.remove_folder(self._folder)
        self.digest = ""
        if any(len(table.unread) or self._is_described(table.info.kind) for table in self.tables.values()):
            return  # what can be read by then is looked for again, and whether labels have changed
        try:
            numbers = {name: saving.add(table) for name, table in self.tables.items()}
            hasher = xxhash.xxh3_128()
            for block in saving.blocks:
                hasher.update(block)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            text = msgspec.json.encode(
                TablesNote(
                    version=__version__, salt=salt, asked=self._asked(salt), when=now, columns=hasher.hexdigest(),
                    tables=numbers, nodes=saving.nodes,
                    digests={name: journal.source_digest(table) for name, table in self.tables.items()},
                )
            )  # fmt: skip
        except (NotSavedError, UnicodeEncodeError):
            return
        try:
            writing.make_folder(self._folder, private=True)
            with writing.create(self._folder / _COLUMNS, private=True) as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": (saving.size,)}
                np.lib.format.write_array_header_1_0(file, header)
                for block in saving.blocks:
                    file.write(block)
            files.sync_file(self._folder / _COLUMNS)
            files.write_whole(self._folder / _NOTE, text, self._folder / f"{_NOTE}.tmp", private=True)
        except OSError:
            writing.remove_folder(self._folder)
            raise
        self.digest = xxhash.xxh3_128_hexdigest(text)

    def _is_described(self, kind: str) -> bool:
        """Whether labels are in files that no worker reads, and that the command does not name."""
        unread = KINDS[kind].labels_unread if kind in KINDS else ""
        in_folder = not is_url(self._source) and os.path.isdir(self._source)  # noqa: PTH112
        return unread == "always" or (in_folder and unread == "folders")

    def _asked(self, salt: str) -> str:
        named = [_named(self._source), *((name, _named(value)) for name, value in sorted(self._options.items()))]
        key = bytes.fromhex(salt)
        return hashlib.blake2b(repr((named, self._more)).encode("utf-8", "backslashreplace"), key=key).hexdigest()

    @cached_property
    def _places(self) -> Places:
        options = [self._options[name] for name in _FOLDERS if name in self._options]
        named = [path for value in options for path in _paths_in(value) if os.path.isdir(path)]  # noqa: PTH112
        folders, files = dict.fromkeys(map(os.path.abspath, named)), list[str]()
        for path in self._names:
            place = "" if is_url(path) else _existing(path)
            if place and not os.path.isdir(place):  # noqa: PTH112
                files.append(place)
                place = os.path.dirname(place) if self._names_others(path) else ""  # noqa: PTH120
            if place:
                folders[place] = None
                if os.path.basename(place) in _PART_OF_A_SET:  # noqa: PTH119
                    folders[os.path.dirname(place)] = None  # noqa: PTH120
        if is_pattern(self._source):  # which nothing is read by, either
            files += [os.path.abspath(part) for part in self._source.split("::") if not is_url(part)]  # noqa: PTH100
        return Places([*folders], files, os.path.abspath(self.place), self._spool, self._whole_url)  # noqa: PTH100

    @cached_property
    def _names(self) -> Sequence[str]:
        """The paths and URLs that the source stands for."""
        source = self._source
        if not os.path.lexists(source):  # nobody needs this of a folder
            from rawpack_packer.sources.archives.source import split_path

            source = split_path(source)[0]
        return expanded(source, self._spool, whole=False)

    def _names_others(self, path: str) -> bool:
        """Whether a file, also one behind a URL, names others, which are read with it."""
        return names_others(urlsplit(path).path if is_url(path) else path, self._options.get("kind"))

    def _whole_url(self, url: str) -> str:
        if url in self._urls:
            return self._urls[url]
        for known, whole in self._urls.items():
            folders = [(known, whole)]
            folders += [(bare(folder_of(known)), folder_of(whole))] if self._names_others(known) else []
            for above, full in folders:
                rest = url.removeprefix(f"{above.rstrip('/')}/")
                if rest != url and is_below(rest):
                    return join(full, rest)
        raise KeyError(url)

    @cached_property
    def _urls(self) -> Mapping[str, str]:
        """The URLs that the source names, by what is saved of each."""
        return {bare(url): url for url in self._names}


def saved_tables(
    source: Any,
    options: Mapping[str, Any],
    place: Path,
    run_options: RunOptions,
    spool: Spool | None,
    *more: object,
    names: Collection[str] | None = ("",),
    jobs: Iterable[Path] = (),
    kind: type[journal.JobNote] = journal.JobNote,
) -> SavedTables | None:
    """The tables of a job, with those that an earlier run left; None where the source is no path. names: of the tables,
    see `SavedTables.load`. jobs: the folders of
    the stores, if `place` is not that of the only one. kind: of the notes in them. See `SavedTables`."""
    if spool is None or not isinstance(source, str | os.PathLike):
        return None
    tables, noted = SavedTables(place, source, options, spool, *more), set[str]()
    for folder in [] if run_options.restart else jobs or (place,):
        with suppress(RawpackError, OSError):  # whoever packs says what is wrong
            note = journal.read_note(folder, kind)
            noted |= set() if note is None else {note.table}
    if noted - {""}:
        tables.load(noted, names)
    return tables


def _named(value: Any) -> Any:
    """An option, as digests have it: a file with its size and time, a URL without what changes from day to day."""
    if not isinstance(value, str | os.PathLike):
        return value
    text = os.fspath(value)
    if is_url(text):
        query = parse_qsl(urlsplit(text).query, keep_blank_values=True)
        kept = [(k, v) for k, v in query if k.lower() not in _SIGNATURE and not k.lower().startswith(_SIGNATURES)]
        return bare(text), sorted(kept)
    path = os.path.abspath(text)  # noqa: PTH100 - keeps what pathlib would not
    try:
        state = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return path if any(mark in text for mark in "/*?{") else text
    return path if os.path.isdir(path) else (path, state.st_size, state.st_mtime_ns)  # noqa: PTH112


def _paths_in(option: Any) -> Iterator[str]:
    """What may be paths in the value of an option: NAME=FOLDER has one, too."""
    if isinstance(option, str | os.PathLike):
        text = os.fspath(option)
        yield from (os.path.expanduser(part) for part in (text, text.partition("=")[2]) if part)  # noqa: PTH111
    elif isinstance(option, Mapping | list | tuple):
        for part in option.values() if isinstance(option, Mapping) else option:
            yield from _paths_in(part)


def _existing(path: str) -> str:
    """What a path names; where nothing is there, as where it goes into a file, what is above it."""
    place = os.path.abspath(path)  # noqa: PTH100
    while not os.path.lexists(place):
        place = os.path.dirname(place)  # noqa: PTH120
    return place


def _read_columns(file: IO[bytes], most: int) -> NDArray[np.uint8]:
    """The bytes in a .npy file, of which its header says nothing else. Raises ValueError."""
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    size = os.fstat(file.fileno()).st_size - file.tell()
    if dtype != np.uint8 or shape != (size,) or size > most:
        raise ValueError("other columns")
    return np.frombuffer(file.read(), np.uint8)
