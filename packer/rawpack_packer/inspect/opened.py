"""Opens the stores that a user named."""

from __future__ import annotations

from rawpack.remote.url import is_url
from rawpack.store.shard_files import Fetched
from rawpack.store.store import Store
from rawpack_packer.destination.named import store_folder


def open_store(name: str) -> Store:
    """The store in a folder, or at a URL, whose manifest and columns are then fetched. Raises UsageError if there is no
    such folder, StoreError if it is not a store."""
    if not is_url(name):
        return Store(store_folder(name))
    from rawpack.remote.cache import Cache
    from rawpack.remote.origin import open_origins

    (origin,) = open_origins([name], Cache())
    return Store(Fetched(origin), origin.manifest_bytes)
