"""`rawpack plan`: what it tries, what it predicts and recommends, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pictures import Pixels, picture, save
from running import environment, pack, run_here

from rawpack import Reader, UsageError
from rawpack.transforms import RandomHorizontalFlip, RandomResizedCrop, ToCHW
from rawpack_packer import api
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.part.part import Tick
from rawpack_packer.recipe.recipe import make_recipe
from rawpack_packer.sources import open_source
from rawpack_packer.sources.view import View
from rawpack_packer.tune.measure import rounds
from rawpack_packer.tune.measure.meter import Setting, StoreMeter, Throughput
from rawpack_packer.tune.measure.rounds import Case, Reading, Schedule, read_in_turn
from rawpack_packer.tune.measure.steps import parse_steps
from rawpack_packer.tune.plan import throughput, trial
from rawpack_packer.tune.plan.candidates import Candidate, candidates
from rawpack_packer.tune.plan.loss import psnr, ssim
from rawpack_packer.tune.plan.planned import Plan, PlanRequest
from rawpack_packer.tune.plan.predict import Prediction, predict
from rawpack_packer.tune.plan.recommend import Goals, by_target, overlaps, recommend
from rawpack_packer.tune.plan.sample import draw
from rawpack_packer.tune.plan.trial import Trial

QUICK = ("--quiet", "--budget", "1s", "--workers", "1", "--batch", "16", "--size", "32")


# ---------------------------------------------------------------------------------------------- candidates


def test_candidates_are_the_combinations_that_make_sense() -> None:
    """Quality is lmdb's, compression hdf5's; each has a name of its own and the options that make it."""
    found = candidates(["memmap", "hdf5", "lmdb"], ["224", "256"], ["75", "90"], ["rgb", "gray"], ["none", "gzip"])
    assert len(found) == 2 * 2 * (1 + 2 + 2)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        options = {
            word.removeprefix("--"): value for word, value in zip(one.options[::2], one.options[1::2], strict=True)
        }
        assert make_recipe(**options) == one.recipe  # type: ignore[arg-type]
    assert "lmdb 224 gray q75" in {one.name for one in found}


def test_the_recommended_command_packs_that_candidate(images: Path, tmp_path: Path) -> None:
    """The command line runs as it stands, also for a source whose name a shell would take apart."""
    source = tmp_path / "my $photos; 'all'"
    source.symlink_to(images)
    (candidate,) = candidates(["lmdb"], ["40x24"], ["60"], ["gray"], ["none"])
    words = shlex.split(candidate.command(str(source)))
    assert words[0] == "rawpack"
    store = tmp_path / "store"
    words[words.index("STORE")] = str(store)
    assert run_here(*words[1:], "--workers", 0, "--quiet").code == 0
    recipe = Reader(store)._library.stores[0].manifest.recipe
    expected = candidate.recipe.as_manifest()
    assert {**recipe, "libraries": {}} == {**expected, "size": list(candidate.recipe.target or ()), "libraries": {}}


# ---------------------------------------------------------------------------------------------- the sample


def test_a_sample_has_small_and_large_files_as_often_as_the_whole(tmp_path: Path) -> None:
    """Of the files sorted by size and cut into equal runs, each gives exactly one; a seed gives the same again."""
    random = np.random.default_rng(1)
    sizes = random.permutation(np.arange(100, 160))
    for i, size in enumerate(sizes.tolist()):
        path = tmp_path / "source" / f"{i % 3}" / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    source = open_source(tmp_path / "source")
    for count in (1, 7, 20, 60):
        sample = draw(source, count, seed=5)
        chosen = np.sort(sample.states()[:, 0]) - 100
        assert len(sample) == count
        assert (np.searchsorted(np.arange(count + 1) * 60 // count, chosen, side="right") - 1).tolist() == [
            *range(count)
        ]
        assert [sample.key(i) for i in range(count)] == sorted(sample.key(i) for i in range(count))
        again = draw(source, count, seed=5)
        assert [again.key(i) for i in range(count)] == [sample.key(i) for i in range(count)]
    assert {draw(source, 7, seed).key(0) for seed in range(8)} != {draw(source, 7, 0).key(0)}


def test_a_packed_sample_holds_what_the_whole_store_holds(images: Path, tmp_path: Path) -> None:
    """The pixels and labels of a sample, packed with small parts, are those of the same files in a whole store."""
    whole = Reader(pack(images, tmp_path / "whole", "--size", "32"))
    by_key = {whole[i]["key"]: whole[i] for i in range(len(whole))}
    (candidate,) = candidates(["memmap"], ["32"], [], ["rgb"], [])
    Job(draw(open_source(images), 30, seed=3), candidate.trial(16), tmp_path / "sample", RunOptions(0)).run()
    sample = Reader(tmp_path / "sample")
    assert len(sample) == 30
    for i in range(30):
        one = sample[i]
        assert (one["image"] == by_key[one["key"]]["image"]).all()
        assert one["label"] == by_key[one["key"]]["label"]


# ---------------------------------------------------------------------------------------------- loss


def ssim_by_the_book(x: Pixels, y: Pixels) -> float:
    """The mean over every place of the window, each by sums over its 121 pixels."""
    luma = [
        np.round(0.299 * a[..., 0] + 0.587 * a[..., 1] + 0.114 * a[..., 2], 12)
        for a in (x.astype(float), y.astype(float))
    ]
    side = np.arange(-5, 6)
    window = np.exp(-(side[:, None] ** 2 + side[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    found = []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            a, b = (one[top : top + 11, left : left + 11] for one in luma)
            mean_a, mean_b = (window * a).sum(), (window * b).sum()
            var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
            both = (window * (a - mean_a) * (b - mean_b)).sum()
            c1, c2 = 2.55**2, 7.65**2
            found.append(
                (2 * mean_a * mean_b + c1) * (2 * both + c2)
                / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
            )  # fmt: skip
    return float(np.mean(found))


def test_loss_is_measured_by_the_book() -> None:
    """PSNR of a known error; SSIM as its definition, written out, gives it; nothing lost is 1 and infinity."""
    image = picture(30, 40, 0)
    noisy = (image.astype(int) + np.random.default_rng(0).integers(-20, 21, image.shape)).clip(0, 255).astype(np.uint8)
    grey = np.full((20, 20, 1), 100, np.uint8)
    assert psnr(grey, grey + np.uint8(10)) == pytest.approx(20 * np.log10(25.5))
    assert ssim(image, noisy) == pytest.approx(ssim_by_the_book(image, noisy), abs=1e-6)
    assert ssim(image, image) == pytest.approx(1.0)
    assert psnr(image, image) == float("inf")
    assert 0 < ssim(image[:4, :4], noisy[:4, :4]) < 1


# ---------------------------------------------------------------------------------------------- the pace of packing


def test_the_pace_of_packing_leaves_out_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, of which the second starts late: what counts is the time from when both have packed something."""
    score: list[tuple[float, int, int]] = [
        (3.0, 0, 16), (4.0, 1, 10), (6.0, 0, 46), (6.0, 1, 30), (8.0, 1, 50), (8.0, 2, 15), (14.0, 2, 60),
    ]  # fmt: skip
    assert paced(monkeypatch, score) == pytest.approx((46 + 50 + 60 - 26) / 10)


