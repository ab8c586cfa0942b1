"""What runs the parts of a packing job."""

from __future__ import annotations

from rawpack_packer.engines.contract import Engine, Report
from rawpack_packer.engines.here import HereEngine
from rawpack_packer.engines.local import LocalEngine

__all__ = ["Engine", "HereEngine", "LocalEngine", "Report"]
