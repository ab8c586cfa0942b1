"""The page of `rawpack view` in Chromium, used as a person does: pixels against the reader's, and nothing is wider than
the window."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from folders import overwrite
from pictures import picture, save
from PIL import Image
from running import pack, run_here
from videos import encode, looked_through_here  # noqa: F401 - a fixture

import rawpack
from rawpack import Reader, look

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium on the PATH", allow_module_level=True)
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


class Tab:
    """A page in a browser. What its script complains of fails the test."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(url)

    def _hear(self, said: Any) -> None:
        # That something was refused is what some tests are about: it is on the page, too.
        if said.type == "error" and "with a status of 4" not in said.text:
            self.wrong.append(said.text)

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """`opened(stores, options)`: a tab that shows stores."""
    ends: list[Any] = []

    def open_stores(*stores: Path, state: str = "", **options: Any) -> Any:
        served = rawpack.view(stores)
        tab = Tab(browser, served.url + (f"#{state}" if state else ""), **options)
        ends.extend((tab, served))
        return tab.page

    yield open_stores
    for end in ends:
        end.close()


def shown(page: Any, selector: str) -> np.ndarray[Any, Any]:
    """The pixels of an image of the page, whole, as the browser decoded them."""
    page.wait_for_function(
        "s => { const i = document.querySelector(s); return i && i.complete && i.naturalWidth }", arg=selector
    )
    url = page.eval_on_selector(
        selector,
        """image => { const c = document.createElement("canvas"); c.width = image.naturalWidth;
        c.height = image.naturalHeight; c.getContext("2d").drawImage(image, 0, 0); return c.toDataURL() }""",
    )
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


