"""What is said of a job: before it begins, and what it came to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.disk.manifest import Manifest
from rawpack.remote.url import is_url
from rawpack.transforms.fields import may_be_flow
from rawpack_packer import text
from rawpack_packer.counts import count_of, depth_of
from rawpack_packer.destination.journal import CRASHED
from rawpack_packer.job.estimate import Estimate
from rawpack_packer.job.holdout import TRAIN
from rawpack_packer.options import opt
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.depth import lost_depth
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.sources import LEFT_OUT, SourceInfo, Table
from rawpack_packer.sources.files import UNREADABLE
from rawpack_packer.text import Block, Rows, Shown

if TYPE_CHECKING:
    from rawpack_packer.job.splits import Splits

_SHOWN = 5
_BATCH = 256
"""Samples of a batch in the line that reads the store, which has no more than the store."""
_SIDE = 224
"""The side of its images, where they differ in size; smaller ones were scaled to their own."""


# ---------------------------------------------------------------------------------------------- before
def images_in_words(source: Table) -> str:
    """What a source holds, in a few words: "12 images in 2 classes", "300 frames"."""
    classes = " without classes" if source.info.flat else _in_classes(source)
    return f"{text.count(len(source) - len(source.unread), source.info.noun)}{classes}"


def place_in_words(source: Table, src: str) -> str:
    """Where they are: SRC, or for an archive the folder in it that is packed, which the user may not have named."""
    return source.info.root if source.info.kind == "archive" else text.plain(src)


def samples_in_words(source: Table) -> str:
    """What stores hold, and which they are: "12 samples in 2 classes in store/"."""
    return f"{text.count(len(source), 'sample')}{_in_classes(source)} in {text.plain(source.info.root).strip('<>')}"


def _in_classes(source: Table) -> str:
    return "" if source.info.classes is None else f" in {_classes(len(source.info.classes))}"


def draw_lines(jobs: Splits) -> list[str]:
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
    if not drawn.by_class and "label" in source.info.fields:
        lines.append("drawn from all samples together: their classes are known only once they are read")
    return lines


@dataclass(frozen=True)
class DryRun(Shown):
    """What a job needs."""

    estimate: Estimate
    samples: int
    images: str
    """Their shapes."""
    free_bytes: int
    """At the destination."""
    memory_bytes: int | None = None
    """That files could take in this machine's page cache; None where that is unknown."""
    jpeg_bytes: int = 0
    """What the same images take as JPEG files, where the store does not fit into memory; 0 if not known."""
    full_size: str = ""
    """How much more than the files the store takes, if that comes from the images' own sizes."""

    def as_dict(self) -> dict[str, Any]:
        shown = {"samples": self.samples, "free_bytes": self.free_bytes, "memory_bytes": self.memory_bytes}
        return asdict(self.estimate) | shown

    def in_words(self) -> Block:
        guess, samples = self.estimate, self.samples
        need = guess.store_bytes + guess.spare_bytes
        store = "unknown: no sample could be packed"
        if guess.store_bytes:
            store = f"about {text.size(guess.store_bytes)}, {text.size(guess.store_bytes / samples)} a sample"
        rows = [("samples", f"{samples:,}, {self.images}"), ("store", store)]
        if guess.spare_bytes:
            rows.append(("meanwhile", f"{text.size(guess.spare_bytes)} more while packing"))
        rows.append(("free", text.size(self.free_bytes) + (" - too little" if need > self.free_bytes else "")))
        if self.memory_bytes is not None and guess.store_bytes:
            rows.append(("memory", self._memory(self.memory_bytes)))
        if self.full_size:
            rows.append(("large", self.full_size))
        tried = text.count(guess.tried, "sample")
        rows.append(("time", f"{_between(guess)} on {text.count(guess.cores, 'core')}, estimated from {tried}"))
        if guess.rejected:
            rows.append(("rejected", f"{guess.rejected:,} of {tried} tried"))
        if lost := lost_depth(guess.counts):
            rows.append(("counted", f"of {tried} tried, {lost}"))
        return Block("Nothing was written. Packing would take:", rows)

    def _memory(self, free: int) -> str:
        if self.estimate.store_bytes <= free:
            return f"fits into the {text.size(free)} that is available here"
        instead = ""
        if self.jpeg_bytes:
            fits = "fits" if self.jpeg_bytes <= free else "does not fit either"
            instead = f"; {opt.format('lmdb')} takes about {text.size(self.jpeg_bytes)}, and {fits}"
        return f"does not fit into the {text.size(free)} that is available here: epochs read from the disk{instead}"


