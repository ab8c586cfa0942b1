"""`rawpack export`: turns a store back into image files."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from rawpack_packer import api, text
from rawpack_packer.cli import summary as summaries
from rawpack_packer.cli.command import Subcommand, option, path_argument
from rawpack_packer.cli.options import dry_run_option, json_option, max_rejects_option, quiet_option, workers_option
from rawpack_packer.cli.output import Output, progress
from rawpack_packer.exporting import Exported
from rawpack_packer.job import rejected_rows, run_options
from rawpack_packer.progress import scanning


@click.command(cls=Subcommand)
@option("--numbered", is_flag=True, help="Name files by row, such as 00000000.jpg; listing.jsonl has the keys.")
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
    numbered: bool,
    workers: int | None,
    max_rejects: str,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write each sample of STORE into FOLDER as a file named by its key.

    JPEG files are written byte for byte as stored; raw pixels become PNG, arrays that PNG cannot hold become .npy;
    masks are written below masks/. listing.jsonl has all fields, and export.json the command that packs the folder
    again. Each sample is checked against its checksum. The same command resumes where an earlier run was stopped.

    Keys that cannot be file names are refused before anything is written: absolute paths, paths that leave FOLDER, and
    keys that differ only in case, which some disks cannot tell apart.

    \b
    Examples:
      rawpack export store/ photos/
      rawpack export --numbered store/ photos/    00000000.jpg, ...
    """
    out = Output(quiet, as_json)
    how = run_options(workers, max_rejects, progress=progress(quiet=quiet))
    with scanning(quiet=quiet) as scan:
        job = api.prepare_export(store, folder, numbered=numbered, scan=scan)
    if dry_run:
        guess = job.estimate()
        rows = [
            ("samples", f"{guess.samples:,}"),
            ("files", f"about {text.size(guess.files_bytes)}"),
            ("free", text.size(guess.free_bytes)),
        ]
        in_words = "Nothing was written. Exporting would take:\n" + text.table(rows)
        click.echo(json.dumps(asdict(guess), indent=1) if as_json else in_words)
        return
    done = job.run(how)
    out.tell(asdict(done) | {"already_complete": done.already}, _as_text(done))


def _as_text(done: Exported) -> str:
    now = "" if done.written_now == done.files else f", {done.written_now:,} of them written now"
    size = f", {text.size(done.bytes_written)}" if done.written_now == done.files else ""
    rows = [("samples", f"{done.samples:,}"), ("files", f"{done.files:,}{now}")]
    rows += rejected_rows(done.rejects, f"{done.folder}/rejects.jsonl")
    rows.append(("time", text.duration(done.seconds)))
    rows.append(("stored in", f"{text.plain(done.folder)}: {text.count(done.files, 'file')}{size}"))
    rows.append(("pack again", text.plain(done.pack_again or f"no command does: {done.why_not}")))
    rows += [("differs", text.plain(what)) for what in done.differs]
    return summaries.block("Nothing to do." if done.already else "Exported.", rows)
