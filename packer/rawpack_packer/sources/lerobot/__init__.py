"""LeRobot's datasets, v2 and v3: robots' episodes, with videos of several cameras, states and actions.

| file | holds |
|---|---|
| `meta.py` | what `meta/` says: features, episodes and where they are, tasks |
| `source.py` | the rows of all episodes as a source, and the frames of each camera, found by their times |

Here: what shows that a folder is such a dataset, and its splits. Only this is loaded without pyarrow.

A split is a range of episodes in `meta/info.json`. Its path is that of the dataset and the name of the split, as if it
were a folder in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from rawpack_packer.sources.folder import split_order
from rawpack_packer.sources.look.listing import Listing

INFO = "meta/info.json"


class _InfoSigns(msgspec.Struct):
    """What of `INFO` shows that it is LeRobot's."""

    codebase_version: str
    features: dict[str, Any]
    splits: dict[str, str] = {}


def is_lerobot(listing: Listing) -> bool:
    """Whether a path is that of a dataset, of its `INFO`, or of a split of it."""
    info = listing if listing.path.name == "info.json" else listing / INFO
    if listing.exists or listing.is_url:
        return _signs_in(info) is not None
    above = _signs_in(listing.above / INFO)
    return above is not None and listing.path.name in above.splits


def splits_of(listing: Listing) -> list[str]:
    """The names of the splits of a dataset, train first; empty where there are fewer than two."""
    signs = _signs_in(listing / INFO)
    names = sorted(signs.splits, key=split_order) if signs is not None else []
    return names if len(names) > 1 else []


def _signs_in(listing: Listing) -> _InfoSigns | None:
    data = listing.contents()
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):  # which are ValueErrors in later versions only
        return msgspec.json.decode(data, type=_InfoSigns)
    return None
