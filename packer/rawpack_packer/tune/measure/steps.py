"""Parsing of `--transform`, such as "RandomResizedCrop(224)", without executing it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from rawpack import transforms
from rawpack.errors import UsageError
from rawpack_packer.recipe.recipe import parse_size

STEPS: dict[str, Any] = {
    name: getattr(transforms, name)
    for name in (
        "CenterCrop", "ColorJitter", "ConvertImageDtype", "CutMix", "Fit", "MixUp", "Normalize", "OneHot",
        "RandAugment", "RandomCrop", "RandomErasing", "RandomHorizontalFlip", "RandomResizedCrop",
        "RandomVerticalFlip", "Resize", "ToCHW",
    )
}  # fmt: skip
"""The steps of `rawpack.transforms` whose arguments are plain values."""


def parse_steps(texts: Sequence[str]) -> tuple[Any, ...]:
    """The steps in these texts, in order; each text is one step, or several with commas between them.

    Raises UsageError for anything but a known step, and for arguments that are not plain values or do not fit.
    """
    return tuple(_step(node, text) for text in texts for node in _nodes(text))


def _nodes(text: str) -> list[ast.expr]:
    try:
        body = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(text) from None
    if not isinstance(body, ast.List) or not body.elts:
        raise _wrong(text)
    return body.elts


def _step(node: ast.expr, text: str) -> Any:
    name = node.func if isinstance(node, ast.Call) else node
    if not isinstance(name, ast.Name) or name.id not in STEPS:
        raise _wrong(text)
    positional, named = [], {}
    if isinstance(node, ast.Call):
        try:
            positional = [ast.literal_eval(value) for value in node.args]
            named = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
        except (ValueError, TypeError, SyntaxError):
            raise UsageError(f"--transform {text!r}: arguments are plain values, such as (0.08, 1.0)") from None
    try:
        return STEPS[name.id](*positional, **named)
    except UsageError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"--transform {text!r}: {error}") from None


def _wrong(text: str) -> UsageError:
    return UsageError(f"--transform {text!r}: a step such as RandomResizedCrop(224); there are {', '.join(STEPS)}")


def parse_side(text: str | None) -> tuple[int, int] | None:
    """(height, width) of `--image-size`. Raises UsageError."""
    if text is None:
        return None
    size = parse_size(text)
    if size == "keep":
        raise UsageError(
            "--image-size keep: images of different sizes cannot form a batch: give a side, or HEIGHTxWIDTH"
        )
    return (size, size) if isinstance(size, int) else size
