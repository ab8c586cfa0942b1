"""The site as Sphinx builds it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPHINX = sys.executable if find_spec("sphinx") and find_spec("furo") else str(ROOT / ".venv-site" / "bin" / "python")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),  # the first waits for the build
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(not Path(SPHINX).exists(), reason="no Sphinx: scripts/site makes an environment that has it"),
]


def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning, and with all links right; versions are listed, the newest first."""
    site = tmp_path / "site"
    (site / "0.0.9").mkdir(parents=True)
    (site / "0.0.9" / "objects.inv").touch()
    subprocess.run([SPHINX, ROOT / "scripts" / "publishing", "--version", "0.0.10", "--out", site], check=True)
    assert json.loads((site / "versions.json").read_text()) == ["0.0.10", "0.0.9"]
    assert 'url=0.0.10/"' in (site / "index.html").read_text()
    article = (site / "0.0.10" / "index.html").read_text().partition('id="all-pages"')[2].partition("</article>")[0]
    pages = ["train.html", "how-to/resume-training.html", "why.html", "explanation/slots.html"]
    assert sorted(pages, key=lambda page: article.index(f'"{page}"')) == pages
    assert 'id="rawpack.Reader.batches"' in (site / "0.0.10" / "api" / "reading.html").read_text()
    assert {"llms.txt", "api.md"} <= {file.name for file in (site / "0.0.10").iterdir()}
