"""Jobs: pack a source into a store, or make a store from other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use

if TYPE_CHECKING:
    from rawpack_packer.job.derive import Choice
    from rawpack_packer.job.job import Job
    from rawpack_packer.job.options import NoProgress, Progress
    from rawpack_packer.job.relabel import relabel_store
    from rawpack_packer.job.splits import Splits, splits_job
    from rawpack_packer.job.summary import draw_lines, images_in_words, place_in_words, samples_in_words

__all__ = [
    "Choice", "Job", "NoProgress", "Progress", "Splits", "draw_lines", "images_in_words",
    "place_in_words", "relabel_store", "samples_in_words", "splits_job",
]  # fmt: skip
_LAZY = {"Choice": "derive", "Job": "job", "NoProgress": "options", "Progress": "options", "relabel_store": "relabel"}
_LAZY |= dict.fromkeys(("Splits", "splits_job"), "splits")
"""Name -> its module; the others are in `summary`. A command loads what it needs."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, dict.fromkeys(__all__, "summary") | _LAZY)
