"""Adds and replaces small fields of a store: writes all columns anew, and then a manifest that names them.

Images, and the columns that the old manifest names, are not touched: open readers keep working, and until the new
manifest is written, the store is the old one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk import manifest as manifests
from rawpack.disk import npy
from rawpack.disk.columns import files_of
from rawpack.disk.manifest import Field, Manifest
from rawpack.errors import PackError, UsageError
from rawpack.store.store import Store
from rawpack.system import writing
from rawpack_packer.destination import files, journal
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.folder import THEN_COPY, local_folder
from rawpack_packer.destination.lock import Lock
from rawpack_packer.job import commit
from rawpack_packer.job.append import classes_with, open_store, other_splits
from rawpack_packer.options import opt
from rawpack_packer.provenance import COLUMNS, PROVENANCE, REJECTS, STATES, of_run, packing_runs
from rawpack_packer.sources.declared import declared_fields
from rawpack_packer.sources.fields import FieldKind, check_names
from rawpack_packer.sources.frames import keyed_rows
from rawpack_packer.sources.listing.lines import ListingRows
from rawpack_packer.sources.listing.reading import KeyedFields, read_keyed
from rawpack_packer.sources.table.columns import Column, Numbers, RaggedColumn, TextLists, Texts
from rawpack_packer.text import Block, Shown, count, listed, plain

_BLOCK = 1 << 16
_SHOWN = 5
_NONE = "-1"
"""Among names of classes, no class."""
Numbering = NDArray[np.int64]


@dataclass(frozen=True)
class Relabeled(Shown):
    """The result of `relabel_store`."""

    store: str
    digest: str
    """The store's, as it is now."""
    samples: int
    """Samples of the store."""
    named: int
    """Samples that the file has values for."""
    added: tuple[str, ...]
    """Fields that are new."""
    replaced: tuple[str, ...]
    new_classes: tuple[str, ...]
    skipped: int
    """Keys in the file that no sample has."""
    stale: tuple[str, ...]
    """Fields whose copies in HDF5 shards have the old values."""

    def in_words(self) -> Block:
        what = [
            f"{words} {', '.join(names)}"
            for words, names in (("added", self.added), ("replaced", self.replaced))
            if names
        ]
        rows = [("new classes", listed(self.new_classes, _SHOWN))] if self.new_classes else []
        rows += [("skipped", f"{count(self.skipped, 'key')} that no sample has")] if self.skipped else []
        if self.stale:
            rows.append(("old values", f"copies of {', '.join(self.stale)} inside the HDF5 shards keep them"))
        samples = f"{count(self.named, 'sample')} of {self.samples:,}"
        done = f"{' and '.join(what)} of {samples}"
        if not what:
            done = f"nothing to do: {samples} {'has' if self.named == 1 else 'have'} these values already"
        return Block(plain(f"{self.store}: {done}"), rows)


def relabel_store(
    store: str | os.PathLike[str],
    new: Any,
    *,
    key_column: str | None = None,
    fields: Mapping[str, Any] | Iterable[str] = (),
    skip_unknown: bool = False,
    stale_copies: bool = False,
) -> Relabeled:
    """What `rawpack.relabel` does, with its parameters.

    Raises UsageError with nothing changed. Killed at any time, the store is the old one or the new one; a store that
    has the new values stays as it is.
    """
    path, (new, of_floats) = local_folder(store, f"relabel a store in a folder, {THEN_COPY}"), _rows_of(new)
    opened = open_store(path, [] if isinstance(new, ListingRows) else [Path(new)], "relabel")
    opened.columns.check_contents()
    if journal.read_note(path, journal.AppendNote) is not None:
        raise UsageError(f"{path} has an unfinished append: run it again to resume it first")
    declared = declared_fields(fields if isinstance(fields, Mapping) else list(fields))
    kinds = of_floats | {name: _kind_of(field) for name, field in opened.fields.items() if not field.in_shards}
    kinds = {name: kind for name, kind in kinds.items() if name not in ("key", "label")}
    values = read_keyed(new, key_column, declared, kinds)
    change = _Change(opened, values, skip_unknown=skip_unknown)
    stale = tuple(change.columns) if opened.manifest.format == "hdf5" else ()
    if stale and not stale_copies:
        raise UsageError(
            f"{path} is an hdf5 store, whose shards have copies of {', '.join(stale)} for other programs: allow these "
            f"to keep the old values with {opt.stale_copies}, or pack again"
        )
    unchanged = _has_values(opened, change)
    if unchanged:
        with files.refusals_named(path):
            commit.tidy_finished(path)
    else:
        _write(path, opened, change, values.where)
    return Relabeled(
        str(path),
        manifests.load(path)[1],
        len(opened),
        change.named,
        tuple(name for name in change.columns if name not in opened.fields),
        tuple(name for name in change.columns if name in opened.fields and not unchanged),
        change.new_classes,
        change.skipped,
        stale,
    )


