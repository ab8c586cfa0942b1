"""What rawpack does not read, it answers with lines of Python: typed as they stand, they pack it.

Libraries that are not installed here are stood in for by a few lines each, which read the very files.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from pictures import picture
from PIL import Image
from running import environment, run_here
from tfrecords import tfrecord

import rawpack_packer
from rawpack import Reader

COUNT = 6


def jpeg(seed: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(24, 32, seed)).save(file, "JPEG", **options)
    return file.getvalue()


def lines_for(path: Path, *options: str) -> str:
    """The lines of Python that `rawpack pack` answers with; nothing is written, and there is no other output."""
    ran = run_here("pack", *options, path, "other/")
    assert (ran.code, ran.out, Path("other").exists()) == (2, "", False), ran
    seen, code = ran.err.split(" These lines of Python pack it:\n\n")
    assert seen.count("\n") == 0
    assert str(path) in seen
    return re.sub("^    ", "", code, flags=re.MULTILINE)


def typed(path: Path) -> Reader:
    """The store that these lines make."""
    exec(compile(lines_for(path), "<typed>", "exec"), {"__name__": "__main__"})
    return Reader("store/")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test is in a folder of its own, as `store/` is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------ an image in each file


def write_npy(path: Path, image: np.ndarray[Any, Any]) -> None:
    np.save(path, image)


def write_npz(path: Path, image: np.ndarray[Any, Any]) -> None:
    np.savez(path, pixels=image, other=np.arange(3))


def write_pickle(path: Path, image: np.ndarray[Any, Any]) -> None:
    path.write_bytes(pickle.dumps(image))


def write_hdf5(path: Path, image: np.ndarray[Any, Any]) -> None:
    with h5py.File(path, "w") as file:
        file["depth"], file["intrinsics"] = image, np.arange(4.0)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [(".npy", write_npy), (".npz", write_npz), (".pkl", write_pickle), (".h5", write_hdf5)],
    ids=lambda one: str(one)[:4],
)
@pytest.mark.parametrize("classes", [True, False], ids=["classes", "flat"])
def test_an_array_in_each_file(suffix: str, write: Callable[..., None], classes: bool) -> None:
    """With the folders as classes, if there are any."""
    for n in range(COUNT):
        path = Path("data") / (("cat", "dog")[n % 2] if classes else "") / f"{n:03}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, picture(24, 32, n))
    reader = typed(Path("data"))
    assert len(reader) == COUNT
    for i in range(COUNT):
        path = Path(reader[i]["key"])
        assert path.exists()
        np.testing.assert_array_equal(reader[i]["image"], picture(24, 32, int(path.stem)))
        if classes:
            assert reader.classes[reader[i]["label"]] == path.parent.name  # type: ignore[index]


def test_the_lines_are_a_script(here: Path) -> None:
    """Saved as a file and run, with all workers."""
    Path("data/cat").mkdir(parents=True)
    for n in range(COUNT):
        np.save(f"data/cat/{n}.npy", picture(24, 32, n))
    Path("typed.py").write_text(lines_for(here / "data"))
    subprocess.run([sys.executable, "typed.py"], check=True, env=environment(), capture_output=True)
    assert len(Reader("store/")) == COUNT


# ------------------------------------------------------------------------------------------ pickles


@pytest.mark.parametrize(
    "value",
    [
        {"data": np.stack([picture(8, 8, n) for n in range(COUNT)]), "labels": [n % 3 for n in range(COUNT)]},
        (np.stack([picture(8, 8, n) for n in range(COUNT)]), np.arange(COUNT) % 3),
        [(picture(8, 8, n), n % 3) for n in range(COUNT)],
        [{"y": n % 3, "img": picture(8, 8, n)} for n in range(COUNT)],
    ],
    ids=["columns", "tuple", "samples", "dicts"],
)
def test_a_pickle_of_all(value: Any) -> None:
    """Whichever form the data have in it, image and label are found without running it."""
    Path("set.pkl").write_bytes(pickle.dumps(value))
    reader = typed(Path("set.pkl"))
    for n in range(COUNT):
        np.testing.assert_array_equal(reader[n]["image"], picture(8, 8, n))
        assert reader[n]["label"] == n % 3


# ------------------------------------------------------------------------------------------ LMDB


def write_lmdb(values: dict[bytes, bytes]) -> Path:
    with lmdb.open("set.lmdb", map_size=1 << 26) as database, database.begin(write=True) as write:
        for key, value in values.items():
            write.put(key, value)
    return Path("set.lmdb")


@pytest.mark.parametrize(
    "sample",
    [
        lambda n: {"img": jpeg(n), "target": n % 3},
        lambda n: (n % 3, picture(24, 32, n)),
        lambda n: {"image": picture(24, 32, n), "label": n % 3},
    ],
    ids=["dict", "tuple", "arrays"],
)
def test_an_lmdb_of_pickles(sample: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of dicts and tuples, with image and label wherever they are."""
    found = {f"{n:03}".encode(): pickle.dumps(sample(n)) for n in range(COUNT)}
    reader = typed(write_lmdb({**found, b"__len__": pickle.dumps(COUNT)}))
    for n in range(COUNT):
        assert (reader[n]["key"], reader[n]["label"]) == (f"{n:03}", n % 3)
        if isinstance(sample(n), tuple):
            np.testing.assert_array_equal(reader[n]["image"], picture(24, 32, n))


