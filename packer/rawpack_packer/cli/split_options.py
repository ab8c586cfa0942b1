"""The options that make several stores of one SRC, a store for each split, and how these are packed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from rawpack.disk.splits import SplitSet
from rawpack.errors import UsageError
from rawpack_packer import text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.job_options import JobOptions
from rawpack_packer.engines import Engine
from rawpack_packer.job import job, splits
from rawpack_packer.job.holdout import TRAIN, Draw, parse_holdout
from rawpack_packer.job.job import Limits, Progress, Summary
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source

Command = TypeVar("Command", bound=Callable[..., Any])
_SHOWN = 5


def split_options(command: Command) -> Command:
    """`--splits`, `--holdout`, `--seed`."""
    options = [
        click.option("--splits", metavar="NAME,...",
                     help="Pack the folders SRC/NAME, each into a store DST/NAME, with the same classes."),
        click.option("--holdout", multiple=True, metavar="NAME=SHARE|N",
                     help="Draw a share or a number of each class for a store DST/NAME; what remains is DST/train. "
                     "Example: val=0.1,test=0.1"),
        click.option("--seed", type=int, help="Of the draw of --holdout [default: 0]."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def take_split_options(options: dict[str, Any]) -> SplitSet | None:
    """What `split_options` added to a command's options: taken out of them. None where none was given."""
    names, amounts, seed = (options.pop(name) for name in ("splits", "holdout", "seed"))
    if names is not None and amounts:
        raise UsageError("--splits packs what is divided, --holdout divides: give one of them")
    if seed is not None and not amounts:
        raise UsageError("--seed is of the draw of --holdout")
    if names is not None:
        return splits.divided([name.strip() for name in names.split(",")])
    return splits.drawn(parse_holdout(amounts), seed or 0) if amounts else None


def open_splits(src: str, chosen: SplitSet, how: JobOptions, open_one: Callable[[str], Source]) -> Mapping[str, Source]:
    """The source of each split; what came of a draw is told."""
    if chosen.holdout is None:
        return splits.open_divided(src, chosen.splits, open_one)
    source = open_one(src)
    sources, drawn = splits.draw(source, chosen)
    if not how.silent:
        for line in _told(source, drawn):
            click.echo(f"rawpack: {line}", err=True)
    return sources


def pack_splits(
    sources: Mapping[str, Source],
    dst: str,
    recipes: Mapping[str, Recipe],
    chosen: SplitSet,
    how: JobOptions,
    engine: Engine | None,
) -> None:
    """Pack all splits, and print what came of each."""
    limits = splits.begin(Path(dst), sources, recipes, chosen, how.limits)
    told: dict[str, Any] = {}
    for name, source in sources.items():
        if not how.silent:
            click.echo(f"rawpack: {text.plain(name)}: {summaries.images(source)}", err=True)
        pack = partial(_pack, source, Path(dst) / name, recipes[name], limits, engine)
        summary = how.watched(pack)
        told[name] = summaries.as_dict(summary)
        if not how.silent:
            click.echo(f"{text.plain(name)}: {summaries.as_text(summary)}\n")
    if how.as_json:
        click.echo(json.dumps({"destination": dst, "splits": told}, indent=1))
    elif not how.quiet:
        click.echo(
            f'Read a split by its name: rawpack.Reader("{text.plain(dst)}", split="{text.plain(chosen.splits[0])}")'
        )


def _pack(
    source: Source, store: Path, recipe: Recipe, limits: Limits, engine: Engine | None, progress: Progress
) -> Summary:
    return job.pack(source, store, recipe, limits, engine=engine, progress=progress)


def _told(source: Source, drawn: Draw) -> list[str]:
    """What is worth to be known of a draw."""
    lines = [f"drawn: {', '.join(f'{text.plain(name)} {len(rows):,}' for name, rows in drawn.rows.items())}"]
    alone = [(source.classes or ())[label] for label in drawn.kept_whole if 0 <= label < len(source.classes or ())]
    if alone:
        what = "class has too little to divide, and stays" if len(alone) == 1 else "classes have too little, and stay"
        lines.append(f"{len(alone):,} {what} in {TRAIN}: {_names(alone)}")
    for name, labels in drawn.short.items():
        what = f"{text.plain(name)} gets less than was asked for, since one of each class stays in {TRAIN}"
        few = [(source.classes or ())[label] for label in labels if 0 <= label < len(source.classes or ())]
        lines.append(what + (f": of {text.count(len(few), 'class', 'classes')}, {_names(few)}" if few else ""))
    if not drawn.by_class:
        lines.append("drawn from all samples together: their classes are not known before they are read")
    return lines


def _names(classes: list[str]) -> str:
    return ", ".join(map(text.plain, classes[:_SHOWN])) + (", ..." if len(classes) > _SHOWN else "")
