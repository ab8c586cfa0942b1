"""Labels of images by a file of their own: a table, ImageNet's development kit, or a text file.

A table has a first line of names: one of its columns names images, another one has their classes. A text file has one
class for each image in the order of their names, or `NAME CLASS` in any order. A class is a word, such as a WordNet id,
or a number from 0 on. Words are numbered in order, as class folders are.

An image is named by its path, which may begin with the folder that is packed, or by its file name, with or without the
extension.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reason_of
from rawpack_packer.options import opt
from rawpack_packer.sources.files import noting_reads
from rawpack_packer.sources.listing.columns import RawColumn, read_columns
from rawpack_packer.sources.listing.lines import READERS, BadListingError, ListingRows, long_cells
from rawpack_packer.sources.table.choose import LABEL, Labels, number_labels
from rawpack_packer.sources.table.columns import Column, Rows, texts_of
from rawpack_packer.sources.table.named_files import natural
from rawpack_packer.text import composed, count, lines_in, listed, near_path, plain

_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_ILSVRC_IDS = Path(__file__).with_name("ilsvrc2012.txt")
"""The WordNet ids of ImageNet's 1,000 classes in the order of ILSVRC2012's own ids, which count from 1."""
_TARS = (".tar", ".tgz", ".tar.gz")
_MOST_BYTES = 1 << 28
"""Of a file with labels."""
_MOST_CLASSES = 1_000_000
_KAGGLE = "PredictionString"
"""The column of LOC_val_solution.csv whose first word is the class; boxes come after it."""
_CALLED = re.compile(r"image|img|file|path|photo|picture|(?<!un)name|^id|id$", re.IGNORECASE)
"""Names of columns that are believed to name images, rather than count rows."""


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """What a file says of images."""

    labels: Labels
    """Of the images; -1 of those that it does not name."""
    in_order: bool = False
    """Whether it has one for each image, rather than their names."""
    others: Sequence[str] = ()
    """The names in it that are of no image."""
    columns: Mapping[str, RawColumn] = field(default_factory=dict)
    """Those of a table that name neither images nor classes."""
    rows: Rows | None = None
    """(n,): the row of each image in `columns`; -1 of those that it does not name."""

    def column(self, name: str) -> Column | None:
        """The values of one of `columns` for the images, "" of those that it does not name; None for any other."""
        if name not in self.columns or self.rows is None:
            return None
        if (self.rows >= 0).all():
            with suppress(BadListingError):  # of several kinds: all are texts
                return self.columns[name].converted(None)[1].pick(self.rows)
        texts = _texts(self.columns[name])
        return texts_of([texts[row] if row >= 0 else "" for row in self.rows.tolist()])


def read_labels(
    path: str | os.PathLike[str], keys: Sequence[str], top: str, column: str | None = None, data: bytes | None = None
) -> GivenLabels:
    """The labels of images with these keys, which are in order. top: the folder that is packed. column: of a table, the
    one of the classes. data: what is in the file, if it is in an archive. Raises UsageError where they do not fit."""
    where, shown = Path(path), plain(os.fspath(path))
    try:
        if data is None and (where.is_dir() or where.name == _TRUTH or where.name.lower().endswith(_TARS)):
            return _in_order(_by_kit(where, shown), keys, shown)
        data = _checked(where.read_bytes() if data is None else data)
        reader = READERS.get(where.suffix.lower())
        table = None if reader is None else _by_table(reader, data, keys, top, column, shown)
        return table or _by_text(data.decode("utf-8-sig"), keys, top, shown)
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} cannot be read as labels: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"the labels file {shown} does not exist{near_path(str(where))}") from error
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {reason_of(error)}; check the path of the labels") from error


def _by_table(
    reader: Callable[[BinaryIO, str], ListingRows],
    data: bytes,
    keys: Sequence[str],
    top: str,
    column: str | None,
    shown: str,
) -> GivenLabels | None:
    """The labels in a table; None for a file with a single column. Raises UsageError."""
    with long_cells():
        rows = reader(io.BytesIO(data), shown)
        if len(rows.names) < 2:
            return None
        if (_rows_of(keys, rows.names, top) >= 0).any():  # it has no line of names
            of_first = [(1, rows.names)]
            rows = replace(rows, names=[f"{n}" for n in range(1, len(rows.names) + 1)], rows=chain(of_first, rows.rows))
        raw = read_columns(rows, shown).raw
    if not any(len(values.lines) for values in raw.values()):
        raise UsageError(f"{shown} has a line of names and no rows: give the table that has a row for each image")
    # The column that names most images. Two that name as many, but not the same in each row, are refused: one may be
    # the numbers of the rows.
    some = [name for name in raw if name not in ((column,) if column else (LABEL, _KAGGLE))] or [*raw]
    rows_of = {name: _rows_of(keys, _texts(raw[name]), top) for name in some}
    most = max((of_images >= 0).sum() for of_images in rows_of.values())
    best = [name for name in some if (rows_of[name] >= 0).sum() == most]
    best = [name for name in best if _CALLED.search(name)] or best
    images, found = best[0], rows_of[best[0]]
    for other in best[1:] if len(raw) > 2 and most else ():
        if not np.array_equal(found, rows_of[other]):
            raise UsageError(
                f"{shown}: {plain(images)} and {plain(other)} both look like names of images, and disagree: take out "
                "the one that is not"
            )
    others = [name for name in raw if name != images]
    alone = len(others) == 1 or not most  # where no image is named, that is said below
    label = column or next((one for one in (LABEL, _KAGGLE) if one in others), others[0] if alone else None)
    if label not in others:
        raise UsageError(
            f"{shown} has the columns {listed(others, 8)} besides {plain(images)}, which names images: name that "
            f"of the classes, {opt.label_column(plain(others[0]))}"
        )
    texts = [text.strip() for text in _texts(raw[label])]
    texts = [text.partition(" ")[0] for text in texts] if label == _KAGGLE else texts
    labels, are_names = None, label == _KAGGLE or {*map(str.lower, texts)} <= {"true", "false", ""}
    if not are_names:
        try:
            _, values, labels = raw[label].labels(None, None)
            are_names = bool(getattr(values, "faults", None))
        except BadListingError:  # the first look like numbers, and others do not: all are texts
            are_names = True
    if are_names:
        labels = number_labels(texts, where=shown)
    if labels is None:
        raise UsageError(f"{shown}: column {plain(label)} contains no classes, but other values: pack it as a listing")
    by_name = _by_name(_texts(raw[images]), _counted(labels), found, keys, shown)
    return replace(by_name, columns={name: raw[name] for name in others if name != label}, rows=found)


def _texts(column: RawColumn) -> list[str]:
    return ["" if value is None else str(value) for block in column for value in block]


def _by_text(text: str, keys: Sequence[str], top: str, shown: str) -> GivenLabels:
    numbered = [(number, line.strip()) for number, line in enumerate(lines_in(text), 1) if line.strip()]
    lines = [line for _, line in numbered]

    def at(row: int) -> str:
        return f"line {numbered[row][0]}"

    ways = list[list[list[str]]]()
    for divide in (str.rsplit, str.split):  # at one blank: a name may have blanks, or else a class
        pairs = [line.split("\t")[:2] if "\t" in line else divide(line, maxsplit=1) for line in lines]
        ways += [pairs] if pairs and all(len(pair) == 2 for pair in pairs) else []
    found = [_rows_of(keys, [name for name, _ in pairs], top) for pairs in ways]
    k = max(range(len(ways)), key=lambda k: int((found[k] >= 0).sum()), default=-1)
    if k < 0 or (len(lines) == len(keys) and not (found[k] >= 0).any()):
        return _in_order(lines, keys, shown, at)
    labels = _numbered([label for _, label in ways[k]], shown, at)
    return _by_name([name for name, _ in ways[k]], labels, found[k], keys, shown)


def _by_name(names: Sequence[str], labels: Labels, found: Rows, keys: Sequence[str], shown: str) -> GivenLabels:
    """names, labels: of each row. found: the row of each image, or -1. Raises UsageError."""
    if not (found >= 0).any():
        raise UsageError(
            f"{shown} has a label for none of the images, such as {plain(keys[0])}: it names them as "
            f"{plain(names[0])}; give their labels, or pack the folder of these alone"
        )
    rows, images = np.unique(found, return_counts=True)
    for row in rows[(rows >= 0) & (images > 1)][:1]:
        one, other = (plain(keys[i]) for i in np.flatnonzero(found == row)[:2])
        raise UsageError(f"{shown}: {plain(names[row])} names both {one} and {other}: write their paths")
    firsts = _first_rows(names)
    for row, name in enumerate(names):
        if labels.numbers[firsts[_spelled(name)]] != labels.numbers[row]:
            raise UsageError(f"{shown} has two labels for {plain(name)}: give each image one")
    others = np.setdiff1d(np.unique([*firsts.values()]), rows)
    numbers = np.where(found >= 0, labels.numbers[found], -1)
    return GivenLabels(Labels(numbers, labels.names), others=[names[row] for row in others])


def _in_order(
    values: Sequence[str], keys: Sequence[str], shown: str, at: Callable[[int], str] = lambda row: f"row {row}"
) -> GivenLabels:
    """at: see `number_labels`. Raises UsageError."""
    if len(values) != len(keys):
        raise UsageError(
            f"{shown} has {count(len(values), 'label')} for {count(len(keys), 'image')}: give their labels"
        )
    for one, two in pairwise(keys):
        parts = [*zip(natural(one), natural(two), strict=False)]
        k = next((k for k, (a, b) in enumerate(parts) if a != b), 0)
        if k % 2 and parts[k][0] > parts[k][1]:  # in the order of texts, and not in that of their numbers
            raise UsageError(
                f"{shown} has a label for each image in their order, and whether {plain(one)} is before {plain(two)}, "
                "as texts are sorted, or after it, as numbers are, it does not say: write NAME CLASS in each line"
            )
    labels = _numbered(values, shown, at)
    if labels.names is None and labels.numbers.min() > 0:
        raise UsageError(
            f"the labels in {shown} begin at {labels.numbers.min()}, and classes are counted from 0. ILSVRC ids are no "
            f"labels: give ImageNet's development kit, ILSVRC2012_devkit_t12.tar.gz, its folder, or its {_TRUTH}"
        )
    return GivenLabels(labels, in_order=True)


def _numbered(values: Sequence[str], shown: str, at: Callable[[int], str]) -> Labels:
    """at: see `number_labels`."""
    whole = all(value.isdecimal() for value in values)
    numbers = [int(value) for value in values] if whole else values
    return _counted(number_labels(numbers, where=shown, row_name=at))


def _counted(labels: Labels) -> Labels:
    """Whole numbers from 0 on as classes that are called by them; others as they are."""
    numbers = labels.numbers
    if labels.names is not None or 0 not in numbers or numbers.min() < -1 or numbers.max() >= _MOST_CLASSES:
        return labels
    return Labels(numbers, tuple(map(str, range(numbers.max() + 1))))


def _spelled(name: str) -> str:
    return composed(name.strip().removeprefix("./"))


def _first_rows(names: Sequence[str]) -> dict[str, int]:
    """Name -> the first row that has it."""
    return {_spelled(name): row for row, name in reversed([*enumerate(names)])}


def _rows_of(keys: Sequence[str], names: Sequence[str], top: str) -> Rows:
    """(n,): the row that names each image, see the top of this module; -1 for none."""
    row_of, found = _first_rows(names), np.full(len(keys), -1)
    for i, key in enumerate(map(composed, keys)):
        forms = (key, f"{top}/{key}", key.rpartition("/")[2])
        known = (row_of.get(one) for form in forms for one in (form, os.path.splitext(form)[0]))  # noqa: PTH122
        found[i] = next((row for row in known if row is not None), -1)
    return found


def _by_kit(path: Path, shown: str) -> list[str]:
    """The WordNet id of each validation image, for which the kit, a folder, an archive or the file itself, has ILSVRC's
    own."""
    truth = None
    if path.is_dir() or path.name == _TRUTH:
        places = (path / _TRUTH, path / "data" / _TRUTH) if path.is_dir() else (path,)
        truth = next((_checked(file.read_bytes()) for file in places if file == path or file.is_file()), None)
    else:
        with path.open("rb") as opened, noting_reads(opened) as noted, tarfile.open(fileobj=noted) as archive:
            for member in archive:
                if PurePosixPath(member.name).name == _TRUTH and member.isreg() and member.size <= _MOST_BYTES:
                    file = archive.extractfile(member)
                    truth = None if file is None else file.read()
                    break
    if truth is None:
        raise UsageError(f"{shown} is not ImageNet's development kit: it has no {_TRUTH}; the kit is a file of its own")
    ids = {str(number): name for number, name in enumerate(_ILSVRC_IDS.read_text().split(), 1)}
    numbers = truth.decode().split()
    unknown = next((number for number in numbers if number not in ids), None)
    if unknown is not None:
        raise UsageError(f"{shown}: {_TRUTH} has {plain(unknown[:20])}, and ILSVRC2012's classes are 1 to {len(ids):,}")
    return [ids[number] for number in numbers]


def _checked(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the file has {len(data)} bytes: it is no list of labels")
    return data
