"""The spool: a folder of limited size in which archives behind URLs are kept while they are packed.

    SPOOL/
      lock                            held by a process while it makes room
      <digest>.<bytes>.<name>         a fetched file; locked, shared, by the processes that read it
      <digest>.<bytes>.<name>.part    being fetched; locked by the process that fetches it

The digest is that of the URL and of the file's version, so a file that changes gets another name. Locks are the
system's (`flock`): they end with their process. A file gets its name when it is complete.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from rawpack.disk.manifest import FileRecord
from rawpack.errors import PackError, RawpackError, StoreError
from rawpack.remote.download import Transfer
from rawpack.remote.reach import note_answer
from rawpack.remote.transfer import TIMEOUT_S, Remote
from rawpack.remote.url import shown
from rawpack.system.file_lock import try_lock
from rawpack_packer.sources.files import changed
from rawpack_packer.text import again

if TYPE_CHECKING:
    from rawpack_packer.progress import Fetching

_FETCHED = re.compile(r"[0-9a-f]{32}\.(\d+)\..+")
_ODD = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 100
_LAST_NAME = re.compile(r"(?P<folder>[^?#]*)/(?P<name>[^/?#]*)(?P<query>.*)", re.DOTALL)
_LOOK_EVERY_S, _LOCK_WAIT_S = 0.05, 60.0
_CONNECTIONS = 4
"""Files that are fetched at the same time while archives are looked through."""
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
    def name(self) -> str:
        """Its name in a spool. It ends as the URL does, which may say what kind of file it is."""
        split = _LAST_NAME.fullmatch(self.url)
        assert split is not None, self.url
        return f"{self.digest}.{self.bytes}.{_ODD.sub('_', split['name'])[-_LONGEST_NAME:]}"

    @property
    def state(self) -> tuple[int, int]:
        """Its size, and a checksum of its version: see `Source.states`."""
        return self.bytes, xxhash.xxh3_64_intdigest(self.version.encode()) >> 1


class Spool:
    """One folder with its limit. Any number of processes may use it, and it may be pickled."""

    def __init__(self, folder: Path, limit: int, options: Mapping[str, Any] | None = None) -> None:
        """limit: in bytes. It is exceeded only where the files that are being read right now need more. options:
        fsspec's `storage_options`, for whoever looks for files."""
        self.folder, self.limit, self.options = folder, limit, dict(options or {})
        self.progress: Fetching | None = None
        """Shows what this process fetches while a source is opened."""
        self._arrived: dict[str, int] = {}
        """URL -> bytes that this process has fetched; 0 where it only knows the size."""
        self._waiting: dict[str, Remote] = {}
        """What is asked for files that have not arrived, by their printable URLs; those that are waited for the longest
        first."""

    def __reduce__(self) -> tuple[type[Spool], tuple[Path, int, Mapping[str, Any]]]:
        return Spool, (self.folder, self.limit, self.options)

    @contextmanager
    def followed(self, files: Sequence[RemoteArchive] = ()) -> Iterator[None]:
        """While in this block, show how much of these files has arrived, and what is being waited for."""
        progress, ended = self.progress, threading.Event()
        if progress is None:
            yield
            return
        paths = [self.path(file) for file in files]
        there = sum(_state(path)[0] or _state(path.with_name(f"{path.name}.part"))[0] for path in paths)
        before, total = sum(self._arrived.values()), sum(file.bytes for file in files)

        def show() -> None:
            while not ended.wait(_SHOW_EVERY_S):
                arrived = [*self._arrived.values()]
                done = there + sum(arrived) - before if total else len(arrived)
                url, remote = next(iter([*self._waiting.items()]), ("", None))
                trouble = remote.trouble if remote is not None else ""
                progress.show(min(done, total or done), total, url, TIMEOUT_S, trouble)

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
        remote, name = _remote(url, self.options)
        with self._waiting_for(url, remote):
            size, version = remote.about(name)
        self._arrived[url] = 0
        return RemoteArchive(url, size, version, dict(self.options))

    @contextmanager
    def _waiting_for(self, url: str, remote: Remote) -> Iterator[None]:
        self._waiting[shown(url)] = remote
        try:
            yield
        finally:
            self._waiting.pop(shown(url), None)

    @contextmanager
    def opened(self, file: RemoteArchive, *, keep: bool = True) -> Iterator[int]:
        """A descriptor of the file, which is fetched if it is not there. It stays as long as it is open.

        keep: otherwise it takes nobody's place: where the spool is full, it is removed at the end.
        Raises SourceChangedError where the server has another version by now, PackError where the file cannot be
        fetched or the spool cannot be written.
        """
        try:
            descriptor = self._open(file, make_room=keep)
        except OSError as error:
            what = f"{error.strerror or error}; fix that, or free some space, and run {again()} again"
            raise PackError(f"{file} cannot be kept in {self.folder}: {what}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        if not keep and self.is_full():
            self.remove(file)

    @contextmanager
    def fetching(self, wanted: Sequence[RemoteArchive]) -> Iterator[None]:
        """While in this block, fetch these files in order, several at once, until the spool is full; and show it."""
        ended, left, lock = threading.Event(), iter(wanted), threading.Lock()

        def fetch() -> None:
            # What fails here fails again where the file is opened.
            with suppress(RawpackError, OSError):
                while not ended.is_set() and not self.is_full():
                    with lock:
                        file = next(left, None)
                    if file is None:
                        return
                    os.close(self._open(file, make_room=False))

        for _ in range(min(_CONNECTIONS, len(wanted) - 1)):
            threading.Thread(target=fetch, daemon=True, name="rawpack-spool").start()
        try:
            with self.followed(wanted):
                yield
        finally:
            ended.set()

    def is_full(self) -> bool:
        """Whether what is there exceeds the limit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return sum(self._sizes().values()) > self.limit

    def remove(self, file: RemoteArchive) -> None:
        """Remove a file, unless somebody is reading it."""
        _remove_unused(self.path(file))

    def path(self, file: RemoteArchive) -> Path:
        """Where a fetched file is."""
        return self.folder / file.name

    def _open(self, file: RemoteArchive, *, make_room: bool) -> int:
        path, moved, had = self.path(file), time.monotonic(), -1
        part = path.with_name(f"{path.name}.part")
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            reading = try_lock(path, os.O_RDONLY, shared=True)
            if reading is not None:
                with suppress(OSError):  # of another user, or a folder that was made read-only
                    os.utime(path)
                return reading
            fetching = try_lock(part)
            if fetching is not None:
                try:
                    if not path.exists():
                        if make_room:
                            self._make_room(file)
                        if not file.version:
                            os.ftruncate(fetching, 0)  # nothing says whether it began with these bytes
                        self._fetch(file, fetching)
                        part.replace(path)
                    else:
                        part.unlink()
                finally:
                    os.close(fetching)
                continue
            # Another process is fetching it.
            with suppress(FileNotFoundError):
                if (has := part.stat().st_size) != had:
                    moved, had = time.monotonic(), has
            if time.monotonic() - moved > 2 * TIMEOUT_S:
                raise PackError(f"{file}: the process that fetches it has not moved for {2 * TIMEOUT_S:.0f} s: end it")
            time.sleep(_LOOK_EVERY_S)

    def _fetch(self, file: RemoteArchive, descriptor: int) -> None:
        remote, name = _remote(file.url, file.options)
        note_answer(remote.host)  # another process may have found the file
        record, had = FileRecord(name=name, bytes=file.bytes, xxh3=""), os.fstat(descriptor).st_size

        def counted() -> None:
            self._arrived[file.url] = os.fstat(descriptor).st_size - had

        try:
            with self._waiting_for(file.url, remote):
                _check_version(file, remote, name)
                Transfer(remote, name, record, descriptor).run(counted)
                _check_version(file, remote, name)
        except FileNotFoundError:
            raise changed(str(file), "it is gone") from None
        except StoreError as error:
            raise PackError(f"{error}; run {again()} again") from error

    def _make_room(self, file: RemoteArchive) -> None:
        """Remove files that nobody reads, those first that were not needed for the longest time."""
        lock = self._lock()
        try:
            sizes = self._sizes()
            total = sum(sizes.values()) + file.bytes - sizes.get(f"{file.name}.part", 0)
            for name in sorted(sizes, key=lambda name: _state(self.folder / name)[1]):
                if total <= self.limit:
                    return
                if not name.endswith(".part") and _remove_unused(self.folder / name):
                    total -= sizes[name]
        finally:
            os.close(lock)

    def _lock(self) -> int:
        """Acquire the lock for making room, and return its descriptor."""
        path, until = self.folder / "lock", time.monotonic() + _LOCK_WAIT_S
        while (descriptor := try_lock(path)) is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if time.monotonic() > until:
                raise PackError(
                    f"another process has held {path} for {_LOCK_WAIT_S:.0f} s: if it is suspended, end it; then run "
                    f"{again()} again"
                )
            time.sleep(_LOOK_EVERY_S)
        return descriptor

    def _sizes(self) -> dict[str, int]:
        """Every fetched file with its bytes; its final size while it is being fetched."""
        found = {path.name: _FETCHED.fullmatch(path.name) for path in self.folder.iterdir()}
        return {name: int(match[1]) for name, match in found.items() if match}


def _remote(url: str, options: Mapping[str, Any]) -> tuple[Remote, str]:
    """The folder of a file behind a URL, and the file's name in it."""
    split = _LAST_NAME.fullmatch(url)
    assert split is not None, url
    return Remote(split["folder"] + split["query"], options, TIMEOUT_S), split["name"]


def _check_version(file: RemoteArchive, remote: Remote, name: str) -> None:
    size, version = remote.about(name)
    if size != file.bytes:
        raise changed(str(file), f"it had {file.bytes} bytes and has {size}")
    if version != file.version:
        raise changed(str(file), "it was written to")


def _remove_unused(path: Path) -> bool:
    """Remove a file unless somebody is reading it. Returns whether it is gone."""
    descriptor = try_lock(path, os.O_RDWR)  # NFS locks only what is open for writing
    if descriptor is None:
        return not path.exists()
    path.unlink()
    os.close(descriptor)
    return True


def _state(path: Path) -> tuple[int, float]:
    """Size and mtime of a file; 0 where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0.0
    return found.st_size, found.st_mtime
