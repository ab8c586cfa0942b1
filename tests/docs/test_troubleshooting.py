"""Messages that the page of troubleshooting quotes are those that the code has."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest
from kept import of_each
from rooms import nodes_of, parsed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
FIRST_CELL = re.compile(r"^\| (`[^|]*) \|", re.MULTILINE)
QUOTED = [one for cell in FIRST_CELL.findall(PAGE.read_text("utf-8")) for one in re.findall(r"`([^`]+)`", cell)]
VARIES = re.compile(r"\(.*?\)|'\w+'|\d[\d.,]*|store\.json|image, label, key")
"""What differs from one message to the next, or has a name in the code."""


TORCH = (
    "Input type (unsigned char) and bias type (float) should be the same",
    "view size is not compatible with input tensor's size and stride",
)
"""`tests/trainers/test_torch.py` has torch itself say them."""


@pytest.fixture(scope="module")
def words() -> dict[Path, set[str]]:
    """The words in the texts of each module, and those of the system, of Python and of torch."""
    said = [os.strerror(28), *TORCH]
    for wrong in ("x, y = {'image': 0, 'label': 1, 'index': 2}", "{}['images']"):
        try:
            exec(wrong)
        except (ValueError, KeyError) as error:
            said.append(f"{type(error).__name__}: {error}")
    found = {Path(str(k)): set(re.findall(r"[\w-]+", one)) for k, one in enumerate(said)}
    return found | of_each(words_in, [*(ROOT / "reader").rglob("*.py"), *(ROOT / "packer").rglob("*.py")])


def words_in(source: str) -> set[str]:
    """The words in the texts of a module."""
    nodes = nodes_of(parsed(source))
    texts = [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return set(re.findall(r"[\w-]+", " ".join(texts)))


@pytest.mark.parametrize("message", QUOTED)
def test_a_module_has_all_words_of_the_message(message: str, words: dict[Path, set[str]]) -> None:
    """Messages are put together from parts, in one module each."""
    wanted = {word for word in re.findall(r"[\w-]+", VARIES.sub(" ", message)) if len(word) > 3}
    assert len(wanted) >= 1
    missing = min((wanted - found for found in words.values()), key=len)
    assert missing == set()


def test_there_are_twenty() -> None:
    assert len(QUOTED) >= 20
