"""What a new user sees: the first screen, help in groups, hints after a mistake, color, and completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from pictures import picture, save
from running import at_a_terminal, code_of, command, environment, run_here, stop_of, terminal

from rawpack_packer.cli import cli


def help_of(name: str, width: int = 80) -> str:
    return cli.commands[name].get_help(click.Context(cli.commands[name], info_name=name, terminal_width=width))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of three images."""
    for number in range(6):
        save(tmp_path / "photos" / f"class {number % 2}" / f"{number}.png", picture(20, 24, number))
    return tmp_path / "photos"


# ---------------------------------------------------------------------------------------------- help


def test_the_first_screen_begins_with_what_one_needs_first() -> None:
    """`rawpack` and `rawpack --help`: five commands with an example each, then the others, then completion."""
    bare, asked = run_here(), run_here("--help")
    assert (bare.code, asked.code) == (2, 0)
    for shown in (bare.err, asked.out):
        first, _, others = shown.partition("More commands:")
        for name in ("plan", "pack", "inspect", "view", "bench"):
            assert re.search(rf"^  {name} +\S.*\.\n +rawpack {name} \S+", first, re.MULTILINE), first
        for name in set(cli.commands) - {"plan", "pack", "inspect", "view", "bench"}:
            assert re.search(rf"^  {name} ", others, re.MULTILINE), others
        assert "_RAWPACK_COMPLETE=bash_source" in others


def test_the_first_screen_loads_no_command() -> None:
    """What `rawpack --help` and completing a command's name cost is Python and click."""
    script = (
        "import sys\nfrom rawpack_packer.cli import main\n"
        "sys.argv = ['rawpack', '--help']\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [*command()[:1], "-c", script], capture_output=True, encoding="utf-8", env=environment(), check=True
    )
    loaded = set(ran.stderr.split())
    assert "rawpack_packer.cli" in loaded
    assert not loaded & {"numpy", "rawpack", "rawpack_packer.cli.pack", "rawpack_packer.api", "tqdm"}


@pytest.mark.parametrize("name", list(cli.commands))
def test_help_fits_a_terminal(name: str) -> None:
    """No line is wider than 80 columns, values have names, and there is an example."""
    shown = help_of(name)
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"\b(INTEGER|FLOAT|TEXT|RANGE|PATH)\b|x>=", shown)
    assert re.search(rf"^  Examples?:\n    rawpack {name}\b", shown, re.MULTILINE)


@pytest.mark.parametrize("name", list(cli.commands))
def test_h_has_a_line_for_each_option(name: str) -> None:
    """`-h` names every option once, with some words after it, in 80 columns; each of both names the other."""
    ran = run_here(name, "-h")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    for option in cli.commands[name].get_params(click.Context(cli.commands[name])):
        if isinstance(option, click.Option):
            (line,) = [one for one in lines if re.match(rf"  (?:-\w, )?{option.opts[-1]}(?![\w-])", one)]
            assert re.fullmatch(r"  .{28}  \S.*", line), line
    assert lines[-1] == f"`rawpack {name} --help` explains each, with examples."
    assert re.search(r"^  -h +List the options", help_of(name), re.MULTILINE)


