"""What goes wrong in the middle of a packing run: one clear line, exit code 1, and the same command goes on."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import pytest
from folders import rejects_of, settled, states_of
from forked import Forks, forks
from pictures import linked, picture, save
from running import FORMATS, Ran, Undisturbed, environment, pack, run_here, undisturbed_runs
from troubled import At, Trouble, append, die, hang, opening, shrink_memory, touch
from troubled import troubled as troubled_source

from rawpack import PackError, Reader
from rawpack.system.pool import SupervisedPool
from rawpack_packer import recipe as recipes
from rawpack_packer.destination import files
from rawpack_packer.engines import LocalEngine, local
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import open_source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, bash's limits and mount namespaces")
# Workers get the functions of this file by their code: what it imports takes them a second.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SMALL = ("--size", "64", "--shard-size", "1")
"""Parts of 64 samples, 786 kB of pixels."""
COUNT = 136


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """136 files in two classes: three parts."""
    return linked(tmp_path_factory.mktemp("trouble") / "source", COUNT, (70, 80), of=4)


@pytest.fixture
def own_source(source: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    shutil.copytree(source, tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Layout -> the files of a run without trouble."""
    return undisturbed_runs(source, tmp_path_factory, *SMALL)


def one_line(err: str) -> str:
    """The error: one line beside the count of images and notes of progress, no traceback."""
    progress = re.compile(
        r"rawpack: ([\d,]+ images? (without classes )?in|resuming after|[\d,]+ of [\d,]+ images, |\d+ ?%)"
    )
    lines = [line for line in err.splitlines() if not progress.match(line)]
    assert len(lines) == 1, err
    assert lines[0].startswith("rawpack: ")
    return lines[0]


def troubled(trouble: Trouble, *args: object) -> Ran:
    """The command in this process, its workers being children, with a source that makes trouble."""
    with opening(trouble):
        return run_here("pack", *args)


@pytest.fixture
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No worker writes to the terminal."""
    yield
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


# ---------------------------------------------------------------------------------------------- a full disk


@pytest.fixture(scope="module")
def disks() -> Iterator[Forks]:
    """Processes that see small disks, which nobody else does."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("only root mounts a small disk of its own")
    with forks(environment(), "unshare", "-m") as forked:
        yield forked


@pytest.mark.parametrize(
    ("layout", "at", "workers"), [("lmdb", "70", 2), ("hdf5-gzip", "130", 0), ("memmap", "commit", 0)]
)
def test_a_disk_that_fills_up(
    source: Path, undisturbed: Undisturbed, disks: Forks, tmp_path: Path, layout: str, at: str, workers: int
) -> None:
    """One line that says so, exit code 1, nobody dies of a signal; with space again the same command goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = disks.run(
        f"import subprocess\nsubprocess.run('mount -t tmpfs -o size=24m none {disk}'.split(), check=True)"
    )
    if mounted.code:
        pytest.skip(f"no small disk can be mounted: {mounted.err}")
    args = ["pack", "--workers", workers, *FORMATS[layout], *SMALL, source, disk / "store"]
    filling = f"import troubled\ntroubled.filling({at!r}, {str(disk / 'filler')!r}).__enter__()"
    ran = disks.command(*args, before=filling)
    told = one_line(ran.err)
    assert ran.code == 1
    assert "No space left on device" in told, told
    assert str(disk / "store") in told
    assert "the same command" in told
    # What no one can use any more gives its space back at once; of workers that were stopped some may be left.
    if not workers:
        left = disks.run(f"import os\nprint(*os.listdir({str(disk / 'store' / '.rawpack')!r}), sep='\\n')").out
        assert not re.search(r"\.(npy|h5|lmdb|spool)(\.tmp)?$", left, re.MULTILINE)
    again = disks.command(*args, before=f"import os\nos.unlink({str(disk / 'filler')!r})")
    assert again.code == 0, again
    copying = f"import shutil\nshutil.copytree({str(disk / 'store')!r}, {str(tmp_path / 'store')!r})"
    assert disks.run(copying).code == 0
    assert settled(tmp_path / "store") == undisturbed(layout)


@pytest.mark.parametrize("layout", ["", "gzip"])
def test_hdf5_refused_at_any_byte(forks: Forks, tmp_path: Path, layout: str) -> None:
    """The writer raises what the system said; HDF5 says nothing on stderr and takes no process with it."""
    with (tmp_path / "probe").open("wb") as file:
        files.reserve(file.fileno(), 0, 1 << 20)
        if os.fstat(file.fileno()).st_blocks * 512 < 1 << 20:
            pytest.skip("this file system promises no room")
    path = str(tmp_path / "shard.h5")
    ran = forks.run(
        f"import hdf5_refused as h, pathlib\nprint(*h.refusals(pathlib.Path({path!r}), {layout!r}), sep='\\n')"
    )
    assert (ran.code, ran.err, len(ran.out.splitlines()) > 20) == (0, "", True), ran
    assert set(ran.out.splitlines()) == {repr(OSError(errno.EFBIG, os.strerror(errno.EFBIG)))}


@pytest.mark.parametrize(("layout", "workers"), [("hdf5-gzip", 0), ("lmdb", 1)])
def test_a_limit_on_file_sizes(
    source: Path, undisturbed: Undisturbed, forks: Forks, tmp_path: Path, layout: str, workers: int
) -> None:
    """Writes that the system refuses for another reason than a full disk: the same, in every format's own library."""
    store = tmp_path / "store"
    args = ["pack", "--workers", workers, *FORMATS[layout], *SMALL, source, store]
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (60 << 10, 60 << 10))"
    ran = forks.command(*args, before=limit)
    assert ran.code == 1, ran
    told = one_line(ran.err)
    # The memory that workers share is a file, too.
    assert ("the same command" in told) if not workers else ("(ulimit -f) is too low: raise it" in told), told
    assert "0x" not in told
    assert not (store / "store.json").exists()
    assert run_here(*args).code == 0
    assert settled(store) == undisturbed(layout)


