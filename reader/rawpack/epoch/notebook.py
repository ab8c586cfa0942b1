"""Displays a reader or its batches in a notebook: a small piece of HTML with a few thumbnails.

Names in a store are untrusted, so all text is escaped. Displaying an object must never fail, block or fetch: if a
sample cannot be read, it is named instead; if its shard is not in the cache of a remote store, it is left out; and
after `_MOST_S` seconds, no more samples are read.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.pixels.visible import visible
from rawpack.samples.sample_set import SampleSet
from rawpack.store.stores import Stores
from rawpack.system.user import count

_SAMPLES = 4
_SIDE = 96
_MOST_S = 1.0
_MOST_LINES = 20


def html_of(title: str, table: Sequence[tuple[str, str, str]], samples: SampleSet) -> str:
    """title: the object in one line. table: name, dtype and shape of each field."""
    rows = [("field", "dtype", "shape"), *table[:_MOST_LINES]]
    cells = ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows)
    parts = [f"<b>{_text(title, 500)}</b><table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"]
    if len(table) > _MOST_LINES:
        parts.append(f"<div>and {count(len(table) - _MOST_LINES, 'more field')}</div>")
    if classes := samples.library.classes:
        more = f" and {len(classes) - _MOST_LINES} more" if len(classes) > _MOST_LINES else ""
        names = ", ".join(_text(name) for name in classes[:_MOST_LINES])
        parts.append(f"<div>{count(len(classes), 'class', 'classes')}: {names}{more}</div>")
    try:
        parts += _figures(samples)
    except Exception as error:
        parts.append(_note(error))
    return "".join(parts)


def _figures(samples: SampleSet) -> Iterator[str]:
    """Thumbnails of samples that are evenly spread over the reader, of a clip its first frame. Images of one sample are
    side by side."""
    library, rows = samples.library, samples.rows
    images = [name for name, field in library.fields.items() if field.kind == "image" and len(field.shape) == 3]
    if not images or not len(samples):
        return
    spread = np.unique(np.linspace(0, len(samples) - 1, _SAMPLES).astype(np.int64))
    samples.look_at_files()
    until = time.monotonic() + _MOST_S
    for row in spread if rows is None else rows[spread]:
        files = library.remote_items(np.array([row]), images)
        here = library.fetcher is None or all(library.fetcher.cache.has(file.key, file.record) for file in files)
        if here and time.monotonic() < until:
            try:
                yield _figure(library, images, row)
            except Exception as error:
                yield _note(error, f"sample {row}: ")


def _figure(library: Stores, names: Sequence[str], row: int) -> str:
    caption, field = str(row), library.fields.get("label")
    if library.classes and field is not None and (field.kind, field.dtype, field.shape) == ("number", "int64", ()):
        label = int(library.values("label", np.array([row]))[0])
        caption += f": {library.classes[label]}" if 0 <= label < len(library.classes) else ""
    titles = [f"sample {row}", *(f"{name} of sample {row}" for name in names[1:])]
    images = "".join(_thumbnail(library, name, row, title) for name, title in zip(names, titles, strict=True))
    return f'<figure style="display:inline-block;margin:4px">{images}<figcaption>{_text(caption)}</figcaption></figure>'


def _thumbnail(library: Stores, name: str, row: int, title: str) -> str:
    import cv2

    image: NDArray[Any] = library.values(name, np.array([row]))[0]
    shrink = min(1.0, _SIDE / max(image.shape[:2]))
    size = [max(1, round(length * shrink)) for length in image.shape[1::-1]]
    # Channels beyond the third cannot be shown, and neither can two.
    image = visible(image[..., : 3 if image.shape[2] >= 3 else 1])
    small = cv2.resize(np.ascontiguousarray(image[..., ::-1]), size, interpolation=cv2.INTER_AREA)
    data = base64.b64encode(cv2.imencode(".jpg", small)[1].tobytes()).decode()
    return f'<img src="data:image/jpeg;base64,{data}" alt="{_text(title)}">'


def _note(error: Exception, what: str = "") -> str:
    return f"<div>{_text(f'{what}{type(error).__name__}: {error}', 500)}</div>"


def _text(text: str, most: int = 80) -> str:
    """Escaped, shortened, and valid UTF-8 whatever a name of a file holds."""
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return escape(text.encode(errors="replace").decode())
