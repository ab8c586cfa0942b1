"""Clips: frames of one video as samples, the same however they are read; never across an end or a gap."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import HEIGHT, WIDTH, Frames, image_of, pack_frames
from draws import tries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import WAYS, nothing_left
from running import FORMATS

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError, WorkerError, look
from rawpack.transforms import (
    BatchLambda,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)

LENGTHS = (5, 40, 17, 1, 64, 23)
FRAMES, STRIDE, STEP = 4, 3, 5
ASKED: dict[str, Any] = {"frames": FRAMES, "stride": STRIDE, "step": STEP}
DRAWN: dict[str, Any] = {"frames": FRAMES, "stride": STRIDE, "per_video": 3}
WARNED = "ignore:rawpack. no .* consecutive frames:RuntimeWarning"
pytestmark = pytest.mark.filterwarnings(WARNED)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reader]:
    """`stored("lmdb")`: six videos in a store of that layout, of several shards."""
    readers: dict[str, Reader] = {}

    def get(layout: str) -> Reader:
        if layout not in readers:
            frames = Frames([range(length) for length in LENGTHS])
            readers[layout] = Reader(pack_frames(frames, tmp_path_factory.mktemp("videos") / "s", layout))
        return readers[layout]

    return get


@pytest.fixture(scope="module")
def reader(stored: Callable[[str], Reader]) -> Reader:
    return stored("memmap")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Twelve videos of 30 tiny frames."""
    return Reader(pack_frames(Frames([range(30)] * 12, small=True), tmp_path_factory.mktemp("many") / "s"))


def expected_rows(videos: Sequence[Sequence[int]], frames: int, stride: int, step: int) -> list[list[int]]:
    """What `clips` should give of runs of rows, counted out by hand."""
    clips = []
    for run in videos:
        start = 0
        while start + (frames - 1) * stride < len(run):
            clips.append([run[start + k * stride] for k in range(frames)])
            start += step
    return clips


def runs_of(lengths: Sequence[int]) -> list[range]:
    ends = np.cumsum([0, *lengths]).tolist()
    return [range(low, high) for low, high in itertools.pairwise(ends)]


ROWS = ["store_row"]


def rows_in(batches: Any) -> list[list[int]]:
    """The rows of all clips of one epoch."""
    return [clip for batch in batches for clip in batch["store_row"].tolist()]


# ---------------------------------------------------------------------------------------------- what a clip is


@pytest.mark.parametrize("layout", FORMATS)
def test_a_clip_is_its_frames(stored: Callable[[str], Reader], layout: str) -> None:
    """Every field of every clip is, frame by frame, what the reader of frames gives for the rows in `store_row`; the
    video and its label come once."""
    reader = stored(layout)
    clips = reader.clips(**ASKED)
    names = [*reader.fields]
    seen = 0
    for batch in clips.batches(7, fields=[*names, "store_row"], workers=0):
        assert batch["image"].shape[1:] == (FRAMES, HEIGHT, WIDTH, 3)
        assert batch["video"].shape == batch["clip"].shape
        for b, rows in enumerate(batch["store_row"].tolist()):
            frames = [reader[row] for row in rows]
            for name in set(names) - {"video", "label"}:
                assert len(batch[name][b]) == FRAMES
                for t, frame in enumerate(frames):
                    np.testing.assert_array_equal(batch[name][b][t], frame[name])
            assert {int(frame["video"]) for frame in frames} == {batch["video"][b]}
            assert {int(frame["label"]) for frame in frames} == {batch["label"][b]}
            assert batch["clip"][b] == seen
            seen += 1
    assert seen == len(clips) > 10


