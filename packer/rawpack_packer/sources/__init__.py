"""Where samples come from. One module for each kind of source; `base` has what all of them promise."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from rawpack.errors import UsageError
from rawpack_packer.sources.base import FieldKind, Item, Samples, Source, SourceChangedError
from rawpack_packer.sources.folder import FolderSource

__all__ = ["KINDS", "FieldKind", "Item", "Samples", "Source", "SourceChangedError", "open_source"]

Progress = Callable[[int], None]


class _Opener(Protocol):
    def __call__(self, path: str | os.PathLike[str], /, *, progress: Progress | None = None) -> Source: ...


KINDS: dict[str, _Opener] = {"folder": FolderSource}
"""Name of a kind -> what opens a path as that kind."""


def open_source(path: str | os.PathLike[str], kind: str | None = None, *, progress: Progress | None = None) -> Source:
    """The samples that lie at `path`; `kind` is one of `KINDS`, None finds it from what `path` is.

    progress: called now and then, with how many entries of the source were looked at so far.
    Raises UsageError, one line that names the path and the cure, for what is no source.
    """
    if kind is None:
        kind = "folder"
    if kind not in KINDS:
        raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted(KINDS))}")
    return KINDS[kind](path, progress=progress)
