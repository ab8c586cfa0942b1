"""`rawpack convert`: a store in another format, or by another recipe."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from rawpack_packer.api import prepare_derived
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.recipe_options import recipe_options
from rawpack_packer.cli.run_options import dry_run_option, job_options, take_job_options


@click.command(short_help="Make another store from a store.")
@partial(recipe_options, of_stores=True)
@dry_run_option
@job_options
@click.argument("store", type=click.Path())
@click.argument("dst", type=click.Path())
def convert(store: str, dst: str, dry_run: bool, **options: Any) -> None:
    """Pack the samples of STORE into another store at DST. The images STORE was packed from are not needed.

    What no option changes stays bit for bit: raw pixels in any raw format, JPEG files byte for byte. Each sample is
    checked against its checksum; a damaged one is rejected. The same command resumes where an earlier run was stopped.

    \b
    Examples:
      rawpack convert store/ small/ --format lmdb --quality 90
      rawpack convert store/ plain/ --format hdf5 --compression gzip
      rawpack convert store/ smaller/ --size 128        a new recipe; the old one is recorded
      rawpack convert lmdb-store/ other/ --shard-size 1GB
                                                        the same JPEG files in larger shards
    """
    how, out = take_job_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = prepare_derived([store], dst, how, recipe=options, scan=scan)
    out.say(summaries.samples(job.source))
    out.do(job, dry_run=dry_run)
