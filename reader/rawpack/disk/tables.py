"""The two tables of what a store's shards can be: a row for each format, and one for each codec.

A row answers what the rest of the reader asks, so nothing else asks for a format or an encoding by its name. Code is
named as "module:function" and loaded when the first shard is opened: a store needs the libraries of its own codec only.

A package of your own adds a row by an entry point of the group `rawpack.formats` or `rawpack.codecs`. The entry point
has the row's name. Every process that opens such a store finds it there, workers included.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rawpack.errors import StoreError
from rawpack.pixels.geometry import planar_bytes

if TYPE_CHECKING:
    from rawpack.disk.manifest import Field

FORMAT_GROUP, CODEC_GROUP = "rawpack.formats", "rawpack.codecs"
"""Groups of entry points."""
Shape = tuple[int, ...]


def _any(field: Field) -> bool:
    return True


def _jpeg_holds(field: Field) -> bool:
    return field.dtype == "uint8" and len(field.shape) == 3 and field.shape[2] in (1, 3)


def _png_holds(field: Field) -> bool:
    return field.dtype in ("uint8", "uint16") and len(field.shape) == 3 and field.shape[2] in (1, 3)


def _planes_hold(field: Field) -> bool:
    return field.kind == "image" and field.dtype == "uint8" and len(field.shape) == 3 and field.shape[2] == 3


def _same(shape: Shape) -> Shape:
    return shape


def _flat_planes(shape: Shape) -> Shape:
    return (planar_bytes((shape[0], shape[1])),)


@dataclass(frozen=True)
class Codec:
    """How a shard holds the bytes of one image or mask."""

    name: str
    """What the manifest calls it: `encoding` of a field."""
    open: str
    """"module:function": takes a `ShardField`, returns its `FieldReader`."""
    index: tuple[str, ...] = ()
    """Columns of the index that are there even where all samples have one shape. "offset" and "bytes": where each
    sample is in the file. "chunk": where each compressed chunk is."""
    in_place: bool = False
    """Whether the stored bytes are in the file as they are, one sample after another, and `stored_shape` values each:
    rows of one shape are then copied, by one call for all shards."""
    planar: bool = False
    """Whether each sample is an image as planes of YCbCr 4:2:0."""
    lossy: bool = False
    """Whether what is read may differ from the pixels that were packed."""
    scales: bool = False
    """Whether reading at 1/2, 1/4 or 1/8 takes less time than reading all and reducing it."""
    suffix: str = ""
    """Of a file that has the stored bytes of one sample, ".jpg"; empty where they are no image file."""
    max_inflation: int = 1
    """Bytes of values that one byte of the shard can hold at most. A manifest that claims more is refused before memory
    is taken for it."""
    holds: Callable[[Field], bool] = _any
    """Whether samples of a field can be stored so."""
    stored_shape: Callable[[Shape], Shape] = _same
    """Shape of a sample -> shape of its values as they are stored, or as they are before compression."""


@dataclass(frozen=True)
class Format:
    """How the shards of a store are laid out."""

    name: str
    """What the manifest and `--format` call it."""
    suffix: str
    """Of its shard files."""
    codecs: frozenset[str]
    """The encodings that its images and masks can have."""
    open: str
    """"module:function": takes a `ShardField`, checks the file's header, returns the `FieldReader`."""
    used_bytes: str = ""
    """"module:function": the bytes that a mapped shard uses by its own header; for `rawpack inspect --verify`, where
    files may be larger than what they hold. Empty where every byte counts."""


_OPEN = "rawpack.formats.codecs"
_DEFLATE = 1032
"""What deflate reaches at most."""

CODECS: dict[str, Codec] = {
    row.name: row
    for row in (
        Codec("raw", f"{_OPEN}.raw:open_rows", in_place=True),
        Codec("deflate", f"{_OPEN}.deflate:open_rows", index=("chunk",), max_inflation=_DEFLATE),
        Codec(
            "jpeg", f"{_OPEN}.jpeg:open_rows", index=("offset", "bytes"), lossy=True, scales=True, suffix=".jpg",
            max_inflation=6144, holds=_jpeg_holds,
        ),
        Codec(
            "png", f"{_OPEN}.png:open_rows", index=("offset", "bytes"), suffix=".png", max_inflation=_DEFLATE,
            holds=_png_holds,
        ),
        Codec(
            "yuv420", f"{_OPEN}.yuv420:open_rows", in_place=True, planar=True, lossy=True, holds=_planes_hold,
            stored_shape=_flat_planes,
        ),
        Codec(
            "yuv420_deflate", f"{_OPEN}.yuv420:open_deflated_rows", index=("chunk",), planar=True, lossy=True,
            max_inflation=_DEFLATE, holds=_planes_hold, stored_shape=_flat_planes,
        ),
    )
}  # fmt: skip
"""The codecs that come with rawpack."""

_RAW = frozenset({"raw", "yuv420"})

FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("memmap", ".npy", _RAW, "rawpack.formats.memmap:open_field"),
        Format(
            "hdf5", ".h5", _RAW | {"deflate", "yuv420_deflate"}, "rawpack.formats.hdf5:open_field",
            "rawpack.formats.hdf5:used_bytes",
        ),
        Format(
            "lmdb", ".lmdb", frozenset({"jpeg", "png"}), "rawpack.formats.lmdb:open_field",
            "rawpack.formats.lmdb:used_bytes",
        ),
    )
}  # fmt: skip
"""The formats that come with rawpack."""


def codec_of(name: str) -> Codec:
    """The codec of this name. Raises StoreError where no installed package has it."""
    found = CODECS.get(name) or added(CODEC_GROUP, name)
    if not isinstance(found, Codec):
        raise StoreError(f"the encoding {name!r} is unknown ({', '.join(CODECS)}): {_CURE}")
    return found


def format_of(name: str) -> Format:
    """The format of this name. Raises StoreError where no installed package has it."""
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
        except Exception as error:  # a package of strangers may raise anything
            raise StoreError(f"{entry.value}, which adds {name!r} to {group}, cannot be imported: {error}") from error
    return None


@cache
def resolve(reference: str) -> Callable[..., Any]:
    """The function or class that a row names."""
    found: Callable[..., Any] = pkgutil.resolve_name(reference)
    return found
