"""Undoing differences of rows and cutting JPEG files in the native core: the bytes of the plain form, and nothing is
read or written beside what is given."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import without_core

from rawpack.native import library, state
from rawpack.native.calls import cut_jpeg, undo
from rawpack.pixels import bands

pytestmark = pytest.mark.skipif(state().startswith("off"), reason=f"native core {state()}")

SOURCES = Path(__file__).parents[2] / "reader" / "native"
DRIVER = Path(__file__).parents[1] / "support" / "stored_driver.c"
PLANES = [(1, 1), (1, 2), (1, 4), (1, 8), (3, 1), (3, 2)]
Bytes = NDArray[np.uint8]
Case = tuple[Bytes, tuple[int, int, int], int, tuple[int, int, int, int]]
"""Stored bytes; number of planes, rows, values; bytes of a value; box."""


def undone(case: Case, lanes: bool = True) -> bytes:
    stored, planes, item, box = case
    out = np.full(box[2] * box[3] * planes[0] * item, 7, np.uint8)
    assert undo(stored, planes, item, box, out, lanes=lanes)
    return out.tobytes()


def by_numpy(case: Case) -> bytes:
    """By `bands`, without the core. A plane of values is an image (H, W); three are (H, W, 3)."""
    stored, (count, rows, values), item, box = case
    shape = (rows, values, 3) if count == 3 else (rows, values)
    with without_core():
        return bands.undo(stored, shape, np.dtype(f"u{item}"), box, None).tobytes()


def some_cases(count: int, seed: int) -> Iterator[Case]:
    """Of all kinds, most with rows that are no whole number of vectors."""
    draw = np.random.default_rng(seed)
    for k in range(count):
        planes, item = PLANES[k % len(PLANES)]
        rows, values = int(draw.integers(1, 50)), int(draw.integers(1, 120))
        height, width = int(draw.integers(1, rows + 1)), int(draw.integers(1, values + 1))
        box = int(draw.integers(0, rows - height + 1)), int(draw.integers(0, values - width + 1)), height, width
        stored = draw.integers(0, 256, planes * rows * values * item, np.uint8)
        yield stored, (planes, rows, values), item, box


def test_vectors_and_plain_c_give_the_bytes_of_numpy() -> None:
    for case in some_cases(600, seed=1):
        expected = by_numpy(case)
        assert undone(case) == expected, case[1:]
        assert undone(case, lanes=False) == expected, case[1:]


def cut_in_python(data: bytes, scan: int, height_at: int, height: int, rows: int, first: int, end: int) -> bytes | None:
    """Marker by marker, as the page of the codec and T.81 have it."""
    pieces, at, begin = [], scan, scan
    while len(pieces) < end:
        if at + 2 > len(data):
            return None
        if data[at] != 0xFF or data[at + 1] in (0x00, 0xFF):
            at += 1
            continue
        last = len(pieces) == rows - 1
        if data[at + 1] != (0xD9 if last else 0xD0 + len(pieces) % 8) or (last and at + 2 != len(data)):
            return None
        pieces.append(data[begin:at])
        begin = at = at + 2
    if data[-2:] != b"\xff\xd9":
        return None
    made = data[:height_at] + height.to_bytes(2, "big") + data[height_at + 2 : scan]
    for k, piece in enumerate(pieces[first:]):
        made += piece + bytes((0xFF, 0xD9 if k == end - first - 1 else 0xD0 + k % 8))
    return made


def files(draw: np.random.Generator, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Whole files and damaged ones, full of 0xFF: bytes, where data begins, rows."""
    for _ in range(count):
        rows, scan = int(draw.integers(1, 20)), int(draw.integers(4, 30))
        data = draw.bytes(scan)
        for row in range(rows):
            codes = draw.choice(np.array([0x00, 0x11, 0xFF, 0xD0], np.uint8), int(draw.integers(0, 12))).tobytes()
            codes = codes.replace(b"\xff", b"\xff\x00") + b"\xff" * int(draw.integers(0, 3))
            data += codes + bytes((0xFF, 0xD9 if row == rows - 1 else 0xD0 + row % 8))
        if draw.random() < 0.4:
            at = int(draw.integers(scan, len(data) + 1))
            junk = draw.choice(np.array([0x00, 0xFF, 0xD0, 0xD1, 0xD9], np.uint8), int(draw.integers(0, 3))).tobytes()
            data = data[:at] + junk + data[at + int(draw.integers(0, 4)) :]
        yield data, scan, rows


