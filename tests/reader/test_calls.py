"""What a sample costs in calls of Python functions: a call more for each sample is felt, and no clock can show it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from running import Packed

from rawpack import Reader, native
from rawpack.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop

BATCH = 32
RECIPE = [RandomResizedCrop(40), RandomHorizontalFlip(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
_ELSEWHERE = 1.25
"""As many times more with other Pythons than 3.11."""


@contextmanager
def called() -> Iterator[list[str]]:
    """The Python functions that this thread calls within the block."""
    names = list[str]()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        yield names
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("layout", "steps", "workers", "at_most"),
    [
        ("lmdb", [], 0, 8 * BATCH),
        ("lmdb", RECIPE, 0, (28 if native.library() is not None else 50) * BATCH),
        ("lmdb", [CenterCrop(40)], 0, 100 * BATCH),
        ("memmap", RECIPE, 0, 100 * BATCH),
        ("memmap", [], 2, 60),
        ("memmap", [], 0, 100),
        ("hdf5", [], 0, 100),
    ],
)
def test_few_functions_are_called_for_a_batch(
    packed: Packed, layout: str, steps: list[Any], workers: int, at_most: float
) -> None:
    """However busy the machine is, the reader calls no more Python functions for a batch than promised."""
    reader = Reader(packed(layout, "--size", 48)).select([*range(75)] * 4)
    batches = reader.batches(BATCH, shuffle=True, transform=steps, workers=workers, drop_last=True)
    found = list[float]()
    for _ in range(3):
        iterator = iter(batches)
        list(islice(iterator, 3))
        with called() as names:
            list(islice(iterator, 3))
        found.append(len(names) / 3)
        list(iterator)
    assert min(found[1:]) <= at_most * (1.0 if sys.version_info[:2] == (3, 11) else _ELSEWHERE)
