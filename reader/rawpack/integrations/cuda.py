"""Copies from slots to a CUDA device: memory is page-locked once for each slot, and the host never waits for a copy.

For each batch:

1. Its slot is registered with CUDA, if it is not yet. Where that is refused, or not worth it because the slot will not
   be reused, the batch goes through page-locked memory of torch.
2. The copies and what is computed from them are begun on a stream of their own, and an event is recorded after them.
3. The numpy batch is held until the event is done: torch does not protect memory that it has not allocated.
4. When the batch is handed over, the caller's stream waits for the event, and the allocator learns that this stream
   uses the tensors.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from rawpack.integrations.placed import Copies
from rawpack.workers.slots import Slot, slot_of

Arrays = dict[str, NDArray[Any]]
Tensors = dict[str, Any]


class TorchRuntime:
    """What copying needs of CUDA, as torch offers it; tests have a simulation."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._cudart = torch.cuda.cudart()
        self._stream = torch.cuda.Stream(device)

    def register(self, address: int, size: int) -> bool:
        """Page-lock memory; False where that is refused."""
        with self._torch.cuda.device(self._device):
            if int(self._cudart.cudaHostRegister(address, size, 0)) == 0:
                return True
            # CUDA remembers the error and raises it in the next checked launch, which should be none of the user's.
            with suppress(RuntimeError):
                self._torch.ones(1, device=self._device).add_(1)
            return False

    def unregister(self, address: int) -> None:
        """Undo `register`. No copy from the memory may be under way."""
        with self._torch.cuda.device(self._device):
            self._cudart.cudaHostUnregister(address)

    def stream(self) -> AbstractContextManager[Any]:
        """Within it, work is begun on the stream of the copies."""
        return self._torch.cuda.stream(self._stream)  # type: ignore[no-any-return]

    def copy(self, array: NDArray[Any], registered: bool) -> Any:
        """Begin to copy an array to the device, where it becomes a tensor. registered: whether its memory is."""
        tensor = self._torch.from_numpy(array)
        # torch keeps memory that it page-locked itself until the copies from it are done.
        return (tensor if registered else tensor.pin_memory()).to(self._device, non_blocking=True)

    def record(self) -> Any:
        """An event after all work that has been begun on the stream of the copies."""
        return self._stream.record_event()

    def hand_over(self, tensors: Tensors, event: Any) -> None:
        """Let the caller's stream wait for `event`, and use the tensors."""
        current = self._torch.cuda.current_stream(self._device)
        # Not wait_stream: batches that are being copied in advance must not delay this one.
        current.wait_event(event)
        for tensor in tensors.values():
            tensor.record_stream(current)


@dataclass
class _Held:
    arrays: Arrays | None
    event: Any = None  # None until all of its copies are begun


@dataclass(frozen=True)
class Copied:
    tensors: Tensors
    event: Any


class CudaCopies(Copies):
    """The copies of one adapter to one device. Used by one thread at a time."""

    shares_memory = False

    def __init__(self, runtime: TorchRuntime, convert: Callable[[Tensors], Tensors]) -> None:
        """convert: what is done to the tensors of a batch on the device. A batch whose slot CUDA does not register is
        copied into torch's page-locked memory first, and its slot is free at once."""
        super().__init__()
        self._runtime, self._convert = runtime, convert
        self._held: deque[_Held] = deque()  # in the order of their events
        self._registered = weakref.WeakKeyDictionary[Slot, bool]()  # slots that were tried -> whether CUDA took them
        self._memory: dict[int, tuple[Any, weakref.finalize[Any, Any]]] = {}
        """Address -> memory that is registered, and is not unmapped before, and what notes the end of its slot."""
        self._ended: deque[int] = deque()  # addresses whose slots have ended; filled by finalizers, in any thread
        self._process = os.getpid()
        self.counts |= {"registered_slots": 0, "staged_batches": 0}

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> Copied:
        """Begin to copy the arrays of a batch, which are held until that is done."""
        self.collect()
        held = _Held(dict(arrays))
        registered = {name: self._is_registered(array) for name, array in arrays.items()}
        # Before the first copy: if one of them fails, those before it may still be under way.
        self._held.append(held)
        with self._runtime.stream():
            tensors = {name: self._runtime.copy(array, registered[name]) for name, array in arrays.items()}
            if not any(registered.values()):
                held.arrays = None
                self.counts["staged_batches"] += 1
            converted = self._convert(tensors)
        held.event = event = self._runtime.record()
        return Copied(converted, event)

    def finish(self, copied: Copied) -> Tensors:
        self.collect()
        self._runtime.hand_over(copied.tensors, copied.event)
        return copied.tensors

    def collect(self) -> None:
        """Let go of batches whose copies are done, and of the memory of slots that have ended."""
        while self._held and self._event(self._held[0]).query():
            self._held.popleft()
        while self._ended:
            self._unregister(self._ended.popleft())

    def close(self) -> None:
        """Wait for all copies, and give back all memory. In the process that began them."""
        if os.getpid() != self._process:
            return
        while self._held:
            self._event(self._held[0]).synchronize()
            self._held.popleft()
        for address in list(self._memory):
            self._unregister(address)
        self._registered.clear()

    def _event(self, held: _Held) -> Any:
        if held.event is None:
            # Its copies were interrupted: what was begun of them is done when this event is.
            held.event = self._runtime.record()
        return held.event

    def _is_registered(self, array: NDArray[Any]) -> bool:
        slot = slot_of(array)
        if slot is None:
            return False
        if slot not in self._registered and not slot.fresh:
            address = ctypes.addressof(ctypes.c_char.from_buffer(slot.memory))
            self._registered[slot] = taken = self._runtime.register(address, slot.size)
            if taken:
                self.counts["registered_slots"] += 1
                noted = weakref.finalize(slot, self._ended.append, address)
                noted.atexit = False
                self._memory[address] = slot.memory, noted
        return self._registered.get(slot, False)

    def _unregister(self, address: int) -> None:
        if address in self._memory:
            self._runtime.unregister(address)
            _, noted = self._memory.pop(address)
            noted.detach()
