"""`rawpack plan`: what it tries, what it predicts and recommends, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from folders import files_of
from forked import Forks
from pictures import Pixels, picture, save
from reading import wait_until
from running import pack, run_here

from rawpack import Reader, UsageError
from rawpack.formats.codecs import zstd
from rawpack.transforms import RandomHorizontalFlip, RandomResizedCrop, ToCHW
from rawpack_packer.recipe import make_recipe
from rawpack_packer.sources import open_source
from rawpack_packer.tune import trial
from rawpack_packer.tune.candidates import Candidate, candidates, parse_steps, untried
from rawpack_packer.tune.loss import Loss, psnr, ssim
from rawpack_packer.tune.measure import Rate, Reading, Setting
from rawpack_packer.tune.plan import _words
from rawpack_packer.tune.recommend import Goals, recommend, trades
from rawpack_packer.tune.system import scratch_folder
from rawpack_packer.tune.trial import Trial, draw

pytestmark = pytest.mark.usefixtures("trials_here")

QUICK = ("--quiet", "--budget", "0.1s", "--workers", "1", "--batch", "16", "--compression", "none", "--size", "32")


# ---------------------------------------------------------------------------------------------- candidates


def test_candidates_are_the_combinations_that_make_sense() -> None:
    """Quality is lmdb's, compression hdf5's; each has a name of its own and the options that make it."""
    found = candidates(size=["224", "256"], quality=["75", "90"], fit=["cover", "whole"], compression=["none", "gzip"])
    assert len(found) == 2 * 2 * (1 + 2 + 2)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        words = [word.removeprefix("--") for word in one.options]
        options: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
        assert make_recipe(**options) == one.recipe
    assert "lmdb 224 whole q75" in {one.name for one in found}


def test_compressed_raw_pixels_are_tried_where_they_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless nothing here reads zstd, which is said."""
    monkeypatch.setattr(zstd, "is_installed", lambda: True)
    names = {one.name for one in candidates(format=["memmap", "lmdb"], size=["32"], quality=["90"])}
    assert names == {"memmap 32", "memmap 32 zstd", "lmdb 32 q90"}
    monkeypatch.setattr(zstd, "is_installed", lambda: False)
    assert "memmap 32 zstd" not in {one.name for one in candidates(format=["memmap"], size=["32"])}
    assert untried({})[0] == "Not tried: --compression zstd, which needs `pip install 'rawpack[zstd]'`."


def test_the_recommended_command_packs_that_candidate(images: Path, tmp_path: Path) -> None:
    """The command line runs as it stands, also for a source whose name a shell would take apart."""
    source = tmp_path / "my $photos; 'all'"
    source.symlink_to(images)
    (candidate,) = candidates(format=["lmdb"], size=["40x24"], quality=["60"], color=["gray"])
    words = shlex.split(candidate.command(str(source)))
    assert words[0] == "rawpack"
    store = tmp_path / "store"
    words[words.index("STORE")] = str(store)
    assert run_here(*words[1:], "--workers", 0, "--quiet").code == 0
    recipe, expected = Reader(store)._library.stores[0].manifest.recipe, candidate.recipe.as_manifest()
    assert {**recipe, "libraries": {}} == {**expected, "size": list(candidate.recipe.target or ()), "libraries": {}}


# ---------------------------------------------------------------------------------------------- the sample


def test_keywords_are_written_as_the_command_takes_them() -> None:
    """Also dicts and lists of Python, of which the last one would count otherwise."""
    given = {"array": {"image": "x", "label": "y"}, "fields": {"b": ("float32", (None, 5))}, "skip_unreadable": True}
    words = "--array image=x --array label=y --field b:float32[?,5] --skip-unreadable"
    assert _words(given | {"images": (), "columns": None}) == words.split()


def test_a_sample_is_spread_over_the_whole(images: Path) -> None:
    """Of runs of equal length, each gives exactly one; a seed gives the same again; all samples are a sample too."""
    source = open_source(images)
    every = [source.key(i) for i in range(len(source))]
    for count in (1, 7, len(every)):
        sample, again = ([draw(source, count, seed=5).key(i) for i in range(count)] for _ in range(2))
        edges = np.arange(1, count) * len(every) // count
        assert np.searchsorted(edges, [*map(every.index, sample)], side="right").tolist() == [*range(count)]
        assert again == sample
    assert len({draw(source, 7, seed).key(0) for seed in range(8)}) > 1


