"""Frames at offsets in seconds from each sample, by field: against the rule of LeRobot's `delta_timestamps`, counted
out by numpy over the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import FIELDS, HEIGHT, WIDTH, Frames, image_of
from draws import tries
from folders import files_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import WAYS
from store_server import serving

import rawpack_packer
from rawpack import Cache, Reader, UsageError
from rawpack.transforms import RandomCrop

FPS = 10
LENGTHS = (5, 40, 17, 1, 30)
COUNT = sum(LENGTHS)
OFFSETS: dict[str, list[float]] = {
    "image": [-0.1, 0.0],
    "wrist": [-0.3, 0.0, 0.2],
    "mask": [0.0, 0.4],
    "action": [k / FPS for k in range(16)],
    "state": [0.0],
}


class Episodes(Frames):
    """Episodes of a robot: two cameras, a mask, a state, an action, a text and boxes."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        video, frame = self.places[i]
        image = image_of(video, frame)
        return super().__getitem__(i) | {
            "image": image,
            "wrist": 255 - image,
            "state": np.array([video, frame, video * frame], np.float32),
            "action": np.array([100 * video + frame, -frame], np.float32),
        }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reader]:
    """`stored("lmdb")`: five episodes in a store of that format, of several shards."""

    @cache
    def get(form: str) -> Reader:
        episodes = Episodes([range(length) for length in LENGTHS], fps=FPS)
        path = tmp_path_factory.mktemp("episodes") / "s"
        fields: Any = FIELDS | {"wrist": "image"}
        rawpack_packer.pack(episodes, path, format=form, workers=0, shard_size=1, fields=fields)
        return Reader(path)

    return get


@pytest.fixture(scope="module")
def reader(stored: Callable[[str], Reader]) -> Reader:
    return stored("memmap")


Found = dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]]


def by_rule(reader: Reader, offsets: Mapping[str, list[float]], anchors: NDArray[np.int64], fps: float = FPS) -> Found:
    """LeRobot's rule: the rows of each field's frames, clamped to the episode, and which of them were."""
    video, found = reader.column("video"), {}
    starts = np.array([np.flatnonzero(video == video[row])[0] for row in anchors])
    ends = np.array([np.flatnonzero(video == video[row])[-1] + 1 for row in anchors])
    for name, seconds in offsets.items():
        rows = np.stack([anchors + round(one * fps) for one in seconds], axis=1)
        pad = (rows < starts[:, None]) | (rows >= ends[:, None])
        found[name] = np.maximum(starts[:, None], np.minimum(ends[:, None] - 1, rows)), pad
    return found


# ---------------------------------------------------------------------------------------------- which frames


@pytest.mark.parametrize(("layout", "way"), [("memmap", "processes"), ("hdf5", "threads"), ("lmdb", "here")])
def test_a_policys_batch_is_one_call(stored: Callable[[str], Reader], layout: str, way: str) -> None:
    """Every field with offsets has the frames that LeRobot's rule names, and flags where it clamps; the others are the
    sample's own; every frame of every episode comes once."""
    reader = stored(layout)
    whole = {name: np.stack([reader[row][name] for row in range(COUNT)]) for name in [*OFFSETS, "video", "frame"]}
    seen = []
    for batch in reader.clips(offsets=OFFSETS).batches(7, shuffle=True, **WAYS[way]):
        anchors = batch["index"]
        assert batch["image"].shape == (len(anchors), 2, HEIGHT, WIDTH, 3)
        assert batch["action"].shape == (len(anchors), 16, 2)
        for name, (rows, pad) in by_rule(reader, OFFSETS, anchors).items():
            np.testing.assert_array_equal(batch[name], whole[name][rows])
            assert batch[f"{name}_is_pad"].dtype == np.bool_
            np.testing.assert_array_equal(batch[f"{name}_is_pad"], pad)
        for name in ("video", "frame"):
            np.testing.assert_array_equal(batch[name], whole[name][anchors])
        assert {name for name in batch if name.endswith("_is_pad")} == {f"{name}_is_pad" for name in OFFSETS}
        seen += anchors.tolist()
    assert sorted(seen) == list(range(COUNT))


