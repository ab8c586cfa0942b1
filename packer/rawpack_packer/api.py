"""The one door into the packer: what the `rawpack` command does, for Python.

`pack`, `pack_splits` and `append` fill stores; `convert`, `merge` and `subset` make a store from stores; `export`
writes samples as files. Each checks its keywords and opens its source before anything is written; the same call resumes
where an earlier one was stopped. `pack_job` and the like write nothing: what they return estimates or runs the job, and
their errors name options of the command.
"""

from __future__ import annotations

import os
import reprlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from rawpack.errors import UsageError
from rawpack.former import reader_now
from rawpack.remote.url import is_url, share_options, shown
from rawpack.system.user import expanded, suggests
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.folder import THEN_COPY, one_store, store_folder, store_folders
from rawpack_packer.job.keyword_types import SourceKeywords
from rawpack_packer.job.keywords import (
    AppendKeywords,
    BenchKeywords,
    DeriveKeywords,
    PackKeywords,
    PlanKeywords,
    by_group,
    from_python,
    names_of,
    takes_paths,
)
from rawpack_packer.job.options import followed_by, parse_run_options
from rawpack_packer.options import opt
from rawpack_packer.progress import Scanning, unseen
from rawpack_packer.text import either, plain, speaking_python

if TYPE_CHECKING:
    from rawpack.reader import Reader
    from rawpack.store.opening import Cache
    from rawpack_packer.exporting import Export, Exported, SplitsExport
    from rawpack_packer.inspect.describe import Description
    from rawpack_packer.inspect.describe_source import SourceDescription
    from rawpack_packer.inspect.doctor import Examined
    from rawpack_packer.inspect.problems import Problem, Problems
    from rawpack_packer.inspect.warm import Warmed
    from rawpack_packer.job.append import Append
    from rawpack_packer.job.derive import Choice, Prefix
    from rawpack_packer.job.job import Job
    from rawpack_packer.job.options import Progress
    from rawpack_packer.job.relabel import Relabeled
    from rawpack_packer.job.summary import AppendSummary, Summary
    from rawpack_packer.sources import Source
    from rawpack_packer.sources.dataset import Dataset
    from rawpack_packer.tune.bench import Bench
    from rawpack_packer.tune.plan import Plan
    from rawpack_packer.tune.trial import Say
    from rawpack_packer.view.background import ServedPage
    from rawpack_packer.view.server import Viewer

__all__ = ["one_store", "store_folders"]

Named = str | os.PathLike[str]
Data: TypeAlias = "str | os.PathLike[str] | Source | Dataset | Mapping[str, Any] | Iterable[Any]"
"""What is packed: see `pack`."""


# ---------------------------------------------------------------------------------------------- jobs


def pack_job(
    source: Data,
    destination: Named,
    *,
    tmp: Named | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scan: Scanning = unseen,
    **options: Unpack[PackKeywords],
) -> Job:
    """The job of `pack`, checked and not begun: its `estimate` says what it needs, and `run` does it. scan: called with
    the number of entries of the source that were looked at."""
    from rawpack_packer.job import opening
    from rawpack_packer.job.job import Job
    from rawpack_packer.job.saved_tables import saved_tables
    from rawpack_packer.recipe import parse_options

    run_options, source_options, recipe = by_group(options)
    recipe = parse_options(recipe)
    url, far = destination if isinstance(destination, str) and is_url(destination) else None, is_url(source)
    if url is not None and run_options.elsewhere:
        raise UsageError(
            f"{shown(url)}: {opt.engine} needs a folder that all machines share; a store at a URL is packed on this "
            "machine"
        )
    if url is not None and far and storage_options and not share_options(str(source), url):
        raise UsageError(
            f"storage_options= would be sent to two hosts, those of {shown(str(source))} and {shown(url)}: set what "
            "each needs in fsspec's configuration, or in the environment"
        )
    if url is None and tmp is not None:
        raise UsageError(f"{opt.tmp} applies to URLs; {os.fspath(destination)} is a folder")
    if url is not None:
        from rawpack_packer.job import upload
    if url is None:
        place = destinations.local_folder(destination, "")  # it is no URL
        destinations.check(place, opening.paths_of(source))
    else:
        place, target = upload.scratch_of(url, tmp), upload.RemoteFolder(url, storage_options or {})
        target.sizes()
    spool = opening.spool_of(place, run_options, storage_options) if isinstance(source, str | os.PathLike) else None
    saved = saved_tables(source, source_options, place, run_options, spool)
    running = run_options.connected()
    opened = opening.open_given(
        source, source_options, running, recipe, place, "DST" if url is not None else os.fspath(destination),
        spool=spool, saved=saved, scan=scan,
    )  # fmt: skip
    sent = None if url is None else upload.Upload(target, place)
    return Job(
        opened, opening.recipe_for(opened, recipe), place, running, saved=saved, upload=sent, checked=url is None
    )


