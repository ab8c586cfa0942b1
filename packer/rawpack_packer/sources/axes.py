"""Where the channels of arrays of images are: stores have them last, and torch has them first.

Every source of arrays asks here. A shape does not say it where its first axis may be channels; then the user has to:
`chw` moves them to the end, `hwc` keeps the axes as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError

Axes = Literal["chw", "hwc"]
AXES: tuple[Axes, ...] = get_args(Axes)
_MOST_CHANNELS = 4
_COLORS = (3, 4)


def channels_first(shape: tuple[int, ...], axes: Axes | None, where: str, said_by: Callable[[Axes], str]) -> bool:
    """Whether images of this shape are (channels, height, width) and must be turned.

    axes: what the user said. where: what holds the images, in messages. said_by: what a user types to say it.
    Raises UsageError where the user has to say it, or said what cannot be.
    """
    if axes == "chw" and len(shape) != 3:
        raise UsageError(f"{where}: images of shape {shape} have no channels to move: leave out {said_by(axes)}")
    if axes is not None or not doubtful(shape):
        return axes == "chw"
    seem = "seem to have" if shape[-1] > _MOST_CHANNELS else "may have"
    raise UsageError(
        f"{where}: images of shape {shape} {seem} their channels first, and stores have them last: "
        f"{said_by('chw')} moves them to the end, {said_by('hwc')} keeps the axes as they are"
    )


def further_first(shape: tuple[int, ...], axes: Axes | None, where: str, cure: str) -> bool:
    """Whether further images of samples, of this shape, are (channels, height, width). axes: what the user said of the
    first images, which applies to these too. cure: what to do where they differ. Raises UsageError where they do, or
    where nobody said it of a shape that does not show it."""
    if len(shape) != 3 or axes == "hwc":
        return False
    if axes == "chw" and shape[0] > _MOST_CHANNELS >= shape[2]:
        raise UsageError(f"{where}: images of shape {shape} seem to have their channels last: {cure}")
    if axes is None and doubtful(shape):
        raise UsageError(f"{where}: images of shape {shape} seem to have their channels first: {cure}")
    return axes == "chw"


def check_samples(shape: tuple[int, ...], axes: Axes | None, where: str, said_by: Callable[[Axes], str]) -> None:
    """Raise UsageError where an array, whose first axis counts samples, seems to be one image (height, width, 3 or 4):
    it would become as many gray images as it has rows.

    shape: of the whole array, which has no labels beside it. axes, where, said_by: as for `channels_first`.
    """
    if axes is None and len(shape) == 3 and shape[2] in _COLORS and shape[1] > _MOST_CHANNELS:
        raise UsageError(
            f"{where}: the shape {shape} seems to be that of one image; the first axis counts samples, so that these "
            f"would be {shape[0]:,} gray images of {shape[1]}x{shape[2]}: array[None] is an array of one image, and "
            f"{said_by('hwc')} packs the gray images"
        )


def doubtful(shape: tuple[int | None, ...]) -> bool:
    """Whether the first axis may be the channels: there are up to four; or more than four are last, and the last two
    axes are equal, as sides are, or each at least twice as long as the first.

    Nothing is doubtful where the first two axes are equal and the last one may be the channels.
    """
    if len(shape) != 3:
        return False
    first, second, last = shape
    if first is None or last is None or (first == second and last <= _MOST_CHANNELS):
        return False
    if first <= _MOST_CHANNELS or last <= _MOST_CHANNELS:
        return first <= _MOST_CHANNELS
    return second == last != first or (second is not None and 2 * first <= min(second, last))


def turned(shape: tuple[int | None, ...], chw: bool) -> tuple[int | None, ...]:
    """The shape of an image with its channels last. chw: whether they are first."""
    return (*shape[1:], shape[0]) if chw else shape


def channels_last(image: NDArray[Any]) -> NDArray[Any]:
    """An image (channels, height, width) as (height, width, channels)."""
    return np.ascontiguousarray(np.moveaxis(image, 0, -1))
