"""`rawpack export`: a store back into image files."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from rawpack_packer import text
from rawpack_packer.cli.arguments import store_folder
from rawpack_packer.cli.job_options import parse_share
from rawpack_packer.cli.progress import Bar, Lines, scanning
from rawpack_packer.destination import folder as destinations
from rawpack_packer.export.run import Export, Exported
from rawpack_packer.job.job import Limits, NoProgress, Progress
from rawpack_packer.sources import StoreSource


@click.command(short_help="Write the samples of a store as image files.")
@click.option("--numbered", is_flag=True, help="Name files by their row: 00000000.jpg; the listing has the keys.")
@click.option("--workers", type=click.IntRange(1), help="Threads [default: one per CPU].")
@click.option(
    "--max-rejects",
    default="1%",
    show_default=True,
    metavar="SHARE|N",
    help="How many samples may be damaged: a share such as 1% or 0.01, or a number.",
)
@click.option("--dry-run", is_flag=True, help="Say what it would take, and write nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
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

    JPEG files are the bytes that lie in the store; raw pixels become PNG, arrays that no PNG holds .npy; masks lie
    below masks/. listing.jsonl has all fields, and export.json the command that packs the folder again. Each sample is
    held against its checksum. The same command goes on where an earlier run was stopped.

    Keys that cannot be names of files are refused before anything is written: absolute ones, those that climb out, and
    those that are the same on a disk that does not tell case apart.

    \b
    Examples:
      rawpack export store/ photos/
      rawpack export --numbered store/ photos/          00000000.jpg, 00000001.jpg, ...
    """
    limits = Limits(workers, parse_share(max_rejects))
    path = store_folder(store)
    destinations.check_apart(Path(folder), path)
    with scanning(quiet=quiet) as progress:
        job = Export(StoreSource(path, progress=progress), Path(folder), numbered=numbered)
    if dry_run:
        need, free = job.need_bytes(), destinations.free_bytes(Path(folder))
        about = {"samples": len(job.source), "files_bytes": need, "free_bytes": free}
        rows = [("samples", f"{len(job.source):,}"), ("files", f"about {text.size(need)}"), ("free", text.size(free))]
        click.echo(
            json.dumps(about, indent=1) if as_json else "Nothing was written. It would take:\n" + text.table(rows)
        )
        return
    watch: Progress = NoProgress() if quiet else Bar() if sys.stderr.isatty() else Lines()
    try:
        done = job.run(limits, watch)
    finally:
        watch.end()
    if as_json:
        click.echo(json.dumps(asdict(done) | {"already_complete": done.already}, indent=1))
    elif not quiet:
        click.echo(_as_text(done))


def _as_text(done: Exported) -> str:
    rows = [("samples", f"{done.samples:,}"), ("files", f"{done.files:,}, {done.written_now:,} of them written now")]
    if done.rejects:
        reasons = ", ".join(f"{reason} {count}" for reason, count in done.rejects.items())
        rows.append(("rejected", f"{sum(done.rejects.values()):,} ({reasons}), listed in {done.folder}/rejects.jsonl"))
    rows += [("time", text.duration(done.seconds)), ("lies in", text.plain(done.folder))]
    rows.append(("pack again", text.plain(done.pack_again or f"by no command: {done.why_not}")))
    rows += [("differs", text.plain(what)) for what in done.differs]
    return ("Nothing to do.\n" if done.already else "Exported.\n") + text.table(rows)
