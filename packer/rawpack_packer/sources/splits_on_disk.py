"""Detects folders that are divided into splits, such as `train/` and `val/`, which are not meant as classes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from rawpack.errors import UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.folder import first_image
from rawpack_packer.text import plain

_NAMES = (
    ("train", "training", "trn", "trainval"),
    ("val", "valid", "validation", "dev", "devel", "development", "eval", "evaluation", "minival"),
    ("test", "testing", "tst", "testdev", "test-dev", "holdout", "hold-out", "hold_out"),
)
"""Names of splits, in the order in which a command lists them."""
_RANKS = {name: rank for rank, names in enumerate(_NAMES) for name in names}
_END = re.compile(r"[ _-]?(set|split|data|images|imgs|\d{4})$")
"""What may follow a name: `train2017`, `test_images`."""
_AS_CLASSES = {"archive", "folder", "video"}
"""Kinds of sources that take folders as classes; others take all of them as one set."""


class DividedError(UsageError):
    """A folder, or an archive of one, is divided into splits, and its kind was not given."""

    def __init__(
        self, source: str, names: Sequence[str], kind: str, destination: str = "DST", other: Sequence[str] = ()
    ) -> None:
        """source: as the user wrote it. names: of the splits. kind: the source that takes the folder as one.
        destination: of the command that packs the splits. other: another command that helps, in which "SRC" stands for
        one split."""
        self._told = source, tuple(names), kind
        source = shown(source)
        pack = shlex.join(["rawpack", "pack", "--splits", ",".join(names), source, destination])
        one = [os.path.join(source, names[0]) if word == "SRC" else word for word in other]  # noqa: PTH118 - as written
        what = f"the folders in {plain(source)} are splits by their names, not classes"
        folders = not is_url(source) and all((Path(source) / name).exists() for name in names)
        if kind in ("parquet", "cifar", "voc") or not folders:
            what = f"{plain(source)} is divided into the splits {', '.join(map(plain, names))}"
        super().__init__(
            f"{what}: `{plain(pack)}` packs each into a store of its own; "
            + (f"`{plain(shlex.join(one))}` takes one of them; " if one else "")
            + f"{opt.kind(kind)} {'takes them as classes' if kind in _AS_CLASSES else 'packs them as one set'} (in "
            f"Python: pack_splits(..., splits={list(names)}) or kind={kind!r})"
        )

    def asked(self, destination: str, other: Sequence[str] = ()) -> DividedError:
        """The same error, where more is known of what the user asked for."""
        return DividedError(*self._told, destination, other)


def is_split(name: str) -> bool:
    """Whether a folder of this name is a split and hardly ever a class."""
    return _rank(name) is not None


def split_order(name: str) -> tuple[int, str]:
    """Sorts names of splits as a command lists them: train first, names that are no split's last."""
    rank = _rank(name)
    return len(_NAMES) if rank is None else rank, name


def splits_in(path: Path) -> list[str]:
    """The names of the splits that a folder is divided into, train first; empty where it is not divided.

    It is divided if two or more of its folders have names of splits, and the others have no image or video. Empty
    splits are left out; hidden folders do not count.
    """
    try:
        with os.scandir(path) as entries:
            folders = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except (OSError, ValueError):
        return []  # the scan of the folder reports why
    splits = sorted(filter(is_split, folders), key=split_order)
    if len(splits) < 2 or any(_has_samples(path / name) for name in folders if not is_split(name)):
        return []
    return [name for name in splits if _has_samples(path / name, unknown=True)]


def split_names(folders: Sequence[str]) -> list[str]:
    """The names of splits, train first, if all of several folders, each with samples, are splits; otherwise empty."""
    return sorted(folders, key=split_order) if len(folders) > 1 and all(map(is_split, folders)) else []


def _rank(name: str) -> int | None:
    plain = name.lower()
    return _RANKS.get(plain, _RANKS.get(_END.sub("", plain)))


def _has_samples(folder: Path, *, unknown: bool = False) -> bool:
    """Whether there is any image or video below a folder. unknown: the answer where it cannot be read."""
    try:
        scan = first_image(folder)
    except UsageError:
        return unknown
    return bool(scan.samples or scan.counts["videos"] or (unknown and scan.counts["problems"]))
