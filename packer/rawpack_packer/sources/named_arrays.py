"""Files of arrays with names: which array is the image, which the label, which a field; and the image's axes.

`--array` says it, or `--image-column` and the like.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import AXES, Axes, channels_first, check_samples, further_first
from rawpack_packer.sources.base import SourceInfo, given_options
from rawpack_packer.sources.declared import with_roles, words_of
from rawpack_packer.sources.fields import PIXEL_WORDS, FieldKind, Fields, ImageKind, PixelWord
from rawpack_packer.sources.inferred import hints
from rawpack_packer.sources.table.choose import (
    IMAGE,
    KEY,
    LABEL,
    LABEL_KIND,
    ChosenColumns,
    Classes,
    ColumnChoice,
    ColumnInfo,
    Habits,
    Labels,
    choose,
    named_file,
    number_labels,
)
from rawpack_packer.sources.table.columns import Texts
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.text import plain

Arrays = str | Sequence[str] | Mapping[str, str]
"""As a caller writes it: "image=train/x,label=train/y", several of these, or a mapping; or ":chw" alone."""


def named_arrays(arrays: Arrays) -> dict[str, str]:
    """Name in the store -> name in the file; empty where nothing is named. Raises UsageError for nonsense.

    The name of the image may end in its axes; see `split_axes`. Where they are all that was said, it is ":chw".
    """
    if isinstance(arrays, Mapping):
        pairs = list(arrays.items())
    else:
        words = [word for each in ([arrays] if isinstance(arrays, str) else arrays) for word in each.split(",")]
        pairs = []
        for word in words:
            name, equals, of_file = (part.strip() for part in word.partition("="))
            if not equals and name.removeprefix(":") in AXES:
                name, of_file = IMAGE, f":{name.removeprefix(':')}"
            elif not name or not equals or not of_file:
                raise UsageError(
                    f"{opt.array(plain(word))}: write NAME=ARRAY, such as image=train/x,label=train/y; or :chw alone, "
                    "where only the axes of the images have to be said"
                )
            pairs.append((name, of_file))
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UsageError(f"{opt.array} names something twice")
    if found and IMAGE not in found:
        raise UsageError(f"{opt.array} names no image: add image=ARRAY; what is named is packed, and nothing else")
    if len(found) > 1 and not split_axes(found[IMAGE])[0]:
        axes = found[IMAGE]
        raise UsageError(
            f"{opt.array(axes)} is for images that need no name; write image=ARRAY{axes} next to other names"
        )
    return found


def split_axes(name: str, known: Container[str] = ()) -> tuple[str, Axes | None]:
    """The name of the image's array, "" where it was not said, and the axes that follow it. known: names of arrays,
    which may end like that."""
    for axes in AXES:
        if name.endswith(f":{axes}") and name not in known:
            return name.removesuffix(f":{axes}"), axes
    return name, None


class SaidOfArrays:
    """What a user says of a file of arrays with names, which is decided alike for all kinds of such files."""

    def __init__(
        self,
        array: Arrays = (),
        fields: Fields = (),
        classes: Classes | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        key_column: str | None = None,
    ) -> None:
        """array: which arrays are packed, and as what: image=train/x,label=train/y; nothing else is. `:chw` after the
        name of images, or alone, moves their channels to the end; `:hwc` keeps the axes as they are. image_column,
        label_column, key_column: the arrays of labels and keys; all others stay fields. fields: which of them are
        masks, and which are no images: {"seg": "mask", "depth": "array"}. classes: names of labels that are numbers.

        Raises UsageError for nonsense, and where `--array` names columns, and another option names one too."""
        self.named, self.fields, self.classes = named_arrays(array), fields, classes
        self.columns = ColumnChoice(image_column, label_column, key_column)
        words = dict(word.partition(":")[::2] for word in words_of(fields))
        self.words: dict[str, PixelWord] = {name: word for name in words for word in PIXEL_WORDS if words[name] == word}
        """Fields that are declared as images or masks -> the word."""
        if self.names_image and (image_column or label_column):
            other = opt.image_column if image_column else opt.label_column
            raise UsageError(
                f"{opt.array} and {other} both name arrays: name the image, the label and all fields by one"
            )

    def are_pixels(self, of_file: str) -> bool:
        """Whether an array is declared as images or masks."""
        named = {split_axes(self.named.get(name, name))[0].lstrip("/") for name in self.words}
        return of_file in named or of_file.rpartition("/")[2] in named

    @property
    def names_image(self) -> bool:
        """Whether `--array` says which array the image is."""
        return bool(split_axes(self.named.get(IMAGE, ""))[0])

    def names(self, root: str = "") -> list[str]:
        """The names of arrays that the user gave, and that of the image without its axes too. root: what they may begin
        with in vain."""
        every = [*self.named.values(), *(split_axes(of_file)[0] for of_file in self.named.values())]
        every += [one for one in (self.columns.image, self.columns.label, self.columns.key) if one]
        return [one.lstrip(root) for one in every if one.lstrip(root)]

    def choose(self, columns: Sequence[ColumnInfo], where: str, habits: Habits, root: str = "") -> ChosenColumns:
        """Which array is what. root: see `names`. Raises UsageError where the user has to name something."""
        named = {name: of_file.lstrip(root) for name, of_file in self.named.items()}
        names = self.columns.image, self.columns.label, self.columns.key
        image, label, key = (name and name.lstrip(root) for name in names)
        known = {one.name for one in columns}
        last = {one.rpartition("/")[2] for one in known}
        wanted = ColumnChoice(image, label, key, declared={k: word for k, word in self.words.items() if k in last})
        if of_image := split_axes(named.get(IMAGE, ""), known)[0]:
            others = {name: split_axes(one, known)[0] for name, one in named.items() if name not in (IMAGE, LABEL)}
            wanted = ColumnChoice(of_image, named.get(LABEL), key, others, as_arrays=True)
        return choose(columns, wanted, where, habits)

    def axes(self, known: Container[str]) -> Axes | None:
        """The axes of the images, if the user says them. known: see `split_axes`."""
        return split_axes(self.named.get(IMAGE, ""), known)[1]

    def chw(self, shape: tuple[int, ...], name: str, axes: Axes | None, where: str, *, alone: bool) -> bool:
        """Whether the channels come first in an array of images. where: the file, or the array in it. alone: whether
        nothing else is packed. Raises UsageError where the user has to say it."""
        before = f"image={plain(name)}:" if self.names_image else ":"

        def said_by(axes: Axes) -> str:
            return opt.array(before + axes)

        if alone:
            check_samples(shape, axes, where, said_by)
        return channels_first(shape[1:], axes, where, said_by)

    def further_chw(self, name: str, shape: tuple[int | None, ...], known: Container[str], where: str) -> bool:
        """Whether the channels come first in a further image of this shape: as it is said of it, or of the images.
        where: its array. Raises UsageError where the user has to say it, or says it of what is no image."""
        of_file, axes = split_axes(self.named.get(name, name), known)
        if self.words.get(name, "mask") == "mask":
            if axes is not None:
                said = opt.array(f"{name}={of_file}:{axes}")
                raise UsageError(f"{said} is for images: {opt.fields(f'{name}:image')} says that it is one")
            return False
        lengths = tuple(n for n in shape if n is not None)
        if axes is not None:
            return channels_first(lengths, axes, where, lambda axes: opt.array(f"{name}={of_file}:{axes}"))
        said = opt.array(f"image=NAME,{name}={of_file}:chw")
        cure = f"{said} moves them to the end, {name}={of_file}:hwc keeps the axes; so name all that is packed"
        return further_first(lengths, self.axes(known), where, cure)

    def labels(
        self, values: Sequence[str] | NDArray[Any] | None, where: str, known: Sequence[str] | None = None
    ) -> Labels | None:
        """The labels in an array of whole numbers or texts. known: the names that the source has for them. Raises
        UsageError."""
        if values is not None:
            return number_labels(values, self.classes, where=where, known=known)
        if self.classes is not None:
            raise UsageError(f"{opt.classes} names labels, and {where} has none: name them by {opt.label_column}")
        return None

    def keys(self, values: Sequence[str] | None, where: str, notes: list[str]) -> Texts | None:
        """The keys, if there are any; `notes` gets why there are none. Raises UsageError."""
        named = self.columns.key is not None
        return None if values is None else unique_keys(values, where, named, notes, f"texts of {KEY!r}")

    def info(
        self,
        kind: str,
        path: str,
        fields: Mapping[str, FieldKind],
        image: ImageKind | None,
        counts: Mapping[str, int],
        left_out: tuple[str, ...],
        *,
        labelled: bool,
        numbered: bool,
        root: str,
    ) -> SourceInfo:
        """What is known of the file. root: as messages name it."""
        label = {LABEL: LABEL_KIND} if labelled else {}
        kinds = with_roles({**label, **fields}, self.fields, image, root)
        array = ",".join(f"{name}={of_file}" for name, of_file in self.named.items())
        if len(self.named) == 1 and not self.names_image:
            array = self.named[IMAGE]  # axes alone
        return SourceInfo(
            kind=kind,
            root=root,
            paths=(path,),
            fields=kinds,
            image=image,
            numbered=numbered,
            counts=counts,
            options=given_options(
                array=array or None,
                field=words_of(self.fields),
                classes=named_file(self.classes),
                image_column=self.columns.image,
                label_column=self.columns.label,
                key_column=self.columns.key,
            ),
            problems=(*left_out, *hints(kinds, self.words, image)),
        )
