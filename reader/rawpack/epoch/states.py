"""States to resume from: what they say besides epoch and position, and whether they are of these batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rawpack.choose.settings import Settings
from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.system.user import warn

STATE_VERSION = 1
PIXELS_VERSION = 2
"""Changes where transforms make other pixels of the same random numbers. States of version 1 do not say it."""
VERSIONS = {"version": STATE_VERSION, "pixels": PIXELS_VERSION}


def check_state(state: Any, identity: Mapping[str, Any], order: Order, settings: Settings) -> tuple[int, int]:
    """The epoch and position of a state. Raises UsageError where it is none, or one of other batches. identity: what it
    must say for its position to mean the same samples."""
    expected = {"version": STATE_VERSION, **identity}
    if not isinstance(state, Mapping):
        raise UsageError(f"a state is what state_dict() returned, not a {type(state).__name__}")
    if not state.keys() & expected.keys():
        raise UsageError(f"this is no state of batches: it has none of {', '.join(expected)}")
    for name, value in expected.items():
        if (its := state.get(name)) != value:
            what = {
                "samples": f"it is of another store or split: {its} samples, here {value}",
                "keys": "it is of another store or split: the names of its samples are others",
                "selected": "it is of another selection of these samples",
            }.get(name, f"its {name} is {its!r}, here it is {value!r}")
            same = ", ".join(["samples", "seed", "shuffle", *order.identity])
            raise UsageError(
                f"this state does not fit: {what}; resume with the same {same} and rawpack's order version"
            )
    if state.get("pixels", 1) != PIXELS_VERSION and settings.pipeline is not None:
        from rawpack.transforms.fused import resizes

        if resizes(settings.pipeline):
            warn(
                "this state is from a version of rawpack that made slightly other pixels of images that are shrunk; "
                "samples, their order and random numbers are the same"
            )
    epoch, position = state.get("epoch"), state.get("position")
    if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or position < 0:
        raise UsageError(f"this state is damaged: epoch {epoch!r}, position {position!r}")
    if position > order.length(epoch):
        raise UsageError(f"this state is damaged: position {position} of {order.length(epoch)}")
    return epoch, position
