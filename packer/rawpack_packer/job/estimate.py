"""Estimates the space and time that packing will take, as the mean of a few samples spread evenly over the source.

The samples are prepared in child processes, as when packing: as many at once as will pack, which share the machine with
each other and with what else runs on it; and a file that crashes its decoder does not end the run.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.destination.files import SPOOL, WORK
from rawpack_packer.destination.folder import in_memory_words, own_bytes, takes_files
from rawpack_packer.images import init_decoder_process
from rawpack_packer.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.options import RECIPE, opt
from rawpack_packer.recipe import Recipe, files_as_they_are, make_recipe
from rawpack_packer.recipe.fields import exact_bytes, part_rows, picture_field, store_fields
from rawpack_packer.recipe.tables import is_jpeg, output_format
from rawpack_packer.samples.sample import prepare_sample
from rawpack_packer.sources import Samples, SourceChangedError, Table

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

SAMPLES = 24
"""How many samples are tried at least."""
_MOST, _PATIENCE_S = 240, 3.0
"""More are tried, since time and often sizes differ: up to so many, for so long."""
_LEAST_DOUBT, _MOST_DOUBT = 0.2, math.sqrt(2) - 1
"""Of the time, in each direction: what a machine's speed changes from minute to minute; and such that the longest time
is twice the shortest."""
START_S = 0.6
"""Roughly what it takes to start and end the workers of a job, or of a measurement."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_INDEX_BYTES = 64
"""For each sample, without its key: label, checksum, offset, and the state of its file."""
_SHARD_COPY_BYTES = 24
"""For each sample, without its key: the columns that an HDF5 shard repeats, and its index of chunks."""
_PAGE = 4096
_GROWTH = 8
"""A JPEG file of low quality takes at most about this many times its bytes if it must be turned and re-encoded."""
_STUCK_AFTER_S = 600.0
_FOR_FILES = 0.9
"""The share of the available memory that files may take."""
_MUCH = 1.5
"""Times the files: from there on, a store of raw pixels is called large."""


@dataclass(frozen=True)
class Estimate:
    """What a few samples show about all."""

    tried: int
    rejected: int
    """How many of the tried samples: a warning, not a representative share."""
    store_bytes: int
    """The size of the finished store; 0 if not known."""
    spare_bytes: int
    """Needed in addition while packing."""
    seconds: float
    """With all workers busy, at the speed that they had with the tried samples."""
    start_s: float = 0.0
    """What starting them takes."""
    cores: int = 1
    """How many are busy meanwhile."""
    doubt: float = 0.0
    """The time may be so much longer or shorter: 0.25 is from 1 / 1.25 of it to 1.25 times."""
    by_field: Mapping[str, float] = field(default_factory=dict)
    """Bytes that one image or mask takes in its shard, by field; empty if none was packed."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What a store counts, of the tried samples."""


@dataclass(frozen=True)
class _SampleTrial:
    """The result of trying one sample."""

    seconds: float
    stored: Mapping[str, int] = field(default_factory=dict)
    """Bytes in the shard, by field; empty if it was rejected."""
    raw: int = 0
    """Bytes before compression by HDF5."""
    notes: tuple[str, ...] = ()
    start_s: float = 0.0
    """Of its process, before."""


def estimate(
    source: Table, recipe: Recipe, fields: Mapping[str, Field], workers: int, samples: int = _MOST
) -> Estimate:
    """Prepare a few samples without storing them. The bytes of raw images of one size are exact, all else is about.

    fields: of the store. workers: of the run to estimate; 0 tries the samples in this process. Raises PackError where
    the source cannot be read at all.
    """
    exact, trials, began = exact_bytes(fields), list[_SampleTrial](), time.monotonic()
    here = source.at_hand()
    # The files of others would be fetched for one sample each.
    rows: Sequence[int] = range(len(source)) if here is None or not len(here) else here.tolist()
    parts = [source.part(rows[k], rows[k] + 1) for k in _spread(len(rows), samples)]
    processes = min(workers, machine.cpus())
    with contextlib.closing(_trials(parts, recipe, fields, processes if hasattr(os, "fork") else 0)) as measured:
        for trial in measured:
            trials.append(trial)
            if len(trials) >= SAMPLES and time.monotonic() - began > _PATIENCE_S:
                break
    packed = [trial for trial in trials if trial.stored]
    took = [trial.seconds for trial in trials]
    seconds = sum(took) / max(1, len(took)) * len(source) / max(1, processes)
    by_field: dict[str, float] = {
        name: sum(trial.stored[name] for trial in packed) / max(1, len(packed))
        for name in (packed[0].stored if packed else ())
    }
    counts = dict(Counter(note for trial in trials for note in trial.notes))  # which `asdict` can copy
    each: float = exact or sum(by_field.values())
    keys = [source.key(i).encode("utf-8", "replace") for i in _spread(len(source), SAMPLES)]
    key_bytes = sum(map(len, keys)) / len(keys)
    part, written = part_rows(recipe, fields), output_format(recipe.format)
    for name, size in by_field.items() if written.flat_chunk else ():
        images = min(len(source), part)
        if not (fields[name].uniform or fields[name].deflated) and images * size > written.flat_chunk:
            # Each shard has whole chunks.
            each += math.ceil(images * size / written.flat_chunk) * written.flat_chunk / images - size
    if written.copies_columns:
        each += _SHARD_COPY_BYTES + key_bytes
    store = len(source) * (each + _INDEX_BYTES + key_bytes) if each else 0
    spare = 0.0
    if written.spools and store:
        raw = sum(trial.raw for trial in packed) / max(1, len(packed))
        spare = _spare_bytes(len(source), part, workers, each, exact_bytes(fields, encoded=True) or raw)
    tried, rejected = len(trials), len(trials) - len(packed)
    start_s = max((trial.start_s for trial in trials), default=0.0)
    return Estimate(
        tried, rejected, int(store), int(spare), seconds, start_s, max(1, processes), _doubt(took), by_field, counts
    )