def _rows_of(new: Any) -> tuple[str | os.PathLike[str] | ListingRows, dict[str, FieldKind]]:
    """A file as it is named; of a table in memory, its rows, and its columns of floats. Raises UsageError."""
    if isinstance(new, str | os.PathLike):
        return new, {}
    if (rows := keyed_rows(new)) is None:
        raise UsageError(
            f"the new fields are a {type(new).__name__}: give a file, or a DataFrame of pandas or polars, or a table "
            "of Arrow, with a column of keys"
        )
    return rows


def _write(path: Path, store: Store, change: _Change, where: str) -> None:
    """Make the store the new one, unless another run has changed it. where: see `KeyedFields`."""
    with files.refusals_named(path):
        writing.make_folder(path / WORK)
        with Lock(path):
            if manifests.load(path)[1] != store.digest:
                raise UsageError(f"another run has just changed {path}; give the command again")
            try:
                _commit(path, store, change, where)
            except (Exception, KeyboardInterrupt):
                with contextlib.suppress(Exception):
                    _withdraw(path, store)
                raise


class _Change:
    """The new values, checked: which samples get them, and the fields and classes that the store will have."""

    def __init__(self, store: Store, keyed: KeyedFields, *, skip_unknown: bool) -> None:
        self._store, where = store, keyed.where
        lines = {keyed.keys.value(i): i for i in range(len(keyed.keys))}
        self.lines = np.full(len(store), -1, np.int64)
        """(samples,): which line each sample gets its values from; -1 for none."""
        if "key" not in store.fields:
            raise UsageError(f"{store.path} has no keys, by which new values could find their samples")
        for first in range(0, len(store), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(store)))
            self.lines[rows] = [lines.pop(key, -1) for key in store.columns.text("key", rows)]
        self.named, self.skipped = int((self.lines >= 0).sum()), len(lines)
        if lines and not skip_unknown:
            raise UsageError(
                f"{where}: {count(len(lines), 'key')} that no sample of {store.path} has: "
                f"{listed(list(lines), _SHOWN)}; leave them out with {opt.skip_unknown}"
            )
        if not self.named:
            raise UsageError(f"{where} has no key of {store.path}, whose keys are like {self._key(0)!r}")
        check_names(keyed.kinds)
        self.classes, self.new_classes = store.manifest.classes, tuple[str, ...]()
        self.fields, self.columns = dict(store.fields), dict[str, Column]()
        self._of_labels = self.lines
        if "label" in keyed.kinds and "label" in store.fields:
            self._of_labels = np.where(np.append(keyed.unlabelled, True)[self.lines], -1, self.lines)
            if keyed.kinds.keys() == {"label"}:
                self.named = int((self._of_labels >= 0).sum())
                if not self.named:
                    raise UsageError(f"{where}: its column label is empty: fill it in for each sample that changes")
        for name, kind in keyed.kinds.items():
            column = keyed.columns[name]
            if name == "label" and not (self._of_labels >= 0).any():
                continue
            if name == "label":
                column = self._labels(keyed, column)
                kind = FieldKind("int64") if self.classes is not None else kind
            self.fields[name] = self._field(name, kind, where)
            self.columns[name] = column
        # The order in which stores have their fields: keys come last.
        self.fields["key"] = self.fields.pop("key")

    def lines_of(self, name: str) -> Numbering:
        """See `lines`: of one field. A label that is empty stays as it is."""
        return self._of_labels if name == "label" else self.lines

    def _field(self, name: str, kind: FieldKind, where: str) -> Field:
        shape = "text" if kind.dtype == "str" else "ragged" if kind.ragged else "number"
        old = self._store.fields.get(name)
        array = msgspec.UNSET if old is None or shape == "text" else old.array
        field = Field(kind=shape, dtype=kind.dtype, shape=kind.shape, array=array)  # type: ignore[arg-type]
        if old is not None and (old.in_shards or old.boxes is not msgspec.UNSET or old.follows is not msgspec.UNSET):
            raise UsageError(
                f"{where}: {name} cannot be replaced: images and masks, boxes and what follows them go together"
            )
        left = np.flatnonzero(self.lines_of(name) < 0)
        if len(left) and field != old:
            what = (
                f"is new to {self._store.path}"
                if old is None
                else f"is {old.dtype} {old.shape} there, and {field.dtype} {field.shape} here"
            )
            raise UsageError(
                f"{where}: {name} {what}, so every sample needs a value: {count(len(left), 'sample')} have none, such "
                f"as {self._key(int(left[0]))!r}"
            )
        return field

    def _labels(self, keyed: KeyedFields, column: Column) -> Column:
        """Labels as numbers of the store's classes."""
        old = self.classes
        if not isinstance(column, Numbers) or column.values.ndim != 1 or column.values.dtype.kind not in "iu":
            if old is not None:
                raise UsageError(f"{keyed.where}: label must be class names, or the numbers of classes, such as 0")
            return column
        values = column.values.astype(np.int64)
        if keyed.names is not None:
            if old is None and "label" in self._store.fields and (self.lines_of("label") < 0).any():
                raise UsageError(
                    f"{keyed.where}: labels are class names here, and {self._store.path} has no classes: every sample "
                    "needs one"
                )
            self.new_classes = tuple(name for name in keyed.names if name not in {*(old or ()), _NONE})
            self.classes = classes_with(self.new_classes, old or (), self._store, other_splits(self._store)[0])
            numbers = {_NONE: -1} | {name: number for number, name in enumerate(self.classes)}
            values = np.append([numbers[name] for name in keyed.names], -1)[values]
        elif old is not None and (wrong := np.flatnonzero((values < -1) | (values >= len(old)))).size:
            raise UsageError(
                f"{keyed.where}: label {values[wrong[0]]} of {keyed.keys.value(int(wrong[0]))!r} is not a class of "
                f"{self._store.path}, which has {len(old)}, counted from 0"
            )
        return Numbers(values)

    def _key(self, row: int) -> str:
        return str(self._store.columns.text("key", np.array([row]))[0])


