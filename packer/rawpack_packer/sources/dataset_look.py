"""What a dataset holds, by a look at some of its samples: images, fields, labels and their classes; and whether the
image files that samples in memory name are there."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import AXES
from rawpack_packer.sources.base import Item, Scanning, unseen
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
    check_array,
    check_not_columns,
    file_or_array,
    images_of,
    length_of,
    renamed,
    size_of,
)
from rawpack_packer.sources.dataset_targets import target_kinds
from rawpack_packer.sources.declared import array_of, declared_kind, with_arrays
from rawpack_packer.sources.fields import (
    Boxes,
    Declared,
    FieldKind,
    ImageKind,
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
    named_features,
    named_label,
    named_path,
    type_of_values,
)
from rawpack_packer.sources.inferred import first_pixels, inferred_kind
from rawpack_packer.sources.listing.lines import BadListingError, CellPosition, PathParser
from rawpack_packer.sources.table.choose import IMAGE, LABEL, Labels, classes_of, number_labels
from rawpack_packer.text import plain

_TRIED = 16
"""Samples that are read to find one that can be read, and to find out whether images have one size."""
_BOX = 4
"""Numbers of a box without a class."""


@dataclass(frozen=True)
class _SampleFile(CellPosition):
    """The name of an image file in a sample."""

    def fault(self, line: int | None, what: str) -> BadListingError:
        where = f"{self.where}: {plain(self.name)} of sample {line}"
        return BadListingError(f"{where}: {plain(what)}; correct the path, or leave the sample out")

    def no_file(self, path: str, root: str) -> str:
        return f"there is no file {path}" if path[0] == "/" else f"there is no file {path} below {plain(root)}"


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

    def sample(self, i: int) -> dict[str, Any] | None:
        """A sample; None where it cannot be read, so that it is rejected when it is packed."""
        try:
            return as_dict(self.dataset[i], self.names)
        except (PackError, MemoryError):
            raise
        except Exception:
            return None

    def first(self) -> dict[str, Any]:
        """The first one that can be read and shows fields, with a label if some have one. Raises UsageError."""
        names = self.names if isinstance(self.names, tuple) else ()
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"names= has {name!r} twice: each value of a sample needs a name of its own")
        tried, raised = min(self.count, _TRIED), None
        for i in range(tried):
            try:
                sample = self.dataset[i]
                if isinstance(sample, Item):  # the dataset was meant to be a `Source`
                    has = dir(self.dataset)
                    lacks = ", ".join(k for k in ("info", "__len__", "key", "part", "states") if k not in has)
                    raise UsageError(
                        f"the {type(self.dataset).__name__} returns `Item`s and is not a source: it lacks {lacks} of "
                        "rawpack_packer.sources.Source"
                    )
                first = as_dict(sample, self.names)
                break
            except (PackError, UsageError, MemoryError):
                raise
            except Exception as error:
                raised = raised or error
        else:
            if isinstance(raised, DecodeError):
                raise UsageError(f"{self.root}: its first sample: {raised.detail}") from raised
            which = "its only sample" if self.count == 1 else f"each of its first {tried} samples"
            raise UsageError(
                f"{self.root}: {which} raises an exception, source[0] {type(raised).__name__}: {raised}; source[i] "
                f"must return sample i, for i from 0 to {self.count - 1}"
            ) from raised
        if first.get(LABEL, "") is None:
            labels = ((self.sample(i) or {}).get(LABEL) for i in range(tried))
            first[LABEL] = next((one for one in labels if one is not None), None)
        if is_empty(first.get(LABEL)):  # an image without annotations shows no fields
            first = next((one for one in map(self.sample, range(1, tried)) if one and target_kinds(one)), first)
        return first

    def with_label(self, first: dict[str, Any], fields: Container[str]) -> tuple[DatasetLook, dict[str, Any]]:
        """These samples, and the first, in which a label of another name is called so. fields: those that are declared,
        which are none."""
        alone = {
            name: type_of_values(value)
            for name, value in first.items()
            if not isinstance(value, list) and not getattr(value, "shape", ())
        }
        names = self.names if isinstance(self.names, Mapping) else {}
        of_fields = {name: kind for name, kind in alone.items() if name not in fields and name not in names}
        label = named_label(of_fields, names) if self.names is None or names else {}
        if not label or isinstance(self.dataset, ColumnDataset) or LABEL in first:
            return self, first
        return replace(self, names={**names, **label}), renamed(first, label, "a sample")

    def others(self, name: str = "image") -> Others:
        """The images, or those of a further field, to be looked at; without those that cannot be read."""
        every: Sequence[int] | None = None
        if isinstance(self.dataset, list | tuple | np.ndarray | ColumnDataset):
            rows = self.dataset.columns[name] if isinstance(self.dataset, ColumnDataset) else self.dataset
            alike = getattr(getattr(rows, "dtype", None), "kind", "O") != "O"
            every = range(0 if alike else self.count)
        some = np.unique(np.linspace(0, self.count - 1, _TRIED, dtype=np.int64)).tolist()
        few = range(1, min(self.count, _TRIED)) if isinstance(self.dataset, InOrder) else some
        return Others(
            lambda rows: (one[name] for one in map(self.sample, rows) if one and name in one), some, few, every
        )

    def check_files(self, name: str, first: Any) -> None:
        """Raise UsageError where samples in memory name image files that are missing, as listings do. name: of the
        field. first: its first value."""
        if type(self.dataset) not in SLICEABLE or not isinstance(first, str | os.PathLike):
            return
        columns = self.dataset.columns if isinstance(self.dataset, ColumnDataset) else {}
        values = columns[name] if columns else ((self.sample(i) or {}).get(name) for i in range(self.count))
        files = PathParser(_SampleFile(self.root, name, 0, cells=False), os.getcwd())  # noqa: PTH109
        for i, value in enumerate(values):
            path = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
            if path and isinstance(path, str):  # others are rejected when they are packed
                files.state(path, i)
            self.progress(i + 1)
        files.check()

    def images(self, first: Any, said: DeclaredImage | None, colors: bool, sized: bool | None) -> DatasetImages:
        """What images are, by the first one. said, colors, sized: see `open_dataset`. Raises UsageError."""
        said = said or attribute(self.dataset, "image", (tuple, ImageKind))
        if said is None and (axes := attribute(self.dataset, "image", str)) in AXES:
            said = axes
        check_array(self.dataset, said, self.root)
        self.check_files(IMAGE, first)
        return images_of(first, said, self.others(), self.root, colors=colors, sized=sized)

    def field(self, name: str, value: Any, declared: Declared | None, images: DatasetImages) -> FieldKind:
        """What a field is. value: that of the first sample. Raises UsageError."""
        array, rest = array_of(declared)
        said = rest if array else declared
        kind = inferred_kind(name, value) if said is None else declared_kind(name, said)
        if are_pixels(kind):
            self.check_files(name, value)
        if kind == "mask":
            kind = first_pixels(kind, name, file_or_array, [value], images.kind)
        elif isinstance(kind, str):  # as the first image, of one size unless some that are looked at differ
            others, where = self.others(name), f"{self.root}: {name}"
            values = chain([value], others.images(others.few))
            kind = first_pixels(kind, name, lambda one: images.further(one, where), values, images.kind)
            if None not in kind.shape:
                seen = others.images(others.few if others.every is None else others.every)
                sizes = {size_of(one, images.chw) for one in chain([value], seen)} - {None}
                kind = kind if len(sizes) < 2 else replace(kind, shape=(None, None, kind.shape[2]))
        return with_arrays({name: kind}, [name] if array else (), "the dataset")[name]

    @property
    def _label(self) -> Any:
        """What samples call their labels."""
        return self.names.get(LABEL, LABEL) if isinstance(self.names, Mapping) else LABEL

    def classes(self, boxes: Any, of_objects: Sequence[str] | None) -> tuple[Sequence[Any] | None, tuple[int, ...]]:
        """The names of classes that the dataset has, and COCO's ids of those of boxes, if these have them."""
        features, ids = getattr(self.dataset, "features", None), tuple[int, ...]()
        names = of_objects or attribute(self.dataset, "classes", (list, tuple)) or class_names(features, self._label)
        if isinstance(boxes, Boxes) and boxes.form == "xywh":
            known = attribute(getattr(self.dataset, "coco", None), "cats", Mapping) or {}
            ids = tuple(sorted(known))
            names = [str(known[number]["name"]) for number in ids] or names
        return names, ids

    def text_labels(self, classes: Sequence[Any] | None) -> Labels | None:
        """The labels of all samples, which are texts; None where samples are not read for them, as their classes are
        known. A sample that raises has none."""
        dataset, values = self.dataset, list[Any]()
        targets, features = getattr(dataset, "targets", None), getattr(dataset, "features", None)
        if isinstance(dataset, ColumnDataset):
            values = list(dataset.columns[LABEL])
        elif isinstance(targets, list | tuple) and len(targets) == self.count and are_texts(list(targets)):
            values = list(targets)
        elif classes and type(dataset) not in (list, tuple):
            return None
        elif isinstance(features, Mapping) and self._label in features:  # without decoding its images
            values = list(dataset[self._label])
        else:
            for i in range(self.count):
                values.append((self.sample(i) or {}).get(LABEL))
                (unseen if classes else self.progress)(i + 1)
        texts = [value if isinstance(value, str) else None for value in values]
        return number_labels(texts, tuple(classes) if classes else None, where=self.root)

    def targets(self, found: Labels | None) -> NDArray[Any] | None:
        """The label of each sample, if it is known. found: in texts."""
        targets = as_array(getattr(self.dataset, "targets", None))
        whole = targets is not None and targets.shape == (self.count,) and targets.dtype.kind in "iu"
        if whole or found is not None:
            return targets if whole else found.numbers if found else None
        features, form = getattr(self.dataset, "features", None), getattr(self.dataset, "format", None)
        custom = isinstance(form, Mapping) and form.get("type") == "custom"
        if custom or not isinstance(features, Mapping) or class_names(features, self._label) is None:
            return None
        values = self.dataset[self._label]
        return np.array([-1 if one is None else int(one) for one in values], np.int64)


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
    elif isinstance(features := getattr(dataset, "features", None), Mapping) and not isinstance(names, tuple):
        names = {
            **(names or {}),
            **named_features(features, {**{name: name for name in fields if name != LABEL}, **(names or {})}),
        } or None
    columns = list(dataset.keys()) if isinstance(dataset, Mapping) else []  # a TensorDict iterates over its rows
    if (
        isinstance(dataset, Mapping)
        and IMAGE in (*columns, *(names or ()))
        and not isinstance(names, tuple)
        and all(isinstance(column, str) for column in columns)
    ):
        types = {str(name): type_of_values(column) for name, column in dataset.items() if name not in fields}
        names = {**(names or {}), **named_label(types, names or {})} or None
    if isinstance(dataset, Mapping):
        if isinstance(names, Mapping):
            dataset, names = renamed(dataset, names, f"the {called}"), None
        dataset = as_columns(dataset)
        if frame is not None:
            for name, column in dataset.columns.items():
                dataset.columns[name] = checked_numbers(name, column, fields.get(name))
            dataset.fields = lists_of_lengths(dataset.columns, fields)
            if keys is None:
                keys, notes = keys_of(dataset.columns["image"], named)
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
    if "image" not in first:
        raise UsageError(f"{root}: samples have {', '.join(map(repr, first))} and no 'image': name one so")
    for name in declared:
        if name not in first:
            raise UsageError(f"there is no field {name!r} in the first sample, which has {', '.join(first)}")
    if "key" in first:
        raise UsageError("every sample has a field 'key' already: pass keys=[...], or rename yours, to 'name' say")


