"""The records of TFRecord files as a source."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Column, Scanning, SourceInfo, numbered, unseen
from rawpack_packer.sources.declared import with_arrays
from rawpack_packer.sources.fields import DeclaredKind, FieldKind, are_pixels
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.inferred import first_pixels, hints
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import (
    NO_COUNTS,
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
from rawpack_packer.sources.table.columns import Fault, RowNumbers, Rows, Texts, spans_of
from rawpack_packer.sources.table.keys import unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, source_name
from rawpack_packer.sources.table.options import TableOptions
from rawpack_packer.sources.tfrecord import NOT_READ, files_of, info_in, kinds_in, records_in
from rawpack_packer.sources.tfrecord.columns import BOX_FEATURES, BoxFeatures, ExampleImages, FeatureValues
from rawpack_packer.sources.tfrecord.example import FLOATS, INTS, ExamplePass
from rawpack_packer.text import plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_BOXES, _LABEL, _TEXT = "boxes", "image/class/label", "image/class/text"
_KEYS = ("image/filename", "filename", "file_name", "image_name", "id")
_HABITS = Habits(
    labels=(_LABEL, _TEXT),
    no_image=f", which are features of image files, such as JPEG (for pixels see {NOT_READ})",
)
_MOST_CLASSES = 1 << 16


class TfrecordSource(TableSource):
    """The records of TFRecord files as a `Source`: each a `tf.train.Example` with an image file.

    Features become fields under the last part of their names. `label` is `image/class/label`, `label`, `class` or
    `target`. `image/class/text` has the names of its classes, whose numbers are then counted from 1 in the files.
    Boxes of TensorFlow's object detection and of TensorFlow Datasets become the field `boxes`. Keys are the names of
    files, where each sample has another one; else samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        spool: Spool | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """path: see `files_of`. spool: for files behind URLs. progress: called with the number of records. options: of
        `TableOptions`.

        Raises UsageError where a file is no TFRecord file, is damaged or holds no Examples, or where something has to
        be named.
        """
        where, files = source_name(path), files_of(path, spool)
        folder = None if files.remotes else Listing(Path(files.paths[0]).parent)
        said = TableOptions(**options)
        records = _Records(files, where, folder, progress)
        choice, shorts = _named(said.choice(), records.plain_features)
        # What TensorFlow Datasets writes for features.
        lists = {} if folder is None else {
            name: folder.path / f"{name.replace('/', '-')}.labels.txt" for name in records.features
        }  # fmt: skip
        known = {name: classes_of(one) for name, one in lists.items() if one.is_file()}
        kinds = _kinds(records, shorts, choice.declared, {} if folder is None else kinds_in(folder))
        infos = [records.info(name, kind, known.get(name)) for name, kind in kinds.items()]
        wanted, notes = _wanted(choice, shorts, records)
        chosen = choose(infos, wanted, where, _HABITS)
        labels, of_boxes = records.all_labels(chosen, said.classes, known)
        names_only = chosen.label == _LABEL and labels and labels.names and choice.fields is None
        fields, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, of in chosen.fields.items():
            if of != _TEXT or not names_only:  # else these are the names of the classes
                word = choice.declared.get(name)
                fields[name], columns[name] = records.field(name, of, kinds[of], word, of_boxes)
        fields = with_arrays(fields, said.arrays, where)
        keys = None if chosen.key is None else records.keys(chosen.key, named=said.key_column is not None)
        info = SourceInfo(
            kind="tfrecord",
            root=where,
            paths=tuple(dict.fromkeys([str(Path(path).absolute()), *files.paths])) if folder else (),
            fields=fields,
            numbered=keys is None,
            options=said.given(),
            counts={**NO_COUNTS, "columns_left_out": len(chosen.left_out)},
            problems=(
                *notes,
                *records.notes,
                *chosen.left_out,
                *chosen.notes,
                *hints(fields, [*choice.declared, _BOXES]),
            ),
        )
        details = {"features": {name: one.words(records.sound) for name, one in records.features.items()}}
        """What records hold, in words: name of a feature -> int64, text, image."""
        images, numbers = records.images(chosen.image), RowNumbers(range(len(records)))
        super().__init__(info, keys or numbers, images, columns, labels=labels, of_boxes=of_boxes, details=details)


def _named(said: ColumnChoice, features: Sequence[str]) -> tuple[ColumnChoice, dict[str, str]]:
    """What the user says, with the names of fields in place of features, `NAME=FEATURE`, or their ends; and feature ->
    its field."""
    shorts = {full: short for short, full in named_apart(features).items()}
    declared = dict[str, DeclaredKind]()
    for word, kind in said.declared.items():
        name, _, of = word.rpartition("=")
        full = None if word in shorts.values() else column_called(of, features)
        if full is not None:
            shorts[full] = name or shorts[full]
        declared[word if full is None else shorts[full]] = kind
    return replace(said, declared=declared, names=shorts), shorts


