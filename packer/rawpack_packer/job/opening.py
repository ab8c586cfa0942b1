"""Opens what a user wants to pack: a path, a dataset in memory, or an opened source; and makes the recipe of the user's
options and the source."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import msgspec
import numpy as np

from rawpack.checks import whole_number
from rawpack.errors import PackError, RawpackError, UsageError
from rawpack.remote.url import is_url
from rawpack.system import writing
from rawpack.system.user import warn
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination import journal
from rawpack_packer.destination.files import SPOOL, WORK
from rawpack_packer.destination.lock import alone
from rawpack_packer.job.differences import unsteady
from rawpack_packer.job.options import RunOptions
from rawpack_packer.options import opt
from rawpack_packer.recipe import DEFAULT_FORMAT, Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import (
    LEFT_OUT,
    AnnotatedError,
    DividedError,
    open_source,
)
from rawpack_packer.sources.base import Scanning, Source, unseen
from rawpack_packer.sources.doubts import SplitColumnError, add_doubts, refuse_split_column
from rawpack_packer.sources.table.foreign import as_table
from rawpack_packer.sources.table.objects import UnknownFormError
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import again, plain, size

if TYPE_CHECKING:
    from rawpack.store.store import Store
    from rawpack_packer.sources.table.remote_files import Spool


Named = str | os.PathLike[str]
_OF_DATASETS = ("fields", "image", "classes", "keys", "names", "label_column")
"""Keywords that describe a dataset in memory."""


def paths_of(source: Any) -> list[str | Path]:
    """The paths that the destination must not overlap; a dataset has none."""
    if isinstance(source, str | os.PathLike):
        return [] if is_url(source) else [os.fspath(source)]
    return list(source.info.paths) if isinstance(source, Source) else []


def open_given(
    source: Any,
    source_options: Mapping[str, Any],
    run_options: RunOptions,
    recipe: Mapping[str, Any] | None,
    place: Path,
    destination: str,
    *,
    other: Sequence[str] = (),
    spool: Spool | None = None,
    split: str = "",
    divided: bool = False,
    scan: Scanning = unseen,
) -> Table:
    """The source that a user gave, ready for workers: of a stream, all samples are taken first, see `sources.stream`.
    recipe: what the user said; None where a store says it all. place: the folder that is packed into. destination,
    other: of the command that an error names, see `DividedError`. spool: what fetches a source behind URLs; None is a
    new one. split: which one of several in `place` the source is. divided: see `open_source`."""
    if isinstance(source, str | os.PathLike):
        spool = spool or spool_of(place, run_options)
        try:
            opened = open_path(
                source, source_options, destination=destination, other=other, spool=spool, divided=divided, scan=scan
            )
        except RawpackError:
            if is_url(source) and (kept := destinations.own_bytes(spool.folder)):
                what = f"{size(kept)} that were fetched stay in {spool.folder} for the next run"
                run_options.progress.waits(f"{what}; remove the folder if there is none")
            raise
        if run_options.strict and any(opened.info.counts.get(name) for name in LEFT_OUT):
            differ = "; ".join(opened.info.problems)
            raise UsageError(
                f"{opened.info.root} differs from its folder: {differ}; leave out {opt.strict} to pack the rest"
            )
    else:
        opened = _open_data(source, source_options, run_options, recipe, place, split=split, divided=divided, scan=scan)
    if run_options.strict and (doubts := (*opened.info.left_out, *opened.info.doubts)):
        raise UsageError(f"{opened.info.root}: {doubts[0]}; or leave out {opt.strict} to pack it as it is")
    return opened


def _open_data(
    source: Any,
    source_options: Mapping[str, Any],
    run_options: RunOptions,
    recipe: Mapping[str, Any] | None,
    place: Path,
    *,
    split: str,
    divided: bool,
    scan: Scanning,
) -> Table:
    """The source of `open_given` that is in memory: an opened one, a dataset or a stream."""
    if isinstance(source, bytes | bytearray):
        raise UsageError("the source is bytes: a path is a str or a Path, image files in memory are a list of bytes")
    options = {name: value for name, value in source_options.items() if value is not None and value is not False}
    limit = options.pop("limit", None)
    for name, value in options.items():
        if name not in _OF_DATASETS:
            cure = f"call that column 'key', or pass keys=source[{value!r}]" if name == "key_column" else "leave it out"
            raise UsageError(f"{name}= applies to a path only, and the source is a {type(source).__name__}: {cure}")
    if isinstance(source, Source):
        if options:
            raise UsageError(f"{', '.join(f'{name}=' for name in options)}: this source knows its own")
        return _limited(as_table(source), limit)
    colors = recipe is None or recipe.get("color") is not None
    scaled = recipe is not None and recipe.get("size") not in (None, "keep") and recipe.get("fit") != "whole"
    sized = None if recipe is None else scaled or recipe.get("crop") is not None
    from rawpack_packer.sources.dataset import open_dataset
    from rawpack_packer.sources.stream import is_stream

    of_dataset = partial(open_dataset, colors=colors, sized=sized, progress=scan)
    if is_stream(source, here=run_options.workers == 0 and run_options.engine is None):
        options = {**options, "limit": limit}
        opened = _taken(source, options, run_options, place, of_dataset, split=split, adds=recipe is None)
        add_doubts(opened, options)
        return opened
    dataset = of_dataset(source, **options)
    if not divided:
        refuse_split_column(dataset, None, options)
    add_doubts(dataset, options)
    if not dataset.in_order and (differs := unsteady(dataset)):
        if run_options.strict:
            raise UsageError(f"{differs}; or leave out {opt.strict} to pack it as it is")
        warn(differs)
    if run_options.workers != 0:
        _check_travels(dataset)
    return _limited(dataset, limit)


def open_addition(
    source: Any,
    source_options: Mapping[str, Any],
    run_options: RunOptions,
    store: Store,
    *,
    other: Sequence[str],
    scan: Scanning,
) -> Table:
    """The source that a user gave, to be appended to a store: if nothing else says how its boxes are written, they are
    as those that the store was packed from. See `open_given`."""
    opened = partial(
        open_given, source, run_options=run_options, recipe=None, place=store.path, destination="NEW", divided=True
    )
    try:
        return opened(source_options, other=other, scan=scan)
    except UnknownFormError as error:
        words = journal.finished_job(store.path, store.manifest).options.get("--field", "").split(", ")
        form = next((word for word in words if word.rpartition(":")[0] == error.column), None)
        if form is None:
            raise
        fields: Any = source_options.get("fields", ())
        form_of_column = {error.column: form.rpartition(":")[2]}
        more = {**fields, **form_of_column} if isinstance(fields, Mapping) else (*fields, form)
        return opened({**source_options, "fields": more}, other=other, scan=scan)


def open_path(
    path: Named,
    source_options: Mapping[str, Any],
    *,
    destination: str = "DST",
    other: Sequence[str] = (),
    spool: Spool | None = None,
    divided: bool = False,
    scan: Scanning = unseen,
) -> Table:
    """The source at a path. destination, other: of the command that an error names, see `DividedError`. spool: what
    fetches archives behind URLs; None refuses URLs."""
    options = {name: value for name, value in source_options.items() if name != "limit"}
    try:
        opened = open_source(path, spool=spool, progress=scan, divided=divided, **options)
    except (DividedError, AnnotatedError, SplitColumnError) as error:
        raise error.asked(destination, other) from None
    return _limited(opened, source_options.get("limit"))


def _limited(source: Table, limit: Any) -> Table:
    """At most this many samples, evenly spaced, and what could not be read. limit: None for all."""
    if limit is None:
        return source
    number = whole_number("limit", limit, 1)
    if is_of_stores(source):
        raise UsageError(
            f"{opt.limit} applies to sources that are not stores: `rawpack subset --limit` takes samples of one"
        )
    rows = np.setdiff1d(np.arange(len(source)), source.unread)
    if len(rows) <= number:
        return source
    chosen = rows[np.arange(number) * len(rows) // number]
    options = {**source.info.options, "--limit": str(number)}
    return source.take(np.union1d(chosen, source.unread), options=options)


def spool_of(place: Path, run_options: RunOptions, options: Mapping[str, Any] | None = None) -> Spool:
    """What fetches a source behind URLs into the work folder of a destination, where an earlier run may have kept what
    it found in archives. options: fsspec's `storage_options`."""
    from rawpack_packer.progress import Fetching
    from rawpack_packer.sources.table.remote_files import Spool

    folder = place / WORK / SPOOL
    free = destinations.free_bytes(place) + destinations.own_bytes(folder)
    spool = Spool(folder, free // 2, options)
    spool.progress = Fetching(run_options.progress)
    return spool


def _taken(
    stream: Any,
    chosen: dict[str, Any],
    run_options: RunOptions,
    place: Path,
    opened: Callable[..., Table],
    *,
    split: str,
    adds: bool,
) -> Table:
    """The samples of a stream, taken into the work folder of a destination. opened: gives the source of a dataset.
    adds: whether the destination is a store that is appended to."""
    from rawpack_packer.progress import Taking
    from rawpack_packer.sources.dataset_forms import attribute, classes_by, image_attribute, names_by
    from rawpack_packer.sources.stream import StreamOptions, begin, take

    called = plain(type(stream).__name__)
    folder = (place / WORK / SPOOL / f"stream{split and '-'}{split}").absolute()  # for workers on other machines
    limit, keys = chosen.pop("limit", None), chosen.pop("keys", None)
    fields = {**(attribute(stream, "fields", Mapping) or {}), **chosen.get("fields", {})}
    chosen = {"image": image_attribute(stream), **chosen, "fields": fields}
    names, number = chosen.pop("names", None), None if limit is None else whole_number("limit", limit, 1)
    names = names_by(stream, names, fields) if isinstance(names, Mapping | None) else tuple(names)
    packed = None if adds or run_options.restart else journal.states_of_finished(place / split)
    how = StreamOptions(called, names, number, packed, run_options.restart, classes_by(stream, names))
    samples = begin(stream, how, lambda first: opened([first], **chosen, names=names, root=f"<{called}>"))
    taking = Taking(run_options.progress)
    try:
        writing.make_folder(folder)
        with alone(folder / "lock", f"reading a stream into {place}"):
            try:
                dataset = take(samples, folder, how, taking.show)
                source = opened(dataset, **chosen, keys=keys, root=f"<{called} of {len(dataset)} samples>")
            except UsageError:
                if packed is not None:
                    destinations.remove_spool(folder)
                raise
    except OSError as error:
        raise PackError(
            f"packing into {place} stopped: {error.strerror or error}; all samples of the {called} are kept in "
            f"{folder} until the store is finished, {size(destinations.own_bytes(folder))} so far; once that is fixed, "
            f"{again()} with a new one resumes"
        ) from error
    finally:
        taking.end()
    if number is not None:
        source.info = replace(source.info, options={**source.info.options, "--limit": str(number)})
    return source


def _check_travels(source: Table) -> None:
    try:
        cloudpickle.dumps(source.part(0, 1))
    except Exception as error:
        raise UsageError(
            f"{source.info.root} cannot be sent to worker processes ({type(error).__name__}: {error}); open files "
            "where they are read, or pass workers=0"
        ) from error


def recipe_for(source: Table, options: Mapping[str, Any]) -> Recipe:
    """The recipe from what a user wrote. The source decides what was left out or is None."""
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if is_of_stores(source):
        chosen = as_stored(source, chosen)
    elif _is_gray(source):
        chosen.setdefault("color", "gray")
    image = source.info.image
    chosen.setdefault("size", "256" if image is None or image.resized else "keep")
    recipe = make_recipe(**chosen)
    if is_of_stores(source):
        from rawpack_packer.sources.store import store_rows

        recipe = msgspec.structs.replace(recipe, origin=store_rows(source).origin)
    return recipe


def is_of_stores(source: Table) -> bool:
    """Whether samples come from stores; the code for that is loaded then only."""
    if source.info.kind != "store":
        return False
    from rawpack_packer.sources.store import StoreRows

    return isinstance(source.rows.images, StoreRows)


def as_stored(source: Table, options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, with the size, color and quality that leave a store's images as they are."""
    from rawpack_packer.sources.store import store_rows

    stores = store_rows(source)
    written = output_format(options.get("format", DEFAULT_FORMAT))
    gray, planes = _is_gray(source), stores.holds_planes and "ycgco420" in written.colors
    whole = {"size": "keep", "color": "gray" if gray else "ycgco420" if planes else "rgb", **options}
    as_they_are = whole["size"] == "keep" and "crop" not in options and gray == (whole["color"] == "gray")
    encoded = not options.keys().isdisjoint(("subsampling", "jpeg_tables"))
    if "quality" in written.options and stores.holds_jpeg and as_they_are and not encoded:
        whole.setdefault("quality", "keep")
    return whole


def _is_gray(source: Table) -> bool:
    image = source.info.image
    return image is not None and image.pictures and image.shape[2] == 1
