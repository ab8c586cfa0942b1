"""What several sub-commands ask of their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rawpack.errors import UsageError
from rawpack.store.store import Store

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore


def open_origin(url: str, cache: str | None = None, cache_bytes: str | None = None) -> RemoteStore:
    """The store behind a URL, of which manifest and columns are fetched. Raises StoreError where there is none."""
    from rawpack.remote.cache import Cache
    from rawpack.remote.origin import open_origins

    (origin,) = open_origins([url], Cache(cache, cache_bytes))
    return origin


def open_url(url: str) -> Store:
    """The store behind a URL, whose manifest and columns are fetched. Raises StoreError where there is none."""
    origin = open_origin(url)
    return Store(origin.folder, manifest_bytes=origin.manifest_bytes, origin=origin)


def output_file(path: str) -> Path:
    """A file to be written that a user named. Raises UsageError where it cannot be one."""
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {file.parent}")
    return file


def report_file(option: str, path: str) -> Path:
    """Where a report is to be written by `--html` or `--png`. Raises MissingExtraError where it cannot be drawn, and as
    `output_file`: before minutes of work go by."""
    from rawpack_packer.report.extra import need_report

    need_report(option)
    return output_file(path)
