"""Any map-style dataset as a source: what has a length and gives number i, a torch Dataset, a list, an array."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo
from rawpack_packer.sources.columns import ColumnDataset, as_columns
from rawpack_packer.sources.fields import Boxes, FieldKind, ImageKind, Value
from rawpack_packer.sources.files import reason_of
from rawpack_packer.sources.kinds import Declared, as_array, declared_kind, inferred_kind, inferred_mask, plain_dtype
from rawpack_packer.text import plain

SLICEABLE = (list, tuple, np.ndarray, ColumnDataset)
"""Of these a worker gets its own samples only."""
_TRIED = 16
"""Samples: the first ones, of which one must be had; and those, spread over all, that show whether PIL images have one
size."""
_ONE_MODE = "bring all to one mode, such as image.convert('RGB'), or say which with color="
_GREY = ("1", "L", "LA", "La")
"""Modes of PIL images that have no colors, as those have whose names begin with I;16."""


class Dataset(Protocol):
    """The two methods. A dataset may say more, by attributes: `fields`, name -> what `pack(fields=)` takes; `classes`,
    the names of labels; `image`, as `pack(image=)` takes it."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Any: ...


@dataclass(frozen=True)
class DatasetPart:
    """Some samples of a dataset. Travels to a worker by cloudpickle."""

    dataset: Any
    start: int
    """Position in `dataset` of the first sample."""
    keys: Sequence[str]
    names: tuple[str, ...] | None
    """What the values of a sample that is a tuple are called."""
    fields: Mapping[str, FieldKind]
    classes: int | None
    """How many there are; a label beyond them is rejected."""
    grey: bool = False
    """Whether PIL images are grey: one that has colors is rejected, which it would lose."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        try:
            sample = as_dict(self.dataset[self.start + i], self.names)
            value = sample.pop("image", None)
            if self.grey and is_pillow(value) and not _is_grey(value):
                raise DecodeError("bad_field", f"the image has mode {value.mode}; others are grey: {_ONE_MODE}")
            # Read here: a PIL image is decoded only when its pixels are asked for.
            image = None if value is None else as_image(value)
        except (DecodeError, PackError, MemoryError):
            raise
        except Exception as error:
            raise DecodeError("source_error", f"{type(error).__name__}: {error}") from error
        if image is None:
            raise DecodeError("bad_field", "it has no 'image'")
        fields = {name: _plain(value, self.fields.get(name)) for name, value in sample.items()}
        unknown = [name for name in fields if name not in self.fields]
        if unknown:
            raise DecodeError("bad_field", f"it has a field {unknown[0]!r}, which the first sample has not")
        label = np.asarray(fields.get("label", -1))
        counts = self.classes is not None and label.ndim == 0 and label.dtype.kind in "iu"
        if counts and not -1 <= int(label) < (self.classes or 0):
            raise DecodeError("bad_field", f"label is {label}; there are {self.classes} classes, counted from 0")
        return Item(key, image, fields)

    def key(self, i: int, /) -> str:
        """The sample's key: its number, or what the caller named it."""
        if not 0 <= i < len(self.keys):
            raise IndexError(f"sample {i} of a source of {len(self.keys)}")
        return self.keys[i]

    def part(self, start: int, stop: int, /) -> DatasetPart:
        """Samples start <= i < stop."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        keys = self.keys[start:stop]
        # What a subclass of list makes of a slice is its own affair: its samples need not be those of its slices.
        if isinstance(self.dataset, np.ndarray) or type(self.dataset) in SLICEABLE:
            first = self.start + start
            return replace(self, dataset=self.dataset[first : first + stop - start], start=0, keys=keys)
        return replace(self, start=self.start + start, keys=keys)


class DatasetSource(BaseSource):
    """A map-style dataset as a `Source`. Its first sample is looked at for what the fields are; where that is a PIL
    image, some more for whether all are of one size."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        fields: Mapping[str, Declared] | None = None,
        image: tuple[str, tuple[int | None, ...]] | None = None,
        classes: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        colors: bool = False,
    ) -> None:
        """See `rawpack_packer.pack`. colors: whether the recipe says what colors images are to have, so that grey PIL
        images and others may be mixed. Raises UsageError for what is no dataset."""
        called = type(dataset).__name__
        if isinstance(dataset, Mapping):
            dataset = as_columns(dataset)
        count = _length(dataset)
        root = f"<{called} of {count} samples>"
        about = getattr(dataset, "fields", None)
        declared = dict(about if isinstance(about, Mapping) else {}) | dict(fields or {})
        self._names = None if names is None else tuple(names)
        doubles = [name for name in self._names or () if (self._names or ()).count(name) > 1]
        if doubles:
            raise UsageError(f"names= has {doubles[0]!r} twice: each value of a sample needs a name of its own")
        first = _first(dataset, count, self._names, root)
        if "image" not in first:
            raise UsageError(f"{root}: samples have {', '.join(map(repr, first))} and no 'image': name one so")
        for name in declared:
            if name not in first:
                raise UsageError(f"there is no field {name!r} in the first sample, which has {', '.join(first)}")
        if "key" in first:
            raise UsageError(
                "'key' is a name that every sample has already: pass keys=[...], or rename it, to 'name' say"
            )
        about = getattr(dataset, "image", None)
        about = about if isinstance(about, tuple | ImageKind) else None
        kind = _image_kind(first["image"], image if image is not None else about)
        grey = False
        if kind is None and is_pillow(first["image"]):
            kind = _one_size(dataset, count, self._names)
            grey = kind is not None and kind.shape[2] == 1 and not colors
        kinds = {name: _field_kind(name, value, declared, kind) for name, value in first.items() if name != "image"}
        about = getattr(dataset, "classes", None)
        about = about if isinstance(about, list | tuple) and all(isinstance(name, str) for name in about) else None
        named = _classes(kinds.get("label"), classes, about)
        if named is not None:
            kinds["label"] = FieldKind("int64")
        names_of = [f"{i:08d}" for i in range(count)] if keys is None else [str(key) for key in keys]
        for i, key in enumerate(names_of):
            try:
                key.encode()
            except UnicodeEncodeError:
                raise UsageError(f"keys[{i}] is {key!r}, which UTF-8 cannot hold: name the sample otherwise") from None
        if len(names_of) != count or len(set(names_of)) != count:
            raise UsageError(
                f"keys= has {len(names_of)} keys, {len(set(names_of))} of them different, for {count} samples"
            )
        self.info = SourceInfo(
            kind="dataset", root=root, fields=kinds, image=kind, classes=named, numbered=keys is None
        )
        self._targets = _targets(dataset, count)
        groups = getattr(dataset, "groups", None)
        self._groups = groups if isinstance(groups, SLICEABLE) and len(groups) == count else None
        self._all = DatasetPart(dataset, 0, names_of, self._names, kinds, None if named is None else len(named), grey)

    def labels(self) -> NDArray[Any] | None:
        """(n,): the label of each sample, where the dataset tells it without the sample: in `targets`, as torchvision's
        do."""
        return self._targets

    def group(self, i: int, /) -> str:
        """What the dataset's `groups` say of the sample, such as its video, where it has them; else its key."""
        return self.key(i) if self._groups is None else str(self._groups[i])

    def states(self) -> NDArray[np.int64]:
        """Nothing: a dataset does not say which files it reads. So a change of it between two runs goes unnoticed."""
        return np.empty((0, 2), np.int64)


