"""Draws a contact sheet: random samples of a store with their classes in one picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.errors import PackError, UsageError
from rawpack.pixels.visible import visible
from rawpack.system.writing import write_output
from rawpack_packer.inspect.describe import NO_CLASS
from rawpack_packer.text import count, plain

Pixels = NDArray[np.uint8]
_CELL, _TEXT, _GAP, _HEAD, _BETWEEN = 160, 34, 8, 20, 2
"""Pixels: the side of an image, the height of the text below it, the space between cells; the height of the line
above, and the space between those of one sample."""
_BACKGROUND = 245
_ROWS, _COLUMNS, _SEED = 6, 8, 0


def draw_contact_sheet(store: str | os.PathLike[str], path: Path) -> int:
    """Write up to 6 x 8 random samples of a store into one PNG file. Returns how many.

    Images keep their proportions; their class and the end of their key are below them. Samples with several images have
    them side by side, and there are the fewer of them. A line above names the store, the seed that drew the samples,
    and the fields of several images.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"{path}: a contact sheet is a PNG file; give a name that ends in .png")
    reader = Reader(store)
    names = image_names(reader)
    columns, across = max(1, _COLUMNS // len(names)), len(names) * (_CELL + _BETWEEN) - _BETWEEN
    drawn = min(_ROWS * columns, len(reader))
    rows = -(-drawn // columns)
    columns = min(columns, drawn)
    chosen = np.sort(np.random.default_rng(_SEED).choice(len(reader), drawn, replace=False))
    height, width = rows * (_CELL + _TEXT + _GAP) + _GAP + _HEAD, columns * (across + _GAP) + _GAP
    sheet = np.full((height, width, 3), _BACKGROUND, np.uint8)
    where = plain(os.fspath(store).rstrip("/").rpartition("/")[2] or os.fspath(store))
    title = f"{where}: {drawn:,} of {count(len(reader), 'sample')}, by seed {_SEED}"
    title += f"; each: {', '.join(names)}" if len(names) > 1 else ""
    _write(sheet[:, _GAP:-_GAP], title, _HEAD - 4, (20, 20, 20))
    for k, row in enumerate(chosen.tolist()):
        y = _HEAD + _GAP + k // columns * (_CELL + _TEXT + _GAP)
        x = _GAP + k % columns * (across + _GAP)
        _draw(sheet[y : y + _CELL + _TEXT, x : x + across], reader, row, names)
    done, encoded = cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    if not done:
        raise PackError(f"{path}: OpenCV cannot write the contact sheet")
    write_output(path, encoded.tobytes())
    return drawn


def image_names(reader: Reader) -> list[str]:
    """The image fields of a store, the first one first."""
    return [name for name, field in reader.fields.items() if field.kind == "image"]


def channels_last(image: NDArray[Any]) -> NDArray[Any]:
    """An array of any shape as (height, width, channels): one that is (channels, height, width), or else its rows."""
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3:
        image = image.reshape(image.shape[0] if image.ndim else 1, -1, 1)
    return image.transpose(1, 2, 0) if image.shape[2] not in (1, 2, 3, 4) and image.shape[0] in (1, 3) else image


def as_pixels(image: NDArray[Any]) -> Pixels:
    """An array of any shape and dtype as a picture (height, width, 1 or 3). uint8 values stay as they are; others are
    scaled from their least to their greatest finite one. Channels beyond the third are left out."""
    image = channels_last(image)
    return np.ascontiguousarray(visible(image[..., : 3 if image.shape[2] >= 3 else 1]))


def thumbnail(image: NDArray[Any], side: int, *, enlarge: bool = False) -> Pixels:
    """The picture of an array, see `as_pixels`, of at most `side` pixels each way."""
    image = as_pixels(image)
    scale = side / max(image.shape[:2])
    if scale < 1 or enlarge:
        size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        image = np.asarray(small, np.uint8).reshape(*size[::-1], -1)
    return image


def class_name(classes: tuple[str, ...], label: int) -> str:
    """The name of a label's class."""
    return classes[label] if 0 <= label < len(classes) else NO_CLASS


def _draw(cell: Pixels, reader: Reader, row: int, names: Sequence[str]) -> None:
    """Draw one sample into its cell (_CELL + _TEXT, width, 3). names: its images, from left to right."""
    sample = reader[row]
    for k, name in enumerate(names):
        image = thumbnail(sample[name], _CELL, enlarge=True)
        height, width = image.shape[:2]
        top, left = (_CELL - height) // 2, k * (_CELL + _BETWEEN) + (_CELL - width) // 2
        cell[top : top + height, left : left + width] = image
    if reader.classes is not None and "label" in sample:
        _write(cell, plain(class_name(reader.classes, int(sample["label"]))), _CELL + 13, (20, 20, 20))
    _write(cell, plain(str(sample.get("key", row)).rpartition("/")[2]), _CELL + 28, (110, 110, 110))


def _write(cell: Pixels, text: str, baseline: int, color: tuple[int, int, int]) -> None:
    """Write one line, cut to the cell's width. OpenCV 5 has letters of many scripts, OpenCV 4 has ASCII only."""
    face = cv2.FontFace("sans") if hasattr(cv2, "FontFace") else None

    def width(line: str) -> int:
        if face is None:
            return int(cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, 0.36, 1)[0][0])
        return int(cv2.getTextSize((10_000, 100), line, (0, 0), face, 11)[2])

    line = text
    while width(line) > cell.shape[1] and text:
        text = text[:-1]
        line = text + "..."
    canvas = np.ascontiguousarray(cell)
    if face is None:
        cv2.putText(canvas, line, (0, baseline), cv2.FONT_HERSHEY_SIMPLEX, 0.36, color, 1, cv2.LINE_AA)
    else:
        cv2.putText(canvas, line, (0, baseline), color, face, 11, 400)
    cell[...] = canvas
