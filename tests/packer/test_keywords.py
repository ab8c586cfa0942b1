"""The keywords of `pack` and its like: type checkers and typos, and errors in the words of the caller."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest import mock

import msgspec
import numpy as np
import pytest
from pictures import encoded, picture, save
from running import run_here

import rawpack
import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack.transforms import RandomCrop
from rawpack_packer import text
from rawpack_packer.cli import cli
from rawpack_packer.job import NoProgress, derive
from rawpack_packer.job.keyword_types import RecipeKeywords, RunKeywords, SourceKeywords
from rawpack_packer.job.keywords import names_of
from rawpack_packer.options import KINDS as NAMED
from rawpack_packer.options import OPTIONS as TABLE
from rawpack_packer.recipe import Recipe, parse_options
from rawpack_packer.sources import KINDS

ROOT = Path(__file__).resolve().parents[2]
PACKER = ROOT / "packer" / "rawpack_packer"
IMAGES = np.zeros((3, 8, 8, 3), np.uint8)


def test_type_checkers_see_misspelled_keywords_and_values(tmp_path: Path) -> None:
    """An editor underlines a keyword or a value that does not exist, and accepts what is right."""
    pytest.importorskip("mypy")
    (tmp_path / "code.py").write_text(
        "from rawpack_packer import append, convert, pack, pack_splits\n"
        "pack('a', 'b', format='memmap', size=256, crop=(0, 0, 9, 9), quality='keep', fields={'b': 'xyxy'})\n"
        "append('a', 'b', skip_existing=True, workers=0)\n"
        "pack('a', 'b', format='memmap', size=256, qualty=90)\n"
        "pack_splits('a', 'b', size='kepe')\n"
        "append('a', 'b', size=3)\n"
        "convert('a', 'b', color='grey')\n"
    )
    # Only the modules that say what the functions take: all that they import would take 20 s.
    modules = [f"rawpack_packer{name}" for name in ("", ".api", ".job.keywords", ".job.keyword_types")]
    words = [word for name in (*modules, "code") for word in ("-m", name)]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir=/dev/null", "--follow-imports=skip", *words],
        cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT / "packer")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = re.findall(r"^code\.py:(\d+): error: ", ran.stdout, re.MULTILINE)
    assert lines == ["4", "5", "6", "7"], ran.stdout + ran.stderr


def words_in(type_: Any) -> set[str]:
    """The texts that a type names, at any depth."""
    return {type_} if isinstance(type_, str) else {word for one in get_args(type_) for word in words_in(one)}


def test_what_types_say_is_what_is_taken() -> None:
    """Types list every entry of a recipe that a user decides, all options of sources, and exactly the values that are
    accepted."""
    entries = {field.name: field for field in msgspec.structs.fields(Recipe)}
    assert names_of(RecipeKeywords) == set(entries) - {"libraries", "origin", "sizes"}
    options = {option for kind in KINDS.values() for option in kind.options}
    assert names_of(SourceKeywords) == {"kind", "fields", "image", "classes", "keys", "names", "limit", *options}
    assert set(NAMED) == set(KINDS), "KINDS of options/table.py names the rows of sources/registry.py"
    hints = get_type_hints(RecipeKeywords)
    for name in ("fit", "interpolation", "color", "check", "subsampling"):
        also = TABLE[name].also
        assert words_in(hints[name]) == {also.get(word, word) for word in words_in(entries[name].type)}, name
    assert parse_options({"interpolation": "bicubic"})["interpolation"] == "cubic"
    assert parse_options({"format": "lmdb", "subsampling": 444})["subsampling"] == "444"
    assert set(derive.PREFIXES) == set(get_args(derive.Prefix))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda at: rawpack_packer.pack(IMAGES, at, qualty=90), TypeError, "'qualty'. Did you mean 'quality'"),
        (lambda at: rawpack_packer.append(IMAGES, at, skip_exiting=True), TypeError, "Did you mean 'skip_existing'"),
        (lambda at: rawpack_packer.export("store", at, number=True), TypeError, "Did you mean 'numbered'"),
        (lambda at: rawpack.plan(at.parent, buget=60), TypeError, "Did you mean 'budget'?"),
        (lambda at: rawpack_packer.pack(IMAGES, at, num_workers=2), TypeError, "Did you mean 'workers'"),
        (lambda at: rawpack_packer.pack(IMAGES, at, holdout={"val": 0.1}), TypeError,
         "has no keyword 'holdout': use rawpack.pack_splits"),
        (lambda at: rawpack_packer.append(IMAGES, at, size=3), UsageError,
         "size=: the store says how samples are packed"),
        (lambda at: rawpack_packer.pack(IMAGES, at, workers="two"), UsageError,
         "workers='two' must be a whole number >= 0"),
        (lambda at: rawpack_packer.pack(IMAGES, at, format="lmbd"), UsageError, "format='lmbd': must be one of"),
        (lambda at: rawpack_packer.pack(IMAGES, at, shard_size="--size 5"), UsageError, "shard_size='--size 5': "),
        (lambda at: rawpack_packer.pack_splits(IMAGES, at, holdout=0.1), UsageError,
         "holdout=0.1: must be a dict, such as {'val': 0.1}"),
        (lambda at: rawpack.plan(at.parent, budget="soon"), UsageError, "budget='soon': a time such as"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_the_call(call: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    """A typo is a TypeError that names the nearest keyword; a value of a wrong type, or of a keyword that is another
    function's, is refused with what is right. Nothing is written."""
    with pytest.raises(error, match=re.escape(words)):
        call(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_errors_speak_as_the_caller_does(tmp_path: Path) -> None:
    """From Python a message names keywords, from the command line the same message names options; paths and names of
    files that look like options stand in it as they were written."""
    with pytest.raises(UsageError, match=r"interpolation= applies .* size='keep' leaves them"):
        rawpack_packer.pack(IMAGES, tmp_path / "store", size="keep", interpolation="cubic")
    ran = run_here("pack", "--size", "keep", "--interpolation", "cubic", tmp_path, tmp_path / "other")
    assert "--interpolation applies to images that are resized; --size keep leaves them" in ran.err
    rawpack_packer.pack(IMAGES, tmp_path / "store", shard_size=1, workers=0)
    with pytest.raises(UsageError, match=r"shard_size= was 1: .*\. restart=True deletes this store"):
        rawpack_packer.pack(IMAGES, tmp_path / "store", shard_size=2, workers=0)
    with pytest.raises(UsageError, match=re.escape(f"there is no file or folder {tmp_path / 'a --size 5/nope'}: ")):
        rawpack_packer.pack(tmp_path / "a --size 5/nope", tmp_path / "none")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "--size 5 (the same command).jpg").write_bytes(b"no image")
    with pytest.raises(PackError) as stopped:
        rawpack_packer.pack(tmp_path / "photos", tmp_path / "store --crop", workers=0, max_rejects=0)
    assert "--size 5 (the same command).jpg" in str(stopped.value)
    assert f"{tmp_path}/store --crop/.rawpack/rejects.jsonl" in str(stopped.value)


