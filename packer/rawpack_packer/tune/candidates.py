"""What `plan` and `bench` are asked: the candidates of a plan, all sensible combinations of format, size, fit, quality,
color and compression; and what is read with, `--image-size` and `--transform`, parsed without executing it."""

from __future__ import annotations

import ast
import inspect
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rawpack import transforms
from rawpack.checks import size_of
from rawpack.disk.tables import codec_of
from rawpack.errors import UsageError
from rawpack.formats.codecs import zstd
from rawpack.transforms import instead
from rawpack.transforms.plan import as_steps
from rawpack_packer.options import opt
from rawpack_packer.options.option import FITS, JPEG_TABLES, Names, parse_size
from rawpack_packer.recipe import FORMATS, Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format

_TRIED: Mapping[str, Sequence[str]] = {
    "format": FORMATS,
    "size": ("256",),
    "fit": FITS[:1],
    "color": ("rgb",),
    "quality": ("75", "90", "95"),
    "jpeg_tables": JPEG_TABLES[:1],
    "compression": ("none", "zstd"),
}
"""Options of `pack` -> what is tried, unless the user names other values."""
_USUAL = {"fit": FITS[0], "color": "rgb", "jpeg_tables": JPEG_TABLES[0], "compression": "none"}
"""Values that need no mention."""
_OF_FORMATS = ("quality", "jpeg_tables", "compression")
"""Options that only some formats have."""


@dataclass(frozen=True)
class Candidate:
    """One way to pack the source."""

    name: str
    """As in tables: "lmdb 256 q90"."""
    recipe: Recipe
    options: tuple[str, ...]
    """Of `rawpack pack`."""

    @property
    def lossy(self) -> bool:
        """Whether what is read differs from the pixels that were packed."""
        return codec_of(self.recipe.encoding).lossy and not self.recipe.passes_through

    @property
    def group(self) -> tuple[object, ...]:
        """Size, fit and color: equal for candidates with the same pixels, except for what is lost of them."""
        return self.recipe.size, *self.recipe.sizes.items(), self.recipe.fit, self.recipe.pixels

    @property
    def raw_recipe(self) -> Recipe:
        """The recipe of the same pixels before any loss."""
        values = dict.fromkeys(("quality", "check", "subsampling", "jpeg_tables", "compression", "chunk"))
        return msgspec.structs.replace(self.recipe, format="memmap", color=self.recipe.pixels, **values)

    def command(self, source: str, more: Sequence[str] = ()) -> str:
        """The command that packs the whole source this way. more: options about the source."""
        return shlex.join(["rawpack", "pack", *self.options, *more, source, "STORE"])


def candidates(**tried: Sequence[str]) -> list[Candidate]:
    """All combinations of the values of `_TRIED`, or of those that are given. Raises UsageError for none."""
    usual = _TRIED if zstd.is_installed() else {**_TRIED, "compression": ("none",)}
    found = {one.name: one for one in _combinations({**usual, **tried})}
    if not found:
        planes = opt.color("ycgco420")
        raise UsageError(f"there is nothing to compare: name a {opt.format}, other than lmdb for {planes}")
    return list(found.values())


def untried(named: Mapping[str, Sequence[str]]) -> list[str]:
    """What was not tried although it may suit, and why: a sentence each. named: the options that the user named, with
    their values."""
    lines = list[str]()
    written = [output_format(one) for one in named.get("format", _TRIED["format"])]
    if "compression" not in named and not zstd.is_installed() and any("zstd" in one.compressions for one in written):
        lines.append(f"Not tried: {opt.compression('zstd')}, which needs `pip install 'rawpack[zstd]'`.")
    if "color" not in named and any("ycgco420" in one.colors for one in written):
        what = f"{opt.color('ycgco420')}, raw pixels in half the bytes, with a small loss"
        lines.append(f"Not tried unless you name it: {what}.")
    return lines


def _combinations(tried: Mapping[str, Sequence[str]]) -> Iterator[Candidate]:
    of_all = ("format", "size", "fit", "color")
    for format, size, fit, color in itertools.product(*(tried[name] for name in of_all)):
        written = output_format(format)
        if color not in written.colors:
            continue
        names = [name for name in _OF_FORMATS if name in written.options]
        for values in itertools.product(*(tried[name] for name in names)):
            if dict(zip(names, values, strict=True)).get("compression", "none") not in ("none", *written.compressions):
                continue
            every = {
                "format": format,
                "size": size,
                "fit": fit,
                "color": color,
                **dict(zip(names, values, strict=True)),
            }
            given = {name: value for name, value in every.items() if value != _USUAL.get(name)}
            words = [f"q{value}" if name == "quality" else value.replace(",", ", ") for name, value in given.items()]
            options = [(f"--{name.replace('_', '-')}", value) for name, value in given.items()]
            yield Candidate(" ".join(words), make_recipe(**given), tuple(itertools.chain.from_iterable(options)))


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
    there = f"there are {', '.join(STEPS)}"
    steps: list[Any] = []
    for node in _nodes(text):
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "Compose":
            raise UsageError(f"{named}: steps stand in a row, without Compose: RandomResizedCrop(224), ToCHW()")
        if words := instead.renamed(name):
            raise UsageError(f"{named}: there is no step {name}: {words}")
        if not isinstance(call.func, ast.Name):
            steps.clear()
            break
        if name not in STEPS:
            raise UsageError(f"{named}: there is no step {name}; {there}")
        try:
            positional = [ast.literal_eval(value) for value in call.args]
            options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (ValueError, TypeError, SyntaxError):
            raise UsageError(f"{named}: arguments are plain values, such as (0.08, 1.0)") from None
        try:
            inspect.signature(STEPS[name]).bind(*positional, **options)  # whose errors name no function of ours
            steps.append(STEPS[name](*positional, **options))
        except UsageError:
            raise
        except (ValueError, TypeError) as error:
            raise UsageError(f"{named}: {error}") from None
    if not steps:
        raise UsageError(f"{named}: a step such as RandomResizedCrop(224); {there}")
    return steps


def _nodes(text: str) -> list[ast.expr]:
    """The steps of a text, which may have brackets around all of them; none of a text that is no list."""
    try:
        body = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = body.elts if isinstance(body, ast.List) else []
    return nodes[0].elts if len(nodes) == 1 and isinstance(nodes[0], ast.List) else nodes


def parse_sides(value: Any) -> tuple[int, int] | dict[str, tuple[int, int]] | None:
    """What `--image-size` or `image_size=` says: one for all images, or by field. Raises UsageError."""
    if isinstance(value, str) and "=" in value:
        value = dict(one.strip().partition("=")[::2] for one in value.split(","))
    if isinstance(value, Mapping):
        return {name: parse_side(one) or (0, 0) for name, one in value.items()}
    return parse_side(value)


def parse_side(text: str | int | tuple[int, int] | None, name: Names = opt.image_size) -> tuple[int, int] | None:
    """(height, width) of one of them. name: see `Names`. Raises UsageError."""
    if not isinstance(text, str):
        return None if text is None else size_of(text)
    if text == "keep":
        raise UsageError(f"{name(text)}: images of different sizes cannot form a batch: give a side in pixels")
    size = parse_size(name, text, keep=False)
    assert size != "keep"
    return (size, size) if isinstance(size, int) else size


def listed(value: Any) -> list[Any]:
    """The values of a keyword that takes one or several; a tuple is one size."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | range) else [value]