def _commit(path: Path, store: Store, change: _Change, where: str) -> None:
    manifest, run = store.manifest, len(packing_runs(store.manifest)) + 1
    folder, names, counts = commit.begin_columns(path, run), list[str](), manifest.counts
    for name, field in change.fields.items():
        column = change.columns.get(name)
        parts = (
            _copied(store, name, field)
            if column is None
            else _replaced(store, change.lines_of(name), name, field, column)
        )
        for stem, blocks in parts.items():
            with writing.create(folder / f"{stem}.npy") as file:
                file.write(npy.header(blocks[0].dtype, (sum(map(len, blocks)), *blocks[0].shape[1:])))
                for block in blocks:
                    file.write(np.ascontiguousarray(block).data)
            names.append(f"{stem}.npy")
        if name == "label" and column is not None and field.kind == "number" and not field.shape:
            counts = _counts(manifest, change.classes, parts[name][0])
    columns = commit.end_columns(path, run, names, len(store))
    rejects = commit.commit_rejects(path, run, (), manifest)
    about = {"relabeled": list(change.columns), "source": {"kind": "listing", "root": where}}
    seen = manifest.samples + manifest.rejects.count
    commit.write_provenance(path, {**about, **commit.facts_of_run(), "first": seen}, np.empty((0, 2), np.int64), run)
    new = msgspec.structs.replace(
        manifest,
        fields=change.fields,
        features=manifests.features_of(change.fields, manifest.ranges),
        classes=change.classes,
        columns=(columns,),
        rejects=msgspec.structs.replace(manifest.rejects, file=rejects),
        counts=counts,
    )
    commit.write_manifest(path, new)


