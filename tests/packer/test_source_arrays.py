"""Files of arrays pack as they are, of any dtype and shape; names say what is a split and what belongs together.
Oracles: numpy, h5py and plain bytes."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pictures
import pytest
from archived import zipped
from numpy.typing import NDArray
from pictures import picture
from PIL import Image
from reading import SOAK
from running import FORMATS, pack, run_here, stop_of
from test_hdf5_by_hand import here, looked_at_here  # noqa: F401
from test_source_conformance import write_again

from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import ImageKind, Source, open_source
from rawpack_packer.sources.array_files import labels_beside, of_split, split_of, splits_among
from rawpack_packer.sources.arrays import open_arrays
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.testing import SourceConformance

RAW = [name for name in FORMATS if name != "lmdb"]
DTYPES = ["bool", "i1", "u1", "<i2", ">u2", "<i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<c16"]
SHAPES: list[tuple[int, ...]] = [(1,), (7,), (3, 5), (6, 4, 2), (2, 1, 3, 2)]
SPLITS = {"train": "train", "test": "t10k"}
"""As MNIST calls them."""
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


class TestRows(SourceConformance):
    """A file that is mapped, in the byte order that most machines have not."""

    images = values(">u2", (5, 7, 6, 2))

    def open(self, folder: Path) -> Source:
        if not (folder / "set.npy").exists():
            np.save(folder / "set.npy", self.images)
        return open_source(folder / "set.npy")

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}", image) for i, image in enumerate(self.images.astype("u2"))]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set.npy")
        return True


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
    large = tmp_path / "large.npy"
    with large.open("wb") as file:
        shape = (1 << 18, 256, 1024)
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
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


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    """Whatever is wrong with it, a file of arrays gives one error that names it; nothing of it is executed."""
    np.save(tmp_path / "whole.npy", np.zeros((9, 3)))
    whole = (tmp_path / "whole.npy").read_bytes()
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.zeros(9))
    np.savez(tmp_path / "unnamed.npz", first=np.zeros((3, 3)), second=np.zeros((3, 3)))
    np.savez(tmp_path / "uneven.npz", image=np.zeros((3, 3)), label=np.zeros(4))
    npz, small = zipped({"image.npy": whole, "label.npy": whole}), idx(values("u1", (3, 4)))
    contents = {
        "whole.npy": whole[:-1], "plain.npz": whole, "twice.npz": npz + npz, "short": small[:-1], "long": small + b"x",
        "member.npz": zipped({"image.npy": whole + whole}),
        "huge.gz": gzip.compress(bytes([0, 0, 14, 3]) + b"\xff" * 12),
    }  # fmt: skip
    entry = npz.index(b"PK\1\2")
    for name, at, byte in (("encrypted", 8, 1), ("method", 10, 97), ("directory", 33, 255), ("checksum", 16, 1)):
        contents[f"{name}.npz"] = npz[: entry + at] + bytes([npz[entry + at] ^ byte]) + npz[entry + at + 1 :]
    for name, other in {"negative.npy": b"(-1, 3), ", "call.npy": b"(9, f()), "}.items():
        before, after = whole.split(b"(9, 3), ")
        contents[name] = (before + other + after)[:127].rstrip(b" \n").ljust(127) + b"\n" + whole[128:]
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for name in (*(path.name for path in tmp_path.iterdir()), "missing.npy"):
        with pytest.raises(UsageError, match=re.escape(name)):
            open_arrays(tmp_path / name)


def test_other_arrays_of_one_file_are_another_source(tmp_path: Path) -> None:
    """A store of one array of a file is not taken for a finished store of another array of it."""
    first = np.random.default_rng(0).integers(0, 256, (13, 9, 8, 3), np.uint8)
    np.savez(tmp_path / "arrays.npz", a=first, b=255 - first)
    where = (tmp_path / "arrays.npz", tmp_path / "store")
    packed(*where, "--array", "image=a")
    packed(*where, "--array", "image=a")
    assert "the options of the source differ: " in stop_of("pack", "--workers", 0, "--array", "image=b", *where)


# ---------------------------------------------------------------------------------------------- names and splits


def images(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.stack([picture(12, 10, seed + n) for n in range(count)])


def encoded(seed: int, kind: str) -> bytes:
    return pictures.encoded(picture(10 + seed, 12, seed), kind)


def as_row(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.uint8)


def labels_of(source: Source) -> list[int]:
    return [int(source[i].fields["label"]) for i in range(len(source))]  # type: ignore[arg-type, call-overload]


@here
class TestDataSetForEachImage(SourceConformance):
    """Groups as classes, one data set of which is no image that can be read."""

    def open(self, folder: Path) -> Source:
        path = folder / "set.h5"
        if not path.exists():
            with h5py.File(path, "w") as file:
                for n in range(6):
                    file[f"{'ab'[n % 2]}/{n}"] = as_row(encoded(n, "JPEG"))
                file["b/broken"] = as_row(encoded(7, "PNG")[:40])
        return open_source(path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        with h5py.File(folder / "set.h5") as file:
            return [
                (f"{group}/{name}", file[group][name][()].tobytes()) for group in "ab" for name in sorted(file[group])
            ]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set.h5")
        return True


def test_splits_that_names_share() -> None:
    """All images must be of one; t10k is called test; `val` finds `valid`; any other word finds itself."""
    for name, split, rest in (("train_set_x", "train", "x"), ("data/test/x", "test", "data/x"),
                              ("level_2_split_valid_x.h5", "valid", "level_2_split_x.h5"),
                              ("constraint", "", "constraint")):  # fmt: skip
        assert split_of(name) == (split, rest)
    assert splits_among(["x_test", "x_val", "x_train"]) == ["train", "val", "test"]
    assert splits_among(["train-images", "t10k-images"]) == ["train", "test"]
    assert splits_among(["x_train", "x"]) == []
    assert splits_among(["x_train", "z_train"]) == []
    assert of_split(["x_train", "x_valid", "y_valid", "other"], "val") == {"x": "x_valid", "y": "y_valid"}
    assert of_split(["fold1/x", "fold2/x", "fold1/y"], "fold1") == {"x": "fold1/x", "y": "fold1/y"}


@pytest.mark.parametrize(
    ("name", "other"), [("data.npy", "targets.npy"), ("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz")]
)
def test_labels_beside_images(tmp_path: Path, name: str, other: str) -> None:
    (tmp_path / other).touch()
    beside = labels_beside(Listing(tmp_path / name))
    assert beside is not None
    assert beside.path == tmp_path / other
    assert labels_beside(Listing(tmp_path / other)) is None


def test_splits_of_an_npz(tmp_path: Path) -> None:
    """One split alone has a path, and is another source than the other one of as many samples."""
    path = tmp_path / "set.npz"
    labels = {"y_train": np.arange(4)[:, None], "y_test": np.arange(4)[:, None] + 4}
    np.savez(path, **labels, x_train=images(4), x_test=images(4, 9), classes=np.arange(8))
    test = Reader(pack(path / "test", tmp_path / "store"))
    assert test.column("label").tolist() == [4, 5, 6, 7]
    np.testing.assert_array_equal(test[3]["image"], images(4, 9)[3])
    assert "'classes' is left out: it is part of no split" in open_source(path / "test").info.problems[0]
    assert run_here("pack", path / "train", tmp_path / "store").code == 2


@here
@pytest.mark.parametrize("form", ["idx", "npy", "hdf5", "hdf5 in pairs"])
def test_each_split_has_its_own_images_and_labels(form: str, tmp_path: Path) -> None:
    root, wanted = tmp_path / "set", {split: (images(3, 5 * k), np.arange(3) + 3 * k) for k, split in enumerate(SPLITS)}
    root.mkdir()
    for split, (x, y) in wanted.items():
        if form == "idx":
            (root / f"{SPLITS[split]}-images-idx3-ubyte").write_bytes(idx(np.ascontiguousarray(x[..., 0])))
            (root / f"{SPLITS[split]}-labels-idx1-ubyte").write_bytes(idx(y.astype(np.uint8)))
        elif form == "npy":
            np.save(root / f"x_{split}.npy", x)
            np.save(root / f"y_{split}.npy", y)
        else:
            for name, values in (("x", x), ("y", y)):
                with h5py.File(root / ("set.h5" if form == "hdf5" else f"level_2_{split}_{name}.h5"), "a") as file:
                    file[f"{split}/{name}" if form == "hdf5" else name] = values
    for split, (x, y) in wanted.items():
        source = open_source((root / "set.h5" if form == "hdf5" else root) / split)
        assert labels_of(source) == y.tolist()
        for i in range(3):
            np.testing.assert_array_equal(source[i].image, x[i, ..., 0] if form == "idx" else x[i])


def test_named_arrays_are_packed_as_before(tmp_path: Path) -> None:
    """--array names what is in the file, whatever splits there are; of all splits it says the names without theirs."""
    chw = np.moveaxis(images(4), -1, 1)
    np.savez(tmp_path / "set.npz", x_train=chw, c_train=np.arange(4), x_test=chw[:2], c_test=np.arange(2))
    assert labels_of(open_source(tmp_path / "set.npz", array="image=x_train:chw,label=c_train")) == [0, 1, 2, 3]
    pack(tmp_path / "set.npz", tmp_path / "s", "--splits", "train,test", "--array", "image=x:chw,label=c")
    test = Reader(tmp_path / "s", split="test")
    np.testing.assert_array_equal(test[1]["image"], images(4)[1])
    assert test.column("label").tolist() == [0, 1]
    with pytest.raises(UsageError, match="--array and --image-column both name arrays"):
        open_source(tmp_path / "set.npz", array="image=x,label=c", image_column="x")


@pytest.mark.parametrize(
    ("folder", "last"), [("FashionMNIST", "Ankle boot"), ("fashion-mnist", "Ankle boot"), ("x", None)]
)
def test_names_of_classes_by_the_folder(tmp_path: Path, folder: str, last: str | None) -> None:
    """The files are called alike in all of these sets: only the folder says which it is. Its root will do."""
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(images(3)[..., 0]))
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(np.array([9, 0, 3], np.uint8)))
    for path in (raw, tmp_path / folder / "train"):
        source = open_source(path)
        assert labels_of(source) == [9, 0, 3]
        assert (source.info.classes or (None,))[-1] == last
    assert open_source(raw, classes=[*"abcdefghij"]).info.classes == (*"abcdefghij",)


def test_a_folder_says_what_it_leaves_out(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", images(4))
    np.save(tmp_path / "labels.npy", np.array(["b", "a", "b", "c"]))
    np.save(tmp_path / "boxes.npy", np.zeros((4, 4)))
    source = open_source(tmp_path)
    assert (source.info.classes, labels_of(source)) == (("a", "b", "c"), [1, 0, 1, 2])
    assert source.info.problems == ("not packed: boxes.npy, beside images.npy",)
    with pytest.raises(UsageError, match="there are no splits in"):
        open_source(tmp_path / "train")


@here
def test_a_pair_of_hdf5_files(tmp_path: Path) -> None:
    """The file of images alone will do; labels that do not fit are told; what --array names is packed, and nothing
    else."""
    for name, values in (("x", images(4)), ("y", np.array([1, 0, 0, 1]).reshape(4, 1, 1, 1))):
        with h5py.File(tmp_path / f"set_{name}.h5", "w") as file:
            file[name] = values
    assert labels_of(open_source(tmp_path / "set_x.h5")) == [1, 0, 0, 1]
    assert open_source(tmp_path, classes=["no", "yes"]).info.classes == ("no", "yes")
    assert list(open_source(tmp_path / "set_x.h5", array="image=x").info.fields) == []
    before = open_source(tmp_path).states()
    os.utime(tmp_path / "set_y.h5", ns=(0, 10**18))
    assert not np.array_equal(open_source(tmp_path).states(), before), "labels that change make another source"
    with h5py.File(tmp_path / "set_y.h5", "w") as file:
        file["y"] = np.arange(3)
    (problem,) = open_source(tmp_path).info.problems
    assert problem == "set_y.h5, next to it, has no label for each of the 4 images: it contains y int64 (3,)"


@here
@pytest.mark.parametrize("form", ["pixels", "sizes", "uint8", "opaque", "text"])
def test_a_data_set_for_each_image(tmp_path: Path, form: str) -> None:
    """Pixels of one size or several, or files: as a row of uint8, opaque, or as a text of one length."""
    wanted = dict[str, Any]()
    with h5py.File(tmp_path / "set.h5", "w") as file:
        for n in range(6):
            name, data = f"{('cat', 'dog')[n % 2]}/deep/{n}", encoded(n, "PNG" if n % 2 else "JPEG")
            wanted[name] = picture(12, 10 + (n if form == "sizes" else 0), n) if form in ("pixels", "sizes") else data
            file[name] = {"uint8": as_row, "opaque": np.void, "text": np.bytes_}.get(form, np.asarray)(wanted[name])
    source = open_source(tmp_path / "set.h5")
    assert source.info.classes == ("cat", "dog")
    assert source.info.image == {
        "pixels": ImageKind("uint8", (12, 10, 3)),
        "sizes": ImageKind("uint8", (None, None, 3), resized=True),
    }.get(form)
    for i in range(6):
        item = source[i]
        assert item.fields == {"label": int(item.key.startswith("dog"))}
        np.testing.assert_array_equal(item.image, wanted[item.key])


@here
def test_splits_of_a_data_set_for_each_image(tmp_path: Path) -> None:
    """Groups that are splits are no classes; those in them are."""
    with h5py.File(tmp_path / "set.h5", "w") as file:
        for n in range(8):
            file[f"{('train', 'val')[n % 2]}/{('cat', 'dog')[n // 4]}/{n}"] = picture(8, 8, n)
    with pytest.raises(UsageError, match="is divided into the splits train, val"):
        open_source(tmp_path / "set.h5")
    val = open_source(tmp_path / "set.h5" / "val")
    assert ([val.key(i) for i in range(4)], val.info.classes) == (["cat/1", "cat/3", "dog/5", "dog/7"], ("cat", "dog"))


@here
def test_files_in_texts_of_one_length(tmp_path: Path) -> None:
    """HDF5 fills them with zeros, which files of some formats end in themselves."""
    files = [encoded(n, kind) for n, kind in enumerate(["JPEG", "PNG", "BMP", "WEBP"])]
    files.append(pictures.encoded(np.zeros((4, 4, 3), np.uint8), "BMP"))
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["image"], file["label"] = np.array(files), np.arange(5)
        file["name"] = np.array([b"a", b"b", b"c", b"d", b"e"])
    source = open_source(tmp_path / "set.h5")
    assert set(source.info.fields) == {"label", "name"}
    for i, data in enumerate(files):
        found = source[i].image
        assert isinstance(found, bytes)
        assert found == data if i < 2 else found.startswith(data)
        assert np.array_equal(*(np.asarray(Image.open(io.BytesIO(one))) for one in (found, data)))


def write(path: Path, values: dict[str, bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 26) as database, database.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key.encode(), value)
    return path


def test_labels_and_texts_beside_images(tmp_path: Path) -> None:
    """Whole numbers in .txt are labels, unless .cls has them; names in .cls are classes; others are texts."""
    files = {f"{n}.jpg": encoded(n, "JPEG") for n in range(4)}
    numbers = open_source(write(tmp_path / "numbers", files | {f"{n}.txt": b" %d\n" % (n % 3) for n in range(4)}))
    assert (labels_of(numbers), numbers.info.classes) == ([0, 1, 2, 0], None)
    named = {f"{n}.cls": (b"dog", b"cat")[n % 2] for n in range(3)} | {f"{n}.txt": b"%d" % n for n in range(4)}
    source = open_source(write(tmp_path / "named", files | named | {"9.txt": b"alone", "9.cls": b"cat"}))
    assert source.info.classes == ("cat", "dog")
    assert [source[i].fields for i in range(4)] == [
        {"label": label, "text": f"{i}"} for i, label in enumerate([1, 0, 1, -1])
    ]
    assert source.info.counts == {"other_keys": 2, "unlabelled": 1, "empty_classes": 0}
    assert source.info.problems == ("1 image has no key of the same name with .cls",)
    plain = open_source(write(tmp_path / "json", files | {"0.json": b'{"a": 1}', "2.txt": b"x" * 5000}))
    assert plain[0].fields == {"json": '{"a": 1}', "text": ""}
    with pytest.raises(DecodeError, match="its text has more than 4,096 bytes"):
        plain[2]
    texts = open_source(write(tmp_path / "texts", {f"{n}.txt": image for n, image in enumerate(files.values())}))
    assert [texts.key(i) for i in range(4)] == ["0.txt", "1.txt", "2.txt", "3.txt"]  # images may be called so
