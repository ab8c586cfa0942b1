"""Mutations of the files of a source: bytes, values in text, and columns of tables. Shares no code with rawpack."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
import random
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from archived import tar, zipped
from tfrecords import example, record

Mutation = Callable[[bytes, random.Random], bytes]

VALUES: tuple[Any, ...] = (
    *(10**20, 10**30, -(10**20), 2**63, 2**63 - 1, 2**32, -1, 0, 7, True, 1e308, -1e308, 1e39, 0.5, math.nan, math.inf),
    *("", "text", "0", "-1", "1e999", "\ud800", "../../etc/passwd", "a" * 300, "\0", "ä"),
    *([], [1], [[1, 2], [3]], [10**20], [None], {}, {"a": {"b": [1]}}, None),
)
"""What a place in JSON may hold instead of what belongs there."""
TEXTS = (
    *("100000000000000000000", "-1", "0", "1e308", "nan", "-inf", "", "text", "[]", '[[1], {"a": 1}]', "null", "1_0"),
    *("0x10", "'", '"', "\t", "\0", "9" * 5000, "a" * 300, "../..", "0.5", "True", "\u0661", "\udcff"),
)
"""What a place in any other text may hold."""
_WORD = re.compile(rb"(?<=[\"'>\s,:=\[])[\w.+-]+(?=[\"'<\s,;\]:])|(?<=[\"'>])[^\"'<>]*(?=[\"'<])")


def some_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes changed, most of them near an end, where headers and indexes are."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        if not changed:
            break
        most = min(len(changed), draw.choice([16, 64, 512, 1 << 30]))
        at = draw.randrange(most) if draw.random() < 0.6 else len(changed) - 1 - draw.randrange(most)
        size = draw.choice([1, 1, 1, 4, 8])
        new = draw.choice([b"\0" * size, b"\xff" * size, draw.randbytes(size), changed[at : at + size][::-1]])
        changed[at : at + size] = new
    return bytes(changed)


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def longer(data: bytes, draw: random.Random) -> bytes:
    """Some bytes twice, or others put in."""
    at = draw.randrange(len(data) + 1)
    new = draw.choice([data[at : at + draw.randrange(1, 40)], draw.randbytes(4), b"\n", b"\0" * 64])
    return data[:at] + new + data[at:]


def words(data: bytes, draw: random.Random) -> bytes:
    """A value in text: a cell, an attribute, a number, a name."""
    places = [*_WORD.finditer(b" " + data + b" ")]
    if not places:
        return some_bytes(data, draw)
    place = draw.choice(places)
    new = draw.choice(TEXTS).encode("utf-8", "surrogateescape")
    return (b" " + data + b" ")[: place.start()][1:] + new + (b" " + data + b" ")[place.end() : -1]


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """Each container in a tree of JSON with the key or the number of a value in it."""
    found = []
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        found += [(tree, key), *places_in(tree[key])]
    return found


def tree_changed(tree: Any, draw: random.Random) -> Any:
    """A tree of JSON with a value replaced, taken out, or there twice."""
    places = places_in(tree)
    if not places:
        return draw.choice(VALUES)
    inside, key = draw.choice(places)
    how = draw.random()
    if how < 0.1:
        del inside[key]
    elif how < 0.15 and isinstance(inside, list):
        inside.insert(key, inside[key])
    elif how < 0.2 and isinstance(inside, dict):
        inside[draw.choice(["", "path", "label", "\ud800", "id"])] = inside.pop(key)
    else:
        inside[key] = draw.choice(VALUES)
    return tree


def json_values(data: bytes, draw: random.Random) -> bytes:
    try:
        tree = json.loads(data)
    except ValueError:
        return words(data, draw)
    return json.dumps(tree_changed(tree, draw)).encode()


def json_lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines()
    if not lines:
        return b"{}"
    at = draw.randrange(len(lines))
    lines[at] = json_values(lines[at], draw)
    return b"\n".join(lines) + b"\n"


def cells(data: bytes, draw: random.Random) -> bytes:
    """A cell of a table, or a whole column."""
    text = data.decode("utf-8-sig")
    between = max(",;\t", key=text.partition("\n")[0].count)
    rows = [*csv.reader(io.StringIO(text), delimiter=between)]
    if len(rows) < 2 or not rows[0]:
        return words(data, draw)
    column, new = draw.randrange(len(rows[0])), draw.choice(TEXTS)
    some = rows[1:] if draw.random() < 0.4 else [draw.choice(rows if draw.random() < 0.2 else rows[1:])]
    for row in some:
        row[column : column + 1] = [] if new == "'" else [new]
    out = io.StringIO()
    csv.writer(out, delimiter=between, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "surrogateescape")


_TYPES: tuple[Callable[[int], Any], ...] = (
    lambda n: pa.array(["text"] * n),
    lambda n: pa.array([[]] * n, pa.list_(pa.int64())),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array([math.inf] * n),
    lambda n: pa.array([-1] * n),
    lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    lambda n: pa.array([True] * n),
    lambda n: pa.array([None] * n),
    lambda n: pa.array([None] * n, pa.int64()),
    lambda n: pa.array([b"\xff\0"] * n),
    lambda n: pa.array([0] * n, pa.timestamp("ns")),
    lambda n: pa.array([None] * n, pa.decimal128(38, 2)),
    lambda n: pa.array(["a"] * n).dictionary_encode(),
)
"""Columns of other types, for a number of rows."""


def table_changed(table: Any, draw: random.Random) -> Any:
    """A table with a column of another type, without one, or with a value missing."""
    at, how = draw.randrange(table.num_columns), draw.random()
    name = table.column_names[at]
    if how < 0.1:
        return table.drop_columns([name])
    if how < 0.3 and table.num_rows:
        values = table.column(at).to_pylist()
        values[draw.randrange(len(values))] = None
        return table.set_column(at, name, pa.array(values, table.schema.field(at).type))
    return table.set_column(at, name, draw.choice(_TYPES)(table.num_rows))


def parquet_columns(data: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    pq.write_table(table_changed(pq.read_table(io.BytesIO(data)), draw), out)
    return out.getvalue()


def arrow_columns(data: bytes, draw: random.Random) -> bytes:
    table = table_changed(pa.ipc.open_stream(data).read_all(), draw)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


_ARRAYS: tuple[Callable[[int], Any], ...] = (
    lambda n: np.array(["text"] * n),
    lambda n: np.array([b"x"] * n),
    lambda n: np.full(n, np.inf),
    lambda n: np.full(n, 2**64 - 1, np.uint64),
    lambda n: np.full(n, -1),
    lambda n: np.zeros(n, np.complex64),
    lambda n: np.zeros((n, 0), np.uint8),
    lambda n: np.zeros((n, 2, 3, 4, 5), np.uint8),
    lambda n: np.zeros((), np.int64),
    lambda n: np.zeros(n + 1, np.int64),
    lambda n: np.zeros(n, [("a", "i4"), ("b", "f4")]),
)
"""Arrays of other dtypes and shapes, for a number of rows."""


def npz_arrays(data: bytes, draw: random.Random) -> bytes:
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    name = draw.choice(sorted(arrays))
    arrays[name] = draw.choice(_ARRAYS)(len(arrays[name]))
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy_array(data: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    np.save(out, draw.choice(_ARRAYS)(len(np.load(io.BytesIO(data)))))
    return out.getvalue()


def hdf5_arrays(data: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO(data)
    with h5py.File(out, "r+") as file:
        names = list[str]()
        file.visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        name = draw.choice(names)
        made = draw.choice(_ARRAYS)(file[name].shape[0] if file[name].shape else 1)
        del file[name]
        file[name] = made.astype("S20") if made.dtype.kind in "UM" else made
    return out.getvalue()


def pickled(data: bytes, draw: random.Random) -> bytes:
    """A value in a pickle of dicts and lists."""
    return pickle.dumps(tree_changed(pickle.loads(data), random.Random(draw.random())))


def examples(data: bytes, draw: random.Random) -> bytes:
    """One record more, whose features are of other types, or whose bytes say anything; its checksums are right."""
    names = sorted({*re.findall(rb"image/[a-z/_]+|[a-z]{4,}", data)}) or [b"image"]
    value = draw.choice([10**18, -1, 0.5, math.nan, math.inf, "text", b"\xff", "", [], [1, 2], [0.5], ["a", "b"]])
    made = example({name.decode(): value for name in draw.sample(names, min(len(names), draw.choice([1, 2, 9])))})
    made = draw.choice([made, some_bytes(made, draw)])
    return draw.choice([record(made) + data, data + record(made)])


def tar_members(data: bytes, draw: random.Random) -> bytes:
    """A member of a tar."""
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}  # type: ignore[union-attr]
    return tar(_member_changed(members, draw))


def zip_members(data: bytes, draw: random.Random) -> bytes:
    """A member of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return zipped(_member_changed(members, draw))


