"""Says in which respect a job differs from the one that made, or began, its destination, and what the user can do.

Last, a message suggests `--restart` and says what that would delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.provenance import packing_runs
from rawpack.disk.splits import read_splits
from rawpack.errors import DecodeError, PackError, RawpackError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.journal import LISTED, AppendNote, JobNote, Known, finished_source, of_samples
from rawpack_packer.options import RECIPE
from rawpack_packer.options.naming import Named, opt
from rawpack_packer.sources import Source
from rawpack_packer.sources.base import probes_of
from rawpack_packer.sources.compatible_stores import differing_field
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

_SHOWN = 3


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
        state = f"is a finished {self.kind} ({self.holds})" if self.finished else "was begun"
        cures = ["give the same options to resume"] if resume and not self.finished else []
        cures += ["name another destination", *([append] if append else [])]
        return UsageError(f"{self.name} {state}, and {what}: {', or '.join(cures)}. {self.restart}")


def store_at(path: Path, called: str = "") -> There:
    """The store in a folder, finished or begun. called: its name, where that is not the folder's, as of a URL."""
    finished, holds = destinations.is_finished(path), _holds([path])
    splits = None if called else read_splits(path.parent)
    if splits is not None and path.name in splits.splits:
        restart = set_at(path.parent).restart
    else:
        what = "this store" if finished else "what was packed so far"
        restart = f"{opt.restart} deletes {what} ({holds}) and packs again"
    return There(called or str(path), finished, restart, holds)


def set_at(path: Path) -> There:
    """The set of splits in a folder."""
    splits = read_splits(path)
    stores = [path / name for name in (() if splits is None else splits.splits)]
    finished, holds = all(map(destinations.is_finished, stores)), _holds(stores)
    restart = f"{opt.restart} deletes all splits in {path} ({holds}) and packs again"
    return There(str(path), finished, restart, holds, "set of splits")


def check_same(job: Job, before: JobNote | Manifest) -> Compared:
    """Raise UsageError where what is in a job's destination was made, or begun, by another recipe or from another
    source. before: what is there. Returns what reading some samples of a dataset again showed.

    An append is compared by recipe and source only: fields are the store's, and its source may have further classes
    since.
    """
    path, source = job.destination, job.source
    classes, names = before.classes, source.info.classes
    if isinstance(before, Manifest) and classes and names and len(packing_runs(before)) > 1:
        classes = classes[: len(names)]  # an append adds classes at the end
    field = differing_field(before.fields, job.fields)
    if isinstance(before, AppendNote):
        field, classes = None, names
    recipe, known, append, compared = _recipe(before.recipe, job.recipe.as_manifest()), None, "", Compared()
    try:
        known = before.source() if isinstance(before, JobNote) else finished_source(path, before)
    except UsageError:
        if not recipe and field is None and classes == names:
            raise
    options = [] if known is None or known.options is None else _unlike(known.options, source.info.options)
    if not recipe and not options and field is None and classes == names and known and known.digest == job.digest:
        compared = compare(known.probes, source)
        if not compared.changed:
            return compared
    if isinstance(before, AppendNote):
        restart = f"{opt.restart} deletes what this append has packed so far, and begins it again; the store stays"
        there = There(f"an append to {path}", finished=False, restart=restart)
    else:
        there = store_at(path, job.called)
    if recipe:
        what = f"the recipe differs: {', '.join(recipe)}"
    elif options and known and known.options:
        was = [f"{name} was {plain(known.options.get(name, 'not given'))}" for name in options]
        what = f"the options of the source differ: {', '.join(was)}"
    elif field is not None:
        what = f"the fields differ: {field[0]}"
    else:
        if there.finished and not job.called and (classes is None) == (names is None):
            append = _append(known, source)
        if compared.changed:
            key = plain(compared.changed)
            what = f"its dataset returned another sample {key} than now: its code or its data changed"
        elif classes != names:
            what = f"the classes differ: {_shown(_unlike(_numbers(classes), _numbers(names)))}"
        else:
            what = f"the source differs: {_shown(_files(known, source))}"
    raise there.refusal(what, resume=bool(recipe or options), append=append)


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
    if source.info.kind == "store":
        return ""
    if known is not None and known.keys is not None:
        was = set(known.keys)
        had = [key in was for key in _keys(source)]
        if all(had) or mixes_videos(source, had):
            return ""
    return "add what is new with `rawpack append --skip-existing`"


