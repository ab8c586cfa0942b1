"""Jobs: pack a source into a store, or make a store from other stores."""

from __future__ import annotations

from rawpack_packer.job.append import AppendSummary
from rawpack_packer.job.derive import PREFIXES, Prefix
from rawpack_packer.job.holdout import TRAIN, parse_holdout
from rawpack_packer.job.job import DryRun
from rawpack_packer.job.options import NoProgress, Progress, RunOptions, run_options
from rawpack_packer.job.relabel import Relabeled, relabel_store
from rawpack_packer.job.run import Summary
from rawpack_packer.job.subset import Choice
from rawpack_packer.job.words import appended_rows, packed_rows, rejected_rows

__all__ = [
    "PREFIXES",
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
    "parse_holdout",
    "rejected_rows",
    "relabel_store",
    "run_options",
]
