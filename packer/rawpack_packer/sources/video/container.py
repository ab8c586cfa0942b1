"""Opens an untrusted video: a single plain file with a known kind of container, and nothing else; and converts its
frames to upright RGB by the colors that it declares, identically on every machine.

FFmpeg reads from a descriptor and never gets a path. So it takes no name for a protocol, and a playlist with the
extension of a video cannot make it fetch anything.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.errors import check_memory, reason_of, stand_in, stop_if_of_any_file, twice, unreadable_now
from rawpack_packer.sources.files import OPEN_FLAGS, UNKNOWN, UNREADABLE, LocalPath, changed, check_unchanged
from rawpack_packer.sources.video import SNIFF_BYTES, sniff_video
from rawpack_packer.sources.video.length import declared_bytes

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from rawpack_packer.sources.table.remote_files import RemoteArchive, Spool

T = TypeVar("T")
_DEMUXERS = (
    "mov", "matroska", "webm", "avi", "mpegts", "mpeg", "mpegvideo", "m4v", "h264", "hevc", "flv", "asf", "ogg", "ivf",
    "obu", "mxf", "nut", "yuv4mpegpipe", "dv", "rm",
)  # fmt: skip
"""FFmpeg's demuxers that read one file and open no other."""
_BUFFER_BYTES = 1 << 18
_NO_PICTURES = ("attached_pic", "timed_thumbnails", "still_image")
_MAX_PIXELS = 178_000_000
"""Of a frame, the default of `--max-pixels`: a header may claim anything."""
_CAREFUL = {"err_detect": "crccheck+bitstream+buffer+explode", "max_pixels": str(_MAX_PIXELS)}
"""Options of every decoder: damage is an error, not a guess at what the picture was."""
_BEGUN_OPEN = {**_CAREFUL, "err_detect": "crccheck+bitstream+buffer"}
_FORGOTTEN = ("mmco: ", "Missing reference picture")
"""How FFmpeg's messages begin that pictures from before a cut cause where H.264 was cut in an open group of pictures:
one is to be forgotten, or is listed among those that may be referred to."""
_IDR = "nal_unit_type: 5"
"""How that about a picture begins behind which none from before is used, so that no cut can take any away."""
_HDR = (16, 18)
"""Transfer functions, by their ITU-T H.273 numbers: PQ and HLG."""
_UNSPECIFIED = 2
BY_PLANES = frozenset(
    {"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "nv12", "yuv420p10le", "yuv422p10le"}
    | {"yuv444p10le", "p010le"}
)
"""Formats that FFmpeg converts to planes of RGB three times as fast as to RGB, with the same values."""
_ROWS = 32
"""The least height for that. FFmpeg rounds RGB in another way where there are only four rows of chroma."""
Turn = tuple[int, int, int, int] | None
"""a, b, c, d of a display matrix, which moves (x, y) to (a x + c y, b x + d y)."""


class DamageError(Exception):
    """What FFmpeg says of data that it cannot decode, without numbers and names that differ between machines."""


@contextmanager
def _raising_damage() -> Iterator[None]:
    """Raise DamageError for an error of FFmpeg in this block; MemoryError where there is hardly any memory, as FFmpeg
    says of damaged files too that it got none."""
    import av

    try:
        yield
    except av.error.FFmpegError as error:
        if isinstance(error, MemoryError):
            check_memory("to read a video")
        raise DamageError(str(error.strerror or error)) from error


@dataclass(frozen=True)
class VideoFile:
    """A video file, before anything in it was read."""

    path: LocalPath
    """As the operating system takes it."""
    key: str
    """Its name in messages: its path below the source."""
    state: tuple[int, int]
    """Size in bytes and mtime in ns when it was found."""
    listed: bytes
    """Its path below the source, or as it is listed."""
    fetched: tuple[Spool, RemoteArchive] | None = None
    """What fetches it, if it is behind a URL: then `path` is where it is in the spool."""

    def open(self) -> int:
        """A descriptor, which the caller closes. Raises OSError, and as `Spool.opened`."""
        if self.fetched is None:
            return os.open(self.path, OPEN_FLAGS)
        spool, remote = self.fetched
        with spool.opened(remote) as fd:
            return os.dup(fd)  # which keeps the lock, so that the file stays


class _Data(io.FileIO):
    """A video for FFmpeg, which takes a read that fails for the end of the file, or for damage of it."""

    error: OSError | None = None
    """The error of the first read that failed twice."""

    def read(self, size: int | None = -1, /) -> bytes:
        return self._noting(partial(super().read, size)) or b""

    def read_at(self, size: int, offset: int) -> bytes:
        """Bytes from an offset on; fewer at the end of the file."""
        return self._noting(partial(os.pread, self.fileno(), size, offset))

    def _noting(self, read: Callable[[], T]) -> T:
        try:
            return twice(read)
        except OSError as error:
            self.error = self.error or error
            raise


class OpenVideo:
    """An open video file, with one stream and its decoder. Close it."""

    _keys = 0
    """The key packets that the decoder was fed."""

    def __init__(self, file: VideoFile, stream: int | None = None, *, begun_open: bool = False) -> None:
        """stream: the number of one; None chooses. begun_open: see `decode`.

        Raises DecodeError where the file cannot be used, SourceChangedError where it is not the one that was found.
        """
        self._file = file
        try:
            self._fd = twice(file.open)
        except OSError as error:
            stop_if_of_any_file(error, file.key)
            if file.state == UNKNOWN:
                raise DecodeError(UNREADABLE, reason_of(error)) from error
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise changed(file.key, "it is gone") from error
            # Not a reject: how many frames it has would be part of the job, and another number once it can be read.
            raise unreadable_now(error, file.key) from error
        self._data = _Data(self._fd, closefd=False)
        try:
            self.check()
            if not file.state[0]:
                raise DecodeError("empty", "the file has no bytes")
            self.container = _open(self._data, file)
            self.stream = self._choose(stream)
            context = self.stream.codec_context
            # One worker per core is the parallelism; with threads, an error would be reported with another frame.
            context.thread_count = 1
            # Other decoders do not stumble there, or do not report all that they guess.
            self._begun_open = begun_open and context.name == "h264"
            context.options = dict(_BEGUN_OPEN if self._begun_open else _CAREFUL)
        except BaseException:
            os.close(self._fd)
            self._check_read()
            raise

    def _choose(self, number: int | None) -> VideoStream:
        """The video stream of that number; without one, the largest of the default streams, or of all."""
        streams = [stream for stream in self.streams if number in (None, stream.index)]
        if not streams:
            kinds = " and ".join(sorted({stream.type for stream in self.container.streams})) or "nothing"
            raise DecodeError("no_video", f"it has no video stream, only {kinds}")
        decodable = [stream for stream in streams if stream.codec_context is not None]
        if not decodable:
            raise DecodeError("unsupported", "FFmpeg has no decoder here for its video")
        # As the ffmpeg command chooses, except that a default stream always comes first.
        return max(
            decodable, key=lambda one: (type(one.disposition).default in one.disposition, one.width * one.height)
        )

    def _check_read(self) -> None:
        error, self._data.error = self._data.error, None  # it is raised once
        if error is not None:
            raise unreadable_now(error, self._file.key) from error

    def check(self) -> None:
        """Raise SourceChangedError where the file was written to since it was found, PackError where a read failed."""
        self._check_read()
        try:
            if self._file.fetched is None:  # otherwise its name in the spool says which version it is
                check_unchanged(self._fd, self._file.state, self._file.key)
        except OSError as error:
            raise unreadable_now(error, self._file.key) from error

    @property
    def format(self) -> str:
        """FFmpeg's name for the container: "mov,mp4,m4a,3gp,3g2,mj2"."""
        return str(self.container.format.name)

    @property
    def streams(self) -> list[VideoStream]:
        """The video streams, without cover pictures."""
        return [
            stream
            for stream in self.container.streams.video
            if not any(getattr(type(stream.disposition), name) in stream.disposition for name in _NO_PICTURES)
        ]

    def length(self) -> int:
        """Bytes that the file has by its container, or where that does not say more, those that it has."""
        return max(self._file.state[0], declared_bytes(self._data.read_at, self.format))

    def packets(self) -> Iterator[Any]:
        """The packets of the stream from where the container is; PyAV adds one that `is_last`. Raises DamageError where
        the container breaks off."""
        with _raising_damage():
            yield from self.container.demux(self.stream)

    def seek(self, dts: int) -> None:
        """Go to a packet, or before it. Raises DamageError."""
        with _raising_damage():
            self.container.seek(dts, stream=self.stream)

    def frames(self) -> Iterator[VideoFrame]:
        """All frames, as they are shown. Raises DamageError at the first damage that a decoder or demuxer reports."""
        for packet in self.packets():
            yield from self.decode(packet)

    def decode(self, packet: Any) -> list[VideoFrame]:
        """The frames that come out of the decoder when it is fed a packet, or None for the end. Raises DamageError.

        A video may have been cut, without encoding, where the pictures refer to none from before, although their list
        of references does. With `begun_open`, it is no damage that those are not there, up to the next key frame.
        """
        if not self._begun_open:
            return _frames_of(self.stream, packet)
        import av

        with messages_of(av.logging.DEBUG) as messages:
            frames = _frames_of(self.stream, packet)
        first = not self._keys
        self._keys += packet is not None and packet.is_keyframe
        for level, _, text in messages:
            bad = level <= av.logging.ERROR and not (self._keys < 2 and text.startswith(_FORGOTTEN))
            if bad or (first and text.startswith(_IDR)):
                raise DamageError(text.strip())
        return frames

    def close(self) -> None:
        """Raises PackError where a read failed, unless `check` has raised it."""
        self.container.close()
        os.close(self._fd)
        self._check_read()


def is_last(packet: Any) -> bool:
    """Whether this is the packet that PyAV adds after the last one of a stream."""
    return packet.size == 0 and packet.pts is None and packet.dts is None


def _frames_of(stream: VideoStream, packet: Any) -> list[VideoFrame]:
    with _raising_damage():
        if packet is None or is_last(packet):
            return list(stream.decode(None))
        # A decoder takes any packet without data for the end.
        return list(packet.decode()) if packet.size else []


@contextmanager
def messages_of(level: int) -> Iterator[list[tuple[int, str, str]]]:
    """FFmpeg's messages up to a level, as they come: level, name of the part of FFmpeg, and text."""
    import av

    # Capturing starts after a file is opened, since FFmpeg's threads would call back into Python while it is.
    av.logging.set_skip_repeated(False)
    av.logging.set_level(level)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(None)


class ToRgb:
    """Converts the frames of one video into pixels. It keeps what the conversion needs."""

    def __init__(self, turn: Turn) -> None:
        from av.video.reformatter import Interpolation, VideoReformatter

        self._turn, self._reformatter = turn, VideoReformatter()
        exact = Interpolation.ACCURATE_RND | Interpolation.BITEXACT | Interpolation.FULL_CHR_H_INT
        self._how = int(Interpolation.BICUBIC | exact)

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Upright pixels, (H, W, 3)."""
        from av.video.reformatter import ColorRange

        by_planes = frame.format.name in BY_PLANES and frame.height >= _ROWS
        # By default, RGB would have the range of the video: 16 to 235.
        form, colors = "gbrp" if by_planes else "rgb24", ColorRange.JPEG
        rgb = self._reformatter.reformat(frame, format=form, interpolation=self._how, dst_color_range=colors, threads=1)
        return _turned(_merged(rgb) if by_planes else np.asarray(rgb.to_ndarray(), np.uint8), self._turn)


def notes_of(frame: VideoFrame) -> tuple[str, ...]:
    """The names in `counts.OF_VIDEOS` that apply to a video, by its first frame."""
    matrix, format = turn_of(frame), frame.format
    declared = {
        "rotated": matrix is not None and _straight(matrix) and not (matrix[0] > 0 and matrix[3] > 0),
        "odd_rotation": matrix is not None and not _straight(matrix),
        "interlaced": frame.interlaced_frame,
        "more_than_8_bits": any(component.bits > 8 for component in format.components),
        "hdr": frame.color_trc in _HDR,
        "transparent": any(component.is_alpha for component in format.components),
        "colors_unsaid": not format.is_rgb and frame.colorspace == _UNSPECIFIED and len(format.components) > 1,
    }
    return tuple(name for name, holds in declared.items() if holds)


def _merged(frame: VideoFrame) -> NDArray[np.uint8]:
    """The pixels (H, W, 3) of a frame whose planes are green, blue and red."""
    import cv2

    planes: Any = frame.planes
    green, blue, red = (
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width] for plane in planes
    )
    return np.asarray(cv2.merge([red, green, blue]), np.uint8)


def _turned(image: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    """The image as its display matrix says: turned by quarters, and mirrored."""
    if turn is None or not _straight(turn):
        return image
    a, b, c, d = turn
    if a or d:
        image = image[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1]
    else:
        image = image.swapaxes(0, 1)[:: -1 if b < 0 else 1, :: -1 if c < 0 else 1]
    return np.ascontiguousarray(image)


def turn_of(frame: VideoFrame) -> Turn:
    """How a video must be turned, by its first frame. Do not call it for every frame: PyAV's side data keep their frame
    in memory until Python collects cycles."""
    sides: Any = frame.side_data
    side = sides.get("DISPLAYMATRIX")
    if side is None:
        return None
    a, b, _, c, d = np.frombuffer(bytes(side), np.int32)[:5].tolist()
    return a, b, c, d


def _straight(matrix: tuple[int, int, int, int]) -> bool:
    a, b, c, d = matrix
    return (a != 0) == (d != 0) and (b != 0) == (c != 0) and (a != 0) != (b != 0)


def _open(data: _Data, file: VideoFile) -> InputContainer:
    import av

    # FFmpeg sees the extension, which is all that some kinds of files are recognized by.
    data.name = "video" + os.path.splitext(file.path)[1].encode("ascii", "replace").decode()  # noqa: PTH122
    options = {"format_whitelist": ",".join(_DEMUXERS), "protocol_whitelist": "none"}
    # From 19 on, PyAV opens files whose titles and the like are not UTF-8.
    any_text: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}
    try:
        with _raising_damage():
            container: InputContainer = av.open(data, "r", options=options, buffer_size=_BUFFER_BYTES, **any_text)
            return container
    except DamageError as error:
        data.seek(0)
        if instead := stand_in(bytes(data.read(256))):
            raise DecodeError("corrupt", f"it is {instead}") from error
        if _length_unopened(data, file) > file.state[0]:
            raise DecodeError("truncated", "the file ends before the index of its frames") from error
        raise DecodeError("corrupt", f"FFmpeg cannot open it: {error}") from error


def length_of(file: VideoFile) -> int:
    """The `OpenVideo.length` of a file on this machine that cannot be opened as a video."""
    try:
        with _Data(file.open()) as data:
            return _length_unopened(data, file)
    except OSError:
        return file.state[0]


def _length_unopened(data: _Data, file: VideoFile) -> int:
    kinds = ("mov", "matroska", "avi") if sniff_video(data.read_at(SNIFF_BYTES, 0)) else ()
    return max(file.state[0], declared_bytes(data.read_at, *kinds))