def _field_kind(name: str, value: Any, declared: Mapping[str, Declared], image: ImageKind | None) -> FieldKind:
    kind = declared_kind(name, declared[name]) if name in declared else inferred_kind(name, value)
    return inferred_mask(name, value, image) if kind is None else kind


def _classes(
    label: FieldKind | None, given: Sequence[str] | None, of_dataset: Sequence[str] | None
) -> tuple[str, ...] | None:
    """Names of the labels, which are then int64. Those of the dataset count only where there are such labels."""
    countable = label is not None and label.shape == () and label.dtype != "str" and label.dtype[0] in "iu"
    if given is not None and not countable:
        raise UsageError("classes= names labels: a field 'label' of whole numbers, which the samples do not have")
    named = tuple(str(name) for name in (given if given is not None else of_dataset or ()))
    if not countable or not named:
        return None
    if len(set(named)) != len(named):
        raise UsageError("two classes have the same name")
    return named


def _targets(dataset: Dataset, count: int) -> NDArray[Any] | None:
    targets = as_array(getattr(dataset, "targets", None))
    return targets if targets is not None and targets.shape == (count,) and targets.dtype.kind in "iu" else None


def _check_no_item(sample: Any, dataset: Any) -> None:
    """Raise UsageError where a sample is a source's `Item`: what makes these was meant to be a `Source`."""
    if isinstance(sample, Item):
        lacking = [name for name in ("info", "__len__", "key", "part", "states") if name not in dir(dataset)]
        raise UsageError(
            f"the {type(dataset).__name__} gives samples of a source, and is none: it lacks {', '.join(lacking)} of "
            "rawpack_packer.sources.Source"
        )


