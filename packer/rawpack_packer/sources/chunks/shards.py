"""Where values are in a shard, which is checked, and decompressed.

Samples of litdata may be rows of an Arrow file: dicts of bytes, numbers, texts and lists of these, where pyarrow was
installed when they were written. Such a chunk has the number of its samples, offsets that are all the same, an Arrow
file, the length of that, and a mark. It is read as a chunk of the other layout, which its rows are written as here.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import need
from rawpack_packer.sources.chunks.index import Coded, Head, Leaf, ShardFile
from rawpack_packer.sources.inflation import Inflated, most_of
from rawpack_packer.sources.table.columns import Rows, Spans, read_range
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.text import plain

_CODECS = {"br": "brotli", "bz2": "bz2", "gz": "gzip", "snappy": "snappy", "zstd": "zstd"}
"""What indexes call a compression -> what pyarrow calls it."""
_MAGIC = b"LDFZ01\0\0"
_FRAMED, _FRAME = struct.Struct("<8sHHIII"), struct.Struct("<IIQII")
"""What litdata has before samples that are compressed some at once: magic, version, flags, samples, samples of a frame,
frames; and of each frame: the first sample, samples, offset, bytes, and bytes without compression."""
ARROW = "arrow"
"""What `ShardFile.codec` says of a chunk of rows of Arrow."""
_END, _MARK = struct.Struct("<I8s"), b"LDARW01\0"
"""Its last bytes: the length of the Arrow file, and the mark."""
_MOST_SHARD = 1 << 32
"""Bytes of a shard without compression: its offsets have 32 bits."""
_PIECE = 1 << 20
_COPY = "copy it again, or write it again"
_last = threading.local()
"""The shard that this thread decompressed last: its path and state, and its bytes."""
Read = Callable[[int, int], bytes]
"""`read(offset, size)`. Raises DecodeError where the shard ends before that."""


class FoundSamples(NamedTuple):
    """What is known of the samples of a shard."""

    places: bytes
    """int64, (2, columns, samples): where each value begins, and its bytes."""
    values: dict[int, list[bytes]]
    """The values of columns that are read at once."""
    heads: dict[int, bytes]
    """Column whose arrays have one dtype and shape in this shard -> what is before the values of each, and the size."""
    in_arrow: bool
    """Whether samples are rows of Arrow."""

    def places_of(self, n: int, sought: SoughtColumns) -> NDArray[np.int64]:
        """(2, samples): the places of column n of `sought.columns`."""
        return np.frombuffer(self.places, np.int64).reshape(2, len(sought.columns), -1)[:, n]


class SoughtColumns(NamedTuple):
    """What is looked for in shards; columns by their positions, but for `coded`."""

    coded: tuple[Coded, ...]
    """All of the index."""
    columns: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    """Those that are read at once."""
    heads: Mapping[int, Head] = {}
    """Those of arrays."""


@dataclass(frozen=True, eq=False)
class ShardSpans(Spans):
    """Values of one column: see `Spans`. In a compressed shard, `offset` is that in the decompressed one."""

    shards: tuple[ShardFile, ...] = field(default=(), kw_only=True)
    """Of each of `archives`."""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        k, reader = int(self.archive[i]), super()._reader(i, most)
        return partial(self._read_decompressed, k=k, **reader.keywords) if self.shards[k].codec else reader

    def _read_decompressed(self, fd: int, k: int, offset: int, size: int) -> bytes:
        return decompressed(fd, self.archives, k, self.shards[k])[offset : offset + size]

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """None in a compressed shard."""
        return None if self.shards[int(self.archive[i])].codec else super().image_file(i)

    def pick(self, rows: Rows, /) -> Self:
        used = np.unique(self.archive[rows]).tolist()
        return replace(super().pick(rows), shards=tuple(self.shards[k] for k in used))


def with_rows(shard: ShardFile) -> ShardFile:
    """A shard whose samples are rows of Arrow."""
    return replace(shard, codec=ARROW, most=_MOST_SHARD)


def decompressed(fd: int, files: NamedFiles, k: int, shard: ShardFile) -> bytes:
    """All bytes of a compressed shard, open as `fd`; this thread keeps those of the last one. Raises DecodeError,
    MissingExtraError, and UsageError for an unknown compression."""
    known = files.paths[k], files.state(k)
    about, data = getattr(_last, "shard", (None, b""))
    if about == known:
        return bytes(data)
    _last.shard = None, b""  # two would be in memory otherwise
    data, where = read_range(fd, 0, files.state(k)[0]), files.name(k)
    codec, _, by = shard.codec.partition("/")
    most = most_of(len(data), min(shard.most, _MOST_SHARD))
    what, cure = "is compressed", "decompress it first"
    if codec == ARROW:
        what, cure = "has rows of Arrow", "write it again without pyarrow"
    elif codec not in _CODECS:
        raise UsageError(f"{where} is compressed by {plain(codec)!r}, which is not read: {cure}")
    need("pyarrow", "parquet", f"{where} {what}, which", cure)
    try:
        if codec == ARROW:
            data = _as_chunk(data, shard.leaves, most)
        elif by:
            data = (_items if by == "sample" else _frames)(data, _CODECS[codec], most)
        else:
            whole = Inflated(_CODECS[codec], most)
            whole.add(data)
            data = whole.finish()
    except (OSError, ValueError, struct.error) as error:  # pyarrow's own errors are of the first two
        what = "its rows are" if codec == ARROW else "its compressed data is"
        raise DecodeError("corrupt", f"{what} damaged ({plain(str(error))[:100]})") from error
    _last.shard = known, data
    return data


def _as_chunk(data: bytes, leaves: Sequence[Leaf], most: int) -> bytes:
    """A chunk of rows in the other layout. most: bytes that its columns have at most. Raises ValueError where it is
    damaged; pyarrow's own errors are of that or of OSError."""
    import pyarrow as pa

    size, _ = _END.unpack(data[-_END.size :])
    start = len(data) - _END.size - size
    if start < 0:
        raise ValueError("its rows are longer than it is")
    file = memoryview(data)[start : start + size]
    samples, left = list[bytes](), most
    with pa.ipc.open_file(pa.py_buffer(file)) as reader:
        for k in range(reader.num_record_batches):
            try:
                batch = reader.get_batch(k)
            except MemoryError as error:  # a length that is damaged
                raise ValueError(f"its rows: {error}") from error
            left -= batch.nbytes
            if left < 0:
                raise ValueError(f"its rows stand for more than {most:,} bytes")
            batch.validate(full=True)
            for row in batch.to_pylist():
                values = [_encoded(_value_at(row, path), encoding) for path, encoding in leaves]
                samples.append(struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values))
    return b"".join([_head(np.array([*map(len, samples)], np.int64)), *samples])


