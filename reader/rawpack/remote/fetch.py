"""What is fetched next: threads of the process that asks for batches bring files into the cache, the urgent ones first.

Each reader has a *ticket*, which says which files it needs now and which to prefetch. A file that is needed now is on
the reader's lease, so that it is not evicted; others are prefetched as far as there is room. Threads end when nothing
is left to be fetched.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rawpack.disk.manifest import NAME, FileRecord, parse
from rawpack.errors import DamagedStoreError, RawpackError, StoreError
from rawpack.remote.cache import Busy, Cache, Download, Key, Lease, NoRoom
from rawpack.remote.transfer import Remote

CONNECTIONS = 8
"""Files that are fetched at once, and so many more where they are needed now."""
_LOOK_EVERY_S = 0.05
_ROOM_EVERY_S = 0.2
_DROP_WAIT_S = 0.1
_LINGER_S = 1.0
"""How long a file stays on the lease after it was needed: with a full shuffle it is needed again at once, and writing
a lease for each batch would cost more than the batch."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store behind a URL."""

    remote: Remote
    key: Key
    record: FileRecord


@dataclass(frozen=True)
class Kept:
    """What the cache keeps of a store as long as the store is in use."""

    digest: str
    manifest_bytes: bytes
    """The manifest."""
    small: tuple[RemoteFile, ...]
    """Its columns, and what was rejected."""

    @property
    def size(self) -> int:
        """Of all of it, in bytes."""
        return len(self.manifest_bytes) + sum(item.record.bytes for item in self.small)


