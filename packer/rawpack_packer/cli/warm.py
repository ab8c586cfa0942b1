"""`rawpack warm`: a store into the page cache."""

from __future__ import annotations

import sys

import click
from tqdm import tqdm

from rawpack.errors import UsageError
from rawpack.remote.url import is_url
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.cli.arguments import open_origin
from rawpack_packer.destination.named import store_folders
from rawpack_packer.inspect.warm import fetch_all, files_of, warm_file


@click.command(short_help="Read a store into the page cache.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.option(
    "--cache",
    type=click.Path(),
    metavar="DIR",
    help="Folder for the files of a URL [default: RAWPACK_CACHE, else ~/.cache/rawpack].",
)
@click.option(
    "--cache-bytes", metavar="BYTES", help="Limit of the cache, such as 200GB [default: half of the free space]."
)
@click.argument("dst", type=click.Path())
def warm(dst: str, quiet: bool, cache: str | None, cache_bytes: str | None) -> None:
    """Read all files of the store, or of all splits, at DST once, in order, so that the next epoch comes from memory.

    The system keeps them as long as nothing else needs the memory. For a URL, all files are fetched into the cache, and
    those already there are checked, so that training does not wait for the network.

    \b
    Examples:
      rawpack warm store/
      rawpack warm s3://bucket/store
    """  # fmt: skip
    if is_url(dst):
        _fetch(dst, cache, cache_bytes, quiet=quiet)
        return
    if cache is not None or cache_bytes is not None:
        raise UsageError(f"--cache and --cache-bytes apply to URLs; {dst} is a folder")
    files = [file for store in store_folders(dst).values() for file in files_of(Store(store))]
    total, free = sum(size for _, size in files), machine.available_memory_bytes()
    if not quiet and free is not None and total > free:
        click.echo(f"rawpack: {text.size(total)} will not stay in {text.size(free)} of free memory", err=True)
    with tqdm(
        total=total, unit="B", unit_scale=True, desc="warming", leave=False, delay=1.0,
        disable=quiet or not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        for path, _ in files:
            warm_file(path, bar.update)
    if not quiet:
        click.echo(f"{text.plain(dst)}: {text.size(total)} read into the page cache")


def _fetch(url: str, cache: str | None, cache_bytes: str | None, *, quiet: bool) -> None:
    """Have all files of a store behind a URL in the cache, checked."""
    origin = open_origin(url, cache, cache_bytes)
    total, holds = sum(record.bytes for _, record in origin.manifest.records()), origin.fetcher.cache
    if origin.manifest.shard_bytes > origin.fetcher.room:
        raise UsageError(
            f"{origin.remote} has {text.size(total)}, and the cache {holds.folder} may hold {text.size(holds.limit)}: "
            "pass a larger --cache-bytes, or another --cache"
        )
    with tqdm(
        total=total, unit="B", unit_scale=True, desc="warming", leave=False, delay=1.0,
        disable=quiet or not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        damaged = fetch_all(origin, bar.update)
    if not quiet:
        came = origin.fetcher.fetched
        fetched = f"{text.size(came)} fetched, so that all" if came else "all"
        instead = f"; {text.size(damaged)} of that in place of what was damaged in the cache" if damaged else ""
        where = f"{text.size(total)} are in {text.plain(str(origin.folder))}{'' if came else ' already'}, checked"
        click.echo(f"{text.plain(str(origin.remote))}: {fetched} {where}{instead}")