def _wanted(said: ColumnChoice, shorts: Mapping[str, str], records: _Records) -> tuple[ColumnChoice, list[str]]:
    """What the user says of columns, who may write the last part of a name, too; and the keys, if some feature has
    them. What the summary says where none has."""
    full = {short: name for name, short in shorts.items()}

    def called(one: str) -> str:
        return full.get(one) or column_called(one, shorts) or one

    image, label, key = (None if one is None else called(one) for one in (said.image, said.label, said.key))
    fields = None if said.fields is None else {shorts.get(called(one), one): called(one) for one in said.fields}
    notes = list[str]()
    if key is None:
        fit = (name for name in _KEYS if records.single_texts(name) and records.keys(name, named=False, notes=notes))
        key = next(fit, None)
    return replace(said, image=image, label=label, key=key, fields=fields), notes if key is None else []


def _kinds(
    records: _Records, shorts: Mapping[str, str], declared: Mapping[str, DeclaredKind], known: Mapping[str, FieldKind]
) -> dict[str, FieldKind | str | None]:
    """What features are as fields: None for images and masks, or why they can be none. shorts: the names of fields.
    known: what TensorFlow Datasets says."""
    kinds = dict[str, FieldKind | str | None]()
    for name, short in shorts.items():
        one, said = records.features[name], declared.get(short)
        kinds[name] = known.get(name) or one.field(short, records.sound)
        if records.follows(name):
            kinds[name] = FieldKind(one.dtype, (None,), follows="rows")
        if are_pixels(said) and not one.is_image:
            kinds[name] = f"it contains {one.words(records.sound)}; images and masks are files"
        elif said is not None:
            kinds[name] = None if isinstance(said, str) else said
    return kinds if records.boxes is None else {**kinds, _BOXES: FieldKind("float32", (None, 5), boxes="yolo")}


def _first_class(numbers: Rows, texts: Sequence[str], first: int) -> tuple[int, tuple[str, ...] | None]:
    """The number of the first class, `first` unless 0 occurs; and the names of classes from that on, None where not
    each number has one name. numbers, texts: of all labels. Numbers that do not occur are their own names."""
    first = 0 if not len(numbers) or numbers.min() < first else first
    pairs = {*zip(numbers.tolist(), texts, strict=True)} if len(texts) == len(numbers) else ()
    name_of = dict(pairs)
    if not name_of or len(name_of) < len(pairs) or min(name_of) < 0 or max(name_of) > _MOST_CLASSES:
        return first, None
    names = dict[str, None]()
    for number in range(first, max(name_of) + 1):
        name = name_of.get(number) or str(number)
        names[f"{name} {number}" if name in names else name] = None
    return first, tuple(names)


