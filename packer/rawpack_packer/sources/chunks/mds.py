"""The index of MDS, which MosaicML Streaming writes."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.chunks import index as coded
from rawpack_packer.sources.chunks.index import PICKLED, Coded, Encoding, ShardFile, ShardIndex
from rawpack_packer.sources.numbers import Int64, Length, Size
from rawpack_packer.sources.table.named_files import decoded
from rawpack_packer.text import plain

_NUMBERS = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)] + ["float16", "float32", "float64"]
_IN_ARRAYS = {8 * np.dtype(one).itemsize + {"u": 0, "i": 1, "f": 2}[one[0]]: one for one in _NUMBERS}
"""The byte that stands for a dtype: its bits, 1 more for signed numbers, 2 for floats."""
_AXES = 2
"""Bits of the byte of axes that say how wide the lengths are."""
_ENCODINGS: dict[str, Encoding] = {
    **{name: coded.number(name) for name in _NUMBERS},
    "int": coded.number("int64"),
    "bytes": coded.BYTES,
    "str": coded.TEXT,
    "str_int": Encoding("number", int, dtype="int64"),
    "str_float": Encoding("number", float, dtype="float64"),
    "str_decimal": coded.TEXT,
    "json": coded.JSON,
    "jpeg": coded.FILE,
    "png": coded.FILE,
    "pil": coded.PICTURE,
    "jpeg_array": Encoding("files"),
    "jpegarray": Encoding("files"),
    "list[jpeg]": Encoding("files", before=4),
    "list[png]": Encoding("files", before=4),
    "list[pil]": Encoding("pictures", before=4),
    "pkl": Encoding("unread", why=PICKLED),
}


class _File(msgspec.Struct):
    basename: str
    bytes: Size
    hashes: dict[str, str] = msgspec.field(default_factory=dict)


class _MdsShard(msgspec.Struct):
    samples: Length
    raw_data: _File
    format: str = ""
    version: Int64 = 2
    column_names: list[str] = msgspec.field(default_factory=list)
    column_encodings: list[str] = msgspec.field(default_factory=list)
    column_sizes: list[Length | None] = msgspec.field(default_factory=list)
    compression: str | None = None
    zip_data: _File | None = None


class _MdsIndex(msgspec.Struct):
    shards: list[_MdsShard]


def read_index(data: bytes, where: str) -> ShardIndex:
    """where: the index, printable. Raises UsageError."""
    shards = decoded(data, _MdsIndex, where, "MosaicML Streaming").shards
    if not shards:
        raise UsageError(f"{where} lists no shard: the dataset is empty")
    first = shards[0]
    names, encodings, sizes = first.column_names, first.column_encodings, first.column_sizes
    for shard in shards:
        name = plain(shard.raw_data.basename)
        if shard.format != "mds" or shard.version != 2:
            what = f"format {plain(shard.format)!r}, version {shard.version}"
            raise UsageError(f"{where}: {name} is of {what}; only MDS of version 2 is read")
        if (shard.column_names, shard.column_encodings, shard.column_sizes) != (names, encodings, sizes):
            raise UsageError(
                f"{where}: {name} has other columns than {plain(first.raw_data.basename)}: pack them separately"
            )
        if shard.zip_data is not None and not shard.compression:
            raise UsageError(f"{where} does not say what {plain(shard.zip_data.basename)} is compressed by")
    if not len(names) == len(encodings) == len(sizes):
        raise UsageError(
            f"{where}: the columns have {len(names)} names, {len(encodings)} encodings, {len(sizes)} sizes"
        )
    columns = enumerate(zip(names, encodings, sizes, strict=True))
    return ShardIndex(
        tuple(Coded(name, encoding, _encoding(encoding), at, size or None) for at, (name, encoding, size) in columns),
        tuple(map(_files, shards)),
    )


def _files(shard: _MdsShard) -> tuple[ShardFile, ...]:
    raw, packed = shard.raw_data, shard.zip_data
    plain_file = ShardFile(raw.basename, shard.samples, raw.bytes, raw.bytes, hashes=raw.hashes)
    if packed is None:
        return (plain_file,)
    codec = str(shard.compression).partition(":")[0]
    return ShardFile(packed.basename, shard.samples, packed.bytes, raw.bytes, codec, packed.hashes), plain_file


def _encoding(name: str) -> Encoding:
    kind, _, rest = name.partition(":")
    if kind == "ndarray":
        dtype, _, shape = rest.partition(":")
        try:
            lengths = msgspec.convert(shape.split(","), tuple[Length, ...], strict=False) if shape else None
        except msgspec.ValidationError:
            return Encoding("unread", why="and it does not say what its shape is")
        if not dtype or dtype in _NUMBERS:
            return coded.array(partial(_head, dtype=dtype, shape=lengths))
    return _ENCODINGS.get(name, Encoding("unread", why="an encoding that rawpack does not know"))


def _head(data: bytes, dtype: str, shape: tuple[int, ...] | None) -> tuple[str, tuple[int, ...], int]:
    """Of an array: a byte for the dtype, a byte for the number of axes, and their lengths, where they are not known."""
    at = 0
    if len(data) < (not dtype) + (shape is None):
        raise ValueError("it is empty")
    if not dtype:
        if data[0] not in _IN_ARRAYS:
            raise ValueError(f"its dtype has the number {data[0]}")
        dtype, at = _IN_ARRAYS[data[0]], 1
    if shape is None:
        axes, width = data[at] >> _AXES, 1 << (data[at] & 3)
        lengths = np.frombuffer(bytes(data[at + 1 : at + 1 + axes * width]), f"<u{width}")
        if len(lengths) < axes:
            raise ValueError(f"it ends before the lengths of its {axes} axes")
        shape, at = tuple(lengths.tolist()), at + 1 + axes * width
    return dtype, shape, at
