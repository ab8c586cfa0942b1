"""The geometry of images, in whole numbers of pixels: sizes are (height, width), boxes (y, x, height, width)."""

from __future__ import annotations


def cover_size(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """The size to which an image of `size` is scaled, so that it covers `target` and keeps its shape.

    One side is exactly the target's; the other is rounded down, as torchvision's Resize does for the shorter side,
    and is never less than the target's.
    """
    (height, width), (target_height, target_width) = size, target
    if target_height * width >= target_width * height:  # the height needs the larger scale, or both the same
        return target_height, max(target_width, width * target_height // height)
    return max(target_height, height * target_width // width), target_width


def crop_box(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box of `target`'s size in the center of `size`, which covers it, placed as torchvision's CenterCrop does."""
    (height, width), (target_height, target_width) = size, target
    top = round((height - target_height) / 2.0)
    left = round((width - target_width) / 2.0)
    return top, left, target_height, target_width


def chroma_size(size: tuple[int, int]) -> tuple[int, int]:
    """The size of a chroma plane of 4:2:0: one value for each two by two pixels, of which the last may lie outside."""
    return -(-size[0] // 2), -(-size[1] // 2)


def planar_bytes(size: tuple[int, int]) -> int:
    """Bytes of an image of this size as planes of YCbCr 4:2:0."""
    rows, columns = chroma_size(size)
    return size[0] * size[1] + 2 * rows * columns
