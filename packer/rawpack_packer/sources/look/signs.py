"""What shows that a path is of a kind, and how surely: the surest sign decides, whatever the order of the kinds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any

from rawpack_packer.sources.look.listing import Listing


class Strength(IntEnum):
    """How surely signs show a kind. Where two kinds have signs of the same strength, the user has to choose."""

    CONTENT = 8
    """A file says so, or has a name that only this kind gives it: `store.json`, `data.mdb`."""
    WHOLE = 7
    """All files of a folder are such, apart from what describes them; or a file is, by its name."""
    SOME = 6
    """Some files are such, and the others may be of another kind; or a file may also be read in another way."""
    BYTES = 5
    """A file begins as such files do."""
    FOLDERS = 4
    """Folders have names that only this kind gives them: `JPEGImages` and `Annotations`."""
    PLAIN_FOLDERS = 3
    """Folders have names that others give them too: `images` and `labels`."""
    TABLE = 2
    """A table names the images: whatever they lie in may say more about them."""
    ARCHIVE = 1
    """It is an archive, and what is in it decides."""


@dataclass(frozen=True)
class Signs:
    """How a path shows that it is of a kind: by the first of these that fits, after which `decides` is asked.

    Without any of them, `decides` is always asked; without that, nothing is a sign. What cannot be looked into shows
    nothing.
    """

    strength: Strength = Strength.WHOLE
    named: str = ""
    """A regular expression that the path must contain, in any case."""
    contains: tuple[str, ...] = ()
    """Files or folders in it, one of which must be there; "../" stands for the folder above."""
    holds: str = ""
    """A regular expression that the name of an entry must match, in any case."""
    absent: bool = False
    """Whether nothing must be there: a path may name several files, or what is in a file."""
    decides: str | Callable[[Listing], bool] = ""
    """Returns whether it is of this kind; or the name of such a function, see `loaded`."""

    def __call__(self, listing: Listing) -> bool:
        """Whether a path shows them."""
        needed = bool(self.named or self.contains or self.holds or self.absent)
        if needed and not self._fits(listing):
            return False
        decides = loaded(self.decides) if isinstance(self.decides, str) and self.decides else self.decides
        return bool(decides(listing)) if callable(decides) else needed

    def _fits(self, listing: Listing) -> bool:
        if self.named and re.search(self.named, os.fspath(listing.path), re.IGNORECASE):
            return True
        if self.absent and not listing.exists:
            return True
        above = listing.path.absolute().parent
        for name in self.contains:
            at = above / name[3:] if name.startswith("../") else listing.path / name
            if os.path.exists(at):  # noqa: PTH110 - False where nothing can be looked into
                return True
        if not self.holds or not listing.is_dir:
            return False
        return any(re.search(self.holds, name, re.IGNORECASE) for name in listing.names)


NO_SIGNS = Signs()
"""A path of such a kind shows nothing: the user names it."""


def surest(signs: Mapping[str, Iterable[Signs]], listing: Listing) -> list[str]:
    """The kinds of which a path shows the strongest signs, sorted: several if these are of one strength. Those of less
    strength are not looked for."""
    for strength in sorted(Strength, reverse=True):
        kinds = [kind for kind, several in signs.items() if any(s.strength == strength and s(listing) for s in several)]
        if kinds:
            return sorted(kinds)
    return []


def loaded(name: str) -> Any:
    """What "module:name" below `rawpack_packer.sources` stands for."""
    module, _, inside = name.partition(":")
    return getattr(import_module(f"rawpack_packer.sources.{module}"), inside)
