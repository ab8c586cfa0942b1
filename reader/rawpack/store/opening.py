"""Opening the stores that a reader was asked for: folders, and URLs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rawpack.disk.splits import store_path
from rawpack.errors import UsageError
from rawpack.remote.url import is_url, join, local_path
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.store.shard_files import Fetched, OnDisk
from rawpack.store.store import Store

StorePath = str | os.PathLike[str]


def absolute(path: StorePath, split: str | None) -> Path | str:
    """The URL or the absolute folder of a store, or of a split of it. Shards are mapped later, workers are started and
    copies unpickled elsewhere, and links may change."""
    if isinstance(path, str) and is_url(path):
        return path if split is None else join(path, split)
    folder = local_path(path)
    try:
        folder = folder.resolve()
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is relative to the current folder, which was removed: change folder, or pass an absolute path"
        ) from None
    return store_path(folder, split).resolve()


def open_stores(
    paths: Sequence[Path | str],
    cache: StorePath | None = None,
    cache_bytes: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> ConcatenatedStore:
    """Stores to be read in random order, as one. See `Reader`."""
    urls, stores = [path for path in paths if isinstance(path, str)], list[Store]()
    if urls:
        from rawpack.remote.cache import Cache
        from rawpack.remote.origin import open_origins

        origins = iter(open_origins(urls, Cache(cache, cache_bytes), storage_options, timeout))
    for path in paths:
        if isinstance(path, Path):
            stores.append(Store(OnDisk(path, random_access=True)))
        else:
            origin = next(origins)
            stores.append(Store(Fetched(origin, random_access=True), origin.manifest_bytes))
    return ConcatenatedStore(stores)
