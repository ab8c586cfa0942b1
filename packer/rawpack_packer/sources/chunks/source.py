"""MDS and litdata as sources: columns of values in shards."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.errors import is_no_fault_of_data, reading
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import channels_first, turned
from rawpack_packer.sources.base import Column, Scanning, unseen
from rawpack_packer.sources.chunks import INDEX, folders_of, litdata, mds
from rawpack_packer.sources.chunks import index as coded
from rawpack_packer.sources.chunks.index import Coded, ShardFile, ShardIndex
from rawpack_packer.sources.chunks.shards import (
    FoundSamples,
    ShardSpans,
    SoughtColumns,
    arrays_alike,
    check_file,
    columns_read,
    find,
    with_rows,
)
from rawpack_packer.sources.fields import Boxes, DeclaredKind, FieldKind, ImageKind, Value, are_pixels, as_text
from rawpack_packer.sources.files import is_below
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.named_arrays import split_axes
from rawpack_packer.sources.table.assemble import assemble
from rawpack_packer.sources.table.choose import (
    ChosenColumns,
    ColumnChoice,
    ColumnInfo,
    Habits,
    choose,
    further_image,
    labels_of_column,
)
from rawpack_packer.sources.table.columns import ImageArrays, Numbers, Rows, spans_of
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, contents, files_at, first_at, named_files, source_name
from rawpack_packer.sources.table.options import TableOptions
from rawpack_packer.sources.table.table import ImageColumn, Table
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_FIRST = 4096
"""Samples whose values may show which column is the label."""
_HABITS = Habits(no_image=", by its encodings")
_READ = {"mds": mds.read_index, "litdata": litdata.read_index}
_FILES, _ARRAYS = ("file", "bytes"), ("picture", "array")


@dataclass(frozen=True, eq=False)
class Values:
    """A column of values that are decoded. Plain data."""

    spans: ShardSpans
    read: Callable[..., Any]
    kind: FieldKind | None = None
    """Of its field; None for images and masks."""

    def value(self, i: int, /) -> Any:
        data = self.spans.value(i) if self.spans.states[i, 0] else b""
        found = _value(self.read, data)
        return found if self.kind is None else _as_field(found, self.kind)

    def pick(self, rows: Rows, /) -> Values:
        return replace(self, spans=self.spans.pick(rows))


def _value(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Raises DecodeError."""
    try:
        return read(data)
    except DecodeError:
        raise
    except Exception as error:
        if is_no_fault_of_data(error):
            raise
        raise DecodeError("bad_field", f"it cannot be decoded: {plain(str(error))[:200]}") from error


def _as_field(found: Any, kind: FieldKind) -> Value:
    if kind.dtype == "str":
        return as_text(found)
    array = np.asarray(found)
    if array.dtype.kind not in "biufc":
        raise DecodeError("bad_field", "it is no array of numbers")
    if kind.ragged and not array.size and array.ndim <= 1:
        array = np.zeros((0, *(n or 0 for n in kind.shape[1:])), array.dtype)
    return array if kind.boxes is None else Boxes(array, kind.boxes)


