"""Which store, at what size, on this machine: candidates are tried on a sample, and one is recommended."""

from __future__ import annotations
