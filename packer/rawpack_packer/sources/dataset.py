"""Any dataset as a source: what has a length and returns sample i, such as a torch Dataset, or can be iterated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.sources.base import Item, Rows, Scanning, SourceInfo, unseen
from rawpack_packer.sources.dataset_columns import ObjectColumns, object_columns, typed_columns
from rawpack_packer.sources.dataset_forms import (
    SLICEABLE,
    ColumnDataset,
    DatasetImages,
    DeclaredImage,
    InOrder,
    Names,
    as_dict,
    attribute,
    file_or_array,
)
from rawpack_packer.sources.dataset_look import (
    DatasetLabels,
    DatasetLook,
    called_as,
    check_first,
    is_empty,
    looked_at,
)
from rawpack_packer.sources.dataset_targets import by_category, of_annotations, target_kinds
from rawpack_packer.sources.declared import by_name
from rawpack_packer.sources.fields import Boxes, Declared, FieldKind, Fields, Value, are_texts, as_array, as_text
from rawpack_packer.sources.inferred import hints
from rawpack_packer.sources.stream import Spooled
from rawpack_packer.sources.table.choose import IMAGE, LABEL, LABEL_KIND, Labels, refuse_one_hot
from rawpack_packer.sources.table.columns import Numbers, RowNumbers, Texts, column_of_values, rows_at, texts_of
from rawpack_packer.sources.table.keys import key_text, repeated_key
from rawpack_packer.sources.table.objects import BOXES
from rawpack_packer.sources.table.table import KeyColumn, Table, TablePart
from rawpack_packer.sources.times import TextOnly
from rawpack_packer.text import composed, plain

_HASHED_ROWS = 1 << 12
"""Longer arrays are told from others by this many of their rows."""


class Dataset(Protocol):
    """What a dataset must have. It may have attributes too: `fields`, name -> what `pack(fields=)` takes; `image`, what
    `pack(image=)` takes; `classes`, the names of labels; `targets`, the label of each sample; `groups`, the group of
    each sample, such as its video."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Any: ...