def test_an_lmdb_of_pixels() -> None:
    """Bytes that may be a square image in color are made one."""
    reader = typed(write_lmdb({f"{n}".encode(): picture(16, 16, n).tobytes() for n in range(COUNT)}))
    np.testing.assert_array_equal(reader[3]["image"], picture(16, 16, 3))


def test_an_lmdb_of_images_with_numbers_beside_them() -> None:
    """Boxes as the bytes of an array, of a length that differs."""
    boxes = [np.arange(5.0 * n) / 7 for n in range(1, COUNT + 1)]
    values = {f"{n}.jpg".encode(): jpeg(n) for n in range(COUNT)}
    reader = typed(write_lmdb(values | {f"{n}.txt".encode(): boxes[n].tobytes() for n in range(COUNT)}))
    assert [reader[n]["key"] for n in range(COUNT)] == [f"{n}.jpg" for n in range(COUNT)]
    for n in range(COUNT):
        np.testing.assert_array_equal(reader[n]["txt"], boxes[n])


# ------------------------------------------------------------------------------------------ HDF5, and MATLAB


@pytest.mark.parametrize("above", ["", "data/"])
def test_hdf5_with_a_group_for_each_sample(above: str) -> None:
    """Each with an image, a label and more."""
    with h5py.File("set.h5", "w") as file:
        for n in range(COUNT):
            file[f"{above}{n}/rgb"], file[f"{above}{n}/label"] = picture(24, 32, n), n % 3
            file[f"{above}{n}/camera"] = np.arange(3.0)
    reader = typed(Path("set.h5"))
    for n in range(COUNT):
        assert (reader[n]["key"], reader[n]["label"]) == (str(n), n % 3)
        np.testing.assert_array_equal(reader[n]["image"], picture(24, 32, n))


def test_matlab_since_7_3() -> None:
    """It is HDF5 with all axes in reverse order."""
    pixels = np.stack([picture(24, 32, n) for n in range(COUNT)])
    with h5py.File("set.mat", "w", userblock_size=512) as file:
        file["images"], file["labels"] = pixels.transpose(0, 3, 2, 1), np.arange(COUNT, dtype=np.float64)[None] % 3
    with Path("set.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file")
    reader = typed(Path("set.mat"))
    for n in range(COUNT):
        np.testing.assert_array_equal(reader[n]["image"], pixels[n])
        assert reader[n]["label"] == n % 3


def test_matlab_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy says what is in it."""
    pixels = np.stack([picture(24, 32, n) for n in range(COUNT)])
    arrays = {"pixels": np.moveaxis(pixels, 0, -1), "class": np.arange(COUNT).reshape(-1, 1) % 3, "__header__": b""}
    stand_in = ModuleType("scipy.io")
    stand_in.loadmat = lambda path: arrays  # type: ignore[attr-defined]
    stand_in.whosmat = lambda path: [("class", (COUNT, 1), "double"), ("pixels", arrays["pixels"].shape, "uint8")]  # type: ignore[attr-defined, union-attr]
    monkeypatch.setitem(sys.modules, "scipy", ModuleType("scipy"))
    monkeypatch.setitem(sys.modules, "scipy.io", stand_in)
    Path("set.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(200))
    reader = typed(Path("set.mat"))
    np.testing.assert_array_equal(reader[4]["image"], pixels[4])
    assert reader[4]["label"] == 1


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "cifar-10-batches-bin", "cifar-100-python"])
def test_cifar_is_packed_by_the_dataset_of_torchvision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder, also one split of it, which lies there or not."""

    class Cifar:
        def __init__(self, root: str, *, train: bool, download: bool) -> None:
            assert (Path(root) / name).is_dir()
            assert (train, download) == (True, True)

        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, i: int) -> tuple[Image.Image, int]:
            return Image.fromarray(picture(32, 32, i)), i % 3

    stand_in = ModuleType("torchvision.datasets")
    stand_in.CIFAR10 = stand_in.CIFAR100 = Cifar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", stand_in)
    Path(name).mkdir()
    (Path(name) / "data_batch_1").write_bytes(pickle.dumps({b"data": picture(32, 32, 0)}))
    reader = typed(Path(name))
    np.testing.assert_array_equal(reader[4]["image"], picture(32, 32, 4))
    assert reader[4]["label"] == 1
    assert name in run_here("pack", f"{name}/test", "other/").err


