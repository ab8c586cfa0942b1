"""Virtual environments with pinned versions, one for each system: make, inspect and remove them.

Torch comes from PyPI with CUDA. For the CPU build, set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
_LAST_LINES = 15
_LARGE = 1 << 20


class EnvironmentFailedError(Exception):
    """pip could not build an environment; the message ends with the last lines of pip's output."""


def requirements(name: str) -> Path:
    """The file that pins the packages of the environment `name`."""
    return HERE / "requirements" / f"{name}.txt"


def make(name: str, home: Path) -> Path:
    """The Python of the environment `home/name`, built from `requirements/name.txt` unless it is there already.

    A line `torch==...` is installed first, so that no other package brings another torch. A line `.` installs this
    checkout, every time. A line `--no-deps X` installs X without its dependencies. Raises EnvironmentFailedError.
    """
    lines = [line.partition("#")[0].strip() for line in requirements(name).read_text().splitlines()]
    lines = [line for line in lines if line]
    folder = home.resolve() / name
    python, mark, begun = folder / "bin" / "python", folder / "complete", folder / "compare"
    wanted = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    if not mark.exists() or mark.read_text() != wanted:
        if folder.exists() and not (begun.exists() or mark.exists()):
            raise EnvironmentFailedError(f"{folder} is there, and was not made by this: name another --home")
        remove(name, home)
        folder.mkdir(parents=True)
        begun.touch()
        venv.create(folder, with_pip=False, symlinks=True)
        torch = [line for line in lines if line.startswith("torch==")]
        alone = [line.split()[1:] for line in lines if line.startswith("--no-deps ")]
        rest = [line for line in lines if not line.startswith(("torch==", "--no-deps ")) and line != "."]
        for asked in (torch, rest and torch + rest, *(["--no-deps", *one] for one in alone)):
            if asked:
                _pip(name, python, asked)
        _share(folder)
        mark.write_text(wanted)
    if "." in lines:
        _pip(name, python, ["--no-deps", "--force-reinstall", str(ROOT)])
    return python


def remove(name: str, home: Path) -> None:
    """Delete the environment if it is there."""
    shutil.rmtree(home.resolve() / name, ignore_errors=True)


def installed(python: Path) -> list[str]:
    """The packages of the environment as `name==version`, sorted."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps(sorted({f'{d.name}=={d.version}' for d in m.distributions()}, key=str.lower)))"
    )
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def size(python: Path) -> int:
    """Bytes of all files in the environment's `lib`."""
    return sum(path.lstat().st_size for path in (python.parent.parent / "lib").rglob("*") if path.is_file())


def _share(folder: Path) -> None:
    """Replace large files by hard links to the same files of other environments: torch takes 700 MB."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size > _LARGE:
            below = path.relative_to(folder)
            for other in folder.parent.glob("*/"):
                twin = other / below
                if other != folder and twin.is_file() and filecmp.cmp(twin, path, shallow=False):
                    path.unlink()
                    path.hardlink_to(twin)
                    break


def _pip(name: str, python: Path, asked: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check", *asked]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise EnvironmentFailedError(f"environment {name}: pip install {' '.join(asked)} failed:\n{last}")


if __name__ == "__main__":
    for one in sys.argv[2:]:
        print(make(one, Path(sys.argv[1])))
