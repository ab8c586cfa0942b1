"""How a job differs from the one that made, or began, what is at its destination; and what its user can do about it.

A message names options as the user gives them. What follows from an option, such as the encoder's version from
`--format`, is not listed beside it. `--restart` comes last, with what it would delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Field, Manifest
from rawpack.disk.provenance import packing_runs
from rawpack.disk.splits import read_splits
from rawpack.errors import RawpackError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.journal import LISTED, JobNote, Known, of_samples, source_digest
from rawpack_packer.destination.layout import WORK
from rawpack_packer.part.part import read_record
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source
from rawpack_packer.sources.files import NOT_SCANNED
from rawpack_packer.sources.optional import group_of
from rawpack_packer.sources.stores.compatible import differing_field, shown_field
from rawpack_packer.text import plain

_SHOWN = 10
_OPTIONS = (
    "format", "size", "crop", "fit", "interpolation", "color", "quality", "check", "subsampling", "compression",
    "chunk", "shard_size", "max_pixels", "fast",
)  # fmt: skip
"""Entries of a recipe that are options of the command, in the order of its help."""
_OF_SOME = ("quality", "check", "subsampling", "chunk")
"""Those that no recipe has but where others make sense of them: None then, whatever the user gave."""
_OF_FORMAT = ("quality", "check", "subsampling", "compression", "chunk")


@dataclass(frozen=True)
class There:
    """What is at a destination, for messages that refuse to resume it."""

    name: str
    """The destination's."""
    finished: bool
    restart: str
    """What `--restart` does."""
    holds: str = ""
    """Of a finished store: "2,000 samples, 1.2 GB"."""
    grows: bool = False
    """Whether samples can be appended to it."""


def store_at(path: Path, called: str = "") -> There:
    """The store in a folder, finished or begun. called: its name, where that is not the folder's, as of a URL."""
    finished, samples, size = _held(path)
    holds = _amount(samples, size)
    whole = read_splits(path.parent) if not called else None
    if whole is not None and path.name in whole.splits:
        restart = set_at(path.parent).restart
    else:
        restart = f"--restart deletes {'this store' if finished else 'what was packed so far'} ({holds}) and packs anew"
    return There(called or str(path), finished, restart, holds, grows=finished and not called)


def set_at(path: Path) -> There:
    """The set of splits in a folder."""
    whole = read_splits(path)
    held = [_held(path / name) for name in (() if whole is None else whole.splits)]
    counts = [samples for _, samples, _ in held]
    holds = _amount(None if None in counts else sum(n or 0 for n in counts), sum(size for _, _, size in held))
    restart = f"--restart deletes all splits in {path} ({holds}) and packs anew"
    return There(str(path), all(one[0] for one in held), restart, holds)


def other_splits(path: Path, what: str) -> str:
    """What to say where the set of splits in a folder has other splits than those that were asked for."""
    there = set_at(path)
    is_ = f"is a finished set of splits ({there.holds}), packed" if there.finished else "was begun"
    cures = [] if there.finished else ["give the same options to resume"]
    cures += ["name another destination", there.restart]
    return f"{there.name} {is_} with other splits ({what}): {_either(cures)}"


def append_at(path: Path) -> There:
    """An append to the store in a folder that was begun and has not ended."""
    restart = "--restart deletes what this append has packed so far, and begins it anew; the store stays"
    return There(f"an append to {path}", finished=False, restart=restart)


def check_recipe(
    there: There,
    before: Mapping[str, Any],
    recipe: Recipe,
    source: Source,
    known: Callable[[], Known],
) -> None:
    """Raise UsageError, naming the options that differ, where what is there was made by another recipe.

    known: gives what is known of its source.
    """
    now = recipe.as_manifest()
    if _comparable(now) == _comparable(before):
        return
    differing = _options(before, now) or _libraries(before, now)
    try:
        of_source = known()
    except UsageError:
        of_source = None
    if of_source is not None:
        differing += _source_options(of_source, source)
    if differing:
        raise _other_options(there, differing, of_source, source)
    raise _other_source(there, "stores that are not those of this run", of_source, source)


