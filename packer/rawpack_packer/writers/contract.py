"""How a shard is written: the one contract that every format keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack_packer.samples.sample import PreparedSample

Keys = Mapping[str, NDArray[Any] | Sequence[str] | Sequence[NDArray[Any]]]
"""Small fields of a shard's rows, by name: numbers as arrays (rows, ...), texts as lists of str, ragged ones as lists
of arrays (n, ...)."""


@dataclass
class Finished:
    """Where one image or mask field of a shard is."""

    placement: Placement
    index: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """"offset" and "bytes" (rows,), "chunk" (chunks, 2), as far as the encoding needs them."""


class ShardWriter(Protocol):
    """Writes the files of one shard. Their paths are temporary; the caller syncs and renames them.

    The bytes depend on the recipe, the images and the small fields alone: neither on time nor on the process.
    """

    def add(self, sample: PreparedSample, /) -> None:
        """Append one sample. OSError where the disk is full or gone."""

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        """Write what is left; the files are whole and closed. columns: the small fields of all rows, for formats that
        carry a copy of them. Gives each image and mask field, by name; `file` of a placement counts the writer's paths.
        """

    def abort(self) -> None:
        """Close without finishing; may be called at any time, and after `finish`."""


def large(fields: Mapping[str, Field]) -> dict[str, Field]:
    """The image and mask fields, which shards hold."""
    return {name: field for name, field in fields.items() if field.in_shards}
