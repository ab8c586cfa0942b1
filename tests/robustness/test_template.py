"""Workers that a template forks: they are what plain children are, and nothing is left of them, whoever is killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil  # type: ignore[import-untyped]
import pytest
from reading import (
    Truth,
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
    template, found = Template(nothing), list[dict[str, Any]]()
    for launcher in (None, template):
        child = Child(says(), None, launcher=launcher)
        assert isinstance(child.process, ForkedProcess) == (launcher is not None)
        found.append({name: ask(child, what) for name, what in LIKE.items()})
        assert child.kill()
    template.close()
    assert found[0] == found[1]


def test_random_numbers_differ() -> None:
    """Workers do not share the state of random generators, although the template had it when it forked them."""

    def prepare() -> None:
        import random

        import numpy as np

        np.random.random()
        random.random()

    template, found = Template(prepare), list[list[Any]]()
    generators = ["__import__('random').random()", "__import__('numpy').random.random()"]
    for _ in range(3):
        child = Child(says(), None, launcher=template)
        assert isinstance(child.process, ForkedProcess)
        found.append([ask(child, one) for one in generators])
        child.kill()
    template.close()
    assert [len(set(drawn)) for drawn in zip(*found, strict=True)] == [3, 3]


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


def dies() -> None:
    import os

    os.abort()


@pytest.mark.parametrize(("prepare", "workers"), [(starts_thread_later, 2), (dies, 1)])
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


def kill_template(iterator: Any, waits: bool) -> None:
    """SIGKILL to the template of an iterator's workers. waits: until they have ended with it."""
    workers = workers_of(iterator)
    (template,) = {psutil.Process(pid).ppid() for pid in workers}
    assert template != os.getpid()
    os.kill(template, signal.SIGKILL)
    if waits:
        wait_until(lambda: all(map(gone, workers)), "the workers of the first template are gone")


def test_a_killed_template_changes_nothing(store: Path) -> None:
    """SIGKILL to the template, which ends all workers: the epoch is what it would have been, where the kill is found
    once all workers are gone, and where it is found as they end."""
    reader, truth = Reader(store), Truth(store)
    few = 3  # so that a kill never comes when all that is left was read
    expected = rows_of(reader.batches(few, shuffle=True, workers=0))
    with nothing_left():
        iterator, kept = iter(reader.batches(few, shuffle=True, **THREE)), list[dict[str, Any]]()

        def loop(iterator: Any) -> None:
            for n, batch in enumerate(iterator):
                kept.append(batch)
                if n in (2, 6):
                    kill_template(iterator, n == 2)

        with pytest.warns(RuntimeWarning, match="a worker died.*replaced"):
            loop(iterator)
        assert rows_of(kept) == expected
        assert all(truth.holds(batch) for batch in kept)
        del iterator


def test_a_stopped_template(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that does not answer is ended, and the epoch is whole."""
    monkeypatch.setattr("rawpack.system.template._REPLY_TIMEOUT_S", 0.5)
    monkeypatch.setattr("rawpack.system.template._SIGNAL_TIMEOUT_S", 0.5)
    reader = Reader(store)
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    with nothing_left():
        iterator = iter(reader.batches(BATCH, shuffle=True, **THREE))
        kept, worker = [next(iterator)], workers_of(iterator)[0]
        stopped = psutil.Process(worker).ppid()
        os.kill(stopped, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="a worker died.*replaced"):
            kept.extend(iterator)
        assert rows_of(kept) == expected
        assert gone(stopped)
        del iterator


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
        template.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


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
    """A pool of 32 starts where its parent may open 48 files more."""
    before, workers = resource.getrlimit(resource.RLIMIT_NOFILE), 32
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
