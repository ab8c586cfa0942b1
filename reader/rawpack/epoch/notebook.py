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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable

Table = Sequence[tuple[str, str, str]]
"""Name, dtype and shape of each field."""
_SAMPLES = 4
_SIDE = 96
"""Pixels of the longer side of a thumbnail."""
_MOST_S = 1.0
_MOST_LINES, _MOST_CHARACTERS = 20, 80
_CELL = 'style="text-align:left;padding:2px 8px"'


def html_of(
    title: str,
    table: Table,
    library: Stores,
    clips: ClipTable | None,
    selection: NDArray[np.int64] | None,
) -> str:
    """title: the object in one line. clips, selection: as of a `Reader`."""
    rows = "".join(
        f"<tr>{''.join(f'<td {_CELL}>{_text(cell)}</td>' for cell in row)}</tr>" for row in table[:_MOST_LINES]
    )
    parts = [
        f"<div><b>{_text(title, 500)}</b></div>",
        f"<table><tr>{''.join(f'<th {_CELL}>{name}</th>' for name in ('field', 'dtype', 'shape'))}</tr>{rows}</table>",
    ]
    if len(table) > _MOST_LINES:
        parts.append(f"<div>and {len(table) - _MOST_LINES} more fields</div>")
    if library.classes:
        more = f" and {len(library.classes) - _MOST_LINES} more" if len(library.classes) > _MOST_LINES else ""
        first = ", ".join(_text(name) for name in library.classes[:_MOST_LINES])
        parts.append(f"<div>{len(library.classes)} classes: {first}{more}</div>")
    try:
        parts += _figures(library, clips, selection)
    except Exception as error:
        parts.append(_note(error))
    return "".join(parts)


def _figures(library: Stores, clips: ClipTable | None, selection: NDArray[np.int64] | None) -> Iterator[str]:
    """Thumbnails of samples that are evenly spread over the reader, of a clip its first frame."""
    images = [name for name, field in library.fields.items() if field.kind == "image" and len(field.shape) == 3]
    count = len(selection) if selection is not None else len(library) if clips is None else len(clips)
    if not images or not count:
        return
    numbers = np.unique(np.linspace(0, count - 1, _SAMPLES).astype(np.int64))
    numbers = numbers if selection is None else selection[numbers]
    library.look_at_files(now=True)
    until = time.monotonic() + _MOST_S
    for row in (numbers if clips is None else clips.first_rows(numbers)).tolist():
        if time.monotonic() < until and _is_here(library, images[0], row):
            try:
                yield _figure(library, images[0], row)
            except Exception as error:
                yield _note(error, f"sample {row}: ")


def _is_here(library: Stores, name: str, row: int) -> bool:
    """Whether a sample can be read without fetching its shard."""
    files = library.remote_items(np.array([row]), [name])
    return library.fetcher is None or all(library.fetcher.cache.has(file.key, file.record) for file in files)


def _figure(library: Stores, name: str, row: int) -> str:
    import cv2

    ((reader, at),) = library.located(name, np.array([row]))
    side = max(reader.shape(at)[:2])
    scale = max(scale for scale in (1, 2, 4, 8) if scale == 1 or side >= scale * _SIDE)
    image = reader.read(at, None, scale)
    shrink = min(1.0, _SIDE / max(image.shape[:2]))
    size = [max(1, round(length * shrink)) for length in image.shape[1::-1]]
    # Channels beyond the third cannot be shown, and neither can two.
    image = image[..., : 3 if image.shape[2] >= 3 else 1]
    if image.dtype != np.uint8:
        values = np.nan_to_num(image.astype(np.float64))
        image = ((values - values.min()) * (255 / (np.ptp(values) or 1))).astype(np.uint8)
    small = cv2.resize(np.ascontiguousarray(image[..., ::-1]), size, interpolation=cv2.INTER_AREA)
    data = base64.b64encode(cv2.imencode(".jpg", small)[1].tobytes()).decode()
    return (
        '<figure style="display:inline-block;margin:4px;text-align:center">'
        f'<img src="data:image/jpeg;base64,{data}" alt="sample {row}">'
        f"<figcaption>{_text(_caption(library, row))}</figcaption></figure>"
    )


def _caption(library: Stores, row: int) -> str:
    field = library.fields.get("label")
    if library.classes and field is not None and (field.kind, field.dtype, field.shape) == ("number", "int64", ()):
        label = np.empty(1, np.int64)
        library.read_into("label", np.array([row]), label)
        if 0 <= label[0] < len(library.classes):
            return f"{row}: {library.classes[label[0]]}"
    return str(row)


def _note(error: Exception, what: str = "") -> str:
    return f"<div>{_text(f'{what}{type(error).__name__}: {error}', 500)}</div>"


def _text(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Escaped, shortened, and valid UTF-8 whatever a name of a file holds."""
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return escape(text.encode(errors="replace").decode())
