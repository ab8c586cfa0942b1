"""Exports a store to a folder: checks the folder, writes file by file, and resumes after a kill.

A file gets its name only when its bytes are on the disk. So every file with its name is complete, and a run that
resumes leaves it alone. `export.json` is written last, and says that nothing is missing.
"""

from __future__ import annotations

import io
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.provenance import REJECTS
from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.destination import files
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.lock import LOCKS, Lock
from rawpack_packer.destination.rejects import Reject
from rawpack_packer.exporting.listing import again, note, write_listing
from rawpack_packer.exporting.names import LISTING, NOTE, Names, check_names, suffix_of
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import Item, StoreSource
from rawpack_packer.sources.stores.compatible import IMAGE
from rawpack_packer.text import listed, plain

_BEGUN = "export"
"""In WORK: says which store is being exported, and how its files are named."""
_NEW = f"{_BEGUN}.tmp"
_BLOCK = 32
"""Samples that a thread writes at a time."""
_SYNCED = 1024
"""Files that are synced together before they get their names."""
_AHEAD = 4
"""Blocks per worker that are submitted at a time."""
_TRIED = 24
_DISK_BLOCK = 4096
_LINE_BYTES = 200
_MAX_NOTE = 1 << 20


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    folder: str
    samples: int
    """Number of samples that have files now."""
    files: int
    """Number of their images and masks."""
    written_now: int
    """Files that this run wrote; earlier runs wrote the others."""
    bytes_written: int
    rejects: Mapping[str, int]
    """Reason -> samples that are damaged in the store, and have no file."""
    pack_again: str | None
    """The command to run in the folder to pack it again; None if there is none."""
    why_not: str
    """Why there is none."""
    differs: tuple[str, ...]
    """How a store that is packed again differs."""
    seconds: float

    def __repr__(self) -> str:
        rejects = f", {text.count(sum(self.rejects.values()), 'reject')}" if self.rejects else ""
        return f"Exported({self.folder!r}: {self.samples:,} samples, {text.count(self.files, 'file')}{rejects})"

    @property
    def already(self) -> bool:
        """Whether an earlier run wrote all files."""
        return not self.written_now


@dataclass(frozen=True)
class DryExport:
    """What an export needs."""

    samples: int
    files_bytes: int
    free_bytes: int


