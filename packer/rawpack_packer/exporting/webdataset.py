"""The target "webdataset": tar files whose members are the files of the samples, as the webdataset library reads them.

A reader finds the samples by the members' names: the key ends, and the extension begins, at the first dot of the last
part. So other dots of a key are escaped as in URLs, and so is everything that a reader would skip or misread.
"""

from __future__ import annotations

import json
import re
import tarfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from rawpack.system import writing
from rawpack_packer.exporting.shards import ShardTarget
from rawpack_packer.exporting.target import (
    contents,
    extension_for,
    file_name,
    hash_of,
    plain_value,
    refuse_keys,
    repeated,
    split_key,
)
from rawpack_packer.sources import Item
from rawpack_packer.sources.base import numbered
from rawpack_packer.sources.compatible_stores import IMAGE, KEY, LABEL
from rawpack_packer.sources.store import store_rows

_BUFFER = 1 << 20
_SKIPPED = re.compile("__[^/]*__/")
"""Folders that readers skip."""
_PERCENT = re.compile(r"%(?=[0-9A-Fa-f]{2})")


def escaped(key: str) -> str:
    """A key as the part of a member's name before the first dot.

    `urllib.parse.unquote` gives the key back, unless the key itself looks as if something were escaped in it: names
    that are in a tar file already stay as they are.
    """
    folder, slash, name = file_name(key).rpartition("/")
    whole = folder + slash + name.replace(".", "%2E")
    return f"%5F{whole[1:]}" if _SKIPPED.match(whole) else whole


class WebDatasetTarget(ShardTarget[list[bytes]]):
    """See `Target`."""

    to = "webdataset"
    takes = ShardTarget.takes | {"numbered"}
    _FILE = "{split}-{number:06d}.tar"
    _SHARD_BYTES = 1_000_000_000
    _IMAGE_BYTES, _FIELD_BYTES = 768, 1024
    _OWN_BYTES = tarfile.RECORDSIZE

    def check(self) -> None:
        store = store_rows(self._source).stores[0]
        small = {name: field for name, field in store.fields.items() if not field.in_shards and name != KEY}
        label = small.get(LABEL)
        self._has_cls = label is not None and label.kind == "number" and not label.shape and label.dtype[0] in "iu"
        self._in_json = [name for name in small if name != LABEL or not self._has_cls]
        self._doubles = set[int]()
        if not self._options.numbered:
            self._check_keys()
        self._has_json = bool(self._in_json) or not self._names_tell_keys()

    def _check_keys(self) -> None:
        """Raise UsageError where samples cannot be told apart by their names."""
        self._doubles = self._used_twice()
        still = self._used_twice() if self._doubles else self._doubles

        def refused(key: str) -> str:
            name, _ = self._name(0, key)
            return "is empty" if not name else "and another are the same" if hash_of(name) in still else ""

        found = ((key, refused(key)) for key in store_rows(self._source).all_keys())
        refuse_keys(found, "samples", "their .json has the keys")

    def _names_tell_keys(self) -> bool:
        """Whether the names tell the keys, all in the same way."""
        telling = [not self._options.numbered] * 4
        for key in store_rows(self._source).all_keys() if any(telling) else ():
            name, extension = self._name(0, key)
            ways = (name, name + extension, unquote(name), unquote(name) + extension)
            telling = [tells and way == key for tells, way in zip(telling, ways, strict=True)]
        return any(telling)

    def _used_twice(self) -> set[int]:
        """Hashes of the names that several samples have."""
        return repeated(array("Q", (hash_of(self._name(0, key)[0]) for key in store_rows(self._source).all_keys())))

    def _name(self, row: int, key: str) -> tuple[str, str]:
        """What the names of a sample's members begin with, and the extension of its image."""
        suffix = self.suffixes[IMAGE]
        if self._options.numbered:
            return numbered(row), suffix
        stem, end = split_key(key)
        name = escaped(stem)
        if hash_of(name) in self._doubles:
            # Several samples have this name: but for their extensions, or because one of the keys looks escaped.
            name = escaped(_PERCENT.sub("%25", key))
        return name, extension_for(end, suffix)

    def _prepare(self, row: int, item: Item) -> list[bytes]:
        name, extension = self._name(row, item.key)
        made = []
        for field, data in contents(item, self.suffixes):
            made += _member(name + (extension if field == IMAGE else f".{field}{self.suffixes[field]}"), data)
        if self._has_cls:
            # Also -1, for no class: readers expect the same members in each sample.
            made += _member(f"{name}.cls", str(int(np.asarray(item.fields[LABEL]))).encode())
        if self._has_json:
            values = {KEY: item.key} | {field: plain_value(item.fields[field]) for field in self._in_json}
            text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
            made += _member(f"{name}.json", text.encode())
        return made

    @contextmanager
    def _open(self, path: Path) -> Iterator[Callable[[list[bytes]], object]]:
        with writing.create(path, buffering=_BUFFER) as file:
            yield file.writelines
            file.write(bytes(2 * tarfile.BLOCKSIZE))
            file.write(bytes(-file.tell() % tarfile.RECORDSIZE))


def _member(name: str, data: bytes) -> list[bytes]:
    """A file in a tar file: its header, its bytes, and zeros up to the next block."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    try:
        header = info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
    except ValueError:  # too long for the header, or not ASCII
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    return [header, data, bytes(-len(data) % tarfile.BLOCKSIZE)]
