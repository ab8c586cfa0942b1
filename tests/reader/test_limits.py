"""Limits of the shell or a batch scheduler, `ulimit`: the error says which one it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rawpack import RawpackError, Reader, StoreError, WorkerError, Workers

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits differ between systems")


@contextmanager
def limited(name: str, value: int) -> Iterator[None]:
    """A limit of this process, within the block."""
    number = getattr(resource, name)
    before, most = resource.getrlimit(number)
    resource.setrlimit(number, (value, most))
    try:
        yield
    finally:
        resource.setrlimit(number, (before, most))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_limit_on_open_files_is_named(reader: Reader, store: Path, backend: Any) -> None:
    """Where no worker can be started, and where no store can be opened."""
    workers = Workers(1, backend=backend)
    next(iter(reader.batches(8, workers=workers)))  # imports what is needed
    batches = reader.batches(8, workers=workers)
    for failing, read in ((WorkerError, lambda: next(iter(batches))), (StoreError, lambda: Reader(store))):
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        with (
            limited("RLIMIT_NOFILE", lowest),
            pytest.raises(failing, match=r"a limit on open files \(ulimit -n\) is too low: raise it"),
        ):
            read()


@pytest.mark.parametrize("most", [1 << 10, 1 << 16])
def test_a_limit_on_file_sizes_is_named(store: Path, most: int) -> None:
    """Memory that processes share counts as a file."""
    for read in (
        lambda: list(Reader(store).batches(24, workers=Workers(1, backend="process"))),
        lambda: Reader(store, preload=True),
    ):
        with limited("RLIMIT_FSIZE", most), pytest.raises(RawpackError, match=r"a limit on file sizes \(ulimit -f\)"):
            read()
