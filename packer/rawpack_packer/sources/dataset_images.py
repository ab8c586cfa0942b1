"""What the images of a dataset are: pictures, or arrays of one size or several, by its first samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.errors import reason_of
from rawpack_packer.sources.axes import AXES, Axes, channels_first, channels_last, check_samples, doubtful, turned
from rawpack_packer.sources.fields import ImageKind, as_array, plain_dtype
from rawpack_packer.sources.pillow import check_mode, is_grey, is_pillow, pixels_of

DeclaredImage = Axes | tuple[str, tuple[int | None, ...]] | ImageKind
"""What a caller says of images that are arrays: where their channels are; or dtype and shape, with None for height and
width if they differ."""


@dataclass(frozen=True)
class DatasetImages:
    """What the images of a dataset are, and what its parts do with them."""

    kind: ImageKind | None
    """None for pictures."""
    chw: bool = False
    """Whether the channels of arrays come first. In samples they come last."""
    grey: bool = False
    """Whether PIL images are grey: one with colors is rejected, since it would lose them."""
    size: tuple[int, int] | None = None
    """(height, width) that some of the images showed: another one stops packing. None where any may come, or where
    another one is rejected."""

    def of(self, value: Any, where: str) -> bytes | NDArray[Any]:
        """The image of a sample as the packer takes it: the bytes of a file, or an array.

        Raises DecodeError for what is no image; PackError for one of another size than those that were looked at, which
        `where` names.
        """
        if self.grey and is_pillow(value) and not is_grey(value):
            raise DecodeError(
                "bad_field",
                f"the image has mode {value.mode}; others are grey: convert all to one mode, such as "
                "image.convert('RGB'), or choose one with color=",
            )
        image = as_image(value)
        if isinstance(image, bytes):
            return image
        if self.chw and image.ndim == 3 and not is_pillow(value):
            image = channels_last(image)
        if self.size is not None and image.ndim in (2, 3) and image.shape[:2] != self.size:
            raise self._stop(image, where)
        return image

    def _stop(self, image: NDArray[Any], where: str) -> PackError:
        kind = cast(ImageKind, self.kind)
        channels = kind.shape[2] if len(kind.shape) == 3 else 1
        sizes = (channels, None, None) if self.chw else (None, None, channels)
        reject = "" if self.chw or doubtful(kind.shape) else f"; image={(kind.dtype, kind.shape)!r} to reject others"
        return PackError(
            f"{where} is an image of {image.shape[0]}x{image.shape[1]} (height x width), and those that were looked at "
            f"before packing have {kind.shape[0]}x{kind.shape[1]}: pass size=256, or another size, to resize all; or "
            f"image={(kind.dtype, sizes)!r} to keep the size of each{reject}"
        )


@dataclass(frozen=True)
class Others:
    """The images of a dataset, to be looked at."""

    images: Callable[[Iterable[int]], Iterator[Any]]
    """Those of some samples, without those that cannot be read."""
    some: Sequence[int]
    """Samples from all over the dataset."""
    few: Sequence[int]
    """The same; of what can only be iterated, those after the first one, so that it is not iterated once more."""
    every: Sequence[int] | None
    """All samples, where looking at them costs nothing: those of a list; of an array, whose rows have one shape, none.
    Else None."""


def images_of(
    first: Any, declared: DeclaredImage | None, others: Others, where: str, *, colors: bool, sized: bool | None
) -> DatasetImages:
    """What all images of a dataset are.

    first: that of the first sample. where: the dataset. colors: whether the recipe says what colors images get. sized:
    whether it makes all images one size, so that their own does not matter; None where that is unknown. Raises
    UsageError for what is no image.
    """
    if declared is not None and not isinstance(declared, str):
        return _as_declared(declared, where)
    kind, chw = _first_kind(first, declared, where)
    if kind is None:
        kind = _one_size(others) if is_pillow(first) else None
        grey = kind is not None and kind.shape[2] == 1 and not colors
        return DatasetImages(kind, grey=grey, size=_exact(kind, others, sized))
    if sized or len(kind.shape) not in (2, 3):
        return DatasetImages(kind, chw)
    seen = map(_shape_of, others.images(others.few if others.every is None else others.every))
    arrays = [shape for shape in seen if shape is not None and len(shape) in (2, 3)]
    shapes = [kind.shape, *(turned(shape, chw and len(shape) == 3) for shape in arrays)]
    channels = {shape[2] if len(shape) == 3 else 1 for shape in shapes}
    if kind.dtype == "uint8" and channels == {1, 3}:  # gray images among others become RGB, as files do
        kind = ImageKind(kind.dtype, (*kind.shape[:2], 3))
    if len({shape[:2] for shape in shapes}) > 1:
        last = kind.shape[2] if len(kind.shape) == 3 else 1
        return DatasetImages(ImageKind(kind.dtype, (None, None, last), resized=True), chw)
    return DatasetImages(kind, chw, size=_exact(kind, others, sized))


def _exact(kind: ImageKind | None, others: Others, sized: bool | None) -> tuple[int, int] | None:
    """See `DatasetImages.size`."""
    if kind is None or sized is not False or others.every is not None:
        return None
    return cast(tuple[int, int], kind.shape[:2])


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an image that is an array; None for another."""
    if isinstance(value, bytes | bytearray | str | os.PathLike) or is_pillow(value):
        return None
    try:
        return tuple(int(n) for n in (value.shape if hasattr(value, "shape") else np.shape(value)))
    except (TypeError, ValueError):  # it is rejected when it is packed
        return None


