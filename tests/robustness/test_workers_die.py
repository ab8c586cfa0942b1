"""Workers that die, hang or raise, main processes that end: the epoch stays what it is, or an error says why not."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from forked import Forks
from reading import (
    SOAK,
    WAYS,
    Truth,
    gone,
    nothing_left,
    rows_of,
    run_script,
    running,
    script,
    wait_for_workers,
    wait_until,
    workers_of,
)
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError, WorkerError, Workers
from rawpack.choose import layout
from rawpack.system.channel import Channel, Heartbeat
from rawpack.system.pool import SupervisedPool
from rawpack.transforms import BatchLambda
from rawpack.workers import worker as process
from rawpack.workers.fill import WorkSpec

BATCH = 7
PROCESSES = WAYS["processes"]
# Workers get the functions of this file by their code: what it imports takes them a second.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    """Samples large enough that both workers have a slice of every batch."""
    return packed("memmap", "--size", 160)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any, Any], None]], None]:
    """`poison(before)`: worker processes call `before(rows, out)` ahead of every reading of images."""

    def start(before: Callable[[Any, Any], None]) -> None:
        real = process.main

        def main(channel: Channel, notes: Heartbeat, spec: WorkSpec, descriptors: list[int]) -> None:
            from rawpack.store.stores import Stores

            read = Stores.read_into

            def read_into(self: Stores, name: str, rows: Any, out: Any) -> None:
                if name == "image":
                    before(rows, out)
                read(self, name, rows, out)

            Stores.read_into = read_into  # type: ignore[method-assign]
            real(channel, notes, spec, descriptors)

        # Nested functions travel to the workers by their code.
        monkeypatch.setattr(process, "main", main)

    return start


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template forks a single worker too, as it does several: to start each as a plain child takes ten times as
    long."""
    init = SupervisedPool.__init__

    def with_template(pool: Any, start: Any, prepare: Any = None) -> None:
        init(pool, start, prepare or process.preparation(pool._spec, pool._filler))

    monkeypatch.setattr(SupervisedPool, "__init__", with_template)


# ---------------------------------------------------------------------------------------------- death


@pytest.mark.own_processes
@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
@pytest.mark.parametrize("together", [False, True])
def test_killed_workers_change_nothing(
    store: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch, together: bool, seed: int
) -> None:
    """However many workers are killed at random moments, also while several batches are in a slot, the epoch is what it
    would have been, and so is the next; one warning tells."""
    if together:
        monkeypatch.setattr(layout, "TOGETHER_BYTES", 4 * BATCH * (160 * 160 * 3 + 16))
    chance = random.Random(seed)
    alone = Reader(store).batches(3, shuffle=True, workers=0)
    with nothing_left(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        batches = Reader(store).batches(3, shuffle=True, **PROCESSES)
        assert (batches._feed.making.together > 4) == together
        for _ in range(2):
            iterator, kept = iter(batches), []
            for batch in iterator:
                kept.append(batch)
                if len(kept) == 1 or chance.random() < 0.2:
                    with suppress(ProcessLookupError):  # killed before, and reaped by the template
                        os.kill(chance.choice(workers_of(iterator)), signal.SIGKILL)
            assert rows_of(kept) == rows_of(alone)
            assert all(truth.holds(batch) for batch in kept)
        del batches, iterator
    # Where few slots hold all batches, nobody may be at work any more.
    assert len(caught) == 1 or (together and not caught)
    for one in caught:
        assert re.search("a worker died.*replaced", str(one.message))
        assert one.filename == __file__, "the warning points to the loop"


@pytest.mark.usefixtures("only_the_stopped")
@pytest.mark.parametrize(
    ("ends", "told"),
    [("SIGSEGV", r"a worker died \(exit status -11\)"), ("SIGSTOP", r"a worker made no progress for 0\.3 s.*")],
)
def test_a_sample_that_ends_three_workers(store: Path, poison: Callable[..., None], ends: str, told: str) -> None:
    """A sample that kills every worker, or on which each hangs, ends the iteration with an error that has its row and
    key. What came before is right, and the next iteration starts anew."""
    reader, victim = Reader(store), 40

    def before(rows: Any, out: Any) -> None:
        import os
        import signal

        if victim in rows:
            os.kill(os.getpid(), getattr(signal, ends))

    poison(before)
    key = re.escape(repr(reader[victim]["key"]))
    workers = replace(PROCESSES["workers"], timeout=0.3 if ends == "SIGSTOP" else None)
    seen = list[dict[str, Any]]()
    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match="a worker (died|made no progress)"),
        pytest.raises(WorkerError, match=rf"{told} 3 times at sample {victim} \({key}\)"),
    ):
        seen.extend(reader.batches(BATCH, workers=workers))
    assert rows_of(seen) == list(range(victim - victim % BATCH))
    assert rows_of(reader.select(range(victim)).batches(BATCH, workers=workers)) == list(range(victim))