class _Records:
    """All records: where they are, and the values of their features."""

    def __init__(self, files: NamedFiles, where: str, folder: Listing | None, progress: Scanning) -> None:
        """where: the source, printable. folder: that of the files, if it is on this machine. Raises UsageError."""
        self._where, found = where, dict[str, FeatureValues]()
        self._file, self._offset, self._size = array("i"), array("q"), array("q")
        self._faults = dict[int, Fault]()
        look, info = ExamplePass(files), None if folder is None else info_in(folder)
        for k, examples in look:
            before = len(self)
            with reading(files.name(k)):
                for one in examples:
                    row = len(self)
                    self._file.append(k)
                    self._offset.append(one.offset)
                    self._size.append(one.size)
                    if one.fault:
                        self._faults[row] = "corrupt", one.fault
                    for name, feature in one.features.items():
                        if name not in found:
                            found[name] = FeatureValues(name, where)
                        found[name].add(row, feature)
                    if row % PROGRESS_EVERY == 0:
                        progress(row)
            said = None if info is None else records_in(Path(files.paths[k]), info)
            if said not in (None, len(self) - before):
                raise UsageError(
                    f"{files.name(k)} has {len(self) - before:,} records, and the dataset_info.json next to it says "
                    f"{said:,}: copy both again"
                )
        if not found:
            raise UsageError(f"{where} has no records" + (" that are not damaged" if len(self) else ""))
        progress(len(self))
        self._files, self.features = look.files, {name: found[name] for name in sorted(found)}
        for one in found.values():
            one.pad(len(self))
        self.sound = np.ones(len(self), np.bool_)
        """(n,): whether each record can be read."""
        self.sound[[*self._faults]] = False
        filled = {name for name, one in found.items() if one.counts.any()}
        of_boxes = [of for of in BOX_FEATURES if {*of.sides} <= filled and _BOXES not in found]
        self.boxes = max(of_boxes, key=lambda of: len(filled & {*of.all}), default=None)
        """What boxes are made of."""
        self.notes: list[str] = []
        """What the summary says of the classes of boxes."""
        self.plain_features = sorted(filled - {*(self.boxes.all if self.boxes else ())})
        """The names of the features that boxes are not made of, and that have any values."""

    def __len__(self) -> int:
        return len(self._file)

    def info(self, name: str, kind: FieldKind | str | None, classes: tuple[str, ...] | None) -> ColumnInfo:
        """A feature, or all boxes, as a column."""
        if name not in self.features:
            return ColumnInfo(name, "boxes", kind)
        one = self.features[name]
        single = int(one.counts.max()) == 1
        return ColumnInfo(
            name=name,
            type=one.words(self.sound),
            field=kind,
            is_image=single and one.is_image,
            is_label=single and (one.kind == INTS or one.is_text),
            is_whole=single and one.kind == INTS,
            first=one.singles,
            is_key=single and one.is_text,
            classes=classes if one.kind == INTS else None,
        )

    def single_texts(self, name: str) -> bool:
        one = self.features.get(name)
        return one is not None and one.is_text and int(one.counts.max()) == 1

    def keys(self, name: str, *, named: bool, notes: list[str] | None = None) -> Texts | None:
        """See `unique_keys`. Records that cannot be read have their numbers."""
        values = self.features[name].singles()
        texts = [numbered(i) if i in self._faults else one or "" for i, one in enumerate(values)]
        return unique_keys(texts, self._where, named, notes, f"feature {plain(name)!r}")

    def images(self, name: str) -> ExampleImages:
        """The image files in a feature."""
        more = {"faults": self._faults, "inside": self.features[name].spans}
        return spans_of(ExampleImages, self._files, self._file, self._offset, self._size, **more)

    def all_labels(
        self, chosen: ChosenColumns, classes: Classes | None, known: Mapping[str, tuple[str, ...]]
    ) -> tuple[Labels | None, Labels | None]:
        """Those of records and those of boxes. known: feature -> the names of its classes. Raises UsageError."""
        labels, of_boxes = None, None
        if chosen.label is not None:
            labels = self.labels(chosen.label, classes, known.get(chosen.label))
        if self.boxes is not None and _BOXES in chosen.fields.values():
            of_boxes = self.box_labels(self.boxes, None if labels else classes, known.get(self.boxes.label))
        if classes is not None and labels is None and not (of_boxes and of_boxes.names):
            raise UsageError(
                f"{opt.classes} names labels, and {self._where} has no feature of labels: name it by {opt.label_column}"
            )
        return labels, of_boxes

    def field(
        self, name: str, of: str, kind: FieldKind | str | None, word: DeclaredKind | None, of_boxes: Labels | None
    ) -> tuple[FieldKind, Column]:
        """A field. of: the feature, or the boxes. kind: None for images and masks. word: what the user says of it.
        Raises UsageError."""
        if of == _BOXES and self.boxes is not None and of_boxes is not None:
            assert isinstance(kind, FieldKind)
            labeled = self._box_classes(self.boxes)
            of_label = self.boxes.counts(self.features) if labeled is None else labeled.counts
            return kind, self.boxes.column(self.features, of_boxes.numbers, of_label, self._where)
        if kind is None or are_pixels(word):
            images = self.images(of)
            found = kind or first_pixels(
                word if isinstance(word, str) else "mask", name, images.value, range(len(self))
            )
            assert isinstance(found, FieldKind)
            return found, images
        assert isinstance(kind, FieldKind)
        kind = kind if of_boxes else replace(kind, follows=None)
        return kind, self.features[of].column(kind, self.sound)

    def labels(self, name: str, classes: Classes | None, known: tuple[str, ...] | None) -> Labels:
        """The label of each record. known: the names of its classes. Raises UsageError."""
        values, first = self.features[name].singles(), 0
        if name == _LABEL and _TEXT in self.features and self.features[name].kind == INTS:
            texts = self.features[_TEXT].singles()
            there = [(one, text) for one, text in zip(values, texts, strict=True) if one is not None]
            first, known = _first_class(np.array([one for one, _ in there]), [text or "" for _, text in there], 1)
            values = [None if one is None else one - first for one in values]
        return number_labels(values, classes, where=self._where, known=known, row_name=lambda i: f"record {i}")

    def box_labels(self, boxes: BoxFeatures, classes: Classes | None, known: tuple[str, ...] | None) -> Labels:
        """The label of each box. known: the names of their classes. Raises UsageError."""
        label, text = self._box_classes(boxes), self.features.get(boxes.text)
        texts = [] if text is None or not text.is_text else text.texts
        if label is not None and label is not text:
            first, names = _first_class(label.numbers, texts, boxes.first)
            if first and not (classes or known or names):
                self.notes.append(f"classes are counted from {first} in {plain(boxes.label)}, and from 0 in the store")
            return number_labels(label.numbers - first, classes, where=self._where, known=known or names)
        if label is not None:
            return number_labels(texts, classes, where=self._where)
        return Labels(np.full(int(boxes.counts(self.features).sum()), -1), None)

    def _box_classes(self, boxes: BoxFeatures) -> FeatureValues | None:
        """The feature with the classes of boxes: numbers, or else texts, if there are any."""
        label, text = self.features.get(boxes.label), self.features.get(boxes.text)
        if label is not None and label.kind == INTS:
            return label
        return text if text is not None and text.is_text and text.texts else None

    def follows(self, name: str) -> bool:
        """Whether a feature of objects has a number for each box."""
        boxes, one = self.boxes, self.features[name]
        if boxes is None or one.kind not in (FLOATS, INTS) or not name.startswith(boxes.prefix):
            return False
        return bool((one.counts == boxes.counts(self.features)).all())
