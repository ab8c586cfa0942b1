"""What users may say: the table of options, and their values."""

from __future__ import annotations

from rawpack_packer.options.option import Option
from rawpack_packer.options.table import KINDS, OPTIONS, RECIPE, RUN, SOURCE, WRITER_GROUP, format_names

__all__ = ["KINDS", "OPTIONS", "RECIPE", "RUN", "SOURCE", "WRITER_GROUP", "Option", "format_names"]
