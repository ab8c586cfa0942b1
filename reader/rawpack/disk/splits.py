"""Sets of splits: a folder with one store for each of `train`, `val`, ..., and `splits.json`, which names them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rawpack.disk.manifest import NAME as MANIFEST
from rawpack.disk.manifest import is_sealed, unseal
from rawpack.errors import DamagedStoreError, UnfinishedStoreError, UsageError
from rawpack.system.files import read_plain

NAME = "splits.json"
_MAX_BYTES = 1 << 20
_PLAIN = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")
_MAX_NAME_BYTES = 200
_SHOWN = 20


class SplitSet(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `splits.json`, which is sealed like the manifest."""

    splits: tuple[str, ...]
    """Names of the folders next to the file, in order."""
    holdout: dict[str, str] | None = None
    """Split -> the share or number of each class that was drawn for it; None where the source was already divided."""
    seed: int | None = None
    draw: int | None = None
    """Version of the draw."""
    group_by: str | msgspec.UnsetType | None = msgspec.UNSET
    """The field whose values were drawn as groups; left out where the source says which samples are."""
    split_by: str | msgspec.UnsetType | None = msgspec.UNSET
    """The field whose values divided the source, and which, as the user wrote it; left out where none did."""

    @property
    def divided_here(self) -> bool:
        """Whether the splits were made from one source, so that no sample may be in two of them."""
        return self.holdout is not None or isinstance(self.split_by, str)


def read_splits(path: Path) -> SplitSet | None:
    """The set of splits in folder `path`; None where there is none, such as where another program's file has its name.
    Raises DamagedStoreError for an invalid file."""
    where = path / NAME
    try:
        data = read_plain(where, _MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError, DamagedStoreError):
        return None
    if not is_sealed(data):
        return None
    text, _ = unseal(data, str(where))
    try:
        found = msgspec.json.decode(text, type=SplitSet)
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{where} was not written by rawpack: {error}") from error
    wrong = [name for name in found.splits if not is_split_name(name)]
    if wrong or not found.splits:
        raise DamagedStoreError(f"{where} names a split that cannot be a folder, or none: {wrong[:1]}")
    return found


def is_split_name(name: str) -> bool:
    """Whether a split can have this name: the plain name of a folder. Names may be untrusted."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # a byte that is no UTF-8, which `splits.json` cannot hold
        return False
    return bool(_PLAIN.fullmatch(name)) and name not in (NAME, MANIFEST) and size <= _MAX_NAME_BYTES


def split_names(path: Path) -> Sequence[str]:
    """The splits at `path`: those in `splits.json`, else the folders there that are stores."""
    found = read_splits(path)
    if found is not None:
        return found.splits
    try:
        with os.scandir(path) as entries:
            folders = [entry.name for entry in entries if is_split_name(entry.name) and entry.is_dir()]
        return sorted(name for name in folders if (path / name / MANIFEST).is_file())
    except OSError:
        return ()


def store_path(path: Path, split: str | None) -> Path:
    """The folder of a store, or of one split in a set.

    Raises UsageError, which lists the splits, for a set without `split`, and for a split that does not exist.
    """
    if (path / MANIFEST).exists():
        if split is not None:
            raise UsageError(f"{path} is a store without splits: leave split={split!r} out")
        return path
    names = split_names(path)
    if split is None:
        if names:
            raise UsageError(f"{path} contains the splits {_listed(names)}: name one, such as split={names[0]!r}")
        return path
    if split not in names:
        there = f"it has {_listed(names)}" if names else "it has none"
        raise UsageError(f"{path} has no split {split!r}: {there}")
    if not (path / split).is_dir():
        raise UnfinishedStoreError(f"{path / split}: packing did not finish; the same `rawpack pack` resumes it")
    return path / split


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
