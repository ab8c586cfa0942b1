"""`--compression zstd`: what is read is what was packed, for every dtype, and what is damaged or lies is refused.

The oracle undoes differences number by number, by the page of the format.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import SOAK, without_core
from running import Packed, pack, run_here

import rawpack_packer
from rawpack import DamagedStoreError, MissingExtraError, Reader
from rawpack.formats.codecs.zstd import compress, decompress
from rawpack.pixels import bands
from rawpack.transforms import RandomCrop, RandomResizedCrop
from rawpack_packer.testing import FormatConformance

zstd = pytest.importorskip("backports.zstd")
Pixels = NDArray[np.uint8]
DTYPES = ("uint8", "bool", "int8", "uint16", "int16", "int32", "uint32", "int64", "float16", "float32", "float64")


def undone(plane: list[int], rows: int, values: int, modulus: int) -> list[int]:
    """Numbers of a plane from their differences, one after another."""
    made = list(plane)
    for row in range(rows):
        for k in range(values):
            if row % 16:
                made[row * values + k] = (made[(row - 1) * values + k] + plane[row * values + k]) % modulus
    return made


def decoded(frame: bytes, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An image by `docs/format/memmap.md`, without numpy's arithmetic."""
    raw, size = zstd.decompress(frame), np.dtype(dtype).itemsize
    count = len(raw) // size
    numbers = [sum(raw[k * count + i] << 8 * k for k in range(size)) for i in range(count)]
    modulus = 1 << 8 * size
    if len(shape) == 3 and shape[2] == 3 and dtype in ("uint8", "uint16"):
        area = shape[0] * shape[1]
        green, red, blue = (undone(numbers[k * area : (k + 1) * area], *shape[:2], modulus) for k in range(3))
        rgb = [n for g, r, b in zip(green, red, blue, strict=True) for n in ((r + g) % modulus, g, (b + g) % modulus)]
    else:
        rgb = undone(numbers, shape[0], math.prod(shape[1:]), modulus)
    data = b"".join(n.to_bytes(size, "little") for n in rgb)
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def frames(store: Path, name: str = "image") -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """The frame and shape of each sample, by numpy alone."""
    manifest = json.loads((store / "store.json").read_text())
    offsets, sizes = (np.load(store / "columns-1" / f"{name}.{what}.npy") for what in ("offset", "bytes"))
    shapes = store / "columns-1" / f"{name}.shape.npy"
    each = np.load(shapes).tolist() if shapes.exists() else [manifest["fields"][name]["shape"]] * len(offsets)
    row = 0
    for shard in manifest["shards"]:
        file = shard["files"][shard["fields"][name]["file"]]["name"]
        flat = np.load(store / file, mmap_mode="r")
        assert (flat.dtype, flat.ndim) == (np.uint8, 1)
        for _ in range(shard["rows"]):
            start = offsets[row] - 4096
            yield flat[start : start + sizes[row]].tobytes(), tuple(each[row])
            row += 1


class TestZstd(FormatConformance):
    """memmap with zstd keeps the promises of every format."""

    def pack(self, images: Sequence[Pixels], folder: Path) -> Path:
        kind = None if len({image.shape for image in images}) == 1 else ("uint8", (None, None, 3))
        samples = [{"image": image} for image in images]
        rawpack_packer.pack(samples, folder / "s", image=kind, compression="zstd", shard_size="1", workers=0)
        return folder / "s"

    def read_back(self, store: Path) -> Iterator[Pixels]:
        for frame, shape in frames(store):
            yield decoded(frame, shape, "uint8")


