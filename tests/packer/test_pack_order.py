"""What is on the disk before what: the order of write, fsync and rename, from a trace of the system calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from forked import Forks, forks
from pictures import picture, save
from running import FORMATS, environment

from rawpack_packer import pack_splits

CALLS = (
    "open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate",
    "copy_file_range", "sendfile", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "rmdir", "mkdir", "mkdirat", "link", "linkat",
)  # fmt: skip
WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate", "copy_file_range", "sendfile"}


@dataclass
class Disk:
    """What would survive a power cut, call after call."""

    root: str
    unwritten: set[str] = field(default_factory=set)
    """Files with data, and folders with names, that no fsync has followed."""
    names: set[str] = field(default_factory=set)
    """Files and folders whose name was given by a rename."""
    renamed: list[str] = field(default_factory=list)

    def inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def write(self, path: str) -> None:
        if self.inside(path):
            assert not any(path == name or path.startswith(name + "/") for name in self.names), (
                f"{path} written in place"
            )
            self.unwritten.add(path)

    def sync(self, path: str) -> None:
        self.unwritten.discard(path)

    def rename(self, old: str, new: str) -> None:
        if not self.inside(new):
            return
        late = {path for path in self.unwritten if path == old or path.startswith(old + "/")}
        assert not late, f"{new} gets its name before the disk has {late}"
        self.names.add(new)
        self.renamed.append(new)
        self.unwritten.add(os.path.dirname(new))  # noqa: PTH120 - paths are text here


def calls(trace: str) -> Iterator[tuple[str, str, str]]:
    """(name, arguments, result) of each call that ended well, in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", rest):
            rest = begun.pop(pid) + rest[resumed.end() :]
        found = re.match(r"(\w+)\((.*)\)\s+= (\d+\S*)", rest, re.DOTALL)
        if found:
            yield found[1], found[2], found[3]


def paths(arguments: str) -> list[str]:
    """The paths that a call names, each behind the descriptor of the folder that it is relative to, if any."""
    found = re.findall(r'(?:\d+<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', arguments)
    return [os.path.join(folder, name.encode().decode("unicode_escape")) for folder, name in found]  # noqa: PTH118


def descriptor(text: str) -> str:
    """The path that strace writes behind a descriptor."""
    found = re.match(r"\d+<([^>]*)>", text)
    return found[1] if found else ""


def replay(trace: str, store: Path) -> Disk:
    """Follow a trace; the assertions are in `Disk`, and what is asked of the manifest is here."""
    disk = Disk(str(store))
    for name, arguments, result in calls(trace):
        if name in WRITES:
            # copy_file_range and sendfile write to another descriptor than the first; nobody here uses them.
            assert name not in ("copy_file_range", "sendfile") or not disk.inside(descriptor(arguments))
            disk.write(descriptor(arguments))
        elif name in ("open", "openat", "creat"):
            path = descriptor(result)
            if "O_CREAT" in arguments and disk.inside(path) and path not in disk.names:
                disk.unwritten.add(os.path.dirname(path))  # noqa: PTH120
        elif name in ("fsync", "fdatasync"):
            disk.sync(descriptor(arguments))
        elif name.startswith("rename"):
            old, new = paths(arguments)
            if new == f"{store}/store.json":
                manifest = json.loads(Path(old).read_text() if Path(old).exists() else Path(new).read_text())
                named = [file["name"] for shard in manifest["shards"] for file in shard["files"]]
                named += [part["folder"] for part in manifest["columns"]] + [manifest["rejects"]["file"]["name"]]
                missing = {f"{store}/{one}" for one in [*named, "provenance.json", "provenance.npy"]} - disk.names
                assert not missing, f"the manifest comes before {missing}"
                outside = {path for path in disk.unwritten if not path.startswith(f"{store}/.rawpack")}
                assert not outside, f"the manifest gets its name before the disk has {outside}"
            if "/part-" in new:
                number = new[-10:-5]
                shard = [path for path in disk.names if f"/shard-{number}." in path]
                assert len(shard) == 1, f"{new} before its shard"
                assert str(store) not in disk.unwritten, f"{new} before the name of its shard is on the disk"
            disk.rename(old, new)
        elif name in ("unlink", "unlinkat", "rmdir"):
            gone = paths(arguments)[-1]
            assert gone not in disk.names or "/.rawpack/" in gone, f"{gone} is removed"
            disk.unwritten.discard(gone)
    return disk


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Forks, Path]]:
    """Processes whose system calls are traced, where there is a tracer and it may trace; and the trace."""
    program = shutil.which("strace")
    if sys.platform != "linux" or program is None:
        pytest.skip("no strace here")
    words = [program, "-f", "--seccomp-bpf", "-o"]
    tried = subprocess.run([*words, os.devnull, "true"], capture_output=True, encoding="utf-8", check=False)
    if tried.returncode:
        pytest.skip(f"strace may not trace here: {tried.stderr.strip()}")
    log = tmp_path_factory.mktemp("traced") / "trace"
    with forks(
        environment(FORKS_SYNC="1"), *words, log, "-y", "-s", "4096", "-e", f"trace={','.join(CALLS)}"
    ) as traced:
        traced.run("")  # the trace is there once something has run
        yield traced, log


