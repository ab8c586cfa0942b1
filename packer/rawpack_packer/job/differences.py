"""Says in which respect a job differs from the one that made, or began, its destination, and what the user can do.

Last, a message suggests `--restart` and says what that would delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.splits import read_splits
from rawpack.errors import DecodeError, PackError, RawpackError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.journal import AppendNote, JobNote, finished_job
from rawpack_packer.options import RECIPE, Named, opt
from rawpack_packer.options.option import as_text
from rawpack_packer.provenance import packing_runs
from rawpack_packer.recipe import in_these_words
from rawpack_packer.sources import Table
from rawpack_packer.sources.base import differing_field
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

_SHOWN = 3


class StoreState(msgspec.Struct, frozen=True):
    """What is at a destination, for messages that refuse to resume it."""

    name: str
    """The destination's."""
    finished: bool
    restart: str
    """What `--restart` does."""
    holds: str = ""
    """The size of what is finished: "2,000 samples, 1.2 GB"."""
    kind: str = "store"

    def refusal(self, what: str, *, resume: bool = False, append: bool = False) -> UsageError:
        """The error for a job that differs. what: the difference. resume: whether the user can undo it; append: whether
        `rawpack append` could add what is new."""
        state = f"is a finished {self.kind} ({self.holds})" if self.finished else "was begun"
        cures = ["give the same options to resume"] if resume and not self.finished else []
        cures += ["name another destination"]
        cures += ["add what is new with `rawpack append --skip-existing`"] if append and self.finished else []
        return UsageError(f"{self.name} {state}, and {what}: {', or '.join(cures)}. {self.restart}")


def store_at(path: Path, shown_as: str = "") -> StoreState:
    """The store in a folder, finished or begun. shown_as: its name, where that is not the folder's,
    as of a URL."""
    finished, holds = destinations.is_finished(path), _holds([path])
    splits = None if shown_as else read_splits(path.parent)
    if splits is not None and path.name in splits.splits:
        restart = set_at(path.parent).restart
    else:
        what = "this store" if finished else "what was packed so far"
        restart = f"{opt.restart} deletes {what} ({holds}) and packs again"
    return StoreState(shown_as or str(path), finished, restart, holds)


def set_at(path: Path) -> StoreState:
    """The set of splits in a folder."""
    splits = read_splits(path)
    stores = [path / name for name in (() if splits is None else splits.splits)]
    finished, holds = all(map(destinations.is_finished, stores)), _holds(stores)
    restart = f"{opt.restart} deletes all splits in {path} ({holds}) and packs again"
    return StoreState(str(path), finished, restart, holds, "set of splits")


def check_same(job: Job, before: JobNote | Manifest) -> None:
    """Raise UsageError where what is in a job's destination was made, or begun, by another recipe or from another
    source. before: what is there.

    An append is compared by recipe and source only: fields are the store's, and its source may have further classes
    since.
    """
    noted = finished_job(job.destination, before) if isinstance(before, Manifest) else before
    source, classes, names = job.source, noted.classes, job.source.info.classes
    if isinstance(before, Manifest) and classes and names and len(packing_runs(before)) > 1:
        classes = classes[: len(names)]  # an append adds classes at the end
    is_append = isinstance(noted, AppendNote)
    recipe, options_differ = _recipe(noted.recipe, job.recipe.as_manifest()), noted.options != dict(source.info.options)
    undoable, addable = bool(recipe) or options_differ, False
    if recipe:
        what = f"the recipe differs: {', '.join(recipe)}"
    elif options_differ:
        what = "the options of the source differ"
    elif not is_append and (field := differing_field(noted.fields, job.fields)) is not None:
        what = f"the fields differ: {field[0]}"
    else:
        # An append adds nothing to as many samples, of which one was changed or which have another class, unless some
        # were rejected and are fixed.
        fixed = isinstance(before, Manifest) and before.rejects.count > 0
        addable = (len(source) != noted.samples or fixed) and source.info.kind != "store" and not job.shown_as
        addable = addable and (classes is None) == (names is None)
        if not is_append and classes != names:
            differing = _unlike(_numbers(classes), _numbers(names))
            what = f"the classes differ: {text.listed(differing, _SHOWN) or 'their order'}"
        elif len(source) != noted.samples:
            what = f"the source differs: {text.count(len(source), source.info.noun)} now, {noted.samples:,} then"
        elif noted.digest != job.digest:
            what = "the source differs: its files, their times or their order"
        elif changed(noted.probe, source):
            what = "its dataset returned other samples than now: its code or its data changed"
        else:
            return
    if is_append:
        restart = f"{opt.restart} deletes what this append has packed so far, and begins it again; the store stays"
        state = StoreState(f"an append to {job.destination}", finished=False, restart=restart)
    else:
        state = store_at(job.destination, job.shown_as)
    raise state.refusal(what, resume=undoable, append=addable)


