"""One contract, every engine: the same bytes as `local`, whatever dies; real clusters of Dask and Ray among them."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from clusters import cluster_environment, dask_cluster, environment_without_rawpack, ray_cluster
from folders import finished_shards, settled, states_of
from held import Held, held, let_go
from pictures import linked, picture, save
from running import Undisturbed, process, run_command, run_here, undisturbed_runs
from troubled import At, Trouble, die_with_parent, troubled

import rawpack_packer
from rawpack import MissingExtraError, PackError, UsageError
from rawpack_packer import engines
from rawpack_packer import recipe as recipes
from rawpack_packer.destination import lock
from rawpack_packer.engines import (
    DaskEngine,
    Engine,
    ExecutorEngine,
    InlineEngine,
    LocalEngine,
    RayEngine,
    executor,
    remote_worker,
)
from rawpack_packer.job.job import Job as PackingJob
from rawpack_packer.job.options import NoProgress, RunOptions
from rawpack_packer.part import PartTask
from rawpack_packer.sources import open_source
from rawpack_packer.testing import EngineConformance

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc"),
    # Of Dask and Ray, about themselves.
    pytest.mark.filterwarnings("default"),
]

COUNT = 200
SMALL = ("--size", "64", "--shard-size", "1")
"""Parts of 64 samples: four."""
CLUSTERS = ("dask", "ray")
ENGINES = ("here", "local", "threads", "processes", *CLUSTERS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 files in two classes, one of them no image: four parts."""
    return linked(tmp_path_factory.mktemp("engines") / "source", COUNT - 1, (70, 80), of=4, bad=(77,))


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """`undisturbed(layout)`: the files of a store that one process made, part after part."""
    return undisturbed_runs(source, tmp_path_factory, *SMALL)


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    with dask_cluster(*[cluster_environment()] * 2) as address:
        yield address


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def by_processes() -> Iterator[Engine]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        yield ExecutorEngine(processes)


@pytest.fixture(scope="module")
def by_dask(dask: str) -> Iterator[Engine]:
    with DaskEngine(dask, timeout=120) as engine:
        yield engine


@pytest.fixture(scope="module")
def by_ray(ray: str) -> Iterator[Engine]:
    with RayEngine(ray, timeout=120) as engine:
        yield engine


Opened = Callable[[str], AbstractContextManager[Engine]]


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Opened:
    """`with opened("dask") as engine`: an engine of that name. Processes and clusters start once for all tests."""

    @contextmanager
    def get(name: str) -> Iterator[Engine]:
        if name == "here":
            yield InlineEngine()
        elif name == "local":
            yield LocalEngine(2)
        elif name == "threads":
            with ThreadPoolExecutor(2) as threads:
                yield ExecutorEngine(threads)
        else:
            yield request.getfixturevalue(f"by_{name}")

    return get


def recipe(layout: str = "memmap") -> recipes.Recipe:
    return recipes.make_recipe(size="64", shard_size="1", format=layout)


def run(
    source: Path, store: Path, engine: Engine, trouble: Trouble | None = None, layout: str = "memmap", **more: Any
) -> Any:
    """Pack by an engine, from a source with trouble in it."""
    opened = open_source(source)
    how = RunOptions(**({"max_rejects": 20, "engine": engine} | more))
    return PackingJob(opened if trouble is None else troubled(opened, trouble), recipe(layout), store, how).run()