def _one_size(others: Others) -> ImageKind | None:
    """What all images are, where these are PIL images of one size, all grey or all with colors; else None."""
    if others.every is not None:
        every = others.images(others.every)
        if len({(image.size, is_grey(image)) if is_pillow(image) else None for image in every}) > 1:
            return None
    shapes = set()
    for image in others.images(others.some):
        if not is_pillow(image):
            return None
        with suppress(Exception):  # it is rejected when it is packed
            pixels = pixels_of(image)
            shapes.add((*pixels.shape[:2], 1 if pixels.ndim == 2 else pixels.shape[2]))
    return ImageKind("uint8", shapes.pop(), pictures=True) if len(shapes) == 1 else None


def _as_declared(declared: tuple[str, tuple[int | None, ...]] | ImageKind, where: str) -> DatasetImages:
    dtype, shape = (declared.dtype, declared.shape) if isinstance(declared, ImageKind) else declared
    lengths = tuple(shape)
    if len(lengths) == 3 and lengths[0] is not None and lengths[1:] == (None, None):
        return DatasetImages(ImageKind(plain_dtype(dtype), turned(lengths, True)), chw=True)
    if not isinstance(declared, ImageKind) and None not in lengths:
        channels_first(cast(tuple[int, ...], lengths), None, where, _said)
    return DatasetImages(ImageKind(plain_dtype(dtype), lengths))


def _first_kind(first: Any, axes: Axes | None, where: str) -> tuple[ImageKind | None, bool]:
    """The kind of the first image, and whether its channels come first; None for pictures."""
    if axes is not None and axes not in AXES:
        raise UsageError(
            f"image={axes!r}: write image='chw' or image='hwc', or dtype and shape: ('uint8', (None, None, 3))"
        )
    a_file = isinstance(first, bytes | bytearray | str | os.PathLike)
    if axes is not None and (a_file or is_pillow(first)):
        raise UsageError(f"{_said(axes)} is for images that are arrays, and the first one is none: leave it out")
    if a_file:
        return None, False
    try:
        if is_pillow(first):
            check_mode(first)
            return None, False
        array = np.asarray(as_image(first))
    except DecodeError as error:
        raise UsageError(f"the first sample: {error.detail}") from None
    if array.ndim == 0:
        raise UsageError(
            f"the first sample: the image is a single number, {array}; a sample must be an image, a tuple (image, "
            "label), or a dict with an 'image'; where tuples have another order, pass names=('label', 'image')"
        )
    chw = channels_first(array.shape, axes, where, _said)
    return ImageKind(array.dtype.name, turned(array.shape, chw)), chw


def check_array(dataset: Any, said: DeclaredImage | None, where: str) -> None:
    """Raise UsageError where the dataset is an array, or a tensor, that seems to be one image."""
    shape = _shape_of(dataset) if hasattr(dataset, "shape") else None
    if shape is not None and (said is None or isinstance(said, str)):
        check_samples(shape, said, where, _said)


def _said(axes: Axes) -> str:
    return f"image={axes!r}"


def as_image(value: Any) -> bytes | NDArray[Any]:
    """An image as the packer takes it: the bytes of a file, which may be named by its path; or an array.

    Raises DecodeError for anything else. PIL images: see `pixels_of`.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        try:
            return Path(value).read_bytes()
        except OSError as error:
            raise DecodeError("unreadable", reason_of(error)) from None
    if is_pillow(value):
        return pixels_of(value)
    array = as_array(value)
    if array is None:
        cure = "; a list of several values needs names=('image', 'label', ...)" if isinstance(value, list) else ""
        raise DecodeError(
            "bad_field",
            f"the image is a {type(value).__name__}; it must be an array, a file's bytes or path, or a PIL image{cure}",
        )
    return np.array(array)  # a dataset may fill the same array for the next sample, before this one is stored
