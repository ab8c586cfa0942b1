"""Any dataset as a source: what has a length and returns sample i, such as a torch Dataset, or can be iterated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import AXES
from rawpack_packer.sources.base import (
    BaseSource,
    Column,
    Item,
    Scanning,
    SourceInfo,
    check_part,
    check_sample,
    numbered,
    unseen,
)
from rawpack_packer.sources.dataset_forms import (
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
    check_not_item,
    images_of,
    length_of,
    renamed,
    size_of,
)
from rawpack_packer.sources.dataset_objects import with_objects
from rawpack_packer.sources.dataset_targets import by_category, of_annotations, target_kinds
from rawpack_packer.sources.declared import array_of, declared_kind, with_arrays
from rawpack_packer.sources.fields import Boxes, Declared, FieldKind, ImageKind, Value, are_texts, as_array, as_text
from rawpack_packer.sources.frames import (
    checked_numbers,
    class_names,
    frame_columns,
    keys_of,
    named_features,
    named_path,
)
from rawpack_packer.sources.inferred import first_pixels, hints, inferred_kind, inferred_pixels
from rawpack_packer.sources.stream import Spooled
from rawpack_packer.sources.table.choose import LABEL, Labels, classes_of, number_labels, one_hot_name, one_hot_numbers
from rawpack_packer.sources.table.columns import Numbers, column_of_values
from rawpack_packer.sources.table.objects import BOXES
from rawpack_packer.sources.times import TextOnly
from rawpack_packer.text import composed, plain

SLICEABLE = (list, tuple, np.ndarray, ColumnDataset)
"""A worker gets a slice of these; of any other dataset, the whole."""
_TRIED = 16
"""Samples that are read to find one that can be read, and to find out whether images have one size."""
_HASHED_ROWS = 1 << 12
"""Longer arrays are told from others by this many of their rows."""
_PROBED = 3
_BOX = 4
"""Numbers of a box without a class."""


class Dataset(Protocol):
    """What a dataset must have. It may have attributes too: `fields`, name -> what `pack(fields=)` takes; `image`, what
    `pack(image=)` takes; `classes`, the names of labels; `targets`, the label of each sample; `groups`, the group of
    each sample, such as its video."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Any: ...


@dataclass(frozen=True)
class DatasetPart:
    """Some samples of a dataset. cloudpickle takes it to a worker."""

    dataset: Any
    start: int
    """Position in `dataset` of the first sample."""
    keys: Sequence[str]
    names: Names | None
    fields: Mapping[str, FieldKind]
    classes: tuple[str, ...] | None
    """A label beyond them is rejected."""
    images: DatasetImages
    labels: Literal["numbers", "texts", "onehot"] = "numbers"
    """What labels are: numbers of classes, their names, or one-hot arrays."""
    categories: tuple[int, ...] = ()
    """COCO's ids of the classes of boxes, which are sorted; empty where boxes have the numbers of classes."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        try:
            sample = as_dict(self.dataset[self.start + i], self.names)
            if "image" not in sample:
                raise DecodeError("bad_field", "it has no 'image'")
            value = sample.pop("image")
            # In here, since Pillow decodes an image only when its pixels are asked for.
            image = self.images.of(value, f"sample {key}")
            kinds = self.fields
            if LABEL not in kinds and BOXES in kinds and _is_empty(sample.get(LABEL)):  # an image without annotations
                sample |= of_annotations(sample.pop(LABEL))
            if LABEL in kinds and LABEL in sample:
                sample[LABEL] = self._label(sample[LABEL])
            for name, value in sample.items():
                if self.categories and isinstance(value, Boxes):
                    sample[name] = by_category(value, self.categories)
            fields = {name: _as_value(name, one, kinds.get(name), self.images) for name, one in sample.items()}
        except (DecodeError, PackError, MemoryError):
            raise
        except Exception as error:
            raise DecodeError("source_error", f"{type(error).__name__}: {error}") from error
        unknown = [name for name in fields if name not in self.fields]
        if unknown:
            raise DecodeError("bad_field", f"it has a field {unknown[0]!r}, which the first sample does not have")
        label = np.asarray(fields.get("label", -1))
        numbers_class = label.ndim == 0 and label.dtype.kind in "iu"
        if self.classes is not None and numbers_class and not -1 <= int(label) < len(self.classes):
            raise DecodeError("bad_field", f"label is {label}; there are {len(self.classes)} classes, counted from 0")
        return Item(key, image, fields)

    def _label(self, value: Any) -> Any:
        """A label as the packer takes it. Raises DecodeError."""
        if self.labels == "texts":
            return _class_number(value, self.classes or ())
        if self.labels == "onehot":
            return _of_one_hot(value)
        return -1 if value is None and self.classes is not None else value

    def key(self, i: int, /) -> str:
        """The sample's key: its number, or what the caller named it."""
        check_sample(self, i)
        return self.keys[i]

    def part(self, start: int, stop: int, /) -> DatasetPart:
        """Samples start <= i < stop."""
        check_part(self, start, stop)
        part = replace(self, start=self.start + start, keys=self.keys[start:stop])
        # A subclass of list may return other samples than those of its slices.
        if isinstance(self.dataset, np.ndarray) or type(self.dataset) in SLICEABLE:
            return replace(part, start=0, dataset=self.dataset[part.start : part.start + len(part)])
        return part


