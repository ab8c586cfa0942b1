"""Files of arrays pack as they are: .npy, .npz and IDX, of any dtype and shape. Oracles: numpy and plain bytes."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import zipped
from numpy.typing import NDArray
from reading import SOAK
from running import FORMATS, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source
from rawpack_packer.sources.arrays import open_arrays

RAW = [name for name in FORMATS if name != "lmdb"]
DTYPES = ["bool", "i1", "u1", "<i2", ">u2", "<i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<c16"]
SHAPES: list[tuple[int, ...]] = [(1,), (7,), (3, 5), (6, 4, 2), (2, 1, 3, 2)]
IDX = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[Any]:
    """Any bits that are a value of the dtype, without NaN."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    if kind.kind in "fc":
        return (random.normal(0, 100, shape) + (1j * random.random(shape) if kind.kind == "c" else 0)).astype(kind)
    info = np.iinfo(kind)
    return random.integers(info.min, info.max, shape, dtype=kind.newbyteorder("="), endpoint=True).astype(kind)


def idx(array: NDArray[Any]) -> bytes:
    """An IDX file by its definition: two zero bytes, the type, the number of axes, their lengths, the values."""
    head = bytes([0, 0, IDX[array.dtype.str.lstrip("|")], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def packed(source: Path, store: Path, *options: object) -> Reader:
    ran = run_here("pack", "--quiet", "--workers", 0, *options, source, store)
    assert (ran.code, ran.err) == (0, ""), ran
    return Reader(store)


def same(reader: Reader, array: NDArray[Any]) -> None:
    """The reader's images are the array's rows, bit for bit; uint8 of two axes with an axis of one channel more."""
    shape = array.shape[1:]
    if array.dtype == np.uint8 and len(shape) == 2:
        shape = (*shape, 1)
    assert (reader.fields["image"].dtype, reader.fields["image"].shape) == (array.dtype.name, shape)
    assert len(reader) == len(array)
    (batch,) = reader.batches(len(array), workers=0)
    assert batch["image"].tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
    assert batch["image"].shape == (len(array), *shape)


def test_npy_of_any_dtype_and_shape(tmp_path: Path) -> None:
    """In C's and Fortran's order; of each dtype in one of the layouts, and in all of these in a long run."""
    for number, dtype in enumerate(DTYPES):
        array = values(dtype, (70, *SHAPES[number % len(SHAPES)]), number)
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(array) if number % 2 else array)
        for layout in RAW if SOAK else [RAW[number % len(RAW)]]:
            store = tmp_path / f"{number} {layout}"
            same(packed(tmp_path / f"{number}.npy", store, *FORMATS[layout], "--shard-size", 1), array)


def test_idx_of_any_dtype(tmp_path: Path) -> None:
    """All six types of IDX, gzipped or not, whatever the file is called."""
    for number, dtype in enumerate(IDX):
        array = values(dtype, (9, *SHAPES[number % len(SHAPES)]), number)
        for name, data in ((f"{number}", idx(array)), (f"{number}.gz", gzip.compress(idx(array)))):
            (tmp_path / name).write_bytes(data)
            same(packed(tmp_path / name, tmp_path / f"s{name}"), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_has_images_and_fields(save: Any, tmp_path: Path) -> None:
    """One array is the images, the others of its length are fields: numbers, vectors, texts."""
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {
        "x": random.random((70, 2, 3)),
        "y": random.integers(0, 5, 70).astype(np.uint16),
        "box": random.random((70, 4)).astype(np.float32),
        "name": np.array([f"é {i}" for i in range(70)]),
    }
    save(tmp_path / "a.npz", **arrays)
    reader = packed(tmp_path / "a.npz", tmp_path / "s", "--shard-size", 1)
    assert list(reader.fields) == ["image", "label", "box", "name", "key"]
    for i in range(70):
        sample = reader[i]
        np.testing.assert_array_equal(sample["image"], arrays["x"][i])
        np.testing.assert_array_equal(sample["box"], arrays["box"][i])
        assert (sample["label"], sample["name"]) == (arrays["y"][i], arrays["name"][i])


@pytest.mark.parametrize(("dtype", "channels"), [("uint16", 3), ("float32", 1), ("uint8", 6), ("uint8", 130)])
def test_arrays_are_resized_in_their_own_dtype(dtype: str, channels: int, tmp_path: Path) -> None:
    """`--size` of arrays that are no pictures: averages of their values, also beyond a byte and of many channels."""
    most = 255 if dtype == "uint8" else 60_000
    array = (np.random.default_rng(0).random((5, 24, 24, channels)) * most).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    (batch,) = packed(tmp_path / "a.npy", tmp_path / "store", "--size", 8).batches(5, workers=0)
    blocks = array.reshape(5, 8, 3, 8, 3, channels).mean(axis=(2, 4), dtype=np.float64)
    assert (batch["image"].dtype, batch["image"].shape) == (array.dtype, (5, 8, 8, channels))
    assert np.abs(batch["image"] - blocks).max() <= 1


def test_rows_are_appended_to_some_rows_of_others(tmp_path: Path) -> None:
    """Samples whose keys are numbers are counted on behind the last one that a subset has, never onto its own; grey
    images stay grey."""
    array = values("u1", (9, 5, 6))
    np.save(tmp_path / "a.npy", array)
    packed(tmp_path / "a.npy", tmp_path / "all")
    (tmp_path / "rows.txt").write_text("2\n7\n")
    made = tmp_path / "some"
    assert run_here("subset", "--workers", 0, "--rows-from", tmp_path / "rows.txt", tmp_path / "all", made).code == 0
    for _ in range(2):
        ran = run_here("append", "--quiet", "--workers", 0, tmp_path / "a.npy", made)
        assert (ran.code, ran.err) == (0, ""), ran
    reader = Reader(made)
    same(reader, np.concatenate([array[[2, 7]], array, array]))
    np.save(tmp_path / "coloured.npy", values("u1", (4, 5, 6, 3)))
    assert run_here("append", "--workers", 0, tmp_path / "coloured.npy", made).code == 2
    numbers = [2, 7, *range(8, 26)]
    assert [reader[i]["key"] for i in range(20)] == [f"{number:08d}" for number in numbers]


@pytest.mark.parametrize(("dtype", "shape"), [("u2", (4, 4)), ("u1", (4, 4, 2))])
def test_lmdb_refuses_what_jpeg_cannot_hold(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The error names the two formats that hold it, and nothing is written."""
    np.save(tmp_path / "a.npy", np.zeros((3, *shape), dtype))
    assert "--format memmap or --format hdf5" in stop_of("pack", "--format", "lmdb", tmp_path / "a.npy", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_npy_is_mapped_not_read(tmp_path: Path) -> None:
    """What travels to a worker is where the rows lie: a sparse file of 64 GiB costs nothing to open or cut up."""
    head = tmp_path / "head.npy"
    np.lib.format.open_memmap(head, "w+", np.uint8, (1, 256, 1024))
    large = tmp_path / "large.npy"
    with large.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 18, 256, 1024)}
        )
        offset = file.tell()
        file.truncate(offset + (1 << 36))
        file.seek(offset + (1 << 35))
        file.write(b"\7" * 1024)
    source = open_source(large)
    assert len(source) == 1 << 18
    assert len(pickle.dumps(source.part(5, 200_000))) < 2000
    image = source.part(100_000, 200_000)[(1 << 17) - 100_000].image
    assert isinstance(image, np.ndarray)
    assert (image[0] == 7).all()
    assert not image[1:].any()


def bad_files(folder: Path) -> list[str]:
    """Files that are no whole arrays."""
    np.save(folder / "good.npy", np.zeros((9, 3)))
    whole = (folder / "good.npy").read_bytes()
    (folder / "good.npy").unlink()
    np.save(folder / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(folder / "flat.npy", np.zeros(9))
    np.savez(folder / "unnamed.npz", first=np.zeros((3, 3)), second=np.zeros((3, 3)))
    np.savez(folder / "uneven.npz", image=np.zeros((3, 3)), label=np.zeros(4))
    npz = zipped({"image.npy": whole, "label.npy": whole})
    contents = {
        "plain.npz": whole,
        "twice.npz": npz + npz,
        "member.npz": zipped({"image.npy": whole + whole}),
        "short.npy": whole[:-1],
        "short": idx(values("u1", (3, 4)))[:-1],
        "long": idx(values("u1", (3, 4))) + b"x",
        "huge.gz": gzip.compress(bytes([0, 0, 14, 3]) + b"\xff" * 12),
    }
    entry = npz.index(b"PK\1\2")
    for name, at, byte in (("encrypted", 8, 1), ("method", 10, 97), ("directory", 33, 255), ("checksum", 16, 1)):
        changed = bytearray(npz)
        changed[entry + at] ^= byte
        contents[f"{name}.npz"] = bytes(changed)
    for name, other in {"negative.npy": b"(-1, 3), ", "call.npy": b"(9, f()), "}.items():
        before, after = whole.split(b"(9, 3), ")
        contents[name] = (before + other + after)[:127].rstrip(b" \n").ljust(127) + b"\n" + whole[128:]
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return [path.name for path in folder.iterdir()]


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    """Whatever is wrong with it, a file of arrays gives one error that names it; nothing of it is executed."""
    for name in bad_files(tmp_path):
        with pytest.raises(UsageError) as refused:
            open_arrays(tmp_path / name)
        assert name in str(refused.value), name
    with pytest.raises(UsageError, match="cannot be read"):
        open_arrays(tmp_path / "missing.npy")


def test_other_arrays_of_one_file_are_another_source(tmp_path: Path) -> None:
    """A store of one array of a file is not taken for a finished store of another array of it."""
    first = np.random.default_rng(0).integers(0, 256, (13, 9, 8, 3), np.uint8)
    np.savez(tmp_path / "arrays.npz", a=first, b=255 - first)
    where = (tmp_path / "arrays.npz", tmp_path / "store")
    packed(*where, "--array", "image=a")
    packed(*where, "--array", "image=a")
    assert "the options of the source differ: " in stop_of("pack", "--workers", 0, "--array", "image=b", *where)
