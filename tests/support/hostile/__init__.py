"""Stores that a stranger damaged or forged: sound ones are packed, and every structural field of them is mutated.

A case is one change to a copy of one sound store. A change of the manifest is sealed again, and a change of a file is
written into the manifest (its size, and the checksum of its head), so that not the seals are tested but what lies
behind them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from hostile.bombs import bombs
from hostile.columns import column_values, npy_headers
from hostile.copies import OUTSIDE, Copy, Mutation
from hostile.files import folders, replacements, truncations
from hostile.manifests import manifest_texts, manifest_values
from hostile.shards import foreign_hdf5, jpeg_headers, lmdb_pages, structural_bytes
from hostile.stores import VARIANTS, make_images, make_store

__all__ = ["OUTSIDE", "VARIANTS", "Copy", "Mutation", "daily", "make_images", "make_store", "mutations"]

_WHOLE = ("memmap-keep", "hdf5-gzip-keep", "lmdb-keep")
"""The variants that have all fields of their format: every day, each of their fields is mutated."""
_SOME, _SHARE = 8, 80
"""Of the other variants, one in so many fields; of each field, one in so many values, and at least one."""


_EACH = ("manifest", "manifest, unsealed", "bomb", "pieces", "images")
"""Fields whose cases are each of their own kind: no value stands for another."""


def mutations(sound: Path, variant: str) -> Iterator[Mutation]:
    """All cases of one variant."""
    copy = Copy(sound)
    yield Mutation("nothing", "changed", lambda copy: None, check=True)
    yield from manifest_values(copy.tree)
    yield from manifest_texts()
    columns = {record["name"].removesuffix(".npy"): "" for record in copy.tree["columns"][0]["files"]}
    for name in columns:
        yield from npy_headers(copy.column(name))
        yield from column_values(name, copy.array(name))
    yield from bombs(variant)
    for shard in copy.shards:
        yield from truncations(shard, (sound / shard).stat().st_size)
        if variant.startswith("memmap"):
            yield from npy_headers(shard)
        else:
            yield from structural_bytes(shard, variant)
    if variant.startswith("hdf5"):
        yield from foreign_hdf5(copy.shards[0])
    if variant.startswith("lmdb"):
        yield from lmdb_pages(copy.shards[0])
        yield from jpeg_headers(copy)
    for file in ("store.json", "rejects.jsonl", "provenance.json", *map(copy.column, columns)):
        yield from truncations(file, (sound / file).stat().st_size)
    others = ("store.json", "rejects.jsonl", "provenance.json", "provenance.npy", copy.shards[0])
    for file in (*others, *map(copy.column, columns)):
        yield from replacements(file)
    yield from folders()


def daily(cases: Sequence[Mutation], variant: str) -> list[Mutation]:
    """The cases for every day: of each field of each format at least one, other values in other variants; of the fields
    of a manifest that are the same in all formats, in one format."""
    fields: dict[str, list[Mutation]] = {}
    for case in cases:
        fields.setdefault(case.field, []).append(case)
    shift, picked = list(VARIANTS).index(variant), []
    for number, group in enumerate(fields.values()):
        name = group[0].field
        if variant not in _WHOLE and (number + shift) % _SOME:
            continue
        if variant in _WHOLE and _is_of_all(name) and _WHOLE[zlib.crc32(name.encode()) % len(_WHOLE)] != variant:
            continue
        count = len(group) if name in _EACH else -(-len(group) // _SHARE)
        picked += [group[(shift * 17 + number * 7 + k * len(group) // count) % len(group)] for k in range(count)]
    return picked


def _is_of_all(field: str) -> bool:
    """Whether a field means the same in all formats: one of a manifest, but for where a shard has its images."""
    return field.startswith("manifest") and not ("/shards/" in field or " shards/" in field)
