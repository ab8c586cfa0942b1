"""Estimates the space and time that packing will take, from a few samples spread over the source.

The samples are prepared in a child process, as when packing, so that a file that crashes its decoder does not end the
run.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.system import machine
from rawpack.system.channel import Channel
from rawpack.system.child import Child
from rawpack.system.heartbeat import Heartbeat
from rawpack_packer import text
from rawpack_packer.images import init_decoder_process, read_header
from rawpack_packer.options.naming import opt
from rawpack_packer.recipe.fields import IMAGE, exact_bytes, part_rows
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.samples.sample import prepare_sample
from rawpack_packer.sources import Samples, Source, SourceChangedError

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

SAMPLES = 24
"""The number of samples in a round of trials."""
_ROUNDS = 12
"""At most, where stored sizes differ from image to image."""
_WANTED_ERROR, _PATIENCE_S = 0.01, 3.0
"""Rounds end once the relative error of the mean is this small, or this much time has passed."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_HEADERS = 2000
"""At most this many headers are read, where images keep their sizes."""
_INDEX_BYTES = 64
"""Of each sample, without its key: label, checksum, offset, and the state of its file."""
_SHARD_COPY_BYTES = 24
"""Of each sample, without its key: the columns that an HDF5 shard repeats, and its index of chunks."""
_PAGE = 4096
_GROWTH = 8
"""A JPEG file of low quality takes at most about this many times its bytes if it must be turned and re-encoded."""
_STUCK_AFTER_S = 600.0


@dataclass(frozen=True)
class Estimate:
    """What a few samples show about all."""

    tried: int
    rejected: int
    """How many of the tried samples: a warning, not a representative share."""
    store_bytes: int
    """Of the finished store; 0 if not known."""
    spare_bytes: int
    """Needed in addition while packing."""
    seconds: float
    """With all workers busy, at the speed of one worker on an otherwise idle core."""


@dataclass(frozen=True)
class _SampleTrial:
    """The result of trying one sample."""

    number: int
    """Of the sample in the source."""
    stored: int | None
    """Bytes in the shard; None if it was rejected."""
    raw: int
    """Bytes before compression by HDF5."""
    seconds: float


Measure = Callable[[int, Samples, Recipe, Mapping[str, Field]], _SampleTrial]
"""`_try` or `_look`."""


def estimate(
    source: Source, recipe: Recipe, fields: Mapping[str, Field], workers: int, samples: int = SAMPLES
) -> Estimate:
    """Prepare a few samples without storing them. The bytes of raw images of one size are exact, all else is about.

    fields: of the store. workers: of the run to estimate; 0 tries the samples in this process. Raises PackError where
    the source cannot be read at all.
    """
    exact = exact_bytes(fields)
    apart = bool(workers) and hasattr(os, "fork")
    trials, began = list[_SampleTrial](), time.monotonic()
    sizes = None
    if not exact and recipe.size == "keep" and recipe.crop is None and not recipe.passes_through and samples:
        sizes = _raw_sizes(source, recipe, fields, apart=apart)
    sizes = sizes or _file_sizes(source)
    numbers = _spread(len(source), samples, 1 if exact else _ROUNDS)
    with contextlib.closing(_trials(source, numbers, recipe, fields, _try, apart=apart)) as found:
        for trial in found:
            trials.append(trial)
            if len(trials) % SAMPLES == 0 and (
                time.monotonic() - began > _PATIENCE_S or _mean(trials, sizes, len(source))[1] < _WANTED_ERROR
            ):
                break
    packed = [trial for trial in trials if trial.stored is not None]
    seconds = sum(trial.seconds for trial in trials) / max(1, len(trials)) * len(source)
    seconds /= max(1, min(workers, machine.cpus()))
    each = exact or _mean(trials, sizes, len(source))[0]
    raw = sum(trial.raw for trial in packed) / max(1, sum(trial.stored or 0 for trial in packed)) * each
    index, written = _INDEX_BYTES + _key_bytes(source), output_format(recipe.format)
    if written.flat_chunk and not fields[IMAGE].uniform and not fields[IMAGE].deflated:
        # Each shard has whole chunks.
        rows = min(len(source), part_rows(recipe, fields))
        each = math.ceil(rows * each / written.flat_chunk) * written.flat_chunk / rows
    if written.copies_columns:
        each += _SHARD_COPY_BYTES + _key_bytes(source)
    store = len(source) * (each + index) if exact or packed else 0
    spare = 0.0
    if written.spools and store:
        spool = exact_bytes(fields, encoded=True) or raw
        spare = _spare_bytes(len(source), part_rows(recipe, fields), workers, each, spool)
    return Estimate(len(trials), len(trials) - len(packed), int(store), int(spare), seconds)