class Watching(NoProgress):
    """Notes what a bar would show."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.said: list[str] = []

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        self.seen.append((samples, rejects))

    def waits(self, why: str) -> None:
        self.said.append(why)


# ---------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_all_that_makes_a_store_takes_an_engine(source: Path, tmp_path: Path, opened: Opened, name: str) -> None:
    """Splits, appends, conversions, merges and subsets are, by an engine, what one process makes of them."""
    more = tmp_path / "more"
    for k in range(70):
        save(more / "class 2" / f"{k:03d}.jpg", picture(30, 40, k))

    def make(folder: Path, **by: Any) -> list[dict[str, bytes]]:
        by |= {"max_rejects": 20}
        rawpack_packer.pack_splits(source, folder / "sets", holdout={"val": 0.4}, size=64, shard_size=1, **by)
        rawpack_packer.append(more, folder / "sets" / "train", **by)
        rawpack_packer.convert(folder / "sets" / "train", folder / "converted", format="lmdb", **by)
        rawpack_packer.merge([folder / "sets" / name for name in ("train", "val")], folder / "merged", **by)
        rawpack_packer.subset(folder / "merged", folder / "part", every=2, **by)
        return [settled(folder / name) for name in ("sets/train", "sets/val", "converted", "merged", "part")]

    with opened(name) as engine:
        made = make(tmp_path / "by engine", engine=engine)
    assert made == make(tmp_path / "alone", workers=0)


@pytest.mark.parametrize("name", ENGINES)
def test_other_libraries_than_the_recipes_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened, name: str
) -> None:
    """Workers whose resizer is not the recipe's pack nothing; the error says what differs, and where."""
    here = recipes.libraries(recipe())
    monkeypatch.setattr("rawpack_packer.recipe.fields.libraries", lambda *_, **__: here | {"resizer": "stone 0.1"})
    with opened(name) as engine, pytest.raises(PackError, match=r"resizer opencv.*the recipe has stone 0.1") as raised:
        run(source, tmp_path / "store", engine)
    assert not list((tmp_path / "store").glob("shard-*"))
    assert name in ("here", "local") or f"on host {os.uname().nodename}: " in str(raised.value)


class TestEngines(EngineConformance):
    """What `rawpack_packer.testing` asks of engines of others, of ours."""

    @pytest.fixture(autouse=True, params=ENGINES)
    def named(self, request: pytest.FixtureRequest, opened: Opened) -> None:
        self._opened, self._name = opened, request.param
        self.in_this_process = self._name == "here"

    def start(self) -> AbstractContextManager[Engine]:
        return self._opened(self._name)


# ---------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_worker_that_is_killed_in_the_middle_of_its_part(
    source: Path, undisturbed: Undisturbed, tmp_path: Path, opened: Opened, name: str
) -> None:
    """SIGKILL to the cluster's worker that is known to be at sample 100: another does its part, to the same bytes."""
    killed: list[int] = []

    def kill() -> None:
        ((packer, worker),) = held(tmp_path)
        assert psutil.Process(packer).ppid() == worker
        os.kill(worker, signal.SIGKILL)
        killed.append(worker)
        held(tmp_path, 2)
        let_go(tmp_path)

    killer = threading.Thread(target=kill)
    killer.start()
    with opened(name) as engine:
        run(source, tmp_path / "store", engine, Held(100, tmp_path))
    killer.join()
    assert settled(tmp_path / "store") == undisturbed("memmap")
    packers = held(tmp_path, 2)
    assert {parent for _, parent in packers} > set(killed)
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid, _ in packers if psutil.pid_exists(pid)], timeout=120)
    assert not alive


def test_a_part_that_kills_every_worker_of_a_cluster(
    source: Path, undisturbed: Undisturbed, tmp_path: Path, opened: Opened
) -> None:
    """At one sample, the cluster's worker dies, whichever it is: Dask's own retries count as deaths. The part is named
    once all others are packed, and the cluster packs on when the sample is harmless."""
    store = tmp_path / "store"
    with opened("dask") as engine:
        words = r"part 1 \(64 samples, .* to .*\) has killed 8, the last one alone, with .*All other parts"
        with pytest.raises(PackError, match=words):
            run(source, store, engine, At(100, die_with_parent))
        assert len(finished_shards(store)) == 3
        run(source, store, engine)
    assert settled(store) == undisturbed("memmap")


