"""How much space and time packing will take, from a few samples spread over the source.

They are prepared in a process of its own, as packing does it: a file that kills its decoder must not end the run before
it has begun.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.system import machine
from rawpack.system.child import Channel, Child, Heartbeat
from rawpack_packer import text
from rawpack_packer.images import read_header
from rawpack_packer.images.decoder_process import init_decoder_process
from rawpack_packer.recipe.fields import IMAGE, exact_bytes, part_rows, store_fields
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.samples.sample import prepare_sample
from rawpack_packer.sources import Samples, Source, SourceChangedError

SAMPLES = 24
"""That are tried in any case."""
_ROUNDS = 12
"""Times so many at most, where what is stored differs from image to image."""
_WANTED_ERROR, _PATIENCE_S = 0.01, 3.0
"""No more are tried once the error of the mean is so small, or so much time has passed."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_HEADERS = 2000
"""Images of which the header is read, where each keeps its size."""
_INDEX_BYTES = 64
"""Per sample, beside its key: label, checksum, offset, and the state of its file."""
_SHARD_COPY_BYTES = 24
"""Per sample, beside its key: what an HDF5 shard repeats of the columns, and its index of chunks."""
_PAGE = 4096
_STUCK_AFTER_S = 600.0


@dataclass(frozen=True)
class Estimate:
    """What a few samples say of all."""

    tried: int
    rejected: int
    """Of those tried: not representative, but a warning."""
    store_bytes: int
    """Of the finished store; 0 where no sample tells."""
    spare_bytes: int
    """Needed beside it while packing."""
    seconds: float
    """With all workers busy; from one worker's pace on an otherwise idle core."""


@dataclass(frozen=True)
class _SampleTrial:
    """What one sample came to."""

    number: int
    """Of the sample in the source."""
    stored: int | None
    """Bytes in the shard; None where it was rejected."""
    raw: int
    """Bytes of what is stored before it is compressed by HDF5."""
    seconds: float


def estimate(source: Source, recipe: Recipe, workers: int, samples: int = SAMPLES) -> Estimate:
    """Pack a few samples into nothing. The bytes of raw images of one size are exact, all else is about.

    workers: of the run that is asked about; 0 tries the samples in this process. Raises PackError where the source
    cannot be read at all.
    """
    fields = store_fields(recipe, source)
    exact = exact_bytes(fields)
    numbers = _spread(len(source), samples, 1 if exact else _ROUNDS)
    parts = [(number, source.part(number, number + 1)) for number in numbers]
    apart = bool(workers) and hasattr(os, "fork")
    trials, began = list[_SampleTrial](), time.monotonic()
    sizes = None
    if not exact and recipe.size == "keep" and recipe.crop is None and not recipe.passes_through and samples:
        sizes = _raw_sizes(source, recipe, fields, apart=apart)
    sizes = _file_sizes(source) if sizes is None else sizes
    found = _in_children(parts, recipe, fields) if apart else _one_by_one(parts, recipe, fields)
    with contextlib.closing(found):
        for trial in found:
            trials.append(trial)
            if len(trials) % SAMPLES == 0 and (
                time.monotonic() - began > _PATIENCE_S or _mean(trials, sizes, len(source))[1] < _WANTED_ERROR
            ):
                break
    packed = [trial for trial in trials if trial.stored is not None]
    seconds = (
        sum(trial.seconds for trial in trials)
        / max(1, len(trials))
        * len(source)
        / max(1, min(workers, machine.cpus()))
    )
    each = exact or _mean(trials, sizes, len(source))[0]
    raw = sum(trial.raw for trial in packed) / max(1, sum(trial.stored or 0 for trial in packed)) * each
    index, written = _INDEX_BYTES + _key_bytes(source), output_format(recipe.format)
    if written.flat_chunk and not fields[IMAGE].uniform and not fields[IMAGE].deflated:
        # Whole chunks in each shard.
        rows = min(len(source), part_rows(recipe, fields))
        each = math.ceil(rows * each / written.flat_chunk) * written.flat_chunk / rows
    if written.copies_columns:
        each += _SHARD_COPY_BYTES + _key_bytes(source)
    store = len(source) * (each + index) if exact or packed else 0
    spare = 0.0
    if written.spools and store:
        spool = exact_bytes(fields, encoded=True) or raw
        spare = _beside(len(source), part_rows(recipe, fields), workers, each, spool)
    return Estimate(len(trials), len(trials) - len(packed), int(store), int(spare), seconds)


def _raw_sizes(source: Source, recipe: Recipe, fields: Mapping[str, Field], *, apart: bool) -> Sizes | None:
    """The raw bytes of images that keep their sizes, by their headers; None where they do not tell."""
    numbers = _spread(len(source), min(len(source), _HEADERS), 1)
    parts = [(number, source.part(number, number + 1)) for number in numbers]
    found = (_in_children if apart else _one_by_one)(parts, recipe, fields, headers=True)
    known, began = dict[int, float](), time.monotonic()
    with contextlib.closing(found):
        # Not in their order: whenever it ends, they are from all over the source.
        for trial in found:
            if trial.stored is not None:
                known[trial.number] = trial.raw
            if time.monotonic() - began > _PATIENCE_S:
                break
    return Sizes(None, sum(known.values()) / len(known)) if known else None


