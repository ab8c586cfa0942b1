"""What users may say: the table of options, and their values."""

from __future__ import annotations

from rawpack_packer.options.option import Option
from rawpack_packer.options.table import KINDS, OPTIONS, RECIPE, RUN, SOURCE

__all__ = ["KINDS", "OPTIONS", "RECIPE", "RUN", "SOURCE", "Option"]
