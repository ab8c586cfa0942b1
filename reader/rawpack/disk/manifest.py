"""The manifest `store.json`: what a store holds, and the checksum that seals it.

The manifest is written last, so its presence says that packing finished. It names every other file of the store with
its size and checksum, except `provenance.*`; its own checksum is therefore the digest of the whole store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import xxhash

from rawpack.disk.plain_files import open_plain
from rawpack.disk.tables import Codec, codec_of, format_of
from rawpack.errors import DamagedStoreError, StoreError, UnfinishedStoreError

NAME = "store.json"
VERSION = 1
HEAD_BYTES = 8192
"""So many first bytes of a shard file are hashed when it is opened: they hold the header of every format, so that a
file which was replaced or written to since is noticed without reading all of it."""

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_SEAL = b',\n "checksum": "xxh3-128:'
_MAX_MANIFEST_BYTES = 1 << 30
_MOST_BYTES = {"fields": 1 << 20, "rejects": 1 << 20, "counts": 1 << 20, "recipe": 16 << 20}
"""What each of these takes at most in a manifest: a recipe tells those of all stores that were merged."""
_ROOM = {"shards": 32, "columns": 32, "recipe": 8}
"""Bytes of text that each object of a list, or each value of a recipe, takes at least, on the average. rawpack writes
more than twice that. What is denser would grow to very many times its size in memory."""
_FEW = 1024
"""Objects and values of which no room is asked."""
_MANY_CLASSES = 1 << 20
"""More classes than samples are believed up to here."""
DTYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"} | {
    "float16", "float32", "float64", "complex64", "complex128"
}  # fmt: skip
"""numpy's parser of dtypes is not let loose on strings of strangers."""


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """One field of every sample."""

    kind: Literal["image", "mask", "number", "ragged", "text"]
    """`image` and `mask` lie in shards; `number` (one shape), `ragged` (n of one shape) and `text` lie in columns.

    A mask is stored without loss, and resized by taking the nearest pixel."""
    dtype: str
    """numpy's name: "uint8", "int64", ...; of text: "str"."""
    shape: tuple[int | None, ...] = ()
    """Of one sample. None where samples differ: (None, None, 3) for RGB images of different sizes, (None, 5) for boxes.
    """
    encoding: str = "raw"
    """How a shard holds the sample's bytes: the name of a `Codec`. `dtype` and `shape` are those that a reader returns,
    whatever is stored."""
    boxes: Literal["xyxy"] | msgspec.UnsetType = msgspec.UNSET
    """Of a ragged field of boxes, which move with the image: how its rows begin. "xyxy": left, top, right, bottom, in
    pixels of the stored image, counted from its corner. Not in the manifest of fields that are no boxes."""

    @property
    def is_boxes(self) -> bool:
        """Whether it holds boxes, which move with the image."""
        return self.boxes is not msgspec.UNSET

    @property
    def in_shards(self) -> bool:
        """Whether it lies in shards, with a checksum of each sample; others lie in columns."""
        return self.kind in ("image", "mask")

    @property
    def in_slot(self) -> bool:
        """Whether its values go into a batch's slot: not those whose samples differ in length."""
        return self.kind not in ("text", "ragged")

    @property
    def codec(self) -> Codec:
        """What `encoding` names. StoreError where no installed package has it."""
        return codec_of(self.encoding)

    @property
    def index(self) -> tuple[str, ...]:
        """The columns of the index beside the checksums: "shape", "offset", "bytes", "chunk", as far as there are."""
        own = self.codec.index
        return own if self.uniform else tuple(dict.fromkeys(("shape", "offset", "bytes", *own)))

    @property
    def deflated(self) -> bool:
        """Whether samples are in compressed chunks."""
        return "chunk" in self.codec.index

    @property
    def planar(self) -> bool:
        """Whether each sample is an image as planes of YCbCr 4:2:0."""
        return self.codec.planar

    @property
    def uniform(self) -> bool:
        """Whether all samples have one shape."""
        return None not in self.shape

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of a sample's values as they are stored, or before compression; only where the field is uniform."""
        return self.codec.stored_shape(tuple(n or 0 for n in self.shape))


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the store and what proves that it is the one that was packed."""

    name: str
    bytes: int
    xxh3: str
    """xxh3_64 of all its bytes, 16 hex digits."""
    head: str = ""
    """xxh3_64 of its first `HEAD_BYTES` bytes; of shards only."""


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one image field lies in its shard."""

    file: int = 0
    """Position in the shard's `files`."""
    offset: int = 0
    """Byte offset of the first sample, for samples that lie one after another."""
    bytes: int = 0
    """Bytes of all samples of the field together, before compression where there is any."""
    chunks: int = 0
    """Compressed pieces of the field in this shard; 0 where nothing is compressed."""
    chunk_bytes: int = 0
    """Bytes that each piece holds when decompressed (the last is padded up to it)."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of samples and the files that hold their image fields."""

    rows: int
    files: tuple[FileRecord, ...]
    fields: dict[str, Placement]


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One folder of columns: the small fields and the index of one run of samples."""

    folder: str
    rows: int
    files: tuple[FileRecord, ...]


class Rejects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What could not be packed: lines of `rejects.jsonl`, counted by reason."""

    count: int
    reasons: dict[str, int]
    file: FileRecord


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of `store.json` but its checksum."""

    rawpack: int
    """The format's version."""
    format: str
    samples: int
    fields: dict[str, Field]
    classes: tuple[str, ...] | None
    shards: tuple[Shard, ...]
    columns: tuple[Columns, ...]
    rejects: Rejects
    counts: dict[str, int]
    """What was seen while packing and may matter: images enlarged, profiles ignored, hidden files skipped, ..."""
    recipe: dict[str, Any]
    """What was done to each sample, with the libraries that did it."""

    @property
    def shard_bytes(self) -> int:
        """Bytes of all shard files."""
        return sum(record.bytes for shard in self.shards for record in shard.files)

    @property
    def store_bytes(self) -> int:
        """Bytes of all files that `records` names: the size of a store, wherever people read it."""
        return sum(record.bytes for _, record in self.records())

    def records(self) -> Iterator[tuple[str, FileRecord]]:
        """Every file of the store but `store.json` and `provenance.*`: path below the store's folder, and record."""
        for columns in self.columns:
            for record in columns.files:
                yield f"{columns.folder}/{record.name}", record
        for shard in self.shards:
            for record in shard.files:
                yield record.name, record
        yield self.rejects.file.name, self.rejects.file


