"""Describes what is in a store."""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import NAME, Field
from rawpack.errors import StoreError, UsageError
from rawpack.remote.url import is_url
from rawpack.store.shard_files import Fetched
from rawpack.store.store import Store
from rawpack_packer import text
from rawpack_packer.counts import count_of, label_counts, noun_of
from rawpack_packer.destination import journal
from rawpack_packer.destination.folder import left_by, store_folder
from rawpack_packer.destination.journal import Reject
from rawpack_packer.options import OPTIONS
from rawpack_packer.progress import SaysWhy, waiting_for_store
from rawpack_packer.provenance import NOT_RECORDED, packing_runs, read_provenance
from rawpack_packer.text import Block, Shown, again, plain

_SHOWN, _LISTED, _APPENDS = 8, 20, 3
"""Lines of a list in the summary; entries of a list in JSON; appends in the summary."""
_AS_MANY = 0.95
"""From this share of the raw pixels on, nothing is said of it."""
_NOT_SHOWN = ("format", "libraries", "origin", "shard_size", "max_pixels", "sizes")
"""Settings of a recipe that only JSON shows."""
_MUCH = 100_000_000
"""Bytes that take a while to fetch."""
NO_CLASS = "(no class)"


class Description(Shown, dict[str, Any]):
    """What is in a store. Names and keys cannot move a terminal's cursor."""

    def in_words(self) -> list[Block]:
        blocks = [Block(text.plain(self["path"]), rows_of(self))]
        if self["classes"] is not None:
            blocks.append(_class_block(self["classes"], self["noun"]))
        several = len(_large(self["fields"])) > 1
        for field, described in self["fields"].items():
            if described["kind"] != "image" or described["sizes"] is None:
                continue
            sizes = list(described["sizes"].items())
            others = sum(count for _, count in sizes[_SHOWN:])
            shown = sizes[:_SHOWN] + [("other sizes", others)] * bool(others)
            head = f"sizes of {field}, height x width" if several else "sizes, height x width"
            blocks.append(Block(head, [(name, f"{count:,}") for name, count in shown]))
        if self["recipe"].get("origin"):
            blocks.append(_origin_block(self["recipe"]["origin"]))
        if counted := counts_of(self):
            blocks.append(Block("counted while packing", counted))
        if count := self["rejects"]["count"]:
            reasons = ", ".join(f"{reason} {number}" for reason, number in self["rejects"]["reasons"].items())
            first = self["rejects"]["first"][:_SHOWN]
            rows = [(text.plain(line["key"]), text.plain(f"{line['reason']}: {line['detail']}")) for line in first]
            blocks.append(Block(f"{text.count(count, 'reject')} ({text.plain(reasons)})", rows, count - len(rows)))
        return blocks


def describe(store: Store) -> Description:
    """What is in a store, as `rawpack inspect --json` prints it."""
    manifest = store.manifest
    stored = manifest.store_bytes
    raw, source, left = _raw_bytes(store), source_bytes(store), left_by(store.path)
    return Description(
        {
            "path": store.where,
            "format": manifest.format,
            "version": manifest.rawpack,
            "digest": store.digest,
            "samples": manifest.samples,
            "noun": noun_of(manifest.fields),
            "fields": {name: _field(store, name, field) for name, field in manifest.fields.items()},
            "classes": _classes(store),
            "sizes": _sizes(store, "image"),
            "shards": len(manifest.shards),
            "bytes": {
                "store": stored,
                "shards": manifest.shard_bytes,
                "columns": sum(record.bytes for part in manifest.columns for record in part.files),
                "per_sample": round(stored / max(1, manifest.samples), 1),
                "raw": raw,
                "of_raw": round(stored / raw, 4) if raw else None,
                "source": source,
                "of_source": round(stored / source, 4) if source else None,
            },
            "recipe": manifest.recipe,
            "counts": manifest.counts,
            "rejects": {
                "count": manifest.rejects.count,
                "reasons": manifest.rejects.reasons,
                "first": [
                    {"key": reject.key, "reason": reject.reason, "detail": reject.detail}
                    for reject in first_rejects(store, _LISTED)
                ],
            },
            "provenance": _provenance(store.path, 1),
            "appends": [_provenance(store.path, run) for run in packing_runs(manifest)[1:]],
            "appending": left == "append",
            "left_by": left,
        }
    )


