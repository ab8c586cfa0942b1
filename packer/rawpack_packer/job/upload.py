"""Packs to a URL: the job packs into a local scratch folder, and each finished shard is uploaded.

An uploaded shard is replaced by a sparse file of the same size, which takes no disk space; for the job, its part is
done. So the job need not know about URLs, and resumes after a kill as usual. Columns and the manifest are uploaded
last: until everything is there, what is at the URL is not a store.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import FileRecord, Manifest
from rawpack.errors import PackError, RawpackError, StoreError, UsageError
from rawpack.remote.attempts import Attempts, meaning
from rawpack.remote.cache import default_folder
from rawpack.remote.download import Transfer
from rawpack.remote.transfer import TIMEOUT_S, Remote, bounded
from rawpack.remote.url import filesystem, join, shown
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.lock import alone
from rawpack_packer.job import known
from rawpack_packer.job.differences import finished_at
from rawpack_packer.job.job import Job
from rawpack_packer.job.known import There
from rawpack_packer.job.options import Progress, RunOptions
from rawpack_packer.job.summary import Summary
from rawpack_packer.options import opt
from rawpack_packer.part import read_record
from rawpack_packer.provenance import PROVENANCE, REJECTS, STATES
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import Table
from rawpack_packer.text import again, listed

BEGUN = f"{WORK}/begun"
"""Marks the folder at the URL as ours while packing lasts."""
_PACE_S = 0.2
_MOST_WAITING = 2 << 30
"""Bytes of shards that may wait for their upload. With more, packing slows down, so that they do not fill the disk."""


class Upload(Job):
    """A store to be packed to a URL that fsspec can write to."""

    def __init__(
        self,
        source: Table,
        recipe: Recipe,
        url: str,
        run_options: RunOptions | None = None,
        *,
        scratch: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """scratch: the folder on this machine for what is not uploaded yet; None is `packing` in the cache's folder. An
        interrupted run resumes only with the same one."""
        self._target, self._place = RemoteFolder(url, storage_options), _Scratch(url, scratch)
        super().__init__(source, recipe, self._place.store, run_options, shown_as=str(self._target))

    def run(self) -> Summary:
        """As that of a job, and upload it."""
        target, place = self._target, self._place
        sizes = target.sizes()
        _check_foreign(target, sizes)
        with files.refusals_named(place.store), place.locked():
            complete = manifests.NAME in sizes and not self.run_options.restart
            if complete:
                # All files except the shards show whether it is this job's.
                place.forget()
                _fetch_store(target, place)
            else:
                begun = place.folder / "begun"
                with writing.create(begun, below=place.base) as file:
                    file.write(b"rawpack is packing a store here\n")
                target.put(begun, BEGUN)
                if self.run_options.restart:
                    # First the manifest; the mark of ours stays.
                    for name in sorted(set(sizes) - {BEGUN}, key=lambda name: (name != manifests.NAME, name)):
                        target.remove(name)
                    place.forget()
                else:
                    place.check_sent(sizes)
            uploader = _Uploader(target, place, self.run_options.progress)
            self.run_options = dataclasses.replace(self.run_options, progress=uploader)
            try:
                summary = self.pack(check_free=False)
                uploader.finish()
                if not complete:
                    _upload_rest(target, place, summary.manifest)
            finally:
                uploader.stop()
            place.remove()
        return dataclasses.replace(summary, destination=str(target), already=complete)


def store_of(url: str, scratch: str | os.PathLike[str] | None) -> Path:
    """The folder on this machine that a store for a URL is packed into."""
    return _Scratch(url, scratch).store


def there(url: str, options: Mapping[str, Any] | None, scratch: str | os.PathLike[str] | None) -> There | None:
    """What earlier runs left at a URL, or on this machine for it; None for nothing. Raises UsageError where no store
    may be packed there, PackError where it cannot be asked."""
    target = RemoteFolder(url, options)
    sizes = target.sizes()
    _check_foreign(target, sizes)
    if manifests.NAME not in sizes:
        return known.there(store_of(url, scratch), str(target))
    try:
        manifest, digest = manifests.parse(
            target.read_small(manifests.NAME, lambda data: manifests.parse(data, str(target))), str(target)
        )
        state = finished_at(str(target), manifest)
        if any(sizes.get(name) != record.bytes for name, record in manifest.records()):
            return There(state, manifest.recipe)
        about = manifests.unseal(target.read_small(PROVENANCE), PROVENANCE)[0]
        return There(state, manifest.recipe, manifest, digest, msgspec.json.decode(about, type=dict[str, Any]))
    except (RawpackError, FileNotFoundError, ValueError):
        return None  # the job says what is wrong


class _Scratch:
    """The folder on this machine of a job that packs to a URL."""

    def __init__(self, url: str, scratch: str | os.PathLike[str] | None) -> None:
        self.base = (default_folder() / "packing" if scratch is None else Path(scratch)).absolute()
        self.folder = self.base / xxhash.xxh3_128_hexdigest(url.partition("?")[0].rstrip("/").encode())
        self._url = url
        self.store = self.folder / "store"
        self._sent = self.folder / "sent"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs on this machine from packing to the URL within this block."""
        writing.make_folder(self.folder, below=self.base)
        with alone(self.folder / "lock", f"packing to {shown(self._url)}", below=self.base):
            yield

    def sent(self) -> set[str]:
        """Names of the shard files that were uploaded, and are empty of data here."""
        try:
            lines = writing.read(self._sent, below=self.base).decode().split("\n")
        except FileNotFoundError:
            return set()
        return set(lines[:-1])  # a last line without a line break is incomplete

    def note_sent(self, name: str, size: int) -> None:
        """Note that a shard file was uploaded, and replace it by a sparse file of the same size."""
        # The note comes first, so that a sparse file is never taken for the shard.
        with writing.reopen(self._sent, "ab", below=self.base) as file:
            file.write(f"{name}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        temporary = self.folder / "sparse"
        with writing.create(temporary, below=self.base) as sparse:
            sparse.truncate(size)
        writing.replace(temporary, self.store / name, below=self.base)

    def check_sent(self, sizes: Mapping[str, int]) -> None:
        """Have the job pack those shards again that were uploaded but are gone from the URL."""
        sent = self.sent()
        lost = {name for name in sent if self._size(name) != sizes.get(name)}
        if lost and (self.store / manifests.NAME).exists():
            self.forget()  # a finished job has no notes of its parts
        else:
            self._send_again(lost)

    def check_packed_again(self) -> None:
        """Have those shards uploaded again that the job packs again: their files are removed before it begins."""
        self._send_again({name for name in self.sent() if self._size(name) < 0})

    def _send_again(self, names: set[str]) -> None:
        if names:
            for name in names:
                (self.store / name).unlink(missing_ok=True)
            kept = "".join(f"{name}\n" for name in sorted(self.sent() - names))
            files.write_whole(self._sent, kept.encode(), self.folder / "sent.tmp")

    def forget(self) -> None:
        """Remove what an earlier run left."""
        self._sent.unlink(missing_ok=True)
        shutil.rmtree(self.store, ignore_errors=True)

    def remove(self) -> None:
        """Remove the whole folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _size(self, name: str) -> int:
        try:
            return (self.store / name).stat().st_size
        except FileNotFoundError:
            return -1


class _Uploader:
    """A thread that uploads the shards of finished parts. As the job's progress, it slows down a job that is too fast
    for it."""

    def __init__(self, target: RemoteFolder, place: _Scratch, progress: Progress) -> None:
        self._target, self._place = target, place
        self.waits, self.commit, self.end = progress.waits, progress.commit, progress.end
        self._progress = progress
        self._sent = place.sent()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._records: dict[Path, tuple[FileRecord, ...]] = {}
        """Record of a finished part -> its shard files."""
        self._thread: threading.Thread | None = None

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        """Upload shards from now on, until `finish` or `stop`."""
        if self._thread is None:
            self._place.check_packed_again()
            self._sent = self._place.sent()
            self._thread = threading.Thread(target=self._run, daemon=True, name="rawpack-upload")
            self._thread.start()
        self._progress.begin(samples, done, noun)

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        """Raise the error that stopped the upload; wait a little if too many shards wait for theirs."""
        self._progress.advance(samples, bytes_in, rejects)
        if self._error is not None:
            raise self._error
        if sum(record.bytes for record in self._waiting()) > _MOST_WAITING:
            self._stopped.wait(_PACE_S)

    def finish(self) -> None:
        """Upload the remaining shards. Raises PackError."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        for record in self._waiting():
            self._send(record)

    def stop(self) -> None:
        """Have the thread end once its current file has arrived or failed."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_PACE_S):
                for record in self._waiting():
                    if self._stopped.is_set():
                        return
                    self._send(record)
        except BaseException as error:
            self._error = error

    def _waiting(self) -> list[FileRecord]:
        """Shard files of finished parts that are not uploaded yet."""
        store = self._place.store
        if (store / manifests.NAME).exists():
            records = [record for shard in manifests.load(store)[0].shards for record in shard.files]
        else:
            for path in sorted(store.glob(f"{WORK}/part-*.done")):
                done = self._records.get(path) or read_record(store, int(path.stem.removeprefix("part-")))
                if done is not None:
                    self._records[path] = done if isinstance(done, tuple) else done.files
            records = [record for part in self._records.values() for record in part]
        return [record for record in records if record.name not in self._sent]

    def _send(self, record: FileRecord) -> None:
        path = self._place.store / record.name
        if files.record(path, record.name).xxh3 != record.xxh3:
            raise PackError(f"{path} was changed since it was packed. {opt.restart} packs again")
        self._target.put(path, record.name)
        self._place.note_sent(record.name, record.bytes)
        self._sent.add(record.name)


def _check_foreign(target: RemoteFolder, sizes: Mapping[str, int]) -> None:
    """Raise UsageError where files that are not a store's are at the URL."""
    names = sorted(name for name in sizes if not destinations.is_ours(name.split("/")[0]))
    if names:
        raise UsageError(f"{target} contains other files ({listed(names, 3)}); name an empty or a new folder")
    if sizes and not {manifests.NAME, BEGUN} & set(sizes):
        raise UsageError(
            f"{target} contains what looks like a store without its {manifests.NAME}: put that back, or remove the "
            "folder, or name another"
        )


def _fetch_store(target: RemoteFolder, place: _Scratch) -> None:
    """Fetch the store at the URL into the scratch folder, except for the contents of shards."""
    try:
        manifest_bytes = target.read_small(manifests.NAME, lambda data: manifests.parse(data, str(target)))
        manifest, _ = manifests.parse(manifest_bytes, str(target))
        writing.make_folder(place.store, below=place.base)
        shards = {record.name for shard in manifest.shards for record in shard.files}
        for name, record in manifest.records():
            if name in shards:
                place.note_sent(name, record.bytes)
            else:
                target.read(name, record, place.store)
        last = {name: target.read_small(name) for name in (PROVENANCE, STATES)} | {manifests.NAME: manifest_bytes}
        for name, data in last.items():
            with writing.create(place.store / name, below=place.base) as file:
                file.write(data)
    except (RawpackError, FileNotFoundError) as error:
        raise UsageError(
            f"{error}: name another URL. {opt.restart} deletes what is left of the store and packs again"
        ) from None


def _upload_rest(target: RemoteFolder, place: _Scratch, manifest: Manifest) -> None:
    """Upload everything except the shards, the manifest last."""
    for columns in manifest.columns:
        for record in columns.files:
            target.put(place.store / columns.folder / record.name, f"{columns.folder}/{record.name}")
    for name in (REJECTS, PROVENANCE, STATES, manifests.NAME):
        target.put(place.store / name, name)
    target.remove(BEGUN)


T = TypeVar("T")
_SLOWEST = 256 << 10
"""Bytes per second: a slower upload is taken for dead."""


class RemoteFolder:
    """One folder behind a URL. Any number of threads may use it.

    A call that fails is retried until the timeout, and then raises PackError; the same command resumes.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S) -> None:
        """options: fsspec's `storage_options`. Raises as `rawpack.remote.url.filesystem`."""
        self.url, self._options, self._timeout = url, dict(options or {}), timeout
        self._remote = Remote(url, self._options, timeout)

    def __str__(self) -> str:
        return shown(self.url)

    def sizes(self) -> dict[str, int]:
        """Every file below the folder: its relative name, with slashes -> its bytes."""

        def look() -> dict[str, int]:
            system, path = filesystem(self.url, self._options)
            system.invalidate_cache()
            try:
                entries = system.find(path, detail=True)
            except FileNotFoundError:
                entries = {}
            # fsspec would make the bucket unasked, which is for its owner to decide.
            if not entries and self._remote.has_no_bucket():
                raise UsageError(f"{self}: there is no such bucket; create it first, or correct its name")
            start = len(path.rstrip("/")) + 1
            return {name[start:]: int(about["size"] or 0) for name, about in entries.items() if name[start:]}

        return self._tried("", "listed", look, 0)

    def read(self, name: str, record: FileRecord, folder: Path) -> None:
        """Fetch a file that a manifest names into a store's folder. Raises as `Transfer.run`."""
        path = folder / name
        writing.make_folder(path.parent, below=folder)
        with writing.create(path, "w+b", 0, below=folder) as file:
            Transfer(self._remote, name, record, file.fileno()).run()

    def read_small(self, name: str, check: Callable[[bytes], Any] = lambda data: None) -> bytes:
        """The bytes of a file. Raises FileNotFoundError, and as `Remote.read`."""
        return self._remote.read(name, check)

    def put(self, path: Path, name: str) -> None:
        """Upload a file, and check that all of it arrived."""
        size = path.stat().st_size

        def upload() -> None:
            system, remote_path = filesystem(join(self.url, name), self._options)
            system.makedirs(system._parent(remote_path), exist_ok=True)
            system.put_file(str(path), remote_path)
            system.invalidate_cache()
            arrived = system.info(remote_path)["size"]
            if arrived != size:
                raise OSError(f"{arrived} of {size} bytes arrived")

        self._tried(name, "written", upload, size)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

        def remove() -> None:
            system, remote_path = filesystem(join(self.url, name), self._options)
            try:
                system.rm_file(remote_path)
            except FileNotFoundError:
                return

        self._tried(name, "removed", remove, 0)

    def _tried(self, name: str, what: str, call: Callable[[], T], size: int) -> T:
        """The result of `call`, which moves `size` bytes, retried where that may help."""
        attempts = Attempts(self._remote, name, what)
        while True:
            try:
                result = bounded(call, self._timeout + size / _SLOWEST)
                attempts.progressed()
                return result
            except Exception as error:
                if isinstance(error, FileNotFoundError):
                    # What was written a moment ago may not be seen yet, which is worth another attempt.
                    missing, error = error, OSError(str(error))
                    error.__cause__ = missing
                try:
                    attempts.failed(error)
                except (StoreError, FileNotFoundError) as refused:
                    if meaning(error) in ("options", "refused"):
                        raise UsageError(f"{refused}; pack to a place that fsspec can write to") from None
                    raise PackError(f"{refused}; once that is fixed, {again()} resumes") from None