def dump(manifest: Manifest) -> bytes:
    """The bytes of `store.json`, sealed by a checksum over those before it."""
    return seal(msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def seal(text: bytes) -> bytes:
    """An indented JSON object with one member more, its last: the checksum over all bytes before it."""
    if not text.endswith(b"\n}"):
        raise ValueError("only an indented JSON object can be sealed")
    body = text[:-2]
    return body + _SEAL + xxhash.xxh3_128_hexdigest(body).encode() + b'"\n}\n'


def unseal(data: bytes, where: str) -> tuple[bytes, str]:
    """The JSON object as it was before it was sealed, and its checksum. DamagedStoreError where that does not fit."""
    end = data.rfind(_SEAL)
    if end < 0:
        raise DamagedStoreError(f"{where} was not written by rawpack, or its end is missing")
    body = memoryview(data)[:end]  # no copy: manifests of very many shards are large
    digest = xxhash.xxh3_128_hexdigest(body)
    if data[end + len(_SEAL) :] != digest.encode() + b'"\n}\n':
        raise DamagedStoreError(f"{where} was changed after packing: its checksum does not fit its contents")
    return b"".join([body, b"\n}"]), digest


def parse(data: bytes, where: str) -> tuple[Manifest, str]:
    """The manifest in `data` and its checksum; `where` names the file in errors."""
    text, digest = unseal(data, where)
    try:
        version = msgspec.json.decode(text, type=_Version).rawpack
        if version > VERSION:
            raise StoreError(
                f"{where} has format version {version}; this rawpack reads up to {VERSION}. "
                "Update it: pip install --upgrade rawpack"
            )
        manifest = _decode(text)
    except (ValueError, RecursionError) as error:  # a DecodeError is a ValueError; text that is not UTF-8 another
        raise DamagedStoreError(f"{where} is not a valid manifest: {error}") from None
    try:
        _check(manifest)
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from error
    except ValueError as error:
        raise DamagedStoreError(f"{where} contradicts itself: {error}") from None
    return manifest, digest


def load(store: Path) -> tuple[Manifest, str]:
    """The manifest of the store in folder `store`, checked, and the store's digest."""
    path = store / NAME
    try:
        with open_plain(path) as (descriptor, size), os.fdopen(os.dup(descriptor), "rb") as file:
            if size > _MAX_MANIFEST_BYTES:
                raise DamagedStoreError(f"{path} is larger than any manifest ({_MAX_MANIFEST_BYTES} bytes)")
            data = file.read(size)
    except FileNotFoundError:
        if not store.is_dir():
            raise StoreError(f"{store} does not exist; a store is the folder that `rawpack pack` made") from None
        if (store / ".rawpack").is_dir():
            raise UnfinishedStoreError(f"{store}: packing did not finish; the same `rawpack pack` goes on") from None
        raise StoreError(f"{store} is not a rawpack store: it has no {NAME}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    return parse(data, str(path))


class _Version(msgspec.Struct):
    rawpack: int


class _Outline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A manifest whose larger entries are still text."""

    rawpack: int
    format: str
    samples: int
    fields: msgspec.Raw
    classes: msgspec.Raw
    shards: msgspec.Raw
    columns: msgspec.Raw
    rejects: msgspec.Raw
    counts: msgspec.Raw
    recipe: msgspec.Raw


_LARGER: dict[str, Any] = {
    "fields": dict[str, Field],
    "classes": tuple[str, ...] | None,
    "shards": tuple[Shard, ...],
    "columns": tuple[Columns, ...],
    "rejects": Rejects,
    "counts": dict[str, int],
    "recipe": dict[str, Any],
}


def _decode(text: bytes) -> Manifest:
    """The manifest in `text`. Raises ValueError for what is none, and before memory is taken for what no store has."""
    outline = msgspec.json.decode(text, type=_Outline)
    parts: dict[str, Any] = {}
    for name, kind in _LARGER.items():
        part = memoryview(getattr(outline, name))
        _check_room(name, bytes(part), outline.samples)
        try:
            parts[name] = msgspec.json.decode(part, type=kind)
        except msgspec.DecodeError as error:
            raise ValueError(f"{name}: {error}") from None
    return Manifest(rawpack=outline.rawpack, format=outline.format, samples=outline.samples, **parts)


def _check_room(name: str, text: bytes, samples: int) -> None:
    """Raise ValueError where an entry is larger, or holds more, than that of any store."""
    most = _MOST_BYTES.get(name, len(text))
    if len(text) > most:
        raise ValueError(f"{name} of {len(text)} bytes; no store has more than {most}")
    if name in _ROOM:
        held = text.count(b"{") + (text.count(b"[") + text.count(b",") if name == "recipe" else 0)
        if held > _FEW + len(text) // _ROOM[name]:
            raise ValueError(f"{name} with {held} entries in {len(text)} bytes, more than any store has")
    classes = text.count(b'"') // 2 if name == "classes" else 0
    if classes > max(samples, _MANY_CLASSES):
        raise ValueError(f"{classes} classes of {samples} samples")


def _check(manifest: Manifest) -> None:
    """Raise ValueError where the parts do not fit together. What files really hold is checked as they are opened."""
    if manifest.rawpack < 1 or manifest.samples < 0:
        raise ValueError("a version below 1, or fewer than 0 samples")
    if not manifest.fields:
        raise ValueError("samples without any field")
    encodings = format_of(manifest.format).codecs
    for name, field in manifest.fields.items():
        _check_field(name, field)
    label = manifest.fields.get("label")
    if manifest.classes is not None and label and (label.kind, label.dtype, label.shape) != ("number", "int64", ()):
        raise ValueError(f"classes, but labels are {label.kind} {label.dtype} {label.shape}")
    images = {name for name, field in manifest.fields.items() if field.in_shards}
    for shard in manifest.shards:
        if shard.rows < 1 or set(shard.fields) != images:
            raise ValueError("a shard without rows, or with other image fields than the store")
        for record in shard.files:
            _check_file(record)
        for name, placement in shard.fields.items():
            if not 0 <= placement.file < len(shard.files):
                raise ValueError(f"a shard has no file number {placement.file}")
            size = shard.files[placement.file].bytes
            if not 0 <= placement.offset <= size or placement.bytes < 0:
                raise ValueError(f"offset {placement.offset} outside {shard.files[placement.file].name}")
            deflated = manifest.fields[name].deflated
            if placement.chunks < 0 or (deflated and min(placement.chunks, placement.chunk_bytes) < 1):
                raise ValueError(f"{placement.chunks} chunks of {placement.chunk_bytes} bytes")
    for columns in manifest.columns:
        _check_name(columns.folder)
        if columns.rows < 1:
            raise ValueError(f"{columns.folder} with {columns.rows} rows")
        for record in columns.files:
            _check_file(record)
    _check_file(manifest.rejects.file)
    for what, parts in (("shards", manifest.shards), ("columns", manifest.columns)):
        rows = sum(part.rows for part in parts)
        if rows != manifest.samples:
            raise ValueError(f"{manifest.samples} samples, but {rows} rows in its {what}")
    for name in images:
        if manifest.fields[name].encoding not in encodings:
            raise ValueError(f"field {name} is {manifest.fields[name].encoding} in a {manifest.format} store")
    names = [record.name for shard in manifest.shards for record in shard.files]
    if len(set(names)) != len(names):
        raise ValueError("two shards share a file")


def _check_field(name: str, field: Field) -> None:
    if not FIELD_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a field name ({FIELD_NAME.pattern})")
    if field.kind == "text":
        if field.dtype != "str" or field.shape:
            raise ValueError(f"text field {name} with dtype {field.dtype} and shape {field.shape}")
        return
    if field.dtype not in DTYPES:
        raise ValueError(f"field {name} has no plain dtype: {field.dtype!r}")
    if len(field.shape) > 16 or any(n is not None and not 0 < n < 1 << 48 for n in field.shape):
        raise ValueError(f"field {name} has shape {field.shape}")
    if field.kind == "number" and not field.uniform:
        raise ValueError(f"field {name} has samples of different shapes")
    if field.kind == "ragged" and (field.shape[:1] != (None,) or None in field.shape[1:]):
        raise ValueError(f"ragged field {name} has shape {field.shape}: only the first length may differ")
    if not field.codec.holds(field):
        raise ValueError(f"{field.encoding} field {name} is {field.kind} {field.dtype} {field.shape}")
    if field.is_boxes and (
        field.kind != "ragged" or field.dtype[0] != "f" or len(field.shape) != 2 or (field.shape[1] or 0) < 4
    ):
        raise ValueError(f"boxes {name} with kind {field.kind}, dtype {field.dtype} and shape {field.shape}")
    if field.in_shards:
        if not field.uniform and (len(field.shape) != 3 or field.shape[2] is None):
            raise ValueError(f"field {name} of different sizes is not (height, width, channels): {field.shape}")
        if field.kind == "mask" and len(field.shape) != 3:
            raise ValueError(f"mask {name} is not (height, width, channels): {field.shape}")


def _check_file(record: FileRecord) -> None:
    _check_name(record.name)
    if record.bytes < 0 or not re.fullmatch("[0-9a-f]{16}", record.xxh3):
        raise ValueError(f"size or checksum of {record.name}")


def _check_name(name: str) -> None:
    """Names come from strangers: only plain names inside the store are followed."""
    if not _PLAIN_FILE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a plain file name")
