"""What is made once for all processes that run the tests, and read by many of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def once(folder: Path, make: Callable[[], object]) -> Path:
    """A folder that the first process to ask has made, with all that is in it, and the others wait for. It is never
    changed."""
    states = _states(folder)
    with open(states.with_suffix(".lock"), "w") as lock:
        if sys.platform != "win32":  # where each process has a folder of its own
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        if not states.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
            folder.mkdir()
            make()
            states.write_text(json.dumps(_contents(folder)))
    return folder


def is_unchanged(folder: Path) -> bool:
    """Whether everything in it is what `once` has made."""
    before: dict[str, str] = json.loads(_states(folder).read_text())
    return before == _contents(folder)


def _states(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.states")


def _contents(folder: Path) -> dict[str, str]:
    """The path of each file and folder below -> what it holds."""
    found = {}
    for path in folder.rglob("*"):
        held = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[os.fsencode(path.relative_to(folder)).hex()] = f"{path.lstat().st_mode} {held}"
    return found
