"""The protocol of a writer of shards, which every format implements."""

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
    """"offset" and "bytes" (rows,), and "chunk" (chunks, 2), if the encoding needs them."""


class ShardWriter(Protocol):
    """Writes the files of one shard. Their paths are temporary: the caller syncs and renames them.

    The bytes must depend on the recipe, the images and the small fields only, not on time or the process.
    """

    def add(self, sample: PreparedSample, /) -> None:
        """Append one sample. Raises OSError if the disk is full or gone."""

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        """Complete and close the files. Returns where each image and mask field is, by name; `file` in a placement is
        a number in the writer's paths.

        columns: the small fields of all rows, for formats that hold a copy of them.
        """

    def abort(self) -> None:
        """Close the files without completing them. May be called at any time, also after `finish`."""


def large(fields: Mapping[str, Field]) -> dict[str, Field]:
    """The image and mask fields, which are in shards."""
    return {name: field for name, field in fields.items() if field.in_shards}
