"""Paths as users give them, in every function and every option: a leading `~` is the home folder, a file:// URL its
folder, and other URLs are refused by name where only a folder will do."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pytest
from pictures import picture, save

import rawpack
from rawpack import Reader, UsageError
from rawpack.integrations.keras import KerasBatches
from rawpack.remote.cache import CacheFolder
from rawpack_packer.cli import cli

NO_PATHS = {
    "address", "array", "batch", "batches", "begin", "budget", "cache_bytes", "check", "chunk", "classes", "cold",
    "color", "columns", "compression", "crop", "curate", "depth", "disk", "drop_last", "end", "engine",
    "engine_timeout", "episodes", "every", "fast", "field", "fields", "fit", "format", "fps", "frame_step", "group_by",
    "holdout", "host", "image", "image_column", "image_size", "interpolation", "jpeg_tables", "keep_labels",
    "key_column", "key_pattern", "keys", "kind", "label_column", "label_depth", "length", "limit", "max_frames",
    "max_pixels", "max_rejects", "memory", "names", "numbered", "options", "other_libraries", "path_column",
    "per_class", "port", "prefix", "preload", "progress", "quality", "quick", "reader", "restart", "rounds", "rows",
    "say", "seconds", "seed", "shard_size", "size", "skip_existing", "skip_unknown", "skip_unreadable", "source_kind",
    "split", "split_by", "splits", "stale_copies", "start", "state", "storage_options", "strict", "subsampling",
    "target", "tick", "timeout", "to", "transform", "verify", "where", "workers",
}  # fmt: skip
"""Parameters that are no paths, by their names; so is `classes`, where its type has no PathLike."""
PATH_TYPE = re.compile(r"\b(PathLike|Path|Named|Data|StorePath)\b")
NOBODY = "~no-such-user/x"
STORE_AT_URL = "http://127.0.0.1:9/store"
"""Where a parameter applies to URLs only. Nothing listens there, and nobody asks."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder with a few photos in it, and another folder as the current one, which must stay empty."""
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    for i in range(6):
        save(home / "photos" / "ab"[i % 2] / f"{i}.png", picture(16, 16, i))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    yield home
    assert not list(here.iterdir())


def path_parameters() -> list[tuple[str, Any, str, dict[str, Any]]]:
    """Every parameter of a public function that takes a path: function, parameter, and values for the others."""
    found, public = [], {name: getattr(rawpack, name) for name in rawpack.__all__}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    for name, function in (functions | {"Reader": Reader, "Reader.mix": Reader.mix}).items():
        parameters = inspect.signature(function).parameters.values()
        for one in parameters:
            if not PATH_TYPE.search(str(one.annotation)):
                assert one.name in NO_PATHS, f"{name}({one.name}=): a path? Its type has to say so, or NO_PATHS"
                continue
            needed: dict[str, Any] = {p.name: "x" for p in parameters if p.default is p.empty}
            if one.name == "cache":
                needed |= {key: [STORE_AT_URL] if key == "stores" else STORE_AT_URL for key in needed}
            if name == "Reader.mix":
                needed["stores"] = {STORE_AT_URL: 1.0}
            found.append((name, function, one.name, needed))
    return found


@pytest.mark.parametrize(
    ("function", "parameter", "needed"),
    [pytest.param(call, one, needed, id=f"{name}-{one}") for name, call, one, needed in path_parameters()],
)
def test_every_path_of_every_function_is_expanded(
    function: Any, parameter: str, needed: dict[str, Any], home: Path
) -> None:
    """`~name` of an unknown user is an error in each parameter that takes a path, before anything is done."""
    values: list[Any] = [NOBODY, Path(NOBODY)]
    if parameter == "stores":
        values = [[NOBODY, "x"], ["x", Path(NOBODY)]] if "mix" not in str(function) else [{NOBODY: 1.0}]
    for value in values:
        with pytest.raises(UsageError, match=r"~no-such-user/x: there is no user 'no-such-user'; .*'\./~no-such-user"):
            function(**needed | {parameter: value})


def options() -> list[tuple[str, click.Parameter]]:
    """All arguments and options of all commands."""
    ctx = click.Context(cli)
    commands = [cli.get_command(ctx, name) for name in cli.list_commands(ctx)]
    return [(str(one.name), param) for one in commands if one is not None for param in one.params]


def test_every_path_of_every_command_is_expanded(home: Path) -> None:
    """`~` is the home folder in each argument and option that takes a path, also after `=`, where no shell looks."""
    for command, option in options():
        if isinstance(option.type, click.Path):
            assert option.type.convert("~/a b", option, None) == str(home / "a b"), (command, option.opts)
        elif isinstance(option.type, type(click.STRING)):
            names = {str(option.name), *(name.strip("-").replace("-", "_") for name in option.opts)}
            metavar = getattr(option, "metavar", None) or ""
            assert names & (NO_PATHS | {"path", "transforms"}), f"{command} {option.opts}: a path? Make it a UserPath"
            assert not re.search(r"FILE|DIR|FOLDER", metavar), (command, option.opts)


