"""A source that makes trouble at one of its samples, in the process that reads it: a full disk, a lost permission."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from rawpack_packer.job import commit
from rawpack_packer.sources import Table, open_source

Trouble = Callable[[int], object]
"""Told the number of each sample in the source right before it is read."""


class TroubledImages:
    """A column of images, and trouble before some of them."""

    def __init__(self, images: Any, numbers: Any, trouble: Trouble) -> None:
        self._images, self._numbers, self._trouble = images, numbers, trouble

    def __len__(self) -> int:
        return len(self._numbers)

    def value(self, i: int, /) -> Any:
        self._trouble(int(self._numbers[i]))
        return self._images.value(i)

    def key(self, i: int) -> str:
        key: str = self._images.key(i)
        return key

    def pick(self, rows: Any, /) -> TroubledImages:
        return TroubledImages(self._images.pick(rows), self._numbers[rows], self._trouble)


def troubled(source: Table, trouble: Trouble) -> Table:
    """A source with trouble in it."""
    images = TroubledImages(source.rows.images, np.arange(len(source)), trouble)
    return source.but(rows=replace(source.rows, images=images))


def opening(trouble: Trouble) -> Any:
    """While it is entered, the command opens its source with this trouble in it."""
    return mock.patch(
        "rawpack_packer.job.opening.open_source", lambda path, *_, **__: troubled(open_source(path), trouble)
    )


# ---------------------------------------------------------------------------------------------- troubles


class At:
    """Do something at one sample."""

    def __init__(self, at: int, what: Callable[..., object], *args: Any) -> None:
        self._at, self._what, self._args = at, what, args

    def __call__(self, number: int) -> None:
        if number == self._at:
            self._what(*self._args)


def fill(path: str) -> None:
    """Write until the disk is full."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def die(signal_number: int = signal.SIGSEGV) -> None:
    """End this process as a crashing decoder does."""
    os.kill(os.getpid(), signal_number)
    hang()


def hang() -> None:
    """Do nothing for ever, as a read from a dead mount does."""
    threading.Event().wait()


def shrink_memory(spare: int) -> None:
    """From now on this process gets so many bytes more, and no more: for images, as the decoders are loaded already."""
    from PIL import Image

    Image.init()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))


def append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def touch(path: str) -> None:
    os.utime(path, ns=(10**18, 10**18))


def filling(at: str, filler: str) -> Any:
    """While it is entered, the disk that `filler` lies on is filled when sample `at` is read, or when the store is
    committed ("commit")."""
    if at != "commit":
        return opening(At(int(at), fill, filler))

    def filled(*args: Any) -> Any:
        fill(filler)
        return commit.commit_store(*args)

    return mock.patch("rawpack_packer.job.job.commit_store", filled)