def test_each_option_that_messages_name_exists() -> None:
    """A message names no option that neither the table nor a command or function has."""
    known = {*TABLE, "transforms"}
    for command in cli.commands.values():
        known |= {name.lstrip("-").replace("-", "_") for one in command.params for name in one.opts}
    named = {
        (path.relative_to(PACKER).as_posix(), name)
        for path in PACKER.rglob("*.py")
        for name in re.findall(r"\bopt\.([a-z_]+)", path.read_text("utf-8"))
    }
    assert len(named) > 150
    assert {one for one in named if one[1] not in known} == set()


def test_rejects_are_explained_with_an_example_and_a_limit_that_would_do(tmp_path: Path) -> None:
    """The error of too many rejects has the key and the detail of a typical one, and the max_rejects= it names is
    enough: of all samples, and by rate where not all were tried; where nothing could be packed, it names none."""
    good = [encoded(picture(8, 8, i)) for i in range(150)]
    bad = [b"no image"] * 3 + [b""] + good[4:]
    counted = (
        r"4 of 64 images were rejected \(not_an_image 3, empty 1\), for example 00000000: its first bytes are of no"
    )
    rate = r"86 are not tried yet: if they are like these, the same call with max_rejects='7%' resumes"
    with pytest.raises(PackError, match=f"{counted}.*{rate}"):
        rawpack_packer.pack(bad, tmp_path / "rate", shard_size=1, max_rejects=0, workers=0)
    assert rawpack_packer.pack(bad, tmp_path / "rate", shard_size=1, max_rejects="7%", workers=0).packed_now == 86
    with pytest.raises(PackError, match=r"4 of 60 .* for example 0+: .* The same call with max_rejects=4 resumes"):
        rawpack_packer.pack(bad[:60], tmp_path / "all", workers=0)
    assert len(Reader(rawpack_packer.pack(bad[:60], tmp_path / "all", max_rejects=4, workers=0).destination)) == 56
    with pytest.raises(PackError, match=r"3 of 3 .* for example 0+: .*None of them could be packed, so a larger"):
        rawpack_packer.pack(bad[:3], tmp_path / "none", workers=0)
    with pytest.raises(PackError, match=r"none of 3 images could be packed: not_an_image 3, for example 0+: its"):
        rawpack_packer.pack(bad[:3], tmp_path / "none", max_rejects="100%", workers=0)


