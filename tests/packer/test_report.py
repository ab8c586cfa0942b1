"""The reports: self-contained, escaped, and with what they promise in them; and what happens without the extra."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import Forks
from pictures import encoded, picture, save
from PIL import Image
from running import Packed, pack, run_here

import rawpack

pytestmark = pytest.mark.usefixtures("trials_here")

QUICK_PLAN = ("--quiet", "--budget", "0.1s", "--workers", "1", "--batch", "4", "--size", "200")
QUICK_BENCH = ("--seconds", "0.01", "--rounds", "3", "--workers", "0", "--batch", "8", "--batch", "16", "--no-cold")
EVIL = "<script>alert(1)<" + '\u2215script> & "quoted" $x^2$'
"""A file's name that a page must show and not obey; U+2215 looks like the slash that a name cannot have."""
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """A page, taken apart; complains about tags that do not fit together."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read_page(path: Path) -> Page:
    """A report, held against what every report promises: nothing is fetched, nothing runs, ids are unique."""
    text = path.read_text("utf-8")
    page = Page(text)
    assert not page.all("script")
    assert not page.all("link")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/")), attributes
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text)) <= set(ids)
    return page


# ---------------------------------------------------------------------------------------------- plan


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight images of 200 x 200 pixels, which therefore are stored as they are."""
    root = tmp_path_factory.mktemp("report") / EVIL
    for i in range(8):
        save(root / f"class {i % 2}" / f"{EVIL} {i:02d}.png", picture(200, 200, i))
    return root


def test_the_page_has_what_the_table_has(source: Path, tmp_path: Path) -> None:
    """Candidates, recommendation, its command, and the one that made the page; a path with HTML in it to the letter; a
    crop of three images by each candidate. --png writes the plots alone."""
    ran = run_here(
        "plan", *QUICK_PLAN, "--format", "memmap", "--format", "lmdb", "--quality", "90",
        "--target", "1", "--html", tmp_path / "page.html", "--png", tmp_path / "plots.png", "--json", source,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran
    page, told = read_page(tmp_path / "page.html"), json.loads(ran.out)
    for one in told["candidates"]:
        assert page.text.count(one["name"]) >= 3
    assert f"Recommended: {told['recommended']}" in page.text
    assert told["command"] in page.text
    assert "rawpack plan --quiet" in page.text
    assert len(page.all("svg")) == 2  # for a wide page and for a phone
    assert page.text.count(f"{EVIL} ") >= 3
    images = page.all("img")
    assert len(images) == 3 * 2
    raw = (images[0]["src"] or "").partition("base64,")[2]
    crop = np.asarray(Image.open(io.BytesIO(base64.b64decode(raw))))
    assert any(is_part(crop, np.asarray(Image.open(path))) for path in source.rglob("*.png"))
    with Image.open(tmp_path / "plots.png") as image:
        assert (image.format, image.width > 800) == ("PNG", True)


def is_part(part: Any, whole: Any) -> bool:
    height, width = part.shape[:2]
    places = np.argwhere((whole == part[0, 0]).all(axis=2))
    return any(np.array_equal(whole[y : y + height, x : x + width], part) for y, x in places)


# ---------------------------------------------------------------------------------------------- inspect


def test_inspect_shows_samples_classes_sizes_and_rejects(tmp_path: Path) -> None:
    """A contact sheet for each class with its count, no bars for equal classes, histograms of what differs, and each
    reject with its key, also where that must be escaped, and reason, though the source is gone."""
    root = tmp_path / "spoiled"
    for i in range(30):
        save(root / ("many", "some", "few")[min(2, i % 6 // 2)] / f"{i:02d}.jpg", picture(60 + i, 90, i))
    whole = encoded(picture(120, 200, 99), "JPEG")
    broken = {"half": whole[: len(whole) // 2], "start": whole[:100], "none": b"text", EVIL: b"text"}
    for name, data in broken.items():
        (root / "many" / f"{name}.jpg").write_bytes(data)
    store = pack(root, tmp_path / "store", "--format", "lmdb", "--size", "keep", "--max-rejects", "10")
    shutil.rmtree(root)
    ran = run_here("inspect", "--verify", "--html", tmp_path / "page.html", store)
    assert (ran.code, ran.err.startswith("rawpack: wrote ")) == (0, True), ran
    page = read_page(tmp_path / "page.html")
    for name in ("many", "some", "few"):
        assert re.search(rf"{name} 10\b", page.text)
    samples = page.all("img")
    assert len(samples) == 3 * 8
    assert len({image["alt"] for image in samples}) == 3 * 8
    assert all((image["src"] or "").startswith("data:image/jpeg") for image in samples)
    assert re.search(r"3\s*classes, 10 each", page.text)
    assert "the store is sound" in page.text
    assert f"many/{EVIL}.jpg" in page.text
    for reason in ("truncated 2", "not_an_image 2"):
        assert reason in page.text


# ---------------------------------------------------------------------------------------------- in a notebook


def test_a_notebook_shows_the_pages(source: Path, packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell shows what `rawpack.plan` and `bench` return as the page of `--html`, in a frame that runs nothing, with
    keywords instead of options. Its text is that of `print`; without the extra, it is all that is shown."""
    formatters = pytest.importorskip("IPython.core.formatters", reason="ipykernel is not installed")
    alone: dict[str, Any] = {"size": [200], "format": ["memmap"], "compression": ["none"]}
    planned = rawpack.plan(source, budget="0.1s", workers=1, batch=4, **alone)
    measured = rawpack.bench(packed("memmap", "--size", 48), seconds=0.01, rounds=1, workers=0, batch=16, cold=False)
    for done, words in ((planned, "Recommended: memmap 200"), (measured, "Reading speed")):
        shown, _ = formatters.DisplayFormatter().format(done)
        (frame,) = Page(shown["text/html"]).all("iframe")
        assert frame["sandbox"] is None
        page = Page(str(frame["srcdoc"]))
        assert words in page.text
        assert not re.search(r"--(budget|tmp|html)", page.text)
        assert shown["text/plain"] == str(done)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert measured._repr_html_() is None


# ---------------------------------------------------------------------------------------------- without the extra


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_without_the_extra_its_name_is_told_before_any_work(
    option: str, packed: Packed, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the extra, and nothing written or measured."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    store = packed("memmap", "--size", 48)
    for command in (("plan", images), ("bench", store), *([("inspect", store)] if option == "--html" else [])):
        ran = run_here(command[0], option, tmp_path / "out", command[1])
        assert (ran.code, ran.out) == (1, "")
        assert "pip install 'rawpack[report]'" in ran.err
        assert len(ran.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_text_needs_no_extra(forks: Forks, packed: Packed) -> None:
    """Where neither jinja2 nor matplotlib can be imported, the table comes all the same."""
    before = "import sys; sys.modules['jinja2'] = sys.modules['matplotlib'] = None"
    ran = forks.command("bench", *QUICK_BENCH, packed("memmap", "--size", 48), before=before)
    assert ran.code == 0, ran.err
    assert "images/s" in ran.out
