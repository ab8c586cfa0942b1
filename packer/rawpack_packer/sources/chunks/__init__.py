"""MDS of MosaicML Streaming, and litdata: files of many samples each, here called shards, which an `index.json` lists.

Both begin a file with the number of its samples and the offset of each. A sample is the lengths of its values, as far
as the index does not have them, and the values, which are encoded by what the index says of their column.

| file | holds |
|---|---|
| `index.py` | what an index says: the shards, and the columns with their encodings |
| `mds.py`, `litdata.py` | the indexes of the two, and their names for encodings |
| `shards.py` | where values are in a shard, which is checked, and decompressed |
| `source.py` | columns as a source |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from rawpack_packer.sources.folder import is_split, split_order
from rawpack_packer.sources.look.listing import Listing

INDEX = "index.json"
_SIGNS: Mapping[str, tuple[str, ...]] = {"mds": ("shards",), "litdata": ("chunks", "config")}


def splits_of(listing: Listing) -> list[str]:
    """The splits that a folder is divided into, train first; empty where there are fewer than two."""
    return folders if len(folders := folders_of(listing)) > 1 else []


def folders_of(listing: Listing) -> list[str]:
    """The folders with an index in a folder that has none itself, if they have names of splits; train first."""
    if (listing / INDEX).is_file:
        return []
    return sorted(
        (name for name in listing.names if is_split(name) and (listing / name / INDEX).is_file), key=split_order
    )


def _holds(listing: Listing, kind: str) -> bool:
    own = listing if listing.path.name == INDEX else listing / INDEX
    indexes = [own, *(listing / name / INDEX for name in folders_of(listing)[:1])]
    index = next((index for index in indexes if index.is_file or index.is_url), None)
    try:
        members = {} if index is None else msgspec.json.decode(index.contents(), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return next((sign for sign, names in _SIGNS.items() if {*names} <= {*members}), "") == kind


is_mds, is_litdata = partial(_holds, kind="mds"), partial(_holds, kind="litdata")
"""Whether a path is that of such an index, of its folder, or of a folder of such folders."""
