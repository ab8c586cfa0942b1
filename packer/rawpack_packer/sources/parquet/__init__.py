"""Parquet files, and the Arrow files of Hugging Face's `save_to_disk`: rows with an image.

| file | holds |
|---|---|
| `tables.py` | a file: its columns, its rows in batches of bounded size, and their values |
| `source.py` | which columns are packed, and the rows that a worker reads, as a source |

Here: which files a path stands for, a file, a checkout from the Hub, or a folder of `save_to_disk`. Only this is loaded
without pyarrow, which comes with `rawpack[parquet]`.

A split of a Hub checkout is often no folder of its own: files are named `data/train-00000-of-00004.parquet`. Its path
is then that of the checkout and the name of the split, as if it were a folder in it: `checkout/train`.
"""

from __future__ import annotations

import os
import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rawpack.disk.splits import is_split_name
from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.sources.files import missing
from rawpack_packer.sources.folder import EXTENSIONS as IMAGES
from rawpack_packer.sources.folder import is_split, split_order
from rawpack_packer.sources.look.listing import Listing, kept
from rawpack_packer.sources.table.choose import KEY, path_column
from rawpack_packer.sources.table.named_files import check_whole, decoded, natural, source_name
from rawpack_packer.text import listed, plain

T = TypeVar("T")
PARQUET, ARROW = ".parquet", ".arrow"
_STATE, _INFO, _DICT = "state.json", "dataset_info.json", "dataset_dict.json"
_METADATA = "metadata.parquet"
"""In a folder of image files, this lists them."""
_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d{4,})-of-(?P<count>\d{4,})(-[0-9a-f]+)?")
"""The name of one of several files of a split, without its suffix."""
ALIKE = ("status", "error_message")
"""Columns in which img2dataset says whether a row has an image: alike in all rows with one."""
_FEW = 3
"""How many tables of a folder show what all of them hold."""
_DEPTH = 2
"""Folders may be in folders: configuration, then split."""
_IMAGE_FOLDERS, _MOST_FOLDERS = 8, 200
"""How many subfolders with images make a folder one of images; and how many subfolders are looked into."""
Splits = dict[str, list[Listing]]
"""Name -> files in order; the name is "" where files are not divided."""


class _Name(msgspec.Struct):
    filename: str


class _SavedState(msgspec.Struct):
    data: list[_Name] = msgspec.field(name="_data_files")
    indices: list[Any] | None = msgspec.field(name="_indices_files", default=None)


class _Dict(msgspec.Struct):
    splits: list[str]


class _Info(msgspec.Struct):
    features: dict[str, Any] | None = None


def has_tables(listing: Listing) -> bool:
    """Whether a folder holds such files, of samples or of paths; or a path names a split of such a folder."""
    return bool(_splits(listing)) and not tables_of_files(listing)


def tables_of_files(listing: Listing) -> list[Path]:
    """The tables of a folder that img2dataset wrote as files: each has a folder of images with its number."""
    tables = [table for table in _at_top(listing) if (stem := table.path.stem).isdigit() and (listing / stem).is_dir]
    return [table.path for table in tables] if tables and {*(types_of(tables[0]) or ())} >= {*ALIKE, KEY} else []


def is_table(listing: Listing) -> bool:
    """Whether a Parquet or Arrow file does not list image files: with a column of paths, and none of images."""
    return _columns(listing) != "paths"


@kept
def types_of(listing: Listing) -> dict[str, Any] | None:
    """The types of the columns of a Parquet file, of pyarrow; None where it cannot be read, of which whoever opens it
    says why."""
    if not listing.is_file:
        return None
    try:
        import pyarrow.parquet as pq

        from rawpack_packer.sources.parquet.tables import storage

        return {one.name: storage(one.type) for one in pq.read_schema(listing.path)}
    except (OSError, ValueError, NotImplementedError, ImportError):
        return None


