"""`rawpack append`: more samples into a store."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer import api, text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.options import job_options, source_options, take_source_options
from rawpack_packer.cli.output import end_unread, take_job_options
from rawpack_packer.cli.progress import scanning


@click.command(cls=Subcommand)
@source_options
@option(
    "--skip-existing",
    is_flag=True,
    help="Leave out samples whose keys the store has, or has rejected: for a folder that has grown.",
)
@option(
    "--other-libraries",
    is_flag=True,
    help="Append even if the libraries that make pixels and files have other versions now.",
)
@job_options(restart="Delete what an unfinished append left, and start over; the store stays.")
@path_argument("src")
@path_argument("dst")
def append(src: str, dst: str, skip_existing: bool, other_libraries: bool, **options: Any) -> None:
    """Add the images of SRC to the store at DST, packed as those were.

    Classes of DST keep their numbers; new ones get the next. No file of the store changes except its manifest, which is
    replaced at the end: until then it is the old store, and open readers keep working. The same command resumes where
    an earlier one was stopped; with --restart it starts over, and the store stays.

    \b
    Examples:
      rawpack append more-photos/ store/
      rawpack append --skip-existing photos/ store/    only what is new
    """  # fmt: skip
    how, out = take_job_options(options)
    about = take_source_options(options)
    with scanning(quiet=out.quiet) as scan:
        job = api.prepare_append(
            src, dst, how, skip_existing=skip_existing, other_libraries=other_libraries, about=about, scan=scan
        )
    out.say(f"{summaries.images(job.source)} in {text.plain(src)}")
    done = job.run()
    out.tell(summaries.appended_dict(done), summaries.appended_text(done))
    end_unread([job.source])
