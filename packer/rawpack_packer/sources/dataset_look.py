"""What a dataset holds, by a look at some of its samples: images, fields, labels and their classes; and whether the
image files that samples in memory name are there."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Item, Scanning, unseen
from rawpack_packer.sources.dataset_columns import ObjectColumns
from rawpack_packer.sources.dataset_forms import (
    SLICEABLE,
    ColumnDataset,
    DatasetImages,
    DeclaredImage,
    InOrder,
    Names,
    Others,
    as_columns,
    as_dict,
    attribute,
    called_in,
    check_array,
    check_not_columns,
    classes_by,
    file_or_array,
    image_attribute,
    images_of,
    length_of,
    names_by,
    renamed,
    size_of,
)
from rawpack_packer.sources.dataset_targets import target_kinds
from rawpack_packer.sources.declared import array_of, declared_kind, with_arrays
from rawpack_packer.sources.fields import (
    Boxes,
    Declared,
    FieldKind,
    are_pixels,
    are_texts,
    as_array,
)
from rawpack_packer.sources.frames import (
    checked_numbers,
    class_names,
    frame_columns,
    keys_of,
    lists_of_lengths,
    named_label,
    named_path,
    type_of_values,
)
from rawpack_packer.sources.inferred import first_pixels, inferred_kind
from rawpack_packer.sources.listing.lines import BadListingError, CellPosition, PathParser
from rawpack_packer.sources.table.choose import (
    IMAGE,
    LABEL,
    Labels,
    classes_from_0,
    classes_of,
    number_labels,
    numbered_classes,
)
from rawpack_packer.sources.table.columns import CLASS
from rawpack_packer.sources.table.objects import BOXES
from rawpack_packer.text import plain

_TRIED = 16
"""Samples that are read to find one that can be read, and to find out whether images have one size."""


@dataclass(frozen=True)
class _SampleFile(CellPosition):
    """The name of an image file in a sample."""

    def fault(self, line: int | None, what: str) -> BadListingError:
        where = f"{self.where}: {plain(self.name)} of sample {line}"
        return BadListingError(f"{where}: {plain(what)}; correct the path, or leave the sample out")

    def no_file(self, path: str, root: str) -> str:
        return f"there is no file {path}" if path[0] == "/" else f"there is no file {path} below {plain(root)}"


@dataclass(frozen=True)
class DatasetLabels:
    """What the labels of a dataset are."""

    classes: tuple[str, ...] | None
    numbers: NDArray[Any] | None
    """(n,): of each sample, where they are known before samples are read."""
    are_names: bool
    """Whether samples have the names of classes, rather than their numbers."""
    categories: tuple[int, ...]
    """COCO's ids of the classes of boxes, sorted; empty where boxes have the numbers of classes."""


