"""Files of arrays with names: which array is the image, which the label, which a field; and the image's axes.

`--array` says it, or `--image-column` and the like.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.array_files import ArraysAt
from rawpack_packer.sources.axes import AXES, Axes, channels_first, check_samples, further_first, turned
from rawpack_packer.sources.base import given_options
from rawpack_packer.sources.declared import with_roles, words_of
from rawpack_packer.sources.fields import PIXEL_WORDS, FieldKind, Fields, ImageKind, PixelWord
from rawpack_packer.sources.files import ScannedFile
from rawpack_packer.sources.table.assemble import assemble
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
)
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.sources.table.table import Table
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
    named = dict(pairs)
    if len(named) < len(pairs):
        raise UsageError(f"{opt.array} names something twice")
    if named and IMAGE not in named:
        raise UsageError(f"{opt.array} names no image: add image=ARRAY; what is named is packed, and nothing else")
    if len(named) > 1 and not split_axes(named[IMAGE])[0]:
        axes = named[IMAGE]
        raise UsageError(
            f"{opt.array(axes)} is for images that need no name; write image=ARRAY{axes} next to other names"
        )
    return named


def split_axes(name: str, known: Container[str] = ()) -> tuple[str, Axes | None]:
    """The name of the image's array, "" where it was not said, and the axes that follow it. known: names of arrays,
    which may end like that."""
    for axes in AXES:
        if name.endswith(f":{axes}") and name not in known:
            return name.removesuffix(f":{axes}"), axes
    return name, None


class ArrayOptions:
    """What a user says of a file of arrays with names, and what is decided alike for all kinds of such files."""

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
        self.names_image = bool(split_axes(self.named.get(IMAGE, ""))[0])
        """Whether `--array` says which array the image is."""
        if self.names_image and (image_column or label_column):
            other = opt.image_column if image_column else opt.label_column
            raise UsageError(
                f"{opt.array} and {other} both name arrays: name the image, the label and all fields by one"
            )

    def are_pixels(self, name: str) -> bool:
        """Whether an array is declared as images or masks."""
        declared = {split_axes(self.named.get(field, field))[0].lstrip("/") for field in self.words}
        return not declared.isdisjoint({name, name.rpartition("/")[2]})

    def names(self) -> list[str]:
        """The names of arrays that the user gave, and that of the image without its axes too."""
        columns = self.columns.image, self.columns.label, self.columns.key
        every = [*self.named.values(), *(split_axes(name)[0] for name in self.named.values()), *columns]
        return [name.lstrip("/") for name in every if name]

    def choose(self, infos: Sequence[ColumnInfo], where: str, habits: Habits) -> ChosenColumns:
        """Which array is what. Raises UsageError where the user has to name something."""
        names = {info.name for info in infos}

        def in_file(name: str | None) -> str | None:
            return name if name is None or name in names else name.lstrip("/")

        image, label, key = map(in_file, (self.columns.image, self.columns.label, self.columns.key))
        last = {name.rpartition("/")[2] for name in names}
        wanted = ColumnChoice(image, label, key, declared={k: word for k, word in self.words.items() if k in last})
        if self.names_image:
            rest = {field: str(in_file(split_axes(name, names)[0])) for field, name in self.named.items()}
            image, label = rest.pop(IMAGE), in_file(self.named.get(LABEL))
            rest.pop(LABEL, None)
            wanted = ColumnChoice(image, label, key, rest, as_arrays=True)
        return choose(infos, wanted, where, habits)

    def axes(self, names: Container[str]) -> Axes | None:
        """The axes of the images, if the user says them. names: those of all arrays."""
        return split_axes(self.named.get(IMAGE, ""), names)[1]

    def chw(self, shape: tuple[int, ...], chosen: ChosenColumns, names: Container[str], where: str) -> bool:
        """Whether the channels come first in an array of images of this shape. names: those of all arrays. where: the
        file, or the array in it. Raises UsageError where the user has to say it."""
        before, axes = f"image={plain(chosen.image)}:" if self.names_image else ":", self.axes(names)

        def said_by(axes: Axes) -> str:
            return opt.array(before + axes)

        if not chosen.fields and chosen.label is None:
            check_samples(shape, axes, where, said_by)
        return channels_first(shape[1:], axes, where, said_by)

    def further(self, name: str, kind: FieldKind, names: Container[str], where: str) -> tuple[FieldKind, bool]:
        """What a field holds whose array is of a kind, and whether the channels come first in it, as is said of it, or
        of the images. where: its array. Raises UsageError where the user has to say it, or says it of what is not an
        image."""
        in_file, axes = split_axes(self.named.get(name, name), names)
        if self.words.get(name, "mask") == "mask":
            if axes is not None:
                wrong = opt.array(f"{name}={in_file}:{axes}")
                raise UsageError(f"{wrong} is for images: {opt.fields(f'{name}:image')} says that it is one")
            return kind, False
        lengths = tuple(n for n in kind.shape if n is not None)
        if axes is not None:
            chw = channels_first(lengths, axes, where, lambda axes: opt.array(f"{name}={in_file}:{axes}"))
        else:
            moves = opt.array(f"image=NAME,{name}={in_file}:chw")
            cure = f"{moves} moves them to the end, {name}={in_file}:hwc keeps the axes; so name all that is packed"
            chw = further_first(lengths, self.axes(names), where, cure)
        return replace(kind, shape=turned(kind.shape, chw)), chw

    def table(
        self,
        at: ArraysAt,
        files: Sequence[ScannedFile],
        *,
        key: Sequence[str] | None,
        fields: Mapping[str, FieldKind],
        labels: Labels | None,
        image: ImageKind | None,
        notes: list[str],
        **others: Any,
    ) -> Table:
        """The table of a file of arrays. files: that of `at`, and the one of its labels. key: of each row. others: see
        `assemble`. Raises UsageError."""
        named = self.columns.key is not None
        keys = None if key is None else unique_keys(key, at.root, named, notes, f"texts of {KEY!r}")
        array = ",".join(f"{name}={in_file}" for name, in_file in self.named.items())
        if len(self.named) == 1 and not self.names_image:
            array = self.named[IMAGE]  # axes alone
        options = given_options(
            array=array or None,
            field=words_of(self.fields),
            classes=named_file(self.classes),
            image_column=self.columns.image,
            label_column=self.columns.label,
            key_column=self.columns.key,
        )
        label = {} if labels is None else {LABEL: LABEL_KIND}
        return assemble(
            kind=at.kind,
            root=at.root,
            paths=(files[0].path,),
            fields=with_roles({**label, **fields}, self.fields, image, at.root),
            labels=labels,
            keys=keys,
            image=image,
            options=options,
            notes=notes,
            declared=self.words,
            states=np.array([*(file.state for file in files), *at.states], np.int64),
            **others,
        )
