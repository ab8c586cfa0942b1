"""A Parquet or Arrow file: what its columns are, by its schema and what `datasets` notes in it; its rows in batches of
bounded size; and their values."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import is_no_fault_of_data, is_of_system, stop_if_of_any_file
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import TEXTS, Boxes, DeclaredKind, FieldKind, Value, are_pixels, are_texts, as_text
from rawpack_packer.sources.files import UNREADABLE, fault_of
from rawpack_packer.sources.inflation import check_rows, parquet_batches
from rawpack_packer.sources.numbers import Length
from rawpack_packer.sources.parquet import ARROW
from rawpack_packer.sources.table.choose import ColumnInfo, Habits
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.objects import BOX_NAMES, CLASS_NAMES, named_in
from rawpack_packer.sources.times import TextOnly
from rawpack_packer.text import plain

_JSON = (dict, list, tuple, bool, int, float)
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 256
"""How much a batch has at most: bytes by those of the batches before it, and by the file's own sizes."""
_SCANNED_ROWS = 4096
"""Rows of a batch without images."""
_FIRST = 1 << 15
"""Rows whose values show whether a column may be the label."""
_BUFFER = 1 << 20
Leaf = tuple[str, str | None]
"""A column, or one entry of a column of structs."""
Features = Mapping[str, Any]


class _NotedInfo(msgspec.Struct):
    features: dict[str, Any]


class _Noted(msgspec.Struct):
    info: _NotedInfo


class _ArrayFeature(msgspec.Struct):
    """An `Array2D` and the like."""

    dtype: str
    shape: list[Length | None]


def features_in(schema: pa.Schema, where: str) -> Features:
    """What `datasets` says of the columns in a file's metadata; empty where it did not write the file."""
    text = (schema.metadata or {}).get(b"huggingface")
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=_Noted).info.features
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "its metadata `huggingface` is not what datasets writes"
        raise UsageError(f"{where}: {what} ({error}): write it again without") from error


def habits() -> Habits:
    """What is said where no column holds images."""
    return Habits(
        no_image=(
            ", which are binary, or structs of bytes and path; a file with a column of paths is packed by "
            f"{opt.kind('listing')} {opt.path_column('COLUMN')}, and files next to a table by {opt.kind('folder')} or "
            f"{opt.kind('video')}"
        )
    )


def column_infos(
    schema: pa.Schema,
    features: Features,
    declared: Mapping[str, DeclaredKind],
    where: str,
    table: TableFile | None = None,
) -> list[ColumnInfo]:
    """The columns of a table. declared: see `ColumnChoice`. table: of which values may be read. Raises UsageError where
    names of classes are none."""
    says_images = any(_of(one) == "Image" for one in features.values())
    found, objects = [], objects_column(schema)
    for name in schema.names:
        type_, feature = storage(schema.field(name).type), features.get(name)
        other = _of(feature) not in ("Image", "Value", None)  # such as Audio
        is_classes = _of(feature) == "ClassLabel" and not is_text(type_)
        found.append(
            ColumnInfo(
                name=name,
                type=shown_type(type_),
                field=OBJECTS if name == objects and name not in declared else _kind(name, type_, feature, declared),
                is_image=holds_image(type_) and not other,
                is_label=pa.types.is_integer(type_) or is_text(type_),
                is_whole=pa.types.is_integer(type_),
                is_key=is_text(type_),
                says_image=says_images and _of(feature) == "Image",
                first=tuple if table is None else partial(_first_values, table, name),
                classes=_class_names(feature, name, where) if is_classes else None,
            )
        )
    return found


def _first_values(table: TableFile, name: str) -> list[Any]:
    batches = table.read([(name, None)])
    values = (python_value(batch.column(0), i, name) for batch in batches for i in range(batch.num_rows))
    return [*islice(values, _FIRST)]


OBJECTS = FieldKind("float32", (None, 5), boxes="xywh")
"""Stands for a column of objects, whose values show what it holds."""


def objects_column(schema: pa.Schema) -> str | None:
    """The first column of objects, as `datasets` has them: lists in a struct, or structs in a list."""
    return next((name for name in schema.names if named_in(object_leaves(schema, name)[1], BOX_NAMES)), None)


