"""What is in a store: for a program as a dict, for a person as text."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rawpack.disk.manifest import Field
from rawpack.disk.provenance import packing_runs, read_provenance
from rawpack.errors import RawpackError
from rawpack.store.store import Store
from rawpack_packer import text
from rawpack_packer.destination import journal
from rawpack_packer.destination.folder import is_appending
from rawpack_packer.job.counts import count_of, label_counts
from rawpack_packer.sources.video_numbers import are_frames

_SHOWN, _APPENDS = 20, 3


def describe(store: Store) -> dict[str, Any]:
    """All that `rawpack inspect` says, for a program."""
    manifest = store.manifest
    stored = manifest.shard_bytes
    columns = sum(record.bytes for part in manifest.columns for record in part.files)
    raw, source = _raw_bytes(store), _source_bytes(store)
    return {
        "path": store.where,
        "format": manifest.format,
        "version": manifest.rawpack,
        "digest": store.digest,
        "samples": manifest.samples,
        "noun": "frame" if are_frames(manifest.fields) else "image",
        "fields": {name: _field(field) for name, field in manifest.fields.items()},
        "classes": _classes(store),
        "sizes": _sizes(store),
        "shards": len(manifest.shards),
        "bytes": {
            "shards": stored,
            "columns": columns,
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
                {"key": reject.key, "reason": reject.reason, "detail": reject.detail} for reject in _rejects(store)
            ],
        },
        "provenance": _provenance(store.path, 1),
        "appends": [_provenance(store.path, run) for run in packing_runs(manifest)[1:]],
        "appending": is_appending(store.path),
    }


def as_text(about: dict[str, Any]) -> str:
    """The same for a person. Nothing in it can move the cursor: keys and names come from strangers."""
    size = about["bytes"]
    rows = [
        ("format", f"{about['format']}, version {about['version']}"),
        ("samples", f"{about['samples']:,}"),
        ("shards", f"{about['shards']:,}, {text.size(size['shards'])} and {text.size(size['columns'])} of columns"),
        ("a sample", f"{text.size(size['per_sample'])}{of_raw(about)}"),
    ]
    if size["source"]:
        files = "video files" if about["noun"] == "frame" else "source files"
        rows.append(("packed from", f"{text.size(size['source'])} of {files}: {text.times(size['of_source'])}"))
    rows += [
        (f"field {name}", " ".join(filter(None, (field["dtype"], field["shape"], field["encoding"], field["boxes"]))))
        for name, field in about["fields"].items()
    ]
    rows.append(("digest", about["digest"]))
    blocks = [f"{text.plain(about['path'])}\n{text.table(rows)}"]
    if about["classes"] is not None:
        blocks.append(_class_text(about["classes"]))
    if about["sizes"] is not None:
        blocks.append(
            "sizes, height x width\n" + text.table([(name, f"{count:,}") for name, count in about["sizes"].items()])
        )
    shown_apart = ("libraries", "origin")
    recipe = {name: value for name, value in about["recipe"].items() if value is not None and name not in shown_apart}
    made = about["recipe"].get("libraries")
    made = made if isinstance(made, dict) else {}
    recipe_rows = [(name, text.plain(str(value))) for name, value in recipe.items()]
    recipe_rows.append(("made with", text.plain(", ".join(f"{what} {version}" for what, version in made.items()))))
    blocks.append("recipe\n" + text.table(recipe_rows))
    if about["recipe"].get("origin"):
        blocks.append(_origin_text(about["recipe"]["origin"]))
    counted = [
        (f"{count:,}", text.counted(count, count_of(name, about["noun"]), about["noun"]))
        for name, count in about["counts"].items()
        if count
    ]
    if counted:
        blocks.append("counted while packing\n" + text.table(counted))
    blocks.append(_reject_text(about["rejects"]))
    if about["provenance"]:
        blocks.append("made\n" + _provenance_text(about["provenance"]))
    if len(about["appends"]) > _APPENDS:
        blocks.append(f"appended to {len(about['appends']):,} times; the last {_APPENDS} are")
    for append in about["appends"][-_APPENDS:]:
        blocks.append("appended\n" + _provenance_text(append) if append else "appended, and not known from where")
    if about["appending"]:
        blocks.append("an append was begun and has not ended: the same `rawpack append` goes on")
    return "\n\n".join(blocks)


def of_raw(about: Mapping[str, Any]) -> str:
    """How a sample compares with its raw pixels; nothing where it is these."""
    share = about["bytes"]["of_raw"]
    if not share or f"{share:.1%}" == "100.0%":
        return ""
    return f", {share:.1%} of " + ("a decoded frame" if about["noun"] == "frame" else "raw pixels")


def _field(field: Field) -> dict[str, str]:
    shape = "x".join("?" if n is None else str(n) for n in field.shape)
    return {
        "kind": field.kind,
        "dtype": field.dtype,
        "shape": shape,
        "encoding": field.encoding if field.in_shards else "",
        "boxes": str(field.boxes) if field.is_boxes else "",
    }


def _classes(store: Store) -> dict[str, int] | None:
    """Class name -> samples; "" counts those without a class."""
    if store.manifest.classes is None or "label" not in store.fields:
        return None
    counts = label_counts(store)
    named = {name: counts[label] for label, name in enumerate(store.manifest.classes)}
    return named | ({"": counts[-1]} if counts[-1] else {})


def _sizes(store: Store) -> dict[str, int] | None:
    """How many images there are of each size, the most frequent first; None where all have one."""
    if store.fields["image"].uniform:
        return None
    counts: Counter[str] = Counter()
    for folder in store.columns.folders:
        shapes, found = np.unique(folder.arrays["image.shape"][:, :2], axis=0, return_counts=True)
        counts.update({f"{h}x{w}": n for (h, w), n in zip(shapes.tolist(), found.tolist(), strict=True)})
    most = dict(counts.most_common(_SHOWN))
    rest = counts.total() - sum(most.values())
    return most | ({f"{len(counts) - len(most)} other sizes": rest} if rest else {})


def _raw_bytes(store: Store) -> int:
    """Bytes of all images and masks as raw pixels."""
    return sum(_raw_of(store, name, field) for name, field in store.fields.items() if field.in_shards)


def _source_bytes(store: Store) -> int | None:
    """Bytes of all files that the store was packed from; None where they are not known."""
    total = 0
    try:
        for run in packing_runs(store.manifest):
            states = read_provenance(store.path, run)[1]
            if states.ndim != 2 or not len(states) or (states[:, 0] < 0).any():
                return None
            total += int(states[:, 0].sum())
    except (OSError, RawpackError):
        return None
    return total or None


def _raw_of(store: Store, name: str, field: Field) -> int:
    size = np.dtype(field.dtype).itemsize
    if field.uniform:
        return len(store) * size * int(np.prod([n or 1 for n in field.shape]))
    shapes = [folder.arrays[f"{name}.shape"].astype(np.int64) for folder in store.columns.folders]
    return size * sum(int(each.prod(axis=1).sum()) for each in shapes)


def _rejects(store: Store) -> list[Any]:
    try:
        return list(itertools.islice(journal.read_rejects(store.path, store.manifest), _SHOWN))
    except (OSError, ValueError, RawpackError):
        return []


def _provenance(path: Path, run: int) -> dict[str, Any]:
    try:
        return read_provenance(path, run)[0]
    except (OSError, RawpackError):
        return {}


def _class_text(classes: dict[str, int]) -> str:
    shown = sorted(classes.items(), key=lambda item: -item[1])
    rows = [(text.plain(name) or "(no class)", f"{count:,}") for name, count in shown[:_SHOWN]]
    if len(shown) > _SHOWN:
        rows.append(("...", f"{len(shown) - _SHOWN} more classes, down to {shown[-1][1]:,}"))
    return f"{text.count(len(classes) - ('' in classes), 'class', 'classes')}\n" + text.table(rows)


def _reject_text(rejects: dict[str, Any]) -> str:
    if not rejects["count"]:
        return "nothing was rejected"
    reasons = ", ".join(f"{reason} {count}" for reason, count in rejects["reasons"].items())
    rows = [(text.plain(one["key"]), text.plain(f"{one['reason']}: {one['detail']}")) for one in rejects["first"]]
    return f"{text.count(rejects['count'], 'reject')} ({reasons})\n" + text.table(
        rows, rest=rejects["count"] - len(rows)
    )


def _origin_text(origin: Any) -> str:
    """The stores that a store was made of. What a manifest says of them comes from strangers."""
    stores = [one for one in origin if isinstance(one, dict)] if isinstance(origin, list) else []
    rows = []
    for one in stores[:_SHOWN]:
        recipe = one.get("recipe")
        said = {name: recipe.get(name) for name in ("format", "size", "quality")} if isinstance(recipe, dict) else {}
        words = ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
        rows.append((text.plain(str(one.get("digest"))), text.plain(words)))
    return "made of stores\n" + text.table(rows, rest=len(stores) - _SHOWN)


def _provenance_text(provenance: dict[str, Any]) -> str:
    source = provenance.get("source")
    root = source.get("root", "") if isinstance(source, dict) else ""
    rows = [("from", text.plain(str(root)))]
    rows += [
        (name, text.plain(str(provenance[name])))
        for name in ("started", "finished", "host", "rawpack")
        if name in provenance
    ]
    return text.table(rows)
