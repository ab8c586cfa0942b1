"""The forms that a dataset in memory may have: samples by number, an iterable, a dict of columns; and what its samples
and images are."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.errors import reason_of, stop_if_of_any_file, twice
from rawpack_packer.images.with_pillow import check_mode, deep_file, is_grey, is_pillow, pixels_of
from rawpack_packer.sources.axes import (
    AXES,
    Axes,
    channels_first,
    channels_last,
    check_samples,
    doubtful,
    further_first,
    turned,
)
from rawpack_packer.sources.dataset_targets import with_targets
from rawpack_packer.sources.declared import plain_dtype
from rawpack_packer.sources.fields import ImageKind, as_array
from rawpack_packer.sources.files import UNREADABLE
from rawpack_packer.sources.frames import class_names, named_features
from rawpack_packer.sources.table.choose import LABEL
from rawpack_packer.text import listed, plain

Names = tuple[str, ...] | Mapping[str, str | int]
"""What the values of tuples are called; or name -> what samples call it, or its position in a tuple."""
DeclaredImage = Axes | tuple[str, tuple[int | None, ...]] | ImageKind
"""What a caller says of images that are arrays: where their channels are; or dtype and shape, with None for height and
width if they differ."""
_MOST_COLUMNS = 8
_IMAGES = 3
"""Axes of the least column of images: (samples, height, width)."""


class ColumnDataset:
    """Columns of the same length as a dataset: sample i has value i of each."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)
        self.fields: dict[str, str] = {}
        """What columns hold, where their first value does not show it."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: int | slice) -> Any:
        """Sample i as a dict; for a slice, these samples as columns."""
        values = {name: column[i] for name, column in self.columns.items()}
        return ColumnDataset(values) if isinstance(i, slice) else values

    @property
    def targets(self) -> Any:
        return self.columns.get("label")


SLICEABLE = (list, tuple, np.ndarray, ColumnDataset)
"""A worker gets a slice of these; of any other dataset, the whole."""


def as_columns(source: Mapping[Any, Any]) -> Any:
    """A mapping as a dataset: a dict of columns as `ColumnDataset`; a mapping from 0, 1, ... to samples as it is.

    Labels that are whole numbers become int64, as in an .npz. Raises UsageError for any other mapping.
    """
    what = f"the {type(source).__name__}"
    if not source:
        raise UsageError(f"{what} has no samples")
    keys = [*source.keys()]  # a TensorDict iterates over its rows
    if all(isinstance(name, int) for name in keys) and set(keys) == set(range(len(keys))):
        return source
    columns = {str(name): source[name] for name in keys}
    if "image" not in columns:
        raise UsageError(
            f"{what} has {listed([repr(name) for name in columns], 5)} and no 'image'. A dict needs a column for each "
            "field: {'image': images, 'label': labels}. Pack samples by their keys as list(d.values()), with "
            "keys=list(d); a dict of splits with pack_splits()"
        )
    lengths = dict[str, int]()
    for name, column in columns.items():
        with suppress(TypeError):  # an array without axes
            if not isinstance(column, str | bytes | bytearray | Mapping) and hasattr(column, "__getitem__"):
                lengths[name] = len(column)
        if name not in lengths:
            raise UsageError(
                f"{name!r} of {what} is a {type(column).__name__}: a column is an array or a list, with one value per "
                "sample"
            )
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise UsageError(f"{what} has columns that differ in length: {found}; each has one value for each sample")
    if not any(lengths.values()):
        raise UsageError(f"{what} has no samples")
    label = columns.get("label")
    if isinstance(label, np.ndarray) and label.ndim == 1 and label.dtype.kind in "iu" and label.dtype != np.uint64:
        columns["label"] = label.astype(np.int64)
    return ColumnDataset(columns)


def check_not_columns(source: Any) -> None:
    """Raise UsageError where a tuple or list, which would be a dataset of so many samples, holds columns without names,
    such as (images, labels): values of one length, of which one has images and another one value for each."""
    if not isinstance(source, tuple | list) or not 2 <= len(source) <= _MOST_COLUMNS:
        return
    whole = [shape for shape in map(_shape, source) if shape]
    if len(whole) < len(source) or len({shape[0] for shape in whole}) > 1:
        return
    if max(map(len, whole)) < _IMAGES or min(map(len, whole)) > 1:
        return
    image = max(range(len(whole)), key=lambda k: len(whole[k]))
    left = iter(["'label'", *(f"'name{k}'" for k in range(2, len(whole)))])
    names = ["'image'" if k == image else next(left) for k in range(len(whole))]
    words = ", ".join(f"{name}: source[{k}]" for k, name in enumerate(names))
    raise UsageError(
        f"the {type(source).__name__} contains columns of {whole[0][0]:,} values, {', '.join(map(str, whole))}, and "
        f"not {len(whole)} samples: give columns by their names, as {{{words}}}"
    )


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array, or of a list by its first value; () for what has none."""
    if isinstance(value, list | tuple):
        return (len(value), *(_shape(value[0]) if value else ()))
    shape = getattr(value, "shape", ())
    return tuple(shape) if isinstance(shape, tuple) else ()


