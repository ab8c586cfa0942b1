"""`rawpack export`: a store back into image files."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from rawpack_packer import text
from rawpack_packer.api import prepare_export
from rawpack_packer.cli.progress import scanning
from rawpack_packer.cli.run_options import (
    Output,
    dry_run_option,
    json_option,
    max_rejects_option,
    progress,
    quiet_option,
)
from rawpack_packer.exporting import Exported
from rawpack_packer.job.options import run_options


@click.command(short_help="Write the samples of a store as image files.")
@click.option("--numbered", is_flag=True, help="Name files by row, such as 00000000.jpg; listing.jsonl has the keys.")
@click.option("--workers", type=click.IntRange(1), help="Threads [default: one per CPU].")
@max_rejects_option
@dry_run_option
@quiet_option
@json_option
@click.argument("store", type=click.Path())
@click.argument("folder", type=click.Path())
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
    masks go below masks/. listing.jsonl has all fields, and export.json the command that packs the folder again. Each
    sample is checked against its checksum. The same command resumes where an earlier run was stopped.

    Keys that cannot be file names are refused before anything is written: absolute paths, paths that leave FOLDER, and
    keys that differ only in case, which some disks cannot tell apart.

    \b
    Examples:
      rawpack export store/ photos/
      rawpack export --numbered store/ photos/          00000000.jpg, 00000001.jpg, ...
    """
    out = Output(quiet, as_json)
    how = run_options(workers, max_rejects, progress=progress(quiet=quiet))
    with scanning(quiet=quiet) as scan:
        job = prepare_export(store, folder, numbered=numbered, scan=scan)
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
    rows = [("samples", f"{done.samples:,}"), ("files", f"{done.files:,}, {done.written_now:,} of them written now")]
    if done.rejects:
        reasons = ", ".join(f"{reason} {count}" for reason, count in done.rejects.items())
        rows.append(("rejected", f"{sum(done.rejects.values()):,} ({reasons}), listed in {done.folder}/rejects.jsonl"))
    rows += [("time", text.duration(done.seconds)), ("stored in", text.plain(done.folder))]
    rows.append(("pack again", text.plain(done.pack_again or f"no command does: {done.why_not}")))
    rows += [("differs", text.plain(what)) for what in done.differs]
    return ("Nothing to do.\n" if done.already else "Exported.\n") + text.table(rows)
