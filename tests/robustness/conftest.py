"""What tests of robustness share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest
from once import is_unchanged, once


@pytest.fixture(scope="session")
def sound(run_folder: Path) -> Iterator[Callable[[str], Path]]:
    """`sound("lmdb-keep")`: the sound store of a variant of `hostile`, packed once for all processes of the run, and
    still the same at its end: copy it to change it."""
    made = dict[str, Path]()

    def get(variant: str) -> Path:
        if variant not in made:
            source, place = run_folder / "hostile-source", run_folder / f"hostile-{variant}"
            once(source, lambda: hostile.make_images(source))
            made[variant] = once(place, lambda: hostile.make_store(source, place / "store", variant))
        return made[variant] / "store"

    yield get
    for variant, place in made.items():
        assert is_unchanged(place), f"a test has changed the store that others read: {variant}"
