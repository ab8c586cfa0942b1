"""Workers that a template forks: they are what plain children are, and nothing is left of them, whoever is killed."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil  # type: ignore[import-untyped]
import pytest
from reading import (
    SOAK,
    Truth,
    children,
    descriptors,
    gone,
    nothing_left,
    rows_of,
    running,
    said,
    script,
    wait_until,
    workers_of,
)
from running import Packed

from rawpack import Reader, Workers
from rawpack.system import template as module
from rawpack.system.channel import Channel, Heartbeat
from rawpack.system.child import Child
from rawpack.system.pool import SupervisedPool
from rawpack.system.template import ForkedProcess, Template

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux"), pytest.mark.own_processes]

BATCH = 7
THREE: dict[str, Any] = {"workers": Workers(3, backend="process")}
# Workers get the functions of this file by their code: what it imports takes them a second.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    """Samples so large that three workers have a slice of every batch."""
    return packed("memmap", "--size", 320)


def nothing() -> None:
    pass


def says(what: str = "") -> Callable[..., None]:
    """What a child runs: for each message it evaluates `what`, or else the message, and sends the value as JSON."""

    def main(channel: Channel, notes: Heartbeat, work: Any, descriptors: list[int]) -> None:
        import json
        import os
        import sys

        while (received := channel.receive()) is not None:
            notes.note(1, 0)
            channel.send(json.dumps(eval(what or bytes(received[0]), {"os": os, "sys": sys})).encode())

    return main


def ask(child: Child, what: str = "?") -> Any:
    child.channel.send(what.encode())
    received = child.channel.receive()
    assert received is not None, child.last_words()
    return json.loads(received[0])


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """One for all tests but those of the template itself."""
    one = Template(nothing)
    yield one
    one.close()


def both(whats: Iterable[str], template: Template) -> list[tuple[Any, Any]]:
    """The values of expressions in a plain child and in a forked one."""
    found = list[list[Any]]()
    for launcher in (None, template):
        child = Child(says(), None, launcher=launcher)
        assert isinstance(child.process, ForkedProcess) == (launcher is not None)
        found.append([ask(child, what) for what in whats])
        assert child.kill()
    plain, forked = found
    return list(zip(plain, forked, strict=True))


# ---------------------------------------------------------------------------------------------- like a plain child

STATUS = "('SigBlk', 'SigIgn', 'SigPnd', 'ShdPnd', 'Umask')"
OPENED = "(os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd'))"
LIKE = {
    "the current folder": "os.getcwd()",
    "the environment": "{k: v for k, v in os.environ.items()}",
    "the environment of the C library": "[os.popen('printf %s $' + k).read() for k in ('OMP_NUM_THREADS', 'TMPDIR')]",
    "sys.path": "sys.path",
    "flags": "list(sys.flags)",
    "signals": f"[line for line in open('/proc/self/status') if line.startswith({STATUS})]",
    "a group of its own": "os.getpgid(0) == os.getpid()",
    "standard input": "os.path.realpath('/proc/self/fd/0')",
    "standard output": "os.fstat(1).st_ino",
    "standard error": "os.fstat(2).st_ino",
    "descriptors": f"sorted({{path for path in {OPENED} if not path.startswith('/proc')}})",
    "limits": "[__import__('resource').getrlimit(n) for n in range(16)]",
}
"""What is compared -> an expression that a child evaluates."""


def test_a_forked_worker_is_like_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker takes over from its parent does not depend on how it was started."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TMPDIR", "elsewhere")
    monkeypatch.chdir(tmp_path)
    template = Template(nothing)
    found = both(LIKE.values(), template)
    template.close()
    assert {what: pair for what, pair in zip(LIKE, found, strict=True) if pair[0] != pair[1]} == {}


RANDOM = (
    ("random", "random()"), ("uuid", "uuid4().hex"),
    ("numpy", "random.random()"), ("numpy", "random.default_rng().random()"),
)  # fmt: skip


def test_random_numbers_differ() -> None:
    """Workers do not share the state of random generators, although the template had it when it forked them."""

    def prepare() -> None:
        import random
        import uuid  # noqa: F401

        import numpy as np

        np.random.random()
        random.random()

    template, found = Template(prepare), list[list[Any]]()
    generators = [f"__import__('{module}').{call}" for module, call in RANDOM]
    for _ in range(3):
        child = Child(says(), None, launcher=template)
        assert isinstance(child.process, ForkedProcess)
        found.append([ask(child, one) for one in generators])
        child.kill()
    template.close()
    assert [len(set(drawn)) for drawn in zip(*found, strict=True)] == [3] * len(generators)


def test_code_of_the_user_runs_after_the_fork(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the user's is loaded by each worker, never by the template."""
    script(
        tmp_path, f"import os\nwith open({str(tmp_path / 'pids')!r}, 'a') as f: print(os.getpid(), file=f)", "mine.py"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    pids = []
    for _ in range(2):
        child = Child(says("__import__('mine') and os.getpid()"), None, launcher=template)
        pids.append(ask(child))
        assert pids[-1] == child.process.pid
        child.kill()
    assert (tmp_path / "pids").read_text().split() == [str(pid) for pid in pids]


# ---------------------------------------------------------------------------------------------- plain instead


def starts_thread_later() -> None:
    """A thread that the template learns of only when it is asked to fork."""
    import os

    real = os.getppid

    def getppid() -> int:
        import threading

        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return real()

    os.getppid = getppid


def raises() -> None:
    raise ImportError("no such library")


def dies() -> None:
    import os

    os.abort()


@pytest.mark.parametrize(("prepare", "workers"), [(starts_thread_later, 2), (raises, 2), (dies, 1)])
def test_a_template_that_cannot_fork(prepare: Callable[[], None], workers: int) -> None:
    """Where a library starts a thread, or the template does not start, workers are plain children."""
    with nothing_left():
        template = Template(prepare)
        for _ in range(workers):
            child = Child(says("os.getppid()"), None, launcher=template)
            assert not isinstance(child.process, ForkedProcess)
            assert ask(child) == os.getpid()
            child.kill()
        template.close()


def test_later_workers_are_like_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts later has the folder, environment and limits of the first, whatever its parent has by then.
    What its parent can import by then, it can import too."""
    here, template = Path.cwd(), Template(nothing)
    what = "[os.getcwd(), os.environ.get('RAWPACK_TEST'), open('/proc/self/limits').read(), sys.path]"
    first = Child(says(what), None, launcher=template)
    monkeypatch.setenv("RAWPACK_TEST", "1")
    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.chdir(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[0] - 1, limit[1]))
    try:
        later = Child(says(what), None, launcher=template)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert isinstance(first.process, ForkedProcess)
    assert isinstance(later.process, ForkedProcess)
    found = ask(later)
    assert found[:3] == ask(first)[:3]
    assert found[:2] == [str(here), None]
    assert "/nowhere" in found[3]
    assert first.kill()
    assert later.kill()
    template.close()


# ---------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize(("ends", "status"), [("os._exit(7)", 7), ("os.abort()", -6), ("sys.exit(3)", 3)])
def test_how_a_worker_ended(template: Template, ends: str, status: int) -> None:
    """Exit status or signal reach the parent of the template, and where it was that it left by an exception."""
    child = Child(says(ends), None, launcher=template)
    child.channel.send(b"?")
    assert child.channel.receive() is None
    pid = child.process.pid
    assert child.kill(grace=10)
    assert child.status() == status
    assert child.last_words().endswith("SystemExit: 3") if "sys.exit" in ends else not child.last_words()
    assert gone(pid)


def test_a_parent_that_ignores_the_deaths_of_its_children() -> None:
    """Then the system itself reaps what dies, in children too. The template's workers still end as they did."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        template = Template(nothing)
        child = Child(says("os._exit(7)"), None, launcher=template)
        assert isinstance(child.process, ForkedProcess)
        child.channel.send(b"?")
        assert child.channel.receive() is None
        assert child.kill(grace=10)
        assert child.status() == 7
        ((plain, forked),) = both([LIKE["signals"]], template)
        assert plain == forked
        template.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


def template_of(iterator: Any) -> int:
    """The process of a pool's template."""
    running = iterator._source.pool._template._running
    assert running is not None
    pid = running.child.process.pid
    assert isinstance(pid, int)
    return pid


@pytest.mark.parametrize("seed", range(1, 21) if SOAK else (1,))
def test_a_killed_template_changes_nothing(store: Path, seed: int) -> None:
    """SIGKILL to the template, which ends all workers: the epoch is what it would have been. With the first seed, one
    of two kills is found once all workers are gone, and the other as they end."""
    chance = random.Random(seed)
    reader = Reader(store)
    truth = Truth(store)
    few = 3  # so that a kill never comes when all that is left was read
    expected = rows_of(reader.batches(few, shuffle=True, seed=seed, workers=0))
    with nothing_left():
        batches = reader.batches(few, shuffle=True, seed=seed, **THREE)
        iterator, kept = iter(batches), list[dict[str, Any]]()
        kept.append(next(iterator))
        first = template_of(iterator)
        workers = workers_of(iterator)
        assert all(psutil.Process(pid).ppid() == first for pid in workers)

        def loop(iterator: Any) -> None:
            for n, batch in enumerate(iterator):
                kept.append(batch)
                if n in (1, 5):
                    os.kill(template_of(iterator), signal.SIGKILL)
                    if chance.random() < 0.5:
                        wait_until(lambda: all(map(gone, workers)), "the workers of the first template are gone")

        with pytest.warns(RuntimeWarning, match="a worker died.*replaced"):
            loop(iterator)
        assert rows_of(kept) == expected
        assert all(truth.holds(batch) for batch in kept)
        assert all(map(gone, workers))
        assert template_of(iterator) != first
        del batches, iterator


def test_a_stopped_template(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that does not answer is ended, and the epoch is whole."""
    monkeypatch.setattr(module, "_REPLY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(module, "_SIGNAL_TIMEOUT_S", 0.5)
    reader = Reader(store)
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    with nothing_left():
        batches = reader.batches(BATCH, shuffle=True, **THREE)
        iterator = iter(batches)
        kept = [next(iterator)]
        os.kill(template_of(iterator), signal.SIGSTOP)
        os.kill(workers_of(iterator)[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="a worker died.*replaced"):
            kept.extend(iterator)
        assert rows_of(kept) == expected
        del batches, iterator


def test_the_thread_that_started_the_workers_ends(store: Path) -> None:
    """Workers live on when the thread that started them has ended."""
    batches = Reader(store).batches(BATCH, **THREE)
    iterator, first = iter(batches), list[Any]()
    thread = threading.Thread(target=lambda: first.append(next(iterator)))
    thread.start()
    thread.join()
    workers = workers_of(iterator)
    assert len(rows_of([*first, *iterator])) == len(Truth(store))
    assert not any(map(gone, workers))


def test_a_worker_takes_one_descriptor_of_its_parent() -> None:
    """A pool of 32 starts where its parent may open 48 files more; with --soak, one of 128."""
    before, workers = resource.getrlimit(resource.RLIMIT_NOFILE), 128 if SOAK else 32
    opened = descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + workers + 16, before[1]))
    try:
        with nothing_left():
            pool = SupervisedPool(lambda template: Child(says("os.getpid()"), None, launcher=template), nothing)
            handles = [pool.add() for _ in range(workers)]
            assert len({ask(handle.worker) for handle in handles}) == workers
            assert descriptors() - opened <= workers + 12
            pool.close()
            del handles, pool
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def has_memory(pid: int) -> bool:
    """Whether a process can still write anywhere. One whose template died may be ending, but has no memory left."""
    try:
        return bool(Path(f"/proc/{pid}/maps").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_soak_of_a_pool() -> None:
    """Workers and templates killed at random: every job is done, by workers that are alive, and none is left."""
    chance, done = random.Random(5), 0
    gc.collect()
    before = children()
    pool = SupervisedPool(lambda template: Child(says("os.getpid()"), None, launcher=template), nothing)
    for _ in range(4):
        pool.add()
    for turn in range(600 if SOAK else 40):
        handle = chance.choice(pool.handles)
        if chance.random() < 0.3:
            os.kill(handle.worker.process.pid, chance.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
        if chance.random() < 0.05 and pool._template is not None and pool._template._running is not None:
            os.kill(pool._template._running.child.process.pid, signal.SIGKILL)
        pool.give(handle, turn, turn, b"?")
        while handle.jobs:
            for one, message in pool.receive():
                if message is not None:
                    one.jobs.clear()
                    continue
                pid = one.worker.process.pid
                death = pool.bury(one, died=True)
                assert death.gone
                assert not has_memory(pid)
                pool.revive(one)
                for job in death.jobs:
                    pool.give(one, job, job, b"?")
        done += 1
    pool.close()
    wait_until(lambda: children() <= before, "all have ended")


ENDLESS = """
import time
from rawpack.system.child import Child

def main(channel, notes, work, descriptors):
    import time
    notes.note(1, 0)
    while True:
        time.sleep(1)

child = Child(main, None)
while not child.heartbeat.read()[2]:
    time.sleep(0.01)
print("child", child.process.pid, flush=True)
time.sleep(600)
"""


def test_a_plain_child_ends_with_its_parent(tmp_path: Path) -> None:
    """After SIGKILL of its parent, also a child that no template forked, in the middle of a task that never ends."""
    with running(script(tmp_path, ENDLESS)) as parent:
        pid = int(said(parent, "child"))
        parent.kill()
        parent.wait()
        try:
            wait_until(lambda: gone(pid), "the child has ended")
        finally:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
