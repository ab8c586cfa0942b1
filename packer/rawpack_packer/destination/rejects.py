"""Rejected samples and their reason codes: the lines of `rejects.jsonl`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec

REASONS: dict[str, str] = {
    "bad_field": "a value does not fit its field's dtype or shape, or a mask or a box does not fit the image",
    "bad_name": "the path is not valid UTF-8, or leads out of the archive",
    "corrupt": "the file is of a known type of image or video, but its contents break that type's rules",
    "crashed": "the sample crashed the decoder's process twice, or its part three workers of a cluster",
    "crop_outside": "the image is smaller than what --crop cuts",
    "damaged": "a video frame whose data do not decode, or that needs such a frame; or a sample that was changed after "
    "packing",
    "empty": "the file has no bytes",
    "no_video": "the file has no video stream, only sound for example",
    "not_an_image": "the first bytes are of no known image type",
    "not_scanned": "a folder, or a file that may be an image, that could not be read during the scan; "
    "--skip-unreadable packed the rest",
    "source_error": "the dataset raised an exception for the sample",
    "too_large": "the header declares more pixels than --max-pixels, or more than the store's format can hold",
    "truncated": "the file ends before the image, or the frame of a video, does",
    "unreadable": "the file could not be opened or read",
    "unsupported": "a variant of a known type of image or video that no decoder here handles",
}
"""Reason code -> what it means. Codes are never renamed: programs count them."""
NOT_SCANNED = "not_scanned"
"""Allowed by --skip-unreadable alone; --max-rejects and --strict apply to images that were found."""
_LONGEST = 300
_COMPARED = 100_000
"""Enough to tell what is common; millions of details that all differ would take gigabytes."""


class Reject(msgspec.Struct, frozen=True):
    """A line of `rejects.jsonl`."""

    sample: int
    """Its number in the source."""
    key: str
    reason: str
    detail: str

    def __str__(self) -> str:
        """As an example in a message; `rejects.jsonl` has all of a long detail."""
        return f"{self.key}: {self.detail if len(self.detail) <= _LONGEST else f'{self.detail[:_LONGEST]}...'}"


def typical(rejects: Iterable[Reject]) -> Reject | None:
    """The first reject with the commonest detail of the commonest reason; None where there is none."""
    by_reason: dict[str, Counter[str]] = {}
    first: dict[tuple[str, str], Reject] = {}
    for one in islice(rejects, _COMPARED):
        by_reason.setdefault(one.reason, Counter())[one.detail] += 1
        first.setdefault((one.reason, one.detail), one)
    if not first:
        return None
    reason, details = max(by_reason.items(), key=lambda found: found[1].total())
    return first[reason, details.most_common(1)[0][0]]
