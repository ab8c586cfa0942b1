"""The report of `rawpack inspect`: what is in a store, to look at."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.disk.provenance import packing_runs, read_provenance
from rawpack.errors import RawpackError
from rawpack.store.store import Store
from rawpack_packer import text
from rawpack_packer.destination import journal
from rawpack_packer.inspect import describe
from rawpack_packer.job.counts import count_of
from rawpack_packer.report.figures import Draw, counts, histogram
from rawpack_packer.report.page import both, picture, write_page
from rawpack_packer.report.salvage import salvage

_SIDE = 112
"""Pixels of the longer side in a contact sheet."""
_CLASSES, _EACH, _WITHOUT = 24, 8, 48
"""Classes shown, samples of each, and samples where there are no classes."""
_BARS, _REJECTS, _BINS = 40, 24, 40
_BLOCK = 1 << 20
_LOW = 3.0
"""Inches."""


@dataclass(frozen=True)
class Sheet:
    """Samples of one class."""

    name: str
    count: int
    samples: Sequence[tuple[str, str]]
    """Data URI and key."""


@dataclass(frozen=True)
class Rejected:
    """A file that could not be packed."""

    key: str
    reason: str
    detail: str
    uri: str | None
    """What can still be seen of it."""


def write_html(path: Path, store: Store, about: Mapping[str, Any], verdict: str | None) -> None:
    """Write the page. about: what `describe` says of the store. verdict: of a check, where one was asked for."""
    reader = Reader(store.path if store.origin is None else store.origin.remote.url)
    write_page(
        path,
        "store.html.jinja",
        title=f"{store.path.name or store.path}: what is in the store",
        about=about,
        verdict=verdict,
        facts=list(_facts(about)),
        recipe=[
            (name, str(value)) for name, value in about["recipe"].items() if value is not None and name != "libraries"
        ],
        sheets=list(_sheets(store, reader)),
        classes_left_out=max(0, len(about["classes"] or ()) - _CLASSES),
        plots=[
            (title, both(draw, title, f"plot-{k}", height))
            for k, (title, draw, height) in enumerate(_plots(store, about))
        ],
        rejects=_rejects(store),
        rejects_shown=_REJECTS,
    )


def _facts(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    size = about["bytes"]
    yield "format", f"{about['format']}, version {about['version']}"
    yield "samples", f"{about['samples']:,}"
    yield "shards", f"{about['shards']:,}, {text.size(size['shards'])}"
    yield "a sample", text.size(size["per_sample"]) + describe.of_raw(about)
    for name, field in about["fields"].items():
        yield f"field {name}", f"{field['dtype']} {field['shape']} {field['encoding']}"
    for name, count in about["counts"].items():
        if count:
            yield text.counted(count, count_of(name, about["noun"]), about["noun"]), f"{count:,}"
    yield "digest", about["digest"]
    source = about["provenance"].get("source")
    if isinstance(source, dict):
        yield "from", str(source.get("root", ""))
    for name in ("started", "finished", "host"):
        if name in about["provenance"]:
            yield name, str(about["provenance"][name])


def _sheets(store: Store, reader: Reader) -> Iterator[Sheet]:
    """Random samples class by class; where there are many classes, the largest and the smallest."""
    random = np.random.default_rng(0)
    if store.manifest.classes is None or "label" not in store.fields:
        rows = np.sort(random.choice(len(store), min(_WITHOUT, len(store)), replace=False))
        yield Sheet("", len(store), [_sample(reader, row) for row in rows.tolist()])
        return
    labels = _labels(store)
    found, numbers = np.unique(labels, return_counts=True)
    order = np.argsort(-numbers, kind="stable")
    if len(order) > _CLASSES:
        order = np.concatenate([order[: _CLASSES // 2], order[-_CLASSES // 2 :]])
    for k in order.tolist():
        label = int(found[k])
        rows = np.flatnonzero(labels == label)
        chosen = np.sort(random.choice(rows, min(_EACH, len(rows)), replace=False))
        known = 0 <= label < len(store.manifest.classes)
        name = store.manifest.classes[label] if known else "(no class)"
        yield Sheet(name, len(rows), [_sample(reader, row) for row in chosen.tolist()])


def _sample(reader: Reader, row: int) -> tuple[str, str]:
    sample = reader[row]
    image = _visible(sample["image"])
    scale = min(1.0, _SIDE / max(image.shape[:2]))
    if scale < 1:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
        image = small.reshape(size[1], size[0], image.shape[2])
    return picture(image, lossless=False), str(sample.get("key", row))


def _visible(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An image, or any other array, as a picture that a page can show."""
    if image.ndim != 3:
        image = image.reshape(image.shape[0] if image.ndim > 1 else 1, -1, 1)
    if image.dtype.kind == "c":
        image = np.abs(image)
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = ((image.astype(np.float64) - low) * (255 / ((high - low) or 1))).astype(np.uint8)
    return np.ascontiguousarray(image[..., :3] if image.shape[2] >= 3 else image[..., :1])


