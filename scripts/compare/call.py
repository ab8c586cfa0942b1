"""Fresh processes: start one, wait for it, read what it printed, and kill its remaining children."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from job import Job

HARNESS = Path(__file__).resolve().parent / "harness.py"
LIMIT_S = 300
"""A measurement that takes longer is reported as hanging."""


class CallFailedError(Exception):
    """A process failed or hung; the message is the last line of its error."""


class Described(Protocol):
    """What a job needs to know about a system."""

    @property
    def module(self) -> str: ...
    @property
    def variant(self) -> str: ...


class Call:
    """Runs jobs, each in a fresh process of its system's environment."""

    def __init__(self, work: Path, pythons: dict[str, Path], asked: argparse.Namespace) -> None:
        self.work, self.pythons, self.asked = work, pythons, asked

    def job(self, system: Described, kind: str, action: str, images: Path, store: Path) -> Job:
        """A job under the settings of this run."""
        asked = self.asked
        return Job(
            action, system.module, kind, str(store), str(images), system.variant,
            batch=asked.batch, workers=asked.workers, seconds=asked.seconds,
        )  # fmt: skip

    def __call__(
        self, environment: str, job: Job, limit: float = LIMIT_S, prefix: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The last result that the process printed. Raises CallFailedError."""
        found: dict[str, Any] = json.loads(self.output([*prefix, *self.command(environment, job)], limit, last=True))
        return found

    def command(self, environment: str, job: Job) -> list[str]:
        return [str(self.pythons[environment]), str(HARNESS), json.dumps(asdict(job))]

    def output(
        self, command: Sequence[str | Path], limit: float, *, last: bool = False, cwd: Path | None = None
    ) -> str:
        """Standard output, or only its last line of JSON if `last`. Children of the process do not outlive it."""
        scratch = Path(tempfile.mkdtemp(dir=self.work, prefix="tmp-"))
        process = self.start(command, scratch, cwd)
        hangs = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            hangs = True
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        out, errors = ((scratch / name).read_text(errors="replace") for name in ("out", "err"))
        shutil.rmtree(scratch, ignore_errors=True)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if hangs:
            raise CallFailedError(f"hangs: still running after {limit:.0f} s")
        if process.returncode:
            said = [line for line in errors.strip().splitlines() if line.strip()]
            by = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            # Paths of this run mean nothing elsewhere.
            raise CallFailedError((error_line(said) or by).replace(f"{self.work}/", ""))
        if last and not lines:
            raise CallFailedError("printed nothing")
        return lines[-1] if last else out

    def start(self, command: Sequence[str | Path], scratch: Path, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """Start the process in a session of its own, with its own temporary folders."""
        changes = {"TMPDIR": str(scratch), "HF_HOME": str(scratch / "hf"), "PYTHONUNBUFFERED": "1"}
        with (scratch / "out").open("wb") as out, (scratch / "err").open("wb") as err:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | changes,
            )  # fmt: skip


def error_line(lines: Sequence[str]) -> str:
    """The line of a traceback that names the error: the last one that begins with a name and a colon."""
    for line in reversed(lines):
        name, colon, _ = line.partition(":")
        if colon and name.replace(".", "").replace("_", "").isalnum() and name[:1].isalpha():
            return line[:200]
    return lines[-1][:200] if lines else ""