def _value_at(row: Any, path: Sequence[str]) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, Mapping) else None if row is None else row[int(key)]
    return row


def _encoded(value: Any, encoding: str) -> bytes:
    """A value as litdata writes it in the other layout; a missing one has no bytes, but for JSON."""
    kind = encoding.partition(":")[0]
    if kind == "json":
        return json.dumps(value).encode()
    if value is None:
        return struct.pack("<d", math.nan) if kind == "float" else b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if kind in ("bool", "int", "float") and isinstance(value, bool | int | float):
        return struct.pack({"bool": "<?", "int": "<q", "float": "<d"}[kind], value)
    raise DecodeError("bad_field", f"a value of {encoding!r} is {type(value).__name__}")


def _items(data: bytes, codec: str, most: int) -> bytes:
    """A shard whose samples are compressed one by one, decompressed."""
    count = int.from_bytes(data[:4], "little")
    starts = _offsets(data, 4 * (count + 2), count, 4)
    if starts[-1] > len(data):
        raise ValueError("it ends before its last sample")
    shard = Inflated(codec, most, 4 * (len(starts) + 1))
    lengths = [shard.add(data[start:end]) for start, end in pairwise(starts.tolist())]
    return shard.finish(_head(np.array(lengths, np.int64)))


def _frames(data: bytes, codec: str, most: int) -> bytes:
    """As `_items`, where some samples are compressed together."""
    magic, version, _, count, _, frames = _FRAMED.unpack_from(data)
    if (magic, version) != (_MAGIC, 1):
        raise ValueError("it does not begin as its index says")
    starts = _offsets(data, 0, count, _FRAMED.size)
    at = _FRAMED.size + 4 * (count + 1)
    end, seen, made, shard = at + frames * _FRAME.size, 0, 0, Inflated(codec, most, 4 * (count + 2))
    for first, samples, start, length, size in _FRAME.iter_unpack(data[at:end]):
        if first != seen or not end <= start <= start + length <= len(data):
            raise ValueError("its frames do not follow one another")
        if shard.add(data[start : start + length], size) != size:
            raise ValueError("a frame is shorter than it says")
        end, seen, made = start + length, seen + samples, made + size
    if (seen, made) != (count, starts[-1] - starts[0]):
        raise ValueError("its frames do not hold all of its samples")
    return shard.finish(_head(np.diff(starts)))


