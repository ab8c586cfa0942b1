"""The rooms keep their order: what is written about the architecture is what the imports are."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from kept import of_each
from mutate import mutations
from rooms import FOLDERS, ROOMS, ROOT, imports, imports_of, level_of, modules, nodes_of, parsed, room_of, rooms_in
from tests_for import nearest

KNOWN: dict[tuple[str, str], str] = {
    ("rawpack_packer.tune.shown", "rawpack_packer.report"): "a result shows its own page in a notebook",
}
"""Imports that climb, and why they may: (module, what it imports) -> the reason."""

DOORS = {("rawpack", "rawpack_packer.api"), ("rawpack.__main__", "rawpack_packer.cli")}
"""The only imports of the packer by the reader's package: `rawpack.pack` and the like, when they are first asked for;
and the command."""

SAME_NAME: dict[str, str] = {}
"""Class names that stand twice, and why they may."""


@cache
def climbing() -> set[tuple[str, str]]:
    """Imports of a room by one that is listed below it."""
    return {
        (one.source, one.target)
        for one in imports()
        if one.source.split(".")[0] == one.target.split(".")[0]
        and room_of(one.source) != room_of(one.target)
        and level_of(one.source) > level_of(one.target)
    }


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_has_its_place(package: str) -> None:
    """Whoever adds a room says where on the data's way it is: in ROOMS of scripts/rooms.py."""
    assert set(rooms_in(package)) - set(ROOMS[package]) == set(), "add it to ROOMS in scripts/rooms.py"


def test_no_import_climbs() -> None:
    """A room is understood by reading it and those below it: it imports no other, not even for types."""
    assert climbing() - set(KNOWN) == set()


def test_no_exception_outlives_its_reason() -> None:
    """An exception that is no longer needed is deleted."""
    assert set(KNOWN) - climbing() == set(), "delete it from KNOWN"


def test_the_reader_does_not_know_the_packer() -> None:
    """Imports run from the packer to the reader, wherever they are in a module: but for one, which is lazy."""
    found = {(one.source, one.target) for one in imports() if not one.source.startswith("rawpack_packer")}
    assert {(source, target) for source, target in found if "rawpack_packer" in target} == DOORS


def test_the_command_line_has_one_door() -> None:
    """Its modules import `api` and what rooms offer in their `__init__`, nothing from deeper inside."""
    deep = {
        (one.source, one.target)
        for one in imports()
        if one.source.startswith("rawpack_packer.cli") and one.target.startswith("rawpack_packer.")
        if one.target.count(".") > 1 and not one.target.startswith("rawpack_packer.cli.")
    }
    assert deep == set()


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    """At the top, in a function, under TYPE_CHECKING, in any statement, relative, of a name and of a module."""
    source = tmp_path / "fill.py"
    source.write_text(
        "from typing import TYPE_CHECKING\nimport rawpack.errors\nfrom rawpack.order import shuffled\n"
        "if TYPE_CHECKING:\n    from rawpack.reader import Reader\n"
        "def f():\n    from .slots import Slot\n    try:\n        with x:\n            from ..disk import npy\n"
        "    except E:\n        import rawpack.words\n    finally:\n        import rawpack.checks\n"
        "match x:\n    case 1:\n        import rawpack.native\n"
    )
    found = {(one.target, one.for_types) for one in imports_of({"rawpack.workers.fill": source}, modules())}
    assert found == {
        ("rawpack.errors", False),
        ("rawpack.order.shuffled", False),
        ("rawpack.reader", True),
        ("rawpack.workers.slots", False),
        ("rawpack.disk.npy", False),
        *((f"rawpack.{name}", False) for name in ("words", "checks", "native")),
    }


@cache
def classes() -> dict[str, list[str]]:
    """The name of each class without leading underscores -> where it is defined."""
    found = defaultdict(list)
    made = of_each(classes_in, modules().values())
    for name, path in modules().items():
        for line, made_here in made[path]:
            found[made_here.lstrip("_")].append(f"{name}:{line}")
    return found


def classes_in(source: str) -> list[tuple[int, str]]:
    """Line and name of each class."""
    return [(node.lineno, node.name) for node in nodes_of(parsed(source)) if isinstance(node, ast.ClassDef)]


def test_what_is_found_in_a_file_is_kept_until_it_changes(tmp_path: Path) -> None:
    """The same text is not looked at again, in whatever file; another one is, and only that."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    looked = []

    def length(source: str) -> int:
        looked.append(source)
        return len(source)

    for texts, lengths in (("ab", [1, 1]), ("ab", [1, 1]), (["a", "cc"], [1, 2]), (["cc", "ab"], [2, 2])):
        first.write_text(texts[0])
        second.write_text(texts[1])
        assert [*of_each(length, [first, second], tmp_path / "kept").values()] == lengths
    assert looked == ["a", "b", "cc", "ab"]


def test_no_class_name_stands_twice() -> None:
    """A name in a message or a traceback leads to one class."""
    twice = {name: places for name, places in classes().items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SAME_NAME} == {}
    assert set(SAME_NAME) - set(twice) == set(), "delete it from SAME_NAME"


def test_both_packages_are_looked_at() -> None:
    """The checks above see modules of every folder."""
    assert {name.split(".")[0] for name in modules()} == set(FOLDERS)
    assert len(classes()) > 100


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_has_tests(package: str) -> None:
    """`scripts/test --for` finds the nearest tests of each room."""
    for room in rooms_in(package):
        folder = FOLDERS[package] / room
        assert nearest(folder if folder.is_dir() else folder.with_suffix(".py"))


@pytest.mark.parametrize(("module", "test"), [("sources.parquet.source", "parquet"), ("sources.video.scan", "video")])
def test_tests_of_a_folder_are_near_to_its_modules(module: str, test: str) -> None:
    assert f"tests/packer/test_{test}.py" in nearest(modules()[f"rawpack_packer.{module}"])


def test_each_path_adds_the_tests_that_are_near_to_it() -> None:
    """Also where another path has some."""
    paths = [modules()[f"rawpack_packer.{name}"] for name in ("sources.registry", "sources.parquet.source", "text")]
    assert set(nearest(*paths)) == {test for path in paths for test in nearest(path)}


def test_nothing_is_nearest_to_nothing(tmp_path: Path) -> None:
    """A path without a module is an error, and never all tests."""
    with pytest.raises(ValueError, match="no module of reader/ or packer/ is at"):
        nearest(tmp_path)


@pytest.mark.parametrize("name", mutations())
def test_every_mutation_applies(name: str) -> None:
    """What scripts/mutate.py breaks is in the code, in one place; without the fault and with it, it is Python; and the
    tests that should notice are there."""
    mutation = mutations()[name]
    compile(mutation.mutated(ROOT), mutation.file, "exec")
    for test in mutation.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test
