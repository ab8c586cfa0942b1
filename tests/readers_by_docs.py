"""Readers of every kind of store, written from `docs/format/` alone: nothing here imports rawpack.

    python readers_by_docs.py OUT.npz STORE [STORE ...]

reads each store by every way that the documentation names, holds them against one another, and writes what it read.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import xxhash
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
HDF5_SIGNATURE = bytes.fromhex("894844460D0A1A0A")
LMDB_MAGIC = bytes.fromhex("DEC0EFBE")


@dataclass
class Sample:
    """One sample as the documentation says it is stored."""

    image: Pixels
    label: int | None
    key: str


class StoreByDocs:
    """A store, read by its documentation. Raises AssertionError where the store is not as documented."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest, self.digest = read_sealed(path / "store.json")
        assert self.manifest["rawpack"] == 1
        self.shape: list[int | None] = self.manifest["fields"]["image"]["shape"]
        self.encoding: str = self.manifest["fields"]["image"]["encoding"]
        (columns,) = self.manifest["columns"]
        self.rows: int = columns["rows"]
        self.columns: dict[str, NDArray[Any]] = {}
        for record in columns["files"]:
            check_file(path / columns["folder"] / record["name"], record)
            assert record["head"] == ""
            self.columns[record["name"].removesuffix(".npy")] = read_npy(path / columns["folder"] / record["name"], 64)
        assert set(self.columns) == self._documented_columns()
        for shard in self.manifest["shards"]:
            for record in shard["files"]:
                check_file(path / record["name"], record)
                assert record["head"]

    @property
    def uniform(self) -> bool:
        return None not in self.shape

    def samples(self) -> Iterator[Sample]:
        """All samples, each read in every documented way."""
        first = pieces_before = 0
        keys = list(self.texts("key"))
        labels = self.columns.get("label")
        for shard in self.manifest["shards"]:
            (record,) = shard["files"]
            place = shard["fields"]["image"]
            assert place["file"] == 0
            rows = np.arange(first, first + shard["rows"])
            file = self.path / record["name"]
            data = np.memmap(file, np.uint8, "r")
            read = {"memmap": self._memmap, "hdf5": self._hdf5, "lmdb": self._lmdb}[self.manifest["format"]]
            pieces = slice(pieces_before, pieces_before + place["chunks"])
            stored = [self._stored(data, place, pieces, first, row) for row in rows.tolist()]
            assert place["bytes"] == sum(map(len, stored))
            for row, image, raw in zip(rows.tolist(), read(file, place, rows, keys), stored, strict=True):
                assert xxhash.xxh3_64_intdigest(raw) == self.columns["image.xxh3"][row]
                if self.encoding == "jpeg":
                    np.testing.assert_array_equal(image, decode(raw, image.shape[2]))
                else:
                    assert image.tobytes() == raw
                assert image.dtype == np.uint8
                assert image.shape == tuple(self._shape_of(row))
                yield Sample(image, None if labels is None else int(labels[row]), keys[row])
            first += shard["rows"]
            pieces_before += place["chunks"]
        assert first == self.rows == self.manifest["samples"]
        assert pieces_before == len(self.columns.get("image.chunk", ()))

    def texts(self, name: str) -> Iterator[str]:
        data, offsets = self.columns[name], self.columns[f"{name}.offset"]
        assert offsets[0] == 0
        assert offsets[-1] == len(data)
        for start, stop in itertools.pairwise(offsets):
            yield data[start:stop].tobytes().decode("utf-8")

    def _documented_columns(self) -> set[str]:
        names = {"image.xxh3", "key", "key.offset"}
        if "label" in self.manifest["fields"]:
            names.add("label")
        if not self.uniform:
            names.add("image.shape")
        if not self.uniform or self.encoding == "jpeg":
            names |= {"image.offset", "image.bytes"}
        if self.encoding == "deflate":
            names.add("image.chunk")
        return names

    def _shape_of(self, row: int) -> list[int]:
        if self.uniform:
            return [n for n in self.shape if n is not None]
        shape: list[int] = self.columns["image.shape"][row].tolist()
        return shape

    def _stored(self, data: Pixels, place: dict[str, int], pieces: slice, first: int, row: int) -> bytes:
        """A sample's bytes, by offset alone."""
        size = int(np.prod(self._shape_of(row)))
        if self.encoding == "jpeg" or not self.uniform:
            start, size = int(self.columns["image.offset"][row]), int(self.columns["image.bytes"][row])
        else:
            start = place["offset"] + (row - first) * size
        if self.encoding != "deflate":
            assert 0 <= start <= start + size <= len(data)
            return data[start : start + size].tobytes()
        chunks, each = self.columns["image.chunk"][pieces], place["chunk_bytes"]
        low, high = start // each, (start + size - 1) // each
        inflated = [zlib.decompress(data[at : at + n].tobytes()) for at, n in chunks[low : high + 1].tolist()]
        assert all(len(piece) == each for piece in inflated)
        return b"".join(inflated)[start - low * each : start - low * each + size]

    def _memmap(self, file: Path, place: dict[str, int], rows: NDArray[np.int64], _: list[str]) -> Iterator[Pixels]:
        array = np.load(file, mmap_mode="r")
        np.testing.assert_array_equal(array, read_npy(file, 4096))
        assert place["offset"] == 4096
        if self.uniform:
            assert array.shape == (len(rows), *self.shape)
            yield from array
            return
        for row in rows.tolist():
            (h, w, c), start = self._shape_of(row), int(self.columns["image.offset"][row]) - 4096
            yield array[start : start + h * w * c].reshape(h, w, c)

    def _hdf5(self, file: Path, place: dict[str, int], rows: NDArray[np.int64], keys: list[str]) -> Iterator[Pixels]:
        assert file.read_bytes()[:9] == HDF5_SIGNATURE + b"\x03"  # superblock version 3
        with h5py.File(file) as shard:
            names = {"image", "key"} | ({"label"} & set(self.columns))
            assert set(shard) == names | (set() if self.uniform else {"image_start", "image_shape"})
            assert shard.attrs["made_by"] == "rawpack"
            data = shard["image"]
            assert data.attrs["color"] == ("grey" if self.shape[2] == 1 else "RGB") + ", uint8, 0 to 255"
            assert all("how_to_read" in shard[name].attrs for name in shard)
            assert (data.compression, data.compression_opts) == (
                ("gzip", 4) if self.encoding == "deflate" else (None, None)
            )
            if self.encoding == "raw":
                chunks = [data.id.get_chunk_info(k) for k in range(data.id.get_num_chunks())]
                size = int(np.prod(data.chunks))
                assert [chunk.byte_offset for chunk in chunks] == [
                    place["offset"] + k * size for k in range(len(chunks))
                ]
            assert shard["key"].asstr()[:].tolist() == [keys[row] for row in rows.tolist()]
            if "label" in shard:
                np.testing.assert_array_equal(shard["label"], self.columns["label"][rows])
            if self.uniform:
                chunk = self.manifest["recipe"]["chunk"]
                assert data.chunks == (min(chunk, len(rows)), *self.shape)
                yield from data[:]
                return
            assert data.chunks == (min(1 << 20, place["bytes"]),)
            for start, (h, w, c) in zip(shard["image_start"][:], shard["image_shape"][:], strict=True):
                yield data[start : start + h * w * c].reshape(h, w, c)

    def _lmdb(self, file: Path, place: dict[str, int], rows: NDArray[np.int64], _: list[str]) -> Iterator[Pixels]:
        assert file.read_bytes()[16:20] == LMDB_MAGIC
        with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
            assert env.stat()["entries"] == len(rows)
            for k in range(len(rows)):
                value = transaction.get(b"%012d" % k)
                assert value is not None
                yield decode(value, int(self.shape[2] or 0))