def attribute(dataset: Any, name: str, types: Any) -> Any:
    """An attribute of a dataset; None where it is missing or something else that has the same name."""
    value = getattr(dataset, name, None)
    return value if isinstance(value, types) else None


def image_attribute(dataset: Any) -> DeclaredImage | None:
    """What a dataset says of its images."""
    image: Any = attribute(dataset, "image", (tuple, ImageKind, str))
    return image if not isinstance(image, str) or image in AXES else None


def names_by(dataset: Any, names: Mapping[str, str | int] | None, fields: Iterable[str]) -> Names | None:
    """What values are called: as the user said, and as Hugging Face's features show. fields: declared by the user."""
    called = {**{name: name for name in fields if name != LABEL}, **(names or {})}
    return {**(names or {}), **named_features(getattr(dataset, "features", None), called)} or None


def called_in(names: Names | None, name: str) -> Any:
    """What samples call a field."""
    return names.get(name, name) if isinstance(names, Mapping) else name


def classes_by(dataset: Any, names: Names | None) -> Sequence[Any] | None:
    """The names of classes that a dataset has, or Hugging Face's features; None where there are none."""
    features = getattr(dataset, "features", None)
    return attribute(dataset, "classes", (list, tuple)) or class_names(features, called_in(names, LABEL))


_SAID = ("classes", "features", "fields", "groups", "image", "targets")
"""What a dataset may say of its samples."""


class InOrder:
    """An iterable with a length as a dataset. Each time an earlier sample is asked for, it is iterated again. What the
    iterable says of its samples, this says."""

    def __init__(self, samples: Iterable[Any], count: int) -> None:
        self._samples, self._count = samples, count
        vars(self).update({name: getattr(samples, name) for name in _SAID if hasattr(samples, name)})
        self._iterator: Iterator[Any] | None = None
        self._next = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Any:
        if self._iterator is None or i < self._next:
            self._iterator, self._next = iter(self._samples), 0
        for sample in self._iterator:
            self._next += 1
            if self._next > i:
                return sample
        raise IndexError(f"it ended after {self._next} samples, and its len() is {self._count}")


def renamed(sample: Mapping[Any, Any], names: Mapping[str, str | int], what: str) -> dict[str, Any]:
    """A sample, or columns, under the names that the user gave; of a tuple, only what these name. what: the sample, in
    messages. Raises UsageError."""
    found, keys = {}, [*sample.keys()]
    for name, old in names.items():
        if old not in keys:
            has = listed([repr(one) for one in keys], 8)
            raise UsageError(f"{what} has no {old!r}, which is asked for as {name!r}: it has {has}")
        found[name] = sample[old]
    for old, value in sample.items():
        if old in names.values() or isinstance(old, int):
            continue
        if old in found:
            raise UsageError(f"{what} has a field {old!r} already: name that otherwise too, names={{'other': {old!r}}}")
        found[str(old)] = value
    return found


def as_dict(sample: Any, names: Names | None) -> dict[str, Any]:
    """A sample as name -> value, with what is in its target: see `with_targets`. Raises DecodeError where it does not
    fit the names, or its target is damaged."""
    return with_targets(_as_dict(sample, names))