def rows_of(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `describe` returns, for people: names and values, all that is one line each. Safe to show."""
    size, noun, appends = described["bytes"], described["noun"], described["appends"]
    classes = "" if described["classes"] is None else f" in {class_words(described['classes'], noun)}"
    stored = f"{text.size(size['store'])} in {text.count(described['shards'], 'shard')}"
    rows = [
        ("samples", text.count(described["samples"], noun) + classes),
        ("format", f"{described['format']}, version {described['version']}"),
        ("size", f"{stored}, {text.size(size['per_sample'])} per {noun}{of_raw(described)}"),
    ]
    if size["source"]:
        files = f"{text.size(size['source'])} of {'video' if noun == 'frame' else 'source'} files"
        ratio = text.times(size["store"] / size["source"]).replace("times", "times that")
        rows.append(("source", f"{files}; the store takes {ratio}"))
    large = _large(described["fields"])
    for name, field in described["fields"].items():
        values = (field["dtype"], field["shape"], field["encoding"], field["boxes"])
        size = f", {text.size(field['bytes'])}" if name in large and len(large) > 1 else ""
        rows.append((f"field {name}", " ".join(filter(None, values)) + size))
    rows.append(("recipe", _settings(described["recipe"])))
    if described["provenance"]:
        rows.append(("packed", _run_words(described["provenance"])))
    if len(appends) > _APPENDS:
        rows.append(("appended", f"{len(appends):,} times; the last {_APPENDS}:"))
    rows += [(_run_name(append), _run_words(append)) for append in appends[-_APPENDS:]]
    if described["left_by"] == "append":
        rows.append(("append", "unfinished; run the same `rawpack append` again to resume it"))
    elif described["left_by"] is not None:
        left = f"files of a {described['left_by']} that was stopped; the store is complete without them"
        rows.append(("left over", f"{left}, and {again()} removes them"))
    if not described["rejects"]["count"]:
        rows.append(("rejects", "none"))
    look = text.plain(shlex.join(["rawpack", "view", described["path"]]))
    return [*rows, ("digest", described["digest"]), ("look", look)]


def class_words(classes: Mapping[str, int], noun: str) -> str:
    """ "40 classes, 50 each", "3 classes, 0 to 1,200 each, and 5 images without a class"."""
    sizes = [count for name, count in classes.items() if name]
    words = text.count(len(sizes), "class", "classes")
    if len(sizes) > 1:
        words += f", {min(sizes):,} each" if is_even(classes) else f", {min(sizes):,} to {max(sizes):,} each"
    return words + (f", and {text.count(classes[''], noun)} without a class" if "" in classes else "")


def is_even(classes: Mapping[str, int]) -> bool:
    """Whether all classes have the same number of samples."""
    return len({count for name, count in classes.items() if name}) <= 1


def counts_of(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was counted while packing, without zeros: what, and how many."""
    of_boxes = "label" not in described["fields"]
    return [
        (text.plain(count_of(name, described["noun"], of_boxes=of_boxes)), f"{count:,}")
        for name, count in described["counts"].items()
        if count
    ]


def of_raw(described: Mapping[str, Any]) -> str:
    """How much smaller than raw pixels the store is: ", 12% of raw pixels"; empty if they are about as many."""
    share = described["bytes"]["of_raw"]
    if not share or share >= _AS_MANY:
        return ""
    digits = 0 if share >= 0.01 else 1
    return f", {share:.{digits}%} of " + ("a decoded frame" if described["noun"] == "frame" else "raw pixels")


def _large(fields: Mapping[str, Any]) -> list[str]:
    """The images and masks among the described fields."""
    return [name for name, field in fields.items() if field["bytes"] is not None]


def _field(store: Store, name: str, field: Field) -> dict[str, Any]:
    return {
        "kind": field.kind,
        "dtype": field.dtype,
        "shape": text.shape(field.shape),
        "encoding": field.encoding if field.in_shards else "",
        "boxes": str(field.boxes if field.is_boxes else field.follows) if field.moves else "",
        "bytes": _stored_bytes(store, name, field) if field.in_shards else None,
        "sizes": _sizes(store, name) if field.in_shards else None,
    }


def _stored_bytes(store: Store, name: str, field: Field) -> int:
    """Bytes of one image or mask field in all shards."""
    arrays = [folder.arrays for folder in store.columns.folders]
    if field.deflated:
        return sum(int(columns[f"{name}.chunk"][:, 1].sum()) for columns in arrays)
    if "bytes" in field.codec.index or not field.uniform:
        return sum(int(columns[f"{name}.bytes"].sum()) for columns in arrays)
    return len(store) * math.prod(field.stored_shape) * np.dtype(field.dtype).itemsize


def _classes(store: Store) -> dict[str, int] | None:
    """Class name -> samples; "" counts those without a class."""
    if store.manifest.classes is None or "label" not in store.fields:
        return None
    counts = label_counts(store)
    named = {name: counts[label] for label, name in enumerate(store.manifest.classes)}
    return named | ({"": counts[-1]} if counts[-1] else {})


def _sizes(store: Store, name: str) -> dict[str, int] | None:
    """How many images of a field there are of each size, the most frequent first; None if all have the same."""
    if store.fields[name].uniform:
        return None
    counts: Counter[str] = Counter()
    for folder in store.columns.folders:
        shapes, numbers = np.unique(folder.arrays[f"{name}.shape"][:, :2], axis=0, return_counts=True)
        counts.update({f"{h}x{w}": n for (h, w), n in zip(shapes.tolist(), numbers.tolist(), strict=True)})
    most = dict(counts.most_common(_LISTED))
    rest = counts.total() - sum(most.values())
    return most | ({text.count(len(counts) - len(most), "other size"): rest} if rest else {})


def _raw_bytes(store: Store) -> int:
    """Bytes of all images and masks as raw pixels."""
    total = 0
    for name, field in store.fields.items():
        if not field.in_shards:
            continue
        if field.uniform:
            values = len(store) * math.prod(n or 1 for n in field.shape)
        else:
            shapes = [folder.arrays[f"{name}.shape"].astype(np.int64) for folder in store.columns.folders]
            values = sum(int(each.prod(axis=1).sum()) for each in shapes)
        total += values * np.dtype(field.dtype).itemsize
    return total


def source_bytes(store: Store) -> int | None:
    """Bytes of the images and masks that the store was packed from, as packing counted them; None where unknown."""
    total = 0
    for source, files in _packed(store):
        if not len(files):
            continue  # stores, or new labels
        counted = source.get("bytes")
        if not isinstance(counted, int):  # packed by a version that did not record it
            if (files < 0).any():
                return None
            counted = int(files.sum())
        total += counted
    return total if total > 0 else None


def source_files(store: Store) -> NDArray[np.int64]:
    """Bytes of the files of the samples that the store was packed from, where they are known."""
    sizes = [files[files >= 0] for _, files in _packed(store)]
    return np.concatenate(sizes) if sizes else np.empty(0, np.int64)


def _packed(store: Store) -> list[tuple[Mapping[str, Any], NDArray[np.int64]]]:
    """For each run, the last one first: what it recorded of its source, and the bytes of the files of its samples, -1
    where unknown; without the archives or tables that samples are in, whose bytes would count twice. Nothing if a run
    recorded nothing."""
    runs = list[tuple[Mapping[str, Any], NDArray[np.int64]]]()
    end = store.manifest.samples + store.manifest.rejects.count
    for run in reversed(packing_runs(store.manifest)):
        try:
            about, states = read_provenance(store.path, run)
            source, first = about.get("source"), int(about["first"]) if run > 1 else 0
        except (*NOT_RECORDED, KeyError, TypeError, ValueError):
            return []
        if states.ndim != 2 or states.shape[1] != 2:
            return []
        runs.append((source if isinstance(source, dict) else {}, states[: max(0, end - first), 0]))
        end = first
    return runs


def first_rejects(store: Store, most: int) -> list[Reject]:
    """Up to `most` rejects; as many as there are before damage. Raises OSError, StoreError."""
    rejects: list[Reject] = []
    with contextlib.suppress(*NOT_RECORDED, ValueError):
        rejects += itertools.islice(journal.read_rejects(store.path, store.manifest), most)
    return rejects


def _provenance(path: Path, run: int) -> dict[str, Any]:
    try:
        return read_provenance(path, run)[0]
    except NOT_RECORDED:
        return {}


def _class_block(classes: dict[str, int], noun: str) -> Block:
    """The names of classes, with counts where these differ."""
    if is_even(classes) and "" not in classes:
        return Block("classes", [(text.listed(list(classes), _SHOWN), "")])
    shown = sorted(classes.items(), key=lambda item: -item[1])
    rows = [(text.plain(name) or NO_CLASS, f"{count:,}") for name, count in shown[:_SHOWN]]
    return Block(f"{noun}s in each class", rows, len(shown) - _SHOWN)


def _origin_block(origin: Any) -> Block:
    """The stores that a store was made of. Another person's manifest may say anything here."""
    stores = [base for base in origin if isinstance(base, dict)] if isinstance(origin, list) else []
    rows = [(text.plain(str(base.get("digest"))), _settings(base.get("recipe"), "format")) for base in stores[:_SHOWN]]
    return Block("made of stores", rows, len(stores) - _SHOWN)


def _settings(recipe: Any, *first: str) -> str:
    """What a recipe does to images: "size 256, fit cover". first: names that come before all others."""
    if not isinstance(recipe, dict):
        return ""
    if isinstance(sizes := recipe.get("sizes"), dict):
        named = {"image": recipe.get("size"), **sizes}
        recipe = recipe | {"size": " ".join(f"{name}={size}" for name, size in named.items())}
    names = [*first, *(name for name in recipe if name not in _NOT_SHOWN)]
    words = {name: option.also.get(str(recipe.get(name))) for name, option in OPTIONS.items() if option.also}
    shown = (f"{name} {words.get(name) or recipe[name]}" for name in names if recipe.get(name) not in (None, False))
    return text.plain(", ".join(shown))


def _run_name(provenance: dict[str, Any]) -> str:
    fields = provenance.get("relabeled")
    return f"relabeled {text.plain(', '.join(map(str, fields)))}" if isinstance(fields, list) else "appended"


def _run_words(provenance: dict[str, Any]) -> str:
    """When, where and from what a run packed: "2026-01-31 12:34 UTC on host from photos"."""
    if not provenance:
        return "when and from what is not known"
    source = provenance.get("source")
    words = [f"{str(provenance.get('finished', ''))[:16].replace('T', ' ')} UTC"]
    words += [f"on {provenance['host']}"] if "host" in provenance else []
    words += [f"from {source['root']}"] if isinstance(source, dict) and source.get("root") else []
    words += [f"by rawpack {provenance['rawpack']}"] if "rawpack" in provenance else []
    return text.plain(" ".join(words))


def open_store(name: str, follower: SaysWhy | None = None) -> Store:
    """The store in a folder, or at a URL, whose manifest and columns are then fetched. follower: says what is waited
    for. Raises UsageError if there is no such folder, StoreError if it is not a store."""
    if not is_url(name):
        folder = store_folder(name)
        try:
            return Store(folder)
        except StoreError as error:
            if type(error) is StoreError and not (folder / NAME).exists() and _has_image(folder):
                command = shlex.join(["rawpack", "pack", name])
                raise StoreError(f"{error}; to make a store of its images: `{plain(command)} STORE`") from None
            raise
    from rawpack.remote.cache import CacheFolder
    from rawpack.remote.origin import open_origins

    with waiting_for_store(follower) as asks:
        (origin,) = open_origins([name], CacheFolder(), asks=asks)
    if follower is not None and origin.small_bytes > _MUCH:
        follower.waits(f"fetching labels, keys and the index, {text.size(origin.small_bytes)}")
    return Store(Fetched(origin), origin.manifest_bytes)


def _has_image(folder: Path) -> bool:
    """Whether there is an image in a folder, or below it."""
    from rawpack_packer.sources.folder import holds_image
    from rawpack_packer.sources.look.listing import Listing

    try:
        return holds_image(Listing(folder))
    except (UsageError, OSError):
        return False
