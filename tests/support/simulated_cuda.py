"""A CUDA device that a test drives by hand: copies read their memory as late as the device may, and every rule that
real memory and streams have is checked."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.integrations.cuda import TorchRuntime


class SimulatedEvent:
    """Done when the device has come to it."""

    def __init__(self, device: SimulatedCuda) -> None:
        self._device, self.done = device, False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self._device.synchronized += 1
        while not self.done:
            self._device.work(1)


class SimulatedCuda(TorchRuntime):
    """What the copies need of CUDA. Nothing that was begun is done before `work` or a wait for it."""

    def __init__(
        self,
        tensor: Callable[[NDArray[Any]], Any] = lambda array: array,
        refuses: Callable[[], bool] = lambda: False,
        eager: bool = False,
    ) -> None:
        """tensor: makes what a copy returns, over the array that the device fills. refuses: asked at each registration.
        eager: whether copies read at once; events still wait."""
        self._tensor, self._refuses, self._eager = tensor, refuses, eager
        self._queue: deque[tuple[int, int, NDArray[Any]] | SimulatedEvent] = deque()
        """Copies (address, bytes, target) and events, in the order of the stream."""
        self.registered: dict[int, int] = {}
        self.registrations: list[int] = []
        """Addresses, in the order in which they were taken."""
        self.staged = self.handed = self.synchronized = 0
        self.failing = False
        """Whether the next copy fails."""

    def work(self, steps: int) -> None:
        """Let the device do this much of what is queued."""
        for _ in range(min(steps, len(self._queue))):
            one = self._queue.popleft()
            if isinstance(one, SimulatedEvent):
                one.done = True
            else:
                address, size, target = one
                assert self._covered(address, size), "the device reads memory that is not registered any more"
                ctypes.memmove(target.ctypes.data, address, size)

    def register(self, address: int, size: int) -> bool:
        assert size > 0
        assert mapped(address), "memory that is registered must be mapped"
        assert address not in self.registered, "registered twice"
        if self._refuses():
            return False
        self.registered[address] = size
        self.registrations.append(address)
        return True

    def unregister(self, address: int) -> None:
        size = self.registered.pop(address)
        assert mapped(address), "unmapped before it was unregistered"
        for one in self._queue:
            assert isinstance(one, SimulatedEvent) or not address <= one[0] < address + size, "a copy is under way"

    def stream(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def copy(self, array: NDArray[Any], registered: bool) -> Any:
        if self.failing:
            self.failing = False
            raise RuntimeError("out of memory")
        target = np.zeros_like(array)
        if registered and not self._eager:
            assert array.flags.c_contiguous
            self._queue.append((array.ctypes.data, array.nbytes, target))
        else:
            np.copyto(target, array)
        self.staged += not registered
        return self._tensor(target)

    def record(self) -> SimulatedEvent:
        event = SimulatedEvent(self)
        self._queue.append(event)
        return event

    def hand_over(self, tensors: dict[str, Any], event: Any) -> None:
        """The caller's work on the device comes after the event: here, at once."""
        while not event.done:
            self.work(1)
        self.handed += 1

    def _covered(self, address: int, size: int) -> bool:
        return any(start <= address and address + size <= start + n for start, n in self.registered.items())


def mapped(address: int) -> bool:
    """Whether this process has memory at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return True
    return False
