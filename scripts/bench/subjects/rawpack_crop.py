"""rawpack's reader, decoding JPEG and cutting out the centre."""

from __future__ import annotations

from dataclasses import replace

import data
from contract import Epoch, Settings, consume
from rawpack import Workers


class RawpackCrop:
    """Over an lmdb store of images of `stored` pixels a side."""

    needs: tuple[str, ...] = ()

    def __init__(self, stored: int) -> None:
        self._stored = stored

    def prepare(self, settings: Settings) -> None:
        data.make_store(self._at_size(settings), "lmdb")

    def open(self, settings: Settings) -> None:
        from rawpack import Reader
        from rawpack.transforms import CenterCrop

        self._consumer = settings.consumer
        self._batches = Reader(data.store_path(self._at_size(settings), "lmdb")).batches(
            settings.batch,
            shuffle=True,
            workers=Workers(settings.workers, backend=settings.backend),
            transform=[CenterCrop(settings.shape[:2])],
        )

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        return consume((batch["image"] for batch in self._batches), self._consumer)

    def _at_size(self, settings: Settings) -> Settings:
        return replace(settings, shape=(self._stored, self._stored, 3))
