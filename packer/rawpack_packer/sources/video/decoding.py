"""A video that is being decoded: where its reader is, and what has come out of the decoder."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.container import OpenVideo, text_of_error
from rawpack_packer.sources.video.index import FramePosition, PacketRun

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


class Decoding:
    """An open video and its decoder."""

    def __init__(self, place: FramePosition, run: PacketRun) -> None:
        self._place, self._run = place, run
        self._video: OpenVideo | None = None
        self._demuxed: Iterator[Any] = iter(())
        self._out: deque[VideoFrame] = deque()
        """Decoded, not yet asked for."""
        self._flushed = False

    def check(self) -> None:
        """Raise SourceChangedError where the file was written to."""
        if self._video is not None:
            self._video.check()

    def close(self) -> None:
        if self._video is not None:
            # The generator holds what the container owns.
            self._demuxed = iter(())
            self._out.clear()
            self._video.close()
            self._video = None

    def open(self) -> None:
        """Stand at the start of the file."""
        self.close()
        self._video = OpenVideo(self._place, self._run.stream)
        self._video.careful()
        self.read_on()

    def read_on(self) -> None:
        """Read from where the container was brought to."""
        assert self._video is not None
        self._demuxed, self._flushed = self._video.container.demux(self._video.stream), False
        self._out.clear()

    def next_packet(self) -> Any:
        """The next packet; None at the end, or where the container breaks off."""
        import av

        try:
            packet = next(self._demuxed, None)
        except av.error.FFmpegError:
            return None
        return None if packet is None or is_last(packet) else packet

    def decode(self, packet: Any) -> str:
        """Feed the decoder; what is wrong with the data, or nothing."""
        import av

        try:
            if packet.size:  # an empty one would be taken for the end
                self._out.extend(packet.decode())
        except av.error.FFmpegError as error:
            return f"the data do not decode: {text_of_error(error)}"
        return ""

    def flush(self) -> None:
        """Take the frames that the decoder still holds. Those that should come and do not are missed when asked for."""
        import av

        assert self._video is not None
        self._flushed = True
        try:
            self._out.extend(self._video.stream.decode(None))
        except av.error.FFmpegError:
            return

    def fault(self, k: int, detail: str) -> DecodeError:
        """Why frame k of the run is rejected."""
        return DecodeError("damaged", f"at {self._run.seconds(k):.3f} s {detail}")


class Counting(Decoding):
    """Frames that are known by their number alone: always decoded from the start on."""

    _next = 0

    def frame(self, k: int) -> VideoFrame:
        """Frame k of the run."""
        wanted = int(self._run.packet[k])
        if self._video is None or wanted < self._next:
            self.open()
            self._next = 0
        while True:
            while self._out:
                frame = self._out.popleft()
                self._next += 1
                if self._next == wanted + 1:
                    return frame
            if self._flushed:
                raise self.fault(k, "no picture came")
            packet = self.next_packet()
            if packet is None:
                self.flush()
            elif wrong := self.decode(packet):
                raise self.fault(k, wrong)


def is_last(packet: Any) -> bool:
    """Whether this is what PyAV gives behind a stream's last packet."""
    return packet.size == 0 and packet.pts is None and packet.dts is None