# ---------------------------------------------------------------------------------------------- loss


def ssim_by_the_book(x: Pixels, y: Pixels) -> float:
    """The mean over every place of the window, each by sums over its 121 pixels."""
    window = np.exp(-(np.add.outer(np.arange(-5, 6) ** 2, np.arange(-5, 6) ** 2)) / (2 * 1.5**2))
    window /= window.sum()

    def mean(values: Any) -> Any:
        return (np.lib.stride_tricks.sliding_window_view(values, (11, 11)) * window).sum((-2, -1))

    a, b = (np.round(one.astype(float) @ (0.299, 0.587, 0.114), 12) for one in (x, y))
    c1, c2 = 2.55**2, 7.65**2
    means = (2 * mean(a) * mean(b) + c1) / (mean(a) ** 2 + mean(b) ** 2 + c1)
    spread = mean(a * a) - mean(a) ** 2 + mean(b * b) - mean(b) ** 2
    return float(np.mean(means * (2 * (mean(a * b) - mean(a) * mean(b)) + c2) / (spread + c2)))


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


@pytest.mark.parametrize(
    ("ticks", "end", "whole", "expected"),
    [
        ([(3.0, 16), (4.0, 32), (5.0, 48), (6.0, 64)], 8.0, 64, 8.0),  # all were packed: what it took
        ([(3.0, 16), (4.0, 32), (5.0, 48), (6.0, 64)], 8.0, 6464, 8.0 + 6400 / 16),
        ([(3.0, 16), (4.0, 32), (7.9, 32)], 8.0, 1632, 8.0 + 1600 / 16),  # the shard was finished meanwhile
        ([(2.6, 20)], 3.0, 1020, 3.0 + 1000 * 2.0 / 20),  # one report: without the start of workers
    ],
)
def test_the_start_of_workers_counts_once(
    monkeypatch: pytest.MonkeyPatch, ticks: list[tuple[float, int]], end: float, whole: int, expected: float
) -> None:
    """To pack the whole set takes what the sample took, and for each further sample what one takes in between."""
    clock = 0.0
    monkeypatch.setattr(trial.time, "perf_counter", lambda: clock)
    pace = trial.Pace(lambda: None)
    for at, samples in ticks:
        clock = at
        pace.advance(samples, 0, 0)
    clock = end
    assert pace.seconds_for(whole) == pytest.approx(expected)


# ---------------------------------------------------------------------------------------------- the budget