@settings(deadline=None, max_examples=tries(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_never_across_an_end(reader: Reader, data: st.DataObject) -> None:
    """For any offsets and any frames left out before: the nearest frame in the stretch that the sample is in, and a
    flag where it is another; however the samples are ordered, or repeated, and chosen afterwards."""
    steps = data.draw(st.lists(st.integers(-50, 50), min_size=1, max_size=6))
    left = data.draw(st.lists(st.integers(0, COUNT - 1), max_size=6))
    present = data.draw(st.permutations([row for row in range(COUNT) if row not in left]))
    chosen = data.draw(st.lists(st.integers(0, len(present) - 1), min_size=1, max_size=30))
    offsets = {"frame": [step / FPS for step in steps]}
    samples = reader.select([*present, *present[:3]]).clips(offsets=offsets).select(chosen)
    anchors = np.array(present)[chosen]
    video = reader.column("video")
    stretch = np.cumsum([row in left or row == 0 or video[row] != video[row - 1] for row in range(COUNT)])
    (batch,) = samples.batches(50, fields=[*reader.fields, "store_row"], workers=0)
    assert batch["store_row"].tolist() == anchors.tolist()
    for k, anchor in enumerate(anchors):
        ours = [row for row in np.flatnonzero(stretch == stretch[anchor]) if row not in left]
        for frame, pad, step in zip(batch["frame"][k], batch["frame_is_pad"][k], steps, strict=True):
            nearest = min(ours, key=lambda row: abs(row - anchor - step))
            assert frame == reader.column("frame")[nearest]
            assert pad == (nearest != anchor + step)


def test_several_stores_and_mixes(tmp_path: Path) -> None:
    """No frame is taken from another store, whatever the episodes' numbers; in a mix, `store` is the sample's."""
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        rawpack_packer.pack(Frames([range(9)], fps=FPS, small=True), path, workers=0)
    asked = {"frame": [-0.1, 0.1]}
    expected = [[max(0, k - 1), min(8, k + 1)] for k in range(9)]
    (batch,) = Reader(paths).clips(offsets=asked).batches(20, workers=0)
    assert batch["frame"].tolist() == expected * 2
    mixed = Reader.mix({paths[0]: 0.5, paths[1]: 0.5}).clips(offsets=asked)
    for batch in mixed.batches(4, shuffle=True, workers=0):
        assert batch["frame"].tolist() == [expected[row % 9] for row in batch["index"]]
        assert batch["store"].tolist() == (batch["index"] // 9).tolist()
    with pytest.raises(UsageError, match="cannot be mixed"):
        Reader.mix({Reader(paths[0]).clips(offsets=asked): 1, paths[1]: 1})


def test_videos_behind_a_url(tmp_path: Path) -> None:
    """A frame may be in another shard than its sample: it is fetched before the batch is made, also where the cache
    holds a part of the shards."""
    rawpack_packer.pack(Frames([range(1280)], fps=FPS, small=True), tmp_path / "s", workers=0, shard_size=1)
    offsets: dict[str, list[float]] = {"image": [-64.0, 0.0, 64.0]}
    local = Reader(tmp_path / "s").clips(offsets=offsets)
    expected = [batch["image"].copy() for batch in local.batches(16, fields=["image"])]
    with serving() as server:
        server.put_folder("bucket/s", files_of(tmp_path / "s"))
        shards = [len(data) for name, data in server.files.items() if "/shard-" in name]
        limit = sum(map(len, server.files.values())) - sum(shards) + 8 * max(shards)
        remote = Reader(f"{server.url}/bucket/s", cache=Cache(tmp_path / "cache", limit, timeout=20))
        batches = remote.clips(offsets=offsets).batches(16, fields=["image"], **WAYS["processes"])
        found = [batch["image"].copy() for batch in batches]
    assert len(shards) > 16
    assert len(found) == len(expected) == 80
    assert all(map(np.array_equal, found, expected))


# ---------------------------------------------------------------------------------------------- one sample, columns


def test_samples_and_columns(reader: Reader) -> None:
    """`samples[i]`, slices and columns have what a batch has; texts and boxes come as lists of one for each frame."""
    offsets = OFFSETS | {"caption": [-0.1, 0.1], "boxes": [0.1]}
    samples = reader.clips(offsets=offsets)
    (batch,) = samples.batches(COUNT, fields=[*samples.fields], workers=0)
    some = samples[[3, 60]]
    for at in (0, 44, -1):
        one = samples[at]
        assert one.keys() == batch.keys() == some.keys()
        for name, value in one.items():
            np.testing.assert_equal(value, batch[name][at])
    for name, values in some.items():
        np.testing.assert_equal(values, [batch[name][3], batch[name][60]])
    for name in ("action", "frame", "caption", "state"):
        np.testing.assert_equal(samples.column(name), batch[name])
    assert samples[5]["caption"] == ["1/0", "1/1"]
    padded = next(iter(samples.batches(4, fields=["boxes"], ragged="pad", workers=0)))
    assert padded["boxes"].shape == (4, 1, 3, 4)
    assert padded["boxes.length"].tolist() == [[1], [2], [3], [0]]


def test_boxes_move_with_their_frames(tmp_path: Path) -> None:
    """Boxes at offsets are those of their frames, moved as the crop of the sample moves its images; each pixel says
    where it came from."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.uint8)
    samples = [
        {
            "image": np.stack([y, x, np.full_like(y, k)], axis=2),
            "boxes": np.array([[3, 4, 9 + k % 5, 11, k]] * (k % 3), np.float32).reshape(-1, 5),
            "video": 0, "frame": k, "pts_seconds": k / FPS,
        }
        for k in range(30)
    ]  # fmt: skip
    rawpack_packer.pack(samples, tmp_path / "s", workers=0, fields={"boxes": "xyxy"})
    clips, seen = Reader(tmp_path / "s").clips(offsets={"image": [0.0, 0.2], "boxes": [0.2, 0.0, 0.1]}), set()
    for batch in clips.batches(7, fields=["image", "boxes"], transform=[RandomCrop((8, 11))], shuffle=True, workers=2):
        for b, row in enumerate(batch["index"].tolist()):
            top, left = batch["image"][b, 0, 0, 0, :2].astype(int)
            seen.add((top, left))
            assert batch["image"][b, 1, 0, 0].tolist() == [top, left, min(29, row + 2)]
            for step, found in zip((2, 0, 1), batch["boxes"][b], strict=True):
                k = min(29, row + step)
                box = [max(0, 3 - left), max(0, 4 - top), min(11, 9 + k % 5 - left), min(8, 11 - top), k]
                assert found.tolist() == [box] * (k % 3)
    assert len(seen) > 10


def test_boxes_of_a_frame_of_another_size_are_refused(tmp_path: Path) -> None:
    """What was drawn for an image of one size does not move the boxes of one of another."""
    images = [np.zeros((20 + 20 * k, 30, 3), np.uint8) for k in range(2)]
    common = {"boxes": np.array([[3, 4, 9, 11, 0]], np.float32), "video": 0}
    samples = [common | {"image": image, "frame": k, "pts_seconds": k / FPS} for k, image in enumerate(images)]
    rawpack_packer.pack(samples, tmp_path / "s", workers=0, size="keep", fields={"boxes": "xyxy"})
    for offset in (0.0, -0.1):
        clips = Reader(tmp_path / "s").clips(offsets={"boxes": [offset]})
        batches = clips.batches(1, fields=["image", "boxes"], transform=[RandomCrop(8)])
        if offset:
            with pytest.raises(
                UsageError, match=r"boxes of sample 0 .* 20x30, and its batch shows one of 40x30.*--size"
            ):
                list(batches)
        else:
            assert [len(batch["boxes"][0]) for batch in batches] == [1, 1]


# ---------------------------------------------------------------------------------------------- times


def timed(path: Path, *videos: Any) -> Reader:
    """A store of frames at these times."""
    samples = [
        {"image": np.zeros((1, 2), np.uint8), "video": video, "frame": frame, "pts_seconds": float(time)}
        for video, times in enumerate(videos)
        for frame, time in enumerate(times)
    ]
    rawpack_packer.pack(samples, path, workers=0)
    return Reader(path)


def test_rates_and_rounded_times(tmp_path: Path) -> None:
    """29.97 frames a second are called 30; times are rounded to milliseconds, or float32, or begin anywhere."""
    ntsc = np.arange(40) * 1001 / 30000
    reader = timed(tmp_path / "s", ntsc, np.round(ntsc + 7, 3), np.float32(ntsc + 500))
    (batch,) = reader.clips(offsets={"frame": [-0.1, 0.5]}).batches(200, workers=0)
    frame = np.tile(np.arange(40), 3)
    assert batch["frame"].tolist() == np.stack([np.maximum(frame - 3, 0), np.minimum(frame + 15, 39)], 1).tolist()


def test_times_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Videos of different rates, frames at unequal distances, and times that stand still: each names what and where."""
    cases: list[tuple[list[Any], str]] = [
        ([np.arange(9) / 30, np.arange(9) / 30, np.arange(9) / 25], "most have 30 frames a second, and video 2 has 25"),
        ([np.arange(90) / 30, [*(np.arange(45) / 30), *(np.arange(45, 90) / 30 + 0.02)]],
         r"samples 134 and 135 are 0\.0533\d* s apart"),
        ([[0.0] * 5], "do not increase"),
        ([[1.0], [2.0]], "no two follow one another"),
        ([[0.0, float("nan"), 0.2]], "distances|do not increase"),
    ]  # fmt: skip
    for number, (videos, words) in enumerate(cases):
        reader = timed(tmp_path / str(number), *videos)
        with pytest.raises(UsageError, match=words):
            reader.clips(offsets={"frame": [0.0]})
    of_one_rate = Reader(tmp_path / "0").select(where="video < 2")
    assert len(of_one_rate.clips(offsets={"frame": [-0.1]})) == 18


def test_what_cannot_be_is_refused(reader: Reader, stored: Callable[[str], Reader], tmp_path: Path) -> None:
    """No whole number of frames, with the rate and the nearest; unknown fields; no numbers; what excludes offsets; a
    store without times."""
    untimed = [{"image": np.zeros((2, 2), np.uint8), "video": 0, "frame": k} for k in range(4)]
    rawpack_packer.pack(untimed, tmp_path / "u", workers=0)
    taken = [one | {"pts_seconds": k / 10, "image_is_pad": 0} for k, one in enumerate(untimed)]
    rawpack_packer.pack(taken, tmp_path / "t", workers=0)
    now = {"image": [0.0]}
    wrong: list[tuple[Reader, dict[str, Any], str]] = [
        (reader, {"offsets": {"image": [0.0, 0.25]}},
         r"0\.25 s is no whole .* 10 frames a second.*nearest are 0\.2 and 0\.3"),
        (reader, {"offsets": {"depth": [0.0]}}, r"no field 'depth'; the store has image"),
        (reader, {"offsets": {"image": 0.0}}, "must be a dict of lists of seconds"),
        (reader, {"offsets": {}}, "must be a dict of lists of seconds"),
        (reader, {"frames": 4, "offsets": now}, "leave out all else"),
        (reader, {}, r"clips\(16\), or offsets="),
        (reader.clips(offsets=now), {"frames": 4}, "reader of clips already"),
        (Reader(tmp_path / "u"), {"offsets": now}, r"has no field 'pts_seconds'.*when each frame was"),
        (Reader(tmp_path / "t"), {"offsets": now}, "has a field 'image_is_pad'"),
    ]  # fmt: skip
    for of, asked, words in wrong:
        with pytest.raises(UsageError, match=words):
            of.clips(**asked)
    with pytest.raises(TypeError, match=r"delta_timestamps=\{'image': \[0\.0\]\} is .*offsets=\{'image': \[0\.0\]\}"):
        reader.clips(delta_timestamps=now)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="cannot be resized, nor be frames of clips"):
        stored("lmdb").clips(offsets=now).batches(4, decode=False)
