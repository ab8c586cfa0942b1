"""WebDataset shards as a source: tar archives in which consecutive members with one key are a sample."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
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
from rawpack_packer.sources.archives.samples import FIRST, Shards, is_shard
from rawpack_packer.sources.archives.source import split_path
from rawpack_packer.sources.archives.tar import BadArchiveError
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.beside import command, is_of_camera
from rawpack_packer.sources.beside.annotated import refuse_members
from rawpack_packer.sources.declared import array_of, declared_kind, words_of
from rawpack_packer.sources.exported import exported_beside
from rawpack_packer.sources.fields import FieldKind, Fields
from rawpack_packer.sources.files import UnreadableError, problems_shown, text_of
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.look.listing import HEAD, Listing
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import (
    NO_COUNTS,
    UNLABELLED,
    Classes,
    ColumnInfo,
    Habits,
    Labels,
    label_columns,
    named_file,
    number_labels,
    repeating,
)
from rawpack_packer.sources.table.columns import Rows, Spans, Texts, texts_of
from rawpack_packer.sources.table.keys import repeated_key
from rawpack_packer.sources.table.named_files import NamedFiles, files_in, files_of, source_name
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
        detected: bool = False,
        begun: Pass | None = None,
    ) -> None:
        """path: a shard, several (see `named_files`), or a folder of shards.

        fields: what becomes a field, as `[NAME=]MEMBER[:DTYPE]`: ["caption=txt", "json.width"], or a mapping of what is
        before the colon to what is after it. NAME `image` chooses the image, `label` the label. classes: names of the
        labels. prefix: what is put before keys: the name of the shard, or its number. skip_unreadable: pack the samples
        before the damage of shards that are truncated or damaged, without the last one of each, of which members may
        be missing. spool: for shards behind URLs. progress: called with the number of members seen. detected:
        whether members show that these are shards, and nobody says so: then those that may be labels are named, unless
        there are labels. begun: the pass through the shards, if it has begun.

        Raises UsageError where shards have no samples, or keys are not unique; UnreadableError where shards are
        damaged.
        """
        where, look = source_name(path), begun or _pass(path, fields, spool)
        is_folder = Listing.of(path).is_dir
        if is_folder:
            _check_one_set(look.files, where)
        read = _ReadShards(look, where, *_named(fields), skip_unreadable, progress)
        shards, damaged = read.shards, [*read.shards.unread.values()]
        columns, images = read.columns(), read.spans(read.images)
        shards.check_together(read.rows, images.archives)
        keys = _keys(shards, read.rows, images.archives, prefix, where)
        labels, problems = read.labels(classes)
        unnamed = read.unnamed()
        if detected and labels is None and not fields:
            read.refuse_unnamed(path)
        if labels is None and "label" not in columns:
            problems = (*problems, *read.label_entries())
        options = given_options(field=words_of(fields), classes=named_file(classes), prefix=prefix)
        info = SourceInfo(
            kind="webdataset",
            root=where,
            paths=(str(Path(path).absolute()),) if is_folder else look.files.on_disk,
            fields={name: column.kind for name, column in columns.items()},
            options=options,
            counts={
                "no_image": len(shards) - len(read.rows),
                **shards.counts,
                "unnamed_members": sum(unnamed.values()),
                "problems": len(damaged),
                **NO_COUNTS,
            },
            skipped=unnamed,
            problems=(*problems_shown(damaged), *problems),
        )
        state = np.array([[0, xxhash.xxh3_64_intdigest(repr(options).encode()) - (1 << 63)]], np.int64)
        unread = np.flatnonzero(np.isin(read.rows, [*shards.unread]))
        super().__init__(info, keys, images, columns, state, labels=labels, unread=unread)
        if labels is not None and damaged:  # what stands for the rest of a shard is not unlabelled
            counts = {**self.info.counts, UNLABELLED: self.info.counts[UNLABELLED] - len(damaged)}
            self.info = replace(self.info, counts=counts)


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


class _ReadShards:
    """Shards that were read, and what is packed of them."""

    def __init__(
        self,
        look: Pass,
        where: str,
        named: Mapping[str, NamedMember],
        label: NamedMember | None,
        skip_unreadable: bool,
        progress: Scanning,
    ) -> None:
        """where: the source, printable. named: the fields that the user named. label: what is read at once.

        Raises UsageError where a shard cannot be opened, samples have no image, or lack what was named; UnreadableError
        where shards are damaged; SourceChangedError where one changes meanwhile.
        """
        self.shards = Shards(tuple(named.values()), label)
        self._look, self._where, self._named, self._label = look, where, named, label
        words = {
            name: field.declared for name, field in named.items() if name != "image" and not array_of(field.declared)[0]
        }
        given = {name: declared_kind(name, word) for name, word in words.items() if word is not None}
        remote = bool(look.files.remotes)
        exported = {} if remote else exported_beside(look.files.paths[0]).declared(words, given)
        self._fields = {
            name: replace(field, declared=exported.get(name, field.declared))
            for name, field in named.items()
            if name != "image" and field is not label
        }
        first: dict[str, MemberValues] | None = None
        for k, members in look:
            shown = look.files.name(k)
            with reading(shown):
                try:
                    for seen in self.shards.read(members, k, shown):
                        if seen % PROGRESS_EVERY == 0:
                            progress(seen)
                except (BadArchiveError, DecodeError) as error:
                    detail = error.detail if isinstance(error, DecodeError) else str(error)
                    self.shards.cut(k, look.files, detail)
            if first is None and self.shards.show_fields:  # what is named wrongly ends here, before all are fetched
                first = self._first_values(shown)
        progress(self.shards.members)
        damaged = [*self.shards.unread.values()]
        if damaged and not skip_unreadable:
            raise UnreadableError(where, len(damaged), problems_shown(damaged))
        self._first = self._first_values(where) if first is None else first
        self.images, self.rows = self.shards.images(named.get("image"), where)

    def _first_values(self, where: str) -> dict[str, MemberValues]:
        """What the fields are, by the shards that were read so far. where: which these are. Raises UsageError where
        they lack what was named, or its first value fits no field."""
        self.images, self.rows = self.shards.images(self._named.get("image"), where)
        values = dict[str, MemberValues]()
        for name, field in self._fields.items():
            spans = self.spans(field.suffixes)
            has = np.flatnonzero(spans.states[:, 0] >= 0)
            if not len(has):
                raise UsageError(
                    f"{opt.fields(repr(name))}: no sample of {where} has a member .{plain(field.suffix)}, only "
                    f"{self._suffixes()}"
                )
            values[name] = values_of(field, spans, int(has[0]))
        return values

    def spans(self, suffixes: Iterable[str]) -> Spans:
        """The members of samples with these suffixes."""
        return self.shards.spans(self._look.files, suffixes, self.rows)

    def columns(self) -> dict[str, MemberValues]:
        """Those of the fields."""
        return {name: replace(one, spans=self.spans(self._named[name].suffixes)) for name, one in self._first.items()}

    def labels(self, classes: Classes | None) -> tuple[Labels | None, tuple[str, ...]]:
        """Those of samples, and what is wrong with the names of their classes. Raises UsageError."""
        label, values = self._label, self.shards.labels
        labelled = [i for i, value in enumerate(values) if value is not None]
        if label is None or (label is _CLS and not labelled):
            if classes is not None:
                cure = f"{opt.fields('label=MEMBER')} names them"
                raise UsageError(f"{opt.classes} names the labels of {self._where}, which has none: {cure}")
            return None, ()
        if not labelled:
            wanted = opt.fields(f"label={plain('.'.join((label.suffix, *label.entry)))}")
            raise UsageError(f"{wanted}: no sample has that; members have the suffixes {self._suffixes()}")
        if all(values[i] is None for i in self.rows.tolist()):
            first, image = (plain(self.shards.key(i)) for i in (labelled[0], int(self.rows[0])))
            raise UsageError(
                f"{self._where}: no image has a label in .{plain(label.suffix)}: the first label is that of {first}, "
                f"and the first image is {image}. A label and its image have one name up to the first dot, and follow "
                "one another: write the shard again so"
            )
        every = number_labels(values, classes, where=self._where, row_name=lambda i: plain(self.shards.key(i)))
        labels = Labels(every.numbers[self.rows], every.names)
        return _names_beside(self._look.files, labels) if labels.names is None else (labels, ())

    def unnamed(self) -> dict[str, int]:
        """The suffixes of members that are left out -> how often each occurs."""
        used = {*self.images, *(suffix for field in self._named.values() for suffix in field.suffixes)}
        used |= {self._label.suffix} if self._label else set()
        others = {suffix for suffix in self.shards.suffixes if type_of(suffix) not in PICKLES} - used
        return {f".{suffix}": number for suffix, number in self.shards.suffixes.items() if suffix in others}

    def refuse_unnamed(self, path: str | os.PathLike[str]) -> None:
        """Raise AnnotatedError where half of the samples have members that may be their labels."""
        counts = {suffix: n for suffix, n in self.shards.suffixes.items() if not is_image(suffix) and suffix != "cls"}
        counts = {suffix: n for suffix, n in counts.items() if 2 * n >= len(self.rows)}
        fields, pickles = list[str](), list[str]()
        for suffix in [*counts]:
            spans = self.spans([suffix])
            has = np.flatnonzero(spans.states[:, 0] >= 0)
            if not len(has) or is_of_camera(member_bytes(spans, int(has[0]))[:HEAD]):
                del counts[suffix]
                continue
            try:
                values_of(named_fields([suffix])[suffix.rpartition(".")[0] or suffix], spans, int(has[0]))
                fields.append(suffix)
            except (UsageError, KeyError):
                pickles += [suffix] if type_of(suffix) in PICKLES else []
        if not counts:
            return
        cure = "see docs/how-to/pack-webdataset.md#fields"
        if fields:
            where = shown(os.fspath(path)) if is_url(os.fspath(path)) else os.fspath(path)
            cure = f"{command(*(word for one in fields for word in ('--field', one)), where)} packs them as fields"
            cure += (
                f", without {listed([f'.{one}' for one in counts if one not in fields], 5)}"
                if len(fields) < len(counts)
                else ""
            )
        elif pickles:
            cure = "rawpack does not read pickles, which can run code: see docs/how-to/what-is-not-read.md#pickles"
        refuse_members(path, f"members {listed([f'.{one}' for one in counts], 5)} for the images", cure)

    def label_entries(self) -> Iterator[str]:
        """A line for the entry of JSON members that may be the label, by its name or the values that it has first."""
        for suffix in [suffix for suffix in self.shards.suffixes if type_of(suffix) in JSON]:
            spans, values = self.spans([suffix]), dict[str, list[Any]]()
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

    def _suffixes(self) -> str:
        return listed([f".{suffix}" for suffix in self.shards.suffixes], 8)


def _entries(value: Any, way: str) -> Iterator[tuple[str, Any]]:
    """The values in a JSON value, each by the way to it, as `--field` takes it."""
    if not isinstance(value, dict):
        yield way, value
        return
    for name, inner in value.items():
        if not re.search("[.,:=/]", name):
            yield from _entries(inner, f"{way}.{name}")


def _files(path: str | os.PathLike[str], spool: Spool | None) -> NamedFiles:
    return files_of(path, _ENDS, spool)


def _check_one_set(files: NamedFiles, where: str) -> None:
    """Raise UsageError where a folder has several sets of shards."""
    sets = {_DIGITS.sub("*", files.base(k)): None for k in range(len(files))}
    if len(sets) > 1:
        raise UsageError(
            f"{where} contains several sets of shards, {listed([*sets], 5)}: name one of them, in quotes: "
            f"'{where}/{plain(next(iter(sets)))}'"
        )


def _shards_in(listing: Listing) -> list[str]:
    return files_in(listing, _ENDS)


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
