"""What commands print and write, and the options for it that several have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rawpack.errors import UsageError
from rawpack.system.writing import check_output
from rawpack_packer import text
from rawpack_packer.cli.command import Decorator, UserPath, option

if TYPE_CHECKING:
    from rawpack_packer.job import Job


def quiet_option_for(what: str) -> Decorator:
    return option("-q", "--quiet", is_flag=True, help=f"Print nothing but {what}.")


quiet_option = quiet_option_for("errors")
json_option = option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _output_file(ctx: click.Context, param: click.Parameter, path: str | None) -> Path | None:
    """A file to be written that a user named. Raises UsageError at once where it cannot be written."""
    if path is None or ctx.resilient_parsing:
        return None
    file = Path(path)
    if not path or os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise UsageError(f"{path or repr(path)} is a folder; name a file")
    try:
        check_output(file)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: there is no folder {file.parent}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}; name another file") from None
    return file


def _report_file(ctx: click.Context, param: click.Parameter, path: str | None) -> Path | None:
    """The same for a report. Raises MissingExtraError where none can be drawn."""
    if path is not None and not ctx.resilient_parsing:
        from rawpack_packer import api

        api.check_report(param.opts[0])
    return _output_file(ctx, param, path)


grid_option = option("--grid", callback=_output_file, type=UserPath(), metavar="FILE",
                     short="Draw a contact sheet, such as sheet.png",
                     help="Draw a contact sheet of random samples, such as sheet.png.")  # fmt: skip
html_option = option("--html", callback=_report_file, type=UserPath(), metavar="FILE",
                     help="Write an HTML report, such as report.html. Needs rawpack[report].")  # fmt: skip
png_option = option("--png", callback=_report_file, type=UserPath(), metavar="FILE",
                    help="Write only the plots, such as plots.png. Needs rawpack[report].")  # fmt: skip


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
        self.tell_missing(result)

    def tell_missing(self, result: text.Shown) -> None:
        """Say what is missing, also if quiet; a result for a person says so itself."""
        for line in result.missing if self.quiet or self.as_json else ():
            note(text.plain(line))

    def give(self, result: Any, words: Callable[[], str]) -> None:
        """The same, of a result in two forms."""
        if self.as_json:
            click.echo(json.dumps(result, indent=1))
        elif not self.quiet:
            click.echo(words())

    def do(self, job: Job, *, dry_run: bool) -> None:
        """Do a job, and print its summary; or what it would take, also if quiet."""
        if not dry_run:
            self.tell(job.run())
            return
        Output(as_json=self.as_json).tell(job.estimate())
        info = job.source.info
        for problem in info.problems:
            (note if problem in info.left_out else self.say)(text.plain(problem))


def _colored(result: text.Shown) -> str:
    """A result as it prints itself; what went wrong stands out."""
    words, width = result.in_words(), text.columns()
    if not isinstance(words, text.Block):
        return result.as_text(width)
    colors = {"rejected": "yellow", "problem": "yellow", **dict.fromkeys(text.TO_COPY, "cyan")}

    def paint(name: str, part: str) -> str:
        if not name:
            return click.style(part, fg="green", bold=True)
        return click.style(part, fg=colors[name]) if name in colors else part

    return words.as_text(width, paint)


def note(line: str) -> None:
    """Print a line to the standard error."""
    click.echo(text.for_standard_error(f"rawpack: {line}"), err=True)


def note_written(*files: Path | None, quiet: bool = False) -> None:
    """Name the files that were written."""
    for file in files:
        if file is not None and not quiet:
            note(f"wrote {text.plain(str(file))} ({text.size(file.stat().st_size)})")
