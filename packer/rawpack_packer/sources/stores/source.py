"""Stores as a source: the samples of one or several, or some of them, to be packed anew without what they came from.

JPEG files go on as the bytes that they are, all else as arrays. Whatever is handed on was held against its checksum:
columns when the source is opened, images and masks one by one as they are read.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import NAME
from rawpack.disk.mapped import map_file
from rawpack.disk.provenance import packing_runs, read_provenance
from rawpack.disk.splits import split_names
from rawpack.errors import DamagedStoreError, DecodeError, PackError, RawpackError, UsageError
from rawpack.formats import FieldReader
from rawpack.remote.url import refuse_url
from rawpack.store.store import Store
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.files import SourceChangedError
from rawpack_packer.sources.stores.compatible import (
    IMAGE,
    KEY,
    LABEL,
    check_fields,
    field_kind,
    image_kind,
    numbers_of,
    united,
)
from rawpack_packer.sources.video_numbers import VIDEO, Numbering, Videos, are_frames, videos_in
from rawpack_packer.sources.view import in_boxes
from rawpack_packer.text import listed, plain

_SHOWN = 10
_BLOCK = 1 << 16
_OPEN_STORES = 8
"""That a worker keeps open, for its next part."""


def is_store(path: Path) -> bool:
    """Whether a folder is a store, by its manifest."""
    return os.path.isfile(path / NAME)  # noqa: PTH113 - False, and no error, where nothing can be looked into


@dataclass(frozen=True, eq=False)
class Origin:
    """One of the stores of a source, as a worker needs to know it."""

    path: str
    digest: str
    """The store at `path` must still be this one."""
    first: int
    """Number of its first sample, counted through all samples of all stores."""
    samples: int
    labels: NDArray[np.int64] | None
    """What becomes of each label, and where there are none of the classes of boxes: -1 of classes that are left out.
    None where there are no classes."""
    prefix: str
    """What its keys get in front."""


class StorePart:
    """Some samples of some stores. Travels to a worker without what it has open."""

    def __init__(
        self,
        origins: Sequence[Origin],
        rows: NDArray[np.int64] | range,
        opened: Mapping[str, Store],
        videos: NDArray[np.int64] | None = None,
    ) -> None:
        """rows: numbers of the samples, rising, counted through all samples of all stores. opened: stores by path;
        those that it lacks are opened when they are needed. videos: what becomes of `video`, of each row; None leaves
        it."""
        self.origins, self.rows, self.opened, self.videos = tuple(origins), rows, opened, videos
        self._firsts = [origin.first for origin in origins]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"opened": {}}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int, /) -> Item:
        origin, store, row = self._locate(i)
        fields = self._values(i)
        for name, field in store.fields.items():
            if field.kind == "mask":
                reader, at, _ = _sound(store, name, row)
                fields[name] = _read(reader, at, name)
        reader, at, stored = _sound(store, IMAGE, row)
        field = store.fields[IMAGE]
        image = stored.tobytes() if field.codec.suffix else _read(reader, at, IMAGE)
        return Item(origin.prefix + key_of(store, row), image, fields, planes=stored if field.planar else None)

    def small(self, i: int) -> dict[str, Value]:
        """The fields of sample i that lie in columns, but for its key; boxes as arrays. Raises DecodeError."""
        return {name: value.rows if isinstance(value, Boxes) else value for name, value in self._values(i).items()}

    def key(self, i: int, /) -> str:
        """The sample's key in its store, behind the prefix of that store."""
        origin, store, row = self._locate(i)
        return origin.prefix + key_of(store, row)

    def part(self, start: int, stop: int, /) -> StorePart:
        """Samples start <= i < stop, and of the stores those that they lie in."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        rows = self.rows[start:stop]
        first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
        used = [origin for origin in self.origins if origin.first <= last and first < origin.first + origin.samples]
        videos = None if self.videos is None else self.videos[start:stop]
        return StorePart(used, rows, self.opened, videos)

    def by_store(self) -> Iterator[tuple[Origin, Store, NDArray[np.int64]]]:
        """The samples as rows of their stores: (n,) each, at most 65,536, in their order."""
        for origin in self.origins:
            end = bisect.bisect_left(self.rows, origin.first + origin.samples)
            for start in range(bisect.bisect_left(self.rows, origin.first), end, _BLOCK):
                rows = np.asarray(self.rows[start : min(start + _BLOCK, end)], np.int64)
                yield origin, self._store(origin), rows - origin.first

    def _values(self, i: int) -> dict[str, Value]:
        """As `small`, but for boxes."""
        origin, store, row = self._locate(i)
        small = (name for name, field in store.fields.items() if not field.in_shards and name != KEY)
        values = {name: _value(origin, store, name, row) for name in small}
        return values if self.videos is None else values | {VIDEO: int(self.videos[i])}

    def _locate(self, i: int) -> tuple[Origin, Store, int]:
        """The store of sample i, and its row there."""
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        row = int(self.rows[i])
        origin = self.origins[bisect.bisect_right(self._firsts, row) - 1]
        return origin, self._store(origin), row - origin.first

    def _store(self, origin: Origin) -> Store:
        known = self.opened.get(origin.path)
        return _opened(origin.path, origin.digest) if known is None else known


class StoreSource(BaseSource):
    """One or several stores as a `Source`, in the order in which their samples are stored.

    Of several, classes are united by name: those of the first store keep their numbers, then come the new ones of each
    next store. So are the videos of frames, see `sources.videos`. Keys must differ. Fields must be the same, but images
    and masks may differ in size, and lie in shards in different ways.
    """

    _all: StorePart

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        /,
        *,
        prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """prefixes: what the keys of each store get in front.

        Raises StoreError where one is no whole store, DamagedStoreError where its columns are not those that were
        packed, UsageError where several do not go together.
        """
        named = [path] if isinstance(path, str | os.PathLike) else list(path)
        if not named:
            raise UsageError("no store was named")
        self.stores: list[Store] = []
        seen = 0
        for one in named:
            refuse_url(one)
            self.stores.append(_whole(Path(one).resolve()))
            seen += len(self.stores[-1])
            if progress is not None:
                progress(seen)
        paths = [plain(os.fsencode(store.path)) for store in self.stores]
        root = paths[0] if len(paths) == 1 else f"<{len(paths)} stores: {', '.join(paths)}>"
        if not seen:
            raise UsageError(f"{root} has no samples")
        check_fields(self.stores)
        classes = united(self.stores)
        origins, first = [], 0
        for store, prefix in zip(self.stores, prefixes or [""] * len(named), strict=True):
            labels = None if classes is None else numbers_of(store.manifest.classes or (), classes)
            origins.append(Origin(str(store.path), store.digest, first, len(store), labels, prefix))
            first += len(store)
        self._all = StorePart(origins, range(first), {str(store.path): store for store in self.stores})
        info = SourceInfo(
            kind="store",
            root=root,
            paths=tuple(str(store.path) for store in self.stores),
            fields={name: field_kind(name, self.stores) for name in self.stores[0].fields if name not in (IMAGE, KEY)},
            image=image_kind(self.stores),
            classes=classes,
        )
        self.info = replace(info, empty_classes=_empty(info, self._all))
        if len(self.stores) > 1:
            _check_keys(self)
            numbering = Numbering()
            self._check_videos()
            found = [numbering.add(videos) for videos in self._videos()]
            self._all.videos = np.concatenate(found) if found else None

    def small(self, i: int) -> dict[str, Value]:
        """The fields of sample i that lie in columns, but for its key. Raises DecodeError."""
        return self._all.small(i)

    def states(self) -> NDArray[np.int64]:
        """Nothing: the digests of the stores, which the recipe remembers, say more than sizes and times of files."""
        return np.empty((0, 2), np.int64)

    @property
    def origin(self) -> tuple[dict[str, Any], ...]:
        """Digest and recipe of each store, for the recipe of what is made of them."""
        return tuple({"digest": store.digest, "recipe": store.manifest.recipe} for store in self.stores)

    @property
    def holds_jpeg(self) -> bool:
        """Whether images of some store are JPEG files."""
        return any(store.fields[IMAGE].codec.suffix == ".jpg" for store in self.stores)

    @property
    def holds_planes(self) -> bool:
        """Whether images of all stores are planes of YCbCr 4:2:0."""
        return all(store.fields[IMAGE].planar for store in self.stores)

    @property
    def sizes_differ(self) -> bool:
        """Whether images or masks of one store have another size than those of another."""
        first = self.stores[0].fields
        return any(field.shape != first[name].shape for store in self.stores for name, field in store.fields.items())

    def labels(self) -> NDArray[np.int64] | None:
        """The label of each sample: (n,), -1 of those without a class; None where there are no classes."""
        return _labels(self.info, self._all)

    def videos(self) -> Videos | None:
        """The video of each sample, where they are frames that rawpack took of videos; else None."""
        found = self._videos()
        if not found or any(videos.names is None for videos in found):
            return None
        names = [name for videos in found for name in videos.names or ()]
        chosen = Videos(np.concatenate([videos.numbers for videos in found]), names).at(np.asarray(self._all.rows))
        return chosen if self._all.videos is None else Videos(self._all.videos, chosen.names)

    def _videos(self) -> list[Videos]:
        """The videos of each store; none where samples are no frames of videos."""
        pairs = zip(self.stores, self._all.origins, strict=True)
        return [videos_in(store, origin.prefix) for store, origin in pairs] if are_frames(self.info.fields) else []

    def _check_videos(self) -> None:
        """Raise UsageError where two stores have a video of one name, and nothing shows that it is the same video."""
        seen: dict[str, list[tuple[Store, int]]] = {}
        doubtful: list[str] = []
        for store, videos in zip(self.stores, self._videos(), strict=False):
            for name, number in dict(zip(videos.names or (), videos.numbers.tolist(), strict=False)).items():
                others = seen.setdefault(name, [])
                if others and not any(_same_video(store, number, *other) for other in others):
                    doubtful.append(name)
                others.append((store, number))
        if doubtful:
            raise UsageError(
                f"{len(doubtful):,} videos are in more than one of the stores by their names, and nothing shows that "
                f"they are the same videos: {_listed(doubtful)}; --prefix puts something in front of the keys of each. "
                "Parts of one video go together where their stores were packed from the same file, or made of one store"
            )

    def all_keys(self) -> Iterator[str]:
        """The key of each sample."""
        for origin, store, rows in self._all.by_store():
            for key in store.columns.text(KEY, rows) if KEY in store.fields else map(numbered, rows.tolist()):
                yield origin.prefix + key

    def only(
        self,
        rows: NDArray[np.int64],
        classes: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> StoreSource:
        """A source of some of the samples: `rows`, (m,), are their numbers here, rising.

        classes: those of `classes` that are left, whose labels are counted anew; None leaves them all. A sample of any
        other has no class then. options: by which they were chosen, see `SourceInfo.options`.
        """
        if len(rows) and (rows[0] < 0 or rows[-1] >= len(self) or (np.diff(rows) < 1).any()):
            raise UsageError(f"rows are to rise, from 0 to {len(self) - 1}")
        source = object.__new__(type(self))
        source.__dict__.update(self.__dict__)
        origins, info = list(self._all.origins), self.info
        if classes is not None and info.classes is not None:
            anew = np.append(numbers_of(info.classes, classes), -1)
            info = replace(info, classes=tuple(classes))
            origins = [replace(one, labels=None if one.labels is None else anew[one.labels]) for one in origins]
        videos = None if self._all.videos is None else self._all.videos[rows]
        source._all = StorePart(origins, np.asarray(self._all.rows, np.int64)[rows], self._all.opened, videos)
        source.info = replace(info, options=dict(options or {}), empty_classes=_empty(info, source._all))
        return source


def _labels(info: SourceInfo, rows: StorePart) -> NDArray[np.int64] | None:
    """See `StoreSource.labels`."""
    if info.classes is None or LABEL not in info.fields:
        return None
    found = [np.empty(0, np.int64)]
    for origin, store, block in rows.by_store():
        assert origin.labels is not None
        labels = np.empty(len(block), np.int64)
        store.columns.take(LABEL, block, labels)
        known = (labels >= 0) & (labels < len(origin.labels))
        found.append(np.where(known, np.append(origin.labels, -1)[np.where(known, labels, -1)], -1))
    return np.concatenate(found)


def _empty(info: SourceInfo, rows: StorePart) -> tuple[str, ...]:
    """The classes that have no sample; none where boxes have the classes."""
    labels = _labels(info, rows)
    found = range(len(info.classes or ())) if labels is None else set(np.unique(labels).tolist())
    return tuple(name for label, name in enumerate(info.classes or ()) if label not in found)


def key_of(store: Store, row: int) -> str:
    """The key of a row; its number, where a store has none."""
    return store.columns.text(KEY, np.array([row]))[0] if KEY in store.fields else numbered(row)


def numbered(row: int) -> str:
    """A sample's number as a name."""
    return f"{row:08d}"


