"""Sizes, counts and offsets that a file has of itself bound nothing: memory is taken for what is really there."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources import inflation, open_source
from rawpack_packer.sources.chunks.index import compact_json
from rawpack_packer.sources.hdf5.file import all_values, data_sets
from rawpack_packer.sources.inflation import Inflated, read_in_steps
from rawpack_packer.sources.table.columns import read_range

MIB = 1 << 20
ZEROS = bytes(4 * MIB)


def zstd_of(data: bytes, codec: str = "zstd") -> bytes:
    pa = pytest.importorskip("pyarrow")
    return bytes(pa.Codec(codec).compress(data, asbytes=True))


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "br": lambda data: zstd_of(data, "brotli"), "bz2": bz2.compress, "gz": gzip.compress, "zstd": zstd_of,
}  # fmt: skip


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds, low enough for short tests: 64 KiB of anything, and then 16 bytes for one."""
    monkeypatch.setattr(inflation, "_UNCHECKED", 1 << 16)
    monkeypatch.setattr(inflation, "MAX_INFLATION", 16)


@contextmanager
def memory(most: int) -> Iterator[None]:
    """Python's own objects take no more than this within the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def mds(root: Path, data: bytes, codec: str, says: int = 1 << 40, samples: int = 3) -> Path:
    """MDS of one compressed shard, which has `says` bytes without compression by its index."""
    pytest.importorskip("pyarrow")
    root.mkdir()
    (root / "a.mds.z").write_bytes(data)
    shard = {
        "column_names": ["image"], "column_encodings": ["jpeg"], "column_sizes": [None], "format": "mds",
        "version": 2, "samples": samples, "compression": codec, "hashes": [],
        "raw_data": {"basename": "a.mds", "bytes": says, "hashes": {}},
        "zip_data": {"basename": "a.mds.z", "bytes": len(data), "hashes": {}},
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return root


def litdata(root: Path, data: bytes, level: str, samples: int) -> Path:
    """litdata of one chunk, whose samples are compressed."""
    pytest.importorskip("pyarrow")
    root.mkdir()
    (root / "c.bin").write_bytes(data)
    leaf = {"type": None, "context": None, "children_spec": []}
    config = {
        "compression": "zstd", "compression_level": level, "data_format": ["jpeg"], "item_loader": "PyTreeLoader",
        "data_spec": json.dumps([1, {"type": "dict", "context": '["image"]', "children_spec": [leaf]}]),
    }  # fmt: skip
    chunk = {"filename": "c.bin", "chunk_size": samples, "chunk_bytes": 1 << 50}
    (root / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return root


def items(samples: list[bytes], starts: list[int] | None = None) -> bytes:
    """A chunk of samples that are compressed one by one."""
    before = 4 * (len(samples) + 2)
    ends = before + np.cumsum([0, *map(len, samples)])
    return struct.pack(f"<I{len(ends)}I", len(samples), *(starts or ends.tolist())) + b"".join(samples)


def frames(samples: list[int], parts: list[tuple[int, int, bytes, int]]) -> bytes:
    """A chunk of samples that are compressed some at once. samples: their bytes. parts: of each frame its first sample,
    samples, data, and bytes without compression."""
    starts = np.cumsum([0, *samples]).tolist()
    head = struct.pack(f"<8sHHIII{len(starts)}I", b"LDFZ01\0\0", 1, 0, len(samples), 2, len(parts), *starts)
    at, table = len(head) + 24 * len(parts), b""
    for first, count, data, size in parts:
        table += struct.pack("<IIQII", first, count, at, len(data), size)
        at += len(data)
    return head + table + b"".join(data for _, _, data, _ in parts)


def refused(root: Path, most: int = 64 * MIB) -> str:
    """Why a source is refused, for which Python's own objects take no more than this."""
    with pytest.raises(UsageError):
        open_source(root)  # which imports what it needs
    with memory(most), pytest.raises(UsageError) as error:
        open_source(root)
    return str(error.value)


# ------------------------------------------------------------------------------------------------ MDS and litdata
@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("codec", BOMBS)
def test_a_shard_is_inflated_up_to_a_bound_of_ours(codec: str, tmp_path: Path) -> None:
    """Whatever its index says; and up to that, memory grows with what came out."""
    root = mds(tmp_path / "set", BOMBS[codec](ZEROS), codec)
    assert "it stands for more than 65,5" in refused(root, 3 * MIB)


