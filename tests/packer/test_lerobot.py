"""LeRobot: what lerobot 0.4 (v3.0) and 0.3 (v2.1) wrote is read as they read it, and damage is found."""

from __future__ import annotations

import io
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from draws import tries
from folders import changed, rejects_of
from numpy.typing import NDArray
from PIL import Image
from reading import SOAK
from running import pack, run_here, stop_of
from videos import look_through_here

import rawpack
from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.testing import SourceConformance

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures" / "lerobot"
SETS = ["v30/arms", "v30/h264", "v21/arms", "v21/h264"]
ARMS = ["v30/arms", "v21/arms"]
LENGTHS = [7, 12, 5, 9, 4]
"""Frames of each episode, see `make.py`."""
TOP, WRIST, FRONT = "observation.images.top", "observation.images.wrist", "observation.images.front"
SQUARE = 8
INFO = "meta/info.json"
_TOLERANCE = 8
"""Levels by which the mean of a square differs where two decoders convert its colors."""


APART = {"test_all_is_read_as_lerobot_reads_it", "test_a_truncated_video_rejects_its_frames"}
"""Tests in which child processes look through the videos, as for users; in a long run, all tests of damage."""


@pytest.fixture(autouse=True)
def looked_through(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.function.__name__ not in APART | ({"test_no_damage_is_a_surprise"} if SOAK else set()):
        look_through_here(monkeypatch)


def squares(picture: NDArray[Any]) -> NDArray[Any]:
    """The means of squares, as LeRobot's pictures are kept."""
    height, width, channels = picture.shape
    return picture.reshape(height // SQUARE, SQUARE, width // SQUARE, SQUARE, channels).mean(axis=(1, 3))


def check_frame(found: Any, i: int, wanted: NDArray[np.uint8]) -> None:
    """The picture is the one that LeRobot has for row i, rather than any other."""
    if isinstance(found, bytes):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found))), wanted[i])
        return
    off = np.abs(wanted.astype(float) - squares(found))
    assert off[i].max() < _TOLERANCE
    assert int(off.mean(axis=(1, 2, 3)).argmin()) == i


def check_all(source: Source, wanted: Mapping[str, NDArray[Any]]) -> None:
    """All that LeRobot reads is there, under the names of fields."""
    assert len(source) == len(wanted["index"])
    for i in range(len(source)):
        item = source[i]
        for name, values in wanted.items():
            if name == TOP:
                check_frame(item.image, i, values)
            elif name in (WRIST, FRONT):
                check_frame(item.fields[name.replace(".", "_")], i, values)
            elif name == "task":
                assert item.fields["task"] == str(values[i])
            elif name != "index":
                found = np.asarray(item.fields[name.replace(".", "_")])
                assert found.dtype == values.dtype
                np.testing.assert_array_equal(found, values[i].reshape(found.shape), f"{name} of row {i}")


def copied(name: str, folder: Path) -> Path:
    shutil.copytree(FIXTURES / name, folder / "set")
    return folder / "set"


def change_table(path: Path, column: str, change: Callable[[list[Any]], list[Any]]) -> None:
    table = pq.read_table(path)
    values = pa.array(change(table[column].to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, values), path)


