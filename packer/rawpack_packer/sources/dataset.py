"""Any dataset as a source: what has a length and returns sample i, such as a torch Dataset, or can be iterated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    lists_of_lengths,
    named_features,
    named_path,
)
from rawpack_packer.sources.inferred import first_pixels, hints, inferred_kind, inferred_pixels
from rawpack_packer.sources.listing.lines import BadListingError, CellPosition, PathParser
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
class _SampleFile(CellPosition):
    """The name of an image file in a sample."""

    def fault(self, line: int, what: str) -> BadListingError:
        where = f"{self.where}: {plain(self.name)} of sample {line}"
        return BadListingError(f"{where}: {plain(what)}; correct the path, or leave the sample out")

    def no_file(self, path: str, root: str) -> str:
        return f"there is no file {path}" if path[0] == "/" else f"there is no file {path} below {plain(root)}"


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
        label, onehot = one_hot_name(label_column)
        looked, keys = _looked_at(dataset, _called(names, label), keys, root, fields or {})
        self.in_order = isinstance(looked.dataset, InOrder)
        """Whether samples can only be iterated, which one process must do."""
        declared = {**(_attribute(looked.dataset, "fields", Mapping) or {}), **(fields or {})}
        given = None if classes is None else classes_of(classes)
        objects = with_objects(looked.dataset, declared, given, looked.root)
        looked = replace(looked, dataset=objects.dataset)
        first = looked.first(opt.label_column(str(label_column)) if onehot else None)
        declared = {**({} if objects.found else target_kinds(first)), **objects.declared}
        _check_first(first, declared, looked.root)
        looked.check_files({"image": first["image"]}, progress)
        images = looked.images(first["image"], image, colors, sized)
        of_others = {name: value for name, value in first.items() if name != "image"}
        kinds = {name: looked.field(name, value, declared.get(name), images) for name, value in of_others.items()}
        looked.check_files({name: value for name, value in of_others.items() if kinds[name].is_pixels}, progress)
        known, ids = looked.classes(first.get(BOXES), None if LABEL in kinds else objects.classes)
        texts = kinds.get(LABEL) == FieldKind("str") and LABEL not in declared
        found = looked.text_labels(given or known, progress) if texts else None
        if texts:
            named = classes_of(given or known or ()) if found is None else found.names
        else:
            named = _classes(kinds.get(LABEL), first.get(BOXES), given, known)
        if LABEL in kinds and (named is not None or texts):
            kinds[LABEL] = FieldKind("int64")
        self.info = SourceInfo(
            kind="dataset",
            root=looked.root,
            fields=kinds,
            image=images.kind,
            classes=named,
            numbered=keys is None,
            problems=(*looked.notes, *hints(kinds, declared, images.kind), *objects.problems),
        )
        how: Literal["numbers", "texts", "onehot"] = "texts" if texts else "onehot" if onehot else "numbers"
        all_keys, self._dataset = _keys(keys, looked.count), looked.dataset
        self._all = DatasetPart(looked.dataset, 0, all_keys, looked.names, kinds, named, images, how, ids)
        self._targets, groups = looked.targets(found), _attribute(looked.dataset, "groups", SLICEABLE)
        self._groups = groups if groups is not None and len(groups) == looked.count else None

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
            samples = _Looked(dataset, len(dataset), names, self.info.root)
            values = [(samples.sample(i) or {}).get(name) for i in range(len(dataset))]
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
        if isinstance(self._dataset, Spooled):
            return self._dataset.states()
        arrays = filter(_is_plain, _columns(self._dataset))
        return np.array([*map(_state_of, arrays)], np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class _Looked:
    """The samples of a dataset, which are looked at before they are packed."""

    dataset: Any
    count: int
    names: Names | None
    """What their values are called."""
    root: str
    notes: Sequence[str] = ()

    def sample(self, i: int) -> dict[str, Any] | None:
        """A sample; None where it cannot be read, so that it is rejected when it is packed."""
        try:
            return as_dict(self.dataset[i], self.names)
        except (PackError, MemoryError):
            raise
        except Exception:
            return None

    def first(self, onehot: str | None) -> dict[str, Any]:
        """The first one that can be read and shows fields, with a label if some have one. onehot: how the user says
        that labels are. Raises UsageError."""
        names = self.names if isinstance(self.names, tuple) else ()
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"names= has {name!r} twice: each value of a sample needs a name of its own")
        first, tried = self._readable(), min(self.count, _TRIED)
        if first.get(LABEL, "") is None:
            labels = (_label_of(self.dataset[i], self.names) for i in range(tried))
            first[LABEL] = next((one for one in labels if one is not None), None)
        if onehot is not None:
            first[LABEL] = _first_one_hot(first, onehot, self.root)
        elif _is_empty(first.get(LABEL)):  # an image without annotations shows no fields
            next_ones = map(self.sample, range(1, tried))
            first = next((one for one in next_ones if one is not None and target_kinds(one)), first)
        return first

    def _readable(self) -> dict[str, Any]:
        """The first one that can be read. Raises UsageError where none of the first `_TRIED` can."""
        tried, raised = min(self.count, _TRIED), None
        for i in range(tried):
            try:
                sample = self.dataset[i]
                check_not_item(sample, self.dataset)
                return as_dict(sample, self.names)
            except DecodeError as error:
                raise UsageError(f"{self.root}: its first sample: {error.detail}") from None
            except (PackError, UsageError, MemoryError):
                raise
            except Exception as error:
                raised = raised or error
        which = "its only sample" if self.count == 1 else f"each of its first {tried} samples"
        raise UsageError(
            f"{self.root}: {which} raises an exception, source[0] {type(raised).__name__}: {raised}; source[i] must "
            f"return sample i, for i from 0 to {self.count - 1}"
        ) from raised

    def others(self, name: str = "image") -> Others:
        """The images, or those of a further field, to be looked at; without those that cannot be read."""
        every: Sequence[int] | None = None
        if isinstance(self.dataset, list | tuple | np.ndarray | ColumnDataset):
            rows = self.dataset.column(name) if isinstance(self.dataset, ColumnDataset) else self.dataset
            alike = getattr(getattr(rows, "dtype", None), "kind", "O") != "O"
            every = range(0 if alike else self.count)
        some = np.unique(np.linspace(0, self.count - 1, _TRIED, dtype=np.int64)).tolist()
        few = range(1, min(self.count, _TRIED)) if isinstance(self.dataset, InOrder) else some
        return Others(
            lambda rows: (one[name] for one in map(self.sample, rows) if one and name in one), some, few, every
        )

    def check_files(self, firsts: Mapping[str, Any], progress: Scanning) -> None:
        """Raise UsageError where samples in memory name image files that are missing, as listings do. firsts: the
        fields of images, and what the first sample has of each."""
        if type(self.dataset) not in SLICEABLE:
            return
        for name in (name for name, value in firsts.items() if isinstance(value, str | os.PathLike)):
            columns = self.dataset.columns if isinstance(self.dataset, ColumnDataset) else {}
            values = columns[name] if columns else ((self.sample(i) or {}).get(name) for i in range(self.count))
            files = PathParser(_SampleFile(self.root, name, 0, cells=False), os.getcwd())  # noqa: PTH109
            for i, value in enumerate(values):
                path = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
                if path and isinstance(path, str):  # others are rejected when they are packed
                    files.state(path, i)
                progress(i + 1)
            files.check()

    def images(self, first: Any, said: DeclaredImage | None, colors: bool, sized: bool | None) -> DatasetImages:
        """What images are, by the first one. said, colors, sized: see `DatasetSource`. Raises UsageError."""
        said = said or _attribute(self.dataset, "image", (tuple, ImageKind))
        if said is None and (axes := _attribute(self.dataset, "image", str)) in AXES:
            said = axes
        check_array(self.dataset, said, self.root)
        return images_of(first, said, self.others(), self.root, colors=colors, sized=sized)

    def field(self, name: str, value: Any, declared: Declared | None, images: DatasetImages) -> FieldKind:
        """What a field is. value: that of the first sample. Raises UsageError."""
        array, rest = array_of(declared)
        said = rest if array else declared
        kind = inferred_kind(name, value) if said is None else declared_kind(name, said)
        if kind == "mask":
            kind = inferred_pixels(kind, name, value, images.kind)
        elif kind == "image":
            kind = self._further(name, value, images)
        return with_arrays({name: kind}, [name] if array else (), "the dataset")[name]

    def _further(self, name: str, value: Any, images: DatasetImages) -> FieldKind:
        """What further images are: as the first one, of one size unless some that are looked at differ."""
        others, where = self.others(name), f"{self.root}: {name}"
        values = chain([value], others.images(others.few))
        kind = first_pixels("image", name, lambda one: images.further(one, where), values, images.kind)
        if None in kind.shape:
            return kind
        seen = others.images(others.few if others.every is None else others.every)
        sizes = {size_of(one, images.chw) for one in chain([value], seen)} - {None}
        return kind if len(sizes) < 2 else replace(kind, shape=(None, None, kind.shape[2]))

    @property
    def _label(self) -> Any:
        """What samples call their labels."""
        return self.names.get(LABEL, LABEL) if isinstance(self.names, Mapping) else LABEL

    def classes(self, boxes: Any, of_objects: Sequence[str] | None) -> tuple[Sequence[Any] | None, tuple[int, ...]]:
        """The names of classes that the dataset has, and COCO's ids of those of boxes, if these have them."""
        features, ids = getattr(self.dataset, "features", None), tuple[int, ...]()
        names = of_objects or _attribute(self.dataset, "classes", (list, tuple)) or class_names(features, self._label)
        if isinstance(boxes, Boxes) and boxes.form == "xywh":
            known = _attribute(getattr(self.dataset, "coco", None), "cats", Mapping) or {}
            ids = tuple(sorted(known))
            names = [str(known[number]["name"]) for number in ids] or names
        return names, ids

    def text_labels(self, classes: Sequence[Any] | None, progress: Scanning) -> Labels | None:
        """The labels of all samples, which are texts; None where samples are not read for them, as their classes are
        known. A sample that raises has none."""
        dataset, values = self.dataset, list[Any]()
        targets, features = getattr(dataset, "targets", None), getattr(dataset, "features", None)
        if isinstance(dataset, ColumnDataset):
            values = list(dataset.column(LABEL))
        elif isinstance(targets, list | tuple) and len(targets) == self.count and are_texts(list(targets)):
            values = list(targets)
        elif classes and type(dataset) not in (list, tuple):
            return None
        elif isinstance(features, Mapping) and self._label in features:  # without decoding its images
            values = list(dataset[self._label])
        else:
            for i in range(self.count):
                values.append((self.sample(i) or {}).get(LABEL))
                (unseen if classes else progress)(i + 1)
        texts = [value if isinstance(value, str) else None for value in values]
        return number_labels(texts, tuple(classes) if classes else None, where=self.root)

    def targets(self, found: Labels | None) -> NDArray[Any] | None:
        """The label of each sample, if it is known. found: in texts."""
        targets = as_array(getattr(self.dataset, "targets", None))
        whole = targets is not None and targets.shape == (self.count,) and targets.dtype.kind in "iu"
        return targets if whole else None if found is None else found.numbers


