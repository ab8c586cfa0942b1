"""Exports a store: an image file for each sample, named by its key, and a listing of its fields."""

from __future__ import annotations

from rawpack_packer.exporting.run import Export, Exported

__all__ = ["Export", "Exported"]
