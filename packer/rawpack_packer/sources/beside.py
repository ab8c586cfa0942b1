"""What a scan of a folder sees next to the images: tables, files named as an image, and what else was left out.

It takes what the scan lists anyway, one folder after another, and keeps only a few names of each: no second walk, and
memory that does not grow with the number of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Located = Callable[[str, bool], str | None]
"""The path of an image below the source, by its name, or with True by its name without the extension; None where there
is none."""
TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})
"""Suffixes of tables."""
PICKLES = frozenset({".pyd", ".pkl", ".pickle", ".pth", ".pt"})
_PAIRED = PICKLES | {".json", ".xml", ".txt", ".cls", ".caption", ".npy"}
"""Suffixes of files that describe an image if they are named as it is."""
_SINGLE = frozenset({".json", ".xml", ".txt"})
"""Suffixes of files that may describe all images."""
_NEVER = frozenset(
    {"readme", "license", "licence", "copying", "notice", "changelog", "citation", "classes", "labels", "requirements"}
)
"""Names without a suffix of files that describe no image, even if an image has the same name."""
_MOST_SUFFIXES = 64
_MOST_NAMES = 4096
"""Files of one folder, and of one suffix, that are compared with its images."""
_MOST_OF_FOLDER, _MOST = 8, 256
"""Names of one folder that are kept, and names in all."""
_MOST_APART = 16
"""Folders without an image whose files are compared with the images of others: each look goes through all names."""
_SAMPLED = 4
"""Files of one folder, and of one suffix, that are compared with the images of other folders."""


@dataclass(slots=True)
class Beside:
    """What is beside the images of a folder, as far as the scan is."""

    suffixes: dict[str, int] = field(default_factory=dict)
    """Suffix of files that are no images -> how many there are, in the order in which they came; "" for none."""
    tables: list[bytes] = field(default_factory=list)
    """Paths of tables that are not empty, the first few."""
    pairs: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Suffix of files that are named as an image in their folder -> the paths of the first one, and of its image."""
    apart: dict[tuple[bytes, str], list[bytes]] = field(default_factory=dict)
    """Folder without an image of its own, and suffix -> the names of two files or more."""
    singles: list[bytes] = field(default_factory=list)
    """Paths of files that may describe all images, the first few."""
    above: list[bytes] = field(default_factory=list)
    """Names of tables in folders that the folder is in, if it is one in an archive."""
    _noted: dict[str, list[bytes]] = field(default_factory=dict)
    """Of the folder that is being listed: suffix -> names."""

    def add(self, name: bytes, suffix: str, size: int) -> None:
        """Take a file that is no image. suffix: in lower case, with its dot."""
        if suffix in self.suffixes or len(self.suffixes) < _MOST_SUFFIXES:
            self.suffixes[suffix] = self.suffixes.get(suffix, 0) + 1
        if size and suffix not in self.pairs and (suffix in TABLES or suffix in _PAIRED):
            names = self._noted.setdefault(suffix, [])
            if len(names) < _MOST_NAMES:
                names.append(name)

    def end(self, folder: bytes, images: Iterable[bytes]) -> None:
        """Take the end of a folder's list. images: the names of what else is in it."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        for suffix in sorted(TABLES & noted.keys()):
            self.tables += [folder + name for name in sorted(noted.pop(suffix))[: max(0, _MOST - len(self.tables))]]
        alone, stems = True, _by_stem(noted)
        for image in images:
            alone = False
            for suffix, name in stems.get(image) or stems.get(image.rpartition(b".")[0]) or ():
                if noted.pop(suffix, None) is not None:
                    self.pairs[suffix] = (folder + name, folder + image)
            if not noted:
                break
        for suffix, names in noted.items():
            some = sorted(names)[:_MOST_OF_FOLDER]
            if alone and len(some) > 1 and len(self.apart) < _MOST_APART:
                self.apart[folder, suffix] = some[:_SAMPLED]
            if suffix in _SINGLE:
                self.singles += [folder + name for name in some[: max(0, _MOST - len(self.singles))]]


def _by_stem(noted: Mapping[str, Iterable[bytes]]) -> dict[bytes, list[tuple[str, bytes]]]:
    """Files, each with its suffix, by the names that their images may have: `a.jpg` and `a` for `a.jpg.json`."""
    found = dict[bytes, list[tuple[str, bytes]]]()
    for suffix, names in noted.items():
        for name in names:
            for stem in {name.rpartition(b".")[0], name.partition(b".")[0]}:
                if stem and stem.decode("utf-8", "replace").lower() not in _NEVER:
                    found.setdefault(stem, []).append((suffix, name))
    return found
