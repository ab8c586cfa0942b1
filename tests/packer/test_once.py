"""What a job checks and finds out, it does once: counted by the functions that Python enters."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pictures import picture, save
from running import run_here

SMALL = ("--workers", 0, "--size", 8, "--quiet")
ONCE = {
    ("recipe/__init__.py", "make_recipe"),
    ("recipe/__init__.py", "libraries"),
    ("recipe/fields.py", "store_fields"),
    ("destination/folder.py", "check"),
    ("destination/journal.py", "_digested"),
}
"""Files of the packer, and functions in them, that a job enters once."""


@contextmanager
def entered() -> Iterator[Counter[tuple[str, str]]]:
    """Counts how often each function of the packer is entered in this thread."""
    found: Counter[tuple[str, str]] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            _, inside, file = frame.f_code.co_filename.partition("rawpack_packer/")
            found[file if inside else "", frame.f_code.co_name] += 1

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


@pytest.fixture(name="photos")
def photos_fixture(tmp_path: Path) -> Path:
    for i in range(6):
        save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png", picture(9, 9, i))
    return tmp_path / "photos"


def test_a_pack_checks_everything_once(photos: Path, tmp_path: Path) -> None:
    """The recipe is made once, the destination checked once, the source digested once, its fields decided once. Workers
    check their libraries again: they may be on another machine."""
    with entered() as calls:
        assert run_here("pack", *SMALL, photos, tmp_path / "store").code == 0
    expected = dict.fromkeys(ONCE, 1) | {("recipe/__init__.py", "libraries"): 2}
    assert {one: calls[one] for one in ONCE} == expected


def test_an_append_checks_everything_once(photos: Path, tmp_path: Path) -> None:
    """The store is opened once, and its files are looked at once."""
    store = tmp_path / "store"
    assert run_here("pack", *SMALL, photos / "a", store).code == 0
    with entered() as calls:
        assert run_here("append", *SMALL[:2], "--quiet", photos / "b", store).code == 0
    once = (ONCE - {("recipe/__init__.py", "make_recipe")}) | {
        ("job/append.py", "open_store"),
        ("job/job.py", "check_sizes"),
    }
    expected = dict.fromkeys(once, 1) | {("recipe/__init__.py", "libraries"): 2}
    assert {one: calls[one] for one in once} == expected
    assert calls["recipe/__init__.py", "make_recipe"] == 0
