"""Packs a stream and kills itself: a process of its own that forks one run per step at which a run can be killed.

    stream_child.main() with the arguments FOLDER FIRST EVERY

As `killed_child.py`, with a generator of `COUNT` samples that is made again for each run. While samples are taken, each
few of them are synced, so that kills fall between them. Prints one JSON line for each run.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from killed_child import Killer, forked
from pictures import picture

import rawpack_packer
from rawpack_packer.sources import stream

COUNT = 90


def samples(read: Path | None = None) -> Iterator[Any]:
    """read: a file that gets a byte for each sample."""
    for i in range(COUNT):
        if read is not None:
            with read.open("ab") as file:
                file.write(b".")
        yield {"image": _picture(i), "label": ("cat", "dog")[i % 2], "n": i}


@cache
def _picture(number: int) -> Any:
    return picture(60, 60, number)


def run(store: Path, killer: Killer | None) -> int:
    """Pack in a fork: see `forked`."""
    read = store.with_name(f"{store.name}.read")
    read.unlink(missing_ok=True)
    return forked(lambda: rawpack_packer.pack(samples(read), store, workers=0, shard_size=1), killer)


def main() -> None:
    folder, first, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    stream._SYNC_BYTES = 80_000
    words = folder / "last words"
    list(samples())
    gc.freeze()  # a collection would write to, and so copy, all that a fork shares with this process
    for turn, at in enumerate(range(first, 10_000, every)):
        store = folder / f"{at}"
        status = run(store, Killer(store, at, torn=bool(turn % 2), words=words))
        if status == 0:
            return
        again = run(store, None)
        read = store.with_name(f"{at}.read").stat().st_size
        print(json.dumps([at, words.read_text(), status, again, read]), flush=True)
