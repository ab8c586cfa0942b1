"""WebDataset shards as a source: tar archives in which consecutive members with one key are a sample."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import xxhash

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.archives.members import (
    PICKLES,
    MemberValues,
    NamedMember,
    named_fields,
    type_of,
    values_of,
)
from rawpack_packer.sources.archives.opened import Pass, at_hand
from rawpack_packer.sources.archives.samples import Shards, is_shard
from rawpack_packer.sources.archives.source import split_path
from rawpack_packer.sources.archives.tar import BadArchiveError
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.declared import array_of, declared_kind, words_of
from rawpack_packer.sources.exported import exported_beside
from rawpack_packer.sources.fields import DeclaredKind, FieldKind, Fields
from rawpack_packer.sources.files import noted, problems_shown, refuse, text_of
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import NO_COUNTS, UNLABELLED, Classes, Labels, named_file, number_labels
from rawpack_packer.sources.table.columns import Rows, Spans, Texts, texts_of
from rawpack_packer.sources.table.named_files import NamedFiles, files_at, files_in, named_files, source_name
from rawpack_packer.sources.table.source import TableSource, repeated_key
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
_BESIDE = frozenset({".idx", ".json", ".parquet", ".txt", ".md", ".csv", ".tsv", ".yaml", ".yml", ""})
"""Suffixes of other files in a folder of shards: indexes, statistics, licenses."""


class WebDatasetSource(TableSource):
    """WebDataset shards as a `Source`: their samples in order, keyed as webdataset keys them.

    The image of a sample is its one image member; a member `cls` becomes `label`, and any member, or entry of a JSON
    member, becomes a field if it is named. Samples without an image are left out.

    `info.counts`: no_image (samples), pickles (members, never read), other_members (part of no sample), unnamed_members
    (left out), problems (shards that cannot be read to their end), unlabelled, empty_classes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Fields = (),
        classes: Classes | None = None,
        prefix: Prefix | None = None,
        skip_unreadable: bool = False,
        spool: Spool | None = None,
        progress: Scanning = unseen,
        begun: Pass | None = None,
    ) -> None:
        """path: a shard, several (see `named_files`), or a folder of shards.

        fields: what becomes a field, as `[NAME=]MEMBER[:DTYPE]`: ["caption=txt", "json.width"], or a mapping of what is
        before the colon to what is after it. NAME `image` chooses the image, `label` the label. classes: names of the
        labels. prefix: what is put before keys: the name of the shard, or its number. skip_unreadable: pack the samples
        before the damage of shards that are truncated or damaged, without the last one of each, of which members may
        be missing. spool: for shards behind URLs. progress: called with the number of members seen. begun: the pass
        through the shards, if it has begun.

        Raises UsageError where shards have no samples, or keys are not unique; UnreadableError where shards are
        damaged, all of which it names.
        """
        where, look = source_name(path), begun or _pass(path, fields, spool)
        is_folder = os.path.isdir(path)  # noqa: PTH112
        if is_folder:
            _check_one_set(look.files, where)
        said = _Said(*_named(fields), classes, prefix, skip_unreadable)
        read = _read(look, said, where, progress)
        damaged, wrong = [*read.shards.unread.values()], read.shards.scattered(read.rows, read.files)
        with noted(wrong):
            keys = _keys(read.shards, read.rows, read.files, prefix, where)
        with noted(wrong):
            labels, problems = read.labels(classes)
        refuse(where, wrong)
        unnamed, columns = read.unnamed(), read.columns()
        options = given_options(field=words_of(fields), classes=named_file(classes), prefix=prefix)
        info = SourceInfo(
            kind="webdataset",
            root=where,
            paths=(str(Path(path).absolute()),) if is_folder else look.files.on_disk,
            fields={name: column.kind for name, column in columns.items()},
            options=options,
            counts={
                "no_image": len(read.shards) - len(read.rows),
                **read.shards.counts,
                "unnamed_members": sum(unnamed.values()),
                "problems": len(damaged),
                **NO_COUNTS,
            },
            skipped=unnamed,
            problems=(*problems_shown(damaged), *problems),
        )
        state = np.array([[0, xxhash.xxh3_64_intdigest(repr(options).encode()) - (1 << 63)]], np.int64)
        super().__init__(info, keys, read.spans(read.images), columns, state, labels=labels)
        self._unread = np.flatnonzero(np.isin(read.rows, [*read.shards.unread]))
        if labels is not None and damaged:  # what stands for the rest of a shard is not unlabelled
            counts = {**self.info.counts, UNLABELLED: self.info.counts[UNLABELLED] - len(damaged)}
            self.info = replace(self.info, counts=counts)

    def at_hand(self) -> Rows | None:
        return at_hand(self._all.images)

    def unread(self) -> Rows:
        return self._unread


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

    return bool(_shards_in(listing)) and not holds_images(listing)


