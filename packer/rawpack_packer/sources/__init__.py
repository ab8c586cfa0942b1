"""Where samples come from. One module for each kind of source; `base` has what all of them promise.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and gives a
source, or any map-style dataset. One with an attribute `accepts`, a function of the path, is found from what SRC is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from rawpack.errors import UsageError
from rawpack_packer.sources.arrays import ArraySource, is_arrays
from rawpack_packer.sources.base import FieldKind, ImageKind, Item, Samples, Source, SourceChangedError
from rawpack_packer.sources.dataset import DatasetSource
from rawpack_packer.sources.folder import FolderSource

__all__ = [
    "KINDS",
    "DatasetSource",
    "FieldKind",
    "ImageKind",
    "Item",
    "Samples",
    "Source",
    "SourceChangedError",
    "is_source",
    "open_source",
    "plugins",
]

Progress = Callable[[int], None]
GROUP = "rawpack.sources"


class _Opener(Protocol):
    def __call__(self, path: str | os.PathLike[str], /, *, progress: Progress | None = None) -> Source: ...


KINDS: dict[str, _Opener] = {"arrays": ArraySource, "folder": FolderSource}
"""Name of a kind -> what opens a path as that kind."""


def open_source(path: str | os.PathLike[str], kind: str | None = None, *, progress: Progress | None = None) -> Source:
    """The samples that lie at `path`; `kind` is one of `KINDS` or of the plugins, None finds it from what `path` is.

    progress: called now and then, with how many entries of the source were looked at so far.
    Raises UsageError, one line that names the path and the cure, for what is no source.
    """
    added = plugins()
    if kind is None:
        kind = _kind_of(path, added)
    if kind in KINDS:
        return KINDS[kind](path, progress=progress)
    if kind in added:
        opened = _loaded(added[kind])(path)
        return opened if is_source(opened) else DatasetSource(opened)
    raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted({*KINDS, *added}))}")


def is_source(thing: Any) -> bool:
    """Whether this is a whole `Source`, and not only a dataset."""
    return all(hasattr(thing, name) for name in ("kind", "root", "fields", "image", "part", "states", "key"))


def plugins() -> dict[str, EntryPoint]:
    """The kinds that other packages add; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _kind_of(path: str | os.PathLike[str], added: dict[str, EntryPoint]) -> str:
    for name, entry in added.items():
        accepts = getattr(_loaded(entry), "accepts", None)
        if accepts is not None and accepts(path):
            return name
    file = Path(path)
    return "arrays" if file.is_file() and is_arrays(file) else "folder"


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