def end_of(batches: Iterable[dict[str, Any]], truth: Truth) -> str:
    """The error that ends an epoch; "" where it is whole."""
    seen = list[dict[str, Any]]()

    def read() -> str:
        try:
            seen.extend(batches)
        except WorkerError as raised:
            return str(raised)
        return ""

    with pytest.warns(RuntimeWarning, match=r"a worker died \(exit status -9\)") as caught:
        error = read()
    assert len(caught) == 1
    assert all(map(truth.holds, seen))
    assert error or rows_of(seen) == list(range(len(truth)))
    return error


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("most", "told"),
    [
        (3, ""),
        (1 << 30, "worker processes cannot start here: a worker died (exit status -9) before it began"),
    ],
)
def test_workers_that_are_killed_before_they_begin(
    store: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, told: str
) -> None:
    """As on a busy machine: no sample is the cause, and the epoch is whole; where that has no end, the wait has one."""
    count, real = tmp_path / "killed", process.main
    count.touch()

    def main(channel: Channel, notes: Heartbeat, spec: WorkSpec, descriptors: list[int]) -> None:
        import os
        import signal

        if count.stat().st_size < most:
            with count.open("a") as file:
                file.write("k")
            os.kill(os.getpid(), signal.SIGKILL)
        real(channel, notes, spec, descriptors)

    monkeypatch.setattr(process, "main", main)
    monkeypatch.setattr("rawpack.system.pool._IN_VAIN_S", 0.1 if told else 120)
    error = end_of(Reader(store).batches(BATCH, workers=Workers(1, backend="process")), truth)
    assert error.startswith(told)
    assert bool(error) == bool(told)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("most", "told"), [(3, ""), (100, "4 times at different samples of a slice, the last time at sample")]
)
def test_workers_that_are_killed_at_one_sample_after_another(
    store: Path, truth: Truth, poison: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    most: int, told: str,
) -> None:  # fmt: skip
    """No sample is the cause where the next worker reads it, and nothing stays of a slice that was half written; but
    there is an end to that in a slice."""
    killed = tmp_path / "killed"
    killed.touch()
    monkeypatch.setattr("rawpack.workers.pool._MAX_SLICE_DEATHS", 4)

    def before(rows: Any, out: Any) -> None:
        import os
        import signal

        done = len(killed.read_bytes())
        if done < most and 20 + done in rows:
            killed.write_bytes(bytes(done + 1))
            out[: len(out) // 2] = 13
            os.kill(os.getpid(), signal.SIGKILL)

    poison(before)
    error = end_of(Reader(store).batches(40, workers=Workers(1, backend="process")), truth)
    assert len(killed.read_bytes()) == min(most, 4)
    assert told in error
    assert bool(error) == bool(told)


# ---------------------------------------------------------------------------------------------- hanging


@pytest.fixture
def only_the_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a busy machine keeps waiting has made progress all the same; only what is stopped has not."""
    stuck = SupervisedPool.stuck

    def of_the_stopped(pool: Any, timeout: float) -> Any:
        for handle in pool.handles:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(handle.worker.process.pid).status() == psutil.STATUS_STOPPED:
                    continue
            handle.progress = -1
        return stuck(pool, timeout)

    monkeypatch.setattr(SupervisedPool, "stuck", of_the_stopped)


@pytest.mark.usefixtures("only_the_stopped")
def test_stopped_workers_are_replaced(store: Path, truth: Truth) -> None:
    """Workers that make no progress for `timeout` seconds are killed and replaced, and the epoch is whole."""
    with nothing_left():
        batches = Reader(store).batches(BATCH, shuffle=True, workers=replace(PROCESSES["workers"], timeout=1))
        iterator = iter(batches)
        seen = [truth.holds(next(iterator))]
        wait_for_workers(iterator)
        for pid in workers_of(iterator):
            os.kill(pid, signal.SIGSTOP)
        with pytest.warns(RuntimeWarning, match="made no progress for 1 s.*replaced") as caught:
            seen += [truth.holds(batch) for batch in iterator]
        assert len(caught) == 1
        assert seen == [True] * len(batches)
        del batches, iterator


@pytest.mark.parametrize("forever", [False, True])
def test_a_thread_that_hangs(store: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch, forever: bool) -> None:
    """A worker thread that hangs, as on a network disk, is left behind, and another does its work: the epoch is whole,
    also when the first goes on and writes what it had still to write. Where every one hangs at a sample, the iteration
    ends with an error instead of waiting for ever."""
    reader = Reader(store)
    stuck, found, release, done = (threading.Event() for _ in range(4))
    read, look = reader._library.read_into, SupervisedPool.stuck

    def while_it_hangs(pool: Any, timeout: float) -> Any:
        # A thread that a busy machine keeps waiting does not hang.
        return look(pool, timeout if stuck.is_set() and not found.is_set() else 600)

    def read_into(name: str, rows: Any, out: Any) -> None:
        if 3 in rows and name == "image" and (forever or not stuck.is_set()):
            stuck.set()
            release.wait()
            out[:] = 99
            done.set()
        else:
            read(name, rows, out)

    monkeypatch.setattr(SupervisedPool, "stuck", while_it_hangs)
    monkeypatch.setattr(reader._library, "read_into", read_into)
    monkeypatch.setattr("rawpack.workers.backends._JOIN_TIMEOUT_S", 0.2)
    batches = reader.batches(BATCH, workers=replace(WAYS["threads"]["workers"], timeout=0.3))
    held = list[dict[str, Any]]()
    error = r"cannot be killed 3 times at .*\b3\b.*is the disk or network share of the store"
    ends = pytest.raises(WorkerError, match=error) if forever else nullcontext()
    with pytest.warns(RuntimeWarning, match="cannot be killed"), ends:
        held.extend(batches)
    found.set()
    if not forever:
        held.extend(batches)
    release.set()
    assert done.wait(120)
    if not forever:
        assert rows_of(held) == [*range(len(truth))] * 2
        assert all(truth.holds(batch) for batch in held)


# ---------------------------------------------------------------------------------------------- no start

FAILS: dict[str, tuple[str, str]] = {
    "an interpreter without its library": (
        "os.environ['PYTHONHOME'] = '/nowhere'",
        r"WorkerError .*exit status 1.*Fatal Python error.*No module named 'encodings'",
    ),
    "a store that is gone": ("os.rename(sys.argv[1], sys.argv[1] + '.moved')", r"DamagedStoreError .*is missing"),
    "no process left to start": (
        "def refuse(*_, **__): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "subprocess.Popen.__init__ = refuse",
        r"WorkerError .*no worker process can be started.*temporarily unavailable: a limit on processes",
    ),
}
"""What keeps worker processes from starting, as a script's line, and what the error must tell of it."""

STARTS = """
import os, subprocess, sys, warnings
from rawpack import RawpackError, Reader, Workers
warnings.simplefilter("error")
batches = Reader(sys.argv[1]).batches(6, workers=Workers(2, backend="process", timeout=600))
exec(sys.argv[2])
try:
    list(batches)
except RawpackError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("trouble", FAILS)
def test_workers_that_cannot_start(forks: Forks, store: Path, tmp_path: Path, trouble: str) -> None:
    """What keeps worker processes from starting is said in one error, with their own last words, at once: nothing is
    tried three times, warned of, or left on standard error."""
    line, message = FAILS[trouble]
    ran = forks.run(STARTS, shutil.copytree(store, tmp_path / "store"), line)
    assert (ran.code, ran.err) == (0, "")
    assert re.match(message, ran.out, re.DOTALL), ran.out


# ---------------------------------------------------------------------------------------------- errors


def test_an_error_does_not_wait_for_others(store: Path, poison: Callable[..., None]) -> None:
    """What a worker raises is raised here, with row, key and the original traceback, although another worker holds up
    the batches before it, and would for ever: no timeout ends it."""
    reader, hung, victim = Reader(store), 3, 8

    def before(rows: Any, out: Any) -> None:
        import os
        import signal

        if hung in rows:
            os.kill(os.getpid(), signal.SIGSTOP)
        if victim in rows:
            raise LookupError("the original exception")

    poison(before)
    key = re.escape(repr(reader[victim]["key"]))
    with nothing_left(), pytest.raises(WorkerError, match=rf"sample {victim} \({key}\) failed: LookupError") as caught:
        list(reader.batches(BATCH, workers=replace(PROCESSES["workers"], timeout=float("inf"))))
    assert re.search(r"Traceback.*line \d+, in before.*the original exception", str(caught.value), re.DOTALL)


SHRINK = """
import os, sys, warnings
from rawpack import RawpackError, Reader, Workers
from rawpack.choose import layout
warnings.simplefilter("ignore")
layout.TOGETHER_BYTES = 1  # batches are made one by one, not all before the shard shrinks
batches = Reader(sys.argv[1]).batches(6, workers=Workers(2, backend="process"))
for _ in range(4):
    list(batches)
try:
    for number, _ in enumerate(batches):
        if number == 1:
            os.truncate(os.path.join(sys.argv[1], "shard-00000.npy"), 4096)
except RawpackError as error:
    print(str(error).splitlines()[0])
"""


def test_a_shard_that_shrinks_while_it_is_read(forks: Forks, store: Path, tmp_path: Path) -> None:
    """A shard cut short while workers have it mapped may kill them (SIGBUS), but never the main process, where an error
    names sample and shard."""
    ran = forks.run(SHRINK, shutil.copytree(store, tmp_path / "store"))
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"sample \d+ .*shard-00000\.npy has 4096 bytes; \d+ were packed", ran.out), ran.out


# ---------------------------------------------------------------------------------------------- the main process ends

LOOP = """
import os, sys, time
from rawpack import Reader, Workers
batches = Reader(sys.argv[1]).batches(6, shuffle=True, workers=Workers(2, backend="process", timeout=600))
iterator = iter(batches)
next(iterator)
with open(sys.argv[3] + ".tmp", "w") as file:
    print(*(handle.worker.process.pid for handle in iterator._source.pool.handles), file=file)
os.rename(file.name, sys.argv[3])
if sys.argv[2] == "busy":
    while True:
        for batch in batches:
            pass
if sys.argv[2] == "waiting":
    import signal
    for handle in iterator._source.pool.handles:
        os.kill(handle.worker.process.pid, signal.SIGSTOP)
    for batch in iterator:
        pass
    time.sleep(600)
"""


def started_loop(begun: Path, state: str) -> list[int]:
    """The workers of a script that runs LOOP, and says what they are in a file."""
    wait_until(begun.exists, "it has begun to read")
    workers = [int(pid) for pid in begun.read_text().split()]
    if state == "waiting":
        stopped = psutil.STATUS_STOPPED
        wait_until(lambda: all(psutil.Process(pid).status() == stopped for pid in workers), "the workers have stopped")
    return workers


@pytest.mark.parametrize("state", ["busy", "waiting"])
def test_the_main_process_is_killed(forks: Forks, store: Path, tmp_path: Path, state: str) -> None:
    """After SIGKILL of the main process, whatever it was at, its workers, stopped ones too, and what forked them end
    by themselves, and nothing is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with forks.started(LOOP, store, state, tmp_path / "begun", TMPDIR=str(scratch)) as loop:
        workers = started_loop(tmp_path / "begun", state)
        family = {loop.pid, *workers, *(psutil.Process(pid).ppid() for pid in workers)}
        for pid in family:
            assert "/dev/shm" not in Path(f"/proc/{pid}/maps").read_text()
        loop.kill()
        assert loop.wait().code == -signal.SIGKILL
        wait_until(lambda: all(map(gone, family)), "the workers have ended")
    assert list(scratch.iterdir()) == []


def test_ctrl_c(store: Path, tmp_path: Path) -> None:
    """Ctrl-C at a terminal ends a script by KeyboardInterrupt, with one traceback, its own; workers end too."""
    with running(script(tmp_path, LOOP), store, "busy", tmp_path / "begun") as loop:
        workers = started_loop(tmp_path / "begun", "busy")
        for pid in workers:
            os.kill(pid, signal.SIGINT)
        os.killpg(loop.pid, signal.SIGINT)
        _, err = loop.communicate(timeout=120)
        assert loop.returncode == -signal.SIGINT, err
        assert err.count("Traceback") == 1, err
        assert err.strip().endswith("KeyboardInterrupt"), err
        wait_until(lambda: all(map(gone, workers)), "the workers have ended")


END = """
import sys
from rawpack import Reader, Workers
kept = []
for way in eval(sys.argv[2]):
    batches = Reader(sys.argv[1]).batches(6, **way)
    kept += [batches, list(batches), iter(batches)]
    kept.append(next(kept[-1]))
    for batch in batches:
        break
    print("done")
"""


# ---------------------------------------------------------------------------------------------- iterators


@pytest.mark.parametrize("way", WAYS)
def test_threads_share_batches(store: Path, truth: Truth, way: str) -> None:
    """Several threads on one iterator share its batches as they would a queue: each batch goes to exactly one. Each
    that calls iter() has an epoch of its own."""

    def take(iterator: Any, begin: threading.Barrier) -> list[Any]:
        begin.wait()
        return list(iterator)

    with nothing_left(), ThreadPoolExecutor(6) as pool:
        batches = Reader(store).batches(BATCH, shuffle=True, **WAYS[way])
        iterator, begin = iter(batches), threading.Barrier(6)
        epochs = [[batch for mine in pool.map(take, [iterator] * 6, [begin] * 6) for batch in mine]]
        epochs += pool.map(list, [batches] * 3)
        for epoch in epochs:
            assert sorted(rows_of(epoch)) == list(range(len(truth)))
            assert all(map(truth.holds, epoch))
        assert batches.state_dict()["epoch"] == len({str(rows_of(epoch)) for epoch in epochs}) == 4
        del batches, iterator, epochs, epoch


def leave(image: Any) -> Any:
    sys.exit("the user's function has left")


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_a_function_that_ends_its_worker(store: Path, way: str) -> None:
    """A function that calls sys.exit() ends the iteration with an error that names the sample, and shows where."""
    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match="a worker died.*replaced"),
        pytest.raises(WorkerError, match=r"a worker died .*3 times at sample \d+ ") as raised,
    ):
        list(Reader(store).batches(BATCH, transform=[leave], **WAYS[way]))
    assert "in leave" in str(raised.value)
    assert "SystemExit: the user's function has left" in str(raised.value)


