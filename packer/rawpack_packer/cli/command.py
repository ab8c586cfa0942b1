"""The base of all subcommands: options under headings, a hint if SRC and DST were swapped, and usage errors that click
finds, in the words of all other errors."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click
from click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoSuchCommand, NoSuchOption

from rawpack.errors import UsageError
from rawpack.remote.url import is_url
from rawpack.system.user import expanded
from rawpack_packer import text
from rawpack_packer.options import OPTIONS

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_SWAPPED = {"pack": {("nothing", "samples"), ("store", "samples")}, "append": {("store", "samples")}}
"""What is at SRC and DST where they were probably swapped, see `what_is_at`."""
_NAME_WIDTH = 28
"""Names of options that are longer have a line of their own in `--help`."""
_SHORT_WIDTH = 48
"""Of what `-h` says of an option: with its name, 80 columns."""


class _UnderHeading(click.Option):
    """An option that stands under a heading of `--help`."""

    def __init__(self, *args: Any, group: str, short: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group
        self._short = short

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

    def in_a_line(self, ctx: click.Context) -> tuple[str, str]:
        """For `-h`: the name, without choices that are too long for it, and a few words, with the default if it
        fits."""
        record = self.get_help_record(ctx)
        assert record is not None  # no option is hidden
        name, (says, bracket, default) = record[0], record[1].partition(" [default: ")
        if len(name) > _NAME_WIDTH:
            name = name.rpartition(" ")[0] + " VALUE"
        short = self._short or says.partition(". ")[0].removesuffix(".")
        whole = f"{short} [default: {default}"
        return name, whole if bracket and len(whole) <= _SHORT_WIDTH else short


def _help_option(name: str, shown: Callable[..., str], help: str) -> _UnderHeading:
    """An option that prints what `shown` returns of the command, and ends it."""

    def show(ctx: click.Context, option: click.Parameter, given: bool) -> None:
        if given and not ctx.resilient_parsing:
            click.echo(shown(ctx.command, ctx), color=ctx.color)
            ctx.exit()

    return _UnderHeading(
        [name], group="Run", is_flag=True, is_eager=True, expose_value=False, callback=show, help=help
    )  # fmt: skip


class Subcommand(click.Command):
    """A command of `rawpack`: `-h` has a line for each option, `--help` all there is to say."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(_help_option("-h", Subcommand.in_short, "List the options, a line each, and exit."))
        self._help = _help_option("--help", click.Command.get_help, "Explain the command and its options, and exit.")

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return self._help

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, in the order in which they were declared."""
        groups = {
            heading: [record for one in options if (record := one.get_help_record(ctx)) is not None]
            for heading, options in self._by_heading(ctx).items()
        }
        # All descriptions begin in one column.
        width = max(len(name) for records in groups.values() for name, _ in records if len(name) <= _NAME_WIDTH)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", does) for name, does in records], col_max=width)

    def in_short(self, ctx: click.Context) -> str:
        """What `-h` prints: no line is wider than 80 columns."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        lines = [formatter.getvalue(), str(self.short_help), ""]
        for heading, options in self._by_heading(ctx).items():
            records = [one.in_a_line(ctx) for one in options]
            lines += [f"{heading}:", *(f"  {name:<{_NAME_WIDTH}}  {does}" for name, does in records), ""]
        return "\n".join([*lines, f"`rawpack {self.name} --help` explains each, with examples."])

    def _by_heading(self, ctx: click.Context) -> dict[str, list[_UnderHeading]]:
        groups: dict[str, list[_UnderHeading]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, _UnderHeading):
                groups.setdefault(option.group, []).append(option)
        return groups if len(groups) > 1 else {"Options": [one for options in groups.values() for one in options]}

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
        holds = "contains images" if found[1] == "samples" else "is a store"
        command = shlex.join([*ctx.command_path.split(), *map(str, reversed(paths))])
        return f"{names[1]} {paths[1]} {holds}: did you swap {' and '.join(names)}? Try `{command}`"


def option(*names: str, group: str = "Run", short: str = "", **settings: Any) -> Decorator:
    """As `click.option`. group: the heading under which it stands. short: what `-h` says, if not the first sentence of
    `help`."""
    return click.option(*names, cls=_UnderHeading, group=group, short=short, **settings)


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