def test_what_there_was_no_time_for_is_named(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where packing one candidate takes the whole budget, the others are left out, and the output says which."""
    monkeypatch.setattr(trial, "_SHORT_S", 0.0)
    monkeypatch.setattr(trial, "_PACKED_BY", 0.0)
    ran = run_here("plan", *QUICK, "--format", "memmap", "--format", "lmdb", "--tmp", tmp_path, "--wide", images)
    assert ran.code == 0
    assert "Not tried in 0.1 s: lmdb 32 q75, lmdb 32 q90, lmdb 32 q95." in ran.out
    assert "Recommended: memmap 32, the only one that was tried: nothing was compared." in ran.out


# ---------------------------------------------------------------------------------------------- transforms


def test_transforms_are_parsed_and_never_executed() -> None:
    """Steps by name, with plain values, also in brackets."""
    found = parse_steps(["RandomResizedCrop(24, scale=(0.5, 1.0)), RandomHorizontalFlip", "[ToCHW()]"])
    expected = (RandomResizedCrop(24, scale=(0.5, 1.0)), RandomHorizontalFlip(), ToCHW())
    assert repr(tuple(found)) == repr(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--transform"),
        ("__import__('os')", "there is no step __import__; there are CenterCrop, "),
        ("transforms.ToTensor()", "there is no step ToTensor: use ConvertImageDtype() and ToCHW()"),
        ("RandomResizedCrop(open('x'))", "--transform"),
        ("ToCHW().__class__", "a step such as"),
        ("RandomResizedCrop", "missing a required argument: 'size'"),
    ],
)
def test_what_is_wrong_with_a_transform(text: str, words: str) -> None:
    """Anything that is no step is refused with what there is."""
    with pytest.raises(UsageError, match=re.escape(words)):
        parse_steps([text])


def test_plan_reads_through_the_transform(images: Path, tmp_path: Path) -> None:
    """Images of different sizes are read where a step brings them to one."""
    ran = run_here(
        "plan", *QUICK[:-2], "--size", "keep", "--format", "memmap", "--tmp", tmp_path, "--json", "--transform",
        "RandomResizedCrop(20)", "--transform", "ToCHW()", images,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    (one,) = json.loads(ran.out)["candidates"]
    reading = one["reading"]
    assert [step.partition("(")[0] for step in reading["transform"]] == ["RandomResizedCrop", "ToCHW"]
    # uint8 (3, 20, 20), and label and index of 8 bytes.
    assert reading["bytes_per_s"]["median"] / reading["images_per_s"]["median"] == pytest.approx(20 * 20 * 3 + 16)


# ---------------------------------------------------------------------------------------------- recommendations


def test_the_trade_names_the_neighbors() -> None:
    """The next smaller and the next faster store, and what they cost; none that another beats, that is too slow for the
    target or too large for the disk, and none at the end."""
    assert trades(ALL, FINE, Goals()) == [
        "Next smaller: coarse takes 10 GB instead of 20 GB and reads 1.1 times as fast.",
        "Next faster: same takes 100 GB instead of 20 GB and reads 20.3 times as fast.",  # it beats raw
    ]
    lossy = replace(COARSE, loss=Loss(36.04, 0.98))
    assert trades([RAW, FINE, lossy], FINE, Goals())[0] == (
        "Next smaller: coarse takes 10 GB instead of 20 GB, reads 1.1 times as fast and loses a little (36.0 dB)."
    )
    assert trades([RAW, lossy, COLD], lossy, Goals())[-1].endswith("and loses nothing (coarse: 36.0 dB).")
    assert trades([RAW, FINE, COARSE], RAW, Goals(target=3_450)) == []
    assert trades([RAW, FINE, COARSE], RAW, Goals(target=3_390))[0].startswith("Next smaller: coarse")  # it beats fine
    assert trades([RAW, FINE], FINE, Goals(disk=50 * 10**9)) == []
    assert trades([RAW], RAW, Goals()) == []


@pytest.mark.parametrize(
    ("goals", "bare", "augmented"),
    [(Goals(), "raw", "planes"), (Goals(target=20_000), "raw", None), (Goals(target=6_000), "planes", "planes")],
)
def test_augmented_speed_decides(goals: Goals, bare: str, augmented: str | None) -> None:
    """Where random crops and flips were measured, the candidate is taken by them, and the words say so; bare speed
    decides only where nothing else was measured."""
    trials = [
        predicted(name, size, (rate,) * 3)
        for name, size, rate in (("raw", 100, 60_000.0), ("planes", 50, 10_000.0), ("jpeg", 10, 4_000.0))
    ]
    plainly = recommend(trials, goals)
    assert plainly.taken
    assert (plainly.taken.candidate.name, plainly.why.endswith(" without augmentation")) == (bare, True)
    crops = Setting(1, 1, None, (RandomResizedCrop(8), RandomHorizontalFlip()))
    trials = [
        replace(one, augmented=Reading(cast(Any, None), crops, [Rate(rate)] * 3, []))
        for one, rate in zip(trials, (9_000.0, 7_000.0, 3_000.0), strict=True)
    ]
    recommendation = recommend(trials, goals)
    assert (recommendation.taken and recommendation.taken.candidate.name) == augmented
    assert " with random crops and flips" in recommendation.why


def predicted(name: str, gigabytes: float, rates: tuple[float, ...], *, cold: tuple[float, ...] = ()) -> Trial:
    """A candidate of which only size and speed are known; one with `cold` does not fit into memory."""
    reading = Reading(cast(Any, None), Setting(1, 1), [*map(Rate, rates)], [*map(Rate, cold)])
    return Trial(Candidate(name, make_recipe(), ()), 1, 1, gigabytes * 1e9, 1.0, not cold, reading)


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


@pytest.mark.parametrize(("rate", "taken"), [(30_500.0, "half"), (30_499.0, "raw"), (70_000.0, "half")])
def test_without_a_target_half_of_the_fastest_is_enough(rate: float, taken: str) -> None:
    """The smallest whose median is at least half of the fastest's, which is 61,000 where this one is no faster."""
    half = predicted("half", 50, (rate - 1_000, rate, rate + 1_000))
    recommendation = recommend([RAW, SAME, FINE, COARSE, half], Goals())
    assert recommendation.taken
    assert recommendation.taken.candidate.name == taken
    why = {one.candidate.name: text for one, text in recommendation.lost}
    assert why["coarse"].startswith("less than half the speed of ")
    assert ("half" in why) == (taken == "raw")


# ---------------------------------------------------------------------------------------------- the command


def test_plan_measures_every_candidate(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size of the whole store, within 5 %, time to pack, speed with its interval, first batch, and loss. Of two that
    are fast enough the smaller is recommended, with the command that packs it, and why the other lost."""
    monkeypatch.setattr(trial, "_LEAST", 75)
    monkeypatch.setattr(trial, "_LEAST_S", 1e9)
    (tmp_path / "tmp").mkdir()
    ran = run_here(
        "plan", *QUICK, "--budget", "1s", "--json", "--format", "memmap", "--format", "lmdb",
        "--quality", "60", "--target", "1", "--tmp", tmp_path / "tmp", images,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    assert not list((tmp_path / "tmp").iterdir())
    planned = json.loads(ran.out)
    assert [one["name"] for one in planned["candidates"]] == ["memmap 32", "lmdb 32 q60"]
    for one in planned["candidates"]:
        assert one["pack_s"] > 0
        assert 0 < one["images_per_s"]["low"] <= one["images_per_s"]["median"] <= one["images_per_s"]["high"]
        reading = one["augmented"]
        assert 1 <= len(reading["images_per_s"]["rounds"]) <= 5
        assert reading["first_batch_s"]["median"] > 0
        assert [step.partition("(")[0] for step in reading["transform"]] == [
            "RandomResizedCrop",
            "RandomHorizontalFlip",
        ]
        store = pack(images, tmp_path / one["name"], *one["options"])
        assert one["store_bytes"] == pytest.approx(sum(map(len, files_of(store).values())), rel=0.05)
    assert planned["why"].endswith(" with random crops and flips")
    raw, jpeg = planned["candidates"]
    assert raw["psnr_db"] is None
    assert 20 < jpeg["psnr_db"] < 60
    assert 0.5 < jpeg["ssim"] < 1
    assert planned["recommended"] == min(planned["candidates"], key=lambda one: one["store_bytes"])["name"]
    assert re.fullmatch("rawpack pack --format .* STORE", planned["command"])
    assert [one["why"].split(":")[0] for one in planned["lost"]] == ["larger"]


def test_a_plan_without_an_answer_ends_in_1(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Nothing fits, or nothing reaches the target: the table is there, it says so, and a script can tell."""
    monkeypatch.setattr("rawpack_packer.tune.plan.load_per_cpu", lambda: 0.0)
    options = ("plan", *QUICK, "--format", "memmap", "--tmp", tmp_path)
    ran = run_here(*options, "--target", "1e12", images)
    assert (ran.code, ran.err) == (1, ""), ran
    assert "certain to reach" in " ".join(ran.out.split())
    assert "whole set" in ran.out
    ran = run_here(*options, "--disk", "1kB", "--json", images)
    assert (ran.code, json.loads(ran.out)["recommended"]) == (1, None)


def test_plan_shows_one_table(images: Path, tmp_path: Path) -> None:
    """For a person: the table, and what it says of memory."""
    ran = run_here(
        "plan", *QUICK, "--budget", "1s", "--format", "memmap", "--format", "hdf5", "--tmp", tmp_path,
        "--memory", "1kB", "--wide", images,
    )  # fmt: skip
    # On a file system in memory nothing can be measured from the disk, and nothing is recommended.
    assert (ran.code, ran.err) == (int("Recommended" not in ran.out), ""), ran
    assert re.search(r"\n  memmap 32 \*? +\d+ kB ", ran.out)
    assert "memory: 1 kB for files; too little for memmap 32, hdf5 32: judged from the disk." in ran.out
    assert "does not fit into 1 kB of memory" in " ".join(ran.out.split())
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
    assert re.search(r"none of \d+ images could be packed: not_an_image", ran.err)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "soon"], "--budget 'soon'"),
        (["--size", "keep"], "--image-size"),
        (["--tmp", "/nowhere/at/all"], "--tmp /nowhere/at/all"),
        (["--tmp", "the source"], "--tmp"),
    ],
)
def test_plan_refuses_nonsense(images: Path, options: list[str], words: str) -> None:
    """Exit code 2, one line that names the option, and nothing written, not even into the source."""
    before = sorted(images.rglob("*"))
    options = [str(images) if one == "the source" else one for one in options]
    ran = run_here("plan", "--quiet", *options, images)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert sorted(images.rglob("*")) == before


