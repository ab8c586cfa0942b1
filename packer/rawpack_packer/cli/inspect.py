"""`rawpack inspect`, `warm` and `doctor`: look at stores, and at what this machine has for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from rawpack.errors import RawpackError, StoreError, UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer import api, text
from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument
from rawpack_packer.cli.output import Output, grid_option, html_option, json_option, note, note_written, quiet_option
from rawpack_packer.inspect import Problems, class_problems
from rawpack_packer.progress import counting, watched


@click.command(cls=Subcommand)
@option(
    "--verify",
    "full",
    is_flag=True,
    short="Check every checksum, read every sample",
    help="Check every checksum and that every sample reads.",
)
@option("--verify-quick", "quick", is_flag=True, help="Check sizes and headers only.")
@grid_option
@html_option
@json_option
@path_argument("dst")
def inspect(dst: str, full: bool, quick: bool, grid: Path | None, html: Path | None, as_json: bool) -> None:
    """Show what is in the store, or in each split, at DST; or in the store behind a URL. For an HDF5 file, an LMDB,
    MDS or litdata, show what is in it and what to type to pack it.

    The sizes of all files of a store in a folder are compared with the manifest, and the exit code is 1 if one differs.
    With --verify or --verify-quick, it is 1 if anything is wrong.

    \b
    Examples:
      rawpack inspect store/
      rawpack inspect --verify store/
      rawpack inspect --grid sheet.png store/
      rawpack inspect --html report.html store/
      rawpack inspect images.h5
    """  # fmt: skip
    remote = is_url(dst)
    if not remote and (source := api.describe_source(dst)) is not None:
        if full or quick or grid is not None or html is not None:
            raise UsageError(f"{text.plain(dst)} is not a store: inspect it without --verify, --grid and --html")
        Output(as_json=as_json).tell(source)
        return
    if remote and (full or quick):
        raise UsageError(f"{shown(dst)}: --verify needs a folder; `rawpack warm` fetches a store and checks each file")
    folders = {} if remote else api.store_folders(dst)
    stores: dict[str, Path | str] = {"": dst} if remote else dict(folders)
    if grid is not None:
        from rawpack_packer.inspect import draw_contact_sheet

        drawn = draw_contact_sheet(dst if remote else api.one_store(dst, "--grid"), grid)
        what = f"{drawn:,} random samples" if drawn > 1 else "1 sample"
        note(f"wrote {text.plain(str(grid))}: {what} ({text.size(grid.stat().st_size)})")
    if html is not None and not remote:
        api.one_store(dst, "--html")
    found = [_look(path, full=full, quick=quick) for path in stores.values()]
    numbered = class_problems(folders)
    if as_json:
        whole: dict[str, Any] = {
            "path": dst,
            "splits": dict(zip(stores, (described for described, _ in found), strict=True)),
        }
        if full or quick or numbered:
            whole["problems"] = [{"where": where, "what": what} for where, what in numbered]
        click.echo(json.dumps(found[0][0] if "" in stores else whole, indent=1))
    else:
        click.echo("\n\n\n".join("\n\n".join(words) for _, words in found))
        for where, what in numbered:
            click.echo("\n" + text.wrapped([f"{text.plain(where)}: {what}"], text.columns()))
    if html is not None:
        _write_page(html, stores[""], *found[0])
    if any(described.get("problems") for described, _ in found) or (numbered and (full or quick)):
        sys.exit(1)


def _look(path: Path | str, *, full: bool, quick: bool) -> tuple[dict[str, Any], list[str]]:
    """The description of one store, in a folder or behind a URL, and what a check came to: as a dict, and in words.
    Where none was asked for, the sizes of files are checked, and only those that are wrong are spoken of."""
    quick = quick and not full
    problems = None
    if isinstance(path, Path) and (full or quick):
        problems = check(path, quick=quick)
    elif isinstance(path, Path):
        with suppress(StoreError):  # `describe` says what is there instead
            problems = api.changed_files(path) or None
    described: dict[str, Any] = {"path": shown(str(path))}
    words = []
    try:
        described = api.describe(path, progress=watched())
        words.append(described.as_text(text.columns()))
    except RawpackError:
        # What keeps it from being opened is among the problems, where they were looked for.
        if not problems:
            raise
    if problems is not None:
        described |= problems.as_dict()
        words.append(problems.as_text(text.columns()))
    return described, words


def _write_page(page: Path, path: Path | str, described: dict[str, Any], words: list[str]) -> None:
    """Write what `_look` found as a page, unless a problem that it found keeps the store from being read."""
    try:
        if "digest" in described:
            api.write_store_page(page, path, described, words[-1] if "problems" in described else None)
            note_written(page)
    except RawpackError:
        if not described.get("problems"):
            raise


def check(path: Path, *, quick: bool) -> Problems:
    """Everything that is wrong with a store, with a progress bar."""
    with counting("checking", unit="B", quiet=quick) as begin:
        return api.verify(path, quick=quick, begin=begin)


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
    from rawpack.store.opening import Cache

    with counting("warming", unit="B", quiet=quiet) as count:

        def begin(total: int, free: int | None) -> Callable[[int], object]:
            if not quiet and free is not None and total > free:
                note(f"{text.size(total)} will not stay in {text.size(free)} of free memory")
            return count(total)

        limited = cache if cache_bytes is None else Cache(cache, cache_bytes)
        done = api.run_warm(dst, cache=limited, begin=begin)
    Output(quiet).tell(done)


@click.command(cls=Subcommand)
@json_option
def doctor(as_json: bool) -> None:
    """Show this machine's CPUs, memory, JPEG decoders, native core and packages, and what can be packed with them.

    \b
    Example:
      rawpack doctor
    """
    described = api.doctor()
    Output(as_json=as_json).tell(described)
