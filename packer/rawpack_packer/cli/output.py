"""Prints the output of commands, and passes the options of a job on to the packer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rawpack_packer import text
from rawpack_packer.progress import watched

if TYPE_CHECKING:
    from rawpack_packer.engines import Engine
    from rawpack_packer.job import Job, Progress
    from rawpack_packer.sources import Source


@dataclass(frozen=True)
class Output:
    """What a command prints."""

    quiet: bool = False
    as_json: bool = False

    def say(self, line: str) -> None:
        """Print a line apart from the result."""
        if not (self.quiet or self.as_json):
            note(line)

    def tell(self, result: text.Shown) -> None:
        """Print a result, for a program or for a person."""
        self.give(result.as_dict(), lambda: _colored(result))

    def give(self, about: Any, words: Callable[[], str]) -> None:
        """The same, of a result in two forms."""
        if self.as_json:
            click.echo(json.dumps(about, indent=1))
        elif not self.quiet:
            click.echo(words())

    def do(self, job: Job, *, dry_run: bool) -> None:
        """Do a job, and print its summary; or what it would take, also if quiet."""
        if not dry_run:
            self.tell(job.run())
            return
        Output(as_json=self.as_json).tell(job.estimate())
        for problem in job.source.info.problems:
            self.say(text.plain(problem))


def _colored(result: text.Shown) -> str:
    """A result as it prints itself; what went wrong stands out."""
    words = result.in_words()
    if not isinstance(words, text.Block):
        return str(result)
    colors = {"rejected": "yellow", "problem": "yellow", "read it": "cyan", "each epoch": "cyan", "look": "cyan"}
    shown = [(name, click.style(value, fg=colors[name]) if name in colors else value) for name, value in words.rows]
    return "\n".join([click.style(words.head, fg="green", bold=True), *([text.table(shown)] if shown else [])])


def note(line: str) -> None:
    """Print a line to the standard error."""
    click.echo(f"rawpack: {line}", err=True)


def take_output(options: dict[str, Any]) -> Output:
    """What a command prints, and how its job runs, by the options that `job_options` added: those that only the command
    has are taken out."""
    from rawpack_packer.engines import engine_at

    name, address, timeout = (options.pop(option) for option in ("engine", "address", "engine_timeout"))
    out = Output(options.pop("quiet"), options.pop("as_json"))
    name = name or "local"
    engine = engine_at(name, address, timeout) if name == "local" else partial(_connected, name, address, timeout)
    options |= {"engine": engine, "progress": progress(quiet=out.quiet)}
    return out


def progress(*, quiet: bool) -> Progress:
    """What shows a person how far a job is."""
    from rawpack_packer.job import NoProgress

    return NoProgress() if quiet else watched()


def _connected(name: str, address: str | None, timeout: float | None) -> Engine:
    """An engine of a cluster, which is left when the command ends."""
    from rawpack_packer.engines import engine_at

    engine = engine_at(name, address, timeout)
    assert engine is not None  # only the local one is None
    return click.get_current_context().with_resource(engine)


def end_unread(sources: Collection[Source]) -> None:
    """End the command with exit code 1 where folders or files could not be looked into."""
    from rawpack_packer.sources import unread_of

    unread = sum(len(unread_of(source)) for source in sources)
    if unread:
        what = text.count(unread, "folder or file", "folders or files")
        first = next(problem for source in sources for problem in source.info.problems)
        example = text.listed([first], 1, total=unread)
        note(f"{what} of the source could not be read, and {'was' if unread == 1 else 'were'} left out: {example}")
        sys.exit(1)


def note_written(*files: Path | None, quiet: bool = False) -> None:
    """Name the files that were written."""
    for file in files:
        if file is not None and not quiet:
            note(f"wrote {text.plain(str(file))} ({text.size(file.stat().st_size)})")
