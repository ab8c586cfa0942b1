"""HDF5 files made by hand: samples are what h5py reads, and hostile files read nothing else and crash nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from pictures import encoded, picture
from running import reason_of
from test_source_conformance import write_again

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources import FieldKind, Source, open_source
from rawpack_packer.sources.hdf5 import file as hdf5_file
from rawpack_packer.sources.hdf5 import source as hdf5_source
from rawpack_packer.testing import SourceConformance

COUNT = 7
BYTES = h5py.vlen_dtype(np.uint8)


@pytest.fixture
def looked_at_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at in this process: a child process takes a third of a second, and changes nothing."""
    monkeypatch.setattr(hdf5_file.LookAt, "ask", lambda self, function, *about: function(self._path, *about))


here = pytest.mark.usefixtures("looked_at_here")


def images(count: int = COUNT, height: int = 12, width: int = 10) -> np.ndarray[Any, Any]:
    return np.stack([picture(height, width, i) for i in range(count)])


def jpegs(count: int) -> list[bytes]:
    return [encoded(picture(20 + i, 30, i), "JPEG") for i in range(count)]


def put_bytes(group: h5py.Group, name: str, values: Sequence[bytes]) -> None:
    data = group.create_dataset(name, (len(values),), BYTES)
    for i, value in enumerate(values):
        data[i] = np.frombuffer(value, np.uint8)


