"""Background downloads: threads of the process that asks for batches fetch files, in the order in which its readers
need them.

Each reader has a ticket, which says which files it needs now and which next. What is needed now is held, so that no
process removes it from the cache; the rest is prefetched while there is room.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from rawpack.disk.manifest import NAME
from rawpack.remote.cache import Busy, CacheFolder, Key, NoRoom
from rawpack.remote.download import RemoteFile
from rawpack.remote.executor import Executor

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

_DROP_WAIT_S = 0.1
_LINGER_S = 1.0
"""How long a file is held after it was needed. A full shuffle needs it again soon, and locking hundreds of files for
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
        self._start()

    def _start(self) -> None:
        """Set the state of a process that has no threads yet, and holds nothing."""
        self._changed = threading.Condition(threading.Lock())
        self._tickets: list[Ticket] = []
        self._held: dict[Key, Any] = {}
        """Manifests, columns and files that are needed now, by what keeps them in the cache."""
        self._needed_at: dict[Key, float] = {}
        """When each was last needed, held or not."""
        self._here: set[Key] = set()
        """Files that were in the cache when last checked. Those that are held are still there."""
        self._executor = Executor(self, self._changed)
        self._mark: tuple[os.stat_result, Any] | None = None
        """Shows whether the cache was removed; None before anything is held."""
        self._process = os.getpid()

    @property
    def room(self) -> int:
        """Bytes that the cache has for shards, after the manifests and columns of the stores in use."""
        return self.cache.limit - sum(store.small_bytes for store in list(self._stores.values()))

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Within this block, the lock is held, this process has its own threads and files, and the cache is there."""
        if os.getpid() != self._process:
            self._start()  # threads and locks belong to the parent
        with self._changed:
            if self._mark is None or not self.cache.is_at(self._mark[0]):
                with self.cache.locked():
                    self._renew()
            yield

    def keep_store(self, store: RemoteStore) -> None:
        """Keep the manifest of a store in the cache, and begin to fetch its columns, which then stay there too."""
        with self._entered():
            self._stores[store.digest] = store
            self._columns |= {item.key: item for item in store.small}
            with self.cache.locked():
                self._keep(store)
                for item in store.small:
                    self._hold(item)
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
            self._held.pop(item.key, None)
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
                if key not in old[1] and key not in self._held:
                    self._look(item)
            new = [item for key, item in ticket.now.items() if key not in self._held]
            self._needed_at |= dict.fromkeys(ticket.now, time.monotonic())
            if new:
                try:
                    with self.cache.locked():
                        self._let_go()
                        for item in new:
                            self._hold(item)
                except BaseException:  # whoever gets it waits for nothing
                    ticket.now, ticket.prefetch = {}, {}
                    raise
                self.cache.touch(item.key for item in new)
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
        # A garbage collection may call this in a thread that holds the lock. Whoever wants more catches up.
        if os.getpid() != self._process or not self._changed.acquire(timeout=_DROP_WAIT_S):
            return
        try:
            self._let_go(strictly=True)
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
        """Hold what is needed, in a new process or after the cache was removed. Within `CacheFolder.locked`."""
        mark = self.cache.mark()
        self._held.clear()
        self._here.clear()
        for store in self._stores.values():
            self._keep(store)
        for item in chain(self._columns.values(), *(ticket.now.values() for ticket in self._tickets)):
            self._hold(item)
        for item in chain(*(ticket.prefetch.values() for ticket in self._tickets)):
            self._look(item)
        self._mark = mark

    def _keep(self, store: RemoteStore) -> None:
        """Keep the manifest of a store. Within `CacheFolder.locked`."""
        self.cache.keep_manifest(store.digest, store.manifest_bytes)
        manifest = store.digest, NAME
        self._held[manifest] = self.cache.hold(manifest, len(store.manifest_bytes))

    def _hold(self, item: RemoteFile) -> None:
        """Hold a file, if it is there. Within `CacheFolder.locked`."""
        held = self._held.get(item.key) or self.cache.hold(item.key, item.record.bytes)
        if held is None:
            self._here.discard(item.key)
        else:
            self._held[item.key] = held
            self._needed_at.setdefault(item.key, time.monotonic())
            self._here.add(item.key)

    def _let_go(self, *, strictly: bool = False) -> None:
        """Let go of the files that are no longer needed. strictly: even of those that were needed less than `_LINGER_S`
        ago."""
        self._tickets[:] = [ticket for ticket in self._tickets if ticket.now or ticket.prefetch]
        needed, old = self._needed(), time.monotonic() - _LINGER_S
        for key, at in list(self._needed_at.items()):
            if key not in needed and (strictly or at < old):
                del self._needed_at[key]
                self._held.pop(key, None)
                if not any(key in ticket.prefetch for ticket in self._tickets):
                    self._here.discard(key)

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
            self._let_go(strictly=True)
            prefetch = {key for ticket in self._tickets for key in ticket.prefetch}
            began = self.cache.begin(item.key, item.record, prefetch if item.evicts else None)
            if isinstance(began, NoRoom) and item.key in self._needed():
                # Rather than wait, evict prefetched files.
                keep = () if item.evicts else None
                began = self.cache.begin(item.key, item.record, keep, force=self.cache.is_soft)
                self._here -= prefetch - self._held.keys()
            if began is None:
                self._arrived(item)
        return began

    def _arrived(self, item: RemoteFile) -> None:
        if item.key in self._needed():
            self._hold(item)
        else:
            self._here.add(item.key)

    def commit(self, item: RemoteFile, file: int) -> None:
        """Give a file that was fetched and checked its name. file: as `begin` returned it."""
        # Both locks: who sees the file finds it counted.
        with self._changed, self.cache.locked():
            if self.cache.commit(item.key, item.record, file):
                self.fetched += item.record.bytes
            elif not self.cache.has(item.key, item.record):
                return
            self._arrived(item)
