"""The native core reads and writes only what it is given, and refuses what does not fit: no input ends the process."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
import pytest
from compiling import NATIVE, STRICT, driver
from draws import tries
from planes import bytes_of
from resampled import Case, noise, odd_cases, planar_cases, recolored_cases

from rawpack.native import LIBRARY, state
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


def _same_as_the_library(command: list[str | Path], seed: int, count: int) -> None:
    for lanes in (True, False):
        cases = [*odd_cases(count, seed), *planar_cases(count, seed), *recolored_cases(count, seed)]
        ran = subprocess.run(command, input=_input_of(cases, lanes), capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr.decode()[:3000]
        assert ran.stdout == b"".join(case.made(lanes).tobytes() for case in cases)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Every image ends where its memory ends."""
    flags = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    _same_as_the_library(
        [driver(tmp_path, "gcc", "-ffp-contract=off", *flags, sources=(DRIVER, COLOR))], seed=2, count=tries(600)
    )


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
    flags = ("-ffp-contract=off", "-O0", "-DLOADED", "-ldl", *STRICT)
    program = driver(tmp_path, compiler, *flags, sources=(DRIVER, COLOR))
    core, count = LIBRARY, 60
    if of != machine():
        core, count = tmp_path / "core", tries(300)
        monkeypatch.setenv("CC", f"{compiler} -Wconversion -Werror")
        runpy.run_path(str(NATIVE / "build.py"))["compile_to"](core)
    _same_as_the_library([*run, program, core], seed=5, count=count)


HUGE = 2**31 - 1
PIXELS = noise(40 * 30 * 3)


BOX = (2, 3, 38, 27)
START, BYTES_OF_PLANES = PIXELS.ctypes.data, bytes_of(40, 30)


def _image(planes: int = 0, **fields: Any) -> np.ndarray[Any, np.dtype[np.void]]:
    image = np.zeros(1, IMAGE)
    described = {
        "pixels": START, "end": START + (BYTES_OF_PLANES if planes else PIXELS.nbytes), "stride": 30 if planes else 90,
        "height": 40, "width": 30, "box": BOX, "scaled": (20, 20), "planes": planes,
    }  # fmt: skip
    for name, value in (described | fields).items():
        image[name] = value
    return image


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return *values[:index], value, *values[index + 1 :]


BAD_IMAGES = [
    *((name, value) for name in ("height", "width") for value in (0, -1, -HUGE - 1, 65537, HUGE, 41)),
    *(("box", _with(BOX, index, value)) for index in range(4) for value in (-1, -HUGE - 1, HUGE, 41)),
    *(("box", _with(BOX, index, value)) for index, value in ((2, 0), (3, 0), (0, 3), (1, 4), (2, 39), (3, 28))),
    *(("scaled", pair) for value in (0, -1, 65537, HUGE, -HUGE - 1) for pair in ((value, 20), (20, value))),
    *(("stride", value) for value in (-1, -90, 91, 2**40, 2**63 - 1, -(2**63))),
    *(("flips", value) for value in (-1, 4, HUGE)),
    *(("end", value) for value in (0, 1, START - 1, START + PIXELS.nbytes - 1)),
    *(("pixels", value) for value in (0, 2**64 - 1, START + 1)),
]
BAD_PLANES = [
    *(("planes", value) for value in (-1, 2, HUGE)),
    *(("stride", value) for value in (0, 29, 31, 90, -30)),
    *(("end", START + value) for value in (0, 1, 40 * 30, BYTES_OF_PLANES - 1)),
    *(("height", 41), ("width", 31), ("width", 65536)),
]


@pytest.mark.parametrize(
    ("planes", "channels", "bad"),
    [(0, 3, BAD_IMAGES), (1, 3, BAD_PLANES), (1, 1, [*BAD_PLANES, ("flips", 0)])],  # no planes become gray
    ids=["pixels", "planes", "gray"],
)
def test_images_that_do_not_fit_are_refused(planes: int, channels: int, bad: list[tuple[str, Any]]) -> None:
    """By the error that names the image, before anything is written; others are made."""
    for name, value in bad:
        images, out = np.concatenate([_image(planes), _image(**{"planes": planes, name: value})]), _sevens(2, channels)
        with pytest.raises(ValueError, match=r"Image \d of the call"):
            resample(images, out)
        assert (out == 7).all(), (name, value)
    if channels == 3:
        resample(_image(planes), out := _sevens(1))
        assert (out != 7).any()


def _sevens(count: int, channels: int = 3) -> Any:
    return np.full((count, 20, 20, channels), 7, np.uint8)


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
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "message"),
    [
        ((2, 20, 20, 3), np.uint8, {}, "out must have 4 axes, the first for 1 images"),
        ((1, 20, 20, 2), np.uint8, {}, "1 or 3 channels, not 2"),
        ((1, 20, 20, 3), np.float32, {}, "Without tables, out must be uint8"),
        ((1, 20, 20, 3), np.float32, {"tables": np.empty((3, 256))}, "of float32: .* of float64"),
        ((1, 20, 20, 3), np.uint8, {"tables": np.empty((1, 256), np.uint8)}, r"tables must be \(3, 256\)"),
    ],
)
def test_results_that_do_not_fit_are_refused(shape: Any, dtype: Any, options: dict[str, Any], message: str) -> None:
    """So are those that are not one after another, and descriptions of another layout."""
    with pytest.raises(ValueError, match=message):
        resample(_image(), np.empty(shape, dtype), **options)
    with pytest.raises(ValueError, match="C-contiguous"):
        resample(_image(), np.empty((1, 20, 40, 3), np.uint8)[:, :, ::2])
    for images in (_image().view(np.uint8), np.concatenate([_image()] * 4)[::2]):
        with pytest.raises(ValueError, match="images must be a contiguous array"):
            resample(images, _sevens(1))


def test_windows_far_beside_the_image_are_filled() -> None:
    """Any number of 32 bits is a place: what is not within the image is `fill`."""
    for at in ((-HUGE - 1, 0), (0, -HUGE - 1), (HUGE, HUGE), (0, HUGE), (-20, 0), (20, 0), (-HUGE, 3)):
        resample(_image(at=at), out := _sevens(1), fill=9)
        assert (out == 9).all(), at
