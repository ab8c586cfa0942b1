"""Forged stores whose checksums all fit: those of files, of heads, of samples and of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hostile.copies import Copy, Mutation

_BYTES = (0x7F, 0x80, 0xC3, 0xED, 0xFF)


def refitted(sound: Copy) -> Iterator[Mutation]:
    """Cases of one store: every column and every header of a shard changed in ways that a reader may stumble over."""
    yield Mutation("nothing", "changed", _refit)
    for record in sound.tree["columns"][0]["files"]:
        name = record["name"].removesuffix(".npy")
        values = sound.array(name)
        if name.endswith(".xxh3") or not values.size:
            continue
        for what, change in _changes(name, values):
            yield Mutation(name, what, partial(_put, name=name, change=change))
        for at in (6, 20, 60):
            yield Mutation(name, f"header, byte {at}", partial(_flip, file=sound.column(name), at=at))
    for shard in sound.shards:
        for at in (0, 9, 20, 60, 4096):
            yield Mutation(shard, f"byte {at}", partial(_flip, file=shard, at=at))
    for what in ("file", "offset", "bytes", "chunks", "chunk_bytes"):
        for step in (-1, 1, 64):
            yield Mutation("placement", f"{what} {step:+d}", partial(_place, what=what, step=step))
    for shape in ([20, 24, 1], [24, 20, 3], [None, None, 1], [20, None, 3], [None, None, 3]):
        yield Mutation("image", f"of {shape}", partial(_shape, shape=shape))


def _changes(name: str, values: NDArray[Any]) -> Iterator[tuple[str, Callable[[NDArray[Any]], object]]]:
    def at(position: int, number: int) -> Callable[[NDArray[Any]], object]:
        def change(array: NDArray[Any]) -> None:
            array.reshape(-1)[position] = number

        return change

    yield "reversed", lambda array: np.ascontiguousarray(array[::-1])
    yield "one less", lambda array: array[:-1].copy()
    middle = values.size // 2
    if values.dtype == np.uint8:
        for number in _BYTES:
            yield f"{number} in the middle", at(middle, number)
            yield f"{number} at the end", at(-1, number)
        return
    limits = np.iinfo(values.dtype)
    for number in (max(-1, limits.min), 0, 1, min(1 << 20, limits.max), limits.max, limits.min):
        for position in (0, middle, -1):
            yield f"{number} at {position}", at(position, number)
    for step in (-1, 1):
        yield f"all {step:+d}", lambda array, step=step: array + np.array(step, array.dtype)
        yield f"one {step:+d}", at(middle, int(values.reshape(-1)[middle]) + step)


def _put(copy: Copy, name: str, change: Callable[[NDArray[Any]], object]) -> None:
    array = copy.array(name)
    changed = change(array)
    copy.put(name, changed if isinstance(changed, np.ndarray) else array)
    _refit(copy)


def _flip(copy: Copy, file: str, at: int) -> None:
    data = copy.read(file)
    data[min(at, len(data) - 1)] ^= 4
    copy.forge(file, bytes(data))
    _refit(copy, samples=not file.startswith("columns"))  # the bytes of samples are what they were


def _place(copy: Copy, what: str, step: int) -> None:
    copy.tree["shards"][0]["fields"]["image"][what] += step
    _refit(copy)


def _shape(copy: Copy, shape: list[int | None]) -> None:
    copy.tree["fields"]["image"]["shape"] = shape
    _refit(copy)


def _refit(copy: Copy, *, samples: bool = True) -> None:
    """Write all checksums anew: of samples where the index says where their bytes lie."""
    row = 0
    for shard in copy.tree["shards"] if samples else []:
        for name, placement in shard["fields"].items():
            _refit_samples(copy, name, shard, placement, row)
        row += shard["rows"]
    for part in copy.tree["columns"]:
        for record in part["files"]:
            _record(record, bytes(copy.read(f"{part['folder']}/{record['name']}")), head=False)
    for shard in copy.tree["shards"]:
        for record in shard["files"]:
            _record(record, bytes(copy.read(record["name"])), head=True)
    copy.seal()


def _refit_samples(copy: Copy, name: str, shard: Any, placement: Any, first: int) -> None:
    field = copy.tree["fields"][name]
    if "deflate" in field["encoding"] or not 0 <= placement["file"] < len(shard["files"]):
        return
    data = bytes(copy.read(shard["files"][placement["file"]]["name"]))
    try:
        offsets, sizes, sums = (copy.array(f"{name}.{what}") for what in ("offset", "bytes", "xxh3"))
    except FileNotFoundError:
        return
    for row in range(first, min(first + shard["rows"], len(sums), len(offsets), len(sizes))):
        start, size = int(offsets[row]), int(sizes[row])
        if 0 <= start <= start + size <= len(data):
            sums[row] = xxhash.xxh3_64_intdigest(data[start : start + size])
    copy.put(f"{name}.xxh3", sums)


def _record(record: Any, data: bytes, *, head: bool) -> None:
    record["bytes"], record["xxh3"] = len(data), xxhash.xxh3_64_hexdigest(data)
    if head:
        record["head"] = xxhash.xxh3_64_hexdigest(data[:8192])
