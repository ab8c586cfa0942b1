"""Decodes the frames of an open video by number to upright RGB, also if frames can only be counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.container import OpenVideo, text_of_error
from rawpack_packer.sources.video.index import LOST, VideoFile, VideoIndex
from rawpack_packer.sources.video.pixels import ToRgb

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


class Decoding(ABC):
    """A decoder that stays open where it is. For one thread; close it."""

    def __init__(self, file: VideoFile, index: VideoIndex) -> None:
        self._file, self._index, self._to_rgb = file, index, ToRgb(index.turn)
        self._video: OpenVideo | None = None
        self._read: Iterator[Any] = iter(())
        """What is read from the open video: a generator that holds what the container owns."""

    def image(self, k: int) -> NDArray[np.uint8]:
        """Pixels (H, W, 3) of frame k of the index, a new array; fastest in ascending order.

        Raises DecodeError where there is no such picture, SourceChangedError where the file was written to.
        """
        if self._index.packet[k] == LOST:
            reason, detail = self._index.lost
            raise self._error(k, detail, reason)
        try:
            return self._to_rgb(self._frame(k))
        finally:
            if self._video is not None:
                self._video.check()

    @abstractmethod
    def _frame(self, k: int) -> VideoFrame:
        """Frame k of the index. Raises DecodeError where there is none, or what it needs is damaged."""

    def close(self) -> None:
        self._read = iter(())
        if self._video is not None:
            self._video.close()
            self._video = None

    def _open(self) -> OpenVideo:
        """The video, opened again at its start."""
        self.close()
        self._video = OpenVideo(self._file, self._index.stream)
        return self._video

    def _error(self, k: int, detail: str, reason: str = "damaged") -> DecodeError:
        """Why frame k is rejected."""
        return DecodeError(reason, f"at {self._index.seconds(k):.3f} s {detail}")


class Counting(Decoding):
    """Frames that are known by their number alone: always decoded from the start."""

    _next = 0

    def _frame(self, k: int) -> VideoFrame:
        import av

        wanted = int(self._index.packet[k])
        if self._video is None or wanted < self._next:
            self._read, self._next = self._open().frames(), 0
        frame: VideoFrame
        try:
            for frame in self._read:
                self._next += 1
                if self._next > wanted:
                    return frame
        except av.error.FFmpegError as error:
            raise self._error(k, f"the data cannot be decoded: {text_of_error(error)}") from None
        raise self._error(k, "the decoder gave no picture")
