"""What a packing job came to, or would take: as text for a person, as a dict for a program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rawpack.remote.url import is_url
from rawpack_packer import text
from rawpack_packer.job.append import AppendSummary
from rawpack_packer.job.counts import count_of
from rawpack_packer.job.pack import DryRun
from rawpack_packer.job.run import Summary
from rawpack_packer.sources import Source
from rawpack_packer.sources.optional import unread_of

_NO_CLASSES = "none: the source has no subfolders, which would be classes"


def images(source: Source) -> str:
    """What a source holds, in a few words: "12 images in 2 classes", "300 frames"."""
    classes = " without classes" if source.info.flat else _in_classes(source)
    return f"{text.count(len(source) - len(unread_of(source)), source.info.noun)}{classes}"


def samples(source: Source) -> str:
    """What stores hold, and which they are: "12 samples in 2 classes in store/"."""
    return f"{text.count(len(source), 'sample')}{_in_classes(source)} in {text.plain(source.info.root)}"


def _in_classes(source: Source) -> str:
    return "" if source.info.classes is None else f" in {text.count(len(source.info.classes), 'class', 'classes')}"


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
    rows = [
        ("samples", f"{samples:,}, {'x'.join('?' if n is None else str(n) for n in dry.shape)}"),
        ("store", store),
        ("free", text.size(dry.free_bytes) + (" - too little" if need > dry.free_bytes else "")),
        ("time", f"about {text.duration(guess.seconds)}, estimated from {text.count(guess.tried, 'sample')}"),
    ]
    if guess.spare_bytes:
        rows.insert(2, ("meanwhile", f"{text.size(guess.spare_bytes)} more while packing"))
    if guess.rejected:
        rows.append(("rejected", f"{guess.rejected:,} of {text.count(guess.tried, 'sample')} tried"))
    return "Nothing was written. Packing would take:\n" + text.table(rows)


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


def as_text(summary: Summary) -> str:
    """The summary for a person."""
    manifest, path = (
        summary.manifest,
        text.plain(_place(summary.destination)),
    )
    if summary.already:
        return (
            f"{path} is complete already: {text.count(manifest.samples, 'sample')}, "
            f"{text.size(summary.bytes_out)}. Nothing to do."
        )
    shape = "x".join("?" if n is None else str(n) for n in manifest.fields["image"].shape)
    rows = [("samples", f"{manifest.samples:,} of {summary.seen:,} seen, {shape} ({manifest.format})")]
    if manifest.classes is not None:
        rows.append(("classes", f"{len(manifest.classes):,}"))
    elif summary.flat:
        rows.append(("classes", _NO_CLASSES))
    if summary.empty_classes:
        rows.append(
            (
                "",
                f"{text.count(len(summary.empty_classes), 'class', 'classes')} without {_a(summary.noun)}: "
                + _some(summary.empty_classes),
            )
        )
    if manifest.rejects.count:
        reasons = ", ".join(f"{reason} {count}" for reason, count in manifest.rejects.reasons.items())
        rows.append(("rejected", f"{manifest.rejects.count:,} ({reasons}), listed in {path}/rejects.jsonl"))
    shown = {"empty_classes", "problems"}
    rows += [
        ("counted", f"{count:,} {text.counted(count, count_of(name, summary.noun), summary.noun)}")
        for name, count in manifest.counts.items()
        if count and name not in shown
    ]
    rows += [("problem", text.plain(problem)) for problem in summary.problems]
    if summary.bytes_in:
        ratio = summary.bytes_out / summary.bytes_in
        rows.append(
            (
                "bytes",
                f"{text.size(summary.bytes_in)} of {_files(summary.noun)} in, {text.size(summary.bytes_out)} out: "
                f"{text.times(ratio)}",
            )
        )
    rate = f", {summary.packed_now / summary.seconds:,.0f} {summary.noun}s/s" if summary.packed_now else ""
    rows.append(("time", text.duration(summary.seconds) + rate))
    rows.append(("stored in", path))
    code = f'for batch in rawpack.Reader("{path}").batches(256, shuffle=True): ...'
    if not manifest.fields["image"].uniform:
        code = f'for batch in rawpack.Reader("{path}").batches(256, shuffle=True, image_size=224): ...'
    rows.append(("read it", code))
    return "Packed.\n" + text.table(rows)


def appended_dict(done: AppendSummary) -> dict[str, Any]:
    """What an append came to, for a program; `samples`, `rejects` and `digest` are those of the whole store."""
    summary = as_dict(done.summary)
    summary["nothing_to_do"] = summary.pop("already_complete")
    own = {"added": done.added, "rejected": done.rejected, "existing": done.existing}
    return summary | own | {"changed": done.changed, "later": done.later}


def appended_text(done: AppendSummary) -> str:
    """The same for a person."""
    summary, manifest = done.summary, done.summary.manifest
    path = text.plain(summary.destination)
    left_out = []
    if done.existing:
        left_out.append(
            ("existing", f"{text.count(done.existing, 'sample')} left out: they were packed, or rejected, before")
        )
    if done.changed:
        left_out.append(
            (
                "changed",
                f"{text.count(done.changed, 'file')} of these changed or copied since: the store keeps what it has",
            )
        )
    if summary.already:
        head = f"{path} has nothing to add of {text.count(summary.seen, 'sample')}: {manifest.samples:,} stay."
        return head + (f"\n{text.table(left_out)}" if left_out else "")
    rows = [("samples", f"{done.added:,} more of {summary.seen:,} seen, {manifest.samples:,} in all")]
    if manifest.classes is not None:
        rows.append(("classes", f"{len(manifest.classes):,}"))
    elif summary.flat:
        rows.append(("classes", _NO_CLASSES))
    if done.rejected:
        rows.append(("rejected", f"{done.rejected:,} more, listed in {path}/{manifest.rejects.file.name}"))
    rows += left_out
    if done.later:
        rows.append(("later", f"{text.count(done.later, 'sample')} came after this append began: append once more"))
    rows += [("problem", text.plain(problem)) for problem in summary.problems]
    rows.append(("bytes", f"{text.size(summary.bytes_in)} in, {text.size(summary.bytes_out)} out"))
    rate = f", {summary.packed_now / summary.seconds:,.0f} {summary.noun}s/s" if summary.packed_now else ""
    rows.append(("time", text.duration(summary.seconds) + rate))
    rows.append(("stored in", path))
    return "Appended.\n" + text.table(rows)


def _files(noun: str) -> str:
    """What bytes that came in are of."""
    return "video files" if noun == "frame" else "files"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _some(names: tuple[str, ...], most: int = 5) -> str:
    return text.listed(names, most)


def _place(destination: str) -> str:
    """A folder as it is usually written; a URL as it is."""
    return destination if is_url(destination) else str(Path(destination))