def read_sealed(path: Path) -> tuple[dict[str, Any], str]:
    """What a sealed JSON file holds, and its checksum: of the manifest, the store's digest."""
    data = path.read_bytes()
    body, seal, rest = data.rpartition(b',\n "checksum": "xxh3-128:')
    digest = xxhash.xxh3_128_hexdigest(body)
    assert len(seal) == 25
    assert rest == digest.encode("ascii") + b'"\n}\n'
    holds = json.loads(body + b"\n}")
    assert json.loads(data) == {**holds, "checksum": f"xxh3-128:{digest}"}
    return holds, digest


def check_file(path: Path, record: dict[str, Any]) -> None:
    assert PLAIN_NAME.fullmatch(record["name"])
    assert path.is_file()
    assert not path.is_symlink()
    data = path.read_bytes()
    assert len(data) == record["bytes"]
    assert xxhash.xxh3_64_hexdigest(data) == record["xxh3"]
    assert record["head"] in ("", xxhash.xxh3_64_hexdigest(data[:8192]))


def read_npy(path: Path, align: int) -> NDArray[Any]:
    """An `.npy` file by its header's documentation, without `np.load`."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    begin = 10 + int.from_bytes(data[8:10], "little")
    assert begin % align == 0
    match = re.fullmatch(
        r"\{'descr': '([<|][a-z]\d)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n", data[10:begin].decode()
    )
    assert match
    shape = [int(n) for n in match[2].split(",") if n.strip()]
    array: NDArray[Any] = np.frombuffer(data, match[1], offset=begin).reshape(shape)
    return array


def decode(data: bytes, channels: int) -> Pixels:
    """A JPEG file's pixels (H, W, C), by Pillow."""
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "JPEG"
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], channels)