def append_job(
    source: Data,
    destination: Named,
    *,
    skip_existing: bool = False,
    other_libraries: bool = False,
    scan: Scanning = unseen,
    **options: Unpack[AppendKeywords],
) -> Append:
    """The job of `append`, checked and not begun. See `pack_job`."""
    from rawpack_packer.destination.journal import AppendNote
    from rawpack_packer.job import opening
    from rawpack_packer.job.append import Append, open_store
    from rawpack_packer.job.saved_tables import saved_tables

    run_options, source_options, recipe = by_group(options)
    if recipe:
        raise UsageError(f"{next(iter(recipe))}=: the store says how samples are packed; leave it out")
    where = destinations.local_folder(destination, f"append to a store in a folder, {THEN_COPY}")
    store = open_store(where, opening.paths_of(source))
    spool = opening.spool_of(where, run_options) if isinstance(source, str | os.PathLike) else None
    saved = saved_tables(source, source_options, where, run_options, spool, kind=AppendNote)
    run_options, other = run_options.connected(), ("rawpack", "append", "SRC", os.fspath(destination))
    opened = opening.open_addition(
        source, source_options, run_options, store, other=other, spool=spool, saved=saved, scan=scan
    )
    return Append(opened, store, run_options, saved=saved, skip_existing=skip_existing, other_libraries=other_libraries)


def derived_job(
    stores: Sequence[Named],
    destination: Named,
    *,
    merge: bool = False,
    prefix: Prefix | None = None,
    choice: Choice | None = None,
    scan: Scanning = unseen,
    **options: Unpack[DeriveKeywords],
) -> Job:
    """The job of `convert`, `merge` and `subset`, which take all samples of a store, those of several, or a choice;
    checked and not begun. See `pack_job`."""
    from rawpack_packer.job.derive import chosen, merging, recipe_as_before
    from rawpack_packer.job.job import Job
    from rawpack_packer.sources.store import open_stores

    run_options, _, recipe = by_group(options)
    if merge and (isinstance(stores, str | os.PathLike) or len(stores) < 2):
        raise UsageError("merge needs two or more stores; `rawpack convert` copies one")
    place = destinations.local_folder(destination, f"make the store in a folder, {THEN_COPY}")
    paths = [store_folder(os.fspath(store)) for store in stores]
    destinations.check(place, paths)
    run_options = run_options.connected()
    if merge:
        return Job(*merging(paths, recipe, prefix, scan), place, run_options, checked=True)
    source = open_stores(paths[0], progress=scan)
    samples = source if choice is None else chosen(source, choice)
    return Job(samples, recipe_as_before(source, recipe), place, run_options, checked=True)


# ---------------------------------------------------------------------------------------------- in Python


_OF_SPLITS = ("splits", "holdout", "seed", "group_by", "split_by")


@from_python(PackKeywords, elsewhere=dict.fromkeys(_OF_SPLITS, "rawpack.pack_splits"))
def pack(
    source: Data,
    destination: Named,
    *,
    tmp: Named | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[PackKeywords],
) -> Summary:
    """Pack `source` into a store at `destination`; the same call resumes where an earlier one was stopped.

    source: a path, as the command takes it; or any map-style dataset, that is, `len(source)` and `source[i]`: a torch
        Dataset, a list, an array; or a dict of columns, {"image": images, "label": labels}, or a DataFrame; or a
        generator, or what can only be iterated, whose samples are kept beside the store until that is finished. A
        sample is a dict with an `image` and any fields, a tuple (image, label), or an image alone; texts as labels are
        names of classes; torchvision's targets, with boxes, may be labels, too. An image is an array or tensor, the
        bytes or
        the path of an image file, or a PIL image, which is packed as its file would be; of these, EXIF turns those that
        are as `PIL.Image.open` gave them.
    tmp, storage_options: for a destination that is a URL: the folder on this machine for what is not uploaded yet,
        and options for fsspec.
    The other keywords are described below.

    A sample for which the dataset raises is rejected. A dataset must give the same sample for an index each time, and
    a generator the same samples: a run that resumes does not repeat what was done before. Raises UsageError with
    nothing written, PackError where it started and failed. Of a generator, what was read before stays.
    """
    return pack_job(source, destination, tmp=tmp, storage_options=storage_options, **options).run()


