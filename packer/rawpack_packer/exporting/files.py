"""The target "files": an image file for each sample, named by its key, its masks, and a listing of all fields.

The listing is a `metadata.jsonl` as Hugging Face's ImageFolder reads it: `file_name` is the image, and a column whose
name ends in `_file_name` is a further one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rawpack.errors import DecodeError
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.journal import Reject, rejected
from rawpack_packer.exporting.target import (
    LISTING,
    ExportOptions,
    Names,
    Target,
    Written,
    check_names,
    contents,
    in_order,
    plain_value,
)
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources.compatible_stores import IMAGE, KEY, LABEL
from rawpack_packer.sources.exported import FILE_NAME
from rawpack_packer.sources.store import store_rows
from rawpack_packer.sources.table.table import Table

_BLOCK = 32
"""Samples that a thread writes at a time."""
_SYNCED = 1024
"""Files that are synced together before they get their names."""
_DISK_BLOCK = 4096
_LINE_BYTES = 200
_FILE_NAMES = re.compile(r"(\A|_)file_names?\Z", re.IGNORECASE)
"""What ImageFolder takes for columns of files."""


class FileTarget(Target):
    """See `Target`."""

    takes = frozenset({"numbered"})

    def __init__(self, source: Table, folder: Path, options: ExportOptions) -> None:
        super().__init__(source, folder, options)
        masks = {name for name, field in store_rows(source).stores[0].fields.items() if field.kind == "mask"}
        self._names, self._made = Names(self.suffixes, options.numbered, masks), {folder}
        self._columns = columns_of(source.info.fields, {name for name, end in self.suffixes.items() if end != ".npy"})

    def check(self) -> None:
        check_names(self._names, store_rows(self._source).all_keys, self._folder)

    def need_bytes(self, sizes: Sequence[int]) -> int:
        return sum(-(-size // _DISK_BLOCK) * _DISK_BLOCK for size in sizes) + _LINE_BYTES

    def files(self, samples: int) -> int:
        return samples * len(self.suffixes)

    def finish(self, rejects: Sequence[Reject]) -> None:
        super().finish(rejects)
        without = {reject.sample for reject in rejects}
        temporary = self._folder / WORK / f"{LISTING}.tmp"
        with writing.create(temporary) as file:
            for row in range(len(self._source)):
                if row not in without:
                    line = json.dumps(self._line(row), ensure_ascii=False, separators=(",", ":"))
                    file.write(line.encode() + b"\n")
        files.commit(temporary, self._folder / LISTING)

    def said(self) -> dict[str, Any]:
        renamed = {column: name for name, column in self._columns.items() if column != name}
        return super().said() | {"columns": {FILE_NAME: IMAGE, **renamed}}

    def _line(self, row: int) -> dict[str, Any]:
        """The line of a sample."""
        key = self._source.key(row)
        paths, small, classes = (
            self._names.paths(row, key),
            store_rows(self._source).column_values(row),
            self._source.info.classes,
        )
        line: dict[str, Any] = {FILE_NAME: paths[IMAGE], KEY: key}
        for name, column in self._columns.items():
            line[column] = paths[name] if name in paths else plain_value(small[name])
        if LABEL in line and classes is not None:
            line[LABEL] = classes[line[LABEL]] if line[LABEL] >= 0 else None
        return line

    def write(self, run: RunOptions) -> Written:
        count, unnamed, done = len(self._source), list[tuple[Path, Path]](), Written()
        seen, allowed = 0, run.allowed(count)
        blocks = (range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))
        with closing(in_order(self._write_some, blocks, run)) as results:
            for some in results:
                done.files, done.bytes = done.files + some.files, done.bytes + some.bytes
                done.rejects += some.rejects
                unnamed += some.unnamed
                if len(unnamed) >= _SYNCED:
                    self._name(unnamed)
                seen = min(seen + _BLOCK, count)
                run.progress.advance(seen, done.bytes, len(done.rejects))
                if len(done.rejects) > allowed:
                    break
        self._name(unnamed)
        return done

    def _write_some(self, rows: range) -> Written:
        """Write the missing files of some samples under temporary names. Any thread may call it."""
        done = Written()
        for row in rows:
            key = self._source.key(row)
            paths = {name: self._folder / path for name, path in self._names.paths(row, key).items()}
            missing = {name: path for name, path in paths.items() if not os.path.lexists(path)}
            if not missing:
                continue
            try:
                item = self._source[row]
            except DecodeError as error:
                done.rejects.append(rejected(row, key, error))
                continue
            for name, data in contents(item, {name: self.suffixes[name] for name in missing}):
                temporary = self._folder / WORK / f"{row}.{name}.tmp"
                with writing.create(temporary) as file:
                    file.write(data)
                done.unnamed.append((temporary, missing[name]))
                done.files += 1
                done.bytes += len(data)
        return done

    def _name(self, unnamed: list[tuple[Path, Path]]) -> None:
        """Sync files, give them their final names, and clear the list."""
        files.sync_all([temporary for temporary, _ in unnamed])
        for temporary, final in unnamed:
            if final.parent not in self._made:
                writing.make_folder(final.parent, below=self._folder)
                self._made.add(final.parent)
            writing.replace(temporary, final, below=self._folder)
        unnamed.clear()


def columns_of(fields: Iterable[str], files: Container[str]) -> dict[str, str]:
    """Each field -> its name in the listing. files: the fields that are image files there. Others do not get the name
    of a column of files."""
    names = list(fields)
    columns, taken = dict[str, str](), {FILE_NAME, *(name.lower() for name in names)}
    for name in names:
        column = f"{name}_{FILE_NAME}" if name in files else name
        while (column != name and column.lower() in taken) or (name not in files and _FILE_NAMES.search(column)):
            column += f"_{FILE_NAME}" if name in files else "_"
        columns[name] = column
        taken.add(column.lower())
    return columns
