"""Undoing differences of rows and finding the rows of JPEG files in the native core: the results of the plain form, and
nothing is read or written beside what is given."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from compiling import STRICT, driver
from draws import tries
from numpy.typing import NDArray
from reading import without_core

from rawpack.native import library, state
from rawpack.native.calls import row_ends, undo
from rawpack.pixels import bands

pytestmark = pytest.mark.skipif(state().startswith("off"), reason=f"native core {state()}")

DRIVER = Path(__file__).parents[1] / "support" / "stored_driver.c"
Bytes = NDArray[np.uint8]
Case = tuple[Bytes, tuple[int, int, int], tuple[int, int, int, int]]
"""Stored bytes; number of planes, rows, values; box."""


def undone(case: Case, lanes: bool = True) -> bytes:
    stored, planes, box = case
    out = np.full(box[2] * box[3] * planes[0], 7, np.uint8)
    assert undo(stored, planes, box, out, lanes=lanes)
    return out.tobytes()


def by_numpy(case: Case) -> bytes:
    """By `bands`, without the core. A plane of values is an image (H, W); three are (H, W, 3)."""
    stored, (count, rows, values), box = case
    shape = (rows, values, 3) if count == 3 else (rows, values)
    with without_core():
        return bands.undo(stored, shape, np.dtype("u1"), box, None).tobytes()


def some_cases(count: int, seed: int) -> Iterator[Case]:
    """Of all kinds, most with rows that are no whole number of vectors."""
    draw = np.random.default_rng(seed)
    for k in range(count):
        planes = 1 + k % 2 * 2
        rows, values = int(draw.integers(1, 50)), int(draw.integers(1, 120))
        height, width = int(draw.integers(1, rows + 1)), int(draw.integers(1, values + 1))
        box = int(draw.integers(0, rows - height + 1)), int(draw.integers(0, values - width + 1)), height, width
        stored = draw.integers(0, 256, planes * rows * values, np.uint8)
        yield stored, (planes, rows, values), box


def test_vectors_and_plain_c_give_the_bytes_of_numpy() -> None:
    for case in some_cases(tries(600), seed=1):
        expected = by_numpy(case)
        assert undone(case) == expected, case[1:]
        assert undone(case, lanes=False) == expected, case[1:]


def ends_in_python(data: bytes, scan: int, rows: int, end: int) -> list[int] | None:
    """Marker by marker, as the page of the codec and T.81 have it."""
    ends, at = list[int](), scan
    while len(ends) < end:
        if at + 2 > len(data):
            return None
        if data[at] != 0xFF or data[at + 1] in (0x00, 0xFF):
            at += 1
            continue
        last = len(ends) == rows - 1
        if data[at + 1] != (0xD9 if last else 0xD0 + len(ends) % 8) or (last and at + 2 != len(data)):
            return None
        ends.append(at)
        at += 2
    return ends if data[-2:] == b"\xff\xd9" else None


def some_files(count: int, seed: int) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    """Whole files and damaged ones, full of 0xFF: bytes; where data begins, number of rows, how many are looked for."""
    draw = np.random.default_rng(seed)
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
        yield data, (scan, rows, int(draw.integers(1, rows + 1)))


def test_rows_end_where_python_finds_them() -> None:
    """Or there are others than their markers; either happens often."""
    whole = 0
    for data, numbers in some_files(tries(6000), seed=2):
        ends = row_ends(memoryview(data), *numbers)
        assert ends == ends_in_python(data, *numbers), (data, numbers)
        whole += ends is not None
    assert tries(1500) < whole < tries(5600)
    early = FILE + b"\xff\xd9"  # an end marker before the end
    assert row_ends(memoryview(early), 8, 3, 3) is ends_in_python(early, 8, 3, 3) is None


def _input() -> tuple[bytes, bytes]:
    """What stored_driver.c reads, and what it is to write."""
    given, expected = [], []
    for lanes in (True, False):
        for stored, (count, rows, values), box in some_cases(tries(300), seed=3):
            room = box[2] * box[3] * count
            numbers = struct.pack("@PP7q2i", 0, room, len(stored), rows, values, *box, count, lanes)
            given += [b"d", numbers, stored.tobytes()]
            expected.append(undone((stored, (count, rows, values), box), lanes))
    for data, numbers in some_files(tries(1500), seed=4):
        given += [b"j", struct.pack("@4q", len(data), *numbers), data]
        expected.append(np.array(ends_in_python(data, *numbers) or [], np.int64).tobytes())
    return b"".join(given), b"".join(expected)


@pytest.mark.parametrize(
    ("compiler", "flags", "run"),
    [
        ("gcc", ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"), []),
        ("aarch64-linux-gnu-gcc", ("-O2", "-static", *STRICT), ["qemu-aarch64"]),
    ],
    ids=["sanitizers", "arm64"],
)
def test_other_builds_give_the_same_bytes(
    tmp_path: Path, compiler: str, flags: tuple[str, ...], run: list[str]
) -> None:
    """Where what is stored and what is made end where their memory ends; and by NEON, under emulation. The compiler has
    nothing to say."""
    if run and shutil.which(run[0]) is None:
        pytest.skip(f"{run[0]} is not installed")
    given, expected = _input()
    command = [*run, driver(tmp_path, compiler, *flags, sources=[DRIVER])]
    ran = subprocess.run(command, input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout == expected) == (0, True), ran.stderr.decode()[:3000]


HUGE, SIXTY_FOUR = 2**31 - 1, 2**63 - 1
STORED = np.arange(3 * 20 * 30, dtype=np.uint8)
FILE = bytes(8) + b"\xff\xd0\xff\xd1\xff\xd9"


def test_numbers_and_arrays_that_do_not_fit_are_refused() -> None:
    """Before anything is written, in the core too, for whoever calls it by itself."""
    core, out = library(), np.full((8, 18, 3), 7, np.uint8)
    assert core is not None
    for field, value in (
        *((k, value) for k in (3, 4) for value in (0, -1, 19, 31, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # rows, values
        *((k, value) for k in (5, 6) for value in (-1, 13, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # y, x
        *((k, value) for k in (7, 8) for value in (0, -1, 31, SIXTY_FOUR, -SIXTY_FOUR - 1)),  # height, width
        *((9, value) for value in (0, 1, 2, 4, -3, HUGE)),
    ):  # fmt: skip
        numbers = [STORED.ctypes.data, out.ctypes.data, 1800, 20, 30, 12, 12, 8, 18, 3, 1]
        numbers[field] = value
        assert core.rawpack_undo(struct.pack("@PP7q2i", *numbers)) == 1, (field, value)
        with pytest.raises(ValueError, match=r"planes of|is not within|must be in C order"):
            undo(STORED, (numbers[9], numbers[3], numbers[4]), (*numbers[5:9],), out)  # type: ignore[arg-type]
        assert (out == 7).all(), (field, value)
    out = np.empty((20, 30, 3), np.uint8)
    for stored in (STORED.view(np.int8), np.repeat(STORED, 2)[::2]):
        with pytest.raises(ValueError, match=r"contiguous bytes|in C order"):
            undo(stored, (3, 20, 30), (0, 0, 20, 30), out)
    for wrong in ((-1, 3, 3), (15, 3, 3), (SIXTY_FOUR, 3, 3), (8, 0, 3), (8, 2, 3), (8, 3, 0), (8, 3, 4), (8, 3, -1)):
        with pytest.raises(ValueError, match="has no"):
            row_ends(memoryview(FILE), *wrong)
