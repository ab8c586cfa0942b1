"""Columns of paths: the files are there, or it is a fault; what their state is."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import UNKNOWN, reason_of, stop_if_of_any_file
from rawpack_packer.sources.kinds import inferred_mask
from rawpack_packer.sources.listing.columns import joined
from rawpack_packer.sources.listing.faults import MOST
from rawpack_packer.sources.listing.place import CellPosition, Lines
from rawpack_packer.sources.listing.table import Files, Texts, texts_of
from rawpack_packer.text import plain


class PathParser:
    """The paths of images, or of masks."""

    def __init__(self, place: CellPosition, root: str) -> None:
        """root: the folder that relative paths begin at."""
        self._place, self._root = place, root
        self._hinted = False
        self._below = os.path.join(root, "")  # noqa: PTH118
        self._paths: list[Texts] = []
        self._states: list[NDArray[np.int64]] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        states = np.empty((len(values), 2), np.int64)
        paths = [value if isinstance(value, str) else "" for value in values]
        before = len(self._place.faults)
        for i, path in enumerate(paths):
            # Enough of one column: to look for the rest may take a slow disk long.
            known = len(self._place.faults) - before < MOST
            states[i] = self._state(path, values[i], int(lines[i])) if known else UNKNOWN
        try:
            self._paths.append(texts_of(paths))
        except UnicodeEncodeError:  # a fault already
            self._paths.append(texts_of([""] * len(paths)))
        self._states.append(states)

    def files(self) -> Files:
        """All of them."""
        return Files(self._root, joined(self._paths), np.concatenate([np.empty((0, 2), np.int64), *self._states]))

    def finish(self) -> tuple[FieldKind, Files]:
        """Of masks: what they are by the first, a PNG file, of which any has its image's size."""
        files = self.files()
        try:
            kind = inferred_mask(self._place.name, files.value(0), None)
        except (DecodeError, UsageError) as error:
            self._place.fault(0, f"{files.paths.value(0)}: {error}")
            kind = FieldKind("uint8", (None, None, 1), mask=True)
        return kind, files

    def _state(self, path: str, value: Any, line: int) -> tuple[int, int]:
        if not path or "\0" in path:
            what = "is empty" if value in (None, "") else f"{value!r} is not a path"
            self._place.fault(line, f"{what}: give the path of a file")
            return UNKNOWN
        try:
            found = os.stat(path if path[0] == "/" else self._below + path)  # noqa: PTH116 - for each of a million
        except FileNotFoundError:
            where = "" if path[0] == "/" else f" below {plain(self._root)}"
            hint = "" if self._hinted or not where else " (--images names another folder)"
            self._hinted = True
            self._place.fault(line, f"there is no file {path}{where}{hint}")
            return UNKNOWN
        except UnicodeEncodeError:
            self._place.fault(line, "half of a surrogate pair is not a path")
            return UNKNOWN
        except OSError as error:
            stop_if_of_any_file(error, path)
            self._place.fault(line, f"{path} cannot be read: {reason_of(error)}")
            return UNKNOWN
        if not stat.S_ISREG(found.st_mode):
            self._place.fault(line, f"{path} is a {'folder' if stat.S_ISDIR(found.st_mode) else 'special file'}")
        return found.st_size, found.st_mtime_ns
