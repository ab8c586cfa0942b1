"""`rawpack pack`: a source into a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from rawpack_packer import destination as destinations
from rawpack_packer import show
from rawpack_packer.api import recipe_for
from rawpack_packer.estimate import Estimate
from rawpack_packer.fields import store_fields
from rawpack_packer.job import Limits, Nobody, Summary, Watch
from rawpack_packer.job import dry_run as plan
from rawpack_packer.job import pack as run
from rawpack_packer.prepare import NOTES
from rawpack_packer.progress import Bar, Lines, scanning
from rawpack_packer.recipe import CHECKS, COLORS, FITS, FORMATS, INTERPOLATIONS, make_recipe
from rawpack_packer.sources import KINDS, open_source

Command = TypeVar("Command", bound=Callable[..., Any])

COUNTS = NOTES | {
    "classes_of_one": "classes with a single image",
    "empty_classes": "classes without an image",
    "identical_files": "files whose bytes are those of another",
    "unlabelled": "images beside the class folders, with label -1",
    "hidden": "hidden files and folders, skipped",
    "other_files": "files that are no images, skipped",
    "special_files": "pipes, sockets and devices, never opened",
    "links": "symbolic links, followed",
    "loops": "links back to a folder they lie in, not followed",
    "bad_names": "names that are not UTF-8",
    "problems": "folders or files that could not be looked into",
}
"""Every count of a summary -> what it counts."""


def recipe_options(command: Command) -> Command:
    """The options that make a recipe."""
    options = [
        click.option("--format", "format", type=click.Choice(FORMATS), default="memmap", show_default=True,
                     help="memmap: raw pixels in .npy, the fastest. hdf5: raw pixels in HDF5. "
                     "lmdb: JPEG in LMDB, the smallest."),
        click.option("--size", metavar="N|HxW|keep",
                     help="256: shorter side to 256, then the centre square. 224x160: 224 high, 160 wide, "
                     "scaled to cover, then the centre. keep: every image as large as it is "
                     "[default: 256; of arrays: keep]."),
        click.option("--crop", metavar="X,Y,W,H",
                     help="Cut this box out of each image before resizing: left, top, width, height in pixels. "
                     "Note the order: --size is height by width, --crop is not. Example: 186,0,114,30"),
        click.option("--fit", type=click.Choice(FITS), default="cover", show_default=True,
                     help="cover: keep proportions and cut the centre. stretch: distort to the size."),
        click.option("--interpolation", type=click.Choice(INTERPOLATIONS), default="area", show_default=True,
                     help="area shrinks without aliasing, and enlarges bilinearly."),
        click.option("--color", type=click.Choice(COLORS), default="rgb", show_default=True,
                     help="What is stored of every image: three channels, or one."),
        click.option("--quality", metavar="1-100|keep",
                     help="JPEG quality in lmdb stores [default: 90]. With --size keep, keep stores JPEG files "
                     "as they are."),
        click.option("--check", type=click.Choice(CHECKS),
                     help="How JPEG files that are stored as they are must prove whole: by their structure, at the "
                     "disk's speed, or by decoding each [default: structure]."),
        click.option("--subsampling", metavar="420|422|440|444", help="Chroma in lmdb stores [default: 420]."),
        click.option("--compression", type=click.Choice(["none", "gzip"]), help="Of hdf5 stores [default: none]."),
        click.option("--chunk", type=click.IntRange(1), help="Images per chunk in hdf5 stores [default: 1]."),
        click.option("--shard-size", default="256MiB", show_default=True, metavar="BYTES",
                     help="Raw pixels that one shard is cut for."),
        click.option("--max-pixels", type=click.IntRange(1), default=178_000_000, show_default=True,
                     help="Reject images with more, by their header."),
        click.option("--fast", is_flag=True,
                     help="Decode large JPEGs at a reduced scale: quicker, and not quite the same pixels."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Pack a folder of images into a store.")
@recipe_options
@click.option(
    "--source",
    "kind",
    metavar="KIND",
    help=f"What SRC is: {', '.join(sorted(KINDS))}, or what a plugin adds [default: found from SRC].",
)
@click.option("--workers", type=click.IntRange(0), help="Worker processes; 0 packs in this one [default: one per CPU].")
@click.option("--max-rejects", default="1%", show_default=True, metavar="SHARE|N",
              help="How many images may be unreadable: a share such as 1% or 0.01, or a number.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at the first image that cannot be packed.")
@click.option("--restart", is_flag=True, help="Remove what an earlier run left in DST, and begin anew.")
@click.option("--dry-run", is_flag=True, help="Say what packing would take, by a few samples, and write nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.argument("src", type=click.Path())
@click.argument("dst", type=click.Path())
def pack(
    src: str,
    dst: str,
    kind: str | None,
    workers: int | None,
    max_rejects: str,
    strict: bool,
    restart: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Pack the images of SRC into a store at DST.

    SRC is a folder, whose first-level folders are the classes, or a file of arrays: .npy, .npz or IDX. The same command
    goes on where an earlier run was stopped. Images that cannot be read are listed in DST/rejects.jsonl.

    \b
    Examples:
      rawpack pack photos/ store/
      rawpack pack --format lmdb --size 256 --quality 90 photos/ store/
      rawpack pack --size 224x160 photos/ store/        224 high, 160 wide
      rawpack pack --format lmdb --size keep --quality keep photos/ store/
                                                        JPEG files as they are, one file instead of many
      rawpack pack train-images-idx3-ubyte.gz mnist/    with the labels beside it
    """
    make_recipe(**options | {"size": options["size"] or "256"})  # nonsense is refused before a long look at SRC
    limits = Limits(workers, parse_share(max_rejects), strict, restart)
    watch: Watch = Nobody() if quiet else Bar() if sys.stderr.isatty() else Lines()
    destinations.check(Path(dst), src)
    with scanning(quiet=quiet) as progress:
        source = open_source(src, kind, progress=progress)
    recipe = recipe_for(source, options)
    if not quiet and not as_json:
        classes = f" in {show.count(len(source.classes), 'class', 'classes')}" if source.classes is not None else ""
        click.echo(f"rawpack: {show.count(len(source), 'image')}{classes} in {show.plain(src)}", err=True)
    if dry_run:
        guess, free = plan(source, dst, recipe, limits)
        click.echo(json.dumps(asdict(guess) | {"free_bytes": free, "samples": len(source)}, indent=1) if as_json else
                   dry_text(guess, store_fields(recipe, source)["image"].shape, len(source), free))  # fmt: skip
        return
    try:
        summary = run(source, dst, recipe, limits, watch=watch)
    finally:
        watch.end()
    if as_json:
        click.echo(json.dumps(as_dict(summary), indent=1))
    elif not quiet:
        click.echo(as_text(summary))


