"""What users may say: the table of options, and how messages name them: as the command has them, or as keywords where
Python called (see `text.either`).

`f"{opt.crop} and {opt.size('keep')}"` is "--crop and --size keep", or "crop= and size='keep'". What users wrote
themselves is never reworded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rawpack_packer.options.option import Option
from rawpack_packer.options.table import KINDS, OPTIONS, RECIPE, RUN, SOURCE, WRITER_GROUP, format_names
from rawpack_packer.text import either

__all__ = ["KINDS", "OPTIONS", "RECIPE", "RUN", "SOURCE", "WRITER_GROUP", "Option", "format_names", "opt"]


_FLAGS = {"skip_existing", "other_libraries", "numbered", "keep_labels", "skip_unknown", "stale_copies", "dry_run"}
"""Keywords of single functions that are true or false."""
_TAKES: dict[str, Callable[[str], Any]] = {
    "splits": lambda text: text.split(","),
    "holdout": lambda text: dict(one.split("=", 1) for one in text.split(",")) if "=" in text else text,
    "fields": lambda text: dict([text.split(":", 1)]) if ":" in text else [text],
}
"""Keywords whose values are neither text nor numbers."""


@dataclass(frozen=True)
class Named:
    """An option in a message."""

    name: str
    """The keyword."""

    def __str__(self) -> str:
        """Without a value; of what is true or false, as it is given."""
        row = OPTIONS.get(self.name)
        flag = row.flag if row is not None else f"--{self.name.replace('_', '-')}"
        return either(flag, f"{self.name}={'True' if self.name in _FLAGS or (row is not None and row.is_flag) else ''}")

    def __call__(self, value: object) -> str:
        """With a value as the command takes it, in quotes where a message shows a user's text."""
        text = str(value)
        if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
            text = text[1:-1].replace("'\"'\"'", "'")  # as `shlex.quote` writes an apostrophe
        shown = text if re.fullmatch("-?[0-9.]+", text) else repr(_TAKES.get(self.name, str)(text))
        return either(f"{self} {value}", f"{self}{shown}")


class _ByName:
    def __getattr__(self, name: str) -> Named:
        if name.startswith("_"):
            raise AttributeError(name)
        return Named(name)


opt = _ByName()
"""The option of each name."""