def refused(root: Path, words: str, **options: Any) -> None:
    """Opening it is refused in one line that names what is wrong."""
    with pytest.raises(UsageError, match=words) as raised:
        open_source(root, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", SETS)
def test_all_is_read_as_lerobot_reads_it(name: str) -> None:
    """Videos in AV1 and H.264, one episode or several in a file, images in Parquet files, numbers, vectors, tasks."""
    with np.load(FIXTURES / f"{name}.npz") as wanted:
        check_all(open_source(FIXTURES / name), dict(wanted))


@pytest.mark.parametrize("name", ARMS)
def test_fields_and_keys(name: str) -> None:
    source = open_source(FIXTURES / name)
    assert {field: (kind.dtype, kind.shape) for field, kind in source.info.fields.items()} == {
        "video": ("int64", ()), "frame": ("int64", ()), "pts_seconds": ("float64", ()),
        "observation_images_front": ("uint8", (48, 64, 3)), "observation_images_wrist": ("uint8", (64, 64, 3)),
        "observation_state": ("float32", (4,)), "action": ("float32", (3,)), "next_reward": ("float32", ()),
        "next_done": ("bool", ()), "timestamp": ("float32", ()), "frame_index": ("int64", ()),
        "episode_index": ("int64", ()), "task_index": ("int64", ()), "task": ("str", ()),
    }  # fmt: skip
    keys = [source.key(i) for i in range(len(source))]
    assert keys == [f"episode_{e:06d}#{k:06d}" for e, length in enumerate(LENGTHS) for k in range(length)]
    assert [source.group(i) for i in range(len(source))] == [key.partition("#")[0] for key in keys]
    videos = source.videos()
    assert videos is not None
    assert videos.numbers.tolist() == [e for e, length in enumerate(LENGTHS) for _ in range(length)]


def test_what_is_packed_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cameras and other features by their own names; the first camera that is named is the image. One of images needs
    no videos, nor what decodes them."""
    source = open_source(FIXTURES / "v30/arms", columns=f"{WRIST},action,task", episodes="3,0")
    assert {*source.info.fields} == {"video", "frame", "pts_seconds", "action", "task"}
    assert source.info.image is not None
    assert source.info.image.shape == (64, 64, 3)
    assert [source.key(0), source.key(7)] == ["episode_000000#000000", "episode_000003#000000"]
    assert len(source) == LENGTHS[0] + LENGTHS[3]
    with np.load(FIXTURES / "v30/arms.npz") as wanted:
        check_frame(source[7].image, 7 + sum(LENGTHS[1:3]), wanted[WRIST])
        front = open_source(FIXTURES / "v30/arms", image_column=FRONT, columns=TOP, episodes=[4])
        check_frame(front[1].image, sum(LENGTHS[:4]) + 1, wanted[FRONT])
        check_frame(front[1].fields["observation_images_top"], sum(LENGTHS[:4]) + 1, wanted[TOP])
    for words, options in {
        "--columns nothing: .* has no such feature: it has .*action": {"columns": "nothing"},
        "--image-column action: it is no camera": {"image_column": "action"},
        "--episodes 0:2,7: there is no episode 7: they are 0 to 4": {"episodes": "0:2,7"},
    }.items():
        refused(FIXTURES / "v30/arms", words, **options)
    monkeypatch.setitem(sys.modules, "av", None)
    root = copied("v21/arms", tmp_path)
    shutil.rmtree(root / "videos")
    with np.load(FIXTURES / "v21/arms.npz") as wanted:
        check_frame(open_source(root, columns=FRONT)[20].image, 20, wanted[FRONT])


@pytest.mark.parametrize("name", ARMS)
def test_splits_are_ranges_of_episodes(name: str, tmp_path: Path) -> None:
    root = copied(name, tmp_path)
    changed(root / INFO, lambda info: info["splits"].update(train="0:3", val="3:5"))
    assert "--splits train,val" in stop_of("pack", root, tmp_path / "store")
    pack(root, tmp_path / "store", "--splits", "train,val", "--columns", "action", "--size", 16)
    found = {split: rawpack.Reader(tmp_path / "store", split=split) for split in ("train", "val")}
    assert {split: len(reader) for split, reader in found.items()} == {"train": 24, "val": 13}
    assert found["val"][0]["key"] == "episode_000003#000000"
    assert len(open_source(root / "val")) == 13


# ---------------------------------------------------------------------------------------------- damage


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    """With what leaves it out, which works."""
    root = copied("v30/arms", tmp_path)
    gone = root / f"videos/{WRIST}/chunk-000/file-001.mp4"
    gone.unlink()
    words = f"there is no file {gone}: {root}/meta/info.json names it: copy it too"
    refused(root, f"{words}, or leave out its episodes by --episodes, or its camera by --columns")
    assert len(open_source(root, episodes="0:2")) == 19
    assert len(open_source(root, columns=f"{TOP},action")) == 37
    (root / "data/chunk-000/file-001.parquet").unlink()
    refused(root, "data/chunk-000/file-001.parquet: .* names it: copy it too, or leave out its episodes")
    (root / "meta/tasks.parquet").unlink()
    refused(root, "there is no file .*tasks.parquet", episodes="0", columns=f"{TOP},task")


@pytest.mark.parametrize(("name", "keep"), [("v21/arms", 0.5), ("v30/h264", 0.9)])
def test_a_truncated_video_rejects_its_frames(name: str, keep: float, tmp_path: Path) -> None:
    root = copied(name, tmp_path)
    path = min(path for path in root.glob("videos/**/*.mp4") if TOP in path.parts)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    columns = [TOP, "episode_index"]
    sound, source = open_source(FIXTURES / name, columns=columns), open_source(root, columns=columns)
    rejected, reasons = set[int](), set[str]()
    for i in range(len(source)):
        try:
            np.testing.assert_array_equal(source[i].image, sound[i].image)  # type: ignore[arg-type]
        except DecodeError as error:
            reasons.add(error.reason)
            rejected.add(int(sound[i].fields["episode_index"]))  # type: ignore[arg-type]
    assert reasons
    assert reasons <= {"truncated", "corrupt", "damaged"}
    assert rejected <= ({0} if name == "v21/arms" else {0, 1})
    ran = run_here("pack", "--max-rejects", "100%", "--size", 16, "--columns", TOP, root, tmp_path / "store")
    assert ran.code == 0, ran.err
    assert rejects_of(tmp_path / "store")


def test_frames_that_a_video_does_not_have(tmp_path: Path) -> None:
    """An episode that begins later in its video than the video is long; times that are a little off are told."""
    root = copied("v30/h264", tmp_path)
    episodes, begins = root / "meta/episodes/chunk-000/file-000.parquet", f"videos/{TOP}/from_timestamp"
    change_table(episodes, begins, lambda values: [values[0] + 0.03, values[1] + 0.5, values[2]])
    source, sound = open_source(root), open_source(FIXTURES / "v30/h264")
    assert any("7 frames are shown more than 0.0001 s" in problem for problem in source.info.problems)
    for i in range(7):
        np.testing.assert_array_equal(source[i].image, sound[i].image)  # type: ignore[arg-type]
        np.testing.assert_array_equal(source[7 + i].image, sound[7 + 5 + i].image)  # type: ignore[arg-type]
    for i in range(7 + 7, 7 + 12):
        with pytest.raises(DecodeError, match=r"the video has no frame for its row: the last one of 19 is at 1\.800 s"):
            source[i]


def test_times_that_are_none(tmp_path: Path) -> None:
    """Not a number, beyond all videos, or before that of the row before: these rows are rejected, and no others. That
    the video ends too early is said only where it explains all of them."""
    root, sound = copied("v21/h264", tmp_path), open_source(FIXTURES / "v21/h264")
    path = root / "data/chunk-000/episode_000001.parquet"
    change_table(path, "timestamp", lambda times: [times[0], np.nan, times[2], np.inf, times[4], times[2], *times[6:]])
    source = open_source(root)
    for i in range(len(source)):
        if i in (7 + 1, 7 + 3, 7 + 5):
            with pytest.raises(DecodeError, match=r"no frame for its row: none of .* is within 0\.050 s of it, or"):
                source[i]
        else:
            np.testing.assert_array_equal(source[i].image, sound[i].image)  # type: ignore[arg-type]


def test_files_of_no_episodes_have_an_end(tmp_path: Path) -> None:
    """However many of them there are, as on a server that has one at every address."""
    root = copied("v30/h264", tmp_path)
    first = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(first)
    for number in (1, 2):
        pq.write_table(table.slice(0, 0), first.with_name(f"file-00{number}.parquet"))
    changed(root / INFO, lambda info: info.update(total_episodes=1 << 30))
    refused(root, "file-001.parquet has no episodes, and meta/info.json says that there are more", kind="lerobot")


@pytest.mark.parametrize(("change", "words"), [
    (lambda info: info.update(codebase_version="v1.6"), "version 'v1.6'; v2 and v3 are read: convert it by LeRobot"),
    (lambda info: info.update(data_path="../{chunk_index:03d}.parquet"), "names a file outside its dataset"),
    (lambda info: info["features"].update(gripper={"dtype": "float32", "shape": [1]}), "has no column 'gripper'"),
    (lambda info: info.update(total_episodes=9), "file-001.parquet"),
    (lambda info: info.update(total_episodes="x"), "is not what LeRobot writes"),
])  # fmt: skip
def test_what_info_says_must_fit(change: Callable[[dict[str, Any]], Any], words: str, tmp_path: Path) -> None:
    root = copied("v30/h264", tmp_path)
    changed(root / INFO, change)
    refused(root, words, kind="lerobot")


def test_tables_that_contradict_each_other(tmp_path: Path) -> None:
    """Another length of an episode, rows out of order, tasks without a text, another size of the frames."""
    root = copied("v30/h264", tmp_path)
    episodes = root / "meta/episodes/chunk-000/file-000.parquet"
    change_table(episodes, "length", lambda values: [values[0], values[1] + 1, *values[2:]])
    refused(root, "episode 1 has 13 frames, and data.* has 12 of them in a piece: copy both again, or leave it out")
    assert len(open_source(root, episodes="0,2")) == 12
    change_table(episodes, "length", lambda values: [values[0], values[1] - 1, *values[2:]])
    path = root / "data/chunk-000/file-000.parquet"
    change_table(path, "task_index", lambda values: [5, *values[1:]])
    refused(root, "no text for task_index 5")
    change_table(path, "frame_index", lambda values: [values[1], values[0], *values[2:]])
    refused(root, "episode 0 .* not in the order of frame_index")
    older = copied("v21/h264", tmp_path / "older")
    changed(older / INFO, lambda info: info["features"][TOP].update(shape=[96, 64, 3]))
    assert "its shape is (64, 96, 3)" in run_here("pack", older, tmp_path / "store").err


@pytest.mark.parametrize("name", ["v30/h264", "v21/h264"])
def test_no_damage_is_a_surprise(name: str, tmp_path: Path) -> None:
    """Whatever byte changes, wherever a file ends: an error of ours, a reject, or values of their kinds."""
    draws, root = random.Random(name), copied(name, tmp_path)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    for path in paths:
        data = path.read_bytes()
        for _ in range(tries(8)):
            broken = bytearray(data)
            for _ in range(draws.choice((1, 1, 8))):
                broken[draws.randrange(len(broken))] = draws.randrange(256)
            path.write_bytes(broken if draws.random() < 0.7 else data[: draws.randrange(len(data))])
            try:
                source = open_source(root, kind="lerobot")
            except (UsageError, PackError):
                continue
            for i in range(0, len(source), 11):
                try:
                    item = source[i]
                except (DecodeError, PackError):
                    continue
                assert np.asarray(item.image).dtype == np.uint8
        path.write_bytes(data)
    assert len(open_source(root)) == 24


class TestLeRobotConformance(SourceConformance):
    """All three cameras of two episodes, of several in each file."""

    def open(self, folder: Path) -> Source:
        if not (folder / "set").exists():
            copied("v30/arms", folder)
        return open_source(folder / "set", episodes="0,4")

    def change(self, folder: Path) -> bool:
        path = folder / f"set/videos/{TOP}/chunk-000/file-000.mp4"
        path.write_bytes(path.read_bytes() + b"\0")
        return True
