"""A file server like an object store: requests wait, and connections share a bandwidth."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BYTES_PER_S = 250e6
_SERVER = Path(__file__).resolve().parents[2] / "bench" / "loopback.py"


@contextmanager
def served(folder: Path, latency_s: float, bytes_per_s: float = BYTES_PER_S) -> Iterator[int]:
    """Serve the files below `folder` from another process; the port."""
    command = [sys.executable, str(_SERVER), str(folder), str(bytes_per_s), str(latency_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield int(server.stdout.readline())
        server.stdin.close()