@lru_cache(maxsize=_OPEN_STORES)
def _opened(path: str, digest: str) -> Store:
    """The store at `path`, in a worker."""
    try:
        store = Store(Path(path))
    except RawpackError as error:
        raise PackError(f"{error}; fix that and run the same command again") from error
    if store.digest != digest:
        raise SourceChangedError(f"{plain(path)} is another store than when packing began; run the command again")
    return store


def _whole(path: Path) -> Store:
    """The store at `path`, its columns held against their checksums."""
    splits = [] if is_store(path) or not path.is_dir() else split_names(path)
    if splits:
        raise UsageError(f"{path} is a set of splits: name one of them, {', '.join(str(path / s) for s in splits)}")
    store = Store(path)
    for columns in store.manifest.columns:
        for record in columns.files:
            if xxhash.xxh3_64_hexdigest(map_file(path / columns.folder, record).data) != record.xxh3:
                raise DamagedStoreError(
                    f"{path / columns.folder / record.name} was changed after packing: its checksum does not fit; "
                    "`rawpack inspect --verify` tells what else is damaged"
                )
    images = [name for name, field in store.fields.items() if field.kind == "image"]
    if images != [IMAGE]:
        raise UsageError(f"{path} has the images {', '.join(images) or 'none'}; one, named {IMAGE}, can be packed")
    if KEY in store.fields and store.fields[KEY].kind != "text":
        raise UsageError(f"{path} has keys that are {store.fields[KEY].dtype}, no texts")
    try:
        msgspec.msgpack.encode(store.manifest.recipe)
    except (OverflowError, RecursionError) as error:
        # JSON holds what a job's note cannot: numbers of any length.
        raise UsageError(f"{path} has a recipe that no run of rawpack has written: {error}") from None
    return store