def _labels(store: Store) -> NDArray[np.int64]:
    labels = np.empty(len(store), np.int64)
    for start in range(0, len(store), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(store)))
        store.columns.take("label", rows, labels[start : start + len(rows)])
    return labels


def _plots(store: Store, about: Mapping[str, Any]) -> Iterator[tuple[str, Draw, float]]:
    """Titles, plots, and their heights in inches."""
    nouns = f"{about['noun']}s"
    if about["classes"]:
        named = sorted(about["classes"].items(), key=lambda one: -one[1])
        title = f"{nouns.capitalize()} in each class, {named[0][1]:,} to {named[-1][1]:,}"
        if len(named) > _BARS:
            title += f": the {_BARS // 2} largest and the {_BARS // 2} smallest of {len(named):,}"
            named = named[: _BARS // 2] + named[-_BARS // 2 :]
        draw = counts([name or "(no class)" for name, _ in named], [number for _, number in named], nouns)
        yield title, draw, 0.9 + 0.24 * len(named)
    shapes = _column(store, "image.shape")
    if shapes is not None and len(shapes):
        sides = shapes[:, :2].max(axis=1)
        yield f"Longer side of the stored {nouns}", _binned(sides, "pixels", lambda value: f"{value:,.0f}", nouns), _LOW
    sizes = _stored_bytes(store)
    if sizes is not None and len(sizes):
        yield f"Bytes of the stored {nouns}", _binned(sizes, "bytes in the store", text.size, nouns), _LOW
    files = _source_bytes(store)
    if files is not None and len(files):
        yield "Bytes of the source's files", _binned(files, "bytes of a file", text.size, "files"), _LOW


def _binned(values: NDArray[Any], what: str, unit: Any, of: str) -> Draw:
    # A few giants must not press everything else into one bar.
    most = float(np.quantile(values, 0.995))
    numbers, edges = np.histogram(np.minimum(values, most), bins=min(_BINS, max(1, len(np.unique(values)))))
    return histogram(edges.tolist(), numbers.tolist(), what, unit, of)


def _column(store: Store, name: str) -> NDArray[Any] | None:
    parts = [folder.arrays[name] for folder in store.columns.folders if name in folder.arrays]
    return np.concatenate(parts) if parts else None


def _stored_bytes(store: Store) -> NDArray[Any] | None:
    """Of each compressed image; None where all are alike."""
    if "bytes" in store.fields["image"].codec.index:
        return _column(store, "image.bytes")
    return None


def _source_bytes(store: Store) -> NDArray[np.int64] | None:
    try:
        states = np.concatenate([read_provenance(store.path, run)[1] for run in packing_runs(store.manifest)])
    except (OSError, RawpackError, ValueError):
        return None
    return states[states[:, 0] >= 0, 0] if states.ndim == 2 and states.shape[1:] == (2,) else None


def _rejects(store: Store) -> list[Rejected]:
    """The first rejects, with what can still be seen of those whose files lie where they lay."""
    rejects = []
    try:
        for reject in journal.read_rejects(store.path, store.manifest):
            rejects.append(reject)
            if len(rejects) == _REJECTS:
                break
        provenance, states = read_provenance(store.path)
    except (OSError, ValueError, RawpackError):
        return [Rejected(one.key, one.reason, one.detail, None) for one in rejects]
    source = provenance.get("source")
    seen: list[bytes | None] = [None] * len(rejects)
    if isinstance(source, dict) and source.get("kind") == "folder" and isinstance(source.get("root"), str):
        files = [
            (one.key, tuple(states[one.sample].tolist()) if 0 <= one.sample < len(states) else (0, 0))
            for one in rejects
        ]
        seen = salvage(source["root"], files)
    return [
        Rejected(one.key, one.reason, one.detail, None if png is None else _uri(png))
        for one, png in zip(rejects, seen, strict=True)
    ]


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
