"""What a scan saw of a folder, for those who look for what describes its images; and how they name it in commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rawpack_packer.options.naming import opt
from rawpack_packer.sources.beside import Beside, Located
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder_part import FolderPart
from rawpack_packer.text import plain

Head = Callable[[bytes, int], bytes]
"""The first bytes of a file, by its path below the source; b"" where it cannot be read."""
Found = Mapping[tuple[str, bool], list[str]]
"""A name, perhaps with the folders above it, and whether it lacks the extension -> paths of images, the first few."""
MOST_SHOWN = 3
MOST_COMMANDS = 4
HEAD = 1 << 18
"""Bytes of a file that are looked at."""
_MOST_HITS = 1000
_MOST_FOUND = 64
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Seen:
    """What there is to judge, and how it is named."""

    path: str
    """As the user wrote it, and as commands name it."""
    beside: Beside
    kind: str
    head: Head
    locate: Located
    locate_all: Callable[[Collection[str]], Found]
    """The images of many names at once."""
    takes_labels: bool = False
    """Whether it is an archive without class folders, for which there is an option of labels."""
    filled: Mapping[bytes, int] | None = None
    """Folders that hold images, each ending in "/" -> how many; None where that is not known."""
    labeled: bool = False
    """Whether the folders give the images two classes or more."""

    @property
    def where(self) -> str:
        return plain(self.path)

    @property
    def in_archive(self) -> bool:
        return self.kind == "archive"

    @property
    def alone(self) -> str:
        return f"; {opt.kind(self.kind)} packs the images alone"

    @property
    def unpacked(self) -> str:
        """The folder that commands name: that of an archive after it has been unpacked."""
        return "FOLDER" if self.in_archive else self.path

    @property
    def first(self) -> str:
        return "unpack it into a FOLDER, and " if self.in_archive else ""

    @property
    def keeps_classes(self) -> list[str]:
        """The option by which a listing or shards keep the folders as classes; empty where none does: where there are
        no classes, or images at different depths."""
        depths = {folder.count(b"/") for folder in self.filled or ()}
        if not self.labeled or len(depths) != 1 or 0 in depths:
            return []
        return ["--key-pattern", "{label}" + "/{}" * depths.pop()]

    def below(self, path: bytes) -> str:
        """A path below the source, as a command names it."""
        return os.path.join(self.unpacked, os.fsdecode(path))  # noqa: PTH118 - as the user wrote it


class ImageNames:
    """Finds images by their names, in the memory that a scan has anyway."""

    def __init__(self, part: FolderPart) -> None:
        self._part = part

    def locate(self, name: str, stem: bool) -> str | None:
        """See `Located`."""
        i = next(self.rows(_last(name), stem), None)
        return None if i is None else text_of(self._part.path(i))

    def locate_all(self, names: Collection[str]) -> Found:
        """See `Seen.locate_all`: one walk through all images."""
        wanted, found = dict[bytes, list[str]](), dict[tuple[str, bool], list[str]]()
        for name in names:
            wanted.setdefault(_last(name), []).append(name)
        wanted.pop(b"", None)
        part = self._part
        for start in range(0, len(part) if wanted else 0, _BLOCK):
            ends = part.ends[start : start + _BLOCK + 1].tolist()
            for i, (begin, end) in enumerate(pairwise(ends), start):
                file = part.names[begin:end]
                for stem, last in ((False, file), (True, file.rpartition(b".")[0])):
                    for name in wanted.get(last, ()):
                        path = text_of(part.path(i))
                        images = found.setdefault((name, stem), [])
                        if ends_in(path.rpartition(".")[0] if stem else path, name) and len(images) < _MOST_FOUND:
                            images.append(path)
        return found

    def rows(self, name: bytes, stem: bool) -> Iterator[int]:
        """The images of this name, or with `stem` of this name without the extension: the first thousand or so."""
        part, at = self._part, -1
        wanted = name + b"." if stem else name
        for _ in range(_MOST_HITS if name else 0):
            at = part.names.find(wanted, at + 1)
            if at < 0:
                return
            i = int(np.searchsorted(part.ends, at))
            found = part.names[at : int(part.ends[i + 1])] if int(part.ends[i]) == at else b""
            if found and (found.rpartition(b".")[0] if stem else found) == name:
                yield i


def command(*words: str) -> str:
    """A command that packs a path, as messages have it."""
    return f"`{plain(shlex.join(['rawpack', 'pack', *words]))} DST`"


def ends_in(path: str, name: str) -> bool:
    """Whether a name, perhaps with folders, is the end of a path."""
    return path == name or path.endswith(f"/{name}")


def folder_of(path: bytes) -> bytes:
    """The folder of a path below the source, with "/" at its end; b"" for the source itself."""
    return path[: path.rfind(b"/") + 1]


def _last(name: str) -> bytes:
    try:
        return os.fsencode(name.rpartition("/")[2])
    except UnicodeEncodeError:  # half of a surrogate pair, from a table
        return b""
