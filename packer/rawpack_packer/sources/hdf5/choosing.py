"""What is packed of an HDF5 file: the data sets of the image, the label, the key and the fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.axes import channels_first, check_samples, turned
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.hdf5.opening import NUMBERS, OPAQUE, TEXT, VLEN, DataSet
from rawpack_packer.sources.named_arrays import IMAGE, LABEL, saying_axes, split_axes
from rawpack_packer.sources.table.choose import ColumnChoice, ColumnInfo, Habits, choose

_LABELS = ("label", "labels", "y", "Y", "target", "targets")


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
    key: DataSet | None
    """Texts."""
    fields: Mapping[str, tuple[DataSet, FieldKind]]
    """Besides the label."""
    left_out: tuple[str, ...]
    """A printable line for each data set of as many rows that no field can hold."""

    @property
    def rows(self) -> int:
        return self.image.shape[0]


def choose_data_sets(
    found: Sequence[DataSet],
    wanted: ColumnChoice,
    named: Mapping[str, str],
    where: str,
    *,
    by_name: Callable[[str], DataSet | None],
    is_image_file: Callable[[DataSet], bool],
) -> DataSetChoice:
    """What to pack of these data sets. named: see `named_arrays`. by_name: a data set, also through links, or None;
    it raises UsageError for one that is not read. is_image_file: whether the first row of a data set of bytes is one.

    Raises UsageError where the user has to name something.
    """
    named = {name: of_file.lstrip("/") for name, of_file in named.items()}
    wanted = replace(wanted, image=_relative(wanted.image), label=_relative(wanted.label), key=_relative(wanted.key))
    of_image, axes = split_axes(named.get(IMAGE, ""), {one.name for one in found})
    if of_image:
        others = {name: of_file for name, of_file in named.items() if name not in (IMAGE, LABEL)}
        wanted = ColumnChoice(of_image, named.get(LABEL), wanted.key, others, wanted.declared, as_arrays=True)
    known = {one.name: one for one in found}
    for name in (wanted.image, wanted.label, wanted.key, *(wanted.fields or {}).values()):
        if name is not None and (one := by_name(name)) is not None:
            known[name] = one
    if wanted.image is None and any(one.name.startswith("data/demo_") for one in found):
        raise UsageError(f"{where} is a file of robomimic, by its data/demo_0: rawpack does not read these yet")
    no_image = (
        f" that can be told by their shape, (N, H, W, C) or (N, H, W). Name them, {opt.array('image=NAME,label=NAME')}"
    )
    columns = [_info(one, is_image_file) for one in known.values()]
    chosen = choose(
        columns, wanted, where, Habits(labels=_LABELS, lone_label=True, name_image=_named, no_image=no_image)
    )
    image = known[chosen.image]
    if image.holds not in (NUMBERS, VLEN, OPAQUE):
        raise UsageError(f"{where}: {image} cannot be images: they are numbers, or image files as bytes")
    is_file = image.holds in (VLEN, OPAQUE)
    if not image.shape or not image.shape[0] or (len(image.shape) < 2) != is_file:
        raise UsageError(
            f"{where}: {image} cannot be images: the first axis counts samples, at least one, and the others make an "
            "image; image files are uint8 of variable length, on one axis"
        )
    chw = not is_file and channels_first(image.shape[1:], axes, f"{where}: {image}", saying_axes(named, image.name))
    if is_file and axes == "chw":
        raise UsageError(f"{where}: {image} holds image files, which have no channels to move: leave out :{axes}")
    fields = {name: (known[of_file], _kind(known[of_file])) for name, of_file in chosen.fields.items()}
    if not is_file and not fields and chosen.label is None:
        check_samples(image.shape, axes, f"{where}: {image}", saying_axes(named, image.name))
    return DataSetChoice(
        image,
        chw,
        None if is_file else ImageKind(image.of, turned(image.shape[1:], chw)),
        None if chosen.label is None else known[chosen.label],
        None if chosen.key is None else known[chosen.key],
        {name: (one, kind) for name, (one, kind) in fields.items() if not isinstance(kind, str)},
        chosen.left_out,
    )


def _relative(name: str | None) -> str | None:
    """A path in the file as `DataSet.name` has it."""
    return None if name is None else name.lstrip("/")


def _named(image: str) -> str:
    return opt.array(f"image={image},label=NAME")


def possible_images(found: Sequence[DataSet]) -> list[DataSet]:
    """Those that may be images by their shapes and types alone."""
    return [one for one in found if _may_be_image(one, lambda _: True)]


def may_be_label(one: DataSet) -> bool:
    """Whether a data set has a whole number or a text for each sample."""
    return math.prod(one.shape[1:]) == 1 and (_is_whole(one) or one.holds == TEXT) and len(one.shape) > 0


def _info(one: DataSet, is_image_file: Callable[[DataSet], bool]) -> ColumnInfo:
    return ColumnInfo(
        name=one.name,
        type=f"{one.dtype} {one.shape}",
        field=_kind(one),
        is_image=_may_be_image(one, is_image_file),
        is_label=may_be_label(one),
        is_whole=may_be_label(one) and _is_whole(one),
        is_key=one.holds == TEXT and len(one.shape) == 1,
        rows=one.shape[0] if one.shape else None,
    )


def _is_whole(one: DataSet) -> bool:
    return one.holds == NUMBERS and one.of[:3] in ("int", "uin") and one.of != "uint64"


def _may_be_image(one: DataSet, is_image_file: Callable[[DataSet], bool]) -> bool:
    if not one.shape or not one.shape[0]:
        return False
    if one.holds == NUMBERS:
        return len(one.shape) in (3, 4) and min(one.shape[1:3]) > 0 and math.prod(one.shape[1:]) > 1
    is_bytes = one.holds == OPAQUE or (one.holds == VLEN and one.of in ("uint8", "int8"))
    return is_bytes and len(one.shape) == 1 and is_image_file(one)


def _kind(one: DataSet) -> FieldKind | str:
    """What a field holds; or why none can hold it."""
    if not one.holds or one.holds == OPAQUE or (one.holds in (TEXT, VLEN) and len(one.shape) != 1):
        return one.why or f"no field can hold {one.dtype} with {len(one.shape)} axes"
    if one.holds == TEXT:
        return FieldKind("str")
    try:
        return FieldKind(one.of, (None,) if one.holds == VLEN else one.shape[1:])
    except UsageError as error:
        return str(error)
