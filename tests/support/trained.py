"""Training for real: a store whose samples have numbers, a journal of what was trained on, and processes that train.

A training script writes to its journal after each optimizer step. The test reads what the file says, however the script
ended.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from running import environment

import rawpack_packer
from rawpack import Reader


def numbered_store(where: Path, samples: int, classes: int = 4, side: int = 8) -> Path:
    """A store of small images with `number`, which is the sample's own, and `label`; the label shows in the image."""
    rng = np.random.default_rng(7)
    numbers = np.arange(samples)
    images = rng.integers(0, 60, (samples, side, side, 3), dtype=np.uint8)
    images += (numbers % classes * (190 // classes)).astype(np.uint8)[:, None, None, None]
    columns = {"image": images, "number": numbers, "label": numbers % classes}
    rawpack_packer.pack(columns, where, format="memmap", shard_size="1", workers=0)
    return where


class Journal:
    """Writes down what one process of a training run trained on."""

    def __init__(self, folder: Path | str, rank: int) -> None:
        self._path = Path(folder) / f"rank-{rank}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def trained(self, epoch: int, numbers: Iterable[int]) -> None:
        """Call once the step on these samples is done. A kill right after it loses nothing."""
        with self._path.open("a") as file:
            file.write(json.dumps({"epoch": int(epoch), "numbers": [int(number) for number in numbers]}) + "\n")


@dataclass(frozen=True)
class Step:
    """A line of a journal."""

    rank: int
    epoch: int
    numbers: tuple[int, ...]


def steps_in(folder: Path) -> list[Step]:
    """All steps of all ranks, in the order of each rank."""
    found = []
    for path in sorted(folder.glob("rank-*.jsonl")):
        rank = int(path.stem.removeprefix("rank-"))
        for line in path.read_text().splitlines():
            step = json.loads(line)
            found.append(Step(rank, step["epoch"], tuple(step["numbers"])))
    return found


def numbers_of(steps: Iterable[Step], epoch: int) -> list[int]:
    """The samples that were trained on in an epoch, ascending, with repeats."""
    return sorted(number for step in steps if step.epoch == epoch for number in step.numbers)


def order_of(store: Path, epoch: int) -> list[int]:
    """The samples of an epoch in the order in which one process alone gets them."""
    batches = Reader(store).batches(5, shuffle=True, workers=0, fields=["number"])
    batches.set_epoch(epoch)
    return [int(number) for batch in batches for number in batch["number"]]


UNTRAINED = 1.386
"""The loss of a guess among four classes."""
KILLED = -9
"""The exit code of a script that ends with SIGKILL."""
_GRACE_S = 15
"""How long the other ranks may take to end after one has failed: some wait for it."""
_PRELOADED = ["torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "rawpack"]
"""What takes 5 seconds to import."""


def run_script(
    script: Path,
    *arguments: object,
    ranks: int = 1,
    timeout: float = 240,
    code: int = 0,
    cwd: Path | None = None,
    preloaded: bool | Sequence[str] = False,
    **extra: str,
) -> list[str]:
    """Run a training script, as a launcher would with one process a rank, and return what each printed.

    With ranks > 1, it sets the variables that torchrun sets. Fails with all output unless every process exits with
    `code` within `timeout` seconds; where one fails, the others are ended.

    preloaded: the processes are forked from one that has imported torch already, and these modules.
    extra: further variables of the environment.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, f"rank-{rank}") for rank in range(ranks)]
        words = [str(script), *map(str, arguments)]
        start: Callable[..., Any] = _start
        if preloaded is not False:
            start = partial(_fork, () if preloaded is True else tuple(preloaded))
        processes = [
            start(words, _launched(rank, ranks, port) | extra, cwd, output) for rank, output in enumerate(outputs)
        ]
        try:
            codes = _wait(processes, timeout, code)
        finally:
            for process in processes:
                process.kill()
                _ = process.wait() if isinstance(process, subprocess.Popen) else process.join()
        printed = [output.read_text("utf-8", "replace") for output in outputs]
    assert codes == [code] * ranks, f"exit codes {codes}\n" + "\n".join(printed)
    return printed


def _wait(processes: list[Any], timeout: float, code: int) -> list[int | None]:
    """The exit codes of all; None for one that is still running when it should not be."""
    deadline = time.monotonic() + timeout
    while True:
        codes = [process.poll() if isinstance(process, subprocess.Popen) else process.exitcode for process in processes]
        if None not in codes or time.monotonic() > deadline:
            return codes
        if any(ended not in (None, code) for ended in codes):
            deadline = min(deadline, time.monotonic() + _GRACE_S)
        time.sleep(0.02)


def _launched(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The environment of one rank."""
    env = environment(OMP_NUM_THREADS="1")
    env["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
    if ranks > 1:
        env |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    return env


def _start(words: list[str], env: dict[str, str], cwd: Path | None, output: Path) -> Any:
    with output.open("wb") as file:
        return subprocess.Popen([sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, env=env, cwd=cwd)


def _fork(preloaded: Sequence[str], words: list[str], env: dict[str, str], cwd: Path | None, output: Path) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED, *preloaded])
    process = context.Process(target=_run_forked, args=(words, env, cwd, output))
    with mock.patch.dict(os.environ, env):  # which packages read as they are imported
        process.start()
    return process


def _run_forked(words: list[str], env: dict[str, str], cwd: Path | None, output: Path) -> None:
    """Be the process that runs a script."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or Path.cwd())
    import torch

    torch.set_num_threads(1)  # it has read OMP_NUM_THREADS already
    # As in any other process: here it is that of this one.
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
