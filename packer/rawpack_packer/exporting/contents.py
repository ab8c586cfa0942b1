"""What the files of a sample hold: JPEG files as they lie in the store, pixels as PNG, other arrays as .npy."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import PackError
from rawpack_packer.sources import Item
from rawpack_packer.sources.stores.compatible import IMAGE


def contents(item: Item, suffixes: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Image and masks of a sample, by name, each as the bytes of a file whose name ends in its suffix."""
    for name, suffix in suffixes.items():
        value = item.image if name == IMAGE else item.fields[name]
        yield name, value if isinstance(value, bytes) else _file(np.asarray(value), suffix)


def _file(image: NDArray[np.generic], suffix: str) -> bytes:
    if suffix == ".png":
        return _png(image)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(image), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _png(image: NDArray[np.generic]) -> bytes:
    """A PNG file of an image (H, W, 1 or 3), uint8 or uint16."""
    bgr = image[..., ::-1] if image.shape[2] == 3 else image
    done, file = cv2.imencode(".png", np.ascontiguousarray(bgr))  # type: ignore[arg-type, unused-ignore]
    if not done:
        raise PackError(f"OpenCV could not write a PNG of {image.shape[1]}x{image.shape[0]} pixels")
    return file.tobytes()