def object_leaves(schema: pa.Schema, name: str) -> tuple[list[Leaf], list[str], list[str]]:
    """What is read of a column of objects, the names of what each object has, and of what else it has and no field can
    store; none where it is no such column."""
    type_ = storage(schema.field(name).type)
    of_lists = not _is_list(type_)
    struct = type_ if of_lists else storage(type_.value_type)
    if not pa.types.is_struct(struct):
        return [], [], []
    parts = [struct.field(i) for i in range(struct.num_fields)]
    if not of_lists:
        return [(name, None)], [part.name for part in parts], []
    lists = [(part, part.type.value_type) for part in parts if _is_list(part.type)]
    flat = [part for part, inner in lists if _number_dtype(inner) is not None or is_text(inner)]
    some = [part for part, _ in lists if part in flat or part.name.lower() in BOX_NAMES]
    rest = [part.name for part in parts if part not in some]
    return [(name, part.name) for part in some], [part.name for part in some], rest


def object_classes(feature: Any, where: str) -> tuple[str, ...] | None:
    """The names of the classes of objects, as `datasets` notes them."""
    inner = _inner(feature)
    name = named_in(inner, CLASS_NAMES) if isinstance(inner, dict) else None
    found = None if name is None else _inner(inner[name])
    return _class_names(found, str(name), where) if _of(found) == "ClassLabel" else None


def _inner(feature: Any) -> Any:
    """What lists of a feature hold."""
    while _of(feature) in ("Sequence", "List", "LargeList"):
        feature = feature.get("feature")
    return feature


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _class_names(feature: Any, name: str, where: str) -> tuple[str, ...]:
    classes = feature.get("names")
    if not isinstance(classes, list) or not all(isinstance(one, str) for one in classes) or not classes:
        raise UsageError(f"{where}: the classes of column {name!r} are no list of names")
    if len(set(classes)) != len(classes):
        raise UsageError(f"{where}: two classes of column {name!r} have the same name")
    return tuple(classes)


def _kind(name: str, type_: pa.DataType, feature: Any, declared: Mapping[str, DeclaredKind]) -> FieldKind | str | None:
    """What a field holds: as declared, None for further images and masks, or by its type; or why it can be none."""
    if name in declared:
        kind = declared[name]
        if are_pixels(kind) and not holds_image(type_):
            return f"it contains {shown_type(type_)}; images and masks are files"
        if isinstance(kind, str):
            return None
        if kind.dtype == "str" and not _is_binary(type_) and _has_bytes(type_):
            return f"it contains {shown_type(type_)}, and bytes cannot be stored as text"
        return kind
    if holds_image(type_):
        return (
            f"the images are in another column; {opt.fields(f'{name}:image')} stores it as a further image, "
            f"{name}:mask as a mask"
        )
    try:
        if isinstance(feature, dict) and str(_of(feature)).startswith("Array") and feature.get("shape") is not None:
            noted = msgspec.convert(feature, _ArrayFeature)
            return FieldKind(noted.dtype, tuple(noted.shape))
        return _kind_of(type_) or f"no field can store {shown_type(type_)}{_hint(name, type_)}"
    except (UsageError, msgspec.ValidationError):
        return f"no field can store {shown_type(type_)}"


def _kind_of(type_: pa.DataType) -> FieldKind | None:
    type_ = storage(type_)
    if (number := _number_dtype(type_)) is not None:
        return FieldKind(number)
    if is_text(type_):
        return FieldKind("str")
    inner = _kind_of(type_.value_type) if _is_list(type_) else None
    if inner is None or inner.ragged:
        return None
    length = type_.list_size if pa.types.is_fixed_size_list(type_) else None
    return TEXTS if inner.dtype == "str" else FieldKind(inner.dtype, (length, *inner.shape))


def _number_dtype(type_: pa.DataType) -> str | None:
    """numpy's name for a type of numbers; None for any other type. pyarrow's own function for it wants pandas in some
    versions."""
    if pa.types.is_floating(type_):
        return f"float{type_.bit_width}"
    return str(type_) if pa.types.is_boolean(type_) or pa.types.is_integer(type_) else None


def leaf_dtype(type_: pa.DataType) -> tuple[str, bool]:
    """numpy's name for the numbers of a column, "str" for texts, "" for all else; and whether they are in lists."""
    type_ = storage(type_)
    if _is_list(type_):
        return leaf_dtype(type_.value_type)[0], True
    return _number_dtype(type_) or ("str" if is_text(type_) else ""), False


def _hint(name: str, type_: pa.DataType) -> str:
    """What the user can do about a column of arrays whose shape its type does not tell."""
    if pa.types.is_temporal(type_) or pa.types.is_decimal(type_):
        return f"; {opt.fields(f'{name}:str')} stores it as text"
    nested = 0
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        type_, nested = type_.value_type, nested + 1
    if pa.types.is_struct(type_) or pa.types.is_map(type_) or (nested > 1 and is_text(type_)):
        return "" if _has_bytes(type_) else f"; {opt.fields(f'{name}:str')} stores it as JSON text"
    if nested < 2 or _kind_of(type_) is None:
        return ""
    shape, boxes = opt.fields(f"{name}:float32[?,4]"), opt.fields(f"{name}:xyxy")
    return f" unless its shape is declared: {shape}, or for boxes {boxes}"


