"""The documentation cannot rot: its code runs, its links resolve, and it describes every public name and option.

The blocks of a page run in order in one folder that has `photos/`; Python blocks share their names. In the output of a
console block, `...` stands for any text, and alone on a line for any lines; several blanks count as one.
A block that cannot run says so (```console notest), with the reason in a comment right before: <!-- notest: why -->.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import itertools
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from childless import without_children
from kept import of_each
from pictures import picture, save
from rooms import nodes_of, parsed
from running import Ran, environment, run_here

import rawpack
import rawpack.transforms
from rawpack import errors
from rawpack.inspection import Inspection
from rawpack_packer import api
from rawpack_packer.counts import COUNTS
from rawpack_packer.destination.journal import REASONS

pytestmark = pytest.mark.usefixtures("trials_here")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if path.exists()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REASON = re.compile(r"<!-- notest: [^>]{10,} -->\n$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
MAKERS = {"batches", "torch", "tensordict", "jax", "keras", "tf_data", "data_iter", "queue"}
"""Methods that make batches, whose epochs are counted from the first iteration on."""
LANGUAGES = {"python", "console", "diff", "text", "json", "toml", ""}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    words: tuple[str, ...]
    """What follows the language: `notest`, `needs=torch`."""
    code: str
    line: int
    """The line number of its first line."""
    before: str
    """The page up to the block."""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *words = match[1].split() or [""]
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(language, tuple(words), match[2], line, text[: match.start()]))
    return found


def is_run(block: Block) -> bool:
    return block.language in ("python", "console")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------------------------------- code


@pytest.fixture(scope="session")
def photos_of_docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the pages call `photos/`: two classes of twelve small JPEGs, all of different sizes."""
    root = tmp_path_factory.mktemp("docs") / "photos"
    for number, (name, i) in enumerate(itertools.product(("cat", "dog"), range(12))):
        save(root / name / f"{i:03}.jpg", picture(100 + 3 * number, 160 - 2 * number, number))
    return root


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all pages run, one after another, next to a folder for PATH: where folder and environment are
    those of the page before, workers are forks of the same template, which takes a second to start."""
    root = tmp_path_factory.mktemp("desk")
    commands(root / "bin")
    (root / "desk").mkdir()
    return root / "desk"


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_run, blocks_of(page)))], ids=name_of)
def test_code_runs(
    page: Path, photos_of_docs: Path, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python and console block of a page does what the page says."""
    for left in desk.iterdir():  # moved, not removed: a fetch of the page before may still write into its cache
        left.rename(tmp_path / left.name)
    monkeypatch.chdir(desk)
    if name_of(page) != "docs/tutorial.md":  # which makes its own
        shutil.copytree(photos_of_docs, desk / "photos")
    monkeypatch.setenv("PATH", f"{desk.parent / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in os.environ:
        if name.startswith(("SLURM_", "OMPI_", "PMI_", "RAWPACK_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    with without_children():
        for block in blocks_of(page):
            if block.language == "python":
                # Compiled whether it runs or not, so that a syntax error is found in every block.
                code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
                needs = [word.removeprefix("needs=") for word in block.words if word.startswith("needs=")]
                if "notest" not in block.words and all(map(installed, needs)):
                    exec(code, namespace)
            elif block.language == "console" and "notest" not in block.words:
                run_console(block, f"{name_of(page)}:{block.line}")
    # Workers end with the object that started them: let that be in this test, not in the next one.
    namespace.clear()
    gc.collect()


def test_blocks_are_marked_properly() -> None:
    """Fences have a known language; a block that is not run gives a reason; one that needs a package names it. Every
    line that a diff adds is in a block of the page, so that the new script is one that runs."""
    for page in PAGES:
        blocks = blocks_of(page)
        run = {line.strip() for block in blocks if is_run(block) for line in block.code.split("\n")}
        for block in blocks:
            where = f"{name_of(page)}:{block.line}"
            assert block.language in LANGUAGES, where
            assert all(word == "notest" or word.startswith("needs=") for word in block.words), where
            if "notest" in block.words:
                assert REASON.search(block.before), f"{where}: <!-- notest: reason --> must stand on the line before"
            elif block.language == "diff":
                added = [line[1:].strip() for line in block.code.splitlines() if line.startswith("+")]
                assert [line for line in added if line not in run and not line.startswith("...")] == [], where
            assert block.language != "console" or block.code.startswith("$ "), where


def test_loops_do_not_make_their_batches() -> None:
    """Batches are made before the loop over them, in pages and docstrings: such a loop within one over epochs gets all
    of them, not epoch 0 again and again."""
    for page in PAGES:
        for block in blocks_of(page):
            nodes = ast.walk(ast.parse(block.code)) if block.language == "python" else ()
            loops = [node.iter for node in nodes if isinstance(node, ast.For)]
            assert not any(map(makes_batches, loops)), f"{name_of(page)}:{block.line}"
    for text in (rawpack.__doc__ or "", rawpack.Reader.__doc__ or "", text_of("scripts/demo")):
        assert "for batch in batches:" in text
        assert not re.search(r"for \w+ in .*\.batches\(", text)


def makes_batches(looped_over: ast.AST) -> bool:
    """Whether it calls a method `batches`, or one that gives them to a framework, other than in a function that is
    called later."""
    if isinstance(looped_over, ast.Lambda):
        return False
    if isinstance(looped_over, ast.Call) and getattr(looped_over.func, "attr", "") in MAKERS:
        return True
    return any(makes_batches(node) for node in ast.iter_child_nodes(looped_over))


def installed(name: str) -> bool:
    """Whether a package is there; of `nvidia.dali`, also whether `nvidia` is."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def commands(folder: Path) -> Path:
    """A folder for PATH with the `rawpack` and `python` of these tests."""
    folder.mkdir()
    for name, what in (("rawpack", "-m rawpack"), ("python", "")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {what} "$@"\n')
        script.chmod(0o755)
    return folder


def run_console(block: Block, where: str) -> None:
    """Run the commands of a console block, and compare what they print with what the page says."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        ran = run(command)
        assert ran.code == 0, f"{where}: {command}: exit code {ran.code}\n{ran.out}{ran.err}"
        printed = ran.err + ran.out
        if expected.strip():
            assert matches(expected, printed), f"{where}: {command} printed\n{printed}\nthe page says\n{expected}"


def run(command: str) -> Ran:
    """Run a line of a shell. A `rawpack` that it begins with runs in this process, where it starts ten times as fast:
    the shell then has a function that prints and returns the same, if it gets the same words."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    tokens = list(lexer)
    words = list(itertools.takewhile(lambda token: not token or set(token) - set("();<>|&"), tokens))
    if words[0] == "rawpack":
        few = words[1] in ("pack", "convert", "merge", "subset") and "--workers" not in words
        ran = run_here(*words[1:], *(["--workers", "0"] if few else []))  # the store is the same
        if words == tokens and not set(command) & set("$`*?#"):
            return ran
        same, out, err = map(shlex.quote, ("\n".join(words[1:]), ran.out, ran.err))
        command = (
            f'rawpack() {{ [ "$(printf \'%s\\n\' "$@")" = {same} ] || return 99; '
            f"printf %s {out}; printf %s {err} >&2; return {ran.code}; }}\n{command}"
        )
    done = subprocess.run(
        command, shell=True, env=environment(), capture_output=True, encoding="utf-8", timeout=240, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def matches(expected: str, printed: str) -> bool:
    def line(text: str) -> str:
        return " ".join(text.split())

    pattern = ""
    for text in map(line, expected.strip("\n").splitlines()):
        pattern += r"(?:.*\n)*?" if text == "..." else ".*".join(map(re.escape, text.split("..."))) + r"\n"
    return re.fullmatch(pattern, "".join(line(text) + "\n" for text in printed.strip("\n").splitlines())) is not None


# ---------------------------------------------------------------------------------------------- links


def test_links_resolve() -> None:
    """Every relative link leads to a file in the repository, and its anchor to a heading of that page."""
    for page in PAGES:
        for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_relative_to(ROOT), f"{name_of(page)}: {target} leads out of the repository"
            assert file.exists(), f"{name_of(page)}: {target}"
            assert not anchor or anchor in anchors_of(file), f"{name_of(page)}: {target}"


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


# ---------------------------------------------------------------------------------------------- completeness


def text_of(*names: str) -> str:
    return "\n".join((ROOT / name).read_text("utf-8") for name in names)


def test_every_public_name_is_documented() -> None:
    """The Python API page describes everything that `rawpack` exports and that users call."""
    page = text_of("docs/reference/python.md")
    signature = ", ".join(str(part) for part in list(inspect.signature(rawpack.Reader).parameters.values())[1:])
    assert f"`Reader(path, *, {re.sub(': .*? = ', '=', signature)})`" in page
    assert [name for name in rawpack.__all__ if name not in page] == []
    methods = {name for kind in (rawpack.Reader, rawpack.Batches, Inspection) for name in members(kind)}
    assert [name for name in methods if f".{name}" not in page] == []


def members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_overviews_have_every_name_and_no_other() -> None:
    """Members of readers and batches, what else of `rawpack` reads, and the functions of the packer; parameters that
    are shown have the defaults of the code."""
    packing = {name for name in rawpack.__all__ if getattr(rawpack, name).__module__ == api.__name__}
    reading = {name for name in rawpack.__all__ if not name.endswith("Error")} - packing - {"Batches"}
    screens = re.findall(r"^```text\n(.+?)^```$", text_of("docs/reference/python.md"), re.MULTILINE | re.DOTALL)
    about_reader, _, rest = screens[0].partition("\nbatches = ")
    about_batches, _, _ = rest.partition("\n\n")
    names = re.compile(r"(?<![\w/\"])(?:reader|Reader|batches|look\(reader\) *)?\.([a-z_]\w*)")
    assert {*names.findall(about_reader)} | {"batches"} == members(rawpack.Reader)
    assert {*names.findall(about_batches)} - {"batches"} == members(rawpack.Batches)
    calls = re.findall(r"^(?:reader = )?([A-Z]\w+)\((.*)\)$", screens[0], re.MULTILINE)
    assert {name for name, _ in calls} | {"look"} == reading
    for name, words in calls:
        assert written(getattr(rawpack, name)) == words.replace('"', "'"), name
    calls = re.findall(r"rawpack\.(\w+)\(((?:[^()]|\(\))*)\)", screens[1])
    assert {name for name, _ in calls} == packing
    for name, words in calls:
        every = written(getattr(rawpack, name)).split(", ")
        shown = {*" ".join(words.split()).replace('"', "'").split(", ")} - {"", "*", "**options"}
        assert shown <= {*every}, name
        assert "**options" in words or shown == {*every} - {"*", ""}, name


def written(function: Any) -> str:
    """The parameters of a function or class, as a page shows them."""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty) for one in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters)).removeprefix("(").removesuffix(")")


def test_every_parameter_is_documented_with_its_default() -> None:
    """The parameter table of `Reader.batches` has the parameters, order and defaults of its signature."""
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^|]*)`)? ?\| .+ \|$", text_of("docs/reference/python.md"), re.MULTILINE)
    parameters = list(inspect.signature(rawpack.Reader.batches).parameters.values())[1:]
    expected = [
        (parameter.name, "" if parameter.default is inspect.Parameter.empty else repr(parameter.default))
        for parameter in parameters
    ]
    assert rows == expected


def test_the_error_tree_is_the_one_of_the_code() -> None:
    """The page shows the same error tree as `rawpack.errors`."""
    tree = re.search(r"^RawpackError\n(?:[├│└].*\n)+", errors.__doc__ or "", re.MULTILINE)
    assert tree
    assert tree[0] in text_of("docs/reference/python.md")


def test_reject_reasons_and_counts_are_documented() -> None:
    """Every reason code and every count has a row, in the words of the code, and there are no other rows."""
    page = text_of("docs/reference/counts-and-rejects.md")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert rows == dict(REASONS) | dict(COUNTS)


@pytest.mark.parametrize("page", ["cli_docs", "tree_docs", "picture", "source_docs", "keywords", "ways"])
def test_made_pages_are_fresh(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of the command is what `--help` says of each option; tree and picture are those of the code; the ways
    to train are what their tests are marked with."""
    script = ROOT / "scripts" / f"make_{page}.py"
    monkeypatch.setattr(sys, "argv", [script.name, "--check"])
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the scripts add to
    runpy.run_path(str(script), run_name="__main__")


def test_every_step_of_a_transform_is_documented() -> None:
    """The reference describes each name in `rawpack.transforms` and each parameter of the steps."""
    page = (ROOT / "docs/reference/transforms.md").read_text()
    for name in rawpack.transforms.__all__:
        assert f"`{name}" in page or f" {name}" in page, name
        for parameter in inspect.signature(getattr(rawpack.transforms, name)).parameters:
            if not name.endswith("Step") and name not in ("Step", "Random", "Move", "Spec"):
                assert parameter in page, (name, parameter)


# ---------------------------------------------------------------------------------------------- messages

VARIES = re.compile(r"\(.*?\)|'\w+'|\d[\d.,]*|store\.json|image, label, key")
"""What differs from one message to the next, or has a name in the code."""
TORCH = (
    "Input type (unsigned char) and bias type (float) should be the same",
    "view size is not compatible with input tensor's size and stride",
)
"""`tests/trainers/test_torch.py` has torch itself say them."""


def test_the_page_of_troubleshooting_quotes_messages_of_the_code() -> None:
    """Messages are put together from parts, in one module each; some are those of the system, Python and torch."""
    said = [os.strerror(28), *TORCH]
    for wrong in ("x, y = {'image': 0, 'label': 1, 'index': 2}", "{}['images']"):
        try:
            exec(wrong)
        except (ValueError, KeyError) as error:
            said.append(f"{type(error).__name__}: {error}")
    words = [set(re.findall(r"[\w-]+", one)) for one in said]
    words += of_each(words_in, [*(ROOT / "reader").rglob("*.py"), *(ROOT / "packer").rglob("*.py")]).values()
    first_cells = re.findall(r"^\| (`[^|]*) \|", text_of("docs/how-to/troubleshooting.md"), re.MULTILINE)
    quoted = [one for cell in first_cells for one in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) >= 20
    for message in quoted:
        wanted = {word for word in re.findall(r"[\w-]+", VARIES.sub(" ", message)) if len(word) > 3}
        assert wanted
        assert min((wanted - found for found in words), key=len) == set(), message


def words_in(source: str) -> set[str]:
    """The words in the texts of a module."""
    nodes = nodes_of(parsed(source))
    texts = [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return set(re.findall(r"[\w-]+", " ".join(texts)))
