"""Options that several commands share, each declared once: what is stored, where it comes from, how a run works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rawpack.errors import UsageError
from rawpack_packer.cli.command import Decorator, UserPath, option, together
from rawpack_packer.options import OPTIONS, RECIPE, RUN, SOURCE, Option, format_names


def declared(one: Option, *python_name: str, help: str = "", default: str | None = None, **settings: Any) -> Decorator:
    """A row of the table, for a command. help, default: instead of the row's."""
    if one.choices:
        settings.setdefault("type", click.Choice(format_names() if one.name == "format" else one.choices))
    elif one.least is not None:
        settings.setdefault("type", click.IntRange(one.least))
    elif one.most_seconds is not None:
        settings |= {"type": click.FloatRange(0, one.most_seconds, min_open=True), "metavar": one.metavar}
    elif one.is_flag:
        settings["is_flag"] = True
    else:
        settings["metavar"] = one.metavar
        settings |= {"type": UserPath()} if one.is_path else {}
    if one.multiple:
        settings["multiple"] = True
    default = one.default if default is None else default
    words = (help or one.help) + (f" [default: {default}]" if default else "")
    return option(*one.names, *(python_name or (one.name,)), group=one.heading, help=words, **settings)


recipe_options = together(*map(declared, RECIPE))
"""What is done to an image before it is stored."""
kept_recipe_options = together(*(declared(one, default=one.kept) for one in RECIPE if one.kept is not None))
"""The same for a store that is made of stores: what is left out stays as it is."""
tried_recipe_options = together(
    *(
        declared(
            one, one.name, help=f"{one.tried[0]} to try; may be repeated.", default=one.tried[1], multiple=True
        )
        for one in RECIPE
        if one.tried
    )
)  # fmt: skip
"""Those that `rawpack plan` tries several values of."""


where_option = option(
    "--where", group="Selection", metavar="CONDITION",
    help="Only samples whose fields match, such as \"score > 0.5 and label in ('cat', 'dog')\". Fields, numbers and "
    "texts, comparisons, in, and, or, not, + - * / // %, len(), abs(), field[0], .startswith(), .endswith().",
)  # fmt: skip


source_options = together(*(declared(one) for one in SOURCE if one.heading))
"""What SRC is, and what is taken of it: `--source`, and the options of its kinds."""


# ---------------------------------------------------------------------------------------------- the run
def workers_option(help: str, *, least: int = 0, **settings: Any) -> Decorator:
    return option("-j", "--workers", type=click.IntRange(least), help=help, **settings)


dry_run_option = option("--dry-run", is_flag=True, help="Estimate size and time from a few samples, and write nothing.")
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
    existed = os.path.lexists(path)
    try:
        file.open("ab").close()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: there is no folder {file.parent}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}; name another file") from None
    if not existed:
        file.unlink()
    return file


def _report_file(ctx: click.Context, param: click.Parameter, path: str | None) -> Path | None:
    """The same for a report. Raises MissingExtraError where none can be drawn."""
    if path is not None and not ctx.resilient_parsing:
        from rawpack_packer import api

        api.check_report(param.opts[0])
    return _output_file(ctx, param, path)


grid_option = option("--grid", callback=_output_file, type=UserPath(), metavar="FILE",
                     help="Draw a contact sheet of random samples, such as sheet.png.")  # fmt: skip
html_option = option("--html", callback=_report_file, type=UserPath(), metavar="FILE",
                     help="Write an HTML report, such as report.html. Needs rawpack[report].")  # fmt: skip
png_option = option("--png", callback=_report_file, type=UserPath(), metavar="FILE",
                    help="Write only the plots, such as plots.png. Needs rawpack[report].")  # fmt: skip
_job_options = together(*(declared(one) for one in RUN if one.heading and one.name != "restart"))


def job_options(restart: str = "") -> Decorator:
    """How a job runs; see `output.take_output`. restart: what `--restart` does, if not what the table says."""
    return together(_job_options, declared(OPTIONS["restart"], help=restart), quiet_option, json_option)
