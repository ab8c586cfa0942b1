"""Explains how a job differs from the one that made, or began, its destination, and what the user can do about it.

A message names the options that the user gives, and not what follows from them, such as the encoder of a `--format`.
Last, it suggests `--restart` and says what that would delete.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.provenance import packing_runs
from rawpack.disk.splits import read_splits
from rawpack.errors import RawpackError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.journal import (
    LISTED,
    AppendNote,
    Files,
    JobNote,
    Known,
    finished_source,
    of_samples,
)
from rawpack_packer.destination.layout import WORK
from rawpack_packer.job.probes import Compared, compare
from rawpack_packer.options import RECIPE, Option
from rawpack_packer.options.naming import Named, opt
from rawpack_packer.part.part import read_record
from rawpack_packer.sources import Source
from rawpack_packer.sources.files import NOT_SCANNED
from rawpack_packer.sources.stores.compatible import differing_field, shown_field
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

_SHOWN = 10


@dataclass(frozen=True)
class There:
    """What is at a destination, for messages that refuse to resume it."""

    name: str
    """The destination's."""
    finished: bool
    restart: str
    """What `--restart` does."""
    holds: str = ""
    """Of what is finished: "2,000 samples, 1.2 GB"."""
    kind: str = "store"

    def refusal(self, what: str, *, resume: bool = False, append: str = "") -> UsageError:
        """The error for a job that differs. what: the difference. resume: whether the user can undo it; append: what
        `rawpack append` would do instead."""
        if self.finished:
            what, cures = f"is a finished {self.kind} ({self.holds}), packed {what}", []
        else:
            what, cures = f"was begun {what}", ["give the same options to resume"] if resume else []
        cures += ["name another destination", *([append] if append else [])]
        return UsageError(f"{self.name} {what}: {', or '.join(cures)}. {self.restart}")


def store_at(path: Path, called: str = "") -> There:
    """The store in a folder, finished or begun. called: its name, where that is not the folder's, as of a URL."""
    finished, samples, size = _held(path)
    holds = _amount(samples, size)
    splits = None if called else read_splits(path.parent)
    if splits is not None and path.name in splits.splits:
        restart = set_at(path.parent).restart
    else:
        restart = (
            f"{opt.restart} deletes {'this store' if finished else 'what was packed so far'} ({holds}) and packs again"
        )
    return There(called or str(path), finished, restart, holds)


def set_at(path: Path) -> There:
    """The set of splits in a folder."""
    splits = read_splits(path)
    held = [_held(path / name) for name in (() if splits is None else splits.splits)]
    counts = [samples for _, samples, _ in held]
    holds = _amount(None if None in counts else sum(n or 0 for n in counts), sum(size for _, _, size in held))
    restart = f"{opt.restart} deletes all splits in {path} ({holds}) and packs again"
    return There(str(path), all(finished for finished, _, _ in held), restart, holds, "set of splits")


def check_same(job: Job, before: JobNote | Manifest) -> Compared:
    """Raise UsageError where what is in a job's destination was made, or begun, by another recipe or from another
    source. before: what is there. Returns what reading some samples of a dataset again showed.

    The error names the options that differ; where none do, the first field, the classes, or the first files. An append
    is compared by recipe and source only: fields are the store's, and its source may have further classes since.
    """
    path, source, called = job.destination, job.source, job.called
    now, classes, names = job.recipe.as_manifest(), before.classes, source.info.classes
    if isinstance(before, Manifest) and classes and names and len(packing_runs(before)) > 1:
        classes = classes[: len(names)]  # an append adds classes at the end
    field = differing_field(before.fields, job.fields)
    if isinstance(before, AppendNote):
        field, classes = None, names
    same_recipe = _comparable(now) == _comparable(before.recipe)
    known = functools.cache(lambda: before.source() if isinstance(before, JobNote) else finished_source(path, before))
    compared = Compared()
    if same_recipe and field is None and classes == names and known().digest == job.digest:
        compared = compare(known().probes, source)
        if not compared.changed:
            return compared
    try:
        seen = known()
    except UsageError:
        seen = None
    if isinstance(before, AppendNote):
        restart = f"{opt.restart} deletes what this append has packed so far, and begins it again; the store stays"
        there = There(f"an append to {path}", finished=False, restart=restart)
    else:
        there = store_at(path, called)
    grows = there.finished and not called and field is None and (classes is None) == (names is None)
    append = _append(seen, source) if grows else ""
    options = _options(before.recipe, now) or _libraries(before.recipe, now)
    if options := options + _source_options(seen, source):
        raise there.refusal(f"with other options ({'; '.join(options)})", resume=True, append=append)
    if not same_recipe:
        what = "stores that are not those of this run"
    elif field is not None:
        name, was, is_ = field
        what = f"other fields ({name}: {shown_field(was)} then, {shown_field(is_)} now)"
    elif classes != names:
        what = f"other classes ({_classes(classes, names)})"
    elif compared.changed:
        key = plain(compared.changed)
        what = f"a dataset that returned another sample {key} than now (its code or its data changed)"
    else:
        what = f"another source{_files(known(), source)}"
    raise there.refusal(f"{'from' if there.finished else 'with'} {what}", append=append)


