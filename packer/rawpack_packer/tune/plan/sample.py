"""A sample that represents a source."""

from __future__ import annotations

import numpy as np

from rawpack_packer.sources import Source
from rawpack_packer.sources.optional import unread_of
from rawpack_packer.sources.view import View


def draw(source: Source, count: int, seed: int) -> View:
    """`count` samples of a source, or all.

    The samples are sorted by file size, if each has a file, and cut into `count` equal runs, each of which gives one at
    random. So small and large files are as frequent as in the whole.
    """
    found = np.setdiff1d(np.arange(len(source)), unread_of(source))
    total = len(found)
    count = min(count, total)
    random = np.random.default_rng(seed)
    states = source.states()
    sizes = states[found, 0] if len(states) >= len(source) else np.zeros(total, np.int64)
    # Files of the same size in random order: a run must not be a stretch of one folder.
    order = np.lexsort((random.permutation(total), sizes))
    edges = np.arange(count + 1) * total // count
    return View(source, np.sort(found[order[random.integers(edges[:-1], edges[1:])]]))
