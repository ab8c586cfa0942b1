"""What the keywords of development versions are called now: for the errors of who still writes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

_BATCHES = {
    **dict.fromkeys(("block", "window"), "shuffle=Blocks(block={block}, window={window})"),
    "uneven": "ranks=Ranks({rank}, {world_size}, last={uneven})",
    "world_size": "ranks=({rank}, {world_size})",
    "rank": "ranks='auto', or ranks=(rank, world_size)",
    **dict.fromkeys(
        ("backend", "timeout", "max_slots"),
        "workers=Workers({workers}, backend={backend}, timeout={timeout}, max_held={max_slots})",
    ),
    "buckets": "image_size=Buckets({buckets}, area={image_size})",
    "color": 'decode="planes"',
    "encoded": "decode=False, or by field: decode={{'image': False}}",
    "progress": "`for batch in tqdm(batches)`, which shows a bar",
}
"""Keywords that are gone -> what to write instead of them, with the values of a call. The first one in it counts."""
_READER = dict.fromkeys(("cache_bytes", "timeout"), "cache=Cache({cache}, limit={cache_bytes}, timeout={timeout})")
_MIX = dict.fromkeys(
    ("split", "preload", "verify", "cache", "cache_bytes", "storage_options", "timeout"),
    "keywords of the readers: Reader.mix([(Reader(path, ...), share), ...])",
)


def _now(rows: Mapping[str, str], given: Mapping[str, Any]) -> str | None:
    line = next((line for name, line in rows.items() if name in given), None)
    if line is None:
        return None
    option = line.partition("=")[0]
    found = [f"{name}={value!r}" for name, value in given.items() if rows.get(name, "").partition("=")[0] == option]
    known = {name: repr(value) for name, value in given.items() if value is not None}
    values = defaultdict(lambda: "?", {"rank": "rank" if "world_size" in known else "'auto'"} | known)
    now = re.sub(r"(\w+=)?\?, |, (\w+=)?\?", "", line.format_map(values))  # without what was not given
    return f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} now {now}"


batches_now, reader_now, mix_now = (partial(_now, rows) for rows in (_BATCHES, _READER, _MIX))
