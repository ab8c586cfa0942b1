"""`rawpack_packer.pack`: what the command does, for Python, with any dataset as its source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import cloudpickle

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, local_path
from rawpack_packer.engines import Engine, as_engine
from rawpack_packer.job import holdout as draws
from rawpack_packer.job import splits as sets
from rawpack_packer.job.append import AppendSummary
from rawpack_packer.job.append import append as run_append
from rawpack_packer.job.job import Limits, Progress, Summary
from rawpack_packer.job.job import pack as run
from rawpack_packer.job.upload import pack_to_url
from rawpack_packer.recipe.by_user import recipe_for
from rawpack_packer.sources import OPTIONS, DatasetSource, DividedError, Source, is_source, open_source
from rawpack_packer.sources.dataset import Dataset
from rawpack_packer.sources.kinds import Declared

_ABOUT = ("kind", "fields", "image", "classes", "keys", "names")
"""What `pack` takes that speaks of the source."""


def pack(
    source: str | os.PathLike[str] | Source | Dataset | Mapping[str, Any],
    destination: str | os.PathLike[str],
    *,
    format: str = "memmap",
    size: int | str | None = None,
    kind: str | None = None,
    skip_unreadable: bool = False,
    fields: Mapping[str, Declared] | None = None,
    image: tuple[str, tuple[int | None, ...]] | None = None,
    classes: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    scratch: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **recipe: Any,
) -> Summary:
    """Pack `source` into a store at `destination`; the same call goes on where an earlier one was stopped.

    source: a path, as the command takes it; or any map-style dataset, that is, `len(source)` and `source[i]`: a torch
        Dataset, a list, an array; or a dict of columns, {"image": images, "label": labels}. A sample is a dict with an
        `image` and any fields, a tuple (image, label), or an image alone. An image is an array or tensor, the bytes or
        the path of an image file, or a PIL image, which is packed as its file would be; of these, EXIF turns those that
        are as `PIL.Image.open` gave them.
    size: as the command's; None is 256 for pictures, and "keep" for arrays, which are stored as they are, and for PIL
        images that are all of one size and all grey or all with colors.
    kind: what a path is, as the command's --source: "folder" takes `train` and `val` as classes. None finds it.
    skip_unreadable: of a folder, pack what can be looked into. What cannot is rejected as "not_scanned", and counted in
        the summary as `unread`. Otherwise it is a PackError, with nothing written.
    fields: what fields are, where their first value does not tell: "float32", "float32[?,5]" for arrays that differ in
        length, "mask", "xyxy", "xywh" or "yolo" for boxes, or (dtype, shape).
    image: dtype and shape of images that are arrays, where they differ in size: ("uint8", (None, None, 3)).
    classes: names of the labels. keys: one for each sample, instead of its number. names: what the values of samples
        are called that are tuples; two are (image, label).
    workers: processes, to which the dataset travels by cloudpickle; 0 packs in this one; None takes one for each CPU.
    max_rejects: the largest share of samples that may be rejected, or from 1 on their number.
    engine: what runs the parts, instead of workers here: `rawpack_packer.engines.DaskEngine("tcp://...")`,
        `RayEngine("auto")`, or any `concurrent.futures.Executor`, which stays yours to shut down.
    scratch, storage_options: of a destination that is a URL: the folder on this machine for what is not uploaded yet,
        and what fsspec is to know.
    recipe: the command's other options, with underscores: quality=90, crop="0,0,64,64", ...; and of a path the options
        of its kind of source.

    A sample for which the dataset raises is rejected. A dataset must give the same sample for a number each time: what
    a killed run did is not done again. Raises UsageError with nothing written, PackError where it ran and stopped.
    """
    about = {
        "kind": kind, "skip_unreadable": skip_unreadable or None,
        "fields": fields, "image": image, "classes": classes, "keys": keys, "names": names,
    }  # fmt: skip
    parts_by = as_engine(engine, workers)
    about |= {name: recipe.pop(name) for name in OPTIONS if name in recipe}
    opened = _ready(source, about, workers, colors=recipe.get("color") is not None, destination=destination)
    limits = Limits(workers, max_rejects, strict, restart)
    chosen = recipe_for(opened, {"format": format, "size": size, **recipe})
    if isinstance(destination, str) and is_url(destination):
        if parts_by is not None:
            raise UsageError("engine= writes to a folder that all machines share; what goes to a URL is packed here")
        return pack_to_url(
            opened, destination, chosen, limits, progress=progress, scratch=scratch, storage_options=storage_options
        )
    return run(opened, local_path(destination), chosen, limits, engine=parts_by, progress=progress)


def pack_splits(
    source: str | os.PathLike[str] | Source | Dataset | Mapping[str, Any],
    destination: str | os.PathLike[str],
    *,
    splits: Sequence[str] | None = None,
    holdout: Mapping[str, float | int | str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Summary]:
    """Pack each split of `source` into a store of its own, `destination/train` and so on, with the same classes.

    source: a dict of split -> what `pack` takes; or a path and the names of its `splits`; or what `pack` takes, of
        which `holdout` is drawn, as `{"val": 0.1}`: a share, or from 1 on a number, of each class.
    seed: of the draw. options: as `pack` takes them, for all splits alike.

    The same call goes on where an earlier one was stopped. Raises as `pack`.
    """
    parts_by = as_engine(engine, workers)
    known = {name: options.pop(name) for name in (*_ABOUT, *OPTIONS) if name in options}
    limits = Limits(workers, max_rejects, strict, restart)
    colors = options.get("color") is not None
    if isinstance(source, Mapping) and ("image" not in source or holdout is None):
        if splits is not None or holdout is not None:
            raise UsageError("a dict of splits is divided already: leave splits= and holdout= out")
        chosen = sets.divided(list(source))
        sources = sets.one_numbering({name: _ready(one, known, workers, colors) for name, one in source.items()})
    elif splits is not None and holdout is None and isinstance(source, str | os.PathLike):
        chosen = sets.divided(list(splits))
        sources = sets.open_divided(os.fspath(source), splits, lambda path: _ready(path, known, workers, colors))
    elif holdout is not None and splits is None:
        chosen = sets.drawn(draws.parse_holdout(f"{name}={amount}" for name, amount in holdout.items()), seed)
        sources, _ = sets.draw(_ready(source, known, workers, colors, destination), chosen)
    else:
        raise UsageError("give a dict of splits; or a path and splits=; or holdout=, such as {'val': 0.1}")
    recipes = {name: recipe_for(one, {"format": "memmap", **options}) for name, one in sources.items()}
    limits = sets.begin(Path(destination), sources, recipes, chosen, limits)
    return {
        name: run(one, Path(destination) / name, recipes[name], limits, engine=parts_by, progress=progress)
        for name, one in sources.items()
    }


def append(
    source: str | os.PathLike[str] | Source | Dataset | Mapping[str, Any],
    destination: str | os.PathLike[str],
    *,
    skip_existing: bool = False,
    other_libraries: bool = False,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    **about: Any,
) -> AppendSummary:
    """Add the samples of `source` to the store at `destination`, by the recipe that made it.

    source, and about: what `pack` takes and says of a source. skip_existing: leave out what the store has, by the key.
    other_libraries: also where the libraries that make pixels have other versions now. restart: remove what an append
    left that was stopped, and begin anew; the store stays. Samples without names, as those of arrays, are counted on.

    The same call goes on where an earlier one was stopped. Raises as `pack`.
    """
    unknown = [name for name in about if name not in (*_ABOUT, *OPTIONS)]
    if unknown:
        raise UsageError(f"{unknown[0]}=: the store says how samples are packed; leave it out")
    limits = Limits(workers, max_rejects, strict, restart)
    return run_append(
        _ready(source, about, workers, colors=True),
        destination,
        limits,
        skip_existing=skip_existing,
        other_libraries=other_libraries,
        engine=as_engine(engine, workers),
        progress=progress,
    )


def _ready(
    source: Any,
    about: Mapping[str, Any],
    workers: int | None,
    colors: bool,
    destination: str | os.PathLike[str] = "DST",
) -> Source:
    """The source by what a user wrote, fit to be read by workers. colors: whether that says what these are to be.
    destination: of the command that an error names."""
    try:
        opened = _opened(source, about, colors)
    except DividedError as error:
        where = os.fspath(destination)
        raise error.asked("DST" if is_url(where) else where) from None
    if workers != 0 and isinstance(opened, DatasetSource):
        _check_travels(opened)
    return opened


def _opened(source: Any, about: Mapping[str, Any], colors: bool) -> Source:
    if isinstance(source, bytes | bytearray):
        raise UsageError(
            "the source is bytes: a path is a str or a Path, and image files in memory are a list of bytes"
        )
    if isinstance(source, str | os.PathLike):
        return open_source(source, **about)
    given = {name: value for name, value in about.items() if value is not None and value is not False}
    for name in ("kind", "skip_unreadable"):
        if name in given:
            raise UsageError(
                f"{name}= applies to a path only, and the source is a {type(source).__name__}: leave it out"
            )
    if not is_source(source):
        return DatasetSource(source, **given, colors=colors)
    if given:
        raise UsageError(f"{', '.join(f'{name}=' for name in given)}: this source knows its own")
    whole: Source = source
    return whole


def _check_travels(source: DatasetSource) -> None:
    try:
        cloudpickle.dumps(source.part(0, 1))
    except Exception as error:
        raise UsageError(
            f"{source.root} cannot be sent to worker processes ({type(error).__name__}: {error}); open files where "
            "they are read, or pass workers=0"
        ) from error
