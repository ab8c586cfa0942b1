"""The tables of formats and codecs, with one row for each.

The rest of the reader uses the properties in these rows, and never compares the name of a format or an encoding. Code
is named as "module:function" and loaded when the first shard is opened: a store needs only the libraries of its codec.

A third-party package adds a row by an entry point of the group `rawpack.formats` or `rawpack.codecs`, under the row's
name. Every process that opens such a store finds it there, including workers.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rawpack.errors import StoreError
from rawpack.pixels.geometry import planar_bytes

if TYPE_CHECKING:
    from rawpack.disk.manifest import Field

FORMAT_GROUP, CODEC_GROUP = "rawpack.formats", "rawpack.codecs"
Shape = tuple[int, ...]


def _any(field: Field) -> bool:
    return True


def _same(shape: Shape) -> Shape:
    return shape


def _image(field: Field, dtypes: Sequence[str] = ("uint8",), channels: Sequence[int] = (1, 3)) -> bool:
    return field.dtype in dtypes and len(field.shape) == 3 and field.shape[2] in channels


def _plain(field: Field) -> bool:
    return not field.dtype.startswith("complex")


def _deep_image(field: Field) -> bool:
    return _image(field, ("uint8", "uint16"))


def _color_image(field: Field) -> bool:
    return field.kind == "image" and _image(field, channels=(3,))


def _flat_planes(shape: Shape) -> Shape:
    return (planar_bytes((shape[0], shape[1])),)


@dataclass(frozen=True)
class Codec:
    """How a shard holds the bytes of one image or mask."""

    name: str
    """As in the manifest: `encoding` of a field."""
    open: str
    """"module:name" of a function or class that takes a `ShardField` and returns its `FieldReader`."""
    index: tuple[str, ...] = ()
    """Columns of the index that it needs even where all samples have one shape. "offset" and "bytes": where each sample
    is in the file. "chunk": where each compressed chunk is."""
    in_place: bool = False
    """Whether the file has the `stored_shape` values of each sample, one sample after another and not compressed: rows
    of one shape are then copied by one call for all shards."""
    planar: bool = False
    """Whether each sample is an image as planes of YCgCo 4:2:0."""
    native: bool = False
    """Whether the native core takes part in decoding, besides making pixels of planes."""
    lossy: bool = False
    """Whether decoded pixels may differ from those that were packed."""
    scales: bool = False
    """Whether reading at 1/2, 1/4 or 1/8 is faster than reading at full size and reducing."""
    suffix: str = ""
    """Of a file with the stored bytes of one sample, ".jpg"; empty where these are not an image file."""
    max_inflation: int = 1
    """The most bytes of values that one byte of the shard can hold. A manifest that claims more is refused before any
    memory is allocated."""
    holds: Callable[[Field], bool] = _any
    """Whether it can store the samples of a field."""
    needs: str = ""
    """"module:function" that raises MissingExtraError where a package is missing without which nothing can be read."""
    stored_shape: Callable[[Shape], Shape] = _same
    """Shape of a sample -> shape of its values as they are stored, before any compression."""


@dataclass(frozen=True)
class Format:
    """How the shards of a store are laid out."""

    name: str
    """As in the manifest and in `--format`."""
    suffix: str
    codecs: frozenset[str]
    """The encodings that its images and masks can have."""
    open: str
    """"module:function": takes a `ShardField`, checks the file's header, and returns the `FieldReader`."""
    used_bytes: str = ""
    """"module:function": the bytes that a mapped shard uses by its own header, for `rawpack inspect --verify`. Empty
    where a file is never larger than its contents."""


_OPEN = "rawpack.formats.codecs"
_DEFLATE = 1032
"""The most that deflate reaches."""
_ZSTD = 1 << 15
"""The most that zstd reaches: a block of 128 KiB takes 4 bytes."""

CODECS: dict[str, Codec] = {
    row.name: row
    for row in (
        Codec("raw", f"{_OPEN}.raw:open_rows", in_place=True),
        Codec("deflate", f"{_OPEN}.deflate:DeflatedRows", index=("chunk",), max_inflation=_DEFLATE),
        Codec(
            "jpeg", f"{_OPEN}.jpeg:JpegRows", index=("offset", "bytes"), lossy=True, scales=True, suffix=".jpg",
            max_inflation=6144, holds=_image,
        ),
        Codec(
            "png", f"{_OPEN}.png:PngRows", index=("offset", "bytes"), suffix=".png", max_inflation=_DEFLATE,
            holds=_deep_image,
        ),
        Codec(
            "ycgco420", f"{_OPEN}.yuv420:open_rows", in_place=True, planar=True, lossy=True, holds=_color_image,
            stored_shape=_flat_planes,
        ),
        Codec(
            "ycgco420_deflate", f"{_OPEN}.yuv420:open_rows", index=("chunk",), planar=True, lossy=True,
            max_inflation=_DEFLATE, holds=_color_image, stored_shape=_flat_planes,
        ),
        Codec("zstd", f"{_OPEN}.zstd:open_rows", index=("offset", "bytes"), max_inflation=_ZSTD, holds=_plain,
              native=True, needs=f"{_OPEN}.zstd:library"),
        Codec(
            "ycgco420_zstd", f"{_OPEN}.zstd:open_rows", index=("offset", "bytes"), planar=True, lossy=True,
            max_inflation=_ZSTD, holds=_color_image, stored_shape=_flat_planes, needs=f"{_OPEN}.zstd:library",
        ),
    )
}  # fmt: skip

_RAW = frozenset({"raw", "ycgco420"})

FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("memmap", ".npy", _RAW | {"zstd", "ycgco420_zstd"}, "rawpack.formats.memmap:open_field"),
        Format(
            "hdf5", ".h5", _RAW | {"deflate", "ycgco420_deflate"}, "rawpack.formats.hdf5:open_field",
            "rawpack.formats.hdf5:used_bytes",
        ),
        Format(
            "lmdb", ".lmdb", frozenset({"jpeg", "png"}), "rawpack.formats.lmdb:open_field",
            "rawpack.formats.lmdb:used_bytes",
        ),
    )
}  # fmt: skip


@cache
def codec_of(name: str) -> Codec:
    """The codec with this name. Raises StoreError where no installed package has it."""
    found = CODECS.get(name) or added(CODEC_GROUP, name)
    if not isinstance(found, Codec):
        raise StoreError(f"the encoding {name!r} is unknown ({', '.join(CODECS)}): {_CURE}")
    return found


def format_of(name: str) -> Format:
    """The format with this name. Raises StoreError where no installed package has it."""
    found = FORMATS.get(name) or added(FORMAT_GROUP, name)
    if not isinstance(found, Format):
        raise StoreError(f"the format {name!r} is unknown ({', '.join(FORMATS)}): {_CURE}")
    return found


_CURE = "update rawpack, or install the package that adds it"


@cache
def added(group: str, name: str) -> object | None:
    """The row that an installed package adds to the table of a group of entry points; None where there is none."""
    from importlib.metadata import entry_points  # a tenth of the time of `import rawpack`

    for entry in entry_points(group=group, name=name):
        try:
            row: object = entry.load()
            return row
        except Exception as error:  # third-party code may raise anything
            raise StoreError(f"{entry.value}, which adds {name!r} to {group}, cannot be imported: {error}") from error
    return None


@cache
def resolve(reference: str) -> Callable[..., Any]:
    found: Callable[..., Any] = pkgutil.resolve_name(reference)
    return found
