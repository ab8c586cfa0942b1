"""The kinds of source: those of rawpack, by name, and how a path is opened as one.

Other packages add kinds by an entry point of the group `rawpack.sources`: a function that takes a path and gives a
source, or any map-style dataset. One with an attribute `accepts`, a function of the path, is found from what SRC is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rawpack.errors import UsageError
from rawpack.remote.url import refuse_url
from rawpack_packer.sources.arrays import ArraySource, is_arrays
from rawpack_packer.sources.base import Source
from rawpack_packer.sources.dataset import DatasetSource
from rawpack_packer.sources.divided import DividedError, splits_in
from rawpack_packer.sources.folder import FolderSource, NoImageError, holds_image
from rawpack_packer.sources.listing import SUFFIXES, CocoSource, ListingSource, YoloSource, is_yolo
from rawpack_packer.sources.stores.source import StoreSource, is_store
from rawpack_packer.sources.video.filetype import is_video
from rawpack_packer.sources.video.source import OPTIONS as VIDEO_OPTIONS
from rawpack_packer.sources.video.source import VideoSource
from rawpack_packer.text import plain

Progress = Callable[[int], None]
GROUP = "rawpack.sources"
_DIVISIBLE = ("folder", "video", "yolo")
"""Kinds that take a folder with all that is below it."""


@dataclass(frozen=True)
class SourceKind:
    """One kind of source."""

    open: Callable[..., Source]
    """Opens a path: `open(path, progress=..., **options)`."""
    options: tuple[str, ...] = ()
    """What it takes beside the path, by keyword; None is as if left out. The command writes `max_frames` as
    `--max-frames`."""


@runtime_checkable
class RecognizesPaths(Protocol):
    """An entry point that says itself which paths are of its kind."""

    def accepts(self, path: str | os.PathLike[str], /) -> bool: ...


KINDS: dict[str, SourceKind] = {
    "arrays": SourceKind(ArraySource),
    "coco": SourceKind(CocoSource, ("images",)),
    "folder": SourceKind(FolderSource, ("skip_unreadable",)),
    "listing": SourceKind(ListingSource, ("fields", "key", "images", "classes")),
    "store": SourceKind(StoreSource),
    "video": SourceKind(VideoSource, (*VIDEO_OPTIONS, "skip_unreadable")),
    "yolo": SourceKind(YoloSource, ("classes", "skip_unreadable")),
}
"""Name of a kind -> how a path is opened as that kind."""

OPTIONS: tuple[str, ...] = tuple(dict.fromkeys(option for kind in KINDS.values() for option in kind.options))
"""Every option that some kind of source takes."""


def open_source(
    path: str | os.PathLike[str], kind: str | None = None, *, progress: Progress | None = None, **options: Any
) -> Source:
    """The samples that lie at `path`; `kind` is one of `KINDS` or of the plugins, None finds it from what `path` is.

    progress: called now and then, with how many entries of the source were looked at so far.
    options: of that kind; None, False and () are as if left out.
    Raises UsageError, one line that names the path and the cure, for what is no source, and for another kind's options;
    DividedError, a UsageError, where `kind` is None and the folder is divided into splits.
    """
    added = plugins()
    given = {name: value for name, value in options.items() if value is not None and value is not False and value != ()}
    if kind is not None:
        return _open(path, kind, added, given, progress)
    found = _kind_of(path, added, given)
    if found in _DIVISIBLE and os.fspath(path) and (names := splits_in(Path(path))):
        images = found != "folder" or holds_image(Path(path))
        raise DividedError(os.fspath(path), names, found if images else "video")
    try:
        return _open(path, found, added, given, progress)
    except NoImageError as error:
        if not error.videos:
            raise
        return _open(path, "video", added, given, progress)


def _open(
    path: str | os.PathLike[str],
    kind: str,
    added: dict[str, EntryPoint],
    given: dict[str, Any],
    progress: Progress | None,
) -> Source:
    if kind in KINDS:
        refuse_url(path)
    elif kind not in added:
        raise UsageError(f"there is no source of kind {kind!r}: it is one of {', '.join(sorted({*KINDS, *added}))}")
    for name in given:
        if kind not in KINDS or name not in KINDS[kind].options:
            homes = [home for home, known in KINDS.items() if name in known.options]
            belongs = f"it belongs to {' and '.join(homes)} sources" if homes else "it speaks of a dataset in memory"
            raise UsageError(
                f"{plain(os.fspath(path))}, opened as a source of kind {kind}, takes no option "
                f"{name.replace('_', '-')}: {belongs}"
            )
    if kind in KINDS:
        return KINDS[kind].open(path, progress=progress, **given)
    opened = _loaded(added[kind])(path)
    return opened if isinstance(opened, Source) else DatasetSource(opened)


def plugins() -> dict[str, EntryPoint]:
    """The kinds that other packages add; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _kind_of(path: str | os.PathLike[str], added: dict[str, EntryPoint], given: dict[str, Any]) -> str:
    for name, entry in added.items():
        opener = _loaded(entry)
        if isinstance(opener, RecognizesPaths) and opener.accepts(path):
            return name
    refuse_url(path)
    file = Path(path)
    # Not Path.is_file, which raises where nothing can be looked into: whoever scans the folder says so.
    if os.path.isfile(file):  # noqa: PTH113
        suffix = file.suffix.lower()
        if suffix in SUFFIXES:
            return "listing"
        if suffix == ".json":
            return "coco"
        return "arrays" if is_arrays(file) else "video" if is_video(file) else "folder"
    if is_store(file):
        return "store"
    if is_yolo(file):
        return "yolo"
    # Without options, whether there are images is seen while they are looked for: see `open_source`.
    asked = any(name in VIDEO_OPTIONS for name in given)
    return "video" if asked and file.is_dir() and not holds_image(file) else "folder"


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(f"the source {entry.name!r} of {entry.value} cannot be loaded: {error}") from error
