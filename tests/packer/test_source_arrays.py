"""Files of arrays pack as they are: .npy, .npz and IDX, of any dtype and shape. Oracles: numpy and plain bytes."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from reading import SOAK
from running import FORMATS, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source
from rawpack_packer.sources.arrays import open_arrays

RAW = [name for name in FORMATS if name != "lmdb"]
DTYPES = ["bool", "i1", "u1", "<i2", ">u2", "<i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<c16"]
SHAPES: list[tuple[int, ...]] = [(1,), (7,), (3, 5), (6, 4, 2), (2, 1, 3, 2)]
IDX_PAIRS = (("memmap", "gzip"), ("hdf5", "plain"))
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


@pytest.mark.parametrize("layout", RAW)
def test_npy_of_any_dtype_and_shape(layout: str, tmp_path: Path) -> None:
    """Of every dtype in memmap and in one of the layouts of HDF5, and in all of these in a long run."""
    for number, dtype in enumerate(DTYPES):
        if layout != "memmap" and RAW.index(layout) != 1 + number % 3 and not SOAK:
            continue
        array = values(dtype, (70, *SHAPES[number % len(SHAPES)]), number)
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(array) if number % 2 else array)
        same(packed(tmp_path / f"{number}.npy", tmp_path / f"s{number}", *FORMATS[layout], "--shard-size", 1), array)


@pytest.mark.parametrize(
    ("layout", "packing"),
    [(layout, one) for layout in RAW for one in ("plain", "gzip") if SOAK or (layout, one) in IDX_PAIRS],
)
def test_idx_of_any_dtype(layout: str, packing: str, tmp_path: Path) -> None:
    """All six types of IDX, gzipped or not, whatever the file is called; in each layout in a long run."""
    for number, dtype in enumerate(IDX):
        array = values(dtype, (9, *SHAPES[number % len(SHAPES)]), number)
        file = tmp_path / (f"{number}" if packing == "plain" else f"{number}.gz")
        file.write_bytes(idx(array) if packing == "plain" else gzip.compress(idx(array)))
        same(packed(file, tmp_path / f"s{number}", *FORMATS[layout]), array)


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_mnist_has_its_labels(packing: str, layout: str, tmp_path: Path) -> None:
    """Images and labels as MNIST names its files: the labels come with the images, in every format."""
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (90, 28, 28)).astype("u1"), random.integers(0, 10, 90).astype("u1")
    squeeze = gzip.compress if packing else bytes
    source = tmp_path / f"train-images-idx3-ubyte{packing}"
    source.write_bytes(squeeze(idx(images)))
    (tmp_path / f"train-labels-idx1-ubyte{packing}").write_bytes(squeeze(idx(labels)))
    reader = packed(source, tmp_path / "s", *FORMATS[layout], *(["--quality", 100] if layout == "lmdb" else []))
    assert reader.fields["image"].shape == (28, 28, 1)
    (batch,) = reader.batches(90, workers=0)
    assert batch["label"].dtype == np.int64
    assert batch["label"].tolist() == labels.tolist()
    off = np.abs(batch["image"][..., 0].astype(int) - images)
    assert off.max() <= (3 if layout == "lmdb" else 0)  # a JPEG of quality 100 rounds its cosines


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


@pytest.mark.parametrize("layout", RAW)
@pytest.mark.parametrize(("dtype", "channels"), [("uint16", 3), ("float32", 1), ("uint8", 6), ("uint8", 130)])
def test_arrays_are_resized_in_their_own_dtype(dtype: str, channels: int, layout: str, tmp_path: Path) -> None:
    """`--size` of arrays that are no pictures: averages of their values, also beyond a byte and of many channels."""
    most = 255 if dtype == "uint8" else 60_000
    array = (np.random.default_rng(0).random((5, 24, 24, channels)) * most).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    reader = packed(tmp_path / "a.npy", tmp_path / "store", *FORMATS[layout], "--size", 8)
    (batch,) = reader.batches(5, workers=0)
    blocks = array.reshape(5, 8, 3, 8, 3, channels).mean(axis=(2, 4), dtype=np.float64)
    assert (batch["image"].dtype, batch["image"].shape) == (array.dtype, (5, 8, 8, channels))
    assert np.abs(batch["image"] - blocks).max() <= 1


def test_grey_arrays_are_appended_to_what_was_made_of_a_store_of_them(tmp_path: Path) -> None:
    """A store of grey arrays that was converted or cut down is grey: more such arrays go in, coloured ones do not."""
    first, more = values("u1", (10, 5, 6), 1), values("u1", (4, 5, 6), 2)
    np.save(tmp_path / "first.npy", first)
    np.save(tmp_path / "more.npy", more)
    np.save(tmp_path / "coloured.npy", values("u1", (4, 5, 6, 3)))
    packed(tmp_path / "first.npy", tmp_path / "s")
    (tmp_path / "rows.txt").write_text("0\n1\n2\n")
    for made, options, rows in (
        ("convert", ("--format", "hdf5"), first),
        ("subset", ("--rows-from", tmp_path / "rows.txt"), first[:3]),
    ):
        store = tmp_path / made
        ran = run_here(made, "--quiet", "--workers", 0, *options, tmp_path / "s", store)
        assert ran.code == 0, ran
        ran = run_here("append", "--quiet", "--workers", 0, tmp_path / "more.npy", store)
        assert (ran.code, ran.err) == (0, ""), ran
        same(Reader(store), np.concatenate([rows, more]))
        ran = run_here("append", "--workers", 0, tmp_path / "coloured.npy", store)
        assert ran.code == 2, ran


def test_rows_are_appended_to_some_rows_of_others(tmp_path: Path) -> None:
    """Samples whose keys are numbers are counted on behind the last one that a subset has, never onto its own."""
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
    numbers = [2, 7, *range(8, 26)]
    assert [reader[i]["key"] for i in range(20)] == [f"{number:08d}" for number in numbers]


@pytest.mark.parametrize(
    ("shape", "size"),
    [((32, 32, 3), "20"), ((4, 4, 64), "16"), ((4, 32, 20), "16x32"), ((1, 64, 16), "1x32"), ((5, 32, 32), "20")],
)
def test_low_images_of_many_channels_are_resized(shape: tuple[int, ...], size: str, tmp_path: Path) -> None:
    """What is (height, width, channels), as the user says, is resized so: feature maps, single lines of a spectrum."""
    np.save(tmp_path / "a.npy", np.full((2, *shape), 9, np.float32))
    reader = packed(tmp_path / "a.npy", tmp_path / "s", "--array", ":hwc", "--size", size)
    height, width = (int(size), int(size)) if size.isdigit() else map(int, size.split("x"))
    assert reader[0]["image"].shape == (height, width, shape[2])
    assert (reader[0]["image"] == 9).all()


@pytest.mark.parametrize(("interpolation", "size"), [("area", "7x5"), ("lanczos", "30x40"), ("nearest", "2x900")])
def test_each_of_very_many_channels_is_resized_as_one_alone(size: str, interpolation: str, tmp_path: Path) -> None:
    array = values("u1", (1, 24, 20, 131))
    for name, one in (("all", array), ("one", array[..., 130:])):
        np.save(tmp_path / f"{name}.npy", one)
        packed(tmp_path / f"{name}.npy", tmp_path / name, "--size", size, "--interpolation", interpolation)
    found = Reader(tmp_path / "all")[0]["image"][..., 130].astype(int)
    assert np.abs(found - Reader(tmp_path / "one")[0]["image"][..., 0]).max() <= 1


@pytest.mark.parametrize("name", ["set.npy", "set-idx3-ubyte"])
def test_a_file_that_cannot_be_read_says_why(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that it is damaged."""

    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    (tmp_path / name).write_bytes(b"\0\0\x08\3")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match=rf"{name} cannot be read: \[Errno 13\] Permission denied"):
        open_arrays(tmp_path / name)


