"""The journal of a destination: what it records of a job, so that a later run resumes only the same job; and the
rejected samples, which are the lines of `rejects.jsonl`, with their reason codes."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import NAME, Field, Manifest
from rawpack.errors import DecodeError, RawpackError, StoreError, UsageError
from rawpack.store.store import Store
from rawpack.system import writing
from rawpack.system.files import open_plain
from rawpack_packer.destination import files
from rawpack_packer.destination.files import APPEND, JOB, WORK
from rawpack_packer.options import opt
from rawpack_packer.provenance import NOT_RECORDED, UNKNOWN, packing_runs, read_provenance
from rawpack_packer.text import storable

if TYPE_CHECKING:
    from rawpack_packer.sources import Table

_BLOCK = 1 << 16
_CHOOSING = ("--array", "--columns", "--field", "--image-column", "--key-column", "--label-column", "--path")
"""Options that choose what of a source's files is packed, so that other values of them mean other samples."""
_MAX_LINE = 1 << 20
"""Bytes: an untrusted store must not fill the memory."""
Note = TypeVar("Note", bound="JobNote")
_digests: WeakKeyDictionary[Table, str] = WeakKeyDictionary()
"""The digests of tables."""


class JobNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted before the first part is packed."""

    recipe: dict[str, Any]
    fields: dict[str, Field]
    """Those of the store."""
    classes: tuple[str, ...] | None
    digest: str
    """The source's: see `source_digest`."""
    samples: int
    options: dict[str, str]
    """The source's, as in `SourceInfo.options`."""
    probe: str = ""
    """What `differences.probe` read of the source."""
    table: str = ""
    """The digest of the note of its tables, see `job/saved_tables.py`; "" where they could not be saved."""


class AppendNote(JobNote, frozen=True, kw_only=True):
    """What is noted before the first part of an append is packed. Classes are as stored."""

    keys: list[str]
    """The keys of all samples, as stored."""
    run: int
    """Which run of the store this is: 2 for the first append."""
    store: str
    """Digest of the store that is appended to."""


def source_digest(source: Table) -> str:
    """xxh3_128 over the keys, sizes and times of all files of a source, and the options that choose which of their
    values are packed: all of it must be the same to resume."""
    return _digests[source] if source in _digests else note_digest(source, _digested(source))


