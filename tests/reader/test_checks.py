"""Values that users pass to the reader: what they become, and that anything else names the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rawpack import UsageError, checks

TAKEN: list[tuple[str, Any, Any]] = [
    ("whole_number", np.int32(3), 3),
    ("seconds", 2, 2.0),
    ("seconds", math.inf, 1 << 20),
    ("flag", np.bool_(True), True),
    ("names", ("a", "b"), ["a", "b"]),
    ("size_of", 224, (224, 224)),
    ("size_of", [np.int64(1), 65535], (1, 65535)),
]
REFUSED: dict[str, list[Any]] = {
    "whole_number": [True, 1.0, "1", None],
    "seconds": [0, -1, math.nan, True, "1"],
    "flag": [1, "True", None],
    "names": ["a", [1], 5, None],
    "size_of": [0, 65536, True, (1, True), (1, 2, 3), (1,), 2.0, "224", None],
}


@pytest.mark.parametrize(("check", "value", "expected"), TAKEN)
def test_one_form_comes_back(check: str, value: Any, expected: Any) -> None:
    """Plain Python, whichever of several ways a user has written it in."""
    given = (value, "asked") if check == "size_of" else ("asked", value)
    checked = getattr(checks, check)(*given)
    assert checked == expected
    assert type(checked) is type(expected) or isinstance(checked, float)


@pytest.mark.parametrize(("check", "value"), [(check, value) for check in REFUSED for value in REFUSED[check]])
def test_anything_else_names_the_argument(check: str, value: Any) -> None:
    """A usage error with the name that the user has written, and the value."""
    with pytest.raises(UsageError, match=r"^asked="):
        getattr(checks, check)(*((value, "asked") if check == "size_of" else ("asked", value)))