def test_an_executor_that_breaks(source: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A pool of processes of which one is killed takes nothing more: said so, and a new one goes on."""
    store = tmp_path / "store"

    def kill() -> None:
        ((_, worker),) = held(tmp_path)
        os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as broken,
        pytest.raises(PackError, match=r"BrokenProcessPool.*new executor resumes"),
    ):
        run(source, store, ExecutorEngine(broken), Held(100, tmp_path))
    killer.join()
    let_go(tmp_path)
    done = finished_shards(store)
    with ThreadPoolExecutor(2) as another:
        run(source, store, ExecutorEngine(another))
    assert settled(store) == undisturbed("memmap")
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done


def held_run(
    engine: str, address: str, at: int, folder: Path, *args: object
) -> AbstractContextManager[subprocess.Popen[str]]:
    """The command in a process of its own, on a cluster, from a source that stops at one sample."""
    command = [sys.executable, Path(__file__).parents[1] / "support" / "held.py", at, folder, "pack"]
    where = ("--engine", engine, "--address", address, "--engine-timeout", "120")
    return process([*command, *where, *args], env=cluster_environment())


@pytest.mark.parametrize(("name", "how"), [("dask", signal.SIGINT), ("ray", signal.SIGKILL)])
def test_a_run_that_ends_leaves_no_work_on_the_cluster(
    request: pytest.FixtureRequest, source: Path, undisturbed: Undisturbed, tmp_path: Path,
    opened: Opened, name: str, how: signal.Signals,
) -> None:  # fmt: skip
    """The run is killed, or interrupted as by Ctrl-C, while a worker is in the middle of a part. The same command goes
    on beside it; the worker of the run that is gone ends without a trace, and finished parts are not done again."""
    store, folder = tmp_path / "store", tmp_path / "notes"
    folder.mkdir()
    args = ("--max-rejects", 20, *SMALL, source, store)
    with held_run(name, request.getfixturevalue(name), 100, folder, *args) as first:
        ((packer, _),) = held(folder)
        first.send_signal(how)
        if how == signal.SIGINT:
            let_go(folder)
        _, err = first.communicate(timeout=120)
    assert first.returncode == (130 if how == signal.SIGINT else -how), err
    assert "Traceback" not in err
    done = finished_shards(store) if how == signal.SIGINT else {}
    threading.Timer(0.5, let_go, [folder]).start()
    with opened(name) as engine:
        run(source, store, engine)
    assert settled(store) == undisturbed("memmap")
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done
    _, alive = psutil.wait_procs([psutil.Process(packer)] if psutil.pid_exists(packer) else [], timeout=120)
    assert not alive


def test_a_part_ends_with_its_run_in_the_middle_of_a_sample(source: Path, tmp_path: Path, opened: Opened) -> None:
    """A worker that sits at one sample for long, as at a large video, notices all the same that its run has ended: its
    process goes, and leaves nothing half written."""
    store, gone = tmp_path / "store", []

    def end() -> None:
        ((packer, _),) = held(tmp_path)
        process = psutil.Process(packer)
        lock.end_token(store)
        gone.extend(psutil.wait_procs([process], timeout=120)[0])
        let_go(tmp_path)

    ending = threading.Thread(target=end)
    ending.start()
    with (
        opened("threads") as engine,
        pytest.raises(PackError, match=r"the run that asked for this part of .* has ended"),
    ):
        run(source, store, engine, Held(100, tmp_path))
    ending.join()
    assert len(gone) == 1
    assert not [path for path in (store / ".rawpack").iterdir() if "shard-00001" in path.name]


def test_a_part_that_is_begun_after_its_run_is_refused(source: Path, tmp_path: Path) -> None:
    """What a cluster's queue still holds of a run that has ended, or was killed and taken up by another, is given back
    at once: nobody waits for a network's file system to show a run that is over."""
    orders: list[bytes] = []

    class Keeping:
        def submit(self, function: Callable[[bytes], Any], order: bytes) -> Any:
            orders.append(order)
            raise RuntimeError("shut down")

    store = tmp_path / "store"
    for _ in range(2):
        with pytest.raises(PackError, match="takes no more parts"):
            run(source, store, ExecutorEngine(Keeping(), slots=2))
    lock.begin_token(store)  # as by a run that is killed now
    with pytest.raises(PackError, match="takes no more parts"):
        run(source, store, ExecutorEngine(Keeping(), slots=2))
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    outcomes = [remote_worker.run_remote(order) for order in orders]
    assert [outcome.error for outcome in outcomes] == [f"the run that asked for this part of {store} has ended"] * 3
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


@pytest.mark.parametrize("rounds", [3, pytest.param(150, marks=pytest.mark.soak)])
def test_ray_runs_that_end_while_their_parts_do(source: Path, tmp_path: Path, ray: str, rounds: int) -> None:
    """Run after run stops at one sample while other parts begin, go on, and end: the command's process lives through
    all of it, and the run after them makes a sound store."""
    program = Path(__file__).parents[1] / "support" / "ending.py"
    ended = subprocess.run(
        [sys.executable, str(program), ray, str(rounds), str(source), str(tmp_path)],
        env=cluster_environment(), capture_output=True, encoding="utf-8", timeout=180 + 20 * rounds, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "sound\n"), ended.stderr


# ---------------------------------------------------------------------------------------------- strange pools


class Calls:
    """An executor as submitit has it: no callbacks, and jobs that are ended from outside."""

    def __init__(self, work: Callable[[Callable[[bytes], Any], PartTask], Any]) -> None:
        self._threads, self._work = ThreadPoolExecutor(4), work

    def submit(self, function: Callable[[bytes], Any], order: bytes) -> Any:
        task = cloudpickle.loads(pickle.loads(order)[1])
        return Job(self._threads.submit(self._work, function, task))


class Job:
    def __init__(self, future: Future[Any]) -> None:
        self.done, self.result, self.cancel = future.done, future.result, future.cancel


class UncompletedJobError(RuntimeError):
    """What submitit raises for a job that was ended."""


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(executor, "_SAY_AFTER_S", 0.1)


def once(function: Callable[[bytes], Any], task: PartTask) -> Any:
    return function(remote_worker.packed(task))


@pytest.mark.usefixtures("hurry")
def test_two_workers_at_one_part(source: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A worker that was taken for dead and lives writes beside the one that does its part again: the same bytes, and
    nothing half written."""

    def twice(function: Callable[[bytes], Any], task: PartTask) -> Any:
        with ThreadPoolExecutor(2) as both:
            outcomes = list(both.map(function, [remote_worker.packed(task)] * 2))
        assert [outcome.error for outcome in outcomes] == [None, None]
        return outcomes[0]

    run(source, tmp_path / "store", ExecutorEngine(Calls(twice), slots=2))
    assert settled(tmp_path / "store") == undisturbed("memmap")


@pytest.mark.usefixtures("hurry")
def test_a_part_that_kills_every_worker_is_named(source: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Three workers die of one part, and then one that has only this: all others are packed, the error names this one
    and its samples, none of which is rejected, however many may be, and the next run packs only that."""
    began: list[int] = []

    def deadly(function: Callable[[bytes], Any], task: PartTask) -> Any:
        began.append(task.number)
        if task.number == 1:
            raise UncompletedJobError("the job was ended")
        return once(function, task)

    store, keys = tmp_path / "store", [open_source(source).key(i) for i in (64, 127)]
    with pytest.raises(PackError) as raised:
        run(source, store, ExecutorEngine(Calls(deadly), slots=2), max_rejects=100)
    assert f"part 1 (64 samples, {keys[0]!r} to {keys[1]!r}) has killed 4, the last one alone" in str(raised.value)
    assert Counter(began) == {0: 1, 1: 4, 2: 1, 3: 1}
    done = finished_shards(store)
    assert len(done) == 3
    run(source, store, LocalEngine(1))
    assert settled(store) == undisturbed("memmap")
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done


@pytest.mark.usefixtures("hurry")
def test_a_part_beside_a_deadly_one_is_not_blamed(source: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A worker that dies of one part fails whatever else it has, running or waiting, as often as they meet: parts that
    pack alone are packed, and neither rejected nor named."""
    deadly, went = threading.Event(), threading.Event()

    def beside(function: Callable[[bytes], Any], task: PartTask) -> Any:
        if task.number == 1:
            deadly.set()
            went.wait(1)  # a neighbour, if there is one
            raise UncompletedJobError("the worker died")
        if task.number == 2 and deadly.wait(1):
            deadly.clear()
            went.set()
            raise UncompletedJobError("the worker died, of another part")
        return once(function, task)

    store = tmp_path / "store"
    with pytest.raises(PackError) as raised:
        run(source, store, ExecutorEngine(Calls(beside), slots=2))
    assert "part 1 (" in str(raised.value)
    assert "part 2 (" not in str(raised.value)
    assert len(finished_shards(store)) == 3
    run(source, store, LocalEngine(1))
    assert settled(store) == undisturbed("memmap")


@pytest.mark.usefixtures("hurry")
def test_a_cluster_on_which_everything_dies(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When part after part kills its workers, the run ends with what they died of, and packs nothing itself."""
    monkeypatch.setattr(executor, "_DEADLY_PARTS", 2)

    def deadly(function: Callable[[bytes], Any], task: PartTask) -> Any:
        raise UncompletedJobError("the job was ended")

    with pytest.raises(PackError, match=r"workers keep dying.*the job was ended"):
        run(source, tmp_path / "store", ExecutorEngine(Calls(deadly), slots=2))
    assert not list((tmp_path / "store").glob("shard-*"))


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("what", ["destination", "source"])
def test_a_machine_that_does_not_see_the_folders(source: Path, tmp_path: Path, what: str) -> None:
    """A worker whose machine has not the destination, or not the source: its host and the path are named."""
    gone = str(tmp_path / "not here")

    def elsewhere(function: Callable[[bytes], Any], task: PartTask) -> Any:
        change = {"destination": gone} if what == "destination" else {"root": gone}
        return once(function, replace(task, **change))  # type: ignore[arg-type]

    words = f"on host {os.uname().nodename}: {gone} is not here: every machine must see the {what} at the same path"
    with pytest.raises(PackError, match=words):
        run(source, tmp_path / "store", ExecutorEngine(Calls(elsewhere), slots=2))
    assert not Path(gone).exists()


@pytest.mark.usefixtures("hurry")
def test_another_folder_of_the_same_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that is a disk of each machine's own: noticed before anything is written into it."""
    monkeypatch.setattr("rawpack_packer.destination.lock._SEEN_WITHIN_S", 0.1)
    own = tmp_path / "own disk"
    own.mkdir()
    with pytest.raises(PackError, match="own disk is another folder here than where the job runs"):
        run(
            source, tmp_path / "store",
            ExecutorEngine(Calls(lambda function, task: once(function, replace(task, destination=str(own)))), slots=2),
        )  # fmt: skip
    assert not list(own.iterdir())


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("looks", [3, None])
def test_files_that_are_seen_late(
    source: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    looks: int | None,
) -> None:  # fmt: skip
    """What a worker has written may be seen only after a while, as on NFS: the run waits, and not for ever."""
    seen, looked = executor.read_record, Counter[int]()

    def late(destination: Path, number: int) -> Any:
        looked[number] += 1
        return seen(destination, number) if looks is not None and looked[number] > looks else None

    monkeypatch.setattr(executor, "read_record", late)
    monkeypatch.setattr(executor, "_SEEN_WITHIN_S", 0.2 if looks is None else 120)
    engine = ExecutorEngine(Calls(once), slots=2)
    if looks is not None:
        run(source, tmp_path / "store", engine)
        assert settled(tmp_path / "store") == undisturbed("memmap")
    else:
        with pytest.raises(PackError, match=f"host {os.uname().nodename} has packed part .* not seen"):
            run(source, tmp_path / "store", engine)


def test_files_that_are_removed_while_they_are_open(
    source: Path, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS keeps the locks' files under other names until they are closed: the work folder goes all the same."""
    removed, work = shutil.rmtree, tmp_path / "store" / ".rawpack"

    def as_on_nfs(path: Path, *args: Any, **options: Any) -> None:
        if Path(path) != work:
            return removed(path, *args, **options)
        for entry in work.iterdir():
            removed(entry) if entry.is_dir() else entry.unlink()
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    monkeypatch.setattr("rawpack_packer.job.commit.shutil.rmtree", as_on_nfs)
    run(source, tmp_path / "store", InlineEngine())
    assert settled(tmp_path / "store") == undisturbed("memmap")
    assert not work.exists()


@pytest.mark.usefixtures("hurry")
def test_an_executor_without_workers(source: Path, tmp_path: Path) -> None:
    """Nothing is waited for without an end: the user is told soon what is wrong, and the error says it. One part is
    sent to find that out, and no more."""
    sent: list[bytes] = []

    class Nothing:
        num_workers = 0

        def submit(self, function: Any, order: bytes, /) -> Any:
            sent.append(order)
            return Future[Any]()

    progress = Watching()
    with pytest.raises(PackError, match=r"no worker has taken a part for 0\.3 s: nobody has no workers"):
        run(source, tmp_path / "store", ExecutorEngine(Nothing(), timeout=0.3, name="nobody"), progress=progress)
    assert progress.said == ["nobody has no workers; waiting up to 0.3 s for a worker to take a part"]
    assert len(sent) == 1


def test_a_dask_worker_without_rawpack(source: Path, tmp_path: Path) -> None:
    """One of two workers has no rawpack: the command ends in one line that names its host, and what it lacks; the
    worker lives on, for whoever else uses the cluster. What the other one has packed by then serves the next try."""
    distributed = pytest.importorskip("distributed", reason="no Dask: pip install 'rawpack[dask]'")

    with (
        dask_cluster(cluster_environment(), environment_without_rawpack(tmp_path)) as address,
        distributed.Client(address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        before = set(client.nthreads())
        by = ("--engine", "dask", "--address", address, "--engine-timeout", 120)
        ran = run_command("pack", "-q", *SMALL, *by, source, tmp_path / "store")
        assert set(client.nthreads()) == before
    words = rf"on host {os.uname().nodename}: No module named 'rawpack_packer'"
    assert re.fullmatch(
        rf"rawpack: the Dask cluster at {address} has a worker that cannot pack, .*: {words}\n", ran.err
    )
    assert ran.code == 1
    assert run_command("pack", "-q", *SMALL, source, tmp_path / "store").code == 0
    assert run_command("inspect", "--verify", tmp_path / "store").code == 0


@pytest.mark.usefixtures("hurry")
def test_a_dask_cluster_without_workers(source: Path, tmp_path: Path) -> None:
    """A scheduler that no worker has come to: the user is told at once, and the run ends when the time is up."""
    distributed = pytest.importorskip("distributed", reason="no Dask: pip install 'rawpack[dask]'")
    progress = Watching()
    with dask_cluster() as address, distributed.Client(address, set_as_default=False) as client:
        assert isinstance(engines.as_engine(client), DaskEngine)  # a client serves as it is
        engine = DaskEngine(client, timeout=0.5)
        with pytest.raises(
            PackError, match=r"for 0\.5 s: the Dask cluster at tcp://\S+ has no workers.*--engine-timeout"
        ):
            run(source, tmp_path / "store", engine, progress=progress)
    (said,) = progress.said
    assert said == f"the Dask cluster at {address} has no workers; waiting up to 0.5 s for a worker to take a part"


@pytest.mark.usefixtures("hurry", "by_ray")
def test_a_ray_cluster_whose_cpus_are_taken(source: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """All CPUs belong to somebody else: the run says so and ends when the time is up. Its parts, which are begun when
    the CPUs are free again, end at once without a trace, and a new run goes on."""
    import ray

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator, unused-ignore]
    class Other:
        def ready(self) -> None: ...

    others = [Other.remote() for _ in range(2)]  # type: ignore[attr-defined, unused-ignore]
    try:
        ray.get([other.ready.remote() for other in others])
        with pytest.raises(
            PackError, match=r"for 0\.5 s: the Ray cluster at \S+, which runs 2 parts at a time, is busy"
        ):
            run(source, tmp_path / "store", RayEngine(timeout=0.5))
    finally:
        for other in others:
            ray.kill(other)
    run(source, tmp_path / "store", RayEngine())
    assert settled(tmp_path / "store") == undisturbed("memmap")


def test_other_versions_of_rawpack_are_refused(tmp_path: Path) -> None:
    """A worker with another rawpack reads nothing of what it is sent."""
    outcome = remote_worker.run_remote(pickle.dumps(("0.0.1", b"not to be read")))
    assert outcome.error is not None
    assert "0.0.1 where the job runs" in outcome.error


@pytest.mark.own_processes
def test_idle_packing_processes_end(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that a worker keeps for its next part stays for a while, and goes when there is none."""
    timers, ended = list[threading.Timer](), remote_worker.end_idle
    monkeypatch.setattr(remote_worker, "end_idle", lambda *only: ended(*only) if only else None)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: timers.append(timer))
    before = psutil.Process().children()
    with ThreadPoolExecutor(2) as threads:
        run(source, tmp_path / "store", ExecutorEngine(threads))
    kept = [process for process in psutil.Process().children() if process not in before]
    assert kept
    for timer in timers:
        assert timer.interval == remote_worker._IDLE_S
        timer.function(*timer.args)
    assert not psutil.wait_procs(kept, timeout=120)[1]


# ---------------------------------------------------------------------------------------------- asked wrongly

NO_ADDRESSES = ("", "nonsense", "http://example.org:80", "host:", ":8786", "host:65536", "a host:8786")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "dask"], "--engine dask needs --address: tcp://host:8786"),
        (["--engine", "ray"], "--engine ray needs --address: auto"),
        (["--address", "tcp://127.0.0.1:8786"], "--address applies to a cluster"),
        (["--engine-timeout", "3"], "--engine-timeout applies to a cluster"),
        *[
            (["--engine", "dask", "--address", address], f"{address!r} is not the address of a Dask scheduler")
            for address in (*NO_ADDRESSES, "ray://host:1", "auto")
        ],
        *[
            (["--engine", "ray", "--address", address], f"{address!r} is not the address of a Ray cluster")
            for address in (*NO_ADDRESSES, "tcp://host:1", "local")
        ],
        (["--engine", "dask", "--address", "x", "--workers", "3"], "--workers applies to --engine local only"),
    ],
)
def test_engines_that_are_asked_for_wrongly(source: Path, tmp_path: Path, options: list[str], words: str) -> None:
    """One line with the cure, exit code 2, nothing written."""
    ran = run_here("pack", *options, source, tmp_path / "store")
    assert (ran.code, words in ran.err, ran.err.count("\n")) == (2, True, 1), ran.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "library", "address", "words"),
    [
        ("dask", "distributed", "tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9"),
        ("ray", "ray", "127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"),
    ],
)
def test_a_cluster_that_does_not_answer(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, address: str, words: str
) -> None:
    """The address is named in one line, before the source is looked at."""
    pytest.importorskip(library, reason=f"no {name}: pip install 'rawpack[{name}]'")
    monkeypatch.setattr("rawpack_packer.engines.clusters._ANSWER_S", 0.3)
    ran = run_here("pack", "--engine", name, "--address", address, source, tmp_path / "store")
    assert (ran.code, words in ran.err) == (1, True), ran.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("library", "engine"), [("distributed", DaskEngine), ("ray", RayEngine)])
def test_a_library_that_is_missing(library: str, engine: Any) -> None:
    """The extra that brings it is named."""
    with mock.patch.dict(sys.modules, {library: None}), pytest.raises(MissingExtraError, match=r"pip install 'rawpack"):
        engine("host:8786")


@pytest.mark.parametrize(("name", "library", "scheme"), [("dask", "distributed", "tcp://"), ("ray", "ray", "")])
def test_what_listens_is_no_cluster(source: Path, tmp_path: Path, name: str, library: str, scheme: str) -> None:
    """What takes connections and says nothing is named when the time is up: one line, no log and no traceback of the
    cluster's library, exit code 1."""
    pytest.importorskip(library, reason=f"no {name}: pip install 'rawpack[{name}]'")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        ran = run_command(
            "pack", "--engine", name, "--address", address, "--engine-timeout", 0.5, source, tmp_path / "store"
        )
    assert re.fullmatch(rf"rawpack: no (Dask scheduler|Ray cluster) answers at {address}: not within 0\.5 s\n", ran.err)
    assert ran.code == 1
    assert not (tmp_path / "store").exists()


def test_an_address_serves_in_a_notebook(dask: str) -> None:
    """Where an event loop runs already, as in every cell of a notebook, an engine connects all the same."""

    async def cell() -> None:
        with DaskEngine(dask):
            pass

    asyncio.run(cell())


def test_an_executor_serves_from_python(tmp_path: Path) -> None:
    """`pack(..., engine=executor)` takes any executor as it is, and refuses what is none."""
    data = [picture(20, 20, k) for k in range(70)]
    with ThreadPoolExecutor(2) as executor:
        summary = rawpack_packer.pack(data, tmp_path / "store", engine=executor)
    assert summary.manifest.samples == 70
    rawpack_packer.pack(data, tmp_path / "alone", workers=0)
    assert settled(tmp_path / "store") == settled(tmp_path / "alone")
    wrong: Any = "dask"
    with pytest.raises(UsageError, match="not a str"):
        rawpack_packer.pack(data, tmp_path / "wrong", engine=wrong)
    with pytest.raises(UsageError, match="workers= applies to engine='local' only"):
        rawpack_packer.pack(data, tmp_path / "wrong", engine=InlineEngine(), workers=2)
