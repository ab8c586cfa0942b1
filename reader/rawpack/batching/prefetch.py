"""The next batches of an epoch: their shards are fetched in advance, and each is handed on when its own are there."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.order.blocks import MAX_WINDOW_SAMPLES
from rawpack.remote.fetch import RemoteFile
from rawpack.system.warning import warn

if TYPE_CHECKING:
    from rawpack.batching.steps import EpochStep
    from rawpack.remote.cache import Cache, Key
    from rawpack.store.concatenated import ConcatenatedStore

_MOST_AHEAD = 1 << 18
"""How many samples of the order are looked at in advance: 2 MiB of row numbers."""
_FIRST_LOOK_S, _LOOK_S = 0.02, 0.002
"""How long to look ahead before the first batch, and before each other one."""
_WASTEFUL = 3.0
"""An epoch that fetches the store more often than this is worth a warning."""
_LOOK, _FILLINGS = 1 << 16, 4
"""To estimate what an epoch fetches: samples that are looked at together, and how often the cache is filled."""
_BLOCK_SHARDS = (4, 2, 1)
"""Shards in a block: it touches at most one more, so that each is fetched 1.25, 1.5 or 2 times in an epoch."""
_WINDOWS = 2
"""What the cache must hold: the window that batches are made of, and the one after it."""
_WHOLE_EVERY_S = 1.0
"""How often to check that a cache that holds everything is still there."""


class Prefetch(Iterator["EpochStep"]):
    """Steps of one epoch, each handed on when all that it reads is in the cache. Used by one thread at a time."""

    def __init__(
        self,
        steps: Iterator[EpochStep],
        library: ConcatenatedStore,
        names: Sequence[str],
        order: Callable[[int, int], NDArray[np.int64]],
        left: int,
        batch: int = 1,
    ) -> None:
        """names: the fields of the batches that lie in shards. order: the rows at the epoch's positions start..stop-1,
        counted from here, of which `left` are to come: all ranks together. batch: samples of one."""
        assert library.fetcher is not None
        self._steps, self._library, self._names, self._batch = steps, library, names, batch
        self._fetcher = library.fetcher
        self._cache: Cache = self._fetcher.cache
        self._ticket = self._fetcher.ticket()
        self._next: deque[tuple[EpochStep, list[RemoteFile]]] = deque()
        self._out: deque[list[RemoteFile]] = deque()
        """What the steps need that were handed on and not released yet."""
        self._wanted: dict[Key, RemoteFile] = {}
        self._uses: Counter[Key] = Counter()
        """How many of the next steps need a file."""
        self._samples = self._bytes = 0
        """Of the next steps: samples, and bytes of their files, each counted once."""
        self._asked = False
        self._too_much: UsageError | None = None
        """Why the next step cannot be had while the cache holds what others in the making need."""
        self.waited_s = 0.0
        """How long `next` has waited for files; whoever reads it may set it back."""
        self._all_files: list[RemoteFile] = []
        self._look_at = time.monotonic() + _WHOLE_EVERY_S
        self._complete = self._has_all()
        """Whether nothing need be fetched: then all of it stays until this ends, and batches cost nothing more."""
        if not self._complete:
            self._warn_of_refetching(order, left)

    def __next__(self) -> EpochStep:
        if self._complete:
            self._keep_all()
            return next(self._steps)
        if not self._asked:
            self._ask()
        if not self._next:
            raise StopIteration
        if self._too_much:
            raise self._too_much
        began = time.perf_counter()
        self._ticket.wait()
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
        return step

    def ready(self) -> bool:
        """Whether the next step is handed on at once; there may be none."""
        if self._complete:
            return True
        if not self._asked:
            self._ask()
        if self._too_much and self._out:
            self._asked = False  # there may be room for it when those before it are done with
            return False
        return not self._next or self._ticket.ready()

    def release(self) -> None:
        """The oldest step that was handed on and not released is done: what it read may be evicted."""
        if not self._complete:
            self._out.popleft()

    def close(self) -> None:
        """Nothing is needed anymore; unfinished transfers are kept for another time."""
        self._ticket.close()

    def _has_all(self) -> bool:
        """Whether all that the fields lie in is in the cache. From then on it stays there."""
        items = self._library.all_remote_items(self._names)
        if sum(item.record.bytes for item in items) > self._fetcher.room:
            return False
        if not all(self._cache.has(item.key, item.record) for item in items):
            return False
        self._all_files = items
        self._ticket.want(items)
        return self._ticket.ready()

    def _keep_all(self) -> None:
        """Fetch all of it again where the cache was removed."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _WHOLE_EVERY_S
        self._fetcher.look()
        if not self._ticket.ready():
            self._ticket.want(self._all_files)
            self._ticket.wait()
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
                    f"a batch of {len(step.rows)} samples needs {len(items)} files of the remote store at once: {need} "
                    f"bytes, and the cache {self._cache.folder} may hold {self._cache.limit}, {room} of them beside "
                    f"the columns: {self._cure()}"
                )
                return
            now += items
        self._ticket.want(now, self._wanted.values())

    def _look_ahead(self) -> None:
        """Look at the order as far ahead as half of the cache holds what it needs; further at each call."""
        budget = self._fetcher.room // 2
        until = time.perf_counter() + (_LOOK_S if self._next else _FIRST_LOOK_S)
        while not self._next or (self._bytes < budget and self._samples < _MOST_AHEAD):
            if self._next and time.perf_counter() > until:
                return
            step = next(self._steps, None)
            if step is None:
                return
            items = self._library.remote_items(step.rows.reshape(-1), self._names)
            self._next.append((step, items))
            self._samples += len(step.rows)
            for item in items:
                if item.key not in self._wanted:
                    self._wanted[item.key] = item
                    self._bytes += item.record.bytes
                self._uses[item.key] += 1

    def _warn_of_refetching(self, order: Callable[[int, int], NDArray[np.int64]], left: int) -> None:
        """Warn where the order jumps about so much that the store is fetched several times in an epoch: where few
        samples need more than the cache holds."""
        limit, (ends, sizes) = self._fetcher.room, self._library.shard_table(self._names)
        whole = int(sizes.sum())
        if whole <= limit:
            return
        samples, fetched = _fillings(order, left, ends, sizes, limit)
        times = left / samples * fetched / whole
        if times > _WASTEFUL:
            warn(
                f"in this order, an epoch fetches the remote store about {times:.0f} times: it has {whole} "
                f"bytes, and the cache {self._cache.folder} may hold {self._cache.limit}, {limit} of them beside the "
                f"columns; {self._cure()}"
            )

    def _cure(self) -> str:
        """The cure where the order needs more at once than the cache holds."""
        ends, sizes = self._library.shard_table(self._names)
        room, small = self._fetcher.room, self._cache.limit - self._fetcher.room
        whole = f"pass cache_bytes={small + int(sizes.sum())} or more, which holds all of it"
        best = _best_blocks(ends, sizes, self._batch, room)
        if best is not None:
            return f"{_few_at_a_time(*best)}; or {whole}"
        needs = [(_need(ends, sizes, self._batch, block, 1), block) for block in _blocks(ends)]
        least, block = min(needs, default=(int(sizes.sum()), 0))
        if least >= int(sizes.sum()):
            return whole
        return f"with cache_bytes={small + least} or more, {_few_at_a_time(block, 1)}; or {whole}"


