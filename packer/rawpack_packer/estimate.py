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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
from numpy.typing import NDArray

from rawpack import machine
from rawpack.child import Channel, Child, Notes
from rawpack.errors import DecodeError, PackError
from rawpack.manifest import Field
from rawpack_packer.fields import exact_bytes, part_rows, store_fields
from rawpack_packer.prepare_sample import prepare_sample
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import Samples, Source, SourceChangedError
from rawpack_packer.worker import settle

SAMPLES = 24
_INDEX_BYTES = 100
"""Per sample: label, key, checksum and where it lies."""
_PAGE, _LMDB_PAGE_HEAD, _LMDB_NODE = 4096, 16, 20
"""Bytes, of LMDB: a page, what it begins with, and what a value has before it: a node's head and the key."""
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
class _Trial:
    """What one sample came to."""

    stored: int | None
    """Bytes in the shard; None where it was rejected."""
    seconds: float


def estimate(source: Source, recipe: Recipe, workers: int, samples: int = SAMPLES) -> Estimate:
    """Pack a few samples into nothing. The bytes of raw images of one size are exact, all else is about.

    workers: of the run that is asked about; 0 tries the samples in this process. Raises PackError where the source
    cannot be read at all.
    """
    tried = min(samples, len(source))
    numbers = [k * len(source) // tried for k in range(tried)]
    parts = [source.part(number, number + 1) for number in numbers]
    fields = store_fields(recipe, source)
    apart = bool(workers) and hasattr(os, "fork")
    trials = list(_in_children(parts, recipe, fields) if apart else _one_by_one(parts, recipe, fields))
    sizes = [trial.stored for trial in trials if trial.stored is not None]
    seconds = (
        sum(trial.seconds for trial in trials)
        / max(1, len(trials))
        * len(source)
        / max(1, min(workers, machine.cpus()))
    )
    each = exact_bytes(fields) or (sum(sizes) / len(sizes) if sizes else 0.0)
    spare = 0.0
    if recipe.format == "hdf5":
        # Pixels lie in a spool file before they lie in the shard.
        rows = part_rows(recipe, fields)
        running = min(max(1, workers), math.ceil(len(source) / rows))
        spare = running * min(len(source), rows) * (exact_bytes(fields, encoded=True) or each)
    store = len(source) * (each + _INDEX_BYTES) if each else 0
    return Estimate(len(trials), len(trials) - len(sizes), int(store), int(spare), seconds)


def most_bytes(source: Source, recipe: Recipe) -> int:
    """More than the store and what lies beside it can take, whatever the images show; 0 where only they tell."""
    fields = store_fields(recipe, source)
    raw = exact_bytes(fields, encoded=True)
    # Even noise at quality 100 makes no JPEG of twice its pixels.
    each = 2 * raw + 3 * _PAGE * sum(field.in_shards for field in fields.values())
    return len(source) * each * (2 if recipe.format == "hdf5" else 1) if raw else 0


def _in_children(parts: Sequence[Samples], recipe: Recipe, fields: Mapping[str, Field]) -> Iterator[_Trial]:
    """One trial for each part; a sample that kills the process counts as rejected, and another process goes on."""
    done = 0
    while done < len(parts):
        child = Child(_main, (parts[done:], recipe, fields))
        child.channel.socket.settimeout(_STUCK_AFTER_S)
        try:
            while done < len(parts) and (received := child.channel.receive()) is not None:
                answer: _Trial | Exception = cloudpickle.loads(received[0])
                if isinstance(answer, SourceChangedError):
                    return  # packing will say so, with what changed
                if isinstance(answer, Exception):
                    raise answer
                done += 1
                yield answer
            if done < len(parts):
                if not child.notes.read()[2]:
                    raise PackError("a worker process ends before it has begun; is this machine out of memory?")
                done += 1
                yield _Trial(None, 0.0)
        except TimeoutError:
            raise PackError(
                f"a sample could not be read and decoded within {_STUCK_AFTER_S:g} s: is the disk of the source alive?"
            ) from None
        finally:
            child.kill()


def _one_by_one(parts: Sequence[Samples], recipe: Recipe, fields: Mapping[str, Field]) -> Iterator[_Trial]:
    for part in parts:
        try:
            yield _try(part, recipe, fields)
        except SourceChangedError:
            return


def _try(part: Samples, recipe: Recipe, fields: Mapping[str, Field]) -> _Trial:
    """Prepare the one sample of a part."""
    began = time.perf_counter()
    size: int | None = None
    with contextlib.suppress(DecodeError):
        size = sum(_stored(stored.data, recipe) for stored in prepare_sample(part[0], recipe, fields).parts.values())
    return _Trial(size, time.perf_counter() - began)


def _stored(data: NDArray[Any], recipe: Recipe) -> int:
    """The bytes that one image or mask takes in its shard."""
    size = len(zlib.compress(data.data, 4)) if recipe.compression else data.nbytes
    return _lmdb_bytes(size) if recipe.format == "lmdb" else size


def _lmdb_bytes(size: int) -> int:
    """What a value takes in LMDB's file: as many as fit share a page, and one of about half a page has its own."""
    node = _LMDB_NODE + size
    if node <= (_PAGE - _LMDB_PAGE_HEAD) // 2 - 2:
        return _PAGE // ((_PAGE - _LMDB_PAGE_HEAD) // (node + 2))
    return -(-(size + _LMDB_PAGE_HEAD) // _PAGE) * _PAGE


def _main(
    channel: Channel,
    notes: Notes,
    work: tuple[Sequence[Samples], Recipe, Mapping[str, Field]],
    descriptors: list[Any],
) -> None:
    """What runs in the child."""
    settle()
    parts, recipe, fields = work
    for k, part in enumerate(parts):
        notes.note(0, k)
        answer: _Trial | Exception
        try:
            answer = _try(part, recipe, fields)
        except (PackError, MemoryError) as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
