"""The options that make a recipe: what is done to an image before it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from rawpack_packer.recipe.recipe import CHECKS, COLORS, FITS, INTERPOLATIONS
from rawpack_packer.recipe.tables import format_names

Command = TypeVar("Command", bound=Callable[..., Any])
_AS_IT_WAS = "as in the store"


class _Option(NamedTuple):
    name: str
    type: Any
    metavar: str | None
    help: str
    default: str
    """Of a new store, in words: what is left out is decided with the source."""
    kept: str | None
    """Of a store made of stores; None where that has no such option."""


_OPTIONS = (
    _Option("--format", click.Choice(format_names()), None,
            "memmap: raw pixels in .npy, the fastest. hdf5: raw pixels in HDF5. lmdb: JPEG in LMDB, the smallest",
            "memmap", _AS_IT_WAS),
    _Option("--size", None, "N|HxW|keep",
            "256: scale the shorter side to 256, then cut the center square. 224x160: 224 high, 160 wide, scaled to "
            "cover, then cut to the center. keep: store each image at its own size",
            "256; keep for arrays and stores", "keep"),
    _Option("--crop", None, "X,Y,W,H",
            "Cut this box out of each image before resizing: left, top, width, height in pixels. Note the order: "
            "--size is height by width, --crop is not. Example: 186,0,114,30",
            "the whole image", "the whole image"),
    _Option("--fit", click.Choice(FITS), None,
            "cover: keep proportions and cut to the center. stretch: distort to the size", "cover", "cover"),
    _Option("--interpolation", click.Choice(INTERPOLATIONS), None,
            "How images are resized. area shrinks without aliasing, and enlarges bilinearly", "area", "area"),
    _Option("--color", click.Choice(COLORS), None,
            "rgb: three channels. gray: one. yuv420: planes of brightness and, for each four pixels, of color; 1.5 "
            "bytes a pixel, read as rgb (memmap, hdf5)",
            "rgb; gray for gray arrays; as in the store for stores", _AS_IT_WAS),
    _Option("--quality", None, "1-100|keep",
            "JPEG quality in lmdb stores. With --size keep, keep stores JPEG files as they are",
            "90; keep for the JPEG files of a store", "keep where possible, else as in the store, else 90"),
    _Option("--check", click.Choice(CHECKS), None,
            "How JPEG files that are stored as they are get checked: by their structure, at the disk's speed, or by "
            "decoding each",
            "structure", None),
    _Option("--subsampling", None, "420|422|440|444", "Chroma subsampling in lmdb stores", "420", _AS_IT_WAS),
    _Option("--compression", click.Choice(["none", "gzip"]), None, "Compression in hdf5 stores", "none", _AS_IT_WAS),
    _Option("--chunk", click.IntRange(1), None, "Images per chunk in hdf5 stores", "1", _AS_IT_WAS),
    _Option("--shard-size", None, "BYTES",
            "How many raw pixels a shard holds, about; it has at least 64 samples. Example: 1GB",
            "256MiB", _AS_IT_WAS),
    _Option("--max-pixels", click.IntRange(1), None,
            "Reject images with more pixels, by their header", "178000000", None),
)  # fmt: skip


def recipe_options(command: Command, *, of_stores: bool = False) -> Command:
    """The options that make a recipe. of_stores: of a store that is made of stores: what is left out stays as it is."""
    if not of_stores:
        command = click.option(
            "--fast", is_flag=True,
            help="Decode large JPEGs at a reduced scale: faster, with slightly different pixels.",
        )(command)  # fmt: skip
    for option in reversed(_OPTIONS):
        default = option.kept if of_stores else option.default
        if default is not None:
            about = f"{option.help} [default: {default}]."
            command = click.option(option.name, type=option.type, metavar=option.metavar, help=about)(command)
    return command