def _named(fields: Fields) -> tuple[dict[str, NamedMember], NamedMember | None]:
    """The fields that the user named, and the label that is read at once: `cls` by default. Raises UsageError."""
    named = named_fields(fields)
    default = None if any(one.suffix == "cls" for one in named.values()) else _CLS
    label = named.get("label", default)
    return named, label if label is not None and _is_class(label) else None


def _pass(path: str | os.PathLike[str], fields: Fields, spool: Spool | None) -> Pass:
    label = _named(fields)[1]
    return Pass(_files(path, spool), label.suffix if label else "")


def _as_exported(shard: str, named: Mapping[str, NamedMember]) -> dict[str, DeclaredKind]:
    """What fields are, if an export next to the shards says it. Raises UsageError."""
    words = {name: one.declared for name, one in named.items() if name != "image" and not array_of(one.declared)[0]}
    given = {name: declared_kind(name, word) for name, word in words.items() if word is not None}
    return exported_beside(shard).declared(words, given)


@dataclass(frozen=True, eq=False)
class _ReadShards:
    """Shards that were read, and what is packed of them."""

    where: str
    """The source, printable."""
    files: NamedFiles
    shards: Shards
    named: Mapping[str, NamedMember]
    """What the user named."""
    label: NamedMember | None
    """What is read at once."""
    first: Mapping[str, MemberValues]
    """What each field is, by its first value."""
    images: tuple[str, ...]
    """The suffixes of images."""
    rows: Rows
    """The samples with an image, and those that stand for what could not be read."""

    def spans(self, suffixes: Iterable[str]) -> Spans:
        """The members of samples with these suffixes."""
        return self.shards.spans(self.files, suffixes, self.rows)

    def columns(self) -> dict[str, MemberValues]:
        """Those of the fields."""
        return {name: replace(one, spans=self.spans(self.named[name].suffixes)) for name, one in self.first.items()}

    def labels(self, classes: Classes | None) -> tuple[Labels | None, tuple[str, ...]]:
        """Those of samples, and what is wrong with the names of their classes. Raises UsageError."""
        if self.label is not None and (self.label is not _CLS or any(one is not None for one in self.shards.labels)):
            labels = _labels(self.shards, self.rows, self.label, classes, self.where)
            return _names_beside(self.files, labels) if labels.names is None else (labels, ())
        if classes is not None:
            cure = f"{opt.fields('label=MEMBER')} names them"
            raise UsageError(f"{opt.classes} names the labels of {self.where}, which has none: {cure}")
        return None, ()

    def unnamed(self) -> dict[str, int]:
        """The suffixes of members that are left out -> how often each occurs."""
        used = {*self.images, *(suffix for one in self.named.values() for suffix in one.suffixes)}
        used |= {self.label.suffix} if self.label else set()
        others = {suffix for suffix in self.shards.suffixes if type_of(suffix) not in PICKLES} - used
        return {f".{suffix}": number for suffix, number in self.shards.suffixes.items() if suffix in others}


@dataclass(frozen=True)
class _Said:
    """What the user says of shards: see `WebDatasetSource`."""

    named: Mapping[str, NamedMember]
    label: NamedMember | None
    """What is read at once."""
    classes: Classes | None
    prefix: Prefix | None
    skip_unreadable: bool


