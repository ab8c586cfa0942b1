"""Transforms as a user writes them for `--transform`: "RandomResizedCrop(224)". Parsed, never executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from rawpack import transforms
from rawpack.errors import UsageError

STEPS: dict[str, Any] = {
    name: getattr(transforms, name)
    for name in (
        "CenterCrop", "ColorJitter", "ConvertImageDtype", "CutMix", "Fit", "MixUp", "Normalize", "OneHot",
        "RandAugment", "RandomCrop", "RandomErasing", "RandomHorizontalFlip", "RandomResizedCrop",
        "RandomVerticalFlip", "Resize", "ToCHW",
    )
}  # fmt: skip
"""Those of `rawpack.transforms` whose arguments can be written down."""


def parse_steps(texts: Sequence[str]) -> tuple[Any, ...]:
    """The steps that these texts name, in order; each text is one step, or several with commas between them.

    Raises UsageError for what is no step, and for arguments that are no plain values or do not fit.
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