@dataclass(frozen=True)
class DatasetRows:
    """Samples of a dataset, which name themselves: a column of images. cloudpickle takes it to a worker."""

    dataset: Any
    rows: range | Rows
    """The position in `dataset` of each sample."""
    keys: KeyColumn
    names: Names | None
    objects: ObjectColumns | None
    fields: Mapping[str, FieldKind]
    images: DatasetImages
    labels: DatasetLabels
    """Without those of each sample. One beyond the classes is rejected."""
    typed: bool
    """Whether features say what fields hold: then a missing value is what it is in files."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        """Without the samples of others, where the dataset is in memory."""
        if not (isinstance(self.dataset, np.ndarray) or type(self.dataset) in SLICEABLE):
            return self.__dict__
        # A subclass of list may return other samples than those of its slices.
        return {**self.__dict__, "dataset": _some(self.dataset, self.rows), "rows": range(len(self.rows))}

    def value(self, i: int, /) -> Item:
        key = self.key(i)
        try:
            value = self.dataset[int(self.rows[i])]
            sample = as_dict(value if self.objects is None else self.objects.in_place(value, i), self.names)
            if "image" not in sample:
                raise DecodeError("bad_field", "it has no 'image'")
            value = sample.pop("image")
            # In here, since Pillow decodes an image only when its pixels are asked for.
            image = self.images.of(value, f"sample {key}")
            kinds = self.fields
            if LABEL not in kinds and BOXES in kinds and is_empty(sample.get(LABEL)):  # an image without annotations
                sample |= of_annotations(sample.pop(LABEL))
            if LABEL in kinds and LABEL in sample:
                sample[LABEL] = self._label(sample[LABEL])
            for name, value in sample.items():
                if self.labels.categories and isinstance(value, Boxes):
                    sample[name] = by_category(value, self.labels.categories)
            if self.typed:
                sample = {name: _missing(kinds.get(name)) if one is None else one for name, one in sample.items()}
            fields = {name: _as_value(name, one, kinds.get(name), self.images) for name, one in sample.items()}
        except (DecodeError, PackError, MemoryError):
            raise
        except Exception as error:
            raise DecodeError("source_error", f"{type(error).__name__}: {error}") from error
        unknown = [name for name in fields if name not in self.fields]
        if unknown:
            raise DecodeError("bad_field", f"it has a field {unknown[0]!r}, which the first sample does not have")
        label, classes = np.asarray(fields.get(LABEL, -1)), self.labels.classes
        numbers_class = label.ndim == 0 and label.dtype.kind in "iu"
        if classes is not None and numbers_class and not -1 <= int(label) < len(classes):
            raise DecodeError("bad_field", f"label is {label}; there are {len(classes)} classes, counted from 0")
        return Item(key, image, fields)

    def _label(self, value: Any) -> Any:
        """A label as the packer takes it. Raises DecodeError for a name that is none of the classes."""
        classes = self.labels.classes or ()
        if not self.labels.are_names:
            return -1 if value is None and self.labels.classes is not None else value
        if value is None or value == "":
            return -1
        try:
            return classes.index(value) if value in classes else [*map(composed, classes)].index(composed(value))
        except (ValueError, TypeError) as error:
            raise DecodeError("bad_field", f"label is {value!r}; it is none of the {len(classes)} classes") from error

    def key(self, i: int) -> str:
        return self.keys.value(i)

    def pick(self, rows: Rows, /) -> DatasetRows:
        objects = None if self.objects is None else self.objects.pick(rows)
        return replace(self, rows=rows_at(self.rows, rows), keys=self.keys.pick(rows), objects=objects)


def open_dataset(
    dataset: Any,
    *,
    fields: Fields | None = None,
    image: DeclaredImage | None = None,
    classes: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    names: Sequence[str] | Mapping[str, str | int] | None = None,
    label_column: str | None = None,
    colors: bool = False,
    sized: bool | None = None,
    progress: Scanning = unseen,
    root: str = "",
) -> Table:
    """A map-style dataset, whose first sample shows what the fields are.

    dataset: a `Dataset`, or what can be iterated; otherwise see `rawpack_packer.pack`. colors: whether the recipe says
    what colors images get, so that grey PIL images and others may be mixed. sized: whether it makes all images one
    size; None where that is unknown. progress: called with the number of samples whose labels were read, or whose files
    were looked for. root: its name in messages. Raises UsageError for what is no dataset.
    """
    refuse_one_hot(label_column)
    asked = by_name(fields or {})
    look, keys = looked_at(dataset, called_as(names, label_column), keys, root, asked, progress)
    look, declared, shown, notes = _with_columns(look, asked, classes)
    check_first(look.first, declared, look.root)
    images = look.images(image, colors, sized)
    kinds = {name: look.field(name, declared.get(name), images) for name in look.first if name != IMAGE}
    are_names = kinds.get(LABEL) == FieldKind("str") and LABEL not in declared
    labels = look.labels(kinds.get(LABEL), are_names, classes, None if look.objects is None else look.objects.classes)
    counts = dict[str, int]()
    if LABEL in kinds and (labels.classes is not None or are_names):
        kinds[LABEL] = LABEL_KIND
    if LABEL in kinds and labels.numbers is not None:
        counts = {name: n for name, n in Labels(labels.numbers, labels.classes).counts.items() if n}
    info = SourceInfo(
        kind="dataset",
        root=look.root,
        fields=kinds,
        image=images.kind,
        classes=labels.classes,
        numbered=keys is None,
        counts=counts,
        problems=(*look.notes, *hints(kinds, {*declared} - shown, images.kind), *notes),
    )
    rows = DatasetRows(
        look.dataset,
        range(look.count),
        _keys(keys, look.count),
        look.names,
        look.objects,
        kinds,
        images,
        replace(labels, numbers=None),
        typed=bool(shown) and not isinstance(look.dataset, ColumnDataset),
    )
    return _table(info, rows, look, labels.numbers)


def _with_columns(
    look: DatasetLook, fields: Mapping[str, Declared], classes: Sequence[str] | None
) -> tuple[DatasetLook, dict[str, Declared], set[str], list[str]]:
    """The samples with what columns show: without those that no field can hold, and with fields in place of objects.
    What is declared of the fields, by anyone; the fields of which only columns show it; and lines for the summary."""
    declared = {**(attribute(look.dataset, "fields", Mapping) or {}), **fields}
    shown = {*declared} - {*fields} if isinstance(look.dataset, ColumnDataset) else set[str]()
    dataset, typed, notes = typed_columns(look.dataset, look.names, declared)
    objects = object_columns(dataset, declared, classes, look.root)
    look = replace(look, dataset=dataset, objects=objects).with_first(declared)
    typed = {name: kind for name, kind in typed.items() if name in look.first}
    if objects is None:
        return look, {**typed, **target_kinds(look.first), **declared}, {*shown, *typed}, notes
    declared.pop(objects.column, None)
    return look, {**typed, **objects.kinds, **declared}, {*shown, *typed}, [*objects.problems, *notes]


def _table(info: SourceInfo, rows: DatasetRows, look: DatasetLook, labels: NDArray[Any] | None) -> Table:
    """labels: the label of each sample, if it is known. Of arrays in memory, states are their bytes and a checksum of
    some of their rows; of a stream, those of each sample. Other datasets do not say what they read: see
    `Table.probed`."""
    dataset, in_order = look.dataset, isinstance(look.dataset, InOrder)
    columns = list(dataset.columns.values()) if isinstance(dataset, ColumnDataset) else [dataset]
    arrays = [column for column in columns if isinstance(column, np.ndarray) and not column.dtype.hasobject]
    steady = isinstance(dataset, Spooled) or len(arrays) == len(columns)  # states tell of all of it
    groups = attribute(dataset, "groups", SLICEABLE)
    return Table(
        info,
        TablePart(rows),
        dataset.states() if isinstance(dataset, Spooled) else None,
        np.array([*map(_state, arrays)], np.int64).reshape(-1, 2),
        labels=None if labels is None else np.asarray(labels, np.int64),
        groups=None if groups is None or len(groups) != look.count else texts_of([str(group) for group in groups]),
        find_column=lambda name: (
            Numbers(labels) if name == LABEL and labels is not None else column_of_values(look.values(name))
        ),
        probed="" if steady else "first" if in_order else "spread",
        in_order=in_order,
    )


def _state(array: NDArray[Any]) -> tuple[int, int]:
    rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _HASHED_ROWS), dtype=np.int64))
    digest = xxhash.xxh3_64()
    for row in rows.tolist() if len(array) > _HASHED_ROWS else [slice(None)]:  # it may be larger than memory
        digest.update(np.ascontiguousarray(array[row]).tobytes())
    return array.nbytes, digest.intdigest() - (1 << 63)


def _some(values: Any, rows: range | Rows) -> Any:
    """Some samples of a dataset in memory, or values of a column."""
    if isinstance(rows, range):
        return values[rows.start : rows.stop]
    if isinstance(values, ColumnDataset):
        return ColumnDataset({name: _some(column, rows) for name, column in values.columns.items()})
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows.tolist()]


def _keys(given: Sequence[str] | None, count: int) -> Texts | RowNumbers:
    if given is None:
        return RowNumbers(range(count))
    keys = [*map(key_text, given)]
    if len(keys) != count:
        raise UsageError(f"keys= has {len(keys)} keys for {count} samples")
    for i, key in enumerate(keys):
        if key != key.encode(errors="ignore").decode():
            raise UsageError(f"keys[{i}] is {key!r}, which UTF-8 cannot encode: name the sample otherwise")
    texts = texts_of(keys)
    if (repeated := repeated_key(texts)) is not None:
        first, i = repeated
        raise UsageError(f"keys[{i}] is {keys[i]!r}, as keys[{first}] is: each sample needs a key of its own")
    return texts


def _missing(kind: FieldKind | None) -> Any:
    """What a field has where a value is missing; None where that is no value of it."""
    if kind is None or kind.is_pixels:
        return None
    if kind.dtype == "str" and not kind.shape:
        return ""
    return [] if kind.ragged else float("nan") if kind.dtype.startswith("float") and not kind.shape else None


def _as_value(name: str, value: Any, kind: FieldKind | None, images: DatasetImages) -> Value:
    """A field's value as the packer takes it. Raises DecodeError."""
    if kind is not None and kind.image:
        try:
            return images.further(value)
        except DecodeError as error:
            raise DecodeError(error.reason, f"{name}: {error.detail}") from error
    if kind is not None and kind.mask:
        value = file_or_array(value)
    if isinstance(value, str | bytes):
        return value
    if kind is not None and kind.is_texts and are_texts(value):
        return list(value)
    if kind is not None and kind == FieldKind("str") and isinstance(value, Mapping | list | tuple | TextOnly):
        try:
            return as_text(dict(value) if isinstance(value, Mapping) else value)
        except (TypeError, ValueError, RecursionError) as error:
            raise DecodeError("bad_field", f"a value cannot be stored as JSON text: {error}") from error
    array = as_array(value.rows if isinstance(value, Boxes) else value)
    if array is None:
        raise DecodeError("bad_field", f"{name} is {plain(type(value).__name__)}, which no number or array can hold")
    array = np.array(array)  # see `as_image`
    return array if kind is None or kind.boxes is None else Boxes(array, kind.boxes)