def keys_on(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all(".tile", "tiles => tiles.map(tile => tile.dataset.key)")
    return found


def state_of(page: Any) -> dict[str, str]:
    return dict(parse_qsl(page.evaluate("location.hash.slice(1)")))


def enter(page: Any, selector: str, text: str) -> None:
    page.fill(selector, text)
    page.press(selector, "Enter")


def wait_for_total(page: Any, text: str) -> None:
    page.wait_for_function("t => (document.querySelector('#total') || {}).textContent === t", arg=text)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 small images in 4 classes."""
    folder = tmp_path_factory.mktemp("many")
    for k in range(400):
        save(folder / "in" / f"class-{k % 4}" / f"{k:03d}.png", picture(16, 16, k))
    return pack(folder / "in", folder / "store", "--size", 16)


def test_scroll_filter_sort_and_classes(opened: Any, many: Path) -> None:
    reader = Reader(many)
    keys, labels = reader.column("key"), reader.column("label")
    page = opened(many, viewport={"width": 1000, "height": 700})
    wait_for_total(page, "400 samples")
    page.wait_for_selector(".tile img")
    assert keys_on(page)[:5] == keys[:5]
    before = len(keys_on(page))
    assert before < 400
    while len(keys_on(page)) < 400:
        page.mouse.wheel(0, 5000)
        page.wait_for_timeout(50)
    assert keys_on(page) == keys
    enter(page, "input[name=where]", "label == 'class-2' and index > 100")
    wanted = [keys[k] for k in range(400) if labels[k] == 2 and k > 100]
    wait_for_total(page, f"{len(wanted)} samples of 400")
    assert keys_on(page) == wanted
    enter(page, "input[name=where]", "label ===")
    page.wait_for_selector(".error")
    assert "label ===" in page.inner_text(".error")
    page.fill("input[name=where]", "")
    page.click("aside button >> text=class-3")
    wait_for_total(page, "100 samples of 400")
    enter(page, "input[name=key]", "class-3/0")
    wait_for_total(page, "25 samples of 400")
    assert keys_on(page) == [key for key in keys if key.startswith("class-3/0")]
    page.go_back()
    address = page.evaluate("location.href")
    assert "token" not in address


def test_a_sample_its_pixels_and_the_arrow_keys(opened: Any, many: Path) -> None:
    """Arrows follow the order of the grid, which the address has."""
    reader = Reader(many)
    page = opened(many, state="where=index+%3E+50&sort=random&seed=3")
    page.wait_for_selector(".tile")
    first, second = (int(row) for row in page.eval_on_selector_all(".tile", "all => all.map(t => t.dataset.row)")[:2])
    page.click(".tile >> nth=0")
    np.testing.assert_array_equal(shown(page, ".stage img"), reader[first]["image"])
    page.keyboard.press("ArrowRight")
    page.wait_for_function("row => location.hash.includes(`row=${row}`)", arg=second)
    page.wait_for_function("row => document.querySelector('.stage img').src.includes(`row=${row}`)", arg=second)
    np.testing.assert_array_equal(shown(page, ".stage img"), reader[second]["image"])
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("key => document.querySelector('main').innerText.includes(key)", arg=reader[first]["key"])
    place = look(reader).where_is(first)["image"]
    assert f"{place.file.name}, {place.bytes} bytes at {place.offset:,}" in page.inner_text("main")
    page.select_option("main select", "4")
    page.wait_for_function("() => document.querySelector('.stage img').getBoundingClientRect().width === 64")
    page.keyboard.press("Escape")
    page.wait_for_selector(".tile")


def test_layers_and_several_images(opened: Any, tmp_path: Path) -> None:
    mask = np.zeros((80, 120), np.uint8)
    mask[10:40, 5:60] = 1
    scene = {"seg": mask, "boxes": np.array([[5, 10, 60, 40, 0]], np.float32)}
    scenes = [scene | {"image": picture(80, 120, i), "right": picture(80, 120, i + 9)} for i in range(2)]
    fields = {"seg": "mask", "right": "image", "boxes": "xyxy"}
    rawpack.pack(scenes, tmp_path / "store", fields=fields, size="keep", workers=0)
    page = opened(tmp_path / "store", state="screen=sample&row=1&zoom=2")
    page.wait_for_selector(".stage svg rect")
    assert page.locator("main figure").count() == 2
    image, box = (page.locator(one).first.bounding_box() for one in (".stage img", ".stage svg rect"))
    assert box["x"] - image["x"] == pytest.approx(10, abs=1.5)
    assert (box["width"], box["height"]) == pytest.approx((110, 60), abs=3)
    assert page.locator(".stage img.layer").count() == 1
    page.uncheck("text=seg")
    page.wait_for_function("() => document.querySelectorAll('.stage img.layer').length === 0")
    page.uncheck("text=boxes")
    page.wait_for_function("() => document.querySelectorAll('.stage svg rect').length === 0")
    np.testing.assert_array_equal(shown(page, "figure:nth-of-type(2) .stage img"), scenes[1]["right"])


def test_a_training_batch(opened: Any, many: Path) -> None:
    page = opened(many, state="screen=training&t-size=8y8")
    page.wait_for_selector(".error >> text=image size '8y8': must be a side in pixels (256) or HEIGHTxWIDTH (224x160)")
    enter(page, "[name=size]", "")
    page.wait_for_selector("#batch .tile img")
    for name, value in (("steps", "RandomHorizontalFlip(), RandomCrop(12)"), ("batch", "16"), ("seed", "4")):
        enter(page, f"[name={name}]", value)
    page.wait_for_function("() => document.querySelectorAll('#batch .tile').length === 16")
    page.click("text=Next batch")
    page.wait_for_function("() => document.querySelector('#total')?.textContent.startsWith('batch 1 of 25')")
    names: dict[str, Any] = {}
    exec(page.inner_text("#lines"), names)
    rows = page.eval_on_selector_all("#batch .tile", "tiles => tiles.map(tile => Number(tile.dataset.row))")
    assert rows == names["batch"]["index"].tolist()
    np.testing.assert_array_equal(shown(page, "#batch .tile:nth-child(5) img"), names["batch"]["image"][4])
    page.click("#batch .tile:nth-child(9)")
    page.wait_for_selector(".stage img")
    page.click("text=Back")
    page.wait_for_selector("#batch .tile:nth-child(9):focus")
    enter(page, "[name=number]", "700")
    page.wait_for_selector(".error >> text=the epoch has 25 batches")


@pytest.mark.usefixtures("looked_through_here")
def test_videos_and_clips(opened: Any, tmp_path: Path) -> None:
    for k in range(2):
        encode(tmp_path / "in" / f"{k}.mp4", "mpeg4", 12)
    store = pack(tmp_path / "in", tmp_path / "store", "--size", 32)
    reader = Reader(store)
    page = opened(store, state="screen=sample&row=2")
    page.wait_for_selector("#frame")
    assert page.get_attribute("#frame", "max") == "11"
    page.click("main h2, main table >> nth=0", position={"x": 1, "y": 1})
    page.keyboard.press(" ")
    page.wait_for_function("() => Number(document.querySelector('#frame').value) > 3")
    page.keyboard.press(" ")
    page.wait_for_function("() => document.querySelector('#play').textContent === 'Play'")
    row = int(page.input_value("#frame"))
    assert page.inner_text("#when") == f"frame {row + 1} of 12, {reader.column('pts_seconds')[row]:.3f} s"
    page.click("#screens >> text=Clips")
    enter(page, "[name=frames]", "14")
    page.wait_for_selector(".error >> text=short 'wrap' pads them")
    page.select_option("[name=short]", "wrap")
    wait_for_total(page, "2 clips")
    rows = page.locator(".clip").nth(1).locator("button").evaluate_all("all => all.map(one => Number(one.dataset.row))")
    assert rows == [12 + k % 12 for k in range(14)]


def test_two_stores_and_rejects(opened: Any, many: Path, tmp_path: Path) -> None:
    assert run_here("convert", "--quiet", "--format", "lmdb", "--quality", 60, many, tmp_path / "q60").code == 0
    page = opened(many, tmp_path / "q60", state="screen=compare&row=9")
    page.wait_for_selector("#total")
    raw, jpeg = (Reader(store)[9]["image"].astype(float) for store in (many, tmp_path / "q60"))
    assert f"PSNR {10 * np.log10(255**2 / np.mean((raw - jpeg) ** 2)):.2f} dB" in page.inner_text("#total")
    assert page.locator("main figure").count() == 3
    page.click("#stores >> text=q60")
    page.wait_for_function("() => document.querySelector('main figcaption')?.textContent.startsWith('q60')")
    assert state_of(page) == {"store": "1", "screen": "compare", "row": "9", "other": "0"}
    save(tmp_path / "in" / "good.png", picture(20, 20, 0))
    (tmp_path / "in" / "<b>bad.jpg").write_bytes(b"no image")
    run_here("pack", "--quiet", "--max-rejects", 5, tmp_path / "in", tmp_path / "some")
    page = opened(tmp_path / "some")
    page.click("#screens >> text=Rejects")
    wait_for_total(page, "1 reject")
    assert "<b>bad.jpg" in page.inner_text("main table")


def test_a_page_whose_server_ended_says_how_to_start_it(browser: Any, many: Path) -> None:
    served = rawpack.view(many)
    tab = Tab(browser, served.url)
    wait_for_total(tab.page, "400 samples")
    served.close()
    tab.page.evaluate("location.hash = 'sort=label&descending=1'")
    tab.page.wait_for_selector(".error")
    assert f"rawpack view {many} --at 'sort=label&descending=1'" in tab.page.inner_text(".error")
    tab.wrong.clear()  # that nobody answered
    tab.close()


def test_marks_are_downloaded_for_subset_and_relabel(opened: Any, many: Path, tmp_path: Path) -> None:
    page = opened(many)
    page.wait_for_selector(".tile")
    for n in (2, 105):
        page.focus(f".tile >> nth={n}")
        page.keyboard.press("m")
    keys = [keys_on(page)[n] for n in (2, 105)]
    with page.expect_download() as begun:
        page.click("text=Download keys")
    begun.value.save_as(tmp_path / "keys.txt")
    ran = run_here("subset", "--quiet", "--keys-from", tmp_path / "keys.txt", many, tmp_path / "marked")
    assert (ran.code, Reader(tmp_path / "marked").column("key")) == (0, sorted(keys)), ran.err
    page.fill("#marks-label", "class-0")
    with page.expect_download() as begun:
        page.click("text=Download CSV")
    begun.value.save_as(tmp_path / "marks.csv")
    shutil.copytree(many, tmp_path / "copy")
    ran = run_here("relabel", "--from", tmp_path / "marks.csv", tmp_path / "copy")
    assert "replaced label of 1 sample " in ran.out, ran
    assert Reader(tmp_path / "copy").column("label")[[2, 105]].tolist() == [0, 0]
    page.reload()
    page.wait_for_selector(".tile.marked")


def test_a_broken_sample_says_so(opened: Any, tmp_path: Path) -> None:
    """Its checksum is said not to match; that the store was removed is a warning."""
    rawpack.pack({"image": np.full((3, 128, 128, 3), 9, np.uint8)}, tmp_path / "raw", size="keep", workers=0)
    overwrite(look(Reader(tmp_path / "raw")).where_is(1)["image"], 9)
    page = opened(tmp_path / "raw", state="screen=sample&row=1")
    page.wait_for_selector(".error")
    assert page.inner_text(".error").startswith("This sample does not match its checksum: image")
    assert page.locator(".stage img").count() == 1
    shutil.rmtree(tmp_path / "raw")
    page.reload()
    page.wait_for_function("() => document.querySelector('#warning').textContent.includes('was removed')")


def test_every_screen_fits_a_phone(opened: Any, many: Path, tmp_path: Path) -> None:
    """Nothing is wider than 390 pixels."""
    save(tmp_path / "in" / ("a class with a very long name" * 5) / f"{'x' * 120}.png", picture(30, 400, 1))
    long = pack(tmp_path / "in", tmp_path / "store", "--size", "keep")
    page = opened(long, many, viewport={"width": 390, "height": 800})
    for state, sign in {
        "": ".tile img", "screen=sample&row=0": ".stage img", "screen=training&t-batch=1": ".error",
        "screen=compare&row=0": "text=has no sample with the key",
    }.items():  # fmt: skip
        page.evaluate("state => { location.hash = state }", state)
        page.wait_for_selector(sign)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, state


def test_the_keyboard_alone_and_names_for_screen_readers(opened: Any, many: Path) -> None:
    page = opened(many)
    page.wait_for_selector(".tile img")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, img")].filter(one => {
          const label = one.closest("label");
          return !(one.getAttribute("aria-label") || one.alt || one.textContent.trim() || (label && label.textContent));
        }).map(one => one.outerHTML)"""
    )
    assert nameless == []
    page.focus("input[name=side]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "tile"
    last = page.locator(".tile").count() - 1
    for key, least, most in (("ArrowRight", 1, 1), ("ArrowDown", 3, last), ("End", last, last), ("Home", 0, 0)):
        page.keyboard.press(key)
        assert least <= int(page.evaluate("document.activeElement.dataset.row")) <= most
    page.keyboard.press("Enter")
    page.wait_for_selector(".stage img")


def test_a_page_elsewhere_gets_nothing(browser: Any, many: Path, tmp_path: Path) -> None:
    """The browser has the cookie: still, neither fetch, nor an image, nor a frame of another origin shows anything."""
    served, other = rawpack.view(many), rawpack.view(many)
    tab = Tab(browser, served.url)
    elsewhere = tab.context.new_page()
    port = served.url.split(":")[2].split("/")[0]
    elsewhere.goto(other.url)
    found = elsewhere.evaluate(
        """async port => {
          const url = `http://127.0.0.1:${port}`;
          let read = "nothing";
          try { read = await (await fetch(`${url}/api/stores`, {credentials: "include"})).text(); } catch {}
          const image = await new Promise(done => {
            const one = new Image();
            one.onload = () => done("shown"); one.onerror = () => done("nothing"); one.src = `${url}/image?row=0`;
          });
          return [read, image];
        }""",
        port,
    )
    assert found == ["nothing", "nothing"]
    address = f"http://127.0.0.1:{port}"
    (tmp_path / "page.html").write_text(f'<iframe src="{address}/"></iframe><img src="{address}/image?row=0">')
    elsewhere.goto((tmp_path / "page.html").as_uri())
    elsewhere.wait_for_load_state()
    assert elsewhere.evaluate("document.querySelector('img').naturalWidth") == 0
    tab.wrong.clear()
    tab.close()
    served.close()
    other.close()
