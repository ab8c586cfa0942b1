"""TFRecord files of `tf.train.Example`, and the folders of TensorFlow Datasets.

| file | holds |
|---|---|
| `example.py` | where the records of a file are, and the features of an Example |
| `columns.py` | which features are the image, the label, boxes and fields, by the first records; their values |
| `source.py` | the records as a source |

Here: which files a path stands for, and what TensorFlow Datasets says of them. Only this is loaded without
google-crc32c, which comes with `rawpack[tfrecord]`.

A split is named by its files, `train-00000-of-00004` or `mnist-train.tfrecord-00000-of-00001`. Its path is then that of
the folder and the name of the split, as if it were a folder in it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.folder import is_split, split_order
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import Axis, Size
from rawpack_packer.sources.table.named_files import (
    NamedFiles,
    check_whole,
    decoded,
    files_at,
    files_in,
    named_files,
    natural,
    source_name,
)
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool


T = TypeVar("T")
NOT_READ = "docs/how-to/what-is-not-read.md#tfrecord"
_NAME = re.compile(
    r"(?P<stem>.+?)(?P<a>-\d{4,6}-of-\d{4,6})?(?P<suffix>\.(tfrecords?|tfrec|records?))?(?P<b>-\d{4,6}-of-\d{4,6})?(\.gz)?",
    re.IGNORECASE,
)
_OF = re.compile(r"(?<=-)(\d{4,6})-of-(\d{4,6})")
_MOST_FOLDERS = 20
"""A folder with more folders in it is not looked into for splits or versions."""
_DEPTH = 2
"""Folders may be in folders: version in configuration, or in data set."""
_LENGTH, _LEAST = 8, 16
"""Bytes of the length of a record, with which it begins; and of a record without data."""


def is_tfrecord(listing: Listing) -> bool:
    """Whether a path is that of a TFRecord file, of a folder of such files, or of a split of such a folder."""
    if not (listing.is_file or listing.is_url):
        return bool(_splits(listing))
    name = _named(listing.path.name)
    if name is None:
        return not listing.is_url and _begins_with_example(listing.head)
    if listing.is_url or (name["suffix"] or "").lower().startswith(".tf"):
        return True
    size = listing.head[:_LENGTH]  # other files may be called .record
    return len(size) == _LENGTH and int.from_bytes(size, "little") + _LEAST <= listing.path.stat().st_size


def _begins_with_example(head: bytes) -> bool:
    """Whether a file, compressed or not, begins with a record of an Example: its features, which are all of it."""
    with suppress(zlib.error):
        head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(head, _LEAST + _LENGTH)
    size, tag, features = int.from_bytes(head[:_LENGTH], "little"), head[12:13], head[13 : 13 + _LENGTH]
    length = next((k for k, byte in enumerate(features, 1) if byte < 128), 0)
    inside = sum((byte & 127) << (7 * k) for k, byte in enumerate(features[:length]))
    return tag == b"\n" and length > 0 and size == 1 + length + inside


def splits_of(listing: Listing) -> list[str]:
    """The names of the splits that a folder is divided into, train first; empty where there are fewer than two."""
    return [*splits] if listing.is_dir and len(splits := _splits(listing)) > 1 else []


def files_of(path: str | os.PathLike[str], spool: Spool | None) -> NamedFiles:
    """The files that a user named, those of all splits of a folder. Raises UsageError."""
    files = [str(file) for files in _splits(Listing.of(path)).values() for file in files]
    check_whole(files, source_name(path))
    return files_at(files, spool) if files else named_files(path, spool)


class DatasetInfo(msgspec.Struct):
    """What TensorFlow Datasets says of a folder."""

    name: str
    splits: list[_Split] = []


class _Split(msgspec.Struct, rename="camel"):
    name: str
    shard_lengths: list[Size] = []


class _TensorShape(msgspec.Struct):
    dimensions: list[Axis] = []


class _Tensor(msgspec.Struct):
    dtype: str
    shape: _TensorShape


class _Sequence(msgspec.Struct):
    feature: _FeatureNote
    length: Axis = -1


class _FeaturesDict(msgspec.Struct):
    features: dict[str, _FeatureNote] = {}


class _FeatureNote(msgspec.Struct, rename="camel"):
    """What `features.json` says of a feature: it is one of these."""

    tensor: _Tensor | None = None
    sequence: _Sequence | None = None
    features_dict: _FeaturesDict | None = None


def info_in(folder: Listing) -> DatasetInfo | None:
    """What TensorFlow Datasets says of a folder; None where it says nothing. Raises UsageError."""
    return _read(folder / "dataset_info.json", DatasetInfo)


def records_in(file: Path, info: DatasetInfo | None) -> int | None:
    """How many records TensorFlow Datasets says that a file has; None where it says nothing."""
    lengths = {} if info is None else {split.name: split.shard_lengths for split in info.splits}
    found, counts = _OF.search(file.name), lengths.get(_split(file.name, info), [])
    return counts[int(found[1])] if found and int(found[1]) < int(found[2]) == len(counts) else None


def kinds_in(folder: Listing) -> dict[str, FieldKind]:
    """What TensorFlow Datasets says of the features of numbers in the files of a folder. Raises UsageError."""
    return dict(_tensors(_read(folder / "features.json", _FeatureNote) or _FeatureNote(), "", ()))


def _tensors(feature: _FeatureNote, name: str, outer: tuple[int, ...]) -> Iterator[tuple[str, FieldKind]]:
    """The names of features of numbers, and what each is. outer: the lengths of the sequences that they are in."""
    if tensor := feature.tensor:
        shape = (*outer, *tensor.shape.dimensions)
        with suppress(UsageError):  # of texts, and of what no field is
            yield name, FieldKind(tensor.dtype, tuple(None if n < 0 else n for n in shape))
    if sequence := feature.sequence:
        yield from _tensors(sequence.feature, name, (*outer, sequence.length))
    for inner, one in feature.features_dict.features.items() if feature.features_dict else ():
        yield from _tensors(one, f"{name}/{inner}" if name else inner, outer)


def _read(listing: Listing, kind: type[T]) -> T | None:
    """What a JSON file holds; None where there is none."""
    if not listing.is_file:
        return None
    where = plain(os.fsencode(listing.path))
    with reading(where):
        data = listing.contents() or listing.path.read_bytes()
    return decoded(data, kind, where, "TensorFlow Datasets", strict=False)  # numbers of 64 bits are texts


def _named(name: str) -> re.Match[str] | None:
    """The parts of the name of a TFRecord file; None for other names."""
    found = _NAME.fullmatch(name)
    return found if found and (found["suffix"] or found["a"] or found["b"]) else None


def _splits(listing: Listing, depth: int = _DEPTH) -> dict[str, list[Path]]:
    """Name -> files in order; the name is "" where files are not divided. depth: of folders that are looked into."""
    path = listing.path
    if not listing.is_dir:
        parent = _splits(listing.above) if listing.above.is_dir and not listing.exists else {}
        return {"": parent[path.name]} if path.name in parent else {}
    try:
        names = files_in(listing, _named)
    except OSError:
        return {}  # the scan of the folder reports why
    inner = {} if names or not depth else listing.names
    if inner and len(inner) <= _MOST_FOLDERS and all(inner.values()):
        folders = {name: _splits(listing / name, depth - 1) for name in inner}
        if len(folders) == 1:  # a version
            return next(iter(folders.values()))
        if all(map(is_split, folders)) and all(len(splits) == 1 for splits in folders.values()):
            return {name: next(iter(folders[name].values())) for name in sorted(folders, key=split_order)}
        if depth == _DEPTH and all(folders.values()):
            what = f"{len(folders)} folders of TFRecord files ({listed(sorted(folders, key=natural), 5)})"
            raise UsageError(f"{plain(os.fsencode(path))} contains {what}: give the path of one")
        return {}
    files = [Path(name) for name in sorted(names, key=natural)]
    if not files:
        return {}
    info = info_in(listing)
    names = [_split(file.name, info) for file in files]
    divided: dict[str, list[Path]] = {}
    for file, name in zip(files, names, strict=True):
        divided.setdefault(name or file.name.partition(".")[0], []).append(file)
    return {name: divided[name] for name in sorted(divided, key=split_order)} if any(names) else {"": files}


def _split(name: str, info: DatasetInfo | None) -> str:
    """The name of the split that a file belongs to; "" where its name does not say so."""
    found = _named(name)
    stem = name if found is None else found["stem"]
    if info is not None and stem.startswith(f"{info.name}-"):
        return stem.removeprefix(f"{info.name}-")
    return next((word for word in reversed(re.split(r"[^A-Za-z]+", stem)) if is_split(word)), "")
