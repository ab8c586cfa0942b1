"""Training for real: a store whose samples have numbers, a journal of what was trained on, and processes that train.

A training script writes to its journal after each optimizer step. The test reads what the file says, however the script
ended.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from running import environment

import rawpack_packer


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


def run_script(script: Path, *arguments: object, ranks: int = 1, timeout: float = 240, **extra: str) -> list[str]:
    """Run a training script, as a launcher would with one process a rank, and return what each printed.

    With ranks > 1, it sets the variables that torchrun sets. Fails with all output unless every process exits with 0.
    """
    processes = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for rank in range(ranks):
        launched = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        env = environment(OMP_NUM_THREADS="1", **(launched if ranks > 1 else {}), **extra)
        env["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script), *map(str, arguments)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", env=env,
            )
        )  # fmt: skip
    printed, codes = [], []
    try:
        for process in processes:
            printed.append(process.communicate(timeout=timeout)[0])
            codes.append(process.returncode)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * ranks, "\n".join(printed)
    return printed
