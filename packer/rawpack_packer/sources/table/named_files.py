"""The archive files of a source: one path, `a.tar::b.tar`, a range such as `a-{000..123}.tar`, or a glob in quotes; the
same with URLs."""

from __future__ import annotations

import glob
import itertools
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.reach import why_lost
from rawpack.remote.transfer import TIMEOUT_S, Remote, bounded, no_bucket
from rawpack.remote.url import filesystem, is_url, refuse_url, shown
from rawpack_packer.errors import reading, reason_of
from rawpack_packer.sources.files import LocalPath, check_unchanged, opened, read_unchanged
from rawpack_packer.sources.inflation import read_in_steps
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.process_file import StoredBytes
from rawpack_packer.text import near_path, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool

T = TypeVar("T")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_GLOB = re.compile(r"[*?\[]")
_INDEX = "compressed"
_ASKED = 16
"""URLs that are asked about at the same time."""
_LISTING_S = 600.0
"""How long a server may take to list its files: those of a million take 100 seconds."""
_MOST_BYTES = 1 << 28
"""Those of an index behind a URL."""
_SMALL = 1 << 20
"""Bytes of other files that do not matter in a folder of records, however few bytes these have."""
_MOST = 1_000_000
"""Files that a range may stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedFiles:
    """Archive files in order. Plain data."""

    paths: tuple[LocalPath, ...]
    """Absolute, as the operating system takes them; of archives behind URLs, where they are in the spool."""
    states: NDArray[np.int64]
    """(k, 2): size in bytes, and mtime in ns or a checksum, when the source was opened."""
    indexes: tuple[StoredBytes | None, ...] = ()
    """Of compressed archives: the index of each, see `archives/opened.py`; None for one that is not."""
    remotes: tuple[RemoteArchive, ...] = ()
    """Of archives behind URLs: where each is fetched from."""
    spool: Spool | None = None
    """What fetches them."""

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, k: int) -> str:
        """The path or URL of archive k, printable."""
        return plain(str(self.remotes[k])) if self.remotes else plain(os.fsencode(self.paths[k]))

    def base(self, k: int) -> str:
        """The last part of the path or URL of archive k."""
        where = str(self.remotes[k]).partition("?")[0] if self.remotes else self.paths[k]
        return where.rpartition("/")[2]

    @property
    def on_disk(self) -> tuple[str, ...]:
        """Those that are files of this machine."""
        return () if self.remotes else self.paths

    @contextmanager
    def opened(self, k: int, *, keep: bool = True) -> Iterator[int]:
        """A descriptor of archive k, which is fetched if need be. keep: see `Spool.opened`.

        Raises SourceChangedError where it is not the archive that was found, or changes meanwhile; OSError.
        """
        if self.spool is not None:
            with self.spool.opened(self.remotes[k], keep=keep) as fd:
                yield fd
            return
        with opened(self.paths[k]) as fd:
            check_unchanged(fd, self.state(k), self.name(k))
            yield fd
            check_unchanged(fd, self.state(k), self.name(k))

    def read(self, k: int, read: Callable[[int], bytes]) -> bytes:
        """What `read` reads from a descriptor of archive k. Raises as `Samples.__getitem__` does."""
        if self.spool is None:
            return read_unchanged(self.paths[k], self.name(k), self.state(k), read)
        with self.opened(k) as fd:
            data = read(fd)
        if not data:
            raise DecodeError("empty", "the file has no bytes")
        return data

    @contextmanager
    def looked_through(self, *, first_alone: bool = False) -> Iterator[Callable[[], object]]:
        """While in this block, archives behind URLs are fetched in advance, because each is opened in order.
        first_alone: only the first, until what this gives is called."""
        if self.spool is None:
            yield lambda: None
            return
        with self.spool.fetching(self.remotes, first_alone=first_alone) as fetch_others:
            yield fetch_others

    def state(self, k: int) -> tuple[int, int]:
        """Size in bytes and mtime in ns of archive k."""
        size, mtime = self.states[k].tolist()
        return size, mtime

    def pick(self, numbers: Sequence[int]) -> NamedFiles:
        """The archives with these numbers, in this order."""
        indexes = tuple(self.indexes[k] for k in numbers) if self.indexes else ()
        remotes = tuple(self.remotes[k] for k in numbers) if self.remotes else ()
        paths = tuple(self.paths[k] for k in numbers)
        return NamedFiles(paths, self.states[list(numbers)], indexes, remotes, self.spool)


def source_name(path: str | os.PathLike[str]) -> str:
    """A path or URL as messages name it."""
    text = os.fspath(path)
    return plain(shown(text)) if is_url(text) else plain(os.path.abspath(text))  # noqa: PTH100 - keeps what pathlib would not


def is_pattern(path: str) -> bool:
    """Whether a path that does not exist names several files: by a range, a glob or `::`."""
    return ("::" in path or bool(_RANGE.search(path) or _GLOB.search(path))) and not os.path.lexists(path)


def named_files(path: str | os.PathLike[str], spool: Spool | None = None) -> NamedFiles:
    """The archive files that a user named. spool: for those behind URLs. Raises UsageError where one is missing, no
    file, or named twice; AnnotatedError where a range names others that are there."""
    names = expanded(os.fspath(path), spool)
    for name, again in itertools.pairwise(sorted(name if is_url(name) else os.path.abspath(name) for name in names)):  # noqa: PTH100
        if name == again:
            raise UsageError(f"{source_name(path)} names {plain(shown(name))} twice")
    if len({is_url(name) for name in names}) > 1:
        raise UsageError(f"{source_name(path)} names files and URLs: pack them separately")
    try:
        return files_at(names, spool)
    except MissingFilesError as error:
        if len(error.lost) == len(names) or not _RANGE.search(os.fspath(path)):
            raise
        there = (_in_runs(one, error.lost) for one in os.fspath(path).split("::"))
        raise _incomplete(source_name(path), error.lost, [*itertools.chain.from_iterable(there)]) from None


def _in_runs(pattern: str, lost: Container[str]) -> Iterator[str]:
    """The files of a pattern that are there, in ranges where it has one. lost: those that are not."""
    begin, *_, end = _RANGE.split(pattern)
    for is_lost, run in groupby(expanded(pattern, whole=False), lost.__contains__):
        first, *more = run
        if more and _RANGE.sub("", pattern, 1) == begin + end:
            first, last = (name[len(begin) : len(name) - len(end)] for name in (first, more[-1]))
            first, more = f"{begin}{{{first}..{last}}}{end}", []
        yield from () if is_lost else (first, *more)


def files_of(path: str | os.PathLike[str], ends: tuple[str, ...], spool: Spool | None = None) -> NamedFiles:
    """The files that a user named; of a folder, those in it that `files_in` finds. Raises UsageError."""
    listing = Listing.of(path)
    if not listing.is_dir:
        return named_files(path, spool)
    where = source_name(path)
    with reading(where):
        names = files_in(listing, ends)
    if not names:
        raise UsageError(
            f"{where} contains no {ends[0]} files, or also other data: give the files, such as {where}/'*{ends[0]}'"
        )
    check_whole(names, where)
    return files_at(names, spool)


def contents(path: str | os.PathLike[str], files: NamedFiles) -> bytes:
    """All bytes of an index, which is the one file of `files`, at this path. Raises as `NamedFiles.opened`."""
    if not files.remotes and (data := Listing.of(path).contents()):
        return data
    with files.opened(0) as fd, os.fdopen(os.dup(fd), "rb") as file:  # which says why, if there is nothing
        return read_in_steps(file.read, _MOST_BYTES)


def decoded(data: bytes, kind: type[T], where: str, writer: str, *, lines: bool = False, strict: bool = True) -> T:
    """What an index in JSON says. lines: whether each line has a value. strict: whether
    a text is not a number. Raises UsageError where it is not a `kind`, as
    its `writer` writes them. where: the index, printable."""
    decoder, data = msgspec.json.Decoder(kind, strict=strict), data.removeprefix(BOM_UTF8)
    try:
        return decoder.decode_lines(data) if lines else decoder.decode(data)  # type: ignore[return-value]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not what {writer} writes: {error}; copy it again") from error


_SHARD = re.compile(r"(?<![0-9])([0-9]+)([-_. ]?of[-_. ]?)([0-9]+)(?![0-9])", re.IGNORECASE)
"""The number of a file and how many there are, in its name."""
_NUMBER = re.compile(r"(?<![0-9])([0-9]{3,})(?![0-9])(?!.*[0-9]{3})")
"""The last number of a file in its name, with the zeros before it."""
_HASH = re.compile(r"-[0-9a-f]{4,}(?=\.|$)")
"""At the end of names on the Hub: another one for each file."""


def check_whole(names: Sequence[str], where: str, pattern: str = "") -> None:
    """Raise AnnotatedError where files lack another that their names count. where: what was asked for, printable.
    pattern: what they were found by: others are not missing."""
    sets = dict[tuple[str, str, int, str], dict[int, str]]()
    for name in names:
        for match in islice(_SHARD.finditer(name, name.rfind("/") + 1), 1):
            begin, end = name[: match.start()], name[match.end(1) : match.end()] + _HASH.sub("", name[match.end() :])
            sets.setdefault((begin, end, int(match[3]), match[3]), {})[int(match[1])] = match[1]
    sets |= _sets_with_gaps(names) if not sets else {}
    there, lost = list[str](), list[str]()
    for (begin, end, total, _), numbers in sets.items():
        width, first = max(map(len, numbers.values())), int(total in numbers)
        those = (f"{begin}{n:0{width}d}{end}" for n in range(first, min(total, _MOST) + first) if n not in numbers)
        lost += those if not pattern else (name for name in those if fnmatch(name, pattern))
        runs = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
        alike = {f"{begin}{digits}{end}" for digits in numbers.values()} <= {*names}
        there += [] if alike else [name for name in names if name.startswith(begin)]
        for run in ([numbers[n] for _, n in pairs] for _, pairs in runs if alike):
            there.append(f"{begin}{run[0] if len(run) == 1 else f'{{{run[0]}..{run[-1]}}}'}{end}")
    if lost:
        others = [name for name in names if not any(name.startswith(begin) for begin, *_ in sets)]
        raise _incomplete(where, lost, [*there, *others])


def _incomplete(where: str, lost: Sequence[str], there: Sequence[str]) -> UsageError:
    """The error where some of the files that are counted are missing. there: the others, or ranges of them."""
    from rawpack_packer.sources.beside import AnnotatedError, command

    more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
    return AnnotatedError(
        f"{where} has no {plain(shown(lost[0].rpartition('/')[2]))}{more}, which the names of the other files "
        f"count: copy what is missing too; {command('::'.join(map(shown, there)))} packs what is there"
    )


def _sets_with_gaps(names: Sequence[str]) -> dict[tuple[str, str, int, str], dict[int, str]]:
    """Sets of files, as `check_whole` has them, that begin at 0 or 1 and lack fewer numbers than they have: a download
    that was cut off has no gap, and years or other names begin at more."""
    sets, whole = dict[tuple[str, str], dict[int, str]](), dict[tuple[str, str, int, str], dict[int, str]]()
    for name in names:
        if match := _NUMBER.search(name, name.rfind("/") + 1):
            sets.setdefault((name[: match.start()], name[match.end() :]), {})[int(match[1])] = match[1]
    for (begin, end), numbers in sets.items():
        least, greatest = min(numbers), max(numbers)
        if least < 2 and len({*map(len, numbers.values())}) == 1 and greatest - least < 2 * len(numbers) - 1:
            whole[begin, end, greatest + 1 - least, ""] = numbers
    return whole


class MissingFilesError(UsageError):
    """Files are not there."""

    def __init__(self, names: Sequence[str], cure: str, lost: Sequence[str]) -> None:
        """names: of which one is needed, printable. cure: what to do. lost: all that are missing."""
        super().__init__(f"there is no file {' or '.join(names)}{cure}")
        self.lost = lost


def files_at(names: Sequence[str], spool: Spool | None = None, cure: str = "") -> NamedFiles:
    """The files at these paths, or URLs. cure: what to do where one is missing, if no user named it. Raises as
    `named_files` does."""
    return first_at([(name,) for name in names], spool, cure)[0]


def first_at(
    choices: Sequence[Sequence[str]], spool: Spool | None = None, cure: str = ""
) -> tuple[NamedFiles, tuple[int, ...]]:
    """Of each of several paths, or URLs, the file at the first where there is one, and which that is. Otherwise as
    `files_at`."""
    if choices and is_url(choices[0][0]):
        return _remote_files(choices, spool, cure)
    paths = [[os.path.abspath(name) for name in names] for names in choices]  # noqa: PTH100 - keeps what pathlib would not
    which = tuple(next((k for k, one in enumerate(names) if os.path.isfile(one)), 0) for names in paths)  # noqa: PTH113
    lost = [k for k, names in enumerate(paths) if not any(map(os.path.lexists, names))]
    if lost:
        names = paths[lost[0]]
        todo = f": {cure}" if cure else near_path(names[0]) or ": check the path of the source"
        shown_names = [plain(os.fsencode(one)) for one in names]
        raise MissingFilesError(shown_names, todo, [choices[k][0] for k in lost])
    states = [_state(names[k]) for k, names in zip(which, paths, strict=True)]
    found = tuple(names[k] for k, names in zip(which, paths, strict=True))
    return NamedFiles(found, np.array(states, np.int64).reshape(-1, 2)), which


def files_in(listing: Listing, named: tuple[str, ...] | Callable[[str], object]) -> list[str]:
    """The files in a folder whose names end so, or that `named` takes, in order; none if it holds other data: folders,
    images, videos, or files that are more than those and are not named as they are. Hidden files, and those that
    frameworks mark by a "_", are nothing. Raises OSError."""
    # Here, as the folder of images imports this.
    from rawpack_packer.sources.folder import EXTENSIONS
    from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS

    found, others = list[str](), list[str]()
    takes = named if callable(named) else (lambda name: name.lower().endswith(named))
    for name, is_dir in listing.all_names():
        if name.startswith("_"):
            continue
        if takes(name):
            found.append(name)
        elif is_dir or os.path.splitext(name)[1].lower() in EXTENSIONS | VIDEO_EXTENSIONS:  # noqa: PTH122
            return []
        else:
            others.append(name)
    if not found or (others and not _only_describe(listing, others, found)):
        return []
    folder = os.fspath(listing.path.absolute())
    return sorted((os.path.join(folder, name) for name in found), key=os.fsencode)  # noqa: PTH118 - for each of many


def _only_describe(listing: Listing, others: Sequence[str], files: Sequence[str]) -> bool:
    """Whether other files of a folder are small beside its files of records, or each has the stem of such a file."""
    stems = {stem for name in files for stem in (name, name.rpartition(".")[0], name.partition(".")[0])}
    if all({name.rpartition(".")[0], name.partition(".")[0]} & stems for name in others):
        return True
    rest, size = (sum(os.path.getsize(listing.path / name) for name in some) for some in (others, files))  # noqa: PTH202
    return rest <= max(size, _SMALL)


def natural(name: str) -> list[Any]:
    """Sorts 2 before 10."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def _remote_files(
    choices: Sequence[Sequence[str]], spool: Spool | None, cure: str
) -> tuple[NamedFiles, tuple[int, ...]]:
    if spool is None:
        refuse_url(choices[0][0])
    assert spool is not None

    def found(urls: Sequence[str]) -> tuple[int, RemoteArchive] | None:
        for k, url in enumerate(urls):
            with suppress(FileNotFoundError):
                return k, spool.find(url)
        return None

    with spool.followed(), ThreadPoolExecutor(_ASKED) as threads:
        every = [*threads.map(found, choices)]
    if lost := [urls for urls, one in zip(choices, every, strict=True) if one is None]:
        _check_bucket(lost[0][0], spool)
        names = [plain(shown(url)) for url in lost[0]]
        raise MissingFilesError(names, f": {cure or 'check the URL of the source'}", [urls[0] for urls in lost])
    which, remotes = zip(*filter(None, every), strict=True)
    paths = tuple(str(spool.path(one)) for one in remotes)
    states = np.array([one.state for one in remotes], np.int64)
    return NamedFiles(paths, states, (), remotes, spool), which


