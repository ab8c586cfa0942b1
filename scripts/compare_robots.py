#!/usr/bin/env python3
"""Compare random batches for a robot's policy: two frames of two cameras, and the next sixteen actions.

    python scripts/compare_robots.py --videos ~/videos --json results.json
    python scripts/compare_robots.py --videos ~/videos --quick              to see that it works

Makes a LeRobot data set of episodes cut from videos, in an environment of its own with the versions that
`compare/requirements/lerobot.txt` pins, and stores of the very same frames: those that LeRobot decodes. Then it reads
both in shuffled batches, each measurement in a fresh process, one after the other, round by round. A ratio is the
median of the rounds' ratios, with the least and the most. Before that it checks that both give the same samples.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "compare"))

import environments
from measuring.counters import cpu_seconds, total_bytes
from measuring.processes import CallFailedError, output

FPS, ACTIONS, JOINTS = 30, 16, 14
CAMERAS = ("top", "wrist")
FRAMES = [-1 / FPS, 0.0]
OFFSETS = {"top": FRAMES, "wrist": FRAMES, "action": [k / FPS for k in range(ACTIONS)]}
CHECKED = 64
_WARM_S = 2.0
_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm")
SUBJECTS = {
    "LeRobot, torchcodec": ("lerobot", "torchcodec"),
    "LeRobot, pyav": ("lerobot", "pyav"),
    "rawpack memmap": ("rawpack", "memmap"),
    "rawpack memmap, float32": ("rawpack", "memmap float32"),
    "rawpack lmdb": ("rawpack", "lmdb"),
    "rawpack lmdb, float32": ("rawpack", "lmdb float32"),
}
"""Name -> whose loader, and its backend, or the format of its store. LeRobot's images are float32, channels first."""


