"""The faults in a listing: the first twenty are reported at once, each with its line and column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.text import plain

MOST = 20
Lines = NDArray[np.int64]
"""(n,): the line of each value of a column."""
_SHOWN = 40


class BadListingError(UsageError):
    """A listing has faults and cannot be packed. The message has one printable line for each."""


class Faults:
    """Collects faults, to raise them together."""

    def __init__(self, where: str) -> None:
        """where: the listing, printable."""
        self._where = where
        self._found: list[tuple[int, int, str]] = []

    @property
    def enough(self) -> bool:
        """Whether as many faults were found as are reported."""
        return len(self._found) >= MOST

    def __len__(self) -> int:
        return len(self._found)

    def add(self, line: int, column: int, name: str, what: str, *, file: str = "") -> None:
        """line, column: counted from 1; 0 for none. name: of the column. file: if it is not the listing itself."""
        place = [plain(file)] if file else []
        place += [f"line {line}"] if line else []
        place += [f"column {column}" if column else "column"] if column or (name and line) else []
        label = ", ".join(place) + (f" ({plain(name)})" if name else "")
        self._found.append((line, column, f"{label}: {plain(what)}" if label else plain(what)))

    def stop(self) -> None:
        """Raise BadListingError if there is any fault."""
        if not self._found:
            return
        shown = [text for _, _, text in sorted(self._found, key=lambda fault: fault[:2])[:MOST]]
        if len(self._found) == 1:
            raise BadListingError(f"{self._where}: {shown[0]}")
        many = f"at least {MOST}" if self.enough else str(len(self._found))
        raise BadListingError(f"{self._where} has {many} faults:\n" + "\n".join(f"  {text}" for text in shown))


@dataclass(frozen=True)
class CellPosition:
    """A column, as faults name it."""

    name: str
    number: int
    """Counted from 1; 0 where columns have only names."""
    faults: Faults
    cells: bool
    """Whether values are the texts of cells, rather than of JSON's types."""

    def fault(self, line: int, what: str) -> None:
        self.faults.add(int(line), self.number, self.name, what)

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
