"""Every count of a summary, and what it counts: what a source left out, and what became of images."""

from __future__ import annotations

from rawpack_packer.prepare import NOTES

COUNTS = NOTES | {
    "classes_of_one": "classes with a single image",
    "empty_classes": "classes without an image",
    "identical_files": "files whose bytes are those of another",
    "unlabelled": "images beside the class folders, with label -1",
    "hidden": "hidden files and folders, skipped",
    "other_files": "files that are no images, skipped",
    "special_files": "pipes, sockets and devices, never opened",
    "links": "symbolic links, followed",
    "loops": "links back to a folder they lie in, not followed",
    "bad_names": "names that are not UTF-8",
    "problems": "folders or files that could not be looked into",
}
"""Name of a count, as programs get it -> what it counts, for a person."""
