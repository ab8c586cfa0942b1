"""`rawpack export`: turns a store back into image files."""

from __future__ import annotations

from typing import Any

import click

from rawpack_packer import api
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.options import dry_run_option, json_option, max_rejects_option, quiet_option, workers_option
from rawpack_packer.cli.output import Output, progress
from rawpack_packer.exporting import TARGETS
from rawpack_packer.progress import scanning


@click.command(cls=Subcommand)
@option(
    "--to",
    type=click.Choice(list(TARGETS)),
    default="files",
    show_default=True,
    help="files: a file for each image, and a listing. webdataset: tar files. parquet: tables of images, as Hugging "
    "Face datasets has them; needs rawpack[parquet].",
)
@option(
    "--numbered", is_flag=True, help="Name files by row, such as 00000000.jpg; listing.jsonl or .json has the keys."
)
@option(
    "--shard-size",
    metavar="BYTES",
    help="About how many bytes of images a tar file or table holds; raw pixels count before they become PNG. [default: "
    "1GB for webdataset, 500MB for parquet]",
)
@option(
    "--split",
    metavar="NAME",
    help="What tar files and tables are named after: train-000000.tar. [default: the name of the split that STORE is, "
    "else train]",
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

    JPEG files are written byte for byte as stored; raw pixels become PNG, arrays that PNG cannot hold become .npy. Each
    sample is checked against its checksum. The same command resumes where an earlier run was stopped.

    \b
    files        Masks are in masks/. listing.jsonl has all fields; `rawpack
                 pack --key-column key listing.jsonl DST` packs it again.
    webdataset   KEY.jpg, KEY.cls with the label, KEY.json with all other
                 fields, KEY.FIELD.png for masks.
    parquet      Columns image, key, and one for each field, with the names of
                 the classes.

    \b
    Examples:
      rawpack export store/ photos/
      rawpack export --numbered store/ photos/           00000000.jpg, ...
      rawpack export --to webdataset store/ shards/      train-000000.tar, ...
      rawpack export --to parquet set/val hub/val        val-00000-of-...
    """
    out = Output(quiet, as_json)
    with scanning(quiet=quiet) as scan:
        job = api.export_job(store, folder, progress=progress(quiet=quiet), scan=scan, **options)
    if dry_run:
        Output(as_json=as_json).tell(job.estimate())
    else:
        out.tell(job.run())
