"""Videos as a source: what is found, which frames are taken, what their fields say, and what packing makes of them."""

from __future__ import annotations

import itertools
import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import picture, save
from real_data import real_files
from running import run_here, stop_of
from troubled import touch
from videos import (  # noqa: F401
    FAST,
    HEIGHT,
    WIDTH,
    av,
    decoded,
    encode,
    ffmpeg,
    ffprobe,
    hashes,
    looked_through_here,
    needs_ffmpeg,
    number_of,
    rows,
)

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.errors import PackError
from rawpack_packer.sources import open_source
from rawpack_packer.sources.video import Selection, make_selection
from rawpack_packer.sources.video.container import BY_PLANES, ToRgb
from rawpack_packer.sources.video.source import open_videos

here = pytest.mark.usefixtures("looked_through_here")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short videos of several codecs in two classes, and one beside them."""
    root = tmp_path_factory.mktemp("clips")
    encode(root / "run" / "b.mp4", "libx264", 31, options=FAST)
    encode(root / "run" / "a.mkv", "mpeg4", 17, options={"g": "6", "bf": "2", "b": "2M"})
    encode(root / "walk" / "deep" / "c.webm", "libvpx-vp9", 23, options={"g": "8", "deadline": "realtime", "b": "300k"})
    encode(root / "walk" / "raw.h264", "libx264", 9, options=FAST)
    encode(root / "loose.avi", "mjpeg", 5, format="yuvj420p")
    return root


# ---------------------------------------------------------------------------------------------- what is found


def test_a_folder_of_videos_is_found_with_its_classes(clips: Path) -> None:
    """First-level folders are classes; videos are numbered in path order, their frames as they are shown."""
    source = open_source(clips)
    assert source.info.kind == "video"
    assert source.info.classes == ("run", "walk")
    assert list(source.info.fields) == ["label", "video", "frame", "pts_seconds"]
    found = rows(source)
    assert [row["shows"] for row in found] == [row["frame"] for row in found]
    frames = {"loose.avi": 5, "run/a.mkv": 17, "run/b.mp4": 31, "walk/deep/c.webm": 23, "walk/raw.h264": 9}
    assert [row["key"] for row in found] == [f"{name}#{k:06d}" for name, count in frames.items() for k in range(count)]
    assert [row["video"] for row in found] == sorted(row["video"] for row in found)
    assert sorted({(row["video"], int(row["label"])) for row in found}) == [(0, -1), (1, 0), (2, 0), (3, 1), (4, 1)]


@here
def test_a_pattern_is_the_videos_that_it_names(clips: Path, tmp_path: Path) -> None:
    """Those of one folder, which may be known by their bytes alone, and with --fps and its like; in several folders
    they may have classes."""
    source = open_source(clips / "run" / "*.m*")
    assert (source.info.kind, source.info.classes) == ("video", None)
    assert [row["shows"] for row in rows(source)] == [*range(17), *range(31)]
    assert len(open_source(clips / "run" / "b*", fps=10)) < 31
    with pytest.raises(UsageError, match="in several folders, which may be classes: name the folder that they are in"):
        open_source(clips / "*" / "[abr]*.[mh]*")
    shutil.copy(clips / "loose.avi", tmp_path / "a.avi")
    (tmp_path / "b.doc").write_bytes(b"text")
    with pytest.raises(UsageError, match=r"names .*/b\.doc too, which is no video"):
        open_source(tmp_path / "*")
    save(tmp_path / "y.jpg", picture(20, 20, 0))
    videos = open_source(tmp_path, "video")
    assert (len(videos), videos.info.counts["images"]) == (5, 1)


# ---------------------------------------------------------------------------------------------- which frames


@here
def test_options_take_frames_by_their_times(tmp_path: Path) -> None:
    """Of a variable frame rate: --fps by what is shown at each tick, --start and --end by time, --frame-step by
    number."""
    times = [0, 40, 80, 500, 540, 1000, 1700, 1740, 1780, 3000]
    path = encode(tmp_path / "varying.mkv", "libx264", len(times), pts=times, options=FAST)

    def taken(**options: Any) -> list[int]:
        found = rows(open_source(path, **options))
        assert [row["pts_seconds"] for row in found] == [times[row["frame"]] / 1000 for row in found]
        return [row["shows"] for row in found]

    assert taken() == list(range(10))
    assert taken(fps=1) == [0, 5, 8, 9]
    assert taken(fps="2") == [0, 3, 5, 8, 9]
    assert taken(fps=2, start=1, end="1.9") == [5]
    assert taken(frame_step=4) == [0, 4, 8]
    assert taken(start="0.5", end="00:00:01.74") == [3, 4, 5, 6]
    assert taken(start="0.5", frame_step=2, max_frames=3) == [3, 5, 7]
    assert open_source(path).info.counts["variable_rate"] == 1
    assert open_source(path, fps=1).info.counts["frames_left_out"] == 6


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=20), st.integers(1, 90), st.integers(1, 8),
    st.integers(0, 60), st.one_of(st.none(), st.integers(1, 200)),
)  # fmt: skip
def test_fps_takes_what_is_shown_at_each_tick(
    gaps: list[int], numerator: int, denominator: int, start: int, length: int | None
) -> None:
    """Against a plain search for each tick: the last frame that began before it, a unit of the clock allowed, as
    Matroska rounds times to milliseconds."""
    unit, rate = Fraction(1, 30), Fraction(numerator, denominator)
    times = np.cumsum([7, *gaps])
    end = int(times[-1]) + gaps[-1]
    begin, stop = Fraction(start, 10), None if length is None else Fraction(start + length, 10)
    expected, k = set(), 0
    while (tick := begin + k / rate) < min(end * unit - 7 * unit, stop if stop is not None else end):
        expected.add(max(n for n, time in enumerate(times) if (int(time) - 7) * unit < tick + unit))
        k += 1
    picked = Selection(fps=rate, start=begin, end=stop).pick(times, unit, end)
    assert picked.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fps": "5", "frame_step": 2}, "--fps and --frame-step"),
        ({"fps": "0"}, "--fps '0'"),
        ({"start": "5", "end": "5"}, "--end 5 is not after --start 5"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("-", r"\-")):
        make_selection(**options)


@here
@needs_ffmpeg
def test_times_are_those_of_the_file(clips: Path) -> None:
    """`pts_seconds` is the presentation time that ffprobe tells, whatever it begins with. A stretch that lies behind
    every video makes no store."""
    shifted = clips.parent / "shifted.ts"
    ffmpeg("-y", "-i", clips / "run" / "b.mp4", "-c", "copy", shifted)
    said = ffprobe("-select_streams", "v:0", "-show_entries", "frame=pts_time", "-of", "json", shifted)
    told = [float(frame["pts_time"]) for frame in json.loads(said)["frames"]]
    assert [row["pts_seconds"] for row in rows(open_source(shifted))] == pytest.approx(told, abs=1e-6)
    assert told[0] > 1
    with pytest.raises(UsageError, match="no frame of"):
        open_source(clips, start="1:00:00")
    assert open_source(clips, start="0.7").info.counts["videos_without_frames"] == 3


# ---------------------------------------------------------------------------------------------- pixels


@here
@needs_ffmpeg
def test_turned_videos_are_upright(tmp_path: Path) -> None:
    """What a phone writes as turned is turned as the ffmpeg command turns it, to the byte; that pixels are to be shown
    wider is counted."""
    flat = encode(tmp_path / "flat.mp4", "libx264rgb", 2, format="rgb24", options=FAST)
    for turn, height, width in ((90, WIDTH, HEIGHT), (180, HEIGHT, WIDTH), (270, WIDTH, HEIGHT)):
        path = tmp_path / f"turned{turn}.mp4"
        ffmpeg("-i", flat, "-c", "copy", "-metadata:s:v:0", f"rotate={turn}", path)
        source = open_source(path)
        assert np.asarray(source[0].image).shape == (height, width, 3)
        assert hashes(source[i].image for i in range(2)) == hashes(decoded(path, height, width))
        assert (source.info.counts["rotated"], source.info.counts["not_square"]) == (1, 0)
    wide = tmp_path / "wide.mp4"
    ffmpeg("-i", flat, "-vf", "setsar=4/3", "-c:v", "libx264", wide)
    assert open_source(wide).info.counts["not_square"] == 1


@here
def test_a_title_that_is_not_utf_8(tmp_path: Path) -> None:
    """What a file says about itself in another encoding keeps no frame from being packed, in any version of PyAV."""
    path = encode(tmp_path / "a.mkv", "libx264", 3, title="T" * 16)
    path.write_bytes(path.read_bytes().replace(b"T" * 16, b"\xff" * 16))
    assert [row["shows"] for row in rows(open_source(path))] == [0, 1, 2]


COLORS = np.array([(255, 255, 255), (0, 0, 0), (230, 20, 30), (20, 200, 40), (30, 40, 220), (128, 128, 128)], np.uint8)


@here
@pytest.mark.parametrize(("matrix", "red", "blue"), [(1, 0.2126, 0.0722), (6, 0.299, 0.114)])
@pytest.mark.parametrize(("full", "bits"), [(False, 8), (True, 10)])
def test_colours_follow_matrix_and_range(
    tmp_path: Path, matrix: int, red: float, blue: float, full: bool, bits: int
) -> None:
    """From Y'CbCr by the formulas of the standards, in 8 and 10 bits: what is stored is the colour that went in."""
    rgb = COLORS.astype(np.float64) / 255
    luma = rgb @ np.array([red, 1 - red - blue, blue])
    chroma = [(rgb[:, 2] - luma) / (2 - 2 * blue), (rgb[:, 0] - luma) / (2 - 2 * red)]
    rows, scale = 16, 1 << (bits - 8)
    y = luma * 255 * scale if full else (16 + 219 * luma) * scale
    planes = [y, *((128 + c * (255 if full else 224)) * scale for c in chroma)]
    type_of = np.uint8 if bits == 8 else np.uint16
    data = np.stack([np.repeat(np.repeat(p.round().clip(0, 256 * scale - 1)[None], rows, 0), 16, 1) for p in planes])
    path = tmp_path / "colours.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = 96, rows, "yuv444p" if bits == 8 else "yuv444p10le"
        frame = av.VideoFrame(96, rows, stream.pix_fmt)
        for plane, values in zip(frame.planes, data.astype(type_of), strict=True):
            padded = np.zeros((rows, plane.line_size // type_of().itemsize), type_of)
            padded[:, :96] = values
            plane.update(padded.tobytes())
        stream.codec_context.colorspace = frame.colorspace = matrix
        stream.codec_context.color_range = frame.color_range = 2 if full else 1
        frame.pts = 0
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    source = open_videos(path)
    seen = np.asarray(source[0].image)[8, 8::16]
    assert np.abs(seen.astype(int) - COLORS).max() <= 3
    assert source.info.counts["more_than_8_bits"] == (bits == 10)
    assert source.info.counts["colors_unsaid"] == 0


@here
@pytest.mark.parametrize("name", [*sorted(BY_PLANES), "yuv410p", "yuva420p", "gray", "rgb24", "gbrp"])
def test_pixels_are_those_that_ffmpeg_makes_in_one_step(name: str) -> None:
    """Frames of any size and color range have the values of FFmpeg's own conversion to RGB, in formats for which the
    way goes through planes of RGB and in others."""
    from av.video.reformatter import Interpolation, VideoReformatter

    random, to_rgb, direct = np.random.default_rng(0), ToRgb(None), VideoReformatter()
    how = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT | Interpolation.FULL_CHR_H_INT
    largest = 1 << (10 if "10" in name and name != "yuv410p" else 8)
    for width, height in itertools.product((1, 2, 17, 340), (1, 4, 7, 8, 15, 16, 31, 32, 33, 63)):
        for matrix, span in ((1, 1), (5, 2), (9, 1), (2, 0)):
            frame = av.VideoFrame(width, height, name)
            for plane in frame.planes:
                values = random.integers(0, largest, plane.buffer_size // (2 if largest > 256 else 1))
                plane.update(values.astype(np.uint16 if largest > 256 else np.uint8).tobytes())
            frame.colorspace, frame.color_range = matrix, span
            expected = direct.reformat(frame, format="rgb24", interpolation=int(how), dst_color_range=2).to_ndarray()
            assert np.array_equal(to_rgb(frame), expected), (width, height, matrix, span)


@here
@needs_ffmpeg
@pytest.mark.parametrize("file", real_files("videos"))
def test_real_videos_are_what_the_ffmpeg_command_decodes(file: Path) -> None:
    """All frames are there, and each seventh one is the same."""
    source, stream = open_videos(file), "3" if file.name.startswith("nasa") else "v:0"
    first = np.asarray(source[0].image)
    theirs = decoded(file, first.shape[0], first.shape[1], "-sws_flags", "bicubic+accurate_rnd+full_chroma_int",
                     "-vf", r"select=not(mod(n\,7))", "-map", "-0:v:0", "-map", f"0:{stream}")  # fmt: skip
    counted = ffprobe("-select_streams", stream, "-count_packets", "-show_entries", "stream=nb_read_packets",
                      "-of", "json", file)  # fmt: skip
    assert len(source) == int(json.loads(counted)["streams"][0]["nb_read_packets"])
    part = source.part(0, len(source))
    for i, image in zip(range(0, len(part), 7), theirs, strict=True):
        assert np.abs(np.asarray(part[i].image).astype(int) - image).mean() < 1, i


# ---------------------------------------------------------------------------------------------- packing


def shot(folder: Path, *names: str, frames: int = 20) -> Path:
    """A folder of small videos."""
    for name in names:
        encode(folder / f"{name}.mkv", "ffv1", frames, format="bgr0")
    return folder


def done(command: str, *args: object) -> None:
    ran = run_here(command, "--quiet", "--workers", 0, *(("--size", "8") if command == "pack" else ()), *args)
    assert (ran.code, ran.err) == (0, ""), ran


@here
def test_a_video_is_not_parted_by_a_split(tmp_path: Path) -> None:
    """--holdout draws whole videos, of each class."""
    for k in range(6):
        encode(tmp_path / "source" / f"class {k % 2}" / f"{k}.mkv", "ffv1", 3, format="bgr0")
    done("pack", "--holdout", "val=0.34", tmp_path / "source", tmp_path / "store")
    train, val = (Reader(tmp_path / "store", split=split).column("key") for split in ("train", "val"))
    assert (len(train), len(val)) == (12, 6)
    assert len({key.partition("#")[0] for key in val}) == 2
    assert not {key.partition("#")[0] for key in train} & {key.partition("#")[0] for key in val}


@here
def test_another_choice_of_frames_is_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished store is not gone on with by other options, nor appended to by them, nor by another decoder, whose
    pixels may be others; the same options in other words are the same."""
    store, clips = tmp_path / "store", shot(tmp_path / "clips", "a")
    done("pack", "--fps", "5", clips, store)
    assert "complete already" in run_here("pack", "--workers", 0, "--size", "8", "--fps", "10/2", clips, store).out
    shot(clips, "new")
    said = stop_of("pack", "--workers", 0, "--quiet", "--size", "8", "--frame-step", "2", clips, store)
    assert "the options of the source differ: " in said
    said = stop_of("append", "--workers", 0, "--quiet", "--fps", "10", clips, store)
    assert "give --fps, --frame-step and the like as when the store was packed" in said
    said = stop_of("pack", "--workers", 0, "--quiet", "--size", "8", "--fps", "5", clips, store)
    assert "`rawpack append --skip-existing`" in said
    monkeypatch.setattr("rawpack_packer.sources.video.library", lambda: "pyav 1.0.0")
    said = stop_of("pack", "--workers", 0, "--quiet", "--size", "8", "--fps", "5", clips, store)
    made = json.loads((store / "store.json").read_text())["recipe"]["libraries"]["video"]
    assert made.startswith(f"pyav {av.__version__}, libavcodec ")
    assert "pyav 1.0.0" in said
    assert made in said


@here
def test_a_video_that_changes_stops_the_run(tmp_path: Path) -> None:
    """A file that is written to while its frames are read is noticed; none of its frames is rejected for it."""
    path = encode(tmp_path / "x.mp4", "libx264", 20, options=FAST)
    source = open_source(path)
    part = source.part(0, 20)
    part[3]
    touch(str(path))
    for read in (lambda: part[4], lambda: source.part(5, 9)[0]):
        with pytest.raises(PackError, match=r"x\.mp4 changed since packing began"):
            read()


# ---------------------------------------------------------------------------------------------- videos of many sources


def numbered(store: Path) -> dict[str, int]:
    """The name of each video by the keys, and its number, which no other has."""
    reader = Reader(store)
    pairs = {(sample["key"].partition(".")[0], int(sample["video"])) for sample in reader}
    names, numbers = dict(pairs), {number for _, number in pairs}
    assert len(pairs) == len(names) == len(numbers), pairs
    return names


@here
@pytest.mark.parametrize("way", ["merge", "append videos", "append stores"])
def test_each_video_keeps_a_number_of_its_own(way: str, tmp_path: Path) -> None:
    """However frames of several folders, or of one in several runs, come into one store: videos of the first keep their
    numbers, the others get free ones, and every clip is of one video, each of which has its clips. A subset and a copy
    leave the numbers."""
    folders = [shot(tmp_path / name, *names) for name, names in {"x": "ab", "y": "cd"}.items()]
    chosen = [(folders[0], "--end"), (folders[1], "--start"), (folders[0], "--start")]
    stores = [tmp_path / f"store {k}" for k in range(3)]
    for (folder, option), store in zip(chosen, stores, strict=True):
        done("pack", option, "0.4", folder, store)
    made = tmp_path / "made"
    if way == "merge":
        done("merge", *stores, made)
    else:
        shutil.copytree(stores[0], made)
        for (folder, option), store in zip(chosen[1:], stores[1:], strict=True):
            done("append", *((option, "0.4", folder) if way == "append videos" else (store,)), made)
    assert numbered(made) == {"a": 0, "b": 1, "c": 2, "d": 3}
    reader = Reader(made)
    assert len(reader.clips(4, per_video=1)) == 6  # of a and b, two stretches each
    keys = [reader[row]["key"] for row in range(len(reader))]
    for clip in reader.clips(6, step=1).column("store_row").tolist():
        assert len({keys[row].partition("#")[0] for row in clip}) == 1
    (tmp_path / "rows").write_text("".join(f"{row}\n" for row, key in enumerate(keys) if key[0] in "bd"))
    done("subset", "--rows-from", tmp_path / "rows", made, tmp_path / "some")
    done("convert", "--format", "hdf5", tmp_path / "some", tmp_path / "copy")
    assert numbered(tmp_path / "some") == numbered(tmp_path / "copy") == {"b": 1, "d": 3}


@here
def test_two_videos_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    """Frames of several files that have the same name are merged with --prefix only, and are two videos then; parts of
    one file need none, also where they were cut out of one store."""
    for name, frames, chosen in (("x", 20, "--end"), ("y", 30, "--start")):
        done("pack", chosen, "0.4", shot(tmp_path / name, "a", frames=frames), tmp_path / f"{name}-store")
    stores = [tmp_path / "x-store", tmp_path / "y-store"]
    made = tmp_path / "made"
    for _ in range(2):
        ran = run_here("merge", "--workers", 0, *stores, made)
        assert (ran.code, "'a.mkv'" in ran.err, "--prefix" in ran.err) == (2, True, True), ran
        assert not made.exists()
        for name in ("provenance.json", "provenance.npy"):  # without these, nothing tells
            (stores[1] / name).unlink(missing_ok=True)
    done("merge", "--prefix", "names", *stores, made)
    assert numbered(made) == {"x-store/a": 0, "y-store/a": 1}
    for part, numbers in (("first", "0\n1\n2\n"), ("last", "5\n6\n")):
        (tmp_path / "rows").write_text(numbers)
        done("subset", "--rows-from", tmp_path / "rows", stores[1], tmp_path / part)
    done("merge", tmp_path / "first", tmp_path / "last", tmp_path / "whole")
    assert numbered(tmp_path / "whole") == {"a": 0}


@pytest.mark.parametrize("own", ["nothing", "no times", "other keys"])
def test_numbers_of_the_users_own_stay(own: str, tmp_path: Path) -> None:
    """Only where samples say in every way that they are frames of videos, and their keys which, is `video` another."""
    for store in "ab":
        given = [{"image": picture(8, 8, i), "video": 5, "frame": i, "pts_seconds": i / 10} for i in range(3)]
        if own == "no times":
            given = [{name: value for name, value in one.items() if name != "pts_seconds"} for one in given]
        keys = [f"{store}#{i}" if own == "other keys" else f"{store}#{i:06d}" for i in range(3)]
        rawpack_packer.pack(given, tmp_path / store, keys=keys, workers=0)
    done("merge", tmp_path / "a", tmp_path / "b", tmp_path / "merged")
    done("append", tmp_path / "b", tmp_path / "a")
    for made in ("merged", "a"):
        numbers = [int(sample["video"]) for sample in Reader(tmp_path / made)]
        assert numbers == ([5, 5, 5, 0, 0, 0] if own == "nothing" else [5] * 6)
