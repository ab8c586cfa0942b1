"""What to write instead of the keywords of development versions, and of those of other loaders: for the errors of who
still writes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

_RANKS = "ranks=({rank}, {world_size})"
_WORKERS = "workers=Workers({workers}, backend={backend}, timeout={timeout})"
_BATCHES = {
    **dict.fromkeys(("block", "window"), "shuffle=Blocks(block={block}, window={window})"),
    "uneven": "ranks=Ranks({rank}, {world_size}, last={uneven})",
    **dict.fromkeys(("rank", "world_size"), _RANKS),
    **dict.fromkeys(("backend", "timeout"), _WORKERS),
    "buckets": "image_size=Buckets({buckets}, area={image_size})",
    "color": 'decode="planes"',
    "encoded": "decode=False, or by field: decode={{'image': False}}",
    "progress": "`for batch in tqdm(batches)`, which shows a bar",
}
"""Keywords that are gone -> what to write instead of them, with the values of a call. Of those with the same option,
the first one counts."""
_IDLE: Mapping[str, tuple[Any, ...]] = {
    "encoded": (False, None, [], ()),
    "progress": (False,),
    "color": ("rgb",),
    "distributed": (False,),
}
"""Values that asked for nothing, besides None."""
_READER = dict.fromkeys(("cache_bytes", "timeout"), "cache=Cache({cache}, limit={cache_bytes}, timeout={timeout})")
_READER |= {"cache_limit": "cache=Cache({cache}, limit={cache_limit})"}
_READER |= {"delta_timestamps": "Reader(path).clips(offsets={delta_timestamps})"}
_READER |= dict.fromkeys(("transforms", "target_transform", "transform"), "reader.batches(..., transform=[...])")
_CLIPS = {"delta_timestamps": "offsets={delta_timestamps}"}
_MIX = dict.fromkeys(
    ("split", "preload", "verify", "cache", "cache_bytes", "storage_options", "timeout"),
    "keywords of the readers: Reader.mix([(Reader(path, ...), share), ...])",
)
_STATE = {"after_batches": "after={after_batches}"}
_OTHERS = {
    "last": "ranks=Ranks(rank, world_size, last={last})",
    "device": "batches(...).torch({device})",
}
"""Keywords of values of this loader -> the same."""
_FFCV = {
    "distributed": 'ranks="auto"',
    "order": 'shuffle=, which is True, False or "block"',
    "indices": "reader.select(indices).batches(...)",
    "pipelines": "transform=[...]",
    **dict.fromkeys(("batches_ahead", "os_cache", "recompile"), "=batches are made in advance, from the page cache"),
}
"""Keywords of FFCV's Loader -> the same."""
_DATASET = {
    **dict.fromkeys(("transforms", "augment"), "transform=[...]"),
    "target_transform": "transform=[..., Lambda(function, field='label')]",
    "columns": "fields={columns}",
    "size": "image_size={size}",
    "resize": "image_size={resize}",
    "num_replicas": _RANKS,
    "as_tuple": "batches(...).torch(as_tuple={as_tuple})",
}
"""Keywords of torch's and torchvision's datasets and samplers, and of other methods here -> the same."""
_DATALOADER = {
    "num_workers": "workers={num_workers}",
    "batch_sampler": "sampler=, with the samples in their order",
    "generator": "seed=, a number",
    "collate_fn": "a step of transform=, such as rawpack.transforms.BatchLambda",
    **dict.fromkeys(
        ("prefetch_factor", "prefetch", "pin_memory", "persistent_workers", "worker_init_fn"),
        "=batches are made in advance, by workers that are kept",
    ),
}
"""Keywords of torch's DataLoader -> the same; or, after "=", why there is nothing like it."""


def _now(rows: Mapping[str, str], given: Mapping[str, Any]) -> str | None:
    """What to write instead of keywords of a call that `rows` has; None where it has none of them."""
    values = {name: repr(value) for name, value in given.items() if value is not None}
    values |= {"world_size": values["num_replicas"]} if "num_replicas" in values else {}
    values |= {} if "world_size" in values or values.get("rank") == "'auto'" else {"world_size": "world_size"}
    values |= {} if "rank" in values else {"rank": "rank" if "world_size" in given else "'auto'"}
    if values["rank"] == "'auto'":
        values["world_size"] = "?"
    groups, lines = defaultdict[str, list[str]](list), list[str]()
    for name in rows:
        if name in given:
            groups[rows[name].partition("=")[0]].append(name)
    for names in groups.values():
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if name in names)
        if all(given[name] is None or given[name] in _IDLE.get(name, ()) for name in names):
            lines.append(f"leave out {shown}")
            continue
        line = next(rows[name] for name in rows if name in names and given[name] is not None)
        now = _without_gaps(line.format_map(defaultdict(lambda: "?", values)))
        if now[0] == "=":
            lines.append(f"leave out {shown}: {now[1:]}")
        elif names[0] in _DATALOADER or names[0] in _FFCV:
            lines.append(f"{'DataLoader' if names[0] in _DATALOADER else 'FFCV'}'s {shown} is {now} here")
        elif names[0] in _DATASET or "transform" in names:
            lines.append(f"{shown} is {now} here")
        else:
            lines.append(f"{shown} {'is' if len(names) == 1 else 'are'} now {now}")
    return "; ".join(lines) or None


def _without_gaps(line: str) -> str:
    """A line without the values that were not given."""
    line = re.sub(r"(\w+=)?\?, |, (\w+=)?\?", "", line)
    return line.replace("ranks=('auto')", "ranks='auto'")


batches_now, reader_now, clips_now, mix_now, state_now = (
    partial(_now, rows) for rows in (_BATCHES | _OTHERS | _DATASET | _DATALOADER | _FFCV, _READER, _CLIPS, _MIX, _STATE)
)