@from_python(PackKeywords)
def pack_splits(
    source: Data,
    destination: Named,
    *,
    splits: Sequence[str] | str | None = None,
    holdout: Mapping[str, float | int | str] | str | None = None,
    seed: int | None = None,
    group_by: str | None = None,
    split_by: str | None = None,
    **options: Unpack[PackKeywords],
) -> dict[str, Summary]:
    """Pack each split of `source` into a store of its own, `destination/train` and so on, with the same classes.

    source: a dict of split -> what `pack` takes; or a path and the names of its `splits`; or what `pack` takes, of
        which `holdout` is drawn, as `{"val": 0.1}` or "val=0.1": a share, or from 1 on a number, of each class.
    seed: of the draw. group_by: a column whose values are drawn as groups, so that samples with the same value are in
        one split. split_by: a column, or a field of key_pattern, whose values name the splits, "fold"; or which values
        belong to which split, "subject=train:1-20,val:21+23".
    The other keywords are those of `pack`, described below; they apply to all splits.

    The same call resumes where an earlier one was stopped. Raises as `pack`.
    """
    from rawpack_packer.job.splits import splits_job

    jobs = splits_job(
        source, destination, splits=splits, holdout=holdout, seed=seed, group_by=group_by, split_by=split_by, **options
    )  # fmt: skip
    return dict(jobs.run())


@from_python(PackKeywords)
def append(
    source: Data,
    destination: Named,
    *,
    skip_existing: bool = False,
    other_libraries: bool = False,
    **options: Unpack[AppendKeywords],
) -> AppendSummary:
    """Add the samples of `source` to the store at `destination`, by the recipe that made it.

    source: as for `pack`. Samples without names, such as arrays, continue the count.
    skip_existing: leave out what the store has, by the key, and what it would reject again. other_libraries: append
    even if the libraries that make pixels have other versions now.
    The other keywords are described below.

    The same call resumes where an earlier one was stopped. Raises as `pack`.
    """
    job = append_job(
        source, destination, skip_existing=skip_existing, other_libraries=other_libraries, **options
    )  # fmt: skip
    return job.run()


@from_python(DeriveKeywords)
def convert(store: Named, destination: Named, **options: Unpack[DeriveKeywords]) -> Summary:
    """Pack the samples of `store` into a new one at `destination`; the same call resumes where one was stopped.

    What the keywords below do not name stays as it is in `store`. Pixels that the recipe does not change stay bit for
    bit: raw pixels in any raw format, and JPEG files byte for byte.

    Raises UsageError with nothing written, StoreError where `store` holds no store or a damaged one, PackError where it
    ran and stopped. A sample that is damaged is rejected.
    """
    return derived_job([store], destination, **options).run()


@from_python(DeriveKeywords)
def merge(
    stores: Sequence[Named], destination: Named, *, prefix: Prefix | None = None, **options: Unpack[DeriveKeywords]
) -> Summary:
    """Pack the samples of several stores, one store after the other, into one at `destination`.

    They must have the same fields. Classes are merged by name: those of the first keep their numbers, then come the
    new ones of each next. prefix: where keys are in several of them, puts the name of its store's folder, or its
    number, and "/" before each key. The rest is as for `convert`.
    """
    return derived_job(stores, destination, merge=True, prefix=prefix, **options).run()


@from_python(DeriveKeywords)
def subset(
    store: Named,
    destination: Named,
    *,
    classes: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
    where: str | None = None,
    every: int = 1,
    per_class: int | None = None,
    limit: int | None = None,
    seed: int | None = None,
    keep_labels: bool = False,
    **options: Unpack[DeriveKeywords],
) -> Summary:
    """Pack some samples of `store` into a new one at `destination`, in the order in which they are stored.

    classes, keys, rows, where: which samples; if several are given, those that match all of them. where is a condition,
    as for `Reader.select`. every, per_class, limit: how
    many of these, see `Choice`. keep_labels: labels and classes stay; otherwise, with classes=, labels are renumbered
    from 0. The rest is as for `convert`.
    """
    from rawpack_packer.job.derive import Choice

    choice = Choice(classes, keys, rows, where, every, per_class, limit, seed, keep_labels=keep_labels)
    return derived_job([store], destination, choice=choice, **options).run()


