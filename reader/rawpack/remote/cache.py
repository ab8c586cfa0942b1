"""The cache: a folder of fetched files, which all processes of the machine share, with a size limit.

    CACHE/
      lock                          held by a process while it looks at the cache and decides; has the sum of all files
      <digest of a store>/          a store: store.json, columns-1/, and the shards that were fetched
        shard-00007.npy           locked, shared, by every process that needs it right now
        shard-00008.npy.268435456.part    being fetched, with its final size; locked by the process that fetches it

Locks are the system's (`flock`): they end with their process, however that ends. A file gets its name when it is
complete and checked. The mtime of a shard is the last time it was needed. To make room, the least recently needed
shards are removed first, but never one that is locked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from rawpack.disk.manifest import NAME, FileRecord
from rawpack.errors import PackError, RawpackError, StoreError, UsageError
from rawpack.system import machine, writing
from rawpack.system.files import is_at, read_plain, share, try_lock, unlock, write_all
from rawpack.system.memory import kept_open
from rawpack.system.user import expanded

_STORE = re.compile("[0-9a-f]{32}")
_PART = re.compile(r"(?P<name>.+)\.(?P<bytes>\d+)\.part")
_LOCK, _TAG = "lock", "CACHEDIR.TAG"
_TAGGED = "Signature: 8a477f597d28d172789f06886806bc55\n# Fetched parts of rawpack stores: needs no backup.\n"
_LOCK_WAIT_S = 60.0
_COUNT = re.compile(rb"(?P<bytes>\d{20}) (?P<at>\d{20})\n")
_COUNT_AGAIN_S = 60
"""How long the sum in the lock file is believed: somebody may copy files into the cache."""
_LOOK_EVERY_S = 0.02
_MOST_OF_LOCK = 1 << 10
"""Bytes: others may put any file into a cache that users share."""

Key = tuple[str, str]
"""(digest of a store, name of one of its files)."""


class NoRoom(msgspec.Struct, frozen=True):
    """A file cannot be fetched now: too much of the cache is needed by readers."""

    held: int
    """Bytes that cannot be removed."""


class Busy(msgspec.Struct, frozen=True):
    fetched: int
    """Bytes that it has written so far; 0 before the first."""
    noted: int
    """When it last noted that bytes arrive, in ns; these are written when those before them are there."""


class CacheFolder:
    """One folder with its limit. Any number of processes and threads may use the same folder."""

    is_soft = False
    """Whether what is needed now may exceed the limit: for archives that are packed."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, limit: int | None = None) -> None:
        """folder: created if missing; None is `default_folder()`. limit: in bytes; None is half of the sum of the free
        space and the cache's present size. Raises UsageError for an unusable folder."""
        self.folder = default_folder() if folder is None else Path(expanded(folder))
        try:
            self.folder = self.folder.absolute()
            self._make()
            self.mark()
        except OSError as error:
            raise self.unusable(error) from None
        except PackError as error:  # a link, or a file of somebody else
            raise UsageError(f"the cache {self.folder} cannot be used: {error}") from None
        self.limit = (machine.free_bytes(self.folder) + self.used()) // 2 if limit is None else limit

    def mark(self) -> tuple[os.stat_result, Any]:
        """The lock file, and what keeps its number from others: another one is there once the cache was removed. Raises
        OSError."""
        descriptor = writing.descriptor_of(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, of_any_user=True)
        try:
            return os.fstat(descriptor), kept_open(descriptor)
        finally:
            os.close(descriptor)

    def is_at(self, status: os.stat_result) -> bool:
        """Whether the lock file is still this one."""
        with contextlib.suppress(OSError):
            return os.path.samestat(status, (self.folder / _LOCK).stat())
        return False

    def used(self) -> int:
        """Bytes of all files; those that are being fetched count as whole."""
        return sum(self._sizes().values())

    def path(self, key: Key) -> Path:
        return self.folder / key[0] / key[1]

    def has(self, key: Key, record: FileRecord) -> bool:
        """Whether a file is there, with its full size."""
        try:
            found = os.lstat(self.path(key))
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == record.bytes

    def hold(self, key: Key, size: int) -> Any:
        """An object that keeps a file in the cache as long as this process has it; None where the file is missing, or
        has another size. Within `locked`. Raises OSError where another program keeps it locked."""
        path = self.path(key)
        descriptor = try_lock(path, os.O_RDONLY, shared=True)
        if descriptor is None:
            if path.exists():
                raise OSError(errno.EWOULDBLOCK, "another program has locked it", str(path))
            return None
        try:
            return kept_open(descriptor) if os.fstat(descriptor).st_size == size else None
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self, wait_s: float | None = None) -> Iterator[None]:
        """Within this block, no other process or thread changes the cache. Recreates a folder that was removed.

        Raises StoreError where another process does not release the lock, and for every OSError within the block.
        """
        try:
            descriptor = self._lock(_LOCK_WAIT_S if wait_s is None else wait_s)
            try:
                yield
            finally:
                unlock(descriptor)
        except OSError as error:
            raise self.refused(error) from error
        except PackError as error:
            raise StoreError(str(error)) from None

    def unusable(self, error: OSError) -> RawpackError:
        return UsageError(
            f"the cache {self.folder} cannot be used: {error.strerror or error}; name a folder with cache= or "
            "RAWPACK_CACHE that this process may write to"
        )

    def refused(self, error: OSError) -> RawpackError:
        """The error to raise where the system refuses an operation on the cache."""
        what = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreError(
                f"the disk of the cache {self.folder} is full ({what}): free some space, pass a smaller limit, "
                "cache=Cache(limit=...), or name another folder with cache="
            )
        at = f" ({error.filename})" if error.filename else ""
        return StoreError(f"the cache {self.folder} cannot be written: {what}{at}; fix it, or name another with cache=")

    def keep_manifest(self, digest: str, manifest_bytes: bytes) -> None:
        """Write a store's manifest into the cache. Within `locked`."""
        path = self.path((digest, NAME))
        with contextlib.suppress(OSError, StoreError):
            if read_plain(path, len(manifest_bytes)) == manifest_bytes:
                return
        temporary = path.with_name(f"{NAME}.tmp")
        # Where it is missing in between, somebody is removing the cache. If the lock file goes too, this is done again;
        # it may stay, where the removal had passed it already: so it is tried twice.
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                writing.make_folder(path.parent, below=self.folder)
                try:
                    with writing.create(temporary, buffering=0, below=self.folder) as file:
                        write_all(file.fileno(), manifest_bytes)
                        os.fsync(file.fileno())
                    writing.replace(temporary, path, below=self.folder)
                    self._reserve(len(manifest_bytes))
                    return
                finally:
                    temporary.unlink(missing_ok=True)

    def begin(
        self, key: Key, record: FileRecord, keep: Container[Key] | None, *, force: bool = False
    ) -> int | NoRoom | Busy | None:
        """Begin or continue to fetch a file, for which room is made: a descriptor, which keeps out other processes
        until it is given to `unlock`. None where it is there already. Within `locked`.

        keep: files that must not be removed, besides those that somebody holds; None for all. force: begin it also
        where there is no room.
        """
        if self.has(key, record):
            return None
        part = self.part(key, record)
        writing.make_folder(part.parent, below=self.folder)
        descriptor = try_lock(part)
        if descriptor is None:
            try:
                status = part.stat()
                return Busy(status.st_size, status.st_mtime_ns)
            except FileNotFoundError:
                return Busy(0, 0)
        try:
            room = self._make_room(key, record.bytes, keep, force)
            if room is not None and not os.fstat(descriptor).st_size:
                part.unlink()
        except BaseException:
            unlock(descriptor)
            raise
        if room is None:
            return descriptor
        unlock(descriptor)
        return room

    def commit(self, key: Key, record: FileRecord, descriptor: int) -> bool:
        """Give a complete file, of `begin`, its name. False where another process has taken it over, which does so if
        this one seems to be dead, or the cache is being removed. Within `locked`."""
        part = self.part(key, record)
        with contextlib.suppress(FileNotFoundError):
            if is_at(descriptor, part):
                writing.replace(part, self.path(key), below=self.folder)
                share(descriptor)
                return True
        return False

    def take_over(self, key: Key, record: FileRecord) -> None:
        """Drop the download of another process, which makes no progress. Within `locked`."""
        self.part(key, record).unlink(missing_ok=True)

    def touch(self, keys: Iterable[Key]) -> None:
        """Note that these files are needed now, so that they are removed last."""
        for key in keys:
            with contextlib.suppress(OSError):
                os.utime(self.path(key))

    def part(self, key: Key, record: FileRecord) -> Path:
        return self.folder / key[0] / f"{key[1]}.{record.bytes}.part"

    def _make(self) -> None:
        writing.make_folder(self.folder, below=self.folder)
        if not (self.folder / _TAG).exists():
            with writing.create(self.folder / _TAG) as file:
                file.write(_TAGGED.encode())

    def _lock(self, wait_s: float) -> int:
        """Acquire the lock and return its descriptor. Raises OSError, and as `locked`."""
        until = time.monotonic() + wait_s
        while (descriptor := try_lock(self.folder / _LOCK)) is None:
            if time.monotonic() > until:
                raise StoreError(
                    f"another process has held {self.folder / _LOCK} for {wait_s:.0f} s: if it is suspended, end it; "
                    "or name another cache"
                )
            if self.folder.is_dir():
                time.sleep(_LOOK_EVERY_S / 10)
            else:
                self._make()
        return descriptor

    def _sizes(self) -> dict[Key, int]:
        """Every file of every store, with its bytes; its final size while it is being fetched."""
        found: dict[Key, int] = {}
        for store in _entries(self.folder):
            if not _STORE.fullmatch(store.name) or not store.is_dir(follow_symlinks=False):
                continue
            for entry in _entries(store.path):
                inner = _entries(entry.path) if entry.is_dir(follow_symlinks=False) else [entry]
                for file in inner:
                    name = file.name if file is entry else f"{entry.name}/{file.name}"
                    with contextlib.suppress(FileNotFoundError):
                        size = file.stat(follow_symlinks=False).st_size
                        part = _PART.fullmatch(name)
                        found[store.name, name] = max(size, int(part["bytes"])) if part else size
        return found

    def _make_room(self, key: Key, size: int, keep: Container[Key] | None, force: bool) -> NoRoom | None:
        """Remove the least recently needed files, none for None, until there is room for one more. force: as far as
        possible."""
        if self._reserve(size):
            return None
        sizes = self._sizes()
        # The file itself may be there in part.
        total = sum(sizes.values()) - sizes.get((key[0], f"{key[1]}.{size}.part"), 0)
        goes: list[Key] = []
        for other in sorted(sizes, key=self._last_needed):
            if keep is None or total + size <= self.limit:
                break
            if other not in keep and self._may_go(other):
                goes.append(other)
                total -= sizes[other]
        if total + size > self.limit and not force:
            return NoRoom(total)
        for other in goes:
            with contextlib.suppress(FileNotFoundError):
                self.path(other).unlink()
            if other[1] == NAME:
                shutil.rmtree(self.folder / other[0], ignore_errors=True)
        self._note_bytes(total + size)
        return None

    def _reserve(self, size: int) -> bool:
        """Add to the sum of all files that the lock file has. False, and nothing added, where it has none, or the sum
        would exceed the limit. It may be too large, since nothing is subtracted: then the files must be looked at,
        which takes too long to do for each of many small ones."""
        with contextlib.suppress(OSError, StoreError):
            found = _COUNT.fullmatch(read_plain(self.folder / _LOCK, _MOST_OF_LOCK))
            if found and 0 <= time.time() - int(found["at"]) < _COUNT_AGAIN_S:
                total = int(found["bytes"]) + size
                if total <= self.limit:
                    self._note_bytes(total, int(found["at"]))
                    return True
        return False

    def _note_bytes(self, total: int, at: int | None = None) -> None:
        """Write the sum of all files, which were looked at then, into the lock file."""
        with contextlib.suppress(OSError):
            descriptor = writing.descriptor_of(self.folder / _LOCK, os.O_RDWR, of_any_user=True)
            try:
                os.write(descriptor, b"%020d %020d\n" % (total, time.time() if at is None else at))
            finally:
                os.close(descriptor)

    def _may_go(self, key: Key) -> bool:
        """Whether nobody needs a file now, or is fetching it. Within `locked`: nobody begins to in the meantime."""
        try:
            descriptor = try_lock(self.path(key), os.O_RDWR)
        except PackError:  # nothing that `hold` takes
            return True
        if descriptor is not None:
            unlock(descriptor)
        return descriptor is not None

    def remove(self, key: Key) -> None:
        if self._may_go(key):
            self.path(key).unlink(missing_ok=True)

    def _last_needed(self, key: Key) -> tuple[bool, float]:
        """Sort key for removal: shards first, then manifests and columns."""
        try:
            return key[1] == NAME or "/" in key[1], self.path(key).stat().st_mtime
        except OSError:
            return False, 0.0


def default_folder() -> Path:
    """`RAWPACK_CACHE`, or `rawpack` in the user's cache folder. Raises UsageError where there is neither."""
    named = os.environ.get("RAWPACK_CACHE")
    if named:
        return Path(expanded(named))
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "rawpack"
    except RuntimeError:
        raise UsageError(
            "the cache ~/.cache/rawpack cannot be used: your home folder is not known; set HOME, or name a folder with "
            "cache= or RAWPACK_CACHE"
        ) from None


def is_cached_store(path: Path) -> bool:
    """Whether a folder is a store in a cache, which has no provenance, and only the shards that were fetched."""
    path = path.absolute()
    return bool(_STORE.fullmatch(path.name)) and all((path.parent / name).is_file() for name in (_TAG, _LOCK))


def is_coming(name: str) -> bool:
    return bool(_PART.fullmatch(name)) or (name.startswith(f"{NAME}.") and name.endswith(".tmp"))


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """The contents of a folder; empty where it was removed."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
