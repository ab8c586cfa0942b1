"""The tables of formats and encodings that packing can write, with a row for each.

They are the packer's side of `rawpack.disk.tables`, with the same names. Nothing else in the packer asks for a format
or an encoding by its name. Code is named as "module:function" and loaded when it is first used, so a worker loads only
the libraries of its own format.

A package of your own adds a row by an entry point of the group `rawpack.writers` or `rawpack.encoders`, besides its
entry point for the reader of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawpack.disk.tables import added, codec_of
from rawpack.errors import UsageError
from rawpack_packer.options import WRITER_GROUP, format_names, opt

if TYPE_CHECKING:
    from rawpack_packer.recipe import Recipe

ENCODER_GROUP = "rawpack.encoders"
"""A group of entry points."""


@dataclass(frozen=True)
class Encoder:
    """How the values of one image or mask become the bytes that a shard holds."""

    name: str
    """As that of the reader's `Codec`."""
    encode: str
    """"module:function": takes an image or mask in C order and the `Recipe`, returns the array that the writer gets.
    Raises DecodeError where the sample is to be rejected."""
    decode: str = ""
    """"module:function": takes what `encode` returned, the image's shape and the `Recipe`, returns what a reader gets;
    empty where that is the image itself."""
    libraries: str = ""
    """"module:function": the libraries that decide the bytes, name -> version."""
    planes: str = ""
    """"module:function", for planes of YCgCo: takes planes (n,) and the image's (height, width), returns the array that
    the writer gets; empty where that is the planes themselves."""
    refusal: str = "{what} cannot be stored so: use {formats}"
    """The error where `Codec.holds` is false; `{what}` stands for the field, `{formats}` for those that hold it."""


@dataclass(frozen=True)
class OutputFormat:
    """How shards of one format are written."""

    name: str
    """As that of the reader's `Format`."""
    writer: str
    """"module:class": a `ShardWriter`, made of the temporary paths, the recipe and the fields."""
    image_encoding: Callable[[Recipe], str] = lambda recipe: "raw"
    mask_encoding: Callable[[Recipe], str] = lambda recipe: "raw"
    """The encodings that a recipe chooses; each has an `Encoder`."""
    options: frozenset[str] = frozenset()
    """Which of the options that only some formats have: quality, subsampling, jpeg_tables,
    compression, chunk."""
    colors: tuple[str, ...] = ("rgb", "gray")
    """What `--color` may be."""
    compressions: tuple[str, ...] = ("gzip",)
    """What `--compression` may be, besides none."""
    file_per_field: bool = False
    """Whether each image and mask field of a shard has its own file; else one file holds all fields."""
    libraries: str = ""
    """"module:function": the libraries that decide the bytes of the file, name -> version."""
    compare: str = ""
    """"module:function", for `rawpack inspect --verify`: takes a `Store`, the number of a shard, the name of a field
    and the path of its file. Reads the file with the format's own library, in a process of its own, and returns what
    differs from the index, or None. Empty for a format without a library."""
    value_bytes: str = ""
    """"module:function": takes the size of a value, returns its bytes in a shard; empty where they are equal."""
    shard_bytes: int = 0
    """What a shard takes besides its images, with its entry in the manifest: headers, padding."""
    flat_chunk: int = 0
    """Bytes of a chunk, where uncompressed samples of different sizes take whole chunks; else 0."""
    copies_columns: bool = False
    """Whether each shard has a copy of its rows' small fields."""
    spools: bool = False
    """Whether a shard's pixels are kept in a second file until the shard is finished."""


_ENCODE = "rawpack_packer.samples.encoders"

