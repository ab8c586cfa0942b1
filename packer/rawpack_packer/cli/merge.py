"""`rawpack merge`: several stores as one."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from rawpack_packer.api import prepare_derived
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.recipe_options import recipe_options
from rawpack_packer.cli.run_options import dry_run_option, job_options, take_job_options
from rawpack_packer.job import derive


@click.command(short_help="Make one store of several.")
@click.option(
    "--prefix",
    type=click.Choice(derive.PREFIXES),
    help="Put the name of the store's folder, or its number from 0, and / in front of each key, for stores that share "
    "keys [default: no prefix].",
)
@partial(recipe_options, of_stores=True)
@dry_run_option
@job_options
@click.argument("stores", nargs=-1, required=True, type=click.Path(), metavar="STORE STORE...")
@click.argument("dst", type=click.Path())
def merge(stores: tuple[str, ...], dst: str, prefix: derive.Prefix | None, dry_run: bool, **options: Any) -> None:
    """Pack the samples of two or more STOREs, one after the other, into one store at DST.

    They must have the same fields, and no key twice. Classes are merged by name: those of the first store keep their
    numbers, then come the new ones of each following store. What no option changes stays bit for bit, as with `rawpack
    convert`. To read several stores as one, merging is not needed: rawpack.Reader takes a list.

    \b
    Examples:
      rawpack merge monday/ tuesday/ week/
      rawpack merge a/ b/ c/ all/ --prefix names        keys become a/cat/1.jpg, b/cat/1.jpg
      rawpack merge large/ small/ all/ --size 224       stores of different image sizes
    """
    how, out = take_job_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = prepare_derived(stores, dst, how, recipe=options, merge=True, prefix=prefix, scan=scan)
    out.say(summaries.samples(job.source))
    out.do(job, dry_run=dry_run)