# ------------------------------------------------------------------------------------------ other loaders


@pytest.mark.parametrize("names", [["a.tfrecord"], ["set/a.tfrecord-00000-of-00002", "set/a.tfrecord-00001-of-00002"]])
def test_records_of_tensorflow_are_packed(names: list[str]) -> None:
    """A file, and a folder of shards: they need no lines of Python."""
    Path("set").mkdir()
    for k, name in enumerate(names):
        rows = [{"image/encoded": jpeg(n), "image/class/label": n % 3} for n in range(k, COUNT, len(names))]
        Path(name).write_bytes(tfrecord(rows))
    rawpack_packer.pack(Path(names[0]).parent if len(names) > 1 else names[0], "store", size="keep", workers=0)
    reader = Reader("store")
    assert sorted(reader[n]["label"] for n in range(COUNT)) == sorted(n % 3 for n in range(COUNT))


def test_a_file_of_ffcv() -> None:
    """By its header: JPEG files, raw pixels, and numbers."""
    images = [jpeg(n) if n % 2 else picture(24, 32, n).tobytes() for n in range(COUNT)]
    row = np.dtype([("", [("", "?"), ("", "<u2"), ("", "<u2"), ("", "<u8")]), ("", "<i8"), ("", "<f8")], align=True)
    head = b"".join(
        bytes([kind]) + name.ljust(16, b"\0") + bytes(1024) for kind, name in ((2, b"img"), (1, b"label"), (0, b"x"))
    )
    at = 24 + len(head) + COUNT * row.itemsize
    starts = [at + sum(map(len, images[:n])) for n in range(COUNT)]
    rows = np.array([((n % 2 == 0, 32, 24, starts[n]), n % 3, n / 4) for n in range(COUNT)], row)
    table = np.array([(n, starts[n], len(images[n])) for n in range(COUNT)], "<u8")
    header = struct.pack("<HHIQQ", 2, 3, 1 << 21, COUNT, at + sum(map(len, images)))
    Path("set.beton").write_bytes(b"".join([header, head, rows.tobytes(), *images, table.tobytes()]))
    exec(
        compile(lines_for(Path("set.beton")).replace("'store/'", "'store/', size='keep'"), "<typed>", "exec"),
        {"__name__": "__main__"},
    )
    reader = Reader("store/")
    for n in range(COUNT):
        wanted = np.asarray(Image.open(io.BytesIO(images[n]))) if n % 2 else picture(24, 32, n)
        np.testing.assert_array_equal(reader[n]["image"], wanted)
        assert (reader[n]["label"], reader[n]["x"]) == (n % 3, n / 4)


# ------------------------------------------------------------------------------------------ how it is told


@pytest.mark.parametrize("option", ["--json", "--dry-run"])
def test_errors_stay_apart_from_output(option: str) -> None:
    """With --json too, the answer is on stderr, and stdout has nothing that would be no JSON."""
    Path("set.pkl").write_bytes(pickle.dumps([1]))
    assert "import pathlib, pickle, rawpack" in lines_for(Path("set.pkl"), option)


def test_inspect_shows_the_lines_in_json() -> None:
    """`rawpack inspect --json` of what cannot be packed is JSON, with the lines as its `problem`."""
    with h5py.File("set.h5", "w") as file:
        for n in range(2):
            file[f"{n}/rgb"], file[f"{n}/label"] = picture(24, 32, n), n
    ran = run_here("inspect", "--json", "set.h5")
    assert (ran.code, ran.err) == (0, "")
    assert "\n    data = h5py.File(" in json.loads(ran.out)["problem"]


def test_names_of_strangers_do_nothing(here: Path) -> None:
    """A path or a name is a text in the lines, whatever it holds."""
    evil = "a');import os;os.mkdir('ran')#"
    folder = here / f"{evil}\x1b[31m"
    folder.mkdir()
    np.savez(folder / "1.npz", **{evil: picture(8, 8, 1)})
    np.savez(folder / "2.npz", **{evil: picture(8, 8, 2)})
    ran = run_here("pack", folder, "other/")
    assert "\x1b" not in ran.err
    code = re.sub("^    ", "", ran.err.split("pack it:\n\n")[1], flags=re.MULTILINE)
    exec(compile(code, "<typed>", "exec"), {"__name__": "__main__"})
    assert not Path("ran").exists()
    np.testing.assert_array_equal(Reader("store/")[1]["image"], picture(8, 8, 2))
