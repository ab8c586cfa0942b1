"""The recipe: what is done to each sample before it is stored, and the fields that the store will have."""

from __future__ import annotations

from rawpack_packer.recipe.recipe import CHECKS, COLORS, FITS, INTERPOLATIONS, JPEG_TABLES
from rawpack_packer.recipe.tables import format_names

__all__ = ["CHECKS", "COLORS", "FITS", "INTERPOLATIONS", "JPEG_TABLES", "format_names"]
