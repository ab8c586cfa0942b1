"""What is in a folder, and whether anything was written there."""

from __future__ import annotations

import os
from pathlib import Path


def files_of(root: Path) -> dict[str, bytes]:
    """Every file below a folder: path with slashes -> contents."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def states_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder: path -> inode, mtime in ns, size. Equal states mean that nothing was written."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            state = (Path(folder) / name).stat()
            path = (Path(folder) / name).relative_to(root).as_posix()
            found[path] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found