def _remote_glob(url: str, spool: Spool | None) -> list[str]:
    system, path = filesystem(url, {} if spool is None else spool.options)
    try:
        names = bounded(partial(system.glob, path), _LISTING_S)  # a server may never end its list
        found = sorted(map(system.unstrip_protocol, names))
        if not found:
            _check_bucket(url, spool)
        here = urlsplit(url)
        for name in found:
            if is_url(name) and urlsplit(name)[:2] != here[:2] and here.scheme.startswith("http"):
                raise UsageError(
                    f"{plain(shown(url))}: its listing names {plain(shown(name))}, which is on another host: pack that "
                    "by its own URL"
                )
        return found
    except UsageError:
        raise
    except Exception as error:  # each file system has its own
        if why := why_lost(error):
            raise UsageError(f"{plain(shown(url))} cannot be reached: {why}") from error
        _check_bucket(url, spool)
        what = f"{plain(shown(url))} cannot be listed ({type(error).__name__})"
        raise UsageError(f"{what}: name the files by a range such as {{000..123}}") from error


def _check_bucket(url: str, spool: Spool | None) -> None:
    """Raise UsageError where the bucket of a URL does not exist."""
    split = urlsplit(url)
    if Remote(f"{split.scheme}://{split.netloc}", {} if spool is None else spool.options, TIMEOUT_S).has_no_bucket():
        raise no_bucket(url)


