"""Test suites for formats, sources and engines of your own: subclass one in a test, and pytest runs it.

    class TestTapes(SourceConformance):
        def open(self, folder):
            return TapeSource(write_tapes(folder))

Nothing here imports pytest. Methods take pytest's `tmp_path`; a failure is an `AssertionError` that says what was
expected.
"""

from __future__ import annotations

from rawpack_packer.testing.engines import EngineConformance
from rawpack_packer.testing.formats import FormatConformance
from rawpack_packer.testing.sources import SourceConformance

__all__ = ["EngineConformance", "FormatConformance", "SourceConformance"]