@dataclass(frozen=True)
class DatasetLook:
    """The samples of a dataset, which are looked at before they are packed."""

    dataset: Any
    count: int
    names: Names | None
    """What their values are called."""
    root: str
    notes: Sequence[str] = ()
    progress: Scanning = unseen
    objects: ObjectColumns | None = None
    first: Mapping[str, Any] = field(default_factory=dict)
    """The first sample, once `with_first` has read it."""

    def _raw(self, i: int) -> Any:
        return self.dataset[i] if self.objects is None else self.objects.in_place(self.dataset[i], i)

    def sample(self, i: int) -> dict[str, Any] | None:
        """A sample; None where it cannot be read, so that it is rejected when it is packed."""
        try:
            return as_dict(self._raw(i), self.names)
        except (PackError, MemoryError):
            raise
        except Exception:
            return None

    def with_first(self, declared: Container[str]) -> DatasetLook:
        """These samples, and the first one that can be read and shows fields, with a label if some have one. A label of
        another name is called so, unless it is `declared`. Raises UsageError."""
        names = self.names if isinstance(self.names, tuple) else ()
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"names= has {name!r} twice: each value of a sample needs a name of its own")
        tried = min(self.count, _TRIED)
        first = self._readable(tried)
        if first.get(LABEL, "") is None:
            labels = ((self.sample(i) or {}).get(LABEL) for i in range(tried))
            first[LABEL] = next((label for label in labels if label is not None), None)
        if is_empty(first.get(LABEL)):  # an image without annotations shows no fields
            first = next((other for other in map(self.sample, range(1, tried)) if other and target_kinds(other)), first)
        if isinstance(self.names, tuple) or isinstance(self.dataset, ColumnDataset) or LABEL in first:
            return replace(self, first=first)
        called = self.names or {}
        types = {
            name: type_of_values(value)
            for name, value in first.items()
            if not (isinstance(value, list) or getattr(value, "shape", None) or name in declared or name in called)
        }
        label = named_label(types, called)
        if label:
            return replace(self, names={**called, **label}, first=renamed(first, label, "a sample"))
        return replace(self, first=first)

    def _readable(self, tried: int) -> dict[str, Any]:
        """The first sample that can be read, among as many. Raises UsageError where there is none."""
        raised: Exception | None = None
        for i in range(tried):
            try:
                sample = self._raw(i)
                if isinstance(sample, Item):  # the dataset was meant to be a `Source`
                    has = dir(self.dataset)
                    lacks = ", ".join(k for k in ("info", "__len__", "key", "part", "states") if k not in has)
                    raise UsageError(
                        f"the {type(self.dataset).__name__} returns `Item`s and is not a source: it lacks {lacks} of "
                        "rawpack_packer.sources.Source"
                    )
                return as_dict(sample, self.names)
            except (PackError, UsageError, MemoryError):
                raise
            except Exception as error:
                raised = raised or error
        if isinstance(raised, DecodeError):
            raise UsageError(f"{self.root}: its first sample: {raised.detail}") from raised
        which = "its only sample" if self.count == 1 else f"each of its first {tried} samples"
        raise UsageError(
            f"{self.root}: {which} raises an exception, source[0] {type(raised).__name__}: {raised}; source[i] must "
            f"return sample i, for i from 0 to {self.count - 1}"
        ) from raised

    def others(self, name: str = "image") -> Others:
        """The images, or those of a further field, to be looked at; without those that cannot be read."""
        in_memory, some = isinstance(self.dataset, SLICEABLE), range(1, min(self.count, _TRIED))
        spread = np.unique(np.linspace(0, self.count - 1, _TRIED, dtype=np.int64)).tolist()
        if in_memory:
            rows = self.dataset.columns[name] if isinstance(self.dataset, ColumnDataset) else self.dataset
            some = range(0 if getattr(getattr(rows, "dtype", None), "kind", "O") != "O" else self.count)
        elif not isinstance(self.dataset, InOrder):
            some = spread
        return Others(
            lambda rows: (one[name] for one in map(self.sample, rows) if one and name in one), spread, some, in_memory
        )

    def check_files(self, name: str, first: Any) -> None:
        """Raise UsageError where samples in memory name image files that are missing, as listings do. name: of the
        field. first: its first value."""
        if type(self.dataset) not in SLICEABLE or not isinstance(first, str | os.PathLike):
            return
        files = PathParser(_SampleFile(self.root, name, 0, cells=False), os.getcwd())  # noqa: PTH109
        for i, value in enumerate(self.values(name, unseen)):
            path = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
            if path and isinstance(path, str):  # others are rejected when they are packed
                files.state(path, i)
            self.progress(i + 1)
        files.check()

    def images(self, declared: DeclaredImage | None, colors: bool, sized: bool | None) -> DatasetImages:
        """What images are, by the first one. declared, colors, sized: see `open_dataset`. Raises UsageError."""
        declared, first = declared or image_attribute(self.dataset), self.first[IMAGE]
        check_array(self.dataset, declared, self.root)
        self.check_files(IMAGE, first)
        return images_of(first, declared, self.others(), self.root, colors=colors, sized=sized)

    def field(self, name: str, declared: Declared | None, images: DatasetImages) -> FieldKind:
        """What a field is, by the first sample. Raises UsageError."""
        array, rest = array_of(declared)
        word, value = rest if array else declared, self.first[name]
        kind = inferred_kind(name, value) if word is None else declared_kind(name, word)
        if are_pixels(kind):
            self.check_files(name, value)
        if kind == "mask":
            kind = first_pixels(kind, name, file_or_array, [value], images.kind)
        elif isinstance(kind, str):  # as the first image, of one size unless some that are looked at differ
            others, where = self.others(name), f"{self.root}: {name}"
            values = chain([value], others.images(others.looked_at))
            kind = first_pixels(kind, name, lambda one: images.further(one, where), values, images.kind)
            if None not in kind.shape:
                seen = chain([value], others.images(others.looked_at))
                sizes = {size_of(other, images.chw) for other in seen} - {None}
                kind = kind if len(sizes) < 2 else replace(kind, shape=(None, None, kind.shape[2]))
        return with_arrays({name: kind}, [name] if array else (), "the dataset")[name]

    def values(self, name: str, progress: Scanning | None = None) -> Any:
        """The values of a field: a column, or those of samples in memory. None for others, unless `progress` follows
        how all samples are read, of which one that cannot be read has None."""
        dataset, features = self.dataset, getattr(self.dataset, "features", None)
        if isinstance(dataset, ColumnDataset):
            return dataset.columns.get(name)
        if isinstance(features, Mapping) and (called := called_in(self.names, name)) in features:
            return list(dataset[called])
        if progress is None and (isinstance(features, Mapping) or type(dataset) not in (list, tuple)):
            return None
        values = []
        for i in range(self.count):
            values.append((self.sample(i) or {}).get(name))
            (progress or unseen)(i + 1)
        return values

    def labels(
        self, kind: FieldKind | None, are_names: bool, classes: Sequence[str] | None, of_objects: Sequence[str] | None
    ) -> DatasetLabels:
        """What labels are. kind, are_names: of the field; see `DatasetLabels`. classes: as the user gives them.
        of_objects: the names of the classes of objects. Raises UsageError."""
        names, categories = self._classes(of_objects if kind is None else None)
        numbers = as_array(getattr(self.dataset, "targets", None))
        whole = numbers is not None and numbers.shape == (self.count,) and numbers.dtype.kind in "iu"
        if are_names:
            given = None if classes is None else classes_of(classes)
            if (labels := self._named_labels(given or names)) is not None:
                return DatasetLabels(labels.names, numbers if whole else labels.numbers, True, categories)
            named: tuple[str, ...] | None = classes_of(given or names or ())
            if given is not None and self.first[LABEL] not in given:
                named = numbered_classes(given)[0]
        else:
            counted = None if classes is None or (of_objects and kind is None) else classes_from_0(classes)
            named = self._numbered_classes(kind, counted, names)
        return DatasetLabels(named, numbers if whole else self._numbered_labels(), are_names, categories)

    def _classes(self, of_objects: Sequence[str] | None) -> tuple[Sequence[Any] | None, tuple[int, ...]]:
        """The names of classes that the dataset has, and COCO's ids of those of boxes, if these have them."""
        boxes, ids = self.first.get(BOXES), tuple[int, ...]()
        names = of_objects or classes_by(self.dataset, self.names)
        if isinstance(boxes, Boxes) and boxes.form == "xywh":
            categories = attribute(getattr(self.dataset, "coco", None), "cats", Mapping) or {}
            ids = tuple(sorted(categories))
            names = [str(categories[number]["name"]) for number in ids] or names
        return names, ids

    def _named_labels(self, classes: Sequence[Any] | None) -> Labels | None:
        """The labels of all samples, which are texts; None where samples are not read for them, as their classes are
        known. A sample that raises has none."""
        values = attribute(self.dataset, "targets", (list, tuple))
        if values is None or len(values) != self.count or not are_texts(values):
            if classes and type(self.dataset) not in (list, tuple, ColumnDataset):
                return None
            values = self.values(LABEL, self.progress)
        texts = [value if isinstance(value, str) else None for value in values]
        return number_labels(texts, tuple(classes) if classes else None, where=self.root)

    def _numbered_labels(self) -> NDArray[Any] | None:
        """The label of each sample, where features name the classes of a column and no transform changes it."""
        form = attribute(self.dataset, "format", Mapping) or {}
        label = called_in(self.names, LABEL)
        if form.get("type") == "custom" or class_names(getattr(self.dataset, "features", None), label) is None:
            return None
        return np.array([-1 if value is None else int(value) for value in self.dataset[label]], np.int64)

    def _numbered_classes(
        self, label: FieldKind | None, given: Sequence[str] | None, of_dataset: Sequence[Any] | None
    ) -> tuple[str, ...] | None:
        """The names of classes of labels that are numbers, or of boxes that have such. Those of the dataset count only
        where there are such. Raises UsageError where `given` names none."""
        boxes = self.first.get(BOXES)
        countable = label is None and isinstance(boxes, Boxes) and boxes.rows.shape[1] > CLASS
        countable = countable or (label is not None and label.shape == () and label.dtype[0] in "iu")
        if given is not None and not countable:
            raise UsageError("classes= names labels: a field 'label' of integers, which the samples do not have")
        if given is None and all(isinstance(name, str) for name in of_dataset or ()):
            given = of_dataset
        return classes_of(given) if countable and given else None


