"""The documentation for machines: all pages as plain Markdown next to the HTML, `llms.txt`, which lists them, and
`api.md`, the Python API as one page, with the signature and the docstring of every public name."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import metadata
from itertools import pairwise
from pathlib import Path
from types import MemberDescriptorType
from typing import Any

from rooms import parse

from publishing import api
from publishing.navigation import ROOT, names, sections
from publishing.notebooks import as_markdown
from publishing.staging import Sources

_PICTURE = re.compile(r"<picture>.*?</picture>\n*|!\[[^\]]*\]\([^)]*\)\n*", re.DOTALL)
_API = ROOT / "docs" / "reference" / "python.md"


def write_plain(folder: Path) -> None:
    """Write them into the folder of a version of the site."""
    sources = Sources(folder, names())
    for page, name in sources.named.items():
        _write(folder / f"{name}.md", _plain(sources, page, folder / f"{name}.md"))
    guide = _plain(sources, _API, folder / "api.md")
    _write(folder / "api.md", f"{guide}\n\n# Signatures and docstrings\n\n" + "\n".join(_docstrings()))
    _write(folder / "llms.txt", _list_of_pages(sources))


def _plain(sources: Sources, page: Path, target: Path) -> str:
    """A page without its pictures, with links as they are right in `target`."""
    text = page.read_text("utf-8")
    text = as_markdown(text) if page.suffix == ".ipynb" else text
    return sources.prepared(_PICTURE.sub("", text), page, target).strip()


def _list_of_pages(sources: Sources) -> str:
    """The form of https://llmstxt.org: a title, a summary, and links with a line each; what may be left out is last."""
    parts = [f"# rawpack\n\n> {metadata('rawpack')['Summary']}"]
    parts.append(
        "- [README](index.md): what it is, how fast, and how to begin\n"
        "- [The Python API on one page](api.md): the signature and docstring of every public name"
    )
    for section in sorted(sections(), key=lambda section: section.title == "Contribute"):
        title = "Optional" if section.title == "Contribute" else section.title
        lines = [f"- [{words}]({sources.named[page]}.md): {section.about(page)}" for page, words in section.pages]
        parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _docstrings() -> Iterator[str]:
    for page in api.PAGES.values():
        yield f"## {page.title}\n\n{page.about}\n"
        for module, name in page.described():
            thing = getattr(import_module(module), name)
            yield _entry("###", f"{module}.{name}", thing)
            if isinstance(thing, type):
                for member, value in _members(thing).items():
                    yield _entry("####", f"{name}.{member}", value)


def _entry(level: str, name: str, thing: Any) -> str:
    """A heading, the signature as code, and the docstring as it is written, which is plain text."""
    if isinstance(thing, _Attribute):
        return f"{level} {name}\n\n```python\n{name.rpartition('.')[2]}{thing.declared}\n```\n\n{thing.about}\n"
    shown = ""
    if callable(thing):
        with contextlib.suppress(ValueError):  # exceptions that have only Python's own
            shown = f"```python\n{name.rpartition('.')[2]}{_signature(thing)}\n```\n\n"
    return f"{level} {name}\n\n{shown}{inspect.getdoc(thing) or ''}\n"


class _Attribute:
    """A field of a class that has a docstring of its own in the source."""

    def __init__(self, declared: str, about: str) -> None:
        self.declared, self.about = declared, about


class _Annotation(str):
    """Shown without quotes."""

    __repr__ = str.__str__


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)

    def shown(annotation: Any) -> Any:
        return _Annotation(annotation) if isinstance(annotation, str) else annotation

    parameters = [
        parameter.replace(annotation=shown(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=parameters, return_annotation=shown(signature.return_annotation)))


def _members(kind: type) -> dict[str, Any]:
    """Public methods, properties and documented fields of a class, and of those of rawpack's that it derives from."""
    members: dict[str, Any] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("rawpack"):
            continue
        fields = dict(_fields(base))
        for name, value in {**fields, **vars(base)}.items():
            if name.startswith(("_", "test_")) or name in members:
                continue
            if name in fields:
                members[name] = fields[name]
            elif hasattr(value, "__get__") and not isinstance(value, MemberDescriptorType):  # slots have no docstring
                members[name] = getattr(value, "__func__", value)
    return members


def _fields(kind: type) -> Iterator[tuple[str, _Attribute]]:
    """Each field that a string follows in the source."""
    for field, after in pairwise(_classes(kind.__module__)[kind.__name__]):
        match field, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(about))):
                default = f" = {ast.unparse(field.value)}" if field.value else ""
                yield name, _Attribute(f": {ast.unparse(field.annotation)}{default}", inspect.cleandoc(about))
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(about))):
                yield name, _Attribute(f" = {ast.unparse(field.value)}", inspect.cleandoc(about))


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """The body of each class at the top of a module, which is parsed once: for each class, `inspect` would do so."""
    tree = parse(inspect.getsource(import_module(module)))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.rstrip() + "\n", "utf-8")
