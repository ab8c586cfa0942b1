"""Readers of every kind of store, written from `docs/format/` alone: nothing here imports rawpack.

    python readers_by_docs.py STORE [STORE ...]

reads each store by every way that the documentation names, holds them against one another, and prints what it read.
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

import cv2
import h5py
import lmdb
import numpy as np
import xxhash
from numpy.typing import NDArray
from PIL import Image
from planes import bytes_of, rgb_of

Pixels = NDArray[np.uint8]
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
HDF5_SIGNATURE = bytes.fromhex("894844460D0A1A0A")
PLANES = ("ycgco420", "ycgco420_deflate")
LMDB_MAGIC = bytes.fromhex("DEC0EFBE")


@dataclass
class Sample:
    """One sample as the documentation says it is stored."""

    image: NDArray[Any]
    label: int | None
    key: str
    masks: dict[str, NDArray[Any]]
    others: dict[str, Any]
    """Numbers, ragged fields and texts, but for the label and the key."""


class StoreByDocs:
    """A store, read by its documentation. Raises AssertionError where the store is not as documented."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest, self.digest = read_sealed(path / "store.json")
        assert self.manifest["rawpack"] == 1
        self.fields: dict[str, dict[str, Any]] = self.manifest["fields"]
        self.large = [name for name, field in self.fields.items() if field["kind"] in ("image", "mask")]
        folders = self.manifest["columns"]
        self.rows: int = sum(folder["rows"] for folder in folders)
        self.columns: dict[str, NDArray[Any]] = {}
        for folder in folders:
            found = {}
            for record in folder["files"]:
                file = path / folder["folder"] / record["name"]
                check_file(file, record)
                assert record["head"] == ""
                found[record["name"].removesuffix(".npy")] = read_npy(file, 64)
            self.columns = self._joined(self.columns, found) if self.columns else found
        assert set(self.columns) == self._documented_columns()
        for shard in self.manifest["shards"]:
            for record in shard["files"]:
                check_file(path / record["name"], record)
                assert record["head"]
        self._inflated: dict[tuple[str, int], bytes] = {}

    def _joined(self, before: dict[str, NDArray[Any]], more: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The columns of two folders as one: offsets into texts and ragged fields begin at 0 in each."""
        assert set(before) == set(more)
        whole = {name: np.concatenate([before[name], more[name]]) for name in before}
        for name, field in self.fields.items():
            if field["kind"] in ("text", "ragged"):
                first, second = before[f"{name}.offset"], more[f"{name}.offset"]
                whole[f"{name}.offset"] = np.concatenate([first, second[1:] + first[-1]])
        return whole

    def uniform(self, name: str) -> bool:
        return None not in self.fields[name]["shape"]

    def samples(self) -> Iterator[Sample]:
        """All samples, each read in every documented way."""
        columns = {name: list(self._column(name)) for name in self.fields if name not in self.large}
        first = 0
        pieces_before = dict.fromkeys(self.large, 0)
        for shard in self.manifest["shards"]:
            rows = np.arange(first, first + shard["rows"])
            read = {name: self._read(name, shard, rows, pieces_before, columns) for name in self.large}
            for k, row in enumerate(rows.tolist()):
                others = {name: column[row] for name, column in columns.items() if name not in ("label", "key")}
                masks = {name: read[name][k] for name in self.large if name != "image"}
                label = int(columns["label"][row]) if "label" in columns else None
                yield Sample(read["image"][k], label, columns["key"][row], masks, others)
            first += shard["rows"]
        assert first == self.rows == self.manifest["samples"]
        for name, pieces in pieces_before.items():
            assert pieces == len(self.columns.get(f"{name}.chunk", ()))

    def _read(
        self,
        name: str,
        shard: dict[str, Any],
        rows: NDArray[np.int64],
        pieces_before: dict[str, int],
        columns: dict[str, list[Any]],
    ) -> list[NDArray[Any]]:
        """One field of a shard by offsets alone and by the format's own library, held against each other."""
        place, field = shard["fields"][name], self.fields[name]
        record = shard["files"][place["file"]]
        by_format = self.manifest["format"]
        number = 0 if by_format != "memmap" else self.large.index(name)
        assert place["file"] == number
        suffix = {"memmap": ".npy", "hdf5": ".h5", "lmdb": ".lmdb"}[by_format]
        assert record["name"].endswith(suffix if number == 0 else f".{name}{suffix}")
        file = self.path / record["name"]
        data = np.memmap(file, np.uint8, "r")
        before = pieces_before[name]
        pieces = slice(before, before + place["chunks"])
        pieces_before[name] += place["chunks"]
        stored = [self._stored(name, data, place, pieces, int(rows[0]), row) for row in rows.tolist()]
        assert place["bytes"] == sum(map(len, stored))
        found = []
        way = {"memmap": self._memmap, "hdf5": self._hdf5, "lmdb": self._lmdb}[by_format]
        for row, image, raw in zip(rows.tolist(), way(name, file, place, rows, columns), stored, strict=True):
            assert xxhash.xxh3_64_intdigest(raw) == self.columns[f"{name}.xxh3"][row]
            if field["encoding"] in PLANES:
                assert image.tobytes() == raw
                image = rgb_of(image, *self._shape_of(name, row)[:2]).round().astype(np.uint8)
            elif field["encoding"] in ("jpeg", "png"):
                np.testing.assert_array_equal(image, decode(raw, image.shape[2], field["encoding"]))
            else:
                assert image.tobytes() == raw
            assert image.dtype == np.dtype(field["dtype"])
            assert image.shape == tuple(self._shape_of(name, row))
            found.append(image)
        return found

    def _column(self, name: str) -> Iterator[Any]:
        """The values of a field that lies in columns."""
        field = self.fields[name]
        if field["kind"] == "text":
            assert field["shape"] in ([], [None])
            yield from map(json.loads, self.texts(name)) if field["shape"] else self.texts(name)
        elif field["kind"] == "ragged":
            data, offsets = self.columns[name], self.columns[f"{name}.offset"]
            assert (offsets[0], offsets[-1]) == (0, len(data))
            for start, stop in itertools.pairwise(offsets):
                yield data[start:stop]
        else:
            assert self.columns[name].shape == (self.rows, *field["shape"])
            yield from self.columns[name]

    def texts(self, name: str) -> Iterator[str]:
        data, offsets = self.columns[name], self.columns[f"{name}.offset"]
        assert offsets[0] == 0
        assert offsets[-1] == len(data)
        for start, stop in itertools.pairwise(offsets):
            yield data[start:stop].tobytes().decode("utf-8")

    def _documented_columns(self) -> set[str]:
        names = set()
        for name, field in self.fields.items():
            if name not in self.large:
                names |= {name} if field["kind"] == "number" else {name, f"{name}.offset"}
                continue
            names.add(f"{name}.xxh3")
            if not self.uniform(name):
                names.add(f"{name}.shape")
            if not self.uniform(name) or field["encoding"] in ("jpeg", "png"):
                names |= {f"{name}.offset", f"{name}.bytes"}
            if "deflate" in field["encoding"]:
                names.add(f"{name}.chunk")
        return names

    def _shape_of(self, name: str, row: int) -> list[int]:
        if self.uniform(name):
            return [n for n in self.fields[name]["shape"] if n is not None]
        shape: list[int] = self.columns[f"{name}.shape"][row].tolist()
        return shape

    def _lying(self, name: str, row: int) -> list[int]:
        """The shape of a sample as it lies in a shard."""
        shape = self._shape_of(name, row)
        return [bytes_of(*shape[:2])] if self.fields[name]["encoding"] in PLANES else shape

    def _stored(self, name: str, data: Pixels, place: dict[str, int], pieces: slice, first: int, row: int) -> bytes:
        """A sample's bytes, by offset alone."""
        encoding = self.fields[name]["encoding"]
        size = int(np.prod(self._lying(name, row))) * np.dtype(self.fields[name]["dtype"]).itemsize
        if encoding in ("jpeg", "png") or not self.uniform(name):
            start, size = int(self.columns[f"{name}.offset"][row]), int(self.columns[f"{name}.bytes"][row])
        else:
            start = place["offset"] + (row - first) * size
        if "deflate" not in encoding:
            assert 0 <= start <= start + size <= len(data)
            return data[start : start + size].tobytes()
        each = place["chunk_bytes"]
        low, high = start // each, (start + size - 1) // each
        assert high < place["chunks"]
        inflated = [self._piece(name, data, pieces.start + number) for number in range(low, high + 1)]
        assert all(len(piece) == each for piece in inflated)
        return b"".join(inflated)[start - low * each : start - low * each + size]

    def _piece(self, name: str, data: Pixels, number: int) -> bytes:
        """A compressed chunk, inflated. The last ones are kept: a chunk has many small images."""
        if (name, number) not in self._inflated:
            if len(self._inflated) == 4:
                self._inflated.clear()
            at, n = self.columns[f"{name}.chunk"][number].tolist()
            self._inflated[name, number] = zlib.decompress(data[at : at + n].tobytes())
        return self._inflated[name, number]

    def _memmap(
        self, name: str, file: Path, place: dict[str, int], rows: NDArray[np.int64], _: Any
    ) -> Iterator[NDArray[Any]]:
        array = np.load(file, mmap_mode="r")
        np.testing.assert_array_equal(array, read_npy(file, 4096))
        assert place["offset"] == 4096
        if self.uniform(name):
            assert array.shape == (len(rows), *self._lying(name, 0))
            yield from array
            return
        for row in rows.tolist():
            shape = self._lying(name, row)
            start = (int(self.columns[f"{name}.offset"][row]) - 4096) // array.itemsize
            yield array[start : start + int(np.prod(shape))].reshape(shape)

    def _hdf5(
        self, name: str, file: Path, place: dict[str, int], rows: NDArray[np.int64], columns: dict[str, list[Any]]
    ) -> Iterator[NDArray[Any]]:
        field = self.fields[name]
        assert file.read_bytes()[:9] == HDF5_SIGNATURE + b"\x03"  # superblock version 3
        with h5py.File(file) as shard:
            self._check_hdf5_columns(shard, rows, columns)
            data = shard[name]
            if field["kind"] == "image" and field["dtype"] == "uint8" and field["shape"][2] in (1, 3):
                color = ("grey" if field["shape"][2] == 1 else "RGB") + ", uint8, 0 to 255"
                if field["encoding"] in PLANES:
                    color = "YCgCo 4:2:0, uint8: ITU-T H.273, full range 0 to 255"
                assert data.attrs["color"] == color
            assert (data.compression, data.compression_opts) == (
                ("gzip", 4) if "deflate" in field["encoding"] else (None, None)
            )
            size = int(np.prod(data.chunks)) * data.dtype.itemsize
            if field["encoding"] in ("raw", "ycgco420"):
                chunks = [data.id.get_chunk_info(k) for k in range(data.id.get_num_chunks())]
                assert [chunk.byte_offset for chunk in chunks] == [
                    place["offset"] + k * size for k in range(len(chunks))
                ]
            if self.uniform(name):
                chunk = self.manifest["recipe"]["chunk"] or 1
                assert data.chunks == (min(chunk, len(rows)), *self._lying(name, 0))
                yield from data[:]
                return
            assert size == min(1 << 20, place["bytes"])
            for row, start, shape in zip(rows, shard[f"{name}_start"][:], shard[f"{name}_shape"][:], strict=True):
                assert shape.tolist() == self._shape_of(name, row)
                lying = self._lying(name, row)
                yield data[start : start + int(np.prod(lying))].reshape(lying)

    def _check_hdf5_columns(self, shard: Any, rows: NDArray[np.int64], columns: dict[str, list[Any]]) -> None:
        """The copy of the small fields, and that there is nothing else."""
        names = set(self.fields)
        for name in self.large:
            names |= set() if self.uniform(name) else {f"{name}_start", f"{name}_shape"}
        assert shard.attrs["made_by"] == "rawpack"
        assert all("how_to_read" in field.attrs for field in shard.values())
        for name, column in columns.items():
            wanted = [column[row] for row in rows.tolist()]
            kind = self.fields[name]["kind"]
            if kind == "text":
                found = shard[name].asstr()[:].tolist()
                assert ([json.loads(one) for one in found] if self.fields[name]["shape"] else found) == wanted
            elif kind == "number":
                np.testing.assert_array_equal(shard[name], wanted)
                assert shard[name].dtype == np.dtype(self.fields[name]["dtype"])
            else:
                names |= {f"{name}_start", f"{name}_length"}
                spans = zip(shard[f"{name}_start"][:], shard[f"{name}_length"][:], wanted, strict=True)
                whole = shard[name][:]
                for start, length, values in spans:
                    np.testing.assert_array_equal(whole[start : start + length], values)
        assert set(shard) == names

    def _lmdb(
        self, name: str, file: Path, _place: dict[str, int], rows: NDArray[np.int64], _columns: Any
    ) -> Iterator[NDArray[Any]]:
        field = self.fields[name]
        assert file.read_bytes()[16:20] == LMDB_MAGIC
        with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
            assert env.stat()["entries"] == len(rows) * len(self.large)
            for k in range(len(rows)):
                value = transaction.get(b"%012d" % k + (b"" if name == "image" else b"." + name.encode("ascii")))
                assert value is not None
                yield decode(value, int(field["shape"][2] or 0), field["encoding"])


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
        r"\{'descr': '([<|][a-z]\d{1,2})', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n",
        data[10:begin].decode(),
    )
    assert match
    shape = [int(n) for n in match[2].split(",") if n.strip()]
    array: NDArray[Any] = np.frombuffer(data, match[1], offset=begin).reshape(shape)
    return array


