"""Usage errors that click finds, in the words of all other errors of the command."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

import click
from click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoSuchCommand, NoSuchOption

from rawpack_packer import text
from rawpack_packer.options import OPTIONS

_INSTEAD = {"version": "`rawpack --version` shows the version", "help": "`rawpack --help` shows the commands"}
"""What is no command, but is often typed."""
_FROM = ("input", "src", "in", "i", "data", "input_dir", "root")
_TO = ("output", "dst", "out", "o", "output_dir", "dest")
"""What other tools call the paths."""
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
            return f"there is no option {name}{_meant(name, ctx, known) or text.did_you_mean(name, known)}"
        case NoSuchCommand(ctx=click.Context(command=click.Group(commands=commands)), command_name=name):
            if name in _INSTEAD:
                return f"there is no command {name}: {_INSTEAD[name]}"
            return f"there is no command {name}{text.did_you_mean(name, commands)}"
        case MissingParameter(ctx=click.Context() as ctx, param=click.Parameter() as param):
            return f"{_name(param)} is missing: {ctx.info_name} needs {arguments(ctx.command, ctx)}"
        case BadParameter(param=click.Parameter() as param, message=message):
            return _bad_value(param, message)
        case BadOptionUsage(option_name=name, message=message):
            return f"{name} {'takes no' if 'does not take' in message else 'needs a'} value"
        case click.UsageError(ctx=click.Context() as ctx, message=message) if "unexpected extra" in message:
            extra = message.partition("(")[2].removesuffix(")").split(" ")
            takes = f"{ctx.info_name} takes {arguments(ctx.command, ctx) or 'no argument'}, and nothing more"
            several = "; did the shell expand a pattern? Quote it, as in '*.tar'" if len(extra) > 1 else ""
            return f"{takes}: {text.listed(extra, _SHOWN)}{several}"
    return error.format_message()


def _meant(name: str, ctx: click.Context, known: Collection[str]) -> str:
    """What another name for an option is here: "; did you mean --workers?"; "" where it is none."""
    word = name.lstrip("-").replace("-", "_")
    paths = [one.human_readable_name for one in ctx.command.params if isinstance(one, click.Argument)]
    if paths and word in (*_FROM, *_TO):
        return f": paths stand without one, as in `rawpack {ctx.info_name} {' '.join(paths)}`"
    meant = [one.flag for one in OPTIONS.values() if word in one.meant_by and one.flag in known]
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
