"""How fast stores are read, and how fast this machine could do it: figures with their intervals."""

from __future__ import annotations
