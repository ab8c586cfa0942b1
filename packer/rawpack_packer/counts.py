"""What is counted while packing, and how messages call it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from rawpack.disk.manifest import Field
from rawpack.store.store import Store
from rawpack_packer.text import with_noun

VIDEO, FRAME = "video", "frame"
DTYPES = {VIDEO: "int64", FRAME: "int64", "pts_seconds": "float64"}
"""The fields of every frame that rawpack takes from a video."""
_BLOCK = 1 << 20
OF_VIDEOS = {
    "rotated": "videos rotated or mirrored as their metadata says",
    "odd_rotation": "videos whose rotation is not a multiple of 90 degrees, ignored",
    "not_square": "videos whose pixels are not square, stored as they are",
    "interlaced": "videos of interlaced frames, stored as they are",
    "more_than_8_bits": "videos of more than 8 bits a channel, stored as 8",
    "hdr": "videos of a high dynamic range, stored without tone mapping",
    "transparent": "videos whose transparency is dropped",
    "colors_unsaid": "videos without color metadata, assumed BT.601",
    "several_streams": "files with several video streams: the largest is used",
    "variable_rate": "videos of a variable frame rate",
    "counted": "videos whose timestamps do not tell which frames there are: counted by decoding, and packed from the "
    "start on",
    "began_without_key": "videos that begin with frames that nothing can decode, which were left out",
}
"""Counts of videos, of which a source has all, also zeros."""
COUNTS = {
    "enlarged": "images smaller than the size, enlarged",
    "icc_ignored": "images whose color profile is ignored",
    "blended": "images with transparency, blended with white",
    "first_frame_of_several": "animated or multi-page files: the first frame is used",
    "by_pillow": "images whose pixels depend on the version of Pillow: all types except JPEG, PNG and BMP",
    "passed_through": "JPEG files stored as they are",
    "reencoded": "images that --quality keep had to re-encode",
    "decoder_warnings": "JPEG files with stray bytes that the decoder skipped: worth a look",
    "boxes_cut": "boxes that reached beyond the stored image and were cut to it",
    "boxes_cropped": "boxes that the crop to the size cut or left out: --fit whole keeps all",
    "boxes_outside": "boxes entirely outside the stored image, left out",
    "boxes_empty": "boxes without a width or height, left out",
    "classes_of_one": "classes with a single image",
    "empty_classes": "classes without an image",
    "identical_files": "duplicate files",
    "unlabelled": "images without a class, with label -1",
    "no_boxes": "images without a box",
    "no_annotation": "images without a file of annotations",
    "segmentations": "run lengths of COCO, left out: --field semantic:mask packs them",
    "columns_left_out": "columns that no field can store, left out",
    "hidden": "hidden files and folders, skipped",
    "other_files": "files that are not images, skipped",
    "special_files": "pipes, sockets and devices, never opened",
    "links": "symbolic links, followed",
    "loops": "links back to a folder they are in, not followed",
    "header_records": "records of labels without an image, left out",
    "not_listed": "images that the folder's table does not list, left out",
    "unpaired": "partner files that belong to no image, left out",
    "no_file": "lines of the table without an image, left out",
    "unnamed_members": "members that --field does not name, left out",
    "no_image": "samples without an image, left out",
    "other_keys": "keys of an LMDB that are part of no sample, skipped",
    "other_members": "members of archives that are part of no sample, skipped",
    "pickles": "pickles, which could run code, never read",
    "bad_names": "files whose names are not allowed, rejected",
    "problems": "folders or files that could not be read",
    "images": "images next to the videos, skipped",
    "videos": "videos next to the images, skipped: --source video packs their frames",
    "videos_without_frames": "videos from which no frame was taken",
    "read_again": "files that were read twice, because the process that first read them had died",
    "frames_left_out": "frames that --fps, --frame-step, --start, --end and --max-frames leave out",
    **OF_VIDEOS,
}
"""Name of a count, as programs get it -> what it counts, in the plural: "images without a box: 1"."""


_DEPTH = re.compile(r"bits_(\d+)_of_(\d+)")


def depth_count(bits: int, of: int) -> str:
    """The name of the count of images of `of` bits, stored as 8, whose greatest value has `bits` bits."""
    return f"bits_{bits}_of_{of}"


def depth_of(name: str) -> tuple[int, int] | None:
    """The `bits` and `of` of a `depth_count`; None for all other counts."""
    match = _DEPTH.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def count_of(name: str, noun: str, *, of_boxes: bool = False) -> str:
    """What a count counts. noun: what a sample is called. of_boxes: whether classes are those of boxes, as in a store
    without labels."""
    if name == "empty_classes" and of_boxes:
        return "classes without a box"
    if name == "identical_files" and noun == "frame":
        return f"{noun}s with the same pixels as another"
    if name in ("images", "other_files"):
        return COUNTS[name]  # these are no samples
    if depth := depth_of(name):
        return f"images of {depth[0]}-bit values in {depth[1]} bits, stored as 8"
    return with_noun(COUNTS.get(name, name), noun).replace("an frame", "a frame")


class HasShape(Protocol):
    """A field of a store or of a source."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int | None, ...]: ...


def are_frames(fields: Mapping[str, HasShape]) -> bool:
    """Whether samples with these fields can be frames that rawpack took from videos."""
    return all(
        name in fields and (fields[name].dtype, fields[name].shape) == (dtype, ()) for name, dtype in DTYPES.items()
    )


def noun_of(fields: Mapping[str, Field]) -> str:
    """What a sample of a store with these fields is called, in the singular."""
    several = sum(field.kind == "image" for field in fields.values()) > 1
    return "frame" if are_frames(fields) else "sample" if several else "image"


def label_counts(store: Store) -> Counter[int]:
    """Label -> samples; empty for a store without classes."""
    counts: Counter[int] = Counter()
    if store.manifest.classes is None or "label" not in store.fields:
        return counts
    for start in range(0, len(store), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(store)))
        labels = np.empty(len(rows), np.int64)
        store.columns.take("label", rows, labels)
        values, found = np.unique(labels, return_counts=True)
        counts.update(dict(zip(values.tolist(), found.tolist(), strict=True)))
    return counts
