"""Folders of the stores that a user names."""

from __future__ import annotations

from pathlib import Path

from rawpack.disk.manifest import NAME
from rawpack.disk.splits import read_splits, store_path
from rawpack.errors import UsageError
from rawpack.remote.url import local_path, refuse_url
from rawpack_packer.text import near_path


def store_folder(dst: str) -> Path:
    """The folder of one store. Raises UsageError where `dst` is not a folder."""
    refuse_url(dst)
    path = local_path(dst)
    if path.name == NAME and path.is_file():
        raise UsageError(f"{dst} is a store's manifest; name its folder: {path.parent}")
    if not path.exists():
        raise UsageError(f"{dst} does not exist{near_path(dst)}")
    if not path.is_dir():
        raise UsageError(f"{dst} is a file; a store is a folder")
    return path


def store_folders(dst: str) -> dict[str, Path]:
    """Name and folder of each split in a set of splits; for any other folder, "" and the folder itself.

    Raises as `store_folder`, and UnfinishedStoreError where a split is not packed yet.
    """
    path = store_folder(dst)
    found = None if (path / NAME).exists() else read_splits(path)
    return {"": path} if found is None else {name: store_path(path, name) for name in found.splits}


def one_store(dst: str, option: str) -> Path:
    """The folder of a store, for an option that applies to one. Raises UsageError for a set of splits."""
    stores = store_folders(dst)
    if "" not in stores:
        raise UsageError(
            f"{option} applies to one store, and {dst} has splits: name {' or '.join(map(str, stores.values()))}"
        )
    return stores[""]