def read_rejects(store: Path) -> list[dict[str, Any]]:
    """The lines of `rejects.jsonl`, held against the manifest."""
    about = read_sealed(store / "store.json")[0]["rejects"]
    check_file(store / "rejects.jsonl", about["file"])
    rejects = [json.loads(line) for line in (store / "rejects.jsonl").read_bytes().splitlines()]
    assert len(rejects) == about["count"]
    reasons = [reject["reason"] for reject in rejects]
    assert {reason: reasons.count(reason) for reason in reasons} == about["reasons"]
    return rejects


def check_provenance(store: Path) -> None:
    """What `provenance.*` say is what the page says, the source's digest included."""
    about, _ = read_sealed(store / "provenance.json")
    assert set(about) == {"source", "started", "finished", "host", "workers", "rawpack", "python", "states"}
    assert about["states"] == xxhash.xxh3_64_hexdigest((store / "provenance.npy").read_bytes())
    assert set(about["source"]) == {"kind", "root", "digest"}
    states = read_npy(store / "provenance.npy", 64)
    by_docs = StoreByDocs(store)
    keys = list(by_docs.texts("key"))
    for reject in read_rejects(store):
        keys.insert(reject["sample"], reject["key"])
    assert states.shape == (len(keys), 2)
    digest = xxhash.xxh3_128(b"".join(key.encode() + b"\0" for key in keys) + states.astype("<i8").tobytes())
    assert digest.hexdigest() == about["source"]["digest"]


def main(out: str, *stores: str) -> None:
    arrays: dict[str, NDArray[Any]] = {}
    for store in stores:
        by_docs = StoreByDocs(Path(store))
        check_provenance(Path(store))
        samples = list(by_docs.samples())
        name = Path(store).name
        arrays[f"{name}/keys"] = np.array([sample.key for sample in samples])
        arrays[f"{name}/labels"] = np.array([sample.label for sample in samples], np.int64)
        arrays[f"{name}/shapes"] = np.array([sample.image.shape for sample in samples])
        arrays[f"{name}/pixels"] = np.concatenate([sample.image.reshape(-1) for sample in samples])
    np.savez(out, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    # Proof, not only promise, that rawpack has no part in this.
    sys.modules["rawpack"] = sys.modules["rawpack_packer"] = None  # type: ignore[assignment]
    main(*sys.argv[1:])