def _as_dict(sample: Any, names: Names | None) -> dict[str, Any]:
    """A sample as name -> value.

    A dict, a row of a structured array, a dataclass and a named tuple have their own names; a tuple has `names`, or is
    (image, label); anything else is the image. Raises DecodeError where it does not fit the names.
    """
    if isinstance(names, Mapping):
        positions = isinstance(sample, tuple | list) and not hasattr(sample, "_fields")
        try:
            return renamed(dict(enumerate(sample)) if positions else _as_dict(sample, None), names, "a sample")
        except UsageError as error:
            raise DecodeError("bad_field", str(error)) from error
    if isinstance(sample, Mapping):
        values = {str(name): value for name, value in sample.items()}
        for name, value in values.items():  # a file as `datasets` has one that it does not decode
            if isinstance(value, Mapping) and value.keys() == {"bytes", "path"}:
                values[name] = value["path"] if value["bytes"] is None else value["bytes"]
        return values
    if isinstance(sample, np.void) and sample.dtype.names is not None:
        return {name: sample[name] for name in sample.dtype.names}
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
    if names is None and isinstance(sample, tuple) and "image" in getattr(sample, "_fields", ()):
        return dict(zip(sample._fields, sample, strict=True))  # type: ignore[attr-defined]
    if isinstance(sample, tuple) or (isinstance(sample, list) and names is not None):
        called = names if names is not None else ("image", "label")[: len(sample)]
        if len(called) != len(sample):
            raise DecodeError("bad_field", f"{len(sample)} values; name them: names=('image', 'label', ...)")
        return dict(zip(called, sample, strict=True))
    return {"image": sample}


def length_of(dataset: Any) -> int:
    readable = hasattr(dataset, "__getitem__") or hasattr(dataset, "__iter__")
    if not readable or not hasattr(dataset, "__len__"):
        shown = repr(dataset) if isinstance(dataset, int | float | None) else f"a {type(dataset).__name__} object"
        raise UsageError(f"{plain(shown)} is not a source: give a path, or a dataset with len(source) and source[i]")
    try:
        count = len(dataset)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{plain(type(dataset).__name__)} is not a source: its len() raises {what}") from error
    if not count:
        raise UsageError(f"the {type(dataset).__name__} has no samples")
    return count


@dataclass(frozen=True)
class DatasetImages:
    """What the images of a dataset are, and what its parts do with them."""

    kind: ImageKind | None
    """None for pictures."""
    chw: bool = False
    """Whether the channels of arrays come first. In samples they come last."""
    said: bool = False
    """Whether the user said where they are."""
    grey: bool = False
    """Whether PIL images are grey: one with colors is rejected, since it would lose them."""
    size: tuple[int, int] | None = None
    """(height, width) that some of the images showed: another one stops packing. None where any may come, or where
    another one is rejected."""

    def of(self, value: Any, where: str) -> bytes | NDArray[Any]:
        """The image of a sample as the packer takes it: the bytes of a file, or an array.

        Raises DecodeError for what is no image; PackError for one of another size than those that were looked at, which
        `where` names.
        """
        if self.grey and is_pillow(value) and not is_grey(value):
            raise DecodeError(
                "bad_field",
                f"the image has mode {value.mode}; others are grey: convert all to one mode, such as "
                "image.convert('RGB'), or choose one with color=",
            )
        image = as_image(value)
        if isinstance(image, bytes):
            return image
        if self.chw and image.ndim == 3 and not is_pillow(value):
            image = channels_last(image)
        if self.size is not None and image.ndim in (2, 3) and image.shape[:2] != self.size:
            kind = cast(ImageKind, self.kind)
            channels = kind.shape[2] if len(kind.shape) == 3 else 1
            sizes = (channels, None, None) if self.chw else (None, None, channels)
            free = self.chw or doubtful(kind.shape)
            reject = "" if free else f"; image={(kind.dtype, kind.shape)!r} to reject others"
            raise PackError(
                f"{where} is an image of {image.shape[0]}x{image.shape[1]} (height x width), and those that were "
                f"looked at before packing have {kind.shape[0]}x{kind.shape[1]}: pass size=256, or another size, to "
                f"resize all; or image={(kind.dtype, sizes)!r} to keep the size of each{reject}"
            )
        return image

    def further(self, value: Any, where: str = "") -> bytes | NDArray[Any]:
        """A further image of a sample as the packer takes it; its axes are those of the first image. Raises DecodeError
        for what is no image; UsageError where `where` is given and the axes are not those of the first."""
        if is_pillow(value) and value.mode[0] in "IF":  # depths, which are no gray levels
            return np.array(value)
        image = as_image(value)
        if isinstance(image, bytes) or image.ndim != 3 or is_pillow(value):
            return image
        if where:
            said: Axes | None = "chw" if self.chw else "hwc" if self.said else None
            cure = "all images of a sample need theirs in one place: move them, as by np.moveaxis(image, 0, -1)"
            further_first(image.shape, said, where, cure)
        return channels_last(image) if self.chw else image


