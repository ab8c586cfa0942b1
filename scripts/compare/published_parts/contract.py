"""What a part is: a report's figures, the methods that are measured again, and the relations that the report found."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Values = dict[str, float]
"""Column -> the figure that one measurement found."""
Cell = tuple[str, str]
"""The label of a method, and a column."""
OURS = "rawpack"
"""The labels of methods that no report measured begin with it."""
_FACTOR = 2.0
_ABOUT_ONE = 1.1
"""A ratio measured here has no direction below this factor."""
_EQUAL = 1.25
"""A report found two figures equal if their ratio is within this factor; the ratio here must be as close to theirs."""


class UnavailableError(Exception):
    """This machine lacks something that a method needs; the method is left out."""


@dataclass(frozen=True)
class Task:
    """What a method gets. Passed to fresh processes as JSON."""

    work: str
    """Folder for data and stores, which later runs use again."""
    photos: str
    """A folder of JPEG files, or "" to generate photographs."""
    videos: str
    """A folder of videos, or "" to generate videos."""
    quick: bool
    """Tiny data: only to check that all works."""

    @property
    def folder(self) -> Path:
        """Where a part puts its data and stores; those of quick and full runs, and of other sources, never mix."""
        name = "quick" if self.quick else "full"
        if self.photos or self.videos:
            sources = f"{self.photos}\0{self.videos}".encode()
            name += "-" + hashlib.blake2s(sources, digest_size=4).hexdigest()
        folder = Path(self.work) / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def count(self, full: int, quick: int) -> int:
        """`full` or `quick`, as this run is."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Method:
    """A row of the table, measured in a fresh process in each round."""

    label: str
    call: Callable[[Task], Values]
    needs: tuple[str, ...] = ()
    """Modules that must be installed."""
    reads: tuple[str, ...] = ()
    """Files and folders of the task that it reads: they are read into the page cache first."""
    environment: str = "published-torch"
    """The environment of `requirements/` that it runs in."""
    most_rounds: int = 99
    """Fewer rounds, for methods that take minutes and hardly vary."""


@dataclass(frozen=True)
class Relation:
    """The ratio of two cells, and what the report found for it."""

    says: str
    """The report's finding, as a sentence."""
    over: Cell
    under: Cell
    theirs: float | None = None
    """The ratio of the report's own figures, if it gives them."""
    within: tuple[float, float] | None = None
    """The lowest and the highest ratio that agrees. By default, half of theirs and twice theirs; if theirs is about 1,
    theirs divided and multiplied by 1.25."""

    @property
    def reported(self) -> bool:
        """Whether the report found it, for its own methods: the overview counts only these."""
        own = not any(label.startswith(OURS) for label, _ in (self.over, self.under))
        return own and (self.theirs is not None or self.within is not None)

    def judge(self, medians: Mapping[Cell, float]) -> tuple[float | None, str]:
        """The ratio measured here, and a verdict in words."""
        if self.over not in medians or self.under not in medians:
            return None, "not measured"
        ours = medians[self.over] / medians[self.under]
        if self.within is not None:
            low, high = self.within
            equal, typical = low < 1 < high, low
        elif self.theirs is not None:
            equal, typical = 1 / _EQUAL <= self.theirs <= _EQUAL, self.theirs
            factor = _EQUAL if equal else _FACTOR
            low, high = typical / factor, typical * factor
            if not equal:  # On the same side of 1 as theirs.
                low, high = (max(low, _ABOUT_ONE), high) if typical > 1 else (low, min(high, 1 / _ABOUT_ONE))
        else:
            return ours, ""
        if low <= ours <= high:
            return ours, "agrees"
        if equal or (ours > 1) != (typical > 1) or 1 / _ABOUT_ONE < ours < _ABOUT_ONE:
            return ours, "does not agree"
        further = max(ours, 1 / ours) > max(typical, 1 / typical)
        return ours, f"same direction, {'larger' if further else 'smaller'} here"


@dataclass(frozen=True)
class Part:
    """One report, measured again."""

    number: int
    name: str
    """The name of its module."""
    title: str
    unit: str
    """What the figures mean, for the line above the table."""
    columns: tuple[str, ...]
    prepare: Callable[[Task], None]
    """Makes all data and stores that are missing; never measured."""
    methods: tuple[Method, ...]
    published: Mapping[Cell, float]
    """The report's figures, in the same units."""
    relations: tuple[Relation, ...]
    rounds: int = 3


def medians(rows: Iterable[Mapping[str, Any]]) -> dict[Cell, float]:
    """The median over the rounds, for each cell that was measured."""
    return {cell: statistics.median(values) for cell, values in by_cell(rows).items()}


def by_cell(rows: Iterable[Mapping[str, Any]]) -> dict[Cell, list[float]]:
    """The figures of all rounds, for each cell."""
    found: dict[Cell, list[float]] = {}
    for row in rows:
        for column, value in row["values"].items():
            found.setdefault((row["label"], column), []).append(value)
    return found


def table(columns: Sequence[str], figures: Mapping[str, Sequence[float | None]]) -> dict[Cell, float]:
    """Cells from rows of figures in the order of the columns, with None for figures that the report lacks."""
    return {
        (label, column): value
        for label, row in figures.items()
        for column, value in zip(columns, row, strict=True)
        if value is not None
    }