def mixes_videos(source: Source, had: Any) -> bool:
    """Whether an append would add frames of videos that the store has other frames of, as with another --fps.

    had: (n,) of bool: which samples of the source the store has.
    """
    if source.info.kind != "video":
        return False
    # Not the groups of a draw: a listing may have several parts of one file, each a video of its own.
    videos = [source.key(i).rsplit("#", 1)[0] for i in range(len(source))]
    there = {video for video, known in zip(videos, had, strict=True) if known}
    return any(not known and video in there for video, known in zip(videos, had, strict=True))


def _append(known: Known | None, source: Source) -> str:
    """What appending would do; "" where it would add nothing, or mix frames of other rates."""
    if known is None or source.info.kind == "store" or _source_options(known, source):
        return ""
    was, now = _states(known, source)
    if was is None or now is None:
        return "add what is new with `rawpack append --skip-existing`"
    new = sum(key not in was and not _unread(key, now) for key in now)
    if not new or mixes_videos(source, [key in was for key in now]):
        return ""
    return f"add the {text.count(new, 'new sample')} with `rawpack append --skip-existing`"


def _files(known: Known, source: Source) -> str:
    """The first files that differ, in parentheses."""
    was, now = _states(known, source)
    if was is None or now is None:
        return ": its files, their times or their order differ"
    if known.root and known.root != source.info.root and not was.keys() & now.keys():
        return f" ({plain(known.root)} then, {plain(source.info.root)} now)"
    new, gone = [key for key in now if key not in was], [key for key in was if key not in now]
    lines = [f"{'cannot be read now' if _unread(key, now) else 'added'}: {key}" for key in new]
    lines += [f"{'could not be read then' if _unread(key, was) else 'removed'}: {key}" for key in gone]
    lines += [f"changed: {key}" for key in now if key in was and was[key] != now[key]]
    return f" ({text.listed(lines, _SHOWN, separator='; ') or 'other files, fields or order'})"


def _states(known: Known, source: Source) -> tuple[Files | None, Files | None]:
    """Key -> state of each file, then and now; None where they are too many."""
    was = known.files() if len(source) <= LISTED else None
    if was is None:
        return None, None
    keys = [source.key(i) for i in range(len(source))]
    return was, dict(zip(keys, of_samples(source.states(), len(keys)), strict=True))


def _unread(key: str, files: Files) -> bool:
    """Whether this key stands for a folder or file that could not be read."""
    return files[key][0] == NOT_SCANNED or key.endswith("/")


def _comparable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as one value compares with another: lists as tuples; of the stores that it is made of, the digests."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in recipe.items()}
    if "origin" in found:
        found["origin"] = tuple(one.get("digest") if isinstance(one, dict) else one for one in found["origin"])
    return found


def _options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options that differ: those that a user gives, and not those that follow from one of them."""
    was, is_ = _comparable(before), _comparable(now)
    same_format, found = was.get("format") == is_.get("format"), []
    for one in RECIPE:
        then, here = was.get(one.name), is_.get(one.name)
        follows = (one.follows and None in (then, here)) or (not same_format and (one.follows or one.of_some_formats))
        if then != here and not follows:
            found.append(f"{Named(one.name)} was {_shown(one, then)}, now {_shown(one, here)}")
    return found


def _libraries(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The libraries whose versions differ."""
    was, here = before.get("libraries") or {}, now["libraries"]
    both = sorted({*was} & {*here}) if isinstance(was, dict) else []
    return [f"{name} was {plain(str(was[name]))}, now {here[name]}" for name in both if was[name] != here[name]]


def _source_options(known: Known | None, source: Source) -> list[str]:
    """The options of the source that differ; none where those of then are not known."""
    if known is None or known.options is None:
        return []
    was, now = known.options, source.info.options
    return [
        f"{name} was {plain(str(was.get(name, 'not given')))}, now {plain(now.get(name, 'not given'))}"
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]


def _shown(one: Option, value: Any) -> str:
    """The value of an option, as a user writes it."""
    if one.is_flag:
        return "given" if value else "not given"
    if value is None:
        return "none" if one.name == "compression" else "not given"
    if isinstance(value, tuple):
        return ("," if one.name == "crop" else "x").join(map(str, value))
    if one.name == "shard_size" and isinstance(value, int):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"{value // size}{unit}"
    return plain(str(value))


def _classes(was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> str:
    if was is None or now is None:
        return "none then" if was is None else "none now"
    lines = [f"added: {name}" for name in now if name not in was]
    lines += [f"removed: {name}" for name in was if name not in now]
    return text.listed(lines, _SHOWN, separator="; ") or "their order"


def _amount(samples: int | None, size: int) -> str:
    return text.size(size) if samples is None else f"{text.count(samples, 'sample')}, {text.size(size)}"


def _held(path: Path) -> tuple[bool, int | None, int]:
    """Whether a store is finished; its samples, None where they are not known; and its bytes. Of one that is not
    finished, what is packed so far counts."""
    size = destinations.own_bytes(path)
    try:
        if destinations.is_finished(path):
            manifest = manifests.load(path)[0]
            return True, manifest.samples, manifest.store_bytes
        records = (read_record(path, int(one.stem.removeprefix("part-"))) for one in path.glob(f"{WORK}/part-*.done"))
        return False, sum(record.rows for record in records if record is not None), size
    except (OSError, ValueError, RawpackError):
        return destinations.is_finished(path), None, size
