"""Looks through files of HDF5, LMDB and video in this process: to start another takes longer than most tests do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from rawpack_packer.isolated import IsolatedCalls
from rawpack_packer.sources.video import scan


@contextmanager
def without_children() -> Iterator[None]:
    """Files are looked through here, and not in child processes, which changes nothing but the time."""
    isolated = IsolatedCalls.call

    def call(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if not function.__module__.startswith("rawpack_packer.sources"):
            return isolated(self, function, *args, **kwargs)
        kept = os.dup(2)  # what looks at an LMDB closes it for good
        try:
            return function(*args, **kwargs)
        finally:
            os.dup2(kept, 2)
            os.close(kept)

    def indexes(places: Any, progress: Any = None) -> list[Any]:
        return [scan._index(place, lambda: None) for place in places]

    with mock.patch.object(IsolatedCalls, "call", call), mock.patch.object(scan, "make_indexes", indexes):
        yield
