"""Ultralytics' `data.yaml`: where the images of each split are, the names of classes, and what keypoints there are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import need, reading
from rawpack_packer.options import opt
from rawpack_packer.sources.detection import MOST_KEYPOINTS, PathPosition, lines_of, read_whole
from rawpack_packer.sources.folder import splits_in
from rawpack_packer.sources.listing.lines import PathParser
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import Length
from rawpack_packer.sources.table.choose import classes_of
from rawpack_packer.sources.table.columns import Rows
from rawpack_packer.text import listed, plain

SUFFIXES = (".yaml", ".yml")
SPLITS = ("train", "val", "test")
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class DataYaml:
    """What rawpack takes from a `data.yaml`."""

    path: Path
    names: tuple[str, ...] | None
    keypoints: tuple[int, int] | None
    """`kpt_shape`: how many keypoints each box has, and 2 or 3 numbers for each."""
    mirror: tuple[int, ...]
    """`flip_idx`: which keypoint takes the place of each in a mirrored image; empty where it is not given."""
    folder: str
    """`path`, as written."""
    entries: dict[str, tuple[str, ...]]
    """Each split -> folders of images, or lists of them, as written."""

    def places(self) -> tuple[Path, dict[str, list[Path]]]:
        """The dataset's folder, and the folders and lists of each split. Raises UsageError where one is missing."""
        where = plain(os.fspath(self.path))
        if not self.entries:
            raise UsageError(f"{where} names no images: it has none of {', '.join(SPLITS)}")
        here = self.path.parent
        bases = [here / self.folder]
        if self.folder and not Path(self.folder).is_absolute():
            bases += [
                here / "datasets" / self.folder,
                here.parent / self.folder,
                here.parent / "datasets" / self.folder,
            ]
            bases += [Path(self.folder).absolute(), here]
        wanted = [entry for entries in self.entries.values() for entry in entries]
        for base in bases:
            places = {split: [_below(base, entry) for entry in entries] for split, entries in self.entries.items()}
            if any(place.exists() for several in places.values() for place in several):
                break
        else:
            tried = listed(list(dict.fromkeys(plain(os.path.normpath(base)) for base in bases)), 6)
            raise UsageError(f"{where}: there is no {plain(wanted[0])} in {tried}: correct `path` in it")
        # `test` is often named in a file that came without its images.
        present = {split: some for split, some in places.items() if split != "test" or all(p.exists() for p in some)}
        for split, some in present.items():
            for place in some:
                if not place.exists():
                    raise UsageError(f"{where}: {split}: there is no {plain(os.fspath(place))}")
        return Path(os.path.normpath(base)), present


def is_data_yaml(listing: Listing) -> bool:
    """Whether a path is one by its name; or names a split of one, as `data.yaml/train`."""
    return listing.path.suffix.lower() in SUFFIXES and listing.is_file


def yolo_splits(listing: Listing) -> list[str]:
    """The splits of a `data.yaml`, or of a folder with `train` and `val` in it or in `images`; empty where there are
    fewer than two that differ."""
    if is_data_yaml(listing):
        places = read_yaml(listing)[0].places()[1]
        return list(places) if len({tuple(several) for several in places.values()}) > 1 else []
    return splits_in(listing) or (splits_in(listing / "images") if (listing / "labels").is_dir else [])


def read_yaml(listing: Listing) -> tuple[DataYaml, Rows]:
    """What is in a `data.yaml`; and its state, see `read_whole`. Raises UsageError, which names the entry that is
    wrong; MissingExtraError without PyYAML."""
    path = listing.path.absolute()
    where = plain(os.fspath(path))
    with reading(where):
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{where} has more than {_MOST_BYTES} bytes: it is not a data.yaml")
    data, state = read_whole(listing, where)
    return _parsed(path, data, where), state


@lru_cache(maxsize=8)
def _parsed(path: Path, data: bytes, where: str) -> DataYaml:
    names_instead = f"give the names of the classes by {opt.classes}, a file with one name per line"
    yaml = need("yaml", "yolo", where, names_instead)
    try:
        # All values as texts: the class "no" is not False.
        tree = yaml.load(data.decode(), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # as for "\\UFFFFFFFF", which is not a character
        raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise UsageError(f"{where} is not a data.yaml: it has no entries, such as names")
    some = {name: value for name, value in tree.items() if value or name == "names"}
    try:
        written = msgspec.convert(some, _Entries, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        cure = f"; {names_instead}" if "$.names" in str(error) else ""
        raise UsageError(f"{where}: {error}{cure}") from error
    names, points, mirror = written.names, written.kpt_shape, tuple(written.flip_idx)
    if isinstance(names, dict):
        names = [names[number] for number in sorted(names)] if sorted(names) == [*range(len(names))] else []
    if names is not None and not names:
        raise UsageError(f"{where} has no list 'names' of class names, numbered from 0; {names_instead}")
    if points and (len(points) != 2 or not 0 < points[0] <= MOST_KEYPOINTS or points[1] not in (2, 3)):
        raise UsageError(f"{where}: kpt_shape is {points}, but it is [keypoints, 2 or 3]")
    if mirror and (not points or sorted(mirror) != list(range(points[0]))):
        raise UsageError(f"{where}: flip_idx is {list(mirror)}, which is not an order of the keypoints of kpt_shape")
    values = {split: getattr(written, split) for split in SPLITS if getattr(written, split)}
    entries = {split: (value,) if isinstance(value, str) else tuple(value) for split, value in values.items()}
    for split, paths in entries.items():
        if not all(entry and "\0" not in entry for entry in paths):
            raise UsageError(f"{where}: {split} is neither a path nor a list of paths")
    return DataYaml(
        path=path,
        names=None if names is None else classes_of(names),
        keypoints=(points[0], points[1]) if points else None,
        mirror=mirror,
        folder=written.path,
        entries=entries,
    )


class _Entries(msgspec.Struct):
    """The entries of a `data.yaml` that are read."""

    names: list[str] | dict[Length, str] | None = None
    path: str = ""
    train: str | list[str] = ""
    val: str | list[str] = ""
    test: str | list[str] = ""
    kpt_shape: list[Length] = []
    flip_idx: list[Length] = []


def read_list(file: Path, root: Path, within: Sequence[Path], where: str) -> tuple[list[str], Rows, Rows]:
    """The images in a list, by their paths below the root (absolute if they are elsewhere), size and mtime of each, and
    the state of the list. Relative paths start from the list's folder, or from the root. within: folders that paths
    must not lead out of."""
    lines, state = lines_of(Listing(file), plain(os.fspath(file)))
    first = lines[0][1] if lines else ""
    base = root if (root / first).exists() and not (file.parent / first).exists() else file.parent
    paths = [os.path.normpath(base / line) if "\0" not in line else line for _, line in lines]
    name = plain(os.path.relpath(file, root))
    place = PathPosition(where, "", 0, cells=False, call=lambda line: f"{name}, line {line}")
    trusting = (
        f"write `path:` with the folder of the images into data.yaml, or name it by {opt.images} and {opt.labels_dir}"
    )
    parser = PathParser(place, os.fspath(root), [*map(os.fspath, within)], trusting)
    parser.add(paths, np.array([number for number, _ in lines], np.int64))
    below = os.path.join(root, "")  # noqa: PTH118 - as the paths
    return [path.removeprefix(below) for path in paths], parser.files().states, state


def _below(base: Path, entry: str) -> Path:
    """Where an entry leads. Roboflow writes ../train/images for a folder next to the file."""
    place = base / entry
    if entry.startswith("../") and not place.exists():
        place = base / entry.removeprefix("../")
    return Path(os.path.normpath(place))
