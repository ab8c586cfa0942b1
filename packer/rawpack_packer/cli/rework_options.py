"""The options of the commands that make stores of stores: a recipe of which all that is left out stays as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from rawpack_packer import text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.arguments import store_folder
from rawpack_packer.cli.job_options import JobOptions
from rawpack_packer.cli.progress import scanning
from rawpack_packer.destination import folder as destinations
from rawpack_packer.job import derive, job
from rawpack_packer.recipe.fields import store_fields
from rawpack_packer.recipe.recipe import COLORS, FITS, INTERPOLATIONS, Recipe
from rawpack_packer.recipe.tables import format_names
from rawpack_packer.sources import StoreSource

Command = TypeVar("Command", bound=Callable[..., Any])
Progress = Callable[[int], None]
Making = Callable[[Progress], tuple[StoreSource, Recipe]]
"""Opens stores, telling how many samples were seen, and gives the source and recipe of a job."""


def kept_recipe_options(command: Command) -> Command:
    """Those options of a recipe that make sense of a store; what is left out stays as it is there. And `--dry-run`."""
    options = [
        click.option("--format", "format", type=click.Choice(format_names()),
                     help="Of the new store [default: as it was]."),
        click.option("--size", metavar="N|HxW|keep", help="Bring images to this size; as of `rawpack pack`."),
        click.option("--crop", metavar="X,Y,W,H", help="Cut this box out of each image first."),
        click.option("--fit", type=click.Choice(FITS), help="How images are brought to --size [default: cover]."),
        click.option("--interpolation", type=click.Choice(INTERPOLATIONS), help="[default: area]"),
        click.option("--color", type=click.Choice(COLORS), help="Of pictures [default: as it was]."),
        click.option("--quality", metavar="1-100|keep",
                     help="JPEG quality in lmdb stores [default: JPEG files stay the bytes that they are; where they "
                     "cannot, as it was, or 90]."),
        click.option("--subsampling", metavar="420|422|440|444", help="Chroma of JPEG that is encoded anew."),
        click.option("--compression", type=click.Choice(["none", "gzip"]), help="Of hdf5 stores."),
        click.option("--chunk", type=click.IntRange(1), help="Images per chunk in hdf5 stores."),
        click.option("--shard-size", metavar="BYTES", help="Raw pixels that one shard is cut for."),
        click.option("--dry-run", is_flag=True, help="Say what it would take, and write nothing."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def run(stores: tuple[str, ...], dst: str, making: Making, how: JobOptions, *, dry_run: bool) -> None:
    """Make a store at `dst` of what `making` gives."""
    for store in stores:
        destinations.check_apart(Path(dst), store_folder(store))
    destinations.check(Path(dst), "<stores>")
    engine = how.connect()
    with scanning(quiet=how.quiet) as progress:
        source, recipe = making(progress)
    if not how.silent:
        classes = f" in {text.count(len(source.classes), 'class', 'classes')}" if source.classes is not None else ""
        click.echo(f"rawpack: {text.count(len(source), 'sample')}{classes} in {text.plain(source.root)}", err=True)
    if dry_run:
        click.echo(_would_take(source, dst, recipe, how))
        return
    how.run(lambda progress: derive.packed(source, recipe, dst, how.limits, engine, progress))


def _would_take(source: StoreSource, dst: str, recipe: Recipe, how: JobOptions) -> str:
    guess, free = job.dry_run(source, dst, recipe, how.limits)
    if how.as_json:
        return json.dumps(asdict(guess) | {"free_bytes": free, "samples": len(source)}, indent=1)
    return summaries.dry_text(guess, store_fields(recipe, source)["image"].shape, len(source), free)
