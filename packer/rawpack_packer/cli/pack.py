"""`rawpack pack`: a source into a store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rawpack_packer import destination as destinations
from rawpack_packer import job, show
from rawpack_packer.api import recipe_for
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.job_options import job_options, take_job_options
from rawpack_packer.cli.recipe_options import recipe_options
from rawpack_packer.cli.source_options import open_by, source_options, take_source_options
from rawpack_packer.fields import store_fields
from rawpack_packer.job import Limits
from rawpack_packer.recipe import Recipe, make_recipe
from rawpack_packer.sources import Source


@click.command(short_help="Pack a folder of images into a store.")
@recipe_options
@source_options
@click.option("--dry-run", is_flag=True, help="Say what packing would take, by a few samples, and write nothing.")
@job_options
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def pack(src: str, dst: str, dry_run: bool, **options: Any) -> None:
    """Pack the images of SRC into a store at DST.

    SRC is a folder, whose first-level folders are the classes, or a file of arrays: .npy, .npz or IDX. The same command
    goes on where an earlier run was stopped. Images that cannot be read are listed in DST/rejects.jsonl.

    \b
    Examples:
      rawpack pack photos/ store/
      rawpack pack --format lmdb --size 256 --quality 90 photos/ store/
      rawpack pack --size 224x160 photos/ store/        224 high, 160 wide
      rawpack pack --format lmdb --size keep --quality keep photos/ store/
                                                        JPEG files as they are, one file instead of many
      rawpack pack train-images-idx3-ubyte.gz mnist/    with the labels beside it
    """
    how, chosen = take_job_options(options), take_source_options(options)
    make_recipe(**options | {"size": options["size"] or "256"})  # nonsense is refused before a long look at SRC
    destinations.check(Path(dst), src)
    source = open_by(src, chosen, quiet=how.quiet)
    recipe = recipe_for(source, options)
    if not how.silent:
        classes = f" in {show.count(len(source.classes), 'class', 'classes')}" if source.classes is not None else ""
        click.echo(f"rawpack: {show.count(len(source), 'image')}{classes} in {show.plain(src)}", err=True)
    if dry_run:
        click.echo(_would_take(source, dst, recipe, how.limits, as_json=how.as_json))
        return
    how.run(lambda watch: job.pack(source, dst, recipe, how.limits, watch=watch))


def _would_take(source: Source, dst: str, recipe: Recipe, limits: Limits, *, as_json: bool) -> str:
    guess, free = job.dry_run(source, dst, recipe, limits)
    if as_json:
        return json.dumps(asdict(guess) | {"free_bytes": free, "samples": len(source)}, indent=1)
    return summaries.dry_text(guess, store_fields(recipe, source)["image"].shape, len(source), free)