def looked_at(
    dataset: Any,
    names: Names | None,
    keys: Sequence[str] | None,
    root: str,
    fields: Mapping[str, Declared],
    progress: Scanning,
) -> tuple[DatasetLook, Sequence[str] | None]:
    """The samples of what the user gives: columns of a table or a dict as one dataset, and what can only be iterated in
    order. Their keys: as given, or a column of the table. Raises UsageError for what is no dataset."""
    called, notes = type(dataset).__name__, list[str]()
    if (frame := frame_columns(dataset)) is not None:
        of_frame = dict(names) if isinstance(names, Mapping) else {}
        dataset, names = frame, of_frame | named_path(frame, of_frame)
        named = frame.pop("key", None) if keys is None and "key" not in of_frame.values() else None
    elif not isinstance(names, tuple):
        names = names_by(dataset, names, fields)
    if isinstance(dataset, Mapping):
        columns = list(dataset.keys())  # a TensorDict iterates over its rows
        called_so = all(isinstance(column, str) for column in columns) and IMAGE in (*columns, *(names or ()))
        if called_so and not isinstance(names, tuple):
            types = {str(name): type_of_values(column) for name, column in dataset.items() if name not in fields}
            names = {**(names or {}), **named_label(types, names or {})} or None
        if isinstance(names, Mapping):
            dataset, names = renamed(dataset, names, f"the {called}"), None
        dataset = as_columns(dataset)
    if frame is not None:
        for name, column in dataset.columns.items():
            dataset.columns[name] = checked_numbers(name, column, fields.get(name))
        dataset.fields = lists_of_lengths(dataset.columns, fields)
        if keys is None:
            keys, notes = keys_of(dataset.columns[IMAGE], named)
    check_not_columns(dataset)
    count = length_of(dataset)
    root = root or f"<{called} of {count} samples>"
    if not hasattr(dataset, "__getitem__"):
        if iter(dataset) is dataset:
            raise UsageError(f"{root} can be iterated only once: pass what makes it, or list(source)")
        dataset = InOrder(dataset, count)
    return DatasetLook(dataset, count, names, root, notes, progress), keys


def check_first(first: Mapping[str, Any], declared: Mapping[str, Declared], root: str) -> None:
    """Raise UsageError where the first sample has no image, or has not what is declared."""
    if IMAGE not in first:
        raise UsageError(f"{root}: samples have {', '.join(map(repr, first))} and no 'image': name one so")
    for name in declared:
        if name not in first:
            raise UsageError(f"there is no field {name!r} in the first sample, which has {', '.join(first)}")
    if "key" in first:
        raise UsageError("every sample has a field 'key' already: pass keys=[...], or rename yours, to 'name' say")


def called_as(names: Sequence[str] | Mapping[str, str | int] | None, label: str | None) -> Names | None:
    """What values are called, where the caller may have named the label alone. Raises UsageError."""
    if names is None or isinstance(names, Mapping):
        return names if label in (None, LABEL) else {**(names or {}), LABEL: str(label)}
    if label is not None and label not in names:
        raise UsageError(f"{opt.label_column(label)}: names= has no {label!r}")
    return tuple(LABEL if name == label else name for name in names)


def is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value
