"""The option `--array`: which array of a file is the image, which the label, which a field; and the image's axes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.axes import AXES, Axes
from rawpack_packer.text import plain

IMAGE, LABEL = "image", "label"
Arrays = str | Sequence[str] | Mapping[str, str]
"""As a caller writes it: "image=train/x,label=train/y", several of these, or a mapping; or ":chw" alone."""


def named_arrays(arrays: Arrays) -> dict[str, str]:
    """Name in the store -> name in the file; empty where nothing is named. Raises UsageError for nonsense.

    The name of the image may end in its axes; see `split_axes`. Where they are all that was said, it is ":chw".
    """
    if isinstance(arrays, Mapping):
        pairs = list(arrays.items())
    else:
        words = [word for each in ([arrays] if isinstance(arrays, str) else arrays) for word in each.split(",")]
        pairs = []
        for word in words:
            name, equals, of_file = (part.strip() for part in word.partition("="))
            if not equals and name.removeprefix(":") in AXES:
                name, of_file = IMAGE, f":{name.removeprefix(':')}"
            elif not name or not equals or not of_file:
                raise UsageError(
                    f"{opt.array(plain(word))}: write NAME=ARRAY, such as image=train/x,label=train/y; or :chw alone, "
                    "where only the axes of the images have to be said"
                )
            pairs.append((name, of_file))
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UsageError(f"{opt.array} names something twice")
    if found and IMAGE not in found:
        raise UsageError(f"{opt.array} names no image: add image=ARRAY; what is named is packed, and nothing else")
    if len(found) > 1 and not split_axes(found[IMAGE])[0]:
        axes = found[IMAGE]
        raise UsageError(
            f"{opt.array(axes)} is for images that need no name; write image=ARRAY{axes} next to other names"
        )
    return found


def check_named_once(arrays: Mapping[str, str], image_column: str | None, label_column: str | None) -> None:
    """Raise UsageError where `--array` names columns, and another option names one too."""
    if split_axes(arrays.get(IMAGE, ""))[0] and (image_column or label_column):
        other = opt.image_column if image_column else opt.label_column
        raise UsageError(f"{opt.array} and {other} both name arrays: name the image, the label and all fields by one")


def split_axes(name: str, known: Container[str] = ()) -> tuple[str, Axes | None]:
    """The name of the image's array, "" where it was not said, and the axes that follow it. known: names of arrays,
    which may end like that."""
    for axes in AXES:
        if name.endswith(f":{axes}") and name not in known:
            return name.removesuffix(f":{axes}"), axes
    return name, None


def saying_axes(wanted: Mapping[str, str], name: str) -> Callable[[Axes], str]:
    """How a user says the axes of the image. wanted: what was named so far. name: of the image's array."""
    before = f"image={plain(name)}:" if split_axes(wanted.get(IMAGE, ""))[0] else ":"
    return lambda axes: opt.array(before + axes)


def shown_arrays(arrays: Mapping[str, str]) -> str | None:
    """The same as a command line has it; None where nothing is named."""
    if len(arrays) == 1 and not split_axes(arrays.get(IMAGE, ""))[0]:
        return arrays[IMAGE]
    return ",".join(f"{name}={of_file}" for name, of_file in arrays.items()) or None
