"""A leading `~` in a path that a user typed is the home folder, in every function and every option."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
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
    "engine_timeout",
    "episodes", "every", "fast", "field", "fields", "fit", "format", "fps", "frame_step", "group_by", "holdout", "host",
    "image",
    "image_column", "image_size", "interpolation", "jpeg_tables", "keep_labels", "label_depth",
    "key_column", "key_pattern", "keys",
    "kind", "label_column", "length",
    "limit", "max_frames", "max_pixels", "max_rejects",  "memory", "names", "numbered", "other_libraries",
    "options", "path_column", "per_class", "port",
    "prefix", "preload", "progress", "quality", "reader", "quick", "restart", "rounds", "rows",
    "say", "seconds", "seed", "shard_size", "size", "skip_existing", "skip_unknown", "skip_unreadable", "source_kind",
    "split", "split_by", "splits", "stale_copies", "start", "state",
    "storage_options", "strict", "subsampling", "target",
    "tick", "timeout", "to", "transform", "verify", "where", "workers",
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


def functions() -> Iterator[tuple[str, Any]]:
    """All public functions and constructors."""
    for name in rawpack.__all__:
        found = getattr(rawpack, name)
        if inspect.isfunction(found):
            yield name, found
    yield "Reader", Reader
    yield "Reader.mix", Reader.mix


def path_parameters() -> list[tuple[str, Any, str, dict[str, Any]]]:
    """Every parameter of a public function that takes a path: function, parameter, and values for the others."""
    found = []
    for name, function in functions():
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


def test_a_store_in_the_home_folder(home: Path) -> None:
    """Packing to `~/store` fills the folder that the shell would, for str and Path, and so does reading it; no folder
    called `~` appears."""
    rawpack.pack("~/photos", "~/store", size=16, workers=0)
    assert (home / "store" / "store.json").is_file()
    rawpack.pack_splits({"train": "~/photos", "val": Path("~/photos")}, "~/set", size=16, workers=0)
    rawpack.merge(["~/set/train", Path("~/set/val")], "~/both", prefix="names", workers=0)
    rawpack.export("~/both", "~/files")
    assert rawpack.describe("~/store")["samples"] == 6
    assert len(Reader(Path("~/set"), split="val")) == 6
    assert len(Reader(["~/store", Path("~/both")])) == 18
    assert len(Reader.mix({"~/store": 1, "~/both": 1})) > 0
    assert list((home / "files").rglob("*.png"))


def test_the_cache_and_checkpoints_in_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of fetched files, given to a reader or by RAWPACK_CACHE, and that of checkpoints, which Keras does not
    expand either."""
    assert CacheFolder("~/fetched").folder == home / "fetched"
    monkeypatch.setenv("RAWPACK_CACHE", "~/elsewhere")
    assert CacheFolder().folder == home / "elsewhere"
    with pytest.raises(UsageError, match="there is no user 'no-such-user'"):
        KerasBatches.checkpoint(None, NOBODY, None)  # type: ignore[arg-type]


def test_without_a_home_folder_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing tells the home folder, as in a container under another user, the message names what is missing."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("RAWPACK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    with pytest.raises(UsageError, match=r"~/store: your home folder is not known: set HOME"):
        Reader("~/store")
    with pytest.raises(UsageError, match=r"the cache ~/\.cache/rawpack cannot be used: your home folder is not known"):
        CacheFolder()


def test_what_is_not_a_user_s_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `~` in the lines of a listing, in URLs, or in the middle of a path is a letter like any other; a folder whose
    name begins with it is reached by `./~name`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("~odd/a/0.png", "~odd/b~/~1.png"):
        save(tmp_path / name, picture(16, 16, 3))
    (tmp_path / "list.csv").write_text("path,label\n~odd/a/0.png,1\n~odd/b~/~1.png,2\n")
    rawpack.pack("./~odd", "~/store", size=16, workers=0)
    assert list(Reader("~/store").column("key")) == ["a/0.png", "b~/~1.png"]
    rawpack.pack("list.csv", "listed", size=16, workers=0)
    assert list(Reader("listed").column("key")) == ["~odd/a/0.png", "~odd/b~/~1.png"]
    rawpack.pack(["./~odd/a/0.png"], "one", size=16, workers=0)
    np.testing.assert_array_equal(Reader("one")[0]["image"], Reader("listed")[0]["image"])
