"""The manifest `store.json`: the contents of a store, sealed by a checksum.

The manifest is written last, so its presence means that packing finished. It names every other file of the store with
its size and checksum, except `provenance.*`. Its own checksum is therefore the digest of the whole store.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import xxhash
from msgspec import Meta

from rawpack.disk.tables import Codec, codec_of, format_of
from rawpack.errors import DamagedStoreError, StoreError, UnfinishedStoreError
from rawpack.system.files import read_plain

NAME = "store.json"
VERSION = 1
SEVERAL_IMAGES, SEVERAL_TEXTS = "several-images", "several-texts"
VALUE_RANGES, DISPLACEMENTS = "value-ranges", "displacements"
FEATURES = (SEVERAL_IMAGES, SEVERAL_TEXTS, VALUE_RANGES, DISPLACEMENTS)
"""What some stores have and a reader must know of. A reader refuses those that it does not know, by name."""
HEAD_BYTES = 8192
"""How many first bytes of a shard file are hashed when it is opened. They include the header of every format, so most
files that were replaced or written to are noticed without reading all of them."""

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SEAL = b',\n "checksum": "xxh3-128:'
MAX_MANIFEST_BYTES = 256 << 20
"""More than any store has: a shard takes about 330 bytes. Decoded, a forged one takes 22 times its size at most."""
DTYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"} | {
    "float16", "float32", "float64", "complex64", "complex128"
}  # fmt: skip
"""numpy's parser of dtypes never sees untrusted strings."""
_INT64 = (1 << 63) - 1
_Count = Annotated[int, Meta(ge=0, le=_INT64)]
_AtLeastOne = Annotated[int, Meta(ge=1, le=_INT64)]
_Length = Annotated[int, Meta(ge=1, lt=1 << 48)]
_FieldName = Annotated[str, Meta(pattern=rf"\A{FIELD_NAME.pattern}\Z")]
_Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
_PlainName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\Z")]
"""Of a file or folder: an untrusted manifest must not lead out of the store."""
Range = tuple[int | float, int | float]
"""The least and the greatest finite value of an image field. Floats would round whole numbers of 64 bits."""


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """One field of every sample."""

    kind: Literal["image", "mask", "number", "ragged", "text"]
    """`image` and `mask` are stored in shards; `number` (one shape), `ragged` (n of one shape) and `text` in columns.

    A mask is stored without loss, and resized by taking the nearest pixel."""
    dtype: str
    """numpy's name: "uint8", "int64", ...; "str" for text."""
    shape: Annotated[tuple[_Length | None, ...], Meta(max_length=16)] = ()
    """Of one sample. None where samples differ: (None, None, 3) for RGB images of different sizes, (None, 5) for boxes,
    (None,) for a list of texts.
    """
    encoding: str = "raw"
    """How a shard holds the sample's bytes: the name of a `Codec`. A reader always returns `dtype` and `shape`."""
    boxes: Literal["xyxy"] | msgspec.UnsetType = msgspec.UNSET
    """How the rows of a ragged field of boxes begin. "xyxy": left, top, right, bottom, in pixels of the stored
    image, from its corner. Unset for fields that are not boxes."""

    follows: Literal["rows", "keypoints", "polygons"] | msgspec.UnsetType = msgspec.UNSET
    """Set for a ragged field that belongs to the rows of `boxes`, and loses what belongs to a row that is left out.
    "rows": one value per box. "keypoints": (n, k, 3) per box: x, y, visibility. "polygons": rows x, y, box, part: the
    points of outlines in their order, with the row of the box and the number of the outline."""
    mirror: tuple[_Count, ...] | msgspec.UnsetType = msgspec.UNSET
    """For keypoints, which one takes the place of each when the image is mirrored. Unset where that is unknown."""
    nearest: bool | msgspec.UnsetType = msgspec.UNSET
    """True for an image whose values must not be averaged, such as a depth map: it is resized by taking the nearest
    pixel, as a mask is. Else unset."""
    displacement: Literal["flow", "disparity"] | msgspec.UnsetType = msgspec.UNSET
    """Set for an image whose values are distances in its own pixels. "flow": floats (height, width, 2), along x and y.
    "disparity": (height, width, 1), along x. A resize scales them, and a flip of its axis negates a flow."""
    array: bool | msgspec.UnsetType = msgspec.UNSET
    """True for numbers that may have the image's height and width and are no image, as the user said. Else unset."""

    @property
    def moves(self) -> bool:
        """Whether it holds boxes or what follows them, and so changes with the image."""
        return self.is_boxes or self.follows is not msgspec.UNSET

    @property
    def is_boxes(self) -> bool:
        """Whether it holds boxes, which move with the image."""
        return self.boxes is not msgspec.UNSET

    @property
    def is_array(self) -> bool:
        """Whether the user said that it is no image."""
        return self.array is True

    @property
    def exact(self) -> bool:
        """Whether it is pixels whose values must not be averaged: a mask, or an image that says so."""
        return self.kind == "mask" or self.nearest is True

    @property
    def in_shards(self) -> bool:
        """Whether it is stored in shards, with a checksum of each sample; other fields are stored in columns."""
        return self.kind in ("image", "mask")

    @property
    def ranged(self) -> bool:
        """Whether the range of its values is noted: an image of whole numbers wider than 8 bits, or of floats."""
        return self.kind == "image" and self.dtype[0] in "uif" and not self.dtype.endswith("int8")

    @property
    def in_slot(self) -> bool:
        """Whether its values are placed in a batch's slot: only where all samples have the same length."""
        return self.kind not in ("text", "ragged")

    @property
    def is_texts(self) -> bool:
        """Whether a sample has a list of texts, of any number, which a column holds as JSON."""
        return self.kind == "text" and bool(self.shape)

    @property
    def codec(self) -> Codec:
        """The codec that `encoding` names. Raises StoreError where no installed package has it."""
        return codec_of(self.encoding)

    @property
    def index(self) -> tuple[str, ...]:
        """The columns of its index besides the checksums, out of "shape", "offset", "bytes" and "chunk"."""
        own = self.codec.index
        return own if self.uniform else tuple(dict.fromkeys(("shape", "offset", "bytes", *own)))

    @property
    def deflated(self) -> bool:
        """Whether samples are in compressed chunks."""
        return "chunk" in self.codec.index

    @property
    def planar(self) -> bool:
        """Whether each sample is an image as planes of YCgCo 4:2:0."""
        return self.codec.planar

    @property
    def uniform(self) -> bool:
        """Whether all samples have one shape."""
        return None not in self.shape

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a sample's values as they are stored, before any compression. Uniform fields only."""
        return self.codec.stored_shape(tuple(n or 0 for n in self.shape))


