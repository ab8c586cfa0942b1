"""Videos that end the process that looks through them. Here, so that this process need not load the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from rawpack.system.channel import Channel, Heartbeat
from rawpack_packer.sources.video import scan

_LOOK = scan._main


def look_and_die(end: Callable[[], None], channel: Channel, notes: Heartbeat, work: Any, descriptors: Any) -> None:
    """The process that looks through videos, one of which ends it."""
    look = scan._index

    def deadly(place: Any, beat: Any) -> Any:
        if place.key == "deadly.mp4":
            end()
        return look(place, beat)

    with mock.patch.object(scan, "_index", deadly):
        _LOOK(channel, notes, work, descriptors)


def dying(end: Callable[[], None]) -> Any:
    """Videos are looked through by `look_and_die`."""
    return mock.patch.object(scan, "_main", partial(look_and_die, end))
