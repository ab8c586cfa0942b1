"""The format "toy", written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rawpack.disk.manifest import Field, Placement
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.tables import OutputFormat
from rawpack_packer.samples.sample import PreparedSample
from rawpack_packer.writers import Finished, Keys, large
from rawpack_toy.reading import MAGIC

FORMAT = OutputFormat(
    "toy",
    "rawpack_toy.writing:ToyWriter",
    image_encoding=lambda recipe: "runs",
    mask_encoding=lambda recipe: "runs",
)


class ToyWriter:
    """See `ShardWriter`."""

    def __init__(self, paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> None:
        (path,) = paths
        self._file = path.open("wb")
        self._file.write(MAGIC)
        self._places: dict[str, list[tuple[int, int]]] = {name: [] for name in large(fields)}

    def add(self, sample: PreparedSample, /) -> None:
        for name, places in self._places.items():
            data = sample.parts[name].data
            places.append((self._file.tell(), data.nbytes))
            self._file.write(data.data)

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        self._file.close()
        finished = {}
        for name, places in self._places.items():
            offsets, sizes = np.array(places, np.int64).T.copy()
            finished[name] = Finished(Placement(bytes=int(sizes.sum())), {"offset": offsets, "bytes": sizes})
        return finished

    def abort(self) -> None:
        self._file.close()