@pytest.mark.usefixtures("low")
def test_the_bound_grows_with_the_file(tmp_path: Path) -> None:
    """Data that does not compress is no bomb, however much it is."""
    data = np.random.default_rng(0).bytes(MIB)
    whole = Inflated("zstd", inflation.most_of(len(zstd_of(data)), 1 << 32))
    assert whole.add(zstd_of(data)) == MIB
    assert whole.finish() == data


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (b"\x02\x04ab", 1 << 33), (b"\xff\xff\xff\xff\x0f\x04ab", 1 << 40), (b"\xff" * 9 + b"\x01\x04ab", 1 << 62),
        (b"", 9),
    ],
)  # fmt: skip
def test_snappy_is_asked_for_no_more_than_it_can_hold(block: bytes, says: int, tmp_path: Path) -> None:
    """Its blocks begin with a length, which is what memory is taken for."""
    assert "a.mds.z" in refused(mds(tmp_path / "set", block, "snappy", says), 2 * MIB)


@pytest.mark.usefixtures("low")
def test_samples_that_are_compressed_one_by_one_have_one_bound(tmp_path: Path) -> None:
    part = zstd_of(bytes(1 << 15))
    assert "it stands for more than" in refused(litdata(tmp_path / "a", items([part] * 4), "sample", 4))


def test_offsets_ascend(tmp_path: Path) -> None:
    """Otherwise one frame is as many samples as there are offsets to and fro."""
    part = zstd_of(bytes(1000))
    first, last = 4 * 42, 4 * 42 + len(part)
    to_and_fro = items([part, *[b""] * 39], [first, last] * 20 + [first])
    assert "do not ascend" in refused(litdata(tmp_path / "a", to_and_fro, "sample", 40))
    into_the_head = items([part], [0, 12 + len(part)])
    assert "do not ascend" in refused(litdata(tmp_path / "b", into_the_head, "sample", 1))
    beyond = items([part], [12, 1 << 31])
    assert "ends before its last sample" in refused(litdata(tmp_path / "c", beyond, "sample", 1))


def test_frames_are_those_of_the_samples(tmp_path: Path) -> None:
    value = struct.pack("<I", 96) + bytes(96)
    part = zstd_of(value)
    right = frames([100, 100], [(0, 1, part, 100), (1, 1, part, 100)])
    assert len(open_source(litdata(tmp_path / "right", right, "batch", 2))) == 2
    overlapping = bytearray(right)
    struct.pack_into("<Q", overlapping, 24 + 12 + 24 + 8, 24 + 12 + 48)  # the second one at the place of the first
    wrong = {
        "one_after_another": (bytes(overlapping), "do not follow one another"),
        "first": (frames([100, 100], [(0, 1, part, 100), (0, 1, part, 100)]), "do not follow one another"),
        "short": (frames([100, 100], [(0, 1, part, 101), (1, 1, part, 100)]), "shorter than it says"),
        "long": (frames([100, 100], [(0, 1, part, 99), (1, 1, part, 100)]), "more than 99 bytes"),
        "fewer": (frames([100, 100], [(0, 2, part, 100)]), "do not hold all of its samples"),
        "more": (frames([100], [(0, 1, part, 100), (1, 0, part, 100)]), "do not hold all of its samples"),
    }
    for name, (data, said) in wrong.items():
        assert said in refused(litdata(tmp_path / name, data, "batch", int.from_bytes(data[12:16], "little"))), name


def test_values_that_take_no_bytes(tmp_path: Path) -> None:
    """A table of all values of a shard is made only where the shard has bytes for them."""
    samples = 400
    data = struct.pack(f"<{samples + 2}I", samples, *[4 * (samples + 2)] * (samples + 1))
    root = mds(tmp_path / "set", data, "zstd", samples=samples)
    (root / "a.mds").write_bytes(data)
    tree = json.loads((root / "index.json").read_text())
    tree["shards"][0] |= {
        "column_names": [f"c{k}" for k in range(400)], "column_encodings": ["jpeg", *["uint8"] * 399],
        "column_sizes": [None, *[1] * 399], "compression": None, "zip_data": None,
        "raw_data": {"basename": "a.mds", "bytes": len(data), "hashes": {}},
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps(tree))
    assert "sample 0 has 0 bytes, and its 400 values at least 403" in refused(root, MIB)


