"""The option `--array`: which array of a file is the image, which the label, which a field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rawpack.errors import UsageError
from rawpack_packer.text import plain

IMAGE, LABEL = "image", "label"
Arrays = str | Sequence[str] | Mapping[str, str]
"""As a caller writes it: "image=train/x,label=train/y", several of these, or a mapping."""


def named_arrays(arrays: Arrays) -> dict[str, str]:
    """Name in the store -> name in the file; empty where nothing is named. Raises UsageError for nonsense."""
    if isinstance(arrays, Mapping):
        pairs = list(arrays.items())
    else:
        words = [word for each in ([arrays] if isinstance(arrays, str) else arrays) for word in each.split(",")]
        pairs = []
        for word in words:
            name, equals, of_file = (part.strip() for part in word.partition("="))
            if not name or not equals or not of_file:
                raise UsageError(f"--array {plain(word)}: write NAME=ARRAY, such as image=train/x,label=train/y")
            pairs.append((name, of_file))
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UsageError("--array names something twice")
    if found and IMAGE not in found:
        raise UsageError("--array names no image: add image=ARRAY; what is named is packed, and nothing else")
    return found


def shown_arrays(arrays: Mapping[str, str]) -> str | None:
    """The same as a command line has it; None where nothing is named."""
    return ",".join(f"{name}={of_file}" for name, of_file in arrays.items()) or None
