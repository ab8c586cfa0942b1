"""How a shard is written: the one contract that every format keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.manifest import Placement
from rawpack_packer.prepare import Prepared

Keys = Mapping[str, NDArray[Any] | Sequence[str]]
"""Small fields of a shard's rows, by name: numbers as arrays (rows, ...), texts as lists."""


@dataclass
class Finished:
    """Where a shard's images lie."""

    placement: Placement
    index: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """"offset" and "bytes" (rows,), "chunk" (chunks, 2), as far as the encoding needs them."""


class ShardWriter(Protocol):
    """Writes one shard file of one image field. The path is temporary; the caller syncs and renames it.

    The bytes depend on the recipe, the images and the small fields alone: neither on time nor on the process.
    """

    def add(self, sample: Prepared, /) -> None:
        """Append one sample. OSError where the disk is full or gone."""

    def finish(self, columns: Keys, /) -> Finished:
        """Write what is left; the file is whole and closed. columns: the small fields of all rows, for formats that
        carry a copy of them."""

    def abort(self) -> None:
        """Close without finishing; may be called at any time, and after `finish`."""