def test_dicts_that_take_no_bytes() -> None:
    """Dicts without keys are refused, and with keys there are no more than bytes for their values."""
    nothing = b"\x06" + struct.pack("<II", 2**32 - 1, 0)
    with pytest.raises(ValueError, match="4,294,967,295 dicts without keys"):
        compact_json(nothing)
    one_key = b"\x06" + struct.pack("<III", 2**32 - 1, 1, 1) + b"a" + b"\x0b" * 50
    with memory(MIB), pytest.raises(ValueError, match="it ends early"):
        compact_json(one_key)
    assert compact_json(b"\x06" + struct.pack("<III", 2, 1, 1) + b"a" + b"\x0b" * 2) == [{"a": None}] * 2
    assert compact_json(b"\x06" + struct.pack("<II", 0, 0)) == []


# ------------------------------------------------------------------------------------------------ all archives
def test_no_more_is_read_than_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        with memory(MIB):
            for offset, size in ((0, 1 << 40), (4, 1 << 31), (1 << 40, 1 << 40)):
                with pytest.raises(DecodeError, match=f"ends after {max(0, 10 - offset)} of the {size} bytes"):
                    read_range(descriptor, offset, size)
        assert read_range(descriptor, 4, 6) == b"456789"
    finally:
        os.close(descriptor)


def test_streams_are_read_in_steps() -> None:
    """Whatever size is asked for, no step takes memory for more than 1 MiB."""
    stream, asked = io.BytesIO(bytes(3 * MIB)), list[int]()

    def read(size: int) -> bytes:
        asked.append(size)
        return stream.read(size)

    assert len(read_in_steps(read, 1 << 40)) == 3 * MIB
    assert max(asked) <= MIB


@pytest.mark.usefixtures("low")
def test_an_npz_whose_members_are_bombs(tmp_path: Path) -> None:
    """What its directory says is compared with the bytes that are there before they are inflated."""
    np.savez_compressed(tmp_path / "a.npz", image=np.zeros((64, 64, 64, 3), np.uint8))
    assert "which cannot be in" in refused(tmp_path / "a.npz", MIB)


def test_labels_of_hdf5_that_were_never_written(tmp_path: Path) -> None:
    """They take no bytes in the file: 40 GB of them could be in one of 10 MB."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("label", (1 << 26,), "<i8", chunks=(1 << 16,), compression="gzip")
        file.create_dataset("pad", data=np.random.default_rng(0).integers(0, 256, 1 << 18, np.uint8))
    one = next(one for one in data_sets(path, ()) if one.name == "label")
    with pytest.raises(UsageError, match="has 536,870,912 bytes, of which 0 are in the file"):
        all_values(path, one)


# ------------------------------------------------------------------------------------------------ Parquet
def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    image = encoded(picture(8, 8, 0), "JPEG")
    rows = len(next(iter(columns.values())))
    pq.write_table(pa.table({"image": [image] * rows, **columns}), path, compression="zstd", **options)
    return path


@pytest.mark.usefixtures("low")
def test_rows_stand_for_what_a_file_can_hold(tmp_path: Path) -> None:
    """A value of a dictionary is in the file once, and in each of its rows: the first rows are read, and no more."""
    path = parquet(tmp_path / "a.parquet", {"caption": ["x" * 20_000] * 64}, dictionary_pagesize_limit=MIB)
    source = open_source(path)
    assert len(str(source[0].fields["caption"])) == 20_000
    with pytest.raises(DecodeError, match="stand for more bytes than"):
        source[63]


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("column", ["label", "key"])
def test_nor_do_labels_and_keys_stand_for_more(column: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {column: ["x" * 20_000] * 64}, dictionary_pagesize_limit=MIB)
    assert "stand for more bytes than" in refused(path, 3 * MIB)


def test_rows_that_take_no_bytes() -> None:
    inflation.check_rows([5, 1 << 28], 100)
    for ends in ([1 << 60], [5, -1]):
        with pytest.raises(ValueError, match="rows, which cannot be in 100 bytes"):
            inflation.check_rows(ends, 100)