@pytest.mark.parametrize(
    ("way", "what"),
    [("here", "reader"), ("threads", "iterator"), ("processes", "iterator"), ("processes", "batches")],
)
def test_a_signal_handler_closes_them(store: Path, truth: Truth, way: str, what: str) -> None:
    """A handler that runs while its thread waits for a batch closes all that there is: the batch still comes, and
    nothing after it."""
    parent = os.getpid()

    def interrupt(batch: dict[str, Any]) -> None:
        if 0 in batch["index"]:
            os.kill(parent, signal.SIGUSR1)

    with nothing_left():
        reader = Reader(store)
        batches = reader.batches(BATCH, transform=[BatchLambda(interrupt)], **WAYS[way])
        iterator = iter(batches)
        closing = {"iterator": iterator, "batches": batches, "reader": reader}[what]
        before = signal.signal(signal.SIGUSR1, lambda *_, close=closing.close: close())
        try:
            assert truth.holds(next(iterator))
        finally:
            signal.signal(signal.SIGUSR1, before)
        with pytest.raises(StopIteration if what == "iterator" else UsageError):
            next(iterator)
        del batches, iterator, closing, reader


# ---------------------------------------------------------------------------------------------- fork, pickle, scripts

FORK = """
import os, sys
from rawpack import RawpackError, Reader, Workers


def in_child():
    try:
        next(iterator)
    except RawpackError as error:
        assert "iter() again after a fork" in str(error), error
    else:
        raise AssertionError("the parent's iterator works in the child")
    batches.set_epoch(0)
    assert [b["index"].tolist() for b in batches] == expected


reader = Reader(sys.argv[1])
expected = [b["index"].tolist() for b in reader.batches(6, shuffle=True, workers=0)]
for way in eval(sys.argv[2]):
    batches = reader.batches(6, shuffle=True, **way)
    batches.set_epoch(0)
    iterator = iter(batches)
    seen = [next(iterator)["index"].tolist()]
    for end in (os._exit, sys.exit):
        child = os.fork()
        if not child:
            try:
                in_child()
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            end(0)
        assert os.waitpid(child, 0)[1] == 0
        seen.append(next(iterator)["index"].tolist())
    seen += [b["index"].tolist() for b in iterator]
    assert seen == expected
    assert len(list(batches)) == len(expected)
    print("done", flush=True)
"""


