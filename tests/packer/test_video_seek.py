"""A frame that is sought is the frame that decoding from the start gives, whatever the codec and the container.

Frames show their own numbers, so which frame came is seen without any decoder's word for it. Where a codec keeps RGB
without loss of meaning, the ffmpeg command says what every byte must be.
"""

from __future__ import annotations

import gc
import pickle
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from videos import FAST, decoded, encode, ffmpeg, hashes, looked_through_here, needs_ffmpeg, number_of  # noqa: F401

from rawpack_packer.sources import open_source
from rawpack_packer.sources.video.decoding import Seeking
from rawpack_packer.sources.video.source import open_videos

pytestmark = pytest.mark.usefixtures("looked_through_here")

COUNT = 36
X265 = "keyint=12:min-keyint=12:bframes=3:b-adapt=0:log-level=none:pools=none:frame-threads=1"
VPX = {"g": "12", "deadline": "realtime", "cpu-used": "8", "lag-in-frames": "8", "auto-alt-ref": "1", "b": "300k"}
GROUPS = {"g": "12", "bf": "2", "b": "2M"}

CASES: dict[str, tuple[str, dict[str, str]]] = {
    "b-frames.mp4": ("libx264", FAST),
    "open groups.mp4": ("libx264", FAST | {"x264-params": FAST["x264-params"] + ":open-gop=1"}),
    "open hevc.mkv": ("libx265", {"preset": "ultrafast", "x265-params": f"{X265}:open-gop=1"}),
    "one group.mp4": ("libx264", {"preset": "veryfast", "x264-params": "keyint=infinite:threads=1"}),
    "h264.avi": ("libx264", FAST),
    "raw.h264": ("libx264", FAST),
    "mpeg4.avi": ("mpeg4", GROUPS),
    "hidden frames.webm": ("libvpx", VPX | {"deadline": "good", "lag-in-frames": "12"}),
    "vp9.webm": ("libvpx-vp9", VPX),
    "av1.mp4": ("libsvtav1", {"preset": "12", "g": "16", "svtav1-params": "lp=1"}),
    "every frame.avi": ("mjpeg", {}),
    "ffv1.mkv": ("ffv1", {"g": "12"}),
}
ALWAYS_FROM_THE_START = {"one group.mp4", "h264.avi", "raw.h264"}


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`video("av1.mp4")`: the video of that name, made and looked through once."""
    folder = tmp_path_factory.mktemp("seek")

    @cache
    def get(name: str) -> open_videos:
        codec, options = CASES[name]
        format = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        return open_videos(encode(folder / name, codec, COUNT, format=format, options=options))

    return get


@pytest.mark.parametrize("name", CASES)
def test_any_frame_is_the_one_of_a_decoding_in_order(video: Any, name: str) -> None:
    """All frames are there, in order; each alone, and in any order, has the very bytes that it has in sequence. One far
    behind is found by a seek to the key frame before it: fewer packets are decoded than lie before it."""
    source = video(name)
    whole = source.part(0, len(source))
    in_order = [whole[i].image for i in range(len(whole))]
    assert [number_of(image) for image in in_order] == list(range(COUNT))
    for i in range(COUNT):
        assert np.array_equal(source.part(i, i + 1)[0].image, in_order[i]), i
    part, numbers = source.part(20, COUNT), list(range(COUNT - 20))
    random.Random(1).shuffle(numbers)
    for i in numbers:
        assert np.array_equal(part[i].image, in_order[20 + i]), i
    if name in ALWAYS_FROM_THE_START:
        return
    fed: list[Any] = []
    decode = Seeking._decode
    with mock.patch.object(Seeking, "_decode", lambda self, packet: (fed.append(packet), decode(self, packet))[1]):
        assert number_of(np.asarray(source.part(31, 32)[0].image)) == 31
    assert 0 < len(fed) < 30


RGB = {
    "h264.mkv": ("libx264rgb", "rgb24", FAST),
    "vp9.webm": ("libvpx-vp9", "gbrp", VPX),
    "png.mov": ("png", "rgb24", {}),
}


@needs_ffmpeg
@pytest.mark.parametrize("name", RGB)
def test_every_byte_is_that_of_the_ffmpeg_command(name: str, tmp_path: Path) -> None:
    """Of videos that are RGB in the file, all frames hash to what the ffmpeg command decodes."""
    codec, format, options = RGB[name]
    path = encode(tmp_path / name, codec, COUNT, format=format, options=options)
    source = open_source(path)
    ours = hashes(source.part(i, i + 1)[0].image for i in range(len(source)))
    assert ours == hashes(decoded(path))
    assert len(set(ours)) == COUNT


@needs_ffmpeg
def test_what_an_edit_list_cuts_off_is_no_frame(tmp_path: Path) -> None:
    """Of an MP4 cut without encoding it anew, the frames are those that its edit list shows, and their times too."""
    whole = encode(tmp_path / "whole.mp4", "libx264rgb", 48, format="rgb24",
                   options=FAST)  # fmt: skip
    cut = tmp_path / "cut.mp4"
    ffmpeg("-ss", "0.76", "-i", whole, "-t", "0.9", "-c", "copy", cut)
    source = open_source(cut)
    items = [source.part(i, i + 1)[0] for i in range(len(source))]
    numbers = [number_of(np.asarray(item.image)) for item in items]
    assert numbers[:20] == list(range(19, 39))
    assert hashes(item.image for item in items) == hashes(decoded(cut))
    assert [item.fields["frame"] for item in items] == list(range(len(items)))
    assert items[0].fields["pts_seconds"] == 0.0


def test_a_source_holds_no_file_open(video: Any) -> None:
    """One video is open at a time, however many parts are read; a part that goes away closes its own."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").glob("*")))

    before = descriptors()
    source = video("b-frames.mp4")
    part = source.part(0, 20)
    part[3]
    travelled = pickle.loads(pickle.dumps(part))
    assert np.array_equal(travelled[4].image, part[4].image)
    singles = [source.part(i, i + 1) for i in range(20)]
    assert [number_of(np.asarray(single[0].image)) for single in singles] == list(range(20))
    assert descriptors() <= before + 1
    del part, travelled, singles
    assert descriptors() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_frames_that_were_read_are_not_kept(tmp_path: Path) -> None:
    path = encode(tmp_path / "large.mkv", "mpeg4", 40, options=GROUPS, scale=10)
    source = open_source(path)
    part = source.part(0, len(source))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    gc.disable()
    try:
        for i in range(10):
            part[i]
        before = resident()
        for i in range(10, 40):
            part[i]
        grown = resident() - before
    finally:
        gc.enable()
    # A frame has 1.7 MB, decoded and as RGB: 30 would be 50 MB.
    assert grown < 20e6