def _read(look: Pass, said: _Said, where: str, progress: Scanning) -> _ReadShards:
    """The samples of all shards. Raises UsageError where some cannot be opened, samples have no image, or lack what was
    named; UnreadableError where shards are damaged; SourceChangedError where one changes meanwhile."""
    named, label = said.named, said.label
    shards, first, image = Shards(tuple(named.values()), label), None, named.get("image")
    exported = {} if look.files.remotes else _as_exported(look.files.paths[0], named)
    others = {name: one for name, one in named.items() if name != "image" and one is not label}
    fields = {name: replace(one, declared=exported.get(name, one.declared)) for name, one in others.items()}
    for _ in _add_all(shards, look, progress):
        if first is None and shards.show_fields:  # what is named wrongly ends here, before all shards are fetched
            first = _first_values(shards, look.files, image, fields, look.files.name(shards.shard[-1]))
    damaged, wrong = [*shards.unread.values()], [*shards.wrong.values()]
    unread = () if said.skip_unreadable else problems_shown(damaged)
    if unread or wrong:
        if first is not None:
            _note_others(wrong, shards, look.files, said, where)
        refuse(where, wrong, unread, len(damaged) * bool(unread))
    if first is None:
        first = _first_values(shards, look.files, image, fields, where)
    images, rows = shards.images(image, where)
    return _ReadShards(where, look.files, shards, named, label, first, images, rows)


def _add_all(shards: Shards, look: Pass, progress: Scanning) -> Iterator[None]:
    """Add the samples of all shards; yields after each. Raises UsageError where something is wrong with the first one
    and it is behind a URL: the others are not fetched then; SourceChangedError where one changes meanwhile."""
    for k, found in look:
        where, cannot = look.files.name(k), list[UsageError]()
        with noted(cannot), reading(where):
            try:
                for seen in shards.read(found, k, where):
                    if seen % PROGRESS_EVERY == 0:
                        progress(seen)
            except (BadArchiveError, DecodeError) as error:
                shards.cut(k, look.files, error.detail if isinstance(error, DecodeError) else str(error))
        for one in cannot:
            shards.wrong[k, "shard"] = one
        if k == 0 and look.files.remotes:
            refuse(where, [*shards.wrong.values()])
        yield
    progress(shards.members)


def _note_others(wrong: list[UsageError], shards: Shards, files: NamedFiles, said: _Said, where: str) -> None:
    """Note what else is wrong with samples where shards are refused anyway, but nothing that they lack: that may be
    where a shard is damaged."""
    with noted(wrong):
        rows = shards.images(said.named.get("image"), where)[1]
        wrong += shards.scattered(rows, files)
        with noted(wrong):
            _keys(shards, rows, files, said.prefix, where)
        with noted(wrong):
            number_labels(shards.labels, said.classes, where=where, row_name=lambda i: plain(shards.key(i)))


def _first_values(
    shards: Shards, files: NamedFiles, image: NamedMember | None, fields: Mapping[str, NamedMember], where: str
) -> dict[str, MemberValues]:
    """What the fields are, by the shards that were read so far. where: which these are. Raises UsageError where they
    lack what was named, or its first value fits no field."""
    rows, found = shards.images(image, where)[1], dict[str, MemberValues]()
    for name, one in fields.items():
        spans = shards.spans(files, one.suffixes, rows)
        found[name] = values_of(one, spans, _first_with(one, spans, shards, where))
    return found


def _files(path: str | os.PathLike[str], spool: Spool | None) -> NamedFiles:
    """The shards at a path. Raises UsageError where a folder has none."""
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return named_files(path, spool)
    where, shards = source_name(path), _shards_in(Listing(path))
    if not shards:
        raise UsageError(f"{where} contains no .tar, or other data too: name the shards, such as {where}/'*.tar'")
    return files_at(shards, spool)


def _check_one_set(files: NamedFiles, where: str) -> None:
    """Raise UsageError where a folder has several sets of shards."""
    sets = {_DIGITS.sub("*", files.base(k)): None for k in range(len(files))}
    if len(sets) > 1:
        raise UsageError(
            f"{where} contains several sets of shards, {listed([*sets], 5)}: name one of them, in quotes: "
            f"'{where}/{plain(next(iter(sets)))}'"
        )


def _shards_in(listing: Listing) -> list[str]:
    return files_in(listing, (".tar", ".tar.gz", ".tgz"), _BESIDE)


