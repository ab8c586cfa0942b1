"""What could not be packed, and why: the reason codes of `rejects.jsonl`."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "bad_field": "a field's value does not fit the field's dtype or shape, or a mask or boxes the image",
    "bad_name": "the path is not valid UTF-8",
    "corrupt": "the file is of a known image type, but its contents break that type's rules",
    "crashed": "the decoder's process died of it, twice",
    "crop_outside": "the image is smaller than what --crop cuts",
    "damaged": "in the store that it comes from, the sample is not the one that was packed",
    "empty": "the file has no bytes",
    "not_an_image": "the first bytes are of no known image type",
    "source_error": "the dataset raised an exception for it",
    "too_large": "the header says more pixels than --max-pixels, or more than the store's format holds",
    "truncated": "the file ends before the image does",
    "unreadable": "the file could not be opened or read",
    "unsupported": "a variant of a known image type that no decoder here handles",
}
"""Reason code -> what it means. Codes are never renamed: programs count them."""
