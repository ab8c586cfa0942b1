"""A third party's format and encoding, added as CONTRIBUTING.md says and in no other way, do all that
rawpack's own do."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from folders import files_of
from pictures import Pixels
from running import environment, run_command, run_here

import rawpack_packer
from rawpack import Reader, StoreError
from rawpack.disk import tables
from rawpack_packer.testing import FormatConformance

TOY = Path(__file__).parents[1] / "support" / "toy"


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """The package of the toy format, as pip would install it: a folder on the path with its entry points."""
    tables.added.cache_clear()
    sys.path.insert(0, str(TOY))
    yield
    sys.path.remove(str(TOY))
    tables.added.cache_clear()


def by_hand(store: Path) -> Iterator[bytes]:
    """The images of a toy store, decoded as its few lines of documentation say."""
    columns = store / "columns-1"
    places = zip(*(np.load(columns / f"image.{what}.npy").tolist() for what in ("offset", "bytes")), strict=True)
    shards = [path.read_bytes() for path in sorted(store.glob("shard-*.toy"))]
    number, before = -1, sys.maxsize
    for offset, size in places:
        if offset < before:  # offsets begin anew in each shard
            number += 1
        before = offset
        stored = shards[number][offset : offset + size]
        yield b"".join(bytes([value]) * count for count, value in zip(stored[::2], stored[1::2], strict=True))


class TestToy(FormatConformance):
    """The toy keeps the promises of every format."""

    def pack(self, images: Sequence[Pixels], folder: Path) -> Path:
        kind = None if len({image.shape for image in images}) == 1 else ("uint8", (None, None, 3))
        samples = [{"image": image} for image in images]
        rawpack_packer.pack(samples, folder / "store", format="toy", image=kind, shard_size="1", workers=0)
        return folder / "store"

    def read_back(self, store: Path) -> Iterator[Pixels]:
        shapes = store / "columns-1" / "image.shape.npy"
        one = json.loads((store / "store.json").read_text())["fields"]["image"]["shape"]
        each = np.load(shapes).tolist() if shapes.exists() else itertools.repeat(one)
        for values, shape in zip(by_hand(store), each, strict=False):
            yield np.frombuffer(values, np.uint8).reshape(shape)


@pytest.fixture(scope="module")
def store(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the toy format, packed by the command with two workers."""
    path = tmp_path_factory.mktemp("toy") / "store"
    options = ("--quiet", "--format", "toy", "--size", 32, "--shard-size", 1, "--workers", 2)
    python_path = os.pathsep.join([environment()["PYTHONPATH"], str(TOY)])
    ran = run_command("pack", *options, images, path, PYTHONPATH=python_path)
    assert (ran.code, ran.err) == (0, "")
    return path


def test_the_command_packs_and_describes_it(store: Path) -> None:
    """`rawpack pack --format toy` makes shards of the toy's own kind in workers of a process that has the toy on its
    path, and `rawpack inspect` tells its encoding."""
    assert {path.suffix for path in store.glob("shard-*")} == {".toy"}
    ran = run_here("inspect", store)
    assert ran.code == 0
    assert "toy" in ran.out
    assert "runs" in ran.out


def test_it_converts_to_other_formats_and_back(store: Path, images: Path, tmp_path: Path) -> None:
    """A toy store converts to memmap with the same pixels, and back to the same shards."""
    rawpack_packer.convert(store, tmp_path / "memmap", format="memmap", workers=0)
    rawpack_packer.convert(tmp_path / "memmap", tmp_path / "toy", format="toy", workers=0)
    toy, memmap = Reader(store), Reader(tmp_path / "memmap")
    for i in range(len(toy)):
        np.testing.assert_array_equal(toy[i]["image"], memmap[i]["image"])
    shards = {name: data for name, data in files_of(store).items() if name.startswith("shard")}
    assert {name: data for name, data in files_of(tmp_path / "toy").items() if name.startswith("shard")} == shards


def test_without_its_package_a_store_says_what_is_missing(
    images: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the toy is not installed, reading and packing name it and the cure, in one line."""
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(TOY)])
    monkeypatch.setattr(tables, "added", tables.added.__wrapped__)
    ran = run_here("inspect", store)
    assert ran.code != 0
    assert "the format 'toy' is unknown" in ran.out + ran.err
    assert "install the package that adds it" in ran.out + ran.err
    ran = run_here("pack", "--format", "toy", images, store.parent / "never")
    assert ran.code == 2
    assert "'toy'" in ran.err


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken package of a format is an error of rawpack's that names the package's module."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rawpack.formats]\nbroken = no_such_module:FORMAT\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StoreError, match="no_such_module:FORMAT"):
        tables.format_of("broken")
