"""What can still be seen of files that were rejected: decoded as far as they go, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import cv2
import numpy as np

from rawpack.errors import RawpackError
from rawpack.system.child import Channel, Child, Heartbeat
from rawpack_packer.images import read_header
from rawpack_packer.sources.files import read_file

_TIMEOUT_S = 10.0
_MOST_BYTES, _MOST_PIXELS = 64 << 20, 100_000_000
_SIDE = 160


def salvage(root: str, files: Sequence[tuple[str, tuple[int, int]]]) -> list[bytes | None]:
    """A small PNG of each file below `root`; None where nothing decodes, where decoding it ends a process or takes too
    long, and where it is not there any more.

    files: (key, (bytes, mtime in ns)) as the store's provenance has them. What is no longer that very file is not read,
    nor is anything that a key or a link leads to outside of `root`.
    """
    found: list[bytes | None] = []
    child: Child | None = None
    try:
        for key, state in files:
            child = child or Child(_main, None)
            child.channel.socket.settimeout(_TIMEOUT_S)
            answer = None
            try:
                child.channel.send(cloudpickle.dumps((root, key, state)))
                answer = child.channel.receive()
            except OSError:
                pass
            if answer is None:
                child.kill()
                child = None
            found.append(None if answer is None else cloudpickle.loads(answer[0]))
    finally:
        if child is not None:
            child.kill()
    return found


def _main(channel: Channel, notes: Heartbeat, work: None, descriptors: list[int]) -> None:
    """What runs in the process: one file after another until the parent is gone."""
    cv2.setNumThreads(1)
    # Libraries complain of broken files on the terminal.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    while (received := channel.receive()) is not None:
        root, key, state = cloudpickle.loads(received[0])
        try:
            seen: Any = _decoded(root, key, state)
        except (RawpackError, OSError, ValueError, ImportError, cv2.error, MemoryError):
            seen = None
        channel.send(cloudpickle.dumps(seen))


def _decoded(root: str, key: str, state: tuple[int, int]) -> bytes | None:
    where = Path(os.path.realpath(root))
    path = Path(os.path.realpath(where / key))
    if not path.is_relative_to(where) or not 0 < state[0] <= _MOST_BYTES:
        return None
    data = read_file(str(path), key, state)
    header = read_header(data)
    if header.width * header.height > _MOST_PIXELS:
        return None
    if header.format == "jpeg":
        # Not strict: what libjpeg makes of the rest of a file that ends too early. OpenCV 5 gives nothing.
        import simplejpeg

        image: Any = simplejpeg.decode_jpeg(data, "BGR", strict=False)
    else:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        return None
    scale = min(1.0, _SIDE / max(image.shape[:2]))
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    done, small = cv2.imencode(".png", cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return small.tobytes() if done else None
