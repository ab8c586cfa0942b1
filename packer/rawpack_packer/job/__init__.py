"""Jobs: pack a source into a store, or make a store from other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use

if TYPE_CHECKING:
    from rawpack_packer.job.derive import Choice, Prefix
    from rawpack_packer.job.holdout import TRAIN
    from rawpack_packer.job.options import NoProgress, Progress, RunOptions, run_options
    from rawpack_packer.job.relabel import Relabeled, relabel_store
    from rawpack_packer.job.summary import (
        AppendSummary,
        DryRun,
        Summary,
        draw_lines,
        fast_hint,
        images_in_words,
        place_in_words,
        rejected_rows,
        samples_in_words,
    )

__all__ = [
    "TRAIN",
    "AppendSummary",
    "Choice",
    "DryRun",
    "NoProgress",
    "Prefix",
    "Progress",
    "Relabeled",
    "RunOptions",
    "Summary",
    "draw_lines",
    "fast_hint",
    "images_in_words",
    "place_in_words",
    "rejected_rows",
    "relabel_store",
    "run_options",
    "samples_in_words",
]
_LAZY = {
    "Choice": "derive",
    "Prefix": "derive",
    "TRAIN": "holdout",
    **dict.fromkeys(("NoProgress", "Progress", "RunOptions", "run_options"), "options"),
    **dict.fromkeys(("Relabeled", "relabel_store"), "relabel"),
    **dict.fromkeys(
        (
            "AppendSummary",
            "DryRun",
            "Summary",
            "draw_lines",
            "fast_hint",
            "images_in_words",
            "place_in_words",
            "rejected_rows",
            "samples_in_words",
        ),
        "summary",
    ),
}
"""Name -> its module: a command loads what it needs."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, _LAZY)
