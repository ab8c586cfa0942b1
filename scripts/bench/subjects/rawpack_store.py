"""rawpack's reader over one of its stores."""

from __future__ import annotations

import data
from contract import Epoch, Settings, consume
from rawpack import Workers


class RawpackStore:
    """`Reader.batches` as a user calls it: shuffled, all fields but text."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        self._consumer, self._step_s = settings.consumer, settings.step_s
        self._batches = Reader(data.store_path(settings, self._form)).batches(
            settings.batch, shuffle=True, workers=Workers(settings.workers, backend=settings.backend)
        )

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        return consume((batch["image"] for batch in self._batches), self._consumer, self._step_s)
