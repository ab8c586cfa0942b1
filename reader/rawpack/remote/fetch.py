"""Background downloads: threads of the process that asks for batches fetch files, in the order in which its readers
need them.

Each reader has a ticket, which says which files it needs now and which next. What is needed now is on the process's
lease, so that it is not evicted; the rest is prefetched while there is room.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from rawpack.errors import StoreError
from rawpack.remote.cache import Busy, CacheFolder, Key, NoRoom
from rawpack.remote.download import RemoteFile
from rawpack.remote.executor import Executor
from rawpack.remote.lease import Lease

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

_DROP_WAIT_S = 0.1
_LINGER_S = 1.0
"""How long a file stays on the lease after it was needed. A full shuffle needs it again soon, and writing a lease for
each batch would take longer than the batch."""


@dataclass(eq=False)
class Ticket:
    """The files that one reader needs now, and those to prefetch, in this order. Used by one thread."""

    now: dict[Key, RemoteFile] = field(default_factory=dict)
    prefetch: dict[Key, RemoteFile] = field(default_factory=dict)


class Fetcher:
    """Brings files into a cache. Any number of threads may use one; a forked child starts its own threads."""

    def __init__(self, cache: CacheFolder, timeout: float) -> None:
        self.cache, self.timeout = cache, timeout
        self._stores: dict[str, RemoteStore] = {}
        self._columns: dict[Key, RemoteFile] = {}
        """All files of these stores but their shards: needed as long as the stores are in use."""
        self.fetched = 0
        """Bytes of the files that this process has fetched."""
        self._start()

    def _start(self) -> None:
        """Set the state of a process that has no threads yet, and create its lease."""
        self._changed = threading.Condition(threading.Lock())
        self._tickets: list[Ticket] = []
        self._leased: dict[Key, float] = {}
        """File on the lease -> when it was last needed."""
        self._here = {key for key, item in self._columns.items() if self.cache.has(key, item.record)}
        """Files that were in the cache when last checked. Those on the lease, and columns, are still there."""
        self._executor = Executor(self, self._changed)
        self._lease = Lease(self.cache)
        self._process = os.getpid()  # last: where there is no lease, this is done again

    @property
    def room(self) -> int:
        """Bytes that the cache has for shards, after the manifests and columns of the stores in use."""
        return self.cache.limit - sum(store.small_bytes for store in list(self._stores.values()))

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Within this block, the lock is held, this process has its own threads and lease, and the cache is there."""
        anew = os.getpid() != self._process
        if anew:
            self._start()  # threads, locks and the lease belong to the parent
        with self._changed:
            if anew or not self._lease.is_there:
                with self.cache.locked():
                    self._write_lease()
            yield

    def keep_store(self, store: RemoteStore) -> None:
        """Keep the manifest of a store in the cache, and begin to fetch its columns, which then stay there too."""
        with self._entered():
            self._stores[store.digest] = store
            self._columns |= {item.key: item for item in store.small}
            with self.cache.locked():
                self._write_lease()
                self.cache.keep_manifest(store.digest, store.manifest_bytes)
            for item in store.small:
                self._look(item)
            self._executor.work()

    def look(self) -> None:
        """Check whether the cache was removed; if so, fetch the wanted files again."""
        with self._entered():
            self._executor.work()

    def restore(self) -> None:
        """As `look`, and wait for the columns of the stores in use. Raises as `wait`."""
        with self._entered():
            for key in self._columns:
                self._executor.failed.pop(key, None)
            self._executor.work()
        self.wait(Ticket())

    def discard(self, item: RemoteFile) -> None:
        """Remove a file with wrong contents from the cache. It is fetched again when it is next needed."""
        with self._entered(), self.cache.locked():
            self.cache.path(item.key).unlink(missing_ok=True)
            self._here.discard(item.key)

    @contextmanager
    def held(self, items: Iterable[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> Iterator[None]:
        """Keep these files in the cache within the block, and fetch `prefetch` next. Raises as `wait`."""
        ticket = Ticket()
        try:
            self.want(ticket, items, prefetch)
            self.wait(ticket)
            yield
        finally:
            self.drop(ticket)

    def want(self, ticket: Ticket, now: Iterable[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> None:
        """Replace the files of a ticket that are needed now, and those to prefetch."""
        with self._entered():
            old, busy = (ticket.now, ticket.prefetch), self._executor.busy
            anew = {key for key in busy if key in self._columns or not self.is_wanted(key)}
            ticket.now, ticket.prefetch = {item.key: item for item in now}, {item.key: item for item in prefetch}
            if ticket not in self._tickets:
                self._tickets.append(ticket)
            for key in (*self._columns, *(ticket.now.keys() - old[0].keys())):
                self._executor.failed.pop(key, None)
            self._executor.stale |= anew & (self._columns.keys() | ticket.now.keys() | ticket.prefetch.keys())
            # A file may have been removed in the meantime, so new ones are checked again.
            for key, item in ticket.prefetch.items():
                if key not in old[1] and key not in self._leased:
                    self._look(item)
            new = [item for key, item in ticket.now.items() if key not in self._leased]
            self._leased |= dict.fromkeys(ticket.now, time.monotonic())
            if new:
                try:
                    with self.cache.locked():
                        self._write_lease()
                except BaseException:  # whoever gets it waits for nothing
                    ticket.now, ticket.prefetch = {}, {}
                    for item in new:
                        self._leased.pop(item.key, None)
                    raise
                self.cache.touch(item.key for item in new)
                for item in new:
                    self._look(item)
            self._executor.work()

    def is_ready(self, ticket: Ticket) -> bool:
        """Whether all files that are needed now, and the columns, are in the cache. They stay there while they are
        needed."""
        with self._changed:
            return self._here >= ticket.now.keys() and self._here >= self._columns.keys()

    def wait(self, ticket: Ticket) -> None:
        """Wait until all files that are needed now, and the columns, are there. Raises StoreError where one cannot be
        fetched."""
        with self._changed:
            while missing := [key for key in chain(self._columns, ticket.now) if key not in self._here]:
                for key in missing:
                    if key in self._executor.failed:
                        raise self._executor.failed.pop(key)
                self._executor.work()
                self._changed.wait(0.5)

    def drop(self, ticket: Ticket) -> None:
        """Need nothing of this ticket anymore. Suitable for finalizers: it never waits long for a lock."""
        ticket.now, ticket.prefetch = {}, {}
        # A garbage collection may call this in a thread that holds the lock. The next write of the lease catches up.
        if os.getpid() != self._process or not self._changed.acquire(timeout=_DROP_WAIT_S):
            return
        try:
            if self._leased and self._lease.is_there:
                # An idle reader needs no room, and does not recreate a cache that was removed.
                with suppress(StoreError), self.cache.locked(_DROP_WAIT_S):
                    self._write_lease(strictly=True)
            self._executor.tidy()
        finally:
            self._changed.release()

    def under_way(self) -> list[RemoteFile]:
        """The files that are being fetched, those first that were begun first."""
        wanted = [files for ticket in list(self._tickets) for files in (ticket.prefetch, ticket.now)]
        found = {key: item for files in wanted for key, item in files.items()}
        return [found[key] for key in list(self._executor.busy) if key in found]

    def close(self) -> None:
        """Need nothing anymore: what is being fetched ends."""
        self._columns = {}
        for ticket in list(self._tickets):
            self.drop(ticket)

    def _renew(self) -> None:
        """Start again after the cache was removed. Within `CacheFolder.locked`."""
        self._lease.renew()
        self._here.clear()
        for store in self._stores.values():
            self.cache.keep_manifest(store.digest, store.manifest_bytes)
        for files in (self._columns, *(files for one in self._tickets for files in (one.now, one.prefetch))):
            for item in files.values():
                self._look(item)

    def _write_lease(self, *, strictly: bool = False) -> None:
        """Write the lease, without the files that are no longer needed. Within `CacheFolder.locked`.

        strictly: leave out even those that were needed less than `_LINGER_S` ago.
        """
        if not self._lease.is_there:
            self._renew()
        self._tickets[:] = [ticket for ticket in self._tickets if ticket.now or ticket.prefetch]
        needed, old = self._needed(), time.monotonic() - _LINGER_S
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

    def _needed(self) -> set[Key]:
        return {*self._columns, *(key for ticket in self._tickets for key in ticket.now)}

    # What the executor asks.

    def missing(self, now: bool) -> Iterator[RemoteFile]:
        """Files that are not in the cache, in the order of the tickets: those that are needed now, or to be prefetched.
        Within the lock."""
        files = [ticket.now if now else ticket.prefetch for ticket in self._tickets]
        for key, item in chain.from_iterable(one.items() for one in (self._columns if now else {}, *files)):
            if key not in self._here:
                yield item

    def is_wanted(self, key: Key, *, now: bool = False) -> bool:
        """Whether a file is needed now or, unless `now`, to be prefetched. Needs no lock, for which a thread would have
        to wait between two pieces."""
        tickets = list(self._tickets)
        return key in self._columns or any(key in one.now or (not now and key in one.prefetch) for one in tickets)

    def begin(self, item: RemoteFile) -> int | NoRoom | Busy | None:
        """Begin to fetch a file, for which room is made; see `CacheFolder.begin`. Within the lock."""
        with self.cache.locked():
            self._write_lease(strictly=True)
            needed = self._needed() | {(digest, "") for digest in self._stores}
            prefetch = {key for ticket in self._tickets for key in ticket.prefetch}
            keep = needed | prefetch if item.evicts else None
            began = self.cache.begin(item.key, item.record, keep, self._lease)
            if isinstance(began, NoRoom) and item.key in needed:
                # Rather than wait, evict prefetched files.
                keep = needed if item.evicts else None
                began = self.cache.begin(item.key, item.record, keep, self._lease, force=self.cache.is_soft)
                self._here -= prefetch - needed
            if began is None:
                self._here.add(item.key)
        return began

    def commit(self, item: RemoteFile, file: int) -> None:
        """Give a file that was fetched and checked its name. file: as `begin` returned it."""
        # Both locks: who sees the file finds it counted.
        with self._changed, self.cache.locked():
            if self.cache.commit(item.key, item.record, file):
                self.fetched += item.record.bytes
            elif not self.cache.has(item.key, item.record):
                return
            self._here.add(item.key)