_INSTEAD = {
    "version": "`rawpack --version` shows the version",
    "help": "`rawpack --help` shows the commands",
    **dict.fromkeys(("verify", "check", "validate"), "`rawpack inspect --verify` checks a store"),
    **dict.fromkeys(("info", "ls", "show", "stat"), "`rawpack inspect` shows what is in a store"),
    **dict.fromkeys(("create", "build", "make"), "`rawpack pack` makes a store"),
    "split": "`rawpack pack --holdout` draws splits",
    **dict.fromkeys(("serve", "browse", "open"), "`rawpack view` shows samples in a browser"),
    **dict.fromkeys(("train", "read", "load"), "training reads a store by rawpack.Reader, in Python"),
    "completion": "`rawpack --help` has the line for tab completion",
}
"""What is no command, but is often typed."""
_FROM = ("input", "src", "in", "i", "data", "input_dir", "root")
_TO = ("output", "dst", "out", "o", "output_dir", "dest")
"""What other tools call the paths."""
_MEANT_BY = {
    "--holdout": ("val_split", "validation_split", "val_size", "test_split", "test_size", "val_ratio", "split_ratio"),
    "--splits": ("split", "split_names"),
    "--seed": ("random_state", "random_seed"),
    "--to": ("format", "target"),
    "--batch": ("batch_size",),
    "--quiet": ("silent", "no_progress"),
    "--seconds": ("budget", "time", "duration"),
    "--rounds": ("budget", "repeat", "repeats", "runs"),
}
"""What other tools call the options of single commands; for those of the table, see `Option.meant_by`."""
_NOWHERE = {
    "batch_size": "batches are made when a store is read, by rawpack.Reader(store).batches(N)",
    "verbose": "everything is printed unless --quiet is given",
}
"""What other tools have an option for, and no command here."""
_SHOWN = 3
_PATH = re.compile(r"\w+ '(.*)' is (not readable|a file)\.", re.DOTALL)
_WRONG = re.compile(r"(.*) is not (?:a valid|one of|in the range) ", re.DOTALL)
"""The value, before what click says is wrong with it."""


def in_our_words(error: click.ClickException) -> str:
    """One line: what is wrong, with the value, and what was probably meant."""
    match error:
        case NoSuchOption(ctx=click.Context() as ctx, option_name=name):
            known = [name for one in ctx.command.get_params(ctx) for name in (*one.opts, *one.secondary_opts)]
            known = [one for one in known if one[0] == "-"]
            elsewhere = name in {one.flag for one in OPTIONS.values()}  # a name of the same letters is not meant
            meant = _meant(name, ctx, known) or ("" if elsewhere else text.did_you_mean(name, known))
            return f"there is no option {name}{meant}"
        case NoSuchCommand(ctx=click.Context(command=click.Group(commands=commands)), command_name=name):
            if os.path.lexists(name) or is_url(name):
                return f"{name} is a path, not a command; did you mean `{_command_of(name)}`?"
            if name in _INSTEAD:
                return f"there is no command {name}: {_INSTEAD[name]}"
            return f"there is no command {name}{text.did_you_mean(name, commands)}"
        case MissingParameter(ctx=click.Context() as ctx, param=click.Parameter() as param):
            needs = f"{_name(param)} {param.make_metavar(ctx)}" if isinstance(param, click.Option) else ""
            needs = " and ".join(filter(None, (arguments(ctx.command, ctx), needs)))
            return f"{_name(param)} is missing: {ctx.info_name} needs {needs}"
        case BadParameter(param=click.Parameter() as param, message=message):
            return _bad_value(param, message)
        case BadOptionUsage(option_name=name, message=message):
            return f"{name} {'takes no' if 'does not take' in message else 'needs a'} value"
        case click.UsageError(ctx=click.Context() as ctx, message=message) if "unexpected extra" in message:
            extra = message.partition("(")[2].removesuffix(")").split(" ")
            if meant := _paths_meant(ctx, extra):
                return meant
            takes = f"{ctx.info_name} takes {arguments(ctx.command, ctx) or 'no argument'}, and nothing more"
            names = [one.name or "" for one in ctx.command.params if isinstance(one, click.Argument)]
            ends = {Path(str(ctx.params.get(name))).suffix for name in names}
            alike = len(names) > 1 and len(ends) == 1 and ends != {""}
            several = "; did the shell expand a pattern? Quote it, as in '*.tar'" if len(extra) > 1 or alike else ""
            return f"{takes}: {text.listed(extra, _SHOWN)}{several}"
    return error.format_message()


