"""`rawpack warm`: a store into the page cache."""

from __future__ import annotations

import sys

import click
from tqdm import tqdm

from rawpack import machine
from rawpack.store import Store
from rawpack_packer import show
from rawpack_packer.cli.arguments import store_folders
from rawpack_packer.warm import files_of, warm_file


@click.command(short_help="Read a store into the page cache.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.argument("dst", type=click.Path())
def warm(dst: str, quiet: bool) -> None:
    """Read all files of the store, or of all splits, at DST once, in order, so that the next epoch comes from memory.

    The system keeps them as long as nothing else needs the memory.

    \b
    Example:
      rawpack warm store/
    """
    files = [file for store in store_folders(dst).values() for file in files_of(Store(store))]
    total, free = sum(size for _, size in files), machine.available_memory_bytes()
    if not quiet and free is not None and total > free:
        click.echo(f"rawpack: {show.size(total)} will not stay in {show.size(free)} of free memory", err=True)
    with tqdm(
        total=total, unit="B", unit_scale=True, desc="warming", leave=False, delay=1.0,
        disable=quiet or not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        for path, _ in files:
            warm_file(path, bar.update)
    if not quiet:
        click.echo(f"{show.plain(dst)}: {show.size(total)} read into the page cache")