def _recipe(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of a recipe differs: options, else libraries."""
    was, here, differs = _comparable(before), _comparable(now), options_unlike(before, now)
    if not differs and was != here:
        then, value = was.get("libraries") or {}, here.get("libraries") or {}
        differing = _unlike(then, value) if isinstance(then, dict) else []
        differs = [f"{name} was {plain(str(then.get(name)))}, now {value.get(name)}" for name in differing]
        differs = differs or ["the stores that it is made of"]
    return differs


def options_unlike(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options of two recipes that differ and that a user gives, without what follows from one of them, and what
    each was before."""
    was, here, differs = _comparable(before), _comparable(now), list[str]()
    same_format = was.get("format") == here.get("format")
    for option in RECIPE:
        then, value = was.get(option.name), here.get(option.name)
        follows = option.follows and None in (then, value)
        if then != value and not follows and (same_format or not (option.follows or option.of_some_formats)):
            shown = (
                ("given" if then else "not given")
                if option.is_flag
                else (option.off or "not given")
                if then is None
                else then
            )
            shown = ("," if option.name == "crop" else "x").join(map(str, shown)) if isinstance(shown, tuple) else shown
            differs.append(f"{Named(option.name)} was {plain(option.also.get(str(shown), str(shown)))}")
    return differs


def _comparable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as one value compares with another: lists as tuples, sizes by field as one text; of the stores that it
    is made of, the digests."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in in_these_words(recipe).items()}
    sizes = values.pop("sizes", None)
    if isinstance(sizes, dict):
        values["size"] = as_text({"image": values.get("size"), **sizes}, "x")
    if "origin" in values:
        values["origin"] = tuple(base.get("digest") if isinstance(base, dict) else base for base in values["origin"])
    return values


def _numbers(classes: Iterable[str] | None) -> dict[str, int]:
    return {name: number for number, name in enumerate(classes or ())}


def _unlike(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names whose values differ."""
    return [name for name in {**now, **was} if was.get(name) != now.get(name)]


def _holds(stores: Iterable[Path]) -> str:
    """What is in stores: "2,000 samples, 1.2 GB"; of those that are not finished, only the bytes are known."""
    stores = list(stores)
    try:
        loaded = [manifests.load(path)[0] for path in stores]
    except (OSError, RawpackError):
        return text.size(sum(map(destinations.own_bytes, stores)))
    return _sized(loaded)


def _sized(loaded: Sequence[Manifest]) -> str:
    samples, size = sum(each.samples for each in loaded), sum(each.store_bytes for each in loaded)
    return f"{text.count(samples, 'sample')}, {text.size(size)}"


_READ_AGAIN = 8
"""How often samples that differ are read to see whether they differ each time: a flip is made half of the time."""


def probe(source: Table) -> str:
    """A digest of the first, the middle and the last sample of a Python dataset; "" for a source that knows the states
    of what it reads."""
    rows = source.probes().tolist()
    return xxhash.xxh3_64_hexdigest(" ".join(_digest(source, i) for i in rows).encode()) if rows else ""


def changed(before: str, source: Table) -> bool:
    """Whether a dataset returns other samples than to an earlier run; False where they differ each time that they are
    read, so that nothing can be said. before: the `probe` of that run."""
    now = probe(source) if before else ""
    return before != now and all(probe(source) == now for _ in range(_READ_AGAIN))


def unsteady(source: Table) -> str:
    """What is wrong with a dataset that returns another sample each time that it is asked for one: the first, the
    middle and the last are read twice. "" for none, and for what knows the states of what it reads."""
    if not len(source.probes()):
        return ""
    count = len(source)
    rows = sorted({0, (count - 1) // 2, count // 2, count - 1})
    first, again = ([_digest(source, i) for i in rows] for _ in range(2))
    differing = [source.key(i) for i, before, after in zip(rows, first, again, strict=True) if before != after]
    if not differing:
        return ""
    return (
        f"{source.info.root}: {len(differing)} of {text.count(len(rows), 'sample')} differed when read twice, such as "
        f"{plain(differing[0])}: if its __getitem__ augments at random, all epochs would get the same draw of it; pack "
        "it without, and augment while reading, by transform= of Reader.batches"
    )


def _digest(source: Table, i: int) -> str:
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
