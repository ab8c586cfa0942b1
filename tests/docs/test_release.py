"""A release: refused where something is missing, the same bytes whoever builds it, and nothing in it by accident."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import make_addresses
import pytest
import release_ready
from folders import files_of

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
pytest.importorskip("hatchling", reason="builds need hatchling: scripts/test installs it")
HOME = "https://github.com/someone/rawpack"
URLS = (
    f'[project.urls]\nSource = "{HOME}"\nDocumentation = "{HOME}/tree/main/docs"\nIssues = "{HOME}/issues"\n'
    f'Changelog = "{HOME}/blob/main/CHANGELOG.md"\n\n'
)
NOTEBOOK = "docs/examples/table.ipynb"


def git(folder: Path, *command: str) -> None:
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A checkout of the few files that decide, which could be released."""
    root = tmp_path / "checkout"
    for name in (".github/SECURITY.md", ".gitignore", "CHANGELOG.md", "CITATION.cff", "README.md", "pyproject.toml",
                 NOTEBOOK, "reader/rawpack/__init__.py", "scripts/lib.sh", "scripts/make_addresses.py",
                 "scripts/release", "scripts/release_ready.py"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    live_at(root, HOME)
    replace(root / "CHANGELOG.md", rf"## \[{re.escape(VERSION)}\] - .*", f"## [{VERSION}] - 2026-12-24")
    security = root / ".github/SECURITY.md"
    security.write_text(security.read_text("utf-8") + "Contact: safe@example.org\n", "utf-8")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all of it")
    return root


def replace(path: Path, pattern: str, new: str) -> None:
    path.write_text(re.sub(pattern, new, path.read_text("utf-8"), count=1), "utf-8")


def live_at(root: Path, home: str) -> None:
    """Give a checkout this public address, and write what follows from it."""
    replace(root / "pyproject.toml", r'(?m)^home = ".*?"', f'home = "{home}"')
    for path, _, new in [*make_addresses.written(root)]:
        path.write_text(new, "utf-8")


def released(checkout: Path, *words: Path | str, **variables: str) -> str:
    """What `scripts/release` says, which is to fail before it builds anything."""
    ran = subprocess.run(
        [checkout / "scripts" / "release", *words], env=os.environ | variables, capture_output=True, encoding="utf-8",
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "== build" not in ran.stdout
    assert not (checkout / "dist").exists()
    return ran.stderr


def test_what_is_ready_may_be_released_once(ready: Path) -> None:
    """Nothing is in the way, also where the version's tag is this commit already; it may not be another one."""
    assert release_ready.reasons(ready) == []
    git(ready, "tag", f"v{VERSION}")
    assert release_ready.reasons(ready) == []
    git(ready, "commit", "--allow-empty", "--quiet", "--message", "more")
    (reason,) = release_ready.reasons(ready)
    assert f"the tag v{VERSION} is another commit" in reason.text


MISSING = [
    ("pyproject.toml", re.escape(URLS), "", "no https:// address for Source, Documentation, Issues, Changelog", True),
    (".github/SECURITY.md", "Contact: .*", "", "SECURITY.md: no line `Contact: `", True),
    ("pyproject.toml", r'(?m)^home = ".*?"', 'home = "https://github.com/other/rawpack"',
     "pyproject.toml, CITATION.cff, README.md, table.ipynb: not as home", True),
    ("CHANGELOG.md", "2026-12-24", "unreleased", "CHANGELOG.md: .* has `unreleased` where its date belongs", True),
    ("pyproject.toml", f'version = "{VERSION}"', 'version = "7.0.0"', r"CHANGELOG.md: no heading `## \[7.0.0\]", False),
    ("CITATION.cff", f"version: {VERSION}", "version: 7.0.0",
     f"CITATION.cff: version 7.0.0, and pyproject.toml has {VERSION}", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "new", "why", "known"), MISSING)
def test_what_is_missing_is_named(name: str, pattern: str, new: str, why: str, known: bool, ready: Path) -> None:
    """The file, what is missing there, and whether a dry run does without."""
    replace(ready / name, pattern, new)
    git(ready, "commit", "--all", "--quiet", "--message", "spoiled")
    reason = release_ready.reasons(ready)[0]
    assert re.search(why, reason.text)
    assert reason.known_on_the_day == known


def test_the_command_builds_nothing_before_all_is_ready(ready: Path, tmp_path: Path) -> None:
    """`scripts/release` names all that is missing, and ends: a dry run calls what may wait by another name. So it does
    without a wheel for each platform that this machine cannot compile for; and `--dryrun` is no release."""
    for name in ("scripts/wheels.py", "reader/native/build.py", "reader/rawpack/native/__init__.py"):
        (ready / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, ready / name)
    git(ready, "add", "--all")
    git(ready, "commit", "--quiet", "--message", "more")
    (tmp_path / "wheels").mkdir()
    said = released(ready, tmp_path / "wheels", PYTHONDONTWRITEBYTECODE="1", CC="/nowhere/cc")
    assert re.match(r"no wheel for .*macosx_11_0_arm64.*\.github/workflows/wheels\.yml", said)
    assert said.endswith("release: nothing was built, see above\n")
    replace(ready / "pyproject.toml", re.escape(URLS), "")
    for words, called in (((), "not ready: "), (("--dry-run",), "before the release: ")):
        said = released(ready, *words)
        assert f"{called}pyproject.toml: [project.urls]" in said
        assert "not ready: git: 1 files are not as committed, such as pyproject.toml" in said
        assert said.endswith("release: nothing was built, see above\n")
    assert released(ready, "--dryrun") == "release: --dryrun: expected --dry-run or a folder of wheels\n"


def test_what_builds_a_release_is_pinned_with_hashes() -> None:
    """Each package at one version, with hashes and from no place that is named; what is asked for is there, the build
    backend too; and the scripts install nothing else into the environments that build."""
    folder = ROOT / "scripts"
    lines = (folder / "release-tools.txt").read_text("utf-8").replace("\\\n", " ").splitlines()
    pinned = [line.split() for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", words[0]) for words in pinned)
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", words[-1]) for words in pinned)
    asked = [line for line in (folder / "release-tools.in").read_text("utf-8").splitlines() if line[0] != "#"]
    assert asked == ["build", "hatchling", "twine", "uv"]
    assert {*asked} <= {words[0].partition("==")[0] for words in pinned}
    scripts = "".join((folder / name).read_text("utf-8") for name in ("lib.sh", "release", "test_wheel"))
    installs = re.findall(r"pip_install (.*)", scripts)
    others = [words for words in installs if "--require-hashes" not in words]
    assert all(re.search(r'"\$wheel"$|--editable|VENV ARGUMENTS|--requirement "\$requirements"', one) for one in others)
    assert "--no-isolation" in scripts


# ---------------------------------------------------------------------------------------------- what is built


JUNK = (
    "notes.txt", ".venv/lib/x.py", "build/x.py", "dist/old.whl", "tests/__pycache__/x.pyc", "scripts/.ruff_cache/x",
    ".env", "reader/rawpack/native/_core-0-linux-other.so",
)  # fmt: skip
WHEEL = f"rawpack-{VERSION}-py3-none-any.whl"


def included() -> Iterator[Path]:
    """Every file of the checkout that a release has: what pyproject.toml includes, but for caches and the library that
    an editable installation compiled."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["sdist"]
    for entry in entries["include"]:
        top = ROOT / entry.lstrip("/")
        assert top.exists(), f"pyproject.toml includes {entry}, which is not there"
        for path in [top, *sorted(top.rglob("*"))]:
            inner = path.relative_to(top).parts
            if path.name.startswith("_core-"):
                continue
            if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in inner):
                yield path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with an sdist and a wheel each: of copies of the checkout in other places, with other times, rights
    and umask, one of them with files that nobody wants. tests/native/test_build.py has the native core built twice."""
    made = []
    for turn, umask in enumerate((0o022, 0o077)):
        copy = tmp_path_factory.mktemp(f"copy {turn}") / "rawpack"
        for path in included():
            to = copy / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
            to.chmod(path.stat().st_mode & (0o700 if turn else 0o755))
            os.utime(to, (1_700_000_000 + turn, 1_700_000_000 + turn))
        shutil.copy(ROOT / "pyproject.toml", copy)
        shutil.copy(ROOT / ".gitignore", copy)
        for name in JUNK if turn else ():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_text("junk")
        made.append(copy.parent / "dist")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--directory", made[-1]], cwd=copy, umask=umask, check=True,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1766000000", "RAWPACK_NATIVE_BUILD": "never"}, capture_output=True,
        )  # fmt: skip
    return made


def test_what_is_built(built: list[Path]) -> None:
    """Twice the same bytes, so that whoever builds the commit can compare. The sdist has all that pyproject.toml
    includes, the wheel the modules, templates and `py.typed` of both packages, and a license; and neither has more."""
    first, second = map(files_of, built)
    assert sorted(first) == [WHEEL, f"rawpack-{VERSION}.tar.gz"]
    assert {name: data == second[name] for name, data in first.items()} == dict.fromkeys(first, True)
    with tarfile.open(built[1] / f"rawpack-{VERSION}.tar.gz") as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    wanted = {path.relative_to(ROOT).as_posix() for path in included()}
    assert names == wanted | {"PKG-INFO", "pyproject.toml", ".gitignore"}
    with zipfile.ZipFile(built[0] / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert len([name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]) == 1
    tops = (ROOT / "reader" / "rawpack", ROOT / "packer" / "rawpack_packer")
    files = [path for top in tops for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert names == {path.relative_to(ROOT).as_posix().partition("/")[2] for path in files if path.name[:6] != "_core-"}
