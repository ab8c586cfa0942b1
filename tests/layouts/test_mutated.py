"""Whatever is wrong with a source of any kind, its user sees an error of rawpack's, and no sample is lost unseen."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import every_kind
import numpy as np
import pytest
from cases import Case, prepare
from cases_pages import CASES
from causes import accident
from folders import files_of, rejects_of
from mutated import VALUES, mutated

import rawpack_packer
from rawpack import RawpackError, Reader
from rawpack.errors import DecodeError
from rawpack_packer.sources import Source, open_source

Made = tuple[Path, dict[str, Any]]
"""What is packed, and by which options."""


def _of_page(case: Case, folder: Path) -> Made:
    prepare(case, folder)
    return Path(case.path or ""), dict(case.options)


def _of_kind(kind: str, folder: Path) -> Made:
    """With labels that are numbers where a kind has only these."""
    labels = [1, 0, 1] if kind in ("yolo", "recordio") else ["dog", "cat", "dog"]
    files = every_kind.pictures("0.png", "1.png", "2.png")
    if kind not in every_kind.TABLES:
        return every_kind.made(kind, folder, labels, files), {}
    columns = {"label": labels, "hens": [3, 4, 5], "weight": [1.5, 2.5, 3.5], "text": ["a", "b", "c"]}
    return every_kind.TABLES[kind](folder, columns, files), {}


_OPTIONS = re.compile(": (one split|with its options)$")
SOURCES: dict[str, Callable[[Path], Made]] = {
    **{
        re.sub(r"\W+", "-", _OPTIONS.sub("", case.name)): partial(_of_page, case)  # the last of each has its options
        for case in CASES["pages"]
        if case.path is not None
    },
    **{kind: partial(_of_kind, kind) for kind in (*every_kind.TABLES, *every_kind.OTHERS) if kind != "columns"},
}
_SLOW = re.compile("HDF5|hdf5|h5|video|UCF|LeRobot|LMDB|lmdb")
"""Sources that are looked at in child processes, which take a second to start: in each run, only their kinds are."""


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        *((name, 2) for name in SOURCES if not _SLOW.search(name)),
        *((name, 1) for name in ("hdf5", "video", "lmdb")),
        *(pytest.param(name, 300, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]) for name in SOURCES),
    ],
)
def test_a_mutated_source(name: str, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of each kind with other bytes, values and columns: packed, rejected or counted, or refused by an error of
    rawpack's, whose causes are those of libraries and of checks."""
    (tmp_path / "sound").mkdir()
    monkeypatch.chdir(tmp_path / "sound")
    path, options = SOURCES[name](tmp_path / "sound")
    sound = files_of(tmp_path / "sound")
    for number in range(rounds):
        seed = f"{name} {number}"
        print(seed)  # what pytest shows of a test that fails
        draw = random.Random(seed)
        changed = _drawn(sorted(sound), draw)
        (tmp_path / "sound" / changed).write_bytes(mutated(changed, sound[changed], draw))
        _check(path, options, tmp_path / "store")
        (tmp_path / "sound" / changed).write_bytes(sound[changed])
        shutil.rmtree(tmp_path / "store", ignore_errors=True)


@pytest.mark.parametrize("rounds", [60, pytest.param(3000, marks=pytest.mark.soak)])
def test_mutated_columns(rounds: int, tmp_path: Path) -> None:
    """Columns in memory, with other values in them or instead of them."""
    images = every_kind.pictures("0.png", "1.png", "2.png")
    for number in range(rounds):
        print(number)
        draw, sound = random.Random(number), {"label": [1, 0, 1], "hens": [3, 4, 5], "text": ["a", "b", "c"]}
        columns = every_kind.rows_of_columns(tmp_path, sound, images)
        name, new = draw.choice(sorted(columns)), draw.choice([*VALUES, b"\xff", np.array(2**64 - 1, np.uint64), 1j])
        columns[name] = draw.choice([new, [new] * 3, [*columns[name][:2], new], np.array([0.5, np.nan, np.inf])])
        _check(columns, {}, tmp_path / "store")
        shutil.rmtree(tmp_path / "store", ignore_errors=True)


def _drawn(names: list[str], draw: random.Random) -> str:
    """A file, which is most often not an image: what is read of these is tested elsewhere."""
    others = [name for name in names if not name.endswith((".png", ".jpg"))]
    return draw.choice(others if others and draw.random() < 0.8 else names)


def _check(source: Any, options: dict[str, Any], store: Path) -> None:
    """Packs it. Raises AssertionError, or what should never come to the user."""
    try:
        rawpack_packer.pack(source, store, size=8, workers=0, max_rejects=10**6, **options)
    except RawpackError as error:
        _check_causes(error)
        return
    if not isinstance(source, Path):
        assert len(Reader(store)) + len(rejects_of(store)) == 3
        return
    opened: Source = open_source(source, **options)
    assert len(Reader(store)) + len(rejects_of(store)) == len(opened)
    for i in range(len(opened)):
        try:
            opened[i]
        except DecodeError as error:
            _check_causes(error)


def _check_causes(error: RawpackError) -> None:
    """What an error was raised for is no fault of our own code."""
    assert (cause := accident(error)) is None, f"{error!r} hides {cause!r}"
