"""Which column of a table is the image, which the label, which the key, and which become fields; and how labels become
the numbers of classes. Every source that finds texts or numbers as labels asks here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import is_no_fault_of_data, reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.fields import DeclaredKind, FieldKind, are_pixels, check_names
from rawpack_packer.text import composed, lines_in, listed, plain

LABEL = "label"
UNLABELLED, EMPTY = "unlabelled", "empty_classes"
"""Entries of `SourceInfo.counts`: samples with label -1, and classes without samples."""
LABEL_KIND = FieldKind("int64")
NO_COUNTS = {UNLABELLED: 0, EMPTY: 0}
_BLOCK = 1 << 16
Classes = str | os.PathLike[str] | Sequence[str]
"""Names of classes in the order of their numbers, or a file with one per line."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each sample."""

    numbers: Rows
    """(n,): -1 without a class."""
    names: tuple[str, ...] | None
    """Of the classes; None where labels are numbers without names."""
    doubts: tuple[str, ...] = ()
    """See `SourceInfo.doubts`."""
    notes: tuple[str, ...] = ()
    """What the summary says of their names."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Samples that are rejected, which are -1 here: number -> what is wrong, and where."""

    @property
    def empty(self) -> tuple[str, ...]:
        """The classes without samples."""
        return empty_classes(self.names, self.numbers)

    @property
    def counts(self) -> dict[str, int]:
        """Entries of `SourceInfo.counts`."""
        return {UNLABELLED: int((self.numbers == -1).sum()) - len(self.faults), EMPTY: len(self.empty)}


def as_class(text: str) -> str:
    """The name of a class in a text file: without blanks around it; "" for none, as NaN, which pandas writes."""
    name = text.strip()
    return "" if name.lower() == "nan" else name


def number_labels(
    values: Sequence[str | int | None] | NDArray[Any],
    classes: Classes | None = None,
    *,
    where: str,
    known: Sequence[str] | None = None,
    row_name: Callable[[int], str] = lambda row: f"row {row}",
) -> Labels:
    """values: (n,) texts, which are names of classes, or whole numbers; None and "" are no class. classes: the names of
    all classes, as a user gives them. known: names that the source has for numbers. row_name: what row i is called in
    messages. where: the source, printable.

    Texts without `classes` get the numbers of their sorted names; two spellings of one name, see `composed`, are one.
    Raises UsageError for a text or number that is none of the classes, for numbers beyond 64 bits, and where some
    labels are texts and others numbers.
    """
    names, first = (None, 0) if classes is None else numbered_classes(classes)
    counted = classes is None or names != classes_of(classes)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return _checked(values, names or known, where, row_name, first if counted else None)
    texts = [i for i, value in enumerate(values) if isinstance(value, str) and value]
    if not texts:
        numbers = [-1 if value is None or isinstance(value, str) else value for value in values]
        return _checked(np.array(numbers, object), names or known, where, row_name, first if counted else None)
    other = next((i for i, value in enumerate(values) if value is not None and not isinstance(value, str)), None)
    if other is not None:
        raise UsageError(
            f"{where}: the label of {row_name(texts[0])} is {values[texts[0]]!r}, and that of {row_name(other)} is "
            f"{values[other]}: labels are either whole numbers or names"
        )
    found = sorted({str(value) for value in values if isinstance(value, str) and value})
    if names is None:
        names = _encodable(sorted({composed(name): name for name in reversed(found)}.values()), where)
    elif classes is not None and set(found) <= set(lines := classes_of(classes)):
        names = lines
    of_spelling = {composed(name): number for number, name in enumerate(names)}
    number_of: dict[Any, int | None] = {name: of_spelling.get(composed(name)) for name in found}
    strange = next((i for i in texts if number_of[values[i]] is None), None)
    if strange is not None:
        raise _none_of(repr(values[strange]), names, where, row_name(strange))
    return Labels(np.array([number_of.get(value, -1) for value in values], np.int64), names)


def labels_of_column(
    values: Sequence[str | int | None] | NDArray[Any] | None,
    classes: Classes | None,
    where: str,
    known: Sequence[str] | None = None,
) -> Labels | None:
    """See `number_labels`. values: None where there is no column of labels, so that `classes` have nothing to name."""
    if values is not None:
        return number_labels(values, classes, where=where, known=known)
    if classes is None:
        return None
    raise UsageError(f"{opt.classes} names labels, and {where} has no column of labels: name it by {opt.label_column}")