def _member_changed(members: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    name = draw.choice(sorted(members))
    return {**members, name: mutated(name, members[name], draw)}


_OF_VALUES: dict[str, tuple[Mutation, ...]] = {
    ".json": (json_values,), ".jsonl": (json_lines,), ".csv": (cells,), ".tsv": (cells,), ".yaml": (words,),
    ".xml": (words,), ".txt": (words,), ".cls": (words,), ".parquet": (parquet_columns,), ".arrow": (arrow_columns,),
    ".npz": (npz_arrays,), ".npy": (npy_array,), ".h5": (hdf5_arrays,), ".tar": (tar_members,), ".zip": (zip_members,),
    ".tfrecord": (examples,),
}  # fmt: skip


def mutated(name: str, data: bytes, draw: random.Random) -> bytes:
    """What a file holds after one mutation that fits its name: values three times out of four, or else bytes."""
    suffix = Path(name).suffix
    fitting = _OF_VALUES.get(suffix, (pickled,) if re.search(r"_batch|batches\.meta$", name) else ())
    fitting = (examples,) if re.search(r"-of-\d+$", name) else fitting
    how: Mutation = draw.choice([some_bytes, some_bytes, cut, longer])
    if fitting and draw.random() < 0.75:
        how = draw.choice(fitting)
    return how(data, draw)
