"""Packing to a URL: the job packs into a scratch folder on this machine, and each shard is uploaded once it is done.

A shard that has arrived is replaced by a hollow file of the same size, which takes no space: to the job, its part is
done. So the job knows nothing of URLs, and resuming after a kill works as always. Manifest and columns come
last, as on a disk: what is at the URL is no store until all of it is there.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import FileRecord, Manifest
from rawpack.disk.provenance import PROVENANCE, REJECTS, STATES
from rawpack.errors import PackError, RawpackError, UsageError
from rawpack.remote.cache import default_folder
from rawpack.remote.url import shown
from rawpack_packer.destination import files
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.lock import lock_file
from rawpack_packer.destination.remote import Target
from rawpack_packer.job.options import Progress, RunOptions
from rawpack_packer.job.pack import DryRun, dry_run, pack
from rawpack_packer.job.run import Summary
from rawpack_packer.part.part import read_record
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source
from rawpack_packer.text import listed

BEGUN = f"{WORK}/begun"
"""At the URL as long as packing takes: it marks the folder as ours."""
_LOOK_EVERY_S = 0.2
_PACE_S = 0.2
_MOST_WAITING = 2 << 30
"""Bytes of shards that may wait for their upload: beyond, packing slows down, so that they do not fill the disk."""


def pack_to_url(
    source: Source,
    url: str,
    recipe: Recipe,
    how: RunOptions | None = None,
    *,
    scratch: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Summary:
    """As `pack`, to a URL that fsspec can write to.

    scratch: a folder on this machine for what is not uploaded yet; None is `packing` in the cache's folder. An
    interrupted run resumes only from the same one.
    """
    how = how or RunOptions()
    target, place = Target(url, storage_options), _RemoteDestination(url, scratch)
    destinations.check(place.store, source.info.paths)
    there = target.sizes()
    _check_foreign(target, there)
    with files.refusals_named(place.store), place.locked():
        whole = manifests.NAME in there and not how.restart
        if whole:
            # By this very job or by another one: all files but the shards show which.
            place.forget()
            _fetch_twin(target, place)
        else:
            begun = place.folder / "begun"
            begun.write_bytes(b"rawpack is packing a store here\n")
            target.put(begun, BEGUN)
            if how.restart:
                _clear(target, there)
                place.forget()
            else:
                place.check_sent(there)
        uploader = _Uploader(target, place)
        try:
            summary = pack(
                source,
                place.store,
                recipe,
                dataclasses.replace(how, progress=_Paced(how.progress, uploader)),
                check_free=False,
                called=str(target),
            )
            uploader.finish()
            if not whole:
                _upload_rest(target, place, summary.manifest)
        finally:
            uploader.stop()
        place.remove()
    return dataclasses.replace(summary, destination=str(target), already=whole)


def dry_run_to_url(
    source: Source,
    url: str,
    recipe: Recipe,
    how: RunOptions | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> DryRun:
    """As `dry_run`: what packing would take, and what is free on this machine."""
    Target(url)
    return dry_run(source, _RemoteDestination(url, scratch).store, recipe, how)


class _RemoteDestination:
    """The folder of a job to a URL on this machine."""

    def __init__(self, url: str, scratch: str | os.PathLike[str] | None) -> None:
        base = default_folder() / "packing" if scratch is None else Path(scratch).expanduser()
        self.folder = base.absolute() / xxhash.xxh3_128_hexdigest(url.partition("?")[0].rstrip("/").encode())
        self._url = url
        self.store = self.folder / "store"
        self._sent = self.folder / "sent"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within this block no other run on this machine packs to the URL."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = lock_file(self.folder / "lock", wait_s=0)
        except BlockingIOError:
            raise UsageError(f"another run on this machine is packing to {shown(self._url)} right now") from None
        try:
            yield
        finally:
            os.close(descriptor)

    def sent(self) -> set[str]:
        """Names of the shard files that were uploaded, and are hollow here."""
        try:
            lines = self._sent.read_text().split("\n")
        except FileNotFoundError:
            return set()
        return set(lines[:-1])  # what comes after the last line break was cut short

    def note_sent(self, name: str, size: int) -> None:
        """A shard file is there: its bytes are not needed here. A file of zeros that takes no space has its place."""
        # First the note: whoever finds a hollow file finds that it is one.
        with self._sent.open("a") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary = self.folder / "hollow"
        with temporary.open("wb") as hollow:
            hollow.truncate(size)
        temporary.replace(self.store / name)

    def check_sent(self, there: Mapping[str, int]) -> None:
        """Have those shards packed again that were uploaded and are not there any more."""
        sent = self.sent()
        lost = {name for name in sent if self._size(name) != there.get(name)}
        for name in lost:
            (self.store / name).unlink(missing_ok=True)
        if lost and (self.store / manifests.NAME).exists():
            self.forget()  # the parts of a job that had ended are not known any more
            return
        if lost:
            files.write_whole(
                self._sent, "".join(f"{name}\n" for name in sorted(sent - lost)).encode(), self.folder / "sent.tmp"
            )

    def forget(self) -> None:
        """Remove what an earlier run left."""
        self._sent.unlink(missing_ok=True)
        shutil.rmtree(self.store, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of it: nothing is left to be done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _size(self, name: str) -> int:
        try:
            return (self.store / name).stat().st_size
        except FileNotFoundError:
            return -1


class _Uploader:
    """A thread that uploads the shards of parts that are done."""

    def __init__(self, target: Target, place: _RemoteDestination) -> None:
        self._target, self._place = target, place
        self._sent = place.sent()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._records: dict[Path, tuple[FileRecord, ...]] = {}
        """Of parts that are done: the shard files by the part's record."""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to look for shards, from now until `finish` or `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="rawpack-upload")
            self._thread.start()

    def pace(self) -> None:
        """Called now and then by the job: raises what keeps shards from being uploaded, and slows the job down where
        too many wait."""
        if self._error is not None:
            raise self._error
        if sum(record.bytes for record in self._waiting()) > _MOST_WAITING:
            self._stopped.wait(_PACE_S)

    def finish(self) -> None:
        """Upload what is left. Raises PackError."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        for record in self._waiting():
            self._send(record)

    def stop(self) -> None:
        """Have the thread end, once the file that it is at has arrived or failed."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_LOOK_EVERY_S):
                for record in self._waiting():
                    if self._stopped.is_set():
                        return
                    self._send(record)
        except BaseException as error:
            self._error = error

    def _waiting(self) -> list[FileRecord]:
        """Shard files of finished parts that were not uploaded."""
        store = self._place.store
        if (store / manifests.NAME).exists():
            found = [record for shard in manifests.load(store)[0].shards for record in shard.files]
        else:
            for path in sorted(store.glob(f"{WORK}/part-*.done")):
                done = self._records.get(path) or read_record(store, int(path.stem.removeprefix("part-")))
                if done is not None:
                    self._records[path] = done if isinstance(done, tuple) else done.files
            found = [record for records in self._records.values() for record in records]
        return [record for record in found if record.name not in self._sent]

    def _send(self, record: FileRecord) -> None:
        path = self._place.store / record.name
        if files.record(path, record.name).xxh3 != record.xxh3:
            raise PackError(f"{path} was changed since it was packed. --restart packs anew")
        self._target.put(path, record.name)
        self._place.note_sent(record.name, record.bytes)
        self._sent.add(record.name)


