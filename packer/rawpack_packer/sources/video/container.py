"""Opening a video that a stranger may have made: one plain file, a known kind of container, and nothing else.

FFmpeg gets a descriptor to read from, never a path: so no name is taken for a protocol, and a playlist that calls
itself a video fetches nothing.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from rawpack.errors import DecodeError
from rawpack_packer.sources.files import OPEN_FLAGS, UNKNOWN, changed, check_unchanged, reason_of, stop_if_of_any_file
from rawpack_packer.sources.video.index import FramePosition
from rawpack_packer.sources.video.names import SNIFF_BYTES, sniff_video
from rawpack_packer.sources.video.truncation import ends_early

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

_DEMUXERS = (
    "mov", "matroska", "webm", "avi", "mpegts", "mpeg", "mpegvideo", "m4v", "h264", "hevc", "flv", "asf", "ogg", "ivf",
    "obu", "mxf", "nut", "yuv4mpegpipe", "dv", "rm",
)  # fmt: skip
"""Those of FFmpeg's that read one file and open no other."""
_BUFFER_BYTES = 1 << 18
_NO_PICTURES = ("attached_pic", "timed_thumbnails", "still_image")
MAX_PIXELS = 178_000_000
"""Of a frame, as `--max-pixels` has it by default: a header may say anything."""
CAREFUL = {"err_detect": "crccheck+bitstream+buffer+explode", "max_pixels": str(MAX_PIXELS)}
"""Options of every decoder: damage is an error, not a guess at what the picture may have been."""


class OpenVideo:
    """A video file, open. Close it."""

    def __init__(self, place: FramePosition, stream: int | None = None) -> None:
        """stream: the number of one; None chooses.

        Raises DecodeError where nothing here can be made of the file, SourceChangedError where it is another by now.
        """
        self._place = place
        try:
            self._fd = os.open(place.path, OPEN_FLAGS)
        except OSError as error:
            raise _refused(error, place) from None
        try:
            self.check()
            if not place.state[0]:
                raise DecodeError("empty", "the file has no bytes")
            self.container = _opened(self._fd, place)
            self.stream = _stream(self.container, stream)
        except BaseException:
            os.close(self._fd)
            raise

    def check(self) -> None:
        """Raise SourceChangedError where the file was written to since it was found."""
        check_unchanged(self._fd, self._place.state, self._place.key)

    @property
    def format(self) -> str:
        """FFmpeg's name of the container: "mov,mp4,m4a,3gp,3g2,mj2"."""
        return str(self.container.format.name)

    @property
    def streams(self) -> int:
        """How many video streams it has that are no cover pictures."""
        return len(_videos(self.container))

    def ends_early(self) -> bool:
        """Whether the container says that it is longer than the file is."""
        return ends_early(self._fd, self._place.state[0], self.format)

    def careful(self) -> VideoStream:
        """The stream, its decoder set up: in one thread, and with errors where it finds damage."""
        context = self.stream.codec_context
        # One worker a core is the parallelism; with threads, an error would come with another frame than its own.
        context.thread_count = 1
        context.options = dict(CAREFUL)
        return self.stream

    def close(self) -> None:
        self.container.close()
        os.close(self._fd)


def text_of_error(error: Exception) -> str:
    """What FFmpeg says, without numbers and names that differ between machines."""
    return str(getattr(error, "strerror", None) or error)


class _File:
    """What PyAV reads through. A descriptor that is not its own."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self.name = fd, name

    def read(self, size: int) -> bytes:
        return os.read(self._fd, size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._fd, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


def _opened(fd: int, place: FramePosition) -> InputContainer:
    import av

    options = {"format_whitelist": ",".join(_DEMUXERS), "protocol_whitelist": "none"}
    # Of the name FFmpeg takes the ending, which some kinds of files are known by alone.
    file: Any = _File(fd, "video" + os.path.splitext(place.path)[1].encode("ascii", "replace").decode())  # noqa: PTH122
    try:
        container: InputContainer = av.open(
            file, "r", options=options, metadata_errors="ignore", buffer_size=_BUFFER_BYTES
        )
        return container
    except av.error.FFmpegError as error:
        first = os.pread(fd, SNIFF_BYTES, 0)
        cut = sniff_video(first) and any(ends_early(fd, place.state[0], kind) for kind in ("mov", "matroska", "avi"))
        if cut:
            raise DecodeError("truncated", "the file ends before what says where its frames lie") from None
        raise DecodeError("corrupt", f"FFmpeg cannot open it: {text_of_error(error)}") from None


def _videos(container: InputContainer) -> list[VideoStream]:
    return [
        stream
        for stream in container.streams.video
        if not any(getattr(type(stream.disposition), name) in stream.disposition for name in _NO_PICTURES)
    ]


def _stream(container: InputContainer, number: int | None) -> VideoStream:
    """The video stream of that number; without one the largest of those that are the default, or of all."""
    streams = _videos(container)
    if number is not None:
        streams = [stream for stream in streams if stream.index == number]
    if not streams:
        kinds = " and ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise DecodeError("no_video", f"it has no video stream, but {kinds}")
    decodable = [stream for stream in streams if stream.codec_context is not None]
    if not decodable:
        raise DecodeError("unsupported", "no decoder here knows its video")
    # As the ffmpeg command has it, but that a stream that is marked as the default comes first in any case.
    return max(decodable, key=lambda one: (type(one.disposition).default in one.disposition, one.width * one.height))


def _refused(error: OSError, place: FramePosition) -> Exception:
    stop_if_of_any_file(error, place.key)
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and place.state != UNKNOWN:
        return changed(place.key, "it is gone")
    return DecodeError("unreadable", reason_of(error))