def dry_text(guess: Estimate, shape: tuple[int | None, ...], samples: int, free: int) -> str:
    """What packing would take, for a person."""
    need = guess.store_bytes + guess.spare_bytes
    store = "unknown: no sample could be packed"
    if guess.store_bytes:
        store = f"about {show.size(guess.store_bytes)}, {show.size(guess.store_bytes / samples)} a sample"
    rows = [
        ("samples", f"{samples:,}, {'x'.join('?' if n is None else str(n) for n in shape)}"),
        ("store", store),
        ("free", show.size(free) + (" - too little" if need > free else "")),
        ("time", f"about {show.duration(guess.seconds)}, by {show.count(guess.tried, 'sample')}"),
    ]
    if guess.spare_bytes:
        rows.insert(2, ("meanwhile", f"{show.size(guess.spare_bytes)} more while packing"))
    if guess.rejected:
        rows.append(("rejected", f"{guess.rejected} of the {guess.tried} samples tried"))
    return "Nothing was written. Packing would take:\n" + show.table(rows)


def parse_share(text: str) -> float:
    """`--max-rejects`: "1%", "0.01", or a number of images."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1e15 or (share >= 1 and (text.endswith("%") or share != int(share))):
        if text.strip() == "100%":
            return 1e14
        raise click.BadParameter(
            f"{text!r}: a share such as 1% or 0.01, or a number of images", param_hint="--max-rejects"
        )
    return share


def as_dict(summary: Summary) -> dict[str, Any]:
    """The summary for a program."""
    manifest = summary.manifest
    return {
        "destination": summary.destination,
        "format": manifest.format,
        "already_complete": summary.already,
        "digest": summary.digest,
        "seen": summary.seen,
        "samples": manifest.samples,
        "packed_now": summary.packed_now,
        "classes": None if manifest.classes is None else len(manifest.classes),
        "rejects": manifest.rejects.count,
        "reject_reasons": manifest.rejects.reasons,
        "counts": manifest.counts,
        "empty_classes": list(summary.empty_classes),
        "problems": list(summary.problems),
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "seconds": round(summary.seconds, 3),
    }


def as_text(summary: Summary) -> str:
    """The summary for a person."""
    manifest, path = summary.manifest, show.plain(str(Path(summary.destination)))
    if summary.already:
        return (
            f"{path} is complete already: {show.count(manifest.samples, 'sample')}, "
            f"{show.size(summary.bytes_out)}. Nothing to do."
        )
    shape = "x".join("?" if n is None else str(n) for n in manifest.fields["image"].shape)
    rows = [("samples", f"{manifest.samples:,} of {summary.seen:,} seen, {shape} ({manifest.format})")]
    if manifest.classes is not None:
        rows.append(("classes", f"{len(manifest.classes):,}"))
    if summary.empty_classes:
        rows.append(
            (
                "",
                f"{show.count(len(summary.empty_classes), 'class', 'classes')} without an image: "
                + _some(summary.empty_classes),
            )
        )
    if manifest.rejects.count:
        reasons = ", ".join(f"{reason} {count}" for reason, count in manifest.rejects.reasons.items())
        rows.append(("rejected", f"{manifest.rejects.count:,} ({reasons}), listed in {path}/rejects.jsonl"))
    told = {"empty_classes", "problems"}
    rows += [
        ("counted", f"{count:,} {COUNTS.get(name, name)}")
        for name, count in manifest.counts.items()
        if count and name not in told
    ]
    rows += [("problem", show.plain(problem)) for problem in summary.problems]
    if summary.bytes_in:
        ratio = summary.bytes_out / summary.bytes_in
        rows.append(
            ("bytes", f"{show.size(summary.bytes_in)} in, {show.size(summary.bytes_out)} out: {ratio:.2g} times")
        )
    rate = f", {summary.packed_now / summary.seconds:,.0f} images/s" if summary.packed_now else ""
    rows.append(("time", show.duration(summary.seconds) + rate))
    rows.append(("lies in", path))
    code = f'for batch in rawpack.Reader("{path}").batches(256, shuffle=True): ...'
    if not manifest.fields["image"].uniform:
        code = f'for batch in rawpack.Reader("{path}").batches(256, shuffle=True, image_size=224): ...'
    rows.append(("read it", code))
    return "Packed.\n" + show.table(rows)


def _some(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(show.plain(name) for name in names[:most]) + (", ..." if len(names) > most else "")