def _command_of(path: str) -> str:
    """The command that is probably meant where its name was left out, and a path came first."""
    from rawpack_packer.inspect import what_is_at

    is_store = what_is_at(path) == "store"
    rest = sys.argv[2:] if sys.argv[1:2] == [path] else []
    return shlex.join(["rawpack", "inspect" if is_store else "pack", path, *(rest or ([] if is_store else ["store/"]))])


def _paths_meant(ctx: click.Context, extra: list[str]) -> str:
    """What to write where more paths came than a command takes, as far as that can be seen: their folder for image
    files that a pattern of the shell named, quotes around a path with blanks; "" where it cannot."""
    from rawpack_packer.inspect import folder_of_images

    names = [one.name for one in ctx.command.params if isinstance(one, click.Argument)]
    paths = [*(str(ctx.params.get(name)) for name in names), *extra]
    *files, last = paths
    folder = folder_of_images(files)
    if ctx.info_name in ("pack", "append") and folder:
        destination = "DST" if folder_of_images(paths) else last
        command = shlex.join([*ctx.command_path.split(), folder_of_images(paths) or folder, destination])
        return f"{ctx.info_name} takes a folder, not its image files: `{command}`"
    for count in range(len(paths), 1, -1):
        if os.path.lexists(whole := " ".join(paths[:count])):
            command = shlex.join([*ctx.command_path.split(), whole, *paths[count:]])
            return f"a path with blanks needs quotes: `{command}`"
    return ""


def _meant(name: str, ctx: click.Context, known: Collection[str]) -> str:
    """What another name for an option is here: "; did you mean --workers?"; "" where it is none."""
    word = name.lstrip("-").replace("-", "_")
    paths = [one.human_readable_name for one in ctx.command.params if isinstance(one, click.Argument)]
    if paths and word in (*_FROM, *_TO):
        return f": paths stand without one, as in `rawpack {ctx.info_name} {' '.join(paths)}`"
    names = {one.flag: one.meant_by for one in OPTIONS.values()} | _MEANT_BY
    meant = [flag for flag, others in names.items() if word in others and flag in known]
    if not meant and word in _NOWHERE:
        return f": {_NOWHERE[word]}"
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def arguments(command: click.Command, ctx: click.Context) -> str:
    """What a command takes besides options: "SRC and DST"."""
    return " and ".join(one.make_metavar(ctx) for one in command.params if isinstance(one, click.Argument))


def examples(command: click.Command) -> str:
    """The examples in a command's help."""
    return re.search(r"^Examples?:\n.*", inspect.cleandoc(command.help or ""), re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]


def _bad_value(param: click.Parameter, message: str) -> str:
    if path := _PATH.match(message):
        what = "is a file: name a folder" if path[2] == "a file" else "cannot be read: check its permissions"
        return f"{_name(param)} {path[1]} {what}"
    found = _WRONG.match(message)
    match param.type:
        case _ if found is None:
            return f"{_name(param)}: {message}"
        case click.Choice(choices=choices):
            known = [str(one) for one in choices]
            *others, last = known
            must = f"{', '.join(others)} or {last}{text.did_you_mean(found[1].strip(chr(39)), known)}"
        case click.FloatRange() | click.IntRange() as kind:
            must = ("a whole number" if isinstance(kind, click.IntRange) else "a number") + _within(kind)
        case _:
            must = "a whole number"
    return f"{_name(param)} {found[1]}: must be {must}"


def _within(kind: click.IntRange | click.FloatRange) -> str:
    if kind.max is not None:
        return f" {'above' if kind.min_open else 'from'} {kind.min:,} {'and up ' * kind.min_open}to {kind.max:,}"
    return f" above {kind.min:,}" if kind.min_open else f", {kind.min:,} or more"


def _name(param: click.Parameter) -> str:
    """--workers; DST."""
    if isinstance(param, click.Argument):
        return param.human_readable_name.partition(" ")[0]
    return max(param.opts, key=len)