def _columns(listing: Listing) -> str | None:
    """What a file has columns of: "images", or else "paths"; "" for neither, None where it cannot be read."""
    if (types := types_of(listing)) is None:
        return None
    from rawpack_packer.sources.parquet.tables import holds_image, is_text

    if any(map(holds_image, types.values())):
        return "images"
    texts = [name for name, type_ in types.items() if is_text(type_)]
    return "paths" if path_column(texts, partial(_is_path, listing)) else ""


def _is_path(listing: Listing, name: str) -> bool:
    """Whether the first value of a column of texts is a path."""
    import pyarrow.parquet as pq

    from rawpack_packer.sources.listing.reading import is_path

    with pq.ParquetFile(listing.path) as file:
        batches = islice(file.iter_batches(1, columns=[name]), 1)
        values = [value for batch in batches for value in batch.column(0).to_pylist()]
    return is_path(next(iter(values), None), os.fspath(listing.path.parent))


def lists_paths(listing: Listing) -> bool:
    """Whether the Parquet files of a folder, or of a split of one, are a listing in parts."""
    try:
        columns = {*map(_columns, _all_files(listing)[:_FEW])}
    except UsageError:  # whoever opens it reports this
        return False
    return "paths" in columns and "images" not in columns


def listing_files(listing: Listing) -> list[Path]:
    """The Parquet files of a listing in parts, which may be next to its images; empty where there are none."""
    top = sorted(_at_top(listing), key=lambda file: natural(file.path.name))
    files = [file.path.absolute() for file in top or _all_files(listing)]
    check_whole([*map(str, files)], source_name(listing))
    return files


def holds_images(listing: Listing) -> bool | None:
    """Whether the Parquet files at the top of a folder have images, by their types; None where there is none, one
    cannot be read, or pyarrow is missing."""
    columns = {*map(_columns, _at_top(listing)[:_FEW])}
    return True if "images" in columns else None if None in columns or not columns else False


@kept
def _at_top(listing: Listing) -> list[Listing]:
    """The Parquet files at the top of a folder, sorted; none where it cannot be read, of which whoever opens it says
    why."""
    try:
        names = sorted(name for name, _ in listing.all_names())
        return [listing / name for name in names if name.lower().endswith(PARQUET)]
    except (OSError, ValueError):
        return []


def splits_of(listing: Listing) -> list[str]:
    """The names of the splits that a folder is divided into, train first; empty where there are fewer than two."""
    found = _splits(listing)
    return list(found) if len(found) > 1 else []


def files_of(listing: Listing) -> list[Listing]:
    """The files at a path in order, those of all splits. Raises UsageError where there are none, or one is missing."""
    where = listing.path.absolute()
    if listing.is_file:
        return [listing]
    files = _all_files(listing)
    if not files and not listing.exists:
        raise missing(os.fspath(where))
    if not files:
        raise UsageError(f"{plain(os.fsencode(where))} has no .parquet file, and is no folder of save_to_disk")
    check_whole([str(file.path) for file in files], plain(os.fsencode(where)))
    return files


def _all_files(listing: Listing) -> list[Listing]:
    """Those of all splits. Raises UsageError."""
    return [file for files in _splits(listing).values() for file in files]


def features_beside(file: Path) -> dict[str, Any] | None:
    """What `save_to_disk` says of the columns of an Arrow file; None where there is nothing."""
    info = file.parent / _INFO
    if file.suffix.lower() != ARROW or not info.is_file():
        return None
    return _read(info, _Info).features


@kept
def _splits(listing: Listing) -> Splits:
    if not listing.is_dir:
        try:
            parent = _splits(listing.above) if listing.above.is_dir and not listing.exists else {}
        except UsageError:
            return {}  # what is wrong with a folder says nothing about a path that is not in it
        return {"": parent[listing.path.name]} if listing.path.name in parent else {}
    if (listing / _STATE).is_file and (listing / _INFO).is_file:
        return {"": _saved(listing)}
    if (listing / _DICT).is_file:
        where = listing.path.absolute() / _DICT
        names = _read(where, _Dict).splits
        for name in names:
            if not is_split_name(name):
                raise UsageError(f"{plain(os.fsencode(where))}: {plain(name)!r} is not a name of a split")
        return {name: _saved(listing / name) for name in sorted(names, key=split_order)}
    return _checkout(listing)


