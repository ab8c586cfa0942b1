"""The recipe, which the manifest records: what is done to a sample before it is stored, and with which libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from rawpack.disk.tables import resolve
from rawpack.errors import PackError, UsageError
from rawpack.pixels.geometry import cover_size
from rawpack_packer.options import RECIPE, Named, Option, opt
from rawpack_packer.options.option import (
    CHECKS,
    JPEG_TABLES,
    Check,
    Color,
    Depth,
    Fit,
    Interpolation,
    Subsampling,
    as_text,
    one_of,
)
from rawpack_packer.recipe.tables import OUTPUT_FORMATS, OutputFormat, encoder_of, output_format

FORMATS = tuple(OUTPUT_FORMATS)
"""Those that come with rawpack."""
DEFAULT_FORMAT = FORMATS[0]
KEPT_QUALITY = 95
"""JPEG quality of images that `--quality keep` cannot pass through."""
THEN = ", then "
"""Separates the versions of a library that packed a store from those that appended to it."""
PILLOW = "pillow"
"""The library that decides pixels only where a store counts images as `by_pillow`."""
_IN_ORDER = ("decoder", "resizer", "hdf5", "encoder", "lmdb", "zlib", "video", PILLOW)
"""How a manifest lists libraries; others follow."""
_MIN_PART, _MAX_PART, _KEEP_PART = 64, 65_536, 1024
_MAX_CHUNK = (1 << 32) - 1


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs with equal recipes over equal sources make equal bytes. Make one with `make_recipe`, which checks it."""

    format: str
    """The name of an `OutputFormat`."""
    size: tuple[int, int] | int | Literal["keep"] = 256
    """(height, width); a number: the shorter side is scaled to it, then the center is cut out, unless `fit` says
    otherwise; "keep": as they are. Of
    `image`, its masks, and the images that `sizes` does not name."""
    sizes: dict[str, tuple[int, int] | int | Literal["keep"]] = {}
    """The sizes of further images, by field, where they were given by field."""
    crop: tuple[int, int, int, int] | None = None
    """x, y, width, height in the upright image, before resizing."""
    fit: Fit = "cover"
    interpolation: Interpolation = "area"
    depth: Depth | None = None
    """"16": image files keep their values, as uint16; None: 8 bits."""
    color: Color = "rgb"
    """"ycgco420": RGB, stored as planes of YCgCo with one value of chroma for four pixels. Not in every format."""
    quality: int | Literal["keep"] | None = None
    """JPEG quality 1..100; "keep" passes JPEG files through where nothing else changes them. lmdb only."""
    check: Check | None = None
    """How a JPEG that is stored as it is gets checked: by its segments, markers and length, or by decoding it."""
    subsampling: Subsampling | None = None
    """Of the chroma. lmdb only."""
    jpeg_tables: Literal["jpegli"] | None = None
    """The quantization tables of JPEG files that are encoded; None for those of the standard. lmdb only."""
    compression: Literal["gzip", "zstd"] | None = None
    """gzip: hdf5 only; zstd: memmap only."""
    chunk: int | None = None
    """Images per chunk. hdf5 with images of one size only."""
    shard_size: int = 256 << 20
    """Bytes of raw pixels in a shard, about."""
    max_pixels: int = 178_000_000
    """Images with more are rejected before they are decoded."""
    fast: bool = False
    """Decode a JPEG at 1/2, 1/4 or 1/8 where that is still as large as `size`: faster, but other pixels."""
    curate: bool = False
    """Add the fields `CURATED`, by which near duplicates, blurred, dark and blank images are found."""
    libraries: dict[str, str] = {}
    """What made the pixels and the files: "decoder", "encoder", "resizer", "hdf5", ... -> name and version."""
    origin: tuple[dict[str, Any], ...] = ()
    """Of a store that was derived from others: "digest" and "recipe" of each, in order."""

    @property
    def pixels(self) -> Literal["rgb", "gray"]:
        """The colors of images before they are stored, and when they are read."""
        return "gray" if self.color == "gray" else "rgb"

    @property
    def channels(self) -> int:
        return 1 if self.pixels == "gray" else 3

    @property
    def target(self) -> tuple[int, int] | None:
        """(height, width) that images are scaled to; None where each keeps its own."""
        if self.size == "keep":
            return None
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def shape(self) -> tuple[int, int] | None:
        """(height, width) of every stored image; None where they differ."""
        return None if self.fit == "whole" else self.target

    def shape_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """(height, width) that an image of this size, after the crop, is stored with."""
        if self.target is None:
            return size
        return cover_size(size, self.target) if self.fit == "whole" else self.target

    def of(self, name: str, channels: int | None) -> Recipe:
        """The recipe of a further image of the sample. channels: those that are stored."""
        color = "gray" if channels == 1 else self.color
        if self.sizes or self.curate or color != self.color:
            size = self.sizes.get(name, self.size)
            return msgspec.structs.replace(self, size=size, sizes={}, color=color, curate=False)
        return self

    @property
    def encoding(self) -> str:
        """The encoding of images."""
        return output_format(self.format).image_encoding(self)

    @property
    def mask_encoding(self) -> str:
        """The encoding of masks, and of further images that are no pictures."""
        return output_format(self.format).mask_encoding(self)

    @property
    def passes_through(self) -> bool:
        """Whether JPEG files may be stored as they are."""
        return _passes(self.quality, self.size, self.crop)

    def rows_for(self, raw: int) -> int:
        """Samples of the source in one part, and so in one shard. Does not depend on the number of workers.

        raw: bytes of a sample's images and masks as raw values; 0 where samples differ.
        """
        return max(_MIN_PART, min(_MAX_PART, self.shard_size // raw)) if raw else _KEEP_PART

    @classmethod
    def of_manifest(cls, values: Mapping[str, Any]) -> Self:
        """The recipe that a manifest has. Raises msgspec.ValidationError."""
        return msgspec.convert(in_these_words(values), cls)

    def as_manifest(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("sizes", "origin", "curate", "jpeg_tables", "depth"):
            if not built[name]:
                del built[name]
        return built


def in_these_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of a manifest, with the names that its values have now."""
    known = dict(values)
    if known.get("color") == "yuv420":  # as development versions called it
        known["color"] = "ycgco420"
    return known


def make_recipe(**options: Any) -> Recipe:
    """A recipe from what a user wrote. options: entries of the recipe, as text or as Python values; None is as if left
    out.

    Raises UsageError where they make no sense.
    """
    made_by = options.pop("libraries", {})
    given = parse_options(options)
    written = output_format(given.get("format", DEFAULT_FORMAT))
    values = {one.name: one.parse(Named(one.name), one.initial) if _has(written, one) else None for one in RECIPE}
    values |= {"format": written.name, "libraries": made_by, **given}
    if values["subsampling"] == "440" and "jpeg_tables" not in given:
        values["jpeg_tables"] = None  # their encoder does not write 4:4:0
    for one in RECIPE:
        if one.off and values[one.name] == one.off:
            values[one.name] = None
    if values["color"] not in written.colors:
        raise UsageError(
            f"{opt.color(values['color'])} does not apply to {opt.format(written.name)}, which has "
            f"{' and '.join(written.colors)}"
            + (f": its JPEG files have 4:2:0 chroma, or what {opt.subsampling} says" if values["subsampling"] else "")
        )
    _check_together({**given, "size": values["size"], "quality": values["quality"]})
    if isinstance(sizes := values["size"], dict):
        others = {name: size for name, size in sizes.items() if name != "image"}
        # With no other, it says all the same that there is none, which a source with several images refuses.
        values |= {"size": sizes["image"], "sizes": others or sizes}
    if values["color"] == "gray":  # a gray JPEG has no chroma to subsample
        values["subsampling"] = None
    if "chunk" in written.options and values["size"] != "keep" and values["fit"] != "whole":
        values["chunk"] = values["chunk"] or 1
    recipe = msgspec.convert(values, Recipe)
    _check_chunk(recipe)
    return recipe if not recipe.passes_through else msgspec.structs.replace(recipe, check=recipe.check or CHECKS[0])


def files_as_they_are() -> str:
    """The options that store JPEG files unchanged, for a message."""
    return f"{opt.format('lmdb')} with {opt.quality('keep')}"


def parse_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe that are given, parsed: they are checked as far as the source does not matter.

    Raises UsageError.
    """
    given = {name: value for name, value in options.items() if value is not None}
    written = output_format(given.get("format", DEFAULT_FORMAT))
    if unknown := given.keys() - {one.name for one in RECIPE}:
        raise TypeError(f"a recipe has no option {', '.join(sorted(unknown))}")
    if as_text(given.get("depth")) == "16":
        _check_depth(written, given)
    for one in RECIPE:
        if one.name in given:
            if one.of_some_formats and one.name not in written.options:
                raise UsageError(f"{Named(one.name)} applies to {_having(one.name)} only")
            given[one.name] = one.parse(Named(one.name), given[one.name])
    if given.get("compression", "none") != "none":
        _check_compression(written, given["compression"])
    _check_together(given)
    return given


def _check_depth(written: OutputFormat, given: Mapping[str, Any]) -> None:
    """Raise UsageError where what is given stores 8 bits only."""
    if written.name == "lmdb" or "quality" in given:
        refused = opt.quality(given["quality"]) if "quality" in given else opt.format(written.name)
        raise UsageError(
            f"{refused} stores JPEG files, which have 8 bits, and {opt.depth(16)} keeps 16: use "
            f"{opt.format('memmap')} or {opt.format('hdf5')}"
        )
    if given.get("color") == "ycgco420":
        raise UsageError(
            f"{opt.color('ycgco420')} stores planes of 8 bits, and {opt.depth(16)} keeps 16: leave one out"
        )
    if given.get("compression") == "zstd":
        raise UsageError(
            f"{opt.compression('zstd')} stores differences of rows of 8 bits, and {opt.depth(16)} keeps 16: use "
            f"{opt.format('hdf5')} with {opt.compression('gzip')}, or {opt.compression('none')}"
        )


def _check_compression(written: OutputFormat, value: str) -> None:
    """Raise UsageError where a format does not have this compression."""
    if value == "zstd" and written.name == "hdf5":
        raise UsageError(
            f"{opt.compression('zstd')} stores differences of rows, which other programs that read HDF5 would show as "
            f"pixels: use {opt.compression('gzip')}, or {opt.format('memmap')}"
        )
    others = [row.name for row in OUTPUT_FORMATS.values() if "compression" in row.options and value in row.compressions]
    if others and value not in written.compressions:
        raise UsageError(
            f"{opt.compression(value)} applies to {' and '.join(map(opt.format, others))} only; "
            f"{opt.format(written.name)} has {opt.compression(' and '.join(written.compressions))}"
        )
    one_of(*written.compressions)(opt.compression, value)


def _has(written: OutputFormat, one: Option) -> bool:
    """Whether an option has a value in recipes of this format that do not name it."""
    return one.initial is not None and (not one.of_some_formats or one.name in written.options)


def _having(name: str) -> str:
    """The formats that have an option, as users write them."""
    return " and ".join(f"{opt.format(row.name)}" for row in OUTPUT_FORMATS.values() if name in row.options)


def _check_together(given: Mapping[str, Any]) -> None:
    """Raise UsageError where options make no sense together. Without a size, the source decides it."""
    size, color, crop = given.get("size"), given.get("color"), given.get("crop")
    sizes = size if isinstance(size, dict) else {"image": size}
    size, kept = sizes["image"], set(sizes.values()) == {"keep"}
    for name, default in (("interpolation", "area"), ("fit", "cover")):
        if kept and given.get(name, default) != default:
            raise UsageError(
                f"{getattr(opt, name)} applies to images that are resized; {opt.size('keep')} leaves them as they are"
            )
    if given.get("fit") == "whole" and len(sizes) > 1:
        raise UsageError(
            f"{opt.fit('whole')} is for samples of one image: the others would be of other parts of the picture where "
            f"sides are rounded; leave it out, or resize them before packing"
        )
    if color == "gray" and "subsampling" in given:
        raise UsageError(f"{opt.subsampling} applies to color images only; {opt.color('gray')} stores none")
    tables = given.get("jpeg_tables")
    if tables == JPEG_TABLES[0] and given.get("subsampling") == "440":
        raise UsageError(f"{opt.jpeg_tables(tables)} applies to {opt.subsampling(420)}, 422 and 444 only")
    if given.get("fast") and (size == "keep" or crop is not None):
        raise UsageError(
            f"{opt.fast} decodes at a smaller scale for {opt.size}: leave out {opt.size('keep')} and {opt.crop}"
        )
    if "check" in given and size is not None and not _passes(given.get("quality"), size, crop):
        raise UsageError(
            f"{opt.check} applies to files that are stored as they are: {_having('quality')} {opt.size('keep')} "
            f"{opt.quality('keep')}, no {opt.crop}"
        )


def _passes(quality: object, size: object, crop: object) -> bool:
    """Whether image files may be stored as they are."""
    return quality == "keep" and size == "keep" and crop is None


def _check_chunk(recipe: Recipe) -> None:
    if recipe.chunk is not None and recipe.shape is not None:
        raw = math.prod(recipe.shape) * recipe.channels
        if min(recipe.chunk, recipe.rows_for(raw)) * raw > _MAX_CHUNK:
            raise UsageError(
                f"{opt.chunk(recipe.chunk)}: an HDF5 chunk contains less than 4 GiB, or "
                f"{_MAX_CHUNK // raw:,} such images"
            )


def libraries(recipe: Recipe, *, video: bool = False) -> dict[str, str]:
    """The libraries that decide the bytes of a store made by `recipe`, with their versions here.

    video: whether samples are frames of videos.
    """
    import cv2

    from rawpack import jpeg
    from rawpack.pixels import resize
    from rawpack_packer.images.jpeg import tables_library

    chosen = jpeg.decoder()
    resizer = f"opencv {cv2.__version__}"
    if {recipe.size, *recipe.sizes.values()} != {"keep"} and recipe.interpolation == "area":
        resizer += f", rawpack.area {resize.AREA_VERSION}"
    used = {"decoder": f"{chosen.name} {chosen.version}", "resizer": resizer}
    for row in (output_format(recipe.format), encoder_of(recipe.encoding)):
        used |= resolve(row.libraries)() if row.libraries else {}
    if recipe.jpeg_tables:
        used["encoder"] = tables_library()
    if recipe.compression == "gzip":
        import zlib

        used["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    if video:
        from rawpack_packer.sources.video import library

        used["video"] = library()
    else:
        import PIL

        # Any file may be of a type that Pillow decodes, whatever its name.
        used[PILLOW] = PIL.__version__
    return {name: used[name] for name in sorted(used, key=lambda name: [*_IN_ORDER, name].index(name))}


def check_libraries(recipe: Recipe) -> None:
    """Raise PackError, naming what differs, where this process has other libraries than those of `recipe`."""
    here = libraries(recipe, video="video" in recipe.libraries)
    wanted = {name: version.rpartition(THEN)[2] for name, version in recipe.libraries.items()}
    differing = [
        f"{name} {here.get(name, 'none')}, and the recipe has {wanted.get(name, 'none')}"
        for name in sorted({*here, *wanted})
        if here.get(name) != wanted.get(name)
    ]
    if differing:
        raise PackError(
            f"a worker has other libraries than the recipe and would make other bytes ({'; '.join(differing)}): "
            "install the same versions everywhere"
        )
