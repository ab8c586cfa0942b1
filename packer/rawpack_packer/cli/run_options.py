"""The options of every command that runs a job, and what is printed of one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import Bar, Lines
from rawpack_packer.engines import ENGINES, Engine, engine_at
from rawpack_packer.job.options import NoProgress, RunOptions, run_options
from rawpack_packer.job.prepare import PreparedPack
from rawpack_packer.text import plain

Command = TypeVar("Command", bound=Callable[..., Any])

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Estimate size and time from a few samples, and write nothing."
)
max_rejects_option = click.option(
    "--max-rejects", default="1%", show_default=True, metavar="SHARE|N",
    help="How many samples may be rejected because they cannot be read: a share such as 1% or 0.01, or a number.",
)  # fmt: skip
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")


def job_options(
    command: Command, *, restart: str = "Delete what an earlier run left in DST, and begin anew."
) -> Command:
    """`--workers`, `--engine`, `--address`, `--engine-timeout`, `--max-rejects`, `--strict`, `--restart`, `--quiet`,
    `--json`.

    restart: what that one does.
    """
    options = [
        click.option("--workers", type=click.IntRange(0),
                     help="Worker processes; 0 packs in this process; applies to --engine local only [default: one per "
                     "CPU]."),
        click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True,
                     help="What packs: processes on this machine, or the workers of a cluster, which see SRC and DST "
                     "at the same paths."),
        click.option("--address", metavar="ADDRESS",
                     help="Address of the cluster: tcp://host:8786 of a Dask scheduler; auto, host:6379 or "
                     "ray://host:10001 for Ray."),
        click.option("--engine-timeout", type=click.FloatRange(0, 10_000_000, min_open=True), metavar="SECONDS",
                     help="How long to wait for the cluster to answer, and then for a worker to take a part "
                     "[default: 10 and 60]."),
        max_rejects_option,
        click.option("--strict", is_flag=True, help="Stop at the first sample that cannot be packed."),
        click.option("--restart", is_flag=True, help=restart),
        quiet_option,
        json_option,
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class Output:
    """What a command prints."""

    quiet: bool
    as_json: bool

    def say(self, line: str) -> None:
        """Print a line beside the result."""
        if not (self.quiet or self.as_json):
            click.echo(f"rawpack: {line}", err=True)

    def tell(self, about: dict[str, Any], text: str) -> None:
        """Print a result, for a program or for a person."""
        if self.as_json:
            click.echo(json.dumps(about, indent=1))
        elif not self.quiet:
            click.echo(text)

    def do(self, job: PreparedPack, *, dry_run: bool) -> None:
        """Do a job, and print its summary; or what it would take."""
        if not dry_run:
            summary = job.run()
            self.tell(summaries.as_dict(summary), summaries.as_text(summary))
            return
        guess = job.estimate()
        click.echo(json.dumps(summaries.dry_dict(guess), indent=1) if self.as_json else summaries.dry_text(guess))
        for problem in job.source.info.problems:
            self.say(plain(problem))


def take_job_options(options: dict[str, Any]) -> tuple[RunOptions, Output]:
    """What `job_options` added to a command's options: taken out of them."""
    name, address, timeout = (options.pop(option) for option in ("engine", "address", "engine_timeout"))
    quiet, as_json = options.pop("quiet"), options.pop("as_json")
    given = {option: options.pop(option) for option in ("workers", "max_rejects", "strict", "restart")}
    engine = engine_at(name, address, timeout) if name == "local" else partial(_connected, name, address, timeout)
    return run_options(**given, engine=engine, progress=progress(quiet=quiet)), Output(quiet, as_json)


def progress(*, quiet: bool) -> Bar | Lines | NoProgress:
    """What shows a person how far a job is."""
    return NoProgress() if quiet else Bar() if sys.stderr.isatty() else Lines()


def _connected(name: str, address: str | None, timeout: float | None) -> Engine:
    """An engine of a cluster, which is left when the command ends."""
    engine = engine_at(name, address, timeout)
    assert engine is not None  # only the local one is None
    return click.get_current_context().with_resource(engine)
