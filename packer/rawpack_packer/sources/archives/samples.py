"""Samples of WebDataset shards: consecutive members whose names differ only after the first dot."""

from __future__ import annotations

import errno
import os
import re
from array import array
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.archives.members import PICKLES, WHOLE, NamedMember, is_image, parsed, type_of
from rawpack_packer.sources.archives.opened import MOST_LABEL, FoundMember, Pass
from rawpack_packer.sources.archives.tar import BadArchiveError, Member
from rawpack_packer.sources.base import Scanning
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, text_of
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.table.choose import as_class
from rawpack_packer.sources.table.columns import Fault, Rows, Spans
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.text import count, listed, plain

_META = re.compile(rb"__[^/]*__(?:$|/)")
"""Names that webdataset skips."""
_LONGEST = 4096
"""Bytes of a name."""
_VIEW = re.compile(r"[a-z_]+\.[a-z]+")
"""The suffix of one of several images of a sample: not that of a date, a.2024.01.jpg."""
_TRIED = 64
"""Members that show whether an archive is a WebDataset shard."""
FIRST = 256
"""Members of each suffix that are kept in mind though nobody named it: they show what may be the label."""


def key_of(name: bytes) -> tuple[bytes, str] | None:
    """The key and the suffix of a member: `a.b/c.seg.PNG` is `a.b/c` and `seg.png`. None where it is part of no sample.

    As webdataset has it, except for hidden files, which it takes for samples of one member if they are in a folder.
    """
    folder, slash, last = name.rpartition(b"/")
    stem, dot, suffix = last.partition(b".")
    if not stem or not dot or _META.match(name):
        return None
    return folder + slash + stem, text_of(suffix).lower()