def written(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/")] = values
    return path


@here
class TestPixels(SourceConformance):
    """Galaxy10: images, ans, and numbers of as many rows; in compressed chunks."""

    def open(self, folder: Path) -> Source:
        path = folder / "Galaxy10.h5"
        if not path.exists():
            with h5py.File(path, "w") as file:
                file.create_dataset("images", data=images(), chunks=(3, 12, 4, 3), compression="gzip", shuffle=True)
                file["ans"] = np.arange(COUNT, dtype=np.uint8) % 3
                file["redshift"] = np.arange(COUNT) / 4
                file["names"] = [f"galaxy {i}" for i in range(COUNT)]
                file["other"] = np.arange(5)
        return open_source(path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}", image) for i, image in enumerate(images())]

    def change(self, folder: Path) -> bool:
        write_again(folder / "Galaxy10.h5")
        return True


@here
class TestImageFiles(SourceConformance):
    """Image files as uint8 of variable length, one of which is no image; with ragged fields and text labels."""

    def open(self, folder: Path) -> Source:
        path = folder / "set.hdf5"
        if not path.exists():
            with h5py.File(path, "w") as file:
                put_bytes(file, "train/image", [*jpegs(COUNT - 1), b"none"])
                file["train/label"] = [["cat", "dog"][i % 2] for i in range(COUNT)]
                ragged = file.create_dataset("train/points", (COUNT,), h5py.vlen_dtype(np.float32))
                for i in range(COUNT):
                    ragged[i] = np.arange(i, dtype=np.float32)
        return open_source(path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        with h5py.File(folder / "set.hdf5") as file:
            return [(f"{i:08d}", value.tobytes()) for i, value in enumerate(file["train/image"][()])]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set.hdf5")
        return True

    def test_workers_pack_what_one_process_packs(self, tmp_path: Path) -> None:
        """`TestPixels` has it."""


@here
@pytest.mark.parametrize("dtype", ["bool", ">u2", "float16", "complex64"])
def test_images_of_any_dtype_are_read(tmp_path: Path, dtype: str) -> None:
    """As h5py reads them, in this machine's byte order; with two axes too."""
    values = (np.arange(3 * 4 * 5).reshape(3, 4, 5) % 7).astype(dtype)
    source = open_source(written(tmp_path / "set.h5", x=values))
    for i in range(3):
        assert source[i].image.dtype == np.dtype(dtype).newbyteorder("=")  # type: ignore[union-attr]
        assert np.array_equal(source[i].image, values[i])


@here
@pytest.mark.parametrize(
    ("array", "message"),
    [
        ("image=none", "no such column: it has"),
        ("label=train/y", "names no image"),
        ("image=train/x,label=test/y", "does not have a row for each of the 4 images"),
        ("image=train/y", "cannot be images"),
    ],
)
def test_wrong_names_are_refused(tmp_path: Path, array: str, message: str) -> None:
    arrays = {"train__x": images(4), "train__y": np.arange(4), "test__x": images(3), "test__y": np.arange(3)}
    with pytest.raises(UsageError, match=message):
        open_source(written(tmp_path / "set.h5", **arrays), array=array)


@here
def test_files_of_robomimic_are_refused_by_name(tmp_path: Path) -> None:
    """What is to be typed packs one demonstration."""
    arrays = {
        f"data__demo_{k}__{name}": v
        for k in (0, 1)
        for name, v in (("actions", np.ones((4, 7))), ("obs__eye", images(4)))
    }
    path = written(tmp_path / "set.hdf5", **arrays)
    with pytest.raises(UsageError, match=r"robomimic, by its data/demo_0: .* --array (\S+) packs one") as refused:
        open_source(path)
    assert "what-is-not-read.md#hdf5" in str(refused.value)
    assert np.array_equal(open_source(path, array="image=data/demo_1/obs/eye")[2].image, images(4)[2])


@here
def test_what_no_field_can_hold_is_left_out_and_named(tmp_path: Path) -> None:
    """Compound types, references, and names that no field can have."""
    path = written(tmp_path / "set.h5", x=images(3), pair=np.zeros(3, [("a", "u1")]), vectors=np.ones((3, 2)))
    with h5py.File(path, "a") as file:
        file["a b"] = np.ones(3)
        file["refs"] = np.array([file["x"].ref] * 3, h5py.ref_dtype)
    info = open_source(path).info
    assert info.fields == {"vectors": FieldKind("float64", (2,))}
    assert info.counts["columns_left_out"] == 3
    assert [line.split("'")[1] for line in info.problems] == ["a b", "pair", "refs"]


@here
def test_rows_in_order_inflate_each_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between parts, and where a chunk is larger than a block."""
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((64, 256, 256, 3), np.uint8), chunks=(64, 64, 256, 3), compression=1)
    reads = []
    original = h5py.Dataset.__getitem__
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda self, at: reads.append(at) or original(self, at))  # type: ignore[func-returns-value]
    source = open_source(path)
    for start in range(0, 64, 8):
        part = source.part(start, start + 8)
        for i in range(8):
            assert part[i].image.shape == (256, 256, 3)  # type: ignore[union-attr]
    assert len(reads) == 2
    assert reads == [slice(0, 42), slice(42, 84)]


@here
@pytest.mark.skipif(os.name == "nt", reason="replaces a descriptor of the HDF5 library")
@pytest.mark.parametrize("values", ["pixels", "files"])
def test_a_read_that_fails_says_nothing_about_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    """What is read again is what is in the file; where reads keep failing, samples are unreadable, and not corrupt."""
    path, wanted = tmp_path / "set.h5", [*images(4)] if values == "pixels" else jpegs(4)
    with h5py.File(path, "w") as file:
        if values == "pixels":
            file["x"] = wanted
        else:
            put_bytes(file, "x", wanted)
    fails, nothing, opening = 0, os.open(os.devnull, os.O_WRONLY), hdf5_source.open_data_set

    def opened(file: h5py.File, name: str) -> h5py.Dataset:
        nonlocal fails
        data_set, fails = opening(file, name), fails - 1
        if fails >= 0:  # it loses its file's descriptor
            os.dup2(nothing, data_set.file.id.get_vfd_handle())
        return data_set

    monkeypatch.setattr(hdf5_source, "open_data_set", opened)
    part, fails = open_source(path).part(0, 4), 1
    for i in range(4):
        np.testing.assert_array_equal(part[i].image, wanted[i])
    part, fails = open_source(path).part(0, 4), 1000
    assert [reason_of(part, i) for i in range(4)] == ["unreadable"] * 4
    os.close(nothing)


def virtual(file: h5py.File, secret: str) -> None:
    layout = h5py.VirtualLayout((3, 12, 10, 3), np.uint8)
    layout[:] = h5py.VirtualSource(secret, "x", (3, 12, 10, 3))
    file.create_virtual_dataset("x", layout)


CHUNK = (1000, 1000, 1000, 3)


@here
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file, secret: file.update(x=h5py.ExternalLink(secret, "/x")), "link to another file"),
        (lambda file, secret: file.update({"a/b": h5py.ExternalLink(secret, "/"), "x": h5py.SoftLink("/a/b/x")}),
         "link to another file"),
        (virtual, "virtual data set"),
        (lambda file, secret: file.create_dataset("x", (3, 12, 10, 3), "u1", external=[(secret, 0, 3 * 360)]),
         "external file"),
        (lambda file, _: file.create_dataset("x", (1 << 40, 12, 10, 3), "u1", chunks=(1, 12, 10, 3)),
         "cannot be in a file of"),
        (lambda file, _: file.update(big=np.zeros(4 << 20, np.uint8)) or file.create_dataset(
            "x", (4, 1000, 1000, 3), "u1", chunks=CHUNK, maxshape=(None, 1000, 1000, 3)), "more than 1 GiB"),
        (lambda file, _: file.update(x=h5py.SoftLink("/y"), y=h5py.SoftLink("/x")), "without an end"),
    ],
)  # fmt: skip
def test_no_other_file_is_read(tmp_path: Path, make: Callable[[h5py.File, str], Any], message: str) -> None:
    """By name or by guess; and what declares more than it has is refused."""
    path, secret = tmp_path / "set.h5", written(tmp_path / "secret.h5", x=images(3))
    with h5py.File(path, "w") as file:
        make(file, str(secret))
    with pytest.raises(UsageError, match=message):
        open_source(path, array="image=x")
    with pytest.raises(UsageError, match="no column of images"):
        open_source(path)


@here
def test_links_within_the_file_are_followed(tmp_path: Path) -> None:
    """By name; a group that holds itself does not keep the search busy."""
    path = written(tmp_path / "set.h5", a__b__x=images(3))
    with h5py.File(path, "a") as file:
        file["soft"] = h5py.SoftLink("/a/b")
        file["a/back"] = file["/"]
        file["a/relative"] = h5py.SoftLink("b/x")
    for name in ("soft/x", "a/relative", "a/back/soft/x"):
        assert np.array_equal(open_source(path, array={"image": name})[2].image, images(3)[2])
    assert len(open_source(path)) == 3


@here
def test_a_damaged_chunk_rejects_its_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", data=images(6), chunks=(2, 12, 10, 3), compression="gzip", fletcher32=True)
        where = data.id.get_chunk_info(1).byte_offset
    with path.open("r+b") as raw:
        raw.seek(where + 20)
        raw.write(b"\xff" * 40)
    source = open_source(path)
    assert [reason_of(source, i) for i in range(6)] == ["", "", "corrupt", "corrupt", "", ""]
    assert all(np.array_equal(source[i].image, images(6)[i]) for i in (0, 1, 4, 5))
    with pytest.raises(DecodeError) as rejected:
        source[2]
    assert str(tmp_path) not in rejected.value.detail


@here
@pytest.mark.parametrize(("libver", "user_block"), [("earliest", 0), ("v110", 1024), ("latest", 0)])
def test_files_that_were_joined_are_refused(tmp_path: Path, libver: str, user_block: int) -> None:
    """h5py reads the first of two files that `cat` joined, and drops the second."""
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, userblock_size=user_block) as file:
        file["images"] = np.zeros((4, 6, 5, 3), np.uint8)
    data = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "joined.h5").write_bytes(data + data[user_block:])
    with pytest.raises(UsageError, match=r"joined\.h5: another HDF5 file follows its end"):
        open_source(tmp_path / "joined.h5")
    assert len(open_source(tmp_path / "a.h5")) == 4


def test_damaged_files_never_crash_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process looks at them, as users meet them: where the library kills it, this one says so."""
    path = written(tmp_path / "set.h5", x=images(3), y=np.arange(3))
    whole = path.read_bytes()
    for data in (b"text" * 1000, whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"set\.h5 cannot be read"):
            open_source(path)
    path.write_bytes(whole)

    def die(*_: Any) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr(hdf5_source, "data_sets", die)
    with pytest.raises(UsageError, match="crashes or hangs the HDF5 library"):
        open_source(path)
