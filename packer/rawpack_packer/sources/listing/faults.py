"""What is wrong with a listing: the first twenty faults at once, each with its line and column."""

from __future__ import annotations

from rawpack.errors import UsageError
from rawpack_packer.text import plain

MOST = 20


class BadListingError(UsageError):
    """A listing that cannot be packed as it is. The message has a line for each fault; no line holds control codes."""


class Faults:
    """Gathers faults; raises them together."""

    def __init__(self, where: str) -> None:
        """where: the listing, printable."""
        self._where = where
        self._found: list[tuple[int, int, str]] = []

    @property
    def enough(self) -> bool:
        """Whether there is no use in looking on."""
        return len(self._found) >= MOST

    def __len__(self) -> int:
        return len(self._found)

    def add(self, line: int, column: int, name: str, what: str, *, file: str = "") -> None:
        """A fault in the given line and column, counted from 1; 0 where there is none. name: of the column. file: where
        it is not in the listing itself."""
        place = [plain(file)] if file else []
        place += [f"line {line}"] if line else []
        place += [f"column {column}" if column else "column"] if column or (name and line) else []
        label = ", ".join(place) + (f" ({plain(name)})" if name else "")
        self._found.append((line, column, f"{label}: {plain(what)}" if label else plain(what)))

    def stop(self) -> None:
        """Raise BadListingError if there is any fault."""
        if not self._found:
            return
        # Sorted where all are in one file; YOLO's, of many files, have been found in order.
        shown = [text for _, _, text in sorted(self._found, key=lambda fault: fault[:2])[:MOST]]
        if len(shown) == 1 == len(self._found):
            raise BadListingError(f"{self._where}: {shown[0]}")
        many = f"at least {MOST}" if self.enough else str(len(self._found))
        raise BadListingError(f"{self._where} has {many} faults:\n" + "\n".join(f"  {text}" for text in shown))