FORK_KEEPING = """
import os, sys
import numpy as np
from rawpack import Reader, Workers
from rawpack.choose import layout
layout.TOGETHER_BYTES = 1  # each batch in a slot of its own


def mapped(pid):
    spans = [line.split()[0].split("-") for line in open(f"/proc/{pid}/maps") if "memfd:rawpack" in line]
    return sum(int(end, 16) - int(start, 16) > 1 << 16 for start, end in spans)


for way in eval(sys.argv[2]):
    batches = Reader(sys.argv[1]).batches(6, shuffle=True, **way)
    done, tell = os.pipe()
    children, most = [], 0
    for _ in range(2):
        iterator = iter(batches)
        for batch in iterator:
            held = {name: array.copy() for name, array in batch.items()}
            child = os.fork()
            if not child:
                os.close(tell)
                os.read(done, 1)
                os._exit(0 if all(np.array_equal(batch[name], held[name]) for name in held) else 1)
            children.append(child)
            handles = iterator._source.pool.handles if "process" in repr(way) else []
            most = max(most, *map(mapped, [os.getpid(), *(handle.worker.process.pid for handle in handles)]), 0)
    os.close(tell)
    assert len(children) > 20
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, "the batch that the child holds has changed"
    assert most <= 6, most
    print("done", flush=True)
"""


