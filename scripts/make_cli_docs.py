#!/usr/bin/env python3
"""Make docs/reference/cli.md from what the command's `--help` says.

    python scripts/make_cli_docs.py [--check]

With --check nothing is written; the exit code is 1 where the page is not what the help says.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

import click
from made import ROOT, write

from rawpack_packer.cli import cli

PAGE = ROOT / "docs" / "reference" / "cli.md"
WIDTH = 100
_FEW = 6
_AS_PACK = "These options are those of [`rawpack pack`](#rawpack-pack)"
_INTRODUCTION = """\
# The command

<!-- Made from `--help` by scripts/make_cli_docs.py. Change the help, not this page. -->

`python -m rawpack` is the same as `rawpack`. The Tab key [completes commands and
options](#complete-commands-with-the-tab-key).

## Exit codes

| code | meaning |
|---|---|
| 0 | done; also where the store was complete already |
| 1 | failed: too many rejects, a full disk, a failed check, a damaged store |
| 2 | usage error, nothing written |
| 130 | interrupted by Ctrl-C; the same command resumes |

Results go to the standard output, everything else to the standard error. With `--json` the standard output contains one
JSON object and nothing else.

## Complete commands with the Tab key

The Tab key completes commands, options, paths, and the values of options such as `--format`. To set this up, add one
line to your shell's startup file, and open a new terminal:

| shell | file | line |
|---|---|---|
| bash 4.4 or newer | `~/.bashrc` | `eval "$(_RAWPACK_COMPLETE=bash_source rawpack)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_RAWPACK_COMPLETE=zsh_source rawpack)"` |
| fish | `~/.config/fish/completions/rawpack.fish` | `_RAWPACK_COMPLETE=fish_source rawpack \\| source` |

Each of these lines runs rawpack whenever a shell starts. To save that time, write the completion script to a file
once, and load that file instead. Write it again after you update click.

```text
_RAWPACK_COMPLETE=bash_source rawpack > ~/.rawpack-complete.bash
echo '. ~/.rawpack-complete.bash' >> ~/.bashrc
```
"""


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, by the words that call them."""
    yield name, command
    if isinstance(command, click.Group):
        for word, inner in sorted(command.commands.items()):
            yield from commands(inner, f"{name} {word}")


def _context(command: click.Command, name: str) -> click.Context:
    """With the options for help that every command has from the whole one."""
    helps = cli.context_settings["help_option_names"]
    return click.Context(command, info_name=name, terminal_width=WIDTH, help_option_names=helps)


def help_of(command: click.Command, name: str) -> str:
    """What `--help` prints, for a terminal of a fixed width."""
    return "\n".join(line.rstrip() for line in command.get_help(_context(command, name)).splitlines())


def explained(command: click.Command, name: str) -> dict[str, tuple[str, str]]:
    """Each option of a command: its explanation and its default, "" if the explanation does not end with one."""
    context, options = _context(command, name), {}
    for option in command.get_params(context):
        if isinstance(option, click.Option) and (record := option.get_help_record(context)):
            what, bracket, default = record[1].removesuffix("]").rpartition(" [default: ")
            ends = bracket and record[1].endswith("]")
            options[max(option.opts, key=len)] = (what, default) if ends else (record[1], "")
    return options


def without(text: str, options: Iterable[str]) -> str:
    """The text of `--help` without the entries of some options, and without headings that have none left."""
    for option in options:
        text = re.sub(rf"^  (?:-\w, )?{option}\b.*\n(?:    .*\n)*", "", f"{text}\n", flags=re.MULTILINE).rstrip("\n")
    return re.sub(r"^[A-Z].*:\n(?=\n|\Z)\n?", "", f"{text}\n", flags=re.MULTILINE).rstrip("\n")


def section(command: click.Command, name: str) -> str:
    """The section of a command. What `rawpack pack` explains in the same words is only named."""
    base = explained(cli.commands["pack"], "rawpack pack")
    mine = {} if name == "rawpack pack" else explained(command, name)
    same = {option: default for option, (what, default) in mine.items() if base.get(option, ("",))[0] == what}
    if len(same) < _FEW:
        return f"## {name}\n\n```text\n{help_of(command, name)}\n```\n"
    named = [f"`{one}`" + (f" (default: {same[one]})" if same[one] != base[one][1] else "") for one in same]
    also = textwrap.fill(f"{_AS_PACK}: {', '.join(named)}.", 120, break_long_words=False, break_on_hyphens=False)
    return f"## {name}\n\n```text\n{without(help_of(command, name), same)}\n```\n\n{also}\n"


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *(section(command, name) for name, command in commands(cli, "rawpack"))])


if __name__ == "__main__":
    write(PAGE, page, __doc__)