def check_fields(
    there: There, before: JobNote | Manifest, fields: Mapping[str, Field], source: Source, known: Callable[[], Known]
) -> None:
    """Raise UsageError, naming the first that differs, where samples had other fields or classes."""
    differing = differing_field(before.fields, fields)
    classes = before.classes
    if classes and source.info.classes and isinstance(before, Manifest) and len(packing_runs(before)) > 1:
        classes = classes[: len(source.info.classes)]  # an append adds classes at the end
    if differing is None and classes == source.info.classes:
        return
    try:
        of_source = known()
    except UsageError:
        of_source = None
    options = [] if of_source is None else _source_options(of_source, source)
    if options:
        raise _other_options(there, options, of_source, source)
    if differing is not None:
        name, was, now = differing
        # An append would refuse them too.
        what = f"other fields ({name}: {shown_field(was)} then, {shown_field(now)} now)"
        raise _other_source(there, what, None, source)
    appendable = of_source if classes is not None and source.info.classes is not None else None
    raise _other_source(there, f"other classes ({_classes(classes, source.info.classes)})", appendable, source)


def check_source(there: There, known: Known, source: Source) -> None:
    """Raise UsageError, naming the options or the first files that differ, where it was made of another source."""
    if known.digest == source_digest(source):
        return
    options = _source_options(known, source)
    if options:
        raise _other_options(there, options, known, source)
    was, now = _files(known, source)
    if was is None or now is None:
        raise _other_source(there, "another source: its files, their times or their order differ", known, source)
    if _are_frames(source, now) and not _moved(was, now):
        # Frames of the same videos, and the options of then were not noted.
        raise _other_options(there, ["other frames of the same videos: --fps, --every, --start, --end or "
                                     "--max-frames was another"], None, source)  # fmt: skip
    lines = [f"could not be looked into then: {key}" for key in was if key not in now and _unread(key, was)]
    lines += [f"cannot be looked into now: {key}" for key in now if key not in was and _unread(key, now)]
    lines += [f"added: {key}" for key in now if key not in was and not _unread(key, now)]
    lines += [f"removed: {key}" for key in was if key not in now and not _unread(key, was)]
    lines += [f"changed: {key}" for key in now if key in was and was[key] != now[key]]
    shown = "; ".join(plain(line) for line in lines[:_SHOWN])
    more = f"; and {len(lines) - _SHOWN:,} more" if len(lines) > _SHOWN else ""
    if known.root and known.root != source.info.root and not set(was) & set(now):
        shown, more = f"{plain(known.root)} then, {plain(source.info.root)} now", ""
    raise _other_source(there, f"another source ({shown or 'other files, fields or order'}{more})", known, source)


def mixes_videos(source: Source, had: Any) -> bool:
    """Whether an append would add frames of videos of which the store has others: by another --fps, say.

    had: (n,) of bool: which samples of the source the store has.
    """
    if source.info.kind != "video":
        return False
    groups = {group_of(source, i) for i, known in enumerate(had) if known}
    return any(not known and group_of(source, i) in groups for i, known in enumerate(had))


def _other_options(there: There, differing: list[str], known: Known | None, source: Source) -> UsageError:
    what = "; ".join(differing)
    if there.finished:
        cures = ["name another destination", *_growing(there, known, source), there.restart]
        return UsageError(
            f"{there.name} is a finished store ({there.holds}), packed with other options ({what}): {_either(cures)}"
        )
    cures = ["give the same options to resume", "name another destination", there.restart]
    return UsageError(f"{there.name} was begun with other options ({what}): {_either(cures)}")


def _other_source(there: There, what: str, known: Known | None, source: Source) -> UsageError:
    if there.finished:
        cures = ["name another destination", *_growing(there, known, source), there.restart]
        return UsageError(f"{there.name} is a finished store ({there.holds}), packed from {what}: {_either(cures)}")
    cures = ["name another destination", there.restart]
    return UsageError(f"{there.name} was begun with {what}: {_either(cures)}")


def _either(cures: list[str]) -> str:
    """All but the last are what to do; the last deletes something, and stands apart."""
    return f"{', or '.join(cures[:-1])}. {cures[-1]}"


def _growing(there: There, known: Known | None, source: Source) -> list[str]:
    """What appending would do, where it does something and mixes nothing."""
    if not there.grows or known is None or source.info.kind == "store" or _source_options(known, source):
        return []
    was, now = _files(known, source)
    if was is None or now is None:
        return ["add what is new with `rawpack append --skip-existing`"]
    if source.info.kind == "video" and (
        known.options is None or mixes_videos(source, [source.key(i) in was for i in range(len(source))])
    ):
        return []
    new = sum(key not in was and not _unread(key, now) for key in now)
    if not new:
        return []
    if new == len(now):
        return [f"add {_these(new)} with `rawpack append`"]
    return [f"add the {text.count(new, 'new sample')} with `rawpack append --skip-existing`"]