@dataclass(frozen=True)
class Others:
    """The images of a dataset, to be looked at."""

    images: Callable[[Iterable[int]], Iterator[Any]]
    """Those of some samples, without those that cannot be read."""
    some: Sequence[int]
    """Samples from all over the dataset."""
    looked_at: Sequence[int]
    """All samples, where looking at them costs nothing: those of a list; of an array, whose rows have one shape, none.
    Else some, and of what can only be iterated those after the first one, so that it is not iterated once more."""
    in_memory: bool
    """Whether looking at them costs nothing."""


def images_of(
    first: Any, declared: DeclaredImage | None, others: Others, where: str, *, colors: bool, sized: bool | None
) -> DatasetImages:
    """What all images of a dataset are.

    first: that of the first sample. where: the dataset. colors: whether the recipe says what colors images get. sized:
    whether it makes all images one size, so that their own does not matter; None where that is unknown. Raises
    UsageError for what is no image.
    """
    if declared is not None and not isinstance(declared, str):
        dtype, lengths = (declared.dtype, declared.shape) if isinstance(declared, ImageKind) else declared
        first_axis = len(lengths) == 3 and lengths[0] is not None and tuple(lengths[1:]) == (None, None)
        if not first_axis and not isinstance(declared, ImageKind) and None not in lengths:
            channels_first(cast(tuple[int, ...], tuple(lengths)), None, where, _said)
        image = ImageKind(plain_dtype(dtype), turned(tuple(lengths), first_axis))
        return DatasetImages(image, chw=first_axis, said=first_axis)
    kind, chw = _first_kind(first, declared, where)
    if kind is None:
        kind = _one_size(others) if is_pillow(first) else None
        grey = kind is not None and kind.shape[2] == 1 and not colors
        return DatasetImages(kind, grey=grey, size=_exact(kind, others, sized))
    if sized or len(kind.shape) not in (2, 3):
        return DatasetImages(kind, chw, declared is not None)
    seen = map(_shape_of, others.images(others.looked_at))
    arrays = [shape for shape in seen if shape is not None and len(shape) in (2, 3)]
    shapes = [kind.shape, *(turned(shape, chw and len(shape) == 3) for shape in arrays)]
    channels = {shape[2] if len(shape) == 3 else 1 for shape in shapes}
    if kind.dtype == "uint8" and channels == {1, 3}:  # gray images among others become RGB, as files do
        kind = ImageKind(kind.dtype, (*kind.shape[:2], 3))
    if len({shape[:2] for shape in shapes}) > 1:
        last = kind.shape[2] if len(kind.shape) == 3 else 1
        return DatasetImages(ImageKind(kind.dtype, (None, None, last), resized=True), chw, declared is not None)
    return DatasetImages(kind, chw, declared is not None, size=_exact(kind, others, sized))


def _exact(kind: ImageKind | None, others: Others, sized: bool | None) -> tuple[int, int] | None:
    """See `DatasetImages.size`."""
    if kind is None or sized is not False or others.in_memory:
        return None
    return cast(tuple[int, int], kind.shape[:2])