def some_cuts(count: int, seed: int) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    draw = np.random.default_rng(seed)
    for data, scan, rows in files(draw, count):
        first = int(draw.integers(0, rows))
        end = int(draw.integers(first + 1, rows + 1))
        yield data, (scan, int(draw.integers(0, scan - 1)), int(draw.integers(1, 65536)), rows, first, end)


def test_files_are_cut_as_python_cuts_them() -> None:
    """The same bytes, or both refuse; either happens often."""
    made = 0
    for data, numbers in some_cuts(4000, seed=2):
        cut = cut_jpeg(memoryview(data), *numbers)
        expected = cut_in_python(data, *numbers)
        assert (None if cut is None else bytes(cut)) == expected, (data, numbers)
        made += cut is not None
    assert 1000 < made < 3600


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=4, max_size=60), st.integers(1, 9), st.data())
def test_any_bytes_are_cut_as_python_cuts_them(data: bytes, rows: int, more: st.DataObject) -> None:
    data = data.replace(b"\x01", b"\xff\xd0").replace(b"\x02", b"\xff\xd1") + b"\xff\xd9"
    first = more.draw(st.integers(0, rows - 1))
    numbers = 4, 0, 77, rows, first, more.draw(st.integers(first + 1, rows))
    cut = cut_jpeg(memoryview(data), *numbers)
    assert (None if cut is None else bytes(cut)) == cut_in_python(data, *numbers)


# ------------------------------------------------------------------------------------------------ memory


def _input() -> tuple[bytes, bytes]:
    """What stored_driver.c reads, and what it is to write."""
    given, expected = [], []
    for lanes in (True, False):
        for stored, (count, rows, values), item, box in some_cases(300, seed=3):
            room = box[2] * box[3] * count * item
            numbers = struct.pack("@PP7q3i4x", 0, room, len(stored), rows, values, *box, count, item, lanes)
            given += [b"d", numbers, stored.tobytes()]
            expected.append(undone((stored, (count, rows, values), item, box), lanes))
    for data, numbers in some_cuts(1500, seed=4):
        given += [b"c", struct.pack("@PP7i4x", 0, len(data), len(data), *numbers), data]
        expected.append(cut_in_python(data, *numbers) or b"")
    return b"".join(given), b"".join(expected)


def _driver(folder: Path, compiler: str, *flags: str) -> Path:
    """stored_driver.c, compiled; skips the test where this compiler or what it links is missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    made = folder / "driver"
    command = [compiler, "-std=c11", *flags, "-I", str(SOURCES), "-o", str(made), str(DRIVER)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode and "cannot find" in ran.stderr:
        pytest.skip(f"{compiler} {' '.join(flags)}: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    return made


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """What is stored and what is made end where their memory ends."""
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    given, expected = _input()
    ran = subprocess.run([_driver(tmp_path, "gcc", *flags)], input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout == expected) == (0, True), ran.stderr.decode()[:3000]


def test_arm64_gives_the_same_bytes(tmp_path: Path) -> None:
    """NEON, and plain C of another compiler, under emulation."""
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed")
    given, expected = _input()
    command = ["qemu-aarch64", str(_driver(tmp_path, "aarch64-linux-gnu-gcc", "-O2", "-static"))]
    ran = subprocess.run(command, input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout == expected) == (0, True), ran.stderr.decode()[:3000]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_no_warning(tmp_path: Path, compiler: str) -> None:
    _driver(tmp_path, compiler, "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-c")


_BESIDE_UNMAPPED = """
import ctypes, mmap
import numpy as np
from test_stored import cut_in_python, some_cases, some_cuts, undone
from rawpack.native.calls import cut_jpeg, undo

PAGE, SIZE = mmap.PAGESIZE, 64 * mmap.PAGESIZE
protect = ctypes.CDLL(None, use_errno=True).mprotect
protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

