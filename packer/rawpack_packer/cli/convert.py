"""`rawpack convert`: a store in another format, or by another recipe."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer.cli.job_options import job_options, take_job_options
from rawpack_packer.cli.rework_options import Progress, kept_recipe_options, run
from rawpack_packer.job.derive import recipe_as_before
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import StoreSource


@click.command(short_help="Make another store of a store.")
@kept_recipe_options
@job_options
@click.argument("store", type=click.Path())
@click.argument("dst", type=click.Path())
def convert(store: str, dst: str, dry_run: bool, **options: Any) -> None:
    """Pack the samples of STORE into another store at DST, without what STORE was packed from.

    What no option changes stays bit for bit: raw pixels in any raw format, JPEG files as the bytes that they are. Each
    sample is held against its checksum; one that is damaged is rejected. The same command goes on where an earlier run
    was stopped.

    \b
    Examples:
      rawpack convert store/ small/ --format lmdb --quality 90
      rawpack convert store/ plain/ --format hdf5 --compression gzip
      rawpack convert store/ smaller/ --size 128        by a new recipe; the old one is remembered
      rawpack convert lmdb-store/ other/ --shard-size 1GB
                                                        the same JPEG files in larger shards
    """
    how = take_job_options(options)

    def making(progress: Progress) -> tuple[StoreSource, Recipe]:
        source = StoreSource(store, progress=progress)
        return source, recipe_as_before(source, options)

    run((store,), dst, making, how, dry_run=dry_run)
