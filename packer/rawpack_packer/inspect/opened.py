"""Opens the stores that a user named."""

from __future__ import annotations

import shlex
from pathlib import Path

from rawpack.disk.manifest import NAME
from rawpack.errors import StoreError, UsageError
from rawpack.remote.url import is_url
from rawpack.store.shard_files import Fetched
from rawpack.store.store import Store
from rawpack_packer.destination.named import store_folder
from rawpack_packer.sources.folder import holds_image
from rawpack_packer.text import plain


def open_store(name: str) -> Store:
    """The store in a folder, or at a URL, whose manifest and columns are then fetched. Raises UsageError if there is no
    such folder, StoreError if it is not a store."""
    if not is_url(name):
        folder = store_folder(name)
        try:
            return Store(folder)
        except StoreError as error:
            if type(error) is StoreError and not (folder / NAME).exists() and _has_image(folder):
                command = shlex.join(["rawpack", "pack", name])
                raise StoreError(f"{error}; to make a store of its images: `{plain(command)} STORE`") from None
            raise
    from rawpack.remote.cache import Cache
    from rawpack.remote.origin import open_origins

    (origin,) = open_origins([name], Cache())
    return Store(Fetched(origin), origin.manifest_bytes)


def _has_image(folder: Path) -> bool:
    """Whether there is an image in a folder, or below it."""
    try:
        return holds_image(folder)
    except (UsageError, OSError):
        return False