def _offsets(data: bytes, least: int, count: int, at: int) -> Rows:
    """The offsets at byte `at`, one more than `count`, which ascend from `least` on."""
    starts = np.frombuffer(data, "<u4", count + 1, at).astype(np.int64)
    if starts[0] < least or (np.diff(starts) < 0).any():
        raise ValueError("the offsets of its samples do not ascend")
    return starts


def _head(lengths: Rows) -> bytes:
    """What is before the samples of a shard that is not compressed."""
    starts = np.concatenate([[0], np.cumsum(lengths)]) + 4 * (len(lengths) + 2)
    if starts[-1] >= _MOST_SHARD:
        raise ValueError("it is longer than a shard can be")
    return len(lengths).to_bytes(4, "little") + starts.astype("<u4").tobytes()


def check_file(fd: int, files: NamedFiles, k: int, shard: ShardFile) -> None:
    """Raise UsageError where file k is not the one that the index lists, by its size and its hashes."""
    size, where = files.state(k)[0], files.name(k)
    if shard.bytes is not None and shard.bytes != size:
        raise UsageError(f"{where} has {size:,} bytes, and its index says {shard.bytes:,}; {_COPY}")
    for algorithm, digest in shard.hashes.items():
        if algorithm in xxhash.algorithms_available:
            made: Any = getattr(xxhash, algorithm)()
        elif algorithm in hashlib.algorithms_available and not algorithm.startswith("shake"):
            made = hashlib.new(algorithm, usedforsecurity=False)
        else:
            what = f"a hash by {plain(algorithm)!r}, which is not known"
            raise UsageError(f"{where} has {what}: take it out of the index")
        for start in range(0, size, _PIECE):
            made.update(read_range(fd, start, min(_PIECE, size - start)))
        if made.hexdigest() != digest:
            raise UsageError(f"{where} is damaged: its {plain(algorithm)} is not that of its index; {_COPY}")