CURATED = {
    "phash": Field(kind="number", dtype="uint64"),
    "sharpness": Field(kind="number", dtype="int32"),
    "brightness": Field(kind="number", dtype="uint8"),
    "entropy": Field(kind="number", dtype="int32"),
    "one_color": Field(kind="number", dtype="int32"),
}
"""The fields that `--curate` adds, all or none of them."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the store, with its size and checksums."""

    name: _PlainName
    bytes: _Count
    xxh3: _Hash
    """xxh3_64 of all its bytes, 16 hex digits."""
    head: str = ""
    """xxh3_64 of its first `HEAD_BYTES` bytes. Shards only."""


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one image or mask field is in its shard."""

    file: _Count = 0
    """Position in the shard's `files`."""
    offset: _Count = 0
    """Byte offset of the first sample, where samples are stored one after another."""
    bytes: _Count = 0
    """Bytes of all samples of the field together, before any compression."""
    chunks: _Count = 0
    """Compressed chunks of the field in this shard; 0 without compression."""
    chunk_bytes: _Count = 0
    """Bytes of each chunk when decompressed (the last one is padded)."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of samples, and the files that hold their images and masks."""

    rows: _AtLeastOne
    files: tuple[FileRecord, ...]
    fields: dict[str, Placement]


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder of columns: the small fields and the index of a run of samples."""

    folder: _PlainName
    rows: _AtLeastOne
    files: tuple[FileRecord, ...]


class Rejects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The samples that could not be packed: the lines of `rejects.jsonl`, counted by reason."""

    count: _Count
    reasons: dict[str, int]
    file: FileRecord


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of `store.json` except its checksum."""

    rawpack: _AtLeastOne
    """The format's version."""
    format: str
    samples: _Count
    fields: Annotated[dict[_FieldName, Field], Meta(min_length=1)]
    features: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Those of `FEATURES` that the store has, in their order. Unset where there are none."""
    ranges: dict[str, Range] | msgspec.UnsetType = msgspec.UNSET
    """Of the fields that are `ranged`, in their order. Unset where there are none, and in stores of older versions."""
    classes: tuple[str, ...] | None
    shards: tuple[Shard, ...]
    columns: tuple[Columns, ...]
    rejects: Rejects
    counts: dict[str, int]
    """Noteworthy events of packing: images enlarged, profiles ignored, hidden files skipped, ..."""
    recipe: dict[str, Any]
    """What was done to each sample, and with which versions of libraries."""

    @property
    def shard_bytes(self) -> int:
        """Bytes of all shard files."""
        return sum(record.bytes for shard in self.shards for record in shard.files)

    @property
    def store_bytes(self) -> int:
        """Bytes of all files that `records` names: the size of a store, wherever people read it."""
        return sum(record.bytes for _, record in self.records())

    def records(self) -> Iterator[tuple[str, FileRecord]]:
        """Path below the store's folder, and record, of every file except `store.json` and `provenance.*`."""
        for columns in self.columns:
            for record in columns.files:
                yield f"{columns.folder}/{record.name}", record
        for shard in self.shards:
            for record in shard.files:
                yield record.name, record
        yield self.rejects.file.name, self.rejects.file


