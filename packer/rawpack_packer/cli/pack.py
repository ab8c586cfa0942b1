"""`rawpack pack` and `append`: pack a source into a store or a set of splits, or add it to an existing store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rawpack.errors import UsageError
from rawpack_packer import text
from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument, together
from rawpack_packer.cli.options import (
    dry_run_option,
    end_unread,
    job_options,
    recipe_options,
    source_options,
    take_output,
)
from rawpack_packer.cli.output import Output
from rawpack_packer.progress import scanning

if TYPE_CHECKING:
    from rawpack_packer.job import Splits

_split_options = together(
    option(
        "--splits", group="Splits", metavar="NAME,...",
        short="Folders in SRC to pack: train,val",
        help="Pack the folders SRC/NAME, each into a store DST/NAME, with the same classes.",
    ),
    option(
        "--holdout", group="Splits", multiple=True, metavar="NAME=SHARE|N",
        short="Draw splits at random: val=0.1,test=0.1",
        help="Draw this share, or this number of samples, from each class into DST/NAME, such as val=0.1,test=0.1; "
        "what remains is DST/train.",
    ),
    option("--seed", group="Splits", type=int, help="Random seed for --holdout. [default: 0]"),
    option(
        "--group-by", group="Splits", metavar="COLUMN",
        short="Column whose equal values stay in one split",
        help="Draw groups for --holdout: samples that have the same value in this column, or field of --key-pattern, "
        "are in one split.",
    ),
    option(
        "--split-by", group="Splits", metavar="COLUMN[=...]",
        short="Column whose values say the split",
        help="Divide by a column of a table, or a field of --key-pattern, whose values name the splits: fold. Or say "
        "which values belong to which split: subject=train:1-20,val:21+23. In set=train:a,other:, the split other has "
        "the samples without a value.",
    ),
)  # fmt: skip


@click.command(cls=Subcommand)
@recipe_options
@source_options
@_split_options
@dry_run_option
@option(
    "--tmp",
    type=UserPath(),
    metavar="DIR",
    short="Where to keep what waits for its upload",
    help="Where to keep what is not uploaded yet, if DST is a URL. [default: the folder `packing` in the cache]",
)
@job_options()
@path_argument("src")
@path_argument("dst")
def pack(
    src: str,
    dst: str,
    dry_run: bool,
    tmp: str | None,
    splits: str | None,
    holdout: tuple[str, ...],
    seed: int | None,
    group_by: str | None,
    split_by: str | None,
    **options: Any,
) -> None:
    """Pack the images of SRC into a store at DST, a folder or a URL.

    SRC is a folder of images or videos, whose first-level folders are the classes; a video; a listing: .csv, .tsv or
    .jsonl with a column of paths, or a .txt of paths and labels; a folder of images and labels in YOLO's layout, or
    COCO's .json; a .tar, .tar.gz or .zip archive of a folder of images; WebDataset shards; Parquet files with images,
    as in a dataset of the Hugging Face Hub, or a folder of save_to_disk; a .rec file of MXNet; TFRecord files; an HDF5
    file or an LMDB; a file of arrays: .npy, .npz or IDX; or a store. The same command resumes where an earlier
    run was stopped. What cannot be read is listed in DST/rejects.jsonl.

    \b
    Examples:
      rawpack pack photos/ store/
      rawpack pack --format lmdb --size 256 --quality 90 photos/ store/
      rawpack pack --size 224x160 photos/ store/         224 high, 160 wide
      rawpack pack -f lmdb -s keep --quality keep photos/ store/
                                                         JPEG files unchanged
      rawpack pack --splits train,val imagenet/ store/   two stores
      rawpack pack --holdout val=0.1 photos/ store/      10% for validation
      rawpack pack --field boxes:xyxy --field seg:mask list.csv store/
      rawpack pack --split-by fold list.csv stores/      a store for each fold
      rawpack pack --key-pattern '{label}_{n:d}.jpg' photos/ store/
      rawpack pack train-images-idx3-ubyte.gz mnist/     with its labels file
      rawpack pack --fps 5 clips/ store/                 5 frames a second
      rawpack pack photos.tar store/                     without unpacking it
      rawpack pack --field txt 'a-{000..123}.tar' store/ WebDataset shards
      rawpack pack photos/ s3://bucket/store             uploaded by shard
    """  # fmt: skip
    from rawpack_packer import api
    from rawpack_packer.job import images_in_words, place_in_words

    out = take_output(options)
    if holdout or any(one is not None for one in (splits, seed, group_by, split_by)):
        if tmp is not None:
            raise UsageError("--tmp applies to a store at a URL, and splits are packed into folders: leave it out")
        from rawpack_packer.job import splits_job

        with scanning(quiet=out.quiet) as scan:
            jobs = splits_job(
                src, dst, splits=splits, holdout=holdout or None, seed=seed, group_by=group_by, split_by=split_by,
                scan=scan, **options,
            )  # fmt: skip
        _do_splits(jobs, dst, out, dry_run=dry_run)
        end_unread([one.source for one in jobs.jobs.values()])
        return
    with scanning(quiet=out.quiet) as scan:
        job = api.pack_job(src, dst, tmp=tmp, scan=scan, **options)
    out.say(f"{images_in_words(job.source)} in {place_in_words(job.source, src)}")
    out.do(job, dry_run=dry_run)
    end_unread([job.source])


@click.command(cls=Subcommand)
@source_options
@option(
    "--skip-existing",
    is_flag=True,
    short="Leave out samples that the store has",
    help="Leave out samples that the store has, by their keys, or would reject again: for a folder that has grown.",
)
@option(
    "--other-libraries",
    is_flag=True,
    short="Append although libraries have other versions",
    help="Append even if the libraries that make pixels and files have other versions now.",
)
@job_options(
    restart="Delete what an unfinished append left and start over; the store stays.",
    short="Delete what an unfinished append left",
)
@path_argument("src")
@path_argument("dst")
def append(src: str, dst: str, skip_existing: bool, other_libraries: bool, **options: Any) -> None:
    """Add the images of SRC to the store at DST, with the options that the store was packed with.

    Classes of DST keep their numbers; new classes get the next numbers. No file of the store changes except its
    manifest, which is replaced at the end: until then, readers see the old store, and open readers keep working. The
    same command resumes where an earlier one was stopped; with --restart it starts over, and the store stays.

    \b
    Examples:
      rawpack append more-photos/ store/
      rawpack append --skip-existing photos/ store/    only what is new
    """  # fmt: skip
    from rawpack_packer import api
    from rawpack_packer.job import images_in_words, place_in_words

    out = take_output(options)
    with scanning(quiet=out.quiet) as scan:
        job = api.append_job(
            src, dst, skip_existing=skip_existing, other_libraries=other_libraries, scan=scan, **options
        )  # fmt: skip
    out.say(f"{images_in_words(job.source)} in {place_in_words(job.source, src)}")
    out.tell(job.run())
    end_unread([job.source])


def _do_splits(jobs: Splits, dst: str, out: Output, *, dry_run: bool) -> None:
    """Pack all splits, and print what came of each; or what they would take."""
    from rawpack_packer.job import draw_lines, images_in_words

    for line in draw_lines(jobs):
        out.say(line)
    if dry_run:
        guesses = jobs.estimate()
        about = {name: guess.as_dict() for name, guess in guesses.items()}
        texts = [f"{name}: {guess.as_text(text.columns())}" for name, guess in guesses.items()]
        click.echo(json.dumps(about, indent=1) if out.as_json else "\n\n".join(texts))
        return
    done: dict[str, Any] = {}
    try:
        for name, summary in jobs.run(
            lambda name, job: out.say(f"{text.plain(name)}: {images_in_words(job.source)}")
        ):  # fmt: skip
            done[name] = summary.as_dict()
            out.tell_missing(summary)
            if not (out.as_json or out.quiet):
                click.echo(f"{text.plain(name)}: ", nl=False)
                out.tell(summary)
                click.echo()
    except KeyboardInterrupt as error:
        if not done:
            raise
        rest = f"after {len(done)} of {len(jobs.jobs)} splits; the same command resumes"
        raise KeyboardInterrupt(rest) from error
    read_it = ["Read a split by its name:"]
    place, names = text.in_python(dst), map(text.in_python, jobs.chosen.splits)
    read_it += [f"  rawpack.Reader({place}, split={name})" for name in names]
    out.give({"destination": dst, "splits": done}, lambda: "\n".join(read_it))