def _between(guess: Estimate) -> str:
    """The shortest and the longest time that packing may take: "3 to 5 s"."""
    most = 1 + guess.doubt
    least, longest = text.about(guess.seconds / most), text.about(guess.seconds * most)
    unit = longest.rpartition(" ")[2]
    return longest if least == longest else f"{least.removesuffix(f' {unit}')} to {longest}"


# ---------------------------------------------------------------------------------------------- after
@dataclass(frozen=True)
class Summary(Shown):
    """The result of a job."""

    destination: str
    manifest: Manifest
    digest: str
    already: bool
    """Whether the store was complete before this run, which did nothing."""
    seen: int
    """Samples of the source, packed or rejected."""
    packed_now: int
    """Samples that this run packed; earlier runs packed the others."""
    bytes_in: int
    bytes_out: int
    seconds: float
    info: SourceInfo
    unread: int = 0
    """Folders and files of the source that could not be read: what they hold is not in the store."""
    class_sizes: tuple[int, int] | None = None
    """The fewest and the most samples that a class has, where this run packed all of them."""
    shuffle: bool = True
    """Whether the line that opens the store reads it in random order."""
    scanned: datetime | None = None
    """When the source was scanned, if by an earlier run: what was added to it since is not packed."""
    lost: str = ""
    """The containers, such as videos, that cannot be read, and their shares of the source, where there are any."""

    def __repr__(self) -> str:
        rejects = self.manifest.rejects.count
        some = f", {text.count(rejects, 'reject')}" if rejects else ""
        samples = text.count(self.manifest.samples, "sample")
        return f"Summary({self.destination!r}: {samples}, {text.size(self.bytes_out)}{some})"

    @property
    def missing(self) -> tuple[str, ...]:
        """The samples that a disk or a permission may be to blame for: packed again, they may be there. And the files
        that may be labels."""
        unread = _unreadable(self, self.manifest.rejects.reasons.get(UNREADABLE, 0), f"{opt.restart} packs all")
        return *filter(None, [unread]), *self.info.left_out

    def as_dict(self) -> dict[str, Any]:
        manifest = self.manifest
        return {
            "destination": self.destination,
            "format": manifest.format,
            "already_complete": self.already,
            "digest": self.digest,
            "seen": self.seen,
            "samples": manifest.samples,
            "packed_now": self.packed_now,
            "classes": None if manifest.classes is None else len(manifest.classes),
            "rejects": manifest.rejects.count,
            "reject_reasons": manifest.rejects.reasons,
            "counts": manifest.counts,
            "empty_classes": list(self.info.empty_classes),
            "problems": list(self.info.problems),
            "skipped": dict(self.info.skipped),
            "unread": self.unread,
            "read_again": self.info.read_again,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "seconds": round(self.seconds, 3),
            "scanned": None if self.scanned is None else self.scanned.isoformat(),
        }

    def in_words(self) -> Block:
        manifest, path = self.manifest, _path(self)
        size = text.size(manifest.store_bytes)
        amount = f"{text.count(manifest.samples, 'sample')}, {size}"
        if self.already:
            return Block(f"{path} is complete already: {amount}. Nothing to do.")
        shape = text.image_shapes(manifest.fields)
        rows = [("packed", f"{manifest.samples:,} of {text.count(self.seen, 'sample')}, {shape} ({manifest.format})")]
        if self.scanned is not None:
            when = f"{self.scanned.astimezone():%Y-%m-%d %H:%M}"
            rows.append(("scanned", f"{when}, when packing began; {opt.restart} packs what was added since, too"))
        rows += _class_rows(self)
        if self.info.empty_classes:
            what = count_of("empty_classes", self.info.noun, of_boxes="label" not in manifest.fields)
            some = text.listed(self.info.empty_classes, _SHOWN)
            kept = "each keeps its label, and later classes have the labels after it"
            rows.append(("counted", f"{what}: {len(self.info.empty_classes):,} ({some}); {kept}"))
        rows += rejected_rows(manifest.rejects.reasons, f"{path}/rejects.jsonl")
        rows += _lost(self)
        for name, count in manifest.counts.items():
            if count and name not in ("empty_classes", "problems", *LEFT_OUT) and depth_of(name) is None:
                rows.append(("counted", f"{count_of(name, self.info.noun)}: {count:,}{_suffixes(name, self)}"))
        rows += _depth_rows(manifest.counts, self.info.noun)
        rows += _problems(self)
        if self.bytes_in:
            files = "video files" if self.info.noun == "frame" else "source files"
            # Of a store, of its samples that are packed; a dataset made images, of whatever files.
            files = {"dataset": "the dataset's images", "store": "the store's samples"}.get(self.info.kind, files)
            ratio = text.times(manifest.store_bytes / self.bytes_in).replace("as much", "as much as")
            rows.append(("bytes", f"{size}, {ratio} the {text.size(self.bytes_in)} of {files}"))
        rows += [("time", _time(self)), ("stored in", f"{path}: {amount}")]
        options = ", shuffle=True" if self.shuffle else ""
        images = [field for field in manifest.fields.values() if field.kind == "image"]
        recipe = Recipe.of_manifest(manifest.recipe)
        differing = {
            name: min(_SIDE, *(recipe.of(name, None).target or (_SIDE,)))
            for name, field in manifest.fields.items()
            if field.kind == "image" and not field.uniform
        }
        if differing:
            options += f", image_size={next(iter(differing.values())) if len(images) == 1 else differing}"
        if any(field.kind in ("text", "ragged") for name, field in manifest.fields.items() if name != "key"):
            # Batches have these only where they are named.
            options += f", fields={[name for name in manifest.fields if name != 'key']}"
        # Made once, before the loop over epochs: each new one begins at epoch 0.
        rows.append(
            (
                "read it",
                f"batches = rawpack.Reader({text.in_python(_place(self))})"
                f".batches({min(_BATCH, manifest.samples or _BATCH)}{options})",
            )
        )
        rows.append(("each epoch", "for batch in batches: ..."))
        rows.append(("look", text.plain(shlex.join(["rawpack", "view", _place(self)]))))
        return Block("Packed.", rows)


