"""What the benchmark reads: folders of JPEG files, and the stores packed from them. Made once, found again later."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract import Pixels, Settings

_MAKE_PHOTOS = Path(__file__).resolve().parent.parent / "make_photos.py"
_MADE_PHOTOS = 400
FORMS = ("memmap", "hdf5", "lmdb")
GZIP, PLANES, JPEG_95, STANDARD = "gzip.hdf5", "planes.memmap", "q95.lmdb", "standard.lmdb"
ZSTD, ZSTD_PLANES, PAIRS = "zstd.memmap", "zstd-planes.memmap", "pairs.memmap"
_PACKED_AS = {
    GZIP: ["--format", "hdf5", "--compression", "gzip"],
    PLANES: ["--format", "memmap", "--color", "ycgco420"],
    JPEG_95: ["--format", "lmdb", "--quality", "95"],
    STANDARD: ["--format", "lmdb", "--jpeg-tables", "standard"],
    ZSTD: ["--format", "memmap", "--compression", "zstd"],
    ZSTD_PLANES: ["--format", "memmap", "--compression", "zstd", "--color", "ycgco420"],
    PAIRS: ["--format", "memmap", "--images", "other={images}-other"],
}
"""Stores that are packed with more options than a format -> these."""


def once(path: Path, make: Callable[[Path], object]) -> Path:
    """Have a file or folder made, unless it is there: under another name until it is whole."""
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        partial.rename(path)
    return path


def photos(work: Path, data: Path | None, images: int) -> Path:
    """A folder of `images` JPEG files: links to those below `data`, or to made ones, each as often as it takes."""
    made = data is None
    if data is None:
        data = once(work / "photos", lambda folder: make_photos(folder, min(images, _MADE_PHOTOS)))
    files = sorted(path for path in data.resolve().rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    files = [path for path in files if _is_plain(path)]
    if not files:
        raise SystemExit(f"{data} contains no JPEG files")

    def link(folder: Path) -> None:
        for number, path in zip(range(images), itertools.cycle(files), strict=False):
            one = folder / path.parent.name / f"{number:06d}.jpg"
            one.parent.mkdir(parents=True, exist_ok=True)
            one.symlink_to(path)

    return once(work / f"images-{'made' if made else _tag(data)}-{images}", link)


def copies(work: Path, folder: Path) -> Path:
    """The same files as in `folder`, none of them a link: each lies on the disk by itself."""
    return once(work / f"copied-{folder.name}", lambda partial: shutil.copytree(folder, partial))


def image_files(folder: str | Path) -> list[Path]:
    """The JPEG files below a folder of the benchmark's."""
    return sorted(Path(folder).rglob("*.jpg"))


PACKED = ("folder", "tar", "zip")


def packed_path(settings: Settings, kind: str) -> Path:
    """The folder of images itself, or an archive of it: one of `PACKED`."""
    folder = Path(settings.images)
    return folder if kind == "folder" else settings.folder / f"{folder.name}.{kind}"


def make_packed(settings: Settings, kind: str) -> None:
    """Write that archive, unless it is there. Nothing in it is compressed."""

    def archive(path: Path) -> None:
        if kind == "tar":
            with tarfile.open(path, "w") as tar:
                tar.add(settings.images, arcname="")
        else:
            with zipfile.ZipFile(path, "w") as zipped:
                for file in image_files(settings.images):
                    zipped.write(file, file.relative_to(settings.images))

    once(packed_path(settings, kind), archive)


def packed_files(settings: Settings, kind: str) -> list[Path]:
    """What is read to pack that folder or archive."""
    return image_files(settings.images) if kind == "folder" else [packed_path(settings, kind)]


def small_images(work: Path, images: int, side: int = 28) -> Path:
    """A folder of small gray PNG files in ten classes."""
    import cv2

    def draw(folder: Path) -> None:
        random = np.random.default_rng(0)
        for number in range(images):
            path = folder / str(number % 10) / f"{number:06d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), random.integers(0, 255, (side, side), np.uint8))

    return once(work / f"small-{images}", draw)


