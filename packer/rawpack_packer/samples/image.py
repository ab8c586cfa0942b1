"""Turns an image file into what is stored: checks, decodes, crops, resizes and encodes it."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError
from rawpack.pixels.geometry import cover_size
from rawpack.pixels.resize import fit
from rawpack_packer.images import ImageHeader, by_pillow, decode_image, read_header
from rawpack_packer.images.jpeg_structure import is_whole
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import encoder_of, is_jpeg
from rawpack_packer.samples.curation import measures_of

_DECODING_BYTES = 16
"""Per pixel: four 16-bit samples, twice because they are reordered."""


@dataclass(frozen=True)
class PreparedImage:
    """One image as it is stored."""

    image: NDArray[np.uint8]
    """Pixels (H, W, C), or planes (n,), or the bytes (n,) of a JPEG file."""
    shape: tuple[int, int, int]
    """(height, width, channels) of the stored image."""
    notes: tuple[str, ...]
    """Keys of `counts.COUNTS` that apply."""
    size: tuple[int, int] = (0, 0)
    """(height, width) of the upright image before the recipe."""
    measures: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The fields of `CURATED`, where the recipe says so."""


def prepare(data: bytes | NDArray[Any], recipe: Recipe) -> PreparedImage:
    """An image file as `recipe` stores it. Raises DecodeError if it is to be rejected."""
    if not isinstance(data, bytes):
        raise DecodeError("unsupported", "only encoded image files can be packed")
    header = read_header(data)
    if header.width * header.height > recipe.max_pixels:
        raise DecodeError(
            "too_large", f"{header.width}x{header.height} pixels; --max-pixels allows {recipe.max_pixels}"
        )
    notes = []
    if header.icc:
        notes.append("icc_ignored")
    if header.xmp_turned:
        notes.append("xmp_orientation")
    if by_pillow(header):
        notes.append("by_pillow")
    if header.several:
        notes.append("first_frame_of_several")
    if recipe.passes_through and _can_pass(header, recipe):
        return _pass_through(data, header, recipe, notes)
    warnings: list[str] = []
    scale = reduction(header, recipe) if recipe.fast else 1
    try:
        image = decode_image(data, header, color=recipe.pixels, scale=scale, warnings=warnings)
    except DecodeError:
        _check_memory(header)
        raise
    if warnings:
        notes.append("decoder_warnings")
    if scale > 1:
        image = _without_padding(image, header, scale)
    image = by_recipe(image, recipe, notes, header.upright_size if scale > 1 else None)
    height, width, channels = image.shape
    measures = measures_of(image) if recipe.curate else {}
    stored = encoded(image, recipe.encoding, recipe, notes)
    return PreparedImage(stored, (height, width, channels), tuple(notes), header.upright_size, measures)


def by_recipe(
    image: NDArray[Any], recipe: Recipe, notes: list[str], full: tuple[int, int] | None = None
) -> NDArray[Any]:
    """An upright image (H, W, C), cropped and resized. full: its (height, width) if it was decoded reduced."""
    if recipe.crop is not None:
        image = cropped(image, recipe.crop)
    if recipe.target is not None:
        image, enlarged = fit(image, recipe.target, fit=recipe.fit, interpolation=recipe.interpolation, full=full)
        if enlarged:
            notes.append("enlarged")
    return image


def encoded(image: NDArray[Any], encoding: str, recipe: Recipe, notes: list[str]) -> NDArray[Any]:
    """An image or mask as it is stored: the values, or planes (n,), or an image file (n,)."""
    if recipe.quality == "keep" and is_jpeg(encoding):
        notes.append("reencoded")
    stored: NDArray[Any] = resolve(encoder_of(encoding).encode)(image, recipe)
    return stored


def _check_memory(header: ImageHeader) -> None:
    """Raise MemoryError if there is too little memory to decode: decoders report that as a corrupt file."""
    try:
        mmap.mmap(-1, max(1, header.width * header.height * _DECODING_BYTES)).close()
    except (OSError, ValueError):
        raise MemoryError(f"no memory to decode {header.width}x{header.height} pixels") from None


def reduction(header: ImageHeader, recipe: Recipe) -> int:
    """The largest scale at which a JPEG is decoded to no less than its target size; 1 for full size."""
    if header.jpeg is None or recipe.target is None:
        return 1
    size = header.upright_size
    need = cover_size(size, recipe.target) if recipe.fit == "cover" else recipe.target
    return next((scale for scale in (8, 4, 2) if size[0] // scale >= need[0] and size[1] // scale >= need[1]), 1)


def _without_padding(image: NDArray[np.uint8], header: ImageHeader, scale: int) -> NDArray[np.uint8]:
    """A reduced image without a last row or column that is mostly padding: libjpeg rounds its sides up."""
    if header.orientation != 1:
        return image
    return image[: (header.height + scale // 2) // scale, : (header.width + scale // 2) // scale]


def _can_pass(header: ImageHeader, recipe: Recipe) -> bool:
    """Whether any decoder gets the pixels that the recipe asks for from the file as it is."""
    colors = ("gray",) if recipe.pixels == "gray" else ("gray", "ycbcr")
    return (
        header.jpeg is not None
        and header.jpeg.sof in ("baseline", "extended", "progressive")
        and header.bits == 8
        and header.color in colors
        and header.orientation == 1
    )


def _pass_through(data: bytes, header: ImageHeader, recipe: Recipe, notes: list[str]) -> PreparedImage:
    if recipe.check == "decode" or not is_whole(data):
        # To see that it decodes: at an eighth, all entropy-coded data is decoded too.
        decode_image(data, header, color="gray", scale=8)
    shape = (header.height, header.width, recipe.channels)
    measures = measures_of(decode_image(data, header, color="gray")) if recipe.curate else {}
    stored = np.frombuffer(data, np.uint8)
    return PreparedImage(stored, shape, (*notes, "passed_through"), header.upright_size, measures)


def cropped(image: NDArray[Any], crop: tuple[int, int, int, int]) -> NDArray[Any]:
    """The box x, y, width, height of an image or mask. Raises DecodeError if it reaches outside."""
    x, y, width, height = crop
    if x + width > image.shape[1] or y + height > image.shape[0]:
        raise DecodeError(
            "crop_outside",
            f"the image has {image.shape[1]}x{image.shape[0]} pixels; --crop needs {x + width}x{y + height}",
        )
    return image[y : y + height, x : x + width]
