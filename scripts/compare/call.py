"""Jobs of a run, each in a fresh process of its system's environment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring.processes import LIMIT_S, output
from systems.job import JPEG_SIDE, SIDE, Job

_HARNESS = Path(__file__).resolve().parent / "harness.py"
SIDES = {"raw": SIDE, "jpeg": JPEG_SIDE, "raw-256": JPEG_SIDE}
"""Pixels per side of what is stored; raw pixels that random crops are made of are as large as JPEG files."""


@dataclass(frozen=True)
class System:
    """One way of storing and reading."""

    name: str
    module: str
    """Its adapter in `systems`."""
    environment: str
    kinds: tuple[str, ...]
    variant: str = ""
    store: str = ""
    """The system whose store it reads, or "" if it packs its own."""
    floats: bool = False
    """Whether it delivers no bytes: it is measured only where floats are asked for."""


class Call:
    """Runs jobs under the settings of a run."""

    def __init__(self, work: Path, pythons: dict[str, Path], asked: argparse.Namespace) -> None:
        self.work, self.pythons, self.asked = work, pythons, asked

    def job(self, system: System, kind: str, action: str, images: Path, store: Path) -> Job:
        side = SIDES[kind]
        return Job(
            action, system.module, kind.partition("-")[0], str(store), str(images), system.variant, (side, side, 3),
            batch=self.asked.batch, workers=self.asked.workers, seconds=self.asked.seconds,
        )  # fmt: skip

    def __call__(
        self, environment: str, job: Job, limit: float = LIMIT_S, prefix: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The last result that the process printed. Raises CallFailedError."""
        command = [*prefix, *self.command(environment, job)]
        found: dict[str, Any] = json.loads(output(command, self.work, limit, last=True))
        return found

    def command(self, environment: str, job: Job) -> list[str]:
        return [str(self.pythons[environment]), str(_HARNESS), job.as_json()]
