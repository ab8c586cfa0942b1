"""What may be a mistake about the classes and splits of a source though all of it can be packed: a line of the summary
for each, and an error under `--strict`; and the column that divides a table into splits, which is asked about.

These are of the names of classes, of samples, and of what is next to the path: whatever the kind of the source is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rawpack.errors import DecodeError, RawpackError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.options import opt
from rawpack_packer.sources.folder import is_split, same_split, split_order
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.columns import Texts
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import composed, listed, plain

_SHOWN = 3
_MOST_LISTED = 100_000
_MOST_SPLITS = 16
_LONGEST = 30
"""Characters of a split's name."""
_OPENED = ("listing", "parquet")
"""Kinds whose classes, or those of the first rows, are known without their images; of archives, so are those of zip,
which lists its members at its end: a tar, and shards of other kinds, would be read through."""
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_NAME = re.compile(r"[\w-]+")
"""A text that may be a name and no caption, such as `PublicTest`."""


class SplitColumnError(UsageError):
    """The values of a column are names of splits, and nobody says whether it divides the source."""

    def __init__(
        self,
        where: str,
        path: str | None,
        column: str,
        splits: Sequence[str],
        words: Sequence[str] = (),
        destination: str = "DST",
    ) -> None:
        """where: the table, printable. path: of the source, as the user wrote it; None where there is none. splits: ""
        stands for samples in none. words: of the command, besides, where the table is a file of labels."""
        self._told = where, path, column, splits, words
        shown, rule = plain(column), split_rule(column, splits)
        command = shlex.join(["rawpack", "pack", *words, "--split-by", rule, path or "SRC", destination])
        divide = f"pack_splits(..., split_by={plain(rule)!r})"
        cure = f"`{plain(command)}` packs each into a store of its own (in Python: {divide})" if path else divide
        keeps = f"{opt.fields(f'{shown}:str')} keeps it as a field of one store"
        super().__init__(
            f"column {shown} of {where} has the splits {listed([name for name in splits if name], _SHOWN)}: {cure}; "
            + ("without the column, all are one store" if words else keeps)
        )

    def asked(self, destination: str, other: Sequence[str] = ()) -> SplitColumnError:
        """The same error, where more is known of what the user asked for: see `DividedError`."""
        return SplitColumnError(*self._told, destination)


def refuse_split_column(source: Table, path: str | None, options: Mapping[str, Any]) -> None:
    """Raise SplitColumnError where there is a `split_column`. path: of the source, as the user wrote it; None for a
    dataset."""
    if (column := split_column(source, options)) is not None:
        words, where = list[str](), source.info.root
        if column[0] in source.apart:
            where = plain(os.fspath(options["labels_file"]))
            for name in ("labels_file", "label_column"):
                words += [f"--{name.replace('_', '-')}", os.fspath(options[name])] if name in options else []
        raise SplitColumnError(where, path, *column, words)


