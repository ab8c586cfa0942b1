"""What the tests of several trainers share."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest
from pictures import picture, save

_COMPILED = tempfile.TemporaryDirectory(prefix="rawpack-compiled-", ignore_cleanup_errors=True)
# JAX compiles the same step for each model and in each process: most of the time of Keras's tests. It reads these once.
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": _COMPILED.name,
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


@pytest.fixture
def photos_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the pages begin in, as the working folder: `photos/`, with two classes."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("cat", "dog")):
        for one in range(12):
            save(tmp_path / "photos" / name / f"{one:03}.jpg", picture(100 + 3 * one, 160 - 2 * one, 12 * number + one))


def pytest_sessionfinish() -> None:
    """End the workers of loaders that a framework still refers to: pytest would take them for left open."""
    from rawpack.workers.pool import WorkerPool

    for pool in [one for one in gc.get_objects() if type(one) is WorkerPool]:
        pool.close()
