"""The recipe: what is done to a sample before it is stored, and with which libraries. Recorded in the manifest."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from rawpack.errors import PackError, UsageError

Format = Literal["memmap", "hdf5", "lmdb"]
FORMATS: tuple[Format, ...] = ("memmap", "hdf5", "lmdb")
FITS = ("cover", "stretch")
INTERPOLATIONS = ("area", "linear", "cubic", "lanczos", "nearest")
COLORS = ("rgb", "gray", "yuv420")
CHECKS = ("structure", "decode")
SUBSAMPLINGS = ("420", "422", "440", "444")

DEFAULT_QUALITY = 90
KEPT_QUALITY = 95
"""Of images that `--quality keep` cannot pass through."""
THEN = ", then "
"""Between the versions of a library that packed a store and those that appended to it."""
PILLOW = "pillow"
"""The library that decides pixels only where a store counts images as `by_pillow`."""
_MIN_PART, _MAX_PART, _KEEP_PART = 64, 65_536, 1024
_MAX_CHUNK = (1 << 32) - 1
_MAX_SIDE = 65_500
"""libjpeg's limit, and enough for any raw store."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs with equal recipes over equal sources make equal bytes. Make one with `make_recipe`, which checks it."""

    format: Format
    size: tuple[int, int] | int | Literal["keep"] = 256
    """(height, width); a number: the shorter side is brought to it, then the centre is cut; "keep": as they are."""
    crop: tuple[int, int, int, int] | None = None
    """x, y, width, height in the upright image, before resizing."""
    fit: Literal["cover", "stretch"] = "cover"
    interpolation: Literal["area", "linear", "cubic", "lanczos", "nearest"] = "area"
    color: Literal["rgb", "gray", "yuv420"] = "rgb"
    """"yuv420": RGB, stored as planes of YCbCr with one value of chroma for four pixels. memmap and hdf5 only."""
    quality: int | Literal["keep"] | None = None
    """JPEG quality 1..100; "keep" passes JPEG files through where nothing else changes them. lmdb only."""
    check: Literal["structure", "decode"] | None = None
    """How a JPEG that passes through is seen to be whole: by its segments, markers and length, or by decoding it."""
    subsampling: Literal["420", "422", "440", "444"] | None = None
    """Of the chroma. lmdb only."""
    compression: Literal["gzip"] | None = None
    """hdf5 only."""
    chunk: int | None = None
    """Images per chunk. hdf5 with images of one size only."""
    shard_size: int = 256 << 20
    """Bytes of raw pixels that a shard is cut for."""
    max_pixels: int = 178_000_000
    """Images with more are rejected by their header."""
    fast: bool = False
    """Decode a JPEG at 1/2, 1/4 or 1/8 where that is still as large as the size: quicker, not quite the same pixels."""
    libraries: dict[str, str] = {}
    """What made the pixels and the files: decoder, encoder, resizer, HDF5, LMDB -> name and version."""
    origin: tuple[dict[str, Any], ...] = ()
    """Of a store that is made of others: "digest" and "recipe" of each, in their order."""

    @property
    def pixels(self) -> Literal["rgb", "gray"]:
        """What images are before they are stored, and when they are read."""
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
    def encoding(self) -> Literal["raw", "deflate", "jpeg", "yuv420", "yuv420_deflate"]:
        """Of images."""
        if self.format == "lmdb":
            return "jpeg"
        if self.color == "yuv420":
            return "yuv420_deflate" if self.compression else "yuv420"
        return "deflate" if self.compression else "raw"

    @property
    def mask_encoding(self) -> Literal["raw", "deflate", "png"]:
        if self.format == "lmdb":
            return "png"
        return "deflate" if self.compression else "raw"

    @property
    def passes_through(self) -> bool:
        """Whether JPEG files may be stored as they are."""
        return self.format == "lmdb" and self.quality == "keep" and self.size == "keep" and self.crop is None

    def rows_for(self, raw: int) -> int:
        """Samples of the source that make one part, and so one shard, never by the workers.

        raw: bytes of a sample's images and masks as raw values; 0 where samples differ.
        """
        return max(_MIN_PART, min(_MAX_PART, self.shard_size // raw)) if raw else _KEEP_PART

    def as_manifest(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        if not self.origin:
            del built["origin"]
        return built


def make_recipe(
    *,
    format: str = "memmap",
    size: str = "256",
    crop: str | None = None,
    fit: str = "cover",
    interpolation: str = "area",
    color: str = "rgb",
    quality: str | None = None,
    check: str | None = None,
    subsampling: str | None = None,
    compression: str | None = None,
    chunk: int | None = None,
    shard_size: str = "256MiB",
    max_pixels: int = 178_000_000,
    fast: bool = False,
    libraries: dict[str, str] | None = None,
) -> Recipe:
    """A recipe from what a user wrote. Raises UsageError where that makes no sense."""
    _one_of("--format", format, FORMATS)
    _one_of("--fit", fit, FITS)
    _one_of("--interpolation", interpolation, INTERPOLATIONS)
    _one_of("--color", color, COLORS)
    for option, value, home in (
        ("--quality", quality, "lmdb"),
        ("--subsampling", subsampling, "lmdb"),
        ("--compression", compression, "hdf5"),
        ("--chunk", chunk, "hdf5"),
    ):
        if value is not None and format != home:
            raise UsageError(f"{option} belongs to --format {home}; a {format} store has none")
    parsed_size = parse_size(size)
    if parsed_size == "keep" and interpolation != "area":
        raise UsageError("--interpolation says how images are resized; --size keep leaves them as they are")
    if color == "yuv420" and format == "lmdb":
        raise UsageError(
            "--color yuv420 is for raw pixels; the JPEG files of an lmdb store are of 4:2:0 unless --subsampling says "
            "otherwise"
        )
    if color == "gray" and subsampling is not None:
        raise UsageError("--subsampling is of the colours; --color gray has none")
    if parsed_size == "keep" and fit != "cover":
        raise UsageError("--fit says how images are brought to a size; --size keep leaves them theirs")
    if fast and (parsed_size == "keep" or crop is not None):
        raise UsageError("--fast decodes at a scale for --size; with --size keep or --crop there is none")
    passes = format == "lmdb" and quality == "keep" and parsed_size == "keep" and crop is None
    if check is not None:
        _one_of("--check", check, CHECKS)
        if not passes:
            raise UsageError(
                "--check is for files that pass through: --format lmdb --size keep --quality keep, no --crop"
            )
    if chunk is not None and chunk < 1:
        raise UsageError(f"--chunk {chunk}: images per chunk, from 1 on")
    if max_pixels < 1:
        raise UsageError(f"--max-pixels {max_pixels}: from 1 on")
    if compression == "none":
        compression = None
    if compression is not None:
        _one_of("--compression", compression, ("gzip",))
    if subsampling is not None:
        subsampling = subsampling.replace(":", "")
        _one_of("--subsampling", subsampling, SUBSAMPLINGS)
    if format == "lmdb":
        subsampling = subsampling or "420"
    if format == "hdf5" and parsed_size != "keep":
        chunk = chunk or 1
    if color == "gray" and format == "lmdb":
        # A grey JPEG has no chroma to subsample.
        subsampling = None
    values = {
        "format": format,
        "size": parsed_size,
        "crop": parse_crop(crop),
        "fit": fit,
        "interpolation": interpolation,
        "color": color,
        "quality": parse_quality(quality) if format == "lmdb" else None,
        "check": (check or CHECKS[0]) if passes else None,
        "subsampling": subsampling,
        "compression": compression,
        "chunk": chunk,
        "shard_size": parse_bytes("--shard-size", shard_size),
        "max_pixels": max_pixels,
        "fast": fast,
        "libraries": libraries or {},
    }
    recipe = msgspec.convert(values, Recipe)
    if recipe.chunk is not None and recipe.target is not None:
        raw = math.prod(recipe.target) * recipe.channels
        if min(recipe.chunk, recipe.rows_for(raw)) * raw > _MAX_CHUNK:
            raise UsageError(f"--chunk {chunk}: HDF5's chunks end at 4 GiB, which is {_MAX_CHUNK // raw:,} such images")
    return recipe


def parse_size(text: str) -> tuple[int, int] | int | Literal["keep"]:
    """`--size`: "256", "224x160" (height by width) or "keep"."""
    if text == "keep":
        return "keep"
    match = re.fullmatch(r"(\d{1,6})(?:[xX](\d{1,6}))?", text.strip())
    if not match:
        raise UsageError(f"--size {text!r}: a side in pixels (256), HEIGHTxWIDTH (224x160), or keep")
    sides = tuple(int(side) for side in match.groups() if side is not None)
    if any(not 1 <= side <= _MAX_SIDE for side in sides):
        raise UsageError(f"--size {text}: sides from 1 to {_MAX_SIDE} pixels")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_crop(text: str | None) -> tuple[int, int, int, int] | None:
    """`--crop`: "X,Y,W,H" in pixels of the upright image."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*", text)
    if not match:
        raise UsageError(f"--crop {text!r}: X,Y,WIDTH,HEIGHT in pixels, such as 186,0,114,30")
    x, y, width, height = (int(group) for group in match.groups())
    if not width or not height:
        raise UsageError(f"--crop {text}: width and height from 1 on")
    return x, y, width, height


def parse_quality(text: str | None) -> int | Literal["keep"]:
    """`--quality`: 1 to 100, or "keep"."""
    if text is None:
        return DEFAULT_QUALITY
    if text == "keep":
        return "keep"
    if not re.fullmatch(r"\d{1,3}", text) or not 1 <= int(text) <= 100:
        raise UsageError(f"--quality {text!r}: 1 to 100, or keep (JPEG files pass through as they are)")
    return int(text)


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes: "256MiB", "1GB", "65536"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if not match:
        raise UsageError(f"{option} {text!r}: a number of bytes such as 256MiB, 1GB or 65536")
    base = 1024 if match[3] else 1000
    value = int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
    if not 1 <= value <= 1 << 44:
        raise UsageError(f"{option} {text}: from 1 byte to 16 TiB")
    return value


def libraries(recipe: Recipe, *, video: bool = False) -> dict[str, str]:
    """The libraries that decide what bytes a store holds that is made by `recipe`, with their versions here.

    video: whether samples are frames of videos.
    """
    import cv2

    from rawpack import jpeg
    from rawpack.pixels import area
    from rawpack_packer.images import yuv420

    chosen = jpeg.decoder()
    resizer = f"opencv {cv2.__version__}"
    if recipe.size != "keep" and recipe.interpolation == "area":
        resizer += f", rawpack.area {area.VERSION}"
    used = {"decoder": f"{chosen.name} {chosen.version}", "resizer": resizer}
    if recipe.format == "lmdb":
        import lmdb

        used["encoder"] = f"opencv {cv2.__version__}"
        used["lmdb"] = ".".join(str(part) for part in lmdb.version())
    if recipe.format == "hdf5":
        import h5py

        used["hdf5"] = h5py.version.hdf5_version
    if recipe.color == "yuv420":
        used["encoder"] = f"rawpack.yuv420 {yuv420.VERSION}"
    if recipe.compression:
        import zlib

        used["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    if video:
        from rawpack_packer.sources.video import library

        used["video"] = library()
    else:
        import PIL

        # Files of other types than JPEG and PNG may be anywhere, whatever their names.
        used[PILLOW] = PIL.__version__
    return used


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
            f"a worker has other libraries than the recipe, and would make other bytes ({'; '.join(differing)}): "
            "install the same versions everywhere"
        )


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option} {value!r}: one of {', '.join(allowed)}")
