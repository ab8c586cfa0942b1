"""`rawpack append`: more samples into a store."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer import text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.job_options import job_options, take_job_options
from rawpack_packer.cli.source_options import end_unread, open_by, source_options, take_source_options
from rawpack_packer.job import append as appending


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
    how, chosen = take_job_options(options), take_source_options(options)
    if is_url(dst):
        raise UsageError(f"{shown(dst)} is a URL: append to a store in a folder, and copy it there, store.json last")
    appending.open_store(Path(dst), src)  # nonsense is refused before a long look at SRC
    engine = how.connect()
    source = open_by(src, chosen, quiet=how.quiet, destination="NEW", other=("rawpack", "append", "SRC", dst))
    if not how.silent:
        click.echo(f"rawpack: {summaries.images(source)} in {text.plain(src)}", err=True)
    work = partial(
        appending.append, source, dst, how.limits,
        skip_existing=skip_existing, other_libraries=other_libraries, engine=engine,
    )  # fmt: skip
    done = how.watched(lambda progress: work(progress=progress))
    how.tell(summaries.appended_dict(done), summaries.appended_text(done))
    end_unread([source])
