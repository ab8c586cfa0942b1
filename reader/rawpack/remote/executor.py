"""The threads that download: each fetches one range at a time, of the file that is needed first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rawpack.disk.manifest import NAME, parse
from rawpack.errors import DamagedStoreError, RawpackError, StoreError
from rawpack.remote.cache import Busy, Key, NoRoom
from rawpack.remote.download import RemoteFile, Transfer
from rawpack.system.files import unlock

if TYPE_CHECKING:
    from rawpack.remote.fetch import Fetcher

MOST_THREADS, _MOST_URGENT = 32, 48
"""Requests at the same time, and the most where files are needed now: some of the threads may wait for a disk, or for
other processes."""
_LOOK_EVERY_S, _ROOM_EVERY_S = 0.05, 0.2
Began = int | NoRoom | Busy | RawpackError | None


class Executor:
    """Threads of one process, which end when there is nothing left to fetch."""

    def __init__(self, fetcher: Fetcher, changed: threading.Condition) -> None:
        """fetcher: says what is missing. changed: its lock, which `work` and `tidy` need."""
        self._fetcher, self._changed = fetcher, changed
        self.busy: dict[Key, Transfer | None] = {}
        """Files that are being fetched; None before there is room for one."""
        self.failed: dict[Key, RawpackError] = {}
        """Why files could not be fetched. They are not tried again as long as they are here."""
        self.stale: set[Key] = set()
        """Those of `busy` that are wanted anew: what made an attempt fail, such as a full disk, may be over by now, and
        they are tried once more."""
        self._buffers: list[bytearray] = []
        self._threads, self._full_until = 0, 0.0

    def work(self) -> None:
        """Start a thread if there is a range for it. It starts the next one: to start all of them here would delay the
        first request."""
        self.tidy()
        if next(self._ranges(self._threads + 1), None) is None:
            return
        try:
            threading.Thread(target=self._run, daemon=True, name="rawpack-fetch").start()
        except RuntimeError as error:
            if not self._threads:
                raise StoreError(f"no thread can be started to fetch files: {error}") from None
            return
        self._threads += 1

    def tidy(self) -> None:
        """Let go of files that are complete, failed or not wanted anymore, and that no thread is busy with."""
        for key, transfer in list(self.busy.items()):
            if transfer and not transfer.users and (transfer.is_over or not self._fetcher.is_wanted(key)):
                unlock(transfer.file)
                self._forget(key)

    def _forget(self, key: Key) -> None:
        del self.busy[key]
        self.stale.discard(key)

    def _ranges(self, threads: int) -> Iterator[tuple[RemoteFile, Transfer | None]]:
        """Files to begin, and begun ones that have ranges nobody fetches, the most urgent first. threads: how many
        there would be with that one."""
        for now, most in ((True, _MOST_URGENT), (False, MOST_THREADS)):
            if threads > most:
                return
            full = not now and time.monotonic() < self._full_until
            for item in self._fetcher.missing(now):
                transfer, begun = self.busy.get(item.key), item.key in self.busy
                if item.key not in self.failed and (transfer.has_range() if transfer else not (begun or full)):
                    yield item, transfer

    def _run(self) -> None:
        """Fetch one range after another until there is none. Runs in a thread."""
        while True:
            with self._changed:
                self.tidy()
                item, transfer = next(self._ranges(self._threads), (None, None))
                if item is None:
                    self._threads -= 1
                    if not self._threads:
                        self._buffers.clear()
                    return
                began: Began = None
                if transfer is None:
                    self.busy[item.key] = None
                    began = self._begin(item)  # here, so that room goes to what is needed first
                else:
                    transfer.users += 1
                    taken = transfer.take()
                self.work()
            error: RawpackError | None = None
            try:
                if transfer is None:
                    transfer = self._begun(item, began)
                    whole = transfer is not None and transfer.is_whole
                else:
                    whole = transfer.fetch(*taken, self._buffers)
                if transfer is not None and whole and transfer.check():
                    item.confirm()
                    self._fetcher.commit(item, transfer.file)
                    transfer.is_over = True
            except Exception as raised:
                error = self._explained(item, raised)
            with self._changed:
                if error is not None and item.key not in self.stale:
                    self.failed.setdefault(item.key, error)
                if transfer is None:
                    self._forget(item.key)
                else:
                    transfer.users -= 1
                    transfer.is_over |= error is not None
                self._changed.notify_all()

    def _begin(self, item: RemoteFile) -> Began:
        try:
            return self._fetcher.begin(item)
        except RawpackError as error:
            return error

    def _begun(self, item: RemoteFile, began: Began) -> Transfer | None:
        """The transfer of a file, once there is room for it. None where it is there already or not wanted anymore, or
        there is no room to prefetch it. began: what `_begin` returned. Raises StoreError."""
        cache, timeout = self._fetcher.cache, self._fetcher.timeout
        until, moved = time.monotonic() + timeout, 0.0
        seen: Began = None
        while began is not None:
            now = time.monotonic()
            if isinstance(began, RawpackError):
                raise began
            if isinstance(began, int):
                return self._transfer(item, began)
            if not self._fetcher.is_wanted(item.key):
                return None
            if isinstance(began, Busy):
                # The other process may be suspended, or unable to reach the server.
                if began != seen:
                    seen, moved = began, now
                elif now - moved > timeout:
                    with cache.locked():
                        cache.take_over(item.key, item.record)
            elif not self._fetcher.is_wanted(item.key, now=True):
                self._full_until = now + _ROOM_EVERY_S
                return None
            elif now > until:
                raise StoreError(
                    f"{item.remote.where(item.name)} has {item.record.bytes} bytes, and {began.held} of the "
                    f"{cache.limit} that the cache {cache.folder} may hold are needed right now by readers on this "
                    "machine; pass a larger limit, cache=Cache(limit=...)"
                )
            time.sleep(_LOOK_EVERY_S)
            with self._changed:
                began = self._begin(item)
        return None

    def _transfer(self, item: RemoteFile, file: int) -> Transfer:
        try:
            item.confirm()
            if not item.resumes:
                os.ftruncate(file, 0)
            wanted = partial(self._fetcher.is_wanted, item.key)
            transfer = Transfer(item.remote, item.name, item.record, file, wanted)
        except BaseException:
            unlock(file)
            raise
        with self._changed:
            self.busy[item.key] = transfer
        return transfer

    def _explained(self, item: RemoteFile, error: Exception) -> RawpackError:
        remote, (digest, name) = item.remote, item.key
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return self._fetcher.cache.refused(error)
        if not isinstance(error, FileNotFoundError | DamagedStoreError):
            return error if isinstance(error, RawpackError) else remote.error(item.name, error)
        try:
            item.confirm()
            if not item.record.xxh3:
                return StoreError(f"{remote.where(item.name)} is gone")
            manifest = remote.read(NAME, lambda data: parse(data, remote.where(NAME)))
        except FileNotFoundError:
            return StoreError(f"the store at {remote} was removed while it was read")
        except RawpackError as other:
            return other
        if parse(manifest, remote.where(NAME))[1] != digest:
            return StoreError(f"the store at {remote} was packed again after it was opened here: open it again")
        if isinstance(error, DamagedStoreError):
            return error
        return DamagedStoreError(
            f"{remote.where(name)} is missing; the manifest names it with {item.record.bytes} bytes: upload it again"
        )
