"""What could not be packed, and why: the reason codes of `rejects.jsonl`."""

from __future__ import annotations

import msgspec

REASONS: dict[str, str] = {
    "bad_field": "a field's value does not fit the field's dtype or shape, or a mask or boxes the image",
    "bad_name": "the path is not valid UTF-8",
    "corrupt": "the file is of a known type of image or video, but its contents break that type's rules",
    "crashed": "the decoder's process died of it, twice",
    "crop_outside": "the image is smaller than what --crop cuts",
    "damaged": "a frame of a video whose data do not decode, or that needs such a frame; or a sample of a store that "
    "is not the one that was packed",
    "empty": "the file has no bytes",
    "no_video": "the file holds no video that could be decoded, but sound, say",
    "not_an_image": "the first bytes are of no known image type",
    "not_scanned": "a folder, or a file that may be an image, that could not be looked into when the source was "
    "scanned; --skip-unreadable packed the rest",
    "source_error": "the dataset raised an exception for it",
    "too_large": "the header says more pixels than --max-pixels, or more than the store's format holds",
    "truncated": "the file ends before the image, or the frame of a video, does",
    "unreadable": "the file could not be opened or read",
    "unsupported": "a variant of a known type of image or video that no decoder here handles",
}
"""Reason code -> what it means. Codes are never renamed: programs count them."""
NOT_SCANNED = "not_scanned"
"""Allowed by --skip-unreadable alone: --max-rejects and --strict speak of images that were found."""


class Reject(msgspec.Struct, frozen=True):
    """A line of `rejects.jsonl`."""

    sample: int
    """Its number in the source, rejected ones counted."""
    key: str
    reason: str
    detail: str
