"""What the benchmark reads: folders of JPEG files, and the stores packed from them. Made once, found again later."""

from __future__ import annotations

import itertools
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np

from contract import Pixels, Settings

_MAKE_PHOTOS = Path(__file__).resolve().parent.parent / "make_photos.py"
_MADE_PHOTOS = 400


def photos(work: Path, data: Path | None, images: int) -> Path:
    """A folder of `images` JPEG files: links to those below `data`, or to made ones, each as often as it takes."""
    made = data is None
    if data is None:
        data = work / "photos"
        if not data.is_dir():
            make_photos(data, min(images, _MADE_PHOTOS))
    files = sorted(path for path in data.resolve().rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    files = [path for path in files if _is_plain(path)]
    if not files:
        raise SystemExit(f"{data} holds no JPEG files")
    folder = work / f"images-{'made' if made else _tag(data)}-{images}"
    if not folder.is_dir():
        partial = folder.with_name(folder.name + ".partial")
        for number, path in zip(range(images), itertools.cycle(files), strict=False):
            link = partial / path.parent.name / f"{number:06d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(path)
        partial.rename(folder)
    return folder


def small_images(work: Path, images: int, side: int = 28) -> Path:
    """A folder of small grey PNG files in ten classes."""
    import cv2

    folder = work / f"small-{images}"
    if not folder.is_dir():
        partial = folder.with_name(folder.name + ".partial")
        random = np.random.default_rng(0)
        for number in range(images):
            path = partial / str(number % 10) / f"{number:06d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), random.integers(0, 255, (side, side), np.uint8))
        partial.rename(folder)
    return folder


def make_photos(folder: Path, images: int) -> None:
    """Photo-like JPEG files in several classes."""
    subprocess.run([sys.executable, _MAKE_PHOTOS, folder, "--images", str(images)], check=True, stdout=sys.stderr)


def store_path(settings: Settings, form: str) -> Path:
    """Where the rawpack store of the settings' images in format `form` lies."""
    return settings.folder / f"{Path(settings.images).name}-{settings.size}.{form}"


def make_store(settings: Settings, form: str) -> None:
    """Pack that store; one that is complete already is left as it is."""
    command = [sys.executable, "-m", "rawpack_packer", "pack", "--quiet", "--format", form, "--size", settings.size]
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
    path = array_path(settings)
    if path.exists():
        return
    make_store(settings, "memmap")
    parts = shards(settings)
    partial = path.with_suffix(".partial")
    shape = (sum(map(len, parts)), *settings.shape)
    with partial.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for part in parts:
            file.write(part.data)
    partial.rename(path)


def jpegs(settings: Settings) -> list[bytes]:
    """The JPEG files in the lmdb store, as liblmdb alone gives them."""
    import lmdb

    found: list[bytes] = []
    for path in sorted(store_path(settings, "lmdb").glob("shard-*.lmdb")):
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment, environment.begin() as txn:
            found += [bytes(value) for _, value in txn.cursor()]
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