def dump(manifest: Manifest) -> bytes:
    """The bytes of `store.json`, sealed."""
    return seal(msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def seal(text: bytes) -> bytes:
    """An indented JSON object with a last member added: the checksum of all bytes before it."""
    if not text.endswith(b"\n}"):
        raise ValueError("only an indented JSON object can be sealed")
    body = text[:-2]
    return body + _SEAL + xxhash.xxh3_128_hexdigest(body).encode() + b'"\n}\n'


def is_sealed(data: bytes) -> bool:
    """Whether a file was written by rawpack, as a manifest is; see `unseal`."""
    return _SEAL in data


def unseal(data: bytes, where: str) -> tuple[bytes, str]:
    """The JSON object as it was before sealing, and its checksum. Raises DamagedStoreError where it does not match."""
    end = data.rfind(_SEAL)
    if end < 0:
        raise DamagedStoreError(f"{where} was not written by rawpack, or its end is missing")
    body = memoryview(data)[:end]  # no copy: manifests of very many shards are large
    digest = xxhash.xxh3_128_hexdigest(body)
    if data[end + len(_SEAL) :] != digest.encode() + b'"\n}\n':
        raise DamagedStoreError(f"{where} was changed after packing: its checksum does not match its contents")
    return b"".join([body, b"\n}"]), digest


def parse(data: bytes, where: str) -> tuple[Manifest, str]:
    """The manifest in `data`, and its checksum. `where` names the file in errors."""
    text, digest = unseal(data, where)
    try:
        needed = msgspec.json.decode(text, type=_Needed)
        if needed.rawpack > VERSION:
            raise StoreError(
                f"{where} has format version {needed.rawpack}; this rawpack reads up to {VERSION}. {_UPDATE}"
            )
        if unknown := [name for name in needed.features if name not in FEATURES]:
            raise StoreError(f"{where} has features that this rawpack does not know: {', '.join(unknown)}. {_UPDATE}")
        manifest = msgspec.json.decode(text, type=Manifest)
    except (ValueError, RecursionError) as error:  # msgspec's DecodeError and UnicodeDecodeError are ValueErrors
        raise DamagedStoreError(f"{where} is not a valid manifest: {error}") from error
    try:
        _check(manifest)
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from error
    except ValueError as error:
        raise DamagedStoreError(f"{where} contradicts itself: {error}") from error
    return manifest, digest


def load(store: Path) -> tuple[Manifest, str]:
    """The manifest of the store in folder `store`, checked, and the store's digest."""
    path = store / NAME
    try:
        data = read_plain(path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        if not store.is_dir():
            raise StoreError(f"{store} does not exist; a store is the folder that `rawpack pack` made") from None
        if (store / ".rawpack").is_dir():
            raise UnfinishedStoreError(f"{store}: packing did not finish; the same `rawpack pack` resumes it") from None
        raise StoreError(f"{store} is not a rawpack store: it has no {NAME}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    return parse(data, str(path))


_UPDATE = "Update it: pip install --upgrade rawpack"


class _Needed(msgspec.Struct):
    """What a reader needs to know before it looks at anything else."""

    rawpack: int
    features: tuple[str, ...] = ()


def features_of(
    fields: Mapping[str, Field], ranges: Mapping[str, Range] | msgspec.UnsetType
) -> tuple[str, ...] | msgspec.UnsetType:
    """The features of a store with these fields and ranges, as its manifest has them."""
    has = {
        SEVERAL_IMAGES: sum(field.kind == "image" for field in fields.values()) > 1,
        SEVERAL_TEXTS: any(field.is_texts for field in fields.values()),
        VALUE_RANGES: ranges is not msgspec.UNSET,
        DISPLACEMENTS: any(field.displacement is not msgspec.UNSET for field in fields.values()),
    }
    return tuple(name for name in FEATURES if has[name]) or msgspec.UNSET


def joined(ranges: Iterable[Mapping[str, Range]]) -> dict[str, Range]:
    """The ranges of all samples from those of some each."""
    ends = dict[str, Range]()
    for own in ranges:
        for name, (least, greatest) in own.items():
            low, high = ends.get(name, (least, greatest))
            ends[name] = min(low, least), max(high, greatest)
    return ends


def main_image(fields: Mapping[str, Field]) -> str:
    """The field that masks and boxes belong to: `image`, or else the first one of images; empty where there is none."""
    images = [name for name, field in fields.items() if field.kind == "image"]
    return "image" if "image" in images else next(iter(images), "")


def _check(manifest: Manifest) -> None:
    """Raise ValueError where the manifest contradicts itself. Files are checked when they are opened."""
    encodings = format_of(manifest.format).codecs
    for name, field in manifest.fields.items():
        _check_field(name, field)
        if field.in_shards and field.encoding not in encodings:
            raise ValueError(f"field {name} is {field.encoding} in a {manifest.format} store")
        if field.follows is not msgspec.UNSET and not (
            "boxes" in manifest.fields and manifest.fields["boxes"].is_boxes
        ):
            raise ValueError(f"{name} follows boxes, and there is no field of them")
    label = manifest.fields.get("label")
    if manifest.classes is not None and label and (label.kind, label.dtype, label.shape) != ("number", "int64", ()):
        raise ValueError(f"classes, but labels are {label.kind} {label.dtype} {label.shape}")
    if manifest.features != (features := features_of(manifest.fields, manifest.ranges)):
        raise ValueError(f"its features are {manifest.features}, by its fields and ranges {features}")
    if manifest.ranges is not msgspec.UNSET:
        _check_ranges(manifest.ranges, manifest.fields)
    images = {name for name, field in manifest.fields.items() if field.in_shards}
    for shard in manifest.shards:
        if set(shard.fields) != images:
            raise ValueError("a shard with other image fields than the store")
        for name, placement in shard.fields.items():
            if placement.file >= len(shard.files):
                raise ValueError(f"a shard has no file number {placement.file}")
            file = shard.files[placement.file]
            if placement.offset > file.bytes:
                raise ValueError(f"offset {placement.offset} outside {file.name}")
            if manifest.fields[name].deflated and min(placement.chunks, placement.chunk_bytes) < 1:
                raise ValueError(f"{placement.chunks} chunks of {placement.chunk_bytes} bytes")
    for what, parts in (("shards", manifest.shards), ("columns", manifest.columns)):
        rows = sum(part.rows for part in parts)
        if rows != manifest.samples:
            raise ValueError(f"{manifest.samples} samples, but {rows} rows in its {what}")
    names = [record.name for shard in manifest.shards for record in shard.files]
    if len(set(names)) != len(names):
        raise ValueError("two shards share a file")


def _check_ranges(ranges: Mapping[str, Range], fields: Mapping[str, Field]) -> None:
    most = sys.float_info.max
    for name, (least, greatest) in ranges.items():
        if name not in fields or not fields[name].ranged or not -most <= least <= greatest <= most:
            raise ValueError(f"values of {name} from {least} to {greatest}")
    if not ranges:
        raise ValueError("an empty list of ranges")


def _check_field(name: str, field: Field) -> None:
    if field.kind == "text":
        if field.dtype != "str" or field.shape not in ((), (None,)):
            raise ValueError(f"text field {name} with dtype {field.dtype} and shape {field.shape}")
        return
    if field.dtype not in DTYPES:
        raise ValueError(f"field {name} has no plain dtype: {field.dtype!r}")
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
    if field.follows is not msgspec.UNSET and (field.kind != "ragged" or not _can_follow(field)):
        raise ValueError(f"{name} follows boxes as {field.follows}, with dtype {field.dtype} and shape {field.shape}")
    if field.array is not msgspec.UNSET and (not field.array or field.moves or field.kind not in ("number", "ragged")):
        raise ValueError(f"{name} is declared as array {field.array}, and is {field.kind}")
    if field.nearest is not msgspec.UNSET and not (field.nearest and field.kind == "image"):
        raise ValueError(f"{name} is declared as nearest {field.nearest}, and is {field.kind}")
    if field.displacement is not msgspec.UNSET and (
        field.nearest is not True or not can_displace(field.displacement, field.dtype, field.shape)
    ):
        raise ValueError(f"{name} is declared as {field.displacement}, and is {field.kind} {field.dtype} {field.shape}")
    if field.mirror is not msgspec.UNSET and (
        field.follows != "keypoints" or sorted(field.mirror) != list(range(field.shape[1] or 0))
    ):
        raise ValueError(f"mirror of {name} is no order of its {field.shape} keypoints: {field.mirror}")
    if field.in_shards:
        if not field.uniform and (len(field.shape) != 3 or field.shape[2] is None):
            raise ValueError(f"field {name} of different sizes is not (height, width, channels): {field.shape}")
        if field.kind == "mask" and len(field.shape) != 3:
            raise ValueError(f"mask {name} is not (height, width, channels): {field.shape}")


def can_displace(displacement: str, dtype: str, shape: tuple[int | None, ...]) -> bool:
    """Whether dtype and shape are those of such a displacement."""
    channels, kinds = (2, "f") if displacement == "flow" else (1, "fiu")
    return dtype[0] in kinds and len(shape) == 3 and shape[2] == channels


def _can_follow(field: Field) -> bool:
    """Whether dtype and shape are those of what follows boxes."""
    points = field.dtype[0] == "f" and not field.is_boxes
    if field.follows == "keypoints":
        return points and len(field.shape) == 3 and field.shape[2] == 3
    return not field.is_boxes and (field.follows == "rows" or (points and field.shape == (None, 4)))
