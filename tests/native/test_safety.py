"""The native core reads and writes only what it is given, and refuses what does not fit: no input ends the process."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from platform import machine
from typing import Any
from unittest import mock

import numpy as np
import pytest
from compiling import NATIVE, STRICT, driver
from draws import tries
from planes import bytes_of
from resampled import Case, noise, odd_cases, planar_cases, recolored_cases
from unmapped import check_unharmed

from rawpack.native import LIBRARY, calls, library, state
from rawpack.native.calls import IMAGE, resample, rgb_of_planes

pytestmark = pytest.mark.skipif(state().startswith("off"), reason=f"native core {state()}")

DRIVER = Path(__file__).parents[1] / "support" / "resample_driver.c"
COLOR = NATIVE / "color.c"


class Result(ctypes.Structure):
    """As resample.c has it."""

    _fields_ = (
        ("out", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("lines", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("height", "width", "channels", "itemsize")),
        *((name, ctypes.c_int32) for name in ("planar", "antialias", "fill", "lanes")),
    )


def _input_of(cases: Iterable[Case], lanes: bool) -> bytes:
    """What resample_driver.c reads."""
    parts = []
    for case in cases:
        item = case.empty().itemsize
        flags = (*case.out, case.shape[2], item, case.planar, case.antialias, case.fill, lanes)
        given, count = (case.tables, case.lines), 0 if case.changes is None else case.changes.shape[1]
        parts += [case.described(0).tobytes(), bytes(Result(0, *(int(one is not None) for one in given), *flags))]
        parts += [count.to_bytes(4, sys.byteorder)]
        parts += [
            case.pixels[: case.bytes].tobytes(),
            *(one.tobytes() for one in (*given, case.changes) if one is not None),
        ]
    return b"".join(parts)


def _driver(folder: Path, compiler: str, *flags: str, sources: tuple[Path, ...] = (DRIVER, COLOR)) -> Path:
    """resample_driver.c, compiled."""
    return driver(folder, compiler, "-ffp-contract=off", *flags, sources=sources)


def _same_as_the_library(command: list[str | Path], seed: int, count: int) -> None:
    for lanes in (True, False):
        cases = [*odd_cases(count, seed), *planar_cases(count, seed), *recolored_cases(count, seed)]
        ran = subprocess.run(command, input=_input_of(cases, lanes), capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr.decode()[:3000]
        assert ran.stdout == b"".join(case.made(lanes).tobytes() for case in cases)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Every image ends where its memory ends."""
    flags = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    _same_as_the_library([_driver(tmp_path, "gcc", *flags)], seed=2, count=tries(600))


@pytest.mark.skipif(sys.platform != "linux" or machine() != "x86_64", reason="by an emulator of arm64, and by musl")
@pytest.mark.parametrize(
    ("compiler", "run", "of"),
    [
        ("musl-gcc", [], "x86_64"),
        ("aarch64-linux-gnu-gcc", ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"], "aarch64"),
    ],
)
def test_the_library_of_a_wheel_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, run: list[str], of: str
) -> None:
    """Compiled as for a wheel, then loaded by a program that has another C library, or is for another machine: NEON,
    and plain C of another compiler, which has nothing to say. For this machine, the checkout's is compiled the same."""
    if run and shutil.which(run[0]) is None:
        pytest.skip(f"{run[0]} is not installed")
    driver = _driver(tmp_path, compiler, "-O0", "-DLOADED", "-ldl", *STRICT)
    core, count = LIBRARY, 60
    if of != machine():
        core, count = tmp_path / "core", tries(600)
        monkeypatch.setenv("CC", f"{compiler} -Wconversion -Werror")
        runpy.run_path(str(NATIVE / "build.py"))["compile_to"](core)
    _same_as_the_library([*run, driver, core], seed=5, count=count)


@pytest.mark.parametrize("source", [DRIVER, COLOR], ids=lambda path: path.stem)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warning(tmp_path: Path, compiler: str, source: Path) -> None:
    _driver(tmp_path, compiler, "-fsyntax-only", *STRICT, sources=(source,))


_BESIDE_UNMAPPED = """
import numpy as np
from draws import tries
from resampled import odd_cases, planar_cases, recolored_cases
from unmapped import between_unmapped_pages

source, target = between_unmapped_pages(512), between_unmapped_pages(512)
SIZE = len(source)
for case in (case for draw in (odd_cases, planar_cases, recolored_cases) for case in draw(tries(600), seed=4)):
    expected = case.made(False)
    for at in (0, SIZE - case.bytes):
        source[at : at + case.bytes] = case.pixels[: case.bytes]
        to = (SIZE - expected.nbytes) if at else 0
        out = target[to : to + expected.nbytes].view(expected.dtype).reshape(expected.shape)
        for lanes in (True, False):
            out[:] = 0
            case.made(lanes, out, source.ctypes.data + at)
            assert np.array_equal(out, expected), case
"""


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect")
def test_images_and_results_beside_unmapped_pages() -> None:
    """Reading or writing a byte before the first or after the last ends the child."""
    check_unharmed(_BESIDE_UNMAPPED)


