"""`rawpack pack`: a source into a store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, local_path, shown
from rawpack_packer import text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.job_options import JobOptions, job_options, take_job_options
from rawpack_packer.cli.recipe_options import recipe_options
from rawpack_packer.cli.source_options import end_unread, open_by, source_options, take_source_options
from rawpack_packer.cli.split_options import open_splits, pack_splits, split_options, take_split_options
from rawpack_packer.destination import folder as destinations
from rawpack_packer.job import job, splits
from rawpack_packer.job.upload import dry_run_to_url, pack_to_url
from rawpack_packer.recipe.by_user import recipe_for
from rawpack_packer.recipe.fields import store_fields
from rawpack_packer.recipe.recipe import Recipe, make_recipe
from rawpack_packer.sources import Source


@click.command(short_help="Pack a folder of images into a store.")
@recipe_options
@source_options
@split_options
@click.option("--dry-run", is_flag=True, help="Say what packing would take, by a few samples, and write nothing.")
@click.option(
    "--scratch",
    type=click.Path(),
    metavar="DIR",
    help="Where what is not uploaded yet lies, where DST is a URL [default: packing in the cache's folder].",
)
@job_options
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def pack(src: str, dst: str, dry_run: bool, scratch: str | None, **options: Any) -> None:
    """Pack the images of SRC into a store at DST, a folder or a URL.

    SRC is a folder of images or videos, whose first-level folders are the classes; a video; a listing: .csv, .tsv or
    .jsonl with a column of paths; a folder of images and labels as YOLO has it, or COCO's .json; a file of arrays:
    .npy, .npz or IDX; or a store. The same command goes on where an earlier run was stopped. What cannot be read is
    listed in DST/rejects.jsonl.

    \b
    Examples:
      rawpack pack photos/ store/
      rawpack pack --format lmdb --size 256 --quality 90 photos/ store/
      rawpack pack --size 224x160 photos/ store/        224 high, 160 wide
      rawpack pack --format lmdb --size keep --quality keep photos/ store/
                                                        JPEG files as they are, one file instead of many
      rawpack pack --splits train,val imagenet/ store/  stores of imagenet/train/ and imagenet/val/
      rawpack pack --holdout val=0.1 photos/ store/     a tenth of each class for validation
      rawpack pack --field boxes:xyxy --field seg:mask list.csv store/
      rawpack pack train-images-idx3-ubyte.gz mnist/    with the labels beside it
      rawpack pack --fps 5 clips/ store/                five frames of each second of the videos
      rawpack pack photos/ s3://bucket/store            packed here, uploaded shard by shard
    """  # fmt: skip
    how, chosen, division = take_job_options(options), take_source_options(options), take_split_options(options)
    # Nonsense is refused before a long look at SRC.
    make_recipe(**{name: value for name, value in options.items() if value is not None})
    if is_url(dst) and division is not None:
        raise UsageError(f"{shown(dst)}: splits are packed into folders; pack each to a URL of its own, or copy them")
    if is_url(dst) and how.engine != "local":
        raise UsageError(
            f"--engine {how.engine} writes to a folder that all machines share; what goes to a URL is packed here"
        )
    if not is_url(dst) and scratch is not None:
        raise UsageError(f"--scratch is for URLs; {dst} is a folder")
    packed_to = "DST" if is_url(dst) else dst  # splits are packed into folders
    if division is not None:
        splits.check(Path(dst), src, division, restart=how.limits.restart)
        engine = how.connect()
        sources = open_splits(
            src, division, how, lambda path: open_by(path, chosen, quiet=how.quiet, destination=packed_to)
        )
        recipes = {name: recipe_for(source, options) for name, source in sources.items()}
        if dry_run:
            splits.check_sources(Path(dst), sources, recipes, division, restart=how.limits.restart)
            told = {
                name: _would_take(source, f"{dst}/{name}", None, recipes[name], how) for name, source in sources.items()
            }
            click.echo(json.dumps(told, indent=1) if how.as_json else "\n\n".join(f"{k}: {v}" for k, v in told.items()))
        else:
            pack_splits(sources, dst, recipes, division, how, engine)
        end_unread(sources.values())
        return
    if not is_url(dst):
        destinations.check(local_path(dst), src)
    engine = how.connect()
    source = open_by(src, chosen, quiet=how.quiet, destination=packed_to)
    recipe = recipe_for(source, options)
    if not how.silent:
        click.echo(f"rawpack: {summaries.images(source)} in {text.plain(src)}", err=True)
    if dry_run:
        about = _would_take(source, dst, scratch, recipe, how)
        click.echo(json.dumps(about, indent=1) if how.as_json else about)
        for problem in () if how.silent else source.problems:
            click.echo(f"rawpack: {text.plain(problem)}", err=True)
    elif is_url(dst):
        how.run(lambda progress: pack_to_url(source, dst, recipe, how.limits, progress=progress, scratch=scratch))
    else:
        how.run(
            lambda progress: job.pack(source, local_path(dst), recipe, how.limits, engine=engine, progress=progress)
        )
    end_unread([source])


def _would_take(source: Source, dst: str, scratch: str | None, recipe: Recipe, how: JobOptions) -> dict[str, Any] | str:
    """What packing would take: for a program, or for a person."""
    if is_url(dst):
        guess, free = dry_run_to_url(source, dst, recipe, how.limits, scratch)
    else:
        guess, free = job.dry_run(source, local_path(dst), recipe, how.limits)
    if how.as_json:
        return asdict(guess) | {"free_bytes": free, "samples": len(source)}
    return summaries.dry_text(guess, store_fields(recipe, source)["image"].shape, len(source), free)
