"""What `--max-rejects` allows of a source of containers, such as videos: what was lost counts, not what was listed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run_here
from videos import encode, looked_through_here  # noqa: F401

from rawpack.errors import DecodeError
from rawpack_packer.destination.journal import Reject
from rawpack_packer.job.limit import RejectLimit
from rawpack_packer.job.options import parse_run_options
from rawpack_packer.sources.base import Containers

CUT = {"preset": "ultrafast", "x264-params": "threads=1"}


@dataclass
class Films:
    """A source of videos: how many frames and bytes each has; no frame, where it cannot be read; a negative number of
    frames, where it ends early, and the last one stands for an unknown number; and how much of such a one is missing,
    if not all."""

    films: list[tuple[int, int]]
    missing: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(max(1, abs(frames)) for frames, _ in self.films)

    def __getitem__(self, i: int) -> Any:
        raise DecodeError("corrupt", "it is a test")

    def key(self, i: int) -> str:
        return f"frame {i}"

    @property
    def containers(self) -> Containers:
        ends = np.cumsum([0, *(max(1, abs(frames)) for frames, _ in self.films)])
        sizes = np.array([size for _, size in self.films], np.int64)
        stands = np.where([frames <= 0 for frames, _ in self.films], ends[1:] - 1, -1)
        missing = np.array([self.missing.get(k, 1) for k in range(len(sizes))], np.float64)
        return Containers("video", ends[:-1], sizes, stands, missing)


def limit(films: list[tuple[int, int]], max_rejects: Any = None) -> RejectLimit:
    source: Any = Films(films)
    return RejectLimit(source, parse_run_options(max_rejects=max_rejects))


WHOLE, LOST = (600, 10), (0, 10)
HALF = [*3 * [LOST], *3 * [WHOLE]]
FEW = [*2 * [(0, 1)], *98 * [(1, 1)]]
EARLY = [(-30, 10), WHOLE]


@pytest.mark.parametrize(
    ("films", "allowed", "most"),
    [
        # By default 1% may be lost: one of 100 videos of one size, and none of 99.
        ([LOST, *98 * [WHOLE]], None, -1),
        ([LOST, *199 * [WHOLE]], None, 597),
        # A large video counts by its bytes, a small one by being one of the files; where a size is unknown, all do.
        ([(0, 800), *4 * [(10, 50)]], "79.9%", -1),
        ([(0, 800), *4 * [(10, 50)]], "80%", 0),
        ([(0, 0), *4 * [(10, 50)]], "19.9%", -1),
        ([(0, 0), *4 * [(10, 50)]], "20%", 0),
        ([(0, 800), *3 * [(10, 50)], (10, -1)], "20%", 0),
        # A number is compared with that share of all listed samples; a video that is a smaller share counts as one.
        (HALF, 901, -1),
        (HALF, 902, 0),
        (FEW, 1, -1),
        (FEW, 2, 0),
        # One that ends early by an unknown length counts by its share, and what stands for it as no sample.
        (EARLY, "49%", -1),
        (EARLY, "50%", 0),
    ],
)
def test_what_was_lost_counts_by_the_larger_share(films: list[tuple[int, int]], allowed: Any, most: int) -> None:
    """So many further rejects are allowed, and not one more; with less than none, the videos alone are too much."""
    bound = limit(films, allowed)
    assert [bound.exceeded_by(max(most, 0)), bound.exceeded_by(most + 1)] == [most < 0, True]


def test_the_value_in_the_message_resumes() -> None:
    """For any videos and rejects: with the share that a message names, the same job goes on, and no whole percent less
    would do."""
    draw = random.Random(5)
    for _ in range(300):
        some = range(draw.randint(2, 30))
        sizes = [draw.randint(-1, 99) if draw.random() < 0.1 else draw.randint(0, 99) for _ in some]
        films = [(draw.choice([0, draw.randint(1, 50)]), size) for size in sizes]
        source, rejects = Films(films), draw.randint(0, 20)
        if not any(frames for frames, _ in films):
            continue
        named = limit(films).share(rejects, len(source))
        assert not limit(films, named).exceeded_by(rejects), (films, rejects, named)
        less = f"{int(named.removesuffix('%')) - 1}%"
        assert named == "100%" or limit(films, less).exceeded_by(rejects), (films, rejects, named)


def test_what_stands_for_a_container_is_no_sample() -> None:
    """Of the rejects, neither those of containers nor what --skip-unreadable left out count as samples; what a video
    lacks that ends early by an unknown length has no number, also in a part of the source."""
    rejects = [Reject(n, "", reason, "") for n, reason in ((7, "corrupt"), (8, "damaged"), (9, "not_scanned"))]
    assert limit([(7, 1), (0, 1), (50, 1)]).counted(rejects) == 1
    assert limit([(7, 1), (0, 1), (50, 1)]).counted([Reject(107, "", "corrupt", "")], 100) == 0
    assert limit(EARLY).containers == {29}
    assert limit(EARLY).counted([Reject(n, "", "truncated", "") for n in (28, 29)]) == 1
    held = Films(EARLY).containers.holding(np.arange(10, 40))
    assert (held.starts.tolist(), held.stands.tolist()) == ([0, 20], [19, -1])
    assert not Films(EARLY).containers.holding(np.arange(10, 29)).lost.any()


@pytest.mark.parametrize(("size", "share", "less"), [(600, "25%", "24.9%"), (-1, "12.5%", "12.4%")])
def test_of_a_video_that_ends_early_the_missing_part_counts(size: int, share: str, less: str) -> None:
    """Half of a video that holds half of the bytes is a quarter of them, and an eighth of four videos."""
    source: Any = Films([(-30, size), *3 * [(600, 200)]], {0: 0.5})
    assert not RejectLimit(source, parse_run_options(max_rejects=share)).exceeded_by(0)
    assert RejectLimit(source, parse_run_options(max_rejects=less)).exceeded_by(0)
    assert source.containers.holding(np.arange(10, 40)).missing.tolist() == [0.5, 1]


@pytest.mark.usefixtures("looked_through_here")
def test_half_of_the_videos_are_half_of_the_set(tmp_path: Path) -> None:
    """A cut video counts by its share: nothing is packed, and the message has both shares, an example and the value
    that packs the rest."""
    folder, store, whole = tmp_path / "source", tmp_path / "store", []
    for k in range(4):
        data = encode(folder / f"{k}.mp4", "libx264", 5, options=CUT).read_bytes()
        whole.append(data.rindex(b"moov") - 4 if k < 2 else len(data))  # what the first box behind the cut would say
        (folder / f"{k}.mp4").write_bytes(data[:900] if k < 2 else data)
    cut = f"{100 * sum(whole[:2]) / sum(whole):.1f}".removesuffix(".0")
    small = ("--size", "16", "--workers", 0)
    ran = run_here("pack", "--quiet", *small, folder, store)
    assert (ran.code, store.exists()) == (1, False)
    assert f"2 of 4 videos cannot be read in full: 50% of the files, {cut}% of the bytes (truncated 2)" in ran.err
    assert "for example 0.mp4#000000: the file ends before" in ran.err
    assert "--max-rejects allows 1%. " in ran.err
    assert "the same command with --max-rejects 50% packs the rest" in ran.err
    dry = run_here("pack", "--dry-run", *small, folder, store)
    assert (dry.code, "2 of 4 videos cannot be read in full" in dry.err) == (1, True)
    ran = run_here("pack", "--max-rejects", "50%", *small, folder, store)
    assert (ran.code, "2 of 4 videos cannot be read in full: 50% of the files" in ran.out) == (0, True)


@pytest.mark.usefixtures("looked_through_here")
def test_nothing_helps_where_no_video_can_be_read(tmp_path: Path) -> None:
    """Where all are unreadable, the message offers no value."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.mp4").write_bytes(b"no video " * 50)
    ran = run_here("pack", "--quiet", "--workers", 0, tmp_path / "source", tmp_path / "store")
    assert ran.code == 1
    assert "1 of 1 video cannot be read in full: 100% of the files, 100% of the bytes (corrupt 1)" in ran.err
    assert "nothing else is in the source, so a larger --max-rejects does not help" in ran.err
