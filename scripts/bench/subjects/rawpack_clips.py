"""rawpack's reader of random clips, over a store of the videos' frames."""

from __future__ import annotations

from dataclasses import replace

import videos
from contract import Epoch, Settings, consume
from rawpack import Workers


class RawpackClips:
    """`Reader.clips(per_video=...).batches` as a user calls it: shuffled, all fields but text."""

    needs: tuple[str, ...] = ("av",)

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        videos.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        self._consumer = settings.consumer
        self._batches = videos.clips_of(settings, self._form).batches(
            settings.batch, shuffle=True, seed=videos.SEED, workers=Workers(settings.workers, backend=settings.backend)
        )
        self._bytes = videos.disk_bytes(videos.store_path(settings, self._form))

    def epoch(self, n: int) -> Epoch:
        self._batches.set_epoch(n)
        frames = (batch["image"].reshape(-1, *batch["image"].shape[2:]) for batch in self._batches)
        return replace(consume(frames, self._consumer), disk_bytes=self._bytes)