def test_a_short_stretch_says_nothing_of_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most is packed before all workers have begun, the whole run counts."""
    assert paced(monkeypatch, [(3.0, 0, 16), (9.0, 1, 16), (9.001, 0, 20), (20.0, 1, 20)]) == pytest.approx(40 / 20)


def paced(monkeypatch: pytest.MonkeyPatch, score: list[tuple[float, int, int]]) -> float:
    """Samples per second of two workers whose parts tick as the score says: (when, part, samples)."""
    clock = 0.0
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: clock)

    class Played:
        def run(self, tasks: Any, report: Any, /) -> None:
            nonlocal clock
            for when, part, samples in score:
                clock = when
                report.ticked(part, Tick(samples, 0))

    engine = throughput.PacedEngine(cast(Any, Played()), workers=2)
    engine.run(iter(()), cast(Any, SimpleNamespace(ticked=lambda number, tick: None)))
    return engine.samples_per_s


@pytest.mark.parametrize(("start", "expected"), [(0.0, 100.0), (7.0, 107.0)])
def test_starting_workers_belongs_to_the_time_to_pack(start: float, expected: float) -> None:
    """1,000 samples at 10 a second take 100 s, and the start comes on top."""
    one = replace(RAW.trial, start_s=start, packed_per_s=10.0, rows=20, seen=20)
    (told,) = predict([one], 1_000, None)
    assert told.pack_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("samples", "rows", "error"),
    [
        (20, 20, 0.0),
        (20, 15, 0.0),
        (80, 20, 0.1 * 0.75**0.5),
        (10**9, 20, 0.1),
        (10**9, 10, (0.01 + 1.96**2 / 20) ** 0.5),
    ],
)
def test_the_size_of_what_was_packed_is_known(samples: int, rows: int, error: float) -> None:
    """A sample that is the whole leaves no error; else it is that of its images, and of how many are rejected."""
    one = replace(RAW.trial, bytes_error=0.1, rows=rows, seen=20)
    (told,) = predict([one], samples, None)
    assert told.bytes_error == pytest.approx(error)


# ---------------------------------------------------------------------------------------------- the budget


class Played:
    """A meter on a clock of its own, on which every measurement takes a second."""

    limit = None

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock, self.warmed, self.cooled = clock, 0, 0

    def warm(self, setting: Setting, seconds: float) -> Throughput:
        self.clock.now += 1.0
        self.warmed += 1
        return Throughput(1.0, 1.0)

    def cold(self, setting: Setting, seconds: float) -> Throughput:
        self.clock.now += 1.0
        self.cooled += 1
        return Throughput(1.0, 1.0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("deadline", "best", "curves", "cold"),
    [
        (100.0, 5, 2, 1),  # time for all
        (20.0, 4, 1, 1),   # three rounds come first, then what there is time for
        (9.0, 2, 0, 1),    # no time for the curve
        (6.0, 1, 0, 0),    # no time for the disk either, but for some
        (-1.0, 1, 0, 0),   # packing took it all
    ],
)  # fmt: skip
def test_measuring_ends_by_its_deadline(
    monkeypatch: pytest.MonkeyPatch, deadline: float, best: int, curves: int, cold: int
) -> None:
    """Where each measurement takes a second: what is left out first, and that nothing ends after the deadline but the
    one measurement that is always made."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(rounds.time, "monotonic", lambda: clock.now)
    meters = [Played(clock) for _ in range(6)]
    cases = [Case(str(k), cast(Any, meter), Setting(1, 1), curve=k % 2 == 0) for k, meter in enumerate(meters)]
    read_in_turn(cases, Schedule(5, 0.1, 1, deadline))
    assert max(meter.warmed for meter in meters[1::2]) == best
    assert max(meter.warmed for meter in meters[::2]) == curves
    assert min(meter.cooled for meter in meters[1::2]) == cold
    assert clock.now <= max(deadline, 1.0)