class DatasetSource(BaseSource):
    """A map-style dataset as a `Source`. Its first sample shows what the fields are."""

    _all: DatasetPart

    def __init__(
        self,
        dataset: Any,
        *,
        fields: Mapping[str, Declared] | None = None,
        image: DeclaredImage | None = None,
        classes: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        names: Sequence[str] | Mapping[str, str | int] | None = None,
        label_column: str | None = None,
        colors: bool = False,
        sized: bool | None = None,
        progress: Scanning = unseen,
        root: str = "",
    ) -> None:
        """dataset: a `Dataset`, or what can be iterated; otherwise see `rawpack_packer.pack`. colors: whether the
        recipe says what colors images get, so that grey PIL images and others may be mixed. sized: whether it makes all
        images one size; None where that is unknown. progress: called with the number of samples whose labels were read.
        root: its name in messages. Raises UsageError for what is no dataset."""
        called = type(dataset).__name__
        label, onehot = one_hot_name(label_column)
        called_as, notes = _called(names, label), list[str]()
        if (frame := frame_columns(dataset)) is not None:
            of_frame = dict(called_as) if isinstance(called_as, Mapping) else {}
            dataset, called_as = frame, of_frame | named_path(frame, of_frame)
            keys = frame.pop("key", None) if keys is None and "key" not in of_frame.values() else keys
        elif isinstance(features := getattr(dataset, "features", None), Mapping) and not isinstance(called_as, tuple):
            called_as = {**(called_as or {}), **named_features(features, called_as or {})} or None
        if isinstance(dataset, Mapping):
            if isinstance(called_as, Mapping):
                dataset, called_as = renamed(dataset, called_as, f"the {called}"), None
            dataset = as_columns(dataset)
            if frame is not None:
                dataset.columns = checked_numbers(dataset.columns, fields or {})
                keys, notes = (keys, notes) if keys is not None else keys_of(dataset.column("image"))
        check_not_columns(dataset)
        count = length_of(dataset)
        root = root or f"<{called} of {count} samples>"
        self.in_order = not hasattr(dataset, "__getitem__")
        """Whether samples can only be iterated, which one process must do."""
        if self.in_order:
            if iter(dataset) is dataset:
                raise UsageError(f"{root} can be iterated only once: pass what makes it, or list(source)")
            dataset = InOrder(dataset, count)
        declared = {**(_attribute(dataset, "fields", Mapping) or {}), **(fields or {})}
        if classes is not None:
            classes = classes_of(classes if isinstance(classes, str | os.PathLike) else [str(one) for one in classes])
        objects = with_objects(dataset, declared, classes, root)
        dataset, declared = objects.dataset, objects.declared
        if isinstance(called_as, tuple):
            for name in called_as:
                if called_as.count(name) > 1:
                    raise UsageError(f"names= has {name!r} twice: each value of a sample needs a name of its own")
        first = _first(dataset, count, called_as, root)
        if first.get(LABEL, "") is None:
            labels = (_label_of(dataset[i], called_as) for i in range(min(count, _TRIED)))
            first[LABEL] = next((one for one in labels if one is not None), None)
        if onehot:
            first[LABEL] = _first_one_hot(first, opt.label_column(str(label_column)), root)
        elif _is_empty(first.get(LABEL)):  # an image without annotations shows no fields
            next_ones = (_sample_of(dataset, i, called_as) for i in range(1, min(count, _TRIED)))
            first = next((one for one in next_ones if one is not None and target_kinds(one)), first)
        declared = {**({} if objects.found else target_kinds(first)), **declared}
        if "image" not in first:
            raise UsageError(f"{root}: samples have {', '.join(map(repr, first))} and no 'image': name one so")
        for name in declared:
            if name not in first:
                raise UsageError(f"there is no field {name!r} in the first sample, which has {', '.join(first)}")
        if "key" in first:
            raise UsageError("every sample has a field 'key' already: pass keys=[...], or rename yours, to 'name' say")
        said = image or _attribute(dataset, "image", (tuple, ImageKind))
        if said is None and (axes := _attribute(dataset, "image", str)) in AXES:
            said = axes
        check_array(dataset, said, root)
        others = _others(dataset, count, called_as)
        images = images_of(first["image"], said, others, root, colors=colors, sized=sized)
        kind = images.kind
        kinds = {
            name: _field_kind(name, value, declared, images, root, _others(dataset, count, called_as, name))
            for name, value in first.items()
            if name != "image"
        }
        of_dataset = (objects.classes if LABEL not in kinds else None) or _attribute(dataset, "classes", (list, tuple))
        in_samples = called_as.get(LABEL, LABEL) if isinstance(called_as, Mapping) else LABEL
        of_dataset = of_dataset or class_names(getattr(dataset, "features", None), in_samples)
        ids: tuple[int, ...] = ()
        if isinstance(boxes := first.get(BOXES), Boxes) and boxes.form == "xywh":
            known = _attribute(getattr(dataset, "coco", None), "cats", Mapping) or {}
            ids = tuple(sorted(known))
            of_dataset = [str(known[number]["name"]) for number in ids] or of_dataset
        texts = LABEL in kinds and kinds[LABEL] == FieldKind("str") and LABEL not in declared
        found = None
        if texts:
            values = _label_values(dataset, called_as, in_samples, None if classes or of_dataset else progress)
            if values is not None:
                found = _text_labels(values, classes or of_dataset, root)
            named = found.names if found is not None else classes_of([str(one) for one in classes or of_dataset or ()])
        else:
            with_classes = isinstance(boxes, Boxes) and boxes.rows.shape[1] > _BOX
            named = _classes(kinds.get(LABEL), classes, of_dataset, of_boxes=with_classes)
        if LABEL in kinds and (named is not None or texts):
            kinds[LABEL] = FieldKind("int64")
        all_keys = _keys(keys, count)
        self.info = SourceInfo(
            kind="dataset",
            root=root,
            fields=kinds,
            image=kind,
            classes=named,
            numbered=keys is None,
            problems=(*notes, *hints(kinds, declared, kind), *objects.problems),
        )
        targets = as_array(getattr(dataset, "targets", None))
        whole = targets is not None and targets.shape == (count,) and targets.dtype.kind in "iu"
        self._targets = targets if whole else None if found is None else found.numbers
        groups = _attribute(dataset, "groups", SLICEABLE)
        self._groups = groups if groups is not None and len(groups) == count else None
        self._dataset = dataset
        how: Literal["numbers", "texts", "onehot"] = "texts" if texts else "onehot" if onehot else "numbers"
        self._all = DatasetPart(dataset, 0, all_keys, called_as, kinds, named, images, how, ids)

    def labels(self) -> NDArray[Any] | None:
        """See `HasLabels`: known from an attribute `targets`, as torchvision's datasets have it."""
        return self._targets

    def group(self, i: int, /) -> str:
        """See `HasGroups`."""
        return self.key(i) if self._groups is None else str(self._groups[i])

    def column(self, name: str, /) -> Column | None:
        """See `HasColumns`: of labels, and of columns or samples in memory."""
        if name == LABEL and self._targets is not None:
            return Numbers(self._targets)
        names, dataset = self._all.names, self._dataset
        called = names.get(name, name) if isinstance(names, Mapping) else name
        if isinstance(dataset, ColumnDataset):
            values = dataset.columns.get(name)
        elif isinstance(getattr(dataset, "features", None), Mapping):
            values = list(dataset[called]) if called in dataset.features else None
        elif type(dataset) in (list, tuple):
            values = [(_sample_of(dataset, i, names) or {}).get(name) for i in range(len(dataset))]
        else:
            return None
        return column_of_values(values)

    def line(self, i: int, /) -> int:
        """See `HasColumns`."""
        return 0

    def states(self) -> NDArray[np.int64]:
        """Of arrays in memory, their bytes and a checksum of some of their rows; of a stream, those of each sample.
        Empty for other datasets, which do not say what they read: see `probes`."""
        return self._states

    def probes(self, rows: NDArray[np.int64], /) -> NDArray[np.int64]:
        """See `HasProbes`."""
        return _to_probe(self._dataset, rows, in_order=self.in_order)

    @cached_property
    def _states(self) -> NDArray[np.int64]:
        return _states_of(self._dataset)


