"""Where samples come from: `base.py` defines what a source provides, `registry.py` lists the kinds of sources."""

from __future__ import annotations

from rawpack_packer.sources.base import Item, Samples, Source, SourceInfo
from rawpack_packer.sources.dataset import DatasetSource
from rawpack_packer.sources.divided import DividedError
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.files import SourceChangedError
from rawpack_packer.sources.listing import BadListingError
from rawpack_packer.sources.optional import unread_of
from rawpack_packer.sources.registry import KINDS, OPTIONS, SourceKind, has_split, open_source, plugins
from rawpack_packer.sources.stores.source import StoreSource

__all__ = [
    "KINDS",
    "OPTIONS",
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
    "unread_of",
]
