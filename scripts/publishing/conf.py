"""Settings of Sphinx for the site: `python scripts/publishing` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rawpack
from publishing.docstrings import as_rst
from publishing.searching import ranking

_HERE = Path(__file__).resolve().parent

project, author = "rawpack", "The rawpack authors"
copyright = author
version = release = rawpack.__version__  # `--version` of the script overrides both

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 6  # as code hosts have them
myst_enable_extensions = ["attrs_inline"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = [str(_HERE / "static")]
templates_path = [str(_HERE / "templates")]
html_favicon = str(_HERE / "static" / "favicon.svg")
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
pygments_style, pygments_dark_style = "default", "github-dark"


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _as_rst)
    app.connect("autodoc-skip-member", _skip)
    app.connect("html-page-context", _add_ranking)


def _as_rst(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def _add_ranking(app: Any, page: str, *context: Any) -> None:
    if page == "search":
        app.add_js_file(None, body=f"const RANKING = {ranking()};")
        app.add_js_file("search.js")


def _skip(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Tests of a suite that is subclassed, and methods that only iterators call, are not on the pages."""
    return True if name.startswith("test_") else None