def _attribute(dataset: Any, name: str, types: Any) -> Any:
    """An attribute of a dataset; None where it is missing or something else that has the same name."""
    value = getattr(dataset, name, None)
    return value if isinstance(value, types) else None


def _called(names: Sequence[str] | Mapping[str, str | int] | None, label: str | None) -> Names | None:
    """What values are called, where the caller may have named the label alone. Raises UsageError."""
    if names is None or isinstance(names, Mapping):
        return names if label in (None, LABEL) else {**(names or {}), LABEL: str(label)}
    if label is not None and label not in names:
        raise UsageError(f"{opt.label_column(label)}: names= has no {label!r}")
    return tuple(LABEL if name == label else name for name in names)


def _keys(given: Sequence[str] | None, count: int) -> list[str]:
    keys = [numbered(i) for i in range(count)] if given is None else [str(key) for key in given]
    if len(keys) != count:
        raise UsageError(f"keys= has {len(keys)} keys for {count} samples")
    firsts = dict[str, int]()
    for i, key in enumerate(keys):
        try:
            key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"keys[{i}] is {key!r}, which UTF-8 cannot encode: name the sample otherwise") from None
        if (first := firsts.setdefault(key, i)) != i:
            raise UsageError(f"keys[{i}] is {key!r}, as keys[{first}] is: each sample needs a key of its own")
    return keys