def as_dict(sample: Any, names: tuple[str, ...] | None) -> dict[str, Any]:
    """A sample as name -> value: a dict, a row of a structured array, a dataclass or a named tuple by its own names; a
    tuple by `names`, of two (image, label); else the image alone.

    Raises DecodeError where it does not fit the names.
    """
    if isinstance(sample, Mapping):
        return {str(name): value for name, value in sample.items()}
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


def as_image(value: Any) -> bytes | NDArray[Any]:
    """An image as the packer takes it: the bytes of a file, which may be named by its path; or an array.

    A PIL image is packed as its file would be: what is transparent lies on white, grey of 16 bits loses its low byte.
    One whose mode is grey is (H, W) or (H, W, 1), any other (H, W, 3).
    As `PIL.Image.open` gave it, it is also turned upright by its EXIF orientation. One that was made of another, by
    `convert`, `rotate`, `resize`, ..., lies as it is: Pillow leaves the tag on it, whether or not it was turned.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        try:
            return Path(value).read_bytes()
        except OSError as error:
            raise DecodeError("unreadable", reason_of(error)) from None
    if is_pillow(value):
        return _of_pillow(value)
    array = as_array(value)
    if array is None:
        cure = "; a list of several values needs names=('image', 'label', ...)" if isinstance(value, list) else ""
        raise DecodeError(
            "bad_field",
            f"the image is a {type(value).__name__}; it must be an array, a file's bytes or path, or a PIL image{cure}",
        )
    return np.array(array)  # a dataset may fill the same array again for the next sample, before this one is stored


def _image_kind(value: Any, declared: Any) -> ImageKind | None:
    """What all images are, by what was said or by the first; None for pictures."""
    if declared is not None:
        dtype, shape = (declared.dtype, declared.shape) if isinstance(declared, ImageKind) else declared
        return ImageKind(plain_dtype(dtype), tuple(shape))
    if isinstance(value, bytes | bytearray | str | os.PathLike):
        return None
    try:
        if is_pillow(value):
            _check_mode(value)
            return None
        array = as_image(value)
    except DecodeError as error:
        raise UsageError(f"the first sample: {error.detail}") from None
    assert not isinstance(array, bytes)
    if array.ndim == 0:
        raise UsageError(
            f"the first sample: the image is a single number, {array}: samples are images, or tuples (image, label) in "
            "this order; name those in another one: names=('label', 'image')"
        )
    return ImageKind(array.dtype.name, array.shape)


def _plain(value: Any, kind: FieldKind | None) -> Value:
    if isinstance(value, str | bytes):
        return value
    array = as_array(value)
    if array is None:
        raise DecodeError("bad_field", f"a value is {plain(type(value).__name__)}, no number, text or array")
    array = np.array(array)  # see `as_image`
    return array if kind is None or kind.boxes is None else Boxes(array, kind.boxes)


def _of_pillow(image: Any) -> NDArray[np.uint8]:
    """The pixels of a PIL image, (H, W), (H, W, 1) or (H, W, 3)."""
    from rawpack_packer.images.orientation import apply_orientation, exif_orientation
    from rawpack_packer.images.pixels import on_white

    _check_mode(image)
    image.load()  # a TIFF is turned by that, and has no tag any more
    if image.mode == "La":
        image = image.convert("LA")  # the only mode that Pillow brings it to
    opened = image.format is not None
    transparent = getattr(image, "has_transparency_data", True)  # before Pillow 10.1 it does not tell
    if image.mode.startswith("I;16"):
        pixels = (np.asarray(image) >> 8).astype(np.uint8)
    elif image.mode in ("L", "RGB") and not (opened and transparent):
        pixels = np.asarray(image)
    elif transparent:
        rgba = np.asarray(image.convert("RGBA"))
        pixels = on_white(rgba[..., :3], rgba[..., 3])
    else:
        pixels = np.asarray(image.convert("RGB"))
    if pixels.ndim == 3 and _is_grey(image):
        pixels = pixels[..., :1]  # grey as RGB
    turn = exif_orientation(image.info.get("exif") or b"") if opened else 1
    if turn == 1:
        return pixels
    return np.ascontiguousarray(apply_orientation(pixels.reshape(*pixels.shape[:2], -1), turn))


def _check_mode(image: Any) -> None:
    """Raise DecodeError for a PIL image whose values have no range, so that none of them is white."""
    if image.mode in ("I", "F"):
        raise DecodeError(
            "bad_field", f"the image is a PIL image of mode {image.mode}, no picture: pass np.asarray(image)"
        )


def is_pillow(value: Any) -> bool:
    """Whether it is a PIL image; Pillow itself need not be there."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "convert")