def test_iterators_that_are_open_at_the_end(store: Path, tmp_path: Path) -> None:
    """A script may end with batches held and iterators open, silently, whoever makes its batches."""
    ran = run_script(script(tmp_path, END), store, repr(list(WAYS.values())), options=())
    assert (ran.code, ran.out, ran.err) == (0, "done\n" * 3, "")


@pytest.mark.parametrize("code", [FORK, FORK_KEEPING], ids=["iterates", "holds a batch"])
def test_a_child_by_fork(forks: Forks, store: Path, code: str) -> None:
    """After os.fork(), the child iterates on its own, is refused its parent's iterator, and may end as it likes. A
    batch that was held stays what it is in the child, although the parent lets go of it and reads on."""
    silent = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n"  # of Python, from 3.12 on
    ran = forks.run(silent + code, store, repr(list(WAYS.values())))
    assert (ran.code, ran.out, ran.err) == (0, "done\n" * 3, "")


PLAIN = """
import sys
from rawpack import Reader, Workers
batches = Reader(sys.argv[1]).batches(6, image_size=32, workers=Workers(2, backend="process"))
print(sum(len(batch["index"]) for batch in batches))
"""


def test_modules_of_the_user_shadow_nothing(store: Path, tmp_path: Path, truth: Truth) -> None:
    """A `numpy.py`, `queue.py` or `cv2.py` of the user's reaches no worker; and a script needs no `if __name__ ==
    "__main__"`: it is never run again in one."""
    # Python puts those beside a script first on the path of the script itself.
    for folder, names in {"beside": "queue cv2 simplejpeg", "current": "numpy queue cv2 socket rawpack"}.items():
        for name in names.split():
            script(tmp_path / folder, "raise RuntimeError('the wrong module was imported')\n", f"{name}.py")
    ran = run_script(script(tmp_path / "beside", PLAIN), store, folder=tmp_path / "current")
    assert (ran.code, ran.out, ran.err) == (0, f"{len(truth)}\n", "")


