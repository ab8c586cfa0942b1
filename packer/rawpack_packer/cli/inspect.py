"""`rawpack inspect`: what is in a store, and whether it is sound."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from rawpack import Reader
from rawpack.disk.manifest import load
from rawpack.errors import RawpackError, UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer import api, text
from rawpack_packer.cli.arguments import output_file, report_file
from rawpack_packer.destination.named import one_store, store_folders
from rawpack_packer.inspect import describe
from rawpack_packer.inspect.opened import open_store
from rawpack_packer.inspect.verify import Problem, work_of
from rawpack_packer.job import splits

_SHOWN = 50


@click.command(short_help="Show what is in a store, and check it.")
@click.option("--verify", "full", is_flag=True, help="Check every checksum, and that every sample reads.")
@click.option("--verify-quick", "quick", is_flag=True, help="Check sizes and headers only.")
@click.option("--grid", type=click.Path(), metavar="PNG", help="Draw a contact sheet of random samples.")
@click.option(
    "--html",
    type=click.Path(),
    metavar="FILE",
    help="Write an HTML report: samples, classes, sizes, rejects; needs rawpack[report].",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.argument("dst", type=click.Path())
def inspect(dst: str, full: bool, quick: bool, grid: str | None, html: str | None, as_json: bool) -> None:
    """Show what is in the store, or in each split, at DST; or in the store behind a URL.

    With --verify or --verify-quick, the exit code is 1 if something is wrong.

    \b
    Examples:
      rawpack inspect store/
      rawpack inspect --verify store/
      rawpack inspect --grid sheet.png store/
      rawpack inspect --html report.html store/
    """  # fmt: skip
    if is_url(dst) and (full or quick):
        raise UsageError(f"{shown(dst)}: --verify needs a folder; `rawpack warm` fetches a store and checks each file")
    stores: Mapping[str, Path | str] = {"": dst} if is_url(dst) else store_folders(dst)
    page = None if html is None else report_file("--html", html)
    if grid is not None:
        drawn = draw(dst if is_url(dst) else one_store(dst, "--grid"), output_file(grid))
        click.echo(f"rawpack: {text.count(drawn, 'sample')} drawn into {text.plain(grid)}", err=True)
    if page is not None and not is_url(dst):
        one_store(dst, "--html")
    found = [_look(path, page, full=full, quick=quick) for path in stores.values()]
    folders = {name: path for name, path in stores.items() if isinstance(path, Path)}
    class_problems = _classes_apart(folders) if len(folders) > 1 else []
    if as_json:
        whole: dict[str, Any] = {"path": dst, "splits": dict(zip(stores, (about for about, _ in found), strict=True))}
        if full or quick:
            whole["problems"] = [{"where": where, "what": what} for where, what in class_problems]
        click.echo(json.dumps(found[0][0] if "" in stores else whole, indent=1))
    else:
        click.echo("\n\n\n".join(block for _, block in found))
        for where, what in class_problems:
            click.echo(f"\n{text.plain(where)}: {what}")
    if any(about.get("problems") for about, _ in found) or (class_problems and (full or quick)):
        sys.exit(1)


def _look(path: Path | str, page: Path | None, *, full: bool, quick: bool) -> tuple[dict[str, Any], str]:
    """The description of one store, in a folder or behind a URL: for a program, and for a person."""
    problems = check(path, quick=quick and not full) if isinstance(path, Path) and (full or quick) else None
    about: dict[str, Any] = {"path": shown(str(path))}
    blocks = []
    try:
        store = open_store(str(path))
        about = describe.describe(store)
        blocks.append(describe.as_text(about))
        if page is not None:
            from rawpack_packer.report import store_page

            checked = None if problems is None else verdict(problems, quick=quick and not full)
            store_page.write_html(page, store, about, checked)
    except RawpackError:
        # What keeps it from being opened is among the problems, where they were looked for.
        if not problems:
            raise
    if problems is not None:
        about["problems"] = [{"where": one.where, "what": one.what} for one in problems]
        blocks.append(verdict(problems, quick=quick and not full))
    return about, "\n\n".join(blocks)


def _classes_apart(stores: dict[str, Path]) -> list[tuple[str, str]]:
    """Which splits number their classes otherwise than the others."""
    return splits.class_problems({name: load(path)[0] for name, path in stores.items()})


def draw(store: Path | str, file: Path) -> int:
    """Draw the contact sheet."""
    from rawpack_packer.inspect.contact_sheet import draw_contact_sheet

    return draw_contact_sheet(Reader(store), file)


def check(path: Path, *, quick: bool) -> list[Problem]:
    """Everything that is wrong with a store, with a progress bar."""
    bar: tqdm[Any] = tqdm(
        total=work_of(load(path)[0]), unit="B", unit_scale=True, desc="checking", leave=False, delay=1.0,
        disable=quick or not sys.stderr.isatty(),
    )  # fmt: skip
    with bar:
        return api.verify(path, quick=quick, tick=bar.update)


def verdict(problems: list[Problem], *, quick: bool) -> str:
    """What a check came to, in words."""
    if not problems:
        what = "sizes and headers are" if quick else "every checksum fits and every sample reads: the store is"
        return f"checked: {what} sound"
    rows = [(text.plain(one.where), text.plain(one.what)) for one in problems[:_SHOWN]]
    return f"checked: {text.count(len(problems), 'problem')}\n" + text.table(rows, rest=len(problems) - _SHOWN)
