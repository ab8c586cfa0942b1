"""Parsing of what `plan` and `bench` read with: `--image-size`, and `--transform`, such as "RandomResizedCrop(224)",
without executing it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from rawpack import transforms
from rawpack.batching.options import size_of
from rawpack.errors import UsageError
from rawpack.transforms.plan import as_steps
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import parse_size

STEPS: dict[str, Any] = {
    name: getattr(transforms, name)
    for name in (
        "CenterCrop", "ColorJitter", "ConvertImageDtype", "CutMix", "Fit", "MixUp", "Normalize", "OneHot",
        "RandAugment", "RandomCrop", "RandomErasing", "RandomHorizontalFlip", "RandomResizedCrop",
        "RandomVerticalFlip", "Resize", "ToCHW",
    )
}  # fmt: skip
"""The steps of `rawpack.transforms` whose arguments are plain values."""


def parse_steps(texts: Sequence[Any]) -> tuple[Any, ...]:
    """The steps that these texts name, in order; each text is one step, or several with commas between them. Steps and
    functions stay.

    Raises UsageError for anything but a known step, and for arguments that are not plain values or do not fit.
    """
    steps: list[Any] = []
    for text in texts:
        steps += _steps(text) if isinstance(text, str) else as_steps([text])
    return tuple(steps)


def _steps(text: str) -> list[Any]:
    named = opt.transform(repr(text))
    try:
        body = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = None
    steps: list[Any] = []
    for node in body.elts if isinstance(body, ast.List) else []:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name) or call.func.id not in STEPS:
            steps.clear()
            break
        try:
            positional = [ast.literal_eval(value) for value in call.args]
            words = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (ValueError, TypeError, SyntaxError):
            raise UsageError(f"{named}: arguments are plain values, such as (0.08, 1.0)") from None
        try:
            steps.append(STEPS[call.func.id](*positional, **words))
        except UsageError:
            raise
        except (ValueError, TypeError) as error:
            raise UsageError(f"{named}: {error}") from None
    if not steps:
        raise UsageError(f"{named}: a step such as RandomResizedCrop(224); there are {', '.join(STEPS)}")
    return steps


def parse_side(text: str | int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width) of `--image-size`, or of `image_size=`. Raises UsageError."""
    if not isinstance(text, str):
        return None if text is None else size_of(text)
    if text == "keep":
        raise UsageError(
            f"{opt.image_size('keep')}: images of different sizes cannot form a batch: give a side in pixels"
        )
    size = parse_size(opt.image_size, text, keep=False)
    assert size != "keep"
    return (size, size) if isinstance(size, int) else size


def listed(value: Any) -> list[Any]:
    """The values of a keyword that takes one or several; a tuple is one size."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | range) else [value]
