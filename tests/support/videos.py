"""Videos made for tests, whose frames show their own numbers; and the ffmpeg command as an oracle."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawpack_packer.sources.video import scan

av = pytest.importorskip("av", reason="needs PyAV: pip install 'rawpack[video]'")

Pixels = NDArray[np.uint8]
HEIGHT, WIDTH = 48, 80
_BITS, _SIDE = 10, 8
FFMPEG = shutil.which("ffmpeg")
needs_ffmpeg = pytest.mark.skipif(FFMPEG is None, reason="needs the ffmpeg command")


@pytest.fixture
def looked_through_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test, as `look_through_here`."""
    look_through_here(monkeypatch)


def look_through_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Videos are looked through in this process: child processes take half a second each, and change nothing."""

    def make_indexes(places: Sequence[Any], progress: Any = None) -> list[Any]:
        return [scan._index(place, lambda: None) for place in places]

    monkeypatch.setattr(scan, "make_indexes", make_indexes)


def picture_of(number: int) -> Pixels:
    """A frame that shows its number, a bit in each of ten blocks, above something that moves."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    x = np.arange(WIDTH) * 3 + number * 5
    image[..., 0] = (x % 200)[None]
    image[..., 1] = (np.arange(HEIGHT)[:, None] * 4 + number * 3) % 180
    image[..., 2] = 60 + 40 * (number % 3)
    for bit in range(_BITS):
        image[:_SIDE, bit * _SIDE : (bit + 1) * _SIDE] = 255 * (number >> bit & 1)
    return image


def number_of(image: Pixels) -> int:
    """The number that a frame shows, whatever its codec has made of it."""
    blocks = image[:_SIDE].mean(2)[2:-2]
    bits = [blocks[:, bit * _SIDE + 2 : (bit + 1) * _SIDE - 2].mean() > 127 for bit in range(_BITS)]
    return sum(1 << bit for bit, on in enumerate(bits) if on)


FAST = {"preset": "veryfast", "x264-params": "keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0:threads=1"}
"""Options of libx264, with groups of 12 frames."""


def rows(source: Any) -> list[dict[str, Any]]:
    """The fields of all samples, with what their frames show."""
    part = source.part(0, len(source))
    items = [part[i] for i in range(len(part))]
    return [{**item.fields, "shows": number_of(np.asarray(item.image)), "key": item.key} for item in items]


def encode(
    path: Path,
    codec: str,
    count: int = 60,
    *,
    format: str = "yuv420p",
    rate: int = 25,
    pts: Sequence[int] | None = None,
    options: dict[str, str] | None = None,
    numbers: Iterable[int] | None = None,
    container: dict[str, str] | None = None,
    scale: int = 1,
    title: str = "",
) -> Path:
    """Write a video of `count` frames, `scale` times as large; `pts` in 1/1000 s, else by the rate."""
    if codec not in av.codecs_available:
        pytest.skip(f"PyAV has no encoder {codec}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=container or {}) as file:
        if title:
            file.metadata["title"] = title
        stream: Any = file.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = WIDTH * scale, HEIGHT * scale, format
        stream.codec_context.thread_count = 1
        if pts is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for k, number in enumerate(range(count) if numbers is None else numbers):
            image = picture_of(number).repeat(scale, 0).repeat(scale, 1)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = k if pts is None else pts[k]
            frame.time_base = Fraction(1, rate) if pts is None else Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def ffmpeg(*args: object) -> bytes:
    """Run the ffmpeg command; what it wrote to standard output."""
    return _answer("ffmpeg", "-nostdin", "-threads", "1", *args)


def ffprobe(*args: object) -> bytes:
    """The same of the ffprobe command."""
    return _answer("ffprobe", *args)


def _answer(program: str, *args: object) -> bytes:
    assert FFMPEG is not None
    command = [FFMPEG.replace("ffmpeg", program), "-v", "error", *map(str, args)]
    ran = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def decoded(path: Path, height: int = HEIGHT, width: int = WIDTH, *options: object) -> Pixels:
    """All frames by the ffmpeg command, upright, RGB: (n, height, width, 3)."""
    data = ffmpeg("-i", path, "-map", "0:v:0", "-fps_mode", "passthrough", *options, "-f", "rawvideo", "-pix_fmt",
                  "rgb24", "-")  # fmt: skip
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)


def hashes(images: Iterable[Pixels]) -> list[str]:
    return [hashlib.md5(np.ascontiguousarray(image).data).hexdigest() for image in images]
