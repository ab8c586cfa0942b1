"""The options that make a recipe: what is done to an image before it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rawpack_packer.recipe.recipe import CHECKS, COLORS, FITS, INTERPOLATIONS
from rawpack_packer.recipe.tables import format_names

Command = TypeVar("Command", bound=Callable[..., Any])


def recipe_options(command: Command) -> Command:
    """The options that make a recipe."""
    options = [
        click.option("--format", "format", type=click.Choice(format_names()), default="memmap", show_default=True,
                     help="memmap: raw pixels in .npy, the fastest. hdf5: raw pixels in HDF5. "
                     "lmdb: JPEG in LMDB, the smallest."),
        click.option("--size", metavar="N|HxW|keep",
                     help="256: shorter side to 256, then the centre square. 224x160: 224 high, 160 wide, "
                     "scaled to cover, then the centre. keep: every image as large as it is "
                     "[default: 256; of arrays and stores: keep]."),
        click.option("--crop", metavar="X,Y,W,H",
                     help="Cut this box out of each image before resizing: left, top, width, height in pixels. "
                     "Note the order: --size is height by width, --crop is not. Example: 186,0,114,30"),
        click.option("--fit", type=click.Choice(FITS), default="cover", show_default=True,
                     help="cover: keep proportions and cut the centre. stretch: distort to the size."),
        click.option("--interpolation", type=click.Choice(INTERPOLATIONS), default="area", show_default=True,
                     help="area shrinks without aliasing, and enlarges bilinearly."),
        click.option("--color", type=click.Choice(COLORS),
                     help="What is stored of every image: three channels; one; or planes of brightness and, for each "
                     "four pixels, of color: 1.5 bytes a pixel, read as rgb (memmap, hdf5) [default: rgb; of a grey "
                     "store: gray]."),
        click.option("--quality", metavar="1-100|keep",
                     help="JPEG quality in lmdb stores [default: 90; of a store's JPEG files: keep]. With --size keep, "
                     "keep stores JPEG files as they are."),
        click.option("--check", type=click.Choice(CHECKS),
                     help="How JPEG files that are stored as they are must prove whole: by their structure, at the "
                     "disk's speed, or by decoding each [default: structure]."),
        click.option("--subsampling", metavar="420|422|440|444", help="Chroma in lmdb stores [default: 420]."),
        click.option("--compression", type=click.Choice(["none", "gzip"]), help="Of hdf5 stores [default: none]."),
        click.option("--chunk", type=click.IntRange(1), help="Images per chunk in hdf5 stores [default: 1]."),
        click.option("--shard-size", default="256MiB", show_default=True, metavar="BYTES",
                     help="Raw pixels that one shard is cut for; it has at least 64 samples."),
        click.option("--max-pixels", type=click.IntRange(1), default=178_000_000, show_default=True,
                     help="Reject images with more, by their header."),
        click.option("--fast", is_flag=True,
                     help="Decode large JPEGs at a reduced scale: quicker, and not quite the same pixels."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command
