"""Workers under supervision: whose death is whose fault, without any process. Workers are objects here, and the clock
is ours."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from rawpack.system import pool as pools
from rawpack.system.channel import HEARTBEAT_BYTES, TAKEN, Heartbeat, pair
from rawpack.system.pool import Death, SupervisedPool


class Worker:
    """What a pool supervises. `ours` is the worker's end of its channel."""

    def __init__(self, status: int = -signal.SIGKILL) -> None:
        self.channel, self.ours = pair()
        self.heartbeat, self._status = Heartbeat(bytearray(HEARTBEAT_BYTES)), status

    def kill(self, grace: float = 0.0) -> bool:
        self.channel.close()
        self.ours.close()
        return True

    def status(self) -> int:
        return self._status

    def last_words(self) -> str:
        return ""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def die(pool: SupervisedPool[Any, str], *, note: int | None, seconds: float = 0.0, clock: Any = None) -> Death[str]:
    """Give the pool's first worker a job, which it begins at `note`, and not for None; it is killed after that."""
    handle = pool.handles[0]
    pool.give(handle, 5, "job", b"")
    if note is not None:
        handle.worker.heartbeat.note(5, note)
    if clock is not None:
        clock.now += seconds
    death = pool.bury(handle, died=True)
    pool.revive(handle)
    return death


@pytest.mark.parametrize(
    ("note", "begun", "position"), [(None, False, -1), (TAKEN, False, -1), (-1, True, -1), (7, True, 7)]
)
def test_a_job_is_begun_once_its_worker_notes_it(note: int | None, begun: bool, position: int) -> None:
    """A worker that is killed while it starts, or prepares, says nothing about what it was to read."""
    pool = SupervisedPool[Any, str](lambda template: Worker())
    pool.add()
    death = die(pool, note=note)
    assert (death.begun, death.position, death.job) == (begun, position, "job")
    pool.close()


def test_a_job_behind_another_is_not_begun() -> None:
    """Of two jobs, the one is blamed that the worker was at; where it had done that, neither."""
    pool = SupervisedPool[Any, str](lambda template: Worker())
    handle = pool.add()
    for number in (1, 2):
        pool.give(handle, number, f"job {number}", b"")
    handle.worker.heartbeat.note(1, -1)
    handle.jobs.pop(1)  # it has answered
    death = pool.bury(handle, died=True)
    assert (death.begun, death.job) == (False, "job 2")
    pool.revive(handle)
    pool.close()


def test_workers_that_never_begin_are_given_up(clock: SimpleNamespace) -> None:
    """Neither for their number nor for the time alone, but for both: a busy machine that kills each one passes."""
    pool = SupervisedPool[Any, str](lambda template: Worker())
    pool.add()
    assert not any(die(pool, note=None).cannot_start for _ in range(100)), "in a moment"
    deaths = [die(pool, note=TAKEN, seconds=50, clock=clock).cannot_start for _ in range(3)]
    assert deaths == [False, False, True], "for more than two minutes"
    pool.close()
    pool = SupervisedPool[Any, str](lambda template: Worker())
    pool.add()
    clock.now += 10_000
    assert [die(pool, note=None, seconds=70, clock=clock).cannot_start for _ in range(3)] == [False, False, True]
    pool.close()


def test_progress_of_any_worker_counts_for_all(clock: SimpleNamespace) -> None:
    """As long as something is done now and then, workers may be killed for a day."""
    pool = SupervisedPool[Any, str](lambda template: Worker())
    pool.add()
    other = pool.add()
    for k in range(1440):
        assert not die(pool, note=None, seconds=60, clock=clock).cannot_start
        if k % 2:
            other.worker.ours.send(b"done")
            assert pool.receive_from(other) == b"done"
    pool.close()
