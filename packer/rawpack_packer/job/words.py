"""What a job came to, in the lines that the command prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rawpack.errors import StoreError, UsageError
from rawpack.remote.url import is_url
from rawpack.store.store import Store
from rawpack_packer import text
from rawpack_packer.destination.named import store_folder
from rawpack_packer.job.counts import count_of, label_counts
from rawpack_packer.sources import LEFT_OUT

if TYPE_CHECKING:
    from rawpack_packer.job.append import AppendSummary
    from rawpack_packer.job.run import Summary

Rows = list[tuple[str, str]]
"""Names and values, one a line."""
_SHOWN = 5


def block(head: str, rows: Rows) -> str:
    """A head, and a line for each row."""
    return f"{head}\n{text.table(rows)}" if rows else head


def packed_rows(summary: Summary, *, shuffle: bool = True) -> tuple[str, Rows]:
    """A summary for a person: its head, and its rows. shuffle: whether the line that
    opens the store reads it in random order."""
    manifest, path = summary.manifest, _path(summary)
    size = text.size(manifest.store_bytes)
    amount = f"{text.count(manifest.samples, 'sample')}, {size}"
    if summary.already:
        return f"{path} is complete already: {amount}. Nothing to do.", _earlier(summary)
    shape = _shape(manifest.fields["image"].shape)
    rows = [("samples", f"{manifest.samples:,} of {summary.seen:,} seen, {shape} ({manifest.format})")]
    rows += _class_rows(summary, spread=True)
    if summary.empty_classes:
        what = count_of("empty_classes", summary.noun, of_boxes="label" not in manifest.fields)
        without = f"{len(summary.empty_classes):,} {text.counted(len(summary.empty_classes), what, summary.noun)}"
        rows.append(("", f"{without}: {text.listed(summary.empty_classes, _SHOWN)}"))
    rows += rejected_rows(manifest.rejects.reasons, f"{path}/rejects.jsonl")
    for name, count in manifest.counts.items():
        if count and name not in ("empty_classes", "problems", *LEFT_OUT):
            what = text.counted(count, count_of(name, summary.noun), summary.noun)
            rows.append(("counted", f"{count:,} {what}{_suffixes(name, summary)}"))
    rows += _problems(summary)
    rows += _earlier(summary)
    if summary.bytes_in:
        files = "video files" if summary.noun == "frame" else "files"
        ratio = text.times(manifest.store_bytes / summary.bytes_in).replace("as much", "the same size")
        rows.append(("bytes", f"{text.size(summary.bytes_in)} of {files} in, {size} out: {ratio}"))
    rows += [("time", _time(summary)), ("stored in", f"{path}: {amount}")]
    options = ", shuffle=True" if shuffle else ""
    options += "" if manifest.fields["image"].uniform else ", image_size=224"
    # Made once, before the loop over epochs: each new one begins at epoch 0.
    rows.append(("read it", f'batches = rawpack.Reader("{path}").batches(256{options})'))
    rows.append(("each epoch", "for batch in batches: ..."))
    if manifest.recipe.get("curate"):
        rows.append(("look", f"rawpack inspect --html report.html {path}"))
    return "Packed.", rows


def appended_rows(done: AppendSummary) -> tuple[str, Rows]:
    """The summary of an append for a person, likewise."""
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
        return head, left_out
    rows = [("samples", f"{done.added:,} more of {summary.seen:,} seen, {manifest.samples:,} in all")]
    rows += _class_rows(summary)
    if done.rejected:
        rows.append(("rejected", f"{done.rejected:,} more, listed in {path}/{manifest.rejects.file.name}"))
    rows += left_out
    if done.later:
        rows.append(("later", f"{text.count(done.later, 'sample')} came after this append began: append once more"))
    rows += _problems(summary)
    rows += _earlier(summary)
    rows.append(("bytes", f"{text.size(summary.bytes_in)} in, {text.size(summary.bytes_out)} out"))
    amount = f"{text.count(manifest.samples, 'sample')}, {text.size(manifest.store_bytes)}"
    rows += [("time", _time(summary)), ("stored in", f"{path}: {amount}")]
    return "Appended.", rows


def rejected_rows(reasons: Mapping[str, int], listed_in: str) -> Rows:
    """The row that says how many samples were rejected, if any, and where they are listed."""
    if not reasons:
        return []
    words = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return [("rejected", f"{sum(reasons.values()):,} ({words}), listed in {text.plain(listed_in)}")]


def _class_rows(summary: Summary, *, spread: bool = False) -> Rows:
    """How many classes there are, and with `spread`, how many samples each has."""
    classes = summary.manifest.classes
    if summary.bare:
        return [("labels", "none: the samples are images alone; {'image': images, 'label': labels} has both")]
    if classes is None:
        return [("classes", "none: the source has no subfolders, which would be classes")] if summary.flat else []
    found = _class_spread(summary.destination) if spread and len(classes) > 1 else None
    if found is None:
        return [("classes", f"{len(classes):,}")]
    least, most = found
    return [("classes", f"{len(classes):,}, {least:,}{'' if least == most else f' to {most:,}'} each")]


def _suffixes(name: str, summary: Summary) -> str:
    """The suffixes of the files that a count counts: ": .json 24, .md 1"."""
    if name not in ("other_files", "unnamed_members") or not summary.skipped:
        return ""
    most = sorted(summary.skipped.items(), key=lambda one: (-one[1], one[0]))
    return ": " + text.listed([f"{suffix or 'no suffix'} {count:,}" for suffix, count in most], _SHOWN)


def _problems(summary: Summary) -> Iterable[tuple[str, str]]:
    return (("problem", text.plain(problem)) for problem in summary.problems)


def _earlier(summary: Summary) -> Rows:
    """What is said of samples of an earlier run that cannot be compared."""
    if not summary.earlier:
        return []
    packed = text.count(summary.earlier, "sample")
    return [("earlier", f"{packed} from an earlier run; the dataset returns other values at each read, not compared")]


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


def _class_spread(store: str) -> tuple[int, int] | None:
    """The fewest and the most samples that a class of a store has; None for one at a URL, and where it is gone."""
    if is_url(store):
        return None
    try:
        opened = Store(store_folder(store))
        if "label" not in opened.fields:
            return None  # the classes are those of boxes
        counts = label_counts(opened)
    except (StoreError, UsageError):
        return None
    found = [counts[label] for label in range(len(opened.manifest.classes or ()))]
    return (min(found), max(found)) if found else None