HUGE = 2**31 - 1
PIXELS = noise(40 * 30 * 3)


def _image() -> np.ndarray[Any, np.dtype[np.void]]:
    image = np.zeros(1, IMAGE)
    image["pixels"], image["end"], image["stride"] = PIXELS.ctypes.data, PIXELS.ctypes.data + PIXELS.nbytes, 30 * 3
    image["height"], image["width"], image["box"], image["scaled"] = 40, 30, (2, 3, 38, 27), (20, 20)
    return image


def _set(name: str, value: Any, index: int | None = None) -> Callable[[Any], None]:
    def change(image: Any) -> None:
        if index is None:
            image[name] = value
        else:
            image[name][0, index] = value

    change.__name__ = f"{name}{'' if index is None else f'[{index}]'} = {value}"
    return change


BAD_IMAGES = [
    *(_set(name, value) for name in ("height", "width") for value in (0, -1, -HUGE - 1, 65537, HUGE, 41)),
    *(_set("box", value, index) for index in range(4) for value in (-1, -HUGE - 1, HUGE, 41)),
    *(_set("box", 0, index) for index in (2, 3)),
    *(_set("box", value, index) for index, value in enumerate((3, 4, 39, 28))),  # by one
    *(_set("scaled", value, index) for index in (0, 1) for value in (0, -1, 65537, HUGE, -HUGE - 1)),
    *(_set("stride", value) for value in (-1, -90, 91, 2**40, 2**63 - 1, -(2**63))),
    *(_set("flips", value) for value in (-1, 4, HUGE)),
    *(_set("end", value) for value in (0, 1, PIXELS.ctypes.data - 1, PIXELS.ctypes.data + PIXELS.nbytes - 1)),
    *(_set("pixels", value) for value in (0, 2**64 - 1, PIXELS.ctypes.data + 1)),
]


@pytest.mark.parametrize("change", BAD_IMAGES, ids=map(str, range(len(BAD_IMAGES))))
def test_images_that_do_not_fit_are_refused(change: Callable[[Any], None]) -> None:
    """In Python by ValueError that names the image, in C by a code, before anything is written."""
    images = np.concatenate([_image(), _image()])
    change(images[1:])
    out = np.full((2, 20, 20, 3), 7, np.uint8)
    with pytest.raises(ValueError, match="Image 1 of the call"):
        resample(images, out)
    result = Result(out.ctypes.data, None, None, 20, 20, 3, 1, 0, 1, 0, 1)
    core = library()
    assert core is not None
    assert core.rawpack_resample(ctypes.c_int64(2), ctypes.c_void_p(images.ctypes.data), ctypes.byref(result)) == 1
    assert (out == 7).all()


def _planes() -> np.ndarray[Any, np.dtype[np.void]]:
    image = _image()
    image["planes"], image["stride"], image["end"] = 1, 30, PIXELS.ctypes.data + bytes_of(40, 30)
    return image


BAD_PLANES = [
    *(_set("planes", value) for value in (-1, 2, HUGE)),
    *(_set("stride", value) for value in (0, 29, 31, 90, -30)),
    *(_set("end", PIXELS.ctypes.data + value) for value in (0, 1, 40 * 30, bytes_of(40, 30) - 1)),
    *(_set(name, value) for name, value in (("height", 41), ("width", 31), ("width", 65536))),
]


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("change", [lambda _: None, *BAD_PLANES], ids=range(len(BAD_PLANES) + 1))
def test_planes_that_do_not_fit_are_refused(change: Callable[[Any], None], channels: int) -> None:
    """As other images are, and where they are to become gray."""
    images, out = np.concatenate([_planes(), _planes()]), np.full((2, 20, 20, channels), 7, np.uint8)
    change(images[1:])
    fits = channels == 3 and change not in BAD_PLANES
    with nullcontext() if fits else pytest.raises(ValueError, match=r"Image \d of the call"):
        resample(images, out)
    result, core = Result(out.ctypes.data, None, None, 20, 20, channels, 1, 0, 1, 0, 1), library()
    assert core is not None
    code = core.rawpack_resample(ctypes.c_int64(2), ctypes.c_void_p(images.ctypes.data), ctypes.byref(result))
    assert code == (0 if fits else 1)
    assert fits or (out == 7).all()