def _few_at_a_time(block: int, window: int) -> str:
    mixed = f" (and shuffles within {block} neighbors only)" if window == 1 else ""
    return f'shuffle="block", block={block}, window={window} reads few shards at a time{mixed}'


def _blocks(ends: NDArray[np.int64]) -> list[int]:
    """Possible numbers of samples in a block, the one with the fewest fetches first."""
    rows = int(np.diff(ends, prepend=0).max())
    return [shards * rows for shards in _BLOCK_SHARDS if shards * rows <= MAX_WINDOW_SAMPLES]


def _best_blocks(ends: NDArray[np.int64], sizes: NDArray[np.int64], batch: int, room: int) -> tuple[int, int] | None:
    """Block and window of the block shuffle that goes with `room` bytes for shards; None where none does."""
    fitting: list[tuple[int, int]] = []
    for block in _blocks(ends):
        window = min(room // (_WINDOWS * max(1, _region(ends, sizes, block))), MAX_WINDOW_SAMPLES // block)
        while window > 1 and _need(ends, sizes, batch, block, window) > room:
            window -= 1
        if window and _need(ends, sizes, batch, block, window) <= room:
            fitting.append((block, window))
    # One block at a time mixes neighbors only: more of smaller ones are better, though they are fetched more often.
    return next((one for one in fitting if one[1] > 1), fitting[0] if fitting else None)


def _need(ends: NDArray[np.int64], sizes: NDArray[np.int64], batch: int, block: int, window: int) -> int:
    """Bytes of shards that such an order needs at once, at most: of the windows that a batch lies in, or the next."""
    windows = max(_WINDOWS, _WINDOWS + (batch - 2) // (block * window))
    return min(int(sizes.sum()), windows * window * _region(ends, sizes, block))


def _region(ends: NDArray[np.int64], sizes: NDArray[np.int64], block: int) -> int:
    """Bytes of the shards that a block lies in, at most: it may begin anywhere, and go on at the first sample."""
    count, samples = len(ends), int(ends[-1])
    around, before = np.concatenate([ends, ends + samples]), np.cumsum([0, *sizes, *sizes])
    # The worst begins with the last sample of a shard.
    last = np.searchsorted(around, ends - 1 + min(block, samples) - 1, side="right")
    return int((before[last + 1] - before[:count]).max())


def _fillings(
    order: Callable[[int, int], NDArray[np.int64]],
    left: int,
    ends: NDArray[np.int64],
    sizes: NDArray[np.int64],
    limit: int,
) -> tuple[int, int]:
    """How many samples of an order a few fillings of a cache serve, and the bytes that are fetched for them.

    ends, sizes: of all shards, the row after the last and the bytes; limit: what the cache holds, the largest at least.
    """
    samples = fetched = held = fillings = 0
    seen: set[int] = set()
    for start in range(0, min(left, _MOST_AHEAD), _LOOK):
        shards = np.searchsorted(ends, order(start, min(start + _LOOK, left)), side="right")
        while len(shards):
            found, first = np.unique(shards, return_index=True)
            cut = len(shards)
            for k in np.argsort(first).tolist():
                shard = int(found[k])
                if shard in seen:
                    continue
                if held + int(sizes[shard]) > limit:
                    cut = int(first[k])
                    break
                seen.add(shard)
                held += int(sizes[shard])
                fetched += int(sizes[shard])
            samples += cut
            if cut < len(shards):
                fillings, held, seen = fillings + 1, 0, set()
                if fillings == _FILLINGS:
                    return samples, fetched
            shards = shards[cut:]
    return samples, fetched
