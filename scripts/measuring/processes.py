"""Fresh processes: start one, wait for it, read what it printed, and end its remaining children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LIMIT_S = 300
"""A measurement that takes longer is reported as hanging."""


class CallFailedError(Exception):
    """A process failed or hung; the message is the last line of its error."""


def output(
    command: Sequence[str | Path], work: Path, limit: float | None = LIMIT_S, *, last: bool = False, shown: bool = False
) -> str:
    """Standard output, or only its last line of JSON if `last`. Children of the process do not outlive it.

    shown: for a process of this Python, whose standard error is shown as it comes. The others are of environments,
    which this one's PYTHONPATH would change; their standard error is read for a message. Raises CallFailedError."""
    scratch = Path(tempfile.mkdtemp(dir=work, prefix="tmp-"))
    hangs, errors = False, ""
    try:
        process = start(command, scratch, shown=shown)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            hangs = True
        finally:
            end(process)
        out = (scratch / "out").read_text(errors="replace")
        if not shown:
            errors = (scratch / "err").read_text(errors="replace")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if hangs:
        raise CallFailedError(f"hangs: still running after {limit:.0f} s")
    if process.returncode:
        said = [line for line in errors.strip().splitlines() if line.strip()]
        by = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        # Paths of this run mean nothing elsewhere.
        raise CallFailedError((error_line(said) or by).replace(f"{work}/", ""))
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if last and not lines:
        raise CallFailedError("printed nothing")
    return lines[-1] if last else out


def start(command: Sequence[str | Path], scratch: Path, *, shown: bool = False) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, with its own temporary folders."""
    changes = {"TMPDIR": str(scratch), "HF_HOME": str(scratch / "hf"), "PYTHONUNBUFFERED": "1"}
    kept = {name: value for name, value in os.environ.items() if shown or name != "PYTHONPATH"}
    with (scratch / "out").open("wb") as out, (scratch / "err").open("wb") as err:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=None if shown else err, start_new_session=True,
            env=kept | changes,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, unless it has ended, and all of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def error_line(lines: Sequence[str]) -> str:
    """The line of a traceback that names the error: the last one that begins with a name and a colon."""
    for line in reversed(lines):
        name, colon, _ = line.partition(":")
        if colon and name.replace(".", "").replace("_", "").isalnum() and name[:1].isalpha():
            return line[:200]
    return lines[-1][:200] if lines else ""
