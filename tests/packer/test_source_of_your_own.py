"""A source added exactly as CONTRIBUTING.md says: one module and one row in `KINDS`; and the kind that it shows."""

from __future__ import annotations

import json
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
from PIL import Image
from running import run_here

import rawpack_packer
from rawpack import DecodeError, Reader
from rawpack.errors import PackError, UsageError
from rawpack_packer.sources import FieldKind, ImageKind, Item, Source, SourceInfo, open_source, registry
from rawpack_packer.testing import SourceConformance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")
_HEIGHT, _WIDTH = 6, 9
_FRAME = np.dtype((np.uint16, (_HEIGHT, _WIDTH, 1)))
_PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")


class TapeSource:
    """A source of one's own, with the members of `Source` and no more: a file of frames of 16 bits, one after another.
    A frame that begins with 65,535 is a drop-out."""

    def __init__(self, path: Path) -> None:
        self._path, found = path, path.stat()
        self._range = range(found.st_size // _FRAME.itemsize)
        self._state = found.st_size, found.st_mtime_ns
        self.info = SourceInfo(
            kind="tape",
            root=str(self._path),
            fields={"at": FieldKind("int64"), "mask": FieldKind("uint16", (_HEIGHT, _WIDTH, 1), mask=True)},
            image=ImageKind("uint16", (_HEIGHT, _WIDTH, 1)),
            noun="frame",
        )

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, i: int, /) -> Item:
        key, at = self.key(i), self._range[i]
        (frame,) = np.fromfile(self._path, _FRAME, count=1, offset=at * _FRAME.itemsize)
        if frame[0, 0, 0] == 65535:
            raise DecodeError("damaged", "a drop-out of the tape")
        return Item(key, frame, {"at": np.array(at), "mask": frame})

    def key(self, i: int, /) -> str:
        if not 0 <= i < len(self):
            raise IndexError(f"frame {i} of {len(self)}")
        return f"frame {self._range[i]}"

    def part(self, start: int, stop: int, /) -> TapeSource:
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"frames {start} to {stop} of {len(self)}")
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__, _range=self._range[start:stop])
        return part

    def states(self) -> NDArray[np.int64]:
        return np.array([self._state], np.int64)


FRAMES = np.random.default_rng(0).integers(0, 65000, (8, _HEIGHT, _WIDTH, 1), np.uint16)


def write_tape(path: Path) -> Path:
    if not path.exists():
        frames = FRAMES.copy()
        frames[6, 0, 0] = 65535
        path.write_bytes(frames.tobytes())
    return path


class TestTape(SourceConformance):
    def open(self, folder: Path) -> Source:
        return TapeSource(write_tape(folder / "a.tape"))

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"frame {i}", None if i == 6 else frame) for i, frame in enumerate(FRAMES)]


@pytest.fixture
def labelled() -> Iterator[None]:
    """The kind that CONTRIBUTING.md shows, registered as it says."""
    code, row = re.findall(
        r"^```python notest\n(.*?)^```", _PAGE.partition("### A kind of source\n")[2].partition("\n## ")[0], re.M | re.S
    )
    assert len(code.splitlines()) <= 40
    module = types.ModuleType("rawpack_packer.sources.labelled")
    with mock.patch.dict(sys.modules, {module.__name__: module}):
        exec(compile(code, "CONTRIBUTING.md", "exec"), vars(module))
        kind = eval(row, vars(registry))
        with mock.patch.dict(registry.KINDS, {kind.name: kind}):
            yield


def _write_labelled(folder: Path) -> dict[str, str]:
    classes = {"b.png": "dog", "a.png": "cat", "c.png": "dog"}
    if not (folder / "labels.json").exists():
        for number, name in enumerate(sorted(classes)):
            Image.new("RGB", (8, 8), (50 * number, 0, 0)).save(folder / name)
        (folder / "labels.json").write_text(json.dumps(classes))
    return dict(sorted(classes.items()))


@pytest.mark.usefixtures("labelled")
class TestKindOfThePage(SourceConformance):
    def open(self, folder: Path) -> Source:
        _write_labelled(folder)
        return open_source(folder)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(name, (folder / name).read_bytes()) for name in _write_labelled(folder)]

    def change(self, folder: Path) -> bool:
        with (folder / "a.png").open("ab") as file:
            file.write(b"more")
        return True

    def test_is_packed(self, tmp_path: Path) -> None:
        """By the command, which detects its kind; and what is wrong is refused with the file that it is in."""
        classes = _write_labelled(tmp_path)
        ran = run_here("pack", "-q", "--workers", 0, tmp_path, tmp_path.with_name("store"))
        assert (ran.code, ran.err) == (0, ""), ran
        reader = Reader(tmp_path.with_name("store"))
        assert [reader.classes[reader[n]["label"]] for n in range(3)] == [*classes.values()]
        (tmp_path / "labels.json").write_text("[]")
        with pytest.raises(UsageError, match=r"labels\.json is not an object of file names and classes"):
            open_source(tmp_path)


class Swapped(TapeSource):
    """In the byte order that this machine has not."""

    def __getitem__(self, i: int, /) -> Item:
        item = super().__getitem__(i)
        image, *values = (
            value.astype(value.dtype.newbyteorder()) for value in map(np.asarray, (item.image, *item.fields.values()))
        )
        return Item(item.key, image, dict(zip(item.fields, values, strict=True)))


@pytest.mark.parametrize(("layout", "size"), [("memmap", "8x10"), ("hdf5", "keep")])
def test_a_source_may_have_any_byte_order(layout: str, size: str, tmp_path: Path) -> None:
    """Images, masks and numbers are the same values whichever byte comes first in them."""
    options: dict[str, Any] = {"format": layout, "size": size, "workers": 0, "max_rejects": 1}
    for kind in (TapeSource, Swapped):
        rawpack_packer.pack(kind(write_tape(tmp_path / "a.tape")), tmp_path / kind.__name__, **options)
    for one, other in zip(Reader(tmp_path / "TapeSource"), Reader(tmp_path / "Swapped"), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("image", "mask", "at"))


class Shaky(TapeSource):
    """Its frames cannot be read from the fourth on, which its author did not think of."""

    def __getitem__(self, i: int, /) -> Item:
        if self._range[i] >= 3:
            raise ValueError("the tape is torn")
        return super().__getitem__(i)


def test_what_a_source_raises_is_its_own_error(tmp_path: Path) -> None:
    """It ends the run with its traceback, rather than as a fault of rawpack."""
    with pytest.raises(PackError, match=r"failed: ValueError\('the tape is torn'\)(?s:.)*in __getitem__"):
        rawpack_packer.pack(Shaky(write_tape(tmp_path / "a.tape")), tmp_path / "store", workers=1)


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
