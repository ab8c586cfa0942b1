"""`rawpack plan` and `bench`: find the store that suits a source and this machine; measure how fast stores are read."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from rawpack_packer import text
from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument, together
from rawpack_packer.cli.options import end_unread, source_options, tried_recipe_options, where_option, workers_option
from rawpack_packer.cli.output import html_option, json_option, note, note_written, png_option, quiet_option_for
from rawpack_packer.progress import bar, counting

_measuring = partial(option, group="Measuring")
_report_options = together(html_option, png_option)
_reading_options = together(
    _measuring("--image-size", metavar="N|HxW",
               short="Resize while reading, such as 224",
               help="Resize in the workers while reading, such as 224, or image=64,target=256; needed where images "
               "differ in size."),
    _measuring("--transform", multiple=True, metavar="STEP",
               short="Step to do: 'RandomResizedCrop(224)'",
               help="A step of rawpack.transforms that the workers do, such as 'RandomResizedCrop(224)'. May be "
               "repeated."),
)  # fmt: skip


@click.command(cls=Subcommand)
@option("--target", group="Goals", type=click.FloatRange(min=0, min_open=True), metavar="IMAGES/S",
        short="Images per second that one machine trains on",
        help="Images per second that training on one machine consumes. The smallest store whose whole interval "
        "reaches it is recommended. [default: the smallest that reads at least half as fast as the "
        "fastest]")  # fmt: skip
@option("--disk", group="Goals", metavar="BYTES", short="Disk space the store may take, such as 500GB",
        help="Disk space the whole store may take, such as 500GB.")  # fmt: skip
@option("--memory", group="Goals", metavar="BYTES",
        short="Memory that can cache files when training",
        help="Memory free for caching files on the training machine; a larger store counts as read from the disk. "
        "[default: most of what is free here]")  # fmt: skip
@tried_recipe_options
@_measuring("--batch", type=click.IntRange(1), default=256, show_default=True,
        help="Samples in a batch.")  # fmt: skip
@workers_option("Workers to read with. [default: as many as CPUs]", least=1, group="Measuring")
@_reading_options
@_measuring("--budget", default="60s", show_default=True, metavar="TIME",
        help="About how long planning may take: 45s, 5min. More time gives better figures.")  # fmt: skip
@_measuring("--tmp", type=UserPath(file_okay=False), metavar="DIR",
        short="Folder for the trial stores",
        help="Folder for the trial stores, on the disk to be measured; they are removed afterwards.")  # fmt: skip
@_measuring("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@source_options
@option("--wide", is_flag=True,
        help="Show all columns of the table. [default: those that fit into the terminal, or COLUMNS]")  # fmt: skip
@_report_options
@quiet_option_for("the result and errors")
@json_option
@path_argument("src")
def plan(src: str, quiet: bool, wide: bool, html: Path | None, png: Path | None, as_json: bool, **options: Any) -> None:
    """Pack a sample of SRC into each candidate, read each back, and say what the whole set would take.

    Candidates are all combinations of format, size, fit, quality, color and compression. Each of several rounds reads
    all of them, from memory and from the disk. If SRC is several archives, it looks at a few. The trial stores are kept
    in a temporary folder, which is removed at the end.

    Recommends the smallest store that is fast enough: it reaches --target or, without one, is at least half as fast as
    the fastest. Speed is that of random crops and flips, or of the steps of --transform. Exit code 1: nothing fits into
    --disk, or nothing reaches --target.

    \b
    Examples:
      rawpack plan photos/
      rawpack plan --target 3000 --disk 500GB photos/
      rawpack plan -f memmap -f lmdb -s 224 -s 256 --budget 5min photos/
      rawpack plan 'https://host/shards-{000..123}.tar'  four of the shards
    """  # fmt: skip
    with _planning(quiet=quiet) as say:
        from rawpack_packer import api  # from a cold disk, that takes seconds

        planned = api.run_plan(src, say=say, **_listed(options))
    width = None if wide else shutil.get_terminal_size().columns
    click.echo(json.dumps(planned.as_dict(), indent=1) if as_json else _colored(planned.as_text(width)))
    api.write_report(planned, page=html, plots=png)
    note_written(html, png, quiet=quiet)
    end_unread([planned.source])
    if planned.recommendation.taken is None:
        sys.exit(1)


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given several times, as the functions take it: a tuple is one size."""
    return {name: [*value] or None if isinstance(value, tuple) else value for name, value in options.items()}


@contextmanager
def _planning(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Shows steps and the time left, from the first moment on; gives the function that is called with both."""
    began, told = time.monotonic(), set[str]()
    form = "{l_bar}{bar}| {elapsed}<{remaining}"
    with bar("starting", unit="s", quiet=quiet, bar_format=form, smoothing=0, delay=0.0) as shown:

        def say(step: str, left: float) -> None:
            if not shown.disable:
                shown.total = (passed := time.monotonic() - began) + left
                shown.set_description_str(step, refresh=False)
                shown.update(passed - shown.n)
                shown.refresh()
            elif not quiet and step not in told:
                told.add(step)
                note(f"{step}, about {text.duration(left)} left" if left >= 1 else f"{step}, a few seconds left")

        yield say


def _colored(words: str) -> str:
    """What is recommended, and its command, stand out."""
    found = re.compile(r"^Recommended: .*?\n(?=\S|\Z)", re.MULTILINE | re.DOTALL)
    return found.sub(lambda part: click.style(part[0], fg="green"), words)


@click.command(cls=Subcommand)
@_measuring("--batch", type=click.IntRange(1), multiple=True,
        help="Samples in a batch. May be repeated. [default: 256]")  # fmt: skip
@workers_option("Workers. May be repeated. [default: 1, 2, 4, ... up to the CPUs]",
                multiple=True, group="Measuring")  # fmt: skip
@_reading_options
@where_option
@_measuring("--rounds", type=click.IntRange(1), default=5, show_default=True,
        help="How many times each row is measured.")  # fmt: skip
@_measuring("--seconds", type=click.FloatRange(0.01, 600), default=0.5, show_default=True,
        metavar="SECONDS",
        help="How long each measurement takes.")  # fmt: skip
@_measuring("--cold/--no-cold", default=True, show_default=True,
        short="Also read from the disk",
        help="Also read from the disk: drops these files, and no others, from the page cache.")  # fmt: skip
@_report_options
@json_option
@path_argument("dst", nargs=-1, required=True, metavar="STORE...")
def bench(dst: tuple[str, ...], html: Path | None, png: Path | None, as_json: bool, **options: Any) -> None:
    """Measure how fast stores are read, for each number of workers and each batch size, from memory and
    from the disk.

    Each round measures every row once, so that changes of the machine's load affect them equally; each figure
    has an interval. Nothing is written.

    \b
    Examples:
      rawpack bench store/
      rawpack bench --batch 64 --batch 512 memmap-store/ lmdb-store/
    """  # fmt: skip
    from rawpack_packer import api

    with counting("measuring", unit="readings") as begin:
        done = api.run_bench(dst, begin=begin, **_listed(options))
    click.echo(json.dumps(done.as_dict(), indent=1) if as_json else done.as_text(shutil.get_terminal_size().columns))
    api.write_report(done, page=html, plots=png)
    note_written(html, png)