def size_of(value: Any, chw: bool) -> tuple[int, ...] | None:
    """The (height, width) of an image, as far as it is known without decoding it. chw: whether channels come first."""
    if is_pillow(value):
        return value.height, value.width
    shape = _shape_of(value)
    return None if shape is None else turned(shape, chw and len(shape) == 3)[:2]  # type: ignore[return-value]


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an image that is an array; None for another."""
    if isinstance(value, bytes | bytearray | str | os.PathLike) or is_pillow(value):
        return None
    try:
        return tuple(int(n) for n in (value.shape if hasattr(value, "shape") else np.shape(value)))
    except (TypeError, ValueError):  # it is rejected when it is packed
        return None


def _one_size(others: Others) -> ImageKind | None:
    """What all images are, where these are PIL images of one size, all grey or all with colors; else None."""
    every = others.images(others.looked_at if others.in_memory else ())
    if len({(image.size, is_grey(image)) if is_pillow(image) else None for image in every}) > 1:
        return None
    shapes = set()
    for image in others.images(others.some):
        if not is_pillow(image):
            return None
        with suppress(Exception):  # it is rejected when it is packed
            pixels = pixels_of(image)
            shapes.add((*pixels.shape[:2], 1 if pixels.ndim == 2 else pixels.shape[2]))
    return ImageKind("uint8", shapes.pop(), pictures=True) if len(shapes) == 1 else None


def _first_kind(first: Any, axes: Axes | None, where: str) -> tuple[ImageKind | None, bool]:
    """The kind of the first image, and whether its channels come first; None for pictures."""
    if axes is not None and axes not in AXES:
        raise UsageError(
            f"image={axes!r}: write image='chw' or image='hwc', or dtype and shape: ('uint8', (None, None, 3))"
        )
    a_file = isinstance(first, bytes | bytearray | str | os.PathLike)
    if axes is not None and (a_file or is_pillow(first)):
        raise UsageError(f"{_said(axes)} is for images that are arrays, and the first one is none: leave it out")
    if a_file:
        return None, False
    try:
        if is_pillow(first):
            check_mode(first)
            return None, False
        array = np.asarray(as_image(first))
    except DecodeError as error:
        raise UsageError(f"the first sample: {error.detail}") from error
    if array.ndim == 0:
        raise UsageError(
            f"the first sample: the image is a single number, {array}; a sample must be an image, a tuple (image, "
            "label), or a dict with an 'image'; where tuples have another order, pass names=('label', 'image')"
        )
    chw = channels_first(array.shape, axes, where, _said)
    return ImageKind(array.dtype.name, turned(array.shape, chw)), chw


def check_array(dataset: Any, said: DeclaredImage | None, where: str) -> None:
    """Raise UsageError where the dataset is an array, or a tensor, that seems to be one image."""
    shape = _shape_of(dataset) if hasattr(dataset, "shape") else None
    if shape is not None and (said is None or isinstance(said, str)):
        check_samples(shape, said, where, _said)


def _said(axes: Axes) -> str:
    return f"image={axes!r}"


def as_image(value: Any) -> bytes | NDArray[Any]:
    """An image as the packer takes it: the bytes of a file, which may be named by its path; or an array.

    Raises DecodeError for anything else. PIL images: see `pixels_of`.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value := file_or_array(value), bytes):
        return value
    if is_pillow(value):
        file = deep_file(value)
        return pixels_of(value) if file is None else file
    array = as_array(value)
    if array is None:
        cure = "; a list of several values needs names=('image', 'label', ...)" if isinstance(value, list) else ""
        raise DecodeError(
            "bad_field",
            f"the image is a {type(value).__name__}; it must be an array, a file's bytes or path, or a PIL image{cure}",
        )
    return np.array(array)  # a dataset may fill the same array for the next sample, before this one is stored


def file_or_array(value: Any) -> Any:
    """The bytes of the file at a path; another value as it is. Raises DecodeError."""
    if not isinstance(value, str | os.PathLike):
        return value
    try:
        return twice(Path(value).read_bytes)
    except OSError as error:
        stop_if_of_any_file(error, os.fspath(value))
        raise DecodeError(UNREADABLE, f"{plain(Path(value).name)}: {reason_of(error)}") from error
