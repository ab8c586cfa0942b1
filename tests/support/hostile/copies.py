"""A copy of a sound store, and the means to forge it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

OUTSIDE = "outside"
"""A folder beside each copy, with a sound copy of the store: nothing may ever be opened there."""
SEAL = ',\n "checksum": "xxh3-128:'
_HEAD = 8192


@dataclass
class Copy:
    """A copy of a sound store that a case may change. Files are hard links until they are written."""

    path: Path
    tree: Any = field(init=False)
    """The manifest without its checksum."""

    def __post_init__(self) -> None:
        body = (self.path / "store.json").read_text().rpartition(SEAL)[0]
        self.tree = json.loads(body + "\n}")

    @property
    def outside(self) -> Path:
        return self.path.parent / OUTSIDE

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).unlink(missing_ok=True)
        (self.path / name).write_bytes(data)

    def read(self, name: str) -> bytearray:
        return bytearray((self.path / name).read_bytes())

    def seal(self) -> None:
        """Write the manifest with a checksum that fits."""
        self.seal_text(json.dumps(self.tree, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    def seal_text(self, text: bytes) -> None:
        body = text.removesuffix(b"\n}") if text.endswith(b"\n}") else text.removesuffix(b"}")
        seal = SEAL.encode() + xxhash.xxh3_128_hexdigest(body).encode() + b'"\n}\n'
        self.write("store.json", body + seal)

    def forge(self, name: str, data: bytes) -> None:
        """Write a file, and into the manifest its size and the checksum of its head; not that of all its bytes."""
        self.write(name, data)
        for record in self.records(name):
            record["bytes"] = len(data)
            if record["head"]:
                record["head"] = xxhash.xxh3_64_hexdigest(data[:_HEAD])
        self.seal()

    def records(self, name: str) -> list[Any]:
        folder, _, file = name.rpartition("/")
        lists = [part["files"] for part in self.tree["columns"] if part["folder"] == folder]
        lists += [] if folder else [part["files"] for part in self.tree["shards"]]
        lists.append([self.tree["rejects"]["file"]])
        return [record for records in lists for record in records if record["name"] == file]

    @property
    def shards(self) -> list[str]:
        return [record["name"] for shard in self.tree["shards"] for record in shard["files"]]

    def column(self, name: str) -> str:
        return f"columns-1/{name}.npy"

    def array(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.load(self.path / self.column(name))
        return array

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Replace a column's values, its header made anew."""
        self.forge(self.column(name), npy(repr(values.dtype.str), values.shape, values.tobytes()))


@dataclass(frozen=True)
class Mutation:
    """One case."""

    field: str
    """What is changed."""
    value: str
    """What it becomes, in words."""
    apply: Callable[[Copy], None]
    check: bool = False
    """Whether `rawpack inspect --verify` is tried on it too: it starts a process for each shard."""

    @property
    def name(self) -> str:
        return f"{self.field}: {self.value}"


def npy(descr: str, shape: object, data: bytes = b"", *, order: str = "False", extra: str = "") -> bytes:
    """An `.npy` file with whatever header."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {extra}}}".encode()
    size = -(-(len(text) + 11) // 64) * 64 - 10
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n" + data
