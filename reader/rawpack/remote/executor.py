"""The threads that download: each fetches one range at a time, of the file that is needed first."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rawpack.errors import DamagedStoreError, RawpackError, StoreError
from rawpack.remote.cache import Download, Key
from rawpack.remote.download import RemoteFile, Transfer

if TYPE_CHECKING:
    from rawpack.remote.fetch import Fetcher

MOST_THREADS, _MOST_URGENT = 32, 48
"""Requests at the same time, and the most where files are needed now: some of the threads may wait for a disk, or for
other processes."""


@dataclass
class _Arriving:
    """A file that is being fetched. Changed under the fetcher's lock."""

    part: Download
    transfer: Transfer
    users: int = 1
    """Threads that are busy with it."""
    is_over: bool = False
    """Whether it is complete, or has failed."""
    is_wrong: bool = False
    """Whether what has arrived is not of this file."""


class Executor:
    """Threads of one process, which end when there is nothing left to fetch."""

    def __init__(self, fetcher: Fetcher, changed: threading.Condition) -> None:
        """fetcher: says what is missing, and what becomes of it. changed: its lock, which all methods need."""
        self._fetcher, self._changed = fetcher, changed
        self.busy: dict[Key, _Arriving | None] = {}
        """Files that are being fetched; None before there is room for one."""
        self.failed: dict[Key, RawpackError] = {}
        """Why files could not be fetched. They are not tried again as long as they are here."""
        self._buffers: list[bytearray] = []
        self._threads = 0

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

    def _ranges(self, threads: int) -> Iterator[tuple[RemoteFile, _Arriving | None]]:
        """Files to begin, and begun ones that have ranges nobody fetches, the most urgent first. threads: how many
        there would be with that one."""
        for needed, most in ((True, _MOST_URGENT), (False, MOST_THREADS)):
            if threads > most:
                return
            for item in self._fetcher.missing(needed):
                fetched = self.busy.get(item.key)
                begun = item.key in self.busy
                if item.key not in self.failed and (not begun or (fetched and fetched.transfer.has_range())):
                    yield item, fetched

    def _run(self) -> None:
        """Fetch one range after another until there is none. Runs in a thread."""
        while True:
            with self._changed:
                self.tidy()
                item, fetched = next(self._ranges(self._threads), (None, None))
                if item is None:
                    self._threads -= 1
                    if not self._threads:
                        self._buffers.clear()
                    return
                if fetched is None:
                    self.busy[item.key] = None
                else:
                    fetched.users += 1
                    taken = fetched.transfer.take()
                self.work()
            error: Exception | None = None
            try:
                if fetched is None:
                    fetched = self._begun(item)
                    whole = fetched is not None and fetched.transfer.is_whole
                else:
                    whole = fetched.transfer.fetch(*taken, self._buffers)
                if fetched is not None and whole and fetched.transfer.check():
                    item.confirm()
                    self._fetcher.commit(item, fetched.part)
                    fetched.is_over = True
            except Exception as raised:
                error = raised
            found = None if error is None else self._fetcher.explained(item, error)
            with self._changed:
                if fetched is None:
                    del self.busy[item.key]
                else:
                    fetched.users -= 1
                if found is not None:
                    self.failed.setdefault(item.key, found)
                if fetched is not None and error is not None:
                    fetched.transfer.has_failed = fetched.is_over = True
                    fetched.is_wrong |= isinstance(error, FileNotFoundError | DamagedStoreError)
                self._changed.notify_all()

    def _begun(self, item: RemoteFile) -> _Arriving | None:
        part = self._fetcher.begun(item)
        if part is None:
            return None
        try:
            item.confirm()
            if not item.resumes:
                os.ftruncate(part.descriptor, 0)
            wanted = partial(self._fetcher.is_wanted, item.key)
            fetched = _Arriving(part, Transfer(item.remote, item.name, item.record, part.descriptor, wanted))
        except BaseException:
            part.close()
            raise
        with self._changed:
            self.busy[item.key] = fetched
        return fetched

    def tidy(self) -> None:
        """Let go of files that are complete, failed or not wanted anymore, and that no thread is busy with."""
        for key, fetched in list(self.busy.items()):
            if fetched is None or fetched.users:
                continue
            if fetched.is_over or not self._fetcher.is_wanted(key):
                if fetched.is_wrong:
                    with contextlib.suppress(OSError):
                        os.ftruncate(fetched.part.descriptor, 0)
                fetched.part.close()
                del self.busy[key]
