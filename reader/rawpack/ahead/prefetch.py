"""Fetches the shards of the next batches in advance; a batch waits until its own shards are there."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.remote.fetch import Ticket
from rawpack.samples.field_rows import OWN_ROWS, FieldRows
from rawpack.system.user import count, warn

if TYPE_CHECKING:
    from rawpack.order.steps import EpochStep
    from rawpack.remote.cache import CacheFolder, Key
    from rawpack.remote.download import RemoteFile
    from rawpack.store.stores import Stores

_MOST_AHEAD = 1 << 18
"""How many samples of the order are looked at in advance: 2 MiB of row numbers."""
_FIRST_LOOK_S, _LOOK_S = 0.02, 0.002
"""How long to look ahead before the first batch, and before each other one."""
_WASTEFUL = 3.0
"""An epoch that fetches the store more often than this is worth a warning."""
_LOOK, _FILLINGS = 1 << 16, 4
"""To estimate what an epoch fetches: the most samples to look at, and how often to fill the cache."""
_ALL_EVERY_S = 0.25
"""How often to check whether the cache has everything by now: then no step has to be checked anymore."""
_WHOLE_EVERY_S = 1.0
"""How often to check that a cache that holds everything is still there."""


class Prefetch(Iterator["EpochStep"]):
    """Steps of one epoch, each returned when all that it reads is in the cache. Used by one thread at a time."""

    def __init__(
        self,
        steps: Iterator[EpochStep],
        library: Stores,
        names: Sequence[str],
        order: Callable[[int, int], NDArray[np.int64]],
        left: int,
        field_rows: FieldRows = OWN_ROWS,
        *,
        warns: bool = True,
    ) -> None:
        """names: the fields to be read from shards. order: the rows at positions start..stop-1, counted from here, of
        `left` that are to come for all ranks together. field_rows: which rows each field is
        read from. warns: whether to warn of an order that fetches the store several times."""
        assert library.fetcher is not None
        self._steps, self._library, self._names = steps, library, names
        self._fetcher, self._field_rows = library.fetcher, field_rows
        self._cache: CacheFolder = self._fetcher.cache
        self._ticket = Ticket()
        self._next: deque[tuple[EpochStep, list[RemoteFile]]] = deque()
        self._out: deque[list[RemoteFile]] = deque()
        """What the steps need that were returned and not released yet."""
        self._wanted: dict[Key, RemoteFile] = {}
        self._uses: Counter[Key] = Counter()
        """How many of the next steps need a file."""
        self._samples = self._bytes = 0
        """In the next steps: samples, and bytes of their files, each file counted once."""
        self._asked = False
        self._too_much: UsageError | None = None
        """Why the next step cannot come while the cache holds what the ones before it need."""
        self.waited_s = 0.0
        """How long `next` has waited for files; whoever reads it may reset it."""
        self._all_files: list[RemoteFile] = []
        self._look_at = time.monotonic() + _WHOLE_EVERY_S
        self._complete = self._has_all()
        """Whether nothing need be fetched: then all files stay in the cache, and steps are passed on as they are."""
        if not self._complete:
            self._look_at = 0.0
            if warns:
                self._warn_of_refetching(order, left)

    def __next__(self) -> EpochStep:
        if self._complete:
            self._keep_all()
            return self._next.popleft()[0] if self._next else next(self._steps)
        if not self._asked:
            self._ask()
        if not self._next:
            raise StopIteration
        if self._too_much:
            raise self._too_much
        began = time.perf_counter()
        self._fetcher.wait(self._ticket)
        self.waited_s += time.perf_counter() - began
        step, items = self._next.popleft()
        self._out.append(items)
        self._samples -= len(step.rows)
        for item in items:
            self._uses[item.key] -= 1
            if not self._uses[item.key]:
                del self._uses[item.key], self._wanted[item.key]
                self._bytes -= item.record.bytes
        self._asked = False
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _ALL_EVERY_S
            self._complete = self._has_all()
        return step

    def ready(self) -> bool:
        """Whether `next` returns at once; there may be no step."""
        if self._complete:
            return True
        if not self._asked:
            self._ask()
        if self._too_much and self._out:
            self._asked = False  # there may be room for it when those before it are done with
            return False
        return not self._next or self._fetcher.is_ready(self._ticket)

    def release(self) -> None:
        """The oldest step that was not released is done: what it read may be evicted."""
        if not self._complete:
            self._out.popleft()

    def close(self) -> None:
        """Nothing is needed anymore; unfinished transfers are kept for later."""
        self._fetcher.drop(self._ticket)

    def _has_all(self) -> bool:
        """Whether the cache has all files of the fields. From then on they stay there."""
        items = self._library.remote_items(self._library.shard_table(self._names)[0] - 1, self._names)
        if sum(item.record.bytes for item in items) > self._fetcher.room:
            return False
        if not all(self._cache.has(item.key, item.record) for item in items):
            return False
        self._all_files = items
        self._fetcher.want(self._ticket, items)
        return self._fetcher.is_ready(self._ticket)

    def _keep_all(self) -> None:
        """Fetch all files again where the cache was removed."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _WHOLE_EVERY_S
        self._fetcher.look()
        if not self._fetcher.is_ready(self._ticket):
            self._fetcher.want(self._ticket, self._all_files)
            self._fetcher.wait(self._ticket)
            self.waited_s += time.monotonic() - now

    def _ask(self) -> None:
        """Have the next step's files fetched now, and those of the steps after it prefetched."""
        self._asked, self._too_much = True, None
        self._look_ahead()
        now = [item for items in self._out for item in items]
        if self._next:
            step, items = self._next[0]
            need = sum({item.key: item.record.bytes for item in [*now, *items]}.values())
            room = self._fetcher.room
            if need > room:
                self._too_much = UsageError(
                    f"a batch of {count(len(step.rows), 'sample')} needs {count(len(items), 'file')} of the remote "
                    f"store at once: {need} bytes, and the cache {self._cache.folder} may hold {self._cache.limit}, "
                    f"{room} of them besides the columns: {self._cure()}"
                )
                return
            now += items
        self._fetcher.want(self._ticket, now, self._wanted.values())

    def _look_ahead(self) -> None:
        """Look ahead in the order, further at each call, until half of the cache would hold what it needs."""
        budget = self._fetcher.room // 2
        until = time.perf_counter() + (_LOOK_S if self._next else _FIRST_LOOK_S)
        while not self._next or (self._bytes < budget and self._samples < _MOST_AHEAD):
            if self._next and time.perf_counter() > until:
                return
            step = next(self._steps, None)
            if step is None:
                return
            rows = self._field_rows.of_any(self._names, step.rows)
            items = self._library.remote_items(rows, self._names)
            self._next.append((step, items))
            self._samples += len(step.rows)
            for item in items:
                if item.key not in self._wanted:
                    self._wanted[item.key] = item
                    self._bytes += item.record.bytes
                self._uses[item.key] += 1

    def _warn_of_refetching(self, order: Callable[[int, int], NDArray[np.int64]], left: int) -> None:
        """Warn where so few samples need more than the cache holds that an epoch fetches the store several times."""
        room, (ends, sizes) = self._fetcher.room, self._library.shard_table(self._names)
        total = int(sizes.sum())
        if total <= room or not left:
            return
        rows = order(0, min(left, _LOOK))
        # One filling of the cache alone may happen to begin at the end of a window.
        fillings, held, used, fetched, samples = 1, set[int](), 0, 0, 0
        for shard in np.searchsorted(ends, rows, side="right").tolist():
            if shard not in held:
                if held and used + sizes[shard] > room:
                    if fillings == _FILLINGS:
                        break
                    fillings, held, used = fillings + 1, set(), 0
                held.add(shard)
                used += int(sizes[shard])
                fetched += int(sizes[shard])
            samples += 1
        times = left / samples * fetched / total
        if times > _WASTEFUL:
            warn(
                f"in this order, an epoch fetches the remote store about {times:.0f} times: it has {total} "
                f"bytes, and the cache {self._cache.folder} may hold {self._cache.limit}, {room} of them besides the "
                f"columns; {self._cure()}"
            )

    def _cure(self) -> str:
        """What to do where the order needs more at once than the cache holds."""
        columns, (_, sizes) = self._cache.limit - self._fetcher.room, self._library.shard_table(self._names)
        return (
            f"pass cache=Cache(limit={columns + int(sizes.sum())}) or more, which holds all of it; or "
            "shuffle=Blocks(...), which reads few shards at a time"
        )