@from_python()
def relabel(
    store: Named,
    new: Data,
    *,
    key_column: str | None = None,
    fields: Mapping[str, Any] | Sequence[str] = (),
    skip_unknown: bool = False,
    stale_copies: bool = False,
) -> Relabeled:
    """Give the samples of `store` the fields in `new`: a CSV, TSV, JSON Lines or Parquet file with a column of keys; or
    a DataFrame of pandas or polars, or a table of Arrow.

    A sample without a line keeps what it has; a new field needs a line for every sample. `label` may have class names:
    those of the store keep their numbers, and new ones come after them. Image files are not touched; readers that are
    open keep the old values. If this is killed, the store is the old one or the new one.

    key_column: the column of keys; None takes `key`, or else `path`. fields: what columns hold, where their values do
    not show it: {"score": "float32"}. skip_unknown: ignore keys that no sample has. stale_copies: allow it for hdf5
    stores, whose shards have copies of small fields for other programs: these keep the old values. Raises UsageError
    with nothing changed.
    """
    from rawpack_packer.job.relabel import relabel_store

    return relabel_store(
        store, new, key_column=key_column, fields=fields, skip_unknown=skip_unknown, stale_copies=stale_copies
    )


@from_python()
def export(
    store: Named,
    folder: Named,
    *,
    to: str = "files",
    numbered: bool = False,
    shard_size: int | str | None = None,
    split: str | None = None,
    workers: int | None = None,
    max_rejects: float | str = 0.01,
    progress: Progress | bool | None = None,
) -> Exported:
    """Write the samples of `store` into `folder`; the same call resumes where one was stopped. Of a set of splits, each
    is written into the folder of its name in `folder`.

    to: "files", an image file for each sample, named by its key, its further images and masks, and a listing of its
    fields; "webdataset", tar files; "parquet", tables as Hugging Face datasets has them, which need the extra
    `parquet`. JPEG files are the bytes that are in the store. Pixels of uint8 or uint16 with 1 or 3 channels become
    PNG, other arrays .npy, which Parquet cannot hold.

    numbered: name files by their row. shard_size: bytes of the images in a tar file or table, about: 10**9 or "1GB".
    split: what these are named after; by default, the split of its set that the store is, else "train". workers:
    threads; None takes one for each CPU. max_rejects: how many samples may be damaged, as a share, or from 1 on as a
    number; they are listed in `rejects.jsonl`.

    Raises UsageError with nothing written, StoreError where `store` holds no store or a damaged one, PackError where it
    ran and stopped.
    """
    return export_job(
        store, folder, to=to, numbered=numbered, shard_size=shard_size, split=split, workers=workers,
        max_rejects=max_rejects, progress=progress,
    ).run()  # fmt: skip


def export_job(
    store: Named,
    folder: Named,
    *,
    to: str,
    workers: int | None,
    max_rejects: float | str | None,
    progress: Progress | bool | None,
    scan: Scanning = unseen,
    **options: Any,
) -> Export | SplitsExport:
    """The job of `export`, checked and not begun. See `pack_job`. options: the others of `export`."""
    from rawpack_packer.exporting import Export, SplitsExport
    from rawpack_packer.sources.store import open_stores

    stores = store_folders(os.fspath(store))
    place = destinations.local_folder(folder, "export into a folder, then copy it there")
    for path in stores.values():
        destinations.check_apart(place, path)
    run = parse_run_options(workers, max_rejects, progress=progress)
    if "" in stores:
        return Export(open_stores(stores[""], progress=scan), place, to, run, **options)
    if options.get("split") is not None:
        one_store(os.fspath(store), str(opt.split))
    exports = {
        name: Export(open_stores(path, progress=scan), place / name, to, run, of_set=True, **options)
        for name, path in stores.items()
    }
    return SplitsExport(exports, place)


