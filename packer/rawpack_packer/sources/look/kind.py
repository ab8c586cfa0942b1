"""What shows that a path is of a kind, and how surely: the surest sign decides, whatever the order of the kinds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from importlib import import_module
from typing import Any, Literal

import msgspec

from rawpack.errors import UsageError
from rawpack_packer.sources.look.listing import Listing

Named = str | Callable[..., Any]
"""A function or class, or "module:name" below `rawpack_packer.sources` for one that is loaded when it is needed."""


class Strength(IntEnum):
    """How surely signs show a kind. Where two kinds have signs of the same strength, the user has to choose."""

    PLUGIN = 9
    """Another package says so of its own kind."""
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


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """How a path shows that it is of a kind: the sign for such a path has to fit, and `decides` has to agree.

    Regular expressions are searched for, in any case. Without any sign, `decides` is asked of every path. What cannot
    be looked into shows nothing.
    """

    strength: Strength = Strength.WHOLE
    file: str = ""
    """A regular expression for the path of a file, or the URL without its query."""
    several: str = ""
    """The same for a range or a glob."""
    contains: tuple[str, ...] = ()
    """Files or folders in a folder, one of which must be there; "../" stands for the folder above."""
    holds: str = ""
    """A regular expression for the name of an entry of a folder."""
    inside: bool = False
    """Whether a path that is not there may name a split, or what is in a file."""
    decides: Named = ""
    """Returns whether a `Listing` is of this kind, or anything that is true or false. Without it, what fits is."""

    def __call__(self, listing: Listing) -> bool:
        """Whether a path shows them, or would if what shows them were intact: whoever opens it says what is wrong."""
        if not self._fits(listing):
            return False
        try:
            return not self.decides or bool(loaded(self.decides)(listing))
        except (OSError, UsageError) as error:
            if listing.is_url or self.strength is Strength.PLUGIN:
                raise
            return isinstance(error, UsageError)

    def _fits(self, listing: Listing) -> bool:
        if not (self.file or self.several or self.contains or self.holds or self.inside):
            return True
        if listing.is_dir:
            inner = any(re.search(self.holds, name, re.IGNORECASE) for name in listing.names) if self.holds else False
            return inner or any(map(listing.holds, self.contains))
        names = [self.file] if listing.is_file or listing.is_url else []
        names += [self.several] if listing.is_pattern else []
        if names:
            return any(name and re.search(name, str(listing.path), re.IGNORECASE) for name in names)
        return self.inside and not listing.exists


class SourceKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of source."""

    name: str
    reads: str
    """What it reads, in a few words."""
    open: Named
    """Opens a path: `open(listing, progress=..., **options)`."""
    options: tuple[str, ...] = ()
    """What it takes besides the path, by keyword; None is as if left out. The command writes `max_frames` as
    `--max-frames`."""
    signs: Sequence[Signs] = ()
    """What shows that a path is of this kind: any of these."""
    splits: Named = ""
    """Returns the names of the splits that a `Listing` has, if its kind is this one and nobody names it."""
    stops_at_annotations: bool = False
    """Whether it loses what describes the images beside them, and so stops there unless it was asked for: then it is
    opened with `detected=`."""
    labels_unread: Literal["", "folders", "always"] = ""
    """When labels are in files that no worker reads, and that the command does not name: never, if it names a folder,
    or always. A run that resumes then scans the source again, as they may have changed."""
    names_others: bool = False
    """Whether a file of this kind names others in its folder, which are read with it."""
    remote: bool = False
    """Whether it takes URLs too: then it is opened with `spool=`."""
    extra: str = ""
    """The extra that it needs."""
    module: str = ""
    """That of the extra, without which nothing of this kind is read."""
    extra_for: str = ""
    """What needs the extra, in a few words; empty if everything does."""

    def claims(self, listing: Listing) -> bool:
        """Whether a path shows any sign of this kind."""
        return any(signs(listing) for signs in self.signs)

    def splits_of(self, listing: Listing) -> list[str]:
        """The names of the splits at a path of this kind, as a command lists them; empty where it is not divided."""
        return list(loaded(self.splits)(listing)) if self.splits and os.fspath(listing) else []


def surest(kinds: Iterable[SourceKind], listing: Listing) -> Iterator[list[str]]:
    """The kinds of which a path shows the strongest signs, sorted: several if these are of one strength. Then those
    that show the next strongest, and so on; nothing is looked at before it is asked for."""
    every = [*kinds]
    for strength in sorted(Strength, reverse=True):
        names = [kind.name for kind in every if any(s.strength == strength and s(listing) for s in kind.signs)]
        if names:
            yield sorted(names)


def loaded(name: Named) -> Any:
    """What a name stands for."""
    if not isinstance(name, str):
        return name
    module, _, inside = name.partition(":")
    return getattr(import_module(f"rawpack_packer.sources.{module}"), inside)