def test_all_keywords_are_explained() -> None:
    """Each keyword stands in the description of the group that it belongs to."""
    for group in (RecipeKeywords, SourceKeywords, RunKeywords):
        for name in names_of(group):
            assert re.search(rf"\b{name}[:,]", group.__doc__ or ""), name


# ---------------------------------------------------------------------------------------------- results


@pytest.mark.usefixtures("trials_here")
def test_plan_takes_what_the_command_takes(tmp_path: Path) -> None:
    """Single values and lists, numbers, tuples and text; the result prints as the command shows it."""
    for number in range(8):
        save(tmp_path / "photos" / f"{number}.jpg", picture(40, 48, number))
    planned = rawpack.plan(
        tmp_path / "photos", format=["memmap", "lmdb"], size=(24, 32), quality=80, budget="0.1s", workers=1, batch=4,
        transform=["RandomHorizontalFlip", RandomCrop(16)], tmp=tmp_path, disk=10**9,
    )  # fmt: skip
    assert [one.candidate.name for one in planned.trials] == ["memmap 24x32", "memmap 24x32 zstd", "lmdb 24x32 q80"]
    assert [type(step).__name__ for step in planned.asked.setting.transform] == ["RandomHorizontalFlip", "RandomCrop"]
    assert planned.asked.goals.disk == 10**9
    assert "Recommended: " in str(planned)
    assert "rawpack pack --format" in planned.as_dict()["command"]


def test_results_are_short_and_print_as_the_command_does(tmp_path: Path) -> None:
    """One line for `repr`; `str`, and a notebook, have the lines of the command."""
    store = tmp_path / "store"
    done = rawpack.pack(IMAGES, store, workers=0)
    assert repr(done) == f"Summary({str(store)!r}: 3 samples, {text.size(done.bytes_out)})"
    assert str(done).splitlines()[:2] == ["Packed.", "  packed      3 of 3 samples, 8x8x3 (memmap)"]
    formatters = pytest.importorskip("IPython.core.formatters", reason="ipykernel is not installed")
    for result in (done, rawpack.describe(store)):  # a class with a `repr` of its own, and a dict
        assert formatters.DisplayFormatter().format(result)[0] == {"text/plain": str(result)}


def test_progress_is_silent_unless_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None and False show nothing; True shows lines, or a bar at a terminal; an object is called."""
    monkeypatch.setattr("rawpack_packer.progress._LINE_EVERY_S", 0)
    followed = mock.Mock(spec=NoProgress)
    for number, progress in enumerate((None, False, followed)):
        rawpack_packer.pack(IMAGES, tmp_path / str(number), progress=progress, workers=0)
    followed.end.assert_called_once()
    assert capfd.readouterr() == ("", "")
    for is_terminal, words in ((False, "rawpack: 3 of 3 images"), (True, "packing")):
        monkeypatch.setattr("sys.stderr.isatty", lambda shown=is_terminal: shown)
        rawpack_packer.pack(IMAGES, tmp_path / words, progress=True, workers=0)
        assert words in capfd.readouterr().err


RECIPE_NAMES = sorted(one.name for one in TABLE.values() if one.group == "recipe" and one.annotation != "bool")


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_a_value_of_any_type_is_taken_or_refused(name: str) -> None:
    """Nothing but a UsageError comes of a value that no option has."""
    made_for = {} if name == "format" else {"format": "lmdb" if name in ("quality", "subsampling") else "hdf5"}
    for value in (444, 4.4, True, "x", b"x", [1], {"a": 1}, object(), np.zeros(3)):
        with suppress(UsageError):
            parse_options({**made_for, name: value})
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        parse_options({**made_for, name: object()})