def _these(samples: int) -> str:
    return "this sample" if samples == 1 else f"these {samples:,} samples"


def _files(known: Known, source: Source) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Key -> state of each file, then and now; None where they are too many."""
    was = known.files() if len(source) <= LISTED else None
    if was is None:
        return None, None
    keys = [source.key(i) for i in range(len(source))]
    return was, dict(zip(keys, of_samples(source.states(), len(keys)), strict=True))


def _unread(key: str, files: Mapping[str, Any]) -> bool:
    """Whether this is no file that was found, but a place that could not be looked into."""
    return files[key][0] == NOT_SCANNED or key.endswith("/")


def _are_frames(source: Source, now: Mapping[str, Any]) -> bool:
    return source.info.kind == "video" and bool(now)


def _moved(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether there are videos of which only one of two sources has frames."""
    return {key.rpartition("#")[0] for key in was} != {key.rpartition("#")[0] for key in now}


def _comparable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as one value compares with another: lists as tuples; of stores that it is made of the digests, which
    decide the rest."""
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "origin":
            found[name] = tuple(one.get("digest") if isinstance(one, dict) else one for one in value)
        else:
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options that differ: those that a user gives, and not those that follow from one of them."""
    was, is_ = _comparable(before), _comparable(now)
    found = []
    for name in _OPTIONS:
        then, here = was.get(name), is_.get(name)
        derived = (name in _OF_SOME and None in (then, here)) or (
            name in _OF_FORMAT and was.get("format") != is_.get("format")
        )
        if then != here and not derived:
            found.append(f"--{name.replace('_', '-')} was {_shown(name, then)}, now {_shown(name, here)}")
    return found


def _libraries(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The libraries whose versions differ."""
    was, here = before.get("libraries"), now.get("libraries")
    was, here = (one if isinstance(one, dict) else {} for one in (was, here))
    return [
        f"{name} was {text.plain(str(was[name]))}, now {here[name]}"
        for name in sorted({*was} & {*here})
        if was[name] != here[name]
    ]


def _source_options(known: Known, source: Source) -> list[str]:
    """The options of the source that differ; none where those of then are not known."""
    if known.options is None:
        return []
    was, now = known.options, source.info.options
    return [
        f"{name} was {text.plain(str(was.get(name, 'not given')))}, now {text.plain(now.get(name, 'not given'))}"
        for name in dict.fromkeys([*was, *now])
        if was.get(name) != now.get(name)
    ]


def _shown(name: str, value: Any) -> str:
    """The value of an option, as a user writes it."""
    if name == "fast":
        return "given" if value else "not given"
    if value is None:
        return "none" if name == "compression" else "not given"
    if name == "crop" and isinstance(value, tuple):
        return ",".join(map(str, value))
    if name == "size" and isinstance(value, tuple):
        return "x".join(map(str, value))
    if name == "shard_size" and isinstance(value, int):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"{value // size}{unit}"
    return text.plain(str(value))


def _classes(was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> str:
    if was is None or now is None:
        return "none then" if was is None else "none now"
    lines = [f"added: {name}" for name in now if name not in was]
    lines += [f"removed: {name}" for name in was if name not in now]
    return text.listed(lines, _SHOWN, separator="; ") or "their order"


def _amount(samples: int | None, size: int) -> str:
    return text.size(size) if samples is None else f"{text.count(samples, 'sample')}, {text.size(size)}"


def _held(path: Path) -> tuple[bool, int | None, int]:
    """Whether a store is finished, and its samples, None where they are not known, and bytes; of one that is not
    finished, of what is packed so far."""
    size = destinations.own_bytes(path)
    try:
        if destinations.is_finished(path):
            return True, manifests.load(path)[0].samples, size
        records = (read_record(path, int(one.stem.removeprefix("part-"))) for one in path.glob(f"{WORK}/part-*.done"))
        return False, sum(record.rows for record in records if record is not None), size
    except (OSError, ValueError, RawpackError):
        return destinations.is_finished(path), None, size
