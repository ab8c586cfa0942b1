"""Workers that have no part of their own prepare pieces of those that others pack: nothing but the time changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from folders import rejects_of, settled
from pictures import linked
from reading import wait_until
from running import FORMATS, pack, run_here
from troubled import die, opening

from rawpack.errors import PackError
from rawpack_packer.destination import lock
from rawpack_packer.part import PartTask, read_record, run_part
from rawpack_packer.part.pieces import PiecesAhead, make_piece, starts
from rawpack_packer.recipe import make_recipe
from rawpack_packer.recipe.fields import made_here, store_fields
from rawpack_packer.sources import open_source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs worker processes")

COUNT = 150
ONE_PART = ("--size", "32", "--max-rejects", "20")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 files, five of them no images: less than one part."""
    return linked(tmp_path_factory.mktemp("pieces") / "source", COUNT - 5, (50, 60), bad=range(0, 100, 20))


def noted(notes: Path, processes: int) -> Callable[[int], None]:
    """Which process reads which sample is written down; each waits at its first until so many have come to theirs."""

    def trouble(number: int) -> None:
        with (notes / str(os.getpid())).open("a") as file:
            file.write(f"{number}\n")
        wait_until(lambda: len(list(notes.iterdir())) >= processes, f"{processes} processes have begun")

    return trouble


@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
def test_one_part_is_prepared_by_all_workers(source: Path, tmp_path: Path, layout: str) -> None:
    """Three workers share one part, and its bytes are those that one alone makes; rejects too."""
    undisturbed = settled(pack(source, tmp_path / "alone", *ONE_PART, *FORMATS[layout]))
    notes, store = tmp_path / "notes", tmp_path / "store"
    notes.mkdir()
    with opening(noted(notes, 3)):
        ran = run_here("pack", "--quiet", "--workers", 3, *ONE_PART, *FORMATS[layout], source, store)
    assert (ran.code, ran.err) == (0, "")
    read = {path.name: [int(line) for line in path.read_text().splitlines()] for path in notes.iterdir()}
    assert len(read) == 3
    assert {number for numbers in read.values() for number in numbers} == set(range(COUNT))
    # At most the pieces where they meet are prepared twice.
    assert sum(map(len, read.values())) <= COUNT + 3 * 8
    assert settled(store) == undisturbed


def test_helpers_that_die_change_nothing(source: Path, tmp_path: Path) -> None:
    """A sample that kills the helper kills the packing worker later, and costs itself."""
    notes = tmp_path / "notes"
    notes.mkdir()
    shared = noted(notes, 2)

    def trouble(number: int) -> None:
        shared(number)
        if number == 140:
            die()

    with opening(trouble):
        ran = run_here("pack", "--quiet", "--workers", 2, *ONE_PART, source, tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    assert [one["sample"] for one in rejects_of(tmp_path / "store") if one["reason"] == "crashed"] == [140]


def test_a_piece_that_is_torn_is_not_believed(source: Path, tmp_path: Path) -> None:
    """Cut short or changed, or of another run: its samples are prepared again."""
    (tmp_path / ".rawpack").mkdir()
    opened, recipe = open_source(str(source)), make_recipe(size="32")
    samples, fields = opened.part(0, COUNT), store_fields(recipe, opened)
    task = PartTask(0, 0, samples, recipe, fields, str(tmp_path), token="abc")
    first = starts(task)[2]
    for damage in (lambda data: data, lambda data: data[:-3], lambda data: bytes([data[0] ^ 1]) + data[1:]):
        assert make_piece(task, first)
        (piece,) = (tmp_path / ".rawpack").iterdir()
        whole = piece.read_bytes()
        piece.write_bytes(damage(whole))
        assert (PiecesAhead(task).take(first) is not None) == (damage(whole) == whole)
        assert not piece.exists()
    assert make_piece(task, first)
    stranger = PartTask(0, 0, samples, recipe, fields, str(tmp_path), token="xyz")
    assert PiecesAhead(stranger).take(first) is None
    with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1 << 20)):
        assert not make_piece(task, first)


def test_a_part_whose_run_has_ended_is_not_done(source: Path, tmp_path: Path) -> None:
    """A worker whose run ends while its shard gets its name writes no record: the next run packs the part."""
    (tmp_path / ".rawpack").mkdir()
    opened, token = open_source(str(source)), lock.begin_token(tmp_path)
    recipe = made_here(make_recipe(size="32"), opened)
    task = PartTask(0, 0, opened.part(0, 5), recipe, store_fields(recipe, opened), str(tmp_path), run=token)

    def commit(temporary: Path, final: Path) -> None:
        temporary.replace(final)
        lock.end_token(tmp_path)

    with mock.patch("rawpack_packer.part.files.commit", commit), pytest.raises(PackError, match="has ended"):
        run_part(task, lambda _: None, lambda _: None)
    assert read_record(tmp_path, 0) is None