def _is_grey(image: Any) -> bool:
    return image.mode in _GREY or image.mode.startswith("I;16")


def _one_size(dataset: Any, count: int, names: tuple[str, ...] | None) -> ImageKind | None:
    """What all images are, by a look at several, where these are PIL images of one size, all grey or all with colors;
    else None.

    Of a list all are looked at, as that costs nothing; of what has to make them, some that are spread over all.
    """
    if isinstance(dataset, list | tuple | ColumnDataset):
        heads = set()
        for image in _images(dataset, range(count), names):
            if not is_pillow(image):
                return None
            heads.add((image.size, _is_grey(image)))
            if len(heads) > 1:
                return None
    shapes = set()
    for image in _images(dataset, np.unique(np.linspace(0, count - 1, _TRIED, dtype=np.int64)).tolist(), names):
        if not is_pillow(image):
            return None
        try:
            pixels = _of_pillow(image)
        except Exception:
            continue
        shapes.add((*pixels.shape[:2], 1 if pixels.ndim == 2 else pixels.shape[2]))
        if len(shapes) > 1:
            return None
    return ImageKind("uint8", shapes.pop(), pictures=True) if shapes else None


def _images(dataset: Any, rows: Sequence[int], names: tuple[str, ...] | None) -> Iterator[Any]:
    """The images of samples, but for those that cannot be had."""
    for i in rows:
        try:
            sample = as_dict(dataset[i], names)
        except (PackError, MemoryError):
            raise
        except Exception:
            continue
        if "image" in sample:
            yield sample["image"]


def _first(dataset: Any, count: int, names: tuple[str, ...] | None, root: str) -> dict[str, Any]:
    """The first sample that can be had. Raises UsageError where none of the first ones can."""
    tried, raised = min(count, _TRIED), None
    for i in range(tried):
        try:
            sample = dataset[i]
            _check_no_item(sample, dataset)
            return as_dict(sample, names)
        except DecodeError as error:
            raise UsageError(f"{root}: its first sample: {error.detail}") from None
        except (PackError, UsageError, MemoryError):
            raise
        except Exception as error:
            raised = raised or error
    which = "its only sample" if count == 1 else f"each of its first {tried} samples"
    raise UsageError(
        f"{root}: {which} raises an exception, source[0] {type(raised).__name__}: {raised}; source[i] must give sample "
        f"i, for i from 0 to {count - 1}"
    ) from raised


def _length(dataset: Any) -> int:
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise UsageError(f"a {type(dataset).__name__} is not a source: it needs len(source) and source[i]")
    try:
        count = len(dataset)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"a {type(dataset).__name__} is not a source: its len() raises {what}") from error
    if not count:
        raise UsageError(f"the {type(dataset).__name__} has no samples")
    return count
