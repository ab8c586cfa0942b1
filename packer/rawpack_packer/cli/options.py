"""What several commands share: options, each declared once (what is stored, where it comes from, how a run works); and
what these say of a command: what it prints, and how its job runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rawpack.errors import UsageError
from rawpack.system.writing import check_output
from rawpack_packer import text
from rawpack_packer.cli.command import Decorator, UserPath, option, together
from rawpack_packer.options import OPTIONS, RECIPE, RUN, SOURCE, Option, format_names
from rawpack_packer.progress import watched

if TYPE_CHECKING:
    from rawpack_packer.engines import Engine
    from rawpack_packer.job import Job, Progress
    from rawpack_packer.sources import Table


class _ChoiceOfWords(click.Choice[str]):
    """A choice that has other words too, word -> choice, which no help shows."""

    def __init__(self, choices: Sequence[str], also: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._also = also

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(self._also.get(value, value), param, ctx)


def declared(
    one: Option, *python_name: str, help: str = "", short: str = "", default: str | None = None, **settings: Any
) -> Decorator:
    """A row of the table, for a command. help, short, default: instead of the row's."""
    if one.choices:
        settings.setdefault("type", _ChoiceOfWords(format_names() if one.name == "format" else one.choices, one.also))
    elif one.least is not None:
        settings.setdefault("type", click.IntRange(one.least))
    elif one.most_seconds is not None:
        settings |= {"type": click.FloatRange(0, one.most_seconds, min_open=True), "metavar": one.metavar}
    elif one.is_flag:
        settings["is_flag"] = True
    else:
        settings["metavar"] = one.metavar
        settings |= {"type": UserPath()} if one.is_path else {}
    if one.multiple or one.by_field:
        settings["multiple"] = True
    if one.by_field:
        settings.setdefault("callback", _of_fields)
    default = one.default if default is None else default
    words = (help or one.help) + (f" [default: {default}]" if default else "")
    short = short or ("" if help else one.short)
    return option(*one.names, *(python_name or (one.name,)), group=one.heading, help=words, short=short, **settings)


def _of_fields(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> str | None:
    """One text of values by field; of values for all, the last one."""
    by_field = any("=" in value for value in values)
    return (",".join(values) if by_field else values[-1]) if values else None


recipe_options = together(*map(declared, RECIPE))
"""What is done to an image before it is stored."""
kept_recipe_options = together(*(declared(one, default=one.kept) for one in RECIPE if one.kept is not None))
"""The same for a store that is made of stores: what is left out stays as it is."""
tried_recipe_options = together(
    *(
        declared(
            one, one.name, help=f"{one.tried[0]} to try; may be repeated.",
            short=f"{one.tried[0].partition(' (')[0]} to try", default=one.tried[1], multiple=True,
            **({"callback": None} if one.by_field else {}),
        )
        for one in RECIPE
        if one.tried
    )
)  # fmt: skip
"""Those that `rawpack plan` tries several values of."""


where_option = option(
    "--where", group="Selection", metavar="CONDITION",
    short='Only samples that match: "score > 0.5"',
    help="Only samples whose fields match, such as \"score > 0.5 and label in ('cat', 'dog')\". Fields, numbers and "
    "texts, comparisons, in, and, or, not, + - * / // %, len(), abs(), field[0], .startswith(), .endswith().",
)  # fmt: skip


source_options = together(*(declared(one) for one in SOURCE if one.heading))
"""What SRC is, and what is taken of it: `--source`, and the options of its kinds."""


# ---------------------------------------------------------------------------------------------- the run
def workers_option(help: str, *, least: int = 0, **settings: Any) -> Decorator:
    return option("-j", "--workers", type=click.IntRange(least), help=help, **settings)


dry_run_option = option(
    "--dry-run",
    is_flag=True,
    short="Estimate size and time, and write nothing",
    help="Estimate size and time from a few samples and write nothing.",
)
max_rejects_option = declared(OPTIONS["max_rejects"])


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
_job_options = together(*(declared(one) for one in RUN if one.heading and one.name != "restart"))


def job_options(restart: str = "", short: str = "") -> Decorator:
    """How a job runs; see `take_output`. restart, short: what `--restart` does, if not what the table says."""
    return together(_job_options, declared(OPTIONS["restart"], help=restart, short=short), quiet_option, json_option)


# ---------------------------------------------------------------------------------------------- the output
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


def end_unread(sources: Collection[Table]) -> None:
    """End the command with exit code 1 where folders or files could not be looked into."""

    unread = sum(len(source.unread) for source in sources)
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