def _field_kind(
    name: str,
    value: Any,
    declared: Mapping[str, Declared],
    images: DatasetImages,
    root: str,
    others: Others,
) -> FieldKind:
    """value: that of the first sample. others: those of the field, to be looked at."""
    array, rest = array_of(declared.get(name))
    said = rest if array else declared.get(name)
    kind = inferred_kind(name, value) if said is None else declared_kind(name, said)
    if kind == "mask":
        kind = inferred_pixels(kind, name, value, images.kind)
    elif kind == "image":
        kind = _further_kind(name, value, images, root, others)
    return with_arrays({name: kind}, [name] if array else (), "the dataset")[name]


def _further_kind(name: str, value: Any, images: DatasetImages, root: str, others: Others) -> FieldKind:
    """What further images are: as the first one, of one size unless some that are looked at differ."""
    values = chain([value], others.images(others.few))
    kind = first_pixels("image", name, (partial(images.further, one, f"{root}: {name}") for one in values), images.kind)
    if None in kind.shape:
        return kind
    seen = others.images(others.few if others.every is None else others.every)
    sizes = {size_of(one, images.chw) for one in chain([value], seen)} - {None}
    return kind if len(sizes) < 2 else replace(kind, shape=(None, None, kind.shape[2]))


def _classes(
    label: FieldKind | None, given: Sequence[str] | None, of_dataset: Sequence[Any] | None, *, of_boxes: bool
) -> tuple[str, ...] | None:
    """Names of the labels, which are then int64. Those of the dataset count only where there are such labels, or
    of_boxes, which have numbers of classes."""
    whole = label is not None and label.shape == () and label.dtype != "str" and label.dtype[0] in "iu"
    countable = whole or (label is None and of_boxes)
    if given is not None and not countable:
        raise UsageError("classes= names labels: a field 'label' of integers, which the samples do not have")
    if given is None and all(isinstance(name, str) for name in of_dataset or ()):
        given = of_dataset
    return classes_of(given) if countable and given else None


