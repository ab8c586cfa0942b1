"""`rawpack plan`: which store, at what size and quality, for this source on this machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Any

import click

from rawpack_packer import api, tune
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.options import (
    html_option,
    json_option,
    measure_options,
    png_option,
    quiet_option,
    source_options,
    take_source_options,
    tried_recipe_options,
    workers_option,
)
from rawpack_packer.cli.output import end_unread, note_written, report_file
from rawpack_packer.cli.progress import planning, scanning


@click.command(cls=Subcommand)
@option("--target", group="Goals", type=click.FloatRange(min=0, min_open=True), metavar="IMAGES/S",
        help="Images per second that training consumes. The smallest store whose whole interval reaches it is "
        "recommended. [default: the smallest that reads at least half as fast as the fastest]")  # fmt: skip
@option("--disk", group="Goals", metavar="BYTES", help="How much disk space the store may take, such as 500GB.")
@option("--memory", group="Goals", metavar="BYTES",
        help="How much memory files may take where the training runs; a larger store counts as read from the disk. "
        "[default: most of what is free here]")  # fmt: skip
@tried_recipe_options
@option("--batch", group="Measuring", type=click.IntRange(1), default=256, show_default=True,
        help="Samples in a batch.")  # fmt: skip
@workers_option("Workers to read with. May be repeated. [default: 1, 2, 4, ... up to the CPUs]",
                least=1, multiple=True, group="Measuring")  # fmt: skip
@measure_options
@option("--budget", group="Measuring", default="60s", show_default=True, metavar="TIME",
        help="About how long planning may take: 45s, 5min. More time gives a larger sample and narrower "
        "intervals.")  # fmt: skip
@option("--tmp", group="Measuring", type=click.Path(file_okay=False), metavar="DIR",
        help="Folder for the trial stores, on the disk to be measured; they are removed afterwards.")  # fmt: skip
@option("--seed", group="Measuring", type=int, default=0, show_default=True, help="Seed of the sample.")
@source_options
@option("--wide", is_flag=True,
        help="Show all columns of the table. [default: those that fit into the terminal, or COLUMNS]")  # fmt: skip
@html_option
@png_option
@quiet_option
@json_option
@path_argument("src")
def plan(src: str, quiet: bool, wide: bool, html: str | None, png: str | None, as_json: bool, **options: Any) -> None:
    """Pack a sample of SRC into each candidate, read each back, and say what the whole set would take.

    Candidates are all combinations of format, size, quality, color and compression. Each is read by 1 to all CPUs, from
    memory and from the disk, in turn and several times. The sample is in a temporary folder, which is removed.

    Recommended is the smallest store that is fast enough: for --target, or without it, at least half as fast as the
    fastest candidate. Exit code 1: nothing fits into --disk, or nothing reaches --target.

    \b
    Examples:
      rawpack plan photos/
      rawpack plan --target 3000 --disk 500GB photos/
      rawpack plan -f memmap -f lmdb -s 224 -s 256 --budget 5min photos/
    """  # fmt: skip
    page, plots = report_file("--html", html), report_file("--png", png)
    about = take_source_options(options)
    asked = tune.plan_request(src, about=about, **options)
    with scanning(quiet=quiet) as scan:
        source = api.open_path(src, about, other=("rawpack", "plan", "SRC"), scan=scan)
    with planning(quiet=quiet) as say:
        planned = api.plan(source, asked, say)
    api.write_report(planned, page=page, plots=plots)
    width = None if wide else shutil.get_terminal_size().columns
    click.echo(json.dumps(planned.as_dict(), indent=1) if as_json else _colored(tune.plan_text(planned, width)))
    note_written(page, plots)
    end_unread([source])
    if planned.recommendation.taken is None:
        sys.exit(1)


def _colored(words: str) -> str:
    """What is recommended, and its command, stand out."""
    found = re.compile(r"^Recommended: .*?\n(?=\S|\Z)", re.MULTILINE | re.DOTALL)
    return found.sub(lambda part: click.style(part[0], fg="green"), words)
