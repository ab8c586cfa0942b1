"""What tests of robustness share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from forked import Forks, forks
from running import environment


@pytest.fixture(scope="session", name="forks")
def forks_fixture() -> Iterator[Forks]:
    """Processes that have loaded rawpack, each for one script or command."""
    if sys.platform == "win32":
        pytest.skip("no process can be forked here")
    with forks(environment()) as forked:
        yield forked
