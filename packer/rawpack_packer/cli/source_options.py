"""The options that say what SRC is and what is taken of it, and the source that they open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from rawpack_packer.sources import KINDS, OPTIONS, Source
from rawpack_packer.sources.optional import unread_of
from rawpack_packer.text import plain

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(command: Command) -> Command:
    """`--source`, and the options of single kinds of sources: those named by `sources.OPTIONS`."""
    options = [
        click.option("--source", "kind", metavar="KIND",
                     help=f"What SRC is: {', '.join(sorted(KINDS))}, or what a plugin adds. folder also takes train/ "
                     "and val/ as classes [default: detected from SRC]."),
        click.option("--skip-unreadable", is_flag=True,
                     help="Leave out folders and files below SRC that cannot be read. They are listed as "
                     "rejects, and the exit code is 1 [default: stop before anything is written]."),
        click.option("--field", "fields", multiple=True, metavar="NAME:DTYPE",
                     help="What a column of a listing holds, where its values do not show it: score:float32, "
                     "vector:float32[4], name:str, seg:mask; for boxes boxes:xyxy, boxes:xywh or boxes:yolo. May be "
                     "given several times."),
        click.option("--key", metavar="COLUMN",
                     help="The column of a listing that names samples [default: the paths]."),
        click.option("--images", type=click.Path(), metavar="FOLDER",
                     help="Folder that relative paths of a listing or of COCO's JSON start from "
                     "[default: the file's own]."),
        click.option("--classes", type=click.Path(), metavar="FILE",
                     help="The names of classes, one a line, in the order of their numbers, for a listing or YOLO's "
                     "files [default: for a listing, the sorted names in column label]."),
        click.option("--fps", metavar="N", help="Frames per second to take from a video: 2, 29.97 [default: all]."),
        click.option("--every", type=click.IntRange(1), metavar="N",
                     help="Take every Nth frame of a video [default: 1]."),
        click.option("--start", metavar="TIME",
                     help="Take the frames of a video from this time on: 90, 1.5 or 0:01:30."),
        click.option("--end", metavar="TIME", help="Take the frames of a video before this time."),
        click.option("--max-frames", type=click.IntRange(1), metavar="N", help="Take at most N frames of a video."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def take_source_options(options: dict[str, Any]) -> dict[str, Any]:
    """What `source_options` added to a command's options: taken out of them."""
    return {name: options.pop(name) for name in ("kind", *OPTIONS) if name in options}


def words_of(chosen: dict[str, Any]) -> tuple[str, ...]:
    """The words of a command line that choose the same."""
    names = {"kind": "source", "fields": "field"}
    words = list[str]()
    for name, value in chosen.items():
        if isinstance(value, bool):
            words += [f"--{name.replace('_', '-')}"] if value else []
            continue
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            words += [f"--{names.get(name, name).replace('_', '-')}", str(one)]
    return tuple(words)


def end_unread(sources: Collection[Source]) -> None:
    """End the command with exit code 1 where folders or files could not be looked into."""
    unread = sum(len(unread_of(source)) for source in sources)
    if unread:
        what = "1 folder or file" if unread == 1 else f"{unread:,} folders or files"
        first = next(problem for source in sources for problem in source.info.problems)
        example = plain(first) if unread == 1 else f"{plain(first)}; ..."
        click.echo(f"rawpack: {what} of the source could not be read, and was left out: {example}", err=True)
        sys.exit(1)
