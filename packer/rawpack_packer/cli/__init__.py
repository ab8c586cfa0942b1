"""The `rawpack` command: its list of subcommands, and how every error becomes one line and an exit code.

The module of a subcommand is loaded when the subcommand is used.
"""

from __future__ import annotations

import os
import re
import sys
from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130
"""As a shell reports Ctrl-C."""
_RESUMES = {"pack", "append", "convert", "merge", "subset", "export"}
"""Commands that resume where they were interrupted."""
_COMMANDS = {
    "plan": ("measure", "Try stores on a sample and recommend one."),
    "pack": ("pack", "Pack a folder of images into a store."),
    "inspect": ("inspect", "Show what is in a store and check it."),
    "view": ("view", "Look at the samples of stores in a browser."),
    "bench": ("measure", "Measure how fast stores are read here."),
    "append": ("pack", "Add more samples to a store."),
    "convert": ("derive", "Make another store from a store."),
    "merge": ("derive", "Make one store of several."),
    "subset": ("derive", "Make a store of some samples of a store."),
    "relabel": ("derive", "Add or replace labels and other small fields of a store."),
    "export": ("derive", "Write the samples of a store as image files."),
    "warm": ("inspect", "Read a store into the page cache."),
    "doctor": ("inspect", "Show this machine's CPUs, memory, JPEG decoders and packages."),
}
"""Name of a command -> its module in this folder, and what it does."""
_FIRST = {"plan": "photos/", "pack": "photos/ store/", "inspect": "store/", "view": "store/", "bench": "store/"}
"""The commands that a new user needs, each with the arguments of an example."""
_OF_OPTIONS = re.compile(r"-|.*\boption", re.DOTALL)
"""Errors that the help of a command may cure: not those of what is wrong in a source, or of a place that is missing."""
_EPILOG = """\
`rawpack COMMAND -h` lists the options of a command, `rawpack COMMAND --help` explains them. Exit codes: 0 done; 1
failed; 2 usage error, nothing written; 130 interrupted.

\b
Tab completion in bash; docs/reference/cli.md has zsh and fish:
  eval "$(_RAWPACK_COMPLETE=bash_source rawpack)"
"""


class _Commands(UserDict[str, Any]):
    """Name -> command, which is loaded when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        module, does = self.data[name]
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), name)
        command.short_help = does
        # Without any argument, examples say more than the name of the first missing one: see `main`.
        command.no_args_is_help = any(one.required for one in command.params if isinstance(one, click.Argument))
        return command


class _Rawpack(click.Group):
    """The command itself: what it prints of its sub-commands loads none of them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Start here"):
            for name, paths in _FIRST.items():
                formatter.write(f"  {name:<9}{_COMMANDS[name][1]}\n{'':<13}rawpack {name} {paths}\n")
        with formatter.section("More commands"):
            formatter.write_dl([(name, does) for name, (_, does) in _COMMANDS.items() if name not in _FIRST])
        click.Command.format_options(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=does) for name, (_, does) in _COMMANDS.items()]
        found = [one for one in found if one.value.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _show_version(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        import rawpack

        click.echo(f"rawpack, version {rawpack.__version__}")
        ctx.exit()


@click.group(
    cls=_Rawpack,
    commands=_Commands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def cli() -> None:
    """Pack image folders once; read batches fast."""


def main() -> None:
    """Run the command; every expected error becomes one line, or a line for each fault, and an exit code."""
    _open_streams()
    try:
        cli(prog_name="rawpack", standalone_mode=False, color=_color())
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        if error.ctx.parent is None:
            error.show()
            sys.exit(error.exit_code)
        from rawpack_packer.cli.command import arguments, examples

        command = error.ctx.command
        needs = f"{command.name} needs {arguments(command, error.ctx)}"
        _fail_usage(needs, after=f"\n{examples(command)}")
    except (KeyboardInterrupt, click.Abort) as error:
        # click raises Abort from the KeyboardInterrupt, which says what is kept once packing has begun.
        kept = "; nothing was kept" if sys.argv[1:2] == ["plan"] else str(error.__cause__ or "")
        if not kept and _resumes():
            kept = "; the same command resumes with whatever is finished"
        _fail(f"interrupted{' ' if kept[:1].isalpha() else ''}{kept}", INTERRUPTED)
    except BrokenPipeError:
        # Whoever reads our output has closed it; the interpreter must not complain at exit.
        sys.stderr.close()
        sys.exit(1)
    except MemoryError as error:
        from rawpack_packer.errors import hopeless

        more = "free some, and run the same command again; if that does not help, a file of the source may be damaged"
        _fail(hopeless(error) or f"out of memory: {more}", 1)
    except click.ClickException as error:
        from rawpack_packer.cli.command import in_our_words

        _fail_usage(in_our_words(error))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:
            _fail("the current folder was removed: change to another one, or give whole paths", 2)
        where = f"{error.filename}: " if error.filename is not None else ""
        resumes = "; once that is fixed, run the same command again" if _resumes() else ""
        _fail(f"{where}{error.strerror or error}{resumes}", 1)
    except Exception as error:
        from rawpack.errors import RawpackError, UsageError
        from rawpack_packer.sources import BadListingError

        if isinstance(error, UsageError):
            words, lines = str(error), isinstance(error, BadListingError)
            if _OF_OPTIONS.match(words):
                _fail_usage(words, lines=lines)
            _fail(words, 2, lines=lines)
        if isinstance(error, RawpackError):
            _fail(str(error), 1, lines=True)
        raise


def _open_streams() -> None:
    """Where a standard stream was closed, as by `2>&-`, read and print nothing, and run as usual."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    if closed:
        from rawpack.system.files import fill_closed_streams

        fill_closed_streams()
    for name in closed:
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as this process lives


def _resumes() -> bool:
    return bool(_RESUMES & set(sys.argv[1:2]))


def _fail_usage(message: str, *, lines: bool = False, after: str = "") -> NoReturn:
    """End with exit code 2, and the way to the help, unless the message names a command that cures it.

    after: lines after all this.
    """
    if lines or "`" in message:
        _fail(message, 2, lines=lines)
    name = " ".join(["rawpack", *(set(sys.argv[1:2]) & set(_COMMANDS)), "-h"])
    _fail(message, 2, then=f"Try `{name}`", after=after)


def _fail(message: str, code: int, *, then: str = "", lines: bool = False, after: str = "") -> NoReturn:
    """End with an error. then: what to do next, at a terminal on a line of its own. lines: the message has several.
    after: lines after all this."""
    from rawpack_packer.text import for_standard_error, plain

    prefix = "rawpack: "
    shown = for_standard_error(prefix + plain(message, lines=lines))
    shown = click.style(prefix, fg="red", bold=True) + shown.removeprefix(prefix)
    if then and not sys.stderr.isatty():
        shown += ("" if shown.endswith((".", "?", "?)")) else ".") + " "
    elif then:
        shown += "\n"
    click.echo(shown + (click.style(then, fg="cyan") if then else "") + after, err=True, color=_color())
    sys.exit(code)


def _color() -> bool | None:
    """False where the user wants no color; None for color at a terminal only."""
    return False if os.environ.get("NO_COLOR") else None
