"""`rawpack append`: more samples into a store."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from rawpack_packer import text
from rawpack_packer.api import prepare_append
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.run_options import job_options, take_job_options
from rawpack_packer.cli.source_options import end_unread, source_options, take_source_options


@click.command(short_help="Add more samples to a store.")
@click.option(
    "--skip-existing",
    is_flag=True,
    help="Leave out what the store has, or has rejected, by the key: for a folder that has grown.",
)
@click.option(
    "--other-libraries",
    is_flag=True,
    help="Also where the libraries that make pixels and files have other versions now.",
)
@source_options
@partial(job_options, restart="Drop an append that was begun and has not ended, and begin this one; the store stays.")
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def append(src: str, dst: str, skip_existing: bool, other_libraries: bool, **options: Any) -> None:
    """Add the images of SRC to the store at DST, packed as those were.

    Classes of DST keep their numbers, new ones get the next. No file of the store changes but its manifest, which is
    replaced at the end: until then it is the old store, and readers that are open go on. The same command goes on where
    an earlier one was stopped; with --restart it begins anew, and the store stays.

    \b
    Examples:
      rawpack append more-photos/ store/
      rawpack append --skip-existing photos/ store/    what is new in the folder it was packed from
    """  # fmt: skip
    how, out = take_job_options(options)
    about = take_source_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = prepare_append(
            src, dst, how, skip_existing=skip_existing, other_libraries=other_libraries, about=about, scan=scan
        )
    out.say(f"{summaries.images(job.source)} in {text.plain(src)}")
    done = job.run()
    out.tell(summaries.appended_dict(done), summaries.appended_text(done))
    end_unread([job.source])