def _saved(folder: Listing) -> list[Listing]:
    """The files of a folder of `save_to_disk`."""
    file = folder.path.absolute() / _STATE
    state = _read(file, _SavedState)
    where = plain(os.fsencode(file))
    if state.indices:
        raise UsageError(
            f"{where} has _indices_files, by which the rows are in another order: save it again, as by "
            "load_from_disk(...).flatten_indices().save_to_disk(...)"
        )
    for one in state.data:
        if Path(one.filename).name != one.filename or "\\" in one.filename or "\0" in one.filename:
            raise UsageError(f"{where} names a file outside its folder, {plain(one.filename)!r}: take it out")
    if not state.data:
        raise UsageError(f"{where} names no file: the dataset is empty")
    return [folder / one.filename for one in state.data]


def _checkout(listing: Listing) -> Splits:
    """The Parquet files in a folder and the folders in it, by their splits."""
    folder, files = listing.path, _parquet_files(listing)
    configurations = {_configuration(file.path, folder) for file in files}
    if len(configurations) > 1:
        names = sorted(configurations, key=natural)
        raise UsageError(
            f"{plain(os.fsencode(folder))} contains {len(names)} configurations "
            f"({listed([name or 'the folder itself' for name in names], 5)}): give the path of one of them"
        )
    found: Splits = {}
    for file in sorted(files, key=lambda file: natural(file.path.name)):
        found.setdefault(_split(file.path, folder) or file.path.stem, []).append(file)
    if not any(map(is_split, found)) and not all(_in_own_folder(file.path, folder) for file in files):
        return {"": sorted(files, key=lambda file: natural(str(file.path)))} if files else {}
    return {name: found[name] for name in sorted(found, key=split_order)}


def _parquet_files(root: Listing) -> list[Listing]:
    found, image_folders = list[Listing](), 0
    folders = [(root, 0)]
    for folder, depth in islice(folders, _MOST_FOLDERS):
        files, inner, has_image = list[Listing](), list[str](), False
        try:
            for name, is_dir in folder.all_names():
                end = os.path.splitext(name)[1].lower()  # noqa: PTH122 - for each file of a folder of images
                has_image = has_image or end in IMAGES
                if end == PARQUET and name != _METADATA:
                    files.append(folder / name)
                elif depth < _DEPTH and is_dir:
                    inner.append(name)
                if has_image and depth:
                    break
        except OSError:
            continue  # the scan of the folder reports why
        if has_image:
            # A file next to images is usually about them.
            files = [] if depth else [file for file in files if _split(file.path, root.path)]
            image_folders += 1
            if image_folders > _IMAGE_FOLDERS and not found:
                return []
        found += files
        folders += [(folder / name, depth + 1) for name in sorted(inner)]
    return found


def _split(file: Path, root: Path) -> str:
    """The name of the split that a file belongs to; "" where neither its name nor that of its folder says so."""
    shard = _SHARD.fullmatch(file.stem)
    if shard is not None:
        return shard["split"]
    if is_split(file.stem):
        return file.stem
    return file.parent.name if file.parent != root and is_split(file.parent.name) else ""


def _configuration(file: Path, root: Path) -> str:
    """The folders that a file is in, without those that stand for all of a checkout, or for a split."""
    folders = file.parent.relative_to(root).parts
    folders = folders[:-1] if _in_own_folder(file, root) else folders
    return "/".join(name for name in folders if name != "data" and not is_split(name))


def _in_own_folder(file: Path, root: Path) -> bool:
    """Whether a file is in a folder that is called as its split, as an export of a set of splits writes it."""
    shard = _SHARD.fullmatch(file.stem)
    return shard is not None and file.parent != root and file.parent.name == shard["split"]


def _read(file: Path, kind: type[T]) -> T:
    where = plain(os.fsencode(file))
    with reading(where):
        data = file.read_bytes()
    return decoded(data, kind, where, "save_to_disk")
