"""Messages that the page of troubleshooting quotes are those that the code has."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

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


def test_a_module_has_all_words_of_each_message() -> None:
    """Messages are put together from parts, in one module each; some are those of the system, Python and torch."""
    said = [os.strerror(28), *TORCH]
    for wrong in ("x, y = {'image': 0, 'label': 1, 'index': 2}", "{}['images']"):
        try:
            exec(wrong)
        except (ValueError, KeyError) as error:
            said.append(f"{type(error).__name__}: {error}")
    words = [set(re.findall(r"[\w-]+", one)) for one in said]
    words += of_each(words_in, [*(ROOT / "reader").rglob("*.py"), *(ROOT / "packer").rglob("*.py")]).values()
    assert len(QUOTED) >= 20
    for message in QUOTED:
        wanted = {word for word in re.findall(r"[\w-]+", VARIES.sub(" ", message)) if len(word) > 3}
        assert wanted
        assert min((wanted - found for found in words), key=len) == set(), message


def words_in(source: str) -> set[str]:
    """The words in the texts of a module."""
    nodes = nodes_of(parsed(source))
    texts = [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return set(re.findall(r"[\w-]+", " ".join(texts)))