@settings(deadline=None, max_examples=tries(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_never_across_an_end(many: Reader, data: st.DataObject) -> None:
    """For any videos with any frames left out: exactly the clips that lie within one video with none of them missing,
    in their order."""
    length = st.one_of(st.integers(0, 8), st.integers(0, 30))
    holes = data.draw(st.lists(st.tuples(length, length), min_size=12, max_size=12))
    runs = []
    for video, (low, high) in enumerate(holes):
        # Frames low .. high - 1 of a video are left out; of some, nothing is.
        runs += [range(30 * video, 30 * video + low), range(30 * video + max(low, high), 30 * (video + 1))]
        if low >= high:
            runs[-2:] = [range(30 * video, 30 * (video + 1))]
    frames, stride = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    step = data.draw(st.one_of(st.none(), st.integers(1, 12)))
    expected = expected_rows(runs, frames, stride, step or frames * stride)
    chosen = many.select([row for run in runs for row in run])
    if not expected:
        if len(chosen):
            with pytest.raises(UsageError, match="consecutive frames"):
                chosen.clips(frames, stride=stride, step=step)
        return
    clips = chosen.clips(frames, stride=stride, step=step)
    assert rows_in(clips.batches(50, workers=0, fields=["frame", "store_row"])) == expected
    assert len(clips) == len(expected)


def test_clips_of_several_stores(reader: Reader, stored: Callable[[str], Reader], tmp_path: Path) -> None:
    """Stores are read as one, and no clip goes from one into the next, whatever their videos' numbers."""
    stores = [pack_frames(Frames([range(9)], small=True), tmp_path / name) for name in "ab"]
    clips = Reader(stores).clips(4, step=1)
    assert rows_in(clips.batches(5, workers=0, fields=ROWS)) == expected_rows([range(9), range(9, 18)], 4, 1, 1)
    both = [clip["video"].tolist() for clip in Reader(stores).clips(3, per_video=2).batches(4, workers=0)]
    assert both == [[0, 0, 0, 0]]


@pytest.mark.parametrize("block", [1, 7, 40])
def test_videos_longer_than_a_block(reader: Reader, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read a block at a time: wherever blocks end, and however long a video is, the clips are the same."""
    monkeypatch.setattr("rawpack.samples.runs._BLOCK", block)
    found = rows_in(reader.clips(**ASKED).batches(9, workers=0, fields=ROWS))
    assert found == expected_rows(runs_of(LENGTHS), FRAMES, STRIDE, STEP)
    without = reader.select(range(29, len(reader)))
    found = rows_in(without.clips(**ASKED).batches(9, workers=0, fields=ROWS))
    assert found == expected_rows([range(29, 45), *runs_of(LENGTHS)[2:]], FRAMES, STRIDE, STEP)


# ---------------------------------------------------------------------------------------------- gaps


WHOLE: dict[str, list[int]] = {
    "every frame": list(range(7, 57)),
    "every fifth": list(range(0, 250, 5)),
    "10 of 25": [-(-5 * k // 2) for k in range(80)],
    "24 of 25": [-(-25 * k // 24) for k in range(192)],
}
"""The numbers of the frames that are stored of a video, as `--fps` chooses them."""


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("chosen", WHOLE)
def test_a_missing_frame_ends_a_run(chosen: str, timed: bool, tmp_path: Path) -> None:
    """Where a number is missing among those of `frame`, no clip goes over it, with times and without; and nothing else
    is lost than the clips that would have."""
    numbers = WHOLE[chosen]
    left = [*numbers[:20], *numbers[21:]]
    clips = Reader(pack_frames((Frames if timed else Untimed)([left, numbers], small=True), tmp_path / "s"))
    found = rows_in(clips.clips(6, step=1).batches(9, workers=0, fields=ROWS))
    total = len(left) + len(numbers)
    whole = expected_rows([range(20), range(20, len(left)), range(len(left), total)], 6, 1, 1)
    if chosen == "24 of 25":
        # Two numbers apart is what a choice by time does too: here the whole video is uneven, and ends at each.
        assert all(clip in whole for clip in found)
        assert [clip for clip in found if clip[0] >= len(left)] == [clip for clip in whole if clip[0] >= len(left)]
    else:
        assert found == whole


class Untimed(Frames):
    """Frames without times."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: value for name, value in super().__getitem__(i).items() if name != "pts_seconds"}


@pytest.mark.parametrize("chosen", WHOLE)
def test_a_rejected_frame_ends_a_run(chosen: str, tmp_path: Path) -> None:
    """A frame that was rejected when the store was packed is known exactly, however the frames were chosen: also those
    at even distances, as if another rate had been asked for."""
    numbers = WHOLE[chosen]
    n = len(numbers)
    bad = [(0, numbers[20]), (0, numbers[21]), (1, numbers[0]), (1, numbers[-1]), (2, 7), (2, 15), (2, 23), (2, 31)]
    path = pack_frames(Frames([numbers, numbers, range(36)], bad=bad, small=True), tmp_path / "s", max_rejects=10)
    runs = runs_of([20, n - 22, n - 2, 7, 7, 7, 7, 4])
    for reader, expected in ((Reader(path), runs), (Reader([path, path]), runs_of([*map(len, runs)] * 2))):
        found = rows_in(reader.clips(3, step=1).batches(9, workers=0, fields=ROWS))
        assert found == expected_rows(expected, 3, 1, 1)


def test_a_damaged_list_of_rejects_is_refused(tmp_path: Path) -> None:
    """It says where frames are missing: where it cannot be read, there are no clips, and the error names it."""
    path = pack_frames(Frames([range(20)], bad=[(0, 7)], small=True), tmp_path / "s", max_rejects=1)
    (path / "rejects.jsonl").write_bytes(b"nonsense".ljust((path / "rejects.jsonl").stat().st_size - 1) + b"\n")
    with pytest.raises(DamagedStoreError, match=r"rejects\.jsonl"):
        Reader(path).clips(2)


def test_uneven_times_are_no_gaps(tmp_path: Path) -> None:
    """Of a video whose frames come at uneven times, so many a second have uneven numbers: the times say that none is
    missing."""

    class Uneven(Frames):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return super().__getitem__(i) | {"pts_seconds": i / 10}

    numbers = np.cumsum(np.random.default_rng(0).integers(1, 9, 40)).tolist()
    path = pack_frames(Uneven([numbers], small=True), tmp_path / "s")
    assert len(Reader(path).clips(40)) == 1


def test_frames_that_go_back_end_a_run(tmp_path: Path) -> None:
    """Numbers that do not go up are no time axis; a warning counts the videos whose numbers go down."""
    films = [[0, 1, 2, 3, 3, 4, 5, 6, 2, 3, 4, 5], [0, 1, 2, 3, 3]]
    path = pack_frames(Frames(films, small=True), tmp_path / "s")
    with pytest.warns(RuntimeWarning, match="frames of 1 of 2 videos are not stored in the order of their numbers"):
        clips = Reader(path).clips(4)
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert (rows_in(clips.batches(9, workers=0, fields=ROWS)), look(clips).left_out) == (expected, 0)


# ---------------------------------------------------------------------------------------------- random clips


def test_random_clips_of_each_video(reader: Reader) -> None:
    """So many of each video that has room for one, each within its video, others in another epoch or by another
    seed."""
    clips = reader.clips(**DRAWN)
    with_room = {video for video, length in enumerate(LENGTHS) if length > (FRAMES - 1) * STRIDE}
    assert (len(clips), look(clips).left_out) == (3 * len(with_room), len(LENGTHS) - len(with_room))
    batches = clips.batches(5, shuffle=True, workers=0, fields=["video", "frame", "store_row"])
    epochs = [[*batches] for _ in range(3)]
    for epoch in epochs:
        videos = Counter(int(video) for batch in epoch for video in batch["video"])
        assert videos == dict.fromkeys(with_room, 3)
        for batch in epoch:
            assert (np.diff(batch["frame"], axis=1) == STRIDE).all()
            assert (batch["frame"][:, -1] < np.array(LENGTHS)[batch["video"]]).all()
    of_another_seed = rows_in(clips.batches(5, seed=1, workers=0, fields=ROWS))
    assert len({str(sorted(rows)) for rows in [*map(rows_in, epochs), of_another_seed]}) == 4


def test_a_selection_draws_the_same(many: Reader) -> None:
    """Where a video's random clips begin hangs on seed, epoch and video: not on which others are read, nor on how many
    are drawn."""
    whole = np.array(rows_in(many.clips(4, per_video=3).batches(36, workers=0, fields=ROWS)))
    left = many.select(mask=np.arange(360) // 30 % 2 == 1)
    some = rows_in(left.clips(4, per_video=2).batches(36, workers=0, fields=ROWS))
    assert some == whole.reshape(12, 3, 4)[1::2, :2].reshape(-1, 4).tolist()


def test_random_clips_spare_gaps(many: Reader) -> None:
    """Places before and after a gap are drawn alike, none over it."""
    left = many.select([*range(10), *range(14, 30)])
    batches = left.clips(6, per_video=40).batches(40, workers=0, fields=ROWS)
    firsts = Counter(rows[0] for _ in range(10) for rows in rows_in(batches))
    assert set(firsts) == {*range(5), *range(14, 25)}


# ---------------------------------------------------------------------------------------------- short videos


def test_short_videos_are_told(reader: Reader, recwarn: pytest.WarningsRecorder) -> None:
    """Left out with a warning that says how many and what cures it, counted by `left_out`; or filled up."""
    span = (FRAMES - 1) * STRIDE + 1
    words = r"no 10 consecutive frames .*frames=4, stride=3.* in 2 of 6 videos.*repeat_last"
    with pytest.warns(RuntimeWarning, match=words) as told:
        assert look(reader.clips(**ASKED)).left_out == 2
    assert told[0].filename == __file__
    recwarn.clear()
    whole = expected_rows(runs_of(LENGTHS), FRAMES, STRIDE, STEP)
    for how in ("repeat_last", "wrap"):
        clips = reader.clips(**ASKED, short=how)  # type: ignore[arg-type]
        found = {int(batch["video"][0]): batch["frame"][0].tolist() for batch in clips.batches(1, workers=0)}
        assert look(clips).left_out == 0
        frames = np.arange(0, span, STRIDE)
        for video in (video for video, length in enumerate(LENGTHS) if length < span):
            length = LENGTHS[video]
            filled = np.minimum(frames, length - 1) if how == "repeat_last" else frames % length
            assert found[video] == filled.tolist()
        rows = rows_in(clips.batches(9, workers=0, fields=ROWS))
        assert [clip for clip in rows if clip in whole] == whole
        assert len(rows) == len(whole) + 2
        drawn = reader.clips(**DRAWN, short=how).batches(9, workers=0, fields=ROWS)  # type: ignore[arg-type]
        assert len(rows_in(drawn)) == 3 * len(LENGTHS)
    assert not recwarn.list


def test_a_video_in_pieces_gives_its_longest(many: Reader) -> None:
    """Where all runs of a video are too short, the longest is filled up, and no other."""
    clips = many.select([*range(3), *range(5, 10), *range(20, 25)]).clips(8, short="repeat_last")
    assert rows_in(clips.batches(4, workers=0, fields=ROWS)) == [[5, 6, 7, 8, 9, 9, 9, 9]]


# ---------------------------------------------------------------------------------------------- transforms


def test_all_frames_of_a_clip_move_together(reader: Reader) -> None:
    """One crop and one flip for all frames of a clip and their masks, another for each clip: the mask says where each
    pixel came from."""
    transform = [RandomCrop((8, 11)), RandomHorizontalFlip(), RandomVerticalFlip(), RandomCrop(4)]
    fields, ways = ["image", "mask", "frame", "store_row"], set()
    for batch in reader.clips(6, step=3).batches(5, fields=fields, transform=transform, **WAYS["threads"]):
        assert batch["image"].shape[1:] == (6, 4, 4, 3)
        came_from = (batch["mask"][..., 0].astype(int) - batch["frame"][..., None, None]) % 256
        assert (came_from == came_from[:, :1]).all()
        ways |= {clip[0].tobytes() for clip in came_from}
        y, x = np.divmod(came_from[:, 0], WIDTH)
        for b, rows in enumerate(batch["store_row"]):
            whole = np.stack([reader[row]["image"] for row in rows])
            np.testing.assert_array_equal(batch["image"][b], whole[:, y[b], x[b]])
    assert len(ways) > 20


def test_frames_of_different_sizes(tmp_path: Path) -> None:
    """Videos of different sizes make clips of one size by image_size=; without, the error says so. Frames of one clip
    that differ cannot move together."""

    class Sized(Frames):
        def __getitem__(self, i: int) -> dict[str, Any]:
            video, frame = self.places[i]
            height = 10 + 2 * video + (video == 2 and frame > 3)
            return super().__getitem__(i) | {"image": np.full((height, 12, 3), frame, np.uint8)}

    videos = Sized([range(9)] * 3, small=True)
    rawpack_packer.pack(videos, tmp_path / "s", workers=0, image=("uint8", (None, None, 3)))
    reader = Reader(tmp_path / "s")
    clips = reader.select(range(18)).clips(3)
    assert clips.fields["image"].shape == (3, None, None, 3)
    assert clips[3]["image"].shape == (3, 12, 12, 3)
    for batch in clips.batches(2, image_size=8, workers=0):
        assert (batch["image"] == batch["frame"][..., None, None, None]).all()
    with pytest.raises(UsageError, match="image_size=224"):
        clips.batches(2)
    changes = reader.select(range(18, 27)).clips(3)
    assert [image.shape for image in changes[1]["image"]] == [(14, 12, 3), (15, 12, 3), (15, 12, 3)]
    with pytest.raises(WorkerError, match=r"begins with sample 21 .*15x12 .* 14x12 .*pack frames with --size"):
        next(iter(changes.select([1]).batches(1, image_size=8, workers=0)))


# ---------------------------------------------------------------------------------------------- a reader of clips


def test_select_clips(reader: Reader) -> None:
    """By number, mask or class; `clip` and what is random stay as they are in the whole."""
    clips = reader.clips(**ASKED)
    options: dict[str, Any] = {"workers": 0, "transform": [RandomCrop(9)], "fields": ["image", "label"]}
    (whole,) = clips.batches(len(clips), **options)
    some = clips.select([5, -1, 2])
    (batch,) = some.batches(9, **options)
    assert batch["clip"].tolist() == [5, len(clips) - 1, 2]
    np.testing.assert_array_equal(batch["image"], whole["image"][[5, -1, 2]])
    assert some[1]["clip"] == len(clips) - 1
    jumps = clips.select(classes=["jump"])
    assert next(iter(jumps.batches(99, workers=0)))["clip"].tolist() == np.flatnonzero(whole["label"] == 2).tolist()
    assert len(clips.select(mask=whole["label"] == 2).select([0, 1])) == 2
    of_class = reader.select(classes=["jump"]).clips(**ASKED)
    assert rows_in(of_class.batches(9, workers=0, fields=ROWS)) == rows_in(jumps.batches(9, workers=0, fields=ROWS))


def test_labels_that_change_come_for_each_frame(tmp_path: Path) -> None:
    """Where a video has several labels, each frame has its own."""

    class Acts(Frames):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return super().__getitem__(i) | {"label": i // 7 % 3}

    clips = Reader(pack_frames(Acts([range(30)], small=True), tmp_path / "s")).clips(6)
    (batch,) = clips.batches(5, fields=["label", "store_row"], workers=0)
    np.testing.assert_array_equal(batch["label"], batch["store_row"] // 7 % 3)
    with pytest.raises(UsageError, match="have no class"):
        Reader(tmp_path / "s").clips(6, per_video=2).select(classes=["run"])


def test_what_makes_no_clips_is_refused(reader: Reader, tmp_path: Path) -> None:
    """A store that does not say which video a frame is of, a field that is in the way, numbers that make no sense,
    videos that are all too short, and the keywords of other loaders: each with its cure."""
    for name, fields in (("s", {}), ("t", {"video": 0, "frame": 0, "clip": 3})):
        rawpack_packer.pack([{"image": np.zeros((2, 2), np.uint8)} | fields], tmp_path / name, workers=0)
    wrong: list[tuple[Reader, dict[str, Any], str]] = [
        (Reader(tmp_path / "s"), {}, r"has no field 'video': pack videos, or frames with .*`video`"),
        (Reader(tmp_path / "t"), {}, r"has a field 'clip'.*another name"),
        (reader, {"stride": 0}, "stride=0 must be a whole number >= 1"),
        (reader, {"per_video": True}, "per_video=True must be"),
        (reader, {"per_video": 2, "step": 2}, "leave one out"),
        (reader, {"short": "loop"}, "'drop', 'repeat_last', 'wrap'"),
        (reader, {"frames": 65}, "no 65 consecutive frames .* in 6 of 6 videos; .* longest run has 64"),
        (reader, {"clip_length": 8, "frame_step": 2}, "clip_length=8 is frames=8 here; frame_step=2 is stride=2 here"),
        (reader, {"fps": 5}, "leave out fps=5: clips count stored frames, which `rawpack pack --fps` chose"),
        (reader.clips(4), {}, "reader of clips already"),
    ]
    for of, asked, words in wrong:
        with pytest.raises((UsageError, TypeError), match=words):
            of.clips(**{"frames": 2} | asked)
    with pytest.raises(UsageError, match="no samples"):
        reader.select([]).clips(4).batches(2)


# ---------------------------------------------------------------------------------------------- when it fails


@pytest.mark.parametrize("way", ["here", "processes"])
def test_an_error_names_the_clip(reader: Reader, way: str) -> None:
    """By its first frame's row and key; the clips before it are handed over, and nothing is left behind."""

    def fails(image: Any) -> Any:
        if (image == image_of(2, 14)).all():
            raise ZeroDivisionError("here")
        return image

    clips, found = reader.clips(**ASKED), list[int]()
    with nothing_left(), pytest.raises(WorkerError, match=r"clip that begins with sample 50 \('00000050'\).*here"):
        found.extend(int(batch["clip"][0]) for batch in clips.batches(1, transform=[fails], **WAYS[way]))
    assert found == list(range(8))
    with pytest.raises(WorkerError, match="transforming the batch of 2 that begins with the clip that begins with"):
        next(iter(clips.batches(2, transform=[BatchLambda(lambda batch: 1 / 0)], **WAYS[way])))