class Shards:
    """Samples of shards: the key of each, and where its members are."""

    def __init__(self, look: Pass, where: str, named: Mapping[str, NamedMember], label: NamedMember | None) -> None:
        """look: the pass through the shards. where: the source, printable. named: the fields that the user named.
        label: the one that is read at once, of `cls` by default."""
        self.where, self.named, self.label = where, named, label
        self._look = look
        self.images: tuple[str, ...] = ()
        """The suffixes of images; set by `find_images`, as are `rows`."""
        self.rows = np.empty(0, np.int64)
        """The samples that have an image, or stand for what could not be read."""
        self.members = 0
        """So far."""
        self._places: dict[str, array[int]] = {}
        """The members of each suffix of images, and of what was named: sample, offset, size and time of each; of other
        suffixes, the first ones."""
        self.suffixes: dict[str, int] = {}
        """How often each occurs."""
        self.shard, self.keys, self.ends = array("i"), bytearray(), array("q", [0])
        self.faults: dict[int, Fault] = {}
        """Samples that cannot be packed: number -> why."""
        self.unread: dict[int, str] = {}
        """Samples that stand for a shard that cannot be read to its end: number -> why, for a person."""
        self.labels: list[int | str | None] = []
        """Of each sample, as it is written."""
        self._same: dict[int | str, int | str] = {}
        """One object for all labels that are equal."""
        self.counts = {"other_members": 0, "pickles": 0}
        self._wanted = {suffix for field in named.values() for suffix in field.suffixes}

    def __len__(self) -> int:
        return len(self.shard)

    @property
    def files(self) -> NamedFiles:
        return self._look.files

    def key(self, i: int) -> bytes:
        """The key of sample i, as the archive has it."""
        return bytes(self.keys[self.ends[i] : self.ends[i + 1]])

    def read(self, found: Iterable[FoundMember], shard: int, progress: Scanning) -> None:
        """Add the samples of a shard. Of one that cannot be read to its end, the last sample, which may lack members,
        stands for what is missing; or a sample with the name of the shard. Raises UsageError where it has what no
        sample may have."""
        where, key, seen = self.files.name(shard), None, set[str]()
        try:
            for member, data in found:
                self.members += 1
                if self.members % PROGRESS_EVERY == 0:
                    progress(self.members)
                parts = key_of(member.name) if member.kind == "file" else None
                if parts is None:
                    self.counts["other_members"] += member.kind != "folder"
                    continue
                if parts[0] != key:
                    key, seen = parts[0], set()
                    self._begin(key, shard)
                suffix = parts[1]
                if suffix in seen:
                    raise UsageError(
                        f"{where} has two members {plain(member.name[:_LONGEST])}, and a sample has one of each "
                        "suffix: write the shard again"
                    )
                seen.add(suffix)
                self._add(suffix, member, data, where)
        except (BadArchiveError, DecodeError) as error:
            base = os.fsencode(self.files.base(shard))
            if not len(self) or self.shard[-1] != shard:
                self._begin(base, shard)
            i, intact = len(self) - 1, self.shard.count(shard) - 1
            why = error.detail if isinstance(error, DecodeError) else error
            what = f"cannot be read to its end: {why}; {count(intact, 'intact sample')} before that"
            self.unread[i], self.labels[i] = f"{where} {what}", None
            self.faults[i] = "not_scanned", f"{plain(base)} {what}"

    def spans(self, suffixes: Collection[str]) -> Spans:
        """The members of the samples at `rows` with one of these suffixes; those that a sample lacks are faults."""
        place = np.full((len(self), 3), -1, np.int64)
        for suffix in reversed([*suffixes]):
            members = self._members(suffix)
            place[members[:, 0]] = members[:, 1:]
        place[[*self.unread]] = -1, NOT_SCANNED, errno.EIO
        place = place[self.rows]
        wanted = " or ".join(f".{plain(suffix)}" for suffix in suffixes)
        faults: dict[int, Fault] = {
            int(i): ("bad_field", f"the sample has no member {wanted}") for i in np.flatnonzero(place[:, 0] < 0)
        }
        if self.faults:
            faults |= {k: self.faults[row] for k, row in enumerate(self.rows.tolist()) if row in self.faults}
        return Spans(self.files, np.array(self.shard, np.int32)[self.rows], place[:, 0], place[:, 1:], faults)

    def find_images(self, where: str) -> None:
        """Find the images of samples. where: what was read so far, printable. Raises UsageError where a sample has
        several, or none has one."""
        named = self.named.get("image")
        others = (suffix for suffix in self.suffixes if is_image(suffix) and suffix not in self._wanted)
        self.images = suffixes = named.suffixes if named else tuple(others)
        images = np.zeros(len(self), np.int32)
        for suffix in suffixes:
            images[self._members(suffix)[:, 0]] += 1
        if named is None and (images > 1).any():
            i = int(np.argmax(images > 1))
            first, other = map(plain, suffixes[:2])
            raise UsageError(
                f"{where}: sample {plain(self.key(i))} has {images[i]} images. Shards have {dotted(suffixes)}: name "
                f"the one to pack, such as {opt.fields(f'image={first}')}; {opt.fields(f'{other}:image')} packs "
                f"another with it, and {opt.kind('archive')} packs each as a sample"
            )
        if not images.any():
            has = dotted(self.suffixes)
            has = f"its members have the suffixes {has}" if has else "it has no samples"
            raise UsageError(f"{where} has no image: {has}; {opt.fields('image=SUFFIX')} names the image")
        images[[*self.unread]] = 1
        self.rows = np.flatnonzero(images)

    @property
    def show_fields(self) -> bool:
        """Whether a shard that was just added is intact, and has or had before it an image."""
        return len(self) > 0 and len(self) - 1 not in self.unread and any(map(is_image, self.suffixes))

    def check_together(self) -> None:
        """Raise UsageError where members of a sample with an image are elsewhere in its shard: without the image, they
        would be left out."""
        rows, rest = self.rows, np.delete(np.arange(len(self)), self.rows)
        if not len(rest):
            return
        lone, hashes = self._hashes(rest), self._hashes(rows)
        for i in rest[np.isin(lone, hashes)].tolist():
            same = rows[np.flatnonzero(hashes == lone[np.searchsorted(rest, i)])].tolist()
            if any(self.key(k) == self.key(i) and self.shard[k] == self.shard[i] for k in same):
                raise UsageError(
                    f"{self.files.name(self.shard[i])}: members of the sample {plain(self.key(i))} are in several "
                    "places, and those that do not follow its image would be left out: sort the members of the shard "
                    "by their names, as `tar --sort=name` does"
                )

    def _members(self, suffix: str) -> Rows:
        """(m, 4): see `_places`."""
        return np.array(self._places.get(suffix, ()), np.int64).reshape(-1, 4)

    def _hashes(self, rows: Rows) -> NDArray[np.uint64]:
        """A hash of the shard and the key of each of these samples."""
        keys = (b"%d/" % self.shard[i] + self.key(i) for i in rows.tolist())
        return np.fromiter((xxhash.xxh3_64_intdigest(key) for key in keys), np.uint64, len(rows))

    def _begin(self, key: bytes, shard: int) -> None:
        i = len(self.shard)
        if (fault := bad_name(key)) is not None:
            self.faults[i] = fault.reason, fault.detail
        if len(key) > _LONGEST:
            self.faults[i] = "bad_name", f"the name has {len(key)} bytes"
            key = key[:_LONGEST] + b"~%d" % i
        self.shard.append(shard)
        self.keys += key
        self.ends.append(len(self.keys))
        self.labels.append(None)

    def _add(self, suffix: str, member: Member, data: bytes, where: str) -> None:
        self.suffixes[suffix] = self.suffixes.get(suffix, 0) + 1
        self.counts["pickles"] += type_of(suffix) in PICKLES
        i = len(self.shard) - 1
        places = self._places.setdefault(suffix, array("q"))
        if suffix in self._wanted or is_image(suffix) or len(places) < 4 * FIRST:
            places.extend((i, member.offset, member.size, member.mtime_ns))
        if self.label is None or suffix != self.label.suffix:
            return
        try:
            if member.size > MOST_LABEL:
                raise DecodeError("bad_field", f"it has {member.size:,} bytes")
            label = _label(data, self.label)
        except DecodeError as error:
            what = f"the label of {plain(member.name[:_LONGEST])} cannot be read: {error.detail}"
            raise UsageError(f"{where}: {what}") from error
        if label is not None:
            self.labels[i] = self._same.setdefault(label, label)


