"""The index of litdata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.chunks import index as coded
from rawpack_packer.sources.chunks.index import PICKLED, Coded, Encoding, Leaf, ShardFile, ShardIndex
from rawpack_packer.sources.numbers import Length, Size
from rawpack_packer.sources.table.named_files import decoded
from rawpack_packer.text import plain

_NUMPY = dict(
    enumerate(
        [
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        ]
    )
)
"""The number of a dtype of numpy. Those from 14 on are no numbers."""
_TORCH = {
    **dict.fromkeys((0, 1), "float32"), **dict.fromkeys((2, 3), "float64"), **dict.fromkeys((4, 5), "complex64"),
    **dict.fromkeys((6, 7), "complex128"), **dict.fromkeys((8, 9), "float16"), 11: "uint8", 12: "int8",
    **dict.fromkeys((13, 14), "int16"), **dict.fromkeys((15, 16), "int32"), **dict.fromkeys((17, 18), "int64"),
    19: "bool", 20: "uint16",
}  # fmt: skip
"""The number of a dtype of torch. 10 is bfloat16, which numpy lacks."""
_ENCODINGS: dict[str, Encoding] = {
    "str": coded.TEXT,
    "text": coded.TEXT,
    "json": Encoding("json", coded.compact_json),
    "bool": coded.number("bool"),
    "int": coded.number("int64"),
    "float": coded.number("float64"),
    "bytes": coded.BYTES,
    "image": coded.FILE,
    "jpeg": coded.FILE,
    "tifffile": coded.FILE,
    "pil": coded.PICTURE,
    "jpeg_array": Encoding("files"),
    "numpy": coded.array(partial(coded.head_of_words, order="<", dtypes=_NUMPY)),
    "tensor": coded.array(partial(coded.head_of_words, order=">", dtypes=_TORCH)),
    "pickle": Encoding("unread", why=PICKLED),
}
_FLAT = {"no_header_numpy": _NUMPY, "no_header_tensor": _TORCH}
_ENDS = 8
"""Bytes that a chunk has besides the offsets and its items: older indexes count only these."""


class _Chunk(msgspec.Struct):
    filename: str
    chunk_size: Length
    chunk_bytes: Size
    dim: Length | None = None


class _Config(msgspec.Struct):
    data_format: list[str]
    data_spec: str | None = None
    compression: str | None = None
    compression_level: str | None = None
    encryption: Any = None
    item_loader: str = "PyTreeLoader"


class _SampleTree(msgspec.Struct):
    """The tree of a sample, as torch's pytree has it."""

    type: str | None
    context: str | None = None
    children_spec: list[_SampleTree] = []


class _LitdataIndex(msgspec.Struct):
    chunks: list[_Chunk]
    config: _Config


def read_index(data: bytes, where: str) -> ShardIndex:
    """where: the index, printable. Raises UsageError."""
    index = decoded(data, _LitdataIndex, where, "litdata")
    config = index.config
    if config.encryption is not None:
        raise UsageError(f"{where}: the chunks are encrypted: write them again without encryption, by litdata itself")
    if config.item_loader == "ParquetLoader":
        raise UsageError(f"{where} lists Parquet files: pack them by {opt.kind('parquet')}")
    if config.item_loader != "PyTreeLoader" or any(chunk.dim for chunk in index.chunks):
        raise UsageError(
            f"{where}: the chunks are for {plain(config.item_loader)}, and contain no samples with an image"
        )
    if not index.chunks:
        raise UsageError(f"{where} lists no chunk: the dataset is empty")
    formats = config.data_format
    try:
        tree = msgspec.json.decode(config.data_spec or "", type=tuple[Any, _SampleTree])[1]
        leaves = [*_leaves(tree, "", ())]
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{where}: its data_spec is not what litdata writes: {error}") from error
    if len(leaves) != len(formats):
        raise UsageError(f"{where}: its data_spec does not name the {len(formats)} values of its data_format")
    codec, level = (config.compression or "").partition(":")[0], config.compression_level
    if codec and level not in (None, "chunk"):
        codec = f"{codec}/{level}"
    values = [(name, path, encoding) for (name, path), encoding in zip(leaves, formats, strict=True)]
    rows = tuple((path, encoding) for _, path, encoding in values if tree.type == "builtins.dict")
    return ShardIndex(
        tuple(Coded(name, encoding, _encoding(encoding), at) for at, (name, _, encoding) in enumerate(values)),
        tuple(_files(chunk, codec, f".{config.compression}.bin", rows) for chunk in index.chunks),
    )


def _files(chunk: _Chunk, codec: str, ending: str, leaves: tuple[Leaf, ...]) -> tuple[ShardFile, ...]:
    """ending: of a chunk that is compressed as a whole, which litdata may replace by a decompressed one."""
    most = 1 << 32 if "/" in codec else chunk.chunk_bytes + 4 * chunk.chunk_size + _ENDS
    file = ShardFile(chunk.filename, chunk.chunk_size, None, most, codec, leaves=leaves)
    if not chunk.filename.endswith(ending):
        return (file,)
    return file, replace(file, name=f"{chunk.filename.removesuffix(ending)}.bin", codec="")


def _leaves(spec: _SampleTree, name: str, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The leaves of a sample: the name of each, and where it is, by keys of dicts and positions in lists and tuples.

    Names are keys of dicts, joined by "/", and positions. A tuple of two is an image and its label, and a sample that
    is not a dict or a tuple is the image.
    """
    if spec.type is None:
        yield name or "image", path
        return
    children, keys = spec.children_spec, msgspec.json.decode(spec.context or "null")
    if isinstance(keys, list) and len(keys) == len(children):
        steps = [*map(str, keys)]
        names = [f"{name}/{key}" if name else key for key in steps]
    else:
        steps = [*map(str, range(len(children)))]
        pair = not name and len(children) <= 2
        names = ["image", "label"] if pair else [f"{name or 'value'}_{step}" for step in steps]
    for inner, step, child in zip(names, steps, children, strict=False):
        yield from _leaves(child, inner, (*path, step))


def _encoding(name: str) -> Encoding:
    kind, _, rest = name.partition(":")
    if kind in _FLAT and rest.isdecimal() and int(rest) in _FLAT[kind]:
        return coded.array(partial(coded.known_head, dtype=_FLAT[kind][int(rest)]))
    return _ENCODINGS.get(kind, Encoding("unread", why="a serializer of litdata that rawpack does not read"))
