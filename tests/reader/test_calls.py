"""What a sample costs in calls of Python functions: a call more for each sample is felt, and no clock can show it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from reading import placed
from running import Packed, environment

import rawpack
from rawpack import Batches, Reader, native

CALLS = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "calls.py"
AT_MOST = {"lmdb": 8, "lmdb, crops, flips, normalize": 28, "memmap, 2 workers": 60}
"""For a sample, or a batch where workers read it; with Python 3.11, and its newest numpy."""
BY_NUMPY = {"lmdb, crops, flips, normalize": 50}
"""Where the native core is not in use."""
_ELSEWHERE = 1.25
"""As many times more elsewhere."""


def test_few_functions_are_called_for_a_sample(tmp_path: Path) -> None:
    """However busy the machine is, the reader calls no more Python functions for a sample than promised."""
    found = tmp_path / "calls.json"
    command = [sys.executable, str(CALLS), "--quick", "--work", str(tmp_path / "work"), "--json", str(found)]
    subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)
    counts = {one["label"]: one["calls"] for one in json.loads(found.read_text())}
    at_most = AT_MOST | ({} if native.library() is not None else BY_NUMPY)
    allowance = 1.0 if sys.version_info[:2] == (3, 11) else _ELSEWHERE
    assert {label: calls for label, calls in counts.items() if calls > at_most.get(label, 100) * allowance} == {}
    assert set(AT_MOST) < set(counts)


def test_the_first_batch_after_a_resume_goes_straight_to_its_samples(packed: Packed) -> None:
    """It is made in few calls, which seldom go from one room to another: what is asked before an epoch begins is asked
    in one place."""
    reader = Reader(packed("memmap", "--size", 48))

    def made() -> Batches:
        return reader.batches(4, shuffle=True, ranks=(1, 4), workers=0)

    first = made()
    next(iter(first))
    batches, rooms, package = placed(made(), depth=2), list[str](), Path(rawpack.__file__).parent
    batches.load_state_dict(first.state_dict())

    def profile(frame: Any, event: str, arg: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(package):
            rooms.append(path.relative_to(package).parts[0])

    iterator = iter(batches)
    sys.setprofile(profile)
    try:
        next(iterator)
    finally:
        sys.setprofile(None)
    assert len(rooms) <= 200
    assert sum(before != after for before, after in pairwise(rooms)) <= 60