def _beside(samples: int, rows: int, workers: int, shard: float, spool: float) -> float:
    """What HDF5's shards take more than they do in the end, at most, while they are packed in order.

    Pixels are spooled to a file first. So where a part ends, there are all shards before it, its own, and its spool and
    those of the parts that run beside it. shard, spool: bytes of a sample in each.
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
    """Numbers of samples all over a source, each round between those before it."""
    tried = min(samples, count)
    shifts = [(k * _GOLDEN) % 1 for k in range(rounds)]
    return list(dict.fromkeys(int((k + shift) * count / tried) for shift in shifts for k in range(tried)))


@dataclass(frozen=True)
class Sizes:
    """What is known of all samples, and goes with what they take: the bytes of their files, or as raw pixels."""

    files: NDArray[np.float64] | None
    """(n,): bytes of each sample's file; None where it is the raw pixels."""
    mean: float
    """Over all samples."""

    def of(self, trial: _SampleTrial) -> float:
        return trial.raw if self.files is None else float(self.files[trial.number])


def _file_sizes(source: Source) -> Sizes | None:
    """The bytes of each sample's file; None where not every sample has one."""
    states = source.states()
    if len(states) < len(source) or (states[: len(source), 0] < 0).any():
        return None
    found = states[: len(source), 0].astype(np.float64)
    return Sizes(found, float(found.mean()))


def _mean(trials: Sequence[_SampleTrial], sizes: Sizes | None, count: int) -> tuple[float, float]:
    """The bytes that a sample takes on average, and the standard error of that as a share of it.

    sizes: of all samples. What the samples that were tried take is corrected by how they differ from all.
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
    """Bytes of a key, on average."""
    numbers = _spread(len(source), SAMPLES, 1)
    return sum(len(source.key(i).encode("utf-8", "replace")) for i in numbers) / len(numbers)


def most_bytes(source: Source, recipe: Recipe) -> int:
    """More than the store and its temporary files can take, whatever the images show; 0 where only they tell."""
    fields = store_fields(recipe, source)
    raw = exact_bytes(fields, encoded=True)
    # Even noise at quality 100 makes no JPEG of twice its pixels.
    each = 2 * raw + 3 * _PAGE * sum(field.in_shards for field in fields.values())
    return len(source) * each * (2 if output_format(recipe.format).spools else 1) if raw else 0


def _in_children(
    parts: Sequence[tuple[int, Samples]], recipe: Recipe, fields: Mapping[str, Field], *, headers: bool = False
) -> Generator[_SampleTrial]:
    """One trial for each part; a sample that kills the process counts as rejected, and another process continues."""
    done = 0
    while done < len(parts):
        child = Child(_main, (parts[done:], recipe, fields, headers))
        child.channel.socket.settimeout(_STUCK_AFTER_S)
        try:
            while done < len(parts) and (received := child.channel.receive()) is not None:
                answer: _SampleTrial | Exception = cloudpickle.loads(received[0])
                if isinstance(answer, SourceChangedError):
                    return  # packing will say so, with what changed
                if isinstance(answer, Exception):
                    raise answer
                done += 1
                yield answer
            if done < len(parts):
                if not child.heartbeat.read()[2]:
                    raise PackError("a worker process ends before it has begun; is this machine out of memory?")
                done += 1
                yield _SampleTrial(parts[done - 1][0], None, 0, 0.0)
        except TimeoutError:
            raise PackError(
                f"a sample could not be read and decoded within {_STUCK_AFTER_S:g} s: is the disk of the source alive?"
            ) from None
        finally:
            child.kill()


def _one_by_one(
    parts: Sequence[tuple[int, Samples]], recipe: Recipe, fields: Mapping[str, Field], *, headers: bool = False
) -> Generator[_SampleTrial]:
    for number, part in parts:
        try:
            yield (_look if headers else _try)(number, part, recipe, fields)
        except SourceChangedError:
            return


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
    """What the header says of the one sample of a part, when it keeps its size; more than that is not decoded."""
    began = time.perf_counter()
    size: int | None = None
    with contextlib.suppress(DecodeError):
        image = part[0].image
        if isinstance(image, bytes):
            header = read_header(image)
            if header.width * header.height <= recipe.max_pixels:  # others will be rejected
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
    work: tuple[Sequence[tuple[int, Samples]], Recipe, Mapping[str, Field], bool],
    descriptors: list[Any],
) -> None:
    """What runs in the child."""
    init_decoder_process()
    parts, recipe, fields, headers = work
    for k, (number, part) in enumerate(parts):
        notes.note(0, k)
        answer: _SampleTrial | Exception
        try:
            answer = (_look if headers else _try)(number, part, recipe, fields)
        except (PackError, MemoryError) as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))


def check_space(path: Path, jobs: Sequence[tuple[Source, Recipe]], workers: int, free: int) -> None:
    """Raise UsageError where what recipes make of sources, one after another, will not fit into so many bytes at
    `path`."""
    most = [most_bytes(source, recipe) for source, recipe in jobs]
    if all(most) and sum(most) <= free:
        return  # no sample need be tried
    need = spare = 0
    for source, recipe in jobs:
        guess = estimate(source, recipe, workers, 0 if exact_bytes(store_fields(recipe, source)) else SAMPLES)
        need, spare = need + guess.store_bytes, max(spare, guess.spare_bytes)
    need += spare
    if need > free:
        beside = f", {text.size(spare)} of it while packing only" if spare else ""
        raise UsageError(
            f"the store needs about {text.size(need)}{beside}, and {path} has {text.size(free)} free: free some "
            "space, or take a smaller --size or --format lmdb"
        )
