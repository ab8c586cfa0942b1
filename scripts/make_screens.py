#!/usr/bin/env python3
"""Photograph the pages of `rawpack view` and `rawpack plan` for the documentation: docs/how-to/view-*.jpg and
plan-page.jpg.

    .venv/bin/python scripts/make_screens.py

Needs playwright, and Chromium on the PATH. The photos are those of scripts/make_photos.py; their boxes are made.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright
from rooms import ROOT

import rawpack

PAGES = ROOT / "docs" / "how-to"
_STEPS = "RandomResizedCrop(160), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4)"
_SCREENS = {
    "grid": "side=144",
    "training": f"screen=training&t-steps={_STEPS}&t-batch=24&side=144",
}
_SIZE = ViewportSize(width=1080, height=680)
_PLAN = "plan --quiet --size 256 --quality 75 --quality 90 --compression none --budget 2min --html plan.html photos"
"""What is tried: raw pixels and two qualities of JPEG."""


def make_store(folder: Path) -> Path:
    """A store of made photos, each with two boxes."""
    photos = folder / "photos"
    subprocess.run([sys.executable, ROOT / "scripts/make_photos.py", photos], check=True)
    paths = sorted(photos.rglob("*.jpg"))
    with (folder / "photos.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "boxes"])
        for k, path in enumerate(paths):
            boxes = [[20 + k % 40, 30, 120 + k % 60, 150, k % 2], [130, 90 + k % 30, 220, 200, 1]]
            rows.writerow([path.relative_to(folder), path.parent.name, boxes])
    rawpack.pack(str(folder / "photos.csv"), str(folder / "store"), fields={"boxes": "xyxy"})
    return Path("store")  # as the page shows it


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary), sync_playwright() as started:
        page = rawpack.view(make_store(Path.cwd()))
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport=_SIZE)
        tab.goto(page.url)
        for name, state in _SCREENS.items():
            tab.evaluate("state => { location.hash = state }", state)
            tab.wait_for_selector("#batch .tile img" if name == "training" else ".tile img")
            tab.wait_for_function("() => [...document.images].slice(0, 24).every(image => image.complete)")
            tab.screenshot(path=PAGES / f"view-{name}.jpg", type="jpeg", quality=72)
        subprocess.run([sys.executable, "-m", "rawpack", *_PLAN.split()], check=True)
        tab.goto(Path("plan.html").absolute().as_uri())
        tab.screenshot(path=PAGES / "plan-page.jpg", type="jpeg", quality=72)
        browser.close()
        page.close()


if __name__ == "__main__":
    main()