def test_one_image_of_planes_that_does_not_fit_is_refused() -> None:
    """Or left to NumPy, where the core does not do it."""
    stored, out = PIXELS[: bytes_of(40, 30)], np.full((9, 8, 3), 7, np.uint8)
    for planes in (stored[:-1], PIXELS, stored[::-1], stored.view(np.int8), stored.reshape(1, -1)):
        with pytest.raises(ValueError, match="planes of 40x30 are 1800 bytes"):
            rgb_of_planes(planes, (40, 30), (1, 1, 9, 8), out)
    for box in ((32, 1, 9, 8), (1, 23, 9, 8), (-1, 0, 9, 8), (0, -1, 9, 8)):
        with pytest.raises(ValueError, match="refused the sizes"):
            rgb_of_planes(stored, (40, 30), box, out)
    for other in (out[:8], out.astype(np.int8), out[..., 0]):
        with pytest.raises(ValueError, match="out must be uint8"):
            rgb_of_planes(stored, (40, 30), (1, 1, 9, 8), np.ascontiguousarray(other))
    assert not rgb_of_planes(stored, (40, 30), (1, 1, 9, 8), out[::-1])
    assert not rgb_of_planes(stored, (70_000, 1), (0, 0, 9, 8), out)
    with mock.patch.object(calls, "library", return_value=mock.Mock(rawpack_lanes=lambda: 0)):
        assert not rgb_of_planes(stored, (40, 30), (1, 1, 9, 8), out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in ("height", "width") for value in (0, -1, 16385, HUGE, -HUGE - 1)),
        *(("channels", value) for value in (0, 2, 4, -1, HUGE)),
        *(("itemsize", value) for value in (0, 3, 4, 8, -1)),  # 4: without tables
        ("fill", -1), ("fill", 256), ("out", None),
    ],
)  # fmt: skip
def test_results_that_do_not_fit_are_refused_in_c(field: str, value: int | None) -> None:
    out = np.full((1, 20, 20, 3), 7, np.uint8)
    result = Result(out.ctypes.data, None, None, 20, 20, 3, 1, 0, 1, 0, 1)
    setattr(result, field, value)
    image, core = _image(), library()
    assert core is not None
    call = core.rawpack_resample
    assert call(ctypes.c_int64(1), ctypes.c_void_p(image.ctypes.data), ctypes.byref(result)) == 1
    assert (out == 7).all()


def test_calls_without_images_or_result_are_refused_in_c() -> None:
    out, core, image = np.empty((1, 20, 20, 3), np.uint8), library(), _image()
    result = Result(out.ctypes.data, None, None, 20, 20, 3, 1, 0, 1, 0, 1)
    assert core is not None
    address = ctypes.c_void_p(image.ctypes.data)
    assert core.rawpack_resample(ctypes.c_int64(-1), address, ctypes.byref(result)) == 1
    assert core.rawpack_resample(ctypes.c_int64(1), None, ctypes.byref(result)) == 1
    assert core.rawpack_resample(ctypes.c_int64(1), address, None) == 1
    assert core.rawpack_resample(ctypes.c_int64(0), None, ctypes.byref(result)) == 0


READ_ONLY = np.empty((1, 20, 20, 3), np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        (np.empty((2, 20, 20, 3), np.uint8), {}, "out must have 4 axes, the first for 1 images"),
        (np.empty((1, 20, 20), np.uint8), {}, "4 axes"),
        (np.empty((1, 20, 20, 2), np.uint8), {}, "1 or 3 channels, not 2"),
        (np.empty((1, 20, 20, 3), np.uint8), {"planar": True}, "1 or 3 channels, not 20"),
        (np.empty((1, 20, 40, 3), np.uint8)[:, :, ::2], {}, "C-contiguous"),
        (READ_ONLY, {}, "writable"),
        (np.empty((1, 0, 20, 3), np.uint8), {}, "sides from 1 to 16384"),
        (np.empty((1, 20, 16385, 1), np.uint8), {}, "sides from 1 to 16384"),
        (np.empty((1, 20, 20, 3), np.float32), {}, "Without tables, out must be uint8"),
        (np.empty((1, 20, 20, 3), np.float32), {"tables": np.empty((3, 256))}, "of float32: .* of float64"),
        (np.empty((1, 20, 20, 3), np.float64), {"tables": np.empty((3, 256))}, "1, 2 or 4 bytes"),
        (np.empty((1, 20, 20, 3), np.uint8), {"tables": np.empty((1, 256), np.uint8)}, r"tables must be \(3, 256\)"),
        (np.empty((1, 20, 20, 3), np.uint8), {"tables": np.empty((3, 512), np.uint8)[:, ::2]}, "tables must be C-cont"),
        (np.empty((1, 20, 20, 3), np.uint8), {"fill": 256}, "fill is a byte"),
        (np.empty((1, 20, 20, 3), np.uint8), {"fill": -1}, "fill is a byte"),
    ],
)
def test_results_that_do_not_fit_are_refused(out: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resample(_image(), out, **options)


def test_descriptions_of_another_layout_are_refused() -> None:
    out = np.empty((1, 20, 20, 3), np.uint8)
    for images in (_image().view(np.uint8), _image()[0], np.concatenate([_image()] * 4)[::2]):
        with pytest.raises(ValueError, match="images must be a contiguous array"):
            resample(images, out)


def test_windows_far_beside_the_image_are_filled() -> None:
    """Any number of 32 bits is a place: what is not within the image is `fill`."""
    for at in ((-HUGE - 1, 0), (0, -HUGE - 1), (HUGE, HUGE), (0, HUGE), (-20, 0), (20, 0), (-HUGE, 3)):
        image, out = _image(), np.zeros((1, 20, 20, 3), np.uint8)
        image["at"] = at
        resample(image, out, fill=9)
        assert (out == 9).all(), at
