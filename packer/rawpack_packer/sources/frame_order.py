"""Puts frames that are files in the order of their numbers: by name, frame 10 comes before frame 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.table.columns import Column
from rawpack_packer.sources.table.named_files import natural
from rawpack_packer.sources.video import FRAME, VIDEO


def by_frame(columns: Mapping[str, Column], paths: Sequence[str], rows: Rows, unread: set[int]) -> Rows | None:
    """(n,): the samples in the order of `frame` in each video, which is in one folder; videos are in the order in which
    they begin. None where they are in this order already.

    columns: those of paths. rows: (n,), the path of each sample. unread: the samples that have none.
    """

    def value(name: str, row: int) -> Any:
        value = np.asarray(columns[name].value(row)).item() if name in columns else None
        return natural(value) if name == FRAME and isinstance(value, str) else value

    begins: dict[object, int] = {}
    order = list[tuple[int, Any, int]]()
    for i, row in enumerate(rows.tolist()):
        video = i if i in unread else (paths[row].rpartition("/")[0], value(VIDEO, row))
        order.append((begins.setdefault(video, i), value(FRAME, row), i))
    order.sort()
    numbers = np.array([i for *_, i in order], np.int64)
    return None if (np.diff(numbers) == 1).all() else numbers