def attribute(dataset: Any, name: str, types: Any) -> Any:
    """An attribute of a dataset; None where it is missing or something else that has the same name."""
    value = getattr(dataset, name, None)
    return value if isinstance(value, types) else None


def called_as(names: Sequence[str] | Mapping[str, str | int] | None, label: str | None) -> Names | None:
    """What values are called, where the caller may have named the label alone. Raises UsageError."""
    if names is None or isinstance(names, Mapping):
        return names if label in (None, LABEL) else {**(names or {}), LABEL: str(label)}
    if label is not None and label not in names:
        raise UsageError(f"{opt.label_column(label)}: names= has no {label!r}")
    return tuple(LABEL if name == label else name for name in names)


def classes_named(
    label: FieldKind | None, boxes: Any, given: Sequence[str] | None, of_dataset: Sequence[Any] | None
) -> tuple[str, ...] | None:
    """Names of the labels, which are then int64. Those of the dataset count only where there are such labels, or
    boxes that have numbers of classes."""
    whole = label is not None and label.shape == () and label.dtype != "str" and label.dtype[0] in "iu"
    countable = whole or (label is None and isinstance(boxes, Boxes) and boxes.rows.shape[1] > _BOX)
    if given is not None and not countable:
        raise UsageError("classes= names labels: a field 'label' of integers, which the samples do not have")
    if given is None and all(isinstance(name, str) for name in of_dataset or ()):
        given = of_dataset
    return classes_of(given) if countable and given else None


def is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value
