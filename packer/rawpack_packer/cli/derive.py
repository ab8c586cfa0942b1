"""`rawpack convert`, `merge`, `subset`, `relabel` and `export`: what is made of stores."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer import api
from rawpack_packer.cli.command import Subcommand, UserPath, option, path_argument, together
from rawpack_packer.cli.options import (
    dry_run_option,
    job_options,
    kept_recipe_options,
    max_rejects_option,
    progress,
    take_output,
    where_option,
    workers_option,
)
from rawpack_packer.cli.output import Output, json_option, quiet_option
from rawpack_packer.errors import reading
from rawpack_packer.exporting import TARGETS
from rawpack_packer.job import Choice, samples_in_words
from rawpack_packer.options import OPTIONS
from rawpack_packer.progress import scanning
from rawpack_packer.text import plain

Item = TypeVar("Item", str, int)
_GROUP = "Selection"
_choice_options = together(
    option("--classes", group=_GROUP, multiple=True, metavar="NAME,...", help="Only these classes. May be repeated."),
    option(
        "--classes-from", group=_GROUP, type=UserPath(), metavar="FILE",
        help="The same, one per line, or a JSON list.",
    ),
    option("--keys-from", group=_GROUP, type=UserPath(), metavar="FILE", help="Only these keys, in the same way."),
    option(
        "--rows-from", group=_GROUP, type=UserPath(), metavar="FILE",
        short="Only the rows in this file", help="Only these rows: one per line, a JSON list, or .npy.",
    ),
    where_option,
    option("--every", group=_GROUP, type=click.IntRange(1), default=1, help="Every Nth of these. [default: 1]"),
    option("--per-class", group=_GROUP, type=click.IntRange(1), help="At most N of these in each class."),
    option(
        "--limit", group=_GROUP, type=click.IntRange(1),
        short="Of these, at most N in all, evenly spaced",
        help="At most N of these in all, evenly spaced, so that classes keep their shares.",
    ),
    option(
        "--seed", group=_GROUP, type=int, short="Choose at random, with this seed",
        help="Choose at random for --per-class and --limit, with this seed.",
    ),
    option("--keep-labels", group=_GROUP, is_flag=True, help="Keep labels and classes as they are."),
)  # fmt: skip
_deriving_options = together(kept_recipe_options, dry_run_option, job_options())


@click.command(cls=Subcommand)
@_deriving_options
@path_argument("store")
@path_argument("dst")
def convert(store: str, dst: str, **options: Any) -> None:
    """Pack the samples of STORE into another store at DST. The images STORE was packed from are not needed.

    Everything else is copied bit for bit: raw pixels in any raw format, JPEG files byte for byte. A new recipe is
    recorded with the old one. Each sample is checked against its checksum; a damaged one is rejected. The same command
    resumes where an earlier run was stopped.

    \b
    Examples:
      rawpack convert store/ small/ -f lmdb --quality 90
      rawpack convert store/ plain/ -f hdf5 --compression gzip
      rawpack convert store/ smaller/ --size 128
      rawpack convert lmdb-store/ other/ --shard-size 1GB   the same JPEG files
    """
    _derive([store], dst, options)


@click.command(cls=Subcommand)
@option(
    "--prefix",
    group="Merging",
    type=click.Choice(OPTIONS["prefix"].choices),
    short="Put the store's name or number before keys",
    help="Put the name of the store's folder, or its number from 0, and / in front of each key, for stores that share "
    "keys. [default: no prefix]",
)
@_deriving_options
@path_argument("stores", nargs=-1, required=True, metavar="STORE STORE...")
@path_argument("dst")
def merge(stores: tuple[str, ...], dst: str, prefix: str | None, **options: Any) -> None:
    """Pack the samples of two or more STOREs, one after the other, into one store at DST.

    They must have the same fields, and no key twice. Classes are merged by name: those of the first store keep their
    numbers, then come the new ones of each following store. Everything else is copied bit for bit, as with `rawpack
    convert`. To read several stores as one, merging is not needed: rawpack.Reader takes a list.

    \b
    Examples:
      rawpack merge monday/ tuesday/ week/
      rawpack merge a/ b/ c/ all/ --prefix names     keys begin with a/, b/, c/
      rawpack merge large/ small/ all/ --size 224    of different image sizes
    """
    _derive(stores, dst, options, merge=True, prefix=prefix)


@click.command(cls=Subcommand)
@_choice_options
@_deriving_options
@path_argument("store")
@path_argument("dst")
def subset(
    store: str,
    dst: str,
    classes: tuple[str, ...],
    classes_from: str | None,
    keys_from: str | None,
    rows_from: str | None,
    **options: Any,
) -> None:
    """Pack some samples of STORE into a new store at DST, in the order in which they are stored.

    With --classes, labels are renumbered from 0, in the order of STORE's classes. What no option changes stays bit for
    bit, as with `rawpack convert`.

    \b
    Examples:
      rawpack subset store/ pets/ --classes cat,dog --limit 1000
      rawpack subset store/ balanced/ --per-class 100
      rawpack subset store/ tenth/ --every 10
      rawpack subset store/ chosen/ --keys-from keys.txt
      rawpack subset store/ sharp/ --where "score > 0.5 and label == 'cat'"
    """
    choice = Choice(
        _listed(classes_from, str),
        _listed(keys_from, str),
        _listed(rows_from, int),
        joined=classes,
        **{name: options.pop(name) for name in ("where", "every", "per_class", "limit", "seed", "keep_labels")},
    )
    _derive([store], dst, options, choice=choice)


def _listed(path: str | None, kind: type[Item]) -> list[Item] | None:
    """The texts or whole numbers in a file: one a line, a JSON list, or the array of a .npy file."""
    if path is None:
        return None
    with reading(plain(path)):
        data = Path(path).read_bytes()
    try:
        if kind is int and path.endswith(".npy"):
            found = np.load(io.BytesIO(data), allow_pickle=False).tolist()
        elif (text := data.decode("utf-8-sig")).lstrip().startswith("["):
            found = msgspec.json.decode(text)
        else:
            found = [line.removesuffix("\r") for line in text.split("\n") if line] if kind is str else text.split()
        return msgspec.convert(found, list[kind], strict=kind is str)  # type: ignore[valid-type]
    except (ValueError, EOFError) as error:
        what = "integers" if kind is int else "texts: lines of UTF-8, or a JSON list of strings"
        raise UsageError(f"{path} is not a list of {what}: {error}") from None


def _derive(stores: Sequence[str], dst: str, options: dict[str, Any], **which: Any) -> None:
    """Make the store, and print what came of it. which: of `api.derived_job`."""
    dry_run, out = options.pop("dry_run"), take_output(options)
    with scanning(quiet=out.quiet) as scan:
        job = api.derived_job(stores, dst, scan=scan, **which, **options)
    out.say(samples_in_words(job.source))
    out.do(job, dry_run=dry_run)


@click.command(cls=Subcommand)
@option(
    "--from", "new", required=True, group="Fields", type=UserPath(), metavar="FILE",
    short="The new values: CSV, TSV, JSON Lines or Parquet",
    help="The new values: a CSV, TSV, JSON Lines or Parquet file with a column of keys, and a column for each field.",
)  # fmt: skip
@option("--key-column", group="Fields", metavar="COLUMN", help="The column of keys. [default: key, or else path]")
@option(
    "--field", "fields", group="Fields", multiple=True, metavar="NAME:DTYPE",
    short="Type of a column: score:float32",
    help="The type of a column, if its values do not tell: score:float32. May be repeated. [default: as in the store]",
)  # fmt: skip
@option("--skip-unknown", group="Fields", is_flag=True, help="Ignore keys that no sample has. [default: refuse]")
@option(
    "--stale-copies", group="Fields", is_flag=True,
    short="Let copies in hdf5 shards keep old values",
    help="Allow it for hdf5 stores: the copies of small fields inside the shards, for other programs, keep the old "
    "values.",
)  # fmt: skip
@quiet_option
@json_option
@path_argument("store")
def relabel(
    store: str, new: str, key_column: str | None, fields: tuple[str, ...], skip_unknown: bool, stale_copies: bool,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Add the fields in FILE to STORE, or replace those that it has.

    Samples are found by their keys. A sample without a line keeps what it has; a new field needs a line for every
    sample. Labels may be class names: those of STORE keep their numbers, and new ones come after them. Image files are
    not touched. Readers that are open keep the old values; the old columns stay for them. If this is interrupted, give
    the command again: the store is the old one or the new one.

    \b
    Examples:
      rawpack relabel store/ --from fixed-labels.csv         key,label
      rawpack relabel store/ --from scores.jsonl --field score:float32
    """
    from rawpack_packer.job import relabel_store

    done = relabel_store(
        store, new, key_column=key_column, fields=fields, skip_unknown=skip_unknown, stale_copies=stale_copies
    )
    Output(quiet, as_json).tell(done)


