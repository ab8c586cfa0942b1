"""Decodes as much of rejected files as possible, in a separate process."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import RawpackError
from rawpack.system.channel import Channel
from rawpack.system.child import Child
from rawpack.system.heartbeat import Heartbeat
from rawpack_packer.images import read_header
from rawpack_packer.inspect.contact_sheet import thumbnail
from rawpack_packer.sources.files import read_file

_TIMEOUT_S = 10.0
_MOST_BYTES, _MOST_PIXELS = 64 << 20, 100_000_000
_SIDE = 160


def salvage(root: str, files: Sequence[tuple[str, tuple[int, int]]]) -> list[NDArray[np.uint8] | None]:
    """A small picture (H, W, 3) of each file below `root`. None if nothing decodes, if decoding kills the process or
    takes too long, or if the file is gone.

    files: (key, (bytes, mtime in ns)), as in the store's provenance. A file that has changed since is not read, nor is
    anything outside of `root` that a key or a link leads to.
    """
    found: list[NDArray[np.uint8] | None] = []
    child: Child | None = None
    try:
        for key, state in files:
            child = child or Child(_main, None)
            answer = None
            with contextlib.suppress(OSError):  # it is dead, which `receive` will see
                child.channel.send(cloudpickle.dumps((root, key, state)))
            with contextlib.suppress(subprocess.TimeoutExpired):
                answer = child.receive(_TIMEOUT_S)
            if answer is None:
                child.kill()
                child = None
            found.append(None if answer is None else cloudpickle.loads(answer))
    finally:
        if child is not None:
            child.kill()
    return found


def _main(channel: Channel, notes: Heartbeat, work: None, descriptors: list[int]) -> None:
    """Runs in the child process: one file after another until the parent is gone."""
    cv2.setNumThreads(1)
    # Libraries complain about broken files on the terminal.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while (received := channel.receive()) is not None:
        root, key, state = cloudpickle.loads(received[0])
        try:
            seen: Any = _decoded(root, key, state)
        except (RawpackError, OSError, ValueError, cv2.error, MemoryError):
            seen = None
        channel.send(cloudpickle.dumps(seen))


def _decoded(root: str, key: str, state: tuple[int, int]) -> NDArray[np.uint8] | None:
    where = Path(os.path.realpath(root))
    path = Path(os.path.realpath(where / key))
    if not path.is_relative_to(where) or not 0 < state[0] <= _MOST_BYTES:
        return None
    data = read_file(str(path), key, state)
    header = read_header(data)
    if header.width * header.height > _MOST_PIXELS:
        return None
    if header.format == "jpeg":
        # Not strict, so that a file that ends too early gives its first rows. OpenCV 5 gives nothing.
        import simplejpeg

        image: Any = simplejpeg.decode_jpeg(data, "BGR", strict=False)
    else:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        return None
    rgb = cv2.cvtColor(np.asarray(image, np.uint8), cv2.COLOR_BGR2RGB)
    return thumbnail(np.asarray(rgb, np.uint8), _SIDE)
