"""The recipe, which the manifest records: what is done to a sample before it is stored, and with which libraries."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from rawpack.disk.tables import resolve
from rawpack.errors import PackError, UsageError
from rawpack.system.byte_count import byte_count
from rawpack_packer.recipe.tables import OUTPUT_FORMATS, OutputFormat, encoder_of, output_format

FORMATS = tuple(OUTPUT_FORMATS)
"""Those that come with rawpack."""
DEFAULT_FORMAT = FORMATS[0]
Fit = Literal["cover", "stretch"]
Interpolation = Literal["area", "linear", "cubic", "lanczos", "nearest"]
Color = Literal["rgb", "gray", "yuv420"]
Check = Literal["structure", "decode"]
Subsampling = Literal["420", "422", "440", "444"]
JpegTables = Literal["standard", "jpegli"]
FITS, INTERPOLATIONS, COLORS, CHECKS, SUBSAMPLINGS, JPEG_TABLES = map(
    get_args, (Fit, Interpolation, Color, Check, Subsampling, JpegTables)
)

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
_MAX_SIDE = 65_500
"""libjpeg's limit, and enough for any raw store."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs with equal recipes over equal sources make equal bytes. Make one with `make_recipe`, which checks it."""

    format: str
    """The name of an `OutputFormat`."""
    size: tuple[int, int] | int | Literal["keep"] = 256
    """(height, width); a number: the shorter side is scaled to it, then the center is cut out; "keep": as they are."""
    crop: tuple[int, int, int, int] | None = None
    """x, y, width, height in the upright image, before resizing."""
    fit: Fit = "cover"
    interpolation: Interpolation = "area"
    color: Color = "rgb"
    """"yuv420": RGB, stored as planes of YCgCo with one value of chroma for four pixels. Not in every format."""
    quality: int | Literal["keep"] | None = None
    """JPEG quality 1..100; "keep" passes JPEG files through where nothing else changes them. lmdb only."""
    check: Check | None = None
    """How a JPEG that is stored as it is gets checked: by its segments, markers and length, or by decoding it."""
    subsampling: Subsampling | None = None
    """Of the chroma. lmdb only."""
    jpeg_tables: Literal["jpegli"] | None = None
    """The quantization tables of JPEG files that are encoded; None for those of the standard. lmdb only."""
    compression: Literal["gzip"] | None = None
    """hdf5 only."""
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
        """(height, width) of every stored image; None where each keeps its own."""
        if self.size == "keep":
            return None
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def encoding(self) -> str:
        """The encoding of images."""
        return output_format(self.format).image_encoding(self)

    @property
    def mask_encoding(self) -> str:
        """The encoding of masks."""
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

    def as_manifest(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("origin", "curate", "jpeg_tables"):
            if not built[name]:
                del built[name]
        return built


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def parse(flag: str, value: Any) -> str:
        if value not in allowed:
            raise UsageError(f"{flag} {value!r}: must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def _at_least_1(flag: str, value: Any) -> Any:
    if value < 1:
        raise UsageError(f"{flag} {value}: must be 1 or more")
    return value


def _as_is(flag: str, value: Any) -> Any:
    return value


def _text(value: Any, separator: str = "") -> str:
    """An option as the command gets it: "224x160" for (224, 160)."""
    return separator.join(map(str, value)) if isinstance(value, tuple | list) else str(value)


RECIPE_OPTIONS: dict[str, tuple[Callable[[str, Any], Any], Any]] = {
    "size": (lambda _, value: parse_size(_text(value, "x")), "256"),
    "crop": (lambda _, value: parse_crop(_text(value, ",")), None),
    "fit": (_one_of(*FITS), "cover"),
    "interpolation": (_one_of(*INTERPOLATIONS), "area"),
    "color": (_one_of(*COLORS), "rgb"),
    "quality": (lambda _, value: parse_quality(_text(value)), "90"),
    "check": (_one_of(*CHECKS), None),
    "subsampling": (lambda flag, value: _one_of(*SUBSAMPLINGS)(flag, value.replace(":", "")), SUBSAMPLINGS[0]),
    "jpeg_tables": (_one_of(*JPEG_TABLES), None),
    "compression": (_as_is, None),
    "chunk": (_at_least_1, None),
    "shard_size": (lambda flag, value: parse_bytes(flag, _text(value)), "256MiB"),
    "max_pixels": (_at_least_1, 178_000_000),
    "fast": (_as_is, False),
    "curate": (_as_is, False),
    "libraries": (_as_is, {}),
}
"""Entry of the recipe -> how its option is parsed, by the option's flag and value, and its default."""
_OF_SOME_FORMATS = ("quality", "subsampling", "jpeg_tables", "compression", "chunk")
"""The options that only some formats have: see `OutputFormat.options`."""


def make_recipe(**options: Any) -> Recipe:
    """A recipe from what a user wrote. options: entries of the recipe, as text or as Python values; None is as if left
    out.

    Raises UsageError where they make no sense.
    """
    given = parse_options(options)
    written = output_format(given.get("format", DEFAULT_FORMAT))
    values: dict[str, Any] = {
        name: parse(_flag(name), default) if default is not None and _has(written, name) else None
        for name, (parse, default) in RECIPE_OPTIONS.items()
    } | {"format": written.name, **given}
    for name, usual in (("compression", "none"), ("jpeg_tables", JPEG_TABLES[0])):
        if values[name] == usual:
            values[name] = None
    if values["color"] not in written.colors:
        raise UsageError(
            f"--color {values['color']} does not apply to --format {written.name}, which has "
            f"{' and '.join(written.colors)}"
            + (": its JPEG files have 4:2:0 chroma, or what --subsampling says" if values["subsampling"] else "")
        )
    _check_together({**given, "size": values["size"], "quality": values["quality"]})
    if values["color"] == "gray":  # a gray JPEG has no chroma to subsample
        values["subsampling"] = None
    if "chunk" in written.options and values["size"] != "keep":
        values["chunk"] = values["chunk"] or 1
    recipe = msgspec.convert(values, Recipe)
    _check_chunk(recipe)
    return recipe if not recipe.passes_through else msgspec.structs.replace(recipe, check=recipe.check or CHECKS[0])


def parse_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe that are given, parsed: they are checked as far as the source does not matter.

    Raises UsageError.
    """
    given = {name: value for name, value in options.items() if value is not None}
    written = output_format(given.get("format", DEFAULT_FORMAT))
    if unknown := given.keys() - {"format", *RECIPE_OPTIONS}:
        raise TypeError(f"a recipe has no option {', '.join(sorted(unknown))}")
    for name, (parse, _) in RECIPE_OPTIONS.items():
        if name in given:
            if not _has(written, name):
                raise UsageError(f"{_flag(name)} applies to {_having(name)} only")
            given[name] = parse(_flag(name), given[name])
    if given.get("compression", "none") != "none":
        _one_of(*written.compressions)("--compression", given["compression"])
    _check_together(given)
    return given


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _has(written: OutputFormat, name: str) -> bool:
    """Whether a format has an option."""
    return name in written.options or name not in _OF_SOME_FORMATS


def _having(name: str) -> str:
    """The formats that have an option, as users write them."""
    return " and ".join(f"--format {row.name}" for row in OUTPUT_FORMATS.values() if name in row.options)


def _check_together(given: Mapping[str, Any]) -> None:
    """Raise UsageError where options make no sense together. Without a size, the source decides it."""
    size, color, crop = given.get("size"), given.get("color"), given.get("crop")
    for name, default in (("interpolation", "area"), ("fit", "cover")):
        if size == "keep" and given.get(name, default) != default:
            raise UsageError(f"--{name} applies to images that are resized; --size keep leaves them as they are")
    if color == "gray" and "subsampling" in given:
        raise UsageError("--subsampling applies to color images only; --color gray stores none")
    tables = given.get("jpeg_tables", JPEG_TABLES[0])
    if tables != JPEG_TABLES[0] and given.get("subsampling") == "440":
        raise UsageError(f"--jpeg-tables {tables} applies to --subsampling 420, 422 and 444 only")
    if given.get("fast") and (size == "keep" or crop is not None):
        raise UsageError("--fast decodes at a smaller scale for --size: leave out --size keep and --crop")
    if "check" in given and size is not None and not _passes(given.get("quality"), size, crop):
        raise UsageError(
            f"--check applies to files that are stored as they are: {_having('quality')} --size keep --quality keep, "
            "no --crop"
        )


def _passes(quality: object, size: object, crop: object) -> bool:
    """Whether image files may be stored as they are."""
    return quality == "keep" and size == "keep" and crop is None


def _check_chunk(recipe: Recipe) -> None:
    if recipe.chunk is not None and recipe.target is not None:
        raw = math.prod(recipe.target) * recipe.channels
        if min(recipe.chunk, recipe.rows_for(raw)) * raw > _MAX_CHUNK:
            raise UsageError(
                f"--chunk {recipe.chunk}: an HDF5 chunk holds less than 4 GiB, or {_MAX_CHUNK // raw:,} such images"
            )


def parse_size(text: str, option: str = "--size") -> tuple[int, int] | int | Literal["keep"]:
    """`--size`: "256", "224x160" (height by width) or "keep"."""
    if text == "keep":
        return "keep"
    match = re.fullmatch(r"(\d{1,6})(?:[xX](\d{1,6}))?", text.strip())
    if not match:
        raise UsageError(
            f"{option} {text!r}: must be a side in pixels (256), HEIGHTxWIDTH (224x160)"
            + (", or keep" if option == "--size" else "")
        )
    sides = tuple(int(side) for side in match.groups() if side is not None)
    if any(not 1 <= side <= _MAX_SIDE for side in sides):
        raise UsageError(f"{option} {text}: sides must be between 1 and {_MAX_SIDE} pixels")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_crop(text: str) -> tuple[int, int, int, int]:
    """`--crop`: "X,Y,W,H" in pixels of the upright image."""
    match = re.fullmatch(r"\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*", text)
    if not match:
        raise UsageError(f"--crop {text!r}: must be X,Y,WIDTH,HEIGHT in pixels, such as 186,0,114,30")
    x, y, width, height = (int(group) for group in match.groups())
    if not width or not height:
        raise UsageError(f"--crop {text}: width and height must be 1 or more")
    return x, y, width, height


def parse_quality(text: str) -> int | Literal["keep"]:
    """`--quality`: 1 to 100, or "keep"."""
    if text == "keep":
        return "keep"
    if not re.fullmatch(r"\d{1,3}", text) or not 1 <= int(text) <= 100:
        raise UsageError(f"--quality {text!r}: must be 1 to 100, or keep (JPEG files are stored as they are)")
    return int(text)


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes: "256MiB", "1GB", "65536"."""
    value = byte_count(text)
    if value is None:
        raise UsageError(f"{option} {text!r}: must be a number of bytes such as 256MiB, 1GB or 65536")
    if not 1 <= value <= 1 << 44:
        raise UsageError(f"{option} {text}: must be between 1 byte and 16 TiB")
    return value


def libraries(recipe: Recipe, *, video: bool = False) -> dict[str, str]:
    """The libraries that decide the bytes of a store made by `recipe`, with their versions here.

    video: whether samples are frames of videos.
    """
    import cv2

    from rawpack import jpeg
    from rawpack.pixels import area
    from rawpack_packer.images import jpeg_tables

    chosen = jpeg.decoder()
    resizer = f"opencv {cv2.__version__}"
    if recipe.size != "keep" and recipe.interpolation == "area":
        resizer += f", rawpack.area {area.VERSION}"
    used = {"decoder": f"{chosen.name} {chosen.version}", "resizer": resizer}
    for row in (output_format(recipe.format), encoder_of(recipe.encoding)):
        used |= resolve(row.libraries)() if row.libraries else {}
    if recipe.jpeg_tables:
        used["encoder"] = jpeg_tables.library()
    if recipe.compression:
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
