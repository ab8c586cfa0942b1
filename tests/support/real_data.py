"""Real photographs and videos, where this machine has some: in `photos/` and `videos/` of a folder that the environment
variable RAWPACK_TEST_DATA names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "RAWPACK_TEST_DATA"
_NAMED = os.environ.get(VARIABLE, "")
_FOLDER = Path(_NAMED).absolute() if _NAMED else None  # now: tests change the working directory

if _FOLDER is not None and not _FOLDER.is_dir():
    raise pytest.UsageError(
        f"{VARIABLE} is {_NAMED!r}, which is no folder: correct it, or unset it to skip these tests"
    )


def real(kind: str) -> Path:
    """The folder of real `photos` or `videos`; the test is skipped where there is none."""
    if _FOLDER is None:
        pytest.skip(f"{VARIABLE} is not set: no real {kind}")
    if not (_FOLDER / kind).is_dir():
        pytest.skip(f"no {kind}/ in {_FOLDER}, the folder that {VARIABLE} names")
    return _FOLDER / kind


def real_files(kind: str) -> list[Any]:
    """A parameter for each real file, known by its name; one that is skipped where there are none."""
    files = sorted((_FOLDER / kind).glob("*")) if _FOLDER is not None else []
    if files:
        return [pytest.param(file, id=file.name) for file in files]
    why = f"{VARIABLE} is not set" if _FOLDER is None else f"no {kind} in {_FOLDER}"
    return [pytest.param(Path(), id="none", marks=pytest.mark.skip(reason=f"{why}: no real {kind}"))]
