"""The folder behind a URL that a store is uploaded to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rawpack.disk.manifest import FileRecord
from rawpack.errors import PackError, StoreError, UsageError
from rawpack.remote.transfer import TIMEOUT_S, Attempts, Remote, bounded, has_no_bucket, is_hopeless
from rawpack.remote.url import filesystem, join, shown
from rawpack_packer.voice import again

T = TypeVar("T")
_SLOWEST = 256 << 10
"""Bytes per second: a slower upload is taken for dead."""


class Target:
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
                found = system.find(path, detail=True)
            except FileNotFoundError:
                found = {}
            # fsspec would make the bucket unasked, which is for its owner to decide.
            if not found and has_no_bucket(system, path, self._timeout):
                raise UsageError(f"{self}: there is no such bucket; create it first, or correct its name")
            start = len(path.rstrip("/")) + 1
            return {name[start:]: int(about["size"] or 0) for name, about in found.items() if name[start:]}

        return self._tried("", "listed", look, 0)

    def read(self, name: str, record: FileRecord, path: Path) -> None:
        """Fetch a file that a manifest names. Raises as `Remote.download`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w+b", buffering=0) as file:
            self._remote.download(name, record, file.fileno())

    def read_small(self, name: str, check: Callable[[bytes], Any] = lambda data: None) -> bytes:
        """The bytes of a file. Raises FileNotFoundError, and as `Remote.read`."""
        return self._remote.read(name, check)

    def put(self, path: Path, name: str) -> None:
        """Upload a file, and check that all of it arrived."""
        size = path.stat().st_size

        def upload() -> None:
            system, there = filesystem(join(self.url, name), self._options)
            system.makedirs(system._parent(there), exist_ok=True)
            system.put_file(str(path), there)
            system.invalidate_cache()
            arrived = system.info(there)["size"]
            if arrived != size:
                raise OSError(f"{arrived} of {size} bytes arrived")

        self._tried(name, "written", upload, size)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

        def remove() -> None:
            system, there = filesystem(join(self.url, name), self._options)
            try:
                system.rm_file(there)
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
                    if is_hopeless(error):
                        raise UsageError(f"{refused}; pack to a place that fsspec can write to") from None
                    raise PackError(f"{refused}; once that is fixed, {again()} resumes") from None
