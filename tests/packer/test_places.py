"""Where stores go: where only a folder will do, a URL is refused by name, and a file:// URL is its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rawpack
from rawpack import Reader, UsageError

IMAGES = np.arange(4 * 8 * 8 * 3, dtype=np.uint8).reshape(4, 8, 8, 3)
MAKES: dict[str, Callable[[str], object]] = {
    "convert": lambda place: rawpack.convert("store", place, workers=0),
    "merge": lambda place: rawpack.merge(["store", "store"], place, prefix="numbers", workers=0),
    "subset": lambda place: rawpack.subset("store", place, limit=2, workers=0),
    "export": lambda place: rawpack.export("store", place),
    "pack": lambda place: rawpack.pack(IMAGES, place, workers=0),
    "pack_splits": lambda place: rawpack.pack_splits(IMAGES, place, holdout={"val": 1}, workers=0),
}
"""What makes a folder."""
CHANGES: dict[str, Callable[[str], object]] = {
    "append": lambda place: rawpack.append(IMAGES, place, workers=0),
    "relabel": lambda place: rawpack.relabel(place, "scores.csv"),
}
"""What changes a store."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a store."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    rawpack.pack(IMAGES, "store", workers=0)
    Path("scores.csv").write_text("key,score\n" + "".join(f"{i:08d},{i}.5\n" for i in range(4)))
    return here


@pytest.mark.parametrize("name", [name for name in (MAKES | CHANGES) if name != "pack"])
def test_a_url_is_refused_and_becomes_no_folder(here: Path, name: str) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(UsageError, match=r"s3://bucket/out is a URL: .* folder"):
        (MAKES | CHANGES)[name]("s3://bucket/out")
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("name", MAKES)
def test_a_file_url_is_its_folder(here: Path, tmp_path: Path, name: str) -> None:
    """As where stores are read: the folder that the URL names is made, with a blank in its name, and no other."""
    before = sorted(here.iterdir())
    MAKES[name](f"file://{tmp_path}/made%20here")
    assert any((tmp_path / "made here").iterdir())
    assert sorted(here.iterdir()) == before


def test_a_store_at_a_file_url_is_read_and_changed(here: Path, tmp_path: Path) -> None:
    url = f"file://{here}/store"
    rawpack.convert(url, tmp_path / "made", workers=0)
    rawpack.merge([url, "store"], tmp_path / "both", prefix="numbers", workers=0)
    assert (len(Reader(tmp_path / "made")), len(Reader(tmp_path / "both"))) == (4, 8)
    CHANGES["relabel"](url)
    assert Reader("store").column("score").tolist() == [0.5, 1.5, 2.5, 3.5]
    rawpack.append({"image": IMAGES, "score": np.ones(4)}, url, workers=0)
    assert len(Reader("store")) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("layout", ["hdf5", "lmdb"])
def test_a_folder_whose_name_is_no_utf_8(tmp_path: Path, layout: str) -> None:
    """Everything works in it: packing, checking, appending, new labels, another store, files, tables, and an LMDB as a
    source."""
    folder = tmp_path / os.fsdecode(b"st\xffore")
    rawpack.pack(IMAGES, folder, format=layout, workers=1)
    assert len(Reader(folder)) == 4
    assert rawpack.verify(folder) == []
    rawpack.append(IMAGES, folder, workers=1)
    table = tmp_path / "scores.csv"
    table.write_text("key,score\n" + "".join(f"{i:08d},{i}.5\n" for i in range(8)))
    rawpack.relabel(folder, table, stale_copies=True)
    assert len(rawpack.verify(folder)) == 0
    below = folder.with_name(f"{folder.name} below")
    assert rawpack.convert(folder, below / "made", format="lmdb", workers=1).manifest.samples == 8
    assert rawpack.export(folder, below / "files").samples == 8
    if find_spec("pyarrow"):
        assert rawpack.export(folder, below / "tables", to="parquet").samples == 8
    (shard,) = (below / "made").glob("*.lmdb")
    shard.rename(below / "alone.lmdb")
    assert rawpack.pack(below / "alone.lmdb", below / "again", workers=1).manifest.samples == 8