def classes_of(classes: Classes) -> tuple[str, ...]:
    """The names of classes in the order of their numbers. Raises UsageError."""
    if isinstance(classes, str | os.PathLike):
        where = f"{plain(os.fspath(classes))}, the file of class names,"
        with reading(where):
            data = Path(classes).read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8 at byte {error.start}") from error
        names = tuple(line.strip() for line in lines_in(text.rstrip()))
    else:
        names, where = _encodable([str(name) for name in classes], "classes="), "classes="
    known = set[str]()
    for number, name in enumerate(names):
        if not name or name in known:
            what = f"{name!r} again" if name else "no name"
            raise UsageError(f"{where} line {number + 1} has {what}: write one name per line, each only once")
        known.add(name)
    if not names:
        raise UsageError(f"{where} has no class: write one name per line")
    return names


def numbered_classes(classes: Classes) -> tuple[tuple[str, ...], int]:
    """The names of classes, without numbers before them that count from 0 or 1, such as those of UCF101's classInd.txt,
    "1 ApplyEyeMakeup"; and the first number. Raises UsageError."""
    names = classes_of(classes)
    words = [name.split(maxsplit=1) for name in names]
    first = int(words[0][0]) if words[0][0] in ("0", "1") else 0
    if any(len(two) < 2 or two[0] != str(number) for number, two in enumerate(words, first)):
        return names, 0
    alone = tuple(name for _, name in words)
    return (alone if len(set(alone)) == len(alone) else names), first


def classes_from_0(classes: Classes) -> tuple[str, ...]:
    """The names of classes, as of `numbered_classes`, of values whose numbers count from 0 whatever a file of names
    says. Raises UsageError where that counts from 1."""
    names, first = numbered_classes(classes)
    if first:
        raise UsageError(
            f"{opt.classes} counts the classes from 1, as {classes_of(classes)[0]!r} says, and these numbers count "
            "from 0: take the numbers out of the names if the first one is class 0"
        )
    return names