def find(
    fd: int, files: NamedFiles, k: int, shard: ShardFile, sought: SoughtColumns, *, whole: bool = False
) -> tuple[FoundSamples, Read]:
    """The samples of shard k, which is open, and what reads it, decompressed if need be. whole: whether it has to end
    with the last sample. Raises UsageError where it is damaged or not what the index says, and DecodeError where it
    ends early."""
    size, where = files.state(k)[0], files.name(k)
    if not shard.codec and shard.leaves and size >= _END.size:  # which the index may not say
        shard = with_rows(shard) if _END.unpack(read_range(fd, size - _END.size, _END.size))[1] == _MARK else shard
    read = partial(_part, decompressed(fd, files, k, shard)) if shard.codec else partial(read_range, fd)
    starts = _starts(read, size if whole and not shard.codec else None, shard, where)
    sizes = [column.size for column in sought.coded]
    free = [at for at, size in enumerate(sizes) if size is None]
    # Every value takes bytes, so that these tables are not larger than the shard allows.
    least = 4 * len(free) + sum(size or 0 for size in sizes)
    if len(wrong := np.flatnonzero(np.diff(starts) < least)):
        i = int(wrong[0])
        what = f"sample {i} has {starts[i + 1] - starts[i]:,} bytes, and its {len(sizes)} values at least {least:,}"
        raise UsageError(f"{where} is damaged: {what}; {_COPY}")
    lengths = np.repeat([[size or 0] for size in sizes], shard.samples, axis=1)
    data = b"".join(read(start, 4 * len(free)) for start in starts[:-1].tolist()) if free else b""
    lengths[free] = np.frombuffer(data, "<u4").reshape(shard.samples, len(free)).T
    offsets = starts[:-1] + 4 * len(free) + np.cumsum(lengths, axis=0) - lengths
    ends = offsets[-1] + lengths[-1]
    if len(wrong := np.flatnonzero(ends != starts[1:])):
        i = int(wrong[0])
        what = f"sample {i} has {starts[i + 1] - starts[i]:,} bytes, and its values {ends[i] - starts[i]:,}"
        raise UsageError(f"{where} is damaged: {what}; {_COPY}")
    places = np.stack([offsets, lengths])[:, [*sought.columns]].tobytes()
    values = {at: [*map(read, offsets[at].tolist(), lengths[at].tolist())] for at in sought.values}
    return FoundSamples(places, values, _heads(read, offsets, lengths, sought.heads), shard.codec == ARROW), read


def _part(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise DecodeError("truncated", f"it ends after {len(data):,} bytes")
    return data[offset : offset + size]


def _starts(read: Read, size: int | None, shard: ShardFile, where: str) -> Rows:
    """(samples + 1,): where each sample begins, and the last one ends."""
    count, most = int.from_bytes(read(0, 4), "little"), min(shard.most, _MOST_SHARD)
    if count != shard.samples:
        raise UsageError(f"{where} has {count:,} samples, and its index says {shard.samples:,}; {_COPY}")
    starts = np.frombuffer(read(4, 4 * (count + 1)), "<u4").astype(np.int64)
    end = int(starts[-1])
    if starts[0] < 4 * (count + 2) or (np.diff(starts) < 0).any() or end > most or size not in (None, end):
        raise UsageError(f"{where} is damaged: the offsets of its samples lead out of it; {_COPY}")
    read(max(0, end - 1), 1)
    return starts


def _heads(read: Read, offsets: Rows, lengths: Rows, heads: Mapping[int, Head]) -> dict[int, bytes]:
    """The heads of columns whose arrays are alike, as of `FoundSamples`."""
    alike = dict[int, bytes]()
    for at, head in heads.items() if offsets.shape[1] else ():
        first, size = int(offsets[at, 0]), int(lengths[at, 0])
        try:
            before = head(read(first, size))[2]
        except (ValueError, IndexError, ArithmeticError, struct.error):
            continue  # it is rejected when it is read
        same = read(first, before)
        if (lengths[at] == size).all() and all(read(start, before) == same for start in offsets[at].tolist()):
            alike[at] = same + size.to_bytes(8, "little")
    return alike


def arrays_alike(found: Sequence[FoundSamples], at: int) -> bool:
    """Whether all arrays of a column have one dtype and shape."""
    heads = {samples.heads.get(at) for samples in found if samples.places}
    return len(heads) == 1 and None not in heads


def columns_read(columns: Sequence[Coded]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(column.at for column in columns))
