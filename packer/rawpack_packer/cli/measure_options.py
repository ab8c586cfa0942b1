"""What `rawpack bench` and `rawpack plan` both ask: how batches are read, and what is drawn of the figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rawpack_packer.recipe.recipe import parse_size

Command = TypeVar("Command", bound=Callable[..., Any])

image_size_option = click.option(
    "--image-size", metavar="N|HxW", help="Resize in the workers while reading; needed if images differ in size."
)
transform_option = click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="STEP",
    help="A step of rawpack.transforms that the workers do, such as 'RandomResizedCrop(224)'; may be given several "
    "times.",
)


def drawing_options(command: Command) -> Command:
    """`--html`, `--png` and `--json`."""
    options = [
        click.option("--html", type=click.Path(), metavar="FILE",
                     help="Write an HTML report; needs rawpack[report]."),
        click.option("--png", type=click.Path(), metavar="FILE",
                     help="Write only the plots; needs rawpack[report]."),
        click.option("--json", "as_json", is_flag=True, help="Print every round as JSON."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def side_of(text: str | None) -> tuple[int, int] | None:
    """(height, width) of `--image-size`."""
    if text is None:
        return None
    size = parse_size(text)
    if size == "keep":
        raise click.BadParameter("images of different sizes cannot form a batch: give a side, or HEIGHTxWIDTH")
    return (size, size) if isinstance(size, int) else size