class Export:
    """One store, and the folder that it is exported to."""

    def __init__(self, source: StoreSource, folder: Path, *, numbered: bool = False) -> None:
        """Raises UsageError with nothing written."""
        self.source, self.folder = source, folder
        fields = source.stores[0].fields
        self.names = Names({name: suffix_of(field) for name, field in fields.items() if field.in_shards}, numbered)
        self._about = {"store": source.stores[0].digest, "numbered": numbered}
        self._begun = self._check_folder()
        check_names(self.names, source.all_keys, folder)

    def estimate(self) -> DryExport:
        return DryExport(len(self.source), self.need_bytes(), destinations.free_bytes(self.folder))

    def need_bytes(self) -> int:
        """About how much all files take on the disk, estimated from a few samples."""
        tried = [k * len(self.source) // min(_TRIED, len(self.source)) for k in range(min(_TRIED, len(self.source)))]
        sizes = []
        for row in tried:
            try:
                made = [len(data) for _, data in _contents(self.source[row], self.names.suffixes)]
            except DecodeError:
                continue
            sizes.append(sum(-(-size // _DISK_BLOCK) * _DISK_BLOCK for size in made))
        return int(len(self.source) * (float(np.mean(sizes or [0])) + _LINE_BYTES))

    def run(self, how: RunOptions) -> Exported:
        began = time.monotonic()
        if not self._begun:
            need, free = self.need_bytes(), destinations.free_bytes(self.folder)
            if need > free:
                raise UsageError(
                    f"the files need about {text.size(need)}, and {self.folder} has {text.size(free)} free: free some "
                    "space, or name a folder on another disk"
                )
        with files.refusals_named(self.folder):
            try:
                (self.folder / WORK).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"{self.folder} cannot be made: {error.strerror or error}") from None
            with Lock(self.folder):
                done = self._write(how)
        how.progress.end()
        packing = again(self.source, self.names)
        reasons = Counter(reject.reason for reject in done.rejects)
        samples = len(self.source) - len(done.rejects)
        return Exported(
            str(self.folder), samples, samples * len(self.names.suffixes), done.files, done.bytes, dict(reasons),
            packing.command, packing.why_not, packing.differs, time.monotonic() - began,
        )  # fmt: skip

    def _write(self, how: RunOptions) -> _Written:
        work = self.folder / WORK
        for left in work.glob("*.tmp"):
            left.unlink()
        files.write_whole(work / _BEGUN, msgspec.json.encode(self._about), work / _NEW)
        how.progress.begin(len(self.source), 0)
        done = self._write_files(how)
        how.progress.commit()
        lines = b"".join(msgspec.json.encode(reject) + b"\n" for reject in done.rejects)
        allowed = how.allowed(len(self.source))
        if len(done.rejects) > allowed:
            first = done.rejects[0]
            files.write_whole(work / REJECTS, lines, work / f"{REJECTS}.tmp")
            raise PackError(
                f"the store has {text.count(len(done.rejects), 'damaged sample')} ({plain(first.key)}: {first.detail}, "
                f"...), and --max-rejects allows {allowed}; those seen so far are listed in {work / REJECTS}. The same "
                "command with a larger --max-rejects resumes"
            )
        if done.files or not (self.folder / NOTE).exists():
            # The names of all files reach the disk before the note.
            files.sync_tree(self.folder)
            (self.folder / REJECTS).unlink(missing_ok=True)
            if done.rejects:
                files.write_whole(self.folder / REJECTS, lines, work / f"{REJECTS}.tmp")
            write_listing(self.folder, self.source, self.names, (reject.sample for reject in done.rejects))
            noted = msgspec.json.format(msgspec.json.encode(note(self.source, self.names, len(done.rejects))), indent=1)
            files.write_whole(self.folder / NOTE, noted + b"\n", work / f"{NOTE}.tmp")
        shutil.rmtree(work)
        files.sync_folder(self.folder)
        return done

    def _write_files(self, how: RunOptions) -> _Written:
        """Write all missing files. Ends early if too many samples are damaged."""
        workers = max(1, machine.cpus() if how.workers is None else how.workers)
        done, folders, seen = _Written(), _MadeFolders(self.folder), 0
        starts, waiting = iter(range(0, len(self.source), _BLOCK)), deque[Future[_Written]]()
        with _pool(workers) as pool:
            while len(done.rejects) <= how.allowed(len(self.source)):
                while len(waiting) < workers * _AHEAD and (start := next(starts, None)) is not None:
                    waiting.append(pool.submit(self._write_some, range(start, min(start + _BLOCK, len(self.source)))))
                if not waiting:
                    break
                done.add(waiting.popleft().result())
                if len(done.unnamed) >= _SYNCED:
                    folders.name(done.unnamed)
                seen = min(seen + _BLOCK, len(self.source))
                how.progress.advance(seen, done.bytes, len(done.rejects))
        folders.name(done.unnamed)
        return done

    def _write_some(self, rows: range) -> _Written:
        """Write the missing files of some samples under temporary names. Any thread may call it."""
        done = _Written()
        for row in rows:
            key = self.source.key(row)
            paths = {name: self.folder / path for name, path in self.names.paths(row, key).items()}
            missing = {name: path for name, path in paths.items() if not os.path.lexists(path)}
            if not missing:
                continue
            try:
                item = self.source[row]
            except DecodeError as error:
                done.rejects.append(Reject(row, key, error.reason, error.detail))
                continue
            for name, data in _contents(item, {name: self.names.suffixes[name] for name in missing}):
                temporary = self.folder / WORK / f"{row}.{name}.tmp"
                temporary.write_bytes(data)
                done.unnamed.append((temporary, missing[name]))
                done.files += 1
                done.bytes += len(data)
        return done

    def _check_folder(self) -> bool:
        """Whether an earlier run has worked there. Raises UsageError where the folder may not be used."""
        folder = self.folder
        destinations.check_apart(folder, self.source.stores[0].path)
        if not os.path.lexists(folder):
            destinations.check_parent(folder)
            return False
        if not folder.is_dir():
            raise UsageError(f"{folder} is a file; name a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder} is not writable")
        names = sorted(path.name for path in folder.iterdir())
        before = _read_note(folder / NOTE) or _read_note(folder / WORK / _BEGUN)
        if not names or (names == [WORK] and before is None and _is_only_locks(folder / WORK)):
            return False
        if before is None or (folder / WORK).is_symlink():
            raise UsageError(f"{folder} holds other files ({listed(names, 3)}); name an empty or a new folder")
        if {name: before.get(name) for name in self._about} != self._about:
            raise UsageError(
                f"{folder} holds the files of another store, or files named in another way ({LISTING} lists them); "
                "name another folder"
            )
        return True


@dataclass
class _Written:
    """Files that were written."""

    files: int = 0
    bytes: int = 0
    rejects: list[Reject] = field(default_factory=list)
    unnamed: list[tuple[Path, Path]] = field(default_factory=list)
    """The temporary and the final name of each file."""

    def add(self, other: _Written) -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.rejects += other.rejects
        self.unnamed += other.unnamed


class _MadeFolders:
    """Moves files to their final names, and makes folders for them."""

    def __init__(self, folder: Path) -> None:
        self._made = {folder}

    def name(self, files_: list[tuple[Path, Path]]) -> None:
        """Sync all files, then rename them, and clear the list."""
        files.sync_all([temporary for temporary, _ in files_])
        for temporary, final in files_:
            self._make(final.parent)
            temporary.replace(final)
        files_.clear()

    def _make(self, folder: Path) -> None:
        """Make a folder below that of the export. No link is followed."""
        if folder in self._made:
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise PackError(f"{folder} is a link that leads elsewhere; remove it and run the same command again")
        self._made.add(folder)


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that begin no further block once the `with` block has ended."""
    pool = ThreadPoolExecutor(workers, "export")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _read_note(path: Path) -> dict[str, Any] | None:
    """A note of an export; None where there is none."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_NOTE), type=dict[str, Any])
    except (OSError, ValueError):
        return None


def _is_only_locks(work: Path) -> bool:
    """Whether a run was killed there before it had noted anything."""
    return not work.is_symlink() and work.is_dir() and {path.name for path in work.iterdir()} <= {*LOCKS, _NEW}


def _contents(item: Item, suffixes: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Image and masks of a sample, by name, each as the bytes of a file with its suffix: JPEG files as they are stored,
    pixels as PNG, other arrays as .npy."""
    for name, suffix in suffixes.items():
        value = item.image if name == IMAGE else item.fields[name]
        yield name, value if isinstance(value, bytes) else _file(np.asarray(value), suffix)


def _file(image: NDArray[np.generic], suffix: str) -> bytes:
    if suffix == ".png":
        return _png(image)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(image), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _png(image: NDArray[np.generic]) -> bytes:
    """A PNG file of an image (H, W, 1 or 3), uint8 or uint16."""
    bgr = image[..., ::-1] if image.shape[2] == 3 else image
    done, file = cv2.imencode(".png", np.ascontiguousarray(bgr))  # type: ignore[arg-type, unused-ignore]
    if not done:
        raise PackError(f"OpenCV could not write a PNG of {image.shape[1]}x{image.shape[0]} pixels")
    return file.tobytes()
