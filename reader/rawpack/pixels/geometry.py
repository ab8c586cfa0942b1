"""The geometry of images in whole pixels: sizes are (height, width), boxes are (y, x, height, width)."""

from __future__ import annotations

RESIZABLE = ("uint8", "uint16", "float32")
"""The dtypes that OpenCV resizes."""


def cover_size(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """The size to which an image of `size` is scaled so that it covers `target` and keeps its proportions.

    One side is exactly the target's. The other is rounded down, as in torchvision's Resize, but not below the target's.
    """
    (height, width), (target_height, target_width) = size, target
    if target_height * width >= target_width * height:  # the height needs the larger scale, or both the same
        return target_height, max(target_width, width * target_height // height)
    return max(target_height, height * target_width // width), target_width


def crop_box(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box of size `target` in the center of `size`, placed as by torchvision's CenterCrop."""
    (height, width), (target_height, target_width) = size, target
    top = round((height - target_height) / 2.0)
    left = round((width - target_width) / 2.0)
    return top, left, target_height, target_width


def chroma_size(size: tuple[int, int]) -> tuple[int, int]:
    """The size of a chroma plane of 4:2:0: one value for each two by two pixels, also at odd edges."""
    return -(-size[0] // 2), -(-size[1] // 2)


def planar_bytes(size: tuple[int, int]) -> int:
    """Bytes of an image of this size as planes of YCgCo 4:2:0."""
    rows, columns = chroma_size(size)
    return size[0] * size[1] + 2 * rows * columns
