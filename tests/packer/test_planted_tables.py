"""A table that somebody else wrote into the destination: no file is read that the command does not name, none is
written elsewhere, and no more memory, disk or time is taken than its bytes account for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pictures import picture, save
from test_saved_tables import SMALL, _first, opens, plant, quiet, sources, stop

from rawpack_packer.job import saved_tables
from rawpack_packer.job.saved_tables import SavedTables, TablesNote
from rawpack_packer.sources import open_source
from rawpack_packer.sources.table.remote_files import Spool
from rawpack_packer.sources.table.saved import Loading, Places

__all__ = ["opens", "sources"]


class Saved:
    """What is saved of a source."""

    def __init__(self, source: Path, store: Path, **options: Any) -> None:
        self.tables = SavedTables(store, source, options, Spool(store / "spool", 1))
        self.tables.tables = {"": open_source(source, **options)}
        self.tables.save()
        folder = store / ".rawpack" / "table"
        self.note = msgspec.json.decode((folder / "table.json").read_bytes(), type=TablesNote)
        self.data, self.places = np.load(folder / "columns.npy"), self.tables._places

    def load(self, change: Callable[[list[Any]], Any] = lambda nodes: None) -> Any:
        nodes = msgspec.json.decode(msgspec.json.encode(self.note.nodes))
        change(nodes)
        return Loading(nodes, self.data, self.places).table(self.note.tables[""])

    def refuses(self, change: Callable[[list[Any]], Any]) -> None:
        self.load()
        with pytest.raises((ValueError, KeyError, TypeError, IndexError, AttributeError)):
            self.load(change)


def of(nodes: list[Any], name: str) -> Any:
    return _first({"nodes": nodes}, name)


@pytest.fixture(scope="module")
def saved(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Saved]:
    """What is saved of each kind of file."""
    folder = tmp_path_factory.mktemp("saved")
    return {name: Saved(sources / name, folder / name) for name in ("list.csv", "photos.tar", "x.npy")}


def field_called(name: str) -> Callable[[list[Any]], Any]:
    """Fields become names of files."""

    def change(nodes: list[Any]) -> None:
        kinds, columns = of(nodes, "SourceInfo")["fields"]["map"], of(nodes, "TablePart")["columns"]["map"]
        kind = next(kind for kind in kinds if kind[0] == columns[0][0])
        kind[0] = columns[0][0] = name

    return change


def images_of(name: str) -> Callable[[list[Any]], Any]:
    """The column of images is something else."""

    def change(nodes: list[Any]) -> None:
        number = next(i for i, node in enumerate(nodes) if isinstance(node, dict) and node.get("is") == name)
        of(nodes, "TablePart")["images"] = {"node": number}
        nodes.append(nodes.pop())

    return change


def given(name: str, **values: Any) -> Callable[[list[Any]], Any]:
    """The first object of a class has other values."""
    return lambda nodes: of(nodes, name).update(values)


def before(node: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """Another node comes first."""
    return lambda nodes: nodes.insert(0, node)


def other(number: int, suffix: str) -> dict[str, Any]:
    return {"path": [number, f"other{suffix}"]}


PLANTED: list[tuple[str, Callable[[list[Any]], Any]]] = [
    ("list.csv", given("Files", root={"path": [0, "/etc"]})),
    ("list.csv", given("Files", root="/etc")),
    ("list.csv", given("Files", root={"path": [7, ""]})),
    *(("photos.tar", given("NamedFiles", paths={"tuple": [other(number, ".tar")]})) for number in range(3)),
    *(("x.npy", given("ScannedFile", path=other(number, ".npy"))) for number in range(3)),
    ("x.npy", given("Mapped", dtype="O")),
    ("x.npy", given("Mapped", dtype="<i8")),
    ("x.npy", given("Mapped", shape={"tuple": [1 << 50, 4, 4, 3]})),
    ("list.csv", given("TablePart", images="photos")),
    ("list.csv", images_of("SourceInfo")),
    ("list.csv", images_of("FieldKind")),
    *(("list.csv", field_called(name)) for name in ("../../evil", "a/b", "", "a\n")),
    ("list.csv", before({"is": "Popen", "of": {"args": "id"}})),
    ("list.csv", before({"is": "os.system", "of": {}})),
    ("list.csv", before({"function": ["os", "system"]})),
    ("list.csv", before({"function": ["builtins", "exec"]})),
    ("list.csv", before({"array": ["|O", [1], 0]})),
    ("list.csv", before({"array": ["<i8", [1 << 60], 0]})),
    ("list.csv", before({"array": ["<i8", [-1, -1], 0]})),
    ("list.csv", before({"node": 99})),
    ("list.csv", before({"remote": [[["http://127.0.0.1/x", 1, "v"]], None, {"tuple": []}]})),
]


@pytest.mark.parametrize(("name", "change"), PLANTED)
def test_a_planted_table_is_refused(saved: dict[str, Saved], name: str, change: Callable[[list[Any]], Any]) -> None:
    """It names no file but those of the source, no class, function or URL, and no values of other types or lengths."""
    saved[name].refuses(change)


# ---------------------------------------------------------------------------------------------- files that are read


def test_a_file_that_names_others_has_its_folder(sources: Path, tmp_path: Path) -> None:
    """So that what a listing and the like name is read, and nothing above."""
    saved = SavedTables(tmp_path, sources / "list.csv", {}, Spool(tmp_path / "spool", 1))
    assert (saved._places.folders, saved._places.files) == ([str(sources)], [str(sources / "list.csv")])
    saved = SavedTables(tmp_path, sources / "x.npy", {"label_column": "photos"}, Spool(tmp_path / "spool", 1))
    assert (saved._places.folders, saved._places.files) == ([], [str(sources / "x.npy")])


@pytest.mark.parametrize("path", ["store/1.jpg", "./store/./1.jpg", "a/store/../../store/1.jpg", "Store//1.jpg"])
def test_nothing_in_the_destination_is_a_file_of_the_source(tmp_path: Path, path: str) -> None:
    """Which may lie beside a listing, and where others may put links."""
    for k in range(9):
        save(tmp_path / f"{k}" / "0.jpg", picture(9, 9, k))
    (tmp_path / "list.csv").write_text("path,label,fold\n" + "".join(f"{k}/0.jpg,a,0\n" for k in range(9)))
    saved, text = Saved(tmp_path / "list.csv", tmp_path / "store"), path.encode()

    def change(nodes: list[Any]) -> None:
        at = saved.data.tobytes().index(b"0/0.jpg")
        saved.data = saved.data.copy()
        saved.data[at : at + len(text)] = np.frombuffer(text, np.uint8)
        ends = nodes[of(nodes, "Texts")["ends"]["node"]]["array"]
        size = nodes[of(nodes, "Texts")["data"]["node"]]["bytes"][1]
        new = np.array([0, len(text), *[size] * 8], "<i8").view(np.uint8)
        saved.data[ends[2] : ends[2] + len(new)] = new

    saved.refuses(change)


def test_the_url_of_another_file_is_not_made_whole(tmp_path: Path) -> None:
    """Unless the one that is named names others."""
    archive = SavedTables(tmp_path, "https://one/set/a.tar?token=x", {}, Spool(tmp_path / "spool", 1))
    with pytest.raises(KeyError):
        archive._whole_url("https://one/set/b.tar")
    index = SavedTables(tmp_path, "https://one/set/index.json?token=x", {}, Spool(tmp_path / "spool", 1))
    assert index._whole_url("https://one/set/shard.mds") == "https://one/set/shard.mds?token=x"


# ---------------------------------------------------------------------------------------------- files that are written


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--splits", "train,val", "divided"), "other"),
        (("--splits", "train,val", "divided"), "../../evil"),
        (("--split-by", "fold=train:0,val:1", "list.csv"), "evil/../../.."),
        (("--split-by", "fold=train:0,val:1", "list.csv"), ""),
        (("photos",), "../../evil"),
        (("photos",), "other"),
    ],
)
def test_names_of_splits_are_those_that_the_command_asks_for(
    sources: Path, tmp_path: Path, opens: list[str], options: tuple[str, ...], name: str
) -> None:
    """Or, where the source says them, names of folders; otherwise the source is scanned again."""
    *asked, source = options
    command = ("pack", *SMALL, *asked, sources / source, tmp_path / "deep" / "er" / "sets")

    def change(note: dict[str, Any]) -> None:
        for each in ("tables", "digests"):
            note[each] = {name: next(iter(note[each].values()))}

    stop(*command)
    before = sorted(path.name for path in tmp_path.rglob("*") if "sets" not in path.parts)
    plant(tmp_path / "deep" / "er" / "sets", change)
    opens.clear()
    ran = quiet(*command)
    assert (ran.code, bool(opens)) == (0, True), ran
    assert sorted(path.name for path in tmp_path.rglob("*") if "sets" not in path.parts) == before


# ---------------------------------------------------------------------------------------------- values of other types


def test_texts_are_utf8(sources: Path, tmp_path: Path) -> None:
    saved = Saved(sources / "list.csv", tmp_path / "store")

    def change(nodes: list[Any]) -> None:
        saved.data = np.frombuffer(saved.data.tobytes().replace(b"photos/a/0.jpg", b"photos/a/\xff.jpg"), np.uint8)

    saved.refuses(change)


# ---------------------------------------------------------------------------------------------- memory, disk and time


def _doubled(first: Any, count: int = 100) -> list[Any]:
    """Nodes of which each has the one before it twice."""
    return [first, *({"tuple": [{"node": k}, {"node": k}]} for k in range(count))]


BOMBS: dict[str, list[Any]] = {
    "a key that is hashed for ever": [*_doubled(1), {"map": [[{"node": 100}, 1]]}],
    "a key that is a tuple": [{"map": [[{"tuple": [1]}, 1]]}],
    "a tuple without an end": _doubled(1),
    "a number of a billion digits": [{"fraction": "1e1000000000"}],
    "bytes that are copied": [{"bytes": [0, 1 << 20]}] * 300,
    "bytes that are stored": [{"bytes": [0, 1 << 20]}, *[{"stored": {"node": 0}}] * 300],
    "an array that is checked": [
        {"array": ["<i8", [1 << 17], 0]}, *[{"is": "RowNumbers", "of": {"rows": {"node": 0}}}] * 300,
    ],
    "rows without a byte": [{"array": ["<i8", [1 << 60, 0], 0]}],
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_take_no_time_or_room(name: str) -> None:
    data = np.zeros(1 << 20, np.uint8)
    with pytest.raises((ValueError, TypeError)):
        Loading(BOMBS[name], data, Places())


def test_a_table_with_hundreds_of_columns_is_none_of_these() -> None:
    """Of one order of rows."""
    columns: list[Any] = [
        {"is": "Numbers", "of": {"values": {"node": 0}, "faults": {"map": []}}},
        {"is": "Repeated", "of": {"column": {"node": 1}, "at": {"node": 0}}},
    ]
    data = np.arange(1000, dtype="<i8").view(np.uint8)
    Loading([{"array": ["<i8", [1000], 0]}, columns[0], *[columns[1]] * 200], data, Places())


@pytest.mark.parametrize(
    "header", [{"shape": (1 << 50,)}, {"descr": "|O"}, {"shape": ()}, {"fortran_order": True, "shape": (2, 2)}]
)
def test_columns_have_the_length_of_their_file(
    sources: Path, tmp_path: Path, opens: list[str], header: dict[str, Any]
) -> None:
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    columns = tmp_path / "store" / ".rawpack" / "table" / "columns.npy"
    with columns.open("wb") as file:
        every = {"descr": "|u1", "fortran_order": False, "shape": (4,)} | header
        np.lib.format.write_array_header_1_0(file, every)
        file.write(b"1234")
    assert quiet("pack", *SMALL, sources / "photos", tmp_path / "store").code == 0


def test_no_more_is_read_than_memory_takes(
    sources: Path, tmp_path: Path, opens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    columns = tmp_path / "store" / ".rawpack" / "table" / "columns.npy"
    monkeypatch.setattr(saved_tables, "memory_limit_bytes", lambda: 1 << 20)
    with columns.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)})
        os.truncate(columns, file.tell() + (1 << 40))
    opens.clear()
    assert (quiet("pack", *SMALL, sources / "photos", tmp_path / "store").code, bool(opens)) == (0, True)