def _label_values(
    dataset: Any, names: Names | None, in_samples: Any, progress: Scanning | None
) -> Sequence[Any] | None:
    """The labels of all samples. in_samples: what these call them. progress: None where samples are not read for them:
    then None, unless they are in memory. A sample that raises has none."""
    if isinstance(dataset, ColumnDataset):
        return list(dataset.column(LABEL))
    count = len(dataset)
    targets = getattr(dataset, "targets", None)
    if isinstance(targets, list | tuple) and len(targets) == count and are_texts(list(targets)):
        return targets
    if progress is None and type(dataset) not in (list, tuple):
        return None
    features = getattr(dataset, "features", None)
    if isinstance(features, Mapping) and in_samples in features:  # without decoding its images
        return list(dataset[in_samples])
    values = []
    for i in range(count):
        values.append((_sample_of(dataset, i, names) or {}).get(LABEL))
        (progress or unseen)(i + 1)
    return values


def _text_labels(values: Sequence[Any], classes: Sequence[Any] | None, root: str) -> Labels:
    texts = [value if isinstance(value, str) else None for value in values]
    return number_labels(texts, tuple(classes) if classes else None, where=root)


def _sample_of(dataset: Any, i: int, names: Names | None) -> dict[str, Any] | None:
    """A sample; None where it cannot be read, so that it is rejected when it is packed."""
    try:
        return as_dict(dataset[i], names)
    except (PackError, MemoryError):
        raise
    except Exception:
        return None


def _label_of(sample: Any, names: Names | None) -> Any:
    try:
        return as_dict(sample, names).get(LABEL)
    except DecodeError:
        return None


def _of_one_hot(value: Any) -> int:
    """Raises DecodeError for what is not one-hot."""
    array = as_array(value)
    try:
        return int(one_hot_numbers(np.empty((0, 0)) if array is None else array[None], "label")[0])
    except (UsageError, IndexError) as error:
        raise DecodeError("bad_field", f"{error}") from None


def _first_one_hot(first: Mapping[str, Any], said: str, root: str) -> int:
    if LABEL not in first:
        raise UsageError(f"{said}: {root}: samples have {', '.join(map(repr, first))} and no 'label'")
    try:
        return _of_one_hot(first[LABEL])
    except DecodeError as error:
        raise UsageError(f"{said}: {root}: the first sample: {error.detail}") from None


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def _class_number(label: Any, classes: Sequence[str]) -> int:
    """Raises DecodeError for a label that is none of the classes."""
    if label is None or label == "":
        return -1
    try:
        return classes.index(label) if label in classes else [*map(composed, classes)].index(composed(label))
    except (ValueError, TypeError):
        raise DecodeError("bad_field", f"label is {label!r}; it is none of the {len(classes)} classes") from None


