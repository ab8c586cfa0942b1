"""One or several stores as a source: their samples are packed again.

JPEG files are passed on as bytes, everything else as arrays. All data is verified against its checksums: columns when
the source is opened, images and masks as they are read.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import NAME
from rawpack.disk.splits import split_names
from rawpack.errors import DamagedStoreError, DecodeError, PackError, RawpackError, UsageError
from rawpack.formats import FieldReader
from rawpack.formats.field_reader import planes_of
from rawpack.remote.url import refuse_url
from rawpack.store.store import Store
from rawpack_packer.counts import are_frames
from rawpack_packer.sources.base import Item, Rows, Scanning, SourceInfo, numbered, unseen
from rawpack_packer.sources.compatible_stores import (
    IMAGE,
    KEY,
    LABEL,
    check_fields,
    check_keys,
    check_videos,
    field_kind,
    image_kind,
    united_classes,
)
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.files import SourceChangedError
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import UNLABELLED, empty_classes
from rawpack_packer.sources.table.columns import rows_at
from rawpack_packer.sources.table.table import Table, TablePart, positions, renumbered, renumbered_boxes
from rawpack_packer.sources.video import Numbering, Videos, videos_in
from rawpack_packer.text import again, plain

_BLOCK = 1 << 16
_OPEN_STORES = 8
"""Stores that a worker keeps open for its next part."""
_ALL_DAMAGE = "`rawpack inspect --verify` lists all damage to that store"


@dataclass(frozen=True, eq=False)
class Origin:
    """One of the stores of a source, as a worker needs to know it."""

    path: str
    digest: str
    """The store at `path` must still be this one."""
    first: int
    """Number of its first sample, counted through all samples of all stores."""
    samples: int
    classes: Rows | None
    """Number of a class in this store -> its number in the source; None where there are no classes."""
    prefix: str
    """Comes before each of its keys."""


class StoreRows:
    """Samples of stores, which name themselves: a column of images. It is pickled without the stores that it has
    open."""

    def __init__(self, origins: Sequence[Origin], rows: Rows | range, opened: Mapping[str, Store]) -> None:
        """rows: numbers of the samples, counted through all samples of all stores, strictly increasing. opened: stores
        by path; others are opened when they are needed."""
        self.origins, self.rows, self._opened = tuple(origins), rows, opened
        self._firsts = [origin.first for origin in origins]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, i: int, /) -> Item:
        origin, store, row = self._locate(i)
        fields, planes = _column_values(origin, store, row), dict[str, NDArray[np.uint8]]()
        for name, field in store.fields.items():
            if not field.in_shards:
                continue
            fields[name], reader, at = _image(store, name, row)
            if field.planar:
                planes[name] = planes_of(reader, at)
        image: Any = fields.pop(IMAGE)
        return Item(origin.prefix + _key(store, row), image, fields, planes)

    def key(self, i: int) -> str:
        """The sample's key in its store, after the prefix of that store."""
        origin, store, row = self._locate(i)
        return origin.prefix + _key(store, row)

    def pick(self, rows: Rows, /) -> StoreRows:
        """The samples at `rows`, which ascend, with only the stores that they are in."""
        numbers = rows_at(self.rows, rows)
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        used = [origin for origin in self.origins if origin.first <= last and first < origin.first + origin.samples]
        return StoreRows(used, numbers, self._opened)

    # ------------------------------------------------------------------------------------------ whole stores

    @property
    def stores(self) -> list[Store]:
        """The stores that samples are in, in order."""
        return [self._store(origin) for origin in self.origins]

    @property
    def origin(self) -> tuple[dict[str, Any], ...]:
        """Digest and recipe of each store, for the recipe of what is derived from them."""
        return tuple({"digest": store.digest, "recipe": store.manifest.recipe} for store in self.stores)

    @property
    def holds_jpeg(self) -> bool:
        """Whether images of some store are JPEG files."""
        return any(field.codec.suffix == ".jpg" for store in self.stores for field in store.fields.values())

    @property
    def holds_planes(self) -> bool:
        """Whether images of all stores are planes of YCgCo 4:2:0."""
        return all(store.fields[IMAGE].planar for store in self.stores)

    @property
    def sizes_differ(self) -> list[str]:
        """The images and masks that have another size in one store than in another."""
        first = self.stores[0].fields
        return [name for name in first if any(store.fields[name].shape != first[name].shape for store in self.stores)]

    def all_keys(self) -> Iterator[str]:
        """The key of each sample of the stores."""
        for origin, store in zip(self.origins, self.stores, strict=True):
            for start in range(0, len(store), _BLOCK):
                rows = range(start, min(start + _BLOCK, len(store)))
                keys = store.columns.text(KEY, np.array(rows)) if KEY in store.fields else map(numbered, rows)
                yield from (origin.prefix + key for key in keys)

    def column_values(self, i: int) -> dict[str, Value]:
        """The fields of sample i that are stored in columns, except its key; boxes are arrays. Raises DecodeError."""
        values = _column_values(*self._locate(i))
        return {name: value.rows if isinstance(value, Boxes) else value for name, value in values.items()}

    def labels(self) -> Rows:
        """(n,): of all samples of the stores. A label that numbers no class is -1 here; its sample is rejected when it
        is read."""
        found = []
        for origin, store in zip(self.origins, self.stores, strict=True):
            assert origin.classes is not None
            labels = np.empty(len(store), np.int64)
            store.columns.take(LABEL, np.arange(len(store)), labels)
            labels[(labels < 0) | (labels >= len(origin.classes))] = -1
            found.append(renumbered(labels, origin.classes))
        return np.concatenate(found)

    def videos(self) -> Videos | None:
        """The video of each sample: each store has numbers of its own, see `united_videos`."""
        videos = self.videos_by_store()
        if not videos or any(part.names is None for part in videos):
            return None
        names = [name for part in videos for name in part.names or ()]
        return Videos(np.concatenate([part.numbers for part in videos]), names)

    def united_videos(self) -> Rows | None:
        """The number, (n,), that each sample's video gets where the stores become one; None where samples are no
        frames of videos."""
        numbering = Numbering()
        numbers = [numbering.add(videos) for videos in self.videos_by_store()]
        return np.concatenate(numbers) if numbers else None

    def videos_by_store(self) -> list[Videos]:
        """The videos of each store; empty where samples are no frames of videos."""
        if not are_frames(self.stores[0].fields):
            return []
        return [videos_in(store, origin.prefix) for origin, store in zip(self.origins, self.stores, strict=True)]

    def _locate(self, i: int) -> tuple[Origin, Store, int]:
        """The store of sample i, and its row there."""
        row = int(self.rows[i])
        origin = self.origins[bisect.bisect_right(self._firsts, row) - 1]
        return origin, self._store(origin), row - origin.first

    def _store(self, origin: Origin) -> Store:
        store = self._opened.get(origin.path)
        return _opened(origin.path, origin.digest) if store is None else store


