"""What several test files share: photo-like images, the command, and stores packed once for all of them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from real_data import real

import rawpack
import rawpack_packer
from rawpack_packer.cli import main

if TYPE_CHECKING:
    from reading import Truth

Pixels = NDArray[np.uint8]

FORMATS: dict[str, tuple[str, ...]] = {
    "memmap": ("--format", "memmap"),
    "hdf5": ("--format", "hdf5"),
    "hdf5-gzip": ("--format", "hdf5", "--compression", "gzip"),
    "hdf5-chunk4": ("--format", "hdf5", "--chunk", "4"),
    "lmdb": ("--format", "lmdb"),
}
"""Every layout that a shard can have -> the options that make it."""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start, also where they run in the background of a shell, which ignores it for all
    that it starts there."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# ---------------------------------------------------------------------------------------------- the command


def command() -> list[str]:
    """How the `rawpack` command is started as a process of its own."""
    return [sys.executable, "-m", "rawpack_packer"]


def environment(**extra: str) -> dict[str, str]:
    """An environment in which a new Python finds the very packages that these tests found."""
    roots = dict.fromkeys(str(Path(package.__file__ or "").parents[1]) for package in (rawpack, rawpack_packer))
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots), "PYTHONUTF8": "1"} | extra


def run_command(*args: object, **extra: str) -> Ran:
    """Run the command as a process of its own; `extra` goes into its environment."""
    ran = subprocess.run(
        [*command(), *map(str, args)],
        capture_output=True, encoding="utf-8", timeout=200, env=environment(**extra), check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def run_here(*args: object) -> Ran:
    """Run the command's own entry point in this process: the same exit codes and messages, in a tenth of the time."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["rawpack", *map(str, args)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ran(code, out.getvalue(), err.getvalue())


def pack(source: Path, destination: Path, *options: object) -> Path:
    """Pack in this process, and insist that it went well."""
    ran = run_here("pack", "--workers", 0, "--quiet", *options, source, destination)
    assert (ran.code, ran.err) == (0, ""), ran
    return destination


@pytest.fixture(name="run_cli", scope="session")
def run_cli_fixture() -> Callable[..., Ran]:
    """`run_cli(*args)`: the command as a process of its own; its exit code, stdout and stderr."""
    return run_command


@pytest.fixture(scope="module")
def reader(store: Path) -> rawpack.Reader:
    """A reader of the one `store` that a module has."""
    return rawpack.Reader(store)


@pytest.fixture(scope="module")
def truth(store: Path) -> Truth:
    """What numpy alone reads of it."""
    from reading import Truth

    return Truth(store)


# ---------------------------------------------------------------------------------------------- images


def picture(height: int, width: int, seed: int) -> Pixels:
    """Smooth colours with a little noise, as photographs have: (height, width, 3)."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.float64)
    return (smooth + random.normal(0, 1.5, smooth.shape)).clip(0, 255).astype(np.uint8)


def save(path: Path, pixels: Pixels, **options: Any) -> Path:
    """Write an image file, its folders too; the type is that of the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if path.suffix.lower() in (".jpg", ".jpeg"):
        options = {"quality": 95} | options
    image.save(path, **options)
    return path


def files_of(root: Path) -> dict[str, bytes]:
    """Every file below a folder: path with slashes -> contents."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def states_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder: path -> inode, mtime in ns, size. Equal states mean that nothing was written."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            state = (Path(folder) / name).stat()
            path = (Path(folder) / name).relative_to(root).as_posix()
            found[path] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


SIZES = ((60, 80), (131, 70), (48, 48), (70, 131), (97, 51))
"""Heights and widths of the images of `images`."""


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 75 photo-like files: odd names, nested folders, an empty class, images beside the classes, one grey
    JPEG, one PNG, one image that is smaller than what it is packed to."""
    root = tmp_path_factory.mktemp("images")
    number = 0
    for folder in ("animals", "two words", "猫 и собаки", "line\nbreak", "deep/er/still"):
        for name in ("plain", "with space", "图片", "new\nline", "Ünïcode", *map(str, range(9))):
            height, width = SIZES[number % len(SIZES)]
            save(root / folder / f"{name}.jpg", picture(height, width, number))
            number += 1
    (root / "Empty").mkdir()
    save(root / "loose.jpg", picture(60, 80, 901))
    save(root / "zz.jpeg", picture(80, 60, 902))
    save(root / "animals" / "grey.jpg", picture(66, 90, 903)[..., 1])
    save(root / "animals" / "lossless.png", picture(55, 75, 904))
    save(root / "two words" / "small.jpg", picture(30, 41, 905))
    return root


@pytest.fixture(scope="session")
def photos() -> Path:
    """Real photographs, where the machine has them."""
    return real("photos")


# ---------------------------------------------------------------------------------------------- stores

Packed = Callable[..., Path]


@pytest.fixture(scope="session")
def packed(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """`packed("hdf5", "--size", 48)`: `images` in a store of that layout, packed once: never change it."""
    stores: dict[tuple[str, ...], Path] = {}

    def get(layout: str, *options: object) -> Path:
        asked = (layout, *map(str, options))
        if asked not in stores:
            where = tmp_path_factory.mktemp("packed") / "store"
            stores[asked] = pack(images, where, *FORMATS[layout], "--shard-size", 1, *options)
        return stores[asked]

    return get


@contextmanager
def started(*args: object, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a running process, which is ended with the block."""
    process = subprocess.Popen(
        [*command(), *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment(**extra),
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()
