"""The scripts of docs/how-to/train-with-accelerate.md, run as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from pictures import picture, save
from running import run_here
from trained import Step, run_script, steps_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "train-with-accelerate.md"
WATCHED = Path(__file__).parent / "scripts" / "watched.py"
ENDLESS = 1_000_000
ON_CPU = {"ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
TRAIN, VAL = 36, 13
"""Samples: in two processes with batches of 4, five steps, the last one with two samples each; and a sample that is
repeated in evaluation."""


def script_of_page(package: str) -> str:
    """The whole script that needs `package`."""
    (code,) = re.findall(rf"^```python needs={package}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return code


def pack_sets(folder: Path) -> Path:
    """A folder with `sets/`, packed by the command of the page."""
    for name, count in (("cat", 26), ("dog", 23)):
        for i in range(count):
            save(folder / "photos" / name / f"{i:03}.jpg", picture(40 + i, 60 - i, i))
    (command,) = re.findall(r"^\$ rawpack (pack .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    with chdir(folder):
        ran = run_here(*command.split(), "--workers", 0)
    assert ran.code == 0, ran
    return folder


def new_run(folder: Path, sets: Path, package: str) -> Path:
    """A folder to train in: the script of the page, and the packed sets."""
    folder.mkdir()
    (folder / "sets").symlink_to(sets / "sets")
    (folder / "train.py").write_text(script_of_page(package))
    return folder


def train(folder: Path, ranks: int, limit: int = ENDLESS, imports: Sequence[str] = ("accelerate",)) -> str:
    """Run the script in its folder, and return what rank 0 printed. imports: what takes seconds to import."""
    with chdir(folder):
        return run_script(WATCHED, "train.py", "seen", limit, ranks=ranks, preloaded=imports, **ON_CPU)[0]


def trained_in(folder: Path, rank: int | None = None) -> list[Step]:
    """What a run, or one rank of it, trained on."""
    return [step for step in steps_in(folder / "seen" / "train") if rank in (None, step.rank)]