ENCODERS: dict[str, Encoder] = {
    row.name: row
    for row in (
        Encoder("raw", f"{_ENCODE}:as_is"),
        Encoder("deflate", f"{_ENCODE}:as_is"),  # chunks of many samples are compressed by the format's writer
        Encoder(
            "jpeg", f"{_ENCODE}:to_jpeg", f"{_ENCODE}:from_jpeg", f"{_ENCODE}:jpeg_libraries",
            refusal="a JPEG stores uint8 pixels of 1 or 3 channels, not {what}: use {formats}",
        ),
        Encoder(
            "png", f"{_ENCODE}:to_png",
            refusal="a PNG stores uint8 or uint16 of 1 or 3 channels, not {what}: "
            "use {formats}",
        ),
        *(
            Encoder(
                name, f"{_ENCODE}:to_planes", f"{_ENCODE}:from_planes", f"{_ENCODE}:planes_libraries",
                refusal="ycgco420 is for RGB, uint8 (height, width, 3), not for {what}",
            )
            for name in ("ycgco420", "ycgco420_deflate")
        ),
        Encoder("zstd", f"{_ENCODE}:to_zstd", libraries=f"{_ENCODE}:zstd_libraries",
                refusal="zstd is for whole numbers and floats, not for {what}"),
        Encoder(
            "ycgco420_zstd", f"{_ENCODE}:to_zstd_planes", f"{_ENCODE}:from_zstd_planes",
            f"{_ENCODE}:zstd_planes_libraries", f"{_ENCODE}:packed_planes",
            "ycgco420 is for RGB, uint8 (height, width, 3), not for {what}",
        ),
    )
}  # fmt: skip
"""The encoders that come with rawpack."""

_WRITERS = "rawpack_packer.writers"


def _memmap_image(recipe: Recipe) -> str:
    if recipe.color == "ycgco420":
        return "ycgco420_zstd" if recipe.compression else "ycgco420"
    return "zstd" if recipe.compression else "raw"


def _hdf5_image(recipe: Recipe) -> str:
    if recipe.color == "ycgco420":
        return "ycgco420_deflate" if recipe.compression else "ycgco420"
    return "deflate" if recipe.compression else "raw"


OUTPUT_FORMATS: dict[str, OutputFormat] = {
    row.name: row
    for row in (
        OutputFormat(
            "memmap",
            f"{_WRITERS}.memmap:MemmapWriter",
            image_encoding=_memmap_image,
            mask_encoding=lambda recipe: "zstd" if recipe.compression else "raw",
            options=frozenset({"compression"}),
            colors=("rgb", "gray", "ycgco420"),
            compressions=("zstd",),
            file_per_field=True,
            shard_bytes=4400,
        ),
        OutputFormat(
            "hdf5",
            f"{_WRITERS}.hdf5:Hdf5Writer",
            image_encoding=_hdf5_image,
            mask_encoding=lambda recipe: "deflate" if recipe.compression else "raw",
            options=frozenset({"compression", "chunk"}),
            colors=("rgb", "gray", "ycgco420"),
            libraries=f"{_WRITERS}.hdf5:libraries",
            compare=f"{_WRITERS}.hdf5:compare",
            shard_bytes=6200,
            flat_chunk=1 << 20,
            copies_columns=True,
            spools=True,
        ),
        OutputFormat(
            "lmdb",
            f"{_WRITERS}.lmdb:LmdbWriter",
            image_encoding=lambda recipe: "jpeg",
            mask_encoding=lambda recipe: "png",
            options=frozenset({"quality", "subsampling", "jpeg_tables"}),
            libraries=f"{_WRITERS}.lmdb:libraries",
            compare=f"{_WRITERS}.lmdb:compare",
            value_bytes=f"{_WRITERS}.lmdb:value_bytes",
            shard_bytes=11_600,  # two pages and most of a third
        ),
    )
}
"""The formats that come with rawpack; the first is the default."""


def output_format(name: str) -> OutputFormat:
    """The format of this name, for writing. Raises UsageError where there is none."""
    found = (OUTPUT_FORMATS.get(name) or added(WRITER_GROUP, name)) if isinstance(name, str) else None
    if not isinstance(found, OutputFormat):
        raise UsageError(f"{opt.format(repr(name))}: must be one of {', '.join(format_names())}")
    return found


def encoder_of(name: str) -> Encoder:
    """The encoder of this name. Raises UsageError where there is none."""
    found = ENCODERS.get(name) or added(ENCODER_GROUP, name)
    if not isinstance(found, Encoder):
        raise UsageError(f"no installed package writes the encoding {name!r}: install the one that adds it")
    return found


def is_jpeg(encoding: str) -> bool:
    """Whether samples of this encoding are JPEG files."""
    return codec_of(encoding).suffix == ".jpg"