def split_column(source: Table, options: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """The column of texts that are all names of splits, and these, with "" last where some are empty; None where there
    is none, and where the user names the column. Texts of several words or parts are names where one
    occurs again. options: of the source."""
    if source.info.kind == "store" or not len(source):
        return None
    named = {*_named(options.get("fields")), *_named(options.get("columns")), *source.exported}
    texts = [name for name, kind in source.info.fields.items() if kind.dtype == "str" and not kind.shape]
    for name in [*texts, *source.apart]:
        if name in named:
            continue
        first = getattr(source.part(0, 1), "columns", {}).get(name)
        try:
            if first is not None and (value := str(first.value(0))) and not _names_split(value):
                continue
            column = source.column(name)
        except DecodeError:
            continue  # it is rejected where it is packed
        if not isinstance(column, Texts):
            continue
        splits = Counter[str]()
        for i in range(len(column)):
            value = column.value(i)
            if value and value not in splits and (len(splits) == _MOST_SPLITS or not _names_split(value)):
                break
            splits[value] += 1
        else:
            names = [*filter(None, splits)]
            # A few captions, which differ, may all have such a word, as that of a train.
            if len(names) > 1 and (all(map(_NAME.fullmatch, names)) or any(splits[value] > 1 for value in names)):
                return name, sorted(splits, key=lambda value: (not value, split_order(value)))
    return None


def split_rule(column: str, values: Sequence[str]) -> str:
    """What `--split-by` takes to divide by these values: the column alone, unless "" is among them, which becomes a
    split of its own, and the others can be written so."""
    names = [*filter(None, values)]
    if len(names) == len(values) or len(names) > _MOST_SPLITS or any(re.search("[,:+=]", name) for name in names):
        return column
    return f"{column}={','.join(f'{name}:{name}' for name in names)},other:"


def _names_split(value: str) -> bool:
    """Whether a value names a split, alone or as one of its words."""
    return len(value) <= _LONGEST and (is_split(value) or any(map(is_split, _WORD.findall(value))))


def add_doubts(source: Table, options: Mapping[str, Any], *, beside: Sequence[str] = ()) -> None:
    """Note in `info` of a source what may be a mistake. options: of the source, which may settle it. beside: what is
    said of another split, see `doubts_beside`."""
    info = source.info
    by_name = () if options.get("classes") is not None else (*_doubts_of_names(info.classes or ()), *beside)
    if doubts := (*info.doubts, *by_name):
        source.info = replace(info, doubts=doubts, problems=(*info.problems, *doubts))


def _doubts_of_names(names: Sequence[str]) -> list[str]:
    doubts, cure = list[str](), f"{opt.classes} says which classes there are, in the order of their numbers"
    if all(name.isdecimal() for name in names):
        wrong = next((k for k, name in enumerate(sorted(names, key=int)) if names[k] != name), None)
        if wrong is not None and list(names) == sorted(names):
            last = max(range(len(names)), key=lambda k: int(names[k]))
            doubts.append(
                f"classes that are numbers are in the order of texts: class {names[last]} has the label {last:,}; "
                f"{cure}"
            )
    alike = dict[str, str]()
    for name in names:
        if (other := alike.setdefault(composed(name).casefold(), name)) != name:
            doubts.append(f"the classes {plain(other)} and {plain(name)} differ in case only; {cure}")
            break
    return doubts


def doubts_beside(source: Table, path: str, sibling_classes: Any) -> list[str]:
    """What to say where a split is packed alone, and one next to it has other classes. sibling_classes: gives those at
    a path, of which no image is read, and whether these are all."""
    info, where = source.info, Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    suffix = where.suffix if where.is_file() else ""
    own, by_opening = where.name.removesuffix(suffix), info.kind in _OPENED or suffix == ".zip"
    in_archive: Mapping[str, Sequence[str]] = {} if suffix else source.beside
    if info.classes is None or is_url(path) or info.doubts or not is_split(own):
        return []
    if not by_opening and (suffix or (info.kind not in ("folder", "video") and not in_archive)):
        return []
    above = Listing(where.parent)
    names = dict.fromkeys(in_archive, True) or above.names
    own_classes, whole = {*map(composed, info.classes)}, True
    for name, is_dir in [*names.items()][:_MOST_LISTED]:
        stem = name.removesuffix(suffix)
        if is_dir == bool(suffix) or not name.endswith(suffix) or not is_split(stem) or same_split(stem, own):
            continue
        if by_opening:
            try:
                others, whole = sibling_classes(where.parent / name)
            except RawpackError:
                continue
        elif in_archive:
            others = in_archive[name]
        else:
            others = [folder for folder, below in (above / name).names.items() if below]
        other_classes = {*map(composed, others)}
        if other_classes - own_classes or (whole and other_classes and own_classes - other_classes):
            cure = f"{opt.classes} names all classes, in the order of their numbers"
            if not suffix or info.kind == "parquet":
                splits = sorted([stem, own], key=split_order)
                command = shlex.join(["rawpack", "pack", "--splits", ",".join(splits), str(Path(path).parent), "DST"])
                cure = f"`{plain(command)}` gives both the same numbers, or {cure}"
            return [f"{plain(name)} next to {plain(where.name)} has other classes, so that labels differ: {cure}"]
    return []


def _named(words: object) -> Iterable[str]:
    """The names of fields that the user declares."""
    if isinstance(words, str):
        words = words.split(",")
    some = words if isinstance(words, Mapping | list | tuple) else ()
    return [str(word).strip().partition(":")[0].partition("=")[0] for word in some]
