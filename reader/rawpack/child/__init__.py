"""Child processes that do the work: how they start, how they are talked to, and how they end."""

from __future__ import annotations

from rawpack.child.channel import Channel, pair
from rawpack.child.notes import NOTES_BYTES, Notes
from rawpack.child.process import GRACE_S, Child, serve_main

__all__ = ["GRACE_S", "NOTES_BYTES", "Channel", "Child", "Notes", "pair", "serve_main"]
