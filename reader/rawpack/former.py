"""What the keywords of development versions are called now: for the errors of who still writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Given = Mapping[str, Any]
_Rows = Mapping[tuple[str, ...], Callable[[Given], str]]


def _call(name: str, *first: Any, **rest: Any) -> str:
    """A call in Python, without the arguments that are None."""
    given = [repr(value) for value in first if value is not None]
    given += [f"{name}={value!r}" for name, value in rest.items() if value is not None]
    return f"{name}({', '.join(given)})"


def _ranks(given: Given) -> str:
    rank, world, last = (given.get(name) for name in ("rank", "world_size", "uneven"))
    numbers = ("auto",) if rank == "auto" or rank is world is None else (rank or 0, world or 1)
    if last is not None:
        return f"ranks={_call('Ranks', *numbers, last=last)}"
    return f"ranks={numbers}" if len(numbers) == 2 else 'ranks="auto"'


def _workers(given: Given) -> str:
    kept = {"backend": given.get("backend"), "timeout": given.get("timeout"), "max_held": given.get("max_slots")}
    return f"workers={_call('Workers', given.get('workers'), **kept)}"


def _decode(given: Given) -> str:
    if given.get("color") is not None:
        return 'decode="planes"'
    encoded = given.get("encoded")
    return f"decode={dict.fromkeys(encoded, False) if isinstance(encoded, list | tuple) else not encoded}"


def _cache(given: Given) -> str:
    folder, limit = given.get("cache"), given.get("cache_bytes")
    kept = {"timeout": given.get("timeout")}
    return f"cache={_call('Cache', folder, limit, **kept) if folder else _call('Cache', limit=limit, **kept)}"


_BATCHES: _Rows = {
    ("block", "window"): lambda given: (
        f"shuffle={_call('Blocks', block=given.get('block'), window=given.get('window'))}"
    ),
    ("rank", "world_size", "uneven"): _ranks,
    ("backend", "timeout", "max_slots"): _workers,
    ("buckets",): lambda given: f"image_size={_call('Buckets', given['buckets'], area=given.get('image_size'))}",
    ("color", "encoded"): _decode,
    ("progress",): lambda given: "`for batch in tqdm(batches)`, which shows a bar",
}
"""Keywords that are gone -> what to write."""
_READER: _Rows = {("cache_bytes", "timeout"): _cache}
_MIX: _Rows = {
    ("split", "preload", "verify", "cache", "cache_bytes", "storage_options", "timeout"): lambda given: (
        "keywords of the readers: Reader.mix([(Reader(path, ...), share), ...])"
    )
}


def _now(rows: _Rows) -> Callable[[Given], str | None]:
    def now(given: Given) -> str | None:
        for names, made in rows.items():
            found = [name for name in names if name in given]
            if found:
                what = ", ".join(f"{name}={given[name]!r}" for name in found)
                return f"{what} {'is' if len(found) == 1 else 'are'} now {made(given)}"
        return None

    return now


batches_now, reader_now, mix_now = map(_now, (_BATCHES, _READER, _MIX))
