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
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle
import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest
from clusters import cluster_environment, dask_cluster, environment_without_rawpack, ray_cluster
from folders import finished_shards, settled, states_of
from held import Held, held, let_go
from pictures import linked, picture, save
from running import pack, process, run_command, run_here
from troubled import Trouble, troubled

import rawpack_packer
from rawpack import PackError, UsageError
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
RECIPE = recipes.make_recipe(size="64", shard_size="1")
CLUSTERS = ("dask", "ray")
ENGINES = ("here", "local", *CLUSTERS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 files in two classes, one of them no image: four parts."""
    return linked(tmp_path_factory.mktemp("engines") / "source", COUNT - 1, (70, 80), of=4, bad=(77,))


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a store that one process made, part after part."""
    return settled(pack(source, tmp_path_factory.mktemp("undisturbed") / "store", *SMALL, "--max-rejects", 20))


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


By = Callable[[str], Engine]


@pytest.fixture
def by(request: pytest.FixtureRequest) -> By:
    """`by("dask")`: an engine of that name. Processes and clusters start once for all tests."""
    own: dict[str, Callable[[], Engine]] = {"here": InlineEngine, "local": lambda: LocalEngine(2)}
    return lambda name: own[name]() if name in own else request.getfixturevalue(f"by_{name}")


def run(source: Path, store: Path, engine: Engine, trouble: Trouble | None = None, **more: Any) -> Any:
    """Pack by an engine, from a source with trouble in it."""
    table = open_source(source)
    how = RunOptions(**({"max_rejects": 20, "engine": engine} | more))
    return PackingJob(table if trouble is None else troubled(table, trouble), RECIPE, store, how).run()


# ---------------------------------------------------------------------------------------------- the contract


def test_all_that_makes_a_store_takes_an_engine(source: Path, tmp_path: Path, by_processes: Engine) -> None:
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

    made = make(tmp_path / "by engine", engine=by_processes)
    assert made == make(tmp_path / "alone", workers=0)


@pytest.mark.parametrize("name", ["local", "processes"])
def test_other_libraries_than_the_recipes_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: By, name: str
) -> None:
    """Workers whose resizer is not the recipe's pack nothing; the error says what differs, and where."""
    here = recipes.libraries(RECIPE)
    monkeypatch.setattr("rawpack_packer.recipe.fields.libraries", lambda *_, **__: here | {"resizer": "stone 0.1"})
    with pytest.raises(PackError, match=r"resizer opencv.*the recipe has stone 0.1") as raised:
        run(source, tmp_path / "store", by(name))
    assert not list((tmp_path / "store").glob("shard-*"))
    assert name == "local" or f"on host {os.uname().nodename}: " in str(raised.value)


class TestEngines(EngineConformance):
    """What `rawpack_packer.testing` asks of engines of others, of ours."""

    @pytest.fixture(autouse=True, params=ENGINES)
    def named(self, request: pytest.FixtureRequest, by: By) -> None:
        self._engine = by(request.param)
        self.in_this_process = request.param == "here"

    def start(self) -> AbstractContextManager[Engine]:
        return nullcontext(self._engine)


# ---------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_worker_that_is_killed_in_the_middle_of_its_part(
    source: Path, undisturbed: dict[str, bytes], tmp_path: Path, by: By, name: str
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
    run(source, tmp_path / "store", by(name), Held(100, tmp_path))
    killer.join()
    assert settled(tmp_path / "store") == undisturbed
    packers = held(tmp_path, 2)
    assert {parent for _, parent in packers} > set(killed)
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid, _ in packers if psutil.pid_exists(pid)], timeout=120)
    assert not alive