def between_unmapped_pages():
    memory = mmap.mmap(-1, SIZE + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    for page in (0, SIZE + PAGE):
        assert protect(whole.ctypes.data + page, PAGE, 0) == 0
    return whole[PAGE : PAGE + SIZE]

source, target = between_unmapped_pages(), between_unmapped_pages()
for case in some_cases(300, seed=5):
    expected = np.frombuffer(undone(case, False), np.uint8)
    for at in (slice(0, len(case[0])), slice(SIZE - len(case[0]), SIZE)):
        source[at] = case[0]
        out = target[: len(expected)] if at.start == 0 else target[-len(expected) :]
        for lanes in (True, False):
            out[:] = 0
            undo(source[at], *case[1:], out, lanes=lanes)
            assert np.array_equal(out, expected), case
for data, numbers in some_cuts(1000, seed=6):
    for at in (slice(0, len(data)), slice(SIZE - len(data), SIZE)):
        source[at] = np.frombuffer(data, np.uint8)
        cut = cut_jpeg(source[at].data, *numbers)
        assert (None if cut is None else bytes(cut)) == cut_in_python(data, *numbers)
print("unharmed")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect")
def test_what_is_beside_unmapped_pages() -> None:
    """Reading or writing a byte before the first or after the last ends the child."""
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path]), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run([sys.executable, "-c", _BESIDE_UNMAPPED], capture_output=True, text=True, env=environment)
    assert ran.stdout.strip() == "unharmed", f"exit code {ran.returncode}: {ran.stderr}"


HUGE, SIXTY_FOUR = 2**31 - 1, 2**63 - 1
STORED = np.arange(3 * 20 * 30, dtype=np.uint8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((0, value) for value in (0,)), *((1, value) for value in (0,)),  # addresses
        *((2, value) for value in (0, -1, 1799, 1801, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # size
        *((k, value) for k in (3, 4) for value in (0, -1, 19, 31, 40, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # rows, values
        *((k, value) for k in (5, 6) for value in (-1, 13, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # y, x
        *((k, value) for k in (7, 8) for value in (0, -1, 31, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # height, width
        *((9, value) for value in (0, 1, 2, 4, -3, HUGE)), *((10, value) for value in (0, 2, 3, 4, 8, -1, HUGE)),
    ],
)  # fmt: skip
def test_differences_that_do_not_fit_are_refused(field: int, value: int) -> None:
    """In Python by ValueError, in C by a code, before anything is written."""
    out = np.full((8, 18, 3), 7, np.uint8)
    numbers = [STORED.ctypes.data, out.ctypes.data, 1800, 20, 30, 12, 12, 8, 18, 3, 1, 1]
    numbers[field] = value
    core = library()
    assert core is not None
    assert core.rawpack_undo(struct.pack("@PP7q3i4x", *numbers)) == 1
    assert core.rawpack_undo(None) == 1
    if field > 2:
        box = (numbers[5], numbers[6], numbers[7], numbers[8])
        with pytest.raises(ValueError, match=r"planes of|is not within|must be in C order"):
            undo(STORED, (numbers[9], numbers[3], numbers[4]), numbers[10], box, out)
    assert (out == 7).all()


def test_arrays_that_do_not_fit_are_refused() -> None:
    box, planes, out = (0, 0, 20, 30), (3, 20, 30), np.empty((20, 30, 3), np.uint8)
    locked = out.copy()
    locked.flags.writeable = False
    for stored, to in (
        (STORED.view(np.int8), out), (STORED[None], out), (np.repeat(STORED, 2)[::2], out), (STORED, locked),
        (STORED, np.empty((20, 60, 3), np.uint8)[:, ::2]), (STORED, out[1:]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"contiguous bytes|in C order|bytes are not"):
            undo(stored, planes, 1, box, to)


FILE = bytes(8) + b"\xff\xd0\xff\xd1\xff\xd9"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, 0), (1, 0), *((2, value) for value in (0, -1, 7, -HUGE)),  # addresses, size
        *((3, value) for value in (0, 3, -1, 15, HUGE, -HUGE)),  # scan
        *((4, value) for value in (-1, 7, HUGE, -HUGE)), *((5, value) for value in (0, -1, 65536, HUGE)),  # height
        *((6, value) for value in (0, 2, -1)), *((7, value) for value in (-1, 3, HUGE)), (8, 0), (8, 4), (8, -1),
    ],
)  # fmt: skip
def test_numbers_of_a_file_that_do_not_fit_are_refused(field: int, value: int) -> None:
    """In Python by ValueError, in C by a code, before anything is written."""
    data, out = np.frombuffer(FILE, np.uint8), np.full(len(FILE), 7, np.uint8)
    numbers: list[Any] = [data.ctypes.data, out.ctypes.data, len(FILE), 8, 2, 64, 3, 0, 3]
    numbers[field] = value
    core = library()
    assert core is not None
    assert core.rawpack_cut(ctypes.c_char_p(struct.pack("@PP7i4x", *numbers))) == -1
    assert core.rawpack_cut(None) == -1
    assert (out == 7).all()
    if field > 2:
        with pytest.raises(ValueError, match=r"no JPEG of|are not within"):
            cut_jpeg(memoryview(FILE), *numbers[3:])
