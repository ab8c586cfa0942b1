"""What is wrong with a store: how it is shown, and what a look at the names and sizes of its files finds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rawpack.disk.manifest import Manifest, load
from rawpack.remote.cache import is_cached_store
from rawpack_packer import text
from rawpack_packer.destination.folder import wrong_sizes

PLANTED = "is a link or a special file, which packing never makes"
"""What is wrong with what others put where packing makes files."""
_SHOWN = 50
_OTHERS = 8


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a store."""

    where: str
    """The file, or "sample 17 (cats/1.jpg)"."""
    what: str
    samples: tuple[int, int] | None = None
    """Those that cannot be read because of it: the first, and the one after the last."""


class Problems(text.Shown, list[Problem]):
    """What a check came to."""

    def __init__(
        self,
        problems: Sequence[Problem],
        repairs: text.Rows,
        *,
        quick: bool,
        then: str = "",
        unlisted: Sequence[str] = (),
    ) -> None:
        """repairs: what to do about them. then: what to do next where there are some. Both safe to show. unlisted: what
        is in the store's folder but not in the manifest, which is harmless."""
        super().__init__(problems)
        self.unlisted = list(unlisted)
        self._repairs, self._quick, self._then = repairs, quick, then

    def in_words(self) -> list[text.Block]:
        if not self:
            whole = "every checksum matches and every sample reads: the store is sound"
            return [text.Block(f"checked: {'sizes and headers are sound' if self._quick else whole}", self._others())]
        rows = [(text.plain(problem.where), text.plain(problem.what)) for problem in self[:_SHOWN]]
        summary = text.Block(f"checked: {text.count(len(self), 'problem')}{self._then}", rows, len(self) - _SHOWN)
        return [summary, text.Block("what to do", [*self._repairs, *self._others()])]

    def _others(self) -> text.Rows:
        return [("not in the manifest", text.listed(self.unlisted, _OTHERS))] if self.unlisted else []

    def as_dict(self) -> dict[str, Any]:
        return {
            "problems": [msgspec.structs.asdict(each) for each in self],
            "repairs": dict(self._repairs),
            "unlisted": self.unlisted,
        }


def changed_files(path: Path) -> Iterator[Problem]:
    """The files of a store that are missing, or have another size than was packed; of one in a cache, those that are
    there. Raises StoreError without a manifest."""
    manifest, _ = load(path)
    cached, shards = is_cached_store(path), samples_of(manifest)
    for name, what in wrong_sizes(path, manifest):
        if not cached or os.path.lexists(path / name):
            yield Problem(name, what, shards.get(name))


def class_problems(stores: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Each split in which a label is another class than in the others, and what to say about it. Splits that were
    appended to may have more classes."""
    classes_of = {name: load(path)[0].classes or () for name, path in stores.items()}
    longest = max(classes_of, key=lambda name: len(classes_of[name]), default="")
    return [
        (name, f"its classes are not numbered as those of {longest}")
        for name, classes in classes_of.items()
        if classes != classes_of[longest][: len(classes)]
    ]


def samples_of(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """The samples in each file of a shard, the first and the one after the last, by its name."""
    samples, first = dict[str, tuple[int, int]](), 0
    for shard in manifest.shards:
        samples |= {file.name: (first, first + shard.rows) for file in shard.files}
        first += shard.rows
    return samples
