"""Archives behind URLs while they are packed: fetched into a folder of limited size, by the code that caches stores.

    SPOOL/                              see `rawpack.remote.cache`
      <digest>/<name>                   a fetched file; locked, shared, by the processes that read it

The digest is that of the URL and of the file's version, so a file that changes gets another name.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import PackError, RawpackError, StoreError
from rawpack.remote.cache import CacheFolder, Key
from rawpack.remote.download import RemoteFile
from rawpack.remote.fetch import Fetcher, Ticket
from rawpack.remote.reach import note_answer
from rawpack.remote.transfer import TIMEOUT_S, Remote, stall_s
from rawpack.remote.url import shown
from rawpack.system.files import try_lock, unlock
from rawpack_packer.sources.files import changed
from rawpack_packer.text import again, size

if TYPE_CHECKING:
    from rawpack.remote.wire import Wire
    from rawpack_packer.progress import Fetching

_ODD = re.compile(r"[^A-Za-z0-9._-]|^\.")
_LONGEST_NAME = 100
_LAST_NAME = re.compile(r"(?P<folder>[^?#]*)/(?P<name>[^/?#]*)(?P<query>.*)", re.DOTALL)
_SHOW_EVERY_S = 0.5


@dataclass(frozen=True)
class RemoteArchive:
    """An archive behind a URL, as it was when it was found."""

    url: str
    bytes: int
    version: str
    """What changes with its contents: see `Remote.about`."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """fsspec's `storage_options`."""

    def __str__(self) -> str:
        return shown(self.url)

    @cached_property
    def digest(self) -> str:
        """Distinguishes it from other files, and from other versions of itself."""
        return xxhash.xxh3_128_hexdigest("\0".join((self.url, str(self.bytes), self.version)).encode())

    @property
    def key(self) -> Key:
        """Its name in a spool. It ends as the URL does, which may say what kind of file it is."""
        return self.digest, _ODD.sub("_", _split(self.url)[1][-_LONGEST_NAME:]) or "_"

    @property
    def state(self) -> tuple[int, int]:
        """Its size, and a checksum of its version: see `Source.states`."""
        return self.bytes, xxhash.xxh3_64_intdigest(self.version.encode()) >> 1


class _SpoolFolder(CacheFolder):
    """The folder, whose errors say what to do while packing."""

    is_soft = True

    def unusable(self, error: OSError) -> RawpackError:
        what = f"{error.strerror or error}; fix that, or free some space, and run {again()} again"
        return PackError(f"archives behind URLs cannot be kept in {self.folder}: {what}")

    refused = unusable


