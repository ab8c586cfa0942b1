"""`rawpack warm`: loads a store into the page cache."""

from __future__ import annotations

from collections.abc import Callable

import click

from rawpack_packer import api, text
from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument
from rawpack_packer.cli.options import quiet_option
from rawpack_packer.cli.output import Output, note
from rawpack_packer.progress import counting


@click.command(cls=Subcommand)
@option(
    "--cache",
    type=UserPath(),
    metavar="DIR",
    help="Folder for the files of a URL. [default: RAWPACK_CACHE, else ~/.cache/rawpack]",
)
@option("--cache-bytes", metavar="BYTES", help="Limit of the cache, such as 200GB. [default: half of the free space]")
@quiet_option
@path_argument("dst")
def warm(dst: str, quiet: bool, cache: str | None, cache_bytes: str | None) -> None:
    """Read all files of the store, or of all splits, at DST once, in order, so that the next epoch comes from memory.

    The system keeps them as long as nothing else needs the memory. For a URL, all files are fetched into the cache, and
    those already there are checked, so that training does not wait for the network.

    \b
    Examples:
      rawpack warm store/
      rawpack warm s3://bucket/store
    """  # fmt: skip
    with counting("warming", unit="B", quiet=quiet) as count:

        def begin(total: int, free: int | None) -> Callable[[int], object]:
            if not quiet and free is not None and total > free:
                note(f"{text.size(total)} will not stay in {text.size(free)} of free memory")
            return count(total)

        done = api.warm(dst, cache=cache, cache_bytes=cache_bytes, begin=begin)
    Output(quiet).tell(done)