# ---------------------------------------------------------------------------------------------- narrow machines


MANY_SHARDS = """
import itertools, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from rawpack import Reader, Workers
ways = (0, Workers(2, backend="thread"), Workers(2, backend="process"))
for preload, workers in itertools.product((False, True), ways):
    reader = Reader(sys.argv[1], preload=preload)
    held, rows = [], 0
    batches = reader.batches(64, shuffle=True, workers=workers)
    batches.set_epoch(0)
    for batch in batches:
        assert (batch["image"] == (batch["index"] % 251)[:, None, None, None]).all()
        rows += len(batch["index"])
        held.append(batch)
    assert rows == len(reader)
print("done")
"""


def test_300_shards_under_256_descriptors(forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of more shards is read, shuffled, preloaded too, where a process may open no more than 256 files."""
    monkeypatch.setattr("rawpack_packer.recipe._MIN_PART", 2)
    images = [np.full((4, 4, 3), i % 251, np.uint8) for i in range(600)]
    rawpack_packer.pack(images, tmp_path / "store", shard_size=1)
    assert len(list(tmp_path.glob("store/shard-*"))) == 300
    ran = forks.run(MANY_SHARDS, tmp_path / "store")
    # On a slow machine the bar of preloading comes up.
    assert (ran.code, ran.out, re.sub(r".*preloading: .*|\s", "", ran.err)) == (0, "done\n", "")


NARROW = """
import ctypes, subprocess, sys
private = "mount --make-rprivate / && mount -t tmpfs none /mnt"
if ctypes.CDLL(None).unshare(0x20000) or subprocess.run(private, shell=True, capture_output=True).returncode:
    sys.exit(77)
subprocess.run(["sh", "-ec", '''
mount -t tmpfs -o size=1m,ro none /dev/shm
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/new" 2>/dev/null
''', "sh", sys.argv[1]], check=True)
"""
"""In a namespace of mounts of its own (CLONE_NEWNS)."""


def test_narrow_mounts(forks: Forks, store: Path, truth: Truth) -> None:
    """Batches are read where neither the store nor /dev/shm can be written to, and that is small."""
    ran = forks.run(NARROW + PLAIN.replace("image_size=32, ", ""), store)
    if ran.code == 77:
        pytest.skip("mounting in a namespace of one's own is not permitted here")
    assert (ran.code, ran.out, ran.err) == (0, f"{len(truth)}\n", "")