# ---------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["packk"], "rawpack: there is no command packk; did you mean pack? Try `rawpack -h`"),
        (["version"], "rawpack: there is no command version: `rawpack --version` shows the version"),
        (["verify"], "rawpack: there is no command verify: `rawpack inspect --verify` checks a store"),
        (["export", "--limit", "3", "a", "b"], "rawpack: there is no option --limit. Try `rawpack export -h`"),
        (
            ["pack", "--fromat", "lmdb", "a", "b"],
            "rawpack: there is no option --fromat; did you mean --format? Try `rawpack pack -h`",
        ),
        (["pack", "-f", "lmbd", "a", "b"], "--format 'lmbd': must be memmap, hdf5 or lmdb; did you mean lmdb? Try"),
        (["pack", "-j", "two", "a", "b"], "rawpack: --workers 'two': must be a whole number, 0 or more. Try"),
        (["plan", "--tmp", __file__, "a"], f"rawpack: --tmp {__file__} is a file: name a folder. Try"),
        (["pack", "a", "b", "--size"], "rawpack: --size needs a value. Try"),
        (
            ["pack", "a", "b", "c.tar", "d.tar", "e.tar", "f.tar"],
            "more: c.tar, d.tar, e.tar, and 1 more; did the shell expand a pattern? Quote it, as in '*.tar'. Try",
        ),
        (["pack", "--image-size", "64", "a", "b"], "there is no option --image-size; did you mean --size? Try"),
        (["bench", "--budget", "5s", "a"], "no option --budget; did you mean --seconds or --rounds? Try"),
        (["pack", "--columns", "a", ".", "../b"], "takes no option --columns: it belongs to lerobot, litdata, mds,"),
        (["pack", "--output", "b", "a"], "--output: paths stand without one, as in `rawpack pack SRC DST`"),
        (
            ["pack", "--batch-size", "4", "a", "b"],
            "there is no option --batch-size: batches are made when a store is read",
        ),
        (["train"], "there is no command train: training reads a store by rawpack.Reader, in Python. Try"),
        (["relabel", "a"], "--from is missing: relabel needs STORE and --from FILE. Try"),
        (["pack", "a/x/1.jpg", "a/x/2.PNG", "b"], "pack takes a folder, not its image files: `rawpack pack a/x b`"),
        (
            ["pack", "a/x/1.jpg", "a/y/2.jpg", "a/y/3.jpg"],
            "pack takes a folder, not its image files: `rawpack pack a DST`",
        ),
        (["pack", "a"], "rawpack: DST is missing: pack needs SRC and DST. Try `rawpack pack -h`"),
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
    and the other way round: each is a usage error with the command to type, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert run_here("pack", "-q", "-s", 16, "-j", 0, photos, "store").code == 0
    shutil.copytree(photos, "my photos")
    before = sorted(tmp_path.rglob("*"))
    for args, words in {
        ("my photos", "out"): "my photos is a path, not a command; did you mean `rawpack pack 'my photos' out`?",
        ("./my photos/",): "did you mean `rawpack pack './my photos/' store/`?",
        ("store",): "store is a path, not a command; did you mean `rawpack inspect store`?",
        ("https://host/x.tar", "out"): "did you mean `rawpack pack https://host/x.tar out`?",
        ("pack", "my", "photos", "out"): "a path with blanks needs quotes: `rawpack pack 'my photos' out`",
        ("pack", "my photos/class 0/*.png", "out"): "is a pattern of image files: name their folder instead, ",
        ("pack", "my photos", "$HOME/out"): "$HOME/out: no shell replaced $HOME, and there is no such folder",
        ("plan", "-q", "store"): "store is a store already: `rawpack bench store` measures how fast it is read",
    }.items():
        ran = run_here(*args)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1), ran
        assert words in ran.err
    ran = run_here("bench", "my photos")
    assert (ran.code, "make a store of its images: `rawpack pack 'my photos' STORE`" in ran.err) == (1, True), ran
    assert sorted(tmp_path.rglob("*")) == before


def test_swapped_paths_are_recognized(photos: Path, tmp_path: Path) -> None:
    """Where SRC is missing, empty or a store, and DST is something to pack, the right order is offered first."""
    (tmp_path / "empty").mkdir()
    new, store = tmp_path / "new", tmp_path / "store"
    assert run_here("pack", "-q", "-s", 16, "-j", 0, photos, store).code == 0
    images = f"DST {photos} contains images: did you swap SRC and DST?"
    for name, source, destination, words in (
        ("pack", new, photos, images),
        ("pack", tmp_path / "empty", photos, images),
        ("append", store, photos, images),
        ("pack", store, photos, images),
        ("convert", new, store, f"DST {store} is a store: did you swap STORE and DST?"),
    ):
        ran = run_here(name, source, destination)
        said = f"rawpack: {words} Try `rawpack {name} {destination} {source}`. As given: "
        assert (ran.code, ran.err.startswith(said)) == (2, True), ran.err
    # A typing error, or a store that is there already, is no exchange.
    for command_, destination in (("pack", tmp_path / "other"), ("pack", store), ("append", store)):
        assert "did you swap" not in run_here(command_, new, destination).err


def test_a_report_that_cannot_be_written_is_refused_first(photos: Path, tmp_path: Path) -> None:
    """Before `plan` measures for a minute: no permission, no folder, a folder, a name that is too long."""
    pytest.importorskip("jinja2")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refused = {tmp_path: "is a folder", tmp_path / "none" / "page": "no folder", tmp_path / ("x" * 300): "long"}
    if not os.access(locked, os.W_OK):  # root may write anywhere
        refused[locked / "page"] = "cannot be written: Permission denied"
    for file, words in refused.items():
        ran = run_here("plan", "--budget", "1s", "--html", file, photos)
        assert (ran.code, ran.out, words in ran.err, "resumes" in ran.err) == (2, "", True, False), ran


# ---------------------------------------------------------------------------------------------- done


def test_only_training_reads_in_random_order(photos: Path, tmp_path: Path) -> None:
    """After a hold-out, the line to read `train` shuffles, and that of `val` does not."""
    ran = run_here("pack", "-s", 16, "-j", 0, "--holdout", "val=1", photos, tmp_path / "drawn")
    assert "rawpack: drew 4 samples for train, 2 for val\n" in ran.err
    assert 'drawn/train").batches(4, shuffle=True)' in ran.out
    assert 'drawn/val").batches(2)' in ran.out
    lines = [f'  rawpack.Reader("{tmp_path}/drawn", split="{name}")' for name in ("train", "val")]
    assert ran.out.endswith("\n".join(["Read a split by its name:", *lines, ""]))


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


@pytest.mark.parametrize(
    ("words", "found"),
    [("rawpack pa", {"pack"}), ("rawpack pack --fo", {"--format"}), ("rawpack pack --format l", {"lmdb"})],
)
def test_the_shell_completes(
    words: str, found: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, options and values, by click's own mechanism."""
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_RAWPACK_COMPLETE", "bash_complete")
    code_of()
    assert {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()} == found