def _raw_sizes(source: Source, recipe: Recipe, fields: Mapping[str, Field], *, apart: bool) -> Sizes | None:
    """The raw bytes of images that keep their sizes, by their headers; None if headers do not show them."""
    numbers = _spread(len(source), min(len(source), _HEADERS), 1)
    known, began = list[int](), time.monotonic()
    with contextlib.closing(_trials(source, numbers, recipe, fields, _look, apart=apart)) as found:
        for trial in found:
            if trial.stored is not None:
                known.append(trial.raw)
            if time.monotonic() - began > _PATIENCE_S:
                break
    return Sizes(None, sum(known) / len(known)) if known else None


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


def _spread(count: int, samples: int, rounds: int) -> list[int]:
    """Numbers of samples all over a source, those of each round between those of the rounds before it."""
    tried = min(samples, count)
    shifts = [(k * _GOLDEN) % 1 for k in range(rounds)]
    return list(dict.fromkeys(int((k + shift) * count / tried) for shift in shifts for k in range(tried)))


@dataclass(frozen=True)
class Sizes:
    """A size that is known of all samples and correlates with what they take in the store."""

    files: NDArray[np.float64] | None
    """(n,): bytes of each sample's file; None if the size is that of raw pixels."""
    mean: float
    """Over all samples."""

    def of(self, trial: _SampleTrial) -> float:
        return trial.raw if self.files is None else float(self.files[trial.number])


def _file_sizes(source: Source) -> Sizes | None:
    """The bytes of each sample's file; None if not every sample has one."""
    states = source.states()
    if len(states) < len(source) or (states[: len(source), 0] < 0).any():
        return None
    found = states[: len(source), 0].astype(np.float64)
    return Sizes(found, float(found.mean()))


def _mean(trials: Sequence[_SampleTrial], sizes: Sizes | None, count: int) -> tuple[float, float]:
    """The bytes that a sample takes on average, and the relative standard error of that.

    sizes: the average of the tried samples is corrected by how their sizes differ from those of all: in proportion
        for raw pixels, by regression for files.
    """
    packed = [trial for trial in trials if trial.stored is not None]
    if not packed:
        return 0.0, math.inf
    stored = np.array([trial.stored for trial in packed], np.float64)
    mean, rest = float(stored.mean()), stored - stored.mean()
    if sizes is not None and len(packed) > 2:
        own = np.array([sizes.of(trial) for trial in packed])
        apart = own - own.mean()
        if sizes.files is None:
            share = mean / max(float(own.mean()), 1e-9)
            mean, rest = share * sizes.mean, stored - share * own
        elif apart.any():
            slope = float(apart @ rest / (apart @ apart))
            corrected = mean + slope * (sizes.mean - float(own.mean()))
            if corrected > 0:
                mean, rest = corrected, rest - slope * apart
    left = max(0.0, 1 - len(packed) / count)
    return mean, math.sqrt(float(rest @ rest) / max(1, len(packed) - 1) / len(packed) * left) / max(mean, 1e-9)


def _key_bytes(source: Source) -> float:
    """The average bytes of a key."""
    numbers = _spread(len(source), SAMPLES, 1)
    return sum(len(source.key(i).encode("utf-8", "replace")) for i in numbers) / len(numbers)


def most_bytes(source: Source, recipe: Recipe, fields: Mapping[str, Field]) -> int:
    """More than the store and its temporary files can take; 0 if it depends on what is in the images."""
    raw = exact_bytes(fields, encoded=True)
    # Even noise at quality 100 makes a JPEG of less than twice its pixels.
    each = 2 * raw + 3 * _PAGE * sum(field.in_shards for field in fields.values())
    if not raw and recipe.passes_through and (sizes := _file_sizes(source)) and _are_jpeg(source):
        raw = each = math.ceil(_GROWTH * sizes.mean) + each
    return len(source) * each * (2 if output_format(recipe.format).spools else 1) if raw else 0


def _are_jpeg(source: Source) -> bool:
    """Whether files all over a source are JPEG by their names."""
    return all(source.key(i).lower().endswith((".jpg", ".jpeg")) for i in _spread(len(source), SAMPLES, 1))