def _as_value(name: str, value: Any, kind: FieldKind | None, images: DatasetImages) -> Value:
    """A field's value as the packer takes it. Raises DecodeError."""
    if kind is not None and kind.image:
        try:
            return images.further(value)
        except DecodeError as error:
            raise DecodeError(error.reason, f"{name}: {error.detail}") from None
    if isinstance(value, str | bytes):
        return value
    if kind is not None and kind.is_texts and are_texts(value):
        return list(value)
    if kind is not None and kind == FieldKind("str") and isinstance(value, Mapping | list | tuple | TextOnly):
        try:
            return as_text(dict(value) if isinstance(value, Mapping) else value)
        except (TypeError, ValueError, RecursionError) as error:
            raise DecodeError("bad_field", f"a value cannot be stored as JSON text: {error}") from None
    array = as_array(value.rows if isinstance(value, Boxes) else value)
    if array is None:
        raise DecodeError("bad_field", f"a value is {plain(type(value).__name__)}, which no number or array can hold")
    array = np.array(array)  # see `as_image`
    return array if kind is None or kind.boxes is None else Boxes(array, kind.boxes)


def _others(dataset: Any, count: int, names: Names | None, name: str = "image") -> Others:
    """The images of a dataset, or those of a further field, to be looked at."""
    every: Sequence[int] | None = None
    if isinstance(dataset, list | tuple | np.ndarray | ColumnDataset):
        rows = dataset.column(name) if isinstance(dataset, ColumnDataset) else dataset
        alike = getattr(getattr(rows, "dtype", None), "kind", "O") != "O"
        every = range(0 if alike else count)
    some = np.unique(np.linspace(0, count - 1, _TRIED, dtype=np.int64)).tolist()
    few = range(1, min(count, _TRIED)) if isinstance(dataset, InOrder) else some
    return Others(lambda rows: _images(dataset, rows, names, name), some, few, every)


def _images(dataset: Any, rows: Iterable[int], names: Names | None, name: str) -> Iterator[Any]:
    """The images of samples, without those that cannot be read."""
    for i in rows:
        sample = _sample_of(dataset, i, names)
        if sample is not None and name in sample:
            yield sample[name]


def _first(dataset: Any, count: int, names: Names | None, root: str) -> dict[str, Any]:
    """The first sample that can be read. Raises UsageError where none of the first `_TRIED` can."""
    tried, raised = min(count, _TRIED), None
    for i in range(tried):
        try:
            sample = dataset[i]
            check_not_item(sample, dataset)
            return as_dict(sample, names)
        except DecodeError as error:
            raise UsageError(f"{root}: its first sample: {error.detail}") from None
        except (PackError, UsageError, MemoryError):
            raise
        except Exception as error:
            raised = raised or error
    which = "its only sample" if count == 1 else f"each of its first {tried} samples"
    raise UsageError(
        f"{root}: {which} raises an exception, source[0] {type(raised).__name__}: {raised}; source[i] must return "
        f"sample i, for i from 0 to {count - 1}"
    ) from raised


def _states_of(dataset: Any) -> NDArray[np.int64]:
    """(m, 2): see `DatasetSource.states`."""
    if isinstance(dataset, Spooled):
        return dataset.states()
    return np.array([_state_of(array) for array in _columns(dataset) if _is_plain(array)], np.int64).reshape(-1, 2)


def _to_probe(dataset: Any, rows: NDArray[np.int64], *, in_order: bool) -> NDArray[np.int64]:
    """A few of these samples, from all over the dataset; none where `_states_of` tells of all of it. in_order: whether
    samples can only be iterated, so that the first are the cheapest."""
    if isinstance(dataset, Spooled) or all(map(_is_plain, _columns(dataset))):
        return rows[:0]
    if in_order:
        return rows[:_PROBED]
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _PROBED), dtype=np.int64))]


def _columns(dataset: Any) -> list[Any]:
    return list(dataset.columns.values()) if isinstance(dataset, ColumnDataset) else [dataset]


def _is_plain(column: Any) -> bool:
    return isinstance(column, np.ndarray) and not column.dtype.hasobject


def _state_of(array: NDArray[Any]) -> tuple[int, int]:
    """Bytes, and a checksum of rows over the whole of it: an array may be larger than memory."""
    rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _HASHED_ROWS), dtype=np.int64))
    digest = xxhash.xxh3_64()
    for row in rows.tolist() if len(array) > _HASHED_ROWS else [slice(None)]:
        digest.update(np.ascontiguousarray(array[row]).tobytes())
    return array.nbytes, digest.intdigest() - (1 << 63)
