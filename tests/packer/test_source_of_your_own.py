"""A source added exactly by the row of CONTRIBUTING.md's table: one module and one row in `KINDS`."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from running import run_here

from rawpack import DecodeError, Reader
from rawpack_packer.sources import FieldKind, ImageKind, Item, Source, SourceInfo, open_source, registry
from rawpack_packer.sources.look.signs import Signs
from rawpack_packer.testing import SourceConformance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")
_HEIGHT, _WIDTH = 6, 9


class TapeSource:
    """A source of one's own, with the members of `Source` and no more: a file of frames of 54 bytes, one after another.
    A frame that begins with 255 is a drop-out."""

    def __init__(self, path: Any, /, *, speed: int | None = None, progress: Any = None) -> None:
        self._path, self._speed = Path(path), speed or 1
        found = self._path.stat()
        self._range = range(0, found.st_size // (_HEIGHT * _WIDTH), self._speed)
        self._state = found.st_size, found.st_mtime_ns
        self.info = SourceInfo(
            kind="tape",
            root=str(self._path),
            fields={"at": FieldKind("int64")},
            image=ImageKind("uint8", (_HEIGHT, _WIDTH, 1)),
            noun="frame",
        )

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, i: int, /) -> Item:
        key, at = self.key(i), self._range[i]
        with self._path.open("rb") as tape:
            tape.seek(at * _HEIGHT * _WIDTH)
            frame = np.frombuffer(tape.read(_HEIGHT * _WIDTH), np.uint8).reshape(_HEIGHT, _WIDTH, 1)
        if frame[0, 0, 0] == 255:
            raise DecodeError("damaged", "a drop-out of the tape")
        return Item(key, frame, {"at": at})

    def key(self, i: int, /) -> str:
        if not 0 <= i < len(self):
            raise IndexError(f"frame {i} of {len(self)}")
        return f"frame {self._range[i]}"

    def part(self, start: int, stop: int, /) -> TapeSource:
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"frames {start} to {stop} of {len(self)}")
        part = object.__new__(TapeSource)
        part.__dict__.update(self.__dict__, _range=self._range[start:stop])
        return part

    def states(self) -> NDArray[np.int64]:
        return np.array([self._state], np.int64)


FRAMES = np.random.default_rng(0).integers(0, 250, (8, _HEIGHT, _WIDTH, 1), np.uint8)


def write_tape(path: Path) -> Path:
    if not path.exists():
        frames = FRAMES.copy()
        frames[6, 0, 0] = 255
        path.write_bytes(frames.tobytes())
    return path


TAPE = Signs(named=r"\.tape$")


class TestTape(SourceConformance):
    def open(self, folder: Path) -> Source:
        return TapeSource(write_tape(folder / "a.tape"))

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"frame {i}", None if i == 6 else frame) for i, frame in enumerate(FRAMES)]


@pytest.fixture
def added() -> Iterator[None]:
    """What CONTRIBUTING.md's row asks: a module in `sources/`, and a row in `KINDS`."""
    row = next(
        line
        for line in (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text().splitlines()
        if line.startswith("| a source |")
    )
    assert re.findall(r"`([^`]+)`", row)[:3] == ["packer/rawpack_packer/sources/<name>.py", "Source", "KINDS"]
    module = types.ModuleType("rawpack_packer.sources.tape")
    vars(module)["TapeSource"] = TapeSource
    with (
        mock.patch.dict(sys.modules, {module.__name__: module}),
        mock.patch.dict(registry.KINDS, {"tape": registry.SourceKind("tapes", TapeSource, ("speed",), TAPE)}),
    ):
        yield


def test_a_source_is_one_module_and_one_row(added: None, tmp_path: Path) -> None:
    """A class with `Source`'s members, named in KINDS, is opened by its kind or from what its path is, takes its
    options, and is packed by the command; a sample that it cannot read is a reject with its reason."""
    tape = write_tape(tmp_path / "a.tape")
    assert open_source(tape).info.kind == "tape"
    assert len(open_source(tape, "tape", speed=2)) == 4
    ran = run_here("pack", "-q", "--source", "tape", "--workers", 0, "--max-rejects", 1, tape, tmp_path / "store")
    assert (ran.code, ran.err) == (0, ""), ran
    reader = Reader(tmp_path / "store")
    kept = [i for i in range(8) if i != 6]
    assert [reader[n]["at"] for n in range(7)] == kept
    np.testing.assert_array_equal([reader[n]["image"] for n in range(7)], FRAMES[kept])
    assert '"reason":"damaged"' in (tmp_path / "store" / "rejects.jsonl").read_text().replace(" ", "")


def test_conformance_finds_what_is_wrong(tmp_path: Path) -> None:
    """A source that breaks a rule fails the test of that rule, and the message names the sample."""

    class Shifted(TapeSource):
        """Its parts begin one sample late."""

        def part(self, start: int, stop: int, /) -> TapeSource:
            return super().part(min(start + 1, max(start, stop - 1)), stop)

    class Broken(SourceConformance):
        def open(self, folder: Path) -> Source:
            return Shifted(write_tape(folder / "a.tape"))

    with pytest.raises(AssertionError, match="part 0 to 2"):
        Broken().test_parts_are_equal_to_the_whole(tmp_path)
