"""`rawpack pack`: a source into a store."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer import text
from rawpack_packer.api import prepare_pack, prepare_splits
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.recipe_options import recipe_options
from rawpack_packer.cli.run_options import dry_run_option, job_options, take_job_options
from rawpack_packer.cli.source_options import end_unread, source_options, take_source_options
from rawpack_packer.cli.split_options import do_splits, split_options, take_split_options


@click.command(short_help="Pack a folder of images into a store.")
@recipe_options
@source_options
@split_options
@dry_run_option
@click.option(
    "--scratch",
    type=click.Path(),
    metavar="DIR",
    help="Where to keep what is not uploaded yet, if DST is a URL [default: packing in the cache's folder].",
)
@job_options
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def pack(src: str, dst: str, dry_run: bool, scratch: str | None, **options: Any) -> None:
    """Pack the images of SRC into a store at DST, a folder or a URL.

    SRC is a folder of images or videos, whose first-level folders are the classes; a video; a listing: .csv, .tsv or
    .jsonl with a column of paths; a folder of images and labels in YOLO's layout, or COCO's .json; a file of arrays:
    .npy, .npz or IDX; or a store. The same command resumes where an earlier run was stopped. What cannot be read is
    listed in DST/rejects.jsonl.

    \b
    Examples:
      rawpack pack photos/ store/
      rawpack pack --format lmdb --size 256 --quality 90 photos/ store/
      rawpack pack --size 224x160 photos/ store/        224 high, 160 wide
      rawpack pack --format lmdb --size keep --quality keep photos/ store/
                                                        JPEG files unchanged, in one file instead of many
      rawpack pack --splits train,val imagenet/ store/  stores of imagenet/train/ and imagenet/val/
      rawpack pack --holdout val=0.1 photos/ store/     a tenth of each class for validation
      rawpack pack --field boxes:xyxy --field seg:mask list.csv store/
      rawpack pack train-images-idx3-ubyte.gz mnist/    with the labels beside it
      rawpack pack --fps 5 clips/ store/                five frames of each second of the videos
      rawpack pack photos/ s3://bucket/store            packed here, uploaded shard by shard
    """  # fmt: skip
    how, out = take_job_options(options)
    about, division = take_source_options(options), take_split_options(options)
    with scanning(quiet=out.quiet) as scan:
        if any(value is not None for value in division.values()):
            divided = prepare_splits(src, dst, how, **division, about=about, recipe=options, scan=scan)
        else:
            divided = None
            job = prepare_pack(src, dst, how, about=about, recipe=options, scratch=scratch, scan=scan)
    if divided is not None:
        do_splits(divided, dst, out, dry_run=dry_run)
        end_unread([one.source for one in divided.jobs.values()])
        return
    out.say(f"{summaries.images(job.source)} in {text.plain(src)}")
    out.do(job, dry_run=dry_run)
    end_unread([job.source])