def test_a_store_in_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing to `~/store` fills the folder that the shell would, for str and Path, and so does reading it; no folder
    called `~` appears. So it is of the cache, and of checkpoints, which Keras does not expand either."""
    rawpack.pack("~/photos", "~/store", size=16, workers=0)
    assert (home / "store" / "store.json").is_file()
    rawpack.pack_splits({"train": "~/photos", "val": Path("~/photos")}, "~/set", size=16, workers=0)
    rawpack.merge(["~/set/train", Path("~/set/val")], "~/both", prefix="names", workers=0)
    rawpack.export("~/both", "~/files")
    assert rawpack.describe("~/store")["samples"] == 6
    assert len(Reader(["~/store", Path("~/both")])) == 18
    assert list((home / "files").rglob("*.png"))
    assert CacheFolder("~/fetched").folder == home / "fetched"
    monkeypatch.setenv("RAWPACK_CACHE", "~/elsewhere")
    assert CacheFolder().folder == home / "elsewhere"
    with pytest.raises(UsageError, match="there is no user 'no-such-user'"):
        KerasBatches.checkpoint(None, NOBODY, None)  # type: ignore[arg-type]


def test_without_a_home_folder_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing tells the home folder, as in a container under another user, the message names what is missing."""
    for name in ("HOME", "RAWPACK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    with pytest.raises(UsageError, match=r"~/store: your home folder is not known: set HOME"):
        Reader("~/store")
    with pytest.raises(UsageError, match=r"the cache ~/\.cache/rawpack cannot be used: your home folder is not known"):
        CacheFolder()


# ---------------------------------------------------------------------------------------------- URLs

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
    "relabel": lambda place: rawpack.relabel(place, scores(4)),
}
"""What changes a store."""


def scores(count: int) -> pa.Table:
    return pa.table({"key": [f"{i:08d}" for i in range(count)], "score": np.ones(count)})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a store."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    rawpack.pack(IMAGES, "store", workers=0)
    return here


@pytest.mark.parametrize("name", MAKES | CHANGES)
def test_a_file_url_is_its_folder_and_no_other_url_becomes_one(here: Path, tmp_path: Path, name: str) -> None:
    """As where stores are read: the folder that the URL names is made, with a blank in its name, and no other."""
    before = sorted(here.iterdir())
    if name != "pack":
        with pytest.raises(UsageError, match=r"s3://bucket/out is a URL: .* folder"):
            (MAKES | CHANGES)[name]("s3://bucket/out")
    if name in MAKES:
        MAKES[name](f"file://{tmp_path}/made%20here")
        assert any((tmp_path / "made here").iterdir())
    assert sorted(here.iterdir()) == before


def test_a_store_at_a_file_url_is_read_and_changed(here: Path, tmp_path: Path) -> None:
    """In every function, alone and beside a path."""
    url = f"file://{here}/store"
    rawpack.convert(url, tmp_path / "made", workers=0)
    rawpack.merge([url, "store"], tmp_path / "both", prefix="numbers", workers=0)
    assert (len(Reader(tmp_path / "made")), len(Reader(tmp_path / "both"))) == (4, 8)
    CHANGES["relabel"](url)
    assert Reader("store").column("score").tolist() == [1] * 4
    rawpack.append({"image": IMAGES, "score": np.ones(4)}, url, workers=0)
    assert len(Reader("store")) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("layout", ["hdf5", "lmdb"])
def test_a_folder_whose_name_is_no_utf_8(tmp_path: Path, layout: str) -> None:
    """Everything works in it: packing, checking, appending, new labels, another store, files, tables, and an LMDB as a
    source."""
    folder = tmp_path / os.fsdecode(b"st\xffore")
    rawpack.pack(IMAGES, folder, format=layout, workers=1)
    rawpack.append(IMAGES, folder, workers=1)
    rawpack.relabel(folder, scores(8), stale_copies=True)
    assert (rawpack.verify(folder), len(Reader(folder))) == ([], 8)
    below = folder.with_name(f"{folder.name} below")
    assert rawpack.convert(folder, below / "made", format="lmdb", workers=1).manifest.samples == 8
    for to in ("files", "parquet"):
        assert rawpack.export(folder, below / to, to=to).samples == 8
    (shard,) = (below / "made").glob("*.lmdb")
    shard.rename(below / "alone.lmdb")
    assert rawpack.pack(below / "alone.lmdb", below / "again", workers=1).manifest.samples == 8
