"""The records of TFRecord files as a source."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Column, Scanning, numbered, unseen
from rawpack_packer.sources.fields import DeclaredKind, FieldKind, are_pixels
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.assemble import assemble
from rawpack_packer.sources.table.choose import (
    ChosenColumns,
    Classes,
    ColumnChoice,
    ColumnInfo,
    Habits,
    Labels,
    choose,
    classes_of,
    column_called,
    named_apart,
    number_labels,
)
from rawpack_packer.sources.table.columns import Fault, Texts, spans_of
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, source_name
from rawpack_packer.sources.table.objects import BOXES
from rawpack_packer.sources.table.options import TableOptions
from rawpack_packer.sources.table.table import Table
from rawpack_packer.sources.tfrecord import NOT_READ, files_of, info_in, kinds_in, records_in
from rawpack_packer.sources.tfrecord.columns import ExampleImages, FeatureValues, boxes_of, first_class
from rawpack_packer.sources.tfrecord.example import INTS, ExamplePass
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_LABEL, _TEXT = "image/class/label", "image/class/text"
_KEYS = ("image/filename", "filename", "file_name", "image_name", "id")
_HABITS = Habits(
    labels=(_LABEL, _TEXT),
    no_image=f", which are features of image files, such as JPEG (for pixels see {NOT_READ})",
)


def open_tfrecord(
    path: str | os.PathLike[str], /, *, spool: Spool | None = None, progress: Scanning = unseen, **options: Any
) -> Table:
    """The records of TFRecord files: each a `tf.train.Example` with an image file.

    Features become fields under the last part of their names. `label` is `image/class/label`, `label`, `class` or
    `target`. `image/class/text` has the names of its classes, whose numbers are then counted from 1 in the files.
    Boxes of TensorFlow's object detection and of TensorFlow Datasets become the field `boxes`. Keys are the names of
    files, where each sample has another one; else samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out.

    path: see `files_of`. spool: for files behind URLs. progress: called with the number of records. options: of
    `TableOptions`.

    Raises UsageError where a file is not a TFRecord file, is damaged or holds no Examples, or where something has to be
    named.
    """
    root, files = source_name(path), files_of(path, spool)
    folder = None if files.remotes else Listing(Path(files.paths[0]).parent)
    table_options = TableOptions(**options)
    records = _Records(files, root, folder, progress)
    wanted, notes = _by_feature(table_options.choice(), records)
    kinds = records.kinds(wanted)
    chosen = choose([records.info(name, kind) for name, kind in kinds.items()], wanted, root, _HABITS)
    labels, of_boxes = records.all_labels(chosen, table_options.classes, notes)
    names_only = chosen.label == _LABEL and labels and labels.names and wanted.fields is None
    fields, columns = dict[str, FieldKind](), dict[str, Column]()
    for name, feature in chosen.fields.items():
        if feature != _TEXT or not names_only:  # else these are the names of the classes
            fields[name], columns[name] = records.field(name, feature, kinds[feature], wanted.declared, of_boxes)
    return assemble(
        kind="tfrecord",
        root=root,
        paths=tuple(dict.fromkeys([str(Path(path).absolute()), *files.paths])) if folder else (),
        chosen=chosen,
        images=records.images(chosen.image),
        fields=fields,
        columns=columns,
        count=len(records),
        options=table_options.given(),
        keys=None if chosen.key is None else records.keys(chosen.key, named=table_options.key_column is not None),
        notes=notes,
        declared=[*wanted.declared, BOXES],
        arrays=table_options.arrays,
        labels=labels,
        of_boxes=of_boxes,
        details={"features": {name: feature.words for name, feature in records.features.items()}},
    )


def _by_feature(choice: ColumnChoice, records: _Records) -> tuple[ColumnChoice, list[str]]:
    """What the user says, who may write the last part of a name, by names of features; what is declared, also as
    `NAME=FEATURE`, by names of fields; and the keys, if some feature has them. And why none has."""
    features, declared = records.plain_features, dict[str, DeclaredKind]()
    shorts = {full: short for short, full in named_apart(features).items()}
    for word, kind in choice.declared.items():
        name, _, end = word.rpartition("=")
        full = None if word in shorts.values() else column_called(end, features)
        if full is not None:
            shorts[full] = name or shorts[full]
        declared[word if full is None else shorts[full]] = kind
    fulls = {short: name for name, short in shorts.items()}

    def called(name: str) -> str:
        return fulls.get(name) or column_called(name, shorts) or name

    image, label, key = (name if name is None else called(name) for name in (choice.image, choice.label, choice.key))
    fields = None if choice.fields is None else {shorts.get(called(name), name): called(name) for name in choice.fields}
    notes = list[str]()
    if key is None:
        fit = (name for name in _KEYS if name in records.features and records.features[name].is_key)
        key = next((name for name in fit if records.keys(name, named=False, notes=notes)), None)
        notes = notes if key is None else []
    return replace(choice, image=image, label=label, key=key, fields=fields, declared=declared, names=shorts), notes


class _Records:
    """All records: where they are, and the values of their features."""

    def __init__(self, files: NamedFiles, where: str, folder: Listing | None, progress: Scanning) -> None:
        """where: the source, printable. folder: that of the files, if it is on this machine. Raises UsageError."""
        self._where, features = where, dict[str, FeatureValues]()
        self._file, self._offset, self._size = array("i"), array("q"), array("q")
        self._faults = dict[int, Fault]()
        look, info = ExamplePass(files), None if folder is None else info_in(folder)
        for k, examples in look:
            before = len(self)
            with reading(files.name(k)):
                for example in examples:
                    row = len(self)
                    self._file.append(k)
                    self._offset.append(example.offset)
                    self._size.append(example.size)
                    if example.fault:
                        self._faults[row] = "corrupt", example.fault
                    for name, feature in example.features.items():
                        if name not in features:
                            features[name] = FeatureValues(name, where)
                        features[name].add(row, feature)
                    if row % PROGRESS_EVERY == 0:
                        progress(row)
            expected = None if info is None else records_in(Path(files.paths[k]), info)
            if expected not in (None, len(self) - before):
                raise UsageError(
                    f"{files.name(k)} has {len(self) - before:,} records, and the dataset_info.json next to it says "
                    f"{expected:,}: copy both again"
                )
        if not features:
            raise UsageError(f"{where} has no records" + (" that are not damaged" if len(self) else ""))
        progress(len(self))
        sound = np.ones(len(self), np.bool_)
        sound[[*self._faults]] = False
        for feature in features.values():
            feature.finish(sound)
        self._files, self.features = look.files, {name: features[name] for name in sorted(features)}
        self._boxes = boxes_of(self.features, where)
        of_boxes = self._boxes.names.all if self._boxes else ()
        self.plain_features = [name for name, of in self.features.items() if of.most and name not in of_boxes]
        """The names of the features that boxes are not made of, and that have any values."""
        lists = {} if folder is None else {
            name: folder.path / f"{name.replace('/', '-')}.labels.txt" for name in self.features
        }  # fmt: skip
        self._classes = {name: classes_of(file) for name, file in lists.items() if file.is_file()}
        """The names of classes that TensorFlow Datasets writes for features."""
        self._declared = {} if folder is None else kinds_in(folder)
        """What it says of their numbers."""

    def __len__(self) -> int:
        return len(self._file)

    def kinds(self, wanted: ColumnChoice) -> dict[str, FieldKind | str | None]:
        """What features and boxes are as fields: None for images and masks, or why they can be none."""
        kinds = dict[str, FieldKind | str | None]()
        for name in self.plain_features:
            feature, word = self.features[name], wanted.declared.get(wanted.names[name])
            kinds[name] = self._declared.get(name) or feature.field(wanted.names[name])
            if self._boxes is not None and self._boxes.followed_by(feature):
                kinds[name] = FieldKind(feature.dtype, (None,), follows="rows")
            if are_pixels(word) and not feature.is_image:
                kinds[name] = f"it contains {feature.words}; images and masks are files"
            elif word is not None:
                kinds[name] = None if isinstance(word, str) else word
        return kinds if self._boxes is None else {**kinds, BOXES: FieldKind("float32", (None, 5), boxes="yolo")}

    def info(self, name: str, kind: FieldKind | str | None) -> ColumnInfo:
        """A feature, or all boxes, as a column."""
        if name not in self.features:
            return ColumnInfo(name, BOXES, kind)
        feature = self.features[name]
        single, is_whole = feature.most == 1, feature.kind == INTS
        may_be_label = single and (is_whole or feature.is_text)
        return ColumnInfo(
            name=name,
            type=feature.words,
            field=kind,
            is_image=single and feature.is_image,
            is_label=may_be_label,
            is_whole=single and is_whole,
            first=feature.singles,
            is_key=feature.is_key,
            classes=self._classes.get(name) if is_whole else None,
        )

    def keys(self, name: str, *, named: bool, notes: list[str] | None = None) -> Texts | None:
        """See `unique_keys`. Records that cannot be read have their numbers."""
        values = self.features[name].singles()
        texts = [numbered(i) if i in self._faults else value or "" for i, value in enumerate(values)]
        return unique_keys(texts, self._where, named, notes, f"feature {plain(name)!r}")

    def images(self, name: str) -> ExampleImages:
        """The image files in a feature."""
        more = {"faults": self._faults, "inside": self.features[name].spans}
        return spans_of(ExampleImages, self._files, self._file, self._offset, self._size, **more)

    def all_labels(
        self, chosen: ChosenColumns, classes: Classes | None, notes: list[str]
    ) -> tuple[Labels | None, Labels | None]:
        """Those of records and those of boxes. notes: gets lines of the summary. Raises UsageError."""
        labels, of_boxes = None, None
        if chosen.label is not None:
            labels = self._labels(chosen.label, classes)
        if self._boxes is not None and BOXES in chosen.fields.values():
            names = self._classes.get(self._boxes.names.label)
            of_boxes, more = self._boxes.labels(None if labels else classes, names)
            notes += more
        if classes is not None and labels is None and not (of_boxes and of_boxes.names):
            raise UsageError(
                f"{opt.classes} names labels, and {self._where} has no feature of labels: name it by {opt.label_column}"
            )
        return labels, of_boxes

    def _labels(self, name: str, classes: Classes | None) -> Labels:
        """The label of each record. Raises UsageError."""
        values, known = self.features[name].singles(), self._classes.get(name)
        if name == _LABEL and _TEXT in self.features and self.features[name].kind == INTS:
            texts = self.features[_TEXT].singles()
            pairs = [(value, text or "") for value, text in zip(values, texts, strict=True) if value is not None]
            first, known = first_class(np.array([value for value, _ in pairs]), [text for _, text in pairs], 1)
            values = [None if value is None else value - first for value in values]
        return number_labels(values, classes, where=self._where, known=known, row_name=lambda i: f"record {i}")

    def field(
        self,
        name: str,
        feature: str,
        kind: FieldKind | str | None,
        declared: Mapping[str, DeclaredKind],
        of_boxes: Labels | None,
    ) -> tuple[FieldKind, Column]:
        """A field. feature: its name, or that of the boxes. kind: None for images and masks. Raises UsageError."""
        word = declared.get(name)
        if feature == BOXES and self._boxes is not None and of_boxes is not None:
            assert isinstance(kind, FieldKind)
            return kind, self._boxes.column(of_boxes.numbers)
        if isinstance(kind, FieldKind) and not are_pixels(word):
            return kind if of_boxes else replace(kind, follows=None), self.features[feature].column(kind)
        images, pixels = self.images(feature), word if isinstance(word, str) else "mask"
        if not isinstance(kind, FieldKind):
            kind = first_pixels(pixels, name, images.value, range(len(self)))
        return kind, images
