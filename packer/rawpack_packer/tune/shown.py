"""How a result of measuring is shown: as text, and in a notebook as its page."""

from __future__ import annotations

from typing import Any

_WIDTH = 80


class Measured:
    """What was measured. `print` shows it as the command does, a cell of a notebook as the page of `--html`."""

    def as_text(self, width: int) -> str:
        """For a terminal of so many columns."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.as_text(_WIDTH)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For notebooks: the page, where the extra `report` is installed, and the text."""
        from rawpack_packer.report import in_cell

        page = in_cell(self)
        return {"text/plain": str(self)} | ({} if page is None else {"text/html": page})
