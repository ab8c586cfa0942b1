"""Whatever is done to iterators and workers, in any order: batches are those of a plain list, and nothing is left."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reading import SOAK, WAYS, Truth, children, descriptors, rows_of, shared_bytes, wait_until, workers_of
from running import Packed

from rawpack import Reader, UsageError

BATCH = 8
STEPS = 30
SEED = 3
KILLS = 300 if SOAK else 10
PICK = st.integers(0, 1 << 20)


@dataclass
class Opened:
    """An iterator and the batches that are still to come from it, by the model."""

    iterator: Any
    begun: bool = False
    epoch: int = 0
    step: int = 0
    expected: list[list[int]] = field(default_factory=list)
    loads: int = 0
    """How many states had been loaded when it began."""


@dataclass
class Kept:
    """A batch that is kept, and where it is from."""

    batch: dict[str, Any]
    epoch: int
    step: int
    loads: int


class ReaderMachine(RuleBasedStateMachine):
    """Batches of one reader beside a plain list of their rows."""

    store: ClassVar[Path]
    truth: ClassVar[Truth]
    epochs: ClassVar[list[list[int]]]
    way: ClassVar[dict[str, Any]]
    kills: ClassVar[int] = 0
    resident: ClassVar[list[int]]
    """Bytes of this process in memory after each run."""

    def __init__(self) -> None:
        super().__init__()
        gc.collect()
        self.before, self.opened_before, self.shared_before = children(), descriptors(), shared_bytes()
        self.opened: list[Opened] = []
        self.kept: list[Kept] = []
        self.latest: tuple[int, int] = (0, 0)
        self.state: tuple[dict[str, Any], int, int] | None = None
        self.newest: Opened | None = None
        self.next: tuple[int, int] = (0, 0)
        self.loaded, self.loads = False, 0

    @initialize()
    def open(self) -> None:
        self.batches = Reader(self.store).batches(BATCH, shuffle=True, seed=SEED, **self.way)
        self.batches.set_epoch(0)  # again, as in every run before

    def epoch(self, number: int) -> list[list[int]]:
        """The rows of an epoch's batches."""
        rows = self.epochs[number]
        return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]

    @precondition(lambda self: len(self.opened) < 3)
    @rule()
    def iterate(self) -> None:
        """iter(): nothing happens before the first next()."""
        before = children()
        self.opened.append(Opened(iter(self.batches)))
        assert children() <= before

    def begin(self, one: Opened) -> None:
        """The first next(): it takes the next epoch, from where a state was loaded on."""
        one.begun, one.loads = True, self.loads
        one.epoch, one.step = self.latest = self.next
        one.expected = self.epoch(one.epoch)[one.step :]
        self.next, self.loaded, self.newest = (one.epoch + 1, 0), False, one

    @precondition(lambda self: self.opened)
    @rule(pick=PICK, count=st.integers(1, 6), keep=st.booleans())
    def take(self, pick: int, count: int, keep: bool) -> None:
        """next(), some times; the batches are kept or let go."""
        one = self.opened[pick % len(self.opened)]
        for _ in range(count):
            if not one.begun:
                self.begin(one)
            batch = next(one.iterator, None)
            if not one.expected:
                assert batch is None
                self.opened.remove(one)
                return
            assert batch is not None
            assert batch["index"].tolist() == one.expected.pop(0)
            assert self.truth.holds(batch)
            one.step += 1
            if one is self.newest:
                self.latest = (one.epoch, one.step)
            if keep:
                self.kept.append(Kept(batch, one.epoch, one.step, one.loads))

    @precondition(lambda self: self.kept)
    @rule(pick=PICK)
    def let_go(self, pick: int) -> None:
        del self.kept[pick % len(self.kept) :: 2]

    @precondition(lambda self: self.opened)
    @rule(pick=PICK, close=st.booleans())
    def abandon(self, pick: int, close: bool) -> None:
        """An iterator is closed, or forgotten."""
        one = self.opened.pop(pick % len(self.opened))
        if close:
            one.iterator.close()
            assert next(one.iterator, None) is None

    @precondition(lambda self: any(one.begun for one in self.opened) and self.way == WAYS["processes"])
    @rule(pick=PICK, sign=st.sampled_from([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
    def kill(self, pick: int, sign: signal.Signals) -> None:
        if ReaderMachine.kills == KILLS:
            return  # here, and no precondition: what may come next must follow from this run alone
        begun = [one for one in self.opened if one.begun]
        one = begun[pick % len(begun)]
        with suppress(ProcessLookupError):  # killed before, and reaped by the template
            os.kill(workers_of(one.iterator)[pick % 2], sign)
        ReaderMachine.kills += 1

    @precondition(lambda self: self.next != (0, 0))
    @rule()
    def save(self) -> None:
        self.saved(self.batches.state_dict(), *self.latest)

    @precondition(lambda self: self.kept)
    @rule(pick=PICK)
    def save_after(self, pick: int) -> None:
        """The state after a batch that is kept; none of one from before a state was loaded."""
        one = self.kept[pick % len(self.kept)]
        if one.loads == self.loads:
            self.saved(self.batches.state_dict(after={**one.batch}), one.epoch, one.step)
        else:
            with pytest.raises(UsageError, match="after= must be a batch of these batches"):
                self.batches.state_dict(after=one.batch)

    def saved(self, state: dict[str, Any], epoch: int, step: int) -> None:
        if not self.epoch(epoch)[step:]:
            epoch, step = epoch + 1, 0
        self.state = (state, epoch, step)

    @precondition(lambda self: self.state)
    @rule(anew=st.booleans())
    def resume(self, anew: bool) -> None:
        """Load a state, into these batches or into new ones; open iterators are not disturbed."""
        assert self.state is not None
        state, epoch, step = self.state
        if anew:
            self.batches = Reader(self.store).batches(BATCH, shuffle=True, seed=SEED, **self.way)
            self.newest = None
            # Those that have not begun would take epochs of the batches before.
            self.opened = [one for one in self.opened if one.begun]
        self.batches.load_state_dict(state)
        self.latest = self.next = (epoch, step)
        self.loaded, self.loads = True, self.loads + 1

    @precondition(lambda self: hasattr(self, "batches"))
    @rule(epoch=st.integers(0, 4))
    def set_epoch(self, epoch: int) -> None:
        """set_epoch() of the epoch that was loaded keeps the position in it."""
        self.batches.set_epoch(epoch)
        self.latest = self.next = self.next if self.loaded and epoch == self.next[0] else (epoch, 0)
        self.loaded = self.loaded and epoch == self.next[0]

    @invariant()
    def kept_batches_are_right(self) -> None:
        assert all(self.truth.holds(one.batch) for one in self.kept)

    def teardown(self) -> None:
        """All iterators end as the list says; then workers and descriptors are gone, and kept batches still right."""
        while self.opened:
            one = self.opened.pop()
            if not one.begun:
                self.begin(one)
            assert [batch["index"].tolist() for batch in one.iterator] == one.expected
            del one
        self.newest = None
        self.__dict__.pop("batches", None)
        gc.collect()
        wait_until(lambda: children() <= self.before, "the workers have ended")
        assert all(self.truth.holds(one.batch) for one in self.kept)
        self.kept.clear()
        gc.collect()
        wait_until(lambda: descriptors() <= self.opened_before, "the descriptors are closed")
        wait_until(lambda: shared_bytes() <= self.shared_before, "the shared memory is unmapped")
        self.resident.append(psutil.Process().memory_info().rss)


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 128)


@pytest.mark.own_processes
@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("way", ["threads", "processes"])
def test_against_a_list(store: Path, way: str) -> None:
    """Iterators that are opened, read, abandoned and resumed in any order, while workers are killed, give what a plain
    list gives; batches that are kept stay right; nothing is left behind."""
    alone = Reader(store).batches(BATCH, fields=["label"], shuffle=True, seed=SEED, workers=0)
    epochs = [rows_of(alone) for _ in range(STEPS + 5)]
    resident: list[int] = []
    given = {"store": store, "truth": Truth(store), "epochs": epochs, "way": WAYS[way], "resident": resident}
    machine = type("Machine", (ReaderMachine,), given)
    ReaderMachine.kills = 0
    runs = 500 if SOAK else 5
    bounds = settings(
        max_examples=runs, stateful_step_count=STEPS, deadline=None, database=None, derandomize=not SOAK,
        phases=[Phase.generate],  # a run that waits in vain for a process to end would be shrunk for hours
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "rawpack: a worker died", RuntimeWarning)
        machine.TestCase.settings = bounds  # type: ignore[attr-defined]
        machine.TestCase("runTest").debug()  # type: ignore[attr-defined]
    assert len(resident) >= runs
    assert resident[-1] - resident[2] < 48 << 20, "memory comes back"
    if way == "processes":
        assert ReaderMachine.kills > 0, "how many there are depends on the steps that are drawn"
