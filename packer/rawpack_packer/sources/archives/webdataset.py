"""WebDataset shards as a source: tar archives in which consecutive members with one key are a sample."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url, shown
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.archives.members import (
    JSON,
    PICKLES,
    MemberValues,
    NamedMember,
    is_image,
    member_bytes,
    named_fields,
    parsed,
    type_of,
    values_of,
)
from rawpack_packer.sources.archives.opened import Pass
from rawpack_packer.sources.archives.samples import FIRST, Shards, dotted, is_shard
from rawpack_packer.sources.archives.source import split_path
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.beside import NO_PICKLES, AnnotatedError, command, is_of_camera
from rawpack_packer.sources.declared import array_of, declared_kind, words_of
from rawpack_packer.sources.exported import exported_beside
from rawpack_packer.sources.fields import FieldKind, Fields
from rawpack_packer.sources.files import UnreadableError, problems_shown, text_of
from rawpack_packer.sources.look.listing import HEAD, Listing
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.choose import (
    NO_COUNTS,
    Classes,
    ColumnInfo,
    Habits,
    Labels,
    label_columns,
    named_file,
    number_labels,
    repeating,
)
from rawpack_packer.sources.table.columns import Spans, Texts, texts_of
from rawpack_packer.sources.table.keys import repeated_key
from rawpack_packer.sources.table.named_files import NamedFiles, files_in, files_of, source_name
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

Prefix = Literal["names", "numbers"]
_CLS = NamedMember("label", ("cls",), (), None)
_DIGITS = re.compile(r"\d+")
_CLASSES = "classes.txt"
"""Next to shards, as an export writes it: the names of their labels."""
_MOST_NAMES = 1 << 24
"""Bytes of that file."""
_ENDS = (".tar", ".tar.gz", ".tgz")


def open_webdataset(
    path: str | os.PathLike[str],
    /,
    *,
    fields: Fields = (),
    classes: Classes | None = None,
    prefix: Prefix | None = None,
    skip_unreadable: bool = False,
    spool: Spool | None = None,
    progress: Scanning = unseen,
    detected: bool = False,
    begun: Pass | None = None,
) -> Table:
    """The samples of WebDataset shards in order, keyed as webdataset keys them.

    The image of a sample is its one image member; a member `cls` becomes `label`, and any member, or entry of a JSON
    member, becomes a field if it is named. Samples without an image are left out.

    `info.counts`: no_image (samples), pickles (members, never read), other_members (part of no sample), unnamed_members
    (left out), problems (shards that cannot be read to their end), unlabelled, empty_classes.

    path: a shard, several (see `named_files`), or a folder of shards. fields: what becomes a field, as
    `[NAME=]MEMBER[:DTYPE]`: ["caption=txt", "json.width"], or a mapping of what is before the colon to what is after
    it. NAME `image` chooses the image, `label` the label. classes: names of the labels. prefix: what is put before
    keys: the name of the shard, or its number. skip_unreadable: pack the samples before the damage of shards that are
    truncated or damaged, without the last one of each, of which members may be missing. spool: for shards behind URLs.
    progress: called with the number of members seen. detected: whether members show that these are shards, and nobody
    says so: then those that may be labels are named, unless there are labels. begun: the pass through the shards, if it
    has begun.

    Raises UsageError where shards have no samples, keys are not unique, or what was named is not there; UnreadableError
    where shards are damaged; SourceChangedError where one changes meanwhile.
    """
    where, look = source_name(path), begun or _pass(path, fields, spool)
    is_folder = Listing.of(path).is_dir
    if is_folder:
        _check_one_set(look.files, where)
    shards = Shards(look, where, *_named(fields))
    values = _read(shards, look, progress)
    damaged = [*shards.unread.values()]
    if damaged and not skip_unreadable:
        raise UnreadableError(where, len(damaged), problems_shown(damaged))
    values = _first_values(shards, where) if values is None else values
    shards.find_images(where)
    columns = {
        name: replace(column, spans=shards.spans(shards.named[name].suffixes)) for name, column in values.items()
    }
    images = shards.spans(shards.images)
    shards.check_together()
    keys = _keys(shards, prefix)
    labels = _labels(shards, classes)
    notes: Iterable[str] = () if labels is None else labels.notes
    if detected and labels is None and not fields:
        _refuse_unnamed(shards, path)
    if labels is None and "label" not in columns:
        notes = _label_entries(shards)
    used = {*shards.images, *(suffix for field in shards.named.values() for suffix in field.suffixes)}
    used |= {shards.label.suffix} if shards.label else set()
    rest = {name: n for name, n in shards.suffixes.items() if name not in used and type_of(name) not in PICKLES}
    unnamed = {f".{name}": n for name, n in rest.items()}
    options = given_options(field=words_of(fields), classes=named_file(classes), prefix=prefix)
    info = SourceInfo(
        kind="webdataset",
        root=where,
        paths=(str(Path(path).absolute()),) if is_folder else look.files.on_disk,
        fields={name: column.kind for name, column in columns.items()},
        options=options,
        counts={
            "no_image": len(shards) - len(shards.rows),
            **shards.counts,
            "unnamed_members": sum(unnamed.values()),
            "problems": len(damaged),
            **NO_COUNTS,
        },
        skipped=unnamed,
        problems=(*problems_shown(damaged), *notes),
    )
    state = np.array([[0, xxhash.xxh3_64_intdigest(repr(options).encode()) - (1 << 63)]], np.int64)
    unread = np.flatnonzero(np.isin(shards.rows, [*shards.unread]))
    return table_of(info, keys, images, columns, state, labels=labels, unread=unread)


def begin(path: str | os.PathLike[str], fields: Fields, spool: Spool | None) -> tuple[str, Pass | None]:
    """The kind of archives that the user did not name, or of a folder of such; and the pass that has shown it by their
    first members, for whoever opens them. fields: as the user gave them. Raises UsageError."""
    if split_path(os.fspath(path))[1]:
        return "archive", None
    look = _pass(path, fields, spool)
    return "webdataset" if fields or look.shows(is_shard) else "archive", look


def holds_shards(listing: Listing) -> bool:
    """Whether a folder holds only archives, which may be shards, and what describes them; and no Parquet file among
    that has the images."""
    from rawpack_packer.sources.parquet import holds_images

    return bool(files_in(listing, _ENDS)) and not holds_images(listing)


def _named(fields: Fields) -> tuple[dict[str, NamedMember], NamedMember | None]:
    """The fields that the user named, and the label that is read at once, `cls` by default: an integer or a name,
    rather than other numbers. Raises UsageError."""
    named = named_fields(fields)
    label = named.get("label", None if any(field.suffix == "cls" for field in named.values()) else _CLS)
    if label and label.declared is not None and declared_kind("label", label.declared) != FieldKind("int64"):
        label = None
    return named, label


def _pass(path: str | os.PathLike[str], fields: Fields, spool: Spool | None) -> Pass:
    label = _named(fields)[1]
    return Pass(files_of(path, _ENDS, spool), label.suffix if label else "")


def _read(shards: Shards, look: Pass, progress: Scanning) -> dict[str, MemberValues] | None:
    """Read the shards. Returns the fields by the first one that shows them: what is named wrongly ends there, before
    all are fetched. None where none does."""
    values: dict[str, MemberValues] | None = None
    for k, members in look:
        with reading(look.files.name(k)):
            shards.read(members, k, progress)
        if values is None and shards.show_fields:
            values = _first_values(shards, look.files.name(k))
    progress(shards.members)
    return values


def _first_values(shards: Shards, where: str) -> dict[str, MemberValues]:
    """The fields that are read with their samples, by the shards that were read so far. where: which these are. Raises
    UsageError where they lack what was named, or its first value fits no field."""
    shards.find_images(where)
    fields = {name: field for name, field in shards.named.items() if name != "image"}
    words = {name: field.declared for name, field in fields.items() if not array_of(field.declared)[0]}
    declared = {name: declared_kind(name, word) for name, word in words.items() if word is not None}
    files, values = shards.files, dict[str, MemberValues]()
    exported = {} if files.remotes else exported_beside(files.paths[0]).declared(words, declared)
    for name, field in fields.items():
        if field is shards.label:
            continue
        spans = shards.spans(field.suffixes)
        if (first := _first_row(spans)) is None:
            raise UsageError(
                f"{opt.fields(repr(name))}: no sample of {where} has a member .{plain(field.suffix)}, only "
                f"{dotted(shards.suffixes)}"
            )
        values[name] = values_of(replace(field, declared=exported.get(name, field.declared)), spans, first)
    return values


def _first_row(spans: Spans) -> int | None:
    """The first sample that has its member."""
    rows = np.flatnonzero(spans.states[:, 0] >= 0)
    return int(rows[0]) if len(rows) else None


def _labels(shards: Shards, classes: Classes | None) -> Labels | None:
    """The labels of samples. Raises UsageError."""
    label, values, where = shards.label, shards.labels, shards.where
    first = next((i for i, value in enumerate(values) if value is not None), None)
    if label is None or (label is _CLS and first is None):
        if classes is not None:
            cure = f"{opt.fields('label=MEMBER')} names them"
            raise UsageError(f"{opt.classes} names the labels of {where}, which has none: {cure}")
        return None
    if first is None:
        wanted = opt.fields(f"label={plain('.'.join((label.suffix, *label.entry)))}")
        raise UsageError(f"{wanted}: no sample has that; members have the suffixes {dotted(shards.suffixes)}")
    if all(values[i] is None for i in shards.rows.tolist()):
        labelled, image = (plain(shards.key(i)) for i in (first, int(shards.rows[0])))
        raise UsageError(
            f"{where}: no image has a label in .{plain(label.suffix)}: the first label is that of {labelled}, and the "
            f"first image is {image}. A label and its image have one name up to the first dot, and follow one another: "
            "write the shard again so"
        )
    every = number_labels(values, classes, where=where, row_name=lambda i: plain(shards.key(i)))
    numbers = every.numbers[shards.rows]
    path = Path(shards.files.paths[0]).with_name(_CLASSES)
    if every.names is not None or shards.files.remotes:
        return Labels(numbers, every.names)
    known = exported_beside(path).classes  # also names that cannot be lines
    if known is None and (not path.is_file() or path.stat().st_size > _MOST_NAMES):
        return Labels(numbers, None)
    try:
        named = number_labels(numbers, path if known is None else None, known=known, where=plain(os.fsencode(path)))
        return replace(named, notes=())
    except UsageError as error:
        return Labels(numbers, None, notes=(f"no names of classes: {error}; {opt.classes} names them",))


def _refuse_unnamed(shards: Shards, path: str | os.PathLike[str]) -> None:
    """Raise AnnotatedError where half of the samples have members that may be their labels."""
    fields, pickles, others = list[str](), False, list[str]()
    for suffix, n in shards.suffixes.items():
        if is_image(suffix) or suffix == "cls" or 2 * n < len(shards.rows):
            continue
        spans = shards.spans([suffix])
        if (first := _first_row(spans)) is None or is_of_camera(member_bytes(spans, first)[:HEAD]):
            continue
        others.append(suffix)
        try:
            values_of(named_fields([suffix])[suffix.rpartition(".")[0] or suffix], spans, first)
            fields.append(suffix)
        except (UsageError, KeyError):
            pickles = pickles or type_of(suffix) in PICKLES
    if not others:
        return
    where, cure = os.fspath(path), "see docs/how-to/pack-webdataset.md#fields"
    where = shown(where) if is_url(where) else where
    if fields:
        cure = f"{command(*(word for field in fields for word in ('--field', field)), where)} packs them as fields"
        rest = [f".{suffix}" for suffix in others if suffix not in fields]
        cure += f", without {listed(rest, 5)}" if rest else ""
    elif pickles:
        cure = NO_PICKLES
    raise AnnotatedError(
        f"{plain(where)} contains members {listed([f'.{suffix}' for suffix in others], 5)} for the images, and packing "
        f"the shards would ignore them: {cure}; {opt.kind('webdataset')} packs the images alone"
    )


def _label_entries(shards: Shards) -> Iterator[str]:
    """A line for the entry of JSON members that may be the label, by its name or the values that it has first."""
    for suffix in [suffix for suffix in shards.suffixes if type_of(suffix) in JSON]:
        spans, values = shards.spans([suffix]), dict[str, list[Any]]()
        for i in np.flatnonzero(spans.states[:, 0] >= 0)[:FIRST].tolist():
            with suppress(DecodeError):  # it is rejected where it is packed
                for entry, value in _entries(parsed(member_bytes(spans, i)), suffix):
                    values.setdefault(entry, []).append(value)
        infos = [
            ColumnInfo(
                entry.replace(".", "/"), "", None, is_label={*map(type, some)} in ({int}, {str}), first=some.copy
            )
            for entry, some in values.items()
        ]
        for name in (label_columns(infos, Habits()) or repeating(infos))[:1]:
            entry = name.replace("/", ".")
            yield f"{plain(entry)} may be the label: {opt.fields(plain(f'label={entry}'))} if it is"


def _entries(value: Any, way: str) -> Iterator[tuple[str, Any]]:
    """The values in a JSON value, each by the way to it, as `--field` takes it."""
    if not isinstance(value, dict):
        yield way, value
        return
    for name, inner in value.items():
        if not re.search("[.,:=/]", name):
            yield from _entries(inner, f"{way}.{name}")


def _check_one_set(files: NamedFiles, where: str) -> None:
    """Raise UsageError where a folder has several sets of shards."""
    sets = {_DIGITS.sub("*", files.base(k)): None for k in range(len(files))}
    if len(sets) > 1:
        raise UsageError(
            f"{where} contains several sets of shards, {listed([*sets], 5)}: name one of them, in quotes: "
            f"'{where}/{plain(next(iter(sets)))}'"
        )


def _keys(shards: Shards, prefix: Prefix | None) -> Texts:
    """The keys of samples, unique. Raises UsageError."""
    where, bases = shards.where, [text_of(os.fsencode(shards.files.base(k))) for k in range(len(shards.files))]
    names = [re.sub(r"\.(tar|tar\.gz|tgz|tar\.bz2)$", "", base, flags=re.IGNORECASE) for base in bases]
    if prefix not in (None, "names", "numbers"):
        raise UsageError(f"{opt.prefix(repr(prefix))}: must be names or numbers")
    begins = [f"{number}/" if prefix == "numbers" else f"{name}/" for number, name in enumerate(names)]
    if len(set(begins)) < len(begins) and prefix:
        double = next(name for name in begins if begins.count(name) > 1)
        raise UsageError(f"several shards of {where} are named {double!r}: {opt.prefix('numbers')} tells them apart")
    begins = begins if prefix else [""] * len(names)
    keys = texts_of([begins[shards.shard[i]] + text_of(shards.key(i)) for i in shards.rows.tolist()])
    if (repeated := repeated_key(keys)) is not None:
        first, other = (shards.shard[shards.rows[row]] for row in repeated)
        what = f"{where}: key {plain(keys.value(repeated[1]))} is there twice, "
        if first == other:
            raise UsageError(
                f"{what}both times in {plain(names[first])}: a sample's members must follow one another. Sort the "
                "members of the shard by their names, as `tar --sort=name` does; if these are two samples, rename one "
                "or take it out"
            )
        what += f"in {plain(names[first])} and {plain(names[other])}"
        raise UsageError(f"{what}: {opt.prefix('names')} puts the name of its shard before each key")
    return keys
