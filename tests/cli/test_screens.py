"""What a new user sees: the first screen, help in groups, hints after a mistake, color, and completion."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from pictures import picture, save
from running import Ran, at_a_terminal, code_of, command, environment, run_here, stop_of, terminal

from rawpack_packer.cli import cli


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of three images."""
    for number in range(6):
        save(tmp_path / "photos" / f"class {number % 2}" / f"{number}.png", picture(20, 24, number))
    return tmp_path / "photos"


# ---------------------------------------------------------------------------------------------- help


def test_a_bare_command_shows_how_to_use_it() -> None:
    """Who names nothing to work on reads the help of `rawpack`, or an example of its command, with exit code 2."""
    bare, asked = run_here(), run_here("--help")
    assert (bare.code, asked.code, bare.err) == (2, 0, asked.out)
    assert all(re.search(rf"^  {name} ", asked.out, re.MULTILINE) for name in cli.commands)
    ran = run_here("pack")
    assert (ran.code, ran.out, "\n  rawpack pack " in ran.err) == (2, "", True)


@pytest.mark.parametrize("name", list(cli.commands))
def test_help_fits_a_terminal(name: str) -> None:
    """No line is wider than 80 columns, values have names, and there is an example."""
    shown = cli.commands[name].get_help(click.Context(cli.commands[name], info_name=name, terminal_width=80))
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"\b(INTEGER|FLOAT|TEXT|RANGE|PATH)\b|x>=", shown)
    assert re.search(rf"^  Examples?:\n    rawpack {name}\b", shown, re.MULTILINE)


