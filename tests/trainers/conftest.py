"""What the tests of several trainers share."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pictures import picture, save


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
