"""What `Batches.stats()` says about where the time goes, by a clock that a test sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rawpack import Reader
from rawpack.epoch import iterator
from rawpack.epoch.stats import Stats
from rawpack.system.times import Times
from rawpack.workers import fill

BATCH = 5


@pytest.mark.parametrize("pause", [0.0, 1.0, 27.0])
def test_arithmetic(store: Path, monkeypatch: pytest.MonkeyPatch, pause: float) -> None:
    """Where each batch takes 3 s to read and `pause` to use, whatever passes between epochs; the first batch is told
    apart, and before two there is no verdict."""
    clock, reader = SimpleNamespace(now=1000.0), Reader(store)
    for module in (iterator, fill):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    read = reader._library.read_into

    def read_into(name: str, rows: Any, out: Any) -> None:
        clock.now += 3.0 if name == "image" else 0.0
        read(name, rows, out)

    monkeypatch.setattr(reader._library, "read_into", read_into)
    batches = reader.batches(BATCH, workers=0)
    assert batches.stats()["verdict"].startswith("too early to say")
    assert batches.stats()["samples_per_s"] is None
    for _ in range(2):
        clock.now += 1e6
        for _ in batches:
            clock.now += pause
    stats, number = batches.stats(), 2 * len(batches)
    assert (stats["samples"], stats["batches"]) == (150, number)
    assert stats["first_batch_s"] == pytest.approx(3.0)
    assert stats["elapsed_s"] == pytest.approx((3.0 + pause) * (number - 2))
    assert stats["waited_s"] == pytest.approx(3.0 * (number - 2))
    assert stats["waited_share"] == pytest.approx(3.0 / (3.0 + pause))
    assert stats["samples_per_s"] == pytest.approx(BATCH / (3.0 + pause))
    assert stats["bytes_per_s"] == pytest.approx(BATCH * (48 * 48 * 3 + 8 + 8) / (3.0 + pause))
    assert stats["reading_s"] == pytest.approx(3.0 * number)


VERDICTS: list[tuple[float, Times, str]] = [
    (0.02, Times(decoding=5), "compute-bound: the loop waited for the reader 2% of the time"),
    (0.08, Times(1, 1, 8), "mostly compute-bound: the loop waited for the reader 8% of the time"),
    (0.30, Times(1, 8, 1), "partly input-bound: the loop waited 30% of the time; decoding takes 80%"),
    (0.90, Times(9, 0, 1), "input-bound: the loop waited 90% of the time; reading takes 90%"),
    (0.90, Times(1, 1, 8), "input-bound: the loop waited 90% of the time; transforming takes 80%"),
]


@pytest.mark.parametrize(("share", "times", "expected"), VERDICTS)
def test_verdicts(share: float, times: Times, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for whom, what takes the workers' time, and what would help: more workers while CPUs are free."""
    monkeypatch.setattr("rawpack.system.machine.cpus", lambda: 4)
    for workers in (0, 3, 4, 9):
        verdict = Stats(elapsed_s=100.0, waited_s=100.0 * share, times=times, workers=workers).verdict()
        assert verdict.startswith(expected)
        assert (len(verdict) > len(expected) + 10) == (share > 0.15), "there is a cure where it would gain something"
        if times.decoding == 8:
            more = "more workers would share it, and " if workers < 4 else ""
            assert verdict.endswith(f" the workers' time: {more}a raw store (memmap) needs none")
        elif times.transforming == 8 and share > 0.15:
            assert ("more workers" in verdict) == (workers < 4)