@dataclass(frozen=True)
class AppendSummary(Shown):
    """The result of an append. All numbers are of samples."""

    summary: Summary
    """The summary of the store as it is now; `seen` and other numbers of this run count samples of this source."""
    added: int
    rejected: int
    existing: int
    """Left out, since the store or a split drawn with it had or had rejected them."""
    changed: int
    """Those of the existing ones whose file changed since; the store keeps the old sample."""
    later: int
    """Came to the source after an append began that this run finished: the next append adds them."""
    unreadable: int = 0
    """Those of the rejected ones that are files which could not be read."""
    rejected_before: int = 0
    """Those of the existing ones that were rejected, and would be again; what crashed is not tried again."""

    def __repr__(self) -> str:
        return f"AppendSummary({self.added:,} added, {self.rejected:,} rejected; {self.summary!r})"

    @property
    def missing(self) -> tuple[str, ...]:
        """As of a summary; those of this run."""
        cure = f"the same append with {opt.skip_existing} adds {'it' if self.unreadable == 1 else 'them'}"
        unread = _unreadable(self.summary, self.unreadable, cure)
        return *filter(None, [unread]), *self.summary.info.left_out

    def as_dict(self) -> dict[str, Any]:
        """`samples`, `rejects` and `digest` are those of the whole store."""
        summary = self.summary.as_dict()
        summary["nothing_to_do"] = summary.pop("already_complete")
        own = {"added": self.added, "rejected": self.rejected, "existing": self.existing}
        return summary | own | {"rejected_before": self.rejected_before, "changed": self.changed, "later": self.later}

    def in_words(self) -> Block:
        summary, manifest, path = self.summary, self.summary.manifest, _path(self.summary)
        left_out: Rows = []
        if self.existing:
            existing = text.count(self.existing, "sample")
            left_out.append(("existing", f"{existing} left out: they were packed, or rejected, before"))
        if self.rejected_before:
            what = f"{self.rejected_before:,} of these, listed in {path}/{manifest.rejects.file.name}"
            if manifest.rejects.reasons.get(CRASHED):
                what += "; what crashed is tried again once its file changes"
            left_out.append(("still bad", what))
        if self.changed:
            changed = text.count(self.changed, "file")
            left_out.append(("changed", f"{changed} of these changed or copied since: the store keeps what it has"))
        if summary.already:
            seen = text.count(summary.seen, "sample")
            head = f"Nothing to add: {path} already has all {seen} of this source ({manifest.samples:,} in all)."
            return Block(head, left_out)
        rows = [("added", f"{self.added:,} of {text.count(summary.seen, 'sample')}, {manifest.samples:,} in all")]
        rows += _class_rows(summary)
        if self.rejected:
            rows.append(("rejected", f"{self.rejected:,} more, listed in {path}/{manifest.rejects.file.name}"))
        rows += _lost(summary)
        rows += _depth_rows(manifest.counts, summary.info.noun)
        rows += left_out
        if self.later:
            rows.append(("later", f"{text.count(self.later, 'sample')} came after this append began: append once more"))
        rows += _problems(summary)
        rows.append(("bytes", f"{text.size(summary.bytes_out)}, from {text.size(summary.bytes_in)}"))
        amount = f"{text.count(manifest.samples, 'sample')}, {text.size(manifest.store_bytes)}"
        rows += [("time", _time(summary)), ("stored in", f"{path}: {amount}")]
        return Block("Appended.", rows)


