"""Where samples come from: `base.py` defines what a source provides, `registry.py` lists the kinds of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use
from rawpack_packer.sources.base import LEFT_OUT, Item, Samples, Source, SourceInfo
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import SourceChangedError
from rawpack_packer.sources.optional import unread_of

if TYPE_CHECKING:
    from rawpack_packer.sources.beside.annotated import AnnotatedError
    from rawpack_packer.sources.dataset import DatasetSource
    from rawpack_packer.sources.listing.faults import BadListingError
    from rawpack_packer.sources.opening import has_split, open_source, plugins, stop_above_splits
    from rawpack_packer.sources.registry import KINDS, OPTIONS, SourceKind
    from rawpack_packer.sources.splits_on_disk import DividedError
    from rawpack_packer.sources.store import StoreSource

__all__ = [
    "KINDS",
    "LEFT_OUT",
    "OPTIONS",
    "AnnotatedError",
    "BadListingError",
    "DatasetSource",
    "DividedError",
    "FieldKind",
    "ImageKind",
    "Item",
    "Samples",
    "Source",
    "SourceChangedError",
    "SourceInfo",
    "SourceKind",
    "StoreSource",
    "has_split",
    "open_source",
    "plugins",
    "stop_above_splits",
    "unread_of",
]

_LAZY = {
    "AnnotatedError": "beside.annotated",
    "BadListingError": "listing.faults",
    "DatasetSource": "dataset",
    "DividedError": "splits_on_disk",
    "StoreSource": "store",
    **dict.fromkeys(("KINDS", "OPTIONS", "SourceKind"), "registry"),
    **dict.fromkeys(("has_split", "open_source", "plugins", "stop_above_splits"), "opening"),
}
"""Name -> its module. A worker needs only the module of the source whose samples it gets."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, _LAZY)
