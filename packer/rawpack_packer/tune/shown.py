"""How a result of measuring is shown: as text, and in a notebook as its page."""

from __future__ import annotations

from rawpack_packer.text import Printed

_WIDTH = 80


class Measured(Printed):
    """What was measured. `print` shows it as the command does, a cell of a notebook as the page of `--html`."""

    def as_text(self, width: int) -> str:
        """For a terminal of so many columns."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.as_text(_WIDTH)

    def _repr_html_(self) -> str | None:
        """For notebooks; None where the extra `report` is not installed."""
        from rawpack_packer.report import in_cell

        return in_cell(self)
