"""What the order of the samples costs by itself: all rows of an epoch, batch by batch, and nothing read."""

from __future__ import annotations

import time

import data
from contract import Epoch, Settings


class OrderAlone:
    """The full shuffle that the readers use, over as many samples."""

    needs: tuple[str, ...] = ()

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        from rawpack import Reader
        from rawpack.order.ranks import RankSplit
        from rawpack.order.shuffled import Shuffled

        samples = len(Reader(data.store_path(settings, "memmap")))
        self._order, self._split = Shuffled(samples, seed=0), RankSplit(samples, settings.batch)

    def epoch(self, n: int) -> Epoch:
        began = time.perf_counter()
        images = 0
        for step in range(len(self._split)):
            images += len(self._split.batch(step).samples(self._order, n))
        return Epoch(images, time.perf_counter() - began)