def _has_bytes(type_: pa.DataType) -> bool:
    """Whether there are bytes anywhere in a type, which JSON cannot hold."""
    type_ = storage(type_)
    return _is_binary(type_) or any(_has_bytes(type_.field(i).type) for i in range(type_.num_fields))


def storage(type_: pa.DataType) -> pa.DataType:
    """The type of the values, without what an extension or a dictionary makes of them."""
    if isinstance(type_, pa.BaseExtensionType):
        return storage(type_.storage_type)
    return storage(type_.value_type) if pa.types.is_dictionary(type_) else type_


def flat(column: pa.Array) -> pa.Array:
    """A column without dictionary or extension."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _of(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def image_entries(type_: pa.DataType) -> tuple[str, ...]:
    """Which of "bytes" and "path" images are structs of; empty for the bytes themselves, and for all else."""
    type_ = storage(type_)
    parts = {part.name: part.type for part in type_} if pa.types.is_struct(type_) else {}
    entries = [name for name, fits in (("bytes", _is_binary), ("path", is_text)) if name in parts and fits(parts[name])]
    return tuple(entries) if "bytes" in entries else ()


def holds_image(type_: pa.DataType) -> bool:
    return _is_binary(type_) or bool(image_entries(type_))


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))


def shown_type(type_: pa.DataType) -> str:
    text = plain(str(type_))
    return text if len(text) <= 60 else f"{text[:60]}..."


def value_of(column: pa.Array, at: int, kind: FieldKind, place: str) -> Value:
    """A value of a column. A missing one is NaN, the empty text, or an array or a list of length 0.

    kind: of its field. Raises DecodeError for a value that none of its field is.
    """
    found = python_value(column, at, place)
    if kind.is_texts:
        if found is not None and not are_texts(found):
            raise DecodeError("bad_field", f"{place}: it is not a list of texts")
        return found or []
    if kind.dtype == "str":
        if isinstance(found, bytes):
            try:
                return found.decode()
            except UnicodeDecodeError as error:
                raise DecodeError("bad_field", f"{place}: byte {error.start} is not UTF-8") from error
        return as_text(found if found is None or isinstance(found, (*_JSON, TextOnly)) else str(found))
    if found is None and kind.ragged:
        found = []
    if found is None and kind.dtype.startswith("float") and not kind.shape:
        return np.array(np.nan, kind.dtype)
    if found is None:
        raise DecodeError("bad_field", f"{place}: the value is missing")
    try:
        dtype = leaf_dtype(column.type)[0]
        array = np.array(found, None if dtype in ("", "str") else dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError("bad_field", f"{place}: it is no array of numbers: {plain(str(error))[:200]}") from error
    if kind.ragged and not array.size and array.ndim <= 1:
        array = np.zeros((0, *(n or 0 for n in kind.shape[1:])), array.dtype)
    return array if kind.boxes is None else Boxes(array, kind.boxes)


def python_value(column: pa.Array, at: int, place: str) -> Any:
    """A value as Python has it. Raises DecodeError for text that is not UTF-8."""
    try:
        return column[at].as_py()
    except UnicodeDecodeError as error:
        raise DecodeError("bad_field", f"{place}: byte {error.start} of the text is not UTF-8") from error
    except ValueError as error:  # nanoseconds, which only pandas has
        raise DecodeError("bad_field", f"{place}: {plain(str(error))[:200]}") from error


class ParquetTable:
    """A Parquet file. Its blocks, where reading can begin, are the row groups."""

    def __init__(self, path: str) -> None:
        # Without a buffer, pyarrow would load all of a row group, which may be the whole file.
        self._file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True)
        self._about = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self._size = os.path.getsize(path)  # noqa: PTH202
        self.ends = list(accumulate(self._about.row_group(i).num_rows for i in range(self._about.num_row_groups)))
        check_rows(self.ends, self._size)

    def read(self, leaves: Sequence[Leaf], block: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a block in batches, or of all blocks, with the columns that these leaves are in. Raises
        ValueError where they stand for more than the file can hold."""
        blocks, most = [*range(len(self.ends))], _SCANNED_ROWS
        if block is not None:
            # Not from group.column(), which ends the process where a footer is broken (pyarrow 26).
            group = self._about.row_group(block)
            rows = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
            blocks, most = [block], max(1, min(rows, _BATCH_ROWS))
        names = [column if child is None else f"{column}.{child}" for column, child in leaves]
        return parquet_batches(self._file, self._size, most, row_groups=blocks, columns=names, use_threads=False)