@given(st.data())
@settings(max_examples=60 if SOAK else 25, deadline=None)
def test_every_dtype_and_shape_comes_back_bit_by_bit(data: st.DataObject) -> None:
    """Differences of any numbers, NaN and -0.0 among them, are undone: all, and any part of them."""
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    shape = (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 2, 3, 4])))
    seed = data.draw(st.integers(0, 1 << 32))
    bits = np.random.default_rng(seed).integers(0, 256, math.prod(shape) * dtype.itemsize, np.uint8)
    image = (bits % 2 if dtype.kind == "b" else bits).view(dtype).reshape(shape)
    stored = bands.differences(image)
    np.testing.assert_array_equal(
        decoded(zstd.compress(stored.tobytes()), shape, dtype.name).tobytes(), image.tobytes()
    )
    y, x = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
    box = (y, x, data.draw(st.integers(1, shape[0] - y)), data.draw(st.integers(1, shape[1] - x)))
    expected = image[y : y + box[2], x : x + box[3]]
    for way in (nullcontext, without_core):
        with way():
            for out in (None, np.empty((*expected.shape[:2], 5), dtype)[..., 5 - shape[2] :]):
                part = bands.undo(stored, shape, dtype, box, out)
                assert out is None or part is out
                assert (part.dtype, part.shape, part.tobytes()) == (dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize("color", ["rgb", "ycgco420"])
def test_a_compressed_store_reads_like_one_that_is_not(
    images: Path, packed: Packed, tmp_path: Path, color: str
) -> None:
    """Whole samples, crops, planes, any workers: equal to the store without compression, which is larger."""
    pack(images, tmp_path / "zstd", "--size", 48, "--color", color, "--compression", "zstd")
    raw, small = Reader(packed("memmap", "--size", 48, "--color", color)), Reader(tmp_path / "zstd")
    for steps, workers in ((None, 2), ([RandomCrop(20)], 0), ([RandomResizedCrop(24)], 0)):
        many = (one.batches(7, shuffle=True, seed=1, transform=steps, workers=workers) for one in (raw, small))
        for one, other in zip(*many, strict=True):
            np.testing.assert_array_equal(one["image"], other["image"])
            assert one["index"].tolist() == other["index"].tolist()
    if color == "ycgco420":
        for one, other in zip(*(one.batches(7, decode="planes", workers=0) for one in (raw, small)), strict=True):
            np.testing.assert_array_equal(one["image"], other["image"])
    with without_core():
        for row in range(len(raw)):
            np.testing.assert_array_equal(raw[row]["image"], small[row]["image"])
    assert run_here("inspect", "--verify", tmp_path / "zstd").code == 0


def test_stores_are_converted_without_loss(images: Path, tmp_path: Path) -> None:
    """From raw planes to compressed ones and back, every byte of the planes stays."""
    rawpack_packer.pack(images, tmp_path / "planes", size=48, color="ycgco420", workers=0)
    assert run_here("convert", tmp_path / "planes", tmp_path / "small", "--compression", "zstd").code == 0
    assert run_here("convert", tmp_path / "small", tmp_path / "again", "--compression", "none").code == 0
    first, last = (np.load(tmp_path / one / "shard-00000.npy") for one in ("planes", "again"))
    np.testing.assert_array_equal(first, last)


def _frame(data: bytes, **options: Any) -> NDArray[np.uint8]:
    return np.frombuffer(zstd.compress(data, **options), np.uint8)


def test_frames_that_lie_are_refused() -> None:
    """A frame of another size than the manifest's, one that states none, a second frame, a dictionary, what is cut off
    or changed: each is damage, and no more memory is taken than the manifest says."""
    data = bytes(range(256)) * 4
    whole = _frame(data)
    assert decompress(whole, len(data), 0).tobytes() == data
    unstated = zstd.CompressionParameter.content_size_flag
    dictionary = zstd.train_dict([bytes([k]) * 64 + data[: k + 64] for k in range(200)], 512)
    changed = whole.copy()
    changed[len(changed) // 2 :] ^= 0xFF
    bad = {
        "a bomb": _frame(bytes(1 << 24)),
        "shorter": _frame(data[:-1]),
        "of unstated size": np.frombuffer(zstd.compress(data, options={unstated: 0}), np.uint8),
        "two frames": np.concatenate([whole, whole]),
        "more behind it": np.concatenate([whole, np.zeros(3, np.uint8)]),
        "a dictionary": np.frombuffer(zstd.compress(data, zstd_dict=dictionary), np.uint8),
        "nothing": whole[:0],
        "changed": changed,
        **{f"cut off at {n}": whole[:n] for n in range(1, len(whole), 5)},
    }
    for frame in bad.values():
        with pytest.raises(DamagedStoreError):
            decompress(frame, len(data), 0)
    assert decompress(compress(np.frombuffer(data, np.uint8)), len(data), 0).tobytes() == data


def test_without_the_package_packing_and_opening_say_so_at_once(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here("pack", "--quiet", "--compression", "zstd", "--size", 48, images, tmp_path / "packed").code == 0
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(MissingExtraError, match=r"packed, field 'image': zstd needs .*pip install 'rawpack\[zstd\]'"):
        Reader(tmp_path / "packed")
    ran = run_here("pack", "--compression", "zstd", "--size", 48, images, tmp_path / "other")
    assert (ran.code, (tmp_path / "other").exists()) == (1, False)
    assert "rawpack[zstd]" in ran.err