@click.command(cls=Subcommand)
@option(
    "--to",
    type=click.Choice(list(TARGETS)),
    default="files",
    show_default=True,
    short="Image files, tar files, or Parquet tables",
    help="files: a file for each image, and a metadata.jsonl, as ImageFolder of Hugging Face reads them. webdataset: "
    "tar files. parquet: tables of images with a data card, as Hugging Face datasets has them; needs rawpack[parquet].",
)
@option(
    "--numbered",
    is_flag=True,
    short="Name files by row, such as 00000000.jpg",
    help="Name files by row, such as 00000000.jpg; metadata.jsonl or .json has the keys.",
)
@option(
    "--shard-size",
    metavar="BYTES",
    short="About how many bytes a tar file or table has",
    help="About how many bytes of images a tar file or table contains; raw pixels count before they become PNG. "
    "[default: 1GB for webdataset, 500MB for parquet]",
)
@option(
    "--split",
    metavar="NAME",
    short="What tar files and tables are named after",
    help="What tar files and tables are named after: train-000000.tar. For one store, not for a set of splits. "
    "[default: the name of the split that STORE is, else train]",
)
@workers_option("Threads. [default: one per CPU]", least=1)
@max_rejects_option
@dry_run_option
@quiet_option
@json_option
@path_argument("store")
@path_argument("folder")
def export(
    store: str,
    folder: str,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the samples of STORE into FOLDER: each as a file named by its key, or many in a tar file or table.

    JPEG files are written byte for byte as stored; raw pixels become PNG, arrays that PNG cannot store become .npy.
    Each sample is checked against its checksum. If STORE is a set of splits, each split is written into the folder of
    its name in FOLDER. The same command resumes where an earlier run was stopped.

    \b
    files        Further images are in images/FIELD/, masks in masks/FIELD/.
                 metadata.jsonl has all fields; `rawpack pack FOLDER DST`
                 packs it again.
    webdataset   KEY.jpg, KEY.cls with the label, KEY.json with all other
                 fields, KEY.FIELD.jpg and .png for further images and masks.
    parquet      Columns image, key, and one for each field, with the names of
                 the classes; README.md, the data card that the Hub reads.

    \b
    Examples:
      rawpack export store/ photos/
      rawpack export --numbered store/ photos/           00000000.jpg, ...
      rawpack export --to webdataset store/ shards/      train-000000.tar, ...
      rawpack export --to parquet set/ hub/              hub/train/, hub/val/
    """
    out = Output(quiet, as_json)
    with scanning(quiet=quiet) as scan:
        job = api.export_job(store, folder, progress=progress(quiet=quiet), scan=scan, **options)
    if dry_run:
        Output(as_json=as_json).tell(job.estimate())
    else:
        out.tell(job.run())
