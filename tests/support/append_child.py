"""Appends and kills itself: a process of its own that forks one run per step at which a run can be killed.

    python append_child.py SOURCE STORE FOLDER FIRST EVERY

For step k = FIRST, FIRST + EVERY, ... an append of SOURCE to a copy of STORE, FOLDER/k, kills itself right before its
k-th step, as `killed_child.py` does; every second run is torn as well. What the store then holds for a reader is looked
at, and another run goes on. Ends with the first run that has fewer steps than k. Prints one JSON line for each run.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from pathlib import Path

from killed_child import Killer, forked

from rawpack import Reader
from rawpack_packer.job.append import Append, open_store
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import open_source


def main() -> None:
    source, whole, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    first, every = int(sys.argv[4]), int(sys.argv[5])
    words = folder / "last words"
    # Once in this process: what that imports and opens, no fork has to.
    table, how = open_source(source), RunOptions(0, max_rejects=10)
    Append(table, open_store(shutil.copytree(whole, folder / "warm"), [source]), how).run()
    gc.freeze()  # as in `killed_child.py`

    def run(store: Path, killer: Killer | None) -> int:
        """Append in a fork: see `forked`."""
        return forked(lambda: Append(table, open_store(store, [source]), how).run(), killer)

    for turn, at in enumerate(range(first, 10_000, every)):
        store = folder / f"{at}"
        shutil.copytree(whole, store)
        status = run(store, Killer(store, at, torn=bool(turn % 2), words=words))
        if status == 0:
            return
        reader = Reader(store)
        keys = [key for batch in reader.batches(64, fields=["key", "image"], workers=0) for key in batch["key"]]
        again = run(store, None)
        print(json.dumps([at, words.read_text(), status, keys, again]), flush=True)


if __name__ == "__main__":
    main()