@pytest.mark.parametrize(("dtype", "shape"), [("u2", (4, 4)), ("u1", (4, 4, 2)), ("u1", (9,))])
def test_lmdb_refuses_what_jpeg_cannot_hold(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The error names the two formats that hold it, and nothing is written."""
    np.save(tmp_path / "a.npy", np.zeros((3, *shape), dtype))
    assert "--format memmap or --format hdf5" in stop_of("pack", "--format", "lmdb", tmp_path / "a.npy", tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("dtype", "shape"), [("f4", (16,)), ("c8", (3, 5)), ("bool", (4, 4, 3))])
def test_stores_of_arrays_can_be_inspected(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values(dtype, (9, *shape)))
    packed(tmp_path / "a.npy", tmp_path / "s")
    ran = run_here("inspect", "--verify", "--html", tmp_path / "page.html", tmp_path / "s")
    assert ran.code == 0, ran
    assert (tmp_path / "page.html").exists()
    ran = run_here("inspect", "--grid", tmp_path / "sheet.png", tmp_path / "s")
    assert ran.code == 0, ran
    assert (tmp_path / "sheet.png").exists()


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


def test_a_file_that_changes_stops_the_run(tmp_path: Path) -> None:
    """A source that is written to in mid-run is no source; and a finished store knows that it is another by now."""
    np.save(tmp_path / "a.npy", values("<f4", (70, 3)))
    source = open_arrays(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", values("<f4", (71, 3)))
    with pytest.raises(Exception, match="changed since packing began"):
        source[0]
    packed(tmp_path / "a.npy", tmp_path / "s")
    np.save(tmp_path / "a.npy", values("<f4", (71, 3), 1))
    assert "the source differs" in stop_of("pack", tmp_path / "a.npy", tmp_path / "s")


def bad_npz(whole: bytes) -> dict[str, bytes]:
    """Archives of arrays of which some cannot be read, or are not listed. whole: an .npy."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("image.npy", whole)
        archive.writestr("label.npy", whole)
    good = file.getvalue()
    entry, found = good.index(b"PK\1\2"), {}
    for name, at, byte in (("encrypted", 8, 1), ("method", 10, 97), ("directory", 33, 255), ("checksum", 16, 1)):
        data = bytearray(good)
        data[entry + at] ^= byte
        found[f"{name}.npz"] = bytes(data)
    member = io.BytesIO()
    with zipfile.ZipFile(member, "w") as archive:
        archive.writestr("image.npy", whole + whole)
    return {**found, "twice.npz": good + good, "member.npz": member.getvalue()}


def bad_files(folder: Path) -> dict[str, Path]:
    """Files that are no whole arrays."""
    np.save(folder / "good.npy", np.zeros((9, 3)))
    whole = (folder / "good.npy").read_bytes()
    np.save(folder / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(folder / "scalar.npy", np.float32(3))
    np.save(folder / "flat.npy", np.zeros(9))
    np.save(folder / "text.npy", np.array([["a"]]))
    np.savez(folder / "unnamed.npz", first=np.zeros((3, 3)), second=np.zeros((3, 3)))
    np.savez(folder / "uneven.npz", image=np.zeros((3, 3)), label=np.zeros(4))
    with zipfile.ZipFile(folder / "strange.npz", "w") as file:
        file.writestr("image.npy", whole)
        file.writestr("readme.txt", "no array")
    contents = {
        "plain.npz": whole,
        "short.npy": whole[:-1],
        "empty.npy": b"",
        "noise.npy": b"\x93NUMPY\x01\x00\xff\xff" + b"x" * 80,
        "short": idx(values("u1", (3, 4)))[:-1],
        "long": idx(values("u1", (3, 4))) + b"x",
        "short.gz": gzip.compress(idx(values("u1", (3, 4)))[:-1]),
        "huge.gz": gzip.compress(bytes([0, 0, 14, 3]) + b"\xff" * 12),
    }
    shape = b"(9, 3), "
    assert shape in whole
    for name, other in {
        "open.npy": b"(9, 3(, ", "nul.npy": b"(9, 3\0, ", "negative.npy": b"(-1, 3), ",
        "wide.npy": b"(%d, 3), " % 10**50, "call.npy": b"(9, f()), ",
    }.items():  # fmt: skip
        at = whole.index(shape)
        head = whole[:at] + other + whole[at + len(shape) :]
        contents[name] = head[:127].rstrip(b" \n").ljust(127) + b"\n" + whole[128:]
    contents["two.npy"] = whole + whole
    contents["more.npy"] = whole + bytes(5)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    for name, data in bad_npz(whole).items():
        (folder / name).write_bytes(data)
        contents[name] = data
    names = ("pickled.npy", "scalar.npy", "flat.npy", "text.npy", "strange.npz", "unnamed.npz", "uneven.npz")
    return {name: folder / name for name in (*contents, *names)}


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    """Whatever is wrong with it, a file of arrays gives one error that names it; nothing of it is executed."""
    for name, path in bad_files(tmp_path).items():
        with pytest.raises(UsageError) as refused:
            open_arrays(path)
        assert name in str(refused.value), name
        ran = run_here("pack", "--workers", 0, path, tmp_path / "store")
        assert (ran.code, name in ran.err, (tmp_path / "store").exists()) == (2, True, False), ran
    with pytest.raises(UsageError, match="cannot be read"):
        open_arrays(tmp_path / "missing.npy")


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_other_arrays_of_one_file_are_another_source(kind: str, tmp_path: Path) -> None:
    """A store of one array of a file is not taken for a finished store of another array of it."""
    first = np.random.default_rng(0).integers(0, 256, (13, 9, 8, 3), np.uint8)
    file, store = tmp_path / f"arrays.{kind}", tmp_path / "store"
    if kind == "npz":
        np.savez(file, a=first, b=255 - first)
    else:
        with h5py.File(file, "w") as opened:
            opened["a"], opened["b"] = first, 255 - first
    assert run_here("pack", "--workers", 0, "--array", "image=a", file, store).code == 0
    again = run_here("pack", "--workers", 0, "--array", "image=a", file, store)
    assert again.code == 0
    assert "complete already" in again.out
    assert "the options of the source differ: " in stop_of("pack", "--workers", 0, "--array", "image=b", file, store)