# ---------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["packk"], "rawpack: there is no command packk; did you mean pack? Try `rawpack -h`"),
        (["verify"], "rawpack: there is no command verify: `rawpack inspect --verify` checks a store"),
        (["pack", "--fromat", "lmdb", "a", "b"], "option --fromat; did you mean --format? Try `rawpack pack -h`"),
        (["pack", "-f", "lmbd", "a", "b"], "--format 'lmbd': must be memmap, hdf5 or lmdb; did you mean lmdb? Try"),
        (["pack", "-j", "two", "a", "b"], "rawpack: --workers 'two': must be a whole number, 0 or more. Try"),
        (["pack", "a", "b", "--size"], "rawpack: --size needs a value. Try"),
        (["pack", *"abcd"], "and nothing more: c, d; did the shell expand a pattern? Quote it, as in"),
        (["pack", "a.mp4", "b.mp4", "c"], "and nothing more: c; did the shell expand a pattern? Quote it, as in"),
        (["pack", "--columns", "a", ".", "../b"], "takes no option --columns: it belongs to lerobot, litdata, mds,"),
        (["relabel", "a"], "--from is missing: relabel needs STORE and --from FILE. Try"),
        (["pack", "a/x/1.jpg", "a/x/2.PNG", "b"], "pack takes a folder, not its image files: `rawpack pack a/x b`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_leads_to_the_help(args: list[str], words: str) -> None:
    """A usage error ends with the command that helps, and names what was probably meant."""
    ran = run_here(*args)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert words in ran.err
    assert "`rawpack" in ran.err


def test_paths_that_are_nearly_right(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in place of the command, a pattern of image files, blanks without quotes, a store in place of a source,
    swapped paths: each is a usage error with the command to type, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert run_here("pack", "-q", "-s", 16, "-j", 0, photos, "store").code == 0
    shutil.copytree(photos, "my photos")
    before = sorted(tmp_path.rglob("*"))
    for args, words in {
        ("my photos", "out"): "my photos is a path, not a command; did you mean `rawpack pack 'my photos' out`?",
        ("pack", "my", "photos", "out"): "a path with blanks needs quotes: `rawpack pack 'my photos' out`",
        ("pack", "my photos/class 0/*.png", "out"): "is a pattern of image files: name their folder instead, ",
        ("pack", "--field", "boxes", "my photos", "out"): "rawpack: --field boxes: of a folder of images, --images",
        ("pack", "my photos", "$HOME/out"): "$HOME/out: no shell replaced $HOME, and there is no such folder",
        ("plan", "-q", "store"): "store is a store already: `rawpack bench store` measures how fast it is read",
        ("pack", "new", "photos"): "did you swap SRC and DST? Try `rawpack pack photos new`",
        ("convert", "new", "store"): "did you swap STORE and DST? Try `rawpack convert store new`",
    }.items():
        ran = run_here(*args)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1), ran
        assert words in ran.err
    assert "did you swap" not in run_here("pack", "new", "other").err
    assert sorted(tmp_path.rglob("*")) == before


# ---------------------------------------------------------------------------------------------- done


def test_only_training_reads_in_random_order(photos: Path, tmp_path: Path) -> None:
    """The line to read `train`, or COCO's `train2017`, shuffles, and that of `val` does not."""
    ran = run_here("pack", "-s", 16, "-j", 0, "--holdout", "val=1", photos, tmp_path / "drawn")
    assert "rawpack: drew 4 samples for train, 2 for val\n" in ran.err
    assert 'drawn/train").batches(4, shuffle=True)' in ran.out
    assert 'drawn/val").batches(2)' in ran.out
    lines = [f'  rawpack.Reader("{tmp_path}/drawn", split="{name}")' for name in ("train", "val")]
    assert ran.out.endswith("\n".join(["Read a split by its name:", *lines, ""]))
    for name in ("train2017", "val2017"):
        shutil.copytree(photos, tmp_path / "given" / name)
    ran = run_here("pack", "-s", 16, "-j", 0, "--splits", "train2017,val2017", tmp_path / "given", tmp_path / "stores")
    assert 'stores/train2017").batches(6, shuffle=True)' in ran.out
    assert 'stores/val2017").batches(6)' in ran.out


def test_color_is_for_terminals(photos: Path, tmp_path: Path) -> None:
    """Errors are red and the next step is on a line of its own at a terminal; NO_COLOR and pipes get plain text."""
    wrong = ("pack", photos, "--size", 0, tmp_path / "store")
    with terminal() as (its, shown_by_process):
        process = [*command(), *map(str, wrong)]
        ran = subprocess.run(process, stdin=its, stdout=its, stderr=its, env=environment(TERM="xterm"), check=False)
    code, shown = at_a_terminal(*wrong)
    assert (ran.returncode, *shown_by_process) == (code, shown)
    assert (code, "\x1b[31m" in shown, "pixels\n" in shown) == (2, True, True), shown
    code, shown = at_a_terminal(*wrong, NO_COLOR="1")
    assert (code, "\x1b" in shown) == (2, False), shown
    assert "\x1b" not in stop_of(*wrong)
    code, shown = at_a_terminal("pack", "-s", 16, "-j", 0, photos, tmp_path / "store")
    assert (code, "\x1b[32m" in shown, "packing:" in shown) == (0, True, True), shown


def test_an_error_is_wrapped_at_a_terminal_only(tmp_path: Path) -> None:
    """At the width of the terminal; the words are the same; a command in backticks is not broken."""
    args = ("pack", "--fromat=lmdb", tmp_path / "x", tmp_path / "y")
    piped = run_here(*args)
    assert piped == Ran(2, "", f"{piped.err.strip()}\n")
    code, shown = at_a_terminal(*args, columns=40, NO_COLOR="1")
    assert code == 2
    assert "`rawpack pack -h`" in shown
    assert max(map(len, shown.splitlines())) <= 40 < len(piped.err)
    assert re.sub(r"\W+", " ", shown) == re.sub(r"\W+", " ", piped.err)


def test_the_shell_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Options and their values, by click's own mechanism."""
    monkeypatch.setenv("COMP_WORDS", "rawpack pack --format l")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("_RAWPACK_COMPLETE", "bash_complete")
    code_of()
    assert capsys.readouterr().out.split(",")[1].strip() == "lmdb"
