"""The candidates of a plan: all sensible combinations of format, size, quality, color and compression."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from rawpack.disk.tables import codec_of
from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.options.values import JPEG_TABLES
from rawpack_packer.recipe.recipe import Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format

Group = tuple[object, ...]
"""Size and color: equal for candidates with the same pixels, except for what is lost of them."""


class TrialRecipe(Recipe, frozen=True, kw_only=True):
    """A recipe whose parts are small, so that all workers have something to do on a sample."""

    rows: int = 64

    def rows_for(self, raw: int) -> int:
        return self.rows


@dataclass(frozen=True)
class Candidate:
    """One way to pack the source."""

    name: str
    """As in tables: "lmdb 256 q90"."""
    recipe: Recipe
    options: tuple[str, ...]
    """Of `rawpack pack`."""

    @property
    def raw(self) -> bool:
        """Whether nothing is decoded or inflated: pixels or planes."""
        return codec_of(self.recipe.encoding).in_place

    @property
    def lossy(self) -> bool:
        """Whether what is read differs from the pixels that were packed."""
        return codec_of(self.recipe.encoding).lossy and not self.recipe.passes_through

    @property
    def group(self) -> Group:
        return self.recipe.size, self.recipe.pixels

    @property
    def work(self) -> str:
        """The work that reading an image takes at least: "copy 256", "decode 256 q90"."""
        recipe = self.recipe
        size = "x".join(map(str, recipe.size)) if isinstance(recipe.size, tuple) else str(recipe.size)
        words = ["copy" if self.raw else "decode", size, *([] if recipe.color == "rgb" else [recipe.color])]
        if not self.raw:
            words += [f"q{recipe.quality}", *([recipe.jpeg_tables] if recipe.jpeg_tables else [])]
        return " ".join(words)

    @property
    def raw_recipe(self) -> Recipe:
        """The recipe of the same pixels before any loss."""
        of_formats = ("quality", "check", "subsampling", "jpeg_tables", "compression", "chunk")
        values = dict.fromkeys(of_formats)
        return msgspec.structs.replace(self.recipe, format="memmap", color=self.recipe.pixels, **values)

    def trial(self, rows: int) -> TrialRecipe:
        """The recipe with parts of `rows` samples."""
        values = {name: getattr(self.recipe, name) for name in self.recipe.__struct_fields__}
        return msgspec.convert(values | {"rows": rows}, TrialRecipe)

    def command(self, source: str, more: Sequence[str] = ()) -> str:
        """The command that packs the whole source this way. more: options about the source."""
        return shlex.join(["rawpack", "pack", *self.options, *more, source, "STORE"])


def candidates(
    formats: Sequence[str],
    sizes: Sequence[str],
    qualities: Sequence[str],
    colors: Sequence[str],
    compressions: Sequence[str],
    jpeg_tables: Sequence[str] = JPEG_TABLES[:1],
) -> list[Candidate]:
    """All combinations, with qualities, tables and compressions where formats have them. Raises UsageError for none."""
    found = {
        candidate.name: candidate
        for format, size, color in itertools.product(formats, sizes, colors)
        for candidate in _of(format, size, color, qualities, compressions, jpeg_tables)
    }
    if not found:
        raise UsageError(f"there is nothing to compare: name a {opt.format}, other than lmdb for {opt.color('yuv420')}")
    return list(found.values())


def _of(
    format: str,
    size: str,
    color: str,
    qualities: Sequence[str],
    compressions: Sequence[str],
    jpeg_tables: Sequence[str],
) -> Iterator[Candidate]:
    common = {"format": format, "size": size} | ({"color": color} if color != "rgb" else {})
    name = f"{format} {size}" + (f" {color}" if color != "rgb" else "")
    written = output_format(format)
    if color not in written.colors:
        return
    if "quality" in written.options:
        for quality, tables in itertools.product(qualities, jpeg_tables):
            usual = tables == JPEG_TABLES[0]
            yield _candidate(
                f"{name} q{quality}" + ("" if usual else f" {tables}"),
                common | {"quality": quality} | ({} if usual else {"jpeg_tables": tables}),
            )
    elif "compression" in written.options:
        for compression in compressions:
            packed = compression != "none"
            yield _candidate(
                f"{name} {compression}" if packed else name, common | ({"compression": compression} if packed else {})
            )
    else:
        yield _candidate(name, common)


def _candidate(name: str, options: dict[str, str]) -> Candidate:
    words = itertools.chain.from_iterable((f"--{option.replace('_', '-')}", value) for option, value in options.items())
    return Candidate(name, make_recipe(**options), tuple(words))
