"""Listings of videos: each row is a video, or a part of one, whose frames have the fields of the row."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import need
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.added import WithFields
from rawpack_packer.sources.base import Scanning, Source, unseen
from rawpack_packer.sources.listing.metadata import MetadataSource
from rawpack_packer.sources.listing.reading import ListingSource
from rawpack_packer.sources.path_pattern import FoundFields
from rawpack_packer.sources.video.select import make_selection
from rawpack_packer.sources.video.source import OPTIONS, FrameSource, VideoFiles, selection_options
from rawpack_packer.sources.video_numbers import DTYPES


def open_listing(
    path: str | os.PathLike[str], /, *, videos: bool | None = None, progress: Scanning = unseen, **options: Any
) -> Source:
    """The images that a listing names, or the frames of its videos. path: of the listing, or of a folder with one, see
    `MetadataSource`. videos: see `ListingSource`.

    options: those of `ListingSource`, and of videos those of `VideoSource`. Raises as these do.
    """
    selected = {name: options.pop(name) for name in OPTIONS if name in options}
    listing: ListingSource
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        listing = MetadataSource(path, videos=videos, progress=progress, **options)
    else:
        listing = ListingSource(path, videos=videos, progress=progress, **options)
    if listing.of_videos:
        return _frames(listing, progress, **selected)
    if selected:
        name = next(iter(selected)).replace("_", "-")
        raise UsageError(
            f"{getattr(opt, name)} applies to videos, and {listing.info.root} lists images; {opt.kind('video')} if not"
        )
    return listing


def _frames(
    listing: ListingSource,
    progress: Scanning,
    *,
    fps: str | float | None = None,
    every: int | None = None,
    start: str | float | None = None,
    end: str | float | None = None,
    max_frames: int | None = None,
) -> Source:
    where, images = listing.info.root, listing.images
    need("av", "video", where)
    for name in listing.info.fields:
        if name in DTYPES:
            raise UsageError(
                f"{where}: every frame has a field {name!r} already: rename the column {name!r}, or add "
                f"{opt.path_column(name)} if it has the paths, {opt.key(name)} if it names the videos"
            )
    whole = make_selection(fps, every, start, end, max_frames)
    if listing.times and (start is not None or end is not None):
        raise UsageError(f"{where} says where its videos start and end: leave out {opt.start} and {opt.end}")
    times = listing.times or [(whole.start, whole.end)] * len(listing)
    files = VideoFiles(
        images.root,
        [os.fsencode(images.paths.value(i)) for i in range(len(listing))],
        [(size, mtime) for size, mtime in images.states.tolist()],
        [None] * len(listing),
        replace(listing.info, kind="video", fields={}, classes=None, empty_classes=(), options={}),
        [listing.key(i) for i in range(len(listing))],
    )
    options = selection_options(whole, every=every, start=start, max_frames=max_frames)
    selections = [replace(whole, start=start or whole.start, end=end) for start, end in times]
    frames = FrameSource(files, selections, {**listing.info.options, **options}, progress)
    info = listing.info
    found = FoundFields(info.fields, listing.columns, info.classes)
    made = WithFields(frames, found, frames.video_of(), np.array(listing.states()[-1:]), listing.lines)
    made.info = replace(made.info, empty_classes=info.empty_classes, counts={**frames.info.counts, **info.counts})
    return made
