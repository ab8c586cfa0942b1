"""Where samples come from: `base.py` defines what a source provides, `registry.py` lists the kinds of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use
from rawpack_packer.sources.base import LEFT_OUT, Item, Samples, Source, SourceInfo, unread_of
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import SourceChangedError

if TYPE_CHECKING:
    from rawpack_packer.sources.beside.annotated import AnnotatedError
    from rawpack_packer.sources.dataset import DatasetSource
    from rawpack_packer.sources.folder import DividedError
    from rawpack_packer.sources.listing.lines import BadListingError
    from rawpack_packer.sources.registry import KINDS, is_there, kinds_at, open_source, stop_above_splits
    from rawpack_packer.sources.store import StoreSource

__all__ = [
    "KINDS",
    "LEFT_OUT",
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
    "StoreSource",
    "is_there",
    "kinds_at",
    "open_source",
    "stop_above_splits",
    "unread_of",
]

_LAZY = {
    "AnnotatedError": "beside.annotated",
    "BadListingError": "listing.lines",
    "DatasetSource": "dataset",
    "DividedError": "folder",
    "StoreSource": "store",
    **dict.fromkeys(("KINDS", "is_there", "kinds_at", "open_source", "stop_above_splits"), "registry"),
}
"""Name -> its module. A worker needs only the module of the source whose samples it gets."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, _LAZY)
