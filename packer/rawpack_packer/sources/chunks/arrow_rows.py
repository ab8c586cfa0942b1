"""Chunks of litdata whose samples are rows of an Arrow file: dicts of bytes, numbers, texts and lists of these, where
pyarrow was installed when they were written.

Such a chunk has the number of its samples, offsets that are all the same, an Arrow file, the length of that, and a
mark. It is read as a chunk of the other layout, which its rows are written as here.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rawpack.errors import DecodeError

ARROW = "arrow"
"""What `ShardFile.codec` says of such a chunk."""
_END = struct.Struct("<I8s")
_MARK = b"LDARW01\0"
END_BYTES = _END.size
Leaf = tuple[tuple[str, ...], str]
"""Where a value is in a sample, by keys of dicts and positions in lists; and its encoding, as the index names it."""


def is_arrow(end: bytes) -> bool:
    """Whether a chunk is such a one, by its last `END_BYTES` bytes."""
    return len(end) == END_BYTES and _END.unpack(end)[1] == _MARK


def as_chunk(data: bytes, leaves: Sequence[Leaf], most: int) -> bytes:
    """A chunk of rows in the other layout. most: bytes that its columns have at most. Raises ValueError where it is
    damaged; pyarrow's own errors are of that or of OSError."""
    import pyarrow as pa

    size, _ = _END.unpack(data[-END_BYTES:])
    start = len(data) - END_BYTES - size
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
            samples += (_sample(row, leaves) for row in batch.to_pylist())
    head = 4 * (len(samples) + 2)
    starts = accumulate(map(len, samples), initial=head)
    return b"".join([struct.pack(f"<{len(samples) + 2}I", len(samples), *starts), *samples])


def _sample(row: Mapping[str, Any], leaves: Sequence[Leaf]) -> bytes:
    values = [_encoded(_value(row, path), encoding) for path, encoding in leaves]
    return struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values)


def _value(row: Any, path: Sequence[str]) -> Any:
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
