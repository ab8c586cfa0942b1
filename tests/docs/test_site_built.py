"""The site as Sphinx builds it, and its search in Chromium: the page that answers is among the first two."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from publishing.searching import ALSO

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SPHINX = sys.executable if find_spec("sphinx") and find_spec("furo") else str(ROOT / ".venv-site" / "bin" / "python")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),  # the first waits for the build
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(not Path(SPHINX).exists(), reason="no Sphinx: scripts/site makes an environment that has it"),
]

QUERIES = {
    "resume training": {"how-to/resume-training"},
    "how long does packing take": {"how-to/estimate"},
    "multiple GPUs": {"how-to/distributed-ranks", "how-to/train-with-pytorch"},
    "sampler": {"how-to/balance-classes", "explanation/order"},
    "boxes": {"how-to/transform-whole-samples", "how-to/pack-detection-datasets"},
    "1.3 million images": {"how-to/estimate"},
    "albumentations": {"how-to/transform-whole-samples"},
    "DDP": {"how-to/distributed-ranks", "how-to/train-with-pytorch"},
    "windows": {"install"},
    "mixed precision": {"how-to/train-with-pytorch"},
}
"""What newcomers typed, and the pages that answer."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all versions, next to an older one."""
    out = tmp_path_factory.mktemp("site")
    (out / "0.0.9").mkdir()
    (out / "0.0.9" / "objects.inv").touch()
    subprocess.run([SPHINX, ROOT / "scripts" / "publishing", "--version", "0.0.10", "--out", out], check=True)
    return out


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *line: Any) -> None:
        pass


@pytest.fixture(scope="module")
def search(site: Path) -> Iterator[Any]:
    """`search(query)`: the links of the results, as a browser lists them."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site / "0.0.10")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))

        def links(query: str) -> list[str]:
            page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q={quote(query)}")
            page.wait_for_function("document.querySelector('.search-summary')?.innerText.length > 0")
            shown = page.eval_on_selector_all("ul.search > li > a", "links => links.map(a => a.getAttribute('href'))")
            return [str(link) for link in shown]

        yield links
        browser.close()
    server.shutdown()
    server.server_close()
    assert wrong == []


def first_two(links: list[str]) -> set[str]:
    return {link.partition(".html")[0] for link in links[:2]}


def test_the_site_builds(site: Path) -> None:
    """Without a warning, and with all links right; versions are listed, the newest first."""
    assert json.loads((site / "versions.json").read_text()) == ["0.0.10", "0.0.9"]
    assert 'url=0.0.10/"' in (site / "index.html").read_text()
    article = (site / "0.0.10" / "index.html").read_text().partition('id="all-pages"')[2].partition("</article>")[0]
    pages = ["train.html", "how-to/resume-training.html", "why.html", "explanation/slots.html"]
    assert sorted(pages, key=lambda page: article.index(f'"{page}"')) == pages
    assert 'id="rawpack.Reader.batches"' in (site / "0.0.10" / "api" / "reading.html").read_text()
    assert {"llms.txt", "api.md"} <= {file.name for file in (site / "0.0.10").iterdir()}


def test_what_newcomers_type_leads_to_its_page(search: Any) -> None:
    """Among the first two, also in capitals; so does each name in the table of names. Pages for contributors come
    last, even with a word that is theirs, and part of what was typed is better than nothing."""
    for query, pages in QUERIES.items():
        assert first_two(search(query)) & pages, query
        assert first_two(search(query.upper())) & pages, query
    missed = [(phrase, page) for page, names in ALSO.items() for phrase in names.split(", ")
              if page not in first_two(search(phrase))]  # fmt: skip
    assert missed == []
    found = [link.partition(".html")[0] for link in search("workers") if not link.startswith("api/")]
    assert found[0] == "explanation/workers"
    assert found.index("explanation/architecture") > found.index("how-to/see-where-time-goes")
    assert search("Reader.batches")[0].endswith(".Reader.batches")
    assert "how-to/resume-training" in first_two(search("resume training xyzzy"))