def _encodable(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Names of classes that UTF-8 can hold. Raises UsageError."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        odd = next(name for name in names if name != name.encode(errors="ignore").decode())
        raise UsageError(
            f"{where}: the class {odd!r} has half of a surrogate pair, which UTF-8 cannot encode"
        ) from error
    return tuple(names)


def named_file(classes: Classes | None) -> str | os.PathLike[str] | None:
    """The file that classes are in, as `SourceInfo.options` has it; None where they are names."""
    return classes if isinstance(classes, str | os.PathLike) else None


def no_classes(numbers: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which numbers belong to none of `count` classes. -1, for no class, is fine."""
    some: NDArray[np.bool_] = (numbers >= -1) & (numbers < count) & (numbers == np.floor(numbers))
    return ~some


def empty_classes(classes: Iterable[str] | None, numbers: NDArray[Any]) -> tuple[str, ...]:
    """The classes whose number does not occur."""
    flat, used = numbers.ravel(), set[Any]()
    for start in range(0, len(flat), _BLOCK):  # Python's numbers take four times the memory of an array
        used.update(flat[start : start + _BLOCK].tolist())
    return tuple(name for number, name in enumerate(classes or ()) if number not in used)


def _checked(
    numbers: NDArray[Any], names: Sequence[str] | None, where: str, row_name: Callable[[int], str], said: int | None
) -> Labels:
    """said: the number of the first class in `numbers`; None where it is 0, as nobody says."""
    first, doubts = said or 0, tuple[str, ...]()
    # Python's numbers have no bounds, and numpy's uint64 ends beyond int64.
    wrong: list[int] = []
    if numbers.dtype in (object, np.uint64):
        wrong = [i for i, number in enumerate(numbers.tolist()) if not -(1 << 63) <= number < 1 << 63]
    some = numbers != -1
    if not wrong and names is not None:
        numbers = numbers.astype(np.int64) - first * some
        wrong = np.flatnonzero(no_classes(numbers, len(names)) | (some & (numbers < 0))).tolist()
    if wrong:
        raise _none_of(str(numbers[wrong[0]] + first), names, where, row_name(wrong[0]), first)
    numbers = numbers.astype(np.int64)
    if said is None and names is not None and some.any() and (least := numbers[some].min()) > 0:
        doubts = (
            f"labels begin at {least}, which is {plain(names[least])!r}, and none is 0, {plain(names[0])!r}: "
            f"a number before each name in {opt.classes} says how they count, as in '1 {plain(names[0])}' or "
            f"'0 {plain(names[0])}'",
        )
    return Labels(numbers, None if names is None else tuple(names), doubts)


def _none_of(value: str, names: Sequence[str] | None, where: str, row: str, first: int = 0) -> UsageError:
    what = "labels are int64" if names is None else f"there are {len(names)} classes, counted from {first}"
    if names is not None and value.startswith(("'", '"')):
        what = f"it is none of the {len(names)} classes"
    return UsageError(f"{where}: the label of {row} is {plain(value)}; {what}")


IMAGE, KEY = "image", "key"
_SHOWN = 12
_CALLED = ("image", "images")
"""What the images are called where other columns could be images, too."""
PATH_NAMES = ("path", "file_name", "filename", "filepath", "file")
"""Names of a column of paths, which in any case and with any mark between words says so before its values are seen."""
_LABELS = ("label", "class", "category", "target", "y", "cls")
_NUMBERED = re.compile(r"[ _.-]*(?:id|idx|index|name|number|num|no)$")
"""Ends of names that do not say what a column is."""
_IMAGES = re.compile("path|file|im(age|g)", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnInfo:
    """What is known of a column before its values are read."""

    name: str
    type: str
    """For a person, printable."""
    field: FieldKind | str | None
    """What it is as a field; None for a mask, whose first value shows it; or why it can be none."""
    is_image: bool = False
    """Whether its values may be images."""
    is_label: bool = False
    """Whether its values are whole numbers or texts."""
    is_whole: bool = False
    """Whether they are whole numbers."""
    first: Callable[[], Iterable[Any]] = tuple
    """Reads its first values, which show whether they repeat; asked of columns that no name makes the label."""
    is_key: bool = False
    """Whether they are texts."""
    says_image: bool = False
    """Whether the file says that it holds the images."""
    classes: tuple[str, ...] | None = None
    """The names that the file has for its numbers."""
    rows: int | None = None
    """How many there are, if columns of a file may differ in that."""

    def __str__(self) -> str:
        return f"{plain(self.name)} {self.type}" if self.rows is not None else f"{plain(self.name)} ({self.type})"


@dataclass(frozen=True)
class ColumnChoice:
    """What the user says of the columns."""

    image: str | None = None
    label: str | None = None
    key: str | None = None
    fields: Mapping[str, str] | None = None
    """Name of a field -> its column, besides image, label and key; None for all columns that can be fields."""
    declared: Mapping[str, DeclaredKind] = field(default_factory=dict)
    """By the name of the field."""
    as_arrays: bool = False
    """Whether image, label and fields were named by `--array`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Column -> what it is called as a field; empty for the last parts of names, see `named_apart`."""
    every: bool = False
    """Whether `fields` are what there is, rather than what the user names."""

    def __post_init__(self) -> None:
        refuse_one_hot(self.label)

    def said(self, role: str, name: str) -> str:
        """How the user named a column."""
        if self.as_arrays:
            return opt.array(f"{role}={plain(name)}")
        options = {IMAGE: opt.image_column, LABEL: opt.label_column, KEY: opt.key_column}
        return options.get(role, opt.columns)(plain(name))


@dataclass(frozen=True)
class Habits:
    """What columns are usually called where a kind of file has no better sign."""

    images: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Further names of the column of labels."""
    lone_label: bool = False
    """Whether the only column of whole numbers is the label."""
    name_image: Callable[[str], str] | None = None
    """What a user types to name the column of images, if not `--image-column`."""
    no_image: str = ""
    """What is said where no column holds images."""


@dataclass(frozen=True)
class ChosenColumns:
    """The columns that are read, by their names in the file."""

    image: str
    label: str | None
    key: str | None
    fields: Mapping[str, str]
    """Name of a field -> its column, in order; without the label."""
    left_out: tuple[str, ...] = field(compare=False)
    """A printable line for each column that no field can hold."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What the summary says where other columns may be the label."""


def further_image(name: str, noun: str) -> str:
    """Why a column of images that is not chosen is not a field. noun: what columns are called."""
    return (
        f"the images are in another {noun}; {opt.fields(f'{name}:image')} stores it as a further image, {name}:mask "
        "as a mask"
    )


def refuse_one_hot(label: str | None) -> None:
    """Raise UsageError where the user says that the column of labels is one-hot, as "y:onehot"."""
    if label is not None and label.endswith(":onehot"):
        raise UsageError(
            f"{opt.label_column(plain(label))}: one-hot labels are numbered before packing: of rows y in NumPy, "
            "np.where(y.any(axis=1), y.argmax(axis=1), -1)"
        )


def named_columns(columns: str | Sequence[str] | None) -> dict[str, str] | None:
    """`--columns` as `ColumnChoice.fields`: texts that may each have several names, between commas."""
    if columns is None:
        return None
    words = [columns] if isinstance(columns, str) else columns
    return {name.strip(): name.strip() for word in words for name in word.split(",") if name.strip()}


def choose(columns: Sequence[ColumnInfo], wanted: ColumnChoice, where: str, habits: Habits) -> ChosenColumns:
    """Choose columns. where: the table, printable. Raises UsageError where the user has to name one, or named one that
    is not there or does not fit."""
    by_name = {one.name: one for one in columns}
    if len(by_name) < len(columns):
        twice = next(one.name for one in columns if [other.name for other in columns].count(one.name) > 1)
        raise UsageError(f"{where} has two columns {plain(twice)!r}: rename one")
    named = [(IMAGE, wanted.image), (LABEL, wanted.label), (KEY, wanted.key), *(wanted.fields or {}).items()]
    for role, name in named:
        if name is not None and name not in by_name:
            raise UsageError(f"{wanted.said(role, name)}: {where} has no such column: it has {_listed(by_name)}")
    image = _image(by_name, wanted, where, habits)
    same = [one for one in columns if one.rows == image.rows and one is not image]
    for role, name in named:
        if name is not None and by_name[name].rows != image.rows:
            raise UsageError(
                f"{wanted.said(role, name)}: {where}: {by_name[name]} does not have a row for each of the "
                f"{image.rows:,} images"
            )
    key = _key(same, wanted, where)
    label, others = _label(same, key, wanted, where, habits)
    if wanted.label == image.name:
        raise UsageError(f"{wanted.said(LABEL, image.name)}: {where} has its images in it: name another column")
    rest = wanted.fields
    if rest is None:
        apart = _apart(by_name, wanted)
        rest = {apart[one.name]: one.name for one in same if one.name not in (key, label)}
    if label not in (None, LABEL) and LABEL in rest:
        cure = f"leave it out by {opt.columns}" if wanted.fields is None else "rename one"
        if image.rows is not None:
            cure = f"name all that is packed, {opt.array(f'image={plain(image.name)},label={plain(str(label))}')}"
        raise UsageError(f"{opt.label_column(plain(str(label)))}: {where} has a column 'label' too: {cure}")
    if label is not None and (not by_name[label].is_label or wanted.declared.get(label) is not None):
        rest, label = {LABEL: label, **rest}, None  # measurements, or what was declared
    fields, left_out = dict[str, str](), list[str]()
    for name, of_file in rest.items():
        if of_file in (image.name, key, label) and not wanted.as_arrays:
            continue
        why = by_name[of_file].field if isinstance(by_name[of_file].field, str) else None
        try:
            check_names([name])
        except UsageError as error:
            why = f"{error}; or use its values as keys: {opt.key_column(KEY)}" if name == KEY else str(error)
        if why is None:
            fields[name] = of_file
        elif wanted.fields is not None or name in wanted.declared:
            raise UsageError(f"{where}: column {plain(of_file)!r} cannot be a field: {why}")
        else:
            left_out.append(f"column {plain(of_file)!r} is left out: {plain(str(why))}")
    for name in wanted.declared:
        if name not in fields and not (name == LABEL and label is not None):
            raise UsageError(
                f"{opt.fields(name)}: {where} has no such column besides image and key: it has {_listed(by_name)}"
            )
    try:
        check_names([*([LABEL] if label else []), *fields])
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    notes = tuple(_may_be(label or fields.get(LABEL), other) for other in others)
    return ChosenColumns(image.name, label, key, fields, tuple(left_out), notes)


def _image(by_name: Mapping[str, ColumnInfo], wanted: ColumnChoice, where: str, habits: Habits) -> ColumnInfo:
    if wanted.image is not None:
        if by_name[wanted.image].is_image or wanted.as_arrays:
            return by_name[wanted.image]
        raise UsageError(
            f"{wanted.said(IMAGE, wanted.image)}: it contains {by_name[wanted.image].type}, which is no image; split a "
            "list of images into rows first"
        )
    usual = next((by_name[name] for name in habits.images if name in by_name), None)
    if usual is not None:
        return usual
    further = {name for name, kind in wanted.declared.items() if are_pixels(kind)}
    images = [column for column in by_name.values() if column.is_image]
    apart = _apart(by_name, wanted)
    fitting = [column for column in images if not further & {column.name, apart[column.name]}]
    found = [one for one in fitting if one.says_image] or fitting
    named = [one for one in found if one.name.rpartition("/")[2] in _CALLED]
    if len(found) == 1 or len(named) == 1:
        return (named or found)[0]
    if found:
        other = plain(apart[found[1].name])
        raise UsageError(
            f"{where} has several columns of images, {_listed(map(str, found))}: name one, "
            f"{(habits.name_image or opt.image_column)(plain(found[0].name))}; "
            f"{opt.fields(f'{other}:image')} stores another as a further image"
        )
    raise UsageError(f"{where} has no column of images{habits.no_image}: it has {_listed(map(str, by_name.values()))}")


def _key(same: Sequence[ColumnInfo], wanted: ColumnChoice, where: str) -> str | None:
    """The column of keys; None where there is none."""
    for one in same:
        if one.name == wanted.key and not one.is_key and not one.is_whole:
            raise UsageError(
                f"{wanted.said(KEY, one.name)}: {where}: keys are texts or whole numbers, one for each sample, not "
                f"{one.type}"
            )
    return wanted.key or next((one.name for one in same if one.name == KEY and one.is_key), None)


def _label(
    same: Sequence[ColumnInfo], key: str | None, wanted: ColumnChoice, where: str, habits: Habits
) -> tuple[str | None, list[str]]:
    """The column of labels: whole numbers, names of classes, or measurements; None where there is none. Others that may
    be it."""
    same = [one for one in same if one.name != key or one.name == wanted.label]
    by_name = {one.name: one for one in same}
    if wanted.as_arrays and wanted.label is None:
        return None, []
    # An array of images that is called target, say, is no label.
    undeclared = [one for one in same if one.name.rpartition("/")[2] not in wanted.declared or one.name == LABEL]
    may_be = [] if wanted.label else label_columns(undeclared, habits)
    label = wanted.label or next(iter(may_be), None)
    if label is None or label not in by_name:
        return None, repeating(undeclared) if wanted.fields is None or wanted.every else []
    kind = by_name[label].field
    asked = wanted.label is not None or by_name[label].is_image  # bytes called label are no field either
    fits = by_name[label].is_label or isinstance(kind, FieldKind) or label in wanted.declared
    if asked and not fits:
        raise UsageError(
            f"{wanted.said(LABEL, label)}: {where}: it contains {by_name[label].type}; labels are numbers or names"
        )
    by_habit = habits.lone_label and not wanted.label and not label_columns([by_name[label]], Habits())
    if by_habit and (wanted.fields is None or wanted.every):
        may_be += repeating([column for column in undeclared if column.name != label])
    return label, may_be[1:] if label.rpartition("/")[2] != LABEL else []


def label_columns(columns: Sequence[ColumnInfo], habits: Habits) -> list[str]:
    """The columns that may be the label, the likeliest first. One of whole numbers or texts, or of a value of one shape
    for each sample, is if it is called so: in any case, with an id or a name after the word. So is the only one with
    names of classes, and where `habits` say so, the only one of whole numbers."""
    with_classes = [one.name for one in columns if one.classes is not None]
    x = next((one.type for one in columns if one.name.casefold() == "x"), None)
    last = [one.name.rpartition("/")[2] for one in columns]
    ranks = list[tuple[int, int, str]]()
    for one, short in zip(columns, last, strict=True):
        single = isinstance(one.field, FieldKind) and not (one.field.ragged or one.field.dtype == "str")
        words = _NUMBERED.sub("", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short).casefold().strip())
        word = next((word for word in _LABELS if words in (word, f"{word}s", f"{word}es")), "")
        if one.name == LABEL:
            ranks.append((-2, 0, LABEL))
        elif one.name in habits.labels:
            ranks.append((99 if habits.labels.index(one.name) else -2, 1, one.name))
        elif [one.name] == with_classes:
            ranks.append((-1, 0, one.name))
        # Beside a column x, one called y is where something is.
        elif word and (one.is_label or single) and not one.is_image and last.count(short) == 1:
            ranks += [(_LABELS.index(word), short != word, one.name)] if (word, one.type) != ("y", x) else []
    whole = [one.name for one in columns if one.is_whole] if habits.lone_label else []
    return [name for _, _, name in sorted(ranks)] or (whole if len(whole) == 1 else [])


def repeating(columns: Sequence[ColumnInfo]) -> list[str]:
    """The columns that may be the label though they are not called so: those with names of classes, or the only one of
    few values that occur again. Names of splits do so too."""
    rest = [column for column in columns if column.is_label and not _NUMBERED.search(column.name.casefold())]
    named = [column.name for column in columns if column.classes is not None]
    alone = [] if named else [column.name for column in rest if _repeats(column)]
    return named or alone[: len(alone) == 1]


def _repeats(column: ColumnInfo) -> bool:
    from rawpack_packer.sources.folder import is_split

    try:
        values = [str(value) for value in column.first() if value is not None]
    except Exception as error:
        if is_no_fault_of_data(error):
            raise
        return False  # it is rejected, or an error, where it is packed
    few = {*values}
    return 1 < len(few) < len(values) / 2 and not all(map(is_split, few))


def path_column(names: Sequence[str], is_path: Callable[[str], bool] | None = None) -> str | None:
    """The column of paths: by its name, or else the only one of paths, or of paths and a name that says whose they are.
    is_path: whether values of a column are paths; None where that is not known."""
    short = [re.sub(r"[\W_]", "", name.casefold()) for name in names]
    for word in PATH_NAMES:
        for name in (word, *(name for name, one in zip(names, short, strict=True) if one == word.replace("_", ""))):
            if name in names:
                return name
    paths = [name for name in names if is_path(name)] if is_path is not None else []
    called = [name for name in paths if _IMAGES.search(name)]
    return next((some[0] for some in (paths, called) if len(some) == 1), None)


def _may_be(label: str | None, other: str) -> str:
    """What the summary says of a column that may be the label. label: the one that is."""
    said = f"no column is called {LABEL}" if label is None else f"the label is column {plain(label)!r}"
    return f"{said}, and {plain(other)!r} is a field: {opt.label_column(plain(other))} if that is the label"


def column_called(word: str, names: Iterable[str]) -> str | None:
    """The column of this name, or the only one whose name ends so, after "/"; None where there is none."""
    every = [*names]
    fitting = [name for name in every if f"/{name}".endswith(f"/{word}")]
    fitting = fitting or [name for name in every if name.replace("/", "_") == word]
    return word if word in every else fitting[0] if len(fitting) == 1 else None


def named_apart(names: Sequence[str]) -> dict[str, str]:
    """Each column under the last part of its name; under all of it where two have the same last part."""
    last = [name.rpartition("/")[2] for name in names]
    return {
        short if last.count(short) == 1 else name.replace("/", "_"): name
        for short, name in zip(last, names, strict=True)
    }


def _apart(names: Iterable[str], wanted: ColumnChoice) -> dict[str, str]:
    """Column -> what it is called as a field."""
    return {full: short for short, full in named_apart([*names]).items()} | {**wanted.names}


def _listed(names: Iterable[object]) -> str:
    return listed([plain(str(name)) for name in names], _SHOWN) or "none"
