"""Columns of paths: a path to a file that does not exist is a fault."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import reason_of, stop_if_of_any_file
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import FieldKind, inferred_mask
from rawpack_packer.sources.listing.lines import CellPosition, Lines
from rawpack_packer.sources.table.columns import Files, Texts, joined, texts_of
from rawpack_packer.text import plain


class PathParser:
    """Takes the paths of images, or of masks."""

    def __init__(self, place: CellPosition, root: str, within: Sequence[str] = (), trusting: str = "") -> None:
        """root: the folder that relative paths start from. within: folders that paths must not lead out of; links are
        followed, as everywhere. trusting: what a user types who trusts the file with the paths."""
        self._place, self._root, self._trusting = place, root, trusting
        self._within = tuple(os.path.join(os.path.normpath(folder), "") for folder in within)  # noqa: PTH118
        self._below = os.path.join(root, "")  # noqa: PTH118
        self._paths: list[Texts] = []
        self._states: list[NDArray[np.int64]] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        found = [self._state(value, line) for value, line in zip(values, lines.tolist(), strict=True)]
        self._paths.append(texts_of(values))
        self._states.append(np.array(found, np.int64).reshape(-1, 2))

    def files(self) -> Files:
        """All of them."""
        return Files(self._root, joined(self._paths), np.concatenate(self._states))

    def finish(self) -> tuple[FieldKind, Files]:
        """Masks, and what they are: as the first one, a PNG file, with the size of the image."""
        files = self.files()
        try:
            kind = inferred_mask(self._place.name, files.value(0), None)
        except (DecodeError, UsageError) as error:
            raise self._place.fault(0, f"{files.paths.value(0)}: {error}") from None
        return kind, files

    def _state(self, path: Any, line: int) -> tuple[int, int]:
        """Size and mtime of a file."""
        if not isinstance(path, str) or not path or "\0" in path:
            what = "is empty" if path is None or path == "" else f"{path!r} is not a path"
            raise self._place.fault(line, f"{what}: give the path of a file")
        if self._within and (path[0] == "/" or ".." in path) and not self._is_within(path):
            raise self._place.fault(
                line,
                f"{path} leads out of {plain(os.path.normpath(self._within[0]))}, so that any image of this machine "
                f"could get into the store; if you trust this file, {self._trusting}",
            )
        try:
            found = os.stat(path if path[0] == "/" else self._below + path)  # noqa: PTH116 - for each of a million
        except FileNotFoundError:
            where = "" if path[0] == "/" else f" below {plain(self._root)}"
            hint = f" ({opt.images} names another folder)" if where else ""
            raise self._place.fault(line, f"there is no file {path}{where}{hint}") from None
        except OSError as error:
            stop_if_of_any_file(error, path)
            raise self._place.fault(line, f"{path} cannot be read: {reason_of(error)}") from None
        if not stat.S_ISREG(found.st_mode):
            raise self._place.fault(line, f"{path} is a {'folder' if stat.S_ISDIR(found.st_mode) else 'special file'}")
        return found.st_size, found.st_mtime_ns

    def _is_within(self, path: str) -> bool:
        whole = os.path.normpath(os.path.join(self._root, path))  # noqa: PTH118 - which keeps ..
        return whole.startswith(self._within)


def folder_of(images: str | os.PathLike[str] | None, default: Path) -> str:
    """The folder that relative paths start from. Raises UsageError if there is none."""
    folder = default if images is None else Path(images).absolute()
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {plain(os.fsencode(folder))}: {opt.images} names the folder of the images"
        )
    return str(folder)


def state_of(file: Path, declared: str) -> NDArray[np.int64]:
    """What `Source.states` holds for a listing: (1, 2), its size, and a hash of its bytes and of what was declared."""
    digest = xxhash.xxh3_64(declared.encode("utf-8", "surrogatepass"))
    size = 0
    with file.open("rb") as opened:
        while data := opened.read(1 << 20):
            digest.update(data)
            size += len(data)
    return np.array([[size, digest.intdigest() - (1 << 63)]], np.int64)