@pytest.mark.parametrize(("deadline", "measured"), [(-1.0, 1), (2.0, 1), (2.25, 2), (100.0, 3)])
@pytest.mark.parametrize("all_once", [False, True])
def test_stores_without_time_are_left_without_rounds(
    monkeypatch: pytest.MonkeyPatch, deadline: float, measured: int, *, all_once: bool
) -> None:
    """A store is begun where a measurement that takes a quarter longer than the longest so far would still end in time;
    one is always measured, and all are with a budget that is too short to choose."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(rounds.time, "monotonic", lambda: clock.now)
    cases = [Case(str(k), cast(Any, Played(clock)), Setting(1, 1)) for k in range(3)]
    readings = read_in_turn(cases, Schedule(1, 0.1, 0, deadline, all_once))
    assert [len(reading.warm) for reading in readings] == (
        [1] * 3 if all_once else [1] * measured + [0] * (3 - measured)
    )
    assert all_once or measured == 1 or clock.now <= deadline


@pytest.mark.parametrize(
    ("took", "budget", "images"), [(0.2, 20.0, 8), (1.0, 20.0, 2), (0.001, 20.0, 64), (1.0, 400.0, 64)]
)
def test_large_images_make_a_small_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, budget: float, images: int
) -> None:
    """Where an image takes long to decode, a short budget is kept with few of them."""
    found = slow_sources(tmp_path, monkeypatch, took)
    source = open_source(tmp_path / "source")
    seen = trial.probe(source, found, budget, 0)
    assert trial.sample_size(source, found, tmp_path, budget, seen) == images


def slow_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float) -> list[Candidate]:
    """A folder of 64 images, `source`, each of which takes so many seconds to prepare, and candidates for it."""
    for i in range(64):
        save(tmp_path / "source" / f"{i:02d}.png", picture(8, 8, i))
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(trial.time, "perf_counter", lambda: clock.now)

    def slowly(data: Any, recipe: Any) -> Any:
        clock.now += took
        return SimpleNamespace(shape=(8, 8, 3))

    monkeypatch.setattr(trial, "prepare", slowly)
    monkeypatch.setattr(trial.machine, "cpus", lambda: 2)
    return candidates(["memmap", "lmdb"], ["8"], ["75", "90"], ["rgb"], [])


def test_formats_come_first_where_time_is_short() -> None:
    """One candidate of each format is tried before the second of any."""
    found = candidates(["lmdb", "memmap", "hdf5"], ["32", "64"], ["75", "90"], ["rgb"], ["none"])
    ordered = [one.name for one in trial.formats_first(found)]
    assert ordered[:3] == ["lmdb 32 q75", "memmap 32", "hdf5 32"]
    assert sorted(ordered) == sorted(one.name for one in found)


def test_what_there_was_no_time_for_is_named(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where packing one candidate takes the whole budget, the others are left out, and the output says which."""
    monkeypatch.setattr(trial, "_SHORT_S", 0.0)
    monkeypatch.setattr(trial, "_PACKED_BY", 0.0)
    ran = run_here("plan", *QUICK, "--format", "memmap", "--format", "lmdb", "--tmp", tmp_path, "--wide", images)
    assert ran.code == 0
    assert "Not tried, because --budget 1 s was used up: lmdb 32 q75, lmdb 32 q90, lmdb 32 q95." in ran.out
    assert "Recommended: memmap 32, the only one that was tried: nothing was compared." in ran.out
    ran = run_here("plan", *QUICK, "--format", "memmap", "--format", "hdf5", "--tmp", tmp_path, "--json", images)
    told = json.loads(ran.out)
    assert told["left_out"] == ["hdf5 32"]
    assert [one["name"] for one in told["candidates"]] == ["memmap 32"]


