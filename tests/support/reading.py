"""What the tests of the reader share: ways to iterate, the truth about a store, a look at processes and descriptors."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil  # type: ignore[import-untyped]
from numpy.typing import NDArray
from running import Ran, environment, process

from rawpack import Batches, Reader, Workers, native
from rawpack.epoch.iterator import BatchIterator
from rawpack.integrations.placed import PlacedBatches
from rawpack.native import calls

WAYS: dict[str, dict[str, Any]] = {
    "here": {"workers": 0},
    "threads": {"workers": Workers(2, backend="thread")},
    "processes": {"workers": Workers(2, backend="process")},
}
"""Every way in which batches can be made -> the arguments that choose it."""


def workers_in(way: str) -> int:
    """How many workers a way of `WAYS` has."""
    asked = WAYS[way]["workers"]
    return asked.number if isinstance(asked, Workers) else asked


SOAK = bool(os.environ.get("RAWPACK_SOAK"))


class Truth:
    """What a memmap store holds, as numpy alone reads it."""

    def __init__(self, store: Path) -> None:
        shards = [np.load(path) for path in sorted(store.glob("shard-?????.npy"))]
        self.images: NDArray[np.uint8] = np.concatenate(shards)
        self.labels: NDArray[np.int64] = np.load(store / "columns-1" / "label.npy")

    def __len__(self) -> int:
        return len(self.images)

    def holds(self, batch: dict[str, Any]) -> bool:
        """Whether the rows of a batch are those that its `store_row` names, or its `index` where it has none."""
        rows = batch.get("store_row", batch["index"])
        return np.array_equal(batch["image"], self.images[rows]) and np.array_equal(batch["label"], self.labels[rows])


def epoch_of(store: Any, transform: Any, epochs: int = 1, **options: Any) -> dict[str, NDArray[Any]]:
    """All arrays of the batches of the last of so many epochs, sorted by sample; of a reader, or of stores."""
    options = {"batch_size": 20, "shuffle": True, "seed": 3, "workers": 0} | options
    batches = (store if isinstance(store, Reader) else Reader(store)).batches(transform=transform, **options)
    batches.set_epoch(0)  # on purpose: each call reads the same ones
    for _ in range(epochs - 1):
        list(batches)
    found = [
        {name: array.copy() for name, array in batch.items() if isinstance(array, np.ndarray)} for batch in batches
    ]
    whole = {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}
    order = np.argsort(whole["index"])
    return {name: array[order] for name, array in whole.items()}


def rows_of(batches: Any) -> list[int]:
    """The positions of all samples of one epoch, in their order: of a whole store, the rows."""
    return [row for batch in batches for row in batch["index"].tolist()]


def wait_until(true: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Look again and again until something is so; fail where it never comes. It looks less and less often: to look at
    all processes of a machine takes as long as the first pauses."""
    end, pause = time.monotonic() + seconds, 0.005
    while not true():
        assert time.monotonic() < end, f"in {seconds} s it did not come to pass: {what}"
        time.sleep(pause)
        pause = min(0.1, 1.25 * pause)


def placed(batches: Batches, depth: int = 0) -> PlacedBatches:
    """What `torch` and `jax` return, where nothing is copied."""
    copies = SimpleNamespace(counts={}, begin=dict, finish=dict, close=lambda: None, shares_memory=True, lists=())
    return PlacedBatches(batches._feed, copies, depth, None, "here")


# ---------------------------------------------------------------------------------------------- processes, descriptors


def pool_of(iterator: BatchIterator) -> Any:
    """An iterator's workers."""
    assert iterator._source is not None
    return iterator._source.pool


def workers_of(iterator: BatchIterator) -> list[int]:
    """The process ids of an iterator's workers."""
    return [handle.worker.process.pid for handle in pool_of(iterator).handles]


def wait_for_workers(iterator: BatchIterator) -> None:
    """Wait until each worker of an iterator has begun its first task."""
    notes = [handle.worker.heartbeat for handle in pool_of(iterator).handles]
    wait_until(lambda: all(one.read()[2] for one in notes), "all workers have begun")


def gone(pid: int) -> bool:
    """Whether a process that is no child of this one has ended. Who must reap it then is not the tests' business."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def shared_bytes() -> int:
    """Bytes of shared memory that this process has mapped: slots, notes, preloaded shards."""
    mapped = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:rawpack" in line]
    spans = [span.split("-") for span in mapped]
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def children() -> set[int]:
    """All processes below this one, the dead that nobody reaped included."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


kept: Callable[[], set[int]] = set
"""The processes that another test takes over: see `kept_children`, which sets it. Each has one descriptor here."""


@contextmanager
def nothing_left() -> Iterator[None]:
    """Within this block, processes and descriptors come and go; after it there are no more than before, but for what is
    kept."""

    def there() -> tuple[set[int], int]:
        return children() - kept(), descriptors() - len(kept())

    gc.collect()
    before, opened = there()
    yield
    gc.collect()
    wait_until(lambda: there()[0] <= before, "every worker has ended and was reaped")
    wait_until(lambda: there()[1] <= opened, "every descriptor is closed")


@contextmanager
def without_core() -> Iterator[None]:
    """Within this block, this process has no native core, and NumPy makes the pixels."""
    with patch.object(native, "library", return_value=None), patch.object(calls, "library", return_value=None):
        yield


# ---------------------------------------------------------------------------------------------- scripts


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    """A user's script in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def run_script(
    path: Path, *args: object, options: tuple[str, ...] = ("-W", "error"), folder: Path | None = None
) -> Ran:
    """Run a script to its end in a Python of its own."""
    ran = subprocess.run(
        [sys.executable, *options, str(path), *map(str, args)],
        cwd=folder or path.parent, env=environment(), timeout=200, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def running(path: Path, *args: object, **extra: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A script as a running process, which is ended with the block; `extra` goes into its environment."""
    return process([sys.executable, path, *args], cwd=path.parent, env=environment(**extra), process_group=0)


def said(process: subprocess.Popen[str], word: str) -> str:
    """Wait for a script's line that begins with `word`; the rest of that line."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    assert process.stderr is not None
    raise AssertionError(f"the script ended without saying {word}: {process.stderr.read()}")