def _trials(
    source: Source,
    numbers: Sequence[int],
    recipe: Recipe,
    fields: Mapping[str, Field],
    measure: Measure,
    *,
    apart: bool,
) -> Generator[_SampleTrial]:
    """Measure samples, one after another. apart: in child processes; a sample that kills one counts as rejected."""
    parts = [(number, source.part(number, number + 1)) for number in numbers]
    if not apart:
        with contextlib.suppress(SourceChangedError):
            for number, part in parts:
                yield measure(number, part, recipe, fields)
        return
    done = 0
    while done < len(parts):
        child = Child(_main, (parts[done:], recipe, fields, measure))
        try:
            while done < len(parts) and (received := child.receive(_STUCK_AFTER_S)) is not None:
                answer: _SampleTrial = cloudpickle.loads(received)
                done += 1
                yield answer
            if done < len(parts):
                if not child.heartbeat.read()[2]:
                    raise PackError("a worker process ended before it began; is this machine out of memory?")
                done += 1
                yield _SampleTrial(parts[done - 1][0], None, 0, 0.0)
        except SourceChangedError:
            return  # packing will say what changed
        except subprocess.TimeoutExpired:
            raise PackError(
                f"a sample could not be read and decoded within {_STUCK_AFTER_S:g} s: is the disk of the source alive?"
            ) from None
        finally:
            child.kill()


def _try(number: int, part: Samples, recipe: Recipe, fields: Mapping[str, Field]) -> _SampleTrial:
    """Prepare the one sample of a part."""
    began = time.perf_counter()
    size, raw = None, 0
    with contextlib.suppress(DecodeError):
        made = prepare_sample(part[0], recipe, fields).parts.values()
        raw = sum(math.prod(stored.shape) * stored.data.itemsize for stored in made)
        size = sum(_stored(stored.data, recipe) for stored in made)
    return _SampleTrial(number, size, raw, time.perf_counter() - began)


def _look(number: int, part: Samples, recipe: Recipe, fields: Mapping[str, Field]) -> _SampleTrial:
    """Measure the one sample of a part, which keeps its size, by its header; nothing else is decoded."""
    began = time.perf_counter()
    size: int | None = None
    with contextlib.suppress(DecodeError):
        image = part[0].image
        if isinstance(image, bytes):
            header = read_header(image)
            if header.width * header.height <= recipe.max_pixels:
                picture = np.dtype(fields[IMAGE].dtype).itemsize * (fields[IMAGE].shape[-1] or 1)
                size = header.width * header.height * picture
                if fields[IMAGE].planar:
                    size //= 2
        else:
            size = image.nbytes
    return _SampleTrial(number, size, size or 0, time.perf_counter() - began)


def _stored(data: NDArray[Any], recipe: Recipe) -> int:
    """The bytes that one image or mask takes in its shard."""
    size = len(zlib.compress(data.data, 4)) if recipe.compression else data.nbytes
    value_bytes = output_format(recipe.format).value_bytes
    taken: int = resolve(value_bytes)(size) if value_bytes else size
    return taken


def _main(
    channel: Channel,
    notes: Heartbeat,
    work: tuple[Sequence[tuple[int, Samples]], Recipe, Mapping[str, Field], Measure],
    descriptors: list[Any],
) -> None:
    """Runs in the child process."""
    init_decoder_process()
    parts, recipe, fields, measure = work
    for k, (number, part) in enumerate(parts):
        notes.note(0, k)
        channel.send(cloudpickle.dumps(measure(number, part, recipe, fields)))


def check_space(path: Path, jobs: Sequence[Job], free: int) -> None:
    """Raise UsageError where the stores of these jobs, packed one after another, will not fit at `path`.

    free: the bytes that are free there.
    """
    most = [most_bytes(job.source, job.recipe, job.fields) for job in jobs]
    if all(most) and sum(most) <= free:
        return  # there is no need to try samples
    need = spare = 0
    for job in jobs:
        tried = 0 if exact_bytes(job.fields) else SAMPLES
        guess = estimate(job.source, job.recipe, job.fields, job.how.processes, tried)
        need, spare = need + guess.store_bytes, max(spare, guess.spare_bytes)
    need += spare
    if need > free:
        extra = f", {text.size(spare)} of it while packing only" if spare else ""
        raise UsageError(
            f"the store needs about {text.size(need)}{extra}, and {path} has {text.size(free)} free: free some "
            f"space, or choose a smaller {opt.size} or {opt.format('lmdb')}"
        )