def rejected_rows(reasons: Mapping[str, int], listed_in: str) -> Rows:
    """The row that says how many samples were rejected, if any, and where they are listed."""
    if not reasons:
        return []
    words = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return [("rejected", f"{sum(reasons.values()):,} ({words}), listed in {text.plain(listed_in)}")]


def _unreadable(summary: Summary, count: int, cure: str) -> str:
    """How many samples are missing from a store because they could not be read; "" for none. cure: what packs them once
    they can be."""
    if not count:
        return ""
    what, listed = text.count(count, summary.info.noun), f"{_path(summary)}/{summary.manifest.rejects.file.name}"
    return (
        f"{what} could not be read, and {'is' if count == 1 else 'are'} not in the store: see {listed}; once the disk "
        f"and the permissions are in order, {cure}"
    )


def _lost(summary: Summary) -> Rows:
    """The containers that cannot be read, and the files that were read twice."""
    rows = [("rejected", f"{summary.lost}; each is listed once")] if summary.lost else []
    if summary.info.read_again:
        rows.append(("counted", f"{count_of('read_again', summary.info.noun)}: {summary.info.read_again:,}"))
    return rows


def _class_rows(summary: Summary) -> Rows:
    """How many classes there are, and how many samples each has, where that is known."""
    classes, info = summary.manifest.classes, summary.info
    if info.kind == "dataset" and not info.fields:
        return [("labels", "none: the samples are images alone; {'image': images, 'label': labels} has both")]
    if classes is None:
        return [("classes", "none: the source has no subfolders, which would be classes")] if info.flat else []
    if summary.class_sizes is None or len(classes) == 1:
        return [("classes", f"{len(classes):,}")]
    least, most = summary.class_sizes
    return [("classes", f"{len(classes):,}, {least:,}{'' if least == most else f' to {most:,}'} each")]


def _suffixes(name: str, summary: Summary) -> str:
    """The suffixes of the files that a count counts: " (.json 24, .md 1)"."""
    if name not in ("other_files", "unnamed_members") or not summary.info.skipped:
        return ""
    most = sorted(summary.info.skipped.items(), key=lambda item: (-item[1], item[0]))
    shown = text.listed([f"{suffix or 'no suffix'} {count:,}" for suffix, count in most], _SHOWN)
    return f" ({shown})"


def _depth_rows(counts: Mapping[str, int], noun: str) -> Rows:
    """The row that says how many images lost their lower bits, if any."""
    lost = lost_depth(counts)
    return [("counted", text.with_noun(lost, noun))] if lost else []


def _problems(summary: Summary) -> Rows:
    problems = (*summary.info.problems, *_unscaled(summary.manifest))
    return [("problem", text.plain(problem)) for problem in problems]


def _unscaled(manifest: Manifest) -> list[str]:
    """What to say of images that may be a flow, whose values a resize leaves as they are."""
    recipe = Recipe.of_manifest(manifest.recipe)
    return [
        f"{name!r}, {field.dtype} with two channels, looks like a flow, and {opt.size} leaves its values as they are: "
        f"{opt.fields(f'{name}:flow')} scales them with its width and height, if they are distances in pixels"
        for name, field in manifest.fields.items()
        if name != IMAGE and may_be_flow(field) and recipe.of(name, None).target is not None
    ]


def _time(summary: Summary) -> str:
    if not summary.packed_now:
        return text.duration(summary.seconds)
    return f"{text.duration(summary.seconds)}, {text.rate(summary.packed_now / summary.seconds)} {summary.info.noun}s/s"


def _classes(number: int) -> str:
    return text.count(number, "class", "classes")


def _path(summary: Summary) -> str:
    """See `_place`; safe to show."""
    return text.plain(_place(summary))


def _place(summary: Summary) -> str:
    """A folder as it is usually written; a URL as it is."""
    return summary.destination if is_url(summary.destination) else str(Path(summary.destination))
