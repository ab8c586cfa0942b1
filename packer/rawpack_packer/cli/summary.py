"""What a packing job came to, or would take: as text for a person, as a dict for a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rawpack.remote.url import is_url
from rawpack_packer import api, text
from rawpack_packer.job import TRAIN, AppendSummary, DryRun, Summary, count_of
from rawpack_packer.sources import Source, unread_of

Rows = list[tuple[str, str]]
_SHOWN = 5


# ---------------------------------------------------------------------------------------------- before
def images(source: Source) -> str:
    """What a source holds, in a few words: "12 images in 2 classes", "300 frames"."""
    classes = " without classes" if source.info.flat else _in_classes(source)
    return f"{text.count(len(source) - len(unread_of(source)), source.info.noun)}{classes}"


def samples(source: Source) -> str:
    """What stores hold, and which they are: "12 samples in 2 classes in store/"."""
    return f"{text.count(len(source), 'sample')}{_in_classes(source)} in {text.plain(source.info.root).strip('<>')}"


def _in_classes(source: Source) -> str:
    return "" if source.info.classes is None else f" in {_classes(len(source.info.classes))}"


def draw_lines(division: api.PreparedSplits) -> list[str]:
    """What a user should know of a draw; nothing where the splits were divided before."""
    drawn = division.drawn
    if division.source is None or drawn is None:
        return []
    classes = dict(enumerate(division.source.info.classes or ()))
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
        "unread": summary.unread,
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "seconds": round(summary.seconds, 3),
    }


def as_text(summary: Summary, *, split: str = TRAIN) -> str:
    """The summary for a person. split: which one it is; only for training is it read in random order."""
    manifest, path = summary.manifest, _path(summary)
    size = text.size(manifest.store_bytes)
    amount = f"{text.count(manifest.samples, 'sample')}, {size}"
    if summary.already:
        return f"{path} is complete already: {amount}. Nothing to do."
    shape = _shape(manifest.fields["image"].shape)
    rows = [("samples", f"{manifest.samples:,} of {summary.seen:,} seen, {shape} ({manifest.format})")]
    rows += _class_rows(summary, spread=True)
    if summary.empty_classes:
        an = "an" if summary.noun[0] in "aeiou" else "a"
        without = f"{_classes(len(summary.empty_classes))} without {an} {summary.noun}"
        rows.append(("", f"{without}: {text.listed(summary.empty_classes, _SHOWN)}"))
    rows += rejected(manifest.rejects.reasons, f"{path}/rejects.jsonl")
    rows += [
        ("counted", f"{count:,} {text.counted(count, count_of(name, summary.noun), summary.noun)}")
        for name, count in manifest.counts.items()
        if count and name not in ("empty_classes", "problems")
    ]
    rows += _problems(summary)
    if summary.bytes_in:
        files = "video files" if summary.noun == "frame" else "files"
        ratio = text.times(manifest.store_bytes / summary.bytes_in).replace("as much", "the same size")
        rows.append(("bytes", f"{text.size(summary.bytes_in)} of {files} in, {size} out: {ratio}"))
    rows += [("time", _time(summary)), ("stored in", f"{path}: {amount}")]
    options = ", shuffle=True" if split == TRAIN else ""
    options += "" if manifest.fields["image"].uniform else ", image_size=224"
    code = f'for batch in rawpack.Reader("{path}").batches(256{options}): ...'
    rows.append(("read it", click.style(code, fg="cyan")))
    return block("Packed.", rows)


def appended_dict(done: AppendSummary) -> dict[str, Any]:
    """What an append came to, for a program; `samples`, `rejects` and `digest` are those of the whole store."""
    summary = as_dict(done.summary)
    summary["nothing_to_do"] = summary.pop("already_complete")
    own = {"added": done.added, "rejected": done.rejected, "existing": done.existing}
    return summary | own | {"changed": done.changed, "later": done.later}


def appended_text(done: AppendSummary) -> str:
    """The same for a person."""
    summary, manifest, path = done.summary, done.summary.manifest, _path(done.summary)
    left_out: Rows = []
    if done.existing:
        existing = text.count(done.existing, "sample")
        left_out.append(("existing", f"{existing} left out: they were packed, or rejected, before"))
    if done.changed:
        changed = text.count(done.changed, "file")
        left_out.append(("changed", f"{changed} of these changed or copied since: the store keeps what it has"))
    if summary.already:
        head = f"{path} has nothing to add of {text.count(summary.seen, 'sample')}: {manifest.samples:,} stay."
        return head + (f"\n{text.table(left_out)}" if left_out else "")
    rows = [("samples", f"{done.added:,} more of {summary.seen:,} seen, {manifest.samples:,} in all")]
    rows += _class_rows(summary)
    if done.rejected:
        rows.append(("rejected", f"{done.rejected:,} more, listed in {path}/{manifest.rejects.file.name}"))
    rows += left_out
    if done.later:
        rows.append(("later", f"{text.count(done.later, 'sample')} came after this append began: append once more"))
    rows += _problems(summary)
    rows.append(("bytes", f"{text.size(summary.bytes_in)} in, {text.size(summary.bytes_out)} out"))
    amount = f"{text.count(manifest.samples, 'sample')}, {text.size(manifest.store_bytes)}"
    rows += [("time", _time(summary)), ("stored in", f"{path}: {amount}")]
    return block("Appended.", rows)


def rejected(reasons: Mapping[str, int], listed_in: str) -> Rows:
    """The row that says how many samples were rejected, if any, and where they are listed."""
    if not reasons:
        return []
    words = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return [("rejected", f"{sum(reasons.values()):,} ({words}), listed in {text.plain(listed_in)}")]


def block(head: str, rows: Sequence[tuple[str, str]]) -> str:
    """A summary: its head, and a line for each row; what went wrong stands out."""
    colors = {"rejected": "yellow", "problem": "yellow"}
    shown = [(name, click.style(value, fg=colors[name]) if name in colors else value) for name, value in rows]
    return click.style(head, fg="green", bold=True) + "\n" + text.table(shown)


def _class_rows(summary: Summary, *, spread: bool = False) -> Rows:
    """How many classes there are, and with `spread`, how many samples each has."""
    classes = summary.manifest.classes
    if classes is None:
        return [("classes", "none: the source has no subfolders, which would be classes")] if summary.flat else []
    found = api.class_spread(summary.destination) if spread and len(classes) > 1 else None
    if found is None:
        return [("classes", f"{len(classes):,}")]
    least, most = found
    return [("classes", f"{len(classes):,}, {least:,}{'' if least == most else f' to {most:,}'} each")]


def _problems(summary: Summary) -> Iterable[tuple[str, str]]:
    return (("problem", text.plain(problem)) for problem in summary.problems)


def _time(summary: Summary) -> str:
    if not summary.packed_now:
        return text.duration(summary.seconds)
    return f"{text.duration(summary.seconds)}, {text.rate(summary.packed_now / summary.seconds)} {summary.noun}s/s"


def _classes(number: int) -> str:
    return text.count(number, "class", "classes")


def _shape(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)


def _path(summary: Summary) -> str:
    """A folder as it is usually written; a URL as it is."""
    return text.plain(summary.destination if is_url(summary.destination) else str(Path(summary.destination)))
