"""Packs to a URL: the job packs into a scratch folder on this machine. Each finished shard is uploaded, and removed
there; the record of its part stays, so that a job resumes as usual. Columns follow, and the manifest last, which makes
it a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.errors import PackError, RawpackError, StoreError, UsageError
from rawpack.remote.attempts import Attempts, meaning
from rawpack.remote.cache import default_folder
from rawpack.remote.transfer import Remote, bounded, in_thread
from rawpack.remote.url import filesystem, join
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.lock import alone
from rawpack_packer.job.job import Job
from rawpack_packer.job.summary import Summary
from rawpack_packer.options import opt
from rawpack_packer.part import PartRecord, read_record, record_path, write_record
from rawpack_packer.provenance import PROVENANCE, STATES
from rawpack_packer.text import again

BEGUN = f"{WORK}/begun"
"""Marks the folder at the URL as ours while packing lasts."""
_SLOWEST = 256 << 10
"""Bytes per second: a slower upload is taken for dead."""


class Upload:
    """Sends a store to a URL that fsspec can write to."""

    def __init__(self, target: RemoteFolder, scratch: Path) -> None:
        """scratch: from `scratch_of`; an interrupted run resumes only with the same one."""
        self.target, self._scratch, self._sizes = target, scratch, target.sizes()
        self._sending: Future[PartRecord] | None = None

    def run(self, job: Job) -> Summary:
        """Pack the store of a job, and upload it."""
        target, store, folder = self.target, self._scratch, self._scratch.parent
        writing.make_folder(folder, below=folder.parent)
        with files.refusals_named(store), alone(folder / "lock", f"packing to {target}", below=folder.parent):
            sizes = self._sizes = target.sizes()
            whole = manifests.NAME in sizes and not job.run_options.restart
            if whole:
                self._fetch_facts()
            else:
                with writing.create(folder / "begun", below=folder.parent) as file:
                    file.write(b"rawpack is packing a store here\n")
                target.put(folder / "begun", BEGUN)
                if job.run_options.restart:
                    # First the manifest; the mark of ours stays.
                    for name in sorted(sizes.keys() - {BEGUN}, key=lambda name: (name != manifests.NAME, name)):
                        target.remove(name)
                for number in job.numbers:
                    part = read_record(store, number)
                    if part and part.away and any(sizes.get(shard.name) != shard.bytes for shard in part.files):
                        record_path(store, number).unlink()  # gone from the URL: packed again
            try:
                summary = job.pack(check_free=False)
            except Exception:
                with suppress(Exception):
                    self.on_done(None)  # so that nothing is written once another run may begin
                raise
            if not whole:
                names = [name for name, _ in summary.manifest.records() if (store / name).exists()]
                for name in (*names, PROVENANCE, STATES):
                    target.put(store / name, name)
                self._sizes = target.sizes()
                self.check_files(summary.manifest)
                target.put(store / manifests.NAME, manifests.NAME)
                target.remove(BEGUN)
            shutil.rmtree(folder, ignore_errors=True)
        return replace(summary, destination=str(target), already=whole)

    def check_files(self, manifest: Manifest) -> None:
        """Raise PackError where a file of the store is neither at the URL nor here, with its size."""
        for name, record in manifest.records():
            path = self._scratch / name
            if record.bytes not in (self._sizes.get(name), path.stat().st_size if path.exists() else None):
                what = "is missing, or has another size"
                raise PackError(f"{self.target} was packed, but its {name} {what}, and {opt.restart} packs it again")

    def on_done(self, record: PartRecord | None) -> None:
        """Begin to send a part that is done, once the one before is there; None waits for that."""
        if self._sending is not None:
            sent = self._sending.result()
            # The record comes first: with it, the shard is not missed.
            write_record(self._scratch, msgspec.structs.replace(sent, away=True))
            for file in sent.files:
                (self._scratch / file.name).unlink()
        self._sending = None if record is None or record.away else in_thread(lambda: self._sent(record))

    def _sent(self, record: PartRecord) -> PartRecord:
        for file in record.files:
            self.target.put(self._scratch / file.name, file.name)
        return record

    def _fetch_facts(self) -> None:
        """Fetch what says from what the store at the URL was packed, and how."""
        store = self._scratch
        shutil.rmtree(store, ignore_errors=True)
        writing.make_folder(store, below=store.parent)
        try:
            for name in (PROVENANCE, STATES, manifests.NAME):
                data = self.target.read(name, lambda data: None)
                with writing.create(store / name, below=store.parent) as file:
                    file.write(data)
            manifests.parse(data, str(self.target))
        except (RawpackError, FileNotFoundError) as error:
            cure = f"name another URL. {opt.restart} deletes what is left of the store and packs again"
            raise UsageError(f"{error}: {cure}") from None


def scratch_of(url: str, base: str | os.PathLike[str] | None) -> Path:
    """The folder on this machine that a store for a URL is packed into; without `base`, it is in the cache's folder."""
    folder = (default_folder() / "packing" if base is None else Path(base)).absolute()
    return folder / xxhash.xxh3_128_hexdigest(url.partition("?")[0].rstrip("/").encode()) / "store"


class RemoteFolder(Remote):
    """A folder at a URL to write to. A call that fails is retried until the timeout, and then raises PackError; the
    same command resumes."""

    def sizes(self) -> dict[str, int]:
        """Every file below the folder: its relative name, with slashes -> its bytes. Raises UsageError where other
        files than those of a store are there."""

        def look() -> dict[str, int]:
            system, path = filesystem(self.url, self._options)
            system.invalidate_cache()
            try:
                entries = system.find(path, detail=True)
            except FileNotFoundError:
                entries = {}
            # fsspec would make the bucket unasked, which is for its owner to decide.
            if not entries and self.has_no_bucket():
                raise UsageError(f"{self}: there is no such bucket; create it first, or correct its name")
            start = len(path.rstrip("/")) + 1
            return {name[start:]: int(about["size"] or 0) for name, about in entries.items() if name[start:]}

        sizes: dict[str, int] = self._tried("", "listed", look)
        destinations.check_names(
            self, {name.split("/")[0] for name in sizes}, not {manifests.NAME, BEGUN}.isdisjoint(sizes)
        )
        return sizes

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
        """Remove a file."""
        system, path = filesystem(join(self.url, name), self._options)
        self._tried(name, "removed", lambda: system.rm_file(path) if system.exists(path) else None)

    def _tried(self, name: str, what: str, call: Callable[[], Any], size: int = 0) -> Any:
        """The result of `call`, which moves `size` bytes, retried where that may help."""
        attempts = Attempts(self, name, what)
        while True:
            try:
                result = bounded(call, self.timeout + size / _SLOWEST)
                attempts.progressed()
                return result
            except Exception as error:
                # What was written a moment ago may not be seen yet, which is worth another attempt.
                trouble = OSError(str(error)) if isinstance(error, FileNotFoundError) else error
                try:
                    attempts.failed(trouble)
                except (StoreError, FileNotFoundError) as refused:
                    if meaning(trouble) in ("options", "refused"):
                        raise UsageError(f"{refused}; pack to a place that fsspec can write to") from None
                    raise PackError(f"{refused}; once that is fixed, {again()} resumes") from None
