"""Opens the stores that a reader was asked for: folders and URLs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.disk import manifest, splits
from rawpack.errors import StoreError, UsageError
from rawpack.remote.url import is_url, join, local_path
from rawpack.store.shard_files import Fetched, ShardFiles
from rawpack.store.store import Store
from rawpack.store.stores import Stores
from rawpack.system.user import expanded, progress_bar

if TYPE_CHECKING:
    from rawpack.store.mix import Mix

StorePath = str | os.PathLike[str]
_MOST_SIBLINGS = 1000
"""Entries of a folder that are looked at to suggest another name."""


@dataclass(frozen=True)
class Cache:
    """For `cache=` of `Reader`: where the files of URLs are kept.

        Reader("s3://bucket/store", cache=Cache("cache/", "200GB"))

    folder: that files are fetched into, which all processes of a machine may share; None: RAWPACK_CACHE, or
        ~/.cache/rawpack.
    limit: how much it may hold: a number of bytes, or "200GB"; None: half of the free space.
    timeout: seconds after which a transfer that brings no byte fails; None means 120.
    """

    folder: StorePath | None = None
    limit: int | str | None = None
    _: KW_ONLY
    timeout: float | None = None


def paths_of(path: Any, split: str | None) -> list[Path | str]:
    """The folders or URLs of one or several stores."""
    several = list(path) if isinstance(path, Iterable) and not isinstance(path, str | os.PathLike) else [path]
    if not all(isinstance(one, str | os.PathLike) for one in several):
        raise UsageError(f"path={path!r} must be a folder or URL of a store, or a list of them")
    return [_absolute(one, split) for one in several]


def _absolute(path: StorePath, split: str | None) -> Path | str:
    """The URL or the absolute folder of a store, or of a split of it. Shards are mapped later, workers are started and
    copies unpickled elsewhere, and links may change."""
    if isinstance(path, str) and is_url(path):
        return path if split is None else join(path, split)
    folder = local_path(expanded(path))
    try:
        folder = folder.resolve()
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is relative to the current folder, which was removed: change folder, or pass an absolute path"
        ) from None
    try:
        if folder.is_file():
            raise StoreError(f"{folder} is a file; a store is the folder that `rawpack pack` made. {_cure(folder)}")
        return splits.store_path(folder, split).resolve()
    except PermissionError as error:
        raise StoreError(f"cannot read {error.filename or folder}: {error.strerror}") from None


@dataclass(frozen=True)
class Opening:
    """What a reader is opened with: see `Reader`."""

    paths: Sequence[Path | str]
    preload: bool = False
    verify: bool = False
    cache: Cache | StorePath | None = None
    storage_options: Mapping[str, Any] | None = None
    mix: Mix | None = None
    """How the stores are mixed."""

    def open(self) -> Stores:
        """The stores, to be read in random order, as one."""
        urls, stores = [path for path in self.paths if isinstance(path, str)], list[Store]()
        if urls:
            from rawpack.remote.cache import CacheFolder
            from rawpack.remote.origin import open_origins

            asked = self.cache if isinstance(self.cache, Cache) else Cache(self.cache)
            folder = CacheFolder(asked.folder, asked.limit)
            origins = iter(open_origins(urls, folder, self.storage_options, asked.timeout))
        for path in self.paths:
            if isinstance(path, Path):
                stores.append(_open_folder(path))
            else:
                origin = next(origins)
                stores.append(Store(Fetched(origin, random_access=True), origin.manifest_bytes))
        library = Stores(stores, None if self.mix is None else self.mix.groups)
        if self.verify:
            library.columns.check_contents()
        if self.preload:
            options = {"total": library.shard_bytes, "unit": "B", "unit_scale": True, "desc": "preloading"}
            with progress_bar(**options, delay=1.0) as bar:
                library = library.preloaded(bar.update)
        return library


def _open_folder(path: Path) -> Store:
    try:
        return Store(ShardFiles(path, random_access=True))
    except StoreError as error:
        # Of no other kind: there is no store, and there never was.
        if type(error) is StoreError and not _may_exist(path / manifest.NAME):
            raise StoreError(f"{error}. {_cure(path)}") from None
        raise


def _cure(path: Path) -> str:
    """What to do where `path` is not a store: the stores next to it, or how to make one of what is there."""
    import difflib
    import shlex

    with suppress(OSError):
        store = next((folder for folder in path.parents[:2] if _is_store(folder)), None)
        if store is not None and path.is_file():
            return f"Did you mean {store}?"
        if path.is_dir() and not any(path.iterdir()):
            return "The folder is empty"
    if not _may_exist(path):
        stores = _stores_in(path.parent)
        close = difflib.get_close_matches(path.name, stores, 3) or stores[:3]
        if close:
            return f"Did you mean {' or '.join(str(path.parent / name) for name in close)}?"
        return "Check the path"
    images = path if path.is_dir() else path.parent
    command = f"rawpack pack {shlex.quote(str(images))} store/"
    return f"To make a store of a folder of images: `{command}`, or rawpack.pack({str(images)!r}, 'store/') in Python"


def _stores_in(folder: Path) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, _MOST_SIBLINGS) if _is_store(folder / entry.name))
    return []


def _is_store(folder: Path) -> bool:
    """False, too, where it cannot be looked at."""
    return any(os.path.exists(folder / name) for name in (manifest.NAME, splits.NAME))  # noqa: PTH110 - it may raise


def _may_exist(path: Path) -> bool:
    """Whether there is something at `path`, or it cannot be looked at."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
