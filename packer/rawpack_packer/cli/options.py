"""Options that several commands share, each declared once: what is stored, where it comes from, how a run works; and
how a command's job runs by them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rawpack_packer import text
from rawpack_packer.cli.command import Decorator, UserPath, option, together
from rawpack_packer.cli.output import Output, json_option, note, quiet_option
from rawpack_packer.options import OPTIONS, RECIPE, RUN, SOURCE, Option, format_names
from rawpack_packer.progress import watched

if TYPE_CHECKING:
    from rawpack_packer.engines import Engine
    from rawpack_packer.job import Progress
    from rawpack_packer.sources import Table


class _ChoiceOfWords(click.Choice[str]):
    """A choice that has other words too, word -> choice, which no help shows."""

    def __init__(self, choices: Sequence[str], also: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._also = also

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(self._also.get(value, value), param, ctx)


class _ChoiceOfFormats(_ChoiceOfWords):
    """Those of other packages are looked for only where a format is given, or help is shown."""

    @property
    def choices(self) -> tuple[str, ...]:
        return format_names()

    @choices.setter
    def choices(self, ours: tuple[str, ...]) -> None: ...


def declared(
    one: Option, *python_name: str, help: str = "", short: str = "", default: str | None = None, **settings: Any
) -> Decorator:
    """A row of the table, for a command. help, short, default: instead of the row's."""
    if one.choices:
        kind = _ChoiceOfFormats if one.name == "format" else _ChoiceOfWords
        settings.setdefault("type", kind(one.choices, one.also))
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


_job_options = together(*(declared(one) for one in RUN if one.heading and one.name != "restart"))


def job_options(restart: str = "", short: str = "") -> Decorator:
    """How a job runs; see `take_output`. restart, short: what `--restart` does, if not what the table says."""
    return together(_job_options, declared(OPTIONS["restart"], help=restart, short=short), quiet_option, json_option)


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
