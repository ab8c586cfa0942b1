"""The report pages as Chromium lays them out: nothing is wider than its window, no text covers another."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pictures import picture, save
from running import pack, run_here

import rawpack
from rawpack_packer.tune.measure import Rate, StoreMeter

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium on the PATH lays out the pages", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("trials_here")

PHONE, TABLET, DESKTOP = 360, 768, 1300
LONG = "a class with a very long name that no column of any page was ever made for " + "x" * 60
NAMES = ("猫 и собаки", "قطط", "Ünïcode ✓", "<b>bold</b> & $x^2$", LONG)

HARNESS = """<!doctype html><meta charset="utf-8"><body><pre id="found"></pre><script>
const pages = PAGES, found = {};
function visible(node) {
  const style = getComputedStyle(node);
  return style.visibility !== "hidden" && style.display !== "none";
}
function look(frame) {
  const view = frame.contentWindow, page = frame.contentDocument, wide = page.documentElement.clientWidth;
  const problems = [], words = [];
  for (const one of page.querySelectorAll("details")) one.open = true;
  if (page.documentElement.scrollWidth > wide) problems.push("the page is " + page.documentElement.scrollWidth);
  for (const one of page.body.querySelectorAll("*")) {
    const box = one.getBoundingClientRect();
    if (box.width && box.height && (box.right > wide + 1 || box.left < -1))
      problems.push("off the page: <" + one.tagName + "> " + one.textContent.trim().slice(0, 40));
    if (one.tagName === "IMG" && !one.complete) problems.push("no picture: " + one.alt);
  }
  const walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.data.trim() || !visible(node.parentElement)) continue;
    const range = page.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (/^--?[a-z][a-z-]*$/.test(node.data.trim()) && range.getClientRects().length > 1)
        problems.push("broken: " + node.data);
      // The upper and lower edges of a line have no ink.
      const spare = box.height * 0.15;
      if (box.width <= 1 || box.height <= 1) continue;
      const place = {l: box.left, r: box.right, t: box.top + spare, b: box.bottom - spare};
      words.push({node, text: node.data.trim(), ...place});
    }
  }
  words.sort((one, other) => one.t - other.t);
  for (let i = 0; i < words.length; i++)
    for (let k = i + 1; k < words.length && words[k].t < words[i].b; k++) {
      const one = words[i], other = words[k];
      if (one.node !== other.node && Math.min(one.r, other.r) - Math.max(one.l, other.l) > 1)
        problems.push("text over text: " + one.text.slice(0, 40) + " | " + other.text.slice(0, 40));
    }
  const ink = view.getComputedStyle(page.body).color, paper = view.getComputedStyle(page.body).backgroundColor;
  return {problems: [...new Set(problems)], words: words.length, ink, paper,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches};
}
(async () => {
  for (const [name, text, width] of pages) {
    const frame = document.createElement("iframe");
    frame.style.cssText = "border: 0; height: 900px; width: " + width + "px";
    const loaded = new Promise(done => frame.onload = done);
    frame.srcdoc = text;
    document.body.append(frame);
    await loaded;
    found[name + " at " + width] = look(frame);
    frame.remove();
  }
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"""


def chromium(folder: Path, *options: object) -> str:
    """Run Chromium without a window, a network or a profile; what it prints."""
    ran = subprocess.run(
        [
            CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", *map(str, options),
        ],
        capture_output=True, encoding="utf-8", timeout=180, check=True,
    )  # fmt: skip
    return ran.stdout


def laid_out(folder: Path, pages: list[tuple[str, str, int]], dark: bool) -> dict[str, Any]:
    """What the harness found in each page, given as name, text and width."""
    harness, scheme = folder / "harness.html", f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    harness.write_text(HARNESS.replace("PAGES", json.dumps(pages).replace("</", "<\\/")), "utf-8")
    out = chromium(folder, scheme, "--virtual-time-budget=60000", "--dump-dom", harness.as_uri())
    match = re.search(r'<pre id="found">(.*?)</pre>', out, re.DOTALL)
    assert match
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert len(found) == len(pages)
    return found


# ---------------------------------------------------------------------------------------------- pages of all shapes


def of_classes(folder: Path, classes: dict[str, int], side: int = 40) -> Path:
    """A folder of images in classes."""
    for k, (name, count) in enumerate(classes.items()):
        for i in range(count):
            save(folder / name / f"{i:02d}.png", picture(side + 3 * (i % 4), side, 100 * k + i))
    return folder


def unequal(folder: Path) -> Path:
    classes = {name: 2 * k + 1 for k, name in enumerate(NAMES)} | {f"class-{k}": 1 for k in range(44)}
    return pack(of_classes(folder / "in", classes), folder / "unequal", "--size", "keep", "--format", "lmdb")


def boxes_and_masks(folder: Path) -> Path:
    sample = {"image": picture(40, 40, 0), "mask": np.eye(40, dtype=np.uint8), "label": NAMES[1]}
    samples = [sample | {"boxes": np.array([[1, 2, 20, 30, 0]], np.float32)}] * 6
    rawpack.pack(samples, folder / "boxes", fields={"boxes": "xyxy", "mask": "mask"}, workers=0)
    return folder / "boxes"


def rejects(folder: Path) -> Path:
    root = of_classes(folder / "in", dict.fromkeys(NAMES, 2))
    whole = save(folder / "whole.jpg", picture(120, 200, 9)).read_bytes()
    for k in range(30):
        (root / NAMES[k % 5] / f"broken file with a long name {k} {'y' * 40}.jpg").write_bytes(whole[: 400 * k])
    return pack(root, folder / "rejects", "--size", "32", "--max-rejects", "40")


class Figures:
    """Speeds of several digits, in place of measured ones."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def warm(self, *_: object) -> Rate:
        rate = float(self._random.uniform(300, 150_000))
        return Rate(rate, first_batch_s=0.123, bytes_per_s=rate * 1e4, images_per_core_s=rate / 2)

    cold = warm


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> HTML: of stores of all shapes, of a plan with many candidates, and of a comparison of stores."""
    figures = Figures()
    with mock.patch.multiple(StoreMeter, warm=figures.warm, cold=figures.cold):
        return written(tmp_path_factory)


def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made: dict[str, str] = {}
    root = tmp_path_factory.mktemp("pages")
    page = root / "page.html"
    shapes: list[Callable[[Path], Path]] = [unequal, boxes_and_masks, rejects]
    stores = {}
    for shape in shapes:
        (root / shape.__name__).mkdir()
        stores[shape.__name__] = store = shape(root / shape.__name__)
        ran = run_here("inspect", "--verify-quick", "--html", page, store)
        assert ran.code == 0, ran
        made[shape.__name__] = page.read_text("utf-8")
    source = of_classes(root / NAMES[3] / "photos", {"a": 6, "b": 6}, 120)
    sizes = ("--size", "100", "--size", "64x80", "--quality", "30", "--quality", "90")
    ran = run_here(
        "plan", "--quiet", "--budget", "1s", *sizes, "--workers", "2", "--batch", "4", "--target", "900", "--disk",
        "3MB", "--html", page, source,
    )  # fmt: skip
    made["plan"] = page.read_text("utf-8")
    measured = ("--workers", "0", "--workers", "1", "--batch", "4", "--batch", "8", "--image-size", "24")
    ran = run_here(
        "bench", "--seconds", "0.01", "--rounds", "3", *measured, "--html", page,
        stores["unequal"], stores["rejects"],
    )  # fmt: skip
    assert ran.code == 0, ran
    made["bench"] = page.read_text("utf-8")
    return made


# ---------------------------------------------------------------------------------------------- what users rely on


@pytest.mark.parametrize(("dark", "widths"), [(False, (PHONE, DESKTOP)), (True, (TABLET,))])
def test_pages_fit_every_window(pages: dict[str, str], tmp_path: Path, dark: bool, widths: tuple[int, ...]) -> None:
    """On a phone, a tablet and a desktop: nothing leaves the window, no text covers another, colors follow the
    system."""
    found = laid_out(tmp_path, [(name, text, width) for name, text in pages.items() for width in widths], dark)
    assert not {name: one["problems"] for name, one in found.items() if one["problems"]}
    for one in found.values():
        assert one["words"] > 20
        assert one["dark"] == dark
        ink, paper = (sum(map(int, re.findall(r"\d+", one[name])[:3])) for name in ("ink", "paper"))
        assert (ink > 550 and paper < 150) if dark else (ink < 150 and paper > 550)