@pytest.mark.parametrize(
    ("layout", "workers"),
    [("memmap", 1), ("hdf5", 0), ("lmdb", 0)],
)
def test_nothing_gets_its_name_before_the_disk_has_it(
    traced: tuple[Forks, Path], tmp_path: Path, layout: str, workers: int
) -> None:
    """Of every file: all data synced, then the rename, then its folder synced; no file is written after its rename.

    The record of a part comes when its shard's name is on the disk; the manifest when all else is; and the run ends
    when the manifest's name is on the disk.
    """
    source, store, (forked, log) = tmp_path / "source", tmp_path / "new" / "store", traced
    first = save(source / "a" / "0.jpg", picture(20, 24, 0))
    for i in range(1, 10):
        os.link(first, source / "a" / f"{i}.jpg")
    (source / "a" / "bad.jpg").write_text("no image")
    before = log.stat().st_size
    ran = forked.command(
        "pack", "--quiet", "--workers", workers, "--max-rejects", 1, "--size", 16, "--shard-size", 1, *FORMATS[layout],
        source, store, before="import rawpack_packer.recipe; rawpack_packer.recipe._MIN_PART = 8",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    trace = log.read_bytes()[before:].decode("utf-8", "replace")
    disk = replay(trace, store)
    renamed = [path.removeprefix(f"{store}/") for path in disk.renamed]
    suffix = {"memmap": "npy", "hdf5": "h5", "lmdb": "lmdb"}[layout]
    assert renamed[-1] == "store.json"
    for name in (
        ".rawpack/job",
        ".rawpack/part-00000.done",
        ".rawpack/part-00001.done",
        f"shard-00001.{suffix}",
        "columns-1",
    ):
        assert name in renamed
    assert not {path for path in disk.unwritten if not path.startswith(f"{store}/.rawpack")}
    # The folder that the store's name is in, and the one above, were made by this run.
    synced = [descriptor(arguments) for name, arguments, _ in calls(trace) if name == "fsync"]
    assert {str(store), str(store.parent), str(store.parent.parent)} <= set(synced)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_names_of_all_folders_of_a_set_are_synced(tmp_path: Path) -> None:
    """Also of those that a set of splits is in, where this run made them."""
    synced, sync = set[str](), os.fsync

    def noting(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    with mock.patch.object(os, "fsync", noting):
        pack_splits(np.zeros((4, 8, 8, 3), np.uint8), tmp_path / "a" / "b" / "sets", holdout={"val": 1}, workers=0)
    folders = [tmp_path, *(tmp_path / name for name in ("a", "a/b", "a/b/sets", "a/b/sets/train"))]
    assert {*map(str, folders)} <= synced
