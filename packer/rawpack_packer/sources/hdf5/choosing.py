"""Which data set of an HDF5 file is the image, which the label, and which become fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.axes import channels_first, check_samples, turned
from rawpack_packer.sources.fields import FieldKind, ImageKind, check_names
from rawpack_packer.sources.hdf5.opening import NUMBERS, OPAQUE, TEXT, VLEN, DataSet
from rawpack_packer.sources.named_arrays import IMAGE, LABEL, saying_axes, split_axes
from rawpack_packer.text import listed, plain

_LABELS = ("label", "labels", "y", "Y", "target", "targets")
_SHOWN = 12


@dataclass(frozen=True)
class FieldDataSet:
    """A data set that is read, and what each of its rows is."""

    data_set: DataSet
    kind: FieldKind | None
    """None for the image."""


@dataclass(frozen=True)
class DataSetChoice:
    """What is packed of a file."""

    image: DataSet
    chw: bool
    """Whether the channels of images come first in the file. In samples they come last."""
    image_kind: ImageKind | None
    """None where a row is an image file."""
    label: DataSet | None
    """Whole numbers or names of classes."""
    fields: Mapping[str, FieldDataSet]
    """Besides the label."""
    left_out: tuple[str, ...]
    """A printable line for each data set of as many rows that no field can hold."""

    @property
    def rows(self) -> int:
        return self.image.shape[0]


def choose(
    found: Sequence[DataSet],
    wanted: Mapping[str, str],
    where: str,
    *,
    by_name: Callable[[str], DataSet],
    is_image_file: Callable[[DataSet], bool],
) -> DataSetChoice:
    """What to pack of these data sets. wanted: see `named_arrays`. by_name: a data set, also through links; it raises
    UsageError. is_image_file: whether the first row of a data set of bytes is one.

    Raises UsageError where the user has to name something.
    """
    of_image, axes = split_axes(wanted.get(IMAGE, ""), {one.name for one in found})
    if of_image:
        image = by_name(of_image)
        if image.holds not in (NUMBERS, VLEN, OPAQUE):
            raise UsageError(f"{where}: {image} cannot be images: they are numbers, or image files as bytes")
    else:
        image = _only_image(found, where, is_image_file)
    is_file = image.holds in (VLEN, OPAQUE)
    if not image.shape or not image.shape[0] or (len(image.shape) < 2) != is_file:
        raise UsageError(
            f"{where}: {image} cannot be images: the first axis counts samples, at least one, and the others make an "
            "image; image files are uint8 of variable length, on one axis"
        )
    chw = not is_file and channels_first(image.shape[1:], axes, f"{where}: {image}", saying_axes(wanted, image.name))
    if is_file and axes == "chw":
        raise UsageError(f"{where}: {image} holds image files, which have no channels to move: leave out :{axes}")
    image_kind = None if is_file else ImageKind(image.of, turned(image.shape[1:], chw))
    if of_image:
        others = {name: by_name(of_file) for name, of_file in wanted.items() if name != IMAGE}
        label = others.get(LABEL)
    else:
        same = [one for one in found if one is not image and one.shape[:1] == image.shape[:1]]
        label, others = _only_label(same), _named(same)
        if label is not None:
            others = {LABEL if one is label else name: one for name, one in others.items()}
    if not is_file and not others:
        check_samples(image.shape, axes, f"{where}: {image}", saying_axes(wanted, image.name))
    if label is not None and not may_be_label(label):
        label = None
    fields, left_out = dict[str, FieldDataSet](), list[str]()
    for name, one in others.items():
        if one is label:
            continue
        if one.shape[:1] != image.shape[:1]:
            raise UsageError(f"{where}: {one} does not have a row for each of the {image.shape[0]:,} images")
        try:
            check_names([name])
            fields[name] = FieldDataSet(one, _kind(one))
        except UsageError as error:
            if of_image:
                raise UsageError(f"{where}: {opt.array(name)}: {one}: {error}") from None
            left_out.append(plain(f"data set {one} is left out: {error}"))
    if label is not None and label.shape[:1] != image.shape[:1]:
        raise UsageError(f"{where}: {label} does not have a row for each of the {image.shape[0]:,} images")
    check_names([*([LABEL] if label else []), *fields])
    return DataSetChoice(image, chw, image_kind, label, fields, tuple(left_out))


def _only_image(found: Sequence[DataSet], where: str, is_image_file: Callable[[DataSet], bool]) -> DataSet:
    fitting = [one for one in found if _may_be_image(one, is_image_file)]
    if len(fitting) == 1:
        return fitting[0]
    if any(one.name.startswith("data/demo_") for one in found):
        raise UsageError(f"{where} is a file of robomimic, by its data/demo_0: rawpack does not read these yet")
    shown = listed([str(one) for one in fitting or found], _SHOWN) or "no data set"
    if not fitting:
        raise UsageError(
            f"{where} has no images that can be told by their shape, (N, H, W, C) or (N, H, W): it has {shown}. Name "
            f"them: {opt.array('image=NAME,label=NAME')}"
        )
    name = fitting[0].name
    raise UsageError(
        f"{where} has several data sets that may be images: {shown}. Name one, and what else is packed: "
        f"{opt.array(f'image={plain(name)},label=NAME')}"
    )


def _may_be_image(one: DataSet, is_image_file: Callable[[DataSet], bool]) -> bool:
    if not one.shape or not one.shape[0]:
        return False
    if one.holds == NUMBERS:
        return len(one.shape) in (3, 4) and min(one.shape[1:3]) > 0 and math.prod(one.shape[1:]) > 1
    is_bytes = one.holds == OPAQUE or (one.holds == VLEN and one.of in ("uint8", "int8"))
    return is_bytes and len(one.shape) == 1 and is_image_file(one)


def possible_images(found: Sequence[DataSet]) -> list[DataSet]:
    """Those that may be images by their shapes and types alone."""
    return [one for one in found if _may_be_image(one, lambda _: True)]


def _only_label(same: Sequence[DataSet]) -> DataSet | None:
    """The data set of labels, by its name, or the only one of whole numbers."""
    named = [one for one in same if one.name.rpartition("/")[2] in _LABELS]
    whole = [one for one in same if may_be_label(one) and one.holds == NUMBERS]
    return named[0] if len(named) == 1 else whole[0] if not named and len(whole) == 1 else None


def may_be_label(one: DataSet) -> bool:
    """Whether a data set has a whole number or a text for each sample."""
    whole = one.holds == NUMBERS and one.of[:3] in ("int", "uin") and one.of != "uint64"
    return math.prod(one.shape[1:]) == 1 and (whole or one.holds == TEXT) and len(one.shape) > 0


def _named(same: Sequence[DataSet]) -> dict[str, DataSet]:
    """Each under its own name; under its path where two have the same."""
    names = [one.name.rpartition("/")[2] for one in same]
    return {
        name if names.count(name) == 1 else one.name.replace("/", "_"): one
        for name, one in zip(names, same, strict=True)
    }


def _kind(one: DataSet) -> FieldKind:
    """What a field holds. Raises UsageError where none can hold it."""
    if not one.holds or one.holds == OPAQUE or (one.holds in (TEXT, VLEN) and len(one.shape) != 1):
        raise UsageError(one.why or f"no field can hold {one.dtype} with {len(one.shape)} axes")
    if one.holds == TEXT:
        return FieldKind("str")
    return FieldKind(one.of, (None,) if one.holds == VLEN else one.shape[1:])
