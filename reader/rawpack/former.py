"""What to write instead of the keywords of other loaders: for the errors of who still writes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

_DATALOADER = {
    "num_workers": "workers={num_workers}",
    "batch_sampler": "sampler=, with the samples in their order",
    "generator": "seed=, a number",
    "collate_fn": "a step of transform=, such as rawpack.transforms.BatchLambda",
    "timeout": "workers=Workers(timeout={timeout})",
    **dict.fromkeys(
        ("prefetch_factor", "prefetch", "pin_memory", "persistent_workers", "worker_init_fn"),
        "=batches are made in advance, by workers that are kept",
    ),
}
"""Keywords of torch's DataLoader -> what to write, with their values; or, after "=", why there is nothing like it."""
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
    **dict.fromkeys(("num_replicas", "world_size", "rank"), "ranks={ranks}"),
    "as_tuple": "batches(...).torch(as_tuple={as_tuple})",
    "device": "batches(...).torch({device})",
}
"""Keywords of datasets and samplers, and of loaders of tensors -> the same."""
_READER = {
    **dict.fromkeys(("transforms", "target_transform", "transform"), "reader.batches(..., transform=[...])"),
    "delta_timestamps": "Reader(path).clips(offsets={delta_timestamps})",
    "cache_limit": "cache=Cache({cache}, limit={cache_limit})",
}
_CLIPS = {
    "delta_timestamps": "offsets={delta_timestamps}",
    **{name: f"frames={{{name}}}" for name in ("num_frames", "n_frames", "clip_length", "clip_len", "length")},
    **{name: f"stride={{{name}}}" for name in ("frame_step", "frame_interval", "dilation")},
    **{name: f"per_video={{{name}}}" for name in ("clips_per_video", "num_clips")},
    **dict.fromkeys(
        ("fps", "frame_rate"),
        "=clips count stored frames, which `rawpack pack --fps` chose; stride=2 takes every second",
    ),
}
"""Keywords of loaders of clips -> the same."""
_OWNERS = (("DataLoader's ", _DATALOADER), ("FFCV's ", _FFCV))
_IDLE: Mapping[str, Any] = {"distributed": False, "timeout": 0}
"""Values that ask for nothing, besides None."""


def _now(rows: Mapping[str, str], given: Mapping[str, Any]) -> str | None:
    """What to write instead of keywords of a call that `rows` has; None where it has none of them."""
    world, rank = given.get("world_size", given.get("num_replicas", "world_size")), given.get("rank", "auto")
    values = {name: repr(value) for name, value in given.items()} | {"cache": repr(given.get("cache"))}
    values["ranks"] = '"auto"' if rank == "auto" else f"({rank}, {world})"
    lines = []
    for line in dict.fromkeys(rows[name] for name in rows if name in given):
        names = [name for name in given if rows.get(name) == line]
        shown = ", ".join(f"{name}={given[name]!r}" for name in names)
        if all(given[name] is None or given[name] == _IDLE.get(name) for name in names):
            lines.append(f"leave out {shown}")
        elif line[0] == "=":
            lines.append(f"leave out {shown}: {line[1:]}")
        else:
            owner = next((owner for owner, words in _OWNERS if names[0] in words), "")
            lines.append(f"{owner}{shown} {'is' if len(names) == 1 else 'are'} {line.format_map(values)} here")
    return "; ".join(lines) or None


batches_now, reader_now, clips_now = (partial(_now, rows) for rows in (_DATALOADER | _FFCV | _DATASET, _READER, _CLIPS))
