"""The rooms keep their order: what is written about the architecture is what the imports are."""

from __future__ import annotations

import ast

import pytest
from mutate import mutations
from rooms import FOLDERS, ROOMS, ROOT, imports, level_of, modules, room_of, rooms_in
from tests_for import nearest

KNOWN: dict[tuple[str, str], str] = {
    ("rawpack_packer.tune.shown", "rawpack_packer.report"): "a result shows its own page in a notebook",
}
"""Imports that climb, and why they may: (module, what it imports) -> the reason."""

DOORS = {("rawpack", "rawpack_packer.api"), ("rawpack.__main__", "rawpack_packer.cli")}
"""The only imports of the packer by the reader's package: `rawpack.pack` and the like, when they are first asked for;
and the command."""


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_has_its_place(package: str) -> None:
    """Whoever adds a room says where on the data's way it is: in ROOMS of scripts/rooms.py."""
    assert set(rooms_in(package)) - set(ROOMS[package]) == set(), "add it to ROOMS in scripts/rooms.py"


def test_no_import_climbs() -> None:
    """A room is understood by reading it and those below it: it imports no other, not even for types. An exception that
    is no longer needed is deleted."""
    climbing = {
        (one.source, one.target)
        for one in imports()
        if one.source.split(".")[0] == one.target.split(".")[0]
        and room_of(one.source) != room_of(one.target)
        and level_of(one.source) > level_of(one.target)
    }
    assert climbing == set(KNOWN)


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


def test_each_room_and_each_path_has_tests_that_are_near_to_it() -> None:
    """`scripts/test --for` finds those of a folder of sources, of a module, and of each of several paths."""
    paths = [modules()[f"rawpack_packer.{name}"] for name in ("sources.registry", "sources.parquet.source", "text")]
    assert "tests/packer/test_parquet.py" in nearest(paths[1])
    assert set(nearest(*paths)) == {test for path in paths for test in nearest(path)}
    rooms = [FOLDERS[package] / room for package in ROOMS for room in rooms_in(package)]
    assert nearest(*(room if room.is_dir() else room.with_suffix(".py") for room in rooms))


def test_every_mutation_applies() -> None:
    """What scripts/mutate.py breaks is in the code, in one place; with the fault it is Python; the tests that should
    notice are there."""
    for name, mutation in mutations().items():
        compile(mutation.mutated(ROOT), mutation.file, "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
        assert [test for test in mutation.tests if not (ROOT / test.partition("::")[0]).is_file()] == [], name