def _has_values(store: Store, change: _Change) -> bool:
    """Whether the store has the new values already: a run may have been killed after it had replaced the manifest."""
    if change.fields != store.fields or change.classes != store.manifest.classes:
        return False
    for name, column in change.columns.items():
        field = store.fields[name]
        new, old = _replaced(store, change.lines_of(name), name, field, column), _copied(store, name, field)
        # As bytes: a NaN is equal to itself.
        if any(b"".join(map(_bytes, new[stem])) != b"".join(map(_bytes, blocks)) for stem, blocks in old.items()):
            return False
    return True


def _bytes(block: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(block).tobytes()


def _withdraw(path: Path, store: Store) -> None:
    """Remove what `_commit` has written, unless the manifest names it by now: on a full disk, it is in the way."""
    if manifests.load(path)[1] != store.digest:
        return
    run = len(packing_runs(store.manifest)) + 1
    # Of another kind, it is not ours; and a pipe would keep `shutil.rmtree` waiting for a writer.
    with contextlib.suppress(PackError):
        writing.remove_folder(path / of_run(COLUMNS, run))
    for name in (REJECTS, PROVENANCE, STATES):
        (path / of_run(name, run)).unlink(missing_ok=True)
    commit.tidy(path)


def _copied(store: Store, name: str, field: Field) -> dict[str, list[NDArray[Any]]]:
    """The columns of a field as they are: file name without .npy -> its blocks."""
    folders = store.columns.folders
    columns = {
        file.removesuffix(".npy"): [folder.arrays[file.removesuffix(".npy")] for folder in folders]
        for file in files_of(name, field, 0, 0)
    }
    if field.kind in ("text", "ragged"):
        offsets = columns[f"{name}.offset"]
        ends = np.cumsum([0, *(int(offset[-1]) for offset in offsets)])
        columns[f"{name}.offset"] = [
            offsets[0],
            *(offset[1:] + end for offset, end in zip(offsets[1:], ends[1:], strict=False)),
        ]
    return columns


def _replaced(store: Store, lines: Numbering, name: str, field: Field, column: Column) -> dict[str, list[NDArray[Any]]]:
    """The columns of a field with the new values, as `_copied` has them."""
    new, every = np.flatnonzero(lines >= 0), np.arange(len(lines))
    if isinstance(column, Numbers):
        values = np.empty((len(lines), *(n or 0 for n in field.shape)), field.dtype)
        if len(new) < len(lines):
            store.columns.take(name, every, values)
        values[new] = column.values[lines[new]]
        return {name: [values]}
    if isinstance(column, Texts | TextLists):
        old = store.columns.ragged(name, every) if len(new) < len(lines) else []
        new_texts = column.texts if isinstance(column, TextLists) else column
        texts = [old[i].tobytes() if line < 0 else new_texts.raw(line) for i, line in enumerate(lines.tolist())]
        return {name: [np.frombuffer(b"".join(texts), np.uint8)], f"{name}.offset": [_offsets(texts)]}
    assert isinstance(column, RaggedColumn)
    kept = store.columns.ragged(name, every) if len(new) < len(lines) else []
    rows = [
        kept[i] if line < 0 else column.values[int(column.ends[line]) : int(column.ends[line + 1])]
        for i, line in enumerate(lines.tolist())
    ]
    return {name: [np.concatenate(rows).astype(field.dtype, copy=False)], f"{name}.offset": [_offsets(rows)]}


def _offsets(values: list[Any]) -> Numbering:
    return np.cumsum([0, *map(len, values)], dtype=np.int64)


def _counts(manifest: Manifest, classes: tuple[str, ...] | None, labels: Numbering) -> dict[str, int]:
    """The counts of the store with these labels, (samples,)."""
    if classes is None:
        return manifest.counts
    numbers, numbers_of_samples = np.unique(labels[labels >= 0], return_counts=True)
    changed = {
        "unlabelled": int((labels < 0).sum()),
        "classes_of_one": int((numbers_of_samples == 1).sum()),
        "empty_classes": len(classes) - len(numbers),
    }
    return dict(sorted((manifest.counts | changed).items()))


def _kind_of(field: Field) -> FieldKind:
    """What a column must hold to replace a field."""
    return FieldKind("str" if field.kind == "text" else field.dtype, field.shape)
