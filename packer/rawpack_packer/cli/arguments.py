"""What several sub-commands ask of their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rawpack.disk.manifest import NAME
from rawpack.disk.splits import read_splits, store_path
from rawpack.errors import UsageError
from rawpack.remote.url import local_path, refuse_url
from rawpack.store.store import Store

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore


def store_folder(dst: str) -> Path:
    """The folder of a store that a user named. Raises UsageError where there is no folder of that name."""
    refuse_url(dst)
    path = local_path(dst)
    if path.name == NAME and path.is_file():
        raise UsageError(f"{dst} is a store's manifest; name its folder: {path.parent}")
    if not path.exists():
        raise UsageError(f"{dst} does not exist")
    if not path.is_dir():
        raise UsageError(f"{dst} is a file; a store is a folder")
    return path


def store_folders(dst: str) -> dict[str, Path]:
    """The stores that a user named: name and folder of each, where DST is a set of splits; else DST alone, without a
    name. Raises as `store_folder`, and UnfinishedStoreError where a split was not packed yet."""
    path = store_folder(dst)
    found = None if (path / NAME).exists() else read_splits(path)
    return {"": path} if found is None else {name: store_path(path, name) for name in found.splits}


def one_store(dst: str, option: str) -> Path:
    """The store that a user named for what is about one. Raises UsageError where DST is a set of splits."""
    stores = store_folders(dst)
    if "" not in stores:
        raise UsageError(
            f"{option} is about one store, and {dst} has splits: name {' or '.join(map(str, stores.values()))}"
        )
    return stores[""]


def open_origin(url: str, cache: str | None = None, cache_bytes: str | None = None) -> RemoteStore:
    """What lies behind a URL, of which manifest and columns are fetched. Raises StoreError where there is no store."""
    from rawpack.remote.cache import Cache
    from rawpack.remote.origin import open_origins

    (origin,) = open_origins([url], Cache(cache, cache_bytes))
    return origin


def open_url(url: str) -> Store:
    """The store behind a URL, whose manifest and columns are fetched. Raises StoreError where there is none."""
    origin = open_origin(url)
    return Store(origin.folder, manifest_bytes=origin.manifest_bytes, origin=origin)


def output_file(path: str) -> Path:
    """A file to be written that a user named. Raises UsageError where it cannot be one."""
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {file.parent}")
    return file


def report_file(option: str, path: str) -> Path:
    """Where a report is to be written by `--html` or `--png`. Raises MissingExtraError where it cannot be drawn, and as
    `output_file`: before minutes of work go by."""
    from rawpack_packer.report.extra import need_report

    need_report(option)
    return output_file(path)
