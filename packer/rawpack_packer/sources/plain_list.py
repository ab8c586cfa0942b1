"""Which command packs a plain list next to images: a path in each line, perhaps with a label."""

from __future__ import annotations

import os
import re

from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.seen import HEAD, Seen, command
from rawpack_packer.text import plain

_MOST_CHARACTERS = 80
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def plain_list_cure(seen: Seen, file: bytes) -> str:
    """What to do with a list of images and labels; "" where it is none.

    A line with more columns than these two, as that of Tiny ImageNet, has no names for them: no command is guessed.
    """
    line = text_of(seen.head(file, HEAD).lstrip().partition(b"\n")[0]).strip()
    path, _, label = line.partition("\t") if "\t" in line else line.partition(" ")
    image = seen.locate(path, False)
    words = label.split()
    if image is None or not words:
        return ""
    given = os.path.join(os.path.dirname(text_of(file)), path) == image  # noqa: PTH118, PTH120
    folder = seen.below(os.fsencode(image.removesuffix(path).rstrip("/")))
    options = [] if given or not image.endswith(path) else ["--images", folder]
    numbers = [_NUMBER.fullmatch(word) is not None for word in words]
    if not all(numbers) and ("\t" in label.strip() or any(numbers)):
        name = os.path.splitext(text_of(file))[0] + ".tsv"  # noqa: PTH122
        return (
            f"its first line is {line[:_MOST_CHARACTERS]!r}, more than a path and a label: save it as {plain(name)}, "
            "with tabs and a first line that names its columns, such as path, label, and "
            f"{command(*options, seen.below(os.fsencode(name)))} packs them"
        )
    return f"{command(*options, seen.below(file))} packs its labels"
