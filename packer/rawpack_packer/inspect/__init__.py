"""Describes, verifies, warms and draws stores."""

from __future__ import annotations

from rawpack_packer.inspect.describe import as_text as described_text
from rawpack_packer.inspect.of_source import as_text as source_text
from rawpack_packer.inspect.verify import Problem
from rawpack_packer.inspect.warm import Warmed

__all__ = ["Problem", "Warmed", "described_text", "source_text"]
