"""Reading a store's files once, so that they lie in the system's page cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rawpack.store import Store

_PIECE = 8 << 20


def files_of(store: Store) -> list[tuple[Path, int]]:
    """What a reader reads: paths and bytes, the columns first."""
    columns = [
        (store.path / part.folder / record.name, record.bytes)
        for part in store.manifest.columns
        for record in part.files
    ]
    return columns + [
        (store.path / record.name, record.bytes) for shard in store.manifest.shards for record in shard.files
    ]


def warm_file(path: Path, tick: Callable[[int], object]) -> None:
    """Read a file and forget it. tick: told the bytes read."""
    buffer = bytearray(_PIECE)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            tick(count)
