"""What a scan found, as a table: the last step of each kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rawpack_packer.sources.base import Column, Rows, SourceInfo
from rawpack_packer.sources.declared import with_arrays
from rawpack_packer.sources.fields import FieldKind, ImageKind
from rawpack_packer.sources.inferred import hints
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import (
    EMPTY,
    LABEL,
    LABEL_KIND,
    NO_COUNTS,
    UNLABELLED,
    ChosenColumns,
    Labels,
)
from rawpack_packer.sources.table.columns import Files, Numbers, RowNumbers, Texts, texts_of
from rawpack_packer.sources.table.named_files import files_at, source_name
from rawpack_packer.sources.table.objects import Objects, two_classes, with_followers
from rawpack_packer.sources.table.table import NO_STATES, ImageColumn, KeyColumn, Table, TablePart

NO_FIELDS: Mapping[str, FieldKind] = {}
NO_COLUMNS: Mapping[str, Column] = {}


def assemble(
    *,
    kind: str,
    root: str,
    paths: tuple[str, ...],
    chosen: ChosenColumns,
    images: ImageColumn,
    fields: Mapping[str, FieldKind],
    columns: Mapping[str, Column],
    count: int,
    options: Mapping[str, str],
    keys: Texts | None = None,
    image: ImageKind | None = None,
    counts: Mapping[str, int] | None = None,
    notes: Iterable[str] = (),
    declared: Iterable[str] = (),
    arrays: Iterable[str] = (),
    states: Rows = NO_STATES,
    labels: Labels | None = None,
    of_boxes: Labels | None = None,
    objects: Objects | None = None,
    follow: Iterable[str] = (),
    **members: Any,
) -> Table:
    """The table of a file with columns.

    kind, root, paths, options, image: see `SourceInfo`. count: of rows. keys: None where rows have none. counts: those
    of labels and of columns that are left out, unless the kind has others. notes: lines of the summary. declared:
    fields of which the user, or the file, says what they hold. arrays: fields that are no images. objects: of images,
    which become further fields; their classes, if they have some, take the place of `of_boxes`. follow: fields with a
    value for each box. states, labels, of_boxes, members: see `table_of`. Raises UsageError.
    """
    if counts is None:
        counts = {**NO_COUNTS, "columns_left_out": len(chosen.left_out)}
    object_kinds, object_columns = objects.fields() if objects else ({}, {})
    kinds = with_followers(with_arrays({**fields, **object_kinds}, arrays, root), follow)
    problems = [*notes, *chosen.left_out, *chosen.notes, *hints(kinds, [*declared, *object_kinds], image)]
    if objects is not None:
        problems += [*objects.left_out, *two_classes(labels, objects.labels)]
        of_boxes = objects.labels or of_boxes
    info = SourceInfo(
        kind=kind,
        root=root,
        paths=paths,
        fields=kinds,
        image=image,
        numbered=keys is None,
        options=options,
        counts=counts,
        problems=tuple(problems),
    )
    named = keys or RowNumbers(range(count))
    columns = {**columns, **object_columns}
    return table_of(info, named, images, columns, states, labels=labels, of_boxes=of_boxes, **members)


def table_of(
    info: SourceInfo,
    keys: KeyColumn,
    images: ImageColumn,
    columns: Mapping[str, Column],
    states: Rows = NO_STATES,
    *,
    labels: Labels | None = None,
    of_boxes: Labels | None = None,
    **more: Any,
) -> Table:
    """A table of rows that have keys.

    columns: a value of each field. states: (m, 2), of the files that are neither images nor masks, see
    `Source.states`. labels: field `label`, which is the first unless `info.fields` has it elsewhere, its classes, and
    the counts that belong to it. of_boxes: those of boxes, whose classes are named where there is no label. more:
    further members of the table.
    """
    if labels is not None:
        info = with_labels(info, labels)
        columns = {**columns, LABEL: Numbers(labels.numbers, labels.faults)}
        columns = {name: columns[name] for name in info.fields}
    elif of_boxes is not None:
        names, empty = of_boxes.names, of_boxes.empty
        info = replace(info, classes=names, empty_classes=empty, counts={**info.counts, EMPTY: len(empty)})
    states_apart = getattr(images, "states_apart", None)
    row_states, of_files = (None, NO_STATES) if states_apart is None else states_apart()
    masks = [column.states for column in columns.values() if isinstance(column, Files)]
    label = columns.get(LABEL)
    numbers = isinstance(label, Numbers) and label.values.dtype == np.int64 and label.values.ndim < 2
    members = {"labels": label.values if isinstance(label, Numbers) and numbers else None, **more}
    states = np.concatenate([of_files, *masks, states])
    table = Table(info, TablePart(images, keys, columns), row_states, states, **members)
    if labels is not None and table.labels is not None and UNLABELLED in info.counts:
        table.info = replace(info, counts={**info.counts, UNLABELLED: table.unlabelled()})
    return table


def table_of_files(
    folder: Listing,
    kind: str,
    names: Sequence[str],
    *,
    lists: Sequence[str] = (),
    labels: Labels | None = None,
    fields: Mapping[str, FieldKind] = NO_FIELDS,
    columns: Mapping[str, Column] = NO_COLUMNS,
) -> Table:
    """The table of image files below a folder, whose names are their keys.

    names: relative paths, in the order of the samples. lists: the names of the files that describe them, which must not
    change while they are packed either. labels: one for each. fields, columns: others, by name. Raises UsageError where
    a file is not there.
    """
    root, where = str(folder.path.absolute()), source_name(folder)
    states = files_at([os.path.join(root, name) for name in (*names, *lists)]).states  # noqa: PTH118 - one for each image
    keys = texts_of(names, where)
    info = SourceInfo(kind=kind, root=where, paths=(root,), fields=fields)
    images = Files(root, keys, states[: len(names)])
    return table_of(info, keys, images, columns, states[len(names) :], labels=labels)


def with_labels(info: SourceInfo, labels: Labels) -> SourceInfo:
    """What is known of a source with these labels, which are its first field. Counts of labels are filled in, if the
    source has them."""
    first = () if LABEL in info.fields else (LABEL,)
    fields = {**dict.fromkeys(first, LABEL_KIND), **info.fields, LABEL: LABEL_KIND}  # a dict keeps the place of a name
    counts = {name: labels.counts.get(name, number) for name, number in info.counts.items()}
    return replace(
        info, fields=fields, classes=labels.names, empty_classes=labels.empty, counts=counts, doubts=labels.doubts
    )
