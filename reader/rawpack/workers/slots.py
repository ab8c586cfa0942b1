"""Slots: the memory of batches, and when it may be used again.

The memory is shared with worker processes if there are any.

A slot goes back to the pool when the last array over it is gone, whatever the user keeps of a batch. Every array of a
batch has one *lease* at the end of its chain of bases. The lease is not an array, because numpy collapses chains of
views: a finalizer on an array would fire while a view of it lives. When the lease is collected, a weak reference's
callback appends the slot's number to a deque. It does nothing else: it may run at any point of any thread, which may
hold whatever lock it would take.

When the pool has no slot left, batches get fresh memory, which is returned to the system instead of being reused.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import RawpackError
from rawpack.system.limits import limit_behind
from rawpack.system.memory import anonymous_file, map_descriptor, prefer_huge_pages, private_memory
from rawpack.words import ROWS

_ALIGN = 4096
_OWN_BYTES, _OWN_SHARE = 1 << 20, 16
"""Arrays that are small compared with their batch are copied: that costs little, and kept labels hold no images."""


class SlotField(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    shift: int = 0
    """Bytes after a page boundary at which the array begins."""

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


class SlotLayout:
    """Where the arrays of a batch are in a slot: one after another, each at a page boundary, or `shift` after it."""

    def __init__(self, fields: Iterable[SlotField], batch_size: int, *others: Iterable[SlotField]) -> None:
        """fields: of a batch. others: those of further buckets, whose arrays have other shapes and the same names."""
        self.batch_size = batch_size
        buckets = [tuple(each) for each in (fields, *others)]
        self.fields = buckets[0]
        self.sample_bytes = [sum(field.bytes for field in each if field.name != ROWS) for each in buckets]
        """Of each bucket: what is handed over."""
        self.shapes: dict[str, tuple[int | None, ...]] = {
            same[0].name: tuple(
                lengths[0] if len(set(lengths)) == 1 else None
                for lengths in zip(*(field.shape for field in same), strict=True)
            )
            for same in zip(*buckets, strict=True)
        }
        """Of one sample of each field; None where buckets differ."""
        self._columns: list[list[tuple[str, np.dtype[Any], tuple[int, ...], int]]] = []
        """For each bucket: name, dtype, shape of a sample, and offset of each array."""
        self.size = _ALIGN
        for each in buckets:
            columns, end = [], 0
            for field in each:
                columns.append((field.name, np.dtype(field.dtype), field.shape, end + field.shift))
                end += -(-(field.shift + field.bytes * batch_size) // _ALIGN) * _ALIGN
            self._columns.append(columns)
            self.size = max(self.size, end)

    def own_bytes(self, rows: int, bucket: int = 0) -> int:
        """The size up to which arrays of a batch of this many rows are handed to the caller as copies, in bytes."""
        return min(_OWN_BYTES, rows * self.sample_bytes[bucket] // _OWN_SHARE)

    def views(self, buffer: Any, rows: int, bucket: int = 0) -> dict[str, NDArray[Any]]:
        """Arrays (rows, *shape) over `buffer`, whose lifetime they share."""
        views: dict[str, NDArray[Any]] = {}
        for name, dtype, shape, offset in self._columns[bucket]:
            views[name] = np.ndarray((rows, *shape), dtype, buffer, offset)
        return views


class Slot:
    """A piece of anonymous memory: it has no name, so nothing is left behind and nothing collides."""

    def __init__(self, number: int, size: int, returned: deque[int], *, shared: bool, fresh: bool) -> None:
        """returned: where its number is put when its lease ends. shared: with worker processes. fresh: not reused."""
        owner = os.getpid()

        def ended(_: Any) -> None:
            # A forked child has a copy of every lease, but the slot belongs to the parent.
            if os.getpid() == owner:
                returned.append(number)

        self.ended = ended
        self.number, self.size, self.fresh = number, size, fresh
        self.lease_type = ctypes.c_char * size
        self.descriptor: int | None = None
        if shared:
            self.descriptor = anonymous_file(size)
            try:
                self.memory = map_descriptor(self.descriptor, size, writable=True)
            except BaseException:
                self.close_descriptor()
                raise
        else:
            self.memory = private_memory(size)
        prefer_huge_pages(self.memory)

    def close_descriptor(self) -> None:
        """Stop sharing the slot with further processes; the memory stays."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def slot_of(array: NDArray[Any]) -> Slot | None:
    """The slot that an array of a batch is over, found by its lease; None where it has memory of its own."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "slot", None)


class SlotPool:
    """The slots of one iterator's batches at a time. Used by one thread at a time; leases may end in any."""

    def __init__(self, layout: SlotLayout, reusable: int, *, shared: bool = True) -> None:
        """reusable: slots to keep; beyond these, batches get fresh memory. shared: with worker processes."""
        self.layout, self.reusable, self.shared = layout, reusable, shared
        self.slots: dict[int, Slot] = {}
        self._free: list[int] = []
        self._returned: deque[int] = deque()
        self._leases: dict[int, weakref.ref[Any]] = {}
        self._next = 0
        _pools[id(self)] = self

    def acquire(self) -> Slot:
        """A slot that nobody else holds."""
        self.collect()
        if self._free:
            return self.slots[self._free.pop()]
        fresh = len(self.slots) >= self.reusable
        try:
            slot = Slot(self._next, self.layout.size, self._returned, shared=self.shared, fresh=fresh)
        except OSError as error:
            cure = limit_behind(error) or "release batches, or pass a smaller batch_size"
            raise RawpackError(
                f"no memory for a batch of {self.layout.size} bytes besides {len(self.slots)} others ({error}): {cure}"
            ) from error
        self._next += 1
        self.slots[slot.number] = slot
        return slot

    @property
    def held(self) -> int:
        """How many slots the caller holds arrays of. In any thread."""
        return sum(lease() is not None for lease in list(self._leases.values()))

    @property
    def spare(self) -> bool:
        """Whether a slot can be acquired without fresh memory."""
        self.collect()
        return bool(self._free) or len(self.slots) < self.reusable

    def hand_over(self, slot: Slot, rows: int, bucket: int = 0) -> dict[str, NDArray[Any]]:
        """The batch in `slot`, as arrays. The slot is not reused while any of them, or a view of one, lives."""
        lease: Any = slot.lease_type.from_buffer(slot.memory)
        lease.slot = slot
        self._leases[slot.number] = weakref.ref(lease, slot.ended)
        if slot.fresh:
            slot.close_descriptor()
        return self.layout.views(lease, rows, bucket)

    def leave_leased(self) -> None:
        """Never reuse what is held now: the child of a fork that is about to happen holds it too, and for longer."""
        # A copy: another thread may be forking while this pool's own thread takes and returns slots.
        for number in list(self._leases):
            if (slot := self.slots.get(number)) is not None:
                slot.fresh = True

    def put_back(self, slot: Slot) -> None:
        """Take back a slot that was never handed over."""
        self._release(slot.number)

    def retire(self, slot: Slot) -> None:
        """Never use this slot again: a worker that cannot be killed may still write into it."""
        self.slots.pop(slot.number, None)
        slot.close_descriptor()

    def collect(self) -> None:
        """Take back the slots whose leases ended."""
        while self._returned:
            number = self._returned.popleft()
            self._leases.pop(number, None)
            self._release(number)

    def close(self) -> None:
        """Forget all slots. Memory of batches that are still held lives as long as they do."""
        for slot in self.slots.values():
            slot.close_descriptor()
        self.slots.clear()
        self._free.clear()
        self._leases.clear()

    def _release(self, number: int) -> None:
        slot = self.slots.get(number)
        if slot is None:
            return
        if slot.fresh:
            del self.slots[number]
            slot.close_descriptor()
        else:
            self._free.append(number)


_pools: weakref.WeakValueDictionary[int, SlotPool] = weakref.WeakValueDictionary()


def _before_fork() -> None:
    for reference in _pools.valuerefs():
        if (pool := reference()) is not None:
            pool.leave_leased()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