@pytest.mark.parametrize(("number", "after"), [(errno.EIO, 0), (errno.EDQUOT, 20)])
def test_a_destination_that_is_lost(
    source: Path, undisturbed: Undisturbed, tmp_path: Path, number: int, after: int
) -> None:
    """A mount that dies or is used up, met when bytes are to reach the disk, from the first file to
    the manifest: one line with the folder and the system's words."""
    store, left = tmp_path / "store", iter(range(after))

    def lost(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(number, os.strerror(number))

    args = ["pack", "--workers", 0, *SMALL, source, store]
    with mock.patch("rawpack_packer.destination.files.os.fsync", lost):
        ran = run_here(*args)
    assert ran.code == 1
    told = one_line(ran.err)
    assert f"{store} stopped: {os.strerror(number)}" in told
    assert "the same command" in told
    assert not (store / "store.json").exists()
    assert run_here(*args).code == 0
    assert settled(store) == undisturbed("memmap")


# ---------------------------------------------------------------------------------------------- the source changes


def remove(path: str) -> None:
    """Where one worker helps another, both may come to this."""
    Path(path).unlink(missing_ok=True)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("what", "words", "workers"),
    [(remove, "it is gone", 2), (append, "bytes and has", 0), (touch, "it was written to", 0)],
    ids=["vanishes in a worker", "grows", "is touched"],
)
def test_a_source_that_changes_while_it_is_packed(
    own_source: Path, tmp_path: Path, what: Any, words: str, workers: int
) -> None:
    """A file that vanishes or changes when its turn comes: its name, exit code 1, no manifest. Put back as it was,
    the same command goes on; else it names what differs."""
    victim = own_source / "class 1" / "101.jpg"
    # Class by class: 68 files with even numbers, then those with odd ones.
    number = 118
    data, state, store = victim.read_bytes(), victim.stat(), tmp_path / "store"
    ran = troubled(At(number, what, str(victim)), "--workers", workers, *SMALL, own_source, store)
    assert ran.code == 1
    told = one_line(ran.err)
    assert "class 1/101.jpg changed since packing began" in told
    assert words in told
    assert not (store / "store.json").exists()
    ran = run_here("pack", "--workers", 0, *SMALL, own_source, store)
    assert (ran.code, "the source differs" in one_line(ran.err)) == (2, True)
    victim.write_bytes(data)
    os.utime(victim, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert run_here("pack", "--workers", 0, *SMALL, own_source, store).code == 0
    assert settled(store) == settled(pack(own_source, tmp_path / "fresh", *SMALL))


def test_another_version_of_a_library_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder or HDF5 of another version than the one that began: named with both versions."""
    store = pack(source, tmp_path / "store", *SMALL, *FORMATS["hdf5"])
    before = states_of(store)
    now = recipes.libraries(recipes.make_recipe(format="hdf5"))
    assert len(now) >= 2
    for name in now:
        monkeypatch.setattr(
            "rawpack_packer.recipe.fields.libraries", lambda *_, name=name, **__: now | {name: "stone 0.1"}
        )
        ran = run_here("pack", "--workers", 0, *SMALL, *FORMATS["hdf5"], source, store)
        assert (ran.code, f"{name} was {now[name]}, now stone 0.1" in one_line(ran.err)) == (2, True)
    assert states_of(store) == before


# ---------------------------------------------------------------------------------------------- the machine is short


def test_a_file_system_that_cannot_sync_folders_holds_stores(source: Path, tmp_path: Path) -> None:
    """What it says of files still stops a run."""
    synced, files_too = os.fsync, False

    def refusing(descriptor: int) -> None:
        if files_too or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        synced(descriptor)

    with (
        mock.patch.object(os, "fsync", refusing),
        mock.patch.object(files, "_of_linux", return_value=lambda *args: (ctypes.set_errno(errno.EINVAL), -1)[1]),
    ):
        pack(source, tmp_path / "store", *SMALL)
        assert run_here("export", "--quiet", tmp_path / "store", tmp_path / "files").code == 0
        files_too = True
        assert run_here("pack", "--workers", 0, *SMALL, source, tmp_path / "other").code == 1


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_memory_that_runs_out_rejects_nothing(tmp_path: Path, suffix: str) -> None:
    """A decoder without memory says that the file is corrupt: the run stops instead, and goes on when there is some."""
    source, store = tmp_path / "source", tmp_path / "store"
    fast = {"compress_level": 1} if suffix == "png" else {}
    first = save(source / f"00.{suffix}", picture(90, 120, 0).repeat(20, axis=0).repeat(20, axis=1), **fast)
    os.link(first, source / f"01.{suffix}")
    args = [*SMALL, "--max-rejects", "100%", source, store]
    ran = troubled(At(0, shrink_memory, 6 << 20), "--workers", 1, *args)
    assert ran.code == 1
    assert "out of memory" in one_line(ran.err)
    assert run_here("pack", "--workers", 0, *args).code == 0
    assert len(Reader(store)) == 2


def test_limits_of_memory_change_no_byte(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns one at a time, checksums by way of the disk, provenance in blocks: the store is the same."""
    usual = pack(source, tmp_path / "usual", *SMALL, *FORMATS["lmdb"])
    monkeypatch.setattr("rawpack_packer.job.commit._OPEN_FILES", 1)
    monkeypatch.setattr("rawpack_packer.job.commit._BLOCK_ROWS", 7)
    monkeypatch.setattr("rawpack_packer.job.commit._IN_MEMORY", 20)
    monkeypatch.setattr("rawpack_packer.destination.journal._BLOCK", 5)
    little = pack(source, tmp_path / "little", *SMALL, *FORMATS["lmdb"])
    assert settled(little) == settled(usual)
    assert json.loads((little / "store.json").read_text())["counts"]["identical_files"] == COUNT - 4
    assert (little / "provenance.npy").read_bytes() == (usual / "provenance.npy").read_bytes()
    digests = {json.loads((store / "provenance.json").read_text())["source"]["digest"] for store in (little, usual)}
    assert len(digests) == 1


# ---------------------------------------------------------------------------------------------- samples that kill


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template forks a single worker too, as it does several: to start each as a plain child takes ten times as
    long."""
    init = SupervisedPool.__init__

    def with_template(pool: Any, start: Any, prepare: Any = None) -> None:
        init(pool, start, prepare or local._load)

    monkeypatch.setattr(SupervisedPool, "__init__", with_template)


@pytest.mark.usefixtures("quiet", "forked")
def test_any_number_of_samples_that_kill_cost_themselves(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGABRT or SIGSEGV, the first of all, and five in one part, side by side and apart: six rejects, though each
    killed two workers, more than a part may lose otherwise. Fewer allowed: the run stops at the one too many and names
    it, and goes on once it is allowed."""
    killers = (0, 65, 66, 67, 91, 127)
    store = tmp_path / "store"
    keys = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.jpg"))
    monkeypatch.setattr("rawpack_packer.engines.local._PART_DEATHS", 8)

    def trouble(number: int) -> None:
        if number in killers:
            die(signal.SIGSEGV if number % 2 else signal.SIGABRT)

    ran = troubled(trouble, "--workers", 1, "--max-rejects", 1, *SMALL, source, store)
    assert ran.code == 1
    told = re.search(r"2 samples killed .* the last one '(.*)', and --max-rejects allows 1", one_line(ran.err))
    assert told
    assert keys.index(told[1]) in killers
    args = ["--json", "--max-rejects", 6, *SMALL, source, store]
    ran = troubled(trouble, "--workers", 1, *args)
    assert ran.code == 0, ran.err
    done = json.loads(ran.out)
    assert (done["seen"], done["samples"], done["reject_reasons"]) == (COUNT, COUNT - 6, {"crashed": 6})
    assert [(one["sample"], one["key"]) for one in rejects_of(store)] == [(number, keys[number]) for number in killers]
    assert [*Reader(store).column("key")] == [key for number, key in enumerate(keys) if number not in killers]
    assert run_here("inspect", "--verify", store).code == 0


@pytest.mark.usefixtures("quiet", "forked")
def test_a_worker_that_dies_by_accident_rejects_nothing(source: Path, tmp_path: Path) -> None:
    """Samples at which a worker is killed, as where memory is short for a moment, and another one crashes, are packed
    by the next: only two crashes reject a sample."""
    deaths, store = tmp_path / "deaths", tmp_path / "store"

    def trouble(number: int) -> None:
        for name in (signal.SIGKILL, signal.SIGSEGV) if number % 50 == 3 else ():
            if not (death := deaths / f"{number}-{name}").exists():
                death.touch()
                die(name)

    deaths.mkdir()
    ran = troubled(trouble, "--workers", 1, *SMALL, source, store)
    assert ran.code == 0, ran.err
    assert len(list(deaths.iterdir())) == 6
    assert len(Reader(store)) == COUNT


def die_noted(deaths: Path, number: int) -> None:
    """Die of a signal, and add a byte to a file."""
    with deaths.open("a") as file:
        file.write("d")
    die(number)


def killed_main(deaths: Path, most: int, *args: Any) -> None:
    """A worker that is killed before it has begun a sample; so many are, at once or when they have their part."""
    run, count = local.run_part, deaths.stat().st_size
    end = partial(die_noted, deaths, signal.SIGKILL)
    if count < most and count % 2:
        end()
    with mock.patch.object(local, "run_part", lambda *given: end() if count < most else run(*given)):
        local._main(*args)


def wandering_main(deaths: Path, most: int, *args: Any) -> None:
    """A worker that is killed at one sample of the part it packs, the next one at the sample behind it."""
    from rawpack_packer.part import _RecordRows

    add = _RecordRows.add

    def deadly(rows: Any, *what: Any) -> None:
        add(rows, *what)
        if deaths.stat().st_size < min(rows.count, most):
            die_noted(deaths, signal.SIGSEGV)

    with mock.patch.object(_RecordRows, "add", deadly):
        local._main(*args)


@pytest.mark.usefixtures("quiet", "forked")
@pytest.mark.parametrize(
    ("main", "most", "told"),
    [
        (killed_main, 4, ""),
        (killed_main, 1 << 30, r"packing workers cannot start here \(exit status -9\); --workers 0 needs none"),
        (wandering_main, 1 << 30, "workers keep dying"),
    ],
)
def test_workers_that_keep_dying_reject_nothing(
    source: Path, tmp_path: Path, main: Callable[..., None], most: int, told: str
) -> None:
    """As on a busy machine, before they begin: no part is the cause. Where that has no end, or in one part never comes
    twice at one sample, the run says so and does not go on for ever."""
    store, deaths = tmp_path / "store", tmp_path / "deaths"
    deaths.touch()
    with (
        mock.patch("rawpack_packer.engines.local._main", partial(main, deaths, most)),
        mock.patch("rawpack_packer.engines.local._PART_DEATHS", 4),
        mock.patch("rawpack.system.pool._IN_VAIN_S", 0.1 if told else 120),
    ):
        ran = run_here("pack", "--quiet", "--workers", 1, *SMALL, source, store)
    assert ran.code == bool(told), ran
    if told:
        assert re.search(told, one_line(ran.err))
        pack(source, store, *SMALL)
    if most == 4 or main is wandering_main:
        assert deaths.read_text() == "dddd"
    assert len(Reader(store)) == COUNT


@pytest.mark.usefixtures("quiet")
def test_a_worker_that_hangs_ends_the_run(source: Path, tmp_path: Path) -> None:
    """A disk that answers no more: after the time that is allowed, one error, no worker is left, and it goes on."""
    recipe, store = recipes.make_recipe(size="64", shard_size="1"), tmp_path / "store"
    hanging = troubled_source(open_source(source), At(70, hang))
    with pytest.raises(PackError, match="no worker has begun a sample for"):
        Job(hanging, recipe, store, RunOptions(engine=LocalEngine(1, stuck_after_s=0.6))).run()
    assert run_here("pack", "--workers", 0, *SMALL, source, store).code == 0
