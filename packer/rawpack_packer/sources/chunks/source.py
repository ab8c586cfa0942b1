"""MDS and litdata as sources: columns of values in shards."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.errors import is_no_fault_of_data, reading
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import channels_first, turned
from rawpack_packer.sources.base import Column, Scanning, unseen
from rawpack_packer.sources.chunks import INDEX, folders_of, litdata, mds, read_index
from rawpack_packer.sources.chunks import index as coded
from rawpack_packer.sources.chunks.index import Coded, ShardFile, ShardIndex
from rawpack_packer.sources.chunks.shards import (
    ARROW,
    Found,
    ShardSpans,
    SoughtColumns,
    arrays_alike,
    as_written,
    check_file,
    columns_read,
    find,
    read_of,
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
    labels_of_column,
)
from rawpack_packer.sources.table.columns import ImageArrays, Numbers, Rows, spans_of
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, files_at, first_at, source_name
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
    read: Callable[[bytes], Any]
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
    root = source_name(path)
    at = _indexes_at(Listing.of(path))
    index = _read(at, kind, spool)
    indexes = [name if is_url(name) else os.path.abspath(name) for name in map(os.fspath, at)]  # noqa: PTH100
    files, shards = _files(index, indexes[0], spool)
    scan = _ShardScan(files, shards, index, progress)
    table_options = TableOptions(**options)
    wanted, axes = table_options.choice(), None
    if wanted.image is not None:
        name, axes = split_axes(wanted.image, scan.columns)
        wanted = replace(wanted, image=name)
    infos = [_info(column, wanted.declared, scan) for column in scan.columns.values()]
    scan.refuse_unread(wanted, indexes[0].rpartition("/")[0])
    chosen = choose(infos, wanted, root, _HABITS)
    scan.look(chosen)
    images, image = scan.image(scan.columns[chosen.image], lambda shape: channels_first(
        shape, axes, root, lambda word: opt.image_column(f"{plain(chosen.image)}:{word}")
    ))  # fmt: skip
    fields, columns = scan.fields(chosen.fields, {info.name: info.field for info in infos}, wanted.declared, image)
    keys, notes = None, list[str]()
    if chosen.key is not None:
        texts = [*map(str, scan.values(scan.columns[chosen.key]))]
        keys = unique_keys(texts, root, table_options.key_column is not None, notes, f"column {plain(chosen.key)!r}")
    own = files.states[: 0 if isinstance(images, ShardSpans) else None]
    values = None if chosen.label is None else scan.values(scan.columns[chosen.label])
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
        keys=keys,
        image=image,
        notes=notes,
        declared=wanted.declared,
        arrays=table_options.arrays,
        states=np.concatenate([own, files_at(indexes, spool).states]),
        labels=labels_of_column(values, table_options.classes, root),
    )


def _indexes_at(listing: Listing) -> list[Listing]:
    """The path or URL of the index, where its folder may have been named; those of all splits of a folder."""
    head, mark, query = os.fspath(listing).partition("?")
    if is_url(listing):
        return [listing if head.endswith(INDEX) else Listing(f"{head.rstrip('/')}/{INDEX}{mark}{query}")]
    if not listing.is_dir:
        return [listing]
    return [listing / split / INDEX for split in folders_of(listing)] or [listing / INDEX]


def _read(indexes: Sequence[Listing], kind: str, spool: Spool | None) -> ShardIndex:
    """Several indexes as one, whose shards are named from the folder of the first one. Raises UsageError."""
    found = list[ShardIndex]()
    for where in indexes:
        shown = source_name(where)
        with reading(shown):
            found.append(_READ[kind](read_index(where, spool), shown))
        if (found[-1].columns, found[-1].sizes) != (found[0].columns, found[0].sizes):
            raise UsageError(f"{shown} has other columns than {source_name(indexes[0])}: pack them separately")
        # Names of litdata's chunks may have a colon, which is_below takes for that of a drive.
        outside = next(
            (one.name for choice in found[-1].shards for one in choice if not is_below(f"./{one.name}")), None
        )
        if outside is not None:
            raise UsageError(f"{shown} names a file outside its folder, {plain(outside)!r}: take it out")
    splits = ["", *(f"../{where.path.parent.name}/" for where in indexes[1:])]
    shards = [
        tuple(replace(one, name=split + one.name) for one in choice)
        for split, index in zip(splits, found, strict=True)
        for choice in index.shards
    ]
    return replace(found[0], shards=tuple(shards))


def _files(index: ShardIndex, where: str, spool: Spool | None) -> tuple[NamedFiles, tuple[ShardFile, ...]]:
    """The files of the shards, next to the index at `where`. Raises UsageError."""
    head, mark, query = where.partition("?") if is_url(where) else (where, "", "")
    folder = head.rpartition("/")[0]
    paths = [[f"{folder}/{one.name}{mark}{query}" for one in choice] for choice in index.shards]
    files, which = first_at(paths, spool, f"{source_name(where)} names it: copy it too")
    return files, tuple(choice[k] for k, choice in zip(which, index.shards, strict=True))


def _info(column: Coded, declared: Mapping[str, DeclaredKind], scan: _ShardScan) -> ColumnInfo:
    holds, dtype, shape = column.encoding.holds, column.encoding.dtype, scan.shapes.get(column.name)
    is_image = holds in ("file", "picture", "bytes")
    if holds == "array" and shape is not None:
        is_image = len(shape[1]) == 3 or (len(shape[1]) == 2 and shape[0] == "uint8")
    return ColumnInfo(
        name=column.name,
        type=plain(column.type),
        field=_kind(column, declared, shape),
        is_image=is_image,
        is_label=holds == "text" or (holds == "number" and dtype[0] in "iu"),
        is_whole=holds == "number" and dtype[0] in "iu",
        is_key=holds == "text",
        says_image=holds in ("file", "picture"),
        first=partial(scan.first, column),
    )


def _kind(
    column: Coded, declared: Mapping[str, DeclaredKind], shape: tuple[str, tuple[int, ...]] | None
) -> FieldKind | str | None:
    """See `ColumnInfo.field`. shape: dtype and shape of the first array."""
    name, holds = plain(column.name), column.encoding.holds
    word = declared.get(column.name.rpartition("/")[2])
    if word is not None and holds != "unread":
        if are_pixels(word):
            fits = holds in (*_FILES, *_ARRAYS)
            return None if fits else f"it contains {plain(column.type)}; images are files or arrays"
        fits = holds not in (*_FILES, "picture") or (holds == "bytes" and word == FieldKind("str"))
        return word if fits and isinstance(word, FieldKind) else f"it contains {plain(column.type)}"
    if holds in (*_FILES, "picture"):
        return (
            f"the images are in another column; {opt.fields(f'{name}:image')} stores it as a further image, "
            f"{name}:mask as a mask"
        )
    try:
        if holds == "array" and shape is not None:
            return FieldKind(*shape)
        if holds == "number":
            return FieldKind(column.encoding.dtype)
    except UsageError as error:
        return str(error)
    return FieldKind("str") if holds in ("text", "json") else f"it contains {plain(column.type)}"


class _ShardScan:
    """The shards one after another."""

    def __init__(self, files: NamedFiles, shards: tuple[ShardFile, ...], index: ShardIndex, progress: Scanning) -> None:
        """Raises UsageError."""
        self._files, self._shards, self._index, self._progress = files, shards, index, progress
        self._wanted = SoughtColumns((), (), {})
        self._found = list[Found]()
        self.shapes = dict[str, tuple[str, tuple[int, ...]]]()
        """Dtype and shape of the first array of each column of arrays."""
        self.rows = sum(one.samples for one in shards)
        if not self.rows:
            raise UsageError(f"the shards of {files.name(0)} have no samples")
        self._begun = next(k for k, one in enumerate(shards) if one.samples)
        self.columns = self._columns()

    def _columns(self) -> dict[str, Coded]:
        """The columns by name: of several images, one for each that the first sample has."""
        found = dict[str, Coded]()
        unclear = [one for one in self._index.columns if one.encoding.holds in ("files", "pictures", "array")]
        values = self._first_values(unclear, 1) if unclear else {}
        for one in self._index.columns:
            several, data = one.encoding, values.get(one.at, [b""])[0]
            try:
                if several.holds in ("files", "pictures"):
                    for n in range(coded.images_in(data, several.before)):
                        name = f"{one.name}_{n}"
                        found[name] = replace(one, name=name, encoding=coded.one_of(several, n))
                    continue
                if several.head is not None:
                    self.shapes[one.name] = several.head(data)[:2]
            except (ValueError, struct.error) as error:
                raise UsageError(f"{self._files.name(self._begun)}: {plain(one.name)} of sample 0: {error}") from error
            if one.name in found:
                raise UsageError(f"the index of {self._files.name(0)} has two columns {plain(one.name)!r}: rename one")
            found[one.name] = one
        return found

    def first(self, column: Coded) -> list[Any]:
        """The first values of a column. Raises DecodeError."""
        values = self._first_values([column], _FIRST)[column.at]
        return [_value(column.encoding.read, data) for data in values]

    def _first_values(self, columns: Sequence[Coded], most: int) -> dict[int, list[bytes]]:
        """The values of at most so many samples of the first shard that has any."""
        k, wanted = self._begun, SoughtColumns(columns_read(columns), (), {})
        with reading(self._files.name(k)), self._files.opened(k) as fd:
            shard = as_written(fd, os.fstat(fd).st_size, self._shards[k])
            read = read_of(fd, self._files, k, shard)
            found = find(read, None, self._index, shard, wanted, self._files.name(k))
            offsets, sizes = (_table(part, len(wanted.columns))[:, :most].tolist() for part in found[:2])
            return {at: [*map(read, offsets[n], sizes[n])] for n, at in enumerate(wanted.columns)}

    def refuse_unread(self, wanted: ColumnChoice, folder: str) -> None:
        """Raise UsageError for a column that is not read, unless the user left it out. folder: of the index."""
        named = {wanted.image, wanted.label, wanted.key, *(wanted.fields or {}).values(), *wanted.declared}
        rest = ",".join(plain(one.name) for one in self._index.columns if one.encoding.holds != "unread")
        for one in self.columns.values():
            if one.encoding.holds == "unread" and (wanted.fields is None or one.name in named):
                raise UsageError(
                    f"{plain(folder)}: column {plain(one.name)!r} is {plain(one.type)!r}, {one.encoding.why}: "
                    f"{opt.columns(rest)} packs the other columns, and "
                    "docs/how-to/what-is-not-read.md#mds-and-litdata has lines of Python that pack all"
                )

    def look(self, chosen: ChosenColumns) -> None:
        """Find all values of the columns that are packed. Raises UsageError."""
        names = [chosen.image, chosen.label, chosen.key, *chosen.fields.values()]
        columns = [self.columns[name] for name in names if name is not None]
        numbers = [one for one in columns if one.encoding.holds == "number" or one.name in (chosen.label, chosen.key)]
        heads = {one.at: one.encoding.head for one in columns if one.encoding.head is not None}
        self._wanted = SoughtColumns(columns_read(columns), columns_read(numbers), heads)
        wanted, seen = self._wanted, 0
        with self._files.looked_through():
            for k, shard in enumerate(self._shards):
                what = f"samples {wanted.columns} {wanted.values} {[*wanted.heads]} {self._index.sizes} {shard}"
                with reading(self._files.name(k)):
                    self._found += self._files.looked_for(k, what, Found, partial(self._look, k, shard))
                seen += shard.samples
                self._progress(seen)
        self._shards = tuple(
            with_rows(shard) if found.in_arrow else shard
            for shard, found in zip(self._shards, self._found, strict=True)
        )

    def _look(self, k: int, shard: ShardFile) -> Iterator[Found]:
        """What is known of the samples of shard k: once."""
        files, where = self._files, self._files.name(k)
        with files.opened(k, keep=False) as fd:
            size = files.state(k)[0]
            check_file(fd, size, shard, where)
            shard = as_written(fd, size, shard)
            read = read_of(fd, files, k, shard)
            found = find(read, None if shard.codec else size, self._index, shard, self._wanted, where)
            yield found._replace(in_arrow=shard.codec == ARROW)

    def spans(self, column: Coded) -> ShardSpans:
        """Where the values of a column are."""
        n, count = self._wanted.columns.index(column.at), len(self._wanted.columns)
        offsets, sizes = (
            np.concatenate([_table(part, count)[n] for part in parts])
            for parts in ([one.offsets for one in self._found], [one.sizes for one in self._found])
        )
        file = np.repeat(np.arange(len(self._shards), dtype=np.int32), [one.samples for one in self._shards])
        return spans_of(ShardSpans, self._files, file, offsets, sizes, shards=self._shards)

    def values(self, column: Coded) -> list[Any]:
        """All values of a column that was read at once. Raises UsageError."""
        values = list[Any]()
        for k, found in enumerate(self._found):
            for i, data in enumerate(found.values[column.at]):
                try:
                    values.append(_value(column.encoding.read, data))
                except DecodeError as error:
                    where = f"{self._files.name(k)}, sample {i}, {plain(column.name)}"
                    raise UsageError(f"{where}: {error.detail}") from error
        return values

    def image(self, column: Coded, first: Callable[[tuple[int, ...]], bool]) -> tuple[ImageColumn, ImageKind | None]:
        """The column of images, and what all of them are, if they are arrays. first: whether channels of arrays of a
        shape come first. Raises UsageError."""
        if column.encoding.holds != "array":
            spans = self.spans(column)
            exact = column.encoding.holds == "picture" or column.encoding.read is not bytes
            return (Values(spans, column.encoding.read) if exact else spans), None
        dtype, shape = self.shapes[column.name]
        alike, chw = arrays_alike(self._found, column.at), first(shape)
        images = ImageArrays(Values(self.spans(column), column.encoding.read), chw)
        shape = tuple(n or 0 for n in turned(shape, chw))
        if alike:
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
        found, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, of_file in chosen.items():
            column, kind = self.columns[of_file], kinds[of_file]
            holds, read = column.encoding.holds, cast(Callable[..., Any], column.encoding.read)
            if isinstance(kind, FieldKind):
                if name not in declared and holds == "array" and not arrays_alike(self._found, column.at):
                    kind = replace(kind, shape=(None, *kind.shape[1:]))
                found[name], columns[name] = kind, self.column(column, kind)
                continue
            spans, word = self.spans(column), declared.get(name)
            exact = partial(read, exact=True) if holds == "picture" else read
            columns[name] = further = spans if read is bytes else Values(spans, exact)
            found[name] = first_pixels(
                word if isinstance(word, str) else "image", name, further.value, range(self.rows), image
            )
        return found, columns

    def column(self, column: Coded, kind: FieldKind) -> Column:
        """The values of a field. Raises UsageError."""
        if column.encoding.holds == "number" and kind.dtype != "str":
            try:
                return Numbers(np.array(self.values(column), column.encoding.dtype))
            except OverflowError as error:
                raise UsageError(f"{plain(column.name)} has a number beyond 64 bits: leave it out") from error
        read = coded.text if column.encoding.holds == "bytes" else column.encoding.read
        return Values(self.spans(column), read, kind)


def _table(data: bytes, columns: int) -> NDArray[np.int64]:
    """(columns, samples): see `Found`."""
    return np.frombuffer(data, np.int64).reshape(columns, -1)
