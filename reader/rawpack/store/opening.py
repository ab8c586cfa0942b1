"""Opens the stores that a reader was asked for, folders and URLs, and says how they are mixed."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.checks import seconds
from rawpack.disk import manifest, splits
from rawpack.disk.tables import resolve
from rawpack.errors import MissingExtraError, StoreError, UsageError
from rawpack.order.base import Order
from rawpack.order.keys import derive_key
from rawpack.order.mixed import Mixed, MixLength, length_of, shares_of
from rawpack.remote.url import is_url, join, local_path, shown
from rawpack.store.shard_files import Fetched, ShardFiles
from rawpack.store.store import Store
from rawpack.store.stores import Stores
from rawpack.system.user import byte_count, expanded, progress_bar, suggesting

StorePath = str | os.PathLike[str]
_MOST_SIBLINGS = 1000
"""Entries of a folder that are looked at to suggest another name."""


@suggesting
@dataclass(frozen=True)
class Cache:
    """For `cache=` of `Reader`: where the files of URLs are kept.

        Reader("s3://bucket/store", cache=Cache("cache/", "200GB"))

    folder: that files are fetched into, which all processes of a machine may share; None: RAWPACK_CACHE, or
        ~/.cache/rawpack.
    limit: how much it may hold: a number of bytes, or "200GB"; None: half of the space that is free, or already used by
        the cache.
    timeout: seconds after which a transfer that brings no byte fails, or less than 4,096 bytes a second on average;
        None means 120.
    """

    folder: StorePath | None = None
    limit: int | str | None = None
    _: KW_ONLY
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not isinstance(self.folder, str | os.PathLike):
            raise UsageError(f"Cache({self.folder!r}): the cache is a folder; pass its limit as Cache(folder, limit)")
        if isinstance(self.folder, str) and not self.folder.isdecimal() and byte_count(self.folder) is not None:
            raise UsageError(
                f"Cache({self.folder!r}): the cache is a folder; pass a limit as Cache(limit={self.folder!r}), and a "
                f"folder that is really called so as './{self.folder.strip()}'"
            )
        if self.limit is not None and (byte_count(self.limit) or 0) <= 0:
            raise UsageError(f'limit={self.limit!r} must be a number of bytes, such as 200_000_000_000 or "200GB"')
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds("timeout", self.timeout))

    @property
    def limit_bytes(self) -> int | None:
        """The limit in bytes."""
        return byte_count(self.limit)


def cache_of(value: Any) -> Cache:
    """`cache=` of `Reader` as one value. Its folder is absolute: copies are unpickled elsewhere. Raises UsageError."""
    cache = value if isinstance(value, Cache) else Cache(value)
    if cache.folder is not None:
        with suppress(OSError):  # a current folder that was removed: who opens the cache says so
            cache = replace(cache, folder=Path(expanded(cache.folder)).absolute())
    return cache


class Mix(msgspec.Struct, frozen=True):
    """How the groups of stores in a library are mixed."""

    names: tuple[str, ...]
    groups: tuple[int, ...]
    """How many of the stores count as one, for each of those that are mixed."""
    shares: tuple[Fraction, ...]
    """1 in sum."""
    length: MixLength

    def __str__(self) -> str:
        shares = zip(self.shares, self.names, strict=True)
        return f"mix of {', '.join(f'{float(share):.3g} {name}' for share, name in shares)}"

    def sizes(self, library: Stores, rows: NDArray[np.int64] | None) -> list[int]:
        """How many samples each group has. rows: of all samples, or of their first frames; None: all rows.

        Raises UsageError where one has none.
        """
        if rows is None:
            counts = np.diff(library.group_ends, prepend=0)
        else:
            counts = np.bincount(library.group_of(rows), minlength=len(self.names))
        sizes: list[int] = counts.tolist()
        if 0 in sizes:
            raise UsageError(f"{self.names[sizes.index(0)]} has no samples to mix: leave it out")
        return sizes

    def order(self, sizes: Sequence[int], order: Callable[[int, int], Order], seed: int, batch_size: int) -> Mixed:
        """The order of the mix. order: makes that of one store, by its size and a seed."""
        orders = (order(size, derive_key("mix", seed, number)) for number, size in enumerate(sizes))
        return Mixed(tuple(orders), self.shares, batch_size, self.length)


class Opening(msgspec.Struct, frozen=True):
    paths: Sequence[Path | str]
    preload: bool = False
    verify: bool = False
    cache: Cache = Cache()
    storage_options: Mapping[str, Any] | None = None
    mix: Mix | None = None

    def open(self) -> Stores:
        """The stores, to be read in random order, as one."""
        urls, stores = [path for path in self.paths if isinstance(path, str)], list[Store]()
        if urls:
            from rawpack.remote.cache import CacheFolder
            from rawpack.remote.origin import open_origins

            folder = CacheFolder(self.cache.folder, self.cache.limit_bytes)
            origins = iter(open_origins(urls, folder, self.storage_options, self.cache.timeout))
        for path in self.paths:
            if isinstance(path, Path):
                stores.append(_open_folder(path))
            else:
                origin = next(origins)
                stores.append(Store(Fetched(origin, random_access=True), origin.manifest_bytes))
        for store in stores:
            _check_packages(store)
        library = Stores(stores, None if self.mix is None else self.mix.groups)
        if self.verify:
            library.columns.check_contents()
        if self.preload:
            options = {"total": library.shard_bytes, "unit": "B", "unit_scale": True, "desc": "preloading"}
            with progress_bar(**options, delay=1.0) as bar:
                library = library.preloaded(bar.update)
        return library


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


def pairs_of(stores: object) -> list[tuple[Any, object]]:
    """(store, share) of each entry of a mix, from a mapping or pairs. UsageError for anything else."""
    pairs = list(stores.items() if isinstance(stores, Mapping) else stores if isinstance(stores, Iterable) else ())
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise UsageError(f"{reprlib.repr(stores)} must map paths to shares, or be a list of pairs of path and share")
    return [(store, share) for store, share in pairs]


def opening_of(entries: Sequence[Opening], shares: Sequence[object], length: object) -> Opening:
    """How to open the mix of these. shares, length: see `Reader.mix`.

    Raises UsageError for shares and a length that make no sense, and where entries disagree.
    """
    names = tuple(" + ".join(shown(str(path)) for path in entry.paths) for entry in entries)
    groups = tuple(len(entry.paths) for entry in entries)
    return Opening(
        [path for entry in entries for path in entry.paths],
        any(entry.preload for entry in entries),
        any(entry.verify for entry in entries),
        _only("cache", [None if entry.cache == Cache() else entry.cache for entry in entries]) or Cache(),
        _only("storage_options", [entry.storage_options for entry in entries]),
        Mix(names, groups, shares_of(shares), length_of(length)),
    )


def selection_of(selections: Sequence[NDArray[np.int64] | None], library: Stores) -> NDArray[np.int64] | None:
    """The rows of all entries in the library that has their stores. selections: those of each; None for all."""
    if all(selection is None for selection in selections):
        return None
    stops = library.group_ends.tolist()
    return np.concatenate(
        [
            np.arange(start, stop) if selection is None else selection + start
            for selection, start, stop in zip(selections, [0, *stops[:-1]], stops, strict=True)
        ]
    )


def _only(name: str, values: Iterable[Any]) -> Any:
    """The one value of an option that is not None; UsageError where several differ."""
    given = [value for value in values if value is not None]
    if any(value != given[0] for value in given):
        raise UsageError(f"the readers of a mix have different values of {name}: open all of them with the same one")
    return given[0] if given else None


def _open_folder(path: Path) -> Store:
    try:
        return Store(ShardFiles(path, random_access=True))
    except StoreError as error:
        # Of no other kind: there is no store, and there never was.
        if type(error) is StoreError and not _may_exist(path / manifest.NAME):
            raise StoreError(f"{error}. {_cure(path)}") from None
        raise


def _check_packages(store: Store) -> None:
    """Raise MissingExtraError where a package is missing without which a field cannot be read."""
    for name, field in store.manifest.fields.items():
        if field.in_shards and field.codec.needs:
            try:
                resolve(field.codec.needs)()
            except MissingExtraError as error:
                raise MissingExtraError(f"{store.where}, field {name!r}: {error}") from None


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
