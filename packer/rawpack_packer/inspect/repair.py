"""What to do about a store in which something is wrong, and which samples are lost otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rawpack.disk.manifest import load
from rawpack.remote.cache import is_cached_store
from rawpack_packer.inspect.problems import PLANTED, Problem
from rawpack_packer.provenance import packing_runs
from rawpack_packer.text import Rows, count, listed, plain

_SHOWN = 8
Runs = list[tuple[int, int]]


def repairs(path: Path, problems: Sequence[Problem]) -> Rows:
    """What to do about these problems of the store at `path`, safe to show; nothing where there are none."""
    if not problems:
        return []
    if is_cached_store(path):
        return [("repair", "`rawpack warm` with the URL of the store fetches damaged and missing files again")]
    planted = [problem.where for problem in problems if problem.what == PLANTED]
    rows = [("remove", f"{listed(planted, _SHOWN)}: no reader needs it")] if planted else []
    if len(planted) == len(problems):
        return rows
    manifest, _ = load(path)
    lost = _merged([problem.samples for problem in problems if problem.samples is not None])
    columns = sorted({problem.where for problem in problems if problem.where.startswith("columns")} - {*planted})
    numbers = listed([str(first) if stop - first == 1 else f"{first} to {stop - 1}" for first, stop in lost], _SHOWN)
    words = [f"{_count(lost):,} of {count(manifest.samples, 'sample')}: index {numbers}"] if lost else []
    words += [f"of all samples, what is in {listed(columns, _SHOWN)}"] if columns else []
    rows.append(("lost", "; ".join(words) or "no sample"))
    rows.append(("restore", "if there is another copy of the store, copy the damaged files from it"))
    later = ", then what was appended or relabeled" if len(packing_runs(manifest)) > 1 else ""
    rows.append(("pack again", f"give the command that packed it, with --restart{later}"))
    if not columns and 0 < _count(lost) < manifest.samples and len(lost) <= _SHOWN:
        gone = " or ".join(f"{first} <= index < {stop}" for first, stop in lost)
        command = shlex.join(["rawpack", "subset", "--where", f"not ({gone})", str(path), "NEW"])
        rows.append(("keep others", f"`{plain(command)}` makes a store of the others"))
    return rows


def _count(runs: Runs) -> int:
    return sum(stop - first for first, stop in runs)


def _merged(runs: Sequence[tuple[int, int]]) -> Runs:
    """The same samples in as few runs as there can be, in order."""
    merged: Runs = []
    for first, stop in sorted(runs):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((first, stop))
    return merged