def test_an_executor_that_breaks(source: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
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
    assert settled(store) == undisturbed
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done


@pytest.mark.parametrize(("name", "how"), [("dask", signal.SIGINT), ("ray", signal.SIGKILL)])
def test_a_run_that_ends_leaves_no_work_on_the_cluster(
    request: pytest.FixtureRequest, source: Path, undisturbed: dict[str, bytes], tmp_path: Path,
    by: By, name: str, how: signal.Signals,
) -> None:  # fmt: skip
    """The run is killed, or interrupted as by Ctrl-C, while a worker sits at one sample. The same command goes on
    beside it; the worker of the run that is gone ends without a trace, and finished parts are not done again."""
    store, folder = tmp_path / "store", tmp_path / "notes"
    folder.mkdir()
    held_command = [sys.executable, Path(__file__).parents[1] / "support" / "held.py", 100, folder]
    where = ("--engine", name, "--address", request.getfixturevalue(name), "--engine-timeout", 120)
    args = ("pack", *where, "--max-rejects", 20, *SMALL, source, store)
    with process([*held_command, *args], env=cluster_environment()) as first:
        ((packer, _),) = held(folder)
        first.send_signal(how)
        if how == signal.SIGINT:
            let_go(folder)
        _, err = first.communicate(timeout=120)
    assert first.returncode == (130 if how == signal.SIGINT else -how), err
    assert "Traceback" not in err
    done = finished_shards(store) if how == signal.SIGINT else {}
    run(source, store, by(name))
    _, alive = psutil.wait_procs([psutil.Process(packer)] if psutil.pid_exists(packer) else [], timeout=100)
    assert not alive
    assert settled(store) == undisturbed
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done


def test_a_part_that_is_begun_after_its_run_is_refused(source: Path, tmp_path: Path) -> None:
    """What a cluster's queue still holds of a run that has ended, or was killed and taken up by another, is given back
    at once: nobody waits for a network's file system to show a run that is over."""
    orders: list[bytes] = []

    class Keeping:
        def submit(self, function: Callable[[bytes], Any], order: bytes) -> Any:
            orders.append(order)
            raise RuntimeError("shut down")

    store = tmp_path / "store"
    for killed in (False, True):
        if killed:
            lock.begin_token(store)
        with pytest.raises(PackError, match="takes no more parts"):
            run(source, store, ExecutorEngine(Keeping(), slots=2))
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    outcomes = [remote_worker.run_remote(order) for order in orders]
    assert [outcome.error for outcome in outcomes] == [f"the run that asked for this part of {store} has ended"] * 2
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


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
def test_two_workers_at_one_part(source: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """A worker that was taken for dead and lives writes beside the one that does its part again: the same bytes, and
    nothing half written."""

    def twice(function: Callable[[bytes], Any], task: PartTask) -> Any:
        with ThreadPoolExecutor(2) as both:
            outcomes = list(both.map(function, [remote_worker.packed(task)] * 2))
        assert [outcome.error for outcome in outcomes] == [None, None]
        return outcomes[0]

    run(source, tmp_path / "store", ExecutorEngine(Calls(twice), slots=2))
    assert settled(tmp_path / "store") == undisturbed


KILLED_WORKER = type("KilledWorker", (Exception,), {"allowed_failures": 3})
"""What Dask raises when it has given a task to this many workers, and to one more."""


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize(
    ("died", "deaths"), [(UncompletedJobError("it was ended"), [1] * 4), (KILLED_WORKER(), [4, 4])]
)
def test_a_part_that_kills_every_worker_is_named(
    source: Path, undisturbed: dict[str, bytes], tmp_path: Path, died: Exception, deaths: list[int]
) -> None:
    """Three workers or more die of one part, and then those that have only this: all others are packed, the error names
    this one and its samples, none of which is rejected, however many may be, and the next run packs only that."""
    began: list[int] = []

    def deadly(function: Callable[[bytes], Any], task: PartTask) -> Any:
        began.append(task.number)
        if task.number == 1:
            raise died
        return once(function, task)

    store, keys = tmp_path / "store", [open_source(source).key(i) for i in (64, 127)]
    with pytest.raises(PackError) as raised:
        run(source, store, ExecutorEngine(Calls(deadly), slots=2), max_rejects=100)
    words = f"part 1 (64 samples, {keys[0]!r} to {keys[1]!r}) has killed {sum(deaths)}, the last one alone"
    assert words in str(raised.value)
    assert Counter(began) == {0: 1, 1: len(deaths), 2: 1, 3: 1}
    done = finished_shards(store)
    assert len(done) == 3
    run(source, store, LocalEngine(1))
    assert settled(store) == undisturbed
    assert {shard: state for shard, state in states_of(store).items() if shard in done} == done


@pytest.mark.usefixtures("hurry")
def test_a_cluster_on_which_everything_dies(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When part after part kills its workers, the run ends with what they died of, and tries no more."""
    monkeypatch.setattr(executor, "_DEADLY_PARTS", 1)
    began: set[int] = set()

    def deadly(function: Callable[[bytes], Any], task: PartTask) -> Any:
        began.add(task.number)
        raise UncompletedJobError("the job was ended")

    with pytest.raises(PackError, match=r"workers keep dying.*the job was ended"):
        run(source, tmp_path / "store", ExecutorEngine(Calls(deadly), slots=1))
    assert len(began) < 4


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize(
    ("entry", "folder", "words"),
    [
        ("destination", "none", "none is not here: every machine must see the destination at the same path"),
        ("root", "none", "none is not here: every machine must see the source at the same path"),
        ("destination", "own disk", "own disk is another folder here than where the job runs"),
    ],
)
def test_a_machine_that_does_not_see_the_folders(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, folder: str, words: str
) -> None:
    """A worker whose machine lacks the source or the destination, or has one of its own there: its host and the path
    are named before anything is written."""
    monkeypatch.setattr("rawpack_packer.destination.lock._SEEN_WITHIN_S", 0.1)
    own = tmp_path / "own disk"
    own.mkdir()

    def elsewhere(function: Callable[[bytes], Any], task: PartTask) -> Any:
        return once(function, replace(task, **{entry: str(tmp_path / folder)}))  # type: ignore[arg-type]

    with pytest.raises(PackError, match=f"on host {os.uname().nodename}: {tmp_path}/{words}"):
        run(source, tmp_path / "store", ExecutorEngine(Calls(elsewhere), slots=2))
    assert not list(own.iterdir())
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("hurry")
def test_files_that_are_seen_late(
    source: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker has written may be seen only after a while, as on NFS: the run waits, and not for ever."""
    seen, looked, engine = executor.read_record, Counter[int](), ExecutorEngine(Calls(once), slots=2)

    def late(destination: Path, number: int) -> Any:
        looked[number] += 1
        return seen(destination, number) if looked[number] > 3 else None

    monkeypatch.setattr(executor, "read_record", late)
    run(source, tmp_path / "store", engine)
    assert settled(tmp_path / "store") == undisturbed
    monkeypatch.setattr(executor, "read_record", lambda *_: None)
    monkeypatch.setattr(executor, "_SEEN_WITHIN_S", 0.2)
    with pytest.raises(PackError, match=f"host {os.uname().nodename} has packed part .* not seen"):
        run(source, tmp_path / "never", engine)


def test_files_that_are_removed_while_they_are_open(
    source: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert settled(tmp_path / "store") == undisturbed
    assert not work.exists()


@pytest.mark.usefixtures("hurry")
def test_an_executor_without_workers(source: Path, tmp_path: Path) -> None:
    """Nothing is waited for without an end: the user is told soon what is wrong, and the error says it. One part is
    sent to find that out, and no more."""
    sent: list[bytes] = []
    said: list[str] = []

    class Nothing:
        num_workers = 0

        def submit(self, function: Any, order: bytes, /) -> Any:
            sent.append(order)
            return Future[Any]()

    class Listening(NoProgress):
        def waits(self, why: str) -> None:
            said.append(why)

    with pytest.raises(PackError, match=r"no worker has taken a part for 0\.3 s: nobody has no workers"):
        run(source, tmp_path / "store", ExecutorEngine(Nothing(), timeout=0.3, name="nobody"), progress=Listening())
    assert said == ["nobody has no workers; waiting up to 0.3 s for a worker to take a part"]
    assert len(sent) == 1


def test_a_dask_worker_without_rawpack(source: Path, tmp_path: Path) -> None:
    """One of two workers has no rawpack: the command ends in one line that names its host, and what it lacks; the
    worker lives on, for whoever else uses the cluster."""
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
    words = rf"on host {os.uname().nodename}: .*rawpack_packer.*"
    assert re.fullmatch(
        rf"rawpack: the Dask cluster at {address} has a worker that cannot pack, .*: {words}\n", ran.err
    )
    assert ran.code == 1


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "dask"], "--engine dask needs --address: tcp://host:8786"),
        (["--address", "tcp://127.0.0.1:8786"], "--address applies to a cluster"),
        (["--engine", "dask", "--address", "auto"], "'auto' is not the address of a Dask scheduler"),
        (["--engine", "ray", "--address", "tcp://host:1"], "'tcp://host:1' is not the address of a Ray cluster"),
        (["--engine", "ray", "--address", "host:65536"], "'host:65536' is not the address of a Ray cluster"),
        (["--engine", "dask", "--address", "x", "--workers", "3"], "--workers applies to --engine local only"),
    ],
)
def test_engines_that_are_asked_for_wrongly(source: Path, tmp_path: Path, options: list[str], words: str) -> None:
    """One line with the cure, exit code 2, nothing written."""
    ran = run_here("pack", *options, source, tmp_path / "store")
    assert (ran.code, words in ran.err, ran.err.count("\n")) == (2, True, 1), ran.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "library", "scheme", "port", "why"),
    [
        ("dask", "distributed", "tcp://", 0, "not within 0.5 s"),
        ("ray", "ray", "", 0, "not within 0.5 s"),
        ("dask", "distributed", "tcp://", 9, "Connection refused"),
    ],
)
def test_what_answers_is_no_cluster(
    source: Path, tmp_path: Path, name: str, library: str, scheme: str, port: int, why: str
) -> None:
    """Where nothing listens, or what takes connections and says nothing, one line names the address when the time is
    up: no log and no traceback of the cluster's library, exit code 1."""
    pytest.importorskip(library, reason=f"no {name}: pip install 'rawpack[{name}]'")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{port or silent.getsockname()[1]}"
        by = ("--engine", name, "--address", address, "--engine-timeout", 0.5)
        ran = run_command("pack", *by, source, tmp_path / "store")
    what = {"dask": "Dask scheduler", "ray": "Ray cluster"}[name]
    assert (ran.code, ran.err) == (1, f"rawpack: no {what} answers at {address}: {why}\n")
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