def open_stores(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    /,
    *,
    prefixes: Sequence[str] | None = None,
    progress: Scanning = unseen,
) -> Table:
    """All samples of one or several stores, in the order in which they are stored. Its images are `StoreRows`.

    Classes of several stores are united by name: those of the first store keep their numbers, then come the new ones of
    each next store. Keys must differ, and fields must be the same, except that images and masks may differ in size and
    encoding. States are empty: the recipe records the digests of the stores, which cover all of their files.

    prefixes: what comes before the keys of each store.

    Raises StoreError for what is not a complete store, DamagedStoreError where columns do not fit their checksums,
    UsageError where stores do not go together.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise UsageError("no store was named")
    stores, total = list[Store](), 0
    for name in paths:
        refuse_url(name)
        stores.append(_verified_store(Path(name).resolve()))
        total += len(stores[-1])
        progress(total)
    names = [plain(os.fsencode(store.path)) for store in stores]
    root = names[0] if len(names) == 1 else f"<{len(names)} stores: {', '.join(names)}>"
    if not total:
        raise UsageError(f"{root} has no samples")
    check_fields(stores)
    classes = united_classes(stores)
    origins, first = list[Origin](), 0
    for store, prefix in zip(stores, prefixes or [""] * len(paths), strict=True):
        numbers = None if classes is None else positions(store.manifest.classes or (), classes)
        origins.append(Origin(str(store.path), store.digest, first, len(store), numbers, prefix))
        first += len(store)
    rows = StoreRows(origins, range(total), {str(store.path): store for store in stores})
    fields = {name: field_kind(name, stores) for name in stores[0].fields if name not in (IMAGE, KEY)}
    labels = None if classes is None or LABEL not in fields else rows.labels()
    info = SourceInfo(
        kind="store",
        root=root,
        paths=tuple(str(store.path) for store in stores),
        fields=fields,
        image=image_kind(stores),
        classes=classes,
        empty_classes=() if labels is None else empty_classes(classes or (), labels),
        counts={} if labels is None or (labels >= 0).all() else {UNLABELLED: int((labels < 0).sum())},
    )
    if len(stores) > 1:
        check_keys(rows.all_keys(), total, rows.key)
        check_videos(stores, rows.videos_by_store())
    return Table(info, TablePart(rows), labels=labels, find_videos=rows.videos)


def store_rows(table: Table) -> StoreRows:
    """The images of a table of stores."""
    rows: StoreRows = table.rows.images
    return rows


def _key(store: Store, row: int) -> str:
    """The key of a row; its number, where a store has no keys."""
    return store.columns.text(KEY, np.array([row]))[0] if KEY in store.fields else numbered(row)


@lru_cache(maxsize=_OPEN_STORES)
def _opened(path: str, digest: str) -> Store:
    """The store at `path`, in a worker."""
    try:
        store = Store(Path(path))
    except RawpackError as error:
        raise PackError(f"{error}; fix that and run {again()} again") from error
    if store.digest != digest:
        raise SourceChangedError(f"{plain(path)} is another store than when packing began; run the command again")
    return store


def _verified_store(path: Path) -> Store:
    """The store at `path`, its columns verified against their checksums."""
    splits = [] if (Listing(path) / NAME).is_file or not path.is_dir() else split_names(path)
    if splits:
        raise UsageError(f"{path} is a set of splits: name one of them, {', '.join(str(path / s) for s in splits)}")
    store = Store(path)
    try:
        store.columns.check_contents()
    except DamagedStoreError as error:
        raise DamagedStoreError(f"{error}; {_ALL_DAMAGE}") from error
    images = [name for name, field in store.fields.items() if field.kind == "image"]
    if IMAGE not in images:
        raise UsageError(f"{path} has the images {', '.join(images) or 'none'}; the first one must be called {IMAGE}")
    if KEY in store.fields and store.fields[KEY].kind != "text":
        raise UsageError(f"{path}: its field {KEY} is {store.fields[KEY].dtype}, and keys must be text")
    try:
        msgspec.msgpack.encode(store.manifest.recipe)
    except (OverflowError, RecursionError) as error:
        # A job's note cannot hold all that JSON can: integers of any length.
        raise UsageError(f"{path} has a recipe that rawpack did not write: {error}") from error
    return store


def _image(store: Store, name: str, row: int) -> tuple[bytes | NDArray[Any], FieldReader, int]:
    """An image or mask, its reader, and its row there. Raises DecodeError where its bytes do not fit their checksum,
    PackError where the shard is not the one that was packed."""
    field, (shard, at) = store.fields[name], store.locate(row)
    try:
        reader = store.reader(shard, name)
    except RawpackError as error:
        raise PackError(f"{error}; {_ALL_DAMAGE}") from error
    try:
        stored = np.ascontiguousarray(reader.stored(at))
        if xxhash.xxh3_64_intdigest(stored.data) != int(store.columns.piece(f"{name}.xxh3", row, 1)[0]):
            raise DecodeError("damaged", f"{name} was changed after packing: its checksum does not fit")
        return stored.tobytes() if field.codec.suffix and not field.exact else reader.read(at), reader, at
    except DamagedStoreError as error:
        raise DecodeError("damaged", f"{name}: {error}") from error


def _column_values(origin: Origin, store: Store, row: int) -> dict[str, Value]:
    small = (name for name, field in store.fields.items() if not field.in_shards and name != KEY)
    return {name: _value(origin, store, name, row) for name in small}


def _value(origin: Origin, store: Store, name: str, row: int) -> Value:
    """A field of a sample, from its column."""
    field = store.fields[name]
    rows = np.array([row], np.int64)
    try:
        if field.kind == "text":
            return cast(Value, store.columns.text(name, rows)[0])
        if field.kind == "ragged":
            values = np.array(store.columns.ragged(name, rows)[0])
            if not field.is_boxes:
                return values
            boxes = Boxes(values, "xyxy")
            # The classes are those of labels, where there are labels.
            return boxes if origin.classes is None or LABEL in store.fields else renumbered_boxes(boxes, origin.classes)
    except DamagedStoreError as error:
        # The column fits its checksum, so it was packed with these offsets.
        raise DecodeError("damaged", f"{name} is outside its column") from error
    value = np.empty((1, *(n or 0 for n in field.shape)), field.dtype)
    store.columns.take(name, rows, value)
    if name != LABEL or origin.classes is None:
        return np.asarray(value[0])
    label = int(value[0])
    if not -1 <= label < len(origin.classes):
        raise DecodeError("bad_field", f"label is {label}; there are {len(origin.classes)} classes, counted from 0")
    return -1 if label < 0 else int(origin.classes[label])
