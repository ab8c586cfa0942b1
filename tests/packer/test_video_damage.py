"""Damaged videos: what lies before the damage is kept and right, the rest is rejected with a reason and a time."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deadly_videos import dying
from folders import rejects_of
from running import run_here
from videos import FAST, av, encode, looked_through_here, number_of  # noqa: F401

from rawpack import Reader
from rawpack.errors import DecodeError, PackError
from rawpack_packer.destination.journal import REASONS, source_digest
from rawpack_packer.sources import open_source
from rawpack_packer.sources.video import scan
from rawpack_packer.sources.video.container import VideoFile

here = pytest.mark.usefixtures("looked_through_here")

COUNT = 60
OPEN = {**FAST, "x264-params": FAST["x264-params"] + ":open-gop=1"}
HEVC = "keyint=12:min-keyint=12:bframes=3:b-adapt=0:open-gop=1:log-level=none:pools=none:frame-threads=1"
Outcome = list[int | tuple[str, str]]


def outcome(source: Any, step: int = 10**9, kept: dict[int, bytes] | None = None) -> Outcome:
    """What comes of each sample, read in runs of `step`: the number that its frame shows, or reason and detail. kept:
    gets the pixels of those that can be read."""
    found: Outcome = []
    for start in range(0, len(source), step):
        part = source.part(start, min(start + step, len(source)))
        for i in range(len(part)):
            try:
                image = np.asarray(part[i].image)
                found.append(number_of(image))
                if kept is not None:
                    kept[start + i] = image.tobytes()
            except DecodeError as error:
                found.append((error.reason, error.detail))
    return found


def pixels(path: Path) -> dict[int, bytes]:
    """The frames of a sound video, by their number."""
    kept: dict[int, bytes] = {}
    outcome(open_source(path), kept=kept)
    return kept


def packets(path: Path) -> list[tuple[int, int]]:
    """Offset and size of the data of each packet, in the order of the file."""
    with av.open(str(path)) as file:
        found = [bytes(packet) for packet in file.demux(video=0) if packet.size]
    data, places, at = path.read_bytes(), [], 0
    for packet in found:
        at = data.find(packet, at)
        places.append((at, len(packet)))
        at += len(packet)
    return places


SOUND = {
    "closed.mp4": ("libx264", FAST), "open.mkv": ("libx264", OPEN),
    "ffv1.mkv": ("ffv1", {"g": "12"}), "open hevc.mkv": ("libx265", {"preset": "ultrafast", "x265-params": HEVC}),
}  # fmt: skip


@here
@pytest.mark.parametrize("name", SOUND)
def test_damage_costs_its_group_and_nothing_else(tmp_path: Path, name: str) -> None:
    """Frames before a packet that begins with nonsense, and those behind the next key frame, are kept to the byte;
    those between are rejected with their times; and it is the same in whatever runs the frames are read, also of one
    frame each."""
    path = encode(tmp_path / name, SOUND[name][0], 48, options=SOUND[name][1])
    sound, data, places = pixels(path), path.read_bytes(), packets(path)
    first = float(str(open_source(path)[0].fields["pts_seconds"]))
    for number, step in ((14, 1), (20, 7)):
        offset, _ = places[number]
        path.write_bytes(data[:offset] + b"\xff" * 8 + data[offset + 8 :])
        source = open_source(path)
        kept: dict[int, bytes] = {}
        found = outcome(source, kept=kept)
        assert found == outcome(source, step)
        bad = [i for i, what in enumerate(found) if isinstance(what, tuple)]
        assert [i for i, image in kept.items() if sound[i] != image] == []
        assert len(found) == len(kept) + len(bad) == 48
        assert number - 3 <= bad[0] <= bad[-1] < number + 24
        for i in bad:
            reason, detail = found[i]  # type: ignore[misc]
            assert (reason, f"at {first + i / 25:.3f} s" in detail) == ("damaged", True), detail


def copied(path: Path, target: Path, keep: Callable[[int, Any, list[Any]], bool]) -> Path:
    """Some packets of a video, in another file. keep: asked with the number of each, itself, and all."""
    with av.open(str(path)) as source, av.open(str(target), "w") as file:
        stream = file.add_stream_from_template(source.streams.video[0])
        every = [packet for packet in source.demux(video=0) if packet.size]
        for packet in [packet for i, packet in enumerate(every) if keep(i, packet, every)]:
            packet.stream = stream
            file.mux(packet)
    return target


OPEN_15 = {"x264-params": "keyint=15:min-keyint=15:open-gop=1:bframes=3:b-adapt=0:ref=4:scenecut=0:threads=1"}


@here
@pytest.mark.parametrize(
    ("name", "leading"), [("x.mkv", False), ("x.mp4", True), ("x.ts", False), ("counted.h264", True)]
)
def test_a_cut_in_an_open_group_costs_no_sound_frame(tmp_path: Path, name: str, leading: bool) -> None:
    """H.264 that was cut without encoding lists, and is told to forget, pictures from before the cut that no picture
    needs: all frames from the cut on are kept, to the byte. `ffmpeg -c copy` leaves out what is decoded after the cut
    and shown before, and splitters do not."""
    path = encode(tmp_path / name.replace("h264", "ts"), "libx264", COUNT, options=OPEN_15)
    sound = pixels(path)
    for key in (1, 2):

        def is_behind(i: int, packet: Any, every: list[Any], key: int = key) -> bool:
            start = [i for i, packet in enumerate(every) if packet.is_keyframe][key]
            return i >= start and (leading or packet.pts >= every[start].pts)

        source = open_source(copied(path, tmp_path / f"cut {name}", is_behind))
        kept: dict[int, bytes] = {}
        found = outcome(source, kept=kept)
        assert found == outcome(source, 7) == list(range(15 * key, COUNT)), (key, found)
        assert all(image == sound[15 * key + i] for i, image in kept.items())


@here
def test_where_no_picture_from_before_is_used_a_missing_reference_is_damage(tmp_path: Path) -> None:
    """Where the first picture begins a video, no cut took any away: a packet is missing."""
    path = encode(tmp_path / "x.mkv", "libx264", COUNT, options=OPEN_15)
    found = outcome(open_source(copied(path, tmp_path / "y.mkv", lambda i, *_: i != 6)))
    assert {what[0] for what in found[:15] if isinstance(what, tuple)} == {"damaged"}


@here
def test_a_cut_mp4_rejects_each_frame_that_it_lists(tmp_path: Path) -> None:
    """With its index at the front, all frames up to the cut are kept, and those behind are rejected one by one."""
    path = encode(tmp_path / "x.mp4", "libx264", COUNT, options=FAST, container={"movflags": "faststart"})
    offset, size = packets(path)[30]
    path.write_bytes(path.read_bytes()[: offset + size // 2])
    found = outcome(open_source(path))
    assert len(found) == COUNT
    kept = [what for what in found if isinstance(what, int)]
    assert kept == found[: len(kept)] == list(range(len(kept)))
    assert 26 <= len(kept) <= 30
    assert {what[0] for what in found if isinstance(what, tuple)} <= {"truncated", "damaged"}
    assert all(" s " in what[1] for what in found if isinstance(what, tuple))


@here
@pytest.mark.parametrize("name", ["h264.mkv", "mjpeg.avi"])
def test_what_is_missing_behind_a_cut_is_told_once(tmp_path: Path, name: str) -> None:
    """Where the file does not say how many frames it should have, one reject stands for all that are missing."""
    codec, options, format = ("libx264", OPEN, "yuv420p") if "h264" in name else ("mjpeg", {}, "yuvj420p")
    path = encode(tmp_path / name, codec, COUNT, options=options, format=format)
    offset, size = packets(path)[30]
    data = path.read_bytes()
    path.write_bytes(data[: offset + size // 2])
    found = outcome(open_source(path))
    kept = [what for what in found if isinstance(what, int)]
    assert kept[:25] == list(range(25))
    assert kept == found[: len(kept)] == list(range(len(kept)))
    assert isinstance(found[-1], tuple)
    assert found[-1][0] == "truncated"
    assert len(found) - len(kept) <= 4
    ran = run_here("pack", "--quiet", "--size", "16", "--workers", 0, path, tmp_path / "store")
    assert (ran.code, "1 of 1 video cannot be read in full" in ran.err) == (1, True), ran.err
    assert f"--max-rejects {math.ceil(100 * (1 - offset / len(data)))}% packs the rest" in ran.err
    assert not (tmp_path / "store").exists()


@here
def test_a_length_that_is_unknown_or_absurd(tmp_path: Path) -> None:
    """A live recording does not say how long it is, so nothing is missing; where a damaged header claims more than any
    file has, other files still count."""
    avi = encode(tmp_path / "x.avi", "mjpeg", 6, format="yuvj420p")
    data = avi.read_bytes()
    for size in (0, 0xFFFFFFFF):
        avi.write_bytes(data[:4] + size.to_bytes(4, "little") + data[8 : data.rindex(b"idx1")])
        assert outcome(open_source(avi)) == list(range(6))
    mkv = encode(tmp_path / "x.mkv", "libx264", 6)
    data = mkv.read_bytes()
    at = data.index(b"\x18\x53\x80\x67") + 4
    assert data[at] == 1  # followed by seven bytes
    for size, expected in ((bytes([255] * 7), len(data)), (bytes([127] * 7), 1 << 40)):
        mkv.write_bytes(data[: at + 1] + size + data[at + 8 :])
        found = open_source(mkv).containers
        assert (found is not None and found.bytes.tolist()) == [expected]
        assert outcome(open_source(mkv)) == list(range(6))


@here
def test_behind_a_hole_in_the_container_nothing_is_kept(tmp_path: Path) -> None:
    """Where packets are gone, nobody knows how many: the frames before are kept, those behind have no number."""
    path = encode(tmp_path / "x.mkv", "libx264", COUNT, options=FAST)
    lie, data = packets(path), bytearray(path.read_bytes())
    start, end = lie[20][0] + 3, lie[26][0] + 9
    data[start:end] = np.random.default_rng(0).bytes(end - start)
    path.write_bytes(data)
    found = outcome(open_source(path))
    kept = [what for what in found if isinstance(what, int)]
    assert kept == found[: len(kept)]
    assert kept[:17] == list(range(17))
    assert len(kept) <= 22
    assert {what[0] for what in found[len(kept) :] if isinstance(what, tuple)} == {"damaged"}


def test_what_is_no_video_is_one_reject(tmp_path: Path) -> None:
    """Empty files, texts, sound, an MP4 without its index: one reject each, with its reason; playlists open nothing."""
    folder = tmp_path / "source"
    good = encode(folder / "good.mp4", "libx264", 4, options=FAST)
    expected = {"cut": "truncated", "empty": "empty", "list": "corrupt", "sound": "no_video", "text": "corrupt"}
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "text.mp4").write_text("no video " * 50)
    (folder / "cut.mp4").write_bytes(good.read_bytes()[:900])
    (folder / "list.mp4").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:{good}\n#EXT-X-ENDLIST\n")
    with av.open(str(folder / "sound.mp4"), "w", format="matroska") as file:
        stream = file.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), layout="mono")
        frame.sample_rate = 8000
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    if sys.platform == "linux":
        os.link(good, os.fsencode(folder) + b"/odd\xff.mp4")
        expected["odd\\xff"] = "bad_name"
    store = tmp_path / "store"
    ran = run_here("pack", "--quiet", "--size", "16", "--max-rejects", "100%", folder, store)
    assert (ran.code, ran.err) == (0, "")
    assert {reject["key"].removesuffix(".mp4#000000"): reject["reason"] for reject in rejects_of(store)} == expected
    assert set(expected.values()) <= set(REASONS)
    assert len(Reader(store)) == 4


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs child processes")


def three_videos(folder: Path) -> Path:
    """Of three frames each; the second one is deadly."""
    for name in ("a.mp4", "deadly.mp4", "z.mp4"):
        encode(folder / name, "libx264", 3, options=FAST)
    return folder


@linux
def test_a_video_that_kills_ffmpeg_costs_itself(tmp_path: Path) -> None:
    """Where the process that looks through a video dies of it twice, the video is rejected, and the others are not."""
    with dying(os.abort):
        source = open_source(three_videos(tmp_path))
    assert [what if isinstance(what, int) else what[0] for what in outcome(source)] == [0, 1, 2, "crashed", 0, 1, 2]
    assert source.info.read_again == 0


@linux
def test_a_process_that_is_killed_once_costs_nothing(tmp_path: Path) -> None:
    """The video is read again in a process of its own; the job is that of an undisturbed run, and only the summary
    counts it."""
    folder, noted = three_videos(tmp_path / "source"), tmp_path / "killed"

    def once() -> None:
        if not noted.exists():
            noted.touch()
            os.kill(os.getpid(), signal.SIGTERM)

    with dying(once):
        source = open_source(folder)
    assert outcome(source) == [0, 1, 2] * 3
    assert source.info.read_again == 1
    calm = open_source(folder)
    assert (calm.info.read_again, calm.info.counts, source_digest(calm)) == (
        0, source.info.counts, source_digest(source),
    )  # fmt: skip


@pytest.mark.parametrize("status", [-signal.SIGSEGV, 1, -signal.SIGKILL])
def test_how_the_second_process_ends_decides(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that no killer sends, or an exit code of its own, shows that the video is the cause, whatever ended the
    first process. Of one that is killed twice, nothing is known: it is named, and no reject."""
    ends = iter([-signal.SIGKILL, status])
    monkeypatch.setattr(scan, "_read_through", lambda *_: ({}, {0: next(ends)}))
    video = VideoFile("/deadly.mp4", "deadly.mp4", (1, 1), b"x")
    if status == -signal.SIGKILL:
        with pytest.raises(PackError, match=r"deadly\.mp4 died twice, now by SIGKILL: .* memory"):
            scan.make_indexes([video])
    else:
        (found,) = scan.make_indexes([video])
        assert isinstance(found, DecodeError)
        assert found.reason == "crashed"
