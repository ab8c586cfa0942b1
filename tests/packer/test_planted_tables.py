"""A table that somebody else wrote into the destination: no file is read that the command does not name, none is
written elsewhere, and no more memory, disk or time is taken than its bytes account for."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from mutated import places_in
from pictures import picture, save
from reading import SOAK
from running import pack
from test_saved_tables import SMALL, opens, quiet, sources, stop

from rawpack_packer.destination import journal
from rawpack_packer.job import saved_tables
from rawpack_packer.job.saved_tables import SavedTables, TablesNote
from rawpack_packer.sources import open_source
from rawpack_packer.sources.table.remote_files import Spool
from rawpack_packer.sources.table.saved import Loading, Places
from rawpack_packer.testing.engines import check_files, settled_files

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
    """The first object of a class."""
    return next(node["of"] for node in nodes if isinstance(node, dict) and node.get("is") == name)


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
    *(("photos.tar", given("NamedFiles", paths={"tuple": [other(number, ".tar")]})) for number in range(3)),
    *(("x.npy", given("ScannedFile", path=other(number, ".npy"))) for number in range(3)),
    ("x.npy", given("Mapped", dtype="O")),
    ("x.npy", given("Mapped", shape={"tuple": [1 << 50, 4, 4, 3]})),
    ("list.csv", given("TablePart", images="photos")),
    *(("list.csv", field_called(name)) for name in ("../../evil", "")),
    ("list.csv", before({"is": "Popen", "of": {"args": "id"}})),
    ("list.csv", before({"function": ["os", "system"]})),
    ("list.csv", before({"array": ["|O", [1], 0]})),
    ("list.csv", before({"array": ["<i8", [1 << 60], 0]})),
    ("list.csv", before({"node": 99})),
    ("list.csv", before({"remote": [[["http://127.0.0.1/x", 1, "v"]], None, {"tuple": []}]})),
]


@pytest.mark.parametrize(("name", "change"), PLANTED)
def test_a_planted_table_is_refused(saved: dict[str, Saved], name: str, change: Callable[[list[Any]], Any]) -> None:
    """It names no file but those of the source, no class, function or URL, and no values of other types or lengths."""
    saved[name].refuses(change)


@pytest.mark.parametrize("path", ["./store/./1.jpg", "a/store/../../store/1.jpg", "Store//1.jpg"])
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


HOSTILE = [None, -1, 0, 1, 2, 16, 1 << 62, 2.5, "", "/etc/passwd", "../..", [], {}, {"path": [0, ".."]}, True]
_opened: list[str] | None = None


def _note_open(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(args[0], str | bytes):
        _opened.append(os.fsdecode(args[0]))


@pytest.mark.parametrize("name", ["photos.tar", "list.csv"])
def test_whatever_is_planted_opens_nothing_outside_of_the_source(
    sources: Path, saved: dict[str, Saved], name: str, request: pytest.FixtureRequest
) -> None:
    """Values anywhere in a description are replaced: either no table is made, or what is read of it is below."""
    global _opened
    draw, made, data = random.Random(5), 0, saved[name].data
    sys.addaudithook(_note_open)
    request.addfinalizer(lambda: globals().update(_opened=None))

    def change(nodes: list[Any]) -> None:
        numbers = [node["array"] for node in nodes if isinstance(node, dict) and "array" in node]
        if numbers and draw.random() < 0.5:  # other bytes of the file as numbers
            draw.choice(numbers)[2] = 8 * draw.randrange(len(data) // 8)
        else:
            inside, key = draw.choice(places_in(nodes))
            inside[key] = draw.choice(HOSTILE)

    for _ in range(300 if SOAK else 100):
        _opened = []
        try:
            table = saved[name].load(change)
            made += 1
            for i in range(len(table)):
                table.key(i)
                table[i]
        except Exception:  # of a library, too: the source is then scanned again, or the run ends
            pass
        outside = [one for one in _opened if not one.startswith((str(sources), "/proc/", sys.prefix, sys.base_prefix))]
        assert not outside, outside
    assert made >= 5


def test_urls_are_made_whole_for_what_the_command_names_alone(tmp_path: Path) -> None:
    """Its query goes to no other host or file, unless the one that is named names others."""

    def whole(named: str, url: str) -> str:
        return SavedTables(tmp_path, f"{named}?token=x", {}, Spool(tmp_path / "spool", 1))._whole_url(url)

    archive = "https://one/set/a.tar"
    assert whole(archive, archive) == f"{archive}?token=x"
    for url in (
        "https://two/set/a.tar",
        "https://one/other/a.tar",
        "https://one/set/../b.tar",
        "https://one/set/b.tar",
    ):
        with pytest.raises(KeyError):
            whole(archive, url)
    assert whole("https://one/set/index.json", "https://one/set/a.mds") == "https://one/set/a.mds?token=x"


def plant(store: Path, change: Callable[[dict[str, Any]], Any], data: Any = None) -> None:
    """Change the description of a saved table, and its columns, with all digests right."""
    path = store / ".rawpack" / "table" / "table.json"
    note = msgspec.json.decode(path.read_bytes())
    if data is not None:
        np.save(path.with_name("columns.npy"), data)
        note.update(columns=saved_tables.xxhash.xxh3_128_hexdigest(data))
    change(note)
    path.write_bytes(msgspec.json.encode(note))
    digest = saved_tables.xxhash.xxh3_128_hexdigest(path.read_bytes())
    for job in store.rglob("job"):
        noted = msgspec.msgpack.decode(job.read_bytes(), type=journal.JobNote)
        job.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(noted, table=digest)))


@pytest.mark.parametrize("what", ["nothing", "another root", "another table", "/etc/hostname", "photos/../../."])
def test_a_planted_table_is_not_used(sources: Path, tmp_path: Path, opens: list[str], what: str) -> None:
    """The source is scanned again, and the store is that of an undisturbed run; one that is right would be used."""
    pack(sources / "list.csv", tmp_path / "once", *SMALL)
    stop("pack", *SMALL, sources / "list.csv", tmp_path / "store")

    def change(note: dict[str, Any]) -> None:
        if what == "another root":
            of(note["nodes"], "Files").update(root={"path": [0, "../.."]})
        if what == "another table":
            note.update(tables={"": 0})

    data = np.load(tmp_path / "store" / ".rawpack" / "table" / "columns.npy")
    if "/" in what:
        at = data.tobytes().index(b"photos/a/0.jpg")
        data[at : at + len(what)] = np.frombuffer(what.encode(), np.uint8)
    plant(tmp_path / "store", change, data)
    opens.clear()
    pack(sources / "list.csv", tmp_path / "store", *SMALL)
    assert opens == ([] if what == "nothing" else [str(sources / "list.csv")])
    check_files(settled_files(tmp_path / "store"), settled_files(tmp_path / "once"))


def test_a_link_in_its_place_is_refused(sources: Path, tmp_path: Path) -> None:
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    note = tmp_path / "store" / ".rawpack" / "table" / "table.json"
    note.rename(tmp_path / "elsewhere")
    note.symlink_to(tmp_path / "elsewhere")
    ran = quiet("pack", *SMALL, sources / "photos", tmp_path / "store")
    assert (ran.code, str(note) in ran.err, "symbolic link" in ran.err) == (1, True, True), ran.err


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--splits", "train,val", "divided"), "../../evil"),
        (("--split-by", "fold=train:0,val:1", "list.csv"), "evil/../../.."),
        (("photos",), "../../evil"),
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


@pytest.mark.parametrize("header", [{"shape": (1 << 40,)}, {"descr": "|O"}, {"fortran_order": True, "shape": (2, 2)}])
def test_columns_have_the_length_of_their_file_and_fit_memory(
    sources: Path, tmp_path: Path, opens: list[str], monkeypatch: pytest.MonkeyPatch, header: dict[str, Any]
) -> None:
    """The source is scanned again, also where the file is sparse and as long as it says."""
    stop("pack", *SMALL, sources / "photos", tmp_path / "store")
    monkeypatch.setattr(saved_tables, "memory_limit_bytes", lambda: 1 << 20)
    with (tmp_path / "store" / ".rawpack" / "table" / "columns.npy").open("wb") as file:
        every = {"descr": "|u1", "fortran_order": False, "shape": (4,)} | header
        np.lib.format.write_array_header_1_0(file, every)
        file.truncate(file.tell() + every["shape"][0])
    opens.clear()
    assert (quiet("pack", *SMALL, sources / "photos", tmp_path / "store").code, bool(opens)) == (0, True)
