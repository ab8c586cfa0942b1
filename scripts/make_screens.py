#!/usr/bin/env python3
"""Photograph the pages of `rawpack view` and `rawpack plan` for the documentation: docs/how-to/view-*.jpg and
plan-page.jpg.

    .venv/bin/python scripts/make_screens.py [grid] [training] [plan]

Needs playwright, and Chromium on the PATH. The pages of `view` show drawn scenes, with boxes around what was drawn; the
page of `plan` shows the photos of scripts/make_photos.py.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import ViewportSize, sync_playwright
from rooms import ROOT

import rawpack

PAGES = ROOT / "docs" / "how-to"
_STEPS = "RandomResizedCrop(224), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4)"
_SCREENS = {
    "grid": "side=208",
    "training": f"screen=training&t-steps={_STEPS}&t-batch=24&side=208",
}
_SIZE = ViewportSize(width=1200, height=760)
_PLAN = "plan --quiet --size 256 --quality 75 --quality 90 --compression none --budget 2min --html plan.html photos"
"""What is tried: raw pixels and two qualities of JPEG."""
CLASSES = ("boat", "house", "sun", "tree")
_SIDE, _SCENES = 320, 120


class Scenes:
    """Drawn landscapes of 320 x 320 pixels with boats or houses, trees and a sun, each in its box. A sample has the
    class of its boats, else of its houses, else of its trees."""

    classes = CLASSES

    def __len__(self) -> int:
        return _SCENES

    def __getitem__(self, i: int) -> dict[str, Any]:
        image, boxes = scene(np.random.default_rng([7, i]))
        kinds = set(boxes[:, 4].astype(int).tolist())
        return {"image": image, "boxes": boxes, "label": min(kinds - {2}, default=2)}


def scene(random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """A landscape, RGB (320, 320, 3), and its boxes (n, 5): left, top, right, bottom, class."""
    horizon = int(random.integers(140, 200))
    sky, ground = _colors(random, 190, 250, 1.1), _colors(random, 90, 170, 0.7)
    lake = random.random() < 0.5
    if lake:
        ground = np.array([50, 110, 160]) + random.integers(-20, 20, 3)
    rows = np.arange(_SIDE)[:, None, None] / _SIDE
    image = np.where(rows * _SIDE < horizon, sky * (0.75 + 0.5 * rows), ground * (1.25 - 0.5 * rows))
    canvas = np.ascontiguousarray(np.broadcast_to(image, (_SIDE, _SIDE, 3)).clip(0, 255).astype(np.uint8))
    boxes = list[tuple[float, float, float, float, int]]()
    x, y, radius = int(random.integers(40, 280)), int(random.integers(30, horizon - 60)), int(random.integers(16, 30))
    cv2.circle(canvas, (x, y), radius, (255, 220, 90), -1, cv2.LINE_AA)
    boxes.append((x - radius, y - radius, x + radius, y + radius, 2))
    hills = [[0, horizon], *([k, horizon - int(random.integers(5, 40))] for k in range(20, 320, 50)), [320, horizon]]
    if not lake:
        _fill(canvas, hills, ground * 0.85)
    left = int(random.integers(10, 50))
    while left < 260:
        size = int(random.integers(45, 85))
        foot = int(random.integers(horizon + 30, 300))
        if lake:
            boxes.append(_boat(canvas, left, foot, size, random))
        elif random.random() < 0.45:
            boxes.append(_house(canvas, left, foot, size, random))
        else:
            boxes.append(_tree(canvas, left, foot, size, random))
        left += size + int(random.integers(12, 50))
    noise = random.normal(0, 3, canvas.shape)
    return (canvas + noise).clip(0, 255).astype(np.uint8), np.array(boxes, np.float32)


def _colors(random: np.random.Generator, low: int, high: int, blue: float) -> NDArray[np.float64]:
    color = random.integers(low, high, 3).astype(np.float64)
    return np.array([color[0] * 0.8, color[1], min(255.0, color[2] * blue)])


def _fill(canvas: NDArray[np.uint8], points: list[list[int]], color: Any) -> None:
    cv2.fillPoly(canvas, [np.array(points, np.int32)], tuple(float(value) for value in color), cv2.LINE_AA)


def _boat(
    canvas: NDArray[np.uint8], left: int, foot: int, size: int, random: np.random.Generator
) -> tuple[float, float, float, float, int]:
    deck, mast = foot - size // 4, left + size // 2
    _fill(
        canvas,
        [[left, deck], [left + size, deck], [left + size * 4 // 5, foot], [left + size // 5, foot]],
        (120, 60, 40),
    )
    _fill(canvas, [[mast, deck - 4], [mast, foot - size], [left + size, deck - 4]], (245, 245, 240))
    _fill(
        canvas,
        [[mast - 3, deck - 4], [mast - 3, foot - size * 4 // 5], [left + 4, deck - 4]],
        random.integers(120, 256, 3),
    )
    return left, foot - size, left + size, foot, 0


def _house(
    canvas: NDArray[np.uint8], left: int, foot: int, size: int, random: np.random.Generator
) -> tuple[float, float, float, float, int]:
    eaves = foot - size * 3 // 5
    wall = random.integers(170, 250, 3)
    _fill(canvas, [[left + 4, eaves], [left + size - 4, eaves], [left + size - 4, foot], [left + 4, foot]], wall)
    _fill(canvas, [[left, eaves], [left + size, eaves], [left + size // 2, foot - size]], (165, 60, 45))
    door = left + size // 2
    _fill(
        canvas,
        [[door, foot - size // 4], [door + size // 6, foot - size // 4], [door + size // 6, foot], [door, foot]],
        (80, 50, 40),
    )
    window = left + size // 5
    _fill(
        canvas,
        [
            [window, eaves + 6],
            [window + size // 6, eaves + 6],
            [window + size // 6, eaves + 6 + size // 6],
            [window, eaves + 6 + size // 6],
        ],
        (90, 130, 170),
    )
    return left, foot - size, left + size, foot, 1


def _tree(
    canvas: NDArray[np.uint8], left: int, foot: int, size: int, random: np.random.Generator
) -> tuple[float, float, float, float, int]:
    width = size * 3 // 5
    middle = left + width // 2
    _fill(
        canvas,
        [[middle - 4, foot - size // 3], [middle + 4, foot - size // 3], [middle + 4, foot], [middle - 4, foot]],
        (95, 65, 40),
    )
    green = (30 + int(random.integers(0, 40)), 95 + int(random.integers(0, 60)), 45)
    for k in range(3):
        top = foot - size + k * size // 5
        inset = (2 - k) * width // 8
        _fill(
            canvas,
            [[left + inset, top + size * 2 // 5], [left + width - inset, top + size * 2 // 5], [middle, top]],
            green,
        )
    return left, foot - size, left + width, foot, 3


def main() -> None:
    chosen = sys.argv[1:] or [*_SCREENS, "plan"]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary), sync_playwright() as started:
        rawpack.pack(Scenes(), "scenes", fields={"boxes": "xyxy"}, keys=[f"scene-{k:03}.png" for k in range(_SCENES)])
        page = rawpack.view("scenes")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport=_SIZE)
        tab.goto(page.url)
        for name, state in _SCREENS.items():
            if name not in chosen:
                continue
            tab.evaluate("state => { location.hash = state }", state)
            tab.wait_for_selector("#batch .tile img" if name == "training" else ".tile img")
            tab.wait_for_function("() => [...document.images].slice(0, 12).every(image => image.complete)")
            tab.screenshot(path=PAGES / f"view-{name}.jpg", type="jpeg", quality=72)
        if "plan" in chosen:
            subprocess.run([sys.executable, ROOT / "scripts/make_photos.py", "photos"], check=True)
            subprocess.run([sys.executable, "-m", "rawpack", *_PLAN.split()], check=True)
            tab.goto(Path("plan.html").absolute().as_uri())
            tab.screenshot(path=PAGES / "plan-page.jpg", type="jpeg", quality=72)
        browser.close()
        page.close()


if __name__ == "__main__":
    main()
