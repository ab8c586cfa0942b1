"""Messages between processes: whole whatever their size, and with no end of patience for an end that takes its time."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rawpack.system.channel import Channel, pair

LARGE = 9_000_001
"""Bytes: many times what the system keeps for a socket."""


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two connected ends."""
    ours, theirs = pair()
    with ours.socket, theirs.socket:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 1, 300_000, LARGE])
def test_messages_of_any_size_arrive(ends: tuple[Channel, Channel], size: int) -> None:
    """Also with descriptors, of which a message of no bytes has none."""
    ours, theirs = ends
    sent, found, pipe = random.Random(size).randbytes(size), list[Any](), os.pipe()
    for descriptors in ((), pipe[::-1] if size else ()):
        thread = threading.Thread(target=lambda: found.append(theirs.receive()), daemon=True)
        thread.start()
        ours.send(sent, descriptors)
        thread.join(120)
    (first, nothing), (second, opened) = found
    assert (first, second, nothing, len(opened)) == (sent, sent, [], 2 if size else 0)
    if opened:
        os.write(opened[0], b"through the pipe")
        assert os.read(opened[1], 100) == b"through the pipe"
    for descriptor in (*pipe, *opened):
        os.close(descriptor)


def test_a_slow_end_is_waited_for_and_a_silent_one_is_not(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.socket.settimeout(1.5)
    taken = 0

    def take_slowly() -> None:
        nonlocal taken
        while taken < LARGE:
            time.sleep(0.05)
            taken += len(theirs.socket.recv(1_000_000))

    thread = threading.Thread(target=take_slowly, daemon=True)
    thread.start()
    begin = time.monotonic()
    ours.send(bytes(LARGE))
    assert time.monotonic() - begin > 1.5, "the message was to take longer than the timeout"
    thread.join(120)
    with pytest.raises(TimeoutError):
        ours.send(bytes(LARGE))


@pytest.mark.parametrize("sent", [b"", (100).to_bytes(8, "little") + b"half of a message"])
def test_an_end_that_is_gone(ends: tuple[Channel, Channel], sent: bytes) -> None:
    """Between two messages, or in the middle of one."""
    ours, theirs = ends
    theirs.socket.sendall(sent)
    theirs.close()
    assert ours.receive() is None
    with pytest.raises(BrokenPipeError):
        ours.send(b"nobody reads this")