def _digested(source: Table) -> str:
    digest = xxhash.xxh3_128()
    for first in range(0, len(source), _BLOCK):
        keys = [source.key(i) + "\0" for i in range(first, min(first + _BLOCK, len(source)))]
        digest.update("".join(keys).encode("utf-8", "surrogateescape"))
    digest.update(np.ascontiguousarray(source.states(), "<i8").tobytes())
    if chosen := [(name, source.info.options[name]) for name in _CHOOSING if name in source.info.options]:
        digest.update(repr(chosen).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def note_digest(source: Table, digest: str) -> str:
    """Note the digest of a table, which takes seconds for millions of keys. Returns it."""
    _digests[source] = digest
    return digest


def write_job(path: Path, job: JobNote) -> None:
    work, name = path / WORK, APPEND if isinstance(job, AppendNote) else JOB
    files.write_whole(work / name, msgspec.msgpack.encode(job), work / f"{name}.tmp")


def read_note(path: Path, kind: type[Note]) -> Note | None:
    """The job or the append that was begun at `path`; None if there is none. kind: JobNote or AppendNote.

    Raises StoreError for a damaged one, and as `writing.descriptor_of`.
    """
    is_append = issubclass(kind, AppendNote)
    note = path / WORK / (APPEND if is_append else JOB)
    try:
        return msgspec.msgpack.decode(writing.read(note), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        what = "starts the append over" if is_append else "starts over"
        raise StoreError(f"{note} is damaged ({error}); {opt.restart} {what}") from error


def finished_job(path: Path, manifest: Manifest) -> JobNote:
    """What the run that made a finished store would have noted of it, without what was appended since."""
    try:
        source, samples = read_provenance(path)[0]["source"], manifest.samples + manifest.rejects.count
        if len(packing_runs(manifest)) > 1:
            samples = int(read_provenance(path, 2)[0]["first"])
        return JobNote(
            recipe=manifest.recipe, fields=manifest.fields, classes=manifest.classes, digest=str(source["digest"]),
            samples=samples, options=dict(source["options"]), probe=str(source.get("probe", "")),
        )  # fmt: skip
    except (OSError, RawpackError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is a complete store, but what it was packed from is unknown ({error}): name another destination"
        ) from None


def states_of_finished(path: Path) -> NDArray[np.int64] | None:
    """The states of what the store at `path` was packed from, without what was appended since; None where there is no
    finished store, and where they are not known."""
    with contextlib.suppress(*NOT_RECORDED):
        states = read_provenance(path)[1]
        return states if len(states) and (path / NAME).exists() else None
    return None


def entries(store: Store) -> Iterator[tuple[str, tuple[int, int], Reject | None]]:
    """Key, state and reject of every sample of all sources of a store, in their order.

    The state is size and mtime of the sample's file, or `UNKNOWN`; the reject is None of a sample that was packed.
    """
    states = _states(store.path, store.manifest)
    for i, (key, reject) in enumerate(_keys(store)):
        yield key, (int(states[i, 0]), int(states[i, 1])), reject


def root_of(store: Store, sample: int) -> str:
    """The root of the source that a sample of a store is from; "" where it is not known. sample: see `Reject`."""
    for run in reversed(packing_runs(store.manifest)):
        with contextlib.suppress(*NOT_RECORDED, KeyError, TypeError, ValueError):
            provenance, _ = read_provenance(store.path, run)
            if run == 1 or int(provenance["first"]) <= sample:
                return str(provenance["source"]["root"])
    return ""


def digests(path: Path, manifest: Manifest) -> list[str]:
    """The digest of each source of a store whose files are known."""
    sources = []
    for run in packing_runs(manifest):
        with contextlib.suppress(*NOT_RECORDED, KeyError, TypeError):
            provenance, states = read_provenance(path, run)
            sources += [str(provenance["source"]["digest"])] if len(states) else []
    return sources


def _keys(store: Store) -> Iterator[tuple[str, Reject | None]]:
    """Key and reject, or None, of every sample of all sources of a store, in their order."""
    row, number, block = 0, 0, list[str]()
    rejects = read_rejects(store.path, store.manifest)
    reject = next(rejects, None)
    while row < len(store) or block or reject is not None:
        if reject is not None and (reject.sample == number or (row == len(store) and not block)):
            yield reject.key, reject
            reject = next(rejects, None)
        else:
            if not block:
                rows = np.arange(row, min(row + _BLOCK, len(store)))
                block = store.columns.text("key", rows)[::-1]
                row += len(rows)
            yield block.pop(), None
        number += 1


def _states(path: Path, manifest: Manifest) -> NDArray[np.int64]:
    """The states (n, 2) of every sample of all sources of a store."""
    states = np.full((manifest.samples + manifest.rejects.count, 2), UNKNOWN, np.int64)
    for first, end, recorded in _recorded(path, manifest):
        # Else the samples do not have a file each.
        if len(recorded) >= end - first:
            states[first:end] = recorded[: end - first]  # see `Table.states`
    return states


def states_besides(store: Store) -> set[tuple[int, int]]:
    """The states of all files of the sources of a store that do not hold one sample each: of listings and archives."""
    besides = set[tuple[int, int]]()
    for first, end, recorded in _recorded(store.path, store.manifest):
        rest = recorded[end - first :] if len(recorded) >= end - first else recorded
        besides |= {(size, time) for size, time in rest.tolist()}
    return besides


def _recorded(path: Path, manifest: Manifest) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """For each run of a store, the last one first: the numbers of its first sample, and of that after its last one, and
    the states (m, 2) that it recorded. Ends at a run of which nothing is known."""
    first = manifest.samples + manifest.rejects.count
    for run in reversed(packing_runs(manifest)):
        end = first
        try:
            provenance, recorded = read_provenance(path, run)
            first = int(provenance["first"]) if run > 1 else 0
        except (*NOT_RECORDED, KeyError, TypeError, ValueError):
            return
        if 0 <= first <= end and recorded.shape[1:] == (2,):
            yield first, end, recorded


def read_rejects(path: Path, manifest: Manifest) -> Iterator[Reject]:
    """The rejects of all runs of a finished store, in the order of their sources. Raises ValueError for a line that is
    not a reject."""
    decode = msgspec.json.Decoder(Reject).decode
    with (
        open_plain(path / manifest.rejects.file.name) as (descriptor, _),
        open(descriptor, "rb", closefd=False) as file,
    ):
        try:
            while line := file.readline(_MAX_LINE):
                yield decode(line)
        except OSError as error:
            error.filename = os.fspath(path / manifest.rejects.file.name)
            raise


REASONS: dict[str, str] = {
    "bad_field": "a value does not fit its field's dtype or shape, a mask or a box does not fit the image, or an "
    "annotation, or a line or cell of a listing, cannot be read",
    "bad_name": "the path leads out of the archive, has too many bytes, or is not valid UTF-8",
    "corrupt": "the file is of a known type of image or video, but its contents break that type's rules",
    "crashed": "the sample crashed the decoder's process twice",
    "crop_outside": "the image is smaller than what --crop cuts",
    "damaged": "a video frame whose data do not decode, or that needs such a frame; or a sample that was changed after "
    "packing",
    "empty": "the file has no bytes",
    "no_video": "the file has no video stream, only sound for example",
    "not_an_image": "the first bytes are of no known image type",
    "not_scanned": "a folder, or a file that may be an image, that could not be read during the scan; "
    "--skip-unreadable packed the rest",
    "source_error": "the dataset raised an exception for the sample",
    "too_large": "there are more pixels than --max-pixels, or --fit whole makes more, or the format allows fewer",
    "truncated": "the file ends before the image, or the frame of a video, does",
    "unreadable": "the file could not be opened or read: its disk or its permissions may be to blame",
    "unsupported": "a variant of a known type of image or video that no decoder here handles",
}
"""Reason code -> what it means. Codes are never renamed: programs count them."""
CRASHED, NOT_SCANNED = "crashed", "not_scanned"
"""Allowed by --skip-unreadable alone; --max-rejects and --strict apply to images that were found."""
_PLACE = re.compile(r"(?:line|row|object) \d+")
"""The key of a broken line of a listing: see `CellPosition.at`."""
_NUMBER, _OF_RECORD = re.compile(r"\d{8,}"), "the record at byte "
"""The key of a broken record of TFRecord files, and what its detail says."""
_LONGEST = 300
_COMPARED = 100_000
"""Enough to tell what is common; millions of details that all differ would take gigabytes."""


class Reject(msgspec.Struct, frozen=True):
    """A line of `rejects.jsonl`."""

    sample: int
    """Its number in the source."""
    key: str
    reason: str
    detail: str

    @property
    def nameless(self) -> bool:
        """Whether the key is only the place of a broken line or record, which has no key of its own: other sources have
        such a place as well."""
        if self.reason == "corrupt":
            return _OF_RECORD in self.detail and _NUMBER.fullmatch(self.key) is not None
        return self.reason == "bad_field" and _PLACE.fullmatch(self.key) is not None

    def __str__(self) -> str:
        """As an example in a message; `rejects.jsonl` has all of a long detail."""
        return f"{self.key}: {self.detail if len(self.detail) <= _LONGEST else f'{self.detail[:_LONGEST]}...'}"


def rejected(sample: int, key: str, error: DecodeError) -> Reject:
    """The line of a sample that cannot be packed, or is damaged. error: why, which a dataset may have said."""
    return Reject(sample, key, error.reason, storable(error.detail))


def typical(rejects: Iterable[Reject]) -> Reject | None:
    """The first reject with the commonest detail of the commonest reason; None where there is none."""
    by_reason: dict[str, Counter[str]] = {}
    first: dict[tuple[str, str], Reject] = {}
    for reject in islice(rejects, _COMPARED):
        by_reason.setdefault(reject.reason, Counter())[reject.detail] += 1
        first.setdefault((reject.reason, reject.detail), reject)
    if not first:
        return None
    reason, details = max(by_reason.items(), key=lambda item: item[1].total())
    return first[reason, details.most_common(1)[0][0]]
