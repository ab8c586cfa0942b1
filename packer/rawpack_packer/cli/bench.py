"""`rawpack bench`: how fast stores are read on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from rawpack_packer import api, tune
from rawpack_packer.cli.command import Subcommand, option
from rawpack_packer.cli.options import html_option, json_option, measure_options, png_option, workers_option
from rawpack_packer.cli.output import note_written, report_file
from rawpack_packer.cli.progress import bar


@click.command(cls=Subcommand)
@option("--batch", "batches", group="Measuring", type=click.IntRange(1), multiple=True,
        help="Samples in a batch. May be repeated. [default: 256]")  # fmt: skip
@workers_option("Workers. May be repeated. [default: 1, 2, 4, ... up to the CPUs]",
                multiple=True, group="Measuring")  # fmt: skip
@measure_options
@option("--rounds", group="Measuring", type=click.IntRange(1), default=tune.ROUNDS, show_default=True,
        help="How often each row is measured, in turn with the others.")  # fmt: skip
@option("--seconds", group="Measuring", type=click.FloatRange(0.01, 600), default=0.5, show_default=True,
        metavar="SECONDS",
        help="How long each measurement takes.")  # fmt: skip
@option("--cold/--no-cold", group="Measuring", default=True, show_default=True,
        help="Also read from the disk: drops these files, and no others, from the page cache.")  # fmt: skip
@html_option
@png_option
@json_option
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
    page, plots = report_file("--html", html), report_file("--png", png)
    with bar("measuring", unit="readings") as shown:

        def begin(total: int) -> Callable[[], object]:
            shown.reset(total)
            return lambda: shown.update()

        done = api.bench(
            dst, batches=batches, workers=workers, image_size=tune.parse_side(image_size),
            transform=tune.parse_steps(transforms), begin=begin,
            schedule=tune.Schedule(rounds=rounds, seconds=seconds, cold_rounds=2 if cold else 0),
        )  # fmt: skip
    api.write_report(done, page=page, plots=plots)
    click.echo(json.dumps(tune.bench_dict(done), indent=1) if as_json else tune.bench_text(done))
    note_written(page, plots)