class ArrowTable:
    """An Arrow file of the streaming format, mapped into memory. Its blocks are the record batches."""

    def __init__(self, path: str) -> None:
        messages = pa.ipc.MessageReader.open_stream(pa.memory_map(path))
        self.schema = pa.ipc.read_schema(messages.read_next_message())
        self._messages = list(messages)
        if any(one.type != "record batch" for one in self._messages):
            raise ValueError("it has dictionaries, which save_to_disk does not write: save it again, as Parquet")
        self.ends = list(accumulate(self._batch(i).num_rows for i in range(len(self._messages))))
        check_rows(self.ends, os.path.getsize(path))  # noqa: PTH202

    def read(self, leaves: Sequence[Leaf], block: int | None = None) -> Iterator[pa.RecordBatch]:
        for k in range(len(self._messages)) if block is None else [block]:
            batch = self._batch(k).select(list(dict.fromkeys(column for column, _ in leaves)))
            # Offsets that point anywhere would crash this process.
            batch.validate(full=True)
            yield batch

    def _batch(self, i: int) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(self._messages[i], self.schema)


TableFile = ParquetTable | ArrowTable
"""An open file. pyarrow raises exceptions of many types where its bytes are broken."""


def open_table(path: str) -> TableFile:
    """Open a file. Raises whatever pyarrow raises for bytes that are neither Parquet nor Arrow."""
    return ArrowTable(path) if path.lower().endswith(ARROW) else ParquetTable(path)


class Cursor:
    """Reads rows of one file and keeps the last batch, so that rows in order are read once."""

    def __init__(self, files: NamedFiles, k: int, leaves: tuple[Leaf, ...]) -> None:
        self._files, self._k, self._leaves = files, k, leaves
        self._table: TableFile | None = None
        self._batch: pa.RecordBatch | None = None
        self._start = self._stop = 0
        """The rows of the batch."""
        self._block = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        """What is left of the block."""
        self._faults: dict[int, tuple[int, str]] = {}
        """Block -> the first row that cannot be read, and why."""

    def row(self, i: int) -> tuple[pa.RecordBatch, int]:
        """A batch, and which of its rows is row i of the file. Raises DecodeError where it cannot be read."""
        if not self._start <= i < self._stop:
            self._seek(i)
        assert self._batch is not None
        return self._batch, i - self._start

    def _seek(self, i: int, last: bool = False) -> None:
        """last: after an attempt that the system refused."""
        try:
            if self._table is None:
                with self._files.opened(self._k):  # it can be read as long as it is open
                    self._table = open_table(self._files.paths[self._k])
            block = bisect_right(self._table.ends, i)
            fault = self._faults.get(block)
            if fault is not None and i >= fault[0]:
                raise DecodeError("corrupt", fault[1])
            if block != self._block or i < self._stop:
                self._batch, self._start, self._block = None, 0, block
                self._stop = self._table.ends[block - 1] if block else 0
                self._batches = self._table.read(self._leaves, block)
            while i >= self._stop:
                batch = next(self._batches)
                self._batch, self._start, self._stop = batch, self._stop, self._stop + batch.num_rows
        except DecodeError:
            raise
        except Exception as error:
            if is_no_fault_of_data(error):
                raise
            name, path = name_of(self._files, self._k), self._files.paths[self._k]
            if isinstance(error, OSError):
                stop_if_of_any_file(error, name)
            why = "the file ends early" if isinstance(error, StopIteration) else fault_of(error, path)
            text = f"{name}: rows from {self._stop} on cannot be read: {why}"
            refused = is_of_system(error)
            if not refused:
                self._faults[self._block] = self._stop, text
            self._batch, self._block, self._start, self._stop = None, -1, 0, 0
            if refused and not last:
                self._seek(i, last=True)
            else:
                raise DecodeError(UNREADABLE if refused else "corrupt", text) from error


_OPEN = threading.local()


def cursor_of(files: NamedFiles, k: int, leaves: tuple[Leaf, ...]) -> Cursor:
    """This thread's cursor, which stays where it is between parts: a large row group is read once, not for each."""
    about, cursor = getattr(_OPEN, "last", (None, None))
    wanted = files.paths[k], files.state(k), leaves
    if cursor is None or about != wanted:
        cursor = Cursor(files, k, leaves)
        _OPEN.last = wanted, cursor
    return cursor


def name_of(files: NamedFiles, k: int) -> str:
    """A file in messages, which name no absolute path."""
    return files.name(k) if files.remotes else plain(files.base(k))
