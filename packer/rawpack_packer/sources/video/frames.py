"""The frames of a video by number, as upright RGB."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.decoding import Counting
from rawpack_packer.sources.video.index import LOST, FramePosition, PacketRun
from rawpack_packer.sources.video.pixels import ToRgb
from rawpack_packer.sources.video.seeking import Seeking


class Frames:
    """The frames of one run: a decoder that stays open where it is. For one thread; close it."""

    def __init__(self, place: FramePosition, run: PacketRun) -> None:
        self._run, self._to_rgb = run, ToRgb(run.turn)
        self._decoding = Counting(place, run) if run.packets is None else Seeking(place, run)

    def __getitem__(self, k: int) -> NDArray[np.uint8]:
        """Pixels (H, W, 3) of frame k of the run, a new array; fastest in rising order.

        Raises DecodeError where there is no such picture, SourceChangedError where the file was written to.
        """
        if self._run.packet[k] == LOST:
            reason, detail = self._run.lost
            raise DecodeError(reason, f"at {self._run.seconds(k):.3f} s {detail}")
        try:
            return self._to_rgb(self._decoding.frame(k))
        finally:
            self._decoding.check()

    def close(self) -> None:
        self._decoding.close()
