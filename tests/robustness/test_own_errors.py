"""A fault of our own code in a child process or thread: it is raised as what it is, with the child's traceback.

It never becomes a reject, the fault of a file, the death of a process, or advice.

The fault is put in from outside, into child processes alone: a name that a module uses is None there.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import h5py
import numpy as np
import pytest
from pictures import picture, save
from short_lived import ends_at_once
from troubled import At, troubled

import rawpack_packer
from rawpack import PackError, Reader, WorkerError, Workers
from rawpack.system.channel import pack_error, unpack_error
from rawpack.system.child import Child
from rawpack.system.template import Template
from rawpack_packer.errors import is_no_fault_of_data
from rawpack_packer.inspect.verify import ShardProbe
from rawpack_packer.sources import open_source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs child processes")
# Workers get the functions of this file by their code: what it imports takes them a second.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def bug_in_children(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`bug_in_children("module:name")`: from now on, `name` is None in that module of each child that starts, which may
    be forked. A template itself has no fault, as others may get it."""

    def put(where: str) -> None:
        start = Child.__init__

        def start_faulty(child: Child, main: Any, work: Any, *args: Any, **how: Any) -> None:
            if not how.get("single"):
                how.setdefault("package_of", main)
                main, work = faulty, (where, cloudpickle.dumps((main, work)))
            start(child, main, work, *args, **how)

        monkeypatch.setattr(Child, "__init__", start_faulty)

    return put


def faulty(channel: Any, heartbeat: Any, work: tuple[str, bytes], descriptors: list[int]) -> None:
    """Runs in a child: the rest of it runs without that name."""
    module, _, name = work[0].partition(":")
    getattr(importlib.import_module(module), name)
    setattr(sys.modules[module], name, None)
    main, rest = cloudpickle.loads(work[1])
    main(channel, heartbeat, rest, descriptors)


# ---------------------------------------------------------------------------------------------- what children do


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for k in range(80):
        save(folder / f"class {k % 2}" / f"{k:02d}.jpg", picture(24, 30, k))
    return folder


def pack(source: Path, store: Path, **options: object) -> None:
    rawpack_packer.pack(source, store, **{"size": 16, "shard_size": 1, "max_rejects": 1000, "workers": 2} | options)


def pack_by_processes(photos: Path, folder: Path) -> None:
    pack(photos, folder / "store")


def look_at_hdf5(photos: Path, folder: Path) -> None:
    with h5py.File(folder / "a.h5", "w") as file:
        file["images"] = np.zeros((3, 8, 8, 3), np.uint8)
    open_source(folder / "a.h5")


def ask_lmdb(photos: Path, folder: Path) -> None:
    pack(photos, folder / "store", workers=0, format="lmdb")
    probe = ShardProbe(Reader(folder / "store")._library.stores[0])
    try:
        probe.complaint(0, "image")
    finally:
        probe.close()


def read(photos: Path, folder: Path) -> None:
    pack(photos, folder / "store", workers=0)
    list(Reader(folder / "store").batches(8, workers=Workers(2, backend="process")))


KINDS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "packing": (pack_by_processes, "rawpack_packer.part:prepare_item"),
    "look at HDF5": (look_at_hdf5, "rawpack_packer.sources.hdf5.file:described"),
    "probe of LMDB": (ask_lmdb, "rawpack_packer.writers.lmdb:key_of"),
    "reading": (read, "rawpack.workers.worker:SlotMap"),
}
"""Kinds of work in children -> what has a child do it, and a name that its code uses."""


@pytest.mark.parametrize("kind", KINDS)
def test_is_raised_with_its_traceback(
    photos: Path, tmp_path: Path, bug_in_children: Callable[[str], None], kind: str
) -> None:
    """A TypeError of our code in a child of any kind is a TypeError here, and its cause shows where in the child."""
    work, where = KINDS[kind]
    bug_in_children(where)
    with pytest.raises(TypeError, match="'NoneType' object is not callable") as raised:
        work(photos, tmp_path)
    assert "Traceback" in str(raised.value.__cause__)
    assert where.partition(":")[2] in str(raised.value.__cause__)


def test_worker_threads(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a worker thread of the reader, outside of its samples, is raised by the iteration."""
    pack(photos, tmp_path / "store", workers=0)
    batches = Reader(tmp_path / "store").batches(8, workers=Workers(2, backend="thread"))
    monkeypatch.setattr("rawpack.workers.fill.do", None)
    with pytest.raises(TypeError, match="'NoneType' object is not callable") as raised:
        list(batches)
    assert "in serve" in str(raised.value.__cause__)


def complain() -> None:
    raise ValueError("no such day")


def test_a_source_of_somebody_else(photos: Path, tmp_path: Path) -> None:
    """What a source of the user's own raises in a worker ends the run with a PackError that has its traceback."""
    source = troubled(open_source(photos), At(3, complain))
    with pytest.raises(PackError, match=r"part 0 failed: ValueError\('no such day'\)(?s:.)*Traceback(?s:.)*complain"):
        pack(source, tmp_path / "store")


@pytest.mark.own_processes
def test_the_template() -> None:
    """A fault of the process that forks workers is not taken for the death of a worker."""

    def prepare() -> None:
        os.waitstatus_to_exitcode = None  # type: ignore[assignment]

    template = Template(prepare)
    child = Child(ends_at_once, None, launcher=template)
    assert child.channel.receive() is None
    with pytest.raises(TypeError, match="'NoneType' object is not callable") as raised:
        child.kill(10)
    assert "in _reap" in str(raised.value.__cause__)
    template.close()


@pytest.mark.parametrize("lock", [threading.Lock(), None])
def test_an_exception_that_does_not_travel(lock: object) -> None:
    """An exception that cannot be pickled, or not be loaded again, comes as a WorkerError with all that it said."""

    class LockedError(Exception):
        """Cannot be pickled, as it has a lock; nor loaded, if it had none. Made here, as libraries that other tests
        load teach pickle about every exception that there is."""

        def __init__(self, text: str, lock: object) -> None:
            super().__init__(text)
            self.lock = lock

    try:
        raise LockedError("the door is shut", lock)
    except LockedError as error:
        found = unpack_error(pack_error(error))
    assert isinstance(found, WorkerError)
    assert "LockedError: the door is shut" in str(found)
    assert "test_an_exception_that_does_not_travel" in str(found)


# ---------------------------------------------------------------------------------------------- damage or fault


def of_a_library() -> None:
    np.load(io.BytesIO(b"PK\x03\x04"))


def of_a_keyword() -> None:
    h5py.File("a.h5", "r", nothing=1)


def of_a_missing_library() -> None:
    import nothing_of_this_name  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(
    ("raising", "fault"), [(of_a_library, False), (of_a_keyword, True), (of_a_missing_library, True)]
)
def test_what_is_no_fault_of_the_data(raising: Callable[[], None], fault: bool) -> None:
    """A library that complains about bytes is believed; one that is missing, or called wrongly, is our fault."""
    with pytest.raises(Exception, match=r"\w") as raised:
        raising()
    assert is_no_fault_of_data(raised.value) == fault
