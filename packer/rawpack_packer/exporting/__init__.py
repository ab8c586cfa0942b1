"""Exports a store: to files named by their keys and a listing, or to shards that other libraries read."""

from __future__ import annotations

from rawpack_packer.exporting.run import TARGETS, Export, Exported
from rawpack_packer.exporting.target import ExportOptions

__all__ = ["TARGETS", "Export", "ExportOptions", "Exported"]