def dotted(suffixes: Iterable[str]) -> str:
    """Suffixes as messages name them, the first few."""
    return listed([f".{suffix}" for suffix in suffixes], 8)


def is_shard(members: Iterable[Member]) -> bool:
    """Whether the first members of an archive are those of a WebDataset shard.

    That is so where an image stands next to a `.cls` of the same key; or, outside of folders, which may be classes,
    next to another member that is no image, or an image with another word after the key: `1.left.jpg`, `1.right.jpg`.
    """
    key, types, views = None, set[str](), 0
    for member in islice(members, _TRIED):
        found = key_of(member.name) if member.kind == "file" and member.packed is None else None
        if found is None:
            continue
        if found[0] != key:
            key, types, views = found[0], set(), 0
        views += bool(_VIEW.fullmatch(found[1])) and is_image(found[1])
        types.add("image" if is_image(found[1]) else type_of(found[1]))
        flat = b"/" not in key.removeprefix(b"./")
        if "image" in types and ("cls" in types or (flat and (len(types) > 1 or views > 1))):
            return True
    return False


def _label(data: bytes, field: NamedMember) -> int | str | None:
    """The label in a member; None for none."""
    value: object
    if field.entry:
        value = parsed(data)
        for name in field.entry:
            value = value.get(name) if isinstance(value, dict) else None
    else:
        try:
            value = data.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise DecodeError("bad_field", f"byte {error.start} is not UTF-8") from error
        value = int(value) if WHOLE.fullmatch(value) else value
    value = as_class(value) if isinstance(value, str) else value
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DecodeError("bad_field", f"{str(value)[:40]} is neither a whole number nor a name")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise DecodeError("bad_field", "the number is beyond 64 bits")
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise DecodeError("bad_field", "half of a surrogate pair cannot be stored as UTF-8")
    return value
