"""Jobs: pack a source into a store, or make a store from other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use

if TYPE_CHECKING:
    from rawpack_packer.job.append import AppendSummary
    from rawpack_packer.job.derive import Prefix
    from rawpack_packer.job.holdout import TRAIN
    from rawpack_packer.job.job import DryRun
    from rawpack_packer.job.options import NoProgress, Progress, RunOptions, run_options
    from rawpack_packer.job.relabel import Relabeled, relabel_store
    from rawpack_packer.job.run import Summary
    from rawpack_packer.job.subset import Choice
    from rawpack_packer.job.words import appended_rows, packed_rows, rejected_rows

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
    "appended_rows",
    "packed_rows",
    "rejected_rows",
    "relabel_store",
    "run_options",
]
_LAZY = {
    "AppendSummary": "append",
    "Choice": "subset",
    "DryRun": "job",
    "Prefix": "derive",
    "Summary": "run",
    "TRAIN": "holdout",
    **dict.fromkeys(("NoProgress", "Progress", "RunOptions", "run_options"), "options"),
    **dict.fromkeys(("Relabeled", "relabel_store"), "relabel"),
    **dict.fromkeys(("appended_rows", "packed_rows", "rejected_rows"), "words"),
}
"""Name -> its module: a command loads what it needs."""

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(__name__, _LAZY)
