"""A contact sheet: random samples of a store with their labels, in one picture."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.errors import PackError, UsageError
from rawpack_packer.text import plain

_CELL = 160
_TEXT = 34
_GAP = 8
_BACKGROUND = 245


def draw_contact_sheet(reader: Reader, path: Path, *, rows: int = 6, columns: int = 8, seed: int = 0) -> int:
    """Draw up to rows x columns random samples into an image file. Returns how many were drawn.

    Images keep their proportions; below each stand its class and the end of its key.
    """
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise UsageError(f"--grid {path}: a name that ends in .png, .jpg or .webp")
    field = reader.fields["image"]
    if field.dtype != "uint8" or len(field.shape) != 3 or field.shape[2] not in (1, 3):
        raise UsageError(f"--grid draws uint8 images, grey or RGB; those of this store are {field.dtype} {field.shape}")
    count = min(rows * columns, len(reader))
    rows = -(-count // columns)
    columns = min(columns, count)
    chosen = np.sort(np.random.default_rng(seed).choice(len(reader), count, replace=False))
    height, width = rows * (_CELL + _TEXT + _GAP) + _GAP, columns * (_CELL + _GAP) + _GAP
    sheet = np.full((height, width, 3), _BACKGROUND, np.uint8)
    for k, row in enumerate(chosen.tolist()):
        top = _GAP + k // columns * (_CELL + _TEXT + _GAP)
        left = _GAP + k % columns * (_CELL + _GAP)
        _draw(sheet[top : top + _CELL + _TEXT, left : left + _CELL], reader, row)
    done, encoded = cv2.imencode(path.suffix, cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    if not done:
        raise PackError(f"{path}: OpenCV cannot write this kind of image")
    path.write_bytes(encoded.tobytes())
    return count


def _draw(cell: NDArray[np.uint8], reader: Reader, row: int) -> None:
    """Draw one sample into its cell (_CELL + _TEXT, _CELL, 3)."""
    sample = reader[row]
    image: NDArray[np.uint8] = sample["image"]
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    scale = min(_CELL / image.shape[0], _CELL / image.shape[1])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    top, left = (_CELL - size[1]) // 2, (_CELL - size[0]) // 2
    cell[top : top + size[1], left : left + size[0]] = small
    name = ""
    if reader.classes is not None and "label" in sample:
        label = int(sample["label"])
        name = reader.classes[label] if 0 <= label < len(reader.classes) else "(no class)"
    _write(cell, plain(name), _CELL + 13, (20, 20, 20))
    _write(cell, plain(str(sample.get("key", row)).rpartition("/")[2]), _CELL + 28, (110, 110, 110))


def _write(cell: NDArray[np.uint8], text: str, baseline: int, color: tuple[int, int, int]) -> None:
    """Write one line, cut to the cell's width. OpenCV 5 has letters of many scripts, OpenCV 4 has ASCII alone."""
    if hasattr(cv2, "FontFace"):
        face = cv2.FontFace("sans")

        def wide(line: str) -> int:
            return int(cv2.getTextSize((10_000, 100), line, (0, 0), face, 11)[2])
    else:

        def wide(line: str) -> int:
            return int(cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, 0.36, 1)[0][0])

    line = text
    while wide(line) > _CELL and text:
        text = text[:-1]
        line = text + "..."
    canvas = np.ascontiguousarray(cell)
    if hasattr(cv2, "FontFace"):
        cv2.putText(canvas, line, (0, baseline), color, face, 11, 400)
    else:
        cv2.putText(canvas, line, (0, baseline), cv2.FONT_HERSHEY_SIMPLEX, 0.36, color, 1, cv2.LINE_AA)
    cell[...] = canvas
