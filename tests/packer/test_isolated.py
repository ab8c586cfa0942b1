"""Calls in a child process: what a function returns comes back, and nothing that it does ends this process."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import psutil
import pytest

from rawpack.errors import PackError
from rawpack_packer.isolated import ChildDiedError, IsolatedCalls

SOON_S, NEVER_S = 0.2, 120.0
pytestmark = pytest.mark.own_processes


def test_calls_are_answered_by_one_process_until_it_is_closed() -> None:
    """Another one than this, which later calls find as earlier ones left it. What a function raises is raised here,
    with the traceback of the child as its cause; a crash is reported with its status, as where memory that is not there
    was read. After both, the next call is made in a new process."""
    with IsolatedCalls(NEVER_S, "it") as calls:
        assert not calls.is_running
        first = calls.call(os.getpid)
        assert calls.call(os.getpid) == first != os.getpid()
        with pytest.raises(ZeroDivisionError) as raised:
            calls.call(divmod, 1, 0)
        assert "Traceback" in str(raised.value.__cause__)
        assert calls.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ChildDiedError, match=f"exit status -{int(signal.SIGSEGV)}"):
            calls.call(ctypes.string_at, 0)
        last = calls.call(os.getpid)
        assert calls.is_running
    assert not psutil.pid_exists(first)
    assert not psutil.pid_exists(last)


@pytest.mark.parametrize(("once", "twice"), [(signal.SIGKILL, signal.SIGTERM), (signal.SIGTERM, signal.SIGKILL)])
def test_a_process_that_is_killed_says_nothing_of_what_it_reads(tmp_path: Path, once: int, twice: int) -> None:
    """The call is made once more; two kills are an error of the machine, which names what is read."""

    def end(number: int, noted: Path, most: int) -> str:
        """End this process by a signal, that many times. It stands here because the process does not load this file."""
        with noted.open("a") as file:
            file.write("x")
        if len(noted.read_text()) <= most:
            os.kill(os.getpid(), number)
        return "done"

    with IsolatedCalls(NEVER_S, "some file") as calls:
        assert calls.call(end, once, tmp_path / "once", 1) == "done"
        name = signal.Signals(twice).name
        with pytest.raises(PackError, match=rf"reads some file died twice, now by {name}: .* short of memory"):
            calls.call(end, twice, tmp_path / "twice", 2)


def test_a_function_that_never_returns_is_ended() -> None:
    """After the time that a call may take, with its process."""
    with IsolatedCalls(SOON_S, "it") as calls:
        with pytest.raises(ChildDiedError, match=r"no answer within 0\.2 s"):
            calls.call(signal.pause)
        assert not calls.is_running
