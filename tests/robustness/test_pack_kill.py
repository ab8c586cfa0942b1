"""A packing run that is killed, at any step, and the same command that goes on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from folders import settled, states_of
from forked import COMMAND, Fork, Forks
from pictures import linked
from running import FORMATS, Undisturbed, pack, run_here, undisturbed_runs

import rawpack_packer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc"),
    pytest.mark.own_processes,
]

SOAK = bool(os.environ.get("RAWPACK_SOAK"))
LAYOUTS = ("memmap", "hdf5", "hdf5-gzip", "lmdb")
PART = 8
"""Samples of a part, where the product has 64: it writes the same files, in the same order."""
KILLED = f"""
import signal, killed_child, rawpack_packer.recipe
signal.alarm(0)  # long where all steps are tried
rawpack_packer.recipe._MIN_PART = {PART}
killed_child.main()
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_killed_at_any_step_goes_on_to_the_very_same_bytes(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Before every file that is opened, renamed, removed or synced, from the first folder to the last one removed.
    Without --soak, before every sixteenth, in each layout others.

    Whatever of the killed run had not been synced may be torn: no part is believed without its record, and no
    finished part is done again.
    """
    monkeypatch.setattr("rawpack_packer.recipe._MIN_PART", PART)
    source = linked(tmp_path / "source", PART + 2, (20, 29), bad=(0, 3, 6))
    options = {"size": "16", "shard_size": "1", "format": layout.partition("-")[0]}
    if layout == "hdf5-gzip":
        options["compression"] = "gzip"
    undisturbed = settled(pack(source, tmp_path / "undisturbed", *FORMATS[layout], *SMALL))
    assert len([name for name in undisturbed if name.startswith("shard-")]) == 2
    (tmp_path / "killed").mkdir()
    every = 1 if SOAK else 16
    first = 0 if SOAK else 4 * LAYOUTS.index(layout)
    ran = forks.run(KILLED, source, tmp_path / "killed", json.dumps(options), first, every)
    assert (ran.code, ran.err) == (0, "")
    turns = [json.loads(line) for line in ran.out.splitlines()]
    words = [what for _, what, *_ in turns]
    assert len(turns) >= 60 // every
    if every == 1:
        for step in ("store.json.tmp", "columns-1.tmp/label.npy", "rejects.jsonl.tmp", "provenance.json.tmp", "/lock"):
            assert any(what.endswith(step) for what in words), step
    for at, what, killed, again, redone in turns:
        assert (killed, again, redone) == (-9, 0, []), what
        assert settled(tmp_path / "killed" / f"{at}") == undisturbed, what


SMALL = ("--size", "16", "--shard-size", "1", "--max-rejects", "10", "--workers", 0)


# ---------------------------------------------------------------------------------------------- what is left


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """503 files: 8 parts, which take a second."""
    return linked(tmp_path_factory.mktemp("kill") / "source", 500, (120, 129), bad=(0, 166, 333))


MEDIUM = ("--size", "64", "--shard-size", "1", "--max-rejects", "10")


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """`undisturbed(layout)`: the files of a run that nobody disturbed."""
    return undisturbed_runs(source, tmp_path_factory, *MEDIUM)


def below(run: Fork) -> list[psutil.Process]:
    """The workers of a run, and what forks them; none where it has ended."""
    try:
        return list(psutil.Process(run.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def until(what: Callable[[], Any], run: Fork) -> bool:
    """Wait for something that a run is about to do; False where it ends before."""
    while not what():
        if run.ends_within(0.01):
            return False
    return True


def holds(worker: psutil.Process, lock: Path) -> bool:
    """Whether a process has the lock's file open."""
    try:
        return str(lock) in {file.path for file in worker.open_files()}
    except psutil.Error:
        return False


def test_ctrl_c_while_any_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends packing as elsewhere. Nothing is closed twice: that would fail, or close the file of another thread."""
    close, left = os.close, 0

    def closing(descriptor: int) -> None:
        nonlocal left
        close(descriptor)
        if sys._getframe(1).f_globals["__name__"] != "shutil":  # which itself closes a folder twice
            left -= 1
            if not left:
                raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", closing)
    for at in count(1):
        left = at
        try:
            rawpack_packer.pack(np.zeros((2, 8, 8, 3), np.uint8), tmp_path / f"{at}", workers=0, size="keep")
        except KeyboardInterrupt:
            continue
        break
    assert at > 50


def test_no_run_begins_beside_the_workers_of_a_killed_one(
    forks: Forks, source: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that outlive their run may still write: as long as one has its lock, the next run does not begin."""
    store = tmp_path / "store"
    lock = store / ".rawpack" / "workers.lock"
    with forks.started(COMMAND, "pack", "--workers", 2, *MEDIUM, source, store) as run:
        # The workers hold the lock from their start to their end.
        assert until(lambda: any(holds(one, lock) for one in below(run)), run)
        workers = below(run)
        for process in (run, *workers):
            process.kill()
    psutil.wait_procs(workers)
    before, args = states_of(store), ["--workers", 0, *MEDIUM, source, store]
    with lock.open() as held, monkeypatch.context() as hurry:
        fcntl.flock(held, fcntl.LOCK_EX)
        hurry.setattr("rawpack_packer.destination.lock._WORKERS_END_S", 0.1)
        ran = run_here("pack", *args)
        assert ran.code == 2
        assert "another run is packing" in ran.err
        assert states_of(store) == before
    assert run_here("pack", *args).code == 0
    assert settled(store) == undisturbed("memmap")


@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip"])
def test_half_written_leftovers_are_not_believed(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards without a record, records cut or changed, shards of another size: packed again."""
    monkeypatch.setattr("rawpack_packer.recipe._MIN_PART", PART)
    source = linked(tmp_path / "source", 4 * PART - 3, (20, 29), bad=(0, 8, 16))
    undisturbed = settled(pack(source, tmp_path / "undisturbed", *FORMATS[layout], *SMALL))
    store = tmp_path / "store"
    with mock.patch("rawpack_packer.job.job.commit_store", side_effect=OSError(5, "Input/output error")):
        assert run_here("pack", *FORMATS[layout], *SMALL, source, store).code == 1
    records = sorted((store / ".rawpack").glob("part-*.done"))
    shards = sorted(store.glob("shard-*"))
    assert len(records) == len(shards) == 4
    kept = states_of(store)[shards[3].name]
    records[0].unlink()
    shards[0].write_bytes(shards[0].read_bytes()[:100])
    records[1].write_bytes(records[1].read_bytes()[:-5])
    os.truncate(shards[2], shards[2].stat().st_size // 2)
    (store / ".rawpack" / f"{shards[0].name}.tmp").write_bytes(b"half")
    (store / ".rawpack" / "columns-1.tmp").mkdir()
    (store / ".rawpack" / "columns-1.tmp" / "label.npy").write_bytes(b"half")
    (store / "columns-1").mkdir()
    (store / "columns-1" / "strange.npy").write_bytes(b"half")
    assert run_here("pack", *FORMATS[layout], *SMALL, source, store).code == 0
    assert settled(store) == undisturbed
    assert states_of(store)[shards[3].name] == kept


def test_a_restart_that_was_killed_leaves_nothing_of_the_old_store(forks: Forks, tmp_path: Path) -> None:
    """Old shards without a job beside them go away with the next run, whatever their format."""
    source = linked(tmp_path / "source", 70, (20, 29), bad=(0, 23, 46))
    undisturbed = settled(pack(source, tmp_path / "undisturbed", *FORMATS["memmap"], *SMALL))
    store = pack(source, tmp_path / "store", *FORMATS["hdf5"], *SMALL)
    clearing = (
        "import os, sys, pathlib, rawpack_packer.cli as cli\n"
        "gone, unlink = [], pathlib.Path.unlink\n"
        "def one_then_killed(path, *args, **kwargs):\n"
        "    gone.append(path)\n"
        "    if len(gone) == 3: os.kill(os.getpid(), 9)\n"
        "    unlink(path, *args, **kwargs)\n"
        "pathlib.Path.unlink = one_then_killed\n"
        "cli.main()\n"
    )
    killed = forks.run(clearing, "pack", *FORMATS["memmap"], *SMALL, "--restart", source, store)
    assert killed.code == -signal.SIGKILL
    assert not (store / "store.json").exists()
    assert list(store.glob("shard-*.h5")), "nothing of the old store is left to be removed"
    assert run_here("pack", *FORMATS["memmap"], *SMALL, source, store).code == 0
    assert settled(store) == undisturbed