def decode(data: bytes, channels: int, encoding: str = "jpeg") -> NDArray[Any]:
    """The pixels (H, W, C) of a JPEG or PNG file: by Pillow; of RGB with 16 bits, which that reads as 8, by OpenCV."""
    if encoding == "png" and data[24:26] == b"\x10\x02":
        return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED))[..., ::-1]
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == encoding.upper()
        if image.mode.startswith("I"):
            pixels = np.asarray(image).astype(np.uint16)
        else:
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], channels)


def read_rejects(store: Path) -> list[dict[str, Any]]:
    """The lines of the file of rejects, held against the manifest."""
    about = read_sealed(store / "store.json")[0]["rejects"]
    check_file(store / about["file"]["name"], about["file"])
    rejects = [json.loads(line) for line in (store / about["file"]["name"]).read_bytes().splitlines()]
    assert len(rejects) == about["count"]
    reasons = [reject["reason"] for reject in rejects]
    assert {reason: reasons.count(reason) for reason in reasons} == about["reasons"]
    return rejects


def check_provenance(store: Path) -> None:
    """What `provenance.*` say is what the page says, the source's digest included."""
    by_docs, rejects = StoreByDocs(store), read_rejects(store)
    keys = list(by_docs.texts("key"))
    for reject in rejects:
        keys.insert(reject["sample"], reject["key"])
    last = by_docs.manifest["rejects"]["file"]["name"]
    runs = 1 if last == "rejects.jsonl" else int(last.removeprefix("rejects-").removesuffix(".jsonl"))
    names = ["provenance", *(f"provenance-{run}" for run in range(2, runs + 1))]
    told = [read_sealed(store / f"{name}.json")[0] for name in names]
    firsts = [0, *(about["first"] for about in told[1:]), len(keys)]
    for k, (name, about) in enumerate(zip(names, told, strict=True)):
        entries = {"source", "started", "finished", "host", "workers", "rawpack", "python", "states"}
        assert set(about) == (entries if k == 0 else entries | {"first"})
        assert about["states"] == xxhash.xxh3_64_hexdigest((store / f"{name}.npy").read_bytes())
        assert set(about["source"]) - {"options", "probe", "bytes"} == {"kind", "root", "digest"}
        states, own = read_npy(store / f"{name}.npy", 64), keys[firsts[k] : firsts[k + 1]]
        assert states.shape == (0 if about["source"]["kind"] == "dataset" else len(own), 2)
        digest = xxhash.xxh3_128(b"".join(key.encode() + b"\0" for key in own) + states.astype("<i8").tobytes())
        assert digest.hexdigest() == about["source"]["digest"]


def main(*stores: str) -> None:
    """Print store -> field -> the sum of each sample's value."""
    from golden import sum_of

    found: dict[str, dict[str, list[str]]] = {}
    for store in stores:
        by_docs = StoreByDocs(Path(store))
        sums = found[store] = {name: list[str]() for name in by_docs.fields}
        for sample in by_docs.samples():
            values = {"image": sample.image, "key": sample.key, "label": sample.label} | sample.masks | sample.others
            for name in sums:
                sums[name].append(sum_of(values[name], by_docs.fields[name]["dtype"]))
    print(json.dumps(found))


if __name__ == "__main__":
    # Proof, not only promise, that rawpack has no part in this.
    sys.modules["rawpack"] = sys.modules["rawpack_packer"] = None  # type: ignore[assignment]
    main(*sys.argv[1:])
