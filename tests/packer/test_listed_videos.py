"""Listings of videos: each row a video, or a part of one, whose frames have the fields of the row.

Frames show their own numbers, so the oracle is what was encoded, at 10 frames a second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from running import pack, run_here, stop_of
from videos import encode, looked_through_here, rows  # noqa: F401

from rawpack import Reader, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.testing import SourceConformance

pytestmark = pytest.mark.usefixtures("looked_through_here")
LENGTHS = {"a.mp4": 30, "b.avi": 20, "sub/c.mp4": 10}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("listed")
    for name, count in LENGTHS.items():
        encode(root / name, "mpeg4", count, rate=10, options={"g": "6", "b": "2M"})
    return root


@pytest.fixture
def listed(place: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "list.csv") -> Path:
        (place / name).write_text(text)
        return place / name

    return write


def test_frames_have_the_fields_of_their_row(listed: Callable[..., Path]) -> None:
    """Labels, numbers and texts; videos are numbered in the order of the rows."""
    source = open_source(listed("path,label,subject,note\nsub/c.mp4,run,7,x\na.mp4,eat,8,y\n"))
    assert (source.info.kind, source.info.noun, source.info.classes) == ("video", "frame", ("eat", "run"))
    found = rows(source)
    assert [one["shows"] for one in found] == [*range(10), *range(30)]
    assert [one["frame"] for one in found] == [*range(10), *range(30)]
    fields = [(int(one["video"]), int(one["label"]), int(one["subject"]), one["note"]) for one in found]
    assert fields == [(0, 1, 7, "x")] * 10 + [(1, 0, 8, "y")] * 30
    assert found[10]["key"] == "a.mp4#000000"


def test_a_row_may_be_a_part_of_a_video(listed: Callable[..., Path]) -> None:
    """By `start` and `end`, in seconds or as 0:00:01.5; each row is a video of its own, and the times are no fields."""
    text = "path,start,end,label\na.mp4,0.5,1,1\na.mp4,0:00:02,,2\nb.avi,,0:00.3,3\na.mp4,,,4\n"
    source = open_source(listed(text))
    assert list(source.info.fields) == ["video", "frame", "pts_seconds", "label"]
    found = rows(source)
    expected = [(0, k) for k in range(5, 10)] + [(1, k) for k in range(20, 30)]
    expected += [(2, k) for k in range(3)] + [(3, k) for k in range(30)]
    assert [(one["video"], one["shows"]) for one in found] == expected
    assert all(one["label"] == one["video"] + 1 for one in found)
    names = {one["key"].partition("#")[0] for one in found}
    assert names == {"a.mp4", "a.mp4@0.5-1", "a.mp4@2-", "b.avi@0-0.3"}
    assert len({one["key"] for one in found}) == len(found)


def test_options_select_frames_of_each_row(listed: Callable[..., Path]) -> None:
    """--fps and the like apply within the times of a row; --start and --end contradict such columns."""
    listing = listed("path,start,end\na.mp4,1,2\nb.avi,0,1\n")
    found = rows(open_source(listing, fps=2))
    assert [(one["video"], one["shows"]) for one in found] == [(0, 10), (0, 15), (1, 0), (1, 5)]
    with pytest.raises(UsageError, match="leave out --start and --end"):
        open_source(listing, start=1)
    whole = open_source(listed("path\na.mp4\n", "whole.csv"), start=2.5, frame_step=2)
    assert [one["shows"] for one in rows(whole)] == [25, 27, 29]


def test_slowfast_lists_and_kinetics_tables(listed: Callable[..., Path], place: Path, tmp_path: Path) -> None:
    """`path label` lines, called .csv; and Kinetics' table, whose files are named after its columns."""
    found = rows(open_source(listed("a.mp4 3\nsub/c.mp4 5\n", "train.csv")))
    assert [int(one["label"]) for one in found] == [3] * 30 + [5] * 10
    for name, youtube in (("a.mp4", "-3b7_x y"), ("sub/c.mp4", "0abc")):
        (place / "k" / "eating cake").mkdir(parents=True, exist_ok=True)
        (place / "k" / "eating cake" / f"{youtube}_000010_000020.mp4").write_bytes((place / name).read_bytes())
    table = "label,youtube_id,time_start,time_end,split\n"
    table += "eating cake,-3b7_x y,10,20,train\neating cake,0abc,10,20,val\n"
    template = "{label}/{youtube_id}_{time_start:06d}_{time_end:06d}.mp4"
    sets = tmp_path / "sets"
    ran = run_here(
        "pack", "--quiet", "--workers", 0, "--size", 16, "--images", place / "k", "--path", template,
        "--split-by", "split", listed(table, "kinetics.csv"), sets,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    train, val = Reader(sets, split="train"), Reader(sets, split="val")
    assert (len(train), len(val)) == (30, 10)
    assert train.classes == val.classes == ("eating cake",)
    assert train[29]["key"] == "eating cake/-3b7_x y_000010_000020.mp4#000029"
    assert (train[0]["youtube_id"], train[0]["time_start"]) == ("-3b7_x y", 10)
    path = template[8:38]
    said = stop_of("pack", "--path", path, listed("youtube_id,time_start\nq,one\n", "bad.csv"), tmp_path / "s")
    assert "line 2: --path: time_start is 'one', not a whole number" in said


def test_a_pattern_and_a_key_column_go_with_videos(listed: Callable[..., Path], place: Path) -> None:
    """Fields of the paths, for listings and folders of videos; keys name the videos."""
    listing = listed("path,id,start,end\na.mp4,one,0,1\na.mp4,two,1,2\n")
    found = rows(open_source(listing, key_column="id", key_pattern="{letter}.mp4"))
    assert [(one["key"], one["letter"]) for one in found][9:11] == [("one#000009", "a"), ("two#000010", "a")]
    (place / "ntu").mkdir(exist_ok=True)
    for subject in (1, 3):
        name = f"S001C002P{subject:03}R001A{subject + 40:03}_rgb.avi"
        (place / "ntu" / name).write_bytes((place / "b.avi").read_bytes())
    ntu = open_source(place / "ntu", key_pattern="S{s:03d}C{camera:03d}P{subject:03d}R{r:03d}A{label:03d}_rgb.avi")
    assert (ntu.info.kind, ntu.info.classes, len(ntu)) == ("video", None, 40)
    assert [(int(one["subject"]), int(one["label"])) for one in rows(ntu)] == [(1, 41)] * 20 + [(3, 43)] * 20


def test_parts_of_one_file_stay_in_one_split(listed: Callable[..., Path], tmp_path: Path) -> None:
    """--holdout draws files, so that no split has frames of another one's video."""
    text = "".join(f"{name},{k},{k + 1}\n" for name in ("a.mp4", "b.avi") for k in range(2)) + "sub/c.mp4,0,1\n"
    sets = tmp_path / "sets"
    pack(listed("path,start,end\n" + text), sets, "--size", 16, "--holdout", "val=1")
    train, val = (
        {key.partition("@")[0] for key in Reader(sets, split=name).column("key")} for name in ("train", "val")
    )
    assert not train & val
    assert train | val == set(LENGTHS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,start,end\na.mp4,1,x\n", "line 2, column 3 (end): must be seconds"),
        ("path,start,end\na.mp4,2,1\n", "line 2, column 3 (end): 1 is not after the start, 2"),
        ("path,start\na.mp4,1\na.mp4,1.0\n", "line 3, column 1 (path): 'a.mp4@1-' is on line 2 already"),
    ],
)
def test_bad_rows_are_named(text: str, words: str, listed: Callable[..., Path], tmp_path: Path) -> None:
    assert words in stop_of("pack", "--workers", 0, listed(text), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_list_that_grew_is_appended(listed: Callable[..., Path], tmp_path: Path) -> None:
    """Further parts of a file that the store has other parts of are new videos, with numbers of their own."""
    store = pack(listed("path,label,start,end\na.mp4,1,0,1\n"), tmp_path / "s", "--size", 16)
    grown = listed("path,label,start,end\na.mp4,1,0,1\na.mp4,2,1,1.5\nb.avi,3,,\n")
    ran = run_here("append", "--quiet", "--workers", 0, "--skip-existing", grown, store)
    assert ran.code == 0, ran
    reader = Reader(store)
    found = [(int(reader[i]["video"]), int(reader[i]["label"])) for i in range(len(reader))]
    assert found == [(0, 1)] * 10 + [(1, 2)] * 5 + [(2, 3)] * 20


class TestListedVideos(SourceConformance):
    def open(self, folder: Path) -> Source:
        root = folder / "source"
        if not root.exists():
            encode(root / "a.mp4", "mpeg4", 9, rate=10)
            encode(root / "b.mp4", "mpeg4", 7, rate=10)
            (root / "list.csv").write_text("path,label,note,start\nb.mp4,x,one,\na.mp4,y,two,0.3\n")
        return open_source(root / "list.csv")

    def change(self, folder: Path) -> bool:
        path = folder / "source" / "b.mp4"
        path.write_bytes(path.read_bytes() + b"\0" * 16)
        return True
