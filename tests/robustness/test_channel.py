"""Messages between processes: whole whatever their size, and with no end of patience for an end that takes its time."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

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


def receives(channel: Channel, found: list[object]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(channel.receive()), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [0, 1, 300_000, LARGE])
def test_messages_of_any_size_arrive(ends: tuple[Channel, Channel], size: int) -> None:
    ours, theirs = ends
    sent, found = random.Random(size).randbytes(size), list[object]()
    for _ in range(2):
        thread = receives(theirs, found)
        ours.send(sent)
        thread.join(120)
    assert found == [(sent, []), (sent, [])]


@pytest.mark.parametrize("size", [1, LARGE])
def test_descriptors_come_with_their_message(ends: tuple[Channel, Channel], size: int) -> None:
    ours, theirs = ends
    found: list[object] = []
    reading, writing = os.pipe()
    thread = receives(theirs, found)
    ours.send(b"x" * size, [writing, reading])
    thread.join(120)
    os.close(writing)
    os.close(reading)
    ((message, descriptors),) = found  # type: ignore[misc]
    assert message == b"x" * size
    os.write(descriptors[0], b"through the pipe")
    assert os.read(descriptors[1], 100) == b"through the pipe"
    for descriptor in descriptors:
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


def test_an_end_that_is_gone(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(BrokenPipeError):
        ours.send(b"nobody reads this")
    assert ours.receive() is None


def test_an_end_that_goes_in_the_middle_of_a_message(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    theirs.socket.sendall((100).to_bytes(8, "little") + b"half of it")
    theirs.close()
    assert ours.receive() is None