def _sound(store: Store, name: str, row: int) -> tuple[FieldReader, int, NDArray[np.uint8]]:
    """The reader of image or mask `name` of a sample, its row there, and its stored bytes, which are those that were
    packed: DecodeError where they are not, PackError where the whole shard is not the one that was packed."""
    shard, at = store.locate(row)
    try:
        reader = store.reader(shard, name)
    except RawpackError as error:
        raise PackError(f"{error}; `rawpack inspect --verify` tells what else of that store is damaged") from error
    try:
        stored = np.ascontiguousarray(reader.stored(at))
    except DamagedStoreError as error:
        raise DecodeError("damaged", f"{name}: {error}") from None
    if xxhash.xxh3_64_intdigest(stored.data) != int(store.columns.piece(f"{name}.xxh3", row, 1)[0]):
        raise DecodeError("damaged", f"{name} was changed after packing: its checksum does not fit")
    return reader, at, stored


def _read(reader: FieldReader, at: int, name: str) -> NDArray[Any]:
    try:
        return reader.read(at)
    except DamagedStoreError as error:
        raise DecodeError("damaged", f"{name}: {error}") from None


def _value(origin: Origin, store: Store, name: str, row: int) -> Value:
    """Field `name` of a sample, which lies in a column."""
    field = store.fields[name]
    rows = np.array([row], np.int64)
    try:
        if field.kind == "text":
            return store.columns.text(name, rows)[0]
        if field.kind == "ragged":
            values = np.array(store.columns.ragged(name, rows)[0])
            return values if not field.is_boxes else _boxes(origin, store, values)
    except DamagedStoreError:
        # The column's checksum fits: it was made so.
        raise DecodeError("damaged", f"{name} does not lie in its column") from None
    value = np.empty((1, *(n or 0 for n in field.shape)), field.dtype)
    store.columns.take(name, rows, value)
    if name != LABEL or origin.labels is None:
        return np.asarray(value[0])
    label = int(value[0])
    if not -1 <= label < len(origin.labels):
        raise DecodeError("bad_field", f"label is {label}; there are {len(origin.labels)} classes, counted from 0")
    return -1 if label < 0 else int(origin.labels[label])


