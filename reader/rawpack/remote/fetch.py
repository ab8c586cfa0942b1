"""Background downloads: threads of the process that asks for batches fetch files, in the order in which its readers
need them.

Each reader has a ticket, which says which files it needs now and which next. What is needed now is on the process's
lease, so that it is not evicted; the rest is prefetched while there is room.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rawpack.disk.manifest import NAME, parse
from rawpack.errors import DamagedStoreError, RawpackError, StoreError
from rawpack.remote.cache import Busy, CacheFolder, Download, Key, NoRoom
from rawpack.remote.download import RemoteFile
from rawpack.remote.executor import Executor
from rawpack.remote.lease import Lease

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

_LOOK_EVERY_S = 0.05
_ROOM_EVERY_S = 0.2
_DROP_WAIT_S = 0.1
_LINGER_S = 1.0
"""How long a file stays on the lease after it was needed. A full shuffle needs it again soon, and writing a lease for
each batch would take longer than the batch."""


class Ticket:
    """The files that one reader needs now, and those to prefetch. Used by one thread."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.now: dict[Key, RemoteFile] = {}
        self.prefetch: dict[Key, RemoteFile] = {}
        self.closed = False

    def want(self, now: Iterable[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> None:
        """Replace the files that are needed now, and those to prefetch, in this order."""
        self._fetcher.want(self, {item.key: item for item in now}, {item.key: item for item in prefetch})

    def ready(self) -> bool:
        """Whether all files that are needed now are in the cache. They stay there while they are needed."""
        return self._fetcher.has(self.now)

    def wait(self) -> None:
        """Wait until all files that are needed now are there. Raises StoreError where one cannot be fetched."""
        self._fetcher.wait(self)

    def close(self) -> None:
        """Need nothing anymore. Suitable for finalizers: it never waits long for a lock."""
        self.closed = True
        self._fetcher.drop(self)


class Fetcher:
    """Brings files into a cache. Any number of threads may use one; a forked child starts its own threads."""

    def __init__(self, cache: CacheFolder, timeout: float) -> None:
        self.cache, self._timeout = cache, timeout
        self._stores: dict[str, RemoteStore] = {}
        self.fetched = 0
        """Bytes of the files that this process has fetched."""
        self._start()

    @property
    def room(self) -> int:
        """Bytes that the cache has for shards, after the manifests and columns of the stores in use."""
        return self.cache.limit - sum(store.small_bytes for store in list(self._stores.values()))

    def keep_store(self, store: RemoteStore) -> None:
        """Keep the manifest of a store in the cache, and begin to fetch its columns, which then stay there too."""
        self._check_process()
        with self._changed:
            self._stores[store.digest] = store
            with self.cache.locked():
                self._write_lease()
                self.cache.keep_manifest(store.digest, store.manifest_bytes)
            self._lost |= {item.key: item for item in store.small}
        ticket = self.ticket()
        self._opened.append(ticket)
        ticket.want(())  # and what is lost

    def look(self) -> None:
        """Check whether the cache was removed; if so, fetch the wanted files again."""
        self._check_process()
        with self._changed:
            self._check_cache()
            self._executor.work()

    def restore(self) -> None:
        """As `look`, and wait for the columns of the stores in use. Raises as `wait`."""
        self.look()
        with self._changed:
            lost = list(self._lost.values())
            opened = list(self._opened)
            self._opened.clear()
        try:
            if lost:
                with self.held(lost):
                    pass
        finally:
            for ticket in opened:
                ticket.close()

    def discard(self, item: RemoteFile) -> None:
        """Remove a file with wrong contents from the cache. It is fetched again when it is next needed."""
        self._check_process()
        with self._changed, self.cache.locked():
            self.cache.path(item.key).unlink(missing_ok=True)
            self._here.discard(item.key)

    def ticket(self) -> Ticket:
        """A new ticket, which needs nothing yet."""
        self._check_process()
        with self._changed:
            ticket = Ticket(self)
            self._tickets.append(ticket)
        return ticket

    def close(self) -> None:
        """Need nothing anymore: what is being fetched ends."""
        if os.getpid() == self._process:
            with self._changed:
                tickets = [*self._tickets, *self._opened]
                self._opened.clear()
            for ticket in tickets:
                ticket.close()

    @contextmanager
    def held(self, items: Sequence[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> Iterator[None]:
        """Keep these files in the cache within the block."""
        ticket = self.ticket()
        try:
            ticket.want(items, prefetch)
            ticket.wait()
            yield
        finally:
            ticket.close()

    def want(self, ticket: Ticket, now: dict[Key, RemoteFile], prefetch: dict[Key, RemoteFile]) -> None:
        """See `Ticket.want`."""
        self._check_process()
        with self._changed:
            self._check_cache()
            now = self._lost | now
            old_now, old_prefetch = ticket.now, ticket.prefetch
            ticket.now, ticket.prefetch = now, prefetch
            # A file may have been removed in the meantime, so new ones are checked again.
            for key in prefetch:
                if key not in old_prefetch and key not in self._leased:
                    self._look(prefetch[key])
            for key in now:
                if key not in old_now:
                    self._executor.failed.pop(key, None)
                    self._look(now[key])
            new = [key for key in now if key not in self._leased]
            self._leased |= dict.fromkeys(now, time.monotonic())
            if new:
                with self.cache.locked():
                    self._write_lease()
                self.cache.touch(new)
                for key in new:
                    self._look(now[key])
            self._executor.work()

    def has(self, items: Iterable[Key]) -> bool:
        """Whether these files, which must be on the lease, are in the cache."""
        with self._changed:
            return all(key in self._here for key in items)

    def wait(self, ticket: Ticket) -> None:
        """See `Ticket.wait`."""
        with self._changed:
            while True:
                missing = [key for key in ticket.now if key not in self._here]
                for key in missing:
                    if key in self._executor.failed:
                        raise self._executor.failed.pop(key)
                if not missing:
                    return
                self._executor.work()
                self._changed.wait(0.5)

    def drop(self, ticket: Ticket) -> None:
        """See `Ticket.close`."""
        ticket.now, ticket.prefetch = {}, {}
        # A garbage collection may call this in a thread that holds the lock. The next write of the lease catches up.
        if os.getpid() != self._process or not self._changed.acquire(timeout=_DROP_WAIT_S):
            return
        try:
            if self._leased and self._lease.is_there:
                # An idle reader needs no room, and does not recreate a cache that was removed.
                with contextlib.suppress(StoreError), self.cache.locked(_DROP_WAIT_S):
                    self._write_lease(strictly=True)
            self._tickets[:] = [one for one in self._tickets if not one.closed]
            self._executor.tidy()
        finally:
            self._changed.release()

    def _start(self) -> None:
        """Set the state of a process that has no threads yet, and create its lease."""
        self._process = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._tickets: list[Ticket] = []
        self._leased: dict[Key, float] = {}
        """File on the lease -> when it was last needed."""
        self._here: set[Key] = set()
        """Files that were in the cache when last checked. Those on the lease are still there."""
        self._lost = {item.key: item for store in self._stores.values() for item in store.small}
        """Columns and rejects of stores in use that are not there: yet, or since the cache was removed."""
        self._opened: list[Ticket] = []
        """One for each store that was opened, until somebody waits for its columns."""
        self._executor = Executor(self, self._changed)
        self._full_until = 0.0
        self._lease = Lease(self.cache)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            # Threads, locks and the lease belong to the parent.
            self._start()
            with self.cache.locked():
                self._write_lease()

    def _check_cache(self) -> None:
        """Recover after the cache was removed."""
        if not self._lease.is_there:
            with self.cache.locked():
                self._write_lease()
        if self._lost:
            self._lost = {key: item for key, item in self._lost.items() if not self.cache.has(key, item.record)}

    def _renew(self) -> None:
        """Start again after the cache was removed. Within `CacheFolder.locked`."""
        self._lease.renew()
        self._here.clear()
        for store in self._stores.values():
            self.cache.keep_manifest(store.digest, store.manifest_bytes)
            self._lost |= {item.key: item for item in store.small}
        for ticket in self._tickets:
            for item in (*ticket.now.values(), *ticket.prefetch.values()):
                self._look(item)

    def _write_lease(self, *, strictly: bool = False) -> None:
        """Write the lease, without the files that are no longer needed. Within `CacheFolder.locked`.

        strictly: leave out even those that were needed less than `_LINGER_S` ago.
        """
        if not self._lease.is_there:
            self._renew()
        self._tickets[:] = [ticket for ticket in self._tickets if not ticket.closed]
        needed = self._needed()
        old = time.monotonic() - _LINGER_S
        for key, at in list(self._leased.items()):
            if key not in needed and (strictly or at < old):
                del self._leased[key]
                if not any(key in ticket.prefetch for ticket in self._tickets):
                    self._here.discard(key)
        self._lease.write([*((digest, "") for digest in self._stores), *self._leased])

    def _look(self, item: RemoteFile) -> None:
        if self.cache.has(item.key, item.record):
            self._here.add(item.key)
        else:
            self._here.discard(item.key)

    def begun(self, item: RemoteFile) -> Download | None:
        """A file of the cache to fetch this one into, once there is room for it. None where it is there already or not
        wanted anymore, or there is no room to prefetch it. Raises StoreError."""
        until = time.monotonic() + self._timeout
        watched = (-1, 0.0)
        while self.is_wanted(item.key):
            began = self._begin(item)
            if began is None:
                with self._changed:
                    self._here.add(item.key)
                return None
            if isinstance(began, Download):
                return began
            now = time.monotonic()
            if isinstance(began, Busy):
                # The other process may be suspended, or unable to reach the server.
                if began.fetched != watched[0]:
                    watched = (began.fetched, now)
                elif now - watched[1] > self._timeout:
                    with self.cache.locked():
                        self.cache.take_over(item.key, item.record)
                time.sleep(_LOOK_EVERY_S)
                continue
            if not self.is_wanted(item.key, now=True):
                self._full_until = now + _ROOM_EVERY_S
                return None
            if now > until:
                raise StoreError(
                    f"{item.remote.where(item.name)} has {item.record.bytes} bytes, and {began.held} of the "
                    f"{self.cache.limit} that the cache {self.cache.folder} may hold are needed right now by readers "
                    "on this machine; pass a larger limit, cache=Cache(limit=...)"
                )
            time.sleep(_ROOM_EVERY_S)
        return None

    def _begin(self, item: RemoteFile) -> Download | NoRoom | Busy | None:
        with self._changed, self.cache.locked():
            needed, stores = self._needed(), {(digest, "") for digest in self._stores}
            prefetch = {key for ticket in self._tickets for key in ticket.prefetch}
            self._write_lease(strictly=True)
            keep = (needed | prefetch | stores) if item.evicts else None
            began = self.cache.begin(item.key, item.record, keep, self._lease)
            if isinstance(began, NoRoom) and item.key in needed:
                # Rather than wait, evict prefetched files.
                keep = (needed | stores) if item.evicts else None
                began = self.cache.begin(item.key, item.record, keep, self._lease, force=self.cache.is_soft)
                self._here -= prefetch - needed
        return began

    def commit(self, item: RemoteFile, part: Download) -> None:
        """Give a file that was fetched and checked its name."""
        # Both locks: who sees the file finds it counted.
        with self._changed, self.cache.locked():
            if self.cache.commit(part, item.key):
                self.fetched += item.record.bytes
            elif not self.cache.has(item.key, item.record):
                return
            self._here.add(item.key)

    def explained(self, item: RemoteFile, error: Exception) -> RawpackError:
        """The error to raise for one that ended a download."""
        if isinstance(error, FileNotFoundError | DamagedStoreError):
            try:
                item.confirm()
                return (
                    self._unlike(item, error)
                    if item.record.xxh3
                    else StoreError(f"{item.remote.where(item.name)} is gone")
                )
            except RawpackError as other:
                return other
        if isinstance(error, RawpackError):
            return error
        return self.cache.refused(error) if isinstance(error, OSError) else item.remote.error(item.name, error)

    def under_way(self) -> list[Key]:
        """The files that are being fetched, those first that were begun first."""
        return list(self._executor.busy)

    def missing(self, needed: bool) -> Iterator[RemoteFile]:
        """Files that are not in the cache, in the order of the tickets: those that are needed now, or to be prefetched.
        Within the lock."""
        full = not needed and time.monotonic() < self._full_until
        for ticket in self._tickets:
            for key, item in (ticket.now if needed else ticket.prefetch).items():
                if key not in self._here and not (full and key not in self._executor.busy):
                    yield item

    def _unlike(self, item: RemoteFile, error: Exception) -> RawpackError:
        """The error for a file that is missing, or whose checksum is not the manifest's."""
        remote, (digest, name) = item.remote, item.key
        try:
            manifest_bytes = remote.read(NAME, lambda data: parse(data, remote.where(NAME)))
        except FileNotFoundError:
            return StoreError(f"the store at {remote} was removed while it was read")
        if parse(manifest_bytes, remote.where(NAME))[1] != digest:
            return StoreError(f"the store at {remote} was packed again after it was opened here: open it again")
        if isinstance(error, DamagedStoreError):
            return error
        return DamagedStoreError(
            f"{remote.where(name)} is missing; the manifest names it with {item.record.bytes} bytes: upload it again"
        )

    def is_wanted(self, key: Key, *, now: bool = False) -> bool:
        """Whether a file is needed now or, unless `now`, to be prefetched. Needs no lock, for which a thread would have
        to wait between two pieces."""
        return any(key in ticket.now or (not now and key in ticket.prefetch) for ticket in list(self._tickets))

    def _needed(self) -> set[Key]:
        return {key for ticket in self._tickets for key in ticket.now}
