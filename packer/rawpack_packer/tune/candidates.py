"""The candidates of a plan: all sensible combinations of format, size, quality, color and compression."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rawpack.disk.tables import codec_of
from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import JPEG_TABLES
from rawpack_packer.recipe.recipe import FORMATS, Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format

_TRIED: Mapping[str, Sequence[str]] = {
    "format": FORMATS,
    "size": ("256",),
    "color": ("rgb",),
    "quality": ("75", "90", "95"),
    "jpeg_tables": JPEG_TABLES[:1],
    "compression": ("none",),
}
"""Options of `pack` -> what is tried, unless the user names other values."""
_USUAL = {"color": "rgb", "jpeg_tables": JPEG_TABLES[0], "compression": "none"}
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
        """Size and color: equal for candidates with the same pixels, except for what is lost of them."""
        return self.recipe.size, self.recipe.pixels

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
    found = {one.name: one for one in _combinations({**_TRIED, **tried})}
    if not found:
        raise UsageError(f"there is nothing to compare: name a {opt.format}, other than lmdb for {opt.color('yuv420')}")
    return list(found.values())


def _combinations(tried: Mapping[str, Sequence[str]]) -> Iterator[Candidate]:
    for format, size, color in itertools.product(tried["format"], tried["size"], tried["color"]):
        written = output_format(format)
        if color not in written.colors:
            continue
        names = [name for name in _OF_FORMATS if name in written.options]
        for values in itertools.product(*(tried[name] for name in names)):
            every = {"format": format, "size": size, "color": color, **dict(zip(names, values, strict=True))}
            given = {name: value for name, value in every.items() if value != _USUAL.get(name)}
            words = [f"q{value}" if name == "quality" else value for name, value in given.items()]
            options = [(f"--{name.replace('_', '-')}", value) for name, value in given.items()]
            yield Candidate(" ".join(words), make_recipe(**given), tuple(itertools.chain.from_iterable(options)))