def _looked_at(
    dataset: Any,
    names: Names | None,
    keys: Sequence[str] | None,
    root: str,
    fields: Mapping[str, Declared],
) -> tuple[_Looked, Sequence[str] | None]:
    """The samples of what the user gives: columns of a table or a dict as one dataset, and what can only be iterated in
    order. Their keys: as given, or a column of the table. Raises UsageError for what is no dataset."""
    called, notes = type(dataset).__name__, list[str]()
    if (frame := frame_columns(dataset)) is not None:
        of_frame = dict(names) if isinstance(names, Mapping) else {}
        dataset, names = frame, of_frame | named_path(frame, of_frame)
        keys = frame.pop("key", None) if keys is None and "key" not in of_frame.values() else keys
    elif isinstance(features := getattr(dataset, "features", None), Mapping) and not isinstance(names, tuple):
        names = {**(names or {}), **named_features(features, names or {})} or None
    if isinstance(dataset, Mapping):
        if isinstance(names, Mapping):
            dataset, names = renamed(dataset, names, f"the {called}"), None
        dataset = as_columns(dataset)
        if frame is not None:
            dataset.columns = checked_numbers(dataset.columns, fields)
            dataset.fields = lists_of_lengths(dataset.columns, fields)
            keys, notes = (keys, notes) if keys is not None else keys_of(dataset.column("image"))
    check_not_columns(dataset)
    count = length_of(dataset)
    root = root or f"<{called} of {count} samples>"
    if not hasattr(dataset, "__getitem__"):
        if iter(dataset) is dataset:
            raise UsageError(f"{root} can be iterated only once: pass what makes it, or list(source)")
        dataset = InOrder(dataset, count)
    return _Looked(dataset, count, names, root, notes), keys


def _check_first(first: Mapping[str, Any], declared: Mapping[str, Declared], root: str) -> None:
    """Raise UsageError where the first sample has no image, or has not what is declared."""
    if "image" not in first:
        raise UsageError(f"{root}: samples have {', '.join(map(repr, first))} and no 'image': name one so")
    for name in declared:
        if name not in first:
            raise UsageError(f"there is no field {name!r} in the first sample, which has {', '.join(first)}")
    if "key" in first:
        raise UsageError("every sample has a field 'key' already: pass keys=[...], or rename yours, to 'name' say")


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


def _classes(
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


def _to_probe(dataset: Any, rows: NDArray[np.int64], *, in_order: bool) -> NDArray[np.int64]:
    """A few of these samples, from all over the dataset; none where states tell of all of it. in_order: whether
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
