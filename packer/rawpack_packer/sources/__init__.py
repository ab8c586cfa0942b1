"""Where samples come from: `base.py` defines what a source provides, `registry.py` lists the kinds of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use
from rawpack_packer.sources.base import LEFT_OUT, Item, Samples, Source, SourceInfo
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import SourceChangedError

if TYPE_CHECKING:
    from rawpack_packer.sources.beside import AnnotatedError
    from rawpack_packer.sources.dataset import open_dataset
    from rawpack_packer.sources.folder import DividedError
    from rawpack_packer.sources.listing.lines import BadListingError
    from rawpack_packer.sources.registry import KINDS, is_there, kinds_at, names_others, open_source, stop_above_splits
    from rawpack_packer.sources.store import open_stores
    from rawpack_packer.sources.table.table import Table

__all__ = [
    "KINDS",
    "LEFT_OUT",
    "AnnotatedError",
    "BadListingError",
    "DividedError",
    "FieldKind",
    "ImageKind",
    "Item",
    "Samples",
    "Source",
    "SourceChangedError",
    "SourceInfo",
    "Table",
    "is_there",
    "kinds_at",
    "names_others",
    "open_dataset",
    "open_source",
    "open_stores",
    "stop_above_splits",
]

_LAZY = {
    "AnnotatedError": "beside",
    "BadListingError": "listing.lines",
    "DividedError": "folder",
    "Table": "table.table",
    "open_dataset": "dataset",
    "open_stores": "store",
    **dict.fromkeys(("KINDS", "is_there", "kinds_at", "names_others", "open_source", "stop_above_splits"), "registry"),
}
"""Name -> its module. A worker needs only the module of the source whose samples it gets."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, _LAZY)