def _boxes(origin: Origin, store: Store, rows: NDArray[Any]) -> Value:
    """Boxes of a store, whose classes, where no label is of these, are numbered as those of all stores."""
    boxes = Boxes(rows, "xyxy")
    return boxes if origin.labels is None or LABEL in store.fields else in_boxes(boxes, origin.labels)


def _check_keys(source: StoreSource) -> None:
    """Raise UsageError, naming the first, where two samples have the same key."""
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(key.encode()) for key in source.all_keys()), np.uint64, len(source))
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    doubles = np.unique(np.concatenate([order[same], order[same + 1]]))
    first: dict[str, int] = {}
    found: list[str] = []
    for i in doubles.tolist():
        key = source.key(i)
        if first.setdefault(key, i) != i:
            found.append(key)
    if found:
        raise UsageError(
            f"{len(found):,} keys are in more than one of the stores: {_listed(found)}; --prefix puts something in "
            "front of the keys of each"
        )


def _listed(names: Sequence[str]) -> str:
    return listed([repr(plain(name)) for name in names[:_SHOWN]], _SHOWN, total=len(names))


def _same_video(store: Store, number: int, other: Store, its_number: int) -> bool:
    """Whether video `number` of a store and one of the same name of another are surely one: where the stores were made
    of the same store, or packed from files of the same size."""
    return bool(_lineage(store) & _lineage(other) or _file_sizes(store, number) & _file_sizes(other, its_number))


def _lineage(store: Store) -> set[str]:
    """The digests of a store, and of those that it was made of."""
    found, recipes = {store.digest}, [store.manifest.recipe]
    while recipes:
        origin = recipes.pop().get("origin")
        for one in origin if isinstance(origin, list | tuple) else ():
            if isinstance(one, dict):
                found.add(str(one.get("digest")))
                recipes += [one["recipe"]] if isinstance(one.get("recipe"), dict) else []
    return found


def _file_sizes(store: Store, number: int) -> set[int]:
    """What the size in bytes of a video's file may have been, by the store's provenance; none where that is not known.

    A store that grew says it of all its videos together.
    """
    found = []
    for run in packing_runs(store.manifest):
        try:
            found.append(read_provenance(store.path, run)[1][:, 0].tolist())
        except (OSError, RawpackError, IndexError):
            return set()
    if len(found) == 1:
        return set(found[0][number : number + 1])
    return set(itertools.chain.from_iterable(found))
