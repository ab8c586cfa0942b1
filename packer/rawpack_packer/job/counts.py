"""The counts of a summary, and what each of them counts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rawpack.store.store import Store
from rawpack_packer.samples.sample import NOTES
from rawpack_packer.sources.video import NOTES as VIDEO_NOTES

_BLOCK = 1 << 20
COUNTS = NOTES | {
    "classes_of_one": "classes with a single image",
    "empty_classes": "classes without an image",
    "identical_files": "duplicate files",
    "unlabelled": "images without a class, with label -1",
    "no_boxes": "images without a box",
    "no_annotation": "images without an XML file",
    "segmentations": "run lengths of COCO, left out: --field semantic:mask packs them",
    "columns_left_out": "columns that no field can hold, left out",
    "hidden": "hidden files and folders, skipped",
    "other_files": "files that are not images, skipped",
    "special_files": "pipes, sockets and devices, never opened",
    "links": "symbolic links, followed",
    "loops": "links back to a folder they are in, not followed",
    "header_records": "records of labels without an image, left out",
    "not_listed": "images that the folder's table does not list, left out",
    "no_file": "lines of the folder's table without an image, left out",
    "unnamed_members": "members that --field does not name, left out",
    "no_image": "samples without an image, left out",
    "other_keys": "keys of an LMDB that are part of no sample, skipped",
    "other_members": "members of archives that are part of no sample, skipped",
    "pickles": "pickles, which could run code, never read",
    "bad_names": "names that are not allowed: not UTF-8, or out of the archive",
    "problems": "folders or files that could not be read",
    "images": "images next to the videos, skipped",
    "videos": "videos next to the images, skipped: --source video packs their frames",
    "videos_without_frames": "videos from which no frame was taken",
    "frames_left_out": "frames that --fps, --every, --start, --end and --max-frames leave out",
    **VIDEO_NOTES,
}
"""Name of a count, as programs get it -> what it counts, for a person."""


def count_of(name: str, noun: str, *, of_boxes: bool = False) -> str:
    """What a count counts, in the plural. noun: what a sample is called. of_boxes: whether classes are those of boxes,
    as in a store without labels."""
    if name == "empty_classes":
        what = "box" if of_boxes else noun
        return f"classes without {'an' if what[0] in 'aeiou' else 'a'} {what}"
    if name == "identical_files" and noun != "image":
        return f"{noun}s with the same pixels as another"
    return COUNTS.get(name, name)


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