def open_shards(
    path: str | os.PathLike[str],
    /,
    *,
    kind: str,
    spool: Spool | None = None,
    progress: Scanning = unseen,
    **options: Any,
) -> Table:
    """The samples of MDS or litdata, in the order of the index.

    Columns of image files and PIL images, or of arrays that are images, can be the image and further images. Columns of
    several images are one column for each of them: `views_0`, `views_1`. Numbers, labels and keys are read when the
    source is opened, all else with the images. JSON that is not declared otherwise is stored as text.

    `info.counts`: unlabelled, empty_classes, columns_left_out.

    kind: "mds" or "litdata". options: of `TableOptions`; image_column may end in `:chw` or `:hwc`, where channels are
    in arrays. All others as of `open_parquet`.

    Raises UsageError where the index or a shard cannot be read, is damaged, or does not fit the other; or a column that
    would be packed is a pickle.
    """
    root, places = source_name(path), _indexes_at(Listing.of(path))
    index = _read(places, kind, spool)
    indexes = [name if is_url(name) else os.path.abspath(name) for name in map(os.fspath, places)]  # noqa: PTH100
    scan = _ShardScan(*_files(index, indexes[0], spool), index, progress)
    table_options = TableOptions(**options)
    wanted, axes = table_options.choice(), None
    if wanted.image is not None:
        name, axes = split_axes(wanted.image, scan.columns)
        wanted = replace(wanted, image=name)
    infos = [_info(column, wanted.declared, scan) for column in scan.every]
    scan.refuse_unread(wanted, indexes[0].rpartition("/")[0])
    chosen = choose(infos, wanted, root, _HABITS)
    scan.look(chosen)
    images, image = scan.image(scan.columns[chosen.image], lambda shape: channels_first(
        shape, axes, root, lambda word: opt.image_column(f"{plain(chosen.image)}:{word}")
    ))  # fmt: skip
    fields, columns = scan.fields(chosen.fields, {info.name: info.field for info in infos}, wanted.declared, image)
    files, named, notes = scan.files, table_options.key_column is not None, list[str]()
    keys, labels = (None if name is None else scan.values(scan.columns[name]) for name in (chosen.key, chosen.label))
    own = files.states[: 0 if isinstance(images, ShardSpans) else None]
    return assemble(
        kind=kind,
        root=root,
        paths=() if files.remotes else (*(str(Path(name).parent) for name in indexes), *files.on_disk),
        chosen=chosen,
        images=images,
        fields=fields,
        columns=columns,
        count=scan.rows,
        options=table_options.given(),
        keys=None if keys is None else unique_keys(keys, root, named, notes, f"column {plain(str(chosen.key))!r}"),
        image=image,
        notes=notes,
        declared=wanted.declared,
        arrays=table_options.arrays,
        states=np.concatenate([own, files_at(indexes, spool).states]),
        labels=labels_of_column(labels, table_options.classes, root),
    )


def _indexes_at(listing: Listing) -> list[Listing]:
    """The path or URL of the index, where its folder may have been named; those of all splits of a folder."""
    head, mark, query = os.fspath(listing).partition("?")
    if is_url(listing):
        return [listing if head.endswith(INDEX) else Listing(f"{head.rstrip('/')}/{INDEX}{mark}{query}")]
    if not listing.is_dir:
        return [listing]
    return [listing / split / INDEX for split in folders_of(listing)] or [listing / INDEX]


def _read(places: Sequence[Listing], kind: str, spool: Spool | None) -> ShardIndex:
    """Several indexes as one, whose shards are named from the folder of the first one. Raises UsageError."""
    indexes, shards = list[ShardIndex](), list[tuple[ShardFile, ...]]()
    for place in places:
        where = source_name(place)
        with reading(where):
            index = _READ[kind](contents(place, named_files(place, spool)), where)
        folder = f"../{place.path.parent.name}/" if indexes else ""
        indexes.append(index)
        if index.columns != indexes[0].columns:
            raise UsageError(f"{where} has other columns than {source_name(places[0])}: pack them separately")
        for name in (file.name for choice in index.shards for file in choice):
            if not is_below(f"./{name}"):  # names of chunks may have a colon, which it would take for that of a drive
                raise UsageError(f"{where} names a file outside its folder, {plain(name)!r}: take it out")
        shards += [tuple(replace(file, name=folder + file.name) for file in choice) for choice in index.shards]
    return replace(indexes[0], shards=tuple(shards))


def _files(index: ShardIndex, where: str, spool: Spool | None) -> tuple[NamedFiles, tuple[ShardFile, ...]]:
    """The files of the shards, next to the index at `where`. Raises UsageError."""
    head, mark, query = where.partition("?") if is_url(where) else (where, "", "")
    folder = head.rpartition("/")[0]
    paths = [[f"{folder}/{file.name}{mark}{query}" for file in choice] for choice in index.shards]
    files, which = first_at(paths, spool, f"{source_name(where)} names it: copy it too")
    return files, tuple(choice[k] for k, choice in zip(which, index.shards, strict=True))


def _info(column: Coded, declared: Mapping[str, DeclaredKind], scan: _ShardScan) -> ColumnInfo:
    holds, shape = column.encoding.holds, scan.shapes.get(column.name)
    is_image = holds in (*_FILES, "picture")
    if shape is not None:
        is_image = len(shape[1]) == 3 or (len(shape[1]) == 2 and shape[0] == "uint8")
    is_whole = holds == "number" and column.encoding.dtype[0] in "iu"
    return ColumnInfo(
        name=column.name,
        type=plain(column.type),
        field=_kind(column, declared.get(column.name.rpartition("/")[2]), shape),
        is_image=is_image,
        is_label=holds == "text" or is_whole,
        is_whole=is_whole,
        is_key=holds == "text",
        says_image=holds in ("file", "picture"),
        first=partial(scan.first, column),
    )


