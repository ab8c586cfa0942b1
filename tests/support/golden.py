"""The golden stores: small ones of every kind, kept in the repository, which every later version reads as ever.

    python tests/support/golden.py [NAME ...]

makes those of `STORES` that are named, or all that are missing, in `tests/formats/golden/VERSION`, and writes what they
must give into `expected.json` there. What a release has is never made again: a change of the format, or of what is
written by default, gets a folder of its own, by a new VERSION.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = "0.1.0"
GOLDEN = Path(__file__).parents[1] / "formats" / "golden" / VERSION
CLASSES = ["cat", "dög 犬"]
SHAPES = ((19, 13), (8, 20), (33, 7), (1, 1))
"""Heights and widths of images that differ in size: more rows than a band of zstd, odd ones, and a single pixel."""
FEW = ("gray", "wide", "colors")
"""Images that a store can do without in which each is a file."""
Sample = dict[str, Any]


# ---------------------------------------------------------------------------------------------- what is packed


def grown(shape: tuple[int, ...], number: int, dtype: Any = np.uint8) -> NDArray[Any]:
    """Smooth values with a few sharp steps: the same on every machine and with every version of numpy."""
    y, x, c = np.ogrid[: shape[0], : shape[1], : shape[2]]
    values = 9 * y + 7 * x * (c + 1) + 41 * number + 60 * c + 80 * (x // 5 % 2)
    if np.dtype(dtype).kind == "f":
        return (values / 16 - 9).astype(dtype)
    return (values * (1 if np.dtype(dtype).itemsize == 1 else 331) % np.iinfo(dtype).max).astype(dtype)


def plain(number: int, shape: tuple[int, int] = SHAPES[0]) -> Sample:
    """An image and a label, of which -1 is none."""
    return {"image": grown((*shape, 3), number), "label": number % 3 - 1, "key": f"{number:02}/naïve 文"}


def of_one_size() -> list[Sample]:
    return [plain(i) for i in range(3)]


def of_many_sizes() -> list[Sample]:
    return [plain(i, shape) for i, shape in enumerate(SHAPES)]


def every_field(keep: bool, without: Collection[str]) -> list[Sample]:
    """Samples with a field of each kind and of most dtypes."""
    samples = []
    for i in range(4):
        sample = plain(i, SHAPES[i] if keep else SHAPES[0])
        height, width = sample["image"].shape[:2]
        boxes = [[k, 0, width - k / 4, height, k % 2] for k in range(i)] if width > 4 else []
        points = [[x, y, k, 0] for k in range(len(boxes)) for x, y in ((k, 0), (width - 1, 1), (width / 2, height))]
        sample |= {
            "target": grown((9, 6 + i * keep, 3), i + 7),
            "gray": grown((5, 11, 1), i),
            "wide": grown((18, 3, 3), i, np.uint16),
            "colors": grown((height, width, 3), i) // 60,
            "depth": grown((height, width, 1), i, np.uint16),
            "heat": grown((6, 7, 2), i, np.float32),
            "mask": grown((height, width, 1), i) // 50,
            "attributes": np.array([i, -i, i * 1000], np.int16),
            "tags": np.arange(i % 3, dtype=np.uint8),
            "boxes": np.array(boxes, np.float32).reshape(-1, 5),
            "score": np.arange(len(boxes), dtype=np.float64) / 3,
            "polygons": np.array(points, np.float32).reshape(-1, 4),
            "keypoints": np.array([[[1, k / 2, 2], [3, 4, 1]] for k in range(len(boxes))], np.float32).reshape(
                -1, 2, 3
            ),
            "caption": ("", "a cat", "un «chat»\n\tnoir", "猫 \U0001f408")[i],
            "captions": [[], ["one"], ["", 'two "2"', "三"], ["é"] * 3][i],
            "large": i * (1 << 60),
            "half": np.float16(i / 3),
            "yes": i % 2 == 1,
            "pose": np.arange(6, dtype=np.float64).reshape(2, 3) / (i + 1),
        }
        samples.append({name: value for name, value in sample.items() if name not in without})
    return samples


def kinds(keep: bool, without: Collection[str]) -> dict[str, Any]:
    """What the fields of `every_field` are declared as."""
    from rawpack_packer.sources import FieldKind

    found: dict[str, Any] = dict.fromkeys(("mask", "colors"), "mask")
    found |= dict.fromkeys(("target", "gray", "wide", "depth", "heat"), "image")
    if keep:
        found |= {"target": FieldKind("uint8", (None, None, 3), "image")}
    found |= {
        "tags": "uint8[?]",
        "boxes": "xyxy",
        "score": FieldKind("float64", (None,), follows="rows"),
        "polygons": FieldKind("float32", (None, 4), follows="polygons"),
        "keypoints": FieldKind("float32", (None, 2, 3), follows="keypoints", mirror=(1, 0)),
        "captions": "str[?]",
        "pose": "array",
    }
    return {name: kind for name, kind in found.items() if name not in without}


class Interrupted:
    """Images for two parts; where `kills` is set, the one that reads the second is killed in the middle of it."""

    kills = False

    def __len__(self) -> int:
        return 70

    def __getitem__(self, number: int) -> Sample:
        if self.kills and number == 67:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"image": grown((5, 6, 3), number), "label": number % 2}


# ---------------------------------------------------------------------------------------------- how it is packed


def _split(samples: list[Sample]) -> tuple[list[Sample], list[str]]:
    """Samples without their keys, and the keys."""
    return [{name: value for name, value in one.items() if name != "key"} for one in samples], [
        one["key"] for one in samples
    ]


def _packed(samples: Callable[[], list[Sample]], **options: Any) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        import rawpack_packer

        data, keys = _split(samples())
        given: dict[str, Any] = {"classes": CLASSES, "workers": 0} | options
        if len({sample["image"].shape for sample in data}) > 1:
            given["image"] = ("uint8", (None, None, 3))
        rawpack_packer.pack(data, store, keys=keys, **given)

    return make


def _every(keep: bool, without: Collection[str] = (), **options: Any) -> Callable[[Path], None]:
    return lambda store: _packed(lambda: every_field(keep, without), fields=kinds(keep, without), **options)(store)


def _files(store: Path) -> None:
    """JPEG files as Pillow writes them: progressive, gray, with all chroma; they are kept byte for byte."""
    from pictures import encoded

    import rawpack_packer

    how: list[dict[str, Any]] = [{"progressive": True}, {"subsampling": 0}, {"quality": 40}, {}]
    pixels = [grown((*shape, 3), i) for i, shape in enumerate(SHAPES)]
    pixels[3] = np.ascontiguousarray(pixels[0][..., 0])
    images = [encoded(image, "JPEG", **options) for image, options in zip(pixels, how, strict=True)]
    rawpack_packer.pack(
        {"image": images, "label": [0, 1, 1, 0]}, store, format="lmdb", size="keep", quality="keep", workers=0
    )


def _arrays(store: Path) -> None:
    """Images that are no pictures, of any number of axes."""
    import rawpack_packer

    images = [grown((36, 4, 2), i, np.int16).reshape(18, 2, 4, 2) for i in range(3)]
    rawpack_packer.pack({"image": images}, store, compression="zstd", workers=0)


def _undisturbed(store: Path) -> None:
    """By a run that nobody kills."""
    import rawpack_packer

    rawpack_packer.pack(Interrupted(), store, shard_size="1", workers=0)


def _resumed(store: Path) -> None:
    """By a run that was killed in the middle of the second part, and another one."""
    child = os.fork()
    if not child:
        Interrupted.kills = True
        _undisturbed(store)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (store / "shard-00000.npy").is_file()
    assert not (store / "store.json").exists()
    _undisturbed(store)


def _appended(store: Path) -> None:
    """With a new class and a reject, by an append."""
    import rawpack_packer

    data, keys = _split(
        [plain(i) | {"label": ("cat", "dog")[i // 2]} for i in range(4)] + [plain(9) | {"label": "ant"}]
    )
    for i, sample in enumerate(data):
        sample["stars"] = i if i != 3 else 2.5
    rawpack_packer.pack(data[:2], store, keys=keys[:2], workers=0)
    rawpack_packer.append(data[2:], store, keys=keys[2:], workers=0, max_rejects=1)


def _relabeled(store: Path) -> None:
    """With labels and a field that came later."""
    import rawpack_packer

    _packed(of_one_size)(store)
    lines = [{"key": sample["key"], "label": "bird", "stars": i / 2} for i, sample in enumerate(of_one_size())]
    table = store.with_name(f"{store.name}.jsonl")
    table.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    rawpack_packer.relabel(store, table, fields={"stars": "float32"})
    table.unlink()


def _splits(store: Path) -> None:
    import rawpack_packer

    data, keys = _split([plain(i) | {"label": i % 2} for i in range(6)])
    rawpack_packer.pack_splits(data, store, keys=keys, holdout={"val": 0.34}, seed=5, classes=CLASSES, workers=0)


def _video(store: Path) -> None:
    """Frames of a video."""
    from videos import encode

    import rawpack_packer

    encode(store.with_name("clips") / "walk.mp4", "mpeg4", 4)
    rawpack_packer.pack(store.with_name("clips"), store, format="lmdb", size="keep", workers=0)
    shutil.rmtree(store.with_name("clips"))


STORES: Mapping[str, Callable[[Path], None]] = {
    "memmap": _packed(of_one_size),
    "memmap-keep": _packed(of_many_sizes),
    "memmap-fields": _every(keep=False, without=FEW),
    "memmap-fields-keep": _every(keep=True, compression="zstd"),
    "memmap-planes": _packed(of_one_size, color="ycgco420"),
    "memmap-zstd": _packed(of_one_size, compression="zstd"),
    "memmap-planes-zstd-keep": _packed(of_many_sizes, color="ycgco420", compression="zstd"),
    "memmap-arrays": _arrays,
    "hdf5": _packed(of_one_size, format="hdf5"),
    "hdf5-keep": _packed(of_many_sizes, format="hdf5"),
    "hdf5-gzip": _packed(of_one_size, format="hdf5", compression="gzip", chunk=2),
    "hdf5-fields-gzip-keep": _every(keep=True, format="hdf5", compression="gzip"),
    "hdf5-planes-gzip-keep": _packed(of_many_sizes, format="hdf5", color="ycgco420", compression="gzip"),
    "lmdb": _packed(of_one_size, format="lmdb"),
    "lmdb-standard": _packed(of_one_size, format="lmdb", jpeg_tables="standard"),
    "lmdb-fields-keep": _every(keep=True, without=["heat"], format="lmdb"),
    "lmdb-files": _files,
    "resumed": _resumed,
    "appended": _appended,
    "relabeled": _relabeled,
    "splits": _splits,
    "video": _video,
}
"""The name of each golden store, or set of splits -> what makes it."""
LOSSLESS: Mapping[str, Callable[[], list[Sample]]] = {
    **dict.fromkeys(("memmap", "memmap-zstd", "hdf5", "hdf5-gzip"), of_one_size),
    **dict.fromkeys(("memmap-keep", "hdf5-keep"), of_many_sizes),
    "memmap-fields": lambda: every_field(False, FEW),
    **dict.fromkeys(("memmap-fields-keep", "hdf5-fields-gzip-keep"), lambda: every_field(True, [])),
}
"""Stores that hold exactly what was packed -> what that was."""
AGAIN: Mapping[str, Callable[[Path], None]] = {
    name: make for name, make in STORES.items() if name != "video"
} | {"resumed": _undisturbed}  # fmt: skip
"""Those whose bytes packing today must make again. What FFmpeg makes of a video depends on the processor as well."""


# ---------------------------------------------------------------------------------------------- what they give


def sum_of(value: Any, dtype: str) -> str:
    """The SHA-256 of one value of a field: its shape as JSON, a line feed, and its bytes, little-endian, in C order;
    of a text UTF-8; of several texts, their JSON without blanks."""
    if isinstance(value, str):
        shape, data = (), value.encode("utf-8")
    elif isinstance(value, list):
        shape, data = (len(value),), json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    else:
        array = np.asarray(value, np.dtype(dtype).newbyteorder("<"))
        shape, data = array.shape, array.tobytes()
    return hashlib.sha256(json.dumps(shape, separators=(",", ":")).encode() + b"\n" + data).hexdigest()


def sums_of(store: Path) -> dict[str, list[str]]:
    """What `rawpack.Reader` reads: field -> the sum of each sample's value. JPEG files also as they are stored, as
    `FIELD.file`."""
    from rawpack import Reader, look

    reader = Reader(store, verify=True)
    about = json.loads((store / "store.json").read_text("utf-8"))["fields"]
    found: dict[str, list[str]] = {}
    for i in range(len(reader)):
        sample = reader[i]
        for name, field in about.items():
            found.setdefault(name, []).append(sum_of(sample[name], field["dtype"]))
        for name, place in look(reader).where_is(i).items():
            if about[name]["encoding"] == "jpeg":
                data = place.file.read_bytes()[place.offset : place.offset + place.bytes]
                found.setdefault(f"{name}.file", []).append(hashlib.sha256(data).hexdigest())
    return found


def in_one(sums: Mapping[str, list[str]]) -> dict[str, str]:
    """One sum for each field: the SHA-256 over those of its samples, as bytes."""
    return {name: hashlib.sha256(bytes.fromhex("".join(each))).hexdigest() for name, each in sorted(sums.items())}


def stores_in(folder: Path) -> dict[str, Path]:
    """Every store below a folder, those of splits as `splits/train`."""
    return {path.parent.relative_to(folder).as_posix(): path.parent for path in sorted(folder.rglob("store.json"))}


def digest_of(store: Path) -> str:
    return str(json.loads((store / "store.json").read_bytes())["checksum"])


def versions() -> dict[str, str]:
    """What decides bytes, besides the libraries that each manifest names."""
    return {
        "machine": f"{sys.platform} {platform.machine()}",
        "page": str(os.sysconf("SC_PAGE_SIZE")),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def main(*names: str) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in names or [name for name in STORES if not (GOLDEN / name).exists()]:
        with TemporaryDirectory(prefix="golden-") as folder:
            STORES[name](Path(folder) / name)
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
            shutil.copytree(Path(folder) / name, GOLDEN / name)
        print(name)
    expected = {
        "made_with": versions() | {"python": platform.python_version(), "numpy": np.__version__},
        "stores": {
            name: {"digest": digest_of(store), "sums": in_one(sums_of(store))}
            for name, store in stores_in(GOLDEN).items()
        },
    }
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    platform.node = lambda: "golden"
    main(*sys.argv[1:])
