"""Packing that does not wait for the disk: no power is cut while tests run, and to wait takes longer than to pack what
tests pack. Plain processes that tests start do wait."""

from __future__ import annotations

import os
import sys


def leave_unsynced() -> None:
    """From now on, in this process and its forks, what writes stores asks for no sync."""
    from rawpack_packer.destination import files
    from rawpack_packer.sources import stream

    fsync, of_linux, writers = os.fsync, files._of_linux, {files.__name__, stream.__name__}

    def fsync_of_others(descriptor: int) -> None:
        # Pages of a file that is measured are dropped only once they are on the disk.
        if sys._getframe(1).f_globals["__name__"] not in writers:
            fsync(descriptor)

    def of_linux_unsynced(name: str) -> object:
        function = of_linux(name)
        return function if function is None or name not in ("syncfs", "sync_file_range") else lambda *_: 0

    os.fsync, files._of_linux = fsync_of_others, of_linux_unsynced  # type: ignore[assignment]
