"""`rawpack merge`: several stores as one."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer import api
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.options import dry_run_option, job_options, kept_recipe_options
from rawpack_packer.cli.output import take_job_options
from rawpack_packer.cli.progress import scanning
from rawpack_packer.job import PREFIXES, Prefix


@click.command(cls=Subcommand)
@option(
    "--prefix",
    group="Merging",
    type=click.Choice(PREFIXES),
    help="Put the name of the store's folder, or its number from 0, and / in front of each key, for stores that share "
    "keys. [default: no prefix]",
)
@kept_recipe_options
@dry_run_option
@job_options()
@click.argument("stores", nargs=-1, required=True, type=click.Path(), metavar="STORE STORE...")
@path_argument("dst")
def merge(stores: tuple[str, ...], dst: str, prefix: Prefix | None, dry_run: bool, **options: Any) -> None:
    """Pack the samples of two or more STOREs, one after the other, into one store at DST.

    They must have the same fields, and no key twice. Classes are merged by name: those of the first store keep their
    numbers, then come the new ones of each following store. What no option changes stays bit for bit, as with `rawpack
    convert`. To read several stores as one, merging is not needed: rawpack.Reader takes a list.

    \b
    Examples:
      rawpack merge monday/ tuesday/ week/
      rawpack merge a/ b/ c/ all/ --prefix names     keys begin with a/, b/, c/
      rawpack merge large/ small/ all/ --size 224    of different image sizes
    """
    how, out = take_job_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = api.prepare_derived(stores, dst, how, recipe=options, merge=True, prefix=prefix, scan=scan)
    out.say(summaries.samples(job.source))
    out.do(job, dry_run=dry_run)
