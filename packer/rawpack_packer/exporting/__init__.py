"""Exports a store: to files named by their keys and a listing, or to shards that other libraries read."""

from __future__ import annotations

from rawpack_packer.exporting.run import TARGETS, Export, Exported, SplitsExport

__all__ = ["TARGETS", "Export", "Exported", "SplitsExport"]
