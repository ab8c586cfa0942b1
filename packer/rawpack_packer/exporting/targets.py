"""What a store can be exported to: a row for each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rawpack.errors import UsageError
from rawpack_packer.exporting.files import FileTarget
from rawpack_packer.exporting.options import ExportOptions
from rawpack_packer.exporting.parquet import ParquetTarget
from rawpack_packer.exporting.target import ExportTarget
from rawpack_packer.exporting.webdataset import WebDatasetTarget
from rawpack_packer.options.naming import opt
from rawpack_packer.sources import StoreSource


@dataclass(frozen=True)
class TargetRow:
    """A target, and which options it takes."""

    make: Callable[[StoreSource, Path, ExportOptions], ExportTarget]
    takes: frozenset[str]


TARGETS: Mapping[str, TargetRow] = {
    "files": TargetRow(FileTarget, frozenset({"numbered"})),
    "webdataset": TargetRow(WebDatasetTarget, frozenset({"numbered", "shard_size", "split"})),
    "parquet": TargetRow(ParquetTarget, frozenset({"shard_size", "split"})),
}


def make_target(to: str, source: StoreSource, folder: Path, options: ExportOptions) -> ExportTarget:
    """Raises UsageError for an unknown target, or an option that it does not take."""
    if to not in TARGETS:
        raise UsageError(f"{opt.to(repr(to))}: must be one of {', '.join(TARGETS)}")
    for option, given in options.given.items():
        if given and option not in TARGETS[to].takes:
            others = [opt.to(name) for name, row in TARGETS.items() if option in row.takes]
            raise UsageError(f"{getattr(opt, option)} applies to {' and '.join(others)} only")
    return TARGETS[to].make(source, folder, options)