def _doubt(took: Sequence[float]) -> float:
    """How far the mean of some times may be from that of all, as a share of it."""
    if len(took) < 2 or not sum(took):
        return _MOST_DOUBT
    error = 2 * float(np.std(took, ddof=1) / np.mean(took)) / math.sqrt(len(took))
    return min(_MOST_DOUBT, math.hypot(_LEAST_DOUBT, error))


def _spread(count: int, samples: int) -> list[int]:
    """Numbers of up to `samples` samples, the first few of which are spread as evenly over a source as all of them."""
    return list(dict.fromkeys(int(k * _GOLDEN % 1 * count) for k in range(samples)))


def _spare_bytes(samples: int, rows: int, workers: int, shard: float, spool: float) -> float:
    """The most bytes that HDF5 needs while packing, beyond those of the finished shards.

    Pixels are spooled to a file first. So when a part ends, there are all shards before it, its own, its spool, and
    those of the parts that run at the same time. shard, spool: bytes of a sample in each.
    """
    parts = -(-samples // rows)
    ends = [min(number * rows, samples) for number in range(parts + 1)]
    running = max(1, workers)
    most = max(
        ends[k] * shard + (ends[min(k - 1 + running, parts)] - ends[k - 1]) * spool
        for k in range(max(1, parts - running), parts + 1)
    )
    return max(0.0, most - samples * shard)


def most_bytes(source: Table, recipe: Recipe, fields: Mapping[str, Field]) -> int:
    """More than the store and its temporary files can take; 0 if it depends on what is in the images."""
    raw = exact_bytes(fields, encoded=True)
    # Even noise at quality 100 makes a JPEG of less than twice its pixels.
    most = len(source) * (2 * raw + 3 * _PAGE * sum(field.in_shards for field in fields.values()))
    # What the files of further images and of masks have is not known before they are read.
    alone = sum(field.in_shards for field in fields.values()) == 1
    if not raw and alone and recipe.passes_through and _are_jpeg(source):
        files = source.states()[: len(source), 0]
        if len(files) == len(source) and (files >= 0).all():
            raw = int(files.sum())
            most += _GROWTH * raw
    return most * (2 if output_format(recipe.format).spools else 1) if raw else 0


def _are_jpeg(source: Table) -> bool:
    """Whether files all over a source are JPEG by their names."""
    return all(source.key(i).lower().endswith((".jpg", ".jpeg")) for i in _spread(len(source), SAMPLES))


def _trials(
    parts: Sequence[Samples], recipe: Recipe, fields: Mapping[str, Field], processes: int
) -> Generator[_SampleTrial]:
    """Try the one sample of each part. processes: how many try at the same time, 0 to try them in this one; a sample
    that kills its process counts as rejected."""
    # Packing will say what changed.
    with contextlib.suppress(SourceChangedError), contextlib.ExitStack() as stack:
        if not processes:
            yield from (_try(part, recipe, fields) for part in parts)
            return
        children = [IsolatedCalls(_STUCK_AFTER_S, "samples of the source") for _ in range(processes)]
        idle = SimpleQueue[IsolatedCalls]()

        def attempt(part: Samples) -> _SampleTrial:
            calls = idle.get()
            try:
                return _try_apart(calls, part, recipe, fields)
            finally:
                idle.put(calls)

        for calls in children:
            stack.callback(calls.close)  # one that started while it was ended
            idle.put(calls)
        pool = stack.enter_context(ThreadPoolExecutor(processes))
        for calls in children:
            stack.enter_context(calls)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        yield from pool.map(attempt, parts)


def _try_apart(calls: IsolatedCalls, part: Samples, recipe: Recipe, fields: Mapping[str, Field]) -> _SampleTrial:
    began, start_s = time.monotonic(), 0.0
    try:
        if not calls.is_running:
            calls.call(init_decoder_process)
            start_s = time.monotonic() - began
            began += start_s
        return replace(calls.call(_try, part, recipe, fields), start_s=start_s)
    except ChildDiedError as died:
        if time.monotonic() - began >= _STUCK_AFTER_S:
            raise PackError(f"a sample was not read and decoded: {died}; is the disk of the source alive?") from None
        return _SampleTrial(0.0)


def _try(part: Samples, recipe: Recipe, fields: Mapping[str, Field]) -> _SampleTrial:
    """Prepare the one sample of a part."""
    began, size, raw, notes = time.perf_counter(), dict[str, int](), 0, tuple[str, ...]()
    with contextlib.suppress(DecodeError):
        sample = prepare_sample(part[0], recipe, fields)
        made, notes = sample.parts, sample.notes
        raw = sum(math.prod(stored.shape) * np.dtype(fields[name].dtype).itemsize for name, stored in made.items())
        size = {name: _stored(stored.data, recipe) for name, stored in made.items()}
    return _SampleTrial(time.perf_counter() - began, size, raw, notes)


def _stored(data: NDArray[Any], recipe: Recipe) -> int:
    """The bytes that one image or mask takes in its shard."""
    size = len(zlib.compress(data.data, 4)) if recipe.compression == "gzip" else data.nbytes
    value_bytes = output_format(recipe.format).value_bytes
    taken: int = resolve(value_bytes)(size) if value_bytes else size
    return taken


def memory_for_files() -> int | None:
    """Bytes of files that may stay in this machine's page cache; None where the system does not say."""
    free = machine.available_memory_bytes()
    return None if free is None else int(free * _FOR_FILES)


def jpeg_bytes(source: Table, recipe: Recipe, workers: int) -> int:
    """About what a store of JPEG files takes that has the images of this recipe's; 0 if there can be none."""
    if is_jpeg(recipe.encoding) or recipe.depth:
        return 0
    small = make_recipe(format="lmdb", color=recipe.pixels)
    kept = {one.name: getattr(recipe, one.name) for one in RECIPE if not one.of_some_formats}
    kept |= {"format": small.format, "color": small.color, "check": small.check, "sizes": recipe.sizes}
    try:
        small = msgspec.structs.replace(small, **kept)
        return estimate(source, small, store_fields(small, source), workers, SAMPLES).store_bytes
    except UsageError:
        return 0


def full_size_words(source: Table, recipe: Recipe, store_bytes: int) -> str:
    """How many times the files a store of raw images of their own sizes takes, and what takes less; empty for others.
    store_bytes: of the store."""
    files, images = source.states()[: len(source), 0], source.info.image is None or source.info.image.pictures
    if recipe.target or recipe.crop or is_jpeg(recipe.encoding) or not images or source.info.video:
        return ""
    if len(files) < len(source) or not (files >= 0).all() or store_bytes < _MUCH * files.sum():
        return ""
    times = store_bytes / max(1, int(files.sum()))
    scaled = exact_bytes({"image": picture_field(make_recipe(color=recipe.pixels))}) * len(source)
    keep = f"{files_as_they_are()} keeps the JPEG files, and " if _are_jpeg(source) else ""
    return (
        f"raw pixels of full size take {text.size(store_bytes)}, {times:.1f} times the files: {keep}{opt.size(256)}, "
        f"the default, takes {text.size(scaled)}"
    )


def check_space(path: Path, jobs: Sequence[Job], free: int) -> list[Estimate]:
    """What the stores of these jobs take; empty where the options alone show that there is room for it.

    free: the bytes that are free at `path`. Raises UsageError where the stores, packed one after another, will not fit.
    """
    most = [most_bytes(job.source, job.recipe, job.fields) for job in jobs]
    if all(most) and sum(most) <= free:
        return []  # there is no need to try samples
    if not free and not takes_files(path):
        raise UsageError(f"nothing can be written to {path}: it is on no disk; name another folder")
    guesses = [
        estimate(job.source, job.recipe, job.fields, job.run_options.processes, 0 if exact_bytes(job.fields) else _MOST)
        for job in jobs
    ]
    spare = max((guess.spare_bytes for guess in guesses), default=0)
    need = sum(guess.store_bytes for guess in guesses) + spare
    if need > free:
        extra = f", {text.size(spare)} of it while packing only" if spare else ""
        spooled = own_bytes(path / WORK / SPOOL)
        beside = f" beside the {text.size(spooled)} of the source that are kept there until then" if spooled else ""
        raise UsageError(
            f"the store needs about {text.size(need)}{extra}, and {path} has {text.size(free)} free"
            f"{in_memory_words(path)}{beside}: free some space, or choose a smaller {opt.size} or {opt.format('lmdb')}"
        )
    return guesses
