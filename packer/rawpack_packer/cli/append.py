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
    help="Leave out samples whose keys the store has, or has rejected: for a folder that has grown.",
)
@click.option(
    "--other-libraries",
    is_flag=True,
    help="Append even if the libraries that make pixels and files have other versions now.",
)
@source_options
@partial(job_options, restart="Delete what an unfinished append left, and begin anew; the store stays.")
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def append(src: str, dst: str, skip_existing: bool, other_libraries: bool, **options: Any) -> None:
    """Add the images of SRC to the store at DST, packed as those were.

    Classes of DST keep their numbers; new ones get the next. No file of the store changes except its manifest, which is
    replaced at the end: until then it is the old store, and open readers keep working. The same command resumes where
    an earlier one was stopped; with --restart it begins anew, and the store stays.

    \b
    Examples:
      rawpack append more-photos/ store/
      rawpack append --skip-existing photos/ store/    only what is new in the folder
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