@takes_paths
def describe(store: Named, *, progress: Progress | bool | None = None) -> Description:
    """What is in a store, in a folder or at a URL: a dict, as `rawpack inspect --json` prints it; `print` shows it as
    `rawpack inspect` does. progress: True says what is waited for at a URL."""
    from rawpack_packer.inspect.describe import describe as described
    from rawpack_packer.inspect.describe import open_store

    return described(open_store(os.fspath(store), followed_by(progress)))


@takes_paths
def describe_source(path: Named) -> SourceDescription | None:
    """What is in an HDF5 file, an LMDB, MDS or litdata that can be packed, and how; None for any other path."""
    if destinations.has_store(path):
        return None  # without a look at what else it may be
    from rawpack_packer.inspect.describe_source import describe_source as described

    return described(os.fspath(path))


@takes_paths
def verify(
    store: Named, *, quick: bool = False, begin: Callable[[int], Callable[[int], object]] | None = None
) -> Problems:
    """All problems of the store in a folder, a list. quick: check sizes and headers only.

    begin: called once with the bytes to be checked; returns a function that is then called with the bytes of each step.
    """
    from rawpack_packer.inspect import verify as checks

    path = store_folder(os.fspath(store))
    tick = begin(checks.work_of(path)) if begin is not None else lambda size: None
    return _problems(path, checks.verify(path, quick=quick, tick=tick), quick=quick, unlisted=checks.unlisted(path))


@takes_paths
@suggests(reader_now)
def warm(
    store: Named,
    *,
    cache: Named | Cache | None = None,
    begin: Callable[[int, int | None], Callable[[int], object]] | None = None,
) -> Warmed:
    """Read a store, or all splits of a set, into the page cache; fetch all files of a store at a URL.

    cache: for a URL, the folder that files are fetched into, or a `rawpack.Cache` with its limit, as `Reader` takes it.
    begin: called once with the bytes to be read and the free memory; returns a function that is then called with the
    bytes of each read.
    """
    with speaking_python():
        return run_warm(store, cache=cache, begin=begin or (lambda total, free: lambda size: None))


@from_python(BenchKeywords)
def bench(stores: Named | Sequence[Named], **options: Unpack[BenchKeywords]) -> Bench:
    """Measure how fast stores are read here, by workers and batch, from memory and from the disk. Nothing is written.

    stores: a store, or several; each round measures all of them. `print` shows the result as the command does.

    Raises UsageError where that makes no sense, StoreError for what is no store.
    """
    return run_bench([stores] if isinstance(stores, str | os.PathLike) else stores, **options)


@from_python(PlanKeywords)
def plan(
    source: Named,
    *,
    storage_options: Mapping[str, Any] | None = None,
    say: Say | None = None,
    **options: Unpack[PlanKeywords],
) -> Plan:
    """Pack a sample of the images at `source` into each candidate, read each back, and recommend one.

    source: a path, a pattern of several, or a URL, as `pack` takes it; of many archives, a few are looked at.
    storage_options: options for fsspec, for a URL. say: called with each step and the seconds that are left. `print`
    shows the result as the command does; `Plan.recommendation.taken` is None where nothing fits the goals.

    The sample is in a temporary folder, which is removed. Raises UsageError where that makes no sense, PackError where
    no image of the sample can be packed.
    """
    return run_plan(source, storage_options=storage_options, say=say, **options)


def doctor() -> Examined:
    """What this machine and this installation have: a dict, as `rawpack doctor --json` prints it."""
    from rawpack_packer.inspect.doctor import examine

    return examine()


# ---------------------------------------------------------------------------------------------- what the command asks


def changed_files(path: Path) -> Problems:
    """The files of a store whose sizes are not those that were packed: a look that costs next to nothing."""
    from rawpack_packer.inspect.problems import changed_files as found

    then = f"; next, to check everything: `rawpack inspect --verify {plain(shlex.quote(str(path)))}`"
    return _problems(path, found(path), quick=True, then=then)


def _problems(
    path: Path, found: Iterable[Problem], *, quick: bool, then: str = "", unlisted: Sequence[str] = ()
) -> Problems:
    """What is wrong with a store, and what to do about it."""
    from rawpack_packer.inspect.problems import Problems
    from rawpack_packer.inspect.repair import repairs

    problems = [*found]
    return Problems(problems, repairs(path, problems), quick=quick, then=then, unlisted=unlisted)


