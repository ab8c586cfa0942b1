"""Packs and kills itself: a process of its own that forks one packing run per step at which a run can be killed.

    python killed_child.py SOURCE FOLDER RECIPE FIRST EVERY

A step is anything that changes files: a file opened for writing, a folder made, a rename, a removal, an fsync. For step
k = FIRST, FIRST + EVERY, ... a run into FOLDER/k kills itself right before its k-th step. Every second run is torn as
well: what it has written since its last fsync loses its second half, as in a power cut. Then another run goes on. Ends
with the first run that has fewer steps than k. RECIPE is JSON, the arguments of `make_recipe`. Prints one JSON line for
each run: its number, the step, and which finished parts were done again.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from folders import finished_shards, states_of

from rawpack_packer import recipe as recipes
from rawpack_packer.destination import files
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import open_source, registry

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
FOLDERS = {"os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}
"""Which argument is the descriptor of the folder that the path is relative to, or -1."""


class Killer:
    """Counts the steps of this process inside one folder, and kills it at one of them."""

    def __init__(self, folder: Path, at: int, torn: bool, words: Path) -> None:
        self._folder, self._left, self._torn, self._words = folder, at, torn, words
        self._unsynced: set[Path] = set()

    def install(self) -> None:
        sys.addaudithook(self._hear)
        os.fsync = self._fsync  # type: ignore[assignment]
        opened = os.open

        def open_below(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            # The event of this call has no descriptor.
            if dir_fd is not None:
                self._hear("open", (_below(path, dir_fd), None, flags))
            return opened(path, flags, mode, dir_fd=dir_fd)

        os.open = open_below
        # What survives is decided here, not by the disk, which need not be waited for.
        files._sync_file_system = lambda path: True

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" and event not in CHANGES:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
            return
        if not isinstance(args[0], str | bytes | os.PathLike):
            return
        path = _below(args[0], args[FOLDERS[event]] if event in FOLDERS else -1)
        if not path.is_relative_to(self._folder):
            return
        self._step(f"{event} {path}")
        if event == "open":
            self._unsynced.add(path)
        elif event == "os.rename" and path in self._unsynced:
            self._unsynced.remove(path)
            self._unsynced.add(_below(args[1], args[3]))

    def _fsync(self, descriptor: Any) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._step(f"fsync {path}")
        self._unsynced.discard(path)

    def _step(self, what: str) -> None:
        self._left -= 1
        if self._left >= 0:
            return
        self._folder = Path("/nowhere")
        for path in sorted(self._unsynced) if self._torn else ():
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
        self._words.write_text(what)
        self._send()

    def _send(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class _AtOne(Killer):
    """Kills before the first step of one kind at a path that has a word in it."""

    def __init__(self, event: str, word: str, folder: Path, torn: bool) -> None:
        super().__init__(folder, 0, torn, folder.with_name(f"{folder.name} words"))
        self._event, self._word = event, word

    def _step(self, what: str) -> None:
        if what.startswith(f"{self._event} ") and self._word in what:
            super()._step(what)


def killing(event: str, word: str, folder: Path, torn: bool = False) -> str:
    """What a process of its own runs first, to be killed before an event in a folder at a path with a word in it."""
    return f"import killed_child as k\nk._AtOne({event!r}, {word!r}, k.Path({str(folder)!r}), {torn}).install()"


def _below(path: Any, folder: int) -> Path:
    """A path, which may be relative to a folder that is open."""
    name = Path(os.fsdecode(path))
    return name if folder < 0 else Path(f"/proc/self/fd/{folder}").readlink() / name


def pack(source: str, store: Path, recipe: dict[str, Any]) -> None:
    Job(open_source(source), recipes.make_recipe(**recipe), store, RunOptions(0, max_rejects=10)).run()


def forked(work: Callable[[], object], killer: Killer | None) -> int:
    """Call `work` in a fork; its exit status, negative for a signal."""
    child = os.fork()
    if not child:
        code = 3
        try:
            if killer is not None:
                killer.install()
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def turns(
    work: Callable[[Path], object], folder: Path, first: int, every: int, whole: str = ""
) -> Iterator[tuple[int, Path, str, int]]:
    """For every step: its number, the store FOLDER/number that `work` was killed in right before it, the step, and the
    exit status. whole: a store that each begins as a copy of."""
    words = folder / "last words"
    gc.freeze()  # a collection would write to, and so copy, all that a fork shares with this process
    for turn, at in enumerate(range(first, 10_000, every)):
        store = folder / f"{at}"
        if whole:
            shutil.copytree(whole, store)
        status = forked(functools.partial(work, store), Killer(store, at, torn=bool(turn % 2), words=words))
        if status == 0:
            return
        yield at, store, words.read_text(), status


def main() -> None:
    source, folder, recipe = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    vars(registry)["entry_points"] = functools.cache(entry_points)
    pack(source, folder / "first", recipe)  # which loads, once, all that runs need

    def work(store: Path) -> None:
        pack(source, store, recipe)

    for at, store, what, status in turns(work, folder, int(sys.argv[4]), int(sys.argv[5])):
        before = finished_shards(store)
        again = forked(functools.partial(work, store), None)
        after = states_of(store)
        redone = [name for name, state in before.items() if after.get(name, state) != state]
        print(json.dumps([at, what, status, again, redone]), flush=True)


if __name__ == "__main__":
    main()
