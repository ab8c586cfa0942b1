"""A listing of fields without images: one column has the keys of samples that are packed already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.columns import ClassParser, InferringParser, KeyParser, parser_for
from rawpack_packer.sources.listing.faults import CellPosition
from rawpack_packer.sources.listing.lines import READERS, long_cells
from rawpack_packer.sources.listing.reading import PATH_NAMES, blocks, check_header, check_unique
from rawpack_packer.sources.table.columns import Column, Texts
from rawpack_packer.text import listed, plain

_SUFFIXES = tuple(READERS)


@dataclass(frozen=True, eq=False)
class KeyedFields:
    """Fields of samples that are named by their keys."""

    where: str
    """The file, printable."""
    keys: Texts
    kinds: Mapping[str, FieldKind]
    columns: Mapping[str, Column]
    names: tuple[str, ...] | None
    """What the numbers of `label` mean; None where the file has numbers itself."""


def read_keyed(
    path: str | os.PathLike[str],
    key: str | None,
    declared: Mapping[str, FieldKind | None],
    known: Mapping[str, FieldKind],
) -> KeyedFields:
    """Read a CSV, TSV or JSON Lines file.

    key: the column of keys; None takes `key`, or else the first of `PATH_NAMES`. declared: what columns hold, where
    their values do not show it. known: what columns hold unless that is declared.

    Raises BadListingError with the first fault, its line and column.
    """
    file = Path(path)
    where = plain(os.fsencode(file))
    if file.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{where}: the name of a file with fields ends in {', '.join(_SUFFIXES)}")
    with reading(where), file.open("rb") as opened, long_cells():
        rows = READERS[file.suffix.lower()](opened, where)
        names = list(rows.names)
        found = key or next((name for name in ("key", *PATH_NAMES) if name in names), None)
        if found is None or found not in names:
            raise UsageError(
                f"{where} has no column {found or 'key'!r} with the keys of the samples, only "
                f"{listed(names, 8) or 'none'}: name it with {opt.key_column('COLUMN')}"
            )
        fields = [name for name in names if name != found]
        check_header(names, fields, where)
        for name in declared:
            if name not in fields:
                raise UsageError(f"{opt.fields(name)}: {where} has no such column besides its keys")
        if not fields:
            raise UsageError(f"{where} has keys, and no field")
        places = [CellPosition(where, name, i if rows.cells else 0, rows.cells) for i, name in enumerate(names, 1)]
        parsers = [
            KeyParser(place) if place.name == found else parser_for(place, _kind(place.name, declared, known), None)
            for place in places
        ]
        lines = [np.empty(0, np.int64)]
        for numbers, columns in blocks(rows):
            lines.append(numbers)
            for parser, values in zip(parsers, columns, strict=True):
                parser.add(values, numbers)
    if len(lines) == 1:
        raise UsageError(f"{where} names no sample: there is no line after the names of the columns")
    parsed = {place.name: (parser, parser.finish()) for place, parser in zip(places, parsers, strict=True)}
    keys = parsed.pop(found)[1][1]
    assert isinstance(keys, Texts)
    check_unique(keys, np.concatenate(lines), places[names.index(found)], "name each sample once")
    label = parsed["label"][0] if "label" in parsed else None
    label = label.chosen if isinstance(label, InferringParser) else label
    return KeyedFields(
        where,
        keys,
        {name: kind for name, (_, (kind, _)) in parsed.items()},
        {name: column for name, (_, (_, column)) in parsed.items()},
        tuple(label.classes) if isinstance(label, ClassParser) else None,
    )


def _kind(name: str, declared: Mapping[str, FieldKind | None], known: Mapping[str, FieldKind]) -> FieldKind | None:
    kind = declared.get(name, known.get(name))
    if (name in declared and kind is None) or (kind is not None and (kind.mask or kind.boxes or kind.follows)):
        raise UsageError(
            f"{opt.fields(name)}: masks, and boxes and what follows them, come with the images: pack again"
        )
    return kind
