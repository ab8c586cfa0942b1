"""Adapters of trainers say which versions they were tested with, and what they miss. No framework is needed here."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from rawpack import MissingExtraError
from rawpack.integrations import versions


class Framework:
    """In the place of a class of a framework."""

    def begin(self, dataloader: Any, more: int = 0) -> None:
        """What an adapter calls."""


@pytest.mark.parametrize(("found", "told"), [("1.15.0", 0), ("1.15.7", 0), ("1.16.0", 1), ("2.0.0", 1)])
def test_another_version_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, found: str, told: int) -> None:
    """A version that was not tested gives one warning in a process, which names those that were; patch releases of
    these give none."""
    monkeypatch.setattr(versions, "version", lambda name: found)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            versions.warn_if_untested("accelerate")
    assert len(caught) == told
    for warning in caught:
        assert f"accelerate {found} has not been tested with rawpack, only 1.15.0" in str(warning.message)
        assert "pip install accelerate==1.15.0" in str(warning.message)


def test_what_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where what an adapter builds on is gone, or takes other parameters; more at the end do not matter."""
    monkeypatch.setattr(versions, "version", lambda name: "9.9")
    assert versions.hook("accelerate", Framework, "begin", "dataloader") is Framework.begin
    for name, words in (("start", "accelerate 9.9 has no Framework.start"), ("begin", "calls Framework.begin with")):
        with pytest.raises(MissingExtraError, match=re.escape(words) + r".*pip install accelerate==1\.15\.0"):
            versions.hook("accelerate", Framework, name, "loader")
