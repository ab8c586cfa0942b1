"""The fault in a listing: the first one that is found, with its line and column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.text import plain

Lines = NDArray[np.int64]
"""(n,): the line of each value of a column."""
_SHOWN = 40


class BadListingError(UsageError):
    """A listing has a fault and cannot be packed."""


def fault(where: str, line: int, column: int, name: str, what: str, *, file: str = "") -> BadListingError:
    """The error for a fault. where: the listing, printable. line, column: counted from 1; 0 for none. name: of the
    column. file: if it is not the listing itself."""
    place = [plain(file)] if file else []
    place += [f"line {line}"] if line else []
    place += [f"column {column}" if column else "column"] if column or (name and line) else []
    label = ", ".join(place) + (f" ({plain(name)})" if name else "")
    return BadListingError(f"{where}: {label}: {plain(what)}" if label else f"{where}: {plain(what)}")


@dataclass(frozen=True)
class CellPosition:
    """A column, as faults name it."""

    where: str
    """The listing, printable."""
    name: str
    number: int
    """Counted from 1; 0 where columns have only names."""
    cells: bool
    """Whether values are the texts of cells, rather than of JSON's types."""

    def fault(self, line: int, what: str) -> BadListingError:
        """The error for a value of this column."""
        return fault(self.where, int(line), self.number, self.name, what)

    def empty(self, value: Any) -> bool:
        """Whether a value is missing; so is a cell that has only blanks."""
        return value is None or value == "" or (self.cells and value.isspace())

    @property
    def keep_texts(self) -> str:
        """The cure for a column whose values are not all numbers, or not all texts."""
        others = "" if self.cells else ", other than texts as JSON"
        return f"{opt.fields(f'{self.name}:str')} keeps all values as text{others}"


def shown(value: Any) -> str:
    """A value in a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
