"""Child processes that do the work: how they start, how they are talked to, and how they end."""

from __future__ import annotations

from rawpack.system.child.channel import Channel, pair
from rawpack.system.child.heartbeat import HEARTBEAT_BYTES, Heartbeat
from rawpack.system.child.process import GRACE_S, Child, serve_main

__all__ = ["GRACE_S", "HEARTBEAT_BYTES", "Channel", "Child", "Heartbeat", "pair", "serve_main"]
