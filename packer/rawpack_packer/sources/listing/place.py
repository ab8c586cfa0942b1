"""Where a column stands, for messages, and what takes its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.faults import Faults
from rawpack_packer.sources.listing.table import Column

Lines = NDArray[np.int64]
"""(n,): the line of each value."""
_SHOWN = 40


@dataclass(frozen=True)
class CellPosition:
    """A column, for messages."""

    name: str
    number: int
    """Counted from 1; 0 where columns have only names."""
    faults: Faults
    cells: bool
    """Whether values are texts out of cells, and not of JSON's own types."""

    def fault(self, line: int, what: str) -> None:
        self.faults.add(int(line), self.number, self.name, what)

    def empty(self, value: Any) -> bool:
        """Whether a value is none, as a cell of blanks is too."""
        return value is None or value == "" or (self.cells and value.isspace())

    @property
    def keep_texts(self) -> str:
        return f"--field {self.name}:str takes all as texts"


class ColumnParser(Protocol):
    """Takes the values of a column of one kind."""

    def add(self, values: Sequence[Any], lines: Lines, /) -> None:
        """Some more; what does not fit is a fault."""

    def finish(self) -> tuple[FieldKind, Column]:
        """What all of them are. Faults may turn up only here."""


def shown(value: Any) -> str:
    """A value in a message, not longer than a glance."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