def run_warm(
    store: Named, *, cache: Named | Cache | None, begin: Callable[[int, int | None], Callable[[int], object]]
) -> Warmed:
    """See `warm`."""
    from rawpack_packer.inspect.warm import warm_folders, warm_url

    name = os.fspath(store)
    if is_url(name):
        return warm_url(name, cache, begin)
    if cache is not None:
        what = either(f"{opt.cache} and {opt.cache_bytes} apply", f"{opt.cache} applies")
        raise UsageError(f"{what} to URLs; {name} is a folder")
    return warm_folders(name, list(store_folders(name).values()), begin)


def run_bench(
    stores: Sequence[Named],
    *,
    begin: Callable[[int], Callable[[], object]] = lambda total: lambda: None,
    **options: Unpack[BenchKeywords],
) -> Bench:
    """See `bench`. begin: called with the number of measurements; returns a function that is called after each."""
    from rawpack_packer.inspect.describe import open_store
    from rawpack_packer.tune.bench import bench as measured

    folders = list[Path]()
    for store in stores:
        found = store_folders(name := os.fspath(store))
        if "" in found:
            open_store(name)  # whose error says what to type
        folders += found.values()
    return measured(folders, options, begin)


def run_plan(
    source: Named,
    *,
    storage_options: Mapping[str, Any] | None = None,
    say: Say | None = None,
    **options: Unpack[PlanKeywords],
) -> Plan:
    """See `plan`."""
    from rawpack_packer.tune.plan import plan as planned

    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"source={reprlib.repr(source)} must be a path: plan compares stores of pictures in files")
    source_options = {name: value for name, value in options.items() if name in names_of(SourceKeywords)}
    others = {name: value for name, value in options.items() if name not in source_options}
    return planned(os.fspath(source), source_options, others, storage_options, say or (lambda step, left: None))


def check_report(option: str) -> None:
    """Raise MissingExtraError, naming the option that asked, where reports cannot be drawn."""
    from rawpack_packer.report import need_report

    need_report(option)


def write_report(done: Bench | Plan, *, page: Path | None, plots: Path | None) -> None:
    """Write what `bench` or `plan` found as an HTML page, and its plots alone; None leaves one out."""
    if page is None and plots is None:
        return
    from rawpack_packer.report import pages

    pages.write(page, plots, done)


def write_store_page(page: Path, store: Named, described: Mapping[str, Any], verdict: str | None) -> None:
    """Write what `describe` says of a store as an HTML page. verdict: of a check, where one was asked for."""
    from rawpack_packer.inspect.describe import open_store
    from rawpack_packer.report import pages

    pages.write_html(page, open_store(os.fspath(store)), described, verdict)


def viewer(stores: Sequence[Named | Reader], *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Viewer:
    """A server of the page of `rawpack view`, which `serve_forever` serves: stores in folders or behind URLs, each
    split of splits, and readers. options: of `Reader`. Raises StoreError where there is no store, PackError where the
    port is taken."""
    from rawpack_packer.view.looked_at import LookedAt
    from rawpack_packer.view.server import Viewer

    looked: list[LookedAt] = []
    for given in [expanded(one) if isinstance(one, str | os.PathLike) else one for one in stores]:
        if not isinstance(given, str | os.PathLike):
            looked.append(LookedAt.of(given))
            continue
        path = os.fspath(given)
        folders: Mapping[str, Path | str] = {"": path} if is_url(path) else store_folders(path)
        name = path.rstrip("/").rpartition("/")[2]
        for split, folder in folders.items():
            shown_as = split if split and len(stores) == 1 else f"{name}/{split}".rstrip("/")
            looked.append(LookedAt.open(shown_as, folder, **options))
    return Viewer(looked, host, port)


def view(
    stores: Named | Reader | Sequence[Named | Reader], *, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> ServedPage:
    """Serve the page of `rawpack view` on this machine while the program continues, for a store, a reader or several
    of them.

    In a notebook, the result shows the first samples and a link. `url` is what to open, with the token that the page
    needs; `close()` ends it. options: of `Reader`. Raises what `viewer` raises, and UsageError for a reader that is a
    mix, of several stores, or of clips.
    """
    from rawpack_packer.view.background import ServedPage

    several: Any = stores if isinstance(stores, list | tuple) else [stores]
    server = viewer(several, host=host, port=port, **options)
    return ServedPage(server, server.stores[0])
