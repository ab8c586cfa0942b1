"""`rawpack bench`: how fast stores are read on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click
from tqdm import tqdm

from rawpack_packer import api
from rawpack_packer.cli.arguments import report_file
from rawpack_packer.cli.measure_options import drawing_options, image_size_option, side_of, transform_option
from rawpack_packer.tune import bench as benches
from rawpack_packer.tune.measure.rounds import ROUNDS, Schedule
from rawpack_packer.tune.measure.steps import parse_steps


@click.command(short_help="Measure how fast stores are read here.")
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Samples in a batch; may be given several times [default: 256].",
)
@click.option(
    "--workers",
    "workers",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Workers; may be given several times [default: 1, 2, 4, ... up to the CPUs].",
)
@image_size_option
@transform_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=ROUNDS,
    show_default=True,
    help="How often each row is measured, in turn with the others.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 600),
    default=0.5,
    show_default=True,
    help="How long each measurement takes.",
)
@click.option(
    "--cold/--no-cold",
    default=True,
    show_default=True,
    help="Also read from the disk: drops these files, and no others, from the page cache.",
)
@drawing_options
@click.argument("dst", nargs=-1, required=True, type=click.Path())
def bench(
    dst: tuple[str, ...],
    batches: tuple[int, ...],
    workers: tuple[int, ...],
    image_size: str | None,
    transforms: tuple[str, ...],
    rounds: int,
    seconds: float,
    cold: bool,
    html: str | None,
    png: str | None,
    as_json: bool,
) -> None:
    """Measure how fast the stores at DST are read, by workers and batch, from memory and from the disk.

    All rows are measured in turn, several times, so that changes of the machine's load affect them equally; each figure
    has an interval. Nothing is written.

    \b
    Examples:
      rawpack bench store/
      rawpack bench --batch 64 --batch 512 memmap-store/ lmdb-store/
    """  # fmt: skip
    page = None if html is None else report_file("--html", html)
    plots = None if png is None else report_file("--png", png)
    schedule = Schedule(rounds=rounds, seconds=seconds, cold_rounds=2 if cold else 0)
    with tqdm(desc="measuring", leave=False, delay=1.0, disable=not sys.stderr.isatty()) as bar:
        done = api.bench(
            dst, batches=batches, workers=workers, image_size=side_of(image_size),
            transform=parse_steps(transforms), schedule=schedule,
            begin=counted_by(bar),
        )  # fmt: skip
    if page is not None or plots is not None:
        from rawpack_packer.report import bench_page

        bench_page.write(page, plots, done)
    click.echo(json.dumps(benches.as_dict(done), indent=1) if as_json else benches.as_text(done))


def counted_by(bar: tqdm[Any]) -> Callable[[int], Callable[[], object]]:
    """Sets a progress bar to the number of measurements; gives the function that counts them."""

    def begin(total: int) -> Callable[[], object]:
        bar.reset(total)
        return lambda: bar.update()

    return begin
