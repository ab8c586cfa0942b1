"""`rawpack plan`: which store, at what size and quality, for this source on this machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Any

import click
from tqdm import tqdm

from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer import api
from rawpack_packer.cli.arguments import report_file
from rawpack_packer.cli.measure_options import drawing_options, image_size_option, side_of, transform_option
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.source_options import end_unread, source_options, words_of
from rawpack_packer.recipe.recipe import COLORS, FORMATS, parse_bytes
from rawpack_packer.sources import Source
from rawpack_packer.tune.measure.rounds import worker_counts
from rawpack_packer.tune.measure.steps import parse_steps
from rawpack_packer.tune.plan import text
from rawpack_packer.tune.plan.candidates import candidates
from rawpack_packer.tune.plan.planned import Plan, PlanRequest
from rawpack_packer.tune.plan.recommend import Goals
from rawpack_packer.tune.plan.trial import Say


@click.command(short_help="Try stores on a sample, and recommend one.")
@click.option(
    "--target",
    type=click.FloatRange(min=0, min_open=True),
    metavar="IMAGES/S",
    help="Images per second that training consumes. The smallest store whose whole interval reaches it is recommended "
    "[default: the smallest that reads at least half as fast as the fastest].",
)
@click.option("--disk", metavar="BYTES", help="How much disk space the store may take: 500GB.")
@click.option(
    "--memory",
    metavar="BYTES",
    help="What files may take in memory where the training runs; a store that is larger counts as read from "
    "the disk [default: most of what is free here].",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="Formats to try; this and the next four may be given several times [default: all].",
)
@click.option("--size", "sizes", multiple=True, metavar="N|HxW|keep", help="Sizes to try [default: 256].")
@click.option(
    "--quality",
    "qualities",
    multiple=True,
    metavar="1-100|keep",
    help="JPEG qualities of lmdb to try [default: 75, 90, 95].",
)
@click.option("--color", "colors", type=click.Choice(COLORS), multiple=True, help="Colors to try [default: rgb].")
@click.option(
    "--compression",
    "compressions",
    type=click.Choice(["none", "gzip"]),
    multiple=True,
    help="Compressions of hdf5 to try [default: none].",
)
@click.option(
    "--batch", type=click.IntRange(1), default=256, show_default=True, metavar="N", help="Samples in a batch."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Workers to read with; may be given several times [default: 1, 2, 4, ... up to the CPUs].",
)
@image_size_option
@transform_option
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long planning may take, about: 45s, 5min. More time gives a larger sample and narrower intervals.",
)
@click.option(
    "--tmp",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Folder for the trial stores, on the disk to be measured; they are removed afterwards.",
)
@source_options
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
@click.option(
    "--wide",
    is_flag=True,
    help="Show all columns of the table [default: those that fit into the terminal, or COLUMNS].",
)
@drawing_options
@click.argument("src", type=click.Path())
def plan(
    src: str,
    target: float | None,
    disk: str | None,
    memory: str | None,
    formats: tuple[str, ...],
    sizes: tuple[str, ...],
    qualities: tuple[str, ...],
    colors: tuple[str, ...],
    compressions: tuple[str, ...],
    batch: int,
    workers: tuple[int, ...],
    image_size: str | None,
    transforms: tuple[str, ...],
    budget: str,
    tmp: str | None,
    seed: int,
    quiet: bool,
    wide: bool,
    html: str | None,
    png: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Pack a sample of SRC into each candidate, read each back, and say what the whole set would take.

    Candidates are all combinations of format, size, quality, color and compression. Each is read by 1 to all CPUs, from
    memory and from the disk, in turn and several times. The sample is in a temporary folder, which is removed.

    Recommended is the smallest store that is fast enough: for --target, or without it, at least half as fast as the
    fastest candidate. Exit code 1: nothing fits into --disk, or nothing reaches --target.

    \b
    Examples:
      rawpack plan photos/
      rawpack plan --target 3000 --disk 500GB photos/
      rawpack plan --format memmap --format lmdb --size 224 --size 256 --budget 5min photos/
    """  # fmt: skip
    page = None if html is None else report_file("--html", html)
    plots = None if png is None else report_file("--png", png)
    asked = PlanRequest(
        source=src,
        candidates=candidates(
            formats or FORMATS,
            sizes or ("256",),
            qualities or ("75", "90", "95"),
            colors or ("rgb",),
            compressions or ("none",),
        ),
        workers=sorted(set(workers)) or worker_counts(machine.cpus()),
        goals=Goals(target, None if disk is None else parse_bytes("--disk", disk)),
        memory=None if memory is None else parse_bytes("--memory", memory),
        budget=parse_time(budget),
        batch=batch,
        image_size=side_of(image_size),
        transform=parse_steps(transforms),
        seed=seed,
        tmp=tmp,
        source_options=words_of(chosen),
    )
    with scanning(quiet=quiet) as scan:
        source = api.open_path(src, chosen, other=("rawpack", "plan", "SRC"), scan=scan)
    planned = _with_progress(source, asked, quiet)
    if page is not None or plots is not None:
        from rawpack_packer.report import plan_page

        plan_page.write(page, plots, planned)
    width = None if wide else shutil.get_terminal_size().columns
    click.echo(json.dumps(planned.as_dict(), indent=1) if as_json else text.as_text(planned, width))
    end_unread([source])
    if planned.recommendation.taken is None:
        sys.exit(1)


def parse_time(written: str) -> float:
    """`--budget`: seconds of "60s", "90", "5min", "1h"."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|min|m|h)?", written.strip())
    seconds = float(match[1]) * {"h": 3600, "min": 60, "m": 60}.get(match[2] or "s", 1) if match else 0.0
    if not seconds:
        raise UsageError(f"--budget {written!r}: a time such as 45s, 5min or 1h")
    return seconds


def _with_progress(source: Source, asked: PlanRequest, quiet: bool) -> Plan:
    if quiet:
        return api.plan(source, asked)
    if not sys.stderr.isatty():
        return api.plan(source, asked, _only_steps())
    with tqdm(bar_format="rawpack: {desc}", leave=False) as bar:
        return api.plan(source, asked, lambda step, left: bar.set_description_str(f"{step}, {_left(left)}"))


def _only_steps() -> Say:
    """For logs: each step once."""
    shown: set[str] = set()

    def say(step: str, left: float) -> None:
        if step not in shown:
            shown.add(step)
            click.echo(f"rawpack: {step}, {_left(left)}", err=True)

    return say


def _left(seconds: float) -> str:
    return f"about {text.about(seconds)} left" if seconds >= 1 else "a few seconds left"
