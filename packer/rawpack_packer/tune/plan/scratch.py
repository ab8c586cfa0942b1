"""A temporary folder that is removed even if this process is killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt

_SWEEP = """\
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(120):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.lexists(sys.argv[1]):
        break
    time.sleep(0.5)
"""
"""Waits until its parent has ended, also by SIGKILL, then removes the folder, repeatedly where workers that have not
noticed yet still write into it."""


@contextmanager
def scratch_folder(where: str | None) -> Iterator[Path]:
    """A new folder in `where`, or in the system's temporary folder. Raises UsageError where none can be made."""
    try:
        inside = None if where is None else str(Path(where).absolute())
        folder = tempfile.TemporaryDirectory(prefix="rawpack-plan-", dir=inside, ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(f"{opt.tmp(where or tempfile.gettempdir())}: {error.strerror or error}") from None
    # The sweeper has its own session, so that what ends this process's group does not end it too.
    with folder as name, subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SWEEP, name],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ):  # fmt: skip
        yield Path(name)
