"""The summary of a packing job, or of an estimate: as text for people, as a dict for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rawpack_packer import text
from rawpack_packer.job import TRAIN, appended_rows, packed_rows
from rawpack_packer.sources import Source, unread_of

if TYPE_CHECKING:
    from rawpack_packer import api
    from rawpack_packer.job import AppendSummary, DryRun, Summary

_SHOWN = 5


# ---------------------------------------------------------------------------------------------- before
def images(source: Source) -> str:
    """What a source holds, in a few words: "12 images in 2 classes", "300 frames"."""
    classes = " without classes" if source.info.flat else _in_classes(source)
    return f"{text.count(len(source) - len(unread_of(source)), source.info.noun)}{classes}"


def place(source: Source, src: str) -> str:
    """Where they are: SRC, or for an archive the folder in it that is packed, which the user may not have named."""
    return source.info.root if source.info.kind == "archive" else text.plain(src)


def samples(source: Source) -> str:
    """What stores hold, and which they are: "12 samples in 2 classes in store/"."""
    return f"{text.count(len(source), 'sample')}{_in_classes(source)} in {text.plain(source.info.root).strip('<>')}"


def _in_classes(source: Source) -> str:
    return "" if source.info.classes is None else f" in {_classes(len(source.info.classes))}"


def draw_lines(jobs: api.Splits) -> list[str]:
    """What a user should know of a draw; nothing where the splits were divided before."""
    if jobs.drawn is None:
        return []
    source, drawn = jobs.drawn
    classes = dict(enumerate(source.info.classes or ()))
    (first, rows), *others = drawn.rows.items()
    amounts = [f"{text.count(len(rows), 'sample')} for {text.plain(first)}"]
    lines = [f"drew {', '.join(amounts + [f'{len(rows):,} for {text.plain(name)}' for name, rows in others])}"]
    alone = [classes[label] for label in drawn.kept_whole if label in classes]
    if alone:
        what = "class is too small and stays" if len(alone) == 1 else "classes are too small and stay"
        lines.append(f"{len(alone):,} {what} in {TRAIN}: {text.listed(alone, _SHOWN)}")
    for name, labels in drawn.short.items():
        few = [classes[label] for label in labels if label in classes]
        of_these = f": of {_classes(len(few))}, {text.listed(few, _SHOWN)}" if few else ""
        lines.append(
            f"{text.plain(name)} gets fewer than requested, since one of each class stays in {TRAIN}{of_these}"
        )
    if not drawn.by_class:
        lines.append("drawn from all samples together: their classes are known only once they are read")
    return lines


def dry_dict(dry: DryRun) -> dict[str, Any]:
    """What packing would take, for a program."""
    return asdict(dry.estimate) | {"free_bytes": dry.free_bytes, "samples": dry.samples}


def dry_text(dry: DryRun) -> str:
    """The same for a person."""
    guess, samples = dry.estimate, dry.samples
    need = guess.store_bytes + guess.spare_bytes
    store = "unknown: no sample could be packed"
    if guess.store_bytes:
        store = f"about {text.size(guess.store_bytes)}, {text.size(guess.store_bytes / samples)} a sample"
    rows = [("samples", f"{samples:,}, {_shape(dry.shape)}"), ("store", store)]
    if guess.spare_bytes:
        rows.append(("meanwhile", f"{text.size(guess.spare_bytes)} more while packing"))
    rows.append(("free", text.size(dry.free_bytes) + (" - too little" if need > dry.free_bytes else "")))
    tried = text.count(guess.tried, "sample")
    rows.append(("time", f"about {text.duration(max(guess.seconds, 0.1))}, estimated from {tried}"))
    if guess.rejected:
        rows.append(("rejected", f"{guess.rejected:,} of {tried} tried"))
    return "Nothing was written. Packing would take:\n" + text.table(rows)


# ---------------------------------------------------------------------------------------------- after
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
        "skipped": dict(summary.skipped),
        "unread": summary.unread,
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "seconds": round(summary.seconds, 3),
    }


def as_text(summary: Summary, *, split: str = TRAIN) -> str:
    """The summary for a person. split: which one it is; only for training is it read in random order."""
    head, rows = packed_rows(summary, shuffle=split == TRAIN)
    return head if summary.already else block(head, rows)


def appended_dict(done: AppendSummary) -> dict[str, Any]:
    """What an append came to, for a program; `samples`, `rejects` and `digest` are those of the whole store."""
    summary = as_dict(done.summary)
    summary["nothing_to_do"] = summary.pop("already_complete")
    own = {"added": done.added, "rejected": done.rejected, "existing": done.existing}
    return summary | own | {"changed": done.changed, "later": done.later}


def appended_text(done: AppendSummary) -> str:
    """The same for a person."""
    head, rows = appended_rows(done)
    if done.summary.already:
        return f"{head}\n{text.table(rows)}" if rows else head
    return block(head, rows)


def block(head: str, rows: Sequence[tuple[str, str]]) -> str:
    """A summary: its head, and a line for each row; what went wrong stands out."""
    colors = {"rejected": "yellow", "problem": "yellow", "read it": "cyan", "each epoch": "cyan", "look": "cyan"}
    shown = [(name, click.style(value, fg=colors[name]) if name in colors else value) for name, value in rows]
    return click.style(head, fg="green", bold=True) + "\n" + text.table(shown)


def _classes(number: int) -> str:
    return text.count(number, "class", "classes")


def _shape(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)