# ---------------------------------------------------------------------------------------------- nothing left behind


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_trials_are_removed_whatever_ends_the_plan(
    forks: Forks, images: Path, tmp_path: Path, how: signal.Signals
) -> None:
    """By the plan itself where it can; what one that was killed left, the next one removes, and says so."""
    folder, noted = tmp_path / "tmp", tmp_path / "pid"
    folder.mkdir()
    words = ("plan", *QUICK, "--budget", "60s", "--format", "memmap", "--format", "lmdb", "--tmp", folder, images)
    before = f"import os; open({str(noted)!r}, 'w').write(str(os.getpid()))"
    with ThreadPoolExecutor() as beside:
        ended = beside.submit(forks.command, *words, before=before)
        wait_until(lambda: bool(list(folder.glob("rawpack-plan-*/*/*"))), "a trial is packed")
        (left,) = folder.iterdir()
        with scratch_folder(str(folder)) as (_, removed):
            assert not removed  # the other plan is at work
        os.kill(int(noted.read_text()), how)
        assert ended.result(120).code != 0
    assert left.exists() == (how == signal.SIGKILL)
    ran = run_here("plan", *QUICK, "--format", "memmap", "--tmp", folder, images)
    assert ran.code == 0
    assert (f"Removed what killed plans had left: {left}." in " ".join(ran.out.split())) == (how == signal.SIGKILL)
    assert not list(folder.iterdir())