class Spool:
    """One folder with its limit. Any number of processes may use it, and it may be pickled."""

    def __init__(self, folder: Path, limit: int, options: Mapping[str, Any] | None = None) -> None:
        """limit: in bytes. It is exceeded only where the files that are being read right now need more. options:
        fsspec's `storage_options`, for whoever looks for files."""
        self.folder, self.limit, self.options = folder, limit, dict(options or {})
        self.progress: Fetching | None = None
        """Shows what this process fetches while a source is opened."""
        self.known: dict[str, RemoteArchive] = {}
        """The files that this process has found, by their URLs: each is asked for once."""
        self._new = set[str]()
        """URLs of those that were not fetched since: that the server has this version was just asked."""
        self._asked: dict[str, Remote] = {}
        """What is asked for files, by their printable URLs; those that are waited for the longest first."""

    def __reduce__(self) -> tuple[type[Spool], tuple[Path, int, Mapping[str, Any]]]:
        return Spool, (self.folder, self.limit, self.options)

    @cached_property
    def _wire(self) -> Wire:
        from rawpack.remote.wire import Wire

        return Wire(stall_s(TIMEOUT_S))

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(_SpoolFolder(self.folder, max(1, self.limit)), TIMEOUT_S)

    @contextmanager
    def followed(self, files: Sequence[RemoteArchive] = ()) -> Iterator[None]:
        """While in this block, show how much of these files has arrived, and what is being waited for."""
        progress, ended, most = self.progress, threading.Event(), 0
        if progress is None:
            yield
            return
        total = sum(file.bytes for file in files)

        def show() -> None:
            nonlocal most
            while not ended.wait(_SHOW_EVERY_S):
                most = max(most, sum(map(self._arrived, files)) if total else len(self.known))
                items = self._fetcher.under_way() if files else []
                waiting = [*self._asked.items(), *((item.remote.where(item.name), item.remote) for item in items)]
                url, remote = waiting[0] if waiting else ("", None)
                progress.show(most, total, url, TIMEOUT_S, remote.trouble if remote else "")

        thread = threading.Thread(target=show, daemon=True, name="rawpack-progress")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            progress.end()

    def find(self, url: str) -> RemoteArchive:
        """The file at a URL. Raises FileNotFoundError, and StoreError where the server cannot be asked."""
        if url in self.known:
            return self.known[url]
        folder, name = _split(url)
        remote = Remote(folder, self.options, TIMEOUT_S, self._wire)
        self._asked[shown(url)] = remote
        try:
            size, version = remote.about(name)
        finally:
            self._asked.pop(shown(url), None)
        self._new.add(url)
        return self.known.setdefault(url, RemoteArchive(url, size, version, dict(self.options)))

    @contextmanager
    def opened(self, file: RemoteArchive, *, keep: bool = True) -> Iterator[int]:
        """A descriptor of the file, which is fetched if it is not there. It stays as long as it is open.

        keep: otherwise it takes nobody's place: where the spool is full, it is removed at the end.
        Raises SourceChangedError where the server has another version by now, PackError where the file cannot be
        fetched or the spool cannot be written.
        """
        descriptor = self._lock(file)
        while descriptor is None:
            try:
                with self._fetcher.held([self._item(file, keep)]):
                    descriptor = self._lock(file)
            except StoreError as error:
                raise PackError(f"{error}; run {again()} again") from error
        try:
            yield descriptor
        finally:
            unlock(descriptor)
        if not keep and self.is_full():
            self._fetcher.cache.remove(file.key)

    @contextmanager
    def fetching(self, wanted: Sequence[RemoteArchive], *, first_alone: bool = False) -> Iterator[Callable[[], object]]:
        """While in this block, fetch these files in order, several at once, until the spool is full; and show it.
        first_alone: only the first, until what this gives is called."""
        ticket, total = Ticket(), sum(file.bytes for file in wanted)
        if total > self.limit and self.progress is not None:
            what = f"the source has {size(total)}, and {self.folder} may take {size(self.limit)}"
            self.progress.note(f"{what}: files that do not fit are fetched again when they are packed")
        items = [self._item(file, keep=False) for file in wanted]
        fetch_others = partial(self._fetcher.want, ticket, (), items)
        try:
            # What fails here fails again where the file is opened.
            self._fetcher.want(ticket, (), items[:1] if first_alone else items)
            with self.followed(wanted):
                yield fetch_others
        finally:
            self._fetcher.drop(ticket)

    def is_full(self) -> bool:
        """Whether what is there exceeds the limit."""
        return self._fetcher.cache.used() > self.limit

    def path(self, file: RemoteArchive) -> Path:
        """Where a fetched file is."""
        return self.folder.joinpath(*file.key)

    def _item(self, file: RemoteArchive, keep: bool) -> RemoteFile:
        folder, name = _split(file.url)
        remote = Remote(folder, file.options, TIMEOUT_S, self._wire)
        note_answer(remote.host)  # another process may have found the file
        record, check = FileRecord(name=name, bytes=file.bytes, xxh3=""), partial(self._check, file, remote, name)
        return RemoteFile(remote, file.key, record, check, bool(file.version), keep, name)

    def _check(self, file: RemoteArchive, remote: Remote, name: str) -> None:
        """Raise SourceChangedError where the server has another version. It is called before and after a file is
        fetched, and the first time nobody asks: `find` did just now, and what is fetched is checked afterwards."""
        if file.url in self._new:
            self._new.discard(file.url)
            return
        try:
            size, version = remote.about(name)
        except FileNotFoundError:
            raise changed(str(file), "it is gone") from None
        if size != file.bytes:
            raise changed(str(file), f"it had {file.bytes} bytes and has {size}")
        if version != file.version:
            raise changed(str(file), "it was written to")

    def _lock(self, file: RemoteArchive) -> int | None:
        path = self.path(file)
        try:
            descriptor = try_lock(path, os.O_RDONLY, shared=True)
        except OSError as error:
            raise self._fetcher.cache.refused(error) from error
        if descriptor is not None:
            with suppress(OSError):  # of another user, or a folder that was made read-only
                os.utime(path)
        return descriptor

    def _arrived(self, file: RemoteArchive) -> int:
        """Bytes of a file that are there."""
        for path in (self.path(file), self.path(file).with_name(f"{file.key[1]}.{file.bytes}.part")):
            with suppress(OSError):
                return path.stat().st_size
        return 0


def folder_of(url: str) -> str:
    """The URL of the folder of a file behind a URL."""
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    """The URL of the folder of a file behind a URL, and the file's name in it."""
    split = _LAST_NAME.fullmatch(url)
    assert split is not None, url
    return split["folder"] + split["query"], split["name"]
