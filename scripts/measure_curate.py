#!/usr/bin/env python3
"""How well `pack --curate` finds planted near duplicates, leaks and blurred images, compared with cleanvision,
and how long each takes.

    scripts/measure_curate.py ~/photos
    scripts/measure_curate.py ~/photos --cleanvision ~/other-venv/bin/python

Of the photographs, every fifth gets one altered copy, in turn: JPEG at quality 50, 70 % of its size, 4 % cut from each
side, brighter by 10 %, or all but the crop together. Every tenth gets a copy in val/ at quality 70, and other tenths
are blurred (sigma 2 to 5 pixels at 500). Copies that were planted are the truth; near duplicates that the photographs
have by themselves count as wrong, so precision is a lower bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import cv2

from rawpack import Reader
from rawpack.store.store import Store
from rawpack_packer.inspect.curation import curation_of

_CLEANVISION = """
import json, sys, time, resource
from cleanvision import Imagelab
began = time.monotonic()
lab = Imagelab(data_path=sys.argv[1])
lab.find_issues({"near_duplicates": {}, "exact_duplicates": {}, "blurry": {}}, n_jobs=2, verbose=False)
took = time.monotonic() - began
kinds = ("near_duplicates", "exact_duplicates")
sets = [[str(path) for path in one] for kind in kinds for one in lab.info[kind]["sets"]]
blurry = lab.issues.sort_values("blurry_score")
cpu = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in (0, -1))
print(json.dumps({"sets": sets, "blurry": [str(p) for p in blurry.index[: int(sys.argv[2])]],
                  "flagged": [str(p) for p in lab.issues.index[lab.issues["is_blurry_issue"]]], "s": took, "cpu": cpu}))
"""
Pair = frozenset[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--cleanvision", type=Path, metavar="PYTHON", help="a Python that has cleanvision")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(asked.photos, Path(folder), asked.cleanvision)


def measure(photos: Path, work: Path, other: Path | None) -> None:
    pairs, leaks, blurred = plant(photos, work / "set")
    count = sum(1 for _ in (work / "set").rglob("*.jpg"))
    print(f"{count} images: {len(pairs)} near duplicates, {len(leaks)} leaks and {len(blurred)} blurred are planted\n")
    print(f"{'':14}{'duplicates':>22}{'leaks':>22}{'blurred':>22}{'wall s':>9}{'CPU s':>9}")
    print(f"{'':14}" + f"{'recall':>11}{'precision':>11}" * 3)
    plain, plain_cpu = packed(work, "plain")
    curated, curated_cpu = packed(work, "curated", "--curate")
    cpu = curated_cpu
    began, before = time.monotonic(), cpu_seconds(resource.RUSAGE_SELF)
    train, val = work / "curated/train", work / "curated/val"
    found = curation_of(Store(train))
    assert found is not None
    keys, others = Reader(train).column("key"), Reader(val).column("key")
    took = time.monotonic() - began
    near = {frozenset(pair) for group in found.groups for pair in combinations((keys[row] for row in group), 2)}
    leaking = {frozenset((keys[one.row], f"val/{others[one.other]}")) for one in found.leaks}
    sharpness = Reader(train).column("sharpness")
    least = [keys[row] for row in sharpness.argsort(kind="stable")[: len(blurred)]]
    cpu += cpu_seconds(resource.RUSAGE_SELF) - before
    more = took + curated - plain
    line("rawpack", (near, pairs), (leaking, leaks), (set(least), blurred), more, cpu - plain_cpu)
    if other is not None:
        words = [str(other), "-c", _CLEANVISION, str(work / "set"), str(len(blurred))]
        ran = subprocess.run(words, check=True, capture_output=True, text=True)
        told = json.loads(ran.stdout.splitlines()[-1])
        near, leaking = set(), set()
        for group in told["sets"]:
            for pair in combinations((named(path, work / "set") for path in group), 2):
                across = sum(name.startswith("val/") for name in pair)
                (leaking if across == 1 else near).add(frozenset(pair))
        blurry = {named(path, work / "set") for path in told["blurry"]}
        line("cleanvision", (near, pairs), (leaking, leaks), (blurry, blurred), told["s"], told["cpu"])
    ratio = curated_cpu / plain_cpu
    print(f"\npacking: {plain:.1f} s, {plain_cpu:.1f} CPU s; with --curate {ratio:.2f} times the CPU time")


def plant(photos: Path, folder: Path) -> tuple[set[Pair], set[Pair], set[str]]:
    """Write train/ and val/; the planted duplicates and leaks as pairs of keys, and the keys of blurred images."""
    pairs, leaks, blurred = set[Pair](), set[Pair](), set[str]()
    for i, path in enumerate(sorted(path for path in photos.rglob("*") if path.is_file())):
        image = cv2.imread(str(path))
        if image is None:
            continue
        name, (height, width) = f"a/{i:05}.jpg", image.shape[:2]
        if i % 10 == 3:
            sigma = (2 + i // 10 % 4) * max(height, width) / 500
            image = cv2.GaussianBlur(image, (0, 0), sigma)
            blurred.add(name)
        write(folder / "train" / name, image, 95)
        if i % 5 == 0:
            kind, copy, quality = i // 5 % 5, image, 92
            if kind == 2:
                copy = copy[height * 4 // 100 : height * 96 // 100, width * 4 // 100 : width * 96 // 100]
            if kind in (1, 4):
                copy = cv2.resize(copy, None, fx=0.7, fy=0.7, interpolation=cv2.INTER_AREA)
            if kind in (3, 4):
                copy = cv2.convertScaleAbs(copy, alpha=1.1)
            if kind in (0, 4):
                quality = 50
            write(folder / "train/b" / f"{i:05}.jpg", copy, quality)
            pairs.add(frozenset((name, f"b/{i:05}.jpg")))
        if i % 10 == 7:
            write(folder / "val/a" / f"{i:05}.jpg", image, 70)
            leaks.add(frozenset((name, f"val/a/{i:05}.jpg")))
    return pairs, leaks, blurred


def write(path: Path, image: cv2.typing.MatLike, quality: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def packed(work: Path, name: str, *options: str) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of packing: the least of three times."""
    took = []
    for _ in range(3):
        shutil.rmtree(work / name, ignore_errors=True)
        began, before = time.monotonic(), cpu_seconds(resource.RUSAGE_CHILDREN)
        words = ["pack", "--quiet", "--splits", "train,val", *options, str(work / "set"), str(work / name)]
        subprocess.run([sys.executable, "-m", "rawpack", *words], check=True)
        took.append((time.monotonic() - began, cpu_seconds(resource.RUSAGE_CHILDREN) - before))
    return min(wall for wall, _ in took), min(cpu for _, cpu in took)


def cpu_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def named(path: str, folder: Path) -> str:
    """The key of a file; of those in val, with the folder."""
    name = str(Path(path).relative_to(folder))
    return name.removeprefix("train/")


def line(name: str, *found_and_truth: object) -> None:
    *scores, wall, cpu = found_and_truth
    cells = "".join(f"{recall:11.2f}{precision:11.2f}" for recall, precision in map(score, scores))  # type: ignore[arg-type]
    print(f"{name:14}{cells}{wall:9.1f}{cpu:9.1f}")


def score(sets: tuple[Iterable[object], Iterable[object]]) -> tuple[float, float]:
    found, truth = set(sets[0]), set(sets[1])
    hits = len(found & truth)
    return hits / max(1, len(truth)), hits / max(1, len(found))


if __name__ == "__main__":
    main()