def _kind(
    column: Coded, word: DeclaredKind | None, shape: tuple[str, tuple[int, ...]] | None
) -> FieldKind | str | None:
    """See `ColumnInfo.field`. word: what the user says of it. shape: dtype and shape of the first array."""
    holds, contains = column.encoding.holds, f"it contains {plain(column.type)}"
    if word is not None and holds != "unread":
        if are_pixels(word):
            return None if holds in (*_FILES, *_ARRAYS) else f"{contains}; images are files or arrays"
        fits = holds not in (*_FILES, "picture") or (holds == "bytes" and word == FieldKind("str"))
        return word if fits and isinstance(word, FieldKind) else contains
    if holds in (*_FILES, "picture"):
        return further_image(plain(column.name), "column")
    try:
        if shape is not None:
            return FieldKind(*shape)
        if holds == "number":
            return FieldKind(column.encoding.dtype)
    except UsageError as error:
        return str(error)
    return FieldKind("str") if holds in ("text", "json") else contains


class _ShardScan:
    """The shards one after another."""

    def __init__(self, files: NamedFiles, shards: tuple[ShardFile, ...], index: ShardIndex, progress: Scanning) -> None:
        """Raises UsageError."""
        self.files, self._shards, self._coded, self._progress = files, shards, index.columns, progress
        self._found, self._sought = list[FoundSamples](), SoughtColumns(index.columns)
        self.shapes = dict[str, tuple[str, tuple[int, ...]]]()
        """Dtype and shape of the first array of each column of arrays."""
        self.rows = sum(shard.samples for shard in shards)
        if not self.rows:
            raise UsageError(f"the shards of {files.name(0)} have no samples")
        self._begun = next(k for k, shard in enumerate(shards) if shard.samples)
        self.every = self._columns()
        """All columns: of several images, one for each that the first sample has."""
        self.columns = {column.name: column for column in self.every}

    def _columns(self) -> list[Coded]:
        columns, unclear = list[Coded](), [c for c in self._coded if c.encoding.holds in ("files", "pictures", "array")]
        values = self._first_values(unclear, 1) if unclear else {}
        for column in self._coded:
            encoding, data, several = column.encoding, values.get(column.at, [b""])[0], [column]
            try:
                if encoding.holds in ("files", "pictures"):
                    several = [column.image(n) for n in range(coded.images_in(data, encoding.before))]
                elif encoding.head is not None:
                    self.shapes[column.name] = encoding.head(data)[:2]
            except (ValueError, struct.error) as error:
                where = f"{self.files.name(self._begun)}: {plain(column.name)} of sample 0"
                raise UsageError(f"{where}: {error}") from error
            columns += several
        return columns

    def first(self, column: Coded) -> list[Any]:
        """The first values of a column. Raises DecodeError."""
        values = self._first_values([column], _FIRST)[column.at]
        return [_value(column.encoding.read, data) for data in values]

    def _first_values(self, columns: Sequence[Coded], most: int) -> dict[int, list[bytes]]:
        """The values of at most so many samples of the first shard that has any."""
        k, sought = self._begun, SoughtColumns(self._coded, columns_read(columns))
        with reading(self.files.name(k)), self.files.opened(k) as fd:
            found, read = find(fd, self.files, k, self._shards[k], sought)
            places = [found.places_of(n, sought)[:, :most].tolist() for n in range(len(sought.columns))]
            return {at: [*map(read, *place)] for at, place in zip(sought.columns, places, strict=True)}

    def refuse_unread(self, wanted: ColumnChoice, folder: str) -> None:
        """Raise UsageError for a column that is not read, unless the user left it out. folder: of the index."""
        named = {wanted.image, wanted.label, wanted.key, *(wanted.fields or {}).values(), *wanted.declared}
        rest = ",".join(plain(column.name) for column in self._coded if column.encoding.holds != "unread")
        for name, column in self.columns.items():
            if column.encoding.holds == "unread" and (wanted.fields is None or name in named):
                raise UsageError(
                    f"{plain(folder)}: column {plain(name)!r} is {plain(column.type)!r}, {column.encoding.why}: "
                    f"{opt.columns(rest)} packs the other columns, and "
                    "docs/how-to/what-is-not-read.md#mds-and-litdata has lines of Python that pack all"
                )

    def look(self, chosen: ChosenColumns) -> None:
        """Find all values of the columns that are packed. Raises UsageError."""
        names = [chosen.image, chosen.label, chosen.key, *chosen.fields.values()]
        columns = [self.columns[name] for name in names if name is not None]
        at_once = [one for one in columns if one.encoding.holds == "number" or one.name in (chosen.label, chosen.key)]
        heads = {one.at: one.encoding.head for one in columns if one.encoding.head is not None}
        self._sought = sought = SoughtColumns(self._coded, columns_read(columns), columns_read(at_once), heads)
        seen = 0
        with self.files.looked_through():
            for k, shard in enumerate(self._shards):
                with reading(self.files.name(k)), self.files.opened(k, keep=False) as fd:
                    check_file(fd, self.files, k, shard)
                    self._found.append(find(fd, self.files, k, shard, sought, whole=True)[0])
                seen += shard.samples
                self._progress(seen)
        self._shards = tuple(
            with_rows(shard) if found.in_arrow else shard
            for shard, found in zip(self._shards, self._found, strict=True)
        )

    def values(self, column: Coded) -> list[Any]:
        """All values of a column that was read at once. Raises UsageError."""
        values = list[Any]()
        for k, found in enumerate(self._found):
            for i, data in enumerate(found.values[column.at]):
                try:
                    values.append(_value(column.encoding.read, data))
                except DecodeError as error:
                    where = f"{self.files.name(k)}, sample {i}, {plain(column.name)}"
                    raise UsageError(f"{where}: {error.detail}") from error
        return values

    def image(self, column: Coded, first: Callable[[tuple[int, ...]], bool]) -> tuple[ImageColumn, ImageKind | None]:
        """The column of images, and what all of them are, if they are arrays. first: whether channels of arrays of a
        shape come first. Raises UsageError."""
        values = self._values(column)
        if column.name not in self.shapes:
            return values, None
        dtype, shape = self.shapes[column.name]
        chw = first(shape)
        images, shape = ImageArrays(values, chw), tuple(n or 0 for n in turned(shape, chw))
        if arrays_alike(self._found, column.at):
            return images, ImageKind(dtype, shape)
        pictures = dtype == "uint8" and (len(shape) == 2 or shape[2:] in ((1,), (3,)))
        return images, None if pictures else ImageKind(dtype, (None, None, *shape[2:]), resized=True)

    def fields(
        self,
        chosen: Mapping[str, str],
        kinds: Mapping[str, FieldKind | str | None],
        declared: Mapping[str, DeclaredKind],
        image: ImageKind | None,
    ) -> tuple[dict[str, FieldKind], dict[str, Column]]:
        """The fields: name -> column. kinds: of all columns. image: what all images are. Raises UsageError."""
        fields, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, of_file in chosen.items():
            column, kind, word = self.columns[of_file], kinds[of_file], declared.get(name)
            if isinstance(kind, FieldKind):
                if word is None and of_file in self.shapes and not arrays_alike(self._found, column.at):
                    kind = replace(kind, shape=(None, *kind.shape[1:]))
                fields[name], columns[name] = kind, self._column(column, kind)
                continue
            further, pixels = self._values(column), word if isinstance(word, str) else "image"
            if isinstance(further, Values) and column.encoding.holds == "picture":
                further = replace(further, read=partial(further.read, exact=True))
            fields[name] = first_pixels(pixels, name, further.value, range(self.rows), image)
            columns[name] = further
        return fields, columns

    def _column(self, column: Coded, kind: FieldKind) -> Column:
        """The values of a field. Raises UsageError."""
        if column.encoding.holds == "number" and kind.dtype != "str":
            try:
                return Numbers(np.array(self.values(column), column.encoding.dtype))
            except OverflowError as error:
                raise UsageError(f"{plain(column.name)} has a number beyond 64 bits: leave it out") from error
        return self._values(column, kind)

    def _values(self, column: Coded, kind: FieldKind | None = None) -> ShardSpans | Values:
        """The values of a column, as of `Values`; files as they are."""
        n = self._sought.columns.index(column.at)
        places = np.concatenate([found.places_of(n, self._sought) for found in self._found], axis=1)
        file = np.repeat(np.arange(len(self._shards)), [shard.samples for shard in self._shards])
        spans = spans_of(ShardSpans, self.files, file, *places, shards=self._shards)
        read = coded.text if kind is not None and column.encoding.holds == "bytes" else column.encoding.read
        return spans if read is bytes else Values(spans, read, kind)


open_mds, open_litdata = partial(open_shards, kind="mds"), partial(open_shards, kind="litdata")