def main() -> None:
    asked = arguments()
    if asked.do:
        print("\n" + json.dumps(globals()[f"{asked.do}"](asked) or {}), flush=True)
        return
    asked.work.mkdir(parents=True, exist_ok=True)
    pythons = {"lerobot": environments.make("lerobot", asked.home), "rawpack": Path(sys.executable)}
    if not (asked.work / "made").exists():
        call(pythons["lerobot"], asked, "make")
        call(pythons["rawpack"], asked, "pack")
        (asked.work / "made").touch()
    call(pythons["lerobot"], asked, "sample")
    print(json.dumps(call(pythons["rawpack"], asked, "check")))
    load, rows = os.getloadavg()[0], list[dict[str, Any]]()
    for number in range(asked.rounds):
        for name, (system, variant) in SUBJECTS.items():
            try:
                found = call(pythons[system], asked, f"measure_{system}", variant)
            except CallFailedError as failure:
                found = {"error": str(failure)}
            rows.append({"subject": name, "round": number, **found})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))
    print(f"load before the start {load:.2f}, after the end {os.getloadavg()[0]:.2f}")
    if asked.json:
        about = {"versions": environments.installed(pythons["lerobot"]), "load": load, "rows": rows}
        asked.json.write_text(json.dumps(about, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--videos", type=Path, required=True, help="folder of videos that episodes are cut from")
    parser.add_argument("--home", type=Path, default=Path("build/environments"), help="folder of environments")
    parser.add_argument("--work", type=Path, default=Path("build/robots"), help="folder of data, used again")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--side", type=int, default=256, help="of the images, stored and read [256]")
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--frames", type=int, default=100, help="of an episode")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement, at least [8]")
    parser.add_argument("--quick", action="store_true", help="small and short: the figures mean nothing")
    parser.add_argument("--do", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.quick:
        asked.episodes, asked.frames, asked.rounds, asked.seconds = 2, 40, 1, 0.5
    asked.work, asked.videos = asked.work.resolve(), asked.videos.resolve()
    return asked


def call(python: Path, asked: argparse.Namespace, do: str, variant: str = "") -> dict[str, Any]:
    """What a part of this script prints, run in a fresh process."""
    numbers = ("side", "episodes", "frames", "batch", "workers", "seconds")
    options = [word for name in numbers for word in (f"--{name}", str(getattr(asked, name)))]
    command = [python, __file__, "--videos", asked.videos, "--work", asked.work, *options, "--do", do]
    found: dict[str, Any] = json.loads(output([*command, "--variant", variant], asked.work, 1200, last=True))
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Medians, and ratios to LeRobot in each round."""
    rates = {(row["subject"], row["round"]): row["images_per_s"] for row in rows if "error" not in row}
    lines = [
        "| | images/s | CPU ms an image | times LeRobot, torchcodec | times LeRobot, pyav |",
        "|---|---|---|---|---|",
    ]
    for name in SUBJECTS:
        its = [row for row in rows if row["subject"] == name]
        good = [row for row in its if "error" not in row]
        if not good:
            lines.append(f"| {name} | {its[0]['error'] if its else 'not measured'} | | | |")
            continue
        cells = [f"{statistics.median(row['images_per_s'] for row in good):,.0f}"]
        cells.append(f"{statistics.median(row['cpu_ms'] for row in good):.3g}")
        for other in ("LeRobot, torchcodec", "LeRobot, pyav"):
            pairs = [(row["images_per_s"], rates.get((other, row["round"]))) for row in good if other != name]
            ratios = [rate / base for rate, base in pairs if base]
            middle = statistics.median(ratios) if ratios else 0.0
            cells.append(f"{middle:.3g} ({min(ratios):.3g} to {max(ratios):.3g})" if ratios else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counted(batches: Iterable[Any], asked: argparse.Namespace) -> dict[str, Any]:
    """Images per second and CPU per image. batches: for ever; those of the first seconds are not counted."""
    first = began = cpu = 0.0
    images = 0
    for batch in batches:
        for camera in CAMERAS:
            batch[camera].reshape(-1)[::4099].sum()  # whoever takes the batch looks at it
        now = time.perf_counter()
        first = first or now
        if began:
            images += sum(batch[camera].shape[0] * batch[camera].shape[1] for camera in CAMERAS)
            if now > began + asked.seconds:
                break
        elif now > first + _WARM_S:
            began, cpu = now, cpu_seconds()
    return {"images_per_s": images / (now - began), "cpu_ms": (cpu_seconds() - cpu) / images * 1000}


def for_ever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


# ---------------------------------------------------------------------------------------------- with LeRobot


def opened(asked: argparse.Namespace, backend: str | None = None, offsets: bool = True) -> Any:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # type: ignore[import-not-found,unused-ignore]

    names = {**{camera: f"observation.images.{camera}" for camera in CAMERAS}, "action": "action"}
    deltas = {names[name]: seconds for name, seconds in OFFSETS.items()} if offsets else None
    return LeRobotDataset("local/robot", asked.work / "robot", delta_timestamps=deltas, video_backend=backend)


def make(asked: argparse.Namespace) -> None:
    """Episodes from the frames of videos: another stretch for each, and the wrist camera looks the other way."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    image = {"dtype": "video", "shape": (asked.side, asked.side, 3), "names": ["height", "width", "channels"]}
    vector = {"dtype": "float32", "shape": (JOINTS,), "names": [f"joint_{k}" for k in range(JOINTS)]}
    features: dict[str, Any] = {f"observation.images.{camera}": image for camera in CAMERAS}
    features |= {"observation.state": vector, "action": vector}
    made = LeRobotDataset.create("local/robot", FPS, features, asked.work / "robot", use_videos=True)
    source, random = frames_of(asked), np.random.default_rng(0)
    for _ in range(asked.episodes):
        pose = random.normal(size=JOINTS)
        for _ in range(asked.frames):
            frame, pose = next(source), pose + random.normal(size=JOINTS) / 10
            sample = {f"observation.images.{CAMERAS[0]}": frame, f"observation.images.{CAMERAS[1]}": frame[::-1, ::-1]}
            sample |= {"observation.state": pose.astype(np.float32), "action": pose.astype(np.float32) + 1}
            made.add_frame({**{name: np.ascontiguousarray(value) for name, value in sample.items()}, "task": "move"})
        made.save_episode()
    made.finalize()
    whole, columns = opened(asked, offsets=False), dict[str, list[Any]]()
    keep = {"episode_index": "video", "frame_index": "frame", "timestamp": "pts_seconds", "observation.state": "state"}
    for item in (whole[i] for i in range(len(whole))):
        for name, ours in {**keep, "action": "action"}.items():
            columns.setdefault(ours, []).append(item[name].numpy())
        for camera in CAMERAS:
            pixels = (item[f"observation.images.{camera}"].numpy() * 255).round().astype(np.uint8)
            columns.setdefault(camera, []).append(pixels.transpose(1, 2, 0))
    np.savez(asked.work / "frames.npz", **{name: np.stack(values) for name, values in columns.items()})  # type: ignore[arg-type]


def frames_of(asked: argparse.Namespace) -> Iterator[np.ndarray[Any, Any]]:
    """The frames of all videos, over and over: their middle, scaled to the side."""
    import av

    while True:
        for path in sorted(path for path in asked.videos.iterdir() if path.suffix.lower() in _SUFFIXES):
            with av.open(str(path)) as container:
                for frame in container.decode(video=0):
                    scale = asked.side / min(frame.width, frame.height)
                    width, height = (max(asked.side, round(n * scale)) for n in (frame.width, frame.height))
                    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
                    top, left = (height - asked.side) // 2, (width - asked.side) // 2
                    yield pixels[top : top + asked.side, left : left + asked.side]


def sample(asked: argparse.Namespace) -> None:
    """Some samples as LeRobot gives them."""
    made, found = opened(asked), dict[str, list[Any]]()
    for i in np.linspace(0, len(made) - 1, CHECKED).astype(int).tolist():
        for name, value in made[i].items():
            if not isinstance(value, str):
                found.setdefault(name, []).append(value.numpy())
    np.savez(asked.work / "samples.npz", **{name: np.stack(values) for name, values in found.items()})  # type: ignore[arg-type]


def measure_lerobot(asked: argparse.Namespace) -> dict[str, Any]:
    """LeRobot's own data set in a DataLoader, as its training script makes it."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        opened(asked, asked.variant), asked.batch, shuffle=True, num_workers=asked.workers, prefetch_factor=2,
        persistent_workers=True,
    )  # fmt: skip
    named = ({camera: batch[f"observation.images.{camera}"] for camera in CAMERAS} for batch in for_ever(loader))
    return counted(named, asked)


# ---------------------------------------------------------------------------------------------- with rawpack


def pack(asked: argparse.Namespace) -> dict[str, Any]:
    """Stores of the frames that LeRobot decodes."""
    import rawpack_packer

    columns = dict(np.load(asked.work / "frames.npz"))
    columns["image"] = columns.pop(CAMERAS[0])
    for form in ("memmap", "lmdb"):
        fields = {CAMERAS[1]: "image"}
        rawpack_packer.pack(columns, asked.work / form, fields=fields, format=form, workers=0)
    return {name: total_bytes(asked.work / name) for name in ("memmap", "lmdb", "robot")}


def samples_of(asked: argparse.Namespace, form: str) -> Any:
    from rawpack import Reader

    offsets = {"image": OFFSETS[CAMERAS[0]], **{name: OFFSETS[name] for name in (CAMERAS[1], "action")}}
    return Reader(asked.work / form).clips(offsets=offsets)


def check(asked: argparse.Namespace) -> dict[str, Any]:
    """Both give the same frames, actions and flags. Raises ValueError where they do not."""
    expected, differences = dict(np.load(asked.work / "samples.npz")), dict[str, float]()
    for form in ("memmap", "lmdb"):
        samples = samples_of(asked, form)
        found = samples[np.linspace(0, len(samples) - 1, CHECKED).astype(int)]
        for ours, theirs in (("image", CAMERAS[0]), (CAMERAS[1], CAMERAS[1])):
            name = f"observation.images.{theirs}"
            apart = np.abs(found[ours] - expected[name].transpose(0, 1, 3, 4, 2) * 255).mean()
            differences[f"{form} {theirs}"] = round(float(apart), 3)
            same = np.array_equal(found[f"{ours}_is_pad"], expected[f"{name}_is_pad"])
            if apart > (0.01 if form == "memmap" else 4) or not same:
                raise ValueError(f"{form}: {ours} is {apart} levels away; equal flags: {same}")
        for name in ("action", "action_is_pad"):
            np.testing.assert_array_equal(found[name], expected[name])
    return {"checked": CHECKED, "levels_apart": differences}


def measure_rawpack(asked: argparse.Namespace) -> dict[str, Any]:
    from rawpack import transforms

    form, _, dtype = asked.variant.partition(" ")
    # As LeRobot gives them: float32 from 0 to 1, channels first.
    transform = [transforms.ConvertImageDtype("float32"), transforms.ToCHW()] if dtype else None
    batches = samples_of(asked, form).batches(asked.batch, shuffle=True, workers=asked.workers, transform=transform)
    return counted(({**batch, CAMERAS[0]: batch["image"]} for batch in for_ever(batches)), asked)


if __name__ == "__main__":
    main()