# ---------------------------------------------------------------------------------------------- transforms


def test_transforms_are_parsed_and_never_executed() -> None:
    """Steps by name, with plain values; anything else is refused with what there is."""
    found = parse_steps(["RandomResizedCrop(24, scale=(0.5, 1.0)), RandomHorizontalFlip", "ToCHW()"])
    expected = [RandomResizedCrop(24, scale=(0.5, 1.0)), RandomHorizontalFlip(), ToCHW()]
    assert list(map(repr, found)) == list(map(repr, expected))
    for text in (
        "", "__import__('os')", "Lambda(print)", "RandomResizedCrop(open('x'))", "RandomResizedCrop(size=nothing)",
        "ToCHW().__class__", "ToCHW()], [ToCHW()", "ToCHW(", "ToCHW(1, 2, 3)", "RandomResizedCrop(*[24])", "os.system",
        "ToCHW(**{})",
    ):  # fmt: skip
        with pytest.raises(UsageError, match="--transform"):
            parse_steps([text])


def test_plan_reads_through_the_transform(images: Path, tmp_path: Path) -> None:
    """Images of different sizes are read where a step brings them to one; the limit of bare copying does not apply."""
    ran = run_here(
        "plan", *QUICK[:-2], "--size", "keep", "--format", "memmap", "--tmp", tmp_path, "--json",
        "--transform", "RandomResizedCrop(20)", "--transform", "ToCHW()", images,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    (one,) = json.loads(ran.out)["candidates"]
    (reading,) = one["readings"]
    assert [step.partition("(")[0] for step in reading["transform"]] == ["RandomResizedCrop", "ToCHW"]
    assert reading["of_limit"] is None
    # uint8 (3, 20, 20), and label and index of 8 bytes.
    assert reading["bytes_per_s"]["median"] / reading["images_per_s"]["median"] == pytest.approx(20 * 20 * 3 + 16)


# ---------------------------------------------------------------------------------------------- recommendations


def predicted(name: str, gigabytes: float, rates: tuple[float, ...], *, cold: tuple[float, ...] = ()) -> Prediction:
    """A candidate of which only size and speed are known; one with `cold` does not fit into memory."""
    reading = Reading(cast(Case, None))
    reading.warm = [Throughput(rate, 0.1, 1.0, 1e-4) for rate in rates]
    reading.cold = [Throughput(rate, 0.1) for rate in cold]
    tried = Trial(Candidate(name, make_recipe(), ()), 1, 1, 1.0, 1, 0.0, 1.0, 0.0, None, 1.0, [reading])
    return Prediction(tried, gigabytes * 1e9, 0.0, 1.0, not cold, None, None)


RAW = predicted("raw", 100, (50_000.0, 60_000.0, 70_000.0))
SAME = predicted("same", 100, (49_000.0, 61_000.0, 69_000.0))
FINE = predicted("fine", 20, (2_500.0, 3_000.0, 3_500.0))
COARSE = predicted("coarse", 10, (3_200.0, 3_300.0, 3_400.0))
COLD = predicted("cold", 200, (90_000.0,) * 3, cold=(900.0, 1_000.0, 1_100.0))
ALL = [RAW, SAME, FINE, COARSE, COLD]


@pytest.mark.parametrize(
    ("goals", "taken"),
    [
        (Goals(target=1_000), "coarse"),               # the smallest of many that would do
        (Goals(target=3_300), "raw"),                  # coarse reaches it in some rounds only
        (Goals(target=49_500), "raw"),                 # the one whose whole interval reaches it
        (Goals(target=80_000), None),                  # cold would, were it in memory
        (Goals(target=10_000, disk=50 * 10**9), None),
        (Goals(target=2_000, disk=15 * 10**9), "coarse"),
        (Goals(disk=50 * 10**9), "coarse"),            # no target: it is the fastest that fits, and the smallest
        (Goals(), "raw"),                              # the first of two between which nothing was measured
        (Goals(disk=10**9), None),
    ],
)  # fmt: skip
def test_the_smallest_that_is_surely_fast_enough_is_taken(goals: Goals, taken: str | None) -> None:
    """With a target, size decides among those whose whole interval reaches it; each loser has its reason."""
    recommendation = recommend(ALL, goals)
    assert (recommendation.taken and recommendation.taken.candidate.name) == taken
    assert {one.candidate.name for one, _ in recommendation.lost} == {one.candidate.name for one in ALL} - {taken}
    assert all(why for _, why in recommendation.lost)


@pytest.mark.parametrize(
    ("rate", "taken"), [(30_500.0, "half"), (30_499.0, "raw"), (3_000.0, "raw"), (70_000.0, "half")]
)
def test_without_a_target_half_of_the_fastest_is_enough(rate: float, taken: str) -> None:
    """The smallest whose median is at least half of the fastest's, which is 61,000 where this one is no faster."""
    half = predicted("half", 50, (rate - 1_000, rate, rate + 1_000))
    recommendation = recommend([RAW, SAME, FINE, COARSE, half], Goals())
    assert recommendation.taken is not None
    assert recommendation.taken.candidate.name == taken
    why = {one.candidate.name: text for one, text in recommendation.lost}
    assert why["coarse"].startswith("less than half as fast as ")
    assert why["fine"].startswith("less than half as fast as ")
    assert ("half" in why) == (taken == "raw")


def test_what_a_target_changes_is_what_it_answers() -> None:
    """Up to each figure of the list, and just beyond the one before, the target itself gives the same store."""
    told = by_target(ALL, None)
    assert [(most, one.candidate.name) for most, one in told] == [(3_200.0, "coarse"), (50_000.0, "raw")]
    before = 1.0
    for most, one in told:
        for target in (before, most):
            assert recommend(ALL, Goals(target=target)).taken is one
        before = most + 1
    assert recommend(ALL, Goals(target=before)).taken is None
    assert [one.candidate.name for _, one in by_target(ALL, 15 * 10**9)] == ["coarse"]


def test_losers_are_told_why() -> None:
    """Too slow, not certain to be fast enough, larger, too large for the disk, from the disk: each in its words."""
    why = {one.candidate.name: text for one, text in recommend(ALL, Goals(target=3_300, disk=150 * 10**9)).lost}
    assert why["coarse"].startswith("not certain to be fast enough: 3,300")
    assert why["fine"].startswith("not certain to be fast enough: 3,000")
    assert why["cold"].startswith("200 GB is more than --disk 150 GB")
    assert "no difference in speed was measured" in why["same"]
    why = {one.candidate.name: text for one, text in recommend(ALL, Goals(target=3_600)).lost}
    assert why["fine"].startswith("too slow: 3,000 images/s (2,500 to 3,500)")
    assert "from the disk, as it does not fit into memory" in why["cold"]
    why = {one.candidate.name: text for one, text in recommend(ALL, Goals(target=1_000)).lost}
    assert why["raw"].startswith("larger: 100 GB")


def test_a_single_round_shows_no_difference() -> None:
    """Of two candidates that were measured once, none is called slower: only intervals can show that."""
    first, other = predicted("first", 100, (17_900.0,)), predicted("other", 100, (18_100.0,))
    recommendation = recommend([first, other], Goals())
    assert recommendation.taken is first
    assert [why for _, why in recommendation.lost] == [
        "as large; measured once, the difference is not certain: 18,000 images/s"
    ]


@pytest.mark.parametrize(
    ("some", "goals", "why"),
    [
        (
            [RAW, COARSE],
            Goals(),
            "of those that were tried, no smaller store reads at least half as fast; not tried: y",
        ),
        ([RAW], Goals(), "the only one that was tried: nothing was compared"),
        ([RAW], Goals(target=1_000), "of those that were tried, the smallest certain to reach 1,000 images/s; not "),
        ([RAW], Goals(disk=1), "No candidate fits into --disk 1 B. Not tried: y"),
    ],
)
def test_a_reason_claims_nothing_of_what_was_not_tried(some: list[Prediction], goals: Goals, why: str) -> None:
    """It names the candidates that the budget left out; where none was, it stays as it is."""
    asked = PlanRequest("photos", (), (1,), goals)
    recommendation, left_out = recommend(some, goals), [replace(FINE.candidate, name="y")]
    whole = Plan(asked, 9, "image", cast(View, None), None, some, [], recommendation, None, "/tmp")
    assert whole.why == recommendation.why
    assert replace(whole, left_out=left_out).why.startswith(why)


def test_candidates_that_overlap_are_named() -> None:
    """Neighbours by speed whose intervals have a point in common."""
    assert overlaps(ALL) == [("same", "raw"), ("coarse", "fine")]


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def planned(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `rawpack plan --json` says of 75 images."""
    folder = tmp_path_factory.mktemp("plan")
    ran = run_here(
        "plan", *QUICK, "--json", "--format", "memmap", "--format", "lmdb", "--quality", "60", "--target", "1",
        "--tmp", folder, images,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    assert not list(folder.iterdir())
    told: dict[str, Any] = json.loads(ran.out)
    return told


def test_plan_measures_every_candidate(planned: dict[str, Any]) -> None:
    """Size, time to pack, speed with its interval, first batch, what a core gives, and the limits."""
    assert [one["name"] for one in planned["candidates"]] == ["memmap 32", "lmdb 32 q60"]
    for one in planned["candidates"]:
        assert one["pack_s"] > 0
        assert 0 < one["images_per_s"]["low"] <= one["images_per_s"]["median"] <= one["images_per_s"]["high"]
        (reading,) = one["readings"]
        assert 1 <= len(reading["images_per_s"]["rounds"]) <= 5
        assert reading["workers"] == 1
        assert reading["of_limit"]["median"] > 0
        assert reading["first_batch_s"]["median"] > 0
    raw, jpeg = planned["candidates"]
    assert raw["psnr_db"] is None
    assert 20 < jpeg["psnr_db"] < 60
    assert 0.5 < jpeg["ssim"] < 1
    assert raw["even_with"] == "lmdb 32 q60"
    assert raw["even_bytes_per_s"] == pytest.approx(jpeg["readings"][0]["images_per_s"]["median"] * raw["image_bytes"])


def test_plan_knows_the_size_of_the_whole_set(planned: dict[str, Any], images: Path, tmp_path: Path) -> None:
    """Predicted bytes are those of the whole store, packed as recommended, within 5 %."""
    for one in planned["candidates"]:
        store = pack(images, tmp_path / one["name"], *one["options"])
        whole = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        assert one["store_bytes"] == pytest.approx(whole, rel=0.05)


def test_plan_recommends_the_smallest(planned: dict[str, Any], images: Path) -> None:
    """Of two that are fast enough the smaller, with the command that packs it, and why the other lost."""
    assert planned["recommended"] == min(planned["candidates"], key=lambda one: one["store_bytes"])["name"]
    assert planned["command"].startswith("rawpack pack --format ")
    assert planned["command"].endswith(f"{images} STORE")
    assert [one["why"].split(":")[0] for one in planned["lost"]] == ["larger"]


def test_a_share_of_the_limit_is_the_quotient_of_what_is_told(planned: dict[str, Any]) -> None:
    """In JSON, images/s divided by the limit that stands beside it; what is exact has no error."""
    for one in planned["candidates"]:
        rate = one["readings"][-1]["images_per_s"]["median"]
        assert one["of_limit"] == pytest.approx(rate / one["limit_images_per_s"])
        assert one["limit"] == {"memmap 32": "copy 32", "lmdb 32 q60": "decode 32 q60"}[one["name"]]
        exact = one["name"] == "memmap 32" or planned["sampled"] == planned["samples"]
        assert (one["store_bytes_error"] == 0) == exact
    assert planned["by_target"][0]["name"] == "lmdb 32 q60"


SHOWN = re.compile(
    r"(?P<name>\S+ 32\S*(?: q60)?)(?: \*)?  +(?P<size>[\d.]+ kB)(?P<error> ±\S+)?"
    r"  +\S+ \S+  +(?P<rate>[\d,]+)(?: ±\d+%)?  +(?P<limit>[\d,]+)  +(?P<share>\d+)%"
)


def test_the_table_holds_together(images: Path, tmp_path: Path) -> None:
    """With all columns, each share is the quotient of the two figures to its left, and an exact size has no ±; in HTML
    as in text."""
    pytest.importorskip("jinja2", reason="reports need rawpack[report]")
    ran = run_here(
        "plan", *QUICK, "--format", "memmap", "--format", "lmdb", "--quality", "60", "--tmp", tmp_path, "--wide",
        "--html", tmp_path / "page.html", images,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    found = [row.groupdict() for row in SHOWN.finditer(ran.out)]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert [row["name"] for row in found] == ["memmap 32", "lmdb 32 q60"]
    for row in found:
        rate, limit = (float(row[name].replace(",", "")) for name in ("rate", "limit"))
        assert int(row["share"]) == pytest.approx(100 * rate / limit, abs=0.51)
        assert (row["error"] is None) == ("judged by" not in ran.out or row["name"] == "memmap 32")
        for name in ("size", "rate", "limit"):
            assert row[name] in page
    (recommendation,) = re.findall(r"Recommended: (\S+ 32(?: q60)?),", ran.out)
    assert f"Recommended: {recommendation}<" in page


def test_the_table_fits_the_terminal(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line but one with a path is longer than the terminal, COLUMNS in a pipe; what is left out is named."""
    measured: list[Any] = []

    def once(*args: Any, **options: Any) -> Any:
        measured[:] = measured or [measure(*args, **options)]
        return measured[0]

    measure = api.run_plan
    monkeypatch.setattr(api, "run_plan", once)
    for columns in (60, 80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        ran = run_here(
            "plan", *QUICK, "--format", "memmap", "--format", "lmdb", "--quality", "60", "--tmp", tmp_path, images
        )
        assert (ran.code, ran.err) == (0, ""), ran
        # A path is not cut: it is to be copied.
        lines = [line for line in ran.out.splitlines() if str(images) not in line and str(tmp_path) not in line]
        assert max(map(len, lines)) <= columns
        head = next(line for line in lines if "whole set" in line)
        left_out = re.search(r"Columns that do not fit \(--wide shows them\): (.*?)\.", " ".join(ran.out.split()))
        for name in ("images/s", "to pack", "of limit", "a core", "SSIM"):
            assert (name in head) != (left_out is not None and name in left_out[1].split(", "))
        assert ("a core" in head) == (columns == 160)


def test_a_plan_without_an_answer_ends_in_1(images: Path, tmp_path: Path) -> None:
    """Nothing fits, or nothing reaches the target: the table is there, it says so, and a script can tell."""
    for wish, words in ((("--disk", "1kB"), "fits into --disk"), (("--target", "1e12"), "certain to reach")):
        ran = run_here("plan", *QUICK, "--format", "memmap", "--tmp", tmp_path, *wish, images)
        assert (ran.code, ran.err) == (1, ""), ran
        assert words in " ".join(ran.out.split())
        assert "whole set" in ran.out
    ran = run_here("plan", *QUICK, "--format", "memmap", "--tmp", tmp_path, "--disk", "1kB", "--json", images)
    assert ran.code == 1
    assert json.loads(ran.out)["recommended"] is None


def test_progress_says_how_long_it_will_take(images: Path, tmp_path: Path) -> None:
    """Each step is told with the time that is left of the budget."""
    ran = run_here("plan", *QUICK[1:], "--format", "memmap", "--tmp", tmp_path, images)
    steps = [line for line in ran.err.splitlines() if line.startswith("rawpack: ")]
    assert len(steps) >= 4
    assert all(re.fullmatch(r"rawpack: .+, (about [\d.]+ \w+|a few seconds) left", line) for line in steps)


def test_plan_shows_one_table(images: Path, tmp_path: Path) -> None:
    """For a person: the table with this machine's limits in it, the scaling, and the advice."""
    ran = run_here(
        "plan", *QUICK, "--format", "memmap", "--format", "hdf5", "--tmp", tmp_path, "--memory", "1kB", "--wide",
        images,
    )  # fmt: skip
    # On a file system in memory nothing can be measured from the disk, and nothing is recommended.
    assert (ran.code, ran.err) == (int("Recommended" not in ran.out), ""), ran
    assert re.search(r"\n  memmap 32 \*? +\d+ kB ", ran.out)
    assert "limit: bare copying or decoding" in ran.out
    assert "memory: 1 kB for files; too little for memmap 32, hdf5 32: read from the disk." in ran.out
    assert not list(tmp_path.iterdir())


def test_plan_counts_what_cannot_be_packed(tmp_path: Path) -> None:
    """Broken files in the sample shrink the predicted set; where all are broken, that is the error."""
    for i in range(40):
        save(tmp_path / "source" / f"{i:02d}.jpg", picture(40, 40, i))
    for i in range(10):
        (tmp_path / "source" / f"bad{i}.jpg").write_bytes(b"no image" * 300)
    (tmp_path / "tmp").mkdir()
    ran = run_here("plan", *QUICK, "--format", "memmap", "--tmp", tmp_path / "tmp", "--json", tmp_path / "source")
    assert ran.code == 0
    (one,) = json.loads(ran.out)["candidates"]
    assert one["rejected"] / (one["sampled"] + one["rejected"]) == pytest.approx(0.2, abs=0.04)
    # With what a store of so few small images holds beside them.
    assert 40 * 32 * 32 * 3 < one["store_bytes"] < 50 * 32 * 32 * 3
    for path in (tmp_path / "source").glob("[0-9]*.jpg"):
        path.write_bytes(b"no image either")
    ran = run_here("plan", *QUICK, "--format", "memmap", "--tmp", tmp_path / "tmp", tmp_path / "source")
    assert ran.code == 1
    assert "of 32 images could be packed: not_an_image" in ran.err
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "soon"], "--budget 'soon'"),
        (["--size", "keep"], "--image-size"),
        (["--tmp", "/nowhere/at/all"], "--tmp /nowhere/at/all"),
        (["--disk", "much"], "--disk 'much'"),
        (["--target", "0"], "--target"),
        (["--quality", "101"], "--quality"),
    ],
)
def test_plan_refuses_nonsense(images: Path, options: list[str], words: str) -> None:
    """Exit code 2, one line that names the option, and nothing written."""
    ran = run_here("plan", "--quiet", *options, images)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_plan_does_not_write_into_its_source(images: Path) -> None:
    """A temporary folder inside the source is refused, and removed."""
    before = sorted(images.rglob("*"))
    ran = run_here("plan", *QUICK, "--tmp", images, images)
    assert ran.code == 2
    assert "--tmp" in ran.err
    assert sorted(images.rglob("*")) == before


