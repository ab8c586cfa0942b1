"""The options that make several stores of one SRC, a store for each split, and how these are packed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rawpack_packer import text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.run_options import Output
from rawpack_packer.job.holdout import TRAIN, Draw, parse_holdout
from rawpack_packer.job.prepare import PreparedSplits
from rawpack_packer.sources import Source

Command = TypeVar("Command", bound=Callable[..., Any])
_SHOWN = 5


def split_options(command: Command) -> Command:
    """`--splits`, `--holdout`, `--seed`."""
    options = [
        click.option("--splits", metavar="NAME,...",
                     help="Pack the folders SRC/NAME, each into a store DST/NAME, with the same classes."),
        click.option("--holdout", multiple=True, metavar="NAME=SHARE|N",
                     help="Draw a share or a number of each class for a store DST/NAME; what remains is DST/train. "
                     "Example: val=0.1,test=0.1"),
        click.option("--seed", type=int, help="Seed of the draw of --holdout [default: 0]."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def take_split_options(options: dict[str, Any]) -> dict[str, Any]:
    """What `split_options` added to a command's options: taken out of them, as `prepare_splits` takes it."""
    names, amounts, seed = (options.pop(name) for name in ("splits", "holdout", "seed"))
    return {
        "names": None if names is None else [name.strip() for name in names.split(",")],
        "amounts": parse_holdout(amounts) if amounts else None,
        "seed": seed,
    }


def do_splits(job: PreparedSplits, dst: str, out: Output, *, dry_run: bool) -> None:
    """Pack all splits, and print what came of each; or what they would take."""
    if job.source is not None and job.drawn is not None:
        for line in _about_draw(job.source, job.drawn):
            out.say(line)
    if dry_run:
        guesses = job.estimate()
        about = {name: summaries.dry_dict(guess) for name, guess in guesses.items()}
        texts = [f"{name}: {summaries.dry_text(guess)}" for name, guess in guesses.items()]
        click.echo(json.dumps(about, indent=1) if out.as_json else "\n\n".join(texts))
        return
    done: dict[str, Any] = {}
    for name, one in job.begin().items():
        out.say(f"{text.plain(name)}: {summaries.images(one.source)}")
        summary = one.run()
        done[name] = summaries.as_dict(summary)
        if not out.as_json:
            out.tell({}, f"{text.plain(name)}: {summaries.as_text(summary)}\n")
    first = text.plain(job.chosen.splits[0])
    out.tell(
        {"destination": dst, "splits": done},
        f'Read a split by its name: rawpack.Reader("{text.plain(dst)}", split="{first}")',
    )


def _about_draw(source: Source, drawn: Draw) -> list[str]:
    """What a user should know of a draw."""
    lines = [f"drawn: {', '.join(f'{text.plain(name)} {len(rows):,}' for name, rows in drawn.rows.items())}"]
    alone = [
        (source.info.classes or ())[label] for label in drawn.kept_whole if 0 <= label < len(source.info.classes or ())
    ]
    if alone:
        what = "class is too small and stays" if len(alone) == 1 else "classes are too small and stay"
        lines.append(f"{len(alone):,} {what} in {TRAIN}: {_names(alone)}")
    for name, labels in drawn.short.items():
        what = f"{text.plain(name)} gets fewer than requested, since one of each class stays in {TRAIN}"
        few = [(source.info.classes or ())[label] for label in labels if 0 <= label < len(source.info.classes or ())]
        lines.append(what + (f": of {text.count(len(few), 'class', 'classes')}, {_names(few)}" if few else ""))
    if not drawn.by_class:
        lines.append("drawn from all samples together: their classes are known only once they are read")
    return lines


def _names(classes: list[str]) -> str:
    return text.listed(classes, _SHOWN)
