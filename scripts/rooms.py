"""The rooms of both packages in the order of the data's way, and what each module imports of the others.

A room is what stands right below a package's root: a folder or a module. A room may import those that are listed after
it, never one before it: `tests/house/test_rooms.py` checks that, and `make_tree_docs.py` and `make_picture.py` show the
rooms in this order.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kept import of_each

ROOT = Path(__file__).resolve().parents[1]

ROOMS = {
    "rawpack": (
        "__main__", "targets", "inspection", "reader", "batches", "former", "integrations", "epoch", "choose",
        "workers", "ahead", "transforms", "samples", "store", "remote", "formats", "disk", "jpeg", "pixels", "native",
        "order", "checks", "system", "words", "errors",
    ),
    "rawpack_packer": (
        "testing", "cli", "api", "view", "report", "tune", "inspect", "exporting", "job", "engines", "part", "writers",
        "samples", "destination", "recipe", "sources", "images", "options", "counts", "provenance", "isolated",
        "progress", "errors", "text", "lazy",
    ),
}  # fmt: skip
"""Each package -> its rooms, from what users call down to what everything rests on. Those that do not exist are
skipped."""

FOLDERS = {"rawpack": ROOT / "reader" / "rawpack", "rawpack_packer": ROOT / "packer" / "rawpack_packer"}


@dataclass(frozen=True)
class Import:
    """One module imports another one of ours."""

    source: str
    target: str
    for_types: bool
    """Whether it stands under `if TYPE_CHECKING:`."""


@cache
def modules() -> dict[str, Path]:
    """Every module of both packages by its dotted name; a folder has that of its `__init__.py`."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def room_of(module: str) -> str:
    """The room that a module is in; that of a package itself is "", which is above all of its rooms."""
    return ([*module.split("."), ""])[1]


def level_of(module: str) -> int:
    """How far down its package's list the room of a module is: imports go to higher numbers.

    Raises ValueError where the room is not listed.
    """
    package, room = module.split(".")[0], room_of(module)
    return ROOMS[package].index(room) if room else -1


def rooms_in(package: str) -> list[str]:
    """The rooms that a package has, in their order; those that are not listed come last."""
    order = ROOMS[package]
    present = {room_of(name) for name in modules() if name.startswith(f"{package}.")}
    return sorted(present, key=lambda room: (order.index(room) if room in order else len(order), room))


@cache
def imports() -> list[Import]:
    """Every import of one of our modules by another, wherever in its source it stands."""
    return [*imports_of(modules(), modules())]


def imports_of(files: Mapping[str, Path], among: Container[str]) -> Iterator[Import]:
    """Every import of one of these modules by files, such as tests."""
    statements = of_each(_imports, files.values())
    for name, path in files.items():
        for origin, level, names, for_types in statements[path]:
            for target in _targets(origin, level, names, name, path.name == "__init__.py", among):
                yield Import(name, target, for_types)


def _imports(source: str) -> list[tuple[str | None, int, list[str], bool]]:
    """Each statement that imports: from what, None where whole modules are; how far above; names; whether for types."""
    return [
        (*((node.module or "", node.level) if isinstance(node, ast.ImportFrom) else (None, 0)),
         [alias.name for alias in node.names], for_types)
        for node, for_types in _imports_in(parsed(source).body, for_types=False)
    ]  # fmt: skip


def _imports_in(
    statements: Iterable[ast.AST], *, for_types: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Statements that import, and whether each is for types. Expressions, where most of a module is, have none."""
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(inner := getattr(node, part, None), list):
                yield from _imports_in(inner, for_types=for_types or _is_for_types(node))


@cache
def parsed(source: str) -> ast.Module:
    """The syntax tree of a module, which nobody changes."""
    return parse(source)


def parse(source: str) -> ast.Module:
    """The syntax tree of a module, without Python's collector: it would look at the nodes of all trees again and again,
    and take four fifths of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, in its order, in less than half the time: without operators and contexts, which have no
    parts."""
    nodes = [tree]
    for node in nodes:  # and those that are added meanwhile
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                nodes += [inner for inner in part if isinstance(inner, ast.AST)]
            elif isinstance(part, ast.AST) and part._fields:
                nodes.append(part)
    return nodes


def _is_for_types(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")) == "TYPE_CHECKING"


def _targets(
    origin: str | None, level: int, names: list[str], module: str, is_folder: bool, among: Container[str]
) -> Iterator[str]:
    if origin is None:
        yield from (name for name in names if name in among)
        return
    if level:
        above = module.split(".")[: None if is_folder and level == 1 else -(level - is_folder)]
        origin = ".".join([*above, *([origin] if origin else [])])
    if origin.split(".")[0] in FOLDERS:
        for name in names:
            yield f"{origin}.{name}" if f"{origin}.{name}" in among else origin