def expanded(path: str, spool: Spool | None = None, *, whole: bool = True) -> list[str]:
    """The files that a path stands for, in order. whole: whether a glob has to find all that names count. Raises
    UsageError for an empty path and a glob without files."""
    if not path:
        raise UsageError("the source is an empty path: name an archive")
    if not is_pattern(path):
        return [path]
    found: list[str] = []
    for one in path.split("::"):
        for name in _ranges(one):
            far = is_url(name)
            # A URL may have a query, so that "?" is no pattern there.
            if not ("*" in name if far else _GLOB.search(name)) or os.path.lexists(name):
                found.append(name)
                continue
            names = _remote_glob(name, spool) if far else sorted(glob.glob(name), key=os.fsencode)  # noqa: PTH207
            if not names:
                raise UsageError(f"no file matches {plain(name)}: check the path of the source")
            if whole:
                check_whole(names, plain(shown(name)), name)
            found += names
    return found


def _ranges(name: str) -> Iterator[str]:
    """`a{08..10}` as a08, a09, a10; several ranges count like digits, the last one fastest."""
    pieces = _RANGE.split(name)
    ranges = [(int(first), int(last), len(first)) for first, last in zip(pieces[1::3], pieces[2::3], strict=True)]
    total = 1
    for first, last, _ in ranges:
        if last < first:
            raise UsageError(f"{plain(name)}: the range {first}..{last} is empty")
        total *= last - first + 1
        if total > _MOST:
            raise UsageError(f"{plain(name)} stands for more than {_MOST:,} files")
    for numbers in itertools.product(*(range(first, last + 1) for first, last, _ in ranges)):
        texts = [f"{number:0{width}d}" for number, (_, _, width) in zip(numbers, ranges, strict=True)]
        yield "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces[::3], texts, fillvalue="")))


def _state(path: str) -> tuple[int, int]:
    """Size and mtime of a file."""
    shown = plain(os.fsencode(path))
    try:
        found = os.stat(path)  # noqa: PTH116 - for each of many
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{shown} cannot be read: {reason}; check path and permissions") from error
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{shown} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a file'}: name a file")
    return found.st_size, found.st_mtime_ns
