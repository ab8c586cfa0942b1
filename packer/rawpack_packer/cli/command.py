"""The base of all subcommands: options under headings, and a hint if SRC and DST were swapped."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from rawpack.errors import UsageError
from rawpack.system.home import expanded

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_SWAPPED = {"pack": {("nothing", "samples"), ("store", "samples")}, "append": {("store", "samples")}}
"""What is at SRC and DST where they were probably swapped, see `what_is_at`."""
_NAME_WIDTH = 28
"""Names of options that are longer have a line of their own in `--help`."""


class _UnderHeading(click.Option):
    """An option that stands under a heading of `--help`."""

    def __init__(self, *args: Any, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group

    def make_metavar(self, ctx: click.Context) -> str:
        """N for what click calls INTEGER RANGE."""
        whole_number = self.metavar is None and isinstance(self.type, type(click.INT))
        return "N" if whole_number else super().make_metavar(ctx)

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Without the range, which an error names."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """With defaults that click adds where we write ours."""
        record = super().get_help_record(ctx)
        return record and (record[0], record[1].replace(".  [default", ". [default"))


class Subcommand(click.Command):
    """A command of `rawpack`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, in the order in which they were declared."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                groups.setdefault(getattr(option, "group", "Run"), []).append(record)
        # All descriptions begin in one column.
        width = max(len(name) for records in groups.values() for name, _ in records if len(name) <= _NAME_WIDTH)
        for heading, records in groups.items():
            with formatter.section(heading if len(groups) > 1 else "Options"):
                formatter.write_dl([(f"{name:<{width}}", does) for name, does in records], col_max=width)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            swapped = self._swapped(ctx)
            if swapped is None:
                raise
            raise UsageError(f"{swapped}. As given: {error}") from None

    def _swapped(self, ctx: click.Context) -> str | None:
        """A question, where this command fails, and the one with its two paths in the other order makes sense."""
        names = [one.human_readable_name for one in self.params if isinstance(one, click.Argument)]
        paths = [ctx.params.get(name.lower()) for name in names]
        if len(paths) != 2 or not all(isinstance(path, str) and path for path in paths):
            return None
        from rawpack_packer.inspect import what_is_at

        found = tuple(what_is_at(str(path)) for path in paths)
        if found not in _SWAPPED.get(str(self.name), {("nothing", "store")}):
            return None
        holds = "holds images" if found[1] == "samples" else "is a store"
        command = shlex.join([*ctx.command_path.split(), *map(str, reversed(paths))])
        return f"{names[1]} {paths[1]} {holds}: did you swap {' and '.join(names)}? Try `{command}`"


def option(*names: str, group: str = "Run", **settings: Any) -> Decorator:
    """As `click.option`. group: the heading of `--help` under which it stands."""
    return click.option(*names, cls=_UnderHeading, group=group, **settings)


def together(*decorators: Decorator) -> Decorator:
    """Several options as one decorator."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


class UserPath(click.Path):
    """The type of all arguments and options that are paths: a leading `~` is the home folder also where the shell does
    not see it, as in `--html=~/report.html`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(expanded(value), param, ctx)


def path_argument(name: str, **settings: Any) -> Decorator:
    return click.argument(name, type=UserPath(), **settings)
