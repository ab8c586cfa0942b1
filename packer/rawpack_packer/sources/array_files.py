"""Which file of arrays a path stands for, and which of its arrays: a file; a split of one, `mnist.npz/train`; or a
folder of such files. Names say what is a split, and which labels belong to which images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

import xxhash

from rawpack.errors import UsageError
from rawpack_packer.sources.folder import EXTENSIONS, SPLITS, DividedError, is_split, same_split, split_order
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.text import listed, plain

ARRAYS = re.compile(r"\.np[yz]$|idx\d-ubyte(\.gz)?$")
HDF5 = re.compile(r"\.(h5|hdf5|hdf|he5)$", re.IGNORECASE)
NAMED = {"arrays": ARRAYS, "hdf5": HDF5}
"""Kind of source -> ends of the names of its files, which a folder may hold."""
_IMAGES = re.compile(r"(?<![^\W_])(images?|imgs?|data|x)(?![^\W_])", re.IGNORECASE)
_LABELS = ("labels", "label", "targets", "target", "y", "Y")
"""What a file of images has in its name, and what the file of their labels has in its place."""
_BETWEEN = "/_.-"
_FORM = rf"(?:^|[{_BETWEEN}])({{}})(?:[_-]?set)?(?=[{_BETWEEN}]|$)"
_SPLIT = re.compile(_FORM.format("|".join(sorted(map(re.escape, SPLITS), key=len, reverse=True))), re.IGNORECASE)
_TABLES = re.compile(r"\.(csv|tsv|jsonl?|ndjson|parquet|xml|pkl)$", re.IGNORECASE)
"""Other files that may belong to images."""
_CALLED = {"t10k": "test"}
"""Names of splits that users call otherwise."""
_SHOWN = 12


@dataclass(frozen=True)
class ArraysAt:
    """A file of arrays that a path stands for."""

    kind: str
    """ "arrays" or "hdf5"."""
    root: str
    """The path, as messages name it."""
    file: Listing
    split: str = ""
    """The split whose arrays are meant; "" for all."""
    in_folder: bool = False
    """Whether the path is a folder, or a split of one."""

    def __post_init__(self) -> None:
        self.file.check_ends()

    @property
    def states(self) -> list[tuple[int, int]]:
        """What tells one split of a file from another, as a state in `Source.states`."""
        return [(0, xxhash.xxh3_64_intdigest(self.split.encode()) - (1 << 63))] if self.split else []

    def left_beside(self, labels: Listing | None = None) -> list[str]:
        """A line that names what else is in the folder that was given, and may belong to these images. labels: the file
        of their labels."""
        own = self.file.path.name
        used, split, named = {own, labels.path.name if labels else ""}, split_of(own)[0], NAMED[self.kind]
        left = [
            name
            for name in sorted(self.file.above.names if self.in_folder else ())
            if (named.search(name) or _TABLES.search(name)) and split_of(name)[0] == split
            if not used & {name, name.removesuffix(".gz")}
        ]
        return [f"not packed: {listed(left, _SHOWN)}, beside {plain(own)}"] if left else []

    def arrays(self, names: Iterable[str], images: Iterable[str], *, named: bool) -> dict[str, str]:
        """Name of an array, of a split without it -> its name in the file. images: the names of those that may be
        images. named: whether the user says which of them is packed.

        Raises DividedError where nobody says so, and images have several splits; UsageError where nothing belongs to
        the split."""
        every = [*names]
        if not self.split:
            if not named and (splits := splits_among(images)):
                raise DividedError(os.fspath(self.file.path), splits, self.kind)
            return {name: name for name in every}
        if not (arrays := of_split(every, self.split)):
            has, where = listed(every, _SHOWN) or "no arrays", plain(os.fsencode(self.file.path.absolute()))
            raise UsageError(f"{where} has no split {plain(self.split)!r}: it has {has}")
        return arrays


def split_of(name: str) -> tuple[str, str]:
    """The split in the name of an array or a file, "" where there is none; and the name without it: of `x_train`,
    `train` and `x`."""
    match = _SPLIT.search(name)
    return ("", name) if match is None else (match[1], _without(name, match))


def of_split(names: Iterable[str], split: str) -> dict[str, str]:
    """Name without the split -> name, of what belongs to a split. `val` finds `valid`, if there is no `val`."""
    every = [*names]
    form = re.compile(_FORM.format(re.escape(split)), re.IGNORECASE)
    exact = {_without(name, match): name for name in every if (match := form.search(name))}
    alike = {rest: name for name in every for part, rest in [split_of(name)] if part and same_split(part, split)}
    return exact or alike


def splits_among(names: Iterable[str]) -> list[str]:
    """The splits that names of images have, train first; empty where one has none, or all have the same."""
    parts = [split_of(name)[0] for name in names]
    splits = {_CALLED.get(part.lower(), part) for part in parts}
    return sorted(splits, key=split_order) if all(parts) and len(splits) > 1 else []


def labels_beside(file: Listing) -> Listing | None:
    """The file of labels that belongs to a file of images, by its name: to `train-images-idx3-ubyte`,
    `train-labels-idx1-ubyte`; to `x_train.npy`, `y_train.npy`."""
    own = file.path.name
    for word in _IMAGES.finditer(own):
        for label in _LABELS:
            name = (own[: word.start()] + label + own[word.end() :]).replace("idx3", "idx1")
            stem = name.removesuffix(".gz")
            for beside in (file.above / each for each in (name, stem, f"{stem}.gz")):
                if beside.is_file:
                    return beside
    return None


def file_at(path: str | os.PathLike[str], kind: str) -> ArraysAt:
    """The file at a path of this kind of source. Raises DividedError for a folder that holds several splits."""
    listing, at = Listing.of(path), partial(ArraysAt, kind, plain(os.fsencode(Path(path).absolute())))
    if listing.exists and not listing.is_dir:
        return at(listing)
    folder, split = (listing, "") if listing.is_dir else (listing.above, listing.path.name)
    if folder.is_file:
        return at(folder, split)
    files = files_in(folder, NAMED[kind])
    if "" in files:
        own = split_of(files[""].path.name)[0]
        return at(files[""], "" if own and same_split(own, split) else split, in_folder=True)
    if files and not split:
        raise DividedError(os.fspath(listing.path), [*files], kind)
    fitting = [*of_split(files, split).values()]
    return at(files[fitting[0]], in_folder=True) if fitting else at(listing)


def files_in(folder: Listing, named: re.Pattern[str]) -> dict[str, Listing]:
    """Split -> the file with its images, in a folder that holds files of arrays, and neither folders nor image files;
    "" -> the only one. Empty for any other folder. torchvision's are in a folder `raw`, alone or beside `processed`."""
    every = folder.names
    apart = {name for name, is_folder in every.items() if is_folder or PurePath(name).suffix.lower() in EXTENSIONS}
    if apart:
        return files_in(folder / "raw", named) if "raw" in apart <= {"raw", "processed"} else {}
    whole = [name for name in sorted(every) if name.removesuffix(".gz") == name or name[:-3] not in every]
    names = [name for name in whole if named.search(name)]
    images = [name for name in names if labels_beside(folder / name)] or names
    if len(images) == 1:
        return {"": folder / images[0]}
    splits = {split: [*of_split(images, split).values()] for split in splits_among(images)}
    one_each = all(len(files) == 1 for files in splits.values())
    return {split: folder / files[0] for split, files in splits.items()} if one_each else {}


def _holds(listing: Listing, named: re.Pattern[str]) -> bool:
    if listing.is_dir:
        return bool(files_in(listing, named))
    path, above = listing.path, listing.above
    if above.is_file:
        return bool(named.search(path.parent.name))
    files = files_in(above, named) if path.name and "." not in path.name else {}
    return is_split(path.name) if "" in files else bool(of_split(files, path.name))


holds_arrays, holds_hdf5 = partial(_holds, named=ARRAYS), partial(_holds, named=HDF5)
"""Whether a folder, or a split that a path names, is one of .npy, .npz or IDX files; of HDF5 files."""


def _without(name: str, match: re.Match[str]) -> str:
    return (name[: match.start()] + name[match.end() :]).strip(_BETWEEN)