def tiny_images(work: Path, images: int) -> Path:
    """A folder of JPEG files of a few hundred bytes, each a file of its own, in up to a thousand classes."""
    import cv2

    def draw(folder: Path) -> None:
        random, classes = np.random.default_rng(0), min(1000, images // 20)
        contents = [cv2.imencode(".jpg", random.integers(0, 255, (8, 8), np.uint8))[1].tobytes() for _ in range(500)]
        for number in range(classes):
            (folder / f"class{number:04d}").mkdir(parents=True, exist_ok=True)
        for number in range(images):
            path = folder / f"class{number % classes:04d}" / f"img_{number:08d}.jpg"
            path.write_bytes(contents[number % len(contents)])

    return once(work / f"tiny-{images}", draw)


def make_photos(folder: Path, images: int) -> None:
    """Photo-like JPEG files in several classes."""
    subprocess.run([sys.executable, _MAKE_PHOTOS, folder, "--images", str(images)], check=True, stdout=sys.stderr)


def store_path(settings: Settings, form: str) -> Path:
    """Where the rawpack store of the settings' images in format `form`, or of one of `_PACKED_AS`, lies."""
    return settings.folder / f"{Path(settings.images).name}-{settings.size}.{form}"


def make_store(settings: Settings, form: str) -> None:
    """Pack that store; one that is complete already is left as it is."""
    if form == PAIRS:
        once(Path(f"{settings.images}-other"), lambda folder: shutil.copytree(settings.images, folder, symlinks=True))
    command = [sys.executable, "-m", "rawpack", "pack", "--quiet", "--size", settings.size]
    command += [option.format(images=settings.images) for option in _PACKED_AS.get(form, ["--format", form])]
    if settings.shape[2] == 1:
        command += ["--color", "gray"]
    subprocess.run([*command, settings.images, store_path(settings, form)], check=True)


def shards(settings: Settings) -> list[Pixels]:
    """The images of the memmap store as numpy alone opens them: (n, H, W, C), mapped."""
    return [np.load(path, mmap_mode="r") for path in sorted(store_path(settings, "memmap").glob("shard-*.npy"))]


def array_path(settings: Settings) -> Path:
    """Where the images of the memmap store lie as one `.npy` file (n, H, W, C)."""
    return settings.folder / f"{Path(settings.images).name}-{settings.size}.npy"


def make_array(settings: Settings) -> None:
    """Write that file, unless it is there."""

    def write(path: Path) -> None:
        make_store(settings, "memmap")
        parts = shards(settings)
        shape = (sum(map(len, parts)), *settings.shape)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for part in parts:
                file.write(part.data)

    once(array_path(settings), write)


def zeros_path(settings: Settings, form: str) -> Path:
    """Where the store of so many black images lies."""
    return settings.folder / f"zeros-{settings.samples}-{settings.size}.{form}"


def make_zeros(settings: Settings, form: str) -> None:
    """Make a store of at least `settings.samples` black images: one shard packed, and all others like it.

    Raw shards are sparse, those of lmdb one file with many names, so that a hundred million samples take little disk.
    Every checksum fits. Keys are empty.
    """
    once(zeros_path(settings, form), lambda partial: _write_zeros(settings, form, partial))


def _write_zeros(settings: Settings, form: str, partial: Path) -> None:
    import msgspec

    from rawpack.disk import manifest as manifests
    from rawpack_packer.destination import files

    base = _pack_black(settings, form)
    manifest = manifests.load(base)[0]
    (shard,) = manifest.shards
    (packed,) = shard.files
    copies = -(-settings.samples // shard.rows)
    partial.mkdir()
    shards, pieces = [], [] if form == "lmdb" else _pieces(base / packed.name)
    for number in range(copies):
        name = packed.name.replace("00000", f"{number:05d}")
        if form == "lmdb":
            os.link(base / packed.name, partial / name)
        else:
            _write_sparsely(partial / name, packed.bytes, pieces)
        record = msgspec.structs.replace(packed, name=name)
        shards.append(msgspec.structs.replace(shard, files=(record,)))
    (columns,) = manifest.columns
    (partial / columns.folder).mkdir()
    records = []
    for record in columns.files:
        column = np.load(base / columns.folder / record.name)
        rows, times = copies * shard.rows, copies
        if record.name == "key.npy":
            rows, times = 0, 0
        elif record.name == "key.offset.npy":
            rows, column = rows + 1, np.zeros_like(column)
        _tile(partial / columns.folder / record.name, column, rows, times)
        records.append(files.record(partial / columns.folder / record.name, record.name))
    shutil.copy(base / manifest.rejects.file.name, partial)
    rows = copies * shard.rows
    whole = msgspec.structs.replace(
        manifest,
        samples=rows,
        shards=tuple(shards),
        columns=(msgspec.structs.replace(columns, rows=rows, files=tuple(records)),),
    )
    (partial / manifests.NAME).write_bytes(manifests.dump(whole))


def _pack_black(settings: Settings, form: str) -> Path:
    """A store of one shard, as large as shards get."""
    import cv2

    rows = min(65_536, settings.samples)

    def draw(folder: Path) -> None:
        (folder / "0").mkdir(parents=True)
        cv2.imwrite(str(folder / "0" / f"{0:06d}.png"), np.zeros(settings.shape, np.uint8))
        for number in range(1, rows):
            (folder / "0" / f"{number:06d}.png").symlink_to(f"{0:06d}.png")

    at_base = replace(settings, images=str(once(settings.folder / f"black-{rows}", draw)))
    make_store(at_base, form)
    return store_path(at_base, form)


def _pieces(source: Path, page: int = 4096) -> list[tuple[int, bytes]]:
    """The pages of a file that are not all zeros, with their offsets."""
    data = source.read_bytes()
    pages = ((start, data[start : start + page]) for start in range(0, len(data), page))
    return [(start, piece) for start, piece in pages if any(piece)]


def _write_sparsely(path: Path, size: int, pieces: list[tuple[int, bytes]]) -> None:
    """A file with these pieces, which takes no disk between them."""
    with path.open("wb") as file:
        for start, piece in pieces:
            file.seek(start)
            file.write(piece)
        file.truncate(size)


def _tile(path: Path, column: NDArray[Any], rows: int, times: int) -> None:
    """An `.npy` file with the column again and again, sparse where it is zero."""
    from rawpack.disk import npy

    head = npy.header(column.dtype, (rows, *column.shape[1:]))
    with path.open("wb") as file:
        file.write(head)
        if column.any():
            for _ in range(times):
                file.write(column.data)
        file.truncate(len(head) + rows * column[:1].nbytes)


def flat_array(settings: Settings) -> Pixels:
    """The images of that file, mapped: (n, H * W * C)."""
    images = np.load(array_path(settings), mmap_mode="r")
    return np.asarray(images).reshape(len(images), -1)


def shard_files(store: Path) -> list[Path]:
    return sorted(store.glob("shard-*"))


def drop(files: list[Path]) -> None:
    """Have these files, and no others, out of the page cache. Where that fails, as root, everything."""
    from rawpack_packer.tune import system

    if not files:
        raise SystemExit("there is nothing to read from the disk")
    if system.drop(files):
        return
    everything = Path("/proc/sys/vm/drop_caches")
    try:
        everything.write_text("1")
    except OSError as error:
        raise SystemExit(
            f"the page cache keeps {files[0].parent}, and {everything} cannot be written: {error}"
        ) from None
    if not system.drop(files):
        raise SystemExit(f"the page cache keeps {files[0].parent}: does it lie on a disk?")


def jpegs(settings: Settings, form: str = "lmdb") -> list[bytes]:
    """The JPEG files in an lmdb store, as liblmdb alone gives them."""
    import lmdb

    found: list[bytes] = []
    for path in sorted(store_path(settings, form).glob("shard-*.lmdb")):
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment, environment.begin() as txn:
            found += [bytes(value) for _, value in txn.cursor()]
    return found


def chunks(settings: Settings, most: int) -> list[bytes]:
    """The first chunks of the compressed hdf5 store, as h5py alone gives them."""
    import h5py

    found: list[bytes] = []
    for path in sorted(store_path(settings, GZIP).glob("shard-*.h5")):
        with h5py.File(path) as file:
            images = file["image"].id
            for row in range(min(images.get_num_chunks(), most - len(found))):
                place = images.get_chunk_info(row)
                found.append(images.read_direct_chunk(place.chunk_offset)[1])
    return found


def _is_plain(path: Path) -> bool:
    """Whether the bare loops, which call simplejpeg alone, can decode it."""
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg_header(path.read_bytes())[2] in ("YCbCr", "Gray")
    except ValueError:
        return False


def _tag(folder: Path) -> str:
    return f"{zlib.crc32(str(folder.resolve()).encode('utf-8', 'surrogateescape')):08x}"