def _recipe(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of a recipe differs: options that a user gives, and not what follows from one of them; else libraries."""
    was, here, found = _comparable(before), _comparable(now), list[str]()
    same_format = was.get("format") == here.get("format")
    for one in RECIPE:
        then, value = was.get(one.name), here.get(one.name)
        follows = one.follows and None in (then, value)
        if then != value and not follows and (same_format or not (one.follows or one.of_some_formats)):
            given = ("given" if then else "not given") if one.is_flag else "not given" if then is None else then
            given = ("," if one.name == "crop" else "x").join(map(str, given)) if isinstance(given, tuple) else given
            found.append(f"{Named(one.name)} was {plain(str(given))}")
    if not found and was != here:
        then, value = was.get("libraries") or {}, here.get("libraries") or {}
        differing = _unlike(then, value) if isinstance(then, dict) else []
        found = [f"{name} was {plain(str(then.get(name)))}, now {value.get(name)}" for name in differing]
        found = found or ["the stores that it is made of"]
    return found


def _comparable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as one value compares with another: lists as tuples; of the stores that it is made of, the digests."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in recipe.items()}
    if "origin" in found:
        found["origin"] = tuple(one.get("digest") if isinstance(one, dict) else one for one in found["origin"])
    return found


def _files(known: Known | None, source: Source) -> list[str]:
    """The keys of files that differ; none where they are too many."""
    was = known.files() if known is not None and len(source) <= LISTED else None
    now = dict(zip(keys := _keys(source), of_samples(source.states(), len(keys)), strict=True)) if was else {}
    return _unlike(was or {}, now)


def _keys(source: Source) -> list[str]:
    return [source.key(i) for i in range(len(source))]


def _numbers(classes: Iterable[str] | None) -> dict[str, int]:
    return {name: number for number, name in enumerate(classes or ())}


def _unlike(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names whose values differ."""
    return [name for name in {**now, **was} if was.get(name) != now.get(name)]


def _shown(names: list[str]) -> str:
    return text.listed(names, _SHOWN) or "its files, their times or their order"


def _holds(stores: Iterable[Path]) -> str:
    """What is in stores: "2,000 samples, 1.2 GB"; of those that are not finished, only the bytes are known."""
    stores = list(stores)
    try:
        found = [manifests.load(path)[0] for path in stores]
    except (OSError, RawpackError):
        return text.size(sum(map(destinations.own_bytes, stores)))
    samples, size = sum(one.samples for one in found), sum(one.store_bytes for one in found)
    return f"{text.count(samples, 'sample')}, {text.size(size)}"


_READ_AGAIN = 8
"""How often a sample that differs is read to see whether it differs each time: a flip is made half of the time."""


@dataclass(frozen=True)
class Compared:
    """What reading some samples again showed."""

    changed: str = ""
    """The key of a sample that the dataset returned otherwise to an earlier run; "" for none."""
    random: bool = False
    """Whether a sample differs each time that it is read, so that nothing can be said."""


def probed(source: Source) -> dict[str, str]:
    """Key -> digest of a few samples; empty for a source that knows the states of what it reads."""
    return {source.key(i): _digest(source, i) for i in probes_of(source).tolist()}


def compare(before: Mapping[str, str], source: Source) -> Compared:
    """Read the samples that an earlier run took digests of, as far as they are still those to take."""
    for i in probes_of(source).tolist() if before else []:
        key, digest = source.key(i), _digest(source, i)
        if before.get(key, digest) == digest:
            continue
        if any(_digest(source, i) != digest for _ in range(_READ_AGAIN)):
            return Compared(random=True)
        return Compared(changed=key)
    return Compared()


def _digest(source: Source, i: int) -> str:
    """xxh3_64 over the image and the fields of a sample, as the source returns them; over why it cannot be read."""
    digest = xxhash.xxh3_64()
    try:
        item = source[i]
    except DecodeError as error:
        return f"DecodeError {error.reason}"
    except PackError:
        return "PackError"
    for name, value in [("image", item.image), *sorted(item.fields.items())]:
        digest.update(name.encode("utf-8", "surrogatepass"))
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: xxhash.xxh3_64, value: Value) -> None:
    """Add a value's kind, shape and bytes."""
    form, plain = (value.form, value.rows) if isinstance(value, Boxes) else (type(value).__name__, value)
    data = plain.encode("utf-8", "surrogatepass") if isinstance(plain, str) else plain
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)
    digest.update(f"{form} {array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