class _Paced:
    """Progress that has an uploader keep up."""

    def __init__(self, progress: Progress, uploader: _Uploader) -> None:
        self._progress, self._uploader = progress, uploader

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        self._uploader.begin()
        self._progress.begin(samples, done, noun)

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        self._progress.advance(samples, bytes_in, rejects)
        self._uploader.pace()

    def waits(self, why: str) -> None:
        self._progress.waits(why)

    def commit(self) -> None:
        self._progress.commit()

    def end(self) -> None:
        self._progress.end()


def _check_foreign(target: Target, there: Mapping[str, int]) -> None:
    """Raise UsageError where other files than a store's are at the URL."""
    names = sorted(name for name in there if not destinations.is_ours(name.split("/")[0]))
    if names:
        shown = listed(names, 3)
        raise UsageError(f"{target} holds other files ({shown}); name an empty or a new folder")
    if there and not {manifests.NAME, BEGUN} & set(there):
        raise UsageError(
            f"{target} holds what looks like a store without its {manifests.NAME}: put that back, or remove the "
            "folder, or name another"
        )


def _clear(target: Target, there: Mapping[str, int]) -> None:
    """Remove a store behind the URL, whole or begun, first the manifest; what tells that it is ours stays."""
    for name in sorted(set(there) - {BEGUN}, key=lambda name: (name != manifests.NAME, name)):
        target.remove(name)


def _fetch_twin(target: Target, place: _RemoteDestination) -> None:
    """A store behind the URL as a job sees one that is finished: all of it but what is in its shards."""
    try:
        manifest_bytes = target.read_small(manifests.NAME, lambda data: manifests.parse(data, str(target)))
        manifest, _ = manifests.parse(manifest_bytes, str(target))
        place.store.mkdir(parents=True, exist_ok=True)
        shards = {record.name for shard in manifest.shards for record in shard.files}
        for name, record in manifest.records():
            if name in shards:
                place.note_sent(name, record.bytes)
            else:
                target.read(name, record, place.store / name)
        for name in (PROVENANCE, STATES):
            (place.store / name).write_bytes(target.read_small(name))
        (place.store / manifests.NAME).write_bytes(manifest_bytes)
    except (RawpackError, FileNotFoundError) as error:
        raise UsageError(
            f"{error}: name another URL. --restart deletes what is left of the store and packs anew"
        ) from None


def _upload_rest(target: Target, place: _RemoteDestination, manifest: Manifest) -> None:
    """What makes shards a store, the manifest last."""
    for columns in manifest.columns:
        for record in columns.files:
            target.put(place.store / columns.folder / record.name, f"{columns.folder}/{record.name}")
    for name in (REJECTS, PROVENANCE, STATES, manifests.NAME):
        target.put(place.store / name, name)
    target.remove(BEGUN)