# ---------------------------------------------------------------------------------------------- nothing left behind


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_trials_are_removed_whatever_ends_the_plan(images: Path, tmp_path: Path, how: signal.Signals) -> None:
    """Killed while workers pack or read, also so that it cannot clean up itself: soon the folder is empty."""
    command = [
        sys.executable,
        "-m",
        "rawpack",
        "plan",
        "--budget",
        "60s",
        "--size",
        "64",
        "--tmp",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [*command, str(images)], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: bool(list(tmp_path.glob("rawpack-plan-*/*/*"))))
        os.kill(process.pid, how)
        process.wait(120)
    wait_until(lambda: not list(tmp_path.iterdir()))


def wait_until(true: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


# ---------------------------------------------------------------------------------------------- predictions


def made(folder: Path) -> Path:
    """1,200 made photographs."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "make_photos.py"
    subprocess.run([sys.executable, script, folder, "--images", "1200"], check=True, capture_output=True)
    return folder


def mixed(folder: Path) -> Path:
    """900 images of very different sizes and contents: noise, smooth, flat."""
    random = np.random.default_rng(2)
    for i in range(900):
        height, width = (int(side) for side in random.integers(120, 700, 2))
        pixels = picture(height, width, i)
        if i % 3 == 0:
            pixels = (pixels + random.normal(0, 12, pixels.shape)).clip(0, 255).astype(np.uint8)
        elif i % 3 == 1:
            pixels[:] = pixels[:1, :1]
        save(folder / str(i % 7) / f"{i:04d}.jpg", pixels, quality=int(random.integers(60, 98)))
    return folder


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["photos", "made", "mixed"])
def test_predictions_hold_for_full_packs(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a sample of 256: GB of the whole set within 5 %, and images/s within 15 % as a ratio to the bare limit that
    was measured in the same run."""
    source = {"photos": lambda: request.getfixturevalue("photos"), "made": lambda: made(tmp_path / "set")}.get(
        kind, lambda: mixed(tmp_path / "set")
    )()
    monkeypatch.setattr(trial, "_MOST", 256)
    (tmp_path / "tmp").mkdir()
    ran = run_here(
        "plan",
        "--quiet",
        "--json",
        "--budget",
        "90s",
        "--size",
        "224",
        "--workers",
        1,
        "--tmp",
        tmp_path / "tmp",
        source,
    )
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["sampled"] == 256 < told["samples"]
    meters = []
    for one in told["candidates"]:
        store = pack(source, tmp_path / one["name"].replace(" ", "-"), *one["options"], "--max-rejects", "100%")
        whole = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        print(f"{kind}, {one['name']}: {one['store_bytes'] / whole - 1:+.2%} bytes")
        assert one["store_bytes"] == pytest.approx(whole, rel=0.05), one["name"]
        meters.append(StoreMeter(store))
    cases = [Case(str(meter.path), meter, Setting(256, 1)) for meter in meters]
    readings = read_in_turn(cases, Schedule(rounds=9, seconds=1.0, cold_rounds=0))
    for one, reading in zip(told["candidates"], readings, strict=True):
        foreseen = one["readings"][0]["of_limit"]["median"]
        assert reading.of_limit is not None
        print(f"{kind}, {one['name']}: {foreseen / reading.of_limit.median - 1:+.1%} of the limit")
        assert foreseen == pytest.approx(reading.of_limit.median, rel=0.15), one["name"]
