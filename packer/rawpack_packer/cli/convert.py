"""`rawpack convert`: a store in another format, or by another recipe."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer import api
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.command import Subcommand, path_argument
from rawpack_packer.cli.options import dry_run_option, job_options, kept_recipe_options
from rawpack_packer.cli.output import take_job_options
from rawpack_packer.cli.progress import scanning


@click.command(cls=Subcommand)
@kept_recipe_options
@dry_run_option
@job_options()
@path_argument("store")
@path_argument("dst")
def convert(store: str, dst: str, dry_run: bool, **options: Any) -> None:
    """Pack the samples of STORE into another store at DST. The images STORE was packed from are not needed.

    What no option changes stays bit for bit: raw pixels in any raw format, JPEG files byte for byte. A new recipe is
    recorded with the old one. Each sample is checked against its checksum; a damaged one is rejected. The same command
    resumes where an earlier run was stopped.

    \b
    Examples:
      rawpack convert store/ small/ -f lmdb --quality 90
      rawpack convert store/ plain/ -f hdf5 --compression gzip
      rawpack convert store/ smaller/ --size 128
      rawpack convert lmdb-store/ other/ --shard-size 1GB   the same JPEG files
    """
    how, out = take_job_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = api.prepare_derived([store], dst, how, recipe=options, scan=scan)
    out.say(summaries.samples(job.source))
    out.do(job, dry_run=dry_run)
