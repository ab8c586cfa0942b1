"""The options of every command that runs a packing job, and the run: progress, summary, exit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from rawpack.errors import UsageError
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import Bar, Lines
from rawpack_packer.engines import ENGINES, Engine, engine_at
from rawpack_packer.job.job import Limits, NoProgress, Progress, Summary

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


def job_options(
    command: Command, *, restart: str = "Remove what an earlier run left in DST, and begin anew."
) -> Command:
    """`--workers`, `--engine`, `--address`, `--engine-timeout`, `--max-rejects`, `--strict`, `--restart`, `--quiet`,
    `--json`.

    restart: what that one does.
    """
    options = [
        click.option("--workers", type=click.IntRange(0),
                     help="Worker processes; 0 packs in this one [default: one per CPU]."),
        click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True,
                     help="What packs: processes on this machine, or the workers of a cluster, which see SRC and DST "
                     "at the same paths."),
        click.option("--address", metavar="ADDRESS",
                     help="Of the cluster: tcp://host:8786 of a Dask scheduler; of Ray auto, host:6379 or "
                     "ray://host:10001."),
        click.option("--engine-timeout", type=click.FloatRange(0, 10_000_000, min_open=True), metavar="SECONDS",
                     help="How long to wait for the cluster to answer, and then for a worker to take a part "
                     "[default: 10 and 60]."),
        click.option("--max-rejects", default="1%", show_default=True, metavar="SHARE|N",
                     help="How many images may be unreadable: a share such as 1% or 0.01, or a number."),
        click.option("--strict", is_flag=True, help="Stop at the first image that cannot be packed."),
        click.option("--restart", is_flag=True, help=restart),
        click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class JobOptions:
    """What `job_options` asked for."""

    limits: Limits
    quiet: bool
    as_json: bool
    engine: str = "local"
    address: str | None = None
    engine_timeout: float | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing is said beside the result."""
        return self.quiet or self.as_json

    def connect(self) -> Engine | None:
        """The engine that was asked for, which is left when the command ends; None for the local one."""
        engine = engine_at(self.engine, self.address, self.engine_timeout)
        return None if engine is None else click.get_current_context().with_resource(engine)

    def run(self, work: Callable[[Progress], Summary]) -> Summary:
        """Do `work`, a job that tells the watch how far it is; then print its summary."""
        summary = self.watched(work)
        self.tell(summaries.as_dict(summary), summaries.as_text(summary))
        return summary

    def watched(self, work: Callable[[Progress], Result]) -> Result:
        """Do `work`, and show how far it is."""
        progress: Progress = NoProgress() if self.quiet else Bar() if sys.stderr.isatty() else Lines()
        try:
            return work(progress)
        finally:
            progress.end()

    def tell(self, about: dict[str, Any], text: str) -> None:
        """Print what a job came to, for a program or for a person."""
        if self.as_json:
            click.echo(json.dumps(about, indent=1))
        elif not self.quiet:
            click.echo(text)


def take_job_options(options: dict[str, Any]) -> JobOptions:
    """What `job_options` added to a command's options: taken out of them."""
    taken = {name: options.pop(name) for name in ("workers", "max_rejects", "strict", "restart", "quiet", "as_json")}
    engine, address, timeout = options.pop("engine"), options.pop("address"), options.pop("engine_timeout")
    if engine != "local" and taken["workers"] is not None:
        raise UsageError(f"--workers is of --engine local; how many work side by side is up to the {engine} cluster")
    limits = Limits(taken["workers"], parse_share(taken["max_rejects"]), taken["strict"], taken["restart"])
    return JobOptions(limits, taken["quiet"], taken["as_json"], engine, address, timeout)


def parse_share(text: str) -> float:
    """`--max-rejects`: "1%", "0.01", or a number of images."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1e15 or (share >= 1 and (text.endswith("%") or share != int(share))):
        if text.strip() == "100%":
            return 1e14
        raise click.BadParameter(
            f"{text!r}: a share such as 1% or 0.01, or a number of images", param_hint="--max-rejects"
        )
    return share
