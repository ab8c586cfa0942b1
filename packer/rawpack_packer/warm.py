"""Reading a store's files once, so that they lie in the system's page cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rawpack.errors import DamagedStoreError
from rawpack.plainfile import open_plain
from rawpack.store import Store

_PIECE = 8 << 20


def files_of(store: Store) -> list[tuple[Path, int]]:
    """Paths and bytes, the columns first."""
    return [(store.path / name, record.bytes) for name, record in store.manifest.records()]


def warm_file(path: Path, tick: Callable[[int], object]) -> None:
    """Read a file and forget it. tick: told the bytes read."""
    buffer = bytearray(_PIECE)
    try:
        with open_plain(path) as (descriptor, _), open(descriptor, "rb", buffering=0, closefd=False) as file:
            while count := file.readinto(buffer):
                tick(count)
    except FileNotFoundError:
        raise DamagedStoreError(f"{path} is missing; `rawpack inspect --verify` tells what else is") from None
