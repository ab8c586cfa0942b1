"""Copies to CUDA, against a simulated device: no schedule of the device makes a batch wrong, or touches memory that is
gone."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from reading import SOAK
from simulated_cuda import SimulatedCuda

from rawpack.integrations.cuda import Copied, CudaCopies
from rawpack.workers.slots import SlotField, SlotLayout, SlotPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulation looks at /proc/self/maps")
LAYOUT = SlotLayout([SlotField("image", "uint8", (3, 5)), SlotField("label", "int64", ())], 4)


def given(number: int) -> dict[str, Any]:
    """What batch `number` has."""
    return {"image": np.full((4, 3, 5), number % 251, np.uint8), "label": np.arange(4) + number}


def begun(pool: SlotPool, copies: CudaCopies, number: int) -> Copied:
    """A batch as a worker fills it, on its way to the device; nobody holds its arrays."""
    batch = pool.hand_over(pool.acquire(), 4)
    for name, values in given(number).items():
        batch[name][...] = values
    return copies.begin(batch)


def right(tensors: dict[str, Any], number: int) -> bool:
    return all(np.array_equal(tensors[name], values) for name, values in given(number).items())


class Schedule(RuleBasedStateMachine):
    """Batches, the device, pools of slots that come and go: in any order."""

    @initialize(shared=st.booleans(), reusable=st.integers(1, 4), refusals=st.lists(st.booleans(), max_size=6))
    def start(self, shared: bool, reusable: int, refusals: list[bool]) -> None:
        left = list(refusals)
        self.device = SimulatedCuda(refuses=lambda: bool(left) and left.pop())
        self.copies = CudaCopies(self.device, dict)
        self.shared, self.reusable = shared, reusable
        self.pool = SlotPool(LAYOUT, reusable, shared=shared)
        self.queue: deque[tuple[int, Copied]] = deque()
        self.number = 0

    @rule()
    def begin(self) -> None:
        self.number += 1
        self.queue.append((self.number, begun(self.pool, self.copies, self.number)))

    @rule()
    def begin_and_fail(self) -> None:
        """The device has no memory for a batch."""
        self.device.failing = True
        with pytest.raises(RuntimeError, match="out of memory"):
            begun(self.pool, self.copies, 250)

    @rule(steps=st.integers(1, 9))
    def work(self, steps: int) -> None:
        self.device.work(steps)

    @precondition(lambda self: self.queue)
    @rule()
    def hand_over(self) -> None:
        number, copied = self.queue.popleft()
        assert right(self.copies.finish(copied), number)

    @precondition(lambda self: self.queue)
    @rule()
    def drop(self) -> None:
        """The caller leaves the loop early."""
        self.queue.pop()

    @rule()
    def another_pool(self) -> None:
        """Workers were replaced: their slots end, as soon as nothing reads them."""
        self.pool.close()
        self.pool = SlotPool(LAYOUT, self.reusable, shared=self.shared)

    @rule()
    def fork(self) -> None:
        """A fork is about to happen: slots that are held will not be reused."""
        self.pool.leave_leased()

    @rule()
    def close(self) -> None:
        self.copies.close()
        assert not self.device.registered

    def teardown(self) -> None:
        if hasattr(self, "copies"):
            for number, copied in self.queue:
                assert right(self.copies.finish(copied), number)
            self.pool.close()
            self.copies.close()
            assert not self.device.registered


TestSchedule = pytest.mark.filterwarnings("error")(Schedule.TestCase)
TestSchedule.settings = settings(max_examples=60 if SOAK else 12, stateful_step_count=40, deadline=None,
                                 suppress_health_check=[HealthCheck.too_slow])  # fmt: skip


def test_slots_are_registered_once() -> None:
    """However many batches come: as many registrations as slots, and no staging."""
    device = SimulatedCuda()
    copies, pool = CudaCopies(device, dict), SlotPool(LAYOUT, 4)
    for number in range(50):
        assert right(copies.finish(begun(pool, copies, number)), number)
    assert len(device.registrations) <= 2
    assert copies.counts == {"registered_slots": len(device.registrations), "staged_batches": 0}
    assert device.synchronized == 0


@pytest.mark.parametrize("how", ["refused", "not reused"])
def test_what_is_not_registered_goes_through_other_memory(how: str) -> None:
    """Where CUDA refuses, and where a slot serves once: the slot is free at once, and each slot is tried once."""
    asked = []
    device = SimulatedCuda(refuses=lambda: asked.append(1) is None)
    copies = CudaCopies(device, dict)
    pool = SlotPool(LAYOUT, 0 if how == "not reused" else 1)
    for number in range(5):
        copied = begun(pool, copies, number)
        assert how == "not reused" or pool.spare
        assert right(copies.finish(copied), number)
    assert len(asked) == (1 if how == "refused" else 0)
    assert copies.counts == {"registered_slots": 0, "staged_batches": 5}
