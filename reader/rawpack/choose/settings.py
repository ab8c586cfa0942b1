"""What follows from the options of `Reader.batches` for a store and this machine: what must fit is checked, and what
the caller left open is chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rawpack.choose.options import Backend
from rawpack.clips.sample_set import SampleSet
from rawpack.errors import UsageError
from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.choose.buckets import FoundBuckets
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.step import CropStep

_TINY_BYTES = 4096
"""Copying a sample this small takes less time than a message to a worker."""


@dataclass(frozen=True)
class Settings:
    """What follows from the options, for a store and this machine."""

    batch_size: int
    fields: tuple[str, ...]
    pipelines: tuple[Pipeline | None, ...]
    """What is done to samples; None where they are only copied or decoded. One, or one for each bucket."""
    movers: tuple[BoxMover | None, ...]
    """What that does to boxes; None where no boxes were chosen."""
    planes: tuple[str, ...]
    """Fields that come as planes, as they are stored."""
    encoded: tuple[str, ...]
    """Fields that come as files."""
    crop: tuple[CropStep | None, tuple[str, ...]]
    """What is cropped of these, and the fields that are cropped: see `first_crop`."""
    workers: int
    backend: Backend
    timeout: float
    max_held: int | None
    order_name: str
    """The kind of order and its parameters: part of a state."""
    buckets: FoundBuckets | None = None

    @property
    def pipeline(self) -> Pipeline | None:
        """That of the first bucket: None where there is none in any."""
        return self.pipelines[0]


def sides(shape: Sequence[int | None]) -> str:
    """A shape to be shown: "48x48x3", "?x5", "scalar"."""
    return "x".join("?" if n is None else str(n) for n in shape) or "scalar"


def check_travels(pipelines: Sequence[Pipeline | None]) -> None:
    """Raise UsageError where a transform cannot be sent to worker processes."""
    import cloudpickle

    try:
        cloudpickle.dumps(pipelines)
    except Exception as error:
        raise UsageError(
            f"the transform cannot be sent to worker processes: {type(error).__name__}: {error}; functions must not "
            'hold open files, locks and the like; or pass workers=Workers(backend="thread") or workers=0'
        ) from error


def tiny(samples: SampleSet, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are so small that copying them costs less than handing them to workers."""
    size = sum(_sample_bytes(samples.library, name) for name in fields) * (samples.lengths[-1] or 1)
    return copied(samples.library, fields, planes) and size <= _TINY_BYTES


def copied(library: Stores, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are copied from the files as they are."""
    return all(
        library.fields[name].codec.in_place and library.fields[name].planar == (name in planes) for name in fields
    )


def _sample_bytes(library: Stores, name: str) -> int:
    field = library.fields[name]
    if not field.in_slot or not field.uniform:
        return _TINY_BYTES + 1
    return np.dtype(field.dtype).itemsize * math.prod(field.stored_shape)