def _is_class(label: NamedMember) -> bool:
    """Whether a label is read before packing: a whole number or a name, rather than other numbers."""
    return label.declared is None or declared_kind("label", label.declared) == FieldKind("int64")


def _keys(shards: Shards, rows: Rows, files: NamedFiles, prefix: Prefix | None, where: str) -> Texts:
    """The keys of samples, unique. Raises UsageError."""
    begins = [""] * len(files)
    if prefix == "numbers":
        begins = [f"{number}/" for number in range(len(files))]
    elif prefix == "names":
        begins = [f"{_shard_name(files.base(k))}/" for k in range(len(files))]
        if len(set(begins)) < len(begins):
            double = next(name for name in begins if begins.count(name) > 1)
            raise UsageError(
                f"several shards of {where} are named {double!r}: {opt.prefix('numbers')} tells them apart"
            )
    elif prefix is not None:
        raise UsageError(f"{opt.prefix(repr(prefix))}: must be names or numbers")
    keys = texts_of([begins[shards.shard[i]] + text_of(shards.key(i)) for i in rows.tolist()])
    if (repeated := repeated_key(keys)) is not None:
        before, i = repeated
        one, two = (plain(_shard_name(files.base(shards.shard[rows[k]]))) for k in repeated)
        what = f"{where}: key {plain(keys.value(i))} is there twice, "
        if shards.shard[rows[before]] == shards.shard[rows[i]]:
            raise UsageError(
                f"{what}both times in {one}: a sample's members must follow one another. Sort the members of the shard "
                "by their names, as `tar --sort=name` does; if these are two samples, rename one or take it out"
            )
        raise UsageError(f"{what}in {one} and {two}: {opt.prefix('names')} puts the name of its shard before each key")
    return keys


def _shard_name(base: str) -> str:
    return re.sub(r"\.(tar|tar\.gz|tgz|tar\.bz2)$", "", text_of(os.fsencode(base)), flags=re.IGNORECASE)


def _first_with(field: NamedMember, spans: Spans, shards: Shards, where: str) -> int:
    """The first sample that has this field's member. where: the shards that were read so far. Raises UsageError where
    none has."""
    has = np.flatnonzero(spans.states[:, 0] >= 0)
    if not len(has):
        known = listed([f".{suffix}" for suffix in shards.suffixes], 8)
        raise UsageError(
            f"{opt.fields(repr(field.name))}: no sample of {where} has a member .{plain(field.suffix)}, only {known}"
        )
    return int(has[0])


def _labels(shards: Shards, rows: Rows, label: NamedMember, classes: Classes | None, where: str) -> Labels:
    """The label of each sample with an image, one of `rows`. Raises UsageError."""
    labelled = [i for i, one in enumerate(shards.labels) if one is not None]
    if not labelled:
        wanted = plain(".".join((label.suffix, *label.entry)))
        known = listed([f".{suffix}" for suffix in shards.suffixes], 8)
        raise UsageError(f"{opt.fields(f'label={wanted}')}: no sample has that; members have the suffixes {known}")
    if all(shards.labels[i] is None for i in rows.tolist()):
        one, image = (plain(shards.key(i)) for i in (labelled[0], int(rows[0])))
        raise UsageError(
            f"{where}: no image has a label in .{plain(label.suffix)}: the first label is that of {one}, and the first "
            f"image is {image}. A label and its image have one name up to the first dot, and follow one another: write "
            "the shard again so"
        )
    found = number_labels(shards.labels, classes, where=where, row_name=lambda i: plain(shards.key(i)))
    return Labels(found.numbers[rows], found.names)


def _names_beside(files: NamedFiles, labels: Labels) -> tuple[Labels, tuple[str, ...]]:
    """The labels with the names in a file next to the shards, if it has names for them; otherwise what is wrong with
    it."""
    path = Path(files.paths[0]).with_name(_CLASSES)
    if files.remotes or not path.is_file() or path.stat().st_size > _MOST_NAMES:
        return labels, ()
    try:
        return number_labels(labels.numbers, path, where=plain(os.fsencode(path))), ()
    except UsageError as error:
        return labels, (f"no names of classes: {error}; {opt.classes} names them",)