def test_only_what_plans_left_is_removed(tmp_path: Path) -> None:
    """A folder without a lock, and a link to one that has it, stay."""
    kept, linked = tmp_path / "rawpack-plan-mine", tmp_path / "elsewhere"
    for folder in (kept, linked):
        folder.mkdir()
    (linked / "lock").touch()
    (tmp_path / "rawpack-plan-link").symlink_to(linked)
    with scratch_folder(str(tmp_path)) as (folder, removed):
        assert removed == []
    assert not folder.exists()
    assert kept.exists()
    assert (linked / "lock").exists()


# ---------------------------------------------------------------------------------------------- a few of many archives


def test_of_many_archives_a_few_are_looked_at(tmp_path: Path) -> None:
    """A pattern is taken as `pack` takes it: some of its archives, spread over all, stand for the whole set."""
    for k in range(8):
        with tarfile.open(tmp_path / f"a-{k:03d}.tar", "w") as tar:
            for i in range(4):
                file = save(tmp_path / "image.jpg", picture(40, 40, 4 * k + i))
                tar.add(file, f"{k}-{i}.jpg")
    (tmp_path / "tmp").mkdir()
    pattern = str(tmp_path / "a-{000..007}.tar")
    (tmp_path / "a-001.tar").write_bytes(b"damaged, and not looked at")
    ran = run_here("plan", *QUICK, "--json", "--format", "memmap", "--tmp", tmp_path / "tmp", pattern)
    assert (ran.code, ran.err) == (0, ""), ran
    told = json.loads(ran.out)
    assert (told["samples"], told["sampled"]) == (4 * 8, 4 * 4)
    assert shlex.split(told["command"])[-2:] == [pattern, "STORE"]
    (one,) = told["candidates"]
    assert 4 * 8 * 32 * 32 * 3 < one["store_bytes"] < 4 * 8 * 32 * 32 * 3 + 30_000