class Ticket:
    """What one reader needs. Used by one thread."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.now: dict[Key, RemoteFile] = {}
        self.prefetch: dict[Key, RemoteFile] = {}
        self.closed = False

    def want(self, now: Iterable[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> None:
        """These files are needed now, and these are to be prefetched, in this order; no others anymore."""
        self._fetcher.want(self, {item.key: item for item in now}, {item.key: item for item in prefetch})

    def ready(self) -> bool:
        """Whether all files that are needed now are in the cache, where they stay until then."""
        return self._fetcher.has(self.now)

    def wait(self) -> None:
        """Return when all files that are needed now are there. Raises StoreError where one cannot be fetched."""
        self._fetcher.wait(self)

    def close(self) -> None:
        """Nothing is needed anymore. For finalizers as well: it waits for no lock for long."""
        self.closed = True
        self._fetcher.drop(self)


class Fetcher:
    """Brings files into a cache. Any number of threads may use one; a forked child has threads of its own."""

    def __init__(self, cache: Cache, timeout: float) -> None:
        self.cache, self._timeout = cache, timeout
        self._stores: dict[str, Kept] = {}
        self.fetched = 0
        """Bytes of the files that this process has brought into the cache."""
        self._own()

    @property
    def room(self) -> int:
        """Bytes that the cache has for shards, beside what it keeps of the stores in use."""
        return self.cache.limit - sum(kept.size for kept in list(self._stores.values()))

    def keep_store(self, kept: Kept) -> None:
        """A store is in use from now on: its manifest and its columns come into the cache, and stay there."""
        self._look_at_process()
        with self._changed:
            self._stores[kept.digest] = kept
            with self.cache.locked():
                self._write_lease()
                self.cache.keep_manifest(kept.digest, kept.manifest_bytes)
        with self.held(kept.small):
            pass

    def look(self) -> None:
        """Check whether the cache was removed: then what is wanted is fetched again."""
        self._look_at_process()
        with self._changed:
            self._look_at_cache()
            self._work()

    def restore(self) -> None:
        """Bring back what all stores in use need, where the cache was removed. Raises as `wait`."""
        self._look_at_process()
        with self._changed:
            self._look_at_cache()
            lost = list(self._lost.values())
        if lost:
            with self.held(lost):
                pass

    def discard(self, item: RemoteFile) -> None:
        """A file in the cache is not the one that was packed: it is fetched anew when it is next needed."""
        self._look_at_process()
        with self._changed, self.cache.locked():
            self.cache.discard(item.key)
            self._here.discard(item.key)

    def ticket(self) -> Ticket:
        """A new reader of files."""
        self._look_at_process()
        with self._changed:
            ticket = Ticket(self)
            self._tickets.append(ticket)
        return ticket

    @contextmanager
    def held(self, items: Sequence[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> Iterator[None]:
        """Within this block these files are in the cache."""
        ticket = self.ticket()
        try:
            ticket.want(items, prefetch)
            ticket.wait()
            yield
        finally:
            ticket.close()

    def want(self, ticket: Ticket, now: dict[Key, RemoteFile], prefetch: dict[Key, RemoteFile]) -> None:
        """See `Ticket.want`."""
        self._look_at_process()
        with self._changed:
            self._look_at_cache()
            now = self._lost | now
            coming = [key for key in prefetch if key not in ticket.prefetch and key not in self._leased]
            # A file may have been removed in the meantime: what is newly needed is checked again.
            fresh = [key for key in now if key not in ticket.now]
            ticket.now, ticket.prefetch = now, prefetch
            for key in coming:
                self._look(prefetch[key])
            for key in fresh:
                self._failed.pop(key, None)
                self._look(now[key])
            new = [key for key in now if key not in self._leased]
            time_now = time.monotonic()
            for key in now:
                self._leased[key] = time_now
            if new:
                with self.cache.locked():
                    self._write_lease()
                self.cache.touch(new)
                for key in new:
                    self._look(now[key])
            self._work()

    def has(self, items: Iterable[Key]) -> bool:
        """Whether files on the lease are in the cache."""
        with self._changed:
            return all(key in self._here for key in items)

    def wait(self, ticket: Ticket) -> None:
        """See `Ticket.wait`."""
        with self._changed:
            while True:
                missing = [key for key in ticket.now if key not in self._here]
                for key in missing:
                    if key in self._failed:
                        raise self._failed.pop(key)
                if not missing:
                    return
                self._work()
                self._changed.wait(0.5)

    def drop(self, ticket: Ticket) -> None:
        """See `Ticket.close`."""
        needed, ticket.now, ticket.prefetch = ticket.now, {}, {}
        # A garbage collection may do this in a thread that holds the lock. Then the next write of the lease does it.
        if os.getpid() != self._process or not self._changed.acquire(timeout=_DROP_WAIT_S):
            return
        try:
            if needed and self._lease.is_there:
                # An idle reader keeps nothing from others; nor does it recreate a cache that was removed.
                with contextlib.suppress(StoreError), self.cache.locked(_DROP_WAIT_S):
                    self._write_lease(strictly=True)
            self._tickets[:] = [one for one in self._tickets if not one.closed]
        finally:
            self._changed.release()

    def _own(self) -> None:
        """Begin without threads, and with a lease of this process."""
        self._process = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._tickets: list[Ticket] = []
        self._leased: dict[Key, float] = {}
        """Files on the lease, and when they were last needed."""
        self._here: set[Key] = set()
        """Files that were seen in the cache; those on the lease are still there."""
        self._lost: dict[Key, RemoteFile] = {}
        """What of stores in use was in the cache when that was removed, and is not there yet."""
        self._busy: set[Key] = set()
        self._failed: dict[Key, RawpackError] = {}
        self._threads = 0
        self._full_until = 0.0
        self._lease = Lease(self.cache)

    def _look_at_process(self) -> None:
        if os.getpid() != self._process:
            # Threads, locks and the lease are those of the parent.
            self._own()
            with self.cache.locked():
                self._write_lease()

    def _look_at_cache(self) -> None:
        """Recover where the cache was removed."""
        if not self._lease.is_there:
            with self.cache.locked():
                self._write_lease()
        if self._lost:
            self._lost = {key: item for key, item in self._lost.items() if not self.cache.has(key, item.record)}

    def _renew(self) -> None:
        """Start again in a cache that was removed. Within `Cache.locked`."""
        self._lease.renew()
        self._here.clear()
        for kept in self._stores.values():
            self.cache.keep_manifest(kept.digest, kept.manifest_bytes)
            self._lost |= {item.key: item for item in kept.small}
        for ticket in self._tickets:
            for item in (*ticket.now.values(), *ticket.prefetch.values()):
                self._look(item)

    def _write_lease(self, *, strictly: bool = False) -> None:
        """Tell all processes what is needed now: what lingers goes first. Within `Cache.locked`."""
        if not self._lease.is_there:
            self._renew()
        self._tickets[:] = [ticket for ticket in self._tickets if not ticket.closed]
        needed = {key for ticket in self._tickets for key in ticket.now}
        old = time.monotonic() - _LINGER_S
        for key, at in list(self._leased.items()):
            if key not in needed and (strictly or at < old):
                del self._leased[key]
                self._here.discard(key)
        self._lease.write([*((digest, "") for digest in self._stores), *self._leased])

    def _look(self, item: RemoteFile) -> None:
        if self.cache.has(item.key, item.record):
            self._here.add(item.key)
        else:
            self._here.discard(item.key)

    def _work(self) -> None:
        """Have as many threads as there are files to fetch; what is needed now does not wait for prefetching."""
        missing = list(self._missing())
        urgent = sum(now for _, now in missing)
        while self._threads < min(len(self._busy) + len(missing), CONNECTIONS + min(urgent, CONNECTIONS)):
            try:
                threading.Thread(target=self._run, daemon=True, name="rawpack-fetch").start()
            except RuntimeError as error:
                if not self._threads:
                    raise StoreError(f"no thread can be started to fetch files: {error}") from None
                return
            self._threads += 1

    def _missing(self) -> Iterator[tuple[RemoteFile, bool]]:
        """Files that nobody is fetching yet, and whether they are needed now; those first."""
        for ticket in self._tickets:
            for key, item in ticket.now.items():
                if key not in self._here and key not in self._busy and key not in self._failed:
                    yield item, True
        if time.monotonic() < self._full_until:
            return
        for ticket in self._tickets:
            for key, item in ticket.prefetch.items():
                if key not in self._here and key not in self._busy and key not in self._failed:
                    yield item, False

    def _run(self) -> None:
        """Fetch one file after another until there is none."""
        while True:
            with self._changed:
                item, _ = next(self._missing(), (None, False))
                if item is None:
                    self._threads -= 1
                    return
                self._busy.add(item.key)
            error: RawpackError | None = None
            here = False
            try:
                here = self._fetch(item)
            except RawpackError as raised:
                error = raised
            except OSError as raised:
                error = self.cache.refused(raised)
            except Exception as raised:
                error = item.remote.error(item.key[1], raised)
            with self._changed:
                self._busy.discard(item.key)
                if here:
                    self._here.add(item.key)
                elif error is not None:
                    self._failed[item.key] = error
                self._changed.notify_all()

    def _fetch(self, item: RemoteFile) -> bool:
        """Fetch one file; False where that must wait."""
        until = time.monotonic() + self._timeout
        watched = (-1, 0.0)
        while self._is_wanted(item.key):
            began = self._begin(item)
            if began is None:
                return True
            if isinstance(began, Download):
                try:
                    return self._complete(item, began)
                finally:
                    began.close()
            if isinstance(began, Busy):
                # The other process may be stopped, or unable to reach the server.
                come, past = self.cache.progress(item.key, item.record), time.monotonic()
                if come != watched[0]:
                    watched = (come, past)
                elif past - watched[1] > self._timeout:
                    with self.cache.locked():
                        self.cache.take_over(item.key, item.record)
                time.sleep(_LOOK_EVERY_S)
                continue
            if not self._is_needed(item.key):
                self._full_until = time.monotonic() + _ROOM_EVERY_S
                return False
            if time.monotonic() > until:
                raise StoreError(
                    f"{item.remote.where(item.key[1])} has {item.record.bytes} bytes, and {began.held} of the "
                    f"{began.limit} that the cache {self.cache.folder} may hold are needed right now by readers on "
                    "this machine; pass a larger cache_bytes="
                )
            time.sleep(_ROOM_EVERY_S)
        return False

    def _begin(self, item: RemoteFile) -> Download | NoRoom | Busy | None:
        with self._changed, self.cache.locked():
            needed = {key for ticket in self._tickets for key in ticket.now}
            prefetch = {key for ticket in self._tickets for key in ticket.prefetch}
            self._write_lease(strictly=True)
            began = self.cache.begin(item.key, item.record, needed | prefetch | set(self._store_keys()), self._lease)
            if isinstance(began, NoRoom) and item.key in needed:
                # Evict what was prefetched, rather than wait.
                began = self.cache.begin(item.key, item.record, needed | set(self._store_keys()), self._lease)
                self._here -= prefetch - needed
        return began

    def _store_keys(self) -> list[Key]:
        return [(digest, "") for digest in self._stores]

    def _complete(self, item: RemoteFile, part: Download) -> bool:
        try:
            # Synced before it is renamed: a crash of the machine must not leave the name without the bytes.
            if not item.remote.download(item.key[1], item.record, part.descriptor, lambda: self._is_wanted(item.key)):
                return False
        except (FileNotFoundError, DamagedStoreError) as error:
            os.ftruncate(part.descriptor, 0)
            raise self._unlike(item, error) from None
        with self.cache.locked():
            if not self.cache.commit(part, item.key):
                return self.cache.has(item.key, item.record)
        with self._changed:
            self.fetched += item.record.bytes
        return True

    def _unlike(self, item: RemoteFile, error: Exception) -> StoreError:
        """The error for a file that is missing, or not what the manifest says."""
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

    def _is_wanted(self, key: Key) -> bool:
        with self._changed:
            return any(key in ticket.now or key in ticket.prefetch for ticket in self._tickets)

    def _is_needed(self, key: Key) -> bool:
        with self._changed:
            return any(key in ticket.now for ticket in self._tickets)
