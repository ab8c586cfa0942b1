"""What is to hold beside the ratio of a line to another: a ratio to the fastest of several, a limit on a quantity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Spread = tuple[float, float, float]
"""Median, least, most."""
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "opened_s": ("time to open", lambda value: f"{value:.2f} s"),
    "first_batch_s": ("first batch", lambda value: f"{value:.2f} s"),
    "next_epoch_s": ("first batch of the next epoch", lambda value: f"{value * 1000:.1f} ms"),
    "cpu_s_per_1000": ("CPU time for 1,000 images", lambda value: f"{value:.2f} s"),
    "cpu_s_per_gb": ("CPU time for a gigabyte", lambda value: f"{value:.2f} s"),
    "beside_bytes": ("memory without the page cache", lambda value: f"{value / 1e6:.0f} MB"),
    "process_bytes": ("memory of the process", lambda value: f"{value / 1e6:.0f} MB"),
    "worker_bytes": ("memory of a worker", lambda value: f"{value / 1e6:.0f} MB"),
    "worker_private_bytes": ("memory that a worker shares with nobody", lambda value: f"{value / 1e6:.0f} MB"),
    "bytes_per_file": ("memory for each file", lambda value: f"{value:.0f} bytes"),
    "calls": ("Python calls for a sample", lambda value: f"{value:.1f}"),
    "growth_bytes": ("growth of memory", lambda value: f"{value / 1e6:.2f} MB"),
}
"""Quantity -> what it is called, and how it is written."""


@dataclass(frozen=True)
class Verdict:
    """How a bar fared."""

    bar: str
    wanted: str
    found: str
    value: Spread
    passed: bool | None
    """None where nothing was wanted."""


@dataclass(frozen=True)
class Faster:
    """A line is so many times as fast as the fastest of others, by the median of the rounds' ratios."""

    label: str
    than: tuple[str, ...]
    times: float | None = None
    """None to report it only."""
    called: str = ""
    """What the others are called together, where there are several."""

    def judge(self, rows: Sequence[Row]) -> Verdict | None:
        """None where one of the lines was not measured."""
        own = by_round(rows, self.label, "images_per_s")
        others = [by_round(rows, name, "images_per_s") for name in self.than]
        ratios = [rate / max(other[k] for other in others) for k, rate in own.items() if all(k in o for o in others)]
        if not ratios:
            return None
        value = spread(ratios)
        wanted = "" if self.times is None else f"at least {self.times:g}"
        return Verdict(
            f"{self.label} / {self.called or self.than[0]}",
            wanted,
            shown(value, lambda ratio: f"{ratio:.2f}"),
            value,
            None if self.times is None else value[0] >= self.times,
        )


@dataclass(frozen=True)
class AtMost:
    """The median of a quantity is at most so much; or so much more than that of another line, or such a share of it."""

    label: str
    quantity: str
    most: float | None
    """None to report it only."""
    beyond: str | None = None
    share_of: str | None = None

    def judge(self, rows: Sequence[Row]) -> Verdict | None:
        """None where it was not measured."""
        own, other = by_round(rows, self.label, self.quantity), self.beyond or self.share_of
        called, one = _SHOWN[self.quantity]
        what, values = f"{self.label}: {called}", list(own.values())
        if other is not None:
            base = by_round(rows, other, self.quantity)
            # CPU time is counted in ticks: too short a measurement took none.
            pairs = [(value, base[k]) for k, value in own.items() if k in base and (self.beyond or base[k])]
            what = f"{what}, {'more than' if self.beyond else 'as a share of'} {other}"
            values = [value - of if self.beyond else value / of for value, of in pairs]
            one = one if self.beyond else "{:.2f}".format
        if not values:
            return None
        value = spread(values)
        wanted = "" if self.most is None else f"at most {one(self.most)}"
        return Verdict(what, wanted, shown(value, one), value, None if self.most is None else value[0] <= self.most)


Bar = Faster | AtMost


def spread(values: Sequence[float]) -> Spread:
    return statistics.median(values), min(values), max(values)


def shown(value: Spread, one: Callable[[float], str]) -> str:
    """The median, and the range where there is one."""
    median, least, most = map(one, value)
    return median if least == most else f"{median} ({least}..{most})"


def by_round(rows: Sequence[Row], label: str, quantity: str) -> dict[int, float]:
    return {row["round"]: row[quantity] for row in rows if row["label"] == label and row[quantity] is not None}
