"""A temporary folder for trials. What a killed run left is removed by the next one, which finds its lock free."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rawpack.errors import UsageError
from rawpack.system.file_lock import try_lock
from rawpack_packer.options.naming import opt

_PREFIX, _LOCK = "rawpack-plan-", "lock"


@contextmanager
def scratch_folder(where: str | None) -> Iterator[tuple[Path, list[Path]]]:
    """A new folder in `where`, or in the system's temporary folder, and what was removed of earlier runs. Raises
    UsageError where none can be made."""
    parent, descriptor = Path(where or tempfile.gettempdir()).absolute(), None
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise UsageError(f"{opt.tmp(parent)}: {error.strerror or error}") from None
    try:
        with suppress(OSError, UsageError):  # without locks, nothing is ever taken for what was left
            descriptor = try_lock(folder / "locking")
            (folder / "locking").rename(folder / _LOCK)  # which nobody finds before it is locked
        left = list(_left_in(parent))
        for old in left:
            shutil.rmtree(old, ignore_errors=True)
        yield folder, left
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _left_in(parent: Path) -> Iterator[Path]:
    """The folders of our own runs that have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, UsageError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            descriptor = try_lock(folder / _LOCK, os.O_RDWR)
            if descriptor is not None:
                os.close(descriptor)
                yield folder
